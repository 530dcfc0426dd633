"""The element types: the public `data_type` enumeration, its NumPy representation, and the one rounding rule.

Owns which bits an element has and how a wider value is rounded to it. Knows no framework: types of other
libraries are recognised by their name ("torch.bfloat16" and NumPy's own `dtype` spell the same type), so
nothing is imported for them.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from .errors import GraphError

__all__ = ["cast", "data_type", "from_any", "itemsize", "math_type", "numpy_dtype"]


class data_type(IntEnum):
    """Element types, with the integer values that existing graph code stores."""

    NOT_SET = 0
    FLOAT = 1
    DOUBLE = 2
    HALF = 3
    INT8 = 4
    INT32 = 5
    INT8x4 = 6
    UINT8 = 7
    UINT8x4 = 8
    INT8x32 = 9
    BFLOAT16 = 10
    INT64 = 11
    BOOLEAN = 12
    FP8_E4M3 = 14
    FP8_E5M2 = 15
    FAST_FLOAT_FOR_FP8 = 16
    FP8_E8M0 = 17
    FP8_E5M3 = 18
    FP4_E2M1 = 19
    INT4 = 20


# For annotations inside classes that have a field called `data_type`.
DataType = data_type

_NUMPY: dict[data_type, np.dtype] = {
    data_type.FLOAT: np.dtype(np.float32),
    data_type.DOUBLE: np.dtype(np.float64),
    data_type.HALF: np.dtype(np.float16),
    data_type.INT8: np.dtype(np.int8),
    data_type.INT32: np.dtype(np.int32),
    data_type.UINT8: np.dtype(np.uint8),
    data_type.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    data_type.INT64: np.dtype(np.int64),
    data_type.BOOLEAN: np.dtype(np.bool_),
    data_type.FP8_E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    data_type.FP8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
    data_type.FP8_E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
}

_BITS = {
    data_type.DOUBLE: 64,
    data_type.INT64: 64,
    data_type.FLOAT: 32,
    data_type.INT32: 32,
    data_type.INT8x4: 32,
    data_type.UINT8x4: 32,
    data_type.FAST_FLOAT_FOR_FP8: 32,
    data_type.INT8x32: 256,
    data_type.HALF: 16,
    data_type.BFLOAT16: 16,
    data_type.FP4_E2M1: 4,
    data_type.INT4: 4,
}

# The names under which NumPy, ml_dtypes, torch, JAX and CuPy know each type.
_BY_NAME = {
    "float32": data_type.FLOAT,
    "float": data_type.FLOAT,
    "float64": data_type.DOUBLE,
    "double": data_type.DOUBLE,
    "float16": data_type.HALF,
    "half": data_type.HALF,
    "bfloat16": data_type.BFLOAT16,
    "int8": data_type.INT8,
    "uint8": data_type.UINT8,
    "int32": data_type.INT32,
    "int": data_type.INT32,
    "int64": data_type.INT64,
    "long": data_type.INT64,
    "bool": data_type.BOOLEAN,
    "float8_e4m3fn": data_type.FP8_E4M3,
    "float8_e5m2": data_type.FP8_E5M2,
    "float8_e8m0fnu": data_type.FP8_E8M0,
    "float4_e2m1fn": data_type.FP4_E2M1,
    "float4_e2m1fn_x2": data_type.FP4_E2M1,
    "int4": data_type.INT4,
}

FLOATING = frozenset(
    {
        data_type.FLOAT,
        data_type.DOUBLE,
        data_type.HALF,
        data_type.BFLOAT16,
        data_type.FP8_E4M3,
        data_type.FP8_E5M2,
        data_type.FP8_E8M0,
        data_type.FP8_E5M3,
        data_type.FP4_E2M1,
        data_type.FAST_FLOAT_FOR_FP8,
    }
)
_FP8 = frozenset({data_type.FP8_E4M3, data_type.FP8_E5M2, data_type.FP8_E8M0})
INTEGRAL = frozenset({data_type.INT8, data_type.UINT8, data_type.INT32, data_type.INT64, data_type.BOOLEAN})


def bits(dtype: data_type) -> int:
    """Bits of one element; 8 where nothing else is said."""
    return _BITS.get(dtype, 8)


def itemsize(dtype: data_type) -> int:
    """Bytes of one element; types narrower than a byte count as one byte here and are packed by `nbytes`."""
    return max(1, bits(dtype) // 8)


def nbytes(dtype: data_type, elements: int) -> int:
    """Bytes that `elements` consecutive elements occupy, packed types included."""
    return -(-elements * bits(dtype) // 8)


def numpy_dtype(dtype: data_type) -> np.dtype:
    """NumPy type that holds one element.

    Raises
    ------
    GraphError
        The type has no one-element NumPy representation (vectorised, packed or compute-only types).
    """
    try:
        return _NUMPY[dtype]
    except KeyError:
        raise GraphError(
            "data type without a host representation", got=dtype, expected=sorted(_NUMPY)
        ) from None


def has_numpy(dtype: data_type) -> bool:
    """Whether `numpy_dtype` can represent the type."""
    return dtype in _NUMPY


def from_any(value: Any) -> data_type:
    """The `data_type` that a value names: itself, an int of the enumeration, a NumPy, torch, JAX or CuPy
    type, or a name.

    Raises
    ------
    GraphError
        Nothing in Frazil has this type.
    """
    if isinstance(value, data_type):
        return value
    if value is None:
        return data_type.NOT_SET
    if isinstance(value, int) and not isinstance(value, (bool, IntEnum)):
        try:
            return data_type(value)
        except ValueError:
            raise GraphError("unknown data type", got=value, expected="a member of data_type") from None
    found = _from_foreign(value)
    if found is None:
        raise GraphError(
            "unknown data type", got=repr(value), expected="a data_type, or a NumPy or torch type"
        )
    return found


def _from_foreign(value: Any) -> data_type | None:
    """Recognise the type object of another library by its name."""
    text = value if isinstance(value, str) else str(value)
    found = _BY_NAME.get(text.rsplit(".", 1)[-1].lower()) or data_type.__members__.get(text)
    if found is None and not isinstance(value, str):
        try:
            found = _BY_NAME.get(np.dtype(value).name)
        except TypeError:
            return None
    return found


def math_type(compute: data_type, operands: list[data_type]) -> np.dtype:
    """NumPy type in which a reference computes: float32, or float64 or int64 where compute type or operands
    ask for it.
    """
    if compute is data_type.DOUBLE or data_type.DOUBLE in operands:
        return np.dtype(np.float64)
    if compute in INTEGRAL and all(o in INTEGRAL for o in operands):
        return np.dtype(np.int64)
    return np.dtype(np.float32)


def cast(array: np.ndarray, dtype: data_type) -> np.ndarray:
    """Round `array` to `dtype`: to nearest, ties to even; FP8 and integer types saturate, NaN becomes 0 in an
    integer.

    FP8_E4M3 has no infinity and FP8_E5M2 keeps its own only for values that were infinite: finite values that
    are too large become the largest finite value, as the hardware's saturating conversions do. FP8_E8M0 holds
    powers of two alone: 0 becomes the smallest, and a negative value is NaN.
    """
    target = numpy_dtype(dtype)
    if array.dtype == target:
        return array
    if dtype is data_type.BOOLEAN:
        return array != 0
    if dtype in INTEGRAL:
        return _to_integer(array, target)
    if dtype is data_type.BFLOAT16 or dtype in _FP8:
        array = _to_float32(array)
    if dtype in _FP8:
        low, high = _limits(dtype)
        # What has no finite counterpart of its own kind: NaN, an infinity that the type has, a sign that it
        # has not.
        keep = ~np.isfinite(array) if dtype is data_type.FP8_E5M2 else np.isnan(array)
        if dtype is data_type.FP8_E8M0:
            keep |= array < 0
        array = np.where(keep, array, np.clip(array, low, high))
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(target)


def _to_float32(array: np.ndarray) -> np.ndarray:
    """float32 from which rounding to a narrower type gives what rounding `array` itself would.

    float64 is rounded to odd: were it rounded to nearest, a value just above a tie of the narrower type would
    arrive as the tie (Boldo and Melquiond, "When double rounding is odd", 2005).
    """
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype != np.float64:
        return array.astype(np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        near = array.astype(np.float32)
    bits = np.atleast_1d(near).view(np.uint32).reshape(near.shape)
    bits = bits - (np.abs(near) > np.abs(array)).astype(np.uint32)
    bits = bits | ((near != array) & np.isfinite(array)).astype(np.uint32)
    return np.asarray(bits, np.uint32).view(np.float32)


@cache
def _limits(dtype: data_type) -> tuple[float, float]:
    info = ml_dtypes.finfo(_NUMPY[dtype])
    return float(info.min), float(info.max)


def _to_integer(array: np.ndarray, target: np.dtype) -> np.ndarray:
    info = np.iinfo(target)
    if array.dtype.kind in "iub":
        return np.clip(array.astype(np.int64), info.min, info.max).astype(target)
    wide = np.rint(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    # 2**63 - 1 is no float64: clip below it, then set what lies beyond.
    inside = np.clip(wide, info.min, np.nextafter(float(info.max), 0.0) if info.bits == 64 else info.max)
    result = inside.astype(target)
    return np.where(wide >= float(info.max), target.type(info.max), result) if info.bits == 64 else result
