"""Matrix multiplication. Owns the record of `matmul`: C[..., m, n] = sum over k of A[..., m, k] B[..., k,
n].
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..dtypes import data_type
from ..op import FLOAT, Arg, Attr, Call, Case, Cost, Inferred, Op, Port, io_cost


def _infer(call: Call) -> Mapping[str, Inferred]:
    a, b = call.inputs["A"].dim, call.inputs["B"].dim
    call.require(len(a) >= 2, "rank", "A", got=a, expected="at least two axes (..., M, K)")
    call.require(len(b) == len(a), "rank", "B", got=b, expected=f"{len(a)} axes, as A has")
    call.require(b[-2] == a[-1], "K extent", "B", got=b, expected=f"(..., {a[-1]}, N), since A is {a}")
    for axis in range(len(a) - 2):
        ok = 1 in (a[axis], b[axis]) or a[axis] == b[axis]
        call.require(
            ok, f"batch axis {axis} does not broadcast", "B", got=b, expected=f"1 or {a[axis]} there"
        )
    batch = tuple(y if x == 1 else x for x, y in zip(a[:-2], b[:-2], strict=True))
    return {"C": Inferred((*batch, a[-2], b[-1]))}


def _check(call: Call) -> None:
    call.require(call.attrs.padding == 0.0, "attribute padding", got=call.attrs.padding, expected=0.0)


def _reference(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"C": xp.matmul(arrays["A"], arrays["B"])}


def _cost(call: Call) -> Cost:
    return io_cost(call, 2.0 * call.elements("C") * call.inputs["A"].dim[-1])


def _case(name: str, a: Arg, b: Arg, **rest: Any) -> Case:
    return Case(name, {"A": a, "B": b}, **rest)


_CASES = (
    _case("square", Arg((2, 16, 16)), Arg((2, 16, 16))),
    _case("rectangular", Arg((3, 5, 7)), Arg((3, 7, 11)), data_type=data_type.HALF),
    _case("batch_broadcast", Arg((1, 8, 4)), Arg((6, 4, 3)), data_type=data_type.BFLOAT16),
    _case("rank2", Arg((33, 17)), Arg((17, 65)), data_type=data_type.BFLOAT16),
    _case("rank4_broadcast", Arg((2, 1, 4, 8)), Arg((1, 3, 8, 5))),
    _case("transposed", Arg((2, 6, 9), stride=(54, 1, 6)), Arg((2, 9, 4), stride=(36, 1, 9))),
    _case("size_one_axes_odd_strides", Arg((1, 7, 1), stride=(7, 1, 1)), Arg((1, 1, 5), stride=(99, 3, 1))),
    _case("wider_buffer", Arg((2, 4, 6), stride=(64, 16, 1)), Arg((2, 6, 4), stride=(60, 10, 1))),
    _case("float64", Arg((2, 9, 40)), Arg((2, 40, 3)), data_type=data_type.DOUBLE, compute=data_type.DOUBLE),
    _case(
        "int8_to_int32",
        Arg((2, 8, 300), fill=("integers", -128, 128)),
        Arg((2, 300, 8), fill=("integers", -128, 128)),
        outputs={"C": Arg((2, 8, 8), data_type.INT32)},
        data_type=data_type.INT8,
        compute=data_type.INT32,
    ),
    _case(
        "fp8_to_float",
        Arg((1, 16, 32)),
        Arg((1, 32, 16)),
        outputs={"C": Arg((1, 16, 16), data_type.FLOAT)},
        data_type=data_type.FP8_E4M3,
    ),
    _case("k_zero", Arg((2, 3, 0)), Arg((2, 0, 4))),
    _case("m_zero", Arg((2, 0, 5)), Arg((2, 5, 4))),
    _case(
        "long_k_half",
        Arg((1, 2, 4096), fill="ones"),
        Arg((1, 4096, 2), fill="ones"),
        data_type=data_type.HALF,
    ),
    _case(
        "bench_4096", Arg((1, 4096, 4096)), Arg((1, 4096, 4096)), data_type=data_type.BFLOAT16, level="bench"
    ),
)

OPS = (
    Op(
        name="matmul",
        inputs=(
            Port("A", "(..., M, K)."),
            Port("B", "(..., K, N); batch axes of extent 1 in A or B broadcast."),
        ),
        outputs=(Port("C", "(..., M, N)."),),
        attrs=(Attr("padding", 0.0, FLOAT, "Value of elements outside A and B; only 0 exists."),),
        infer=_infer,
        check=_check,
        reference=_reference,
        cost=_cost,
        cases=_CASES,
        doc="Matrix product C = A @ B over the last two axes.",
        anchor=True,
        signature=("A", "B", "compute_data_type", "padding", "name"),
    ),
)
