"""Forward attention: the oracle against torch and by hand, the record's cases and features against the
oracle.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import frazil
from frazil.op import Case
from tests import harness
from tests.oracles import attention as oracle
from tests.oracles import attention_cases
from tests.oracles.attention_calls import check_forward
from tests.oracles.attention_spec import BF16, BOTTOM_RIGHT, DOUBLE, HALF, INT64, Spec

CONST = frazil.scalar_type.COMPILE_TIME_CONST
BR = {"diagonal_alignment": BOTTOM_RIGHT}


def softcap(cap: float) -> tuple[Any, Any, Any]:
    """cap * tanh(score / cap), its gradient, and the oracle's form."""
    saved: dict[str, Any] = {}

    def apply(graph: Any, score: Any) -> Any:
        limit = graph.tensor_scalar(cap, CONST)
        saved["tanh"] = graph.tanh(graph.div(score, limit))
        return graph.mul(saved["tanh"], limit)

    def gradient(graph: Any, loss: Any) -> Any:
        square = graph.mul(saved["tanh"], saved["tanh"])
        return graph.mul(loss, graph.sub(graph.tensor_scalar(1.0, CONST), square))

    return apply, gradient, lambda score, head, row, key: cap * torch.tanh(score / cap)


def causal_by_callback() -> tuple[Any, Any, Any]:
    """Keys behind the row replaced by -1e9, with indices made in the callback."""
    saved: dict[str, Any] = {}

    def apply(graph: Any, score: Any) -> Any:
        row, key = graph.gen_index(score, axis=2), graph.gen_index(score, axis=3)
        saved["seen"] = graph.cmp_ge(row, key)
        return graph.binary_select(score, graph.tensor_scalar(-1e9, CONST), saved["seen"])

    def gradient(graph: Any, loss: Any) -> Any:
        return graph.binary_select(loss, graph.tensor_scalar(0.0, CONST), saved["seen"])

    return apply, gradient, lambda score, head, row, key: torch.where(row >= key, score, -1e9)


def head_scaled() -> tuple[Any, Any, Any]:
    """The score times (1 + head): the callback sees the head's index on axis 1."""
    saved: dict[str, Any] = {}

    def apply(graph: Any, score: Any) -> Any:
        head = graph.gen_index(score, axis=1)
        saved["factor"] = graph.add(head, graph.tensor_scalar(1.0, CONST))
        return graph.mul(score, saved["factor"])

    return (
        apply,
        lambda graph, loss: graph.mul(loss, saved["factor"]),
        lambda s, head, row, key: s * (1 + head),
    )


PADDED = Spec(batch=3, rows=6, keys=9, lengths_q=(6, 2, 4), lengths_kv=(5, 9, 1))
EMPTY = replace(PADDED, batch=4, lengths_q=(6, 0, 3, 0), lengths_kv=(0, 4, 9, 0))
PACKED = replace(
    PADDED, layout=dict.fromkeys(("q", "k", "v", "o", "stats", "dO", "dQ", "dK", "dV"), "packed")
)
GAPS = replace(PACKED, layout=dict.fromkeys(PACKED.layout, "packed_gaps"))
WIDE = replace(PACKED, layout=PACKED.layout | dict.fromkeys(("q", "k", "v", "dQ", "dK", "dV"), "packed_wide"))
PACKED_EMPTY = replace(EMPTY, layout=PACKED.layout)
PAGED = replace(PADDED, batch=3, keys=13, lengths_kv=(13, 4, 9), page=4)

# Features that forward and backward share.
FEATURES = {
    "plain": Spec(),
    "one_row": Spec(rows=1),
    "one_everything": Spec(batch=1, heads=(1, 1, 1), rows=1, keys=1, width=(1, 1)),
    "widths_differ": Spec(width=(8, 3)),
    "gqa": Spec(heads=(4, 2, 2)),
    "mqa": Spec(heads=(5, 1, 1)),
    "k_and_v_heads_differ": Spec(heads=(6, 2, 3)),
    "long": Spec(rows=70, keys=130, width=(16, 16)),
    "scale_default": Spec(scale=None, width=(4, 4)),
    "scale_negative": Spec(scale=-0.7),
    "scale_zero": Spec(scale=0.0),
    "scale_tensor": Spec(scale=0.3, scale_tensor=True),
    "causal": Spec(window={"use_causal_mask": True}),
    "causal_tall": Spec(rows=9, window={"use_causal_mask": True}),
    "causal_bottom_right": Spec(window={"use_causal_mask_bottom_right": True}),
    "causal_bottom_right_tall": Spec(rows=9, keys=4, window={"use_causal_mask_bottom_right": True}),
    "right_bound_zero": Spec(window={"diagonal_band_right_bound": 0}),
    "right_bound": Spec(window={"diagonal_band_right_bound": 2}),
    "right_bound_bottom_right": Spec(window=BR | {"diagonal_band_right_bound": 1}),
    "left_bound": Spec(window={"diagonal_band_left_bound": 2}),
    "left_bound_one": Spec(window={"diagonal_band_left_bound": 1}),
    "window_causal": Spec(rows=9, keys=9, window={"use_causal_mask": True, "sliding_window_length": 3}),
    "window_bottom_right": Spec(window=BR | {"sliding_window_length": 3, "diagonal_band_right_bound": 0}),
    "band": Spec(rows=12, keys=10, window={"diagonal_band_left_bound": 3, "diagonal_band_right_bound": 2}),
    "band_bottom_right_tall": Spec(
        rows=12, keys=5, window=BR | {"diagonal_band_left_bound": 3, "diagonal_band_right_bound": 2}
    ),
    "window_leaves_rows_empty": Spec(
        rows=12, keys=4, window={"diagonal_band_left_bound": 2, "diagonal_band_right_bound": 1}
    ),
    "padded": PADDED,
    "padded_empty": EMPTY,
    "padded_causal": replace(PADDED, window={"use_causal_mask": True}),
    "padded_bottom_right": replace(PADDED, window={"use_causal_mask_bottom_right": True}),
    "padded_band_bottom_right": replace(
        PADDED, window=BR | {"diagonal_band_left_bound": 2, "diagonal_band_right_bound": 1}
    ),
    "padded_gqa_bshd": replace(PADDED, heads=(4, 2, 2), layout=dict.fromkeys("qkvo", "bshd")),
    "packed": PACKED,
    "packed_empty": PACKED_EMPTY,
    "packed_all_empty": replace(PACKED_EMPTY, lengths_q=(0,) * 4, lengths_kv=(0,) * 4),
    "packed_gaps": GAPS,
    "packed_wide": WIDE,
    "packed_elements": replace(PACKED, multiplied=False, offsets=INT64),
    "packed_gqa": replace(GAPS, heads=(6, 2, 3), width=(8, 5)),
    "packed_bottom_right": replace(WIDE, window={"use_causal_mask_bottom_right": True}),
    "packed_window": replace(PACKED, window={"use_causal_mask": True, "sliding_window_length": 2}),
    "packed_stats_by_head": replace(PACKED, layout=PACKED.layout | {"stats": "packed_heads"}),
    "bias": Spec(bias=(2, 2, 2, 2)),
    "bias_over_batch": Spec(bias=(1, 2, 2, 2)),
    "bias_over_heads": Spec(bias=(2, 1, 2, 2)),
    "bias_keys_only": Spec(bias=(2, 1, 1, 2)),
    "bias_rows_only": Spec(bias=(1, 2, 2, 1)),
    "bias_one_number": Spec(bias=(1, 1, 1, 1)),
    "bias_gqa_causal": Spec(heads=(4, 2, 1), bias=(1, 2, 2, 2), window={"use_causal_mask": True}),
    "bias_padded": replace(PADDED, bias=(1, 2, 2, 2)),
    "bias_packed": replace(GAPS, bias=(2, 1, 2, 2)),
    "sink": Spec(sink=True),
    "sink_gqa_causal": Spec(heads=(4, 2, 2), sink=True, window={"use_causal_mask": True}),
    "sink_rows_see_nothing": Spec(rows=6, keys=3, sink=True, window={"use_causal_mask_bottom_right": True}),
    "sink_padded_empty": replace(EMPTY, sink=True),
    "sink_packed_empty": replace(PACKED_EMPTY, sink=True),
    "dropout": Spec(rows=20, keys=33, dropout=0.3),
    "dropout_zero": Spec(dropout=0.0),
    "dropout_causal_gqa": Spec(
        heads=(4, 2, 2), rows=20, keys=33, dropout=0.5, window={"use_causal_mask": True}
    ),
    "dropout_padded": replace(PADDED, dropout=0.4),
    "dropout_packed": replace(GAPS, dropout=0.4),
    "dropout_bias_sink": Spec(dropout=0.2, bias=(1, 2, 2, 2), sink=True),
    "alibi": Spec(heads=(8, 8, 8), alibi=True, window={"use_causal_mask": True}),
    "alibi_heads_no_power_of_two": Spec(heads=(6, 2, 2), alibi=True, window={"use_causal_mask": True}),
    "alibi_packed": replace(GAPS, alibi=True, window={"use_causal_mask": True}),
    "softcap": Spec(score_mod=softcap(0.5)),
    "softcap_bias": Spec(score_mod=softcap(0.5), bias=(1, 2, 2, 2)),
    "causal_by_callback": Spec(score_mod=causal_by_callback()),
    "head_scaled_by_callback": Spec(heads=(4, 2, 2), score_mod=head_scaled()),
    "tiles": Spec(rows=200, keys=300, tiles=[[[[5], [2]], [[7], [0]]]] * 2),
    "tiles_causal": Spec(
        rows=260, keys=260, tiles=[[[[5], [2], [6]], [[7], [0], [4]]]] * 2, window={"use_causal_mask": True}
    ),
    "half": Spec(dtype=HALF, rows=17, keys=40),
    "bfloat16": Spec(dtype=BF16, rows=17, keys=40, layout=dict.fromkeys("qkvo", "bshd")),
    "bfloat16_packed": replace(WIDE, dtype=BF16),
    "double": Spec(dtype=DOUBLE, compute=DOUBLE, rows=17, keys=40, bias=(1, 2, 2, 2), sink=True),
    "layout_bshd": Spec(layout=dict.fromkeys(("q", "k", "v", "o", "dO", "dQ", "dK", "dV"), "bshd")),
    "layout_sbhd": Spec(layout=dict.fromkeys(("q", "k", "v", "o", "dO", "dQ", "dK", "dV"), "sbhd")),
    "layout_wide": Spec(layout=dict.fromkeys(("q", "k", "v", "o", "dO", "dQ", "dK", "dV", "stats"), "wide")),
    "layout_interleaved": Spec(layout=dict.fromkeys(("q", "k", "v", "o", "dQ", "dK", "dV"), "interleaved")),
    "layout_mixed": Spec(layout={"q": "bshd", "k": "wide", "v": "sbhd", "o": "interleaved", "dO": "wide"}),
    "layout_broadcast_batch": Spec(layout=dict.fromkeys("qkv", "one_batch")),
    "layout_broadcast_heads": Spec(heads=(4, 4, 2), layout=dict.fromkeys("qkv", "one_head")),
}
FORWARD = {
    "no_stats": Spec(stats=False),
    "extras": Spec(extras=True),
    "extras_bottom_right_tall": Spec(
        rows=9, keys=4, extras=True, window={"use_causal_mask_bottom_right": True}
    ),
    "extras_sink_padded": replace(EMPTY, extras=True, sink=True),
    "extras_packed": replace(GAPS, extras=True),
    "paged": PAGED,
    "paged_one": replace(PAGED, page=1),
    "paged_causal_gqa": replace(PAGED, heads=(4, 2, 2), window={"use_causal_mask_bottom_right": True}),
    "paged_larger_than_sequence": replace(PAGED, page=32),
    "paged_empty": replace(PAGED, lengths_kv=(0, 13, 1)),
    "paged_packed_queries": replace(PAGED, layout={"q": "packed", "o": "packed", "stats": "packed"}),
    "paged_decode": replace(PAGED, rows=1, lengths_q=(1, 1, 1), heads=(6, 3, 1), dtype=BF16),
    "dropout_mask": Spec(dropout=("mask", 1.7)),
}


@pytest.mark.parametrize(("name", "case"), harness.cases("sdpa"))
def test_case(name: str, case: Case) -> None:
    harness.check(name, case, attention_cases.sdpa, np.random.default_rng(7))


@pytest.mark.parametrize("spec", [pytest.param(s, id=n) for n, s in {**FEATURES, **FORWARD}.items()])
def test_feature(spec: Spec) -> None:
    check_forward(spec)


# The oracle itself.


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_oracle_agrees_with_torch(heads: tuple[int, int], causal: bool) -> None:
    torch.manual_seed(0)
    hq, hk = heads
    q, k, v = (torch.randn(2, h, s, d).double() for h, s, d in ((hq, 5, 8), (hk, 9, 8), (hk, 9, 3)))
    for t in (q, k, v):
        t.requires_grad_()
    o = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=0.3, enable_gqa=True
    )
    d_o = torch.randn_like(o)
    wanted = torch.autograd.grad(o, (q, k, v), d_o)
    entries = [oracle.Entry(*(t[b].detach() for t in (q, k, v))) for b in range(2)]
    options = oracle.Options(scale=0.3, right=0 if causal else None)
    assert torch.allclose(torch.stack([r.o for r in oracle.attention(entries, options)]), o, atol=1e-13)
    found = oracle.gradients(entries, options, list(d_o))
    for got, want in zip((found.q, found.k, found.v), wanted, strict=True):
        assert torch.allclose(torch.stack(got), want, atol=1e-12)


def test_oracle_gradients_follow_a_rounded_output() -> None:
    """Against the backward formula with delta from the rounded O, written out for one head."""
    torch.manual_seed(1)
    q, k, v, d_o = (torch.randn(1, n, 4).double() for n in (3, 5, 5, 3))
    entry = oracle.Entry(q, k, v)
    rows = oracle.attend(entry, oracle.Options())
    o = rows.o.bfloat16().double()
    found = oracle.gradients([entry], oracle.Options(), [d_o], [o])
    p = torch.exp(q[0] @ k[0].T - rows.lse[0][:, None])
    d_s = p * (d_o[0] @ v[0].T - (d_o[0] * o[0]).sum(1, keepdim=True))
    assert torch.allclose(found.q[0][0], d_s @ k[0], atol=1e-13)
    assert torch.allclose(found.k[0][0], d_s.T @ q[0], atol=1e-13)


@pytest.mark.parametrize(
    ("rows", "keys", "options", "seen"),
    [
        (2, 5, oracle.Options(right=0), [[0], [0, 1]]),
        (2, 5, oracle.Options(right=0, bottom_right=True), [[0, 1, 2, 3], [0, 1, 2, 3, 4]]),
        (5, 2, oracle.Options(right=0, bottom_right=True), [[], [], [], [0], [0, 1]]),
        (4, 4, oracle.Options(left=2, right=0), [[0], [0, 1], [1, 2], [2, 3]]),
        (3, 4, oracle.Options(left=1), [[0, 1, 2, 3], [1, 2, 3], [2, 3]]),
        (3, 4, oracle.Options(left=1, right=1, bottom_right=True), [[1, 2], [2, 3], [3]]),
    ],
)
def test_oracle_band(rows: int, keys: int, options: oracle.Options, seen: list[list[int]]) -> None:
    found = [oracle.visible_keys(i, rows, keys, options) for i in range(rows)]
    assert [[j for j, ok in enumerate(row) if ok] for row in found] == seen


def test_oracle_alibi_slopes() -> None:
    """Press, Smith, Lewis, "Train short, test long" (2022): 2^-1 .. 2^-8 for 8 heads, then every other one of
    16's.
    """
    assert oracle.alibi_slopes(8) == [2.0**-n for n in range(1, 9)]
    assert oracle.alibi_slopes(12) == [2.0**-n for n in range(1, 9)] + [2.0 ** -(n + 0.5) for n in range(4)]


def test_oracle_philox() -> None:
    """Known answers of the Random123 distribution for philox4x32-10."""
    ones = 0xFFFFFFFF
    pi = ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))
    assert oracle.philox((0,) * 4, (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert oracle.philox((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert oracle.philox(*pi) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


# Names and order of the parameters that existing graph code passes by position or keyword.
SIGNATURES = {
    "sdpa": "q k v is_inference attn_scale bias block_mask use_alibi_mask use_padding_mask seq_len_q seq_len_kv "
    "use_causal_mask use_causal_mask_bottom_right sliding_window_length diagonal_alignment "
    "diagonal_band_left_bound diagonal_band_right_bound dropout rng_dump paged_attention_k_table "
    "paged_attention_v_table paged_attention_max_seq_len_kv max_total_seq_len_q max_total_seq_len_kv "
    "compute_data_type name score_mod generate_stats implementation score_max score_sum_exp sink_token "
    "unfuse_fma cu_seq_len_q cu_seq_len_kv stats_use_log2",
    "sdpa_backward": "q k v o dO stats attn_scale bias dBias use_alibi_mask use_padding_mask seq_len_q "
    "seq_len_kv max_total_seq_len_q max_total_seq_len_kv use_causal_mask use_causal_mask_bottom_right "
    "sliding_window_length diagonal_alignment diagonal_band_left_bound diagonal_band_right_bound dropout "
    "rng_dump use_deterministic_algorithm compute_data_type name score_mod score_mod_bprop sink_token "
    "dSink_token",
}


@pytest.mark.parametrize("op", SIGNATURES)
def test_signature(op: str) -> None:
    parameters = list(inspect.signature(getattr(frazil.Graph, op)).parameters)[1:]
    expected = SIGNATURES[op].split()
    assert parameters[: len(expected)] == expected
