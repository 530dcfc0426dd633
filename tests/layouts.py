"""Random memory layouts for fuzz tests."""

from __future__ import annotations

import numpy as np


def layout(rng: np.random.Generator, dim: tuple[int, ...], broadcast: bool = True) -> tuple[int, ...]:
    """Strides of a random kind: permuted, with gaps, with stride 0, with odd strides on axes of extent 1."""
    order = rng.permutation(len(dim))
    strides, step = [0] * len(dim), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, dim[axis]) + int(rng.integers(0, 3))
    for axis, extent in enumerate(dim):
        if extent == 1 and rng.random() < 0.5:
            strides[axis] = int(rng.integers(1, 100))
        elif broadcast and rng.random() < 0.15:
            strides[axis] = 0
    return tuple(strides)
