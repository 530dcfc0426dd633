"""Reshape, slice, transpose and concatenate against torch: every case, a fuzz of views, refusals. Results are
exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import frazil
from frazil import GraphError, data_type, reshape_mode
from frazil.op import Arg, Case
from tests import harness
from tests.layouts import layout

torch = pytest.importorskip("torch", reason="torch is the oracle")

VIEW, LOGICAL = reshape_mode.VIEW_ONLY, reshape_mode.LOGICAL


def tensor(array: np.ndarray) -> Any:
    """A float64 torch tensor with the array's own strides, so that views mean the same there."""
    steps = tuple(s // array.itemsize for s in array.strides)
    extent = 1 + sum((d - 1) * s for d, s in zip(array.shape, steps, strict=True)) if array.size else 0
    flat = np.lib.stride_tricks.as_strided(array, (extent,), (array.itemsize,))
    return torch.from_numpy(flat.astype(np.float64)).as_strided(array.shape, steps)


def expected(made: harness.Setup) -> dict[str, np.ndarray]:
    """What torch makes of a case."""
    args, name = made.args(), made.op.name
    if name == "concatenate":
        result = torch.cat([tensor(a) for a in args["inputs"]], args["axis"])
    elif name == "transpose":
        result = tensor(args["input"]).permute(args["permutation"])
    elif name == "slice":
        result = tensor(args["input"])[tuple(args["slices"])]
    else:
        out = made.outputs["OUT_0"]
        x = tensor(args["input"])
        declared = made.case.outputs["OUT_0"].stride
        if args["reshape_mode"] is VIEW and declared is not None:
            result = x.as_strided(out.dim, declared)
        else:
            result = x.view(out.dim) if args["reshape_mode"] is VIEW else x.reshape(out.dim)
    return {"OUT_0": result.numpy()}


@pytest.mark.parametrize("name, case", harness.cases("reshape", "slice", "transpose", "concatenate"))
def test_case(name: str, case: Case, rng: np.random.Generator) -> None:
    made = harness.check(name, case, expected, rng)
    np.testing.assert_array_equal(made.results["OUT_0"].astype(np.float64), expected(made)["OUT_0"])


@pytest.mark.parametrize("seed", range(60))
def test_views_agree_with_torch(seed: int) -> None:
    """A random view of random strides: served exactly where torch can view it, refused where torch cannot."""
    rng = np.random.default_rng(seed)
    dim = tuple(int(d) for d in rng.integers(1, 5, rng.integers(1, 5)))
    strides, step = [0] * len(dim), 1
    for axis in reversed(rng.permutation(len(dim)) if rng.random() < 0.5 else range(len(dim))):
        strides[axis] = step
        step *= dim[axis] + (int(rng.integers(0, 2)) if rng.random() < 0.3 else 0)
    factors = [p for d in dim for p in ((2, 2) if d == 4 else (d,))]
    rng.shuffle(factors)
    cut = int(rng.integers(0, len(factors) + 1))
    shape = (int(np.prod(factors[:cut])), *factors[cut:]) if rng.random() < 0.7 else (int(np.prod(factors)),)
    case = Case(
        "view", {"input": Arg(dim, stride=tuple(strides)), "reshape_mode": VIEW}, {"OUT_0": Arg(shape)}
    )
    made = harness.setup("reshape", case, rng)
    source = tensor(made.arrays["input"])
    try:
        right = source.view(shape).numpy()
    except RuntimeError:
        with pytest.raises(GraphError, match="VIEW_ONLY would move elements"):
            made.graph.validate()
        return
    result = harness.run(made)["OUT_0"]
    np.testing.assert_array_equal(result.astype(np.float64), right, f"rerun: pytest {__file__} -k {seed}")


@pytest.mark.parametrize("seed", range(60))
def test_fuzz(seed: int) -> None:
    """Random slices, permutations, concatenations and logical reshapes of random layouts; results are
    exact.
    """
    rng = np.random.default_rng(seed)
    dtype = data_type(rng.choice([data_type.FLOAT, data_type.HALF, data_type.BFLOAT16, data_type.INT32]))
    dim = tuple(int(d) for d in rng.integers(1, 6, rng.integers(1, 5)))
    fill = ("integers", -99, 99)
    x = Arg(dim, stride=layout(rng, dim), fill=fill)
    name = str(rng.choice(["slice", "transpose", "concatenate", "reshape"]))
    outputs = {}
    if name == "slice":
        bounds = [sorted(int(b) for b in rng.integers(-d - 2, d + 3, 2)) for d in dim]
        slices = [
            slice(a, b, int(rng.integers(1, 4))) if rng.random() < 0.7 else slice(None) for a, b in bounds
        ]
        args = {"input": x, "slices": slices[: int(rng.integers(0, len(dim) + 1))]}
    elif name == "transpose":
        args = {"input": x, "permutation": [int(a) for a in rng.permutation(len(dim))]}
    elif name == "concatenate":
        axis = int(rng.integers(-len(dim), len(dim)))
        extents = [
            tuple(int(rng.integers(0, 4)) if a == axis % len(dim) else d for a, d in enumerate(dim))
            for _ in range(int(rng.integers(1, 4)))
        ]
        args = {"inputs": [x, *(Arg(e, stride=layout(rng, e), fill=fill) for e in extents)], "axis": axis}
    else:
        shape = (int(np.prod(dim[: len(dim) // 2 + 1])), *dim[len(dim) // 2 + 1 :])
        outputs["OUT_0"] = Arg(shape, stride=layout(rng, shape, broadcast=False))
        args = {"input": x, "reshape_mode": LOGICAL}
    made = harness.setup(name, Case("fuzz", args, outputs, data_type=dtype), rng)
    result = harness.run(made)["OUT_0"].astype(np.float64)
    np.testing.assert_array_equal(
        result, expected(made)["OUT_0"], f"rerun: pytest {__file__} -k 'test_fuzz and {seed}'"
    )


def graph() -> frazil.Graph:
    return frazil.Graph(io_data_type=data_type.FLOAT, target="cpu")


@pytest.mark.parametrize(
    "add, text",
    [
        (lambda g, x: g.reshape(x), "extents of the output: got none, expected set_dim"),
        (lambda g, x: g.reshape(x, out_dims=(5, 5)), r"got \(5, 5\), expected 24 elements"),
        (
            lambda g, x: g.transpose(x, permutation=(0, 0, 1)),
            r"permutation: got \(0, 0, 1\), expected each axis",
        ),
        (lambda g, x: g.transpose(x, permutation=(0, 1)), "each axis from 0 to 2 once"),
        (lambda g, x: g.slice(x, slices=[slice(None)] * 4), "slices: got 4, expected at most 3"),
        (
            lambda g, x: g.concatenate([x, g.tensor((2, 3, 5), name="y")], axis=0),
            "'y', number 1 of inputs: got",
        ),
        (lambda g, x: g.concatenate([x], axis=3), "axis: got 3, expected -3 to 2"),
        (
            lambda g, x: g.concatenate([x, x], axis=0, in_place_index=2),
            "in_place_index: got 2, expected 0 to 1",
        ),
        (
            lambda g, x: g.concatenate([x, g.tensor((2, 3, 4), data_type="int32", name="y")], axis=0),
            "data type of tensor 'y'",
        ),
    ],
)
def test_refuses(add: Any, text: str) -> None:
    g = graph()
    add(g, g.tensor((2, 3, 4), name="x")).set_output(True)
    with pytest.raises(GraphError, match=text):
        g.validate()


@pytest.mark.parametrize("step", [0, -1])
def test_slice_refuses_steps_below_one(step: int) -> None:
    g = graph()
    with pytest.raises(GraphError, match=f"step {step}, at least 1"):
        g.slice(g.tensor((4,)), slices=[slice(None, None, step)])


def test_virtual_results_keep_the_type_of_their_input() -> None:
    g = frazil.Graph(io_data_type=data_type.HALF, intermediate_data_type=data_type.FLOAT, target="cpu")
    part = g.slice(g.tensor((4, 4)), slices=[slice(1, 3)])
    g.identity(part).set_output(True)
    g.validate()
    assert part.data_type is data_type.HALF
