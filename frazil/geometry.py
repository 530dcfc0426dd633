"""Arithmetic of extents and strides, in elements. Knows no tensor and no memory."""

from __future__ import annotations

from collections.abc import Sequence


def row_major(dim: Sequence[int]) -> tuple[int, ...]:
    """Strides of a compact row-major tensor; an axis of extent 0 counts as 1."""
    strides, step = [], 1
    for extent in reversed(tuple(dim)):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


def span(dim: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to behind the last one in memory; 0 where an extent is 0."""
    if 0 in dim:
        return 0
    return 1 + sum((d - 1) * s for d, s in zip(dim, stride, strict=True))


def is_nested(dim: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether each axis steps over all that the axes inside it cover, so that no two elements share an
    address.
    """
    reach = 0
    for step, extent in sorted((s, d) for d, s in zip(dim, stride, strict=True) if d > 1):
        if step <= reach:
            return 0 in dim
        reach += step * (extent - 1)
    return True
