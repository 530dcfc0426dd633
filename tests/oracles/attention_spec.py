"""How tests describe one attention call, and where they put its tensors.

Owns memory layouts and poisoning: every byte that is no live element is 0xFF first (NaN in every float type),
gaps of strides and rows behind the lengths included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import frazil
from frazil.dtypes import cast, from_any, numpy_dtype
from tests.harness import POISON

from . import attention as oracle

DataType = frazil.data_type
FLOAT, DOUBLE, HALF, BF16 = DataType.FLOAT, DataType.DOUBLE, DataType.HALF, DataType.BFLOAT16
INT32, INT64 = DataType.INT32, DataType.INT64
UINT8, BOOLEAN = DataType.UINT8, DataType.BOOLEAN
TOP_LEFT, BOTTOM_RIGHT = frazil.diagonal_alignment.TOP_LEFT, frazil.diagonal_alignment.BOTTOM_RIGHT


@dataclass(frozen=True)
class Spec:
    """One attention call.

    Attributes
    ----------
    heads
        Of Q, K and V.
    rows, keys
        Declared S_q and S_kv.
    width
        D_qk and D_v.
    layout
        By tensor ("q", "k", "v", "o", "stats", "dO", "dQ", "dK", "dV", "bias"); see `_strides`. "packed",
        "packed_gaps" and "packed_wide" make a tensor ragged; "stats" may be "packed_heads" (head-major).
    lengths_q, lengths_kv
        Per entry, with `use_padding_mask`.
    page
        Page size, for paged K and V.
    window
        Builder arguments for masks: use_causal_mask, sliding_window_length, diagonal_alignment and so on.
    bias
        Extents of the bias relative to (B, H, S_q, S_kv).
    dropout
        Probability for generated bits, or ("mask", scale) for a mask tensor.
    tiles
        Block mask: 8-bit patterns, (B, H, tile rows, bytes).
    offsets, multiplied, totals
        Type of ragged offsets; whether they count rows (with a multiplier) or elements; whether
        max_total_seq_len is given.
    cumulative
        Lengths are given as cu_seq_len.
    score_mod
        (builder callback, builder callback of the gradient, oracle callback).
    """

    batch: int = 2
    heads: tuple[int, int, int] = (2, 2, 2)
    rows: int = 5
    keys: int = 7
    width: tuple[int, int] = (8, 8)
    dtype: DataType = FLOAT
    compute: DataType = FLOAT
    layout: dict[str, str] = field(default_factory=dict)
    lengths_q: tuple[int, ...] | None = None
    lengths_kv: tuple[int, ...] | None = None
    page: int | None = None
    scale: float | None = 0.4
    scale_tensor: bool = False
    window: dict[str, Any] = field(default_factory=dict)
    alibi: bool = False
    bias: tuple[int, int, int, int] | None = None
    sink: bool = False
    dropout: float | tuple[str, float] | None = None
    tiles: Any = None
    score_mod: tuple[Callable[..., Any], Callable[..., Any] | None, Callable[..., Any]] | None = None
    extras: bool = False
    stats: bool = True
    offsets: DataType = INT32
    multiplied: bool = True
    totals: bool = False
    cumulative: bool = False
    seed: int = 0

    @property
    def live_q(self) -> list[int]:
        """Rows that count, per entry: lengths outside 0..S_q are clamped."""
        return [self.rows] * self.batch if self.lengths_q is None else _clamped(self.lengths_q, self.rows)

    @property
    def live_kv(self) -> list[int]:
        """Keys that count, per entry."""
        return [self.keys] * self.batch if self.lengths_kv is None else _clamped(self.lengths_kv, self.keys)

    def options(self) -> oracle.Options:
        """The oracle's view of scale and masks."""
        w = self.window
        bottom = w.get("diagonal_alignment") == BOTTOM_RIGHT or w.get("use_causal_mask_bottom_right", False)
        causal = w.get("use_causal_mask", False) or w.get("use_causal_mask_bottom_right", False)
        keep_scale = 1.0
        if isinstance(self.dropout, tuple):
            keep_scale = self.dropout[1]
        elif self.dropout is not None:
            keep_scale = 1.0 / (1.0 - self.dropout)
        scale = 1.0 if self.scale is None else self.scale
        return oracle.Options(
            scale=float(np.float32(scale)) if self.scale_tensor else scale,
            bottom_right=bottom,
            left=w.get("sliding_window_length", w.get("diagonal_band_left_bound")),
            right=0 if causal else w.get("diagonal_band_right_bound"),
            alibi=self.alibi,
            keep_scale=keep_scale,
            score_mod=self.score_mod[2] if self.score_mod else None,
        )


@dataclass
class Placed:
    """A tensor in poisoned memory: `flat` is all of it; element (b, h, s, d) of a dense tensor is `view[b, h,
    s, d]`.

    A packed tensor has `starts`, the first element of each entry relative to `offset`, and no view.
    """

    dim: tuple[int, ...]
    stride: tuple[int, ...]
    flat: np.ndarray
    offset: int = 0
    starts: list[int] | None = None

    @property
    def view(self) -> np.ndarray:
        """The dense tensor."""
        size = self.flat.itemsize
        if 0 in self.dim:
            return np.empty(self.dim, self.flat.dtype)
        strides = tuple(s * size for s in self.stride)
        return np.lib.stride_tricks.as_strided(self.flat[self.offset :], self.dim, strides)

    @property
    def bound(self) -> np.ndarray:
        """What goes into the variant pack."""
        return self.view if self.starts is None else self.flat[self.offset :]

    def entry(self, b: int, length: int) -> np.ndarray:
        """Element numbers in `flat` of the first rows of an entry, (H, length, D)."""
        first = self.offset + (b * self.stride[0] if self.starts is None else self.starts[b])
        return oracle.packed_index(first, self.dim[1], length, self.dim[3], self.stride)

    def rows(self, lengths: Sequence[int]) -> list[torch.Tensor]:
        """Live rows per entry, float64."""
        return [oracle.double(self.flat[self.entry(b, n)]) for b, n in enumerate(lengths)]


def place(spec: Spec, name: str, dim: tuple[int, ...], dtype: DataType) -> Placed:
    """Poisoned memory for a tensor in the layout that the description names for it."""
    layout = spec.layout.get(name, "bhsd")
    _, h, s, d = dim
    if not layout.startswith("packed"):
        stride, offset = _strides(dim, layout)
        total = offset + (0 if 0 in dim else 1 + sum((n - 1) * t for n, t in zip(dim, stride, strict=True)))
        return Placed(dim, stride, poison(total + 5, dtype), offset)
    lengths = spec.live_kv if name in ("k", "v", "dK", "dV") else spec.live_q
    gap = 2 if layout == "packed_gaps" else 0
    tokens = [0]
    for length in lengths:
        tokens.append(tokens[-1] + length + gap)
    if layout == "packed_heads":
        total = tokens[-1] + 1
        stride = (s, total, 1, 1)
        return Placed(dim, stride, poison(h * total, dtype), 0, tokens)
    step, offset = (3 * h * d, h * d) if layout == "packed_wide" else (h * d, 0)
    stride = (s * step, d, step, 1)
    flat = poison(offset + tokens[-1] * step + 3, dtype)
    return Placed(dim, stride, flat, offset, [n * step for n in tokens])


def _strides(dim: tuple[int, ...], layout: str) -> tuple[tuple[int, ...], int]:
    """Strides of a dense (B, H, S, D) tensor, and elements in front of it."""
    b, h, s, d = dim
    return {
        "bhsd": ((h * s * d, s * d, d, 1), 0),
        "bshd": ((h * s * d, d, h * d, 1), 0),
        "sbhd": ((h * d, d, b * h * d, 1), 0),
        "wide": (((h + 1) * (s + 2) * (d + 8), (s + 2) * (d + 8), d + 8, 1), 8),
        "interleaved": ((s * 3 * h * d, d, 3 * h * d, 1), h * d),
        "one_batch": ((0, s * d, d, 1), 0),
        "one_head": ((s * d, 0, d, 1), 0),
    }[layout]


def _clamped(lengths: Sequence[int], most: int) -> list[int]:
    return [min(max(n, 0), most) for n in lengths]


def poison(count: int, dtype: DataType) -> np.ndarray:
    kind = numpy_dtype(dtype)
    return np.full(count * kind.itemsize, POISON, np.uint8).view(kind)


def write(placed: Placed, number: int, rows: torch.Tensor) -> None:
    """Write the first rows of an entry, rounded."""
    dtype = from_any(placed.flat.dtype)
    placed.flat[placed.entry(number, rows.shape[1])] = cast(rows.numpy(), dtype)
