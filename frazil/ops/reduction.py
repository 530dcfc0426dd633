"""Reductions over axes. Owns the record of `reduction`; the axes are those where the declared output has
extent 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..dtypes import data_type
from ..enums import reduction_mode
from ..op import REQUIRED, Arg, Attr, Call, Case, Cost, Inferred, Op, Port, io_cost, one_of

_MODES = {
    reduction_mode.ADD: lambda xp, x, axes: xp.sum(x, axis=axes, keepdims=True),
    reduction_mode.MUL: lambda xp, x, axes: xp.prod(x, axis=axes, keepdims=True),
    reduction_mode.MIN: lambda xp, x, axes: xp.min(x, axis=axes, keepdims=True),
    reduction_mode.MAX: lambda xp, x, axes: xp.max(x, axis=axes, keepdims=True),
    reduction_mode.AMAX: lambda xp, x, axes: xp.max(xp.abs(x), axis=axes, keepdims=True),
    reduction_mode.AVG: lambda xp, x, axes: xp.mean(x, axis=axes, keepdims=True),
    reduction_mode.NORM1: lambda xp, x, axes: xp.sum(xp.abs(x), axis=axes, keepdims=True),
    reduction_mode.NORM2: lambda xp, x, axes: xp.sqrt(xp.sum(x * x, axis=axes, keepdims=True)),
    reduction_mode.MUL_NO_ZEROS: lambda xp, x, axes: xp.prod(
        xp.where(x == 0, 1, x), axis=axes, keepdims=True
    ),
}
_NEEDS_ELEMENTS = {reduction_mode.MIN, reduction_mode.MAX, reduction_mode.AMAX, reduction_mode.AVG}


def _axes(call: Call) -> tuple[int, ...]:
    source, result = call.inputs["input"].dim, call.outputs["OUT_0"].dim
    return tuple(a for a in range(len(source)) if result[a] == 1 and source[a] != 1)


def _infer(call: Call) -> Mapping[str, Inferred]:
    source, declared = call.inputs["input"].dim, call.outputs["OUT_0"].dim
    # Without declared extents everything is reduced.
    dim = declared or (1,) * len(source)
    expected = f"extent 1 or that of the input {source} on each axis"
    call.require(len(dim) == len(source), "declared extents", "OUT_0", got=dim, expected=expected)
    fits = all(r in (1, s) for r, s in zip(dim, source, strict=True))
    call.require(fits, "declared extents", "OUT_0", got=dim, expected=expected)
    return {"OUT_0": Inferred(dim)}


def _check(call: Call) -> None:
    mode = call.attrs.mode
    call.require(mode in _MODES, "attribute mode", got=mode, expected=[m.name for m in _MODES])
    call.require(
        call.inputs["group_offset"] is None,
        "grouped reduction",
        "group_offset",
        got="a tensor",
        expected="none",
    )
    empty = any(call.inputs["input"].dim[a] == 0 for a in _axes(call))
    if empty and mode in _NEEDS_ELEMENTS:
        raise call.refuse(
            f"{mode.name} over no elements", "input", got=call.inputs["input"].dim, expected="elements"
        )


def _reference(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"OUT_0": _MODES[call.attrs.mode](xp, arrays["input"], _axes(call))}


def _cost(call: Call) -> Cost:
    return io_cost(call, float(call.elements("input")))


def _case(name: str, mode: reduction_mode, source: Arg, result: tuple[int, ...], **rest: Any) -> Case:
    kind = rest.pop("result_type", None)
    return Case(name, {"input": source, "mode": mode}, {"OUT_0": Arg(result, kind)}, **rest)


_ADD = reduction_mode.ADD
_CASES = (
    *(_case(f"rows_{m.name}", m, Arg((4, 6, 5), fill="uniform"), (4, 6, 1)) for m in _MODES),
    *(_case(f"all_{m.name}", m, Arg((3, 4)), (1, 1), data_type=data_type.HALF, level="full") for m in _MODES),
    _case("columns", _ADD, Arg((4, 6, 5), stride=(30, 1, 6)), (1, 6, 5)),
    _case("middle", reduction_mode.MAX, Arg((4, 6, 5), stride=(64, 8, 1)), (4, 1, 5)),
    _case("nothing", _ADD, Arg((4, 6)), (4, 6)),
    _case("ones_bfloat16", _ADD, Arg((1, 4096), fill="ones"), (1, 1), data_type=data_type.BFLOAT16),
    _case("zeros_and_product", reduction_mode.MUL_NO_ZEROS, Arg((3, 4), fill=("integers", -1, 2)), (3, 1)),
    _case(
        "int32",
        _ADD,
        Arg((8, 100), fill=("integers", -(2**20), 2**20)),
        (8, 1),
        data_type=data_type.INT32,
        compute=data_type.INT32,
    ),
    _case("float64", _ADD, Arg((5, 1000)), (5, 1), data_type=data_type.DOUBLE, compute=data_type.DOUBLE),
    _case("empty_sum", _ADD, Arg((3, 0)), (3, 1)),
    _case("no_rows", _ADD, Arg((0, 3)), (0, 1)),
    _case("bench", _ADD, Arg((8192, 8192)), (8192, 1), data_type=data_type.BFLOAT16, level="bench"),
)

OPS = (
    Op(
        name="reduction",
        inputs=(
            Port("input", "Any extents."),
            Port(
                "group_offset", "Starts of groups; grouped reductions are refused.", optional=True, index=True
            ),
        ),
        outputs=(
            Port(
                "OUT_0", "Extent 1 on each reduced axis; declare it with set_dim or out_dims, else all axes."
            ),
        ),
        attrs=(Attr("mode", REQUIRED, one_of(reduction_mode), "How elements combine."),),
        infer=_infer,
        check=_check,
        reference=_reference,
        cost=_cost,
        cases=_CASES,
        doc="Combine elements along axes.",
        structured=True,
    ),
)
