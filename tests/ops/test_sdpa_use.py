"""Attention as callers use it: dropout bits, callbacks with captured tensors, shared buffers, frameworks,
larger graphs, wrong offsets.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import frazil
from frazil.ops import philox
from tests.ops.test_sdpa import FEATURES, GAPS, PACKED, PADDED
from tests.oracles import attention as oracle
from tests.oracles.attention_calls import (
    backward,
    call,
    check_backward,
    check_forward,
    forward,
    graph_of,
    normal,
    softmax_attention,
)
from tests.oracles.attention_spec import BF16, FLOAT, HALF, INT32, INT64, Spec

CONST = frazil.scalar_type.COMPILE_TIME_CONST


# Dropout.


@pytest.mark.parametrize("offset", [0, 7, 2**32 - 1, 2**33 + 5, -1])
@pytest.mark.parametrize("seed", [0, 1234567890123, -5])
def test_dropout_bits(seed: int, offset: int) -> None:
    """The documented stream, word by word in plain integers: the layout is part of the contract between
    engines.
    """
    b, h, rows, keys, p = 2, 3, 5, 11, 0.3
    kept = philox.keep(np, seed, offset, b, h, rows, keys, p)
    assert kept.shape == (b, h, rows, keys)
    rng = np.random.default_rng(0)
    for _ in range(60):
        i, j, row, column = (int(rng.integers(n)) for n in (b, h, rows, keys))
        words = oracle.dropout_words(seed, offset, i * h + j, row, column // 4)
        assert bool(kept[i, j, row, column]) == (words[column % 4] >= math.floor(p * 2**32))


def test_dropout_share() -> None:
    for p in (0.1, 0.5, 0.9):
        kept = philox.keep(np, 3, 4, 2, 4, 64, 256, p)
        count = kept.size
        assert abs(kept.mean() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / count)


@pytest.mark.parametrize("step", [1, 4, 128, 2**32])
def test_dropout_offsets_give_unrelated_masks(step: int) -> None:
    """The mask of a later offset is no shifted copy of an earlier one: frameworks advance offsets by small
    steps.
    """
    first, second = (philox.keep(np, 3, 100 + s, 1, 2, 32, 1024, 0.5)[0, 0] for s in (0, step))
    for shift in range(0, 1024 - 256, 4):
        same = (first[:, shift:] == second[:, : 1024 - shift]).mean()
        assert abs(same - 0.5) < 0.06, f"shifted by {shift} columns: {same:.2f} equal"
    heads = philox.keep(np, 3, 100, 2, 2, 32, 1024, 0.5).reshape(4, 32, 1024)
    for a in range(4):
        for b in range(a):
            assert abs((heads[a] == heads[b]).mean() - 0.5) < 0.03


def test_dropout_is_the_same_packed_and_padded() -> None:
    """Rows and keys count within a sequence: packing changes no bit."""
    spec = replace(PADDED, dropout=0.4, rows=9, keys=12, lengths_q=(9, 2, 4), lengths_kv=(5, 12, 1))
    packed = replace(spec, layout=dict.fromkeys(("q", "k", "v", "o", "stats"), "packed"))
    dense, flat = forward(spec).run().outputs["O"], forward(packed).run().outputs["O"]
    for b, length in enumerate(spec.live_q):
        first, second = (p.flat[p.entry(b, length)] for p in (dense, flat))
        assert np.allclose(first, second, atol=1e-6)


def test_dropout_with_32_bit_seed() -> None:
    """INT32 seed and offset name the same stream as INT64 ones."""
    arguments = {n: normal(1, 2, 9, 8, seed=i) for i, n in enumerate("qkv")} | {"generate_stats": False}
    found = []
    for kind in (np.int32, np.int64):
        pair = tuple(np.full((1, 1, 1, 1), n, kind) for n in (77, 5))
        found.append(call("sdpa", {**arguments, "dropout": (0.5, *pair)})["O"])
    assert np.array_equal(*found)


def test_rng_dump_of_backward_is_the_forward_one() -> None:
    pair = tuple(np.full((1, 1, 1, 1), n, np.int64) for n in (77, 5))
    q, k, v, d_o = (normal(2, 2, n, 8, seed=i) for i, n in enumerate((5, 7, 7, 5)))
    common = {"q": q, "k": k, "v": v, "dropout": (0.3, *pair)}
    dump = {"rng_dump": ((2, 2, 5, 7), FLOAT)}
    one = call("sdpa", {**common, "generate_stats": True}, dump)
    two = call("sdpa_backward", {**common, "o": one["O"], "dO": d_o, "stats": one["Stats"]}, dump)
    assert np.array_equal(one["rng_dump"], two["rng_dump"])
    assert set(np.unique(one["rng_dump"])) == {0.0, 1.0}


# Buffers.


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_interleaved_buffers(framework: str) -> None:
    """Q, K and V are views of one buffer, and so are their gradients."""
    b, s, h, d = 2, 6, 3, 8
    values = normal(b, s, 3, h, d).astype(ml_dtypes.bfloat16)
    qkv: Any = values
    grads: Any = np.zeros_like(values)
    extra = [normal(b, h, s, n, seed=n).astype(t) for n, t in ((d, ml_dtypes.bfloat16), (1, np.float32))]
    if framework == "torch":
        qkv = torch.from_numpy(values.astype(np.float32)).bfloat16()
        grads = torch.zeros_like(qkv)
    graph = graph_of(BF16)
    step = (s * 3 * h * d, d, 3 * h * d, 1)
    q, k, v = (graph.tensor((b, h, s, d), step) for _ in range(3))
    o, d_o = (graph.tensor((b, h, s, d)) for _ in range(2))
    stats = graph.tensor((b, h, s, 1), data_type=FLOAT)
    found = graph.sdpa_backward(q, k, v, o, d_o, stats, attn_scale=0.3)
    for tensor in found:
        tensor.set_output(True).set_stride(step)
    graph.build()

    def views(array: Any) -> list[Any]:
        if framework == "torch":
            return [array[:, :, i].permute(0, 2, 1, 3) for i in range(3)]
        return [array[:, :, i].transpose(0, 2, 1, 3) for i in range(3)]

    pack = dict(zip((q, k, v), views(qkv), strict=True)) | dict(zip(found, views(grads), strict=True))
    graph.execute({**pack, o: extra[0], d_o: extra[0], stats: 9 + extra[1]}, graph.empty_workspace())
    separate = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in values.swapaxes(0, 2).swapaxes(1, 2)]
    want = call(
        "sdpa_backward",
        {**dict(zip("qkv", separate, strict=True)), "o": extra[0], "dO": extra[0], "stats": 9 + extra[1]}
        | {"attn_scale": 0.3},
        dtype=BF16,
    )
    for view, port in zip(views(grads), ("dQ", "dK", "dV"), strict=True):
        got = view.float().numpy() if framework == "torch" else view.astype(np.float32)
        assert np.array_equal(got, want[port].astype(np.float32)), port


@pytest.mark.parametrize("tail", [0, 7])
def test_packed_three_dimensional_buffers(tail: int) -> None:
    """(T, H, D) torch tensors with more rows than are used; rows behind the last sequence stay as they
    are.
    """
    lengths, h, d = [3, 0, 5], 2, 8
    total = sum(lengths) + tail
    arrays = [torch.from_numpy(normal(total, h, d, seed=i)) for i in range(3)]
    o = torch.full((total, h, d), 7.0)
    graph = graph_of()
    starts = graph.tensor((4, 1, 1, 1), data_type=INT32)
    counts = graph.tensor((3, 1, 1, 1), data_type=INT32)
    q, k, v = (graph.tensor((3, h, 16, d), (16 * h * d, d, h * d, 1), ragged_offset=starts) for _ in range(3))
    for tensor in (q, k, v):
        tensor.set_ragged_offset_multiplier(h * d)
    result, _ = graph.sdpa(
        q, k, v, generate_stats=False, use_padding_mask=True, seq_len_q=counts, seq_len_kv=counts
    )
    result.set_output(True).set_dim(q.dim).set_stride(q.stride)
    result.set_ragged_offset(starts).set_ragged_offset_multiplier(h * d)
    graph.build()
    offsets = torch.tensor([0, 3, 3, 8], dtype=torch.int32).reshape(4, 1, 1, 1)
    pack = {starts: offsets, counts: torch.tensor(lengths, dtype=torch.int32).reshape(3, 1, 1, 1)}
    graph.execute({**pack, **dict(zip((q, k, v), arrays, strict=True)), result: o}, graph.empty_workspace())
    for first, length in ((0, 3), (3, 5)):
        part = [x[first : first + length].numpy().transpose(1, 0, 2)[None] for x in arrays]
        want = softmax_attention(*part)[0].transpose(1, 0, 2)
        assert np.allclose(o[first : first + length].numpy(), want, atol=1e-5)
    assert torch.all(o[8:] == 7.0)


@pytest.mark.parametrize("bad", [[0, 5, 9], [0, -3, 5], [4, 6, 8]])
@pytest.mark.parametrize("port", ["q", "k", "v", "o"])
def test_packed_offsets_outside_the_buffer(port: str, bad: list[int]) -> None:
    """On the host an offset that leaves the buffer raises and names the tensor; nothing is written."""
    spec = Spec(lengths_q=(3, 2), lengths_kv=(3, 2), rows=4, keys=4, layout=PACKED.layout)
    made = forward(spec)
    starts = made.inputs["O.ragged" if port == "o" else f"{port}.ragged"]
    starts[...] = np.array(bad, np.int32).reshape(starts.shape)
    before = made.outputs["O"].flat.copy()
    for placed in [made.inputs[n] for n in "qkv"] + [made.outputs["O"]]:
        assert placed.flat.size < 7 * 2 * 8
    with pytest.raises(frazil.GraphError, match="offset"):
        made.run()
    assert np.array_equal(before.view(np.uint8), made.outputs["O"].flat.view(np.uint8))


@pytest.mark.parametrize("page", [-1, 99])
def test_page_outside_the_pool(page: int) -> None:
    """On the host a page number that a live key needs and the pool lacks raises and names the table."""
    spec = replace(PADDED, keys=13, lengths_kv=(13, 4, 9), page=4)
    made = forward(spec)
    made.inputs["paged_attention_k_table"][0, 0, 1, 0] = page
    with pytest.raises(frazil.GraphError, match="page"):
        made.run()


# Larger graphs.


def test_output_feeds_a_node() -> None:
    """O and Stats may stay between nodes; what is behind the length is 0 there, too."""
    q, k, v = (normal(2, 2, n, 8, seed=i) for i, n in enumerate((5, 7, 7)))
    graph = graph_of()
    t = [graph.tensor(a.shape) for a in (q, k, v)]
    counts = [graph.tensor((2, 1, 1, 1), data_type=INT32) for _ in range(2)]
    o, stats = graph.sdpa(
        *t, generate_stats=True, use_padding_mask=True, seq_len_q=counts[0], seq_len_kv=counts[1]
    )
    doubled = graph.add(o, o).set_output(True)
    exponential = graph.exp(stats).set_output(True).set_data_type(FLOAT)
    graph.build()
    results = [np.full(x.dim, np.nan, np.float32) for x in (doubled, exponential)]
    lengths = [np.array(n, np.int32).reshape(2, 1, 1, 1) for n in ([5, 2], [3, 7])]
    pack = dict(zip((*t, *counts, doubled, exponential), (q, k, v, *lengths, *results), strict=True))
    graph.execute(pack, graph.empty_workspace())
    assert np.allclose(results[0][0], 2 * softmax_attention(q[:1], k[:1, :, :3], v[:1, :, :3])[0], atol=1e-5)
    assert np.all(results[0][1, :, 2:] == 0) and np.all(results[1][1, :, 2:] == 0)
    assert np.all(np.isfinite(results[1]))


def test_projection_before_and_after() -> None:
    """matmul -> sdpa -> matmul, all intermediates in workspace."""
    x, w = normal(2, 1, 6, 8), normal(1, 1, 8, 8, seed=1)
    graph = graph_of()
    tx, tw = graph.tensor(x.shape), graph.tensor(w.shape)
    q = graph.matmul(tx, tw)
    o, _ = graph.sdpa(q, q, q, generate_stats=False, attn_scale=0.2)
    y = graph.matmul(o, tw).set_output(True)
    graph.build()
    result = np.full(y.dim, np.nan, np.float32)
    graph.execute({tx: x, tw: w, y: result}, graph.empty_workspace())
    p = x.astype(np.float64) @ w
    assert np.allclose(result, softmax_attention(p, p, p, 0.2) @ w, atol=1e-4)


def test_smaller_extents_at_execute() -> None:
    """A graph with dynamic shapes serves smaller batches and lengths than declared."""
    graph = graph_of(is_dynamic_shape_enabled=True)
    q, k, v = (graph.tensor((4, 2, n, 8)) for n in (16, 20, 20))
    o, stats = graph.sdpa(q, k, v, generate_stats=True, use_causal_mask_bottom_right=True)
    o.set_output(True)
    stats.set_output(True)
    graph.build()
    for batch, rows, keys in ((4, 16, 20), (1, 3, 5), (2, 16, 7)):
        arrays = [normal(batch, 2, n, 8, seed=i) for i, n in enumerate((rows, keys, keys))]
        results = [np.full((batch, 2, rows, n), np.nan, np.float32) for n in (8, 1)]
        pack = dict(zip((q, k, v, o, stats), (*arrays, *results), strict=True))
        graph.execute(pack, graph.empty_workspace())
        entries = [oracle.Entry(*(oracle.double(a[b]) for a in arrays)) for b in range(batch)]
        want = oracle.attention(entries, oracle.Options(right=0, bottom_right=True))
        assert np.allclose(results[0], np.stack([r.o for r in want]), atol=1e-5)
        assert np.allclose(results[1][..., 0], np.stack([r.lse for r in want]), atol=1e-5)


# Spellings.


def test_cumulative_lengths_say_the_same_as_lengths() -> None:
    q, k, v = (normal(2, 2, n, 8, seed=i) for i, n in enumerate((5, 7, 7)))
    common = {"q": q, "k": k, "v": v, "generate_stats": True, "use_causal_mask_bottom_right": True}
    one = call(
        "sdpa",
        {
            **common,
            "use_padding_mask": True,
            "seq_len_q": np.array([4, 2], np.int32).reshape(2, 1, 1, 1),
            "seq_len_kv": np.array([7, 3], np.int32).reshape(2, 1, 1, 1),
        },
    )
    cumulative = {"cu_seq_len_q": [0, 4, 6], "cu_seq_len_kv": [0, 7, 10]}
    two = call("sdpa", common | {n: np.array(c, np.int32).reshape(3, 1, 1, 1) for n, c in cumulative.items()})
    for port in one:
        assert np.array_equal(one[port], two[port]), port


def test_long_lengths() -> None:
    """INT64 lengths are served as INT32 ones are."""
    q, k, v = (normal(2, 2, n, 8, seed=i) for i, n in enumerate((5, 7, 7)))
    found = []
    for kind in (np.int32, np.int64):
        lengths = [np.array(n, kind).reshape(2, 1, 1, 1) for n in ([4, 2], [7, 3])]
        arguments = {"use_padding_mask": True, "seq_len_q": lengths[0], "seq_len_kv": lengths[1]}
        found.append(call("sdpa", {"q": q, "k": k, "v": v, "generate_stats": False, **arguments})["O"])
    assert np.array_equal(*found)


def test_binary_statistics() -> None:
    """In base 2 Stats are the natural ones over ln 2, and -inf stays."""
    q, k, v = (normal(2, 2, n, 8, seed=i) for i, n in enumerate((6, 3, 3)))
    common = {"q": q, "k": k, "v": v, "generate_stats": True, "use_causal_mask_bottom_right": True}
    natural, binary = (call("sdpa", {**common, "stats_use_log2": x})["Stats"] for x in (False, True))
    dead = np.isneginf(natural)
    assert dead.any() and np.array_equal(dead, np.isneginf(binary))
    assert np.allclose(binary[~dead] * math.log(2), natural[~dead], rtol=1e-6)


@pytest.mark.parametrize("op", ["sdpa", "sdpa_backward"])
def test_default_scale_is_one(op: str) -> None:
    spec = FEATURES["scale_default"]
    assert spec.scale is None
    (check_forward if op == "sdpa" else check_backward)(spec)


@pytest.mark.parametrize("kind", ["expanded_ones", "last_stride_two"])
def test_d_o_without_unit_stride_is_refused(kind: str) -> None:
    """Case C-07: what sum().backward() passes has strides 0; the refusal names dO."""
    made = backward(Spec(dtype=HALF))
    graph = graph_of(HALF)
    dims = {n: made.tensors[n].dim for n in ("q", "k", "v", "o")}
    t = {n: graph.tensor(d, name=n) for n, d in dims.items()}
    stride = (0, 0, 0, 0) if kind == "expanded_ones" else (80, 40, 16, 2)
    d_o = graph.tensor(dims["o"], stride, name="dO")
    stats = graph.tensor((*dims["o"][:3], 1), data_type=FLOAT)
    grads = graph.sdpa_backward(*t.values(), d_o, stats)
    for grad in grads:
        grad.set_output(True)
    with pytest.raises(frazil.GraphError, match="stride") as caught:
        graph.validate()
    assert caught.value.tensor == "dO"


def test_sink_and_int64_offsets_have_their_own_types() -> None:
    """Packed, INT64 offsets in elements, bfloat16 operands, a float32 sink."""
    spec = replace(GAPS, dtype=BF16, sink=True, offsets=INT64, multiplied=False)
    check_forward(spec)
    check_backward(spec)


def test_packed_page_table() -> None:
    """Page numbers of all entries in one run, with ragged offsets in elements."""
    q, pool = normal(2, 2, 3, 8), normal(6, 2, 4, 8, seed=1)
    pages, lengths = [[3, 0, 5], [1]], [[3, 2], [11, 4]]
    graph = graph_of()
    tq, tk, tv = graph.tensor(q.shape), graph.tensor(pool.shape), graph.tensor(pool.shape)
    counts = [graph.tensor((2, 1, 1, 1), data_type=INT32) for _ in range(2)]
    starts = graph.tensor((3, 1, 1, 1), data_type=INT32)
    table = graph.tensor((2, 1, 3, 1), (3, 3, 1, 1), INT32, ragged_offset=starts)
    o, _ = graph.sdpa(
        tq,
        tk,
        tv,
        generate_stats=False,
        use_padding_mask=True,
        seq_len_q=counts[0],
        seq_len_kv=counts[1],
        paged_attention_k_table=table,
        paged_attention_v_table=table,
        paged_attention_max_seq_len_kv=12,
    )
    o.set_output(True)
    graph.build()
    result = np.full(o.dim, np.nan, np.float32)
    flat = np.array([n for p in pages for n in p], np.int32)
    pack = {tq: q, tk: pool, tv: pool, table: flat, starts: np.array([0, 3, 4], np.int32), o: result}
    pack |= {t: np.array(n, np.int32).reshape(2, 1, 1, 1) for t, n in zip(counts, lengths, strict=True)}
    graph.execute(pack, graph.empty_workspace())
    for b, (rows, keys) in enumerate(zip(*lengths, strict=True)):
        k = np.concatenate([pool[p] for p in pages[b]], axis=1)[None, :, :keys]
        want = softmax_attention(q[b : b + 1, :, :rows], k, k)[0]
        assert np.allclose(result[b, :, :rows], want, atol=1e-5)


@pytest.mark.parametrize("extent", ["heads", "width_qk", "width_v"])
def test_extent_zero(extent: str) -> None:
    """No heads, or no features: results of the right shape, or a refusal that names the tensor; never a
    crash.
    """
    spec = {"heads": Spec(heads=(0, 0, 0)), "width_qk": Spec(width=(0, 8)), "width_v": Spec(width=(8, 0))}[
        extent
    ]
    for check in (check_forward, check_backward):
        try:
            check(spec)
        except frazil.GraphError as error:
            assert error.tensor in ("q", "k", "v"), error
