"""Pointwise operations, matmul and reductions against torch in float64: every case, a fuzz over layouts, and
refusals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import frazil
from frazil import GraphError, data_type, reduction_mode
from frazil.op import Arg, Case
from frazil.ops import OPS, pointwise
from tests import harness
from tests.layouts import layout

oracle = pytest.importorskip("tests.oracles.basic", reason="torch is the oracle")

POINTWISE = tuple(op.name for op in pointwise.OPS)
SEEDS = range(120)


@pytest.mark.parametrize("name, case", harness.cases(*POINTWISE))
def test_pointwise(name: str, case: Case, rng: np.random.Generator) -> None:
    harness.check(name, case, oracle.pointwise, rng)


@pytest.mark.parametrize("name, case", harness.cases("matmul"))
def test_matmul(name: str, case: Case, rng: np.random.Generator) -> None:
    harness.check(name, case, oracle.matmul, rng)


@pytest.mark.parametrize("name, case", harness.cases("reduction"))
def test_reduction(name: str, case: Case, rng: np.random.Generator) -> None:
    harness.check(name, case, oracle.reduction, rng)


def fuzzed(seed: int) -> tuple[str, Case, Any]:
    """A random call of one of the three families."""
    rng = np.random.default_rng(seed)
    dtype = data_type(rng.choice([data_type.FLOAT, data_type.HALF, data_type.BFLOAT16, data_type.FLOAT]))
    dim = tuple(int(d) for d in rng.integers(1, 6, rng.integers(2, 5)))
    family = rng.choice(["pointwise", "matmul", "reduction"])
    if family == "reduction":
        keep = tuple(d if rng.random() < 0.5 else 1 for d in dim)
        mode = reduction_mode(int(rng.integers(1, 10)))
        source = Arg(dim, stride=layout(rng, dim), fill="uniform")
        target = Arg(keep, stride=layout(rng, keep, broadcast=False))
        case = Case(f"seed{seed}", {"input": source, "mode": mode}, {"OUT_0": target}, data_type=dtype)
        return "reduction", case, oracle.reduction
    if family == "matmul":
        batch = dim[:-2]
        m, k, n = (int(x) for x in rng.integers(1, 9, 3))
        a = (*(d if rng.random() < 0.7 else 1 for d in batch), m, k)
        b = (*(d if rng.random() < 0.7 else 1 for d in batch), k, n)
        args = {"A": Arg(a, stride=layout(rng, a)), "B": Arg(b, stride=layout(rng, b))}
        return "matmul", Case(f"seed{seed}", args, data_type=dtype), oracle.matmul
    name = str(
        rng.choice(
            ["add", "sub", "mul", "max", "min", "bias", "add_square", "gelu_backward", "swish_backward"]
        )
    )
    args = {}
    for port in OPS[name].inputs:
        extents = tuple(d if rng.random() < 0.7 else 1 for d in dim[int(rng.integers(0, 2)) :])
        args[port.name] = Arg(extents, stride=layout(rng, extents))
    return name, Case(f"seed{seed}", args, data_type=dtype), oracle.pointwise


@pytest.mark.parametrize("seed", SEEDS)
def test_fuzz(seed: int) -> None:
    name, case, expected = fuzzed(seed)
    try:
        harness.check(name, case, expected, np.random.default_rng(seed))
    except Exception:
        print(f"rerun: pytest tests/ops/test_basic.py -k 'test_fuzz and {seed}'")
        raise


def test_c66_trailing_axis_of_one() -> None:
    graph = frazil.Graph(io_data_type=data_type.FLOAT, target="cpu")
    a = graph.tensor((1, 2, 2), (4, 2, 1), name="A")
    b = graph.tensor((1, 2, 1), (2, 1, 1), name="B")
    out = graph.add(a, b).set_output(True)
    result = np.empty((1, 2, 2), np.float32)
    graph.build()
    graph.execute({a: np.array([[[1, 2], [3, 4]]], "f4"), b: np.array([[[10], [20]]], "f4"), out: result})
    assert result.tolist() == [[[11, 12], [23, 24]]]


def test_c38_sums_in_half_precision_do_not_saturate(rng: np.random.Generator) -> None:
    for dtype in (data_type.HALF, data_type.BFLOAT16):
        ones = Arg((1, 4096), fill="ones")
        case = Case(
            "ones", {"input": ones, "mode": reduction_mode.ADD}, {"OUT_0": Arg((1, 1))}, data_type=dtype
        )
        results = harness.run(harness.setup("reduction", case, rng))
        assert float(results["OUT_0"].astype(np.float32)[0, 0]) == 4096


def graph() -> frazil.Graph:
    return frazil.Graph(io_data_type=data_type.FLOAT, compute_data_type=data_type.FLOAT, target="cpu")


@pytest.mark.parametrize(
    "a, b, text",
    [
        (
            (2, 3, 4),
            (2, 5, 6),
            r"tensor 'B' \(uid 2\): port 'B': K extent: got \(2, 5, 6\), expected \(..., 4, N\)",
        ),
        (
            (2, 3, 4),
            (3, 4, 6),
            r"port 'B': batch axis 0 does not broadcast: got \(3, 4, 6\), expected 1 or 2 there",
        ),
        ((3, 4), (1, 4, 6), r"port 'B': rank: got \(1, 4, 6\), expected 2 axes"),
        ((4,), (4,), r"tensor 'A' \(uid 1\): port 'A': rank: got \(4,\), expected at least two axes"),
    ],
)
def test_matmul_refuses(a: tuple[int, ...], b: tuple[int, ...], text: str) -> None:
    g = graph()
    g.matmul(g.tensor(a, name="A"), g.tensor(b, name="B"), name="mm").set_output(True)
    with pytest.raises(
        GraphError, match=r"node 'mm', " + (text if text.startswith("tensor") else f".*{text}")
    ):
        g.validate()


def test_pointwise_refuses_extents_that_do_not_broadcast() -> None:
    g = graph()
    g.add(g.tensor((2, 3), name="A"), g.tensor((2, 4), name="B")).set_output(True)
    with pytest.raises(
        GraphError, match=r"tensor 'B' \(uid 2\).*axis 1.*got \(2, 4\), expected 1 or 3 there"
    ):
        g.validate()


@pytest.mark.parametrize("dim, text", [((2, 2), "1 or that of the input"), ((2,), "on each axis")])
def test_reduction_refuses_other_extents(dim: tuple[int, ...], text: str) -> None:
    g = graph()
    g.reduction(g.tensor((2, 3)), mode=reduction_mode.ADD, out_dims=dim).set_output(True)
    with pytest.raises(GraphError, match=text):
        g.validate()


def test_reduction_refuses_a_maximum_of_nothing() -> None:
    g = graph()
    g.reduction(g.tensor((2, 0)), mode=reduction_mode.MAX, out_dims=(2, 1)).set_output(True)
    with pytest.raises(GraphError, match="MAX over no elements"):
        g.validate()


def test_erf_is_right_to_the_last_places() -> None:
    scipy = pytest.importorskip("scipy.special")
    from frazil.ops.special import erf

    x = np.concatenate(
        [np.linspace(-7, 7, 40001), [0.46875, -0.46875, 4.0, -4.0, 1e-300, np.inf, -np.inf, 0.0, -0.0]]
    )
    assert np.max(np.abs(erf(np, x) - scipy.erf(x))) < 4e-16
    assert np.isnan(erf(np, np.array([np.nan]))[0])
