"""Reshape, slice, transpose and concatenate against torch: every case, a fuzz of views and of layouts, buffers
with other strides than the declared ones, refusals. Results are exact.
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

shape = pytest.importorskip("tests.oracles.shape", reason="torch is the oracle")

VIEW, LOGICAL = reshape_mode.VIEW_ONLY, reshape_mode.LOGICAL
FLOAT = data_type.FLOAT
INTEGERS = (data_type.INT32, data_type.INT64)


def exact(result: np.ndarray, right: np.ndarray, rerun: str = "") -> None:
    """Every element is what the oracle says, to the last bit of the oracle's wide type."""
    np.testing.assert_array_equal(result.astype(right.dtype), right, rerun, strict=True)


@pytest.mark.parametrize("name, case", harness.cases("reshape", "slice", "transpose", "concatenate"))
def test_case(name: str, case: Case, rng: np.random.Generator) -> None:
    made = harness.setup(name, case, rng)
    exact(harness.run(made)["OUT_0"], shape.oracle(made)["OUT_0"])


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
    extents = (
        (int(np.prod(factors[:cut])), *factors[cut:]) if rng.random() < 0.7 else (int(np.prod(factors)),)
    )
    case = Case(
        "view", {"input": Arg(dim, stride=tuple(strides)), "reshape_mode": VIEW}, {"OUT_0": Arg(extents)}
    )
    made = harness.setup("reshape", case, rng)
    source = shape.tensor(made.arrays["input"])
    try:
        right = source.view(extents)
    except RuntimeError:
        with pytest.raises(GraphError, match="VIEW_ONLY would move elements"):
            made.graph.validate()
        return
    rerun = f"rerun: pytest {__file__} -k 'test_views_agree_with_torch and {seed}'"
    exact(harness.run(made)["OUT_0"], right.numpy(), rerun)
    # Strides of axes of extent 1 are arbitrary.
    where = [a for a, d in enumerate(extents) if d > 1]
    strides = [made.outputs["OUT_0"].stride[a] for a in where]
    assert strides == [right.stride(a) for a in where], rerun


@pytest.mark.parametrize("seed", range(60))
def test_fuzz(seed: int) -> None:
    """Random slices, permutations, concatenations and logical reshapes of random layouts; results are
    exact.
    """
    rng = np.random.default_rng(seed)
    dtype = data_type(rng.choice([FLOAT, data_type.HALF, data_type.BFLOAT16, data_type.DOUBLE, *INTEGERS]))
    dim = tuple(int(d) for d in rng.integers(1, 6, rng.integers(1, 5)))
    # Integers that no float32 holds, and floats with a full mantissa.
    fill = ("integers", -(2**30), 2**30) if dtype in INTEGERS else "normal"
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
        others = [
            tuple(int(rng.integers(0, 4)) if a == axis % len(dim) else d for a, d in enumerate(dim))
            for _ in range(int(rng.integers(1, 4)))
        ]
        args = {"inputs": [x, *(Arg(e, stride=layout(rng, e), fill=fill) for e in others)], "axis": axis}
    else:
        extents = (int(np.prod(dim[: len(dim) // 2 + 1])), *dim[len(dim) // 2 + 1 :])
        outputs["OUT_0"] = Arg(extents, stride=layout(rng, extents, broadcast=False))
        args = {"input": x, "reshape_mode": LOGICAL}
    made = harness.setup(name, Case("fuzz", args, outputs, data_type=dtype), rng)
    exact(
        harness.run(made)["OUT_0"],
        shape.oracle(made)["OUT_0"],
        f"rerun: pytest {__file__} -k 'test_fuzz and {seed}'",
    )


def graph() -> frazil.Graph:
    return frazil.Graph(io_data_type=data_type.FLOAT, target="cpu")


@pytest.mark.parametrize(
    "add, text",
    [
        (lambda g, x: g.reshape(x), "extents of the output: got none, expected set_dim"),
        (lambda g, x: g.reshape(x, out_dims=(5, 5)), r"got \(5, 5\), expected 24 elements"),
        (lambda g, x: g.reshape(x, out_dims=(-2, -12)), r"got \(-2, -12\), expected 24 elements"),
        (lambda g, x: g.reshape(x, out_dims=(-1, 5)), r"got \(-1, 5\), expected 24 elements"),
        (lambda g, x: g.reshape(x, out_dims=(-1, -1)), r"got \(-1, -1\).*one extent at most left open"),
        (lambda g, x: g.reshape(x, out_dims=(0, -1)), r"got \(0, -1\), expected 24 elements"),
        (
            lambda g, x: g.reshape(x, out_dims=(2, 3, 4), name="r").set_data_type("int32"),
            "node 'r'.*data type: got INT32, expected FLOAT",
        ),
        (
            lambda g, x: g.reshape(x, out_dims=(2, 4, 3)).set_stride((12, 1, 4)),
            r"VIEW_ONLY would move elements: got \(2, 4, 3\) with strides \(12, 1, 4\), "
            r"expected strides \(12, 3, 1\), reshape_mode.LOGICAL, or transpose\(\) to exchange axes",
        ),
        (
            lambda g, x: g.reshape(x, out_dims=(24,)).set_stride((2,)),
            r"VIEW_ONLY would move elements: got \(24,\) with strides \(2,\), expected strides \(1,\)",
        ),
        (
            lambda g, x: g.reshape(g.tensor((4, 6), (0, 1), name="b"), out_dims=(24,)),
            r"tensor 'b'.*VIEW_ONLY of a broadcast input: got \(0, 1\)",
        ),
        (lambda g, x: g.transpose(x, permutation=(0, 2, -2)), r"got \(0, 2, -2\), expected each axis"),
        (lambda g, x: g.slice(x, slices=[slice(1)]).set_data_type("float16"), "data type: got HALF"),
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
            lambda g, x: g.concatenate([x, x], axis=0, in_place_index=-1),
            "in_place_index: got -1, expected 0 to 1",
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


@pytest.mark.parametrize(
    "slices, text",
    [
        ([slice(None), slice(None, None, 0)], "item 1: step 0, at least 1 is needed"),
        ([slice(None, None, -1)], "item 0: step -1, at least 1 is needed"),
        ([slice(None), 0], "item 1: a slice is needed"),
        ([(0, 2)], "item 0: a slice is needed"),
        (slice(0, 2), "a list of slices is needed"),
        ([slice(0.5, 2)], "an integer is needed"),
    ],
)
def test_slice_refuses_what_is_no_slice(slices: Any, text: str) -> None:
    g = graph()
    with pytest.raises(GraphError, match=f"attribute 'slices' of slice .*{text}"):
        g.slice(g.tensor((4, 5)), slices=slices)


def test_concatenate_wants_a_list() -> None:
    g = graph()
    with pytest.raises(TypeError, match="concatenate: inputs: a list of tensors is needed, got Tensor"):
        g.concatenate(g.tensor((4, 5)), axis=0)
    with pytest.raises(GraphError, match="port 'inputs' of concatenate is missing"):
        g.concatenate([], axis=0)


def run(g: frazil.Graph, pack: dict[Any, np.ndarray], output: frazil.Tensor, out: np.ndarray) -> np.ndarray:
    g.build()
    g.execute({**pack, output: out}, g.empty_workspace())
    return out


@pytest.mark.parametrize("mode", [VIEW, LOGICAL])
def test_reshape_goes_by_elements_not_by_the_strides_of_what_is_bound(mode: reshape_mode) -> None:
    """Buffers may have other strides than the declared ones; their elements are what the strides say."""
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    for x in (values, np.asfortranarray(values)):
        for out in (np.zeros((3, 8), np.float32), np.zeros((8, 3), np.float32).T):
            g = graph()
            a = g.tensor((4, 6))
            y = g.reshape(a, reshape_mode=mode, out_dims=(3, 8)).set_output(True)
            exact(run(g, {a: x}, y, out), values.reshape(3, 8))


@pytest.mark.parametrize(
    "dtype, values",
    [
        (data_type.INT32, [2**24 + 1, -(2**31), 7]),
        (data_type.INT64, [2**53 + 1, -(2**63), 7]),
        (data_type.BOOLEAN, [True, False, True]),
        (data_type.DOUBLE, [1 + 2.0**-52, -0.0, np.nan]),
        (data_type.FP8_E4M3, [0.1, np.nan, -448.0]),
        (data_type.FP8_E5M2, [0.1, np.inf, np.nan]),
        (data_type.BFLOAT16, [1e38, -0.0, np.nan]),
    ],
)
def test_elements_keep_their_bits(dtype: data_type, values: list[Any]) -> None:
    kind = frazil.dtypes.numpy_dtype(dtype)
    x = np.array([values, values[::-1]]).astype(kind)
    results = {
        "reshape": x.reshape(6),
        "slice": x[:, 1:],
        "transpose": x.T,
        "concatenate": np.concatenate([x, x], 1),
    }
    for name, right in results.items():
        g = frazil.Graph(io_data_type=dtype, compute_data_type=FLOAT, target="cpu")
        a = g.tensor(x.shape)
        y = {
            "reshape": lambda g, a: g.reshape(a, out_dims=(6,)),
            "slice": lambda g, a: g.slice(a, slices=[slice(None), slice(1, None)]),
            "transpose": lambda g, a: g.transpose(a, permutation=(1, 0)),
            "concatenate": lambda g, a: g.concatenate([a, a], axis=1),
        }[name](g, a)
        made = run(g, {a: x}, y.set_output(True), np.zeros(right.shape, kind))
        assert made.tobytes() == np.ascontiguousarray(right).tobytes(), name


def test_an_open_extent_follows_the_input() -> None:
    """-1 is filled in by inference, also where the input's own extents are inferred and change again."""
    g = graph()
    x = g.tensor((4, 6))
    y = g.reshape(g.transpose(x, permutation=(1, 0)), reshape_mode=LOGICAL, out_dims=(2, -1))
    y.set_output(True)
    g.validate()
    assert y.dim == (2, 12) and y.stride == (12, 1)
    x.set_dim((4, 9)).set_stride((9, 1))
    g.validate()
    assert y.dim == (2, 18)
    g.build()
    assert y.set_dim((2, 18)).get_dim() == [2, 18]
    with pytest.raises(frazil.StateError):
        y.set_dim((2, 12))
    with pytest.raises(GraphError, match="no negative extent"):
        g = graph()
        g.tensor((-1, 3))


def test_a_view_may_declare_any_stride_for_an_axis_of_extent_1() -> None:
    g = graph()
    y = g.reshape(g.tensor((4, 6)), out_dims=(4, 1, 6)).set_stride((6, 77, 1)).set_output(True)
    g.validate()
    assert y.stride == (6, 77, 1)


def test_concatenation_into_the_buffer_of_one_of_its_inputs() -> None:
    g = graph()
    first, second = g.tensor((2, 3)), g.tensor((4, 3))
    y = g.concatenate([first, second], axis=0, in_place_index=1).set_output(True)
    memory = np.arange(18, dtype=np.float32).reshape(6, 3)
    right = np.concatenate([np.full((2, 3), -1), memory[2:]]).astype(np.float32)
    exact(run(g, {first: np.full((2, 3), -1, np.float32), second: memory[2:]}, y, memory), right)


def test_inferred_strides_keep_the_memory_order_of_the_input() -> None:
    g = graph()
    x = g.tensor((2, 8, 3, 4), (96, 1, 32, 8))  # channels last
    part = g.slice(x, slices=[slice(None), slice(0, 4)])
    turned = g.transpose(x, permutation=(0, 3, 1, 2))
    joined = g.concatenate([x, x], axis=-3)
    for t in (part, turned, joined):
        t.set_output(True)
    g.validate()
    assert part.stride == (48, 1, 16, 4)
    assert turned.dim == (2, 4, 8, 3) and turned.stride == (96, 8, 1, 32)
    assert joined.dim == (2, 16, 3, 4) and joined.stride == (192, 1, 64, 16)


def test_virtual_results_keep_the_type_of_their_input() -> None:
    g = frazil.Graph(io_data_type=data_type.HALF, intermediate_data_type=data_type.FLOAT, target="cpu")
    part = g.slice(g.tensor((4, 4)), slices=[slice(1, 3)])
    g.identity(part).set_output(True)
    g.validate()
    assert part.data_type is data_type.HALF
