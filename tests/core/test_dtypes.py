"""Element types: names, sizes, and the one rounding rule, against torch and against a search."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from frazil import GraphError, data_type, reduction_mode
from frazil.dtypes import bits, cast, from_any, has_numpy, itemsize, math_type, nbytes, numpy_dtype

HOST = [d for d in data_type if has_numpy(d)]
NARROW = [data_type.HALF, data_type.BFLOAT16, data_type.FP8_E4M3, data_type.FP8_E5M2]
TORCH = {
    data_type.FLOAT: torch.float32,
    data_type.DOUBLE: torch.float64,
    data_type.HALF: torch.float16,
    data_type.BFLOAT16: torch.bfloat16,
    data_type.FP8_E4M3: torch.float8_e4m3fn,
    data_type.FP8_E5M2: torch.float8_e5m2,
    data_type.INT8: torch.int8,
    data_type.UINT8: torch.uint8,
    data_type.INT32: torch.int32,
    data_type.INT64: torch.int64,
    data_type.BOOLEAN: torch.bool,
}


def finite_values(dtype: data_type) -> np.ndarray:
    """Every finite non-negative value of a narrow type, ascending, as float64; index parity is mantissa
    parity.
    """
    kind = numpy_dtype(dtype)
    codes = np.arange(1 << (8 * kind.itemsize - 1), dtype=np.uint8 if kind.itemsize == 1 else np.uint16)
    with np.errstate(invalid="ignore"):
        found = codes.view(kind).astype(np.float64)
    return found[np.isfinite(found)]


def nearest(wide: np.ndarray, dtype: data_type) -> np.ndarray:
    """Rounding by search, for magnitudes within the finite range."""
    grid = finite_values(dtype)
    size = np.abs(wide)
    upper = np.clip(np.searchsorted(grid, size), 1, len(grid) - 1)
    lower = upper - 1
    below, above = size - grid[lower], grid[upper] - size
    take_upper = (above < below) | ((above == below) & (upper % 2 == 0))
    return np.copysign(grid[np.where(take_upper, upper, lower)], wide)


def awkward(dtype: data_type, rng: np.random.Generator) -> np.ndarray:
    """Ties, neighbours of ties, and random values within the finite range."""
    grid = finite_values(dtype)
    grid = grid[:: max(1, len(grid) // 500)] if len(grid) > 256 else grid
    step = finite_values(dtype)
    at = np.searchsorted(step, grid[:-1])
    ties = (step[at] + step[at + 1]) / 2
    near = np.concatenate(
        [ties, np.nextafter(ties, np.inf), np.nextafter(ties, 0), ties * (1 + 2.0**-40), grid]
    )
    wild = rng.standard_normal(2000) * np.exp(rng.uniform(-12, 8, 2000))
    both = np.concatenate([near, -near, wild])
    return both[np.abs(both) <= grid[-1]]


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_rounding_of_float64_is_to_nearest_even(dtype: data_type, rng: np.random.Generator) -> None:
    wide = awkward(dtype, rng)
    np.testing.assert_array_equal(cast(wide, dtype).astype(np.float64), nearest(wide, dtype))


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_rounding_of_float32_equals_torch(dtype: data_type, rng: np.random.Generator) -> None:
    wide = awkward(dtype, rng).astype(np.float32)
    expected = torch.from_numpy(wide).to(TORCH[dtype]).to(torch.float64).numpy()
    np.testing.assert_array_equal(cast(wide, dtype).astype(np.float64), expected)


def test_integers_round_once_to_narrow_types() -> None:
    just_above_a_tie = np.array([257 * (1 << 30) + 1, -(257 * (1 << 30) + 1)], np.int64)
    found = cast(just_above_a_tie, data_type.BFLOAT16).astype(np.float64)
    np.testing.assert_array_equal(found, [258.0 * 2**30, -258.0 * 2**30])


@pytest.mark.parametrize("source", HOST, ids=lambda d: d.name)
@pytest.mark.parametrize("target", HOST, ids=lambda d: d.name)
def test_every_pair_keeps_what_both_types_hold(source: data_type, target: data_type) -> None:
    values = cast(np.array([1.0, 2.0, 4.0, 16.0]), source)
    result = cast(values, target)
    assert result.dtype == numpy_dtype(target) and result.shape == (4,)
    expected = (
        [1, 1, 1, 1] if data_type.BOOLEAN in (source, target) else [1, 2, 4, 16]
    )  # a boolean only says "not 0"
    np.testing.assert_array_equal(result.astype(np.float64), expected)
    assert cast(np.empty((0, 3), numpy_dtype(source)), target).shape == (0, 3)
    assert cast(np.asarray(1.0).astype(numpy_dtype(source)), target).shape == ()


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("source", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (data_type.FP8_E4M3, 1e6, 448),
        (data_type.FP8_E4M3, INF, 448),
        (data_type.FP8_E4M3, -INF, -448),
        (data_type.FP8_E4M3, NAN, NAN),
        (data_type.FP8_E5M2, 1e6, 57344),
        (data_type.FP8_E5M2, -1e6, -57344),
        (data_type.FP8_E5M2, INF, INF),
        (data_type.FP8_E5M2, -INF, -INF),
        (data_type.FP8_E5M2, NAN, NAN),
        (data_type.FP8_E8M0, 0.0, 2.0**-127),
        (data_type.FP8_E8M0, INF, 2.0**127),
        (data_type.FP8_E8M0, 3e38, 2.0**127),
        (data_type.FP8_E8M0, -1.0, NAN),
        (data_type.FP8_E8M0, NAN, NAN),
        (data_type.HALF, 1e6, INF),
        (data_type.HALF, -INF, -INF),
        (data_type.HALF, NAN, NAN),
        (data_type.BFLOAT16, INF, INF),
        (data_type.BFLOAT16, NAN, NAN),
        (data_type.INT8, 127.5, 127),
        (data_type.INT8, -1000.0, -128),
        (data_type.INT8, 0.5, 0),
        (data_type.INT8, 1.5, 2),
        (data_type.INT8, -2.5, -2),
        (data_type.INT8, NAN, 0),
        (data_type.INT8, INF, 127),
        (data_type.UINT8, -1.0, 0),
        (data_type.UINT8, 256.0, 255),
        (data_type.INT32, 1e10, 2**31 - 1),
        (data_type.INT32, -INF, -(2**31)),
        (data_type.INT64, 2.0**63, 2**63 - 1),
        (data_type.INT64, -(2.0**63), -(2**63)),
        (data_type.INT64, 2.0**62, 2**62),
        (data_type.INT64, 1e30, 2**63 - 1),
        (data_type.INT64, -INF, -(2**63)),
        (data_type.INT64, NAN, 0),
        (data_type.BOOLEAN, 0.0, False),
        (data_type.BOOLEAN, -0.0, False),
        (data_type.BOOLEAN, 0.25, True),
        (data_type.BOOLEAN, NAN, True),
    ],
)
def test_extremes(source: Any, dtype: data_type, value: float, expected: float) -> None:
    given = np.array([value]).astype(source)
    found = cast(given, dtype)
    if isinstance(expected, float) and np.isnan(expected):
        assert np.isnan(found.astype(np.float64))[0]
    else:
        assert found[0] == expected


def test_integers_saturate_between_each_other() -> None:
    wide = np.array([-(2**63), -(2**40), -129, 0, 128, 256, 2**31, 2**63 - 1], np.int64)
    for dtype in (data_type.INT8, data_type.UINT8, data_type.INT32, data_type.INT64):
        info = np.iinfo(numpy_dtype(dtype))
        np.testing.assert_array_equal(cast(wide, dtype), np.clip(wide, info.min, info.max))


def test_odd_integers_beyond_float64_survive() -> None:
    odd = np.array([2**53 + 1, -(2**53) - 1, 2**63 - 1], np.int64)
    np.testing.assert_array_equal(cast(odd, data_type.INT64), odd)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((t, d) for d, t in TORCH.items()),
        *((numpy_dtype(d), d) for d in HOST),
        *((numpy_dtype(d).type, d) for d in HOST),
        *((d.name, d) for d in data_type),
        *((int(d), d) for d in data_type),
        *((d, d) for d in data_type),
        (None, data_type.NOT_SET),
        ("float32", data_type.FLOAT),
        ("torch.bfloat16", data_type.BFLOAT16),
        ("jax.numpy.float16", data_type.HALF),
        ("float8_e4m3fn", data_type.FP8_E4M3),
        (float, data_type.DOUBLE),
        (bool, data_type.BOOLEAN),
        (torch.long, data_type.INT64),
        (torch.float8_e8m0fnu, data_type.FP8_E8M0),
    ],
    ids=str,
)
def test_names_of_types(value: Any, expected: data_type) -> None:
    assert from_any(value) is expected


def test_a_class_with_a_dtype_is_a_type() -> None:
    scalar = type("bfloat16", (), {"dtype": np.dtype(ml_dtypes.bfloat16)})  # how JAX spells its types
    assert from_any(scalar) is data_type.BFLOAT16


@pytest.mark.parametrize(
    "value",
    [
        13,
        99,
        -1,
        True,
        1.0,
        "complex64",
        torch.complex64,
        np.complex128,
        pytest.param(object(), id="object"),
        "",
        reduction_mode.ADD,
        [],
    ],
    ids=repr,
)
def test_what_is_no_type_is_refused(value: Any) -> None:
    with pytest.raises(GraphError, match="unknown data type"):
        from_any(value)


def test_integer_values_of_data_type() -> None:
    expected = {
        "NOT_SET": 0, "FLOAT": 1, "DOUBLE": 2, "HALF": 3, "INT8": 4, "INT32": 5, "INT8x4": 6, "UINT8": 7,
        "UINT8x4": 8, "INT8x32": 9, "BFLOAT16": 10, "INT64": 11, "BOOLEAN": 12, "FP8_E4M3": 14, "FP8_E5M2": 15,
        "FAST_FLOAT_FOR_FP8": 16, "FP8_E8M0": 17, "FP8_E5M3": 18, "FP4_E2M1": 19, "INT4": 20,
    }  # fmt: skip
    assert {d.name: int(d) for d in data_type} == expected


@pytest.mark.parametrize("dtype", [d for d in data_type if not has_numpy(d)], ids=lambda d: d.name)
def test_types_without_a_host_element_are_refused(dtype: data_type) -> None:
    with pytest.raises(GraphError, match="without a host representation"):
        numpy_dtype(dtype)


@pytest.mark.parametrize("dtype", HOST, ids=lambda d: d.name)
def test_sizes(dtype: data_type) -> None:
    assert itemsize(dtype) == numpy_dtype(dtype).itemsize == bits(dtype) // 8
    assert nbytes(dtype, 7) == 7 * itemsize(dtype)


def test_packed_sizes() -> None:
    assert [nbytes(data_type.FP4_E2M1, n) for n in (0, 1, 2, 3)] == [0, 1, 1, 2]
    assert nbytes(data_type.INT8x32, 2) == 64


@pytest.mark.parametrize(
    ("compute", "operands", "expected"),
    [
        (data_type.FLOAT, [data_type.HALF, data_type.BFLOAT16], np.float32),
        (data_type.NOT_SET, [data_type.FP8_E4M3], np.float32),
        (data_type.HALF, [data_type.HALF], np.float32),
        (data_type.DOUBLE, [data_type.FLOAT], np.float64),
        (data_type.FLOAT, [data_type.FLOAT, data_type.DOUBLE], np.float64),
        (data_type.INT32, [data_type.INT8, data_type.INT8], np.int64),
        (data_type.INT32, [data_type.INT8, data_type.FLOAT], np.float32),
        (data_type.FLOAT, [data_type.INT32], np.float32),
        (data_type.INT64, [], np.int64),
    ],
)
def test_type_of_the_arithmetic(compute: data_type, operands: list[data_type], expected: Any) -> None:
    assert math_type(compute, operands) == np.dtype(expected)
