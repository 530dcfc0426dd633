"""Reshape, slice, transpose and concatenate in torch, on the operands' own strides, so that a view means the same
there. Everything goes through int64 or float64, which hold every value of the types they stand for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from frazil import reshape_mode
from tests.harness import Setup

Tensor = torch.Tensor


def tensor(array: np.ndarray) -> Tensor:
    """A wide torch tensor with the array's own strides."""
    steps = tuple(s // array.itemsize for s in array.strides)
    extent = 1 + sum((d - 1) * s for d, s in zip(array.shape, steps, strict=True)) if array.size else 0
    # Through an unsigned type: as_strided goes by the array interface, which has no name for some of ours.
    bits = array.view(f"u{array.itemsize}")
    flat = np.lib.stride_tricks.as_strided(bits, (extent,), (array.itemsize,)).view(array.dtype)
    wide = flat.astype(np.int64 if array.dtype.kind in "iub" else np.float64)
    return torch.from_numpy(wide).as_strided(array.shape, steps)


def oracle(made: Setup) -> dict[str, np.ndarray]:
    """What torch makes of a case."""
    args: dict[str, Any] = made.args()
    name = made.op.name
    if name == "concatenate":
        result = torch.cat([tensor(a) for a in args["inputs"]], args["axis"])
    elif name == "transpose":
        result = tensor(args["input"]).permute(args["permutation"])
    elif name == "slice":
        result = tensor(args["input"])[tuple(args["slices"])]
    else:
        declared = made.case.outputs["OUT_0"]
        x = tensor(args["input"])
        view = args["reshape_mode"] is reshape_mode.VIEW_ONLY
        result = x.view(declared.dim) if view else x.reshape(declared.dim)
        if view and declared.stride is not None:
            same = x.as_strided(declared.dim, declared.stride)
            assert torch.equal(result, same), "the case declares other strides than those of the view"
    return {"OUT_0": result.numpy()}
