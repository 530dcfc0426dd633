"""Cases of attention, forward and backward: value objects from which tests and benchmarks are generated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..dtypes import data_type
from ..enums import attention_implementation, diagonal_alignment
from ..op import Arg, Case, row_major

_INT = data_type.INT32
_LONG = data_type.INT64


def _bhsd(b: int, h: int, s: int, d: int) -> Arg:
    return Arg((b, h, s, d))


def _bshd(b: int, h: int, s: int, d: int) -> Arg:
    return Arg((b, h, s, d), stride=(s * h * d, d, h * d, 1))


def _wide(b: int, h: int, s: int, d: int) -> Arg:
    """A slice of interleaved QKV: rows are three times as far apart as they are long."""
    return Arg((b, h, s, d), stride=(s * 3 * h * d, d, 3 * h * d, 1))


def _values(*numbers: int, kind: data_type = _INT) -> Arg:
    return Arg((len(numbers), 1, 1, 1), kind, fill=("values", *numbers))


def _starts(lengths: tuple[int, ...], gaps: int = 0) -> tuple[int, ...]:
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length + gaps)
    return tuple(starts)


def _packed(
    h: int, d: int, lengths: tuple[int, ...], gaps: int = 0, kind: data_type = _INT, unit: int = 1
) -> Arg:
    """Packed tokens, with `gaps` unused ones behind each sequence; offsets count `unit` elements."""
    starts = _starts(lengths, gaps)
    s = max(*lengths, 1)
    offsets = _values(*(x * h * d // unit for x in starts), kind=kind)
    dim, stride = (len(lengths), h, s, d), (s * h * d, d, h * d, 1)
    return Arg(dim, stride=stride, ragged=offsets, multiplier=unit, total=starts[-1] * h * d)


def _packed_stats(h: int, lengths: tuple[int, ...], by_head: bool) -> Arg:
    """Statistics of packed rows, (T, H), or (H, T) where `by_head`."""
    starts, s = _starts(lengths), max(*lengths, 1)
    step, head = (1, starts[-1]) if by_head else (h, 1)
    offsets = _values(*(x * step for x in starts))
    stride = (s * h, head, step, 1)
    dim = (len(lengths), h, s, 1)
    return Arg(dim, data_type.FLOAT, stride, "positive", ragged=offsets, total=starts[-1] * h)


def _qkv(
    b: int = 2, hq: int = 4, hk: int = 2, sq: int = 9, skv: int = 11, d: int = 8, dv: int = 8
) -> dict[str, Any]:
    return {"q": _bhsd(b, hq, sq, d), "k": _bhsd(b, hk, skv, d), "v": _bhsd(b, hk, skv, dv)}


def _case(name: str, args: Mapping[str, Any], **rest: Any) -> Case:
    extra = {k: rest.pop(k) for k in list(rest) if k not in ("outputs", "data_type", "compute", "level")}
    return Case(name, {"attn_scale": 0.25, **args, **extra}, **rest)


_HALF = data_type.HALF
_BF16 = data_type.BFLOAT16
_BR = {"diagonal_alignment": diagonal_alignment.BOTTOM_RIGHT}
_WINDOW = {**_BR, "diagonal_band_left_bound": 2, "diagonal_band_right_bound": 1}
_LENGTHS = {"use_padding_mask": True, "seq_len_q": _values(9, 4), "seq_len_kv": _values(7, 11)}
_Q, _KV = (5, 0, 3), (4, 2, 7)
_PACKED = {
    "q": _packed(4, 8, _Q),
    "k": _packed(2, 8, _KV),
    "v": _packed(2, 8, _KV),
    "use_padding_mask": True,
    "seq_len_q": _values(*_Q),
    "seq_len_kv": _values(*_KV),
}
_GAPS = {
    **_PACKED,
    "q": _packed(4, 8, _Q, gaps=2),
    "k": _packed(2, 8, _KV, gaps=1, kind=_LONG),
    "v": _packed(2, 8, _KV, gaps=3),
}
_NOTHING = {
    **{n: replace(_packed(h, 8, (0, 0, 0)), dim=(3, h, 4, 8)) for n, h in (("q", 4), ("k", 2), ("v", 2))},
    "use_padding_mask": True,
    "seq_len_q": _values(0, 0, 0),
    "seq_len_kv": _values(0, 0, 0),
}
_QUERIES = {
    "q": _packed(4, 8, _Q),
    "k": _bhsd(3, 2, 7, 8),
    "v": _bshd(3, 2, 7, 8),
    "use_padding_mask": True,
    "seq_len_q": _values(*_Q),
    "seq_len_kv": _values(*_KV),
}
_SINK = Arg((1, 4, 1, 1), data_type.FLOAT)
_HIDING = Arg((1, 1, 1, 5), data_type.FLOAT, fill=("values", 0.5, -np.inf, -1.0, -np.inf, 0.0))
_DEAD = Arg((1, 1, 4, 1), data_type.FLOAT, fill=("values", 0.0, -np.inf, 0.5, 1.0))
_DROPOUT = (
    0.3,
    Arg((1, 1, 1, 1), _LONG, fill=("values", 1234567890123)),
    Arg((1, 1, 1, 1), _LONG, fill=("values", 7)),
)
_MASK = (
    Arg((2, 4, 9, 11), data_type.FLOAT, fill="bool"),
    Arg((1, 1, 1, 1), data_type.FLOAT, fill=("values", 1.25)),
)
_TENSORS = (("q", 4, _Q), ("k", 2, _KV), ("v", 2, _KV))
_CUMULATIVE = {
    "cu_seq_len_q": _values(*_starts(_Q)),
    "cu_seq_len_kv": _values(*_starts(_KV), kind=_LONG),
}
_TOTALS = {"max_total_seq_len_q": sum(_Q), "max_total_seq_len_kv": sum(_KV)}
_EVERYTHING = {
    **_qkv(),
    "bias": Arg((1, 4, 1, 11)),
    "sink_token": _SINK,
    "use_alibi_mask": True,
    "diagonal_alignment": diagonal_alignment.BOTTOM_RIGHT,
    "diagonal_band_left_bound": 6,
    "diagonal_band_right_bound": 1,
}
_TILED = {
    **_qkv(b=1, hq=2, hk=1, sq=130, skv=260),
    "block_mask": Arg((1, 2, 2, 1), data_type.UINT8, fill=("values", 5, 2, 7, 0)),
}

# Features that forward and backward share, as builder arguments.
_SHARED: tuple[Case, ...] = (
    _case("plain", _qkv()),
    _case("half", _qkv(), data_type=_HALF),
    _case("bfloat16", _qkv(), data_type=_BF16),
    _case("float64", _qkv(), data_type=data_type.DOUBLE, compute=data_type.DOUBLE),
    _case("mha", _qkv(hk=4)),
    _case("mqa", _qkv(hk=1)),
    _case("k_and_v_heads_differ", {**_qkv(hq=6), "k": _bhsd(2, 3, 11, 8), "v": _bhsd(2, 2, 11, 8)}),
    _case("widths_differ", _qkv(d=16, dv=8)),
    _case("one_row", _qkv(sq=1)),
    _case("long", _qkv(b=1, sq=130, skv=140, d=16, dv=16), data_type=_HALF, level="full"),
    _case("bshd", {n: _bshd(*a.dim) for n, a in _qkv().items()}),
    _case("interleaved", {n: _wide(*a.dim) for n, a in _qkv().items()}),
    _case("mixed_layouts", {"q": _bshd(2, 4, 9, 8), "k": _wide(2, 2, 11, 8), "v": _bhsd(2, 2, 11, 8)}),
    _case("size_one_axes", {n: Arg((1, 1, 5, 8), stride=(77, 13, 8, 1)) for n in "qkv"}),
    _case("broadcast_heads", {**_qkv(), "k": Arg((2, 2, 11, 8), stride=(88, 0, 8, 1))}),
    _case(
        "scale_tensor", _qkv(), attn_scale=Arg((1, 1, 1, 1), data_type.FLOAT, fill="positive", by_value=True)
    ),
    _case("causal", _qkv(), use_causal_mask=True),
    _case("causal_bottom_right", _qkv(), use_causal_mask_bottom_right=True),
    _case("causal_bottom_right_tall", _qkv(sq=11, skv=5), use_causal_mask_bottom_right=True),
    _case("window", _qkv(), use_causal_mask=True, sliding_window_length=3),
    _case("band", _qkv(), diagonal_band_left_bound=3, diagonal_band_right_bound=2),
    _case("band_bottom_right", _qkv(), diagonal_band_left_bound=2, diagonal_band_right_bound=1, **_BR),
    _case("left_alone", _qkv(), left_bound=2),
    _case("padding", _qkv(), **_LENGTHS),
    _case("padding_bottom_right", _qkv(), **_LENGTHS, use_causal_mask_bottom_right=True),
    _case("padding_empty", _qkv(), use_padding_mask=True, seq_len_q=_values(0, 9), seq_len_kv=_values(5, 0)),
    _case("bias", {**_qkv(), "bias": Arg((2, 4, 9, 11))}),
    _case("bias_broadcast", {**_qkv(), "bias": Arg((1, 4, 1, 11))}, use_causal_mask=True),
    _case("alibi", _qkv(hq=6), use_alibi_mask=True, use_causal_mask=True),
    _case("sink", _qkv(), sink_token=_SINK, use_causal_mask_bottom_right=True),
    _case("dropout", _qkv(), dropout=_DROPOUT),
    _case("dropout_mask", _qkv(), dropout=_MASK),
    _case("packed", _PACKED),
    _case("packed_gaps", _GAPS, data_type=_HALF),
    _case("packed_offsets_alone", {n: _PACKED[n] for n in "qkv"}),
    _case("packed_causal", _PACKED, use_causal_mask_bottom_right=True),
    _case("packed_k_and_v_apart", {**_PACKED, "v": _GAPS["v"]}),
    _case("packed_units", {**_PACKED, **{n: _packed(h, 8, x, unit=8) for n, h, x in _TENSORS}}),
    _case("packed_cumulative", {n: _PACKED[n] for n in "qkv"}, **_CUMULATIVE),
    _case("packed_queries", _QUERIES, use_causal_mask_bottom_right=True, data_type=_BF16),
    _case("packed_nothing", _NOTHING),
    _case("packed_stats", _PACKED, stats=_packed_stats(4, _Q, by_head=False)),
    _case("packed_stats_by_head", _PACKED, stats=_packed_stats(4, _Q, by_head=True), **_TOTALS),
    _case("packed_window_sink", _PACKED, **_WINDOW, sink_token=_SINK),
    _case("packed_dropout", _PACKED, dropout=_DROPOUT, use_alibi_mask=True),
    _case("padding_everything", _EVERYTHING, dropout=_DROPOUT, **_LENGTHS),
    _case("padding_lengths_beyond", _qkv(), **{**_LENGTHS, "seq_len_kv": _values(-1, 99, kind=_LONG)}),
    _case("bias_hides_keys", {**_qkv(skv=5), "bias": _HIDING}),
    _case("bias_hides_rows", {**_qkv(sq=4), "bias": _DEAD}),
    _case("bias_half", {**_qkv(), "bias": Arg((2, 1, 1, 11))}, data_type=_HALF),
    _case("block_mask", _TILED),
    _case("block_mask_causal", _TILED, use_causal_mask=True, level="full"),
    _case("dropout_32_bit", _qkv(), dropout=(0.5, *(Arg((1,), _INT, fill=("values", x)) for x in (-3, 2)))),
    _case("odd_widths", _qkv(d=7, dv=5), data_type=_HALF),
    _case("no_rows", _qkv(sq=0)),
    _case("no_keys", _qkv(skv=0)),
    _case("no_batch", _qkv(b=0), use_causal_mask=True),
)

_TABLE = Arg((2, 1, 3, 1), _INT, fill=("values", 4, 0, 2, 1, 4, 3))
# The lowest finite number hides nothing: such a row is uniform. Its FLOAT statistics cannot hold more than
# the bias itself, so there is no backward case of it.
_LOWEST = Arg((1, 1, 2, 1), data_type.FLOAT, fill=("values", float(np.finfo(np.float32).min), 0.0))
_TABLES = ("paged_attention_k_table", "paged_attention_v_table")
_FINE = Arg((2, 1, 6, 1), _INT, fill=("values", 8, 0, 3, 1, 7, 2, 4, 4, 5, 6, 0, 8))
_PAGED = {
    "q": _bhsd(2, 4, 9, 8),
    "k": _bhsd(5, 2, 4, 8),
    "v": _bhsd(5, 2, 4, 8),
    **_LENGTHS,
    "seq_len_kv": _values(9, 11),
    **dict.fromkeys(_TABLES, _TABLE),
    "paged_attention_max_seq_len_kv": 12,
}
_FORWARD_ONLY = (
    _case("bias_lowest", {**_qkv(sq=2), "bias": _LOWEST}),
    _case("inference", _qkv(), generate_stats=None, is_inference=True),
    _case("log2", _qkv(), stats_use_log2=True, use_causal_mask=True),
    _case(
        "maximum_and_sum",
        _qkv(),
        sink_token=_SINK,
        score_max=Arg((2, 4, 9, 1), data_type.FLOAT),
        score_sum_exp=Arg((2, 4, 9, 1), data_type.FLOAT),
    ),
    _case("rng_dump", _qkv(), dropout=_DROPOUT, rng_dump=Arg((2, 4, 9, 11), data_type.FLOAT)),
    _case("log2_sink_padding", _qkv(), stats_use_log2=True, sink_token=_SINK, **_LENGTHS),
    _case("hints", _qkv(), implementation=attention_implementation.COMPOSITE, unfuse_fma=True),
    _case("paged", _PAGED),
    _case("paged_part_of_a_page", _PAGED, paged_attention_max_seq_len_kv=11),
    _case("paged_causal", _PAGED, use_causal_mask_bottom_right=True, sink_token=_SINK, data_type=_HALF),
    _case("paged_pages_differ", {**_PAGED, "v": _bhsd(9, 2, 2, 16), "paged_attention_v_table": _FINE}),
    _case("paged_decode", {**_PAGED, "q": _bhsd(2, 4, 1, 8), "seq_len_q": _values(1, 1)}, data_type=_BF16),
    _case("paged_packed_queries", {**_PAGED, "q": _packed(4, 8, (4, 2)), "seq_len_q": _values(4, 2)}),
    _case("o_bshd", _qkv(), outputs={"O": _bshd(2, 4, 9, 8)}),
    _case("o_wide", _qkv(), outputs={"O": _wide(2, 4, 9, 8)}, data_type=_HALF),
    _case("o_float", _qkv(), outputs={"O": Arg((2, 4, 9, 8), data_type.FLOAT)}, data_type=_BF16),
    _case("cumulative", _qkv(), cu_seq_len_q=_values(0, 4, 13), cu_seq_len_kv=_values(0, 11, 13)),
)

_BACKWARD_ONLY = (
    _case("deterministic", _qkv(), use_deterministic_algorithm=True, use_causal_mask=True),
    _case("d_o_broadcast", {**_qkv(), "dO": Arg((2, 4, 9, 8), stride=(0, 0, 0, 1))}),
    _case("d_o_wide", {**_qkv(), "dO": _wide(2, 4, 9, 8)}, data_type=_BF16),
    _case("dropout_mask_with_inverse", _qkv(), dropout=(*_MASK, replace(_MASK[1], fill=("values", 0.8)))),
)


def _bench(name: str, b: int, hq: int, hk: int, s: int, d: int, dv: int, **masks: Any) -> Case:
    operands = {"q": _bhsd(b, hq, s, d), "k": _bhsd(b, hk, s, d), "v": _bhsd(b, hk, s, dv)}
    return _case(name, operands, attn_scale=d**-0.5, data_type=_BF16, level="bench", **masks)


_BENCH = tuple(
    _bench(f"{name}_{s // 1024}k{'_causal' if masks else ''}", b, hq, hk, s, d, dv, **masks)
    for name, b, hq, hk, d, dv, sizes, masks in (
        ("llama", 1, 64, 8, 128, 128, (2048, 4096, 8192, 16384, 32768), {"use_causal_mask": True}),
        ("llama", 1, 64, 8, 128, 128, (2048, 4096, 8192, 16384, 32768), {}),
        ("deepseek", 1, 128, 128, 192, 128, (2048, 4096, 8192, 16384), {"use_causal_mask": True}),
        ("batch", 4, 16, 16, 128, 128, (4096,), {"use_causal_mask": True}),
        ("batch", 4, 16, 16, 128, 128, (4096,), {}),
        ("narrow", 1, 64, 64, 64, 64, (8192,), {"use_causal_mask": True}),
        (
            "narrow_window",
            1,
            64,
            8,
            64,
            64,
            (8192,),
            {"use_causal_mask": True, "sliding_window_length": 1024},
        ),
        ("wide", 1, 32, 32, 256, 256, (4096,), {"use_causal_mask": True}),
    )
    for s in sizes
)


def _like_o(args: Mapping[str, Any]) -> Arg:
    """O: packed like q, else row-major."""
    q = args["q"]
    dim = (*q.dim[:3], args["v"].dim[3])
    return replace(q, dim=dim, stride=q.stride if q.ragged is not None else row_major(dim))


def _forward(case: Case) -> Case:
    args = {"generate_stats": True, **case.args}
    outputs = dict(case.outputs)
    if "stats" in args:
        outputs["Stats"] = args.pop("stats")
    if args["q"].ragged is not None:
        outputs["O"] = _like_o(args)
    return replace(case, args=args, outputs=outputs)


def _backward(case: Case) -> Case:
    """The backward case of a shared one: o and dO like O, statistics positive enough for probabilities below
    one.
    """
    args = dict(case.args)
    like = _like_o(args)
    kind = data_type.DOUBLE if case.data_type is data_type.DOUBLE else data_type.FLOAT
    args = {"stats": Arg((*like.dim[:3], 1), kind, fill="positive"), "o": like, "dO": like, **args}
    outputs = {}
    for port, source in (("dQ", "q"), ("dK", "k"), ("dV", "v")):
        if args[source].ragged is not None:
            outputs[port] = args[source]
    if "bias" in args:
        args["dBias"] = replace(args["bias"])
    if "sink_token" in args:
        args["dSink_token"] = replace(args["sink_token"])
    return replace(case, args=args, outputs=outputs)


FORWARD = tuple(_forward(c) for c in (*_SHARED, *_FORWARD_ONLY, *_BENCH))
BACKWARD = tuple(_backward(c) for c in (*_SHARED, *_BACKWARD_ONLY, *_BENCH))
