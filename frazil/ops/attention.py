"""What attention forward and backward share: ports and attributes, checks, and the way from Q and K to
logits.

The logits of a batch entry are, in this order: scale * Q K^T, `score_mod`, bias, ALiBi (slope * (key - row)),
and -inf where the mask hides a key. Padded rows and keys are read as 0, so that whatever lies there is
harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from ..dtypes import FLOATING, data_type
from ..enums import diagonal_alignment
from ..op import BOOL, FLOAT, INT, Attr, Call, Inferred, Kind, Port, one_of, optional
from . import philox, ragged, score_mod
from .attention_mask import TILE, Band, alibi_slopes, block_visible

_OPERANDS = (data_type.HALF, data_type.BFLOAT16, data_type.FLOAT, data_type.DOUBLE)
_INTEGERS = (data_type.INT32, data_type.INT64)
_PACKABLE = {
    *("q", "k", "v", "o", "dO", "stats", "page_table_k", "page_table_v"),
    *("O", "Stats", "score_max", "score_sum_exp", "dQ", "dK", "dV"),
}

EXPRESSION = Kind("Expression | None", lambda value: value)

OPERANDS = (
    Port("q", "(B, Hq, Sq, Dqk), unit stride along D."),
    Port("k", "(B, Hk, Skv, Dqk), or pages (P, Hk, page size, Dqk); Hk divides Hq."),
    Port("v", "(B, Hv, Skv, Dv), or pages (P, Hv, page size, Dv); Hv divides Hq."),
)
SCORE_PORTS = (
    Port("scale", "Factor of Q K^T as a tensor of one element.", optional=True),
    Port("bias", "Added to the scaled scores; broadcasts to (B, Hq, Sq, Skv).", optional=True),
    Port("block_mask", "uint8, one bit per tile of 128 x 128.", optional=True, index=True),
    Port(
        "seq_len_q",
        "Live rows of each batch entry, (B, 1, 1, 1) of INT32 or INT64, held within 0 and Sq; with "
        "use_padding_mask, or beside a score_mod.",
        optional=True,
        index=True,
    ),
    Port(
        "seq_len_kv",
        "Live keys of each batch entry, (B, 1, 1, 1); held within 0 and Skv.",
        optional=True,
        index=True,
    ),
    Port(
        "cu_seq_len_q",
        "Cumulative rows, B + 1 elements; hides what lies behind them by itself.",
        optional=True,
        index=True,
    ),
    Port(
        "cu_seq_len_kv",
        "Cumulative keys, B + 1 elements; hides what lies behind them by itself.",
        optional=True,
        index=True,
    ),
    Port(
        "page_table_k", "Page of each block of keys, (B, 1, blocks, 1) of INT32.", optional=True, index=True
    ),
    Port(
        "page_table_v", "Page of each block of values, (B, 1, blocks, 1) of INT32.", optional=True, index=True
    ),
    Port("sink_token", "One more logit per head, (1, Hq, 1, 1), without a value.", optional=True),
    Port("dropout_seed", "One INT32 or INT64 in memory.", optional=True, index=True),
    Port("dropout_offset", "One INT32 or INT64 in memory.", optional=True, index=True),
    Port("dropout_mask", "Factors of the probabilities; broadcasts to (B, Hq, Sq, Skv).", optional=True),
    Port("dropout_scale", "One element: factor of the masked probabilities.", optional=True),
    Port("captures", "Tensors that score_mod uses.", optional=True, variadic=True),
)
SCORE_ATTRS = (
    Attr("attn_scale", 1.0, FLOAT, "Factor of Q K^T; 1 where left out, not 1 / sqrt(D)."),
    Attr("use_alibi_mask", False, BOOL, "Add slope * (key - row), with the usual slope of each head."),
    Attr("use_padding_mask", False, BOOL, "Lengths are given; what lies behind them takes no part."),
    Attr(
        "alignment",
        diagonal_alignment.TOP_LEFT,
        one_of(diagonal_alignment),
        "Corner that the diagonal starts from.",
    ),
    Attr("left_bound", None, optional(INT), "Width of the window that ends at the diagonal, in keys."),
    Attr("right_bound", None, optional(INT), "Keys visible beyond the diagonal."),
    Attr("dropout_probability", None, optional(FLOAT), "Share of probabilities that is dropped."),
    Attr("max_seq_len_kv", None, optional(INT), "Skv of paged K and V."),
    Attr("max_total_seq_len_q", None, optional(INT), "Upper bound of the packed rows; a hint."),
    Attr("max_total_seq_len_kv", None, optional(INT), "Upper bound of the packed keys; a hint."),
    Attr("score_mod", None, EXPRESSION, "What the callbacks compute."),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Extents of an attention call."""

    b: int
    h_q: int
    h_k: int
    h_v: int
    s_q: int
    s_kv: int
    d_qk: int
    d_v: int

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """(B, Hq, Sq, Skv)."""
        return self.b, self.h_q, self.s_q, self.s_kv

    @staticmethod
    def of(call: Call) -> Sizes:
        """Extents of a call whose operands have been checked."""
        q, k, v = (call.inputs[p].dim for p in ("q", "k", "v"))
        return Sizes(q[0], q[1], k[1], v[1], q[2], _keys(call), q[3], v[3])


def _keys(call: Call) -> int:
    """Skv: declared, or for paged operands given, or what bias or rng_dump say, or as many as both tables
    have room for.
    """
    tables = {p: call.inputs[f"page_table_{p}"] for p in ("k", "v")}
    if None in tables.values():
        return int(call.inputs["k"].dim[2])
    if call.attrs.max_seq_len_kv is not None:
        return int(call.attrs.max_seq_len_kv)
    for tensor in (call.inputs["bias"], call.outputs.get("rng_dump")):
        if tensor is not None and len(tensor.dim) == 4 and tensor.dim[3] > 1:
            return int(tensor.dim[3])
    room = (t.dim[2] * call.inputs[p].dim[2] for p, t in tables.items() if len(t.dim) == 4)
    return int(min(room, default=0))


# Checks.


def check_operands(call: Call) -> Sizes:
    """Extents, types, strides and lengths that forward and backward have in common.

    Raises
    ------
    GraphError
        Naming the first operand that does not fit, with what was found and expected.
    """
    q = call.inputs["q"]
    for port in ("q", "k", "v"):
        tensor = call.inputs[port]
        call.require(len(tensor.dim) == 4, "rank", port, got=tensor.dim, expected="4 axes (B, H, S, D)")
        allowed = [t.name for t in _OPERANDS]
        call.require(tensor.data_type in _OPERANDS, "data type", port, got=tensor.data_type, expected=allowed)
        call.require(
            tensor.data_type is q.data_type, "data type", port, got=tensor.data_type, expected=q.data_type
        )
        require_unit_stride(call, port)
        heads, group = tensor.dim[1], q.dim[1]
        fits = heads > 0 and group % heads == 0 if group else heads == 0
        call.require(fits, "head count", port, got=heads, expected=f"a divisor of {group}, the heads of q")
    _check_keys(call)
    sizes = Sizes.of(call)
    _check_lengths(call, sizes)
    _check_packed(call, sizes)
    _check_band(call)
    _check_score_ports(call, sizes)
    if call.attrs.score_mod is not None:
        score_mod.check(call, call.attrs.score_mod, sizes.scores)
    return sizes


def require_unit_stride(call: Call, port: str) -> None:
    """Refuse a tensor whose elements along D are not neighbours."""
    tensor = call.inputs.get(port)
    tensor = call.outputs[port] if tensor is None else tensor
    if tensor.stride and tensor.dim[3] > 1:
        call.require(
            tensor.stride[3] == 1, "stride along D", port, got=tensor.stride, expected="1 on the last axis"
        )


def require_floating(call: Call, port: str) -> None:
    """Refuse a tensor of another kind than floating point."""
    tensor = call.inputs.get(port)
    found = (call.outputs[port] if tensor is None else tensor).data_type
    call.require(found in FLOATING, "data type", port, got=found, expected="a floating-point type")


def require_statistics(call: Call, port: str) -> None:
    """Refuse statistics of another type than FLOAT, or DOUBLE where the operands are."""
    tensor = call.inputs.get(port)
    found = (call.outputs[port] if tensor is None else tensor).data_type
    wide = call.inputs["q"].data_type is data_type.DOUBLE
    allowed = (data_type.FLOAT, data_type.DOUBLE) if wide else (data_type.FLOAT,)
    expected = " or ".join(t.name for t in allowed)
    call.require(found in allowed, "data type", port, got=found, expected=expected)


def require_extents(call: Call, port: str, expected: tuple[int, ...]) -> None:
    """Refuse a tensor with other extents."""
    dim = call.inputs[port].dim
    call.require(dim == expected, "extents", port, got=dim, expected=expected)


def _check_keys(call: Call) -> None:
    q, k, v = (call.inputs[p].dim for p in ("q", "k", "v"))
    call.require(k[3] == q[3], "extent of D", "k", got=k[3], expected=f"{q[3]}, as q has")
    pages = {"k": call.inputs["page_table_k"], "v": call.inputs["page_table_v"]}
    for port, other in (("k", "v"), ("v", "k")):
        if pages[port] is None and pages[other] is not None:
            name = f"paged_attention_{port}_table"
            raise call.refuse(f"{name} is missing", got=f"the table of {other} alone", expected="both tables")
    limit = call.attrs.max_seq_len_kv
    if pages["k"] is None and limit is not None:
        raise call.refuse(
            "paged_attention_max_seq_len_kv", got=f"{limit} without page tables", expected="page tables"
        )
    for port, table in pages.items():
        dim = call.inputs[port].dim
        name = f"page_table_{port}"
        if table is None:
            call.require(dim[0] == q[0], "batch extent", port, got=dim[0], expected=f"{q[0]}, as q has")
            continue
        counted = call.inputs["seq_len_kv"] is not None or call.inputs["cu_seq_len_kv"] is not None
        expected = "use_padding_mask with seq_len_q and seq_len_kv"
        call.require(counted, "paged keys and values without lengths", port, got="none", expected=expected)
        call.require(
            not call.inputs[port].is_ragged, "ragged offset", port, got="one", expected="none on pages"
        )
        _require_integers(call, name)
        limit = call.attrs.max_seq_len_kv
        call.require(
            limit is None or limit > 0, "paged_attention_max_seq_len_kv", got=limit, expected="at least 1"
        )
        page = dim[2]
        blocks = -(-_keys(call) // page) if page else 0
        right = len(table.dim) == 4 and table.dim[0] == q[0] and table.dim[1] == table.dim[3] == 1
        expected = f"({q[0]}, 1, {blocks} or more, 1) for {_keys(call)} keys in pages of {page}"
        call.require(
            right and page > 0 and table.dim[2] >= blocks, "extents", name, got=table.dim, expected=expected
        )
    s_kv = _keys(call)
    for port, dim in (("k", k), ("v", v)):
        if pages[port] is None:
            call.require(dim[2] == s_kv, "extent of S", port, got=dim[2], expected=s_kv)


def _check_lengths(call: Call, sizes: Sizes) -> None:
    has = {
        p: call.inputs[p] is not None for p in ("seq_len_q", "seq_len_kv", "cu_seq_len_q", "cu_seq_len_kv")
    }
    for side in ("q", "kv"):
        plain, cumulative = f"seq_len_{side}", f"cu_seq_len_{side}"
        if has[plain] and has[cumulative]:
            raise call.refuse("given together with seq_len", cumulative, expected="one of the two")
        if call.attrs.use_padding_mask and not (has[plain] or has[cumulative]):
            raise call.refuse(
                "use_padding_mask without lengths", got="none", expected=f"{plain} or {cumulative}"
            )
        if has[plain]:
            # Callbacks that mask by length themselves are given the lengths without the flag.
            used = call.attrs.use_padding_mask or call.attrs.score_mod is not None
            call.require(used, "lengths", plain, got="no use_padding_mask", expected="use_padding_mask=True")
            _require_count(call, plain, sizes.b)
        if has[cumulative]:
            _require_count(call, cumulative, sizes.b + 1)


def _check_packed(call: Call, sizes: Sizes) -> None:
    for port in (*call.inputs, *call.outputs):
        tensor = call.inputs.get(port) or call.outputs.get(port)
        if getattr(tensor, "is_ragged", False):
            expected = f"a dense tensor: only {', '.join(sorted(_PACKABLE))} may be packed"
            call.require(port in _PACKABLE, "ragged offset", port, got="one", expected=expected)
        offset = getattr(tensor, "ragged_offset", None)
        if offset is not None:
            count = int(np.prod(offset.dim, dtype=np.int64))
            right = count == sizes.b + 1 and offset.data_type in _INTEGERS
            got = f"{offset.dim} of {offset.data_type.name}"
            call.require(
                right, "ragged offset", port, got=got, expected=f"{sizes.b + 1} elements of INT32 or INT64"
            )


def _require_integers(call: Call, port: str) -> None:
    found = call.inputs[port].data_type
    call.require(found in _INTEGERS, "data type", port, got=found, expected="INT32 or INT64")


def _require_count(call: Call, port: str, count: int) -> None:
    _require_integers(call, port)
    dim = call.inputs[port].dim
    right = int(np.prod(dim, dtype=np.int64)) == count and count in (1, dim[0])
    call.require(right, "extents", port, got=dim, expected=f"({count}, 1, 1, 1)")


def _check_band(call: Call) -> None:
    a = call.attrs
    if a.left_bound is not None:
        call.require(a.left_bound >= 1, "left bound (window length)", got=a.left_bound, expected="at least 1")
    if a.right_bound is not None:
        call.require(a.right_bound >= 0, "right bound", got=a.right_bound, expected="at least 0")
    for name in ("max_total_seq_len_q", "max_total_seq_len_kv"):
        call.require(a[name] is None or a[name] >= 0, f"attribute {name}", got=a[name], expected="at least 0")


def _check_score_ports(call: Call, sizes: Sizes) -> None:
    for port in ("bias", "dropout_mask"):
        tensor = call.inputs[port]
        if tensor is not None:
            fits = len(tensor.dim) == 4 and all(
                d in (1, s) for d, s in zip(tensor.dim, sizes.scores, strict=True)
            )
            expected = f"1 or the extent of {sizes.scores} on each axis"
            call.require(fits, "extents", port, got=tensor.dim, expected=expected)
            call.require(
                tensor.data_type is not data_type.BOOLEAN,
                "data type",
                port,
                got="BOOLEAN",
                expected="a float",
            )
    for port in ("bias", "sink_token", "scale", "dropout_scale"):
        if call.inputs[port] is not None:
            require_floating(call, port)
    for port in ("scale", "dropout_seed", "dropout_offset", "dropout_scale"):
        if call.inputs[port] is not None:
            dim = call.inputs[port].dim
            call.require(
                int(np.prod(dim, dtype=np.int64)) == 1, "extents", port, got=dim, expected="one element"
            )
    for port in ("dropout_seed", "dropout_offset"):
        if call.inputs[port] is not None:
            _require_integers(call, port)
    p = call.attrs.dropout_probability
    missing = [n for n in ("dropout_seed", "dropout_offset") if call.inputs[n] is None]
    expected = "(probability, seed tensor, offset tensor)"
    call.require(p is None or not missing, "dropout", got=f"no {' and no '.join(missing)}", expected=expected)
    call.require(p is None or 0 <= p < 1, "dropout probability", got=p, expected="0 <= p < 1")
    if call.inputs["sink_token"] is not None:
        require_extents(call, "sink_token", (1, sizes.h_q, 1, 1))
    mask = call.inputs["block_mask"]
    if mask is not None:
        rows, tiles = -(-sizes.s_q // TILE), -(-sizes.s_kv // TILE)
        require_extents(call, "block_mask", (sizes.b, sizes.h_q, rows, -(-tiles // 8)))
        call.require(
            mask.data_type is data_type.UINT8, "data type", "block_mask", got=mask.data_type, expected="UINT8"
        )


def statistics(call: Call, sizes: Sizes) -> Inferred:
    """Geometry of a tensor with one number per row: FLOAT, or DOUBLE where the operands are."""
    wide = call.inputs["q"].data_type is data_type.DOUBLE
    return Inferred((sizes.b, sizes.h_q, sizes.s_q, 1), None, data_type.DOUBLE if wide else data_type.FLOAT)


# The way to logits.


@dataclass(frozen=True, slots=True)
class Scores:
    """Q, K and V as padded float arrays, and the logits of Q and K.

    Attributes
    ----------
    q, k, v
        (B, H, S, D); K and V repeated to Hq heads.
    raw
        scale * Q K^T, before `score_mod`.
    logits
        (B, Hq, Sq, Skv), -inf where hidden.
    seen
        Where not hidden.
    rows, keys
        Lengths (B).
    scale
        The factor.
    """

    q: Any
    k: Any
    v: Any
    raw: Any
    logits: Any
    seen: Any
    rows: Any
    keys: Any
    scale: Any


def scores(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Scores:
    """Everything up to the logits."""
    sizes, a = Sizes.of(call), call.attrs
    rows = _lengths(xp, call, arrays, "q", "q", sizes.b, sizes.s_q)
    keys = _lengths(xp, call, arrays, "kv", "kv", sizes.b, sizes.s_kv)
    q = operand(xp, call, arrays, "q", rows)
    k = xp.repeat(_keyed(xp, call, arrays, "k", keys, sizes), sizes.h_q // max(1, sizes.h_k), axis=1)
    v = xp.repeat(_keyed(xp, call, arrays, "v", keys, sizes), sizes.h_q // max(1, sizes.h_v), axis=1)
    scale = a.attn_scale if arrays["scale"] is None else arrays["scale"].reshape(())
    raw = xp.matmul(q, k.swapaxes(2, 3)) * q.dtype.type(scale)
    total = raw
    if a.score_mod is not None:
        leading = [raw] * a.score_mod.leading
        total = score_mod.evaluate(xp, a.score_mod, [*leading, *(arrays["captures"] or ())])[0]
        total = xp.broadcast_to(total, sizes.scores)
    if arrays["bias"] is not None:
        total = total + arrays["bias"]
    if a.use_alibi_mask:
        distance = xp.arange(sizes.s_kv)[None, :] - xp.arange(sizes.s_q)[:, None]
        total = total + (alibi_slopes(xp, sizes.h_q)[:, None, None] * distance).astype(total.dtype)
    seen = Band.of(a).visible(xp, sizes.s_q, sizes.s_kv, rows, keys)
    if arrays["block_mask"] is not None:
        seen = seen & block_visible(xp, arrays["block_mask"], sizes.s_q, sizes.s_kv)
    seen = xp.broadcast_to(seen, sizes.scores)
    return Scores(q, k, v, raw, xp.where(seen, total, -xp.inf), seen, rows, keys, q.dtype.type(scale))


def factors(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> tuple[Any, Any]:
    """What dropout keeps (bool or factors, or None without dropout), and the factor of what is kept."""
    sizes, p = Sizes.of(call), call.attrs.dropout_probability
    if arrays["dropout_mask"] is not None:
        scale = arrays["dropout_scale"]
        return arrays["dropout_mask"], 1.0 if scale is None else scale.reshape(())
    if p is None:
        return None, 1.0
    seed, offset = (int(arrays[f"dropout_{n}"].reshape(())) for n in ("seed", "offset"))
    return philox.keep(xp, seed, offset, *sizes.scores, p), 1.0 / (1.0 - p)


def operand(xp: ModuleType, call: Call, arrays: Mapping[str, Any], port: str, rows: Any) -> Any:
    """A (B, H, S, D) operand as a padded array, packed or not, with 0 behind the live rows."""
    tensor = call.inputs[port]
    if tensor.is_ragged:
        return ragged.gather(xp, call, port, arrays, rows)
    live = xp.arange(tensor.dim[2]).reshape(1, 1, -1, 1) < rows.reshape(-1, 1, 1, 1)
    return xp.where(live, arrays[port], arrays[port].dtype.type(0))


def result(xp: ModuleType, call: Call, arrays: Mapping[str, Any], port: str, values: Any, rows: Any) -> Any:
    """A padded result as the output port takes it."""
    return ragged.scatter(xp, call, port, arrays, values, rows) if call.outputs[port].is_ragged else values


def _lengths(
    xp: ModuleType, call: Call, arrays: Mapping[str, Any], side: str, ports: str, b: int, limit: int
) -> Any:
    """Live rows or keys of each batch entry, clamped to what is declared."""
    if arrays[f"cu_seq_len_{side}"] is not None:
        found = xp.diff(arrays[f"cu_seq_len_{side}"].reshape(-1).astype(np.int64))
    elif arrays[f"seq_len_{side}"] is not None:
        found = arrays[f"seq_len_{side}"].reshape(-1).astype(np.int64)
    elif (packed := next((p for p in ports if call.inputs[p].is_ragged), None)) is not None:
        found = ragged.lengths(xp, call, packed, arrays)
    else:
        found = xp.full(b, limit, np.int64)
    return xp.clip(found, 0, limit)


def _keyed(xp: ModuleType, call: Call, arrays: Mapping[str, Any], port: str, keys: Any, sizes: Sizes) -> Any:
    """K or V as a padded (B, H, Skv, D) array, gathered from pages where it is paged."""
    if arrays[f"page_table_{port}"] is None:
        return operand(xp, call, arrays, port, keys)
    pool = arrays[port]
    count, page = pool.shape[0], pool.shape[2]
    table = _table(xp, call, arrays, f"page_table_{port}", -(-keys // page))
    key = xp.arange(sizes.s_kv)
    live = key[None, :] < keys[:, None]
    pages = xp.where(live, table[:, key // page], 0)
    if bool(xp.any(live & ((pages < 0) | (pages >= count)))):
        got = f"pages {int(pages.min())} to {int(pages.max())}"
        raise call.refuse("page numbers", f"page_table_{port}", got=got, expected=f"0 to {count - 1}")
    if count == 0:
        return xp.zeros((sizes.b, pool.shape[1], sizes.s_kv, pool.shape[3]), pool.dtype)
    gathered = pool[pages, :, key[None, :] % page].swapaxes(1, 2)
    return xp.where(live[:, None, :, None], gathered, pool.dtype.type(0))


def _table(xp: ModuleType, call: Call, arrays: Mapping[str, Any], port: str, blocks: Any) -> Any:
    """A page table as (B, blocks), also where it is packed itself."""
    if not call.inputs[port].is_ragged:
        return arrays[port][:, 0, :, 0]
    return ragged.gather(xp, call, port, arrays, blocks)[:, 0, :, 0]
