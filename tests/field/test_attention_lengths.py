"""Packed batches, lengths and pages that broke attention libraries, on the reference; numbers as in
test_attention_cases.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import frazil
from frazil.ops import ragged
from tests.field.test_attention_cases import PACKED, PACKED_NAMES, normal, padding, run
from tests.oracles.attention_calls import call, check_backward, check_forward
from tests.oracles.attention_spec import BF16, FLOAT, DataType, Spec

# C-23: head-major Stats in a packed backward.


def test_c23_stats_by_head() -> None:
    common = {"batch": 2, "heads": (4, 4, 4), "rows": 9, "keys": 9, "lengths_q": (5, 9), "lengths_kv": (5, 9)}
    tokens = Spec(**common, layout=PACKED, totals=True)
    by_token = check_backward(tokens)
    by_head = check_backward(replace(tokens, layout=PACKED | {"stats": "packed_heads"}))
    for port in ("dQ", "dK", "dV"):
        first, second = by_token.outputs[port].bound, by_head.outputs[port].bound
        assert np.array_equal(first, second, equal_nan=True)
        assert np.abs(np.nan_to_num(first)).max() > 0.01


# C-25: sequences of length zero.

EMPTY_SEQUENCES = {
    "empty_queries_first": ((0, 151, 105, 0), (317, 218, 105, 384), (4, 1, 1)),
    "empty_queries_between": ((150, 0, 150), (100, 100, 100), (2, 2, 2)),
    "decode": ((0, 1, 0, 1), (0, 3, 0, 5), (9, 3, 3)),
    "keys_missing": ((4, 3, 2), (0, 5, 0), (2, 1, 2)),
    "nothing_at_all": ((0, 0, 0), (0, 0, 0), (2, 2, 2)),
    "no_queries": ((0, 0), (3, 4), (2, 2, 2)),
    "no_keys": ((3, 4), (0, 0), (2, 2, 2)),
}


@pytest.mark.parametrize("name", EMPTY_SEQUENCES)
@pytest.mark.parametrize("layout", ["packed", "bhsd"])
def test_c25_zero_lengths(name: str, layout: str) -> None:
    of_q, of_kv, heads = EMPTY_SEQUENCES[name]
    spec = Spec(
        batch=len(of_q),
        heads=heads,
        rows=max(1, *of_q),
        keys=max(1, *of_kv),
        width=(16, 16),
        scale=0.25,
        lengths_q=of_q,
        lengths_kv=of_kv,
        layout=dict.fromkeys(PACKED_NAMES, layout),
    )
    check_forward(spec)
    made = check_backward(spec)
    for b in range(len(of_q)):
        if of_q[b] == 0:
            for port in ("dK", "dV"):
                placed = made.outputs[port]
                assert np.all(placed.flat[placed.entry(b, of_kv[b])] == 0)


@pytest.mark.parametrize("extent", ["batch", "rows", "keys"])
def test_c25_extent_zero(extent: str) -> None:
    """An operand of no elements is a no-op, and without keys rows see nothing."""
    spec = replace(Spec(), **{extent: 0})
    check_forward(spec)
    check_backward(spec)


# C-30: lengths that make no sense.


@pytest.mark.parametrize("flag", ["use_causal_mask", "use_causal_mask_bottom_right"])
@pytest.mark.parametrize("layout", ["packed", "bhsd"])
def test_c30_lengths_are_clamped(layout: str, flag: str) -> None:
    """-1 is empty, and a length over the declared maximum is cut to it; nothing outside is read or
    written.
    """
    spec = Spec(
        batch=3,
        rows=16,
        keys=16,
        lengths_q=(5, -1, 20),
        lengths_kv=(20, 3, -7),
        window={flag: True},
        layout=dict.fromkeys(PACKED_NAMES, layout),
    )
    check_forward(spec)
    check_backward(spec)


# C-31, C-33: pages. `Spec` fills unused pages, the tail of last pages and padding with NaN.


@pytest.mark.parametrize(
    ("page", "keys", "of_kv"),
    [(4, 16, (13, 16)), (16, 128, (32, 64, 96, 48)), (8, 20, (0, 17)), (1, 5, (3, 5))],
)
def test_c31_nan_in_unused_slots(page: int, keys: int, of_kv: tuple[int, ...]) -> None:
    spec = Spec(
        batch=len(of_kv),
        heads=(4, 2, 2),
        rows=3,
        keys=keys,
        page=page,
        lengths_q=(3,) * len(of_kv),
        lengths_kv=of_kv,
    )
    made = check_forward(spec)
    assert np.all(np.isfinite(made.outputs["O"].view))


@pytest.mark.parametrize("kind", ["k", "v", "kv"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_c31_dense_padding(kind: str, value: float) -> None:
    """Rows of K and V behind the length hold NaN or infinity: the live result is the same, forward and
    backward.
    """
    q, k, v, d_o = (normal(2, 2, s, 8, seed=i) for i, s in enumerate((5, 9, 9, 5)))
    arguments = {"q": q, "k": k, "v": v, **padding([5, 3], [6, 9])}
    dirty = dict(arguments)
    for name in kind:
        dirty[name] = arguments[name].copy()
        dirty[name][0, :, 6:] = value
    clean, found = (call("sdpa", {"generate_stats": True, **a}) for a in (arguments, dirty))
    assert np.array_equal(clean["O"], found["O"]) and np.array_equal(clean["Stats"], found["Stats"])
    extra = {"dO": d_o, "o": clean["O"], "stats": clean["Stats"]}
    first, second = (call("sdpa_backward", {**a, **extra}) for a in (arguments, dirty))
    for port in first:
        assert np.array_equal(first[port], second[port]), port


@pytest.mark.parametrize("page", [1, 8, 16, 64, 128, 256, 512])
def test_c33_page_sizes(page: int) -> None:
    """Page ids are a random permutation."""
    check_forward(
        Spec(
            rows=2,
            keys=300,
            page=page,
            heads=(4, 2, 2),
            lengths_q=(2, 2),
            lengths_kv=(300, 131),
            window={"use_causal_mask_bottom_right": True},
        )
    )


def test_c33_sequences_share_a_page() -> None:
    pool_k, pool_v = normal(5, 2, 4, 8), normal(5, 2, 4, 8, seed=1)
    table = np.array([[3, 0, 4], [3, 0, 1]], np.int32).reshape(2, 1, 3, 1)
    q = normal(2, 2, 3, 8, seed=2)
    paged = {
        "paged_attention_k_table": table,
        "paged_attention_v_table": table[::-1].copy(),
        "paged_attention_max_seq_len_kv": 12,
    }
    o, lse = run({"q": q, "k": pool_k, "v": pool_v, **paged, **padding([3, 3], [11, 9])})
    k = np.stack([np.concatenate([pool_k[p] for p in pages], 1) for pages in table[:, 0, :, 0]])
    v = np.stack([np.concatenate([pool_v[p] for p in pages], 1) for pages in table[::-1, 0, :, 0]])
    dense_o, dense_lse = run({"q": q, "k": k, "v": v, **padding([3, 3], [11, 9])})
    assert np.allclose(o, dense_o, atol=1e-6) and np.allclose(lse, dense_lse, atol=1e-6)


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1])
def test_c33_unused_table_entries_may_hold_anything(bad: int) -> None:
    """Entries of the table behind the length are never followed."""
    pool = normal(5, 2, 4, 8)
    table = np.array([[3, bad, bad], [2, 1, bad]], np.int32).reshape(2, 1, 3, 1)
    tidy = np.where(table == bad, 0, table).astype(np.int32)
    found = []
    for entries in (table, tidy):
        paged = {"paged_attention_k_table": entries, "paged_attention_v_table": entries}
        paged["paged_attention_max_seq_len_kv"] = 12
        found.append(
            run({"q": normal(2, 2, 1, 8, seed=2), "k": pool, "v": pool, **paged, **padding([1, 1], [4, 7])})
        )
    assert np.array_equal(found[0][0], found[1][0]) and np.array_equal(found[0][1], found[1][1])


# C-29: offsets of large packed buffers.


@pytest.mark.parametrize("port", ["q", "k", "v", "O"])
def test_c29_offsets_are_64_bit(port: str) -> None:
    """INT32 offsets in rows times a row of 8192 elements pass 2^31; the product is formed in int64."""
    heads, width, total = 64, 128, 300_000
    graph = frazil.Graph(io_data_type=BF16, compute_data_type=FLOAT, target="cpu")
    starts, counts = (graph.tensor((n, 1, 1, 1), data_type=DataType.INT32) for n in (3, 2))
    dim, step = (2, heads, 4096, width), heads * width
    stride = (4096 * step, width, step, 1)
    q, k, v = (
        graph.tensor(dim, stride, ragged_offset=starts, ragged_offset_multiplier=step) for _ in range(3)
    )
    o, _ = graph.sdpa(
        q, k, v, generate_stats=False, use_padding_mask=True, seq_len_q=counts, seq_len_kv=counts
    )
    o.set_output(True).set_dim(dim).set_stride(stride)
    o.set_ragged_offset(starts).set_ragged_offset_multiplier(step)
    rows = np.array([0, total - 4096, total], np.int32).reshape(3, 1, 1, 1)
    graph.build()
    problem = graph.problem
    call_of = problem.call(problem.nodes[0])
    found = ragged.offsets(np, call_of, port, {f"{port}.ragged": rows})
    assert found.dtype == np.int64
    assert found.tolist() == [0, (total - 4096) * step, total * step]
    assert total * step > 2**31
