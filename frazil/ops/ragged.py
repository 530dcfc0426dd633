"""Packed tensors: sequences of different lengths in one buffer, element (b, h, s, d) at offset[b] + h*sh +
s*ss + d*sd.

Owns the step from a flat buffer to a padded array and back. All offsets are 64-bit: with 128 heads of 128
elements, 2^31 elements are only 131072 tokens.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ..op import Call, Scatter


def offsets(xp: ModuleType, call: Call, port: str, arrays: Any) -> Any:
    """First element of each batch entry of the packed tensor on a port, and the end, as int64 (B + 1)."""
    tensor = call.inputs.get(port)
    tensor = call.outputs[port] if tensor is None else tensor
    return arrays[f"{port}.ragged"].reshape(-1).astype(np.int64) * np.int64(tensor.ragged_multiplier)


def lengths(xp: ModuleType, call: Call, port: str, arrays: Any) -> Any:
    """Rows of each batch entry, from the distances of the offsets and the stride of a row."""
    tensor = call.inputs[port]
    return xp.diff(offsets(xp, call, port, arrays)) // max(1, tensor.stride[2])


def gather(xp: ModuleType, call: Call, port: str, arrays: Any, rows: Any) -> Any:
    """Padded (B, H, S, D) from the flat buffer on a port; rows at and behind `rows` (B) are 0."""
    flat, tensor = arrays[port], call.inputs[port]
    index, live = _elements(xp, call, port, arrays, rows, tensor)
    if flat.size == 0:
        return xp.zeros(tensor.dim, flat.dtype)
    return xp.where(live, flat[index], xp.zeros((), flat.dtype))


def scatter(xp: ModuleType, call: Call, port: str, arrays: Any, values: Any, rows: Any) -> Scatter:
    """Where the live rows of a padded result belong in the flat buffer on an output port."""
    index, live = _elements(xp, call, port, arrays, rows, call.outputs[port])
    chosen = xp.broadcast_to(live, index.shape)
    return Scatter(index[chosen], values[chosen])


def _elements(xp: ModuleType, call: Call, port: str, arrays: Any, rows: Any, tensor: Any) -> tuple[Any, Any]:
    """Element numbers (B, H, S, D), 0 for rows that are not live, and which are live (B, 1, S, 1)."""
    b, h, s, d = tensor.dim
    step = [np.int64(x) for x in tensor.stride]
    start = offsets(xp, call, port, arrays)[:b].reshape(b, 1, 1, 1)
    row = xp.arange(s, dtype=np.int64).reshape(1, 1, s, 1)
    head = xp.arange(h, dtype=np.int64).reshape(1, h, 1, 1)
    column = xp.arange(d, dtype=np.int64).reshape(1, 1, 1, d)
    live = row < rows.reshape(b, 1, 1, 1)
    index = xp.where(live, start + head * step[1] + row * step[2] + column * step[3], np.int64(0))
    size = arrays[f"{port}.elements"]
    if index.size and (int(index.max()) >= size or int(index.min()) < 0) and bool(live.any()):
        got = f"elements {int(index.min())} to {int(index.max())}"
        raise call.refuse(
            "offsets reach outside the bound buffer", port, got=got, expected=f"0 to {size - 1}"
        )
    return index, live
