"""Host scalars: what is taken for one, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import frazil
from frazil import data_type

from .helpers import (
    FLOAT,
    Interface,
    OnDevice,
    Producer,
    poison,
    refused,
    untouched,
)

HALF, BF16, INT32 = data_type.HALF, data_type.BFLOAT16, data_type.INT32

# Host scalars.


def scaled(dtype: data_type = FLOAT, compute: data_type = FLOAT) -> tuple[frazil.Graph, Any, Any, Any]:
    """y = x * s with a by-value s."""
    g = frazil.Graph(io_data_type=FLOAT, compute_data_type=compute, target="cpu")
    x, s = g.tensor((4,), name="x"), g.tensor((1,), data_type=dtype, is_pass_by_value=True, name="s")
    return g, x, s, g.mul(x, s).set_output(True).set_name("y")


SCALARS: dict[str, tuple[data_type, Any]] = {
    "float": (FLOAT, 3.0),
    "int for float": (FLOAT, 3),
    "numpy": (FLOAT, np.float32(3)),
    "numpy of another width": (FLOAT, np.float64(3)),
    "numpy integer": (FLOAT, np.int8(3)),
    "0-d": (FLOAT, np.array(3, np.float32)),
    "one element": (FLOAT, np.array([[3]], np.float32)),
    "torch": (FLOAT, torch.tensor(3.0)),
    "torch gradient": (FLOAT, torch.tensor([3.0], requires_grad=True)),
    "half": (HALF, 3.0),
    "half array": (HALF, np.array([3], np.float16)),
    "bf16": (BF16, 3.0),
    "bf16 scalar": (BF16, ml_dtypes.bfloat16(3)),
    "bf16 torch": (BF16, torch.tensor(3.0, dtype=torch.bfloat16)),
    "double": (data_type.DOUBLE, 3.0),
    "int32": (INT32, 3),
    "int64": (data_type.INT64, np.int64(3)),
    "whole float for int": (INT32, 3.0),
    "producer": (FLOAT, Producer(np.array([3], np.float32))),
    "interface": (FLOAT, Interface(np.array([3], np.float32))),
}


@pytest.mark.parametrize("kind", SCALARS)
def test_host_scalars(kind: str) -> None:
    dtype, value = SCALARS[kind]
    g, x, s, y = scaled(dtype)
    out = poison(4)
    g.execute({x: np.arange(4, dtype=np.float32), s: value, y: out})
    assert out.tolist() == [0, 3, 6, 9]


WRONG_SCALARS: dict[str, tuple[data_type, Any, list[str]]] = {
    "several": (FLOAT, np.zeros(2, np.float32), ["shape", "(2,)", "one element"]),
    "none": (FLOAT, np.zeros(0, np.float32), ["shape", "one element"]),
    "another type": (FLOAT, np.zeros(1, np.int32), ["data type", "INT32", "FLOAT"]),
    "text": (FLOAT, "3", ["host scalar", "str"]),
    "complex": (FLOAT, np.complex64(3), ["host scalar"]),
    "on a device": (FLOAT, OnDevice((1,)), ["device", "cuda"]),
    "fraction": (INT32, 1.5, ["host scalar", "1.5", "INT32"]),
    "too large": (INT32, 2**31, ["host scalar", str(2**31), "INT32"]),
    "not finite": (INT32, float("nan"), ["host scalar", "nan", "INT32"]),
    "infinite": (INT32, float("inf"), ["host scalar", "inf"]),
    "negative": (data_type.UINT8, -1, ["host scalar", "-1", "UINT8"]),
    "no float": (FLOAT, 10**400, ["host scalar", "FLOAT"]),
    "lazily negated": (FLOAT, torch.zeros(1, dtype=torch.complex64).conj().imag, ["negated"]),
}


@pytest.mark.parametrize("kind", WRONG_SCALARS)
def test_wrong_host_scalars_are_refused(kind: str) -> None:
    dtype, value, words = WRONG_SCALARS[kind]
    g, x, s, y = scaled(dtype)
    out = poison(4)
    refused(lambda: g.execute({x: np.ones(4, np.float32), s: value, y: out}), "'s'", f"uid {s.uid}", *words)
    assert untouched(out)


def test_a_host_scalar_is_rounded_to_its_type() -> None:
    for dtype, value, expected in ((HALF, 1 / 3, float(np.float16(1 / 3))), (data_type.DOUBLE, 0.1, 0.1)):
        g, x, s, y = scaled(dtype, data_type.DOUBLE)
        y.set_data_type(data_type.DOUBLE)
        out = np.zeros(4)
        g.execute({x: np.ones(4, np.float32), s: value, y: out})
        assert out.tolist() == [expected] * 4


def test_a_missing_host_scalar_is_named() -> None:
    g, x, _, y = scaled()
    refused(lambda: g.execute({x: np.ones(4, np.float32), y: poison(4)}), "'s'", "missing")
