"""Convolution with one or two spatial axes: the records of `conv_fprop`, `conv_dgrad` and `conv_wgrad`.

Owns `Window`, the one statement of which image elements a filter meets. The image is (N, C, spatial), the
filter (K, C, taps), the result and its gradient (N, K, spatial); the three operations share extents and
attributes and differ in which of the three tensors they compute. Groups are not served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

from ..dtypes import DataType, data_type
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
    Level,
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

    Along an axis, output element p and tap r meet image element `p * stride + r * dilation - pre`, which is 0
    outside the image.
    """

    pre: tuple[int, ...]
    post: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    def reach(self, axis: int, taps: int) -> int:
        """Image elements from the first to the last tap."""
        return self.dilation[axis] * (taps - 1) + 1

    def outputs(self, axis: int, image: int, taps: int) -> int:
        """Output extent: positions of the filter within the padded image; 0 or less where it does not fit."""
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
        An attribute whose entries are not one per spatial axis, or too small.
    """
    rank = len(next(iter(call.inputs.values())).dim) - 2

    def attribute(name: str, least: int) -> tuple[int, ...]:
        value = call.attrs[name]
        if value is None:
            return (least,) * rank
        each = f"an integer of at least {least} per spatial axis, {rank} in all"
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
        rank = len(next(iter(call.inputs.values())).dim)
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
    channels = (declared[1], outer[1]) if port == "DX" else (outer[1], declared[1])
    _one_group(call, port, *channels, declared, text)
    fits = declared[0] == outer[0] and all(d in r for d, r in zip(declared[2:], spatial, strict=True))
    call.require(fits, "declared extents", port, got=declared, expected=text)
    return declared


def _span(possible: range) -> str:
    return str(possible[0]) if len(possible) == 1 else f"{possible[0]} to {possible[-1]}"


def _one_group(call: Call, port: str, image: int, taps: int, got: Any, expected: str) -> None:
    """Refuse numbers of channels that differ, by name where they would fit with groups."""
    grouped = 0 < taps < image and image % taps == 0
    what = f"grouped convolution ({image // taps} groups) is not served" if grouped else "channels"
    call.require(image == taps, what, port, got=got, expected=expected)


def _infer_fprop(call: Call) -> Mapping[str, Inferred]:
    image, weight = _operands(call)
    expected = f"({weight[0]}, {image[1]}, spatial), since the image has {image[1]} channels"
    _one_group(call, "weight", image[1], weight[1], weight, expected)
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
    return view[_spatial(*steps)]


def _spatial(*index: slice | int) -> tuple[slice | int, ...]:
    """An index of the spatial axes alone."""
    return (slice(None), slice(None), *index)


def _flipped(call: Call, taps: Any) -> Any:
    """A filter in the order in which its taps meet the image; its own inverse."""
    if call.attrs.convolution_mode is convolution_mode.CROSS_CORRELATION:
        return taps
    return taps[_spatial(*[slice(None, None, -1)] * (taps.ndim - 2))]


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
        share = xp.tensordot(loss, taps[_spatial(*tap)], axes=(1, 0))
        result[_spatial(*met)] += xp.moveaxis(share, -1, 1)
    inside = tuple(slice(a, a + d) for a, d in zip(where.pre, dim[2:], strict=True))
    return {"DX": result[_spatial(*inside)]}


def _wgrad(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    loss, taps = arrays["loss"], call.outputs["DW"].dim[2:]
    seen = _windows(xp, arrays["image"], taps, window(call))
    summed = (0, *range(2, loss.ndim))
    return {"DW": _flipped(call, xp.tensordot(loss, seen, axes=(summed, summed)))}


def _cost(results: str, taps: str) -> Callable[[Call], Cost]:
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


class _Types(NamedTuple):
    """Element types of a case; None takes the operands'."""

    operands: DataType
    compute: DataType = data_type.FLOAT
    output: DataType | None = None
    loss: DataType | None = None


@dataclass(frozen=True)
class _Layer:
    """A convolution from which a case of each of the three operations is made.

    `last` makes image, weight and loss channels-last, `strides` gives theirs in this order, `layouts` gives
    those of the outputs Y, DX and DW.
    """

    name: str
    image: tuple[int, ...]
    weight: tuple[int, ...]
    attrs: Mapping[str, Any]
    types: _Types
    last: bool = False
    fill: Any = "normal"
    strides: tuple[tuple[int, ...] | None, ...] = (None, None, None)
    layouts: tuple[tuple[int, ...] | None, ...] = (None, None, None)
    level: Level = "smoke"

    def case(self, which: int) -> Case:
        """The case of conv_fprop (0), conv_dgrad (1) or conv_wgrad (2)."""
        rank = len(self.image) - 2
        padding = self.attrs.get("padding", (0,) * rank)
        pre, post = self.attrs.get("pre_padding", padding), self.attrs.get("post_padding", padding)
        one = (1,) * rank
        where = Window(pre, post, self.attrs.get("stride", one), self.attrs.get("dilation", one))
        spatial = zip(self.image[2:], self.weight[2:], strict=True)
        result = (self.image[0], self.weight[0], *(where.outputs(a, *x) for a, x in enumerate(spatial)))
        types, dims = self.types, (self.image, self.weight, result)
        strides = [_channels_last(d) if self.last else s for d, s in zip(dims, self.strides, strict=True)]
        image, weight, loss = map(Arg, dims, (None, None, types.loss), strides, (self.fill,) * 3)
        port, dim, args = (
            ("Y", result, {"image": image, "weight": weight}),
            ("DX", self.image, {"loss": loss, "filter": weight}),
            ("DW", self.weight, {"image": image, "loss": loss}),
        )[which]
        output = {port: Arg(dim, types.output, self.layouts[which])}
        return Case(self.name, {**args, **self.attrs}, output, types.operands, types.compute, self.level)


def _channels_last(dim: tuple[int, ...]) -> tuple[int, ...]:
    steps = (prod(dim[a + 1 :]) * dim[1] for a in range(2, len(dim)))
    return (prod(dim[1:]), 1, *steps)


_F32, _F16, _BF16 = _Types(data_type.FLOAT), _Types(data_type.HALF), _Types(data_type.BFLOAT16)
_F64 = _Types(data_type.DOUBLE, data_type.DOUBLE)
_I8, _I8_32 = (_Types(data_type.INT8, data_type.INT32, t) for t in (None, data_type.INT32))
_F8 = _Types(data_type.FP8_E4M3, data_type.FLOAT, data_type.FLOAT, data_type.FP8_E5M2)
_BYTES = ("integers", -128, 128)
_SAME = {"padding": (1, 1)}
_HALVING = {"padding": (1, 1), "stride": (2, 2)}
_UNEVEN = {"pre_padding": (2, 0), "post_padding": (0, 1)}
_ALL_2 = {"padding": (3,), "stride": (2,), "dilation": (2,)}
_FLIP = {"convolution_mode": convolution_mode.CONVOLUTION}
_ODD = ((7, 1, 99, 5), (6, 1, 77, 3), (50, 1, 9, 33))
_WIDER = ((256, 64, 10, 2), (48, 16, 8, 3), (96, 48, 8, 2))
_REPEATED = ((0, 16, 4, 1), (4, 0, 2, 1), (0, 0, 0, 0))
_OTHER = ((18, 9, 3, 1), (60, 20, 5, 1), (20, 6, 2, 1))

_LAYERS = (
    _Layer("plain", (2, 3, 7, 6), (4, 3, 3, 2), {}, _F32),
    _Layer("same_extents", (2, 4, 5, 6), (3, 4, 3, 3), {**_SAME, "stride": (1, 1), "dilation": (1, 1)}, _F32),
    _Layer("channels_last", (2, 8, 6, 5), (4, 8, 3, 3), _HALVING, _F16, last=True),
    _Layer("asymmetric", (1, 3, 6, 5), (2, 3, 3, 3), _UNEVEN, _F32),
    _Layer("dilated", (2, 2, 9, 11), (3, 2, 3, 2), {"padding": (1, 0), "dilation": (2, 3)}, _BF16),
    _Layer("stride_beyond_filter", (2, 3, 11, 10), (4, 3, 2, 1), {"stride": (3, 4)}, _F32),
    _Layer("padding_beyond_filter", (1, 2, 2, 3), (2, 2, 2, 2), {"padding": (3, 4), "stride": (2, 3)}, _F32),
    _Layer("one_axis", (2, 3, 17), (5, 3, 4), _ALL_2, _F16),
    _Layer("one_axis_channels_last", (3, 8, 12), (4, 8, 3), {"padding": (1,)}, _BF16, last=True),
    _Layer("flipped", (2, 3, 6, 7), (2, 3, 3, 2), {**_UNEVEN, **_FLIP}, _F32),
    _Layer("flipped_one_axis", (2, 3, 8), (2, 3, 3), {"dilation": (2,), **_FLIP}, _BF16),
    _Layer("pointwise_filter", (2, 16, 4, 4), (8, 16, 1, 1), {}, _BF16, last=True),
    _Layer("one_output", (3, 4, 5, 3), (6, 4, 5, 3), {}, _F32),
    _Layer("size_one_axes_odd_strides", (1, 6, 1, 1), (4, 6, 1, 1), {}, _F32, strides=_ODD),
    _Layer("one_channel", (2, 1, 5, 5), (3, 1, 2, 2), {}, _F32, strides=((25, 13, 5, 1), None, None)),
    _Layer("wider_buffer", (2, 3, 5, 4), (2, 3, 2, 2), {}, _F32, strides=_WIDER),
    _Layer("broadcast", (3, 2, 4, 4), (2, 2, 2, 2), {}, _F32, strides=_REPEATED),
    _Layer("other_output_layout", (2, 3, 4, 4), (2, 3, 2, 2), {}, _BF16, last=True, layouts=_OTHER),
    _Layer("float64", (2, 3, 6, 6), (4, 3, 3, 3), {**_SAME, "stride": (2, 1)}, _F64),
    _Layer("int8_to_int32", (2, 32, 6, 6), (4, 32, 3, 3), {}, _I8_32, last=True, fill=_BYTES),
    _Layer("int8_saturates", (1, 9, 3), (2, 9, 2), {}, _I8, fill=_BYTES),
    _Layer("fp8_to_float", (1, 16, 5, 5), (8, 16, 3, 3), {}, _F8, last=True),
    _Layer("no_batch", (0, 3, 5, 5), (2, 3, 3, 3), {}, _F32),
    _Layer("no_channels", (2, 0, 5, 5), (2, 0, 3, 3), {}, _F32),
    _Layer("no_filters", (2, 3, 5, 5), (0, 3, 3, 3), {}, _F32),
    _Layer("long_sums", (1, 256, 3, 66), (64, 256, 3, 3), {}, _F16, fill="ones", level="full"),
    _Layer("resnet_layer", (2, 64, 14, 14), (64, 64, 3, 3), _SAME, _BF16, last=True, level="full"),
    _Layer("bench_resnet_3x3", (64, 128, 28, 28), (128, 128, 3, 3), _SAME, _BF16, last=True, level="bench"),
    _Layer("bench_resnet_1x1", (64, 256, 56, 56), (64, 256, 1, 1), {}, _BF16, last=True, level="bench"),
    _Layer("bench_resnet_2x", (64, 128, 56, 56), (128, 128, 3, 3), _HALVING, _BF16, last=True, level="bench"),
)

_ATTRS = (
    Attr("pre_padding", None, optional(INTS), "Zeros before the image, per spatial axis."),
    Attr("post_padding", None, optional(INTS), "Zeros behind the image, per spatial axis."),
    Attr("stride", None, optional(INTS), "Step between positions, per spatial axis; 1 where left out."),
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
    "Zeros on either side, per spatial axis: equal pre_padding and post_padding; 0 where none is given.",
)
_IMAGE = Port("image", "(N, C, W) or (N, C, H, W).")
_LOSS = Port("loss", "Gradient of the convolution's output, (N, K, spatial).")
_EXTENT = "floor((image + pre + post - dilation (taps - 1) - 1) / stride) + 1"


def _op(name: str, inputs: tuple[Port, Port], output: Port, **rest: Any) -> Op:
    order: tuple[str | Param, ...] = (
        *(p.name for p in inputs),
        _PADDING,
        "stride",
        "dilation",
        "convolution_mode",
    )
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
        cases=tuple(layer.case(0) for layer in _LAYERS),
        doc="Convolution of an image with a filter, over one or two spatial axes.",
    ),
    _op(
        "conv_dgrad",
        (_LOSS, Port("filter", "The convolution's weight, (K, C, taps), of the loss's type.")),
        Port("DX", "(N, C, spatial) in the loss's memory order; declare extents that are not unique."),
        infer=_infer_dgrad,
        reference=_dgrad,
        cost=_cost("loss", "filter"),
        cases=tuple(layer.case(1) for layer in _LAYERS),
        doc="Gradient of `conv_fprop` with respect to its image.",
    ),
    _op(
        "conv_wgrad",
        (_IMAGE, _LOSS),
        Port("DW", "(K, C, taps) in the image's memory order; declare extents that are not unique."),
        infer=_infer_wgrad,
        reference=_wgrad,
        cost=_cost("loss", "DW"),
        cases=tuple(layer.case(2) for layer in _LAYERS),
        doc="Gradient of `conv_fprop` with respect to its weight.",
    ),
)
