"""The table of operation records. A family file owns its records; this one only lists them."""

from __future__ import annotations

from ..op import Op
from . import conv, matmul, norm, pointwise, reduction, sdpa, sdpa_backward, shape

_FAMILIES = (pointwise, matmul, reduction, shape, conv, norm, sdpa, sdpa_backward)

OPS: dict[str, Op] = {op.name: op for family in _FAMILIES for op in family.OPS}


def find(name: str) -> Op:
    """The record of an operation."""
    return OPS[name]
