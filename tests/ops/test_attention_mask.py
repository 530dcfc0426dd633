"""Which keys a row sees, against the definition spelled out place by place."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from frazil.enums import diagonal_alignment
from frazil.ops.attention_mask import Band, alibi_slopes, block_visible

TOP, BOTTOM = diagonal_alignment.TOP_LEFT, diagonal_alignment.BOTTOM_RIGHT


@pytest.mark.parametrize("alignment", [TOP, BOTTOM])
@pytest.mark.parametrize(("left", "right"), [*itertools.product((None, 1, 3), (None, 0, 2))])
def test_band(alignment: diagonal_alignment, left: int | None, right: int | None) -> None:
    len_q, len_kv = np.array([6, 4, 0, 6, 2]), np.array([9, 5, 3, 2, 0])
    seen = Band(alignment, left, right).visible(np, 6, 9, len_q, len_kv)
    assert seen.shape == (5, 1, 6, 9)
    for b, i, j in np.ndindex(5, 6, 9):
        p = i if alignment is TOP else i + len_kv[b] - len_q[b]
        expected = i < len_q[b] and j < len_kv[b]
        expected &= left is None or j > p - left
        expected &= right is None or j <= p + right
        assert seen[b, 0, i, j] == expected, (b, i, j)


@pytest.mark.parametrize("alignment", [TOP, BOTTOM])
@pytest.mark.parametrize("bound", [100, 2**31 - 1, 2**63 - 1, 2**80])
def test_bound_beyond_every_distance_hides_nothing(alignment: diagonal_alignment, bound: int) -> None:
    lengths = np.array([4]), np.array([7])
    assert Band(alignment, bound, bound).visible(np, 4, 7, *lengths).all()


def test_window_of_w_has_w_keys() -> None:
    seen = Band(TOP, 3, 0).visible(np, 6, 6, np.array([6]), np.array([6]))[0, 0]
    assert seen.sum(axis=1).tolist() == [1, 2, 3, 3, 3, 3]


def test_block_mask_bits() -> None:
    """Bit i of byte c, from the lowest, is tile 8 c + i; a tile is 128 rows of 128 keys."""
    mask = np.array([[[[0b101, 0b1], [0, 0b10]]]], np.uint8)
    seen = block_visible(np, mask, 200, 10 * 128 - 5)
    assert seen.shape == (1, 1, 200, 1275)
    tiles = [np.flatnonzero(seen[0, 0, row, ::128]).tolist() for row in (0, 127, 128, 199)]
    assert tiles == [[0, 2, 8], [0, 2, 8], [9], [9]]
    assert seen[0, 0, 0, 128 * 3 - 1] and not seen[0, 0, 0, 128 * 3]


def test_slopes() -> None:
    assert alibi_slopes(np, 8).tolist() == [2.0**-n for n in range(1, 9)]
    # 12 heads: those of 8, then every second of those of 16.
    expected = [2.0**-n for n in range(1, 9)] + [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]
    assert np.allclose(alibi_slopes(np, 12), expected, rtol=1e-15)
    assert alibi_slopes(np, 1).tolist() == [2.0**-8]
    assert alibi_slopes(np, 0).tolist() == []
