"""Operations that move or rename elements and compute nothing: reshape, slice, transpose, concatenate. Owns
their records.

An output has its input's element type. Inferred strides are compact, in the memory order of the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..dtypes import data_type
from ..enums import reshape_mode
from ..op import (
    INT,
    INTS,
    REQUIRED,
    Arg,
    Attr,
    Call,
    Case,
    Cost,
    Inferred,
    Kind,
    Op,
    Port,
    io_cost,
    one_of,
    optional,
    ordered_like,
    row_major,
)

_X = Port("input", "Any extents.")


def _cost(call: Call) -> Cost:
    return io_cost(call, 0.0)


def _count(dim: Sequence[int]) -> int:
    count = 1
    for extent in dim:
        count *= extent
    return count


# Reshape.


def _memory_axes(dim: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """Axes from the outermost in memory to the innermost."""
    return tuple(sorted(range(len(dim)), key=lambda a: (-stride[a], dim[a] != 1, a)))


def _addresses(dim: Sequence[int], stride: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Extents and strides from the outermost in, with neighbours that form one run merged: equal where two
    geometries address the same elements."""
    runs: list[tuple[int, int]] = []
    for axis in _memory_axes(dim, stride):
        if dim[axis] == 1:
            continue
        if runs and runs[-1][1] == dim[axis] * stride[axis]:
            runs[-1] = (runs[-1][0] * dim[axis], stride[axis])
        else:
            runs.append((dim[axis], stride[axis]))
    return tuple(runs)


def _view_strides(dim: Sequence[int], source: Any) -> tuple[int, ...] | None:
    """Strides under which `dim` shows the elements of `source` in row-major order without moving them, if
    there are any.
    """
    if _count(dim) == 0:
        return row_major(dim)
    runs: list[list[int]] = []  # row-major runs of the source: elements, stride of the last one
    for extent, step in zip(source.dim, source.stride, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * step:
            runs[-1] = [runs[-1][0] * extent, step]
        else:
            runs.append([extent, step])
    strides = [1] * len(dim)
    left, step = 1, 1
    for axis in reversed(range(len(dim))):
        if dim[axis] == 1:
            strides[axis] = step
            continue
        if left == 1:
            left, step = runs.pop()
        if left % dim[axis]:
            return None
        strides[axis] = step
        left, step = left // dim[axis], step * dim[axis]
    return tuple(strides)


def _infer_reshape(call: Call) -> Mapping[str, Inferred]:
    x, y = call.inputs["input"], call.outputs["OUT_0"]
    dim = y.dim
    call.require(bool(dim), "extents of the output", "OUT_0", got="none", expected="set_dim() or out_dims")
    same = all(d >= 0 for d in dim) and _count(dim) == _count(x.dim)
    call.require(
        same, "extents of the output", "OUT_0", got=dim, expected=f"{_count(x.dim)} elements, as {x.dim} has"
    )
    if call.attrs.reshape_mode is reshape_mode.LOGICAL:
        return {"OUT_0": Inferred(dim, None, x.data_type)}
    distinct = 0 in x.dim or all(s > 0 or d == 1 for d, s in zip(x.dim, x.stride, strict=True))
    call.require(distinct, "VIEW_ONLY of a broadcast input", "input", got=x.stride, expected="no stride 0")
    strides = _view_strides(dim, x)
    if strides is None and len(y.stride) != len(dim):
        expected = "reshape_mode.LOGICAL, or declared strides"
        got = f"{x.dim} with strides {x.stride} as {dim}"
        raise call.refuse("VIEW_ONLY would move elements", "OUT_0", got=got, expected=expected)
    return {"OUT_0": Inferred(dim, strides, x.data_type)}


def _check_reshape(call: Call) -> None:
    x, y = call.inputs["input"], call.outputs["OUT_0"]
    call.require(y.data_type is x.data_type, "data type", "OUT_0", got=y.data_type, expected=x.data_type)
    if call.attrs.reshape_mode is reshape_mode.VIEW_ONLY and 0 not in x.dim:
        got = f"{y.dim} with strides {y.stride}"
        expected = f"the addresses of {x.dim} with strides {x.stride}, or reshape_mode.LOGICAL"
        same = _addresses(x.dim, x.stride) == _addresses(y.dim, y.stride)
        call.require(same, "VIEW_ONLY would move elements", "OUT_0", got=got, expected=expected)


def _reshape(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    x, y = arrays["input"], call.outputs["OUT_0"]
    if call.attrs.reshape_mode is reshape_mode.LOGICAL or x.size == 0:
        return {"OUT_0": x.reshape(y.dim)}
    source = call.inputs["input"]
    memory = x.transpose(_memory_axes(source.dim, source.stride)).reshape(-1)
    axes = _memory_axes(y.dim, y.stride)
    inverse = [axes.index(a) for a in range(len(axes))]
    return {"OUT_0": memory.reshape([y.dim[a] for a in axes]).transpose(inverse)}


# Slice.


def _slices(value: Any) -> tuple[tuple[int | None, int | None, int], ...]:
    """Python slices, or (start, stop, step) triples, as triples."""
    found = []
    for item in value:
        start, stop, step = (item.start, item.stop, item.step) if isinstance(item, slice) else item
        step = 1 if step is None else INT.convert(step)
        if step < 1:
            raise ValueError(f"step {step}, at least 1 is needed")
        found.append(
            (None if start is None else INT.convert(start), None if stop is None else INT.convert(stop), step)
        )
    return tuple(found)


def _ranges(call: Call) -> tuple[slice, ...]:
    """One slice per axis with bounds inside the extent; axes without one are kept whole."""
    dim, given = call.inputs["input"].dim, call.attrs.slices
    call.require(len(given) <= len(dim), "attribute slices", got=len(given), expected=f"at most {len(dim)}")
    whole = (*given, *((None, None, 1),) * (len(dim) - len(given)))
    return tuple(slice(*slice(*triple).indices(extent)) for triple, extent in zip(whole, dim, strict=True))


def _infer_slice(call: Call) -> Mapping[str, Inferred]:
    x = call.inputs["input"]
    dim = tuple(len(range(r.start, r.stop, r.step)) for r in _ranges(call))
    return {"OUT_0": Inferred(dim, ordered_like(dim, x), x.data_type)}


# Transpose.


@dataclass(frozen=True)
class _Permuted:
    dim: tuple[int, ...]
    stride: tuple[int, ...]


def _infer_transpose(call: Call) -> Mapping[str, Inferred]:
    x, order = call.inputs["input"], call.attrs.permutation
    rank = len(x.dim)
    right = sorted(order) == list(range(rank))
    call.require(right, "attribute permutation", got=order, expected=f"each axis from 0 to {rank - 1} once")
    view: Any = _Permuted(tuple(x.dim[a] for a in order), tuple(x.stride[a] for a in order))
    return {"OUT_0": Inferred(view.dim, ordered_like(view.dim, view), x.data_type)}


# Concatenate.


def _axis(call: Call) -> int:
    rank, axis = len(call.inputs["inputs"][0].dim), call.attrs.axis
    call.require(-rank <= axis < rank, "attribute axis", got=axis, expected=f"{-rank} to {rank - 1}")
    return int(axis % rank)


def _infer_concatenate(call: Call) -> Mapping[str, Inferred]:
    parts, axis = call.inputs["inputs"], _axis(call)
    first = parts[0]
    for number, part in enumerate(parts):
        what = f"tensor '{getattr(part, 'name', '')}', number {number} of inputs"
        expected = f"the extents of the first, {first.dim}, but on axis {axis}"
        same = len(part.dim) == len(first.dim) and all(
            a == axis or d == e for a, (d, e) in enumerate(zip(part.dim, first.dim, strict=False))
        )
        call.require(same, f"extents of {what}", got=part.dim, expected=expected)
        kind = part.data_type
        call.require(kind is first.data_type, f"data type of {what}", got=kind, expected=first.data_type)
    place = call.attrs.in_place_index
    right = place is None or 0 <= place < len(parts)
    call.require(right, "attribute in_place_index", got=place, expected=f"0 to {len(parts) - 1}")
    dim = tuple(sum(p.dim[axis] for p in parts) if a == axis else d for a, d in enumerate(first.dim))
    return {"OUT_0": Inferred(dim, ordered_like(dim, first), first.data_type)}


def _same_type(call: Call) -> None:
    x, y = call.inputs.get("input") or call.inputs["inputs"][0], call.outputs["OUT_0"]
    call.require(y.data_type is x.data_type, "data type", "OUT_0", got=y.data_type, expected=x.data_type)


# Cases.

_HALF, _BF16, _INT = data_type.HALF, data_type.BFLOAT16, data_type.INT32
_VIEW, _LOGICAL = reshape_mode.VIEW_ONLY, reshape_mode.LOGICAL


def _reshaped(name: str, x: Arg, y: Arg, mode: reshape_mode, **rest: Any) -> Case:
    return Case(name, {"input": x, "reshape_mode": mode}, {"OUT_0": y}, **rest)


_RESHAPES = (
    _reshaped("split", Arg((4, 6)), Arg((4, 2, 3)), _VIEW),
    _reshaped("merge", Arg((4, 2, 3)), Arg((8, 3)), _VIEW, data_type=_HALF),
    _reshaped("view_of_rows", Arg((4, 6), stride=(16, 1)), Arg((4, 3, 2)), _VIEW),
    _reshaped("transposing_view", Arg((2, 5, 3)), Arg((2, 3, 5), stride=(15, 1, 3)), _VIEW, data_type=_BF16),
    _reshaped("size_one_axes", Arg((1, 6, 1), stride=(99, 1, 7)), Arg((6,)), _VIEW),
    _reshaped("logical_of_transposed", Arg((4, 6), stride=(1, 4)), Arg((3, 8)), _LOGICAL),
    _reshaped("logical_of_broadcast", Arg((4, 6), stride=(0, 1)), Arg((24,)), _LOGICAL, data_type=_INT),
    _reshaped("logical_into_transposed", Arg((4, 6)), Arg((6, 4), stride=(1, 6)), _LOGICAL),
    _reshaped("empty", Arg((4, 0)), Arg((0, 7)), _VIEW),
)


def _sliced(name: str, x: Arg, *slices: slice, **rest: Any) -> Case:
    return Case(name, {"input": x, "slices": list(slices)}, **rest)


_SLICES = (
    _sliced("middle", Arg((6, 8)), slice(1, 4), slice(2, 7)),
    _sliced("steps", Arg((7, 9)), slice(None, None, 2), slice(1, None, 3), data_type=_HALF),
    _sliced("negative", Arg((6, 8)), slice(-4, -1), slice(None, -2), data_type=_BF16),
    _sliced("fewer_than_axes", Arg((6, 3, 4), stride=(12, 1, 3)), slice(2, None)),
    _sliced("beyond", Arg((6, 8)), slice(4, 99), slice(-99, 3), data_type=_INT),
    _sliced("nothing", Arg((6, 8)), slice(3, 3), slice(None)),
)
_TRANSPOSES = tuple(
    Case(name, {"input": x, "permutation": order}, data_type=kind)
    for name, x, order, kind in (
        ("two_axes", Arg((3, 5)), (1, 0), data_type.FLOAT),
        ("three_axes", Arg((2, 3, 4)), (2, 0, 1), _HALF),
        ("of_strided", Arg((2, 3, 4), stride=(32, 10, 2)), (0, 2, 1), _BF16),
        ("of_broadcast", Arg((2, 3, 4), stride=(0, 4, 1)), (1, 2, 0), _INT),
        ("identity", Arg((2, 3)), (0, 1), data_type.FLOAT),
        ("empty", Arg((0, 3)), (1, 0), data_type.FLOAT),
    )
)
_CONCATENATIONS = tuple(
    Case(name, {"inputs": parts, "axis": axis}, data_type=kind)
    for name, parts, axis, kind in (
        ("rows", [Arg((2, 3)), Arg((4, 3))], 0, data_type.FLOAT),
        ("columns", [Arg((2, 3)), Arg((2, 1)), Arg((2, 5))], 1, _HALF),
        ("last_axis", [Arg((2, 3, 4), stride=(12, 1, 3)), Arg((2, 3, 2))], -1, _BF16),
        ("one", [Arg((2, 3))], 0, _INT),
        ("with_empty", [Arg((2, 0)), Arg((2, 3))], 1, data_type.FLOAT),
    )
)

OPS = (
    Op(
        name="reshape",
        inputs=(_X,),
        outputs=(Port("OUT_0", "Extents by set_dim (and set_stride) or out_dims."),),
        attrs=(Attr("reshape_mode", _VIEW, one_of(reshape_mode), "Whether elements may move."),),
        infer=_infer_reshape,
        check=_check_reshape,
        reference=_reshape,
        cost=_cost,
        cases=_RESHAPES,
        doc=(
            "Give the elements other extents.\n\n"
            "LOGICAL keeps their row-major order, whatever the strides. VIEW_ONLY reads the input's memory\n"
            "through the output's extents and strides: with declared strides any that address the same\n"
            "elements (a transposition, for instance), else those that keep the row-major order, refused\n"
            "where there are none."
        ),
        structured=True,
    ),
    Op(
        name="slice",
        inputs=(_X,),
        outputs=(Port("OUT_0", "The chosen elements."),),
        attrs=(
            Attr(
                "slices", REQUIRED, Kind("Sequence[Any]", _slices), "Python slices with steps of at least 1."
            ),
        ),
        infer=_infer_slice,
        check=_same_type,
        reference=lambda xp, call, arrays: {"OUT_0": arrays["input"][_ranges(call)]},
        cost=_cost,
        cases=_SLICES,
        doc="Part of a tensor. Bounds read as in Python; axes without a slice are kept whole.",
        structured=True,
    ),
    Op(
        name="transpose",
        inputs=(_X,),
        outputs=(Port("OUT_0", "Axis i has the extent of the input's axis permutation[i]."),),
        attrs=(Attr("permutation", REQUIRED, INTS, "The input's axis for each output axis."),),
        infer=_infer_transpose,
        check=_same_type,
        reference=lambda xp, call, arrays: {"OUT_0": arrays["input"].transpose(call.attrs.permutation)},
        cost=_cost,
        cases=_TRANSPOSES,
        doc="Exchange axes.",
        structured=True,
    ),
    Op(
        name="concatenate",
        inputs=(Port("inputs", "Equal types, and equal extents but on the axis.", variadic=True),),
        outputs=(Port("OUT_0", "The inputs behind each other."),),
        attrs=(
            Attr("axis", REQUIRED, INT, "Axis along which to join; negative ones count from the last."),
            Attr("in_place_index", None, optional(INT), "The input whose buffer is part of the output's."),
        ),
        infer=_infer_concatenate,
        check=_same_type,
        reference=lambda xp, call, arrays: {"OUT_0": xp.concatenate(arrays["inputs"], axis=_axis(call))},
        cost=_cost,
        cases=_CONCATENATIONS,
        doc="Join tensors along an axis.",
        structured=True,
    ),
)
