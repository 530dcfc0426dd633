"""Callbacks of attention: derived gradients, masks beside them, captured tensors, typed intermediates,
lengths without a flag.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import frazil
from tests.ops.test_sdpa import GAPS, PADDED, softcap
from tests.oracles import attention as oracle
from tests.oracles.attention_calls import call, check_backward, check_forward, graph_of, normal
from tests.oracles.attention_spec import INT32, Spec

CONST = frazil.scalar_type.COMPILE_TIME_CONST


Callback = Callable[..., Any]


CHAINS: dict[str, tuple[Callback, Callback]] = {
    "softcap": (softcap(0.7)[0], softcap(0.7)[2]),
    "scaled": (lambda g, s: g.mul(g.tensor_scalar(0.5, CONST), s), lambda s, h, i, j: 0.5 * s),
    "negated": (lambda g, s: g.neg(s), lambda s, h, i, j: -s),
    "subtracted": (lambda g, s: g.sub(g.tensor_scalar(2.0, CONST), s), lambda s, h, i, j: 2.0 - s),
    "divided": (lambda g, s: g.div(s, g.tensor_scalar(3.0, CONST)), lambda s, h, i, j: s / 3.0),
    "sigmoid": (lambda g, s: g.sigmoid(s), lambda s, h, i, j: torch.sigmoid(s)),
    "relative": (
        lambda g, s: g.add(
            s, g.mul(g.sub(g.gen_index(s, 3), g.gen_index(s, 2)), g.tensor_scalar(0.25, CONST))
        ),
        lambda s, h, i, j: s + 0.25 * (j - i).double(),
    ),
    "masked": (
        lambda g, s: g.binary_select(
            s, g.tensor_scalar(-1e9, CONST), g.cmp_ge(g.gen_index(s, 2), g.gen_index(s, 3))
        ),
        lambda s, h, i, j: torch.where(i >= j, s, -1e9),
    ),
    "capped_then_masked": (
        lambda g, s: g.binary_select(
            softcap(0.7)[0](g, s),
            g.tensor_scalar(-math.inf, CONST),
            g.cmp_ge(g.gen_index(s, 2), g.gen_index(s, 3)),
        ),
        lambda s, h, i, j: torch.where(i >= j, 0.7 * torch.tanh(s / 0.7), -math.inf),
    ),
    "nothing": (lambda g, s: g.identity(s), lambda s, h, i, j: s),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("base", [Spec(heads=(4, 2, 2)), GAPS], ids=["dense", "packed"])
def test_callback_without_its_gradient(name: str, base: Spec) -> None:
    """A callback in which the score runs through one chain needs no score_mod_bprop."""
    apply, expected = CHAINS[name]
    spec = replace(base, score_mod=(apply, None, expected))
    check_forward(spec)
    check_backward(spec)


@pytest.mark.parametrize("window", [{"use_causal_mask": True}, {"diagonal_band_left_bound": 2}])
@pytest.mark.parametrize("base", [Spec(sink=True, bias=(1, 2, 1, 2)), PADDED], ids=["dense", "padded"])
def test_callback_with_masks(base: Spec, window: dict[str, Any]) -> None:
    """The callback comes before bias and masks."""
    spec = replace(base, score_mod=softcap(0.5), window=window, dropout=0.2)
    check_forward(spec)
    check_backward(spec)


def test_callback_with_captured_tensors() -> None:
    """A tensor per head and a host scalar, declared outside the callback, become operands of the node."""
    q, k, v, d_o = (normal(2, 3, n, 8, seed=i) for i, n in enumerate((5, 7, 7, 5)))
    per_head, host = normal(1, 3, 1, 1, seed=9), 0.6
    results: dict[str, np.ndarray] = {}
    for op in ("sdpa", "sdpa_backward"):
        graph = graph_of()
        t = {n: graph.tensor(a.shape, name=n) for n, a in (("q", q), ("k", k), ("v", v))}
        slope = graph.tensor(per_head.shape, name="slope")
        factor = graph.tensor((1, 1, 1, 1), is_pass_by_value=True, name="factor")

        def apply(g: Any, s: Any, slope: Any = slope, factor: Any = factor) -> Any:
            return g.add(g.mul(s, factor), slope)

        pack = {t["q"]: q, t["k"]: k, t["v"]: v, slope: per_head, factor: host}
        if op == "sdpa":
            o, stats = graph.sdpa(**t, generate_stats=True, score_mod=apply)
            outputs = {"O": o, "Stats": stats}
        else:
            extra = {"o": results["O"], "dO": d_o, "stats": results["Stats"]}
            t |= {n: graph.tensor(a.shape, name=n) for n, a in extra.items()}
            pack |= {t[n]: a for n, a in extra.items()}
            grads = graph.sdpa_backward(**t, score_mod=apply)
            outputs = dict(zip(("dQ", "dK", "dV"), grads, strict=True))
        for tensor in outputs.values():
            tensor.set_output(True)
        graph.build()
        results |= {n: np.full(x.dim, np.nan, np.float32) for n, x in outputs.items()}
        graph.execute(pack | {x: results[n] for n, x in outputs.items()}, graph.empty_workspace())
    entries = [oracle.Entry(*(oracle.double(x[b]) for x in (q, k, v))) for b in range(2)]
    options = oracle.Options(score_mod=lambda s, h, i, j: s * host + float(per_head[0, h, 0, 0]))
    grads = oracle.gradients(entries, options, [oracle.double(x) for x in d_o])
    assert np.allclose(results["O"], np.stack([r.o for r in oracle.attention(entries, options)]), atol=1e-5)
    for name, parts in (("dQ", grads.q), ("dK", grads.k), ("dV", grads.v)):
        assert np.allclose(results[name], np.stack(parts), atol=1e-4), name


def _typed_mask(graph: Any, score: Any, reach: Any, columns: Any, lowest: Any) -> Any:
    """|row - key| <= reach, or key < columns, with typed intermediates as existing graph code writes them."""
    kinds = frazil.data_type
    row, key = (
        graph.gen_index(input=score, axis=a, compute_data_type=kinds.INT32).set_data_type(kinds.INT32)
        for a in (2, 3)
    )
    away = graph.sub(a=row, b=key, compute_data_type=kinds.INT32).set_data_type(kinds.INT32)
    size = graph.max(away, graph.neg(away)).set_data_type(kinds.INT32)
    near = graph.cmp_le(input=size, comparison=reach, compute_data_type=kinds.BOOLEAN)
    near.set_data_type(kinds.BOOLEAN)
    first = graph.cmp_lt(input=key, comparison=columns, compute_data_type=kinds.BOOLEAN)
    first.set_data_type(kinds.INT32)
    seen = graph.logical_or(near, first, compute_data_type=kinds.BOOLEAN).set_data_type(kinds.INT32)
    return graph.binary_select(input0=score, input1=lowest, mask=seen)


def test_callback_with_typed_intermediates() -> None:
    q, k, v = (normal(2, 2, n, 8, seed=i) for i, n in enumerate((6, 9, 9)))
    graph = graph_of()
    t = [graph.tensor(a.shape) for a in (q, k, v)]
    one = (1, 1, 1, 1)
    reach, columns = (graph.tensor(one, data_type=INT32, is_pass_by_value=True) for _ in range(2))
    lowest = graph.tensor(one, is_pass_by_value=True)
    o, _ = graph.sdpa(
        *t, generate_stats=False, score_mod=lambda g, s: _typed_mask(g, s, reach, columns, lowest)
    )
    o.set_output(True)
    graph.build()
    result = np.full(o.dim, np.nan, np.float32)
    host = {reach: torch.full(one, 1, dtype=torch.int32), columns: 2, lowest: torch.full(one, -1e9)}
    graph.execute({**dict(zip(t, (q, k, v), strict=True)), **host, o: result}, graph.empty_workspace())
    row, key = np.ogrid[:6, :9]
    bias = np.where((abs(row - key) <= 1) | (key < 2), 0.0, -1e9)
    want = call(
        "sdpa", {"q": q, "k": k, "v": v, "generate_stats": False, "bias": np.float32(bias)[None, None]}
    )
    assert np.allclose(result, want["O"], atol=1e-6)


@pytest.mark.parametrize("paged", [False, True])
def test_lengths_with_a_callback_need_no_flag(paged: bool) -> None:
    """cudnn-frontend takes lengths beside score_mod without use_padding_mask, paged or not (its
    test_flexible_sdpa.py).

    What lies behind the lengths is not read then, either.
    """
    q = normal(2, 2, 3, 8)
    k, v = normal(5, 2, 4, 8, seed=1), normal(5, 2, 4, 8, seed=2)
    tables: dict[str, Any] = {}
    if paged:
        table = np.array([[3, 0, 4], [1, 2, 0]], np.int32).reshape(2, 1, 3, 1)
        tables = {f"paged_attention_{n}_table": table for n in "kv"} | {"paged_attention_max_seq_len_kv": 12}
    else:
        k, v = (np.where(np.arange(4)[:, None] < 3, x, np.nan).astype(np.float32)[:2] for x in (k, v))
    lengths = {
        n: np.array(c, np.int32).reshape(2, 1, 1, 1)
        for n, c in (("seq_len_q", [3, 2]), ("seq_len_kv", [3, 2]))
    }
    common = {
        "q": q,
        "k": k,
        "v": v,
        **tables,
        **lengths,
        "generate_stats": True,
        "score_mod": softcap(0.7)[0],
    }
    want = call("sdpa", {**common, "use_padding_mask": True})
    got = call("sdpa", common)
    for port in want:
        assert np.array_equal(got[port], want[port]), port
