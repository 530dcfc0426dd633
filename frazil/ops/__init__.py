"""The table of operation records. A family file owns its records; this one only lists them."""

from __future__ import annotations

from ..op import Op
from . import conv, matmul, pointwise, reduction, sdpa, sdpa_backward

OPS: dict[str, Op] = {
    op.name: op for family in (pointwise, matmul, reduction, conv, sdpa, sdpa_backward) for op in family.OPS
}


def find(name: str) -> Op:
    """The record of an operation."""
    return OPS[name]
