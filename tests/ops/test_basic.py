"""Pointwise operations, matmul and reductions against torch in float64: every case, a fuzz over layouts and
types, values at the ends of the range, refusals.
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
SEEDS = range(160)

FLOAT, DOUBLE, INT32 = data_type.FLOAT, data_type.DOUBLE, data_type.INT32
TYPES = (FLOAT, FLOAT, data_type.HALF, data_type.BFLOAT16, DOUBLE, data_type.FP8_E4M3, INT32)
VALUES = {"negative_slope": 0.1, "lower_clip": -0.5, "upper_clip": 0.75, "swish_beta": 1.5, "axis": 1}
# Operations whose result is an integer where the operands are.
WHOLE = (
    "add",
    "sub",
    "mul",
    "max",
    "min",
    "abs",
    "neg",
    "cmp_lt",
    "logical_and",
    "add_square",
    "relu",
    "mod",
)


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
    dtype = data_type(rng.choice(TYPES))
    compute = dtype if dtype in (DOUBLE, INT32) else FLOAT
    rest: dict[str, Any] = {"data_type": dtype, "compute": compute}
    fill: Any = ("integers", -99, 99) if dtype is INT32 else "normal"
    dim = tuple(int(d) for d in rng.integers(1, 6, rng.integers(2, 5)))
    family = rng.choice(["pointwise", "matmul", "reduction"])
    if family == "reduction":
        keep = tuple(d if rng.random() < 0.5 else 1 for d in dim)
        mode = reduction_mode(int(rng.integers(1, 10)))
        if dtype is INT32 and mode in (reduction_mode.AVG, reduction_mode.NORM2):
            mode = reduction_mode.NORM1
        if mode in (reduction_mode.MUL, reduction_mode.MUL_NO_ZEROS):
            fill = ("integers", -1, 2) if dtype is INT32 else "positive"
        source = Arg(dim, stride=layout(rng, dim), fill=fill)
        target = Arg(keep, stride=layout(rng, keep, broadcast=False))
        case = Case(f"seed{seed}", {"input": source, "mode": mode}, {"OUT_0": target}, **rest)
        return "reduction", case, oracle.reduction
    if family == "matmul":
        batch = dim[:-2]
        m, k, n = (int(x) for x in rng.integers(1, 9, 3))
        a = (*(d if rng.random() < 0.7 else 1 for d in batch), m, k)
        b = (*(d if rng.random() < 0.7 else 1 for d in batch), k, n)
        args = {n: Arg(d, stride=layout(rng, d), fill=fill) for n, d in (("A", a), ("B", b))}
        return "matmul", Case(f"seed{seed}", args, **rest), oracle.matmul
    name = str(rng.choice(WHOLE if dtype is INT32 else POINTWISE))
    attrs = {a.name: VALUES[a.name] for a in OPS[name].attrs}
    if dtype is INT32 and name == "relu":
        attrs = {}
    args = {}
    for port in OPS[name].inputs:
        extents = tuple(d if rng.random() < 0.7 else 1 for d in dim[int(rng.integers(0, 2)) :])
        if name == "gen_index":
            extents = dim
        if name in ("log", "sqrt", "rsqrt", "reciprocal", "pow", "div", "mod") and dtype is not INT32:
            fill = "positive"
        if name == "mod" and dtype is INT32:
            fill = ("integers", 1, 99)
        args[port.name] = Arg(extents, stride=layout(rng, extents), fill=fill)
    return name, Case(f"seed{seed}", {**args, **attrs}, **rest), oracle.pointwise


@pytest.mark.parametrize("seed", SEEDS)
def test_fuzz(seed: int) -> None:
    name, case, expected = fuzzed(seed)
    try:
        harness.check(name, case, expected, np.random.default_rng(seed))
    except Exception:
        print(f"rerun: pytest tests/ops/test_basic.py -k 'test_fuzz and {seed}'")
        raise


SPECIAL = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 8.0, -8.0, 20.0, -20.0, 90.0, -90.0, 200.0, -200.0),
        *(1e4, -1e4, 1e19, -1e19, 3e38, -3e38, 1e-5, -1e-5, 1e-30, -1e-30, np.inf, -np.inf, np.nan),
    ],
    np.float32,
)
UNARY = tuple(n for n in POINTWISE if len(OPS[n].inputs) == 1 and n != "gen_index")
BACKWARD = tuple(n for n in POINTWISE if n.endswith("_backward"))
BINARY = tuple(n for n in POINTWISE if len(OPS[n].inputs) == 2 and n not in (*BACKWARD, "add_square"))


def at_the_ends(name: str, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Result of an operation in float32, and what torch says in float64, rounded to float32."""
    args: dict[str, Any] = {
        p.name: Arg(a.shape, fill=("values", *a.ravel()))
        for p, a in zip(OPS[name].inputs, operands, strict=True)
    }
    args |= {a.name: VALUES[a.name] for a in OPS[name].attrs}
    made = harness.setup(name, Case("ends", args), np.random.default_rng(0))
    with np.errstate(over="ignore"):
        right = oracle.pointwise(made)["OUT_0"].astype(np.float32)
    return harness.run(made)["OUT_0"], right


@pytest.mark.parametrize("name", UNARY)
def test_values_at_the_ends_of_the_range(name: str) -> None:
    """Infinities, NaN, both zeros, and magnitudes whose squares, cubes and exponentials overflow."""
    made, right = at_the_ends(name, SPECIAL)
    np.testing.assert_allclose(made, right, rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("name", BACKWARD)
def test_slopes_at_the_ends_of_the_range(name: str) -> None:
    """At infinity torch takes infinity times 0 for some of them, and a slope at NaN is nobody's agreement."""
    x = SPECIAL[np.isfinite(SPECIAL)]
    made, right = at_the_ends(name, np.ones_like(x), x)
    np.testing.assert_allclose(made, right, rtol=3e-6, atol=3e-7)


@pytest.mark.parametrize("name", BINARY)
def test_pairs_at_the_ends_of_the_range(name: str) -> None:
    made, right = at_the_ends(name, SPECIAL[:, None], SPECIAL[None])
    np.testing.assert_allclose(made, right, rtol=3e-6, atol=0)


def test_plain_relu_keeps_nan_and_cuts_infinity() -> None:
    made = harness.setup(
        "relu",
        Case("ends", {"input": Arg(SPECIAL.shape, fill=("values", *SPECIAL))}),
        np.random.default_rng(0),
    )
    np.testing.assert_array_equal(
        harness.run(made)["OUT_0"], oracle.torch.relu(oracle.double(SPECIAL)).float()
    )


@pytest.mark.parametrize("name", ["elu", "tanh", "sin", "erf", "swish"])
def test_small_values_keep_their_relative_precision(name: str) -> None:
    x = np.array([-1e-5, 1e-5, -1e-20, 1e-20], np.float32)
    made, right = at_the_ends(name, x)
    np.testing.assert_allclose(made, right, rtol=1e-6, atol=0)


def test_powers_of_integers() -> None:
    base, exponent = (Arg((5,), fill=("values", *v)) for v in ((2, 2, -3, 7, 100), (-1, 10, 3, 0, 100)))
    case = Case("pow", {"input0": base, "input1": exponent}, data_type=INT32, compute=INT32)
    made = harness.run(harness.setup("pow", case, np.random.default_rng(0)))
    assert made["OUT_0"].tolist() == [0, 1024, -27, 1, 2**31 - 1]


def test_gen_index_refuses_axes_that_do_not_exist() -> None:
    for axis in (-1, 2):
        g = graph()
        g.gen_index(g.tensor((2, 3)), axis=axis).set_output(True)
        with pytest.raises(GraphError, match=f"attribute axis: got {axis}, expected 0 to 1"):
            g.validate()


@pytest.mark.parametrize("odd", [(99, 1, 1), (7, 1, 50), (0, 1, 0)])
def test_c05_strides_of_axes_of_extent_1_do_not_matter(odd: Any, rng: np.random.Generator) -> None:
    args = {"A": Arg((1, 7, 1), stride=odd), "B": Arg((1, 1, 5), stride=(odd[0], odd[2], 1))}
    harness.check("matmul", Case("c05", args), oracle.matmul, rng)


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
        # Over the inner axis and over the outer one, which NumPy adds up in different ways.
        for dim in ((1, 4096), (4096, 1)):
            ones = Arg(dim, fill="ones")
            sums = {reduction_mode.ADD: 4096, reduction_mode.AVG: 1, reduction_mode.NORM2: 64}
            for mode, right in sums.items():
                args = {"input": ones, "mode": mode}
                case = Case("ones", args, {"OUT_0": Arg((1, 1))}, data_type=dtype)
                results = harness.run(harness.setup("reduction", case, rng))
                assert float(results["OUT_0"].astype(np.float32)[0, 0]) == right


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


def test_matmul_and_reduction_refuse_what_nothing_serves() -> None:
    g = graph()
    g.matmul(g.tensor((2, 3)), g.tensor((3, 4)), padding=1.0).set_output(True)
    with pytest.raises(GraphError, match=r"attribute padding: got 1\.0, expected 0\.0"):
        g.validate()
    g = graph()
    g.reduction(g.tensor((2, 3)), g.tensor((2, 1), name="starts"), mode=reduction_mode.ADD).set_output(True)
    with pytest.raises(GraphError, match=r"tensor 'starts'.*grouped reduction: got a tensor, expected none"):
        g.validate()


def test_pointwise_takes_the_memory_order_of_the_operand_with_all_extents() -> None:
    g = graph()
    bias, x = g.tensor((1, 8, 1, 1)), g.tensor((2, 8, 3, 4), (96, 1, 32, 8))
    outer = g.add(g.tensor((2, 1)), g.tensor((1, 3), (1, 5)))
    y = g.add(bias, x)
    for t in (y, outer):
        t.set_output(True)
    g.validate()
    assert y.stride == (96, 1, 32, 8) and outer.stride == (3, 1)


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


@pytest.mark.parametrize("dtype, value", [("int32", 2**24 + 1), ("int64", 2**53 + 1)])
def test_identity_keeps_the_bits_of_integers(dtype: str, value: int) -> None:
    g = frazil.Graph(io_data_type=dtype, compute_data_type=data_type.FLOAT, target="cpu")
    x = g.tensor((1,))
    y = g.identity(x).set_output(True)
    out = np.zeros(1, dtype)
    g.execute({x: np.array([value], dtype), y: out})
    assert out[0] == value
