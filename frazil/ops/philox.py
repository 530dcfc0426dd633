"""The dropout stream: which probabilities an attention keeps, as a pure function of seed, offset and place.

The generator is Philox 4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
Every engine that serves dropout makes these bits, forward and backward:

    key      = (seed's low word, seed's high word xor offset's high word)
    counter  = (column // 4, row, batch * heads + head, offset's low word)
    word w of the result belongs to column 4 * (column // 4) + w
    kept     = word >= floor(p * 2^32)

The offset has a word of its own: masks of neighbouring offsets have nothing in common. Rows and columns count
within a sequence, so that a packed batch and a padded one drop the same probabilities.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
ROUNDS = 10
COLUMNS = 4  # that one counter serves


def philox(
    xp: ModuleType, counter: tuple[Any, Any, Any, Any], key: tuple[int, int]
) -> tuple[Any, Any, Any, Any]:
    """Four 32-bit words, as uint64 arrays, for counters of four 32-bit words that broadcast against each
    other.
    """
    c0, c1, c2, c3 = (xp.asarray(c, dtype=np.uint64) for c in counter)
    k0, k1 = key
    shift, word = np.uint64(32), np.uint64(_WORD)
    for _ in range(ROUNDS):
        first = c0 * np.uint64(_MULTIPLIERS[0])
        second = c2 * np.uint64(_MULTIPLIERS[1])
        c0, c1, c2, c3 = (
            (second >> shift) ^ c1 ^ np.uint64(k0),
            second & word,
            (first >> shift) ^ c3 ^ np.uint64(k1),
            first & word,
        )
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def keep(xp: ModuleType, seed: int, offset: int, b: int, h: int, s_q: int, s_kv: int, p: float) -> Any:
    """Which probabilities survive dropout.

    Parameters
    ----------
    seed, offset
        64-bit integers; negative ones stand for their two's complement.
    b, h, s_q, s_kv
        Extents of the result.
    p
        Share that is dropped, 0 <= p < 1.

    Returns
    -------
    array of bool, (b, h, s_q, s_kv)
    """
    seed, offset = int(seed) % 2**64, int(offset) % 2**64
    groups = -(-s_kv // COLUMNS)
    column = xp.arange(groups, dtype=np.uint64)
    row = xp.arange(s_q, dtype=np.uint64)
    head = xp.arange(b * h, dtype=np.uint64)
    counter = (column, row[:, None], head[:, None, None], np.uint64(offset & _WORD))
    words = philox(xp, counter, (seed & _WORD, (seed ^ offset) >> 32))
    shape = (b * h, s_q, groups)
    stacked = xp.stack([xp.broadcast_to(w, shape) for w in words], axis=-1)
    kept = stacked.reshape(b, h, s_q, groups * COLUMNS)[..., :s_kv] >= np.uint64(int(p * 2**32))
    return kept
