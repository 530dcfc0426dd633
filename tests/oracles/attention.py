"""Attention in torch float64, one batch entry and one head at a time: the oracle for `sdpa` and
`sdpa_backward`.

Owns the semantics as tests understand them, from cudnn-frontend's own graph construction (order of scale,
score_mod, bias, ALiBi, masks: node/scaled_dot_product_flash_attention.h; ALiBi and band:
utils/attn_score_modifiers.h; sink, block mask, score_max and sum_exp: test/python/sdpa/fp16_ref.py). Knows no
record, graph or buffer layout: callers un-pack and un-page first (`rows_of_packed`, `rows_of_pages`). Slow
and plain on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

TILE = 128  # rows and keys that one bit of a block mask stands for


@dataclass
class Entry:
    """One batch entry: live rows only, all float64. `q` (H, Sq, D), `k` (Hk, Skv, D), `v` (Hv, Skv, Dv).

    Attributes
    ----------
    bias, keep
        (H, Sq, Skv): added to the scaled scores; multiplied into the probabilities (0 or 1 for dropout).
    sink
        (H,): one more logit per row.
    tiles
        (H, ceil(Sq / 128), ceil(Skv / 128)) of bool: which tiles take part.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    bias: torch.Tensor | None = None
    keep: torch.Tensor | None = None
    sink: torch.Tensor | None = None
    tiles: torch.Tensor | None = None


@dataclass(frozen=True)
class Options:
    """What holds for every entry.

    Attributes
    ----------
    left, right
        Key j is visible from row i where p - left < j <= p + right; None is no bound. p is i for top left,
        and i + Skv - Sq, of the entry's own lengths, for bottom right.
    keep_scale
        What kept probabilities are multiplied by: 1 / (1 - p) for dropout.
    score_mod
        From the scaled scores of one head, with row and key indices, to what takes their place:
        `score_mod(scores (Sq, Skv), head, rows (Sq, 1), keys (1, Skv))`.
    """

    scale: float | torch.Tensor = 1.0
    bottom_right: bool = False
    left: int | None = None
    right: int | None = None
    alibi: bool = False
    keep_scale: float = 1.0
    score_mod: Callable[..., torch.Tensor] | None = None


@dataclass
class Rows:
    """Results of one entry: `o` (H, Sq, Dv); `lse`, `maximum`, `total` (H, Sq).

    `maximum` is the largest logit, the sink included, and `total` the sum of exponentials over it; a row that
    sees nothing has -inf and 0, and an `lse` of -inf.
    """

    o: torch.Tensor
    lse: torch.Tensor
    maximum: torch.Tensor
    total: torch.Tensor


def alibi_slopes(heads: int) -> list[float]:
    """Slope per head: 2^(-8 (h + 1) / n), n the largest power of two within `heads`; further heads take the
    odd halves.
    """
    n = 2 ** int(math.log2(heads))
    exponents = [-8.0 * (h + 1) / n for h in range(n)]
    exponents += [-8.0 * (2 * h + 1) * 0.5 / n for h in range(heads - n)]
    return [2.0**e for e in exponents]


def visible_keys(row: int, rows: int, keys: int, options: Options) -> list[bool]:
    """Which keys the band lets a row see."""
    position = row + (keys - rows if options.bottom_right else 0)
    seen = []
    for key in range(keys):
        after = options.left is None or key > position - options.left
        before = options.right is None or key <= position + options.right
        seen.append(after and before)
    return seen


def attend(entry: Entry, options: Options) -> Rows:
    """Attention of one batch entry."""
    heads, rows, keys = entry.q.shape[0], entry.q.shape[1], entry.k.shape[1]
    band = [visible_keys(i, rows, keys, options) for i in range(rows)]
    seen = torch.tensor(band, dtype=torch.bool).reshape(rows, keys)
    if heads == 0:
        return Rows(entry.q.new_zeros(0, rows, entry.v.shape[2]), *entry.q.new_zeros(3, 0, rows))
    outputs = [_head(entry, options, seen, h) for h in range(heads)]
    return Rows(*(torch.stack(parts) for parts in zip(*outputs, strict=True)))


def attention(entries: Sequence[Entry], options: Options) -> list[Rows]:
    """Attention of every batch entry."""
    return [attend(entry, options) for entry in entries]


def _head(entry: Entry, options: Options, seen: torch.Tensor, head: int) -> tuple[torch.Tensor, ...]:
    heads, rows, _ = entry.q.shape
    k = entry.k[head // (heads // entry.k.shape[0])]
    v = entry.v[head // (heads // entry.v.shape[0])]
    keys = k.shape[0]
    row_index = torch.arange(rows).reshape(rows, 1)
    key_index = torch.arange(keys).reshape(1, keys)
    scores = entry.q[head] @ k.T * options.scale
    if options.score_mod is not None:
        scores = options.score_mod(scores, head, row_index, key_index)
    if entry.bias is not None:
        scores = scores + entry.bias[head]
    if options.alibi:
        scores = scores + alibi_slopes(heads)[head] * (key_index - row_index).double()
    if entry.tiles is not None:
        seen = seen & entry.tiles[head][row_index // TILE, key_index // TILE]
    logits = torch.where(seen, scores, -math.inf)
    columns = [logits]
    if entry.sink is not None:
        columns.append(entry.sink[head].expand(rows, 1))
    everything = torch.cat(columns, dim=1)
    if everything.shape[1] == 0:
        everything = torch.full((rows, 1), -math.inf, dtype=torch.float64)
    # The maximum only scales both sides of a quotient: no gradient flows through it.
    maximum = everything.amax(dim=1).detach()
    shift = torch.where(maximum.isinf() & (maximum < 0), 0.0, maximum)
    exponentials = torch.exp(everything - shift[:, None])
    total = exponentials.sum(dim=1)
    nothing = total == 0
    divisor = torch.where(nothing, 1.0, total)
    lse = torch.where(nothing, -math.inf, torch.log(divisor) + shift)
    probabilities = exponentials[:, :keys] / divisor[:, None]
    if entry.keep is not None:
        probabilities = probabilities * entry.keep[head] * options.keep_scale
    return probabilities @ v, lse, maximum, total


@dataclass
class Grads:
    """Gradients, per entry; `bias` (H, Sq, Skv) and `sink` (H,) where they exist."""

    q: list[torch.Tensor] = field(default_factory=list)
    k: list[torch.Tensor] = field(default_factory=list)
    v: list[torch.Tensor] = field(default_factory=list)
    bias: list[torch.Tensor] = field(default_factory=list)
    sink: list[torch.Tensor] = field(default_factory=list)


def gradients(
    entries: Sequence[Entry],
    options: Options,
    d_o: Sequence[torch.Tensor],
    o: Sequence[torch.Tensor] | None = None,
) -> Grads:
    """Gradients of sum(dO * O) by autograd, dO per entry (H, Sq, Dv).

    `o` is the forward output as stored, rounded, from which a backward computes delta = rowsum(dO * O).
    Rounding shifts delta by some e per row, and with it dS by -P e; since dLSE / dS = P, feeding -e as the
    gradient of LSE says exactly that. Gradients then belong to the same rounded inputs as the result under
    test.
    """
    found = Grads()
    for number, entry in enumerate(entries):
        leaf = Entry(
            *(t.detach().clone().requires_grad_() for t in (entry.q, entry.k, entry.v)),
            bias=None if entry.bias is None else entry.bias.detach().clone().requires_grad_(),
            keep=entry.keep,
            sink=None if entry.sink is None else entry.sink.detach().clone().requires_grad_(),
            tiles=entry.tiles,
        )
        rows = attend(leaf, options)
        objective = (d_o[number] * rows.o).sum()
        if o is not None:
            shift = (d_o[number] * (o[number] - rows.o.detach())).sum(dim=2)
            alive = ~rows.lse.detach().isinf()
            objective = objective - (shift[alive] * rows.lse[alive]).sum()
        wanted = {
            n: t for n, t in vars(leaf).items() if n in ("q", "k", "v", "bias", "sink") and t is not None
        }
        values: Sequence[torch.Tensor | None] = [None] * len(wanted)
        if objective.requires_grad:
            values = torch.autograd.grad(objective, list(wanted.values()), allow_unused=True)
        for (name, tensor), value in zip(wanted.items(), values, strict=True):
            getattr(found, name).append(torch.zeros_like(tensor) if value is None else value)
    return found


@dataclass(frozen=True)
class Noise:
    """What rounding in float32 is measured by where sums cancel: sizes of results if every term had one sign.

    Attributes
    ----------
    logit
        Largest sum |q| |k| |scale|, bias included.
    d_logit
        Largest sum |dO| |v|: what dS is a difference of.
    """

    logit: float
    d_logit: float
    q: float
    k: float


def noise(entries: Sequence[Entry], options: Options, d_o: Sequence[torch.Tensor] | None = None) -> Noise:
    """Sizes for `Noise`; dO is left out for a forward."""
    logit = d_logit = q = k = 0.0
    for b, entry in enumerate(entries):
        heads = entry.q.shape[0]
        if 0 in entry.q.shape or 0 in entry.k.shape:
            continue
        for h in range(heads):
            keys, values = (t[h // (heads // t.shape[0])].abs() for t in (entry.k, entry.v))
            product = entry.q[h].abs() @ keys.T * abs(float(options.scale))
            logit = max(logit, float(product.max()))
            if d_o is not None:
                d_logit = max(d_logit, float((d_o[b][h].abs() @ values.T).max()))
        if entry.bias is not None:
            finite = entry.bias[entry.bias.isfinite()]
            logit = max(logit, float(finite.abs().max())) if finite.numel() else logit
        q, k = max(q, float(entry.q.abs().max())), max(k, float(entry.k.abs().max()))
    return Noise(
        logit,
        d_logit * max(1.0, options.keep_scale),
        q * abs(float(options.scale)),
        k * abs(float(options.scale)),
    )


# Layouts: plain loops from what a caller binds to live rows, and back.


def double(array: np.ndarray) -> torch.Tensor:
    """A NumPy array of any element type as a float64 tensor of its own."""
    return torch.from_numpy(np.array(array, np.float64))


def rows_of_dense(array: np.ndarray, lengths: Sequence[int]) -> list[torch.Tensor]:
    """The live rows (H, S_b, D) of each entry of a (B, H, S, D) array."""
    return [double(array[b, :, : lengths[b]]) for b in range(array.shape[0])]


def packed_index(start: int, heads: int, length: int, width: int, stride: Sequence[int]) -> np.ndarray:
    """Element numbers (heads, length, width) in a flat buffer of one packed entry; `stride` of (B, H, S,
    D).
    """
    h, row, d = np.ogrid[:heads, :length, :width]
    return (start + h * stride[1] + row * stride[2] + d * stride[3]).astype(np.int64)


def rows_of_packed(
    flat: np.ndarray, starts: Sequence[int], lengths: Sequence[int], dim: Sequence[int], stride: Sequence[int]
) -> list[torch.Tensor]:
    """The live rows of each entry of a packed buffer; `starts` in elements, `dim` and `stride` of (B, H, S,
    D).
    """
    return [
        double(flat[packed_index(int(starts[b]), dim[1], lengths[b], dim[3], stride)]) for b in range(dim[0])
    ]


def rows_of_pages(pool: np.ndarray, table: np.ndarray, lengths: Sequence[int]) -> list[torch.Tensor]:
    """The live rows of each entry from a pool (pages, H, page size, D) and a table (B, 1, pages per entry,
    1).
    """
    size = pool.shape[2]
    entries = []
    for b, length in enumerate(lengths):
        rows = [pool[table[b, 0, s // size, 0], :, s % size] for s in range(length)]
        stacked = np.stack(rows, axis=1) if rows else np.zeros((pool.shape[1], 0, pool.shape[3]))
        entries.append(double(stacked))
    return entries


def to_dense(rows: Sequence[torch.Tensor], dim: Sequence[int], fill: float) -> np.ndarray:
    """(B, H, S, D) from live rows, with `fill` behind them."""
    result = np.full(tuple(dim), fill)
    for b, part in enumerate(rows):
        result[b, :, : part.shape[1]] = part.numpy()
    return result


def tiles_of_bits(bits: np.ndarray) -> torch.Tensor:
    """(H, rows of tiles, 8 * bytes) of bool from a block mask (H, rows of tiles, bytes): bit i of byte n is
    tile 8 n + i.
    """
    heads, rows, width = bits.shape
    tiles = torch.zeros(heads, rows, width * 8, dtype=torch.bool)
    for byte in range(width):
        for bit in range(8):
            tiles[:, :, 8 * byte + bit] = torch.from_numpy(
                (bits[:, :, byte].astype(np.int64) >> bit) & 1 == 1
            )
    return tiles


# Dropout bits: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
# 2011).

_MASK = 0xFFFFFFFF


def philox(counter: Sequence[int], key: Sequence[int], rounds: int = 10) -> tuple[int, int, int, int]:
    """Four 32-bit words for one counter (four words) and key (two words), in plain integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = ((second >> 32) ^ c1 ^ k0, second & _MASK, (first >> 32) ^ c3 ^ k1, first & _MASK)
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c0, c1, c2, c3


def dropout_words(seed: int, offset: int, head: int, row: int, group: int) -> tuple[int, int, int, int]:
    """The words that decide four neighbouring keys; `head` counts over batch and heads, `group` is key //
    4.
    """
    seed, offset = seed % 2**64, offset % 2**64
    counter = (group, row, head, offset & _MASK)
    return philox(counter, (seed & _MASK, (seed >> 32) ^ (offset >> 32)))
