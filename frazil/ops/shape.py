"""Operations that move or rename elements and compute nothing: reshape, slice, transpose, concatenate. Owns
their records.

An output has its input's element type, and its elements are the input's bits. Which element is where follows
from extents alone, never from strides, so that a buffer with other strides than the declared ones changes
nothing. Inferred strides are compact, in the memory order of the input; those of a reshape are row-major, or
for VIEW_ONLY those of the view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..dtypes import data_type
from ..enums import reshape_mode
from ..op import (
    INT,
    INTS,
    REQUIRED,
    Arg,
    Attr,
    Bound,
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

_X = Port("input", "Any extents.", moved=True)


def _cost(call: Call) -> Cost:
    return io_cost(call, 0.0)


_MOVES = "VIEW_ONLY would move elements"


def _count(dim: Sequence[int]) -> int:
    count = 1
    for extent in dim:
        count *= extent
    return count


# Reshape.


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


def _reshaped_dim(call: Call) -> tuple[int, ...]:
    """Extents of the result: the declared ones, with the one that is left open filled in."""
    x, declared = call.inputs["input"], call.outputs["OUT_0"].dim
    expected = "set_dim() or out_dims"
    call.require(bool(declared), "extents of the output", "OUT_0", got="none", expected=expected)
    known, total = _count([d for d in declared if d != -1]), _count(x.dim)
    expected = f"{total} elements, as {x.dim} has"
    if -1 not in declared:
        fits = known == total and min(declared) >= 0
        call.require(fits, "extents of the output", "OUT_0", got=declared, expected=expected)
        return tuple(declared)
    fits = declared.count(-1) == 1 and known > 0 and total % known == 0
    expected = f"{expected}, with one extent at most left open (-1)"
    call.require(fits, "extents of the output", "OUT_0", got=declared, expected=expected)
    return tuple(total // known if d == -1 else d for d in declared)


def _infer_reshape(call: Call) -> Mapping[str, Inferred]:
    x, dim = call.inputs["input"], _reshaped_dim(call)
    if call.attrs.reshape_mode is reshape_mode.LOGICAL:
        return {"OUT_0": Inferred(dim, None, x.data_type)}
    distinct = 0 in x.dim or all(s > 0 or d == 1 for d, s in zip(x.dim, x.stride, strict=True))
    call.require(distinct, "VIEW_ONLY of a broadcast input", "input", got=x.stride, expected="no stride 0")
    strides = _view_strides(dim, x)
    if strides is None:
        got = f"{x.dim} with strides {x.stride} as {dim}"
        raise call.refuse(_MOVES, "OUT_0", got=got, expected="reshape_mode.LOGICAL")
    return {"OUT_0": Inferred(dim, strides, x.data_type)}


def _check_reshape(call: Call) -> None:
    _same_type(call)
    x, y = call.inputs["input"], call.outputs["OUT_0"]
    if call.attrs.reshape_mode is reshape_mode.LOGICAL or 0 in y.dim:
        return
    view = _view_strides(y.dim, x)
    assert view is not None  # inference has refused the others
    same = all(d == 1 or s == v for d, s, v in zip(y.dim, y.stride, view, strict=True))
    got = f"{y.dim} with strides {y.stride}"
    expected = f"strides {view}, reshape_mode.LOGICAL, or transpose() to exchange axes"
    call.require(same, _MOVES, "OUT_0", got=got, expected=expected)


# Slice.


def _slices(value: Any) -> tuple[tuple[int | None, int | None, int], ...]:
    """Python slices, or (start, stop, step) triples, as triples."""
    if not isinstance(value, (list, tuple)):
        raise TypeError("a list of slices is needed")
    found = []
    for number, item in enumerate(value):
        if isinstance(item, slice):
            item = (item.start, item.stop, item.step)
        if not isinstance(item, (list, tuple)) or len(item) != 3:
            raise TypeError(f"item {number}: a slice is needed")
        start, stop = (None if bound is None else INT.convert(bound) for bound in item[:2])
        step = 1 if item[2] is None else INT.convert(item[2])
        if step < 1:
            raise ValueError(f"item {number}: step {step}, at least 1 is needed")
        found.append((start, stop, step))
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


def _bind_concatenate(op: Op, arguments: Mapping[str, Any], graph: Any) -> Bound:
    inputs = arguments["inputs"]
    if inputs is not None and not isinstance(inputs, (list, tuple)):
        raise TypeError(f"concatenate: inputs: a list of tensors is needed, got {type(inputs).__name__}")
    return Bound({"inputs": inputs}, {a.name: arguments[a.name] for a in op.attrs}, {})


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

_HALF, _BF16, _INT, _FP8 = data_type.HALF, data_type.BFLOAT16, data_type.INT32, data_type.FP8_E4M3
_VIEW, _LOGICAL = reshape_mode.VIEW_ONLY, reshape_mode.LOGICAL


def _reshaped(name: str, x: Arg, y: Arg, mode: reshape_mode, **rest: Any) -> Case:
    return Case(name, {"input": x, "reshape_mode": mode}, {"OUT_0": y}, **rest)


_RESHAPES = (
    _reshaped("split", Arg((4, 6)), Arg((4, 2, 3)), _VIEW),
    _reshaped("merge", Arg((4, 2, 3)), Arg((8, 3)), _VIEW, data_type=_HALF),
    _reshaped("view_of_rows", Arg((4, 6), stride=(16, 1)), Arg((4, 3, 2)), _VIEW),
    _reshaped("declared_strides", Arg((2, 5, 3)), Arg((10, 3), stride=(3, 1)), _VIEW, data_type=_BF16),
    _reshaped("of_transposed", Arg((4, 6), stride=(1, 4)), Arg((2, 2, 6), stride=(2, 1, 4)), _VIEW),
    _reshaped("size_one_axes", Arg((1, 6, 1), stride=(99, 1, 7)), Arg((6,)), _VIEW),
    _reshaped("scalar", Arg((1, 1)), Arg((1,)), _VIEW),
    _reshaped("open_extent", Arg((4, 6)), Arg((-1, 3)), _LOGICAL),
    _reshaped("open_extent_view", Arg((4, 6), stride=(16, 1)), Arg((4, -1, 2)), _VIEW, data_type=_FP8),
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
        outputs=(Port("OUT_0", "Extents by set_dim (and set_stride) or out_dims; one of them may be -1."),),
        attrs=(Attr("reshape_mode", _VIEW, one_of(reshape_mode), "Whether elements may move."),),
        infer=_infer_reshape,
        check=_check_reshape,
        reference=lambda xp, call, arrays: {"OUT_0": arrays["input"].reshape(call.outputs["OUT_0"].dim)},
        cost=_cost,
        cases=_RESHAPES,
        doc=(
            "Give the elements other extents; their row-major order stays.\n\n"
            "VIEW_ONLY is refused where the input's strides do not allow that without moving elements, or\n"
            "where the output's declared strides are not those of the view; LOGICAL takes any strides."
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
        inputs=(
            Port("inputs", "Equal types, and equal extents but on the axis.", variadic=True, moved=True),
        ),
        outputs=(Port("OUT_0", "The inputs behind each other."),),
        attrs=(
            Attr("axis", REQUIRED, INT, "Axis along which to join; negative ones count from the last."),
            Attr("in_place_index", None, optional(INT), "The input that may share memory with the output."),
        ),
        infer=_infer_concatenate,
        check=_same_type,
        reference=lambda xp, call, arrays: {"OUT_0": xp.concatenate(arrays["inputs"], axis=_axis(call))},
        cost=_cost,
        cases=_CONCATENATIONS,
        doc="Join tensors along an axis.",
        structured=True,
        bind=_bind_concatenate,
    ),
)
