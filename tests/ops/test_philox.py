"""The dropout stream: Philox itself, and the place of each word."""

from __future__ import annotations

import numpy as np
import pytest

from frazil.ops import philox

# Random123's known answers for philox4x32-10 (file kat_vectors): counter, key, result.
_ONES = 0xFFFFFFFF
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((_ONES,) * 4, (_ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], words: tuple[int, ...]
) -> None:
    assert tuple(int(w) for w in philox.philox(np, counter, key)) == words


def test_counters_broadcast() -> None:
    """Arrays of counters give at each place what that place's counter gives alone."""
    rows, columns = np.arange(3)[:, None], np.arange(5)
    words = philox.philox(np, (columns, rows, np.uint64(7), np.uint64(9)), (11, 13))
    for row, column in ((0, 0), (2, 4), (1, 3)):
        alone = philox.philox(np, (column, row, 7, 9), (11, 13))
        assert [int(np.broadcast_to(w, (3, 5))[row, column]) for w in words] == [int(w) for w in alone]


SEED, OFFSET = 0x1234_5678_9ABC_DEF0, 0x0FED_CBA9_8765_4321


@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 2, 3, 4), (1, 0, 6, 9), (0, 1, 5, 7)])
@pytest.mark.parametrize(
    ("seed", "offset"), [(SEED, OFFSET), (-1, 0), (0, -2), (5, 2**32), (2**63 - 1, -(2**63))]
)
def test_layout(place: tuple[int, int, int, int], seed: int, offset: int) -> None:
    """The word of a place, from the documented key and counter."""
    b, h, row, column = place
    key = (seed % 2**32, (seed % 2**64 >> 32) ^ (offset % 2**64 >> 32))
    word = int(philox.philox(np, (column // 4, row, b * 3 + h, offset % 2**32), key)[column % 4])
    for p in (0.1, 0.5, 0.9):
        kept = philox.keep(np, seed, offset, 2, 3, 7, 10, p)
        assert kept.shape == (2, 3, 7, 10) and kept.dtype == bool
        assert kept[place] == (word >= int(p * 2**32)), p


def test_place_alone_decides() -> None:
    """A smaller score matrix drops the same places: packed and padded batches agree."""
    whole = philox.keep(np, SEED, OFFSET, 1, 2, 16, 24, 0.4)
    assert np.array_equal(philox.keep(np, SEED, OFFSET, 1, 2, 5, 7, 0.4), whole[:, :, :5, :7])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.83])
def test_share(p: float) -> None:
    kept = philox.keep(np, SEED, OFFSET, 2, 4, 128, 130, p)
    sigma = (p * (1 - p) / kept.size) ** 0.5
    assert abs((1 - kept.mean()) - p) < 5 * sigma
    # Neighbours along every axis have nothing in common.
    for axis in range(4):
        both = np.take(kept, range(kept.shape[axis] - 1), axis) == np.roll(kept, -1, axis).take(
            range(kept.shape[axis] - 1), axis
        )
        assert abs(both.mean() - (p * p + (1 - p) ** 2)) < 0.02, axis


@pytest.mark.parametrize(("seed", "offset"), [(SEED + 1, OFFSET), (SEED, OFFSET + 1), (SEED, OFFSET + 2**32)])
def test_seed_and_offset_both_count(seed: int, offset: int) -> None:
    one, other = (philox.keep(np, s, o, 1, 2, 64, 64, 0.5) for s, o in ((SEED, OFFSET), (seed, offset)))
    assert 0.45 < (one == other).mean() < 0.55


def test_ends() -> None:
    assert philox.keep(np, SEED, OFFSET, 1, 1, 64, 64, 0.0).all()
    for dims in ((0, 1, 2, 3), (1, 0, 2, 3), (1, 1, 0, 3), (1, 1, 2, 0)):
        assert philox.keep(np, SEED, OFFSET, *dims, 0.5).shape == dims


def test_threshold_itself_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """kept = word >= floor(p * 2^32)."""
    for word, expected in ((2**31, True), (2**31 - 1, False)):
        words = (np.full((1, 1, 1), word, np.uint64),) * 4
        monkeypatch.setattr(philox, "philox", lambda *_, words=words: words)
        assert (philox.keep(np, 0, 0, 1, 1, 1, 4, 0.5) == expected).all()
