"""The convolution family: cases against the oracle, inference and its refusals, and a seeded fuzz."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

import frazil
from frazil import GraphError, convolution_mode, data_type
from frazil.op import Arg, Case
from frazil.ops import OPS, conv
from frazil.spec import freeze
from tests import harness
from tests.oracles import conv as oracle

NAMES = ("conv_fprop", "conv_dgrad", "conv_wgrad")
FLIP = convolution_mode.CONVOLUTION


@pytest.mark.parametrize(("name", "case"), harness.cases(*NAMES))
def test_case(name: str, case: Case) -> None:
    harness.check(name, case, oracle.oracle, np.random.default_rng(0))


def graph(**rest: Any) -> frazil.Graph:
    return frazil.Graph(io_data_type=data_type.FLOAT, compute_data_type=data_type.FLOAT, target="cpu", **rest)


def output(made: frazil.Graph, tensor: frazil.Tensor) -> frazil.Tensor:
    """The tensor as an output of a validated graph."""
    tensor.set_output(True)
    made.validate()
    return tensor


def channels_last(*dim: int) -> dict[str, Any]:
    _, c, h, w = dim
    return {"dim": dim, "stride": (c * h * w, 1, c * w, c)}


# What inference finds.


def test_output_extents_and_memory_order() -> None:
    g = graph()
    image, weight = g.tensor(**channels_last(2, 8, 7, 9)), g.tensor((4, 8, 3, 3))
    y = output(g, g.conv_fprop(image, weight, [1, 0], [2, 3], [1, 2]))
    assert (y.dim, y.stride) == ((2, 4, 4, 2), (32, 1, 8, 4))


def test_an_axis_of_extent_one_does_not_decide_the_layout() -> None:
    g = graph()
    y = output(g, g.conv_fprop(g.tensor((2, 1, 5, 4), (20, 1, 4, 1)), g.tensor((3, 1, 1, 1))))
    assert y.stride == (60, 20, 4, 1)


def test_gradients_extents_are_inferred_where_unique() -> None:
    g = graph()
    loss, taps = g.tensor(**channels_last(2, 4, 5, 6)), g.tensor((4, 3, 3, 2))
    dx = output(g, g.conv_dgrad(loss, taps, padding=[1, 2], dilation=[2, 3]))
    assert (dx.dim, dx.stride) == ((2, 3, 7, 5), (105, 1, 15, 3))
    image = g.tensor(**channels_last(2, 3, 7, 5))
    dw = output(g, g.conv_wgrad(image, loss, padding=[1, 2], dilation=[2, 3]))
    assert (dw.dim, dw.stride) == ((4, 3, 3, 2), (18, 1, 6, 3))


def test_a_stride_leaves_an_extent_unique_when_padding_rules_out_the_others() -> None:
    g = graph()
    dx = output(g, g.conv_dgrad(g.tensor((1, 2, 1)), g.tensor((2, 3, 2)), padding=[1], stride=[2]))
    assert dx.dim == (1, 3, 1)


@pytest.mark.parametrize("extent", [7, 8])
def test_declared_extents_choose_among_the_possible_ones(extent: int) -> None:
    g = graph()
    loss, taps = g.tensor((1, 2, 4, 4)), g.tensor((2, 3, 1, 1))
    dx = output(g, g.conv_dgrad(loss, taps, stride=[2, 2], out_dims=(1, 3, extent, 7)))
    assert dx.dim == (1, 3, extent, 7)


def test_window_inverts_its_own_forward_formula() -> None:
    for pre, post, stride, dilation in product((0, 2), (0, 1), (1, 2, 5), (1, 2, 3)):
        where = conv.Window((pre,), (post,), (stride,), (dilation,))
        for extent, taps in product(range(1, 14), range(1, 6)):
            size = where.outputs(0, extent, taps)
            if size >= 1:
                images = [h for h in range(1, 40) if where.outputs(0, h, taps) == size]
                fitting = [r for r in range(1, 40) if where.outputs(0, extent, r) == size]
                assert list(where.images(0, size, taps)) == images
                assert list(where.taps(0, extent, size)) == fitting


# Attributes.


def test_spellings_of_padding_are_one_problem() -> None:
    def problem(**attrs: Any) -> Any:
        g = graph()
        output(g, g.conv_fprop(g.tensor((1, 2, 5, 5)), g.tensor((3, 2, 3, 3)), **attrs))
        return freeze(g.nodes, False)

    one = problem(padding=[1, 2])
    assert problem(pre_padding=(1, 2), post_padding=[1, 2]) == one
    assert problem(padding=[1, 2], post_padding=(1, 2)) == one
    assert problem(pre_padding=[1, 2], post_padding=[1, 1]) != one


def test_flipped_filter_by_hand() -> None:
    for mode, expected in ((convolution_mode.CROSS_CORRELATION, [21, 32]), (FLIP, [12, 23])):
        g = graph()
        image, weight = g.tensor((1, 1, 3)), g.tensor((1, 1, 2))
        y = g.conv_fprop(image, weight, convolution_mode=mode).set_output(True)
        result = np.full((1, 1, 2), np.nan, np.float32)
        g.build()
        arrays = {image: np.array([1, 2, 3], np.float32), weight: np.array([1, 10], np.float32)}
        g.execute({image: arrays[image].reshape(1, 1, 3), weight: arrays[weight].reshape(1, 1, 2), y: result})
        assert result.ravel().tolist() == expected


def test_attributes_of_the_forward_survive_storing() -> None:
    g = graph()
    y = g.conv_fprop(
        g.tensor((1, 2, 6)), g.tensor((3, 2, 3)), pre_padding=[2], post_padding=[0], convolution_mode=FLIP
    )
    output(g, y)
    again = graph()
    again.deserialize(g.to_json())
    assert again.nodes[0].attrs == g.nodes[0].attrs


# Types.


@pytest.mark.parametrize("name", NAMES)
def test_one_cost_for_the_three_operations(name: str) -> None:
    case = next(c for c in OPS[name].cases if c.name == "asymmetric")
    made = harness.setup(name, case, np.random.default_rng(0))
    made.graph.validate()
    cost = OPS[name].cost(made.graph.nodes[0].call)
    # Y is (1, 2, 6, 4), each element a sum over 3 x 3 x 3; the image has 90 elements and the filter 54.
    assert cost == (2.0 * 48 * 27, 4.0 * (48 + 90 + 54))


def test_a_value_between_nodes_may_have_another_type() -> None:
    """Scale, then weight gradient: the scaled image is FLOAT between the nodes, the loss is HALF."""
    g = frazil.Graph(
        io_data_type=data_type.HALF,
        intermediate_data_type=data_type.FLOAT,
        compute_data_type=data_type.FLOAT,
        target="cpu",
    )
    x, s, dy = g.tensor((2, 3, 5, 5)), g.tensor((1, 3, 1, 1)), g.tensor((2, 4, 5, 5))
    dw = g.conv_wgrad(image=g.scale(x, s), loss=dy, padding=[1, 1]).set_output(True)
    rng = np.random.default_rng(3)
    arrays = {t: rng.standard_normal(t.dim).astype(np.float16) for t in (x, s, dy)}
    result = np.full((4, 3, 3, 3), np.nan, np.float16)
    g.build()
    g.execute({**arrays, dw: result}, g.empty_workspace())
    image = (arrays[x].astype(np.float32) * arrays[s].astype(np.float32)).astype(np.float64)
    expected = oracle.evaluate("DW", {"image": image, "loss": arrays[dy], "padding": [1, 1]}, result.shape)
    harness.assert_close(result, expected, data_type.HALF)


def test_sums_of_ones_are_exact_in_half() -> None:
    g = frazil.Graph(io_data_type=data_type.HALF, compute_data_type=data_type.FLOAT, target="cpu")
    x, w = g.tensor((1, 32, 8, 8)), g.tensor((1, 32, 8, 8))
    y = g.conv_fprop(x, w).set_output(True)
    result = np.zeros((1, 1, 1, 1), np.float16)
    g.build()
    g.execute({x: np.ones(x.dim, np.float16), w: np.ones(w.dim, np.float16), y: result})
    assert result.item() == 2048


# C-05: strides of axes of extent 1 are arbitrary.


@pytest.mark.parametrize("name", NAMES)
def test_strides_of_axes_of_extent_one_do_not_matter(name: str) -> None:
    case = next(c for c in OPS[name].cases if c.name == "size_one_axes_odd_strides")
    results = []
    for odd in (True, False):
        args = {k: v if odd or not isinstance(v, Arg) else Arg(v.dim) for k, v in case.args.items()}
        made = harness.check(name, Case("c05", args), oracle.oracle, np.random.default_rng(5))
        results.append(next(iter(made.results.values())))
    np.testing.assert_array_equal(*results)


# Refusals. Each entry: the call, and what its text must contain.

HALF = data_type.HALF
REFUSED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "three_spatial_axes": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 3, 4, 5)), g.tensor((2, 2, 1, 1, 1))),
        ("'image': rank: got (1, 2, 3, 4, 5)", "(N, C, W) or (N, C, H, W): one or two spatial axes"),
    ),
    "rank_of_the_weight": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 3, 4)), g.tensor((2, 2, 1))),
        ("'weight': rank: got (2, 2, 1)", "4 axes, as image has"),
    ),
    "rank_of_the_loss": (
        lambda g: g.conv_dgrad(g.tensor((1, 2)), g.tensor((2, 2, 1))),
        ("'loss': rank: got (1, 2), expected (N, K, W) or (N, K, H, W)",),
    ),
    "groups": (
        lambda g: g.conv_fprop(g.tensor((1, 6, 4, 4)), g.tensor((4, 2, 3, 3))),
        ("grouped convolution (3 groups) is not served: got (4, 2, 3, 3)", "expected (4, 6, spatial)"),
    ),
    "groups_of_the_image_gradient": (
        lambda g: g.conv_dgrad(g.tensor((1, 6, 4)), g.tensor((6, 1, 1)), out_dims=(1, 6, 4)),
        ("'DX': grouped convolution (6 groups) is not served: got (1, 6, 4), expected (1, 1, 4)",),
    ),
    "groups_of_the_weight_gradient": (
        lambda g: g.conv_wgrad(g.tensor((1, 6, 4)), g.tensor((1, 6, 4)), out_dims=(6, 3, 1)),
        ("'DW': grouped convolution (2 groups) is not served: got (6, 3, 1), expected (6, 6, 1)",),
    ),
    "channels": (
        lambda g: g.conv_fprop(g.tensor((1, 5, 4)), g.tensor((4, 3, 3), name="filter")),
        (
            "tensor 'filter'",
            "'weight': channels: got (4, 3, 3), expected (4, 5, spatial), since the image has 5",
        ),
    ),
    "channels_of_the_loss": (
        lambda g: g.conv_dgrad(g.tensor((1, 5, 4)), g.tensor((4, 3, 3))),
        ("'loss': channels: got (1, 5, 4), expected (N, 4, spatial), K of the filter",),
    ),
    "batch": (
        lambda g: g.conv_wgrad(g.tensor((2, 5, 4)), g.tensor((3, 5, 4))),
        ("'loss': batch: got (3, 5, 4), expected (2, K, spatial), N of the image",),
    ),
    "empty_output": (
        lambda g: g.conv_fprop(
            g.tensor((1, 2, 4, 3)), g.tensor((2, 2, 3, 3)), padding=[0, 1], dilation=[1, 3]
        ),
        ("spatial axis 1: the output is empty: got 5 elements with padding", "at least 7, the reach of the"),
    ),
    "empty_image": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 4, 0)), g.tensor((2, 2, 1, 1)), padding=[1, 1]),
        ("'image': empty spatial extent: got (1, 2, 4, 0), expected at least 1",),
    ),
    "empty_filter": (
        lambda g: g.conv_dgrad(g.tensor((1, 2, 4)), g.tensor((2, 2, 0))),
        ("'filter': empty spatial extent: got (2, 2, 0)",),
    ),
    "entries": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 4, 4)), g.tensor((2, 2, 1, 1)), stride=[1]),
        ("attribute stride: got (1,), expected an integer of at least 1 per spatial axis, 2 in all",),
    ),
    "negative_padding": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 4)), g.tensor((2, 2, 1)), padding=[-1]),
        ("attribute pre_padding: got (-1,), expected an integer of at least 0",),
    ),
    "negative_post_padding": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 4)), g.tensor((2, 2, 1)), pre_padding=[1], post_padding=[-1]),
        ("attribute post_padding: got (-1,)",),
    ),
    "zero_stride": (
        lambda g: g.conv_wgrad(g.tensor((1, 2, 4)), g.tensor((1, 2, 4)), stride=[0]),
        ("attribute stride: got (0,), expected an integer of at least 1",),
    ),
    "zero_dilation": (
        lambda g: g.conv_dgrad(g.tensor((1, 2, 4)), g.tensor((2, 2, 1)), dilation=[0]),
        ("attribute dilation: got (0,)",),
    ),
    "fraction": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 4)), g.tensor((2, 2, 1)), stride=[1.5]),
        ("attribute 'stride' of conv_fprop (an integer is needed): got [1.5]",),
    ),
    "padding_no_list": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 4)), g.tensor((2, 2, 1)), padding=1, name="c"),
        ("node 'c': attribute 'padding' of conv_fprop", "got 1, expected Sequence[int]"),
    ),
    "paddings_contradict": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 4)), g.tensor((2, 2, 1)), padding=[1], post_padding=[2]),
        ("attributes padding and post_padding of conv_fprop contradict each other: got (1,) and (2,)",),
    ),
    "half_a_padding": (
        lambda g: g.conv_wgrad(g.tensor((1, 2, 4)), g.tensor((1, 2, 4)), post_padding=[1]),
        ("attribute post_padding of conv_wgrad without pre_padding: expected both, or padding",),
    ),
    "mode": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 4)), g.tensor((2, 2, 1)), convolution_mode=7),
        ("attribute 'convolution_mode' of conv_fprop", "got 7, expected convolution_mode"),
    ),
    "mixed_types": (
        lambda g: g.conv_fprop(g.tensor((1, 2, 4), data_type=HALF), g.tensor((2, 2, 1))),
        ("'weight': mixed data types: got FLOAT, expected HALF, as image has",),
    ),
    "packed": (
        lambda g: g.conv_fprop(
            g.tensor((1, 2, 4), ragged_offset=g.tensor((2, 1, 1), data_type=data_type.INT32)),
            g.tensor((2, 2, 1)),
        ),
        ("'image': a packed (ragged) tensor: expected a dense one",),
    ),
    "ambiguous_image": (
        lambda g: g.conv_dgrad(g.tensor((1, 2, 4, 4)), g.tensor((2, 3, 3, 3)), stride=[2, 1]),
        (
            "'DX': extents are ambiguous and none are declared",
            "set_dim or out_dims with one of (1, 3, 9 to 10, 6)",
        ),
    ),
    "ambiguous_filter": (
        lambda g: g.conv_wgrad(g.tensor((1, 3, 9)), g.tensor((1, 2, 4)), stride=[2]),
        ("'DW': extents are ambiguous and none are declared", "(2, 3, 2 to 3)"),
    ),
    "impossible_image": (
        lambda g: g.conv_dgrad(g.tensor((1, 2, 1)), g.tensor((2, 3, 1)), padding=[1]),
        (
            "spatial axis 0: no extent of DX gives the extents of loss and filter",
            "got ((1, 2, 1), (2, 3, 1))",
        ),
    ),
    "impossible_filter": (
        lambda g: g.conv_wgrad(g.tensor((1, 3, 8)), g.tensor((1, 2, 5)), dilation=[2]),
        ("spatial axis 0: no extent of DW gives the extents of image and loss", "got ((1, 3, 8), (1, 2, 5))"),
    ),
    "declared_image": (
        lambda g: g.conv_dgrad(g.tensor((1, 2, 4)), g.tensor((2, 3, 3)), stride=[2]).set_dim((1, 3, 11)),
        ("'DX': declared extents: got (1, 3, 11), expected (1, 3, 9 to 10)",),
    ),
    "declared_batch": (
        lambda g: g.conv_dgrad(g.tensor((1, 2, 4)), g.tensor((2, 3, 3))).set_dim((2, 3, 6)),
        ("'DX': declared extents: got (2, 3, 6), expected (1, 3, 6)",),
    ),
    "declared_filter": (
        lambda g: g.conv_wgrad(g.tensor((1, 3, 8)), g.tensor((1, 2, 6))).set_dim((2, 3, 2)),
        ("'DW': declared extents: got (2, 3, 2), expected (2, 3, 3)",),
    ),
    "declared_rank": (
        lambda g: g.conv_wgrad(g.tensor((1, 3, 8)), g.tensor((1, 2, 6))).set_dim((2, 3, 3, 1)),
        ("'DW': declared extents: got (2, 3, 3, 1), expected 3 axes (K, C, spatial)",),
    ),
    "declared_output": (
        lambda g: g.conv_fprop(g.tensor((1, 3, 8)), g.tensor((2, 3, 3))).set_dim((1, 2, 8)),
        ("'Y': declared extents: got (1, 2, 8), expected (1, 2, 6)",),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    build, texts = REFUSED[what]
    with pytest.raises(GraphError) as caught:
        g = graph()
        output(g, build(g))
    for text in texts:
        assert text in str(caught.value)


# Fuzz.


@pytest.mark.parametrize("seed", range(80))
def test_fuzz(seed: int) -> None:
    print(f"rerun: python -m pytest 'tests/ops/test_conv.py::test_fuzz[{seed}]'")
    rng = random.Random(seed)
    rank = rng.choice((1, 2, 2))
    attrs: dict[str, Any] = {
        "pre_padding": tuple(rng.randint(0, 4) for _ in range(rank)),
        "post_padding": tuple(rng.randint(0, 4) for _ in range(rank)),
        "stride": tuple(rng.randint(1, 4) for _ in range(rank)),
        "dilation": tuple(rng.randint(1, 3) for _ in range(rank)),
    }
    where = conv.Window(*attrs.values())
    attrs["convolution_mode"] = rng.choice(list(convolution_mode))
    taps = tuple(rng.randint(1, 4) for _ in range(rank))
    # The least extent that has an output, or a few more.
    least = [max(1, where.reach(a, r) - where.pre[a] - where.post[a]) for a, r in enumerate(taps)]
    spatial = tuple(m + rng.choice((0, rng.randint(0, 9))) for m in least)
    n, c, k = rng.randint(0, 3), rng.randint(1, 6), rng.randint(1, 6)
    sizes = tuple(where.outputs(a, h, r) for a, (h, r) in enumerate(zip(spatial, taps, strict=True)))
    image, weight, loss = (_layout(rng, d, True) for d in ((n, c, *spatial), (k, c, *taps), (n, k, *sizes)))
    kind = rng.choice((data_type.FLOAT, data_type.HALF, data_type.BFLOAT16, data_type.DOUBLE))
    compute = data_type.DOUBLE if kind is data_type.DOUBLE else data_type.FLOAT
    for name, args, port, dim in (
        ("conv_fprop", {"image": image, "weight": weight}, "Y", loss.dim),
        ("conv_dgrad", {"loss": loss, "filter": weight}, "DX", image.dim),
        ("conv_wgrad", {"image": image, "loss": loss}, "DW", weight.dim),
    ):
        case = Case(f"seed{seed}", {**args, **attrs}, {port: _layout(rng, dim, False)}, kind, compute)
        harness.check(name, case, oracle.oracle, np.random.default_rng(seed))


def _layout(rng: random.Random, dim: tuple[int, ...], may_broadcast: bool) -> Arg:
    """Extents with strides in a random memory order, with gaps, and sometimes with a repeated axis."""
    stride, step = [0] * len(dim), rng.randint(1, 2)
    for axis in rng.sample(range(len(dim)), len(dim)):
        stride[axis] = step
        step = step * max(1, dim[axis]) + rng.choice((0, 0, 3))
    if may_broadcast and rng.random() < 0.2:
        stride[rng.randrange(len(dim))] = 0
    return Arg(dim, stride=tuple(stride))
