"""Which keys a query row sees: band, lengths and block mask as one value.

Position p of row i on the diagonal is i (top left), or i + len_kv - len_q with the batch entry's own lengths
(bottom right). A right bound r keeps keys j <= p + r. A left bound w keeps keys j > p - w: a window of w keys
that ends with the diagonal one. Bounds are legal alone or together, with or without a causal flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..enums import diagonal_alignment
from ..op import Attrs

TILE = 128  # rows and keys of a tile; one bit of the block mask stands for one tile


@dataclass(frozen=True, slots=True)
class Band:
    """Alignment and bounds of a banded mask."""

    alignment: diagonal_alignment
    left: int | None
    right: int | None

    @staticmethod
    def of(attrs: Attrs) -> Band:
        """The band that an attention node's attributes describe."""
        return Band(attrs.alignment, attrs.left_bound, attrs.right_bound)

    @property
    def is_causal(self) -> bool:
        """Whether the diagonal is the last key that a row sees."""
        return self.right == 0

    def visible(self, xp: ModuleType, s_q: int, s_kv: int, len_q: Any, len_kv: Any) -> Any:
        """Keys within the band and both lengths, as bool (B, 1, Sq, Skv).

        Parameters
        ----------
        len_q, len_kv
            Live rows and keys of each batch entry, (B).
        """
        len_q, len_kv = len_q.reshape(-1, 1, 1, 1), len_kv.reshape(-1, 1, 1, 1)
        row, key = xp.arange(s_q).reshape(1, 1, -1, 1), xp.arange(s_kv).reshape(1, 1, 1, -1)
        seen = (row < len_q) & (key < len_kv)
        position = row + (len_kv - len_q) if self.alignment is diagonal_alignment.BOTTOM_RIGHT else row
        # A bound beyond every distance hides nothing; held there, it cannot overflow the positions.
        reach = s_q + s_kv
        if self.right is not None:
            seen = seen & (key <= position + min(self.right, reach))
        if self.left is not None:
            seen = seen & (key > position - min(self.left, reach))
        return seen


def block_visible(xp: ModuleType, mask: Any, s_q: int, s_kv: int) -> Any:
    """Keys in the tiles that a block mask keeps, as bool (B, H, Sq, Skv).

    Parameters
    ----------
    mask
        uint8 (B, H, ceil(Sq / 128), ceil(ceil(Skv / 128) / 8)): bit i of byte c, from the lowest, stands for
        tile 8 c + i.
    """
    bits = (mask[..., None] >> xp.arange(8, dtype=mask.dtype)) & 1
    tiles = bits.reshape(*mask.shape[:3], mask.shape[3] * 8) != 0
    return tiles[:, :, xp.arange(s_q) // TILE][..., xp.arange(s_kv) // TILE]


def alibi_slopes(xp: ModuleType, heads: int) -> Any:
    """Slope of each head (O. Press et al., "Train short, test long", ICLR 2022).

    With n the largest power of two within `heads`, head h < n has 2^(-8 (h + 1) / n); the others take every
    second slope of the sequence for 2 n heads, from its first.
    """
    n = 1 << max(0, heads.bit_length() - 1)
    head = xp.arange(heads)
    return 2.0 ** xp.where(head < n, -8.0 * (head + 1) / n, -4.0 * (2 * (head - n) + 1) / n)
