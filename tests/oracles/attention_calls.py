"""From a description of one attention call to a graph, data, a run through the public API, and a comparison.

Owns the check that outputs equal the oracle and that no byte outside the live elements changes. The
arithmetic is in attention.py; nothing here looks at a record's reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

import frazil
from frazil.dtypes import from_any, numpy_dtype
from frazil.ops import find, philox
from tests.harness import POISON, assert_close, poisoned

from . import attention as oracle
from .attention_spec import DOUBLE, FLOAT, INT32, INT64, UINT8, DataType, Placed, Spec, place, poison, write


@dataclass
class Made:
    """A graph with its data; `run` executes it, `check` compares with the oracle."""

    spec: Spec
    graph: frazil.Graph
    pack: dict[Any, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Placed] = field(default_factory=dict)
    tensors: dict[str, frazil.Tensor] = field(default_factory=dict)
    entries: list[oracle.Entry] = field(default_factory=list)

    def run(self) -> Made:
        """Build and execute on a poisoned workspace."""
        self.graph.build()
        workspace = self.graph.empty_workspace()
        workspace[...] = POISON
        self.graph.execute(self.pack, workspace)
        return self

    def check(self, expected: Mapping[str, list[torch.Tensor]], floors: Mapping[str, float]) -> None:
        """Compare every output with per-entry rows, and see that nothing else was written.

        `floors` has, by output, the size of what cancels in it: a millionth of it is allowed on top.
        """
        for name, placed in self.outputs.items():
            rows = expected[name]
            if placed.starts is None:
                want = oracle.to_dense(rows, placed.dim, FILLS.get(name, 0.0))
                self.close(name, placed.view, want, floors.get(name, 0.0))
                live = [placed.entry(b, placed.dim[2]) for b in range(placed.dim[0])]
            else:
                live = [placed.entry(b, r.shape[1]) for b, r in enumerate(rows)]
                got = np.concatenate([placed.flat[i].ravel() for i in live])
                want = np.concatenate([r.numpy().ravel() for r in rows])
                self.close(name, got, want, floors.get(name, 0.0))
            untouched = np.ones(placed.flat.shape, bool)
            for index in live:
                untouched[index] = False
            outside = placed.flat[untouched].view(np.uint8)
            assert np.all(outside == POISON), (
                f"{name}: bytes outside the live elements were written; {self.spec}"
            )

    def close(self, name: str, got: np.ndarray, want: np.ndarray, floor: float) -> None:
        """Compare one output."""
        close(got, want, self.tensors[name].data_type, f"{name} of {self.spec}", self.spec.compute, floor)


def close(
    got: np.ndarray, want: np.ndarray, dtype: DataType, what: str, compute: DataType, floor: float
) -> None:
    """`assert_close`, after taking off what cancellation explains: a millionth of `floor` in float32."""
    allowed = floor * (1e-14 if compute is DOUBLE else 1e-6)
    wide = got.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.where(np.abs(wide - want) <= allowed, want, wide)
    assert_close(near, want, dtype, what, compute)


FILLS = {"Stats": -math.inf, "score_max": -math.inf}  # behind the length of a padded entry; 0 elsewhere


def forward(spec: Spec) -> Made:
    """The graph and data of `sdpa`."""
    made, arguments = _common(spec)
    b, hq, sq = spec.batch, spec.heads[0], spec.rows
    q, k, v = (made.tensors[n] for n in "qkv")
    if spec.extras:
        for port in ("score_max", "score_sum_exp"):
            arguments[port] = _output(made, port, (b, hq, sq, 1), FLOAT, "stats")
    if spec.dropout is not None and not isinstance(spec.dropout, tuple):
        arguments["rng_dump"] = _dump(made)
    if spec.page is not None:
        arguments |= {n: made.tensors[n] for n in ("paged_attention_k_table", "paged_attention_v_table")}
        arguments["paged_attention_max_seq_len_kv"] = spec.keys
    if spec.score_mod is not None:
        arguments["score_mod"] = spec.score_mod[0]
    o, stats = made.graph.sdpa(q, k, v, generate_stats=spec.stats, **arguments)
    _given(made, "O", o, (b, hq, sq, spec.width[1]), spec.dtype, "o")
    if spec.stats:
        _given(made, "Stats", stats, (b, hq, sq, 1), _stats_type(spec), "stats")
    return made


def check_forward(spec: Spec) -> Made:
    """Run `sdpa` as described and compare everything it writes with the oracle."""
    made = forward(spec).run()
    rows = oracle.attention(made.entries, spec.options())
    expected = {
        "O": [r.o for r in rows],
        "Stats": [r.lse[..., None] for r in rows],
        "score_max": [r.maximum[..., None] for r in rows],
        "score_sum_exp": [r.total[..., None] for r in rows],
    }
    if "rng_dump" in made.outputs:
        expected["rng_dump"] = _kept(made)
    size = oracle.noise(made.entries, spec.options())
    made.check(expected, {"Stats": size.logit, "score_max": size.logit})
    return made


def backward(spec: Spec) -> Made:
    """The graph and data of `sdpa_backward`; O and Stats are the oracle's, rounded to their types."""
    made, arguments = _common(spec)
    b, hq, sq, dv = spec.batch, spec.heads[0], spec.rows, spec.width[1]
    rows = oracle.attention(made.entries, spec.options())
    rng = np.random.default_rng(spec.seed + 1)
    o = place(spec, "o", (b, hq, sq, dv), spec.dtype)
    d_o = place(spec, "dO", (b, hq, sq, dv), spec.dtype)
    stats = place(spec, "stats", (b, hq, sq, 1), _stats_type(spec))
    for number, part in enumerate(rows):
        length = part.o.shape[1]
        write(o, number, part.o)
        write(stats, number, part.lse[..., None])
        write(d_o, number, torch.from_numpy(rng.standard_normal((hq, length, dv))))
    for name, placed in (("o", o), ("dO", d_o), ("stats", stats)):
        _bind_placed(made, name, placed, _stats_type(spec) if name == "stats" else spec.dtype)
    t = made.tensors
    if spec.bias is not None:
        arguments["dBias"] = _plain_output(made, "dBias", made.inputs["bias"].shape, spec.dtype)
    if spec.sink:
        arguments["dSink_token"] = _plain_output(made, "dSink_token", (1, hq, 1, 1), FLOAT)
    if spec.score_mod is not None:
        arguments["score_mod"], arguments["score_mod_bprop"] = spec.score_mod[:2]
    found = made.graph.sdpa_backward(t["q"], t["k"], t["v"], t["o"], t["dO"], t["stats"], **arguments)
    for name, source, tensor in zip(("dQ", "dK", "dV"), "qkv", found, strict=True):
        _given(made, name, tensor, made.inputs[source].dim, spec.dtype, name)
    return made


def check_backward(spec: Spec) -> Made:
    """Run `sdpa_backward` as described and compare everything it writes with autograd."""
    made = backward(spec).run()
    options = spec.options()
    d_o, o = (made.inputs[n].rows(spec.live_q) for n in ("dO", "o"))
    grads = oracle.gradients(made.entries, options, d_o, o)
    size = oracle.noise(made.entries, options, d_o)
    plain = {n: made.outputs.pop(n) for n in ("dBias", "dSink_token") if n in made.outputs}
    floors = {"dQ": size.d_logit * size.k, "dK": size.d_logit * size.q}
    made.check({"dQ": grads.q, "dK": grads.k, "dV": grads.v}, floors)
    made.outputs |= plain
    if "dBias" in plain:
        total = torch.zeros(spec.batch, spec.heads[0], spec.rows, spec.keys, dtype=torch.float64)
        for b, part in enumerate(grads.bias):
            total[b, :, : part.shape[1], : part.shape[2]] = part
        magnitude = total.abs()
        for axis, extent in enumerate(made.inputs["bias"].shape):
            if extent == 1:
                total, magnitude = total.sum(axis, keepdim=True), magnitude.sum(axis, keepdim=True)
        floor = 20 * float(magnitude.max()) if magnitude.numel() else 0.0
        made.close("dBias", plain["dBias"].view, total.numpy(), floor + size.d_logit)
    if "dSink_token" in plain:
        sink = torch.stack(grads.sink).sum(0) if grads.sink else torch.zeros(spec.heads[0])
        made.close(
            "dSink_token",
            plain["dSink_token"].view,
            sink.reshape(1, -1, 1, 1).numpy(),
            spec.rows * size.d_logit,
        )
    return made


def call(
    name: str,
    arguments: Mapping[str, Any],
    given: Mapping[str, tuple[Sequence[int], DataType]] | None = None,
    dtype: DataType = FLOAT,
    compute: DataType = FLOAT,
) -> dict[str, np.ndarray]:
    """Call a builder with arrays where it takes tensors; every output, by port, over poison.

    Parameters
    ----------
    given
        Extents and type by port: for outputs that exist only where the caller passes a tensor, and for
        others.
    """
    graph = frazil.Graph(
        io_data_type=dtype, intermediate_data_type=FLOAT, compute_data_type=compute, target="cpu"
    )
    pack: dict[Any, np.ndarray] = {}

    def bind(key: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(bind(f"{key}[{i}]", v) for i, v in enumerate(value))
        if not isinstance(value, np.ndarray):
            return value
        stride = [s // value.itemsize for s in value.strides]
        tensor = graph.tensor(value.shape, stride, from_any(value.dtype), name=key)
        pack[tensor] = value
        return tensor

    bound = {key: bind(key, value) for key, value in arguments.items()}
    returned = {p.name for p in find(name).returned()}
    for port, (dim, kind) in (given or {}).items():
        if port not in returned:
            bound[port] = graph.tensor(dim, data_type=kind, name=port)
    getattr(graph, name)(**bound)
    outputs = graph.nodes[-1].outputs
    for port in returned & (given or {}).keys():
        outputs[port].set_data_type((given or {})[port][1])
    for tensor in outputs.values():
        tensor.set_output(True)
    graph.build()
    results = {port: poisoned(t.dim, t.stride, t.data_type) for port, t in outputs.items()}
    workspace = graph.empty_workspace()
    workspace[...] = POISON
    graph.execute(pack | {outputs[port]: array for port, array in results.items()}, workspace)
    return results


def normal(*dim: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32."""
    return np.random.default_rng(seed).standard_normal(dim).astype(np.float32)


def graph_of(dtype: Any = FLOAT, **options: Any) -> frazil.Graph:
    """An empty graph for the CPU."""
    return frazil.Graph(
        io_data_type=dtype, intermediate_data_type=FLOAT, compute_data_type=FLOAT, target="cpu", **options
    )


def softmax_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """Dense attention of equal head counts, in float64."""
    entries = [oracle.Entry(*(oracle.double(t[b]) for t in (q, k, v))) for b in range(q.shape[0])]
    return np.stack([r.o.numpy() for r in oracle.attention(entries, oracle.Options(scale=scale))])


# Data.


def _common(spec: Spec) -> tuple[Made, dict[str, Any]]:
    """The graph, Q, K and V, and everything that forward and backward take alike."""
    graph = frazil.Graph(
        io_data_type=spec.dtype, intermediate_data_type=FLOAT, compute_data_type=spec.compute, target="cpu"
    )
    made = Made(spec, graph)
    rng = np.random.default_rng(spec.seed)
    b, (hq, hk, hv), (d, dv) = spec.batch, spec.heads, spec.width
    dims = {"q": (b, hq, spec.rows, d), "k": (b, hk, spec.keys, d), "v": (b, hv, spec.keys, dv)}
    rows = {}
    for name, dim in dims.items():
        lengths = spec.live_q if name == "q" else spec.live_kv
        if spec.page is not None and name != "q":
            rows[name] = _paged(made, name, dim, lengths, rng)
            continue
        placed = place(spec, name, dim, spec.dtype)
        for number, length in enumerate(lengths):
            write(placed, number, torch.from_numpy(rng.standard_normal((dim[1], length, dim[3]))))
        _bind_placed(made, name, placed, spec.dtype)
        rows[name] = placed.rows(lengths)
    made.entries = [oracle.Entry(*parts) for parts in zip(rows["q"], rows["k"], rows["v"], strict=True)]
    arguments: dict[str, Any] = dict(spec.window)
    if spec.lengths_q is not None and spec.lengths_kv is not None:
        for side, lengths in (("q", spec.lengths_q), ("kv", spec.lengths_kv)):
            value = np.cumsum([0, *lengths]) if spec.cumulative else np.array(lengths)
            name = f"cu_seq_len_{side}" if spec.cumulative else f"seq_len_{side}"
            arguments[name] = _input(made, name, value.astype(np.int32).reshape(-1, 1, 1, 1), INT32)
        arguments["use_padding_mask"] = True
    if spec.scale_tensor:
        value = np.full((1, 1, 1, 1), spec.scale, np.float32)
        arguments["attn_scale"] = made.graph.tensor((1, 1, 1, 1), data_type=FLOAT, is_pass_by_value=True)
        made.pack[arguments["attn_scale"]] = value
    elif spec.scale is not None:
        arguments["attn_scale"] = spec.scale
    if spec.alibi:
        arguments["use_alibi_mask"] = True
    if spec.totals:
        arguments |= {"max_total_seq_len_q": sum(spec.live_q), "max_total_seq_len_kv": sum(spec.live_kv)}
    _extra_inputs(made, arguments, rng)
    return made, arguments


def _extra_inputs(made: Made, arguments: dict[str, Any], rng: np.random.Generator) -> None:
    """Bias, sink, dropout and block mask: bound, and cut into the entries."""
    spec = made.spec
    full = (spec.batch, spec.heads[0], spec.rows, spec.keys)
    kind = numpy_dtype(spec.dtype)
    if spec.bias is not None:
        dim = tuple(f if n > 1 else 1 for n, f in zip(spec.bias, full, strict=True))
        value = rng.standard_normal(dim).astype(kind)
        _spoil(spec, value)
        arguments["bias"] = _input(made, "bias", value, spec.dtype)
        for b, part in enumerate(np.broadcast_to(value.astype(np.float64), full)):
            entry = made.entries[b]
            entry.bias = oracle.double(part[:, : entry.q.shape[1], : entry.k.shape[1]])
    if spec.sink:
        value = rng.standard_normal((1, spec.heads[0], 1, 1)).astype(np.float32)
        arguments["sink_token"] = _input(made, "sink_token", value, FLOAT)
        for entry in made.entries:
            entry.sink = oracle.double(value.reshape(-1))
    if isinstance(spec.dropout, tuple):
        mask = (rng.random(full) < 0.6).astype(kind)
        _spoil(spec, mask)
        scale = np.full((1, 1, 1, 1), spec.dropout[1], np.float32)
        arguments["dropout"] = (
            _input(made, "dropout_mask", mask, spec.dtype),
            _input(made, "dropout_scale", scale, FLOAT),
        )
        for b, entry in enumerate(made.entries):
            entry.keep = oracle.double(mask[b, :, : entry.q.shape[1], : entry.k.shape[1]])
    elif spec.dropout is not None:
        seed, offset = 1234567 + spec.seed, 2**33 + 5
        pair = [np.full((1, 1, 1, 1), n, np.int64) for n in (seed, offset)]
        names = ("dropout_seed", "dropout_offset")
        tensors = [_input(made, n, a, INT64) for n, a in zip(names, pair, strict=True)]
        arguments["dropout"] = (spec.dropout, *tensors)
        mask = keep_bits(spec, seed, offset)
        for b, entry in enumerate(made.entries):
            entry.keep = oracle.double(mask[b, :, : entry.q.shape[1], : entry.k.shape[1]])
    if spec.tiles is not None:
        arguments["block_mask"] = _input(made, "block_mask", np.asarray(spec.tiles, np.uint8), UINT8)
        for b, entry in enumerate(made.entries):
            entry.tiles = oracle.tiles_of_bits(np.asarray(spec.tiles, np.uint8)[b])


def _spoil(spec: Spec, scores: np.ndarray) -> None:
    """NaN behind the lengths of a tensor of scores, on the axes that it has in full."""
    for b, part in enumerate(scores):
        if len(scores) == spec.batch and part.shape[1] == spec.rows > 1:
            part[:, spec.live_q[b] :] = np.nan
        if len(scores) == spec.batch and part.shape[2] == spec.keys > 1:
            part[:, :, spec.live_kv[b] :] = np.nan


def _paged(
    made: Made, name: str, dim: tuple[int, ...], lengths: Sequence[int], rng: np.random.Generator
) -> list[torch.Tensor]:
    """A pool with shuffled pages, poison wherever no live row is, and its table; binds both and returns live
    rows.
    """
    spec = made.spec
    assert spec.page is not None
    per_entry = -(-spec.keys // spec.page)
    pages = spec.batch * per_entry + 2
    order = rng.permutation(pages)[: spec.batch * per_entry]
    table = order.reshape(spec.batch, 1, per_entry, 1).astype(np.int32)
    pool = poison(pages * dim[1] * spec.page * dim[3], spec.dtype)
    pool = pool.reshape(pages, dim[1], spec.page, dim[3])
    for b, length in enumerate(lengths):
        for s in range(length):
            row = rng.standard_normal((dim[1], dim[3])).astype(pool.dtype)
            pool[table[b, 0, s // spec.page, 0], :, s % spec.page] = row
    _input(made, name, pool, spec.dtype)
    _input(made, f"paged_attention_{name}_table", table, INT32)
    return oracle.rows_of_pages(pool, table, lengths)


def keep_bits(spec: Spec, seed: int, offset: int) -> np.ndarray:
    """The stream that all engines share, (B, H, S_q, S_kv); test_sdpa.py checks it on its own."""
    h, sq, skv = spec.heads[0], spec.rows, spec.keys
    return np.asarray(philox.keep(np, seed, offset, spec.batch, h, sq, skv, spec.dropout))


# Small things.


def _stats_type(spec: Spec) -> DataType:
    return DOUBLE if spec.compute is DOUBLE else FLOAT


def _input(made: Made, name: str, array: np.ndarray, dtype: DataType) -> frazil.Tensor:
    tensor = made.graph.tensor(array.shape, data_type=dtype, name=name)
    made.tensors[name], made.inputs[name], made.pack[tensor] = tensor, array, array
    return tensor


def _bind_placed(made: Made, name: str, placed: Placed, dtype: DataType) -> None:
    tensor = made.graph.tensor(placed.dim, placed.stride, dtype, name=name)
    _ragged(made, name, tensor, placed)
    made.tensors[name], made.inputs[name], made.pack[tensor] = tensor, placed, placed.bound


def _ragged(made: Made, name: str, tensor: frazil.Tensor, placed: Placed) -> None:
    """Give a packed tensor its offsets: in rows with a multiplier, or in elements."""
    if placed.starts is None:
        return
    unit = placed.stride[2] if made.spec.multiplied else 1
    starts = np.array([n // unit for n in placed.starts], numpy_dtype(made.spec.offsets))
    offsets = _input(made, f"{name}.ragged", starts.reshape(-1, 1, 1, 1), made.spec.offsets)
    tensor.set_ragged_offset(offsets).set_ragged_offset_multiplier(unit)


def _given(
    made: Made, name: str, tensor: frazil.Tensor, dim: tuple[int, ...], dtype: DataType, layout: str
) -> None:
    """Declare an output of the builder, place it in poison and bind it."""
    placed = place(made.spec, layout, tuple(dim), dtype)
    tensor.set_output(True).set_dim(dim).set_stride(placed.stride).set_data_type(dtype)
    _ragged(made, name, tensor, placed)
    made.tensors[name], made.outputs[name], made.pack[tensor] = tensor, placed, placed.bound


def _output(made: Made, name: str, dim: tuple[int, ...], dtype: DataType, layout: str) -> frazil.Tensor:
    tensor = made.graph.tensor(dim, data_type=dtype, name=name)
    _given(made, name, tensor, dim, dtype, layout)
    return tensor


def _plain_output(made: Made, name: str, dim: Sequence[int], dtype: DataType) -> frazil.Tensor:
    dense = replace(made.spec, layout={})
    placed = place(dense, name, tuple(dim), dtype)
    tensor = made.graph.tensor(placed.dim, placed.stride, dtype, name=name).set_output(True)
    made.tensors[name], made.outputs[name], made.pack[tensor] = tensor, placed, placed.bound
    return tensor


def _dump(made: Made) -> frazil.Tensor:
    spec = made.spec
    return _plain_output(made, "rng_dump", (spec.batch, spec.heads[0], spec.rows, spec.keys), FLOAT)


def _kept(made: Made) -> list[torch.Tensor]:
    spec = made.spec
    seed, offset = (int(made.inputs[n].item()) for n in ("dropout_seed", "dropout_offset"))
    return [oracle.double(part) for part in keep_bits(spec, seed, offset)]
