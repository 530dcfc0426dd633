"""Pointwise operations, matmul and reductions in torch float64: the forward by torch's own functions, the
backward by autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from frazil import reduction_mode
from tests.harness import Setup

Tensor = torch.Tensor


def double(array: Any) -> Tensor:
    """A NumPy array of any element type in float64."""
    return torch.from_numpy(np.array(array, np.float64))


def _relu(
    x: Tensor, negative_slope: float | None = None, lower_clip: float | None = None, upper_clip: Any = None
) -> Tensor:
    lower = 0.0 if lower_clip is None else lower_clip
    below = lower + (negative_slope or 0.0) * (x - lower)
    upper = torch.full_like(x, float("inf") if upper_clip is None else upper_clip)
    return torch.where(x > lower, torch.minimum(x, upper), below)


def _swish(x: Tensor, swish_beta: float | None = None) -> Tensor:
    return x * torch.sigmoid((1.0 if swish_beta is None else swish_beta) * x)


UNARY: dict[str, Callable[..., Tensor]] = {
    **{
        n: getattr(torch, n)
        for n in ("abs", "ceil", "cos", "erf", "exp", "floor", "log", "neg", "reciprocal")
    },
    **{n: getattr(torch, n) for n in ("rsqrt", "sigmoid", "sin", "sqrt", "tan", "tanh")},
    "elu": F.elu,
    "gelu": F.gelu,
    "gelu_approx_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "identity": lambda x: x,
    "logical_not": lambda x: torch.logical_not(x).double(),
    "softplus": lambda x: torch.logaddexp(x, torch.zeros(())),
    "relu": _relu,
    "leaky_relu": lambda x, negative_slope: F.leaky_relu(x, negative_slope),
    "swish": _swish,
}
BINARY: dict[str, Callable[..., Tensor]] = {
    **{n: getattr(torch, n) for n in ("add", "div", "mul", "sub", "pow")},
    "add_square": lambda a, b: a + b**2,
    "max": torch.maximum,
    "min": torch.minimum,
    "mod": torch.fmod,
    "bias": torch.add,
    "scale": torch.mul,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "cmp_eq": torch.eq,
    "cmp_neq": torch.ne,
    "cmp_gt": torch.gt,
    "cmp_ge": torch.ge,
    "cmp_lt": torch.lt,
    "cmp_le": torch.le,
    "binary_select": lambda x, y, m: torch.where(m != 0, x, y),
}


def pointwise(made: Setup) -> dict[str, np.ndarray]:
    """Result of a pointwise operation."""
    name = made.op.name
    args = made.args()
    tensors = [double(args[p.name]) for p in made.op.inputs]
    attrs = {a.name: args[a.name] for a in made.op.attrs if a.name in args}
    if name == "gen_index":
        index = torch.arange(tensors[0].shape[attrs["axis"]], dtype=torch.float64)
        shape = [-1 if a == attrs["axis"] else 1 for a in range(tensors[0].ndim)]
        result = index.reshape(shape).expand(tensors[0].shape)
    elif name.endswith("_backward"):
        loss, x = (t.clone() for t in torch.broadcast_tensors(*tensors))
        x.requires_grad_()
        (result,) = torch.autograd.grad(UNARY[name.removesuffix("_backward")](x, **attrs), x, loss)
    else:
        result = (UNARY.get(name) or BINARY[name])(*tensors, **attrs)
    return {"OUT_0": result.double().detach().numpy()}


def matmul(made: Setup) -> dict[str, np.ndarray]:
    """Result of a matrix product."""
    return {"C": (double(made.args()["A"]) @ double(made.args()["B"])).numpy()}


_REDUCE: dict[reduction_mode, Callable[[Tensor], Tensor]] = {
    reduction_mode.ADD: lambda rows: rows.sum(-1),
    reduction_mode.MUL: lambda rows: rows.prod(-1),
    reduction_mode.MIN: lambda rows: rows.amin(-1),
    reduction_mode.MAX: lambda rows: rows.amax(-1),
    reduction_mode.AMAX: lambda rows: rows.abs().amax(-1),
    reduction_mode.AVG: lambda rows: rows.mean(-1),
    reduction_mode.NORM1: lambda rows: torch.linalg.vector_norm(rows, 1, dim=-1),
    reduction_mode.NORM2: lambda rows: torch.linalg.vector_norm(rows, 2, dim=-1),
    reduction_mode.MUL_NO_ZEROS: lambda rows: torch.where(rows == 0, 1.0, rows).prod(-1),
}


def reduction(made: Setup) -> dict[str, np.ndarray]:
    """Result of a reduction: the reduced axes moved last and flattened."""
    x = double(made.args()["input"])
    dim = made.outputs["OUT_0"].dim
    reduced = [a for a in range(x.ndim) if dim[a] == 1 and x.shape[a] != 1]
    kept = [a for a in range(x.ndim) if a not in reduced]
    count = int(np.prod([x.shape[a] for a in reduced]))
    rows = x.permute(*kept, *reduced).reshape(*[x.shape[a] for a in kept], count)
    return {"OUT_0": _REDUCE[made.case.args["mode"]](rows).reshape(dim).numpy()}
