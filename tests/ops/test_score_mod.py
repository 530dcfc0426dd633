"""Expressions of `score_mod`: their gradient against finite differences, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import frazil
from frazil.dtypes import data_type
from frazil.graph import GraphContext, GraphIR
from frazil.ops import score_mod

Callback = Callable[[Any, Any, Any], Any]  # (graph, score, captured tensor)

ONE_PATH: dict[str, Callback] = {
    "identity": lambda g, s, c: g.identity(s),
    "nothing": lambda g, s, c: s,
    "add": lambda g, s, c: g.add(c, s),
    "bias": lambda g, s, c: g.bias(s, c),
    "sub": lambda g, s, c: g.sub(s, c),
    "sub_from": lambda g, s, c: g.sub(c, s),
    "neg": lambda g, s, c: g.neg(s),
    "mul": lambda g, s, c: g.mul(c, s),
    "scale": lambda g, s, c: g.scale(s, c),
    "div": lambda g, s, c: g.div(s, c),
    "select": lambda g, s, c: g.binary_select(g.neg(s), c, g.cmp_gt(c, g.gen_index(s, axis=3))),
    "select_second": lambda g, s, c: g.binary_select(c, g.neg(s), g.cmp_gt(s, c)),
    "score_as_mask": lambda g, s, c: g.binary_select(g.neg(s), c, s),
    "soft_cap": lambda g, s, c: g.mul(g.tanh(g.div(s, c)), c),
    "sigmoid": lambda g, s, c: g.sigmoid(s),
    "elu": lambda g, s, c: g.elu(s),
    "gelu": lambda g, s, c: g.gelu(s),
    "gelu_approx_tanh": lambda g, s, c: g.gelu_approx_tanh(s),
    "softplus": lambda g, s, c: g.softplus(s),
    "relu": lambda g, s, c: g.relu(s, negative_slope=0.1, lower_clip=-0.5, upper_clip=0.7),
    "leaky_relu": lambda g, s, c: g.leaky_relu(s, 0.2),
    "swish": lambda g, s, c: g.swish(s, swish_beta=0.5),
    "unused_step": lambda g, s, c: (g.exp(s), g.neg(s))[1],
    "constant": lambda g, s, c: g.neg(c),
}
SEVERAL_PATHS: dict[str, Callback] = {
    "square": lambda g, s, c: g.mul(s, s),
    "residual": lambda g, s, c: g.add(g.tanh(s), s),
    "residual_other_way": lambda g, s, c: g.add(s, g.tanh(s)),
    "late": lambda g, s, c: g.mul(g.neg(g.tanh(s)), s),
    "diamond": lambda g, s, c: g.add(g.tanh(s), g.sigmoid(s)),
    "inner": lambda g, s, c: (lambda t: g.add(g.neg(t), g.sigmoid(t)))(g.tanh(s)),
    "both_branches": lambda g, s, c: g.binary_select(s, g.neg(s), g.cmp_gt(s, c)),
}
NO_RULE: dict[str, Callback] = {
    "exp": lambda g, s, c: g.exp(s),
    "divisor": lambda g, s, c: g.div(c, s),
    "max": lambda g, s, c: g.max(s, c),
    "add_square": lambda g, s, c: g.add_square(c, s),
}


def expression(callback: Callback) -> tuple[Any, int]:
    graph = GraphIR(GraphContext("t", data_type.DOUBLE, data_type.DOUBLE, data_type.DOUBLE))
    made, captured = score_mod.bind(graph, "node", lambda g, s: callback(g, s, graph.tensor((1, 3, 1, 5))))
    assert made is not None
    return made, len(captured)


@pytest.mark.parametrize("name", ONE_PATH)
def test_gradient(name: str) -> None:
    rng = np.random.default_rng(4)
    s, g, c = (rng.standard_normal(d) for d in ((2, 3, 4, 5), (2, 3, 4, 5), (1, 3, 1, 5)))
    made, captures = expression(ONE_PATH[name])
    derived = score_mod.with_gradient(made)
    assert derived is not None
    operands = [c] * captures

    def value(x: Any) -> Any:
        return np.broadcast_to(score_mod.evaluate(np, made, [x, *operands])[0], s.shape)

    results = score_mod.evaluate(np, derived, [s, g, *operands])
    assert np.array_equal(np.broadcast_to(results[0], s.shape), value(s))
    h = 1e-6
    expected = (value(s + h) - value(s - h)) / (2 * h) * g
    assert np.allclose(np.broadcast_to(results[1], s.shape), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("callback", [pytest.param(f, id=n) for n, f in {**SEVERAL_PATHS, **NO_RULE}.items()])
def test_no_gradient(callback: Callback) -> None:
    """None rather than a gradient that lacks a part."""
    made, _ = expression(callback)
    assert score_mod.with_gradient(made) is None


def attend(callback: Any) -> None:
    graph = frazil.Graph(io_data_type=data_type.FLOAT, target="cpu")
    q, k, v = (graph.tensor((2, 4, n, 8), name=m) for m, n in (("q", 5), ("k", 7), ("v", 7)))
    o, _ = graph.sdpa(q, k, v, generate_stats=False, score_mod=callback, name="attention")
    o.set_output(True)
    graph.validate()


def packed(graph: Any) -> Any:
    offsets = graph.tensor((3, 1, 1, 1), data_type=data_type.INT32)
    return graph.tensor((2, 4, 5, 7), ragged_offset=offsets, name="lengthy")


REFUSED = {
    "axis": (lambda g, s: g.add(s, g.gen_index(s, axis=4)), "gen_index of score_mod.*axis.*got 4"),
    "extents": (lambda g, s: g.add(s, g.tensor((2, 4, 5, 6), name="odd")), "'odd'.*5, 6"),
    "rank": (lambda g, s: g.add(s, g.tensor((1, 1, 1, 1, 1), name="deep")), "'deep'"),
    "packed": (lambda g, s: g.add(s, packed(g)), "'lengthy'.*packed"),
    "no_function": (3, "score_mod: got 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal(name: str) -> None:
    callback, text = REFUSED[name]
    with pytest.raises(frazil.GraphError, match=text):
        attend(callback)


def test_captures_of_lower_rank_broadcast() -> None:
    attend(lambda g, s: g.add(s, g.tensor((5, 1))))
    attend(lambda g, s: g.add(s, g.tensor((7,))))
