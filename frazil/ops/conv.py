"""Convolution with one or two spatial axes. Owns the records of `conv_fprop`, `conv_dgrad` and `conv_wgrad`, and `Window`,
the one statement of which image elements a filter meets.

The image is (N, C, spatial), the filter (K, C, spatial), the result and its gradient (N, K, spatial). The three operations
share extents and attributes and differ in which of the three tensors they compute. Groups are not served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from types import ModuleType
from typing import Any

from ..dtypes import data_type
from ..enums import convolution_mode
from ..errors import GraphError
from ..op import (
    INTS,
    Arg,
    Attr,
    Bound,
    Call,
    Case,
    Cost,
    Inferred,
    Op,
    Param,
    Port,
    io_cost,
    one_of,
    optional,
    ordered_like,
)

_FP8 = frozenset({data_type.FP8_E4M3, data_type.FP8_E5M2})
_LETTERS = {"image": "N, C", "weight": "K, C", "filter": "K, C", "loss": "N, K", "DX": "N, C", "DW": "K, C"}


@dataclass(frozen=True, slots=True)
class Window:
    """Where a filter's taps fall, one entry per spatial axis.

    Along an axis, output element p and tap r meet image element `p * stride + r * dilation - pre`; image elements outside
    the image are 0.
    """

    pre: tuple[int, ...]
    post: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    def reach(self, axis: int, taps: int) -> int:
        """Image elements from the first to the last tap."""
        return self.dilation[axis] * (taps - 1) + 1

    def outputs(self, axis: int, image: int, taps: int) -> int:
        """Output extent: positions at which the filter lies within the padded image; 0 or less where it does not fit."""
        room = image + self.pre[axis] + self.post[axis] - self.reach(axis, taps)
        return room // self.stride[axis] + 1

    def images(self, axis: int, outputs: int, taps: int) -> range:
        """Image extents that give an output extent."""
        exact = (outputs - 1) * self.stride[axis] + self.reach(axis, taps) - self.pre[axis] - self.post[axis]
        return range(max(1, exact), exact + self.stride[axis])

    def taps(self, axis: int, image: int, outputs: int) -> range:
        """Filter extents that take an image extent to an output extent."""
        room = image + self.pre[axis] + self.post[axis] - 1 - (outputs - 1) * self.stride[axis]
        fewest = -((self.stride[axis] - 1 - room) // self.dilation[axis])
        return range(max(0, fewest) + 1, room // self.dilation[axis] + 2)


def window(call: Call) -> Window:
    """The window of a call; attributes left out are padding 0, stride 1 and dilation 1.

    Raises
    ------
    GraphError
        An attribute with another number of entries than there are spatial axes, or an entry that is too small.
    """
    rank = len(next(t for t in call.inputs.values()).dim) - 2

    def attribute(name: str, least: int) -> tuple[int, ...]:
        value = call.attrs[name]
        if value is None:
            return (least,) * rank
        each = f"{rank} integers of at least {least}, one per spatial axis"
        fits = len(value) == rank and all(v >= least for v in value)
        call.require(fits, f"attribute {name}", got=value, expected=each)
        return value

    return Window(
        attribute("pre_padding", 0),
        attribute("post_padding", 0),
        attribute("stride", 1),
        attribute("dilation", 1),
    )


def _operands(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents of the two inputs, after the checks that all three operations share."""
    (first, a), (second, b) = call.inputs.items()
    for port, tensor in (*call.inputs.items(), *call.outputs.items()):
        call.require(not tensor.is_ragged, "a packed (ragged) tensor", port, expected="a dense one")
    for port, tensor in call.inputs.items():
        dim, letters = tensor.dim, _LETTERS[port]
        expected = f"({letters}, W) or ({letters}, H, W): one or two spatial axes"
        call.require(len(dim) in (3, 4), "rank", port, got=dim, expected=expected)
        expected = "at least 1 on each spatial axis"
        call.require(min(dim[2:]) >= 1, "empty spatial extent", port, got=dim, expected=expected)
    call.require(
        len(b.dim) == len(a.dim), "rank", second, got=b.dim, expected=f"{len(a.dim)} axes, as {first} has"
    )
    # The type of a value between nodes says how it is rounded, not what the matrix unit multiplies.
    kinds = {a.data_type, b.data_type}
    call.require(
        len(kinds) == 1 or kinds <= _FP8 or a.is_virtual or b.is_virtual,
        "mixed data types",
        second,
        got=b.data_type,
        expected=f"{a.data_type.name}, as {first} has",
    )
    return a.dim, b.dim


def _declared(call: Call, port: str) -> tuple[int, ...]:
    """Extents that the user declared for the output, () where none."""
    dim = call.outputs[port].dim
    if dim:
        rank = len(next(t for t in call.inputs.values()).dim)
        expected = f"{rank} axes ({_LETTERS[port]}, spatial)"
        call.require(len(dim) == rank, "declared extents", port, got=dim, expected=expected)
    return dim


def _choose(
    call: Call, port: str, outer: tuple[int, int], spatial: Sequence[range], of: Sequence[str]
) -> tuple[int, ...]:
    """Extents of a gradient: the declared ones where possible, else the only possible ones.

    `of` names the two tensors whose spatial extents the possible ones, one range per axis, follow from.
    """
    declared = _declared(call, port)
    for axis, possible in enumerate(spatial):
        if not possible:
            got = tuple(call.inputs[p].dim for p in of)
            what = f"spatial axis {axis}: no extent of {port} gives the extents of {' and '.join(of)}"
            raise call.refuse(f"{what} with this padding, stride and dilation", got=got)
    text = f"({', '.join((*map(str, outer), *map(_span, spatial)))})"
    if not declared:
        single = all(len(r) == 1 for r in spatial)
        what = "extents are ambiguous and none are declared"
        call.require(single, what, port, expected=f"set_dim or out_dims with one of {text}")
        return (*outer, *(r[0] for r in spatial))
    fits = declared[:2] == outer and all(d in r for d, r in zip(declared[2:], spatial, strict=True))
    call.require(fits, "declared extents", port, got=declared, expected=text)
    return declared


def _span(possible: range) -> str:
    return str(possible[0]) if len(possible) == 1 else f"{possible[0]} to {possible[-1]}"


def _infer_fprop(call: Call) -> Mapping[str, Inferred]:
    image, weight = _operands(call)
    expected = f"({weight[0]}, {image[1]}, spatial), since the image has {image[1]} channels"
    if image[1] != weight[1] and weight[1] and image[1] % weight[1] == 0:
        what = f"grouped convolution ({image[1] // weight[1]} groups) is not served"
        raise call.refuse(what, "weight", got=weight, expected=expected)
    call.require(image[1] == weight[1], "channels", "weight", got=weight, expected=expected)
    where, spatial = window(call), []
    for axis, (extent, taps) in enumerate(zip(image[2:], weight[2:], strict=True)):
        spatial.append(where.outputs(axis, extent, taps))
        padded = extent + where.pre[axis] + where.post[axis]
        call.require(
            spatial[-1] >= 1,
            f"spatial axis {axis}: the output is empty",
            "image",
            got=f"{padded} elements with padding",
            expected=f"at least {where.reach(axis, taps)}, the reach of the filter",
        )
    dim = (image[0], weight[0], *spatial)
    return {"Y": Inferred(dim, ordered_like(dim, call.inputs["image"]))}


def _infer_dgrad(call: Call) -> Mapping[str, Inferred]:
    loss, taps = _operands(call)
    call.require(
        loss[1] == taps[0], "channels", "loss", got=loss, expected=f"(N, {taps[0]}, spatial), K of the filter"
    )
    where = window(call)
    possible = [where.images(a, p, r) for a, (p, r) in enumerate(zip(loss[2:], taps[2:], strict=True))]
    dim = _choose(call, "DX", (loss[0], taps[1]), possible, ("loss", "filter"))
    return {"DX": Inferred(dim, ordered_like(dim, call.inputs["loss"]))}


def _infer_wgrad(call: Call) -> Mapping[str, Inferred]:
    image, loss = _operands(call)
    call.require(
        loss[0] == image[0], "batch", "loss", got=loss, expected=f"({image[0]}, K, spatial), N of the image"
    )
    where = window(call)
    possible = [where.taps(a, h, p) for a, (h, p) in enumerate(zip(image[2:], loss[2:], strict=True))]
    dim = _choose(call, "DW", (loss[1], image[1]), possible, ("image", "loss"))
    return {"DW": Inferred(dim, ordered_like(dim, call.inputs["image"]))}


def _windows(xp: ModuleType, image: Any, taps: Sequence[int], where: Window) -> Any:
    """A view (N, C, output extents, filter extents) of what each tap meets at each output position."""
    rank = len(taps)
    padded = xp.pad(image, ((0, 0), (0, 0), *zip(where.pre, where.post, strict=True)))
    reach = tuple(where.reach(a, r) for a, r in enumerate(taps))
    view = xp.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    steps = tuple(slice(None, None, s) for s in (*where.stride, *where.dilation))
    return view[(slice(None), slice(None), *steps)]


def _flipped(call: Call, taps: Any) -> Any:
    """A filter in the order in which its taps meet the image; its own inverse."""
    if call.attrs.convolution_mode is convolution_mode.CROSS_CORRELATION:
        return taps
    return taps[(slice(None), slice(None), *(slice(None, None, -1),) * (taps.ndim - 2))]


def _fprop(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    taps = _flipped(call, arrays["weight"])
    seen = _windows(xp, arrays["image"], taps.shape[2:], window(call))
    summed = (1, *range(taps.ndim, 2 * taps.ndim - 2))
    return {"Y": xp.moveaxis(xp.tensordot(seen, taps, axes=(summed, tuple(range(1, taps.ndim)))), -1, 1)}


def _dgrad(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    loss, taps, where = arrays["loss"], _flipped(call, arrays["filter"]), window(call)
    dim, outputs = call.outputs["DX"].dim, loss.shape[2:]
    padded = (d + a + b for d, a, b in zip(dim[2:], where.pre, where.post, strict=True))
    result = xp.zeros((*dim[:2], *padded), loss.dtype)
    for tap in product(*map(range, taps.shape[2:])):
        start = (t * d for t, d in zip(tap, where.dilation, strict=True))
        met = tuple(
            slice(a, a + (p - 1) * s + 1, s) for a, p, s in zip(start, outputs, where.stride, strict=True)
        )
        share = xp.tensordot(loss, taps[(slice(None), slice(None), *tap)], axes=(1, 0))
        result[(slice(None), slice(None), *met)] += xp.moveaxis(share, -1, 1)
    inside = tuple(slice(a, a + d) for a, d in zip(where.pre, dim[2:], strict=True))
    return {"DX": result[(slice(None), slice(None), *inside)]}


def _wgrad(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    loss, taps = arrays["loss"], call.outputs["DW"].dim[2:]
    seen = _windows(xp, arrays["image"], taps, window(call))
    summed = (0, *range(2, loss.ndim))
    return {"DW": _flipped(call, xp.tensordot(loss, seen, axes=(summed, summed)))}


def _cost(results: str, taps: str) -> Any:
    """Two operations per element of the output (or its gradient), channel and tap."""

    def cost(call: Call) -> Cost:
        filters = call.inputs[taps] if taps in call.inputs else call.outputs[taps]
        return io_cost(call, 2.0 * call.elements(results) * prod(filters.dim[1:]))

    return cost


def _bind(op: Op, arguments: Mapping[str, Any], graph: Any) -> Bound:
    """Turn `padding`, the same before and after, into `pre_padding` and `post_padding`."""
    node = arguments["name"] or op.name
    attrs = {a.name: arguments[a.name] for a in op.attrs}
    pre, post, both = attrs["pre_padding"], attrs["post_padding"], arguments["padding"]
    if both is not None:
        same = _integers(op, node, "padding", both)
        for name in ("pre_padding", "post_padding"):
            given = attrs[name]
            if given is not None and _integers(op, node, name, given) != same:
                what = f"attributes padding and {name} of {op.name} contradict each other"
                raise GraphError(what, node=node, got=f"{same} and {tuple(given)}", expected="one of them")
            attrs[name] = same
    elif (pre is None) != (post is None):
        one, other = ("pre_padding", "post_padding") if post is None else ("post_padding", "pre_padding")
        raise GraphError(
            f"attribute {one} of {op.name} without {other}", node=node, expected="both, or padding"
        )
    return Bound({p.name: arguments[p.name] for p in op.inputs}, attrs, {})


def _integers(op: Op, node: str, name: str, value: Any) -> tuple[int, ...]:
    try:
        return INTS.convert(value)
    except (TypeError, ValueError) as error:
        what = f"attribute '{name}' of {op.name} ({error})"
        raise GraphError(what, node=node, got=repr(value), expected=INTS.annotation) from None


_H, _BF, _D = data_type.HALF, data_type.BFLOAT16, data_type.DOUBLE
_INT8 = {"data_type": data_type.INT8, "compute": data_type.INT32}
_DOUBLE = {"data_type": _D, "compute": _D}
_BYTES = ("integers", -128, 128)
_FLIP = {"convolution_mode": convolution_mode.CONVOLUTION}


def _last(*dim: int, **rest: Any) -> Arg:
    """A channels-last argument."""
    n, c, *spatial = dim
    steps = tuple(prod(spatial[a + 1 :]) * c for a in range(len(spatial)))
    return Arg(dim, stride=(prod(spatial) * c, 1, *steps), **rest)


def _fprop_case(name: str, image: Arg, weight: Arg, **rest: Any) -> Case:
    known = {k: rest.pop(k) for k in ("data_type", "compute", "level", "outputs") if k in rest}
    return Case(name, {"image": image, "weight": weight, **rest}, **known)


def _dgrad_case(name: str, loss: Arg, taps: Arg, result: Arg | None = None, **rest: Any) -> Case:
    known = {k: rest.pop(k) for k in ("data_type", "compute", "level") if k in rest}
    outputs = {} if result is None else {"DX": result}
    return Case(name, {"loss": loss, "filter": taps, **rest}, outputs, **known)


def _wgrad_case(name: str, image: Arg, loss: Arg, result: Arg | None = None, **rest: Any) -> Case:
    known = {k: rest.pop(k) for k in ("data_type", "compute", "level") if k in rest}
    outputs = {} if result is None else {"DW": result}
    return Case(name, {"image": image, "loss": loss, **rest}, outputs, **known)


_A = Arg
_FPROP_CASES = (
    _fprop_case("plain", _A((2, 3, 7, 6)), _A((4, 3, 3, 2))),
    _fprop_case("padded", _A((2, 4, 5, 6)), _A((3, 4, 3, 3)), padding=[1, 2], stride=[1, 1], dilation=[1, 1]),
    _fprop_case(
        "channels_last", _last(2, 8, 6, 5), _last(4, 8, 3, 3), padding=[1, 1], stride=[2, 2], data_type=_H
    ),
    _fprop_case("asymmetric", _A((1, 3, 6, 5)), _A((2, 3, 3, 3)), pre_padding=[2, 0], post_padding=[0, 1]),
    _fprop_case(
        "dilated", _A((2, 2, 9, 11)), _A((3, 2, 3, 2)), padding=[1, 0], dilation=[2, 3], data_type=_BF
    ),
    _fprop_case("stride_beyond_filter", _A((2, 3, 11, 10)), _A((4, 3, 2, 1)), stride=[3, 4]),
    _fprop_case(
        "one_axis", _A((2, 3, 17)), _A((5, 3, 4)), padding=[3], stride=[2], dilation=[2], data_type=_H
    ),
    _fprop_case("one_axis_channels_last", _last(3, 8, 12), _last(4, 8, 3), padding=[1], data_type=_BF),
    _fprop_case(
        "flipped", _A((2, 3, 6, 7)), _A((2, 3, 3, 2)), pre_padding=[1, 2], post_padding=[0, 1], **_FLIP
    ),
    _fprop_case("flipped_one_axis", _A((2, 3, 8)), _A((2, 3, 3)), dilation=[2], data_type=_BF, **_FLIP),
    _fprop_case("pointwise_filter", _last(2, 16, 4, 4), _last(8, 16, 1, 1), data_type=_BF),
    _fprop_case("one_output", _A((3, 4, 5, 3)), _A((6, 4, 5, 3))),
    _fprop_case(
        "size_one_axes_odd_strides",
        _A((1, 6, 1, 1), stride=(7, 1, 99, 5)),
        _A((4, 6, 1, 1), stride=(6, 1, 77, 3)),
    ),
    _fprop_case("one_channel_odd_stride", _A((2, 1, 5, 5), stride=(25, 13, 5, 1)), _A((3, 1, 2, 2))),
    _fprop_case(
        "wider_buffer", _A((2, 3, 5, 4), stride=(256, 64, 10, 2)), _A((2, 3, 2, 2), stride=(48, 16, 8, 3))
    ),
    _fprop_case("broadcast", _A((3, 2, 4, 4), stride=(0, 16, 4, 1)), _A((2, 2, 2, 2), stride=(4, 0, 2, 1))),
    _fprop_case(
        "other_output_layout",
        _last(2, 3, 4, 4),
        _A((2, 3, 2, 2)),
        outputs={"Y": _A((2, 2, 3, 3), stride=(18, 9, 3, 1))},
    ),
    _fprop_case("float64", _A((2, 3, 6, 6)), _A((4, 3, 3, 3)), padding=[1, 1], stride=[2, 1], **_DOUBLE),
    _fprop_case(
        "int8_to_int32",
        _last(2, 32, 6, 6, fill=_BYTES),
        _last(4, 32, 3, 3, fill=_BYTES),
        outputs={"Y": _A((2, 4, 4, 4), data_type.INT32)},
        **_INT8,
    ),
    _fprop_case("int8_saturates", _A((1, 9, 3), fill=_BYTES), _A((2, 9, 2), fill=_BYTES), **_INT8),
    _fprop_case(
        "fp8_to_float",
        _last(1, 16, 5, 5),
        _last(8, 16, 3, 3),
        outputs={"Y": _A((1, 8, 3, 3), data_type.FLOAT)},
        data_type=data_type.FP8_E4M3,
    ),
    _fprop_case("no_batch", _A((0, 3, 5, 5)), _A((2, 3, 3, 3))),
    _fprop_case("no_channels", _A((2, 0, 5, 5)), _A((2, 0, 3, 3))),
    _fprop_case("no_filters", _A((2, 3, 5, 5)), _A((0, 3, 3, 3))),
    _fprop_case(
        "sum_of_ones_half", _A((1, 1024, 2, 2), fill="ones"), _A((1, 1024, 2, 2), fill="ones"), data_type=_H
    ),
    _fprop_case(
        "padding_beyond_filter",
        _A((1, 2, 2, 3)),
        _A((2, 2, 2, 2)),
        padding=[3, 4],
        stride=[2, 3],
        level="full",
    ),
    _fprop_case(
        "resnet_layer", _last(2, 64, 14, 14), _last(64, 64, 3, 3), padding=[1, 1], data_type=_BF, level="full"
    ),
    _fprop_case(
        "bench_resnet_3x3",
        _last(64, 128, 28, 28),
        _last(128, 128, 3, 3),
        padding=[1, 1],
        data_type=_BF,
        level="bench",
    ),
    _fprop_case(
        "bench_resnet_1x1", _last(64, 256, 56, 56), _last(64, 256, 1, 1), data_type=_BF, level="bench"
    ),
    _fprop_case(
        "bench_resnet_stem",
        _last(64, 3, 224, 224),
        _last(64, 3, 7, 7),
        padding=[3, 3],
        stride=[2, 2],
        data_type=_BF,
        level="bench",
    ),
)

_DGRAD_CASES = (
    _dgrad_case("plain", _A((2, 4, 5, 5)), _A((4, 3, 3, 2))),
    _dgrad_case("padded", _A((2, 3, 5, 6)), _A((3, 4, 3, 3)), padding=[1, 1], stride=[1, 1], dilation=[1, 1]),
    _dgrad_case(
        "channels_last",
        _last(2, 4, 3, 3),
        _last(4, 8, 3, 3),
        _A((2, 8, 6, 5)),
        padding=[1, 1],
        stride=[2, 2],
        data_type=_H,
    ),
    _dgrad_case("asymmetric", _A((1, 2, 6, 4)), _A((2, 3, 3, 3)), pre_padding=[2, 0], post_padding=[0, 1]),
    _dgrad_case(
        "dilated", _A((2, 3, 7, 8)), _A((3, 2, 3, 2)), padding=[1, 0], dilation=[2, 3], data_type=_BF
    ),
    _dgrad_case(
        "stride_beyond_filter", _A((2, 4, 4, 3)), _A((4, 3, 2, 1)), _A((2, 3, 11, 12)), stride=[3, 4]
    ),
    _dgrad_case(
        "one_axis",
        _A((2, 5, 9)),
        _A((5, 3, 4)),
        _A((2, 3, 17)),
        padding=[3],
        stride=[2],
        dilation=[2],
        data_type=_H,
    ),
    _dgrad_case(
        "flipped", _A((2, 2, 5, 7)), _A((2, 3, 3, 2)), pre_padding=[1, 2], post_padding=[0, 1], **_FLIP
    ),
    _dgrad_case("pointwise_filter", _last(2, 8, 4, 4), _last(8, 16, 1, 1), data_type=_BF),
    _dgrad_case(
        "size_one_axes_odd_strides",
        _A((1, 4, 1, 1), stride=(7, 1, 99, 5)),
        _A((4, 6, 1, 1), stride=(6, 1, 77, 3)),
    ),
    _dgrad_case("broadcast", _A((2, 3, 4, 4), stride=(0, 0, 0, 0)), _A((3, 2, 2, 2), stride=(0, 4, 2, 1))),
    _dgrad_case(
        "wider_buffer", _A((2, 3, 5, 4), stride=(256, 64, 10, 2)), _A((3, 2, 2, 2), stride=(48, 16, 8, 3))
    ),
    _dgrad_case(
        "other_output_layout",
        _last(2, 3, 3, 3),
        _A((3, 2, 2, 2)),
        _A((2, 2, 4, 4), stride=(40, 20, 5, 1)),
        data_type=_BF,
    ),
    _dgrad_case(
        "float64",
        _A((2, 4, 3, 4)),
        _A((4, 3, 3, 3)),
        _A((2, 3, 6, 4)),
        padding=[1, 1],
        stride=[2, 1],
        **_DOUBLE,
    ),
    _dgrad_case(
        "int8_to_int32",
        _last(2, 32, 4, 4, fill=_BYTES),
        _last(32, 4, 3, 3, fill=_BYTES),
        _A((2, 4, 6, 6), data_type.INT32),
        **_INT8,
    ),
    _dgrad_case(
        "fp8_formats_mixed",
        _last(1, 8, 3, 3, data_type=data_type.FP8_E5M2),
        _last(8, 16, 3, 3, data_type=data_type.FP8_E4M3),
        _A((1, 16, 5, 5), data_type.FLOAT),
        data_type=data_type.FP8_E4M3,
    ),
    _dgrad_case("no_batch", _A((0, 2, 3, 3)), _A((2, 3, 3, 3))),
    _dgrad_case("no_filters", _A((2, 0, 3, 3)), _A((0, 3, 3, 3))),
    _dgrad_case(
        "bench_resnet_3x3",
        _last(64, 128, 28, 28),
        _last(128, 128, 3, 3),
        padding=[1, 1],
        data_type=_BF,
        level="bench",
    ),
)

_WGRAD_CASES = (
    _wgrad_case("plain", _A((2, 3, 7, 6)), _A((2, 4, 5, 5))),
    _wgrad_case("padded", _A((2, 4, 5, 6)), _A((2, 3, 5, 6)), padding=[1, 1], stride=[1, 1], dilation=[1, 1]),
    _wgrad_case(
        "channels_last",
        _last(2, 8, 6, 5),
        _last(2, 4, 3, 3),
        _A((4, 8, 3, 3)),
        padding=[1, 1],
        stride=[2, 2],
        data_type=_H,
    ),
    _wgrad_case("asymmetric", _A((1, 3, 6, 5)), _A((1, 2, 6, 4)), pre_padding=[2, 0], post_padding=[0, 1]),
    _wgrad_case(
        "dilated", _A((2, 2, 9, 11)), _A((2, 3, 7, 8)), padding=[1, 0], dilation=[2, 3], data_type=_BF
    ),
    _wgrad_case(
        "stride_beyond_filter", _A((2, 3, 11, 10)), _A((2, 4, 4, 3)), _A((4, 3, 2, 1)), stride=[3, 4]
    ),
    _wgrad_case(
        "one_axis",
        _A((2, 3, 17)),
        _A((2, 5, 9)),
        _A((5, 3, 4)),
        padding=[3],
        stride=[2],
        dilation=[2],
        data_type=_H,
    ),
    _wgrad_case(
        "flipped", _A((2, 3, 6, 7)), _A((2, 2, 5, 9)), pre_padding=[1, 2], post_padding=[0, 1], **_FLIP
    ),
    _wgrad_case("pointwise_filter", _last(2, 16, 4, 4), _last(2, 8, 4, 4), data_type=_BF),
    _wgrad_case(
        "size_one_axes_odd_strides",
        _A((1, 6, 1, 1), stride=(7, 1, 99, 5)),
        _A((1, 4, 1, 1), stride=(9, 1, 77, 3)),
    ),
    _wgrad_case("broadcast", _A((3, 2, 4, 4), stride=(0, 16, 4, 1)), _A((3, 2, 3, 3), stride=(0, 0, 0, 0))),
    _wgrad_case(
        "wider_buffer", _A((2, 3, 5, 4), stride=(256, 64, 10, 2)), _A((2, 2, 4, 3), stride=(48, 16, 4, 1))
    ),
    _wgrad_case(
        "other_output_layout",
        _last(2, 3, 4, 4),
        _A((2, 2, 3, 3)),
        _A((2, 3, 2, 2), stride=(20, 6, 2, 1)),
        data_type=_BF,
    ),
    _wgrad_case(
        "float64",
        _A((2, 3, 6, 4)),
        _A((2, 4, 3, 4)),
        _A((4, 3, 3, 3)),
        padding=[1, 1],
        stride=[2, 1],
        **_DOUBLE,
    ),
    _wgrad_case(
        "int8_to_int32",
        _last(4, 8, 9, 9, fill=_BYTES),
        _last(4, 4, 7, 7, fill=_BYTES),
        _A((4, 8, 3, 3), data_type.INT32),
        **_INT8,
    ),
    _wgrad_case("no_batch", _A((0, 3, 5, 5)), _A((0, 2, 3, 3))),
    _wgrad_case(
        "sum_of_ones_half", _A((1, 1, 64, 64), fill="ones"), _A((1, 1, 64, 64), fill="ones"), data_type=_H
    ),
    _wgrad_case(
        "bench_resnet_3x3",
        _last(64, 128, 28, 28),
        _last(64, 128, 28, 28),
        padding=[1, 1],
        data_type=_BF,
        level="bench",
    ),
)

_ATTRS = (
    Attr("pre_padding", None, optional(INTS), "Zeros before the image, per spatial axis."),
    Attr("post_padding", None, optional(INTS), "Zeros behind the image, per spatial axis."),
    Attr(
        "stride", None, optional(INTS), "Step between output positions, per spatial axis; 1 where left out."
    ),
    Attr("dilation", None, optional(INTS), "Step between filter taps, per spatial axis; 1 where left out."),
    Attr(
        "convolution_mode",
        convolution_mode.CROSS_CORRELATION,
        one_of(convolution_mode),
        "CONVOLUTION flips the filter along each spatial axis.",
    ),
)
_PADDING = Param(
    "padding",
    None,
    "Sequence[int] | None",
    "Zeros on either side, per spatial axis; 0 where no padding is given. Stands for equal pre_padding and post_padding.",
)
_IMAGE = Port("image", "(N, C, W) or (N, C, H, W).")
_LOSS = Port("loss", "Gradient of the convolution's output, (N, K, spatial).")
_EXTENT = "floor((image + pre + post - dilation (taps - 1) - 1) / stride) + 1"


def _op(name: str, inputs: tuple[Port, Port], output: Port, **rest: Any) -> Op:
    order = (*(p.name for p in inputs), _PADDING, "stride", "dilation", "convolution_mode")
    return Op(
        name=name,
        inputs=inputs,
        outputs=(output,),
        attrs=_ATTRS,
        anchor=True,
        structured=True,
        signature=(*order, "compute_data_type", "name", "pre_padding", "post_padding"),
        bind=_bind,
        **rest,
    )


OPS = (
    _op(
        "conv_fprop",
        (_IMAGE, Port("weight", "The filter, (K, C, taps), of the image's type.")),
        Port("Y", f"(N, K, spatial) in the image's memory order; spatial extent {_EXTENT}."),
        infer=_infer_fprop,
        reference=_fprop,
        cost=_cost("Y", "weight"),
        cases=_FPROP_CASES,
        doc="Convolution of an image with a filter, over one or two spatial axes.",
    ),
    _op(
        "conv_dgrad",
        (_LOSS, Port("filter", "The convolution's weight, (K, C, taps), of the loss's type.")),
        Port("DX", "(N, C, spatial) in the loss's memory order; declare extents that a stride leaves open."),
        infer=_infer_dgrad,
        reference=_dgrad,
        cost=_cost("loss", "filter"),
        cases=_DGRAD_CASES,
        doc="Gradient of `conv_fprop` with respect to its image.",
    ),
    _op(
        "conv_wgrad",
        (_IMAGE, _LOSS),
        Port(
            "DW",
            "(K, C, taps) in the image's memory order; declare extents that stride or dilation leave open.",
        ),
        infer=_infer_wgrad,
        reference=_wgrad,
        cost=_cost("loss", "DW"),
        cases=_WGRAD_CASES,
        doc="Gradient of `conv_fprop` with respect to its weight.",
    ),
)
