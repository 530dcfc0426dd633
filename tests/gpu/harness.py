"""Runs a case on a CUDA device: the same graph, data and poison as on the CPU, in torch tensors of the same
geometry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from frazil.dtypes import data_type, numpy_dtype
from frazil.geometry import span
from tests import harness

TORCH = {
    data_type.FLOAT: torch.float32,
    data_type.DOUBLE: torch.float64,
    data_type.HALF: torch.float16,
    data_type.BFLOAT16: torch.bfloat16,
    data_type.INT8: torch.int8,
    data_type.UINT8: torch.uint8,
    data_type.INT32: torch.int32,
    data_type.INT64: torch.int64,
    data_type.BOOLEAN: torch.bool,
    data_type.FP8_E4M3: torch.float8_e4m3fn,
    data_type.FP8_E5M2: torch.float8_e5m2,
}


def to_device(array: np.ndarray, dtype: data_type) -> torch.Tensor:
    """A copy on the device with the array's strides, gaps included."""
    size = array.dtype.itemsize
    stride = tuple(s // size for s in array.strides)
    count = max(span(array.shape, stride), 1)
    flat = np.full(count * size, harness.POISON, np.uint8)
    if array.size:
        view = np.ndarray(array.shape, array.dtype, buffer=flat.data, strides=array.strides)
        view[tuple(slice(0, 1) if s == 0 else slice(None) for s in stride)] = array[
            tuple(slice(0, 1) if s == 0 else slice(None) for s in stride)
        ]
    device = torch.from_numpy(flat).cuda().view(TORCH[dtype])
    return device.as_strided(array.shape, stride)


def to_host(tensor: torch.Tensor, dtype: data_type) -> np.ndarray:
    """The values of a device tensor, row-major."""
    compact = tensor.contiguous()
    raw = compact.view(torch.uint8).cpu().numpy() if compact.numel() else np.empty(0, np.uint8)
    return raw.reshape(-1).view(numpy_dtype(dtype)).reshape(tuple(tensor.shape))


def bind(made: harness.Setup) -> tuple[dict[Any, Any], dict[str, torch.Tensor]]:
    """The pack of a setup on the device, outputs poisoned, and the outputs by port."""
    pack: dict[Any, Any] = {}
    for name, array in made.arrays.items():
        tensor = made.tensors[name]
        pack[tensor] = array.item() if tensor.is_pass_by_value else to_device(array, tensor.data_type)
    outputs = {}
    for port, tensor in made.outputs.items():
        poison = harness.poisoned(tensor.dim, tensor.stride, tensor.data_type)
        outputs[port] = pack[tensor] = to_device(poison, tensor.data_type)
    return pack, outputs
