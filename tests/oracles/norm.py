"""Layer norm and RMS norm in torch float64, gradients by autograd through the given statistics' own
formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.harness import Setup

from .basic import double


def _axes(dim: Any, marker: Any) -> list[int]:
    return [a for a in range(len(dim)) if marker[a] == 1 and dim[a] != 1]


def forward(made: Setup) -> dict[str, np.ndarray]:
    """Y and the statistics."""
    args = made.args()
    x = double(args["input"])
    parameter = args["scale"] if args["scale"] is not None else args["bias"]
    axes = (
        [a for a, d in enumerate(parameter.shape) if d != 1] if parameter is not None else [*range(1, x.ndim)]
    )
    epsilon = double(args["epsilon"]).reshape(())
    if made.op.name == "layernorm":
        mean = x.mean(axes, keepdim=True) if axes else x
        variance = ((x - mean) ** 2).mean(axes, keepdim=True) if axes else x * 0
    else:
        mean = torch.zeros((), dtype=torch.float64)
        variance = (x * x).mean(axes, keepdim=True) if axes else x * x
    inverse = torch.rsqrt(variance + epsilon)
    y = (x - mean) * inverse
    y = y * double(args["scale"]) if args["scale"] is not None else y
    y = y + double(args["bias"]) if args["bias"] is not None else y
    return {"Y": y.numpy(), "mean": mean.numpy(), "inv_var": inverse.numpy()}


def backward(made: Setup) -> dict[str, np.ndarray]:
    """Gradients for arbitrary saved statistics, written out: what they are for true ones is checked against
    autograd.
    """
    args = made.args()
    x, grad, inverse = (double(args[n]) for n in ("input", "grad", "inv_variance"))
    axes = _axes(x.shape, inverse.shape)
    others = [a for a in range(x.ndim) if a not in axes]
    mean = double(args["mean"]) if "mean" in args else torch.zeros((), dtype=torch.float64)
    normal = (x - mean) * inverse
    inner = grad * double(args["scale"]) if args["scale"] is not None else grad
    count = int(np.prod([x.shape[a] for a in axes]))
    dx = (
        inner - normal * (inner * normal).sum(axes, keepdim=True) / count
        if axes
        else inner - normal * inner * normal
    )
    if "mean" in args:
        dx = dx - (inner.sum(axes, keepdim=True) / count if axes else inner)
    keep = {"keepdim": True}
    return {
        "DX": (dx * inverse).numpy(),
        "DScale": ((grad * normal).sum(others, **keep) if others else grad * normal).numpy(),
        "DBias": (grad.sum(others, **keep) if others else grad).numpy(),
    }
