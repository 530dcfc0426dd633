"""The oracle for the cases of the attention records: what tests/harness.py binds, as entries and options, and
back.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch

from frazil.dtypes import cast, from_any
from frazil.enums import diagonal_alignment
from frazil.op import Arg
from frazil.ops import philox
from tests.harness import Setup

from . import attention as oracle

Expected = dict[str, np.ndarray]

_LEFT = ("sliding_window_length", "diagonal_band_left_bound", "sliding_window", "left_bound")
_RIGHT = ("diagonal_band_right_bound", "right_bound")
# Statistics of this size and above have lost ln(number of keys) in float32, and with it what a backward
# needs.
_TOO_LARGE = 2.0**20


def lengths(setup: Setup, name: str) -> list[int]:
    """Live rows of q, or keys of k: from seq_len, cumulative lengths, ragged offsets, or the extent, in this
    order.
    """
    arg: Arg = setup.case.args[name]
    side = "q" if name == "q" else "kv"
    batch = setup.case.args["q"].dim[0]
    most = setup.case.args.get("paged_attention_max_seq_len_kv") if name != "q" else None
    most = arg.dim[2] if most is None else most
    if f"seq_len_{side}" in setup.arrays:
        found = setup.arrays[f"seq_len_{side}"].reshape(-1).tolist()
    elif f"cu_seq_len_{side}" in setup.arrays:
        found = np.diff(setup.arrays[f"cu_seq_len_{side}"].reshape(-1)).tolist()
    elif arg.ragged is not None:
        assert arg.stride is not None
        found = (np.diff(_starts(setup, name, arg)) // arg.stride[2]).tolist()
    else:
        found = [most] * batch
    return [min(max(int(n), 0), most) for n in found]


def rows(setup: Setup, name: str, counts: list[int]) -> list[torch.Tensor]:
    """Live rows per entry of an operand."""
    arg: Arg = setup.case.args[name]
    table = f"paged_attention_{name}_table"
    if table in setup.arrays:
        return oracle.rows_of_pages(setup.arrays[name], _table(setup, table), counts)
    if arg.ragged is None:
        return oracle.rows_of_dense(setup.arrays[name], counts)
    assert arg.stride is not None
    starts = _starts(setup, name, arg).tolist()
    return oracle.rows_of_packed(setup.arrays[name], starts, counts, arg.dim, arg.stride)


def entries(setup: Setup) -> tuple[list[oracle.Entry], oracle.Options]:
    """The entries and options of a case."""
    args = setup.case.args
    of_q, of_kv = lengths(setup, "q"), lengths(setup, "k")
    parts = zip(*(rows(setup, n, c) for n, c in (("q", of_q), ("k", of_kv), ("v", of_kv))), strict=True)
    found = [oracle.Entry(*p) for p in parts]
    batch, heads, s_q = args["q"].dim[:3]
    s_kv = args.get("paged_attention_max_seq_len_kv") or args["k"].dim[2]
    keep_scale = 1.0
    full: dict[str, np.ndarray] = {}
    if "bias" in setup.arrays:
        full["bias"] = setup.arrays["bias"]
    if "dropout" in args and isinstance(args["dropout"][0], float):
        full["keep"] = _kept(setup)
        keep_scale = 1.0 / (1.0 - args["dropout"][0])
    elif "dropout" in args:
        full["keep"] = setup.arrays["dropout[0]"]
        keep_scale = float(setup.arrays["dropout[1]"].item())
    for name, array in full.items():
        wide = np.broadcast_to(np.asarray(array, np.float64), (batch, heads, s_q, s_kv))
        for b, entry in enumerate(found):
            setattr(entry, name, oracle.double(wide[b, :, : of_q[b], : of_kv[b]]))
    for b, entry in enumerate(found):
        if "sink_token" in setup.arrays:
            entry.sink = oracle.double(setup.arrays["sink_token"].reshape(-1))
        if "block_mask" in setup.arrays:
            entry.tiles = oracle.tiles_of_bits(setup.arrays["block_mask"][b])
    return found, _options(setup, keep_scale)


def sdpa(setup: Setup) -> Expected:
    """Every output of a forward case."""
    found, options = entries(setup)
    results = oracle.attention(found, options)
    base = math.log(2) if setup.case.args.get("stats_use_log2") else 1.0
    parts = {
        "O": [r.o for r in results],
        "Stats": [r.lse[..., None] / base for r in results],
        "score_max": [r.maximum[..., None] for r in results],
        "score_sum_exp": [r.total[..., None] for r in results],
    }
    expected = {p: _whole(setup, p, parts[p]) for p in setup.results if p in parts}
    return expected | _dump(setup)


def store_forward(setup: Setup) -> None:
    """Put the forward's own O and Stats, rounded, where a backward case has random ones.

    dO becomes 0 on rows whose statistics are too large to say anything (all logits near the lowest finite
    number).
    """
    found, options = entries(setup)
    results = oracle.attention(found, options)
    lost = [r.lse.isfinite() & (r.lse.abs() >= _TOO_LARGE) for r in results]
    d_o = [
        torch.where(dead[..., None], 0.0, part)
        for dead, part in zip(lost, rows(setup, "dO", lengths(setup, "q")), strict=True)
    ]
    stored = {"o": [r.o for r in results], "stats": [r.lse[..., None] for r in results], "dO": d_o}
    for name, parts in stored.items():
        array, arg = setup.arrays[name], setup.case.args[name]
        for b, part in enumerate(parts):
            rounded = cast(part.numpy(), from_any(array.dtype))
            if arg.ragged is None:
                array[b, :, : part.shape[1]] = rounded
            else:
                array[_index(setup, name, arg, b, part)] = rounded


def floors(setup: Setup) -> dict[str, float]:
    """The size of what cancels in each gradient; see `oracle.noise`."""
    found, options = entries(setup)
    counts = lengths(setup, "q")
    d_o = rows(setup, "dO", counts)
    size = oracle.noise(found, options, d_o)
    each = oracle.gradients(found, options, d_o, rows(setup, "o", counts)).bias
    return {
        "dQ": size.d_logit * size.k,
        "dK": size.d_logit * size.q,
        "dBias": 20 * sum(float(part.abs().sum()) for part in each),
        "dSink_token": sum(counts) * size.d_logit,
    }


def sdpa_backward(setup: Setup) -> Expected:
    """Every output of a backward case that `store_forward` prepared."""
    found, options = entries(setup)
    counts = lengths(setup, "q")
    grads = oracle.gradients(found, options, rows(setup, "dO", counts), rows(setup, "o", counts))
    parts = {"dQ": grads.q, "dK": grads.k, "dV": grads.v}
    expected = {p: _whole(setup, p, parts[p]) for p in setup.results if p in parts}
    if "dBias" in setup.results:
        (b, h, s_q), s_kv = setup.case.args["q"].dim[:3], setup.case.args["k"].dim[2]
        total = torch.zeros(b, h, s_q, s_kv, dtype=torch.float64)
        for i, part in enumerate(grads.bias):
            total[i, :, : part.shape[1], : part.shape[2]] = part
        for axis, extent in enumerate(setup.case.args["bias"].dim):
            total = total.sum(axis, keepdim=True) if extent == 1 else total
        expected["dBias"] = total.numpy()
    if "dSink_token" in setup.results:
        expected["dSink_token"] = torch.stack(grads.sink).sum(0).reshape(1, -1, 1, 1).numpy()
    return expected | _dump(setup)


def _kept(setup: Setup) -> np.ndarray:
    """What generated dropout keeps, (B, H, S_q, S_kv)."""
    args = setup.case.args
    seed, offset = (int(setup.arrays[f"dropout[{i}]"].item()) for i in (1, 2))
    s_kv = args.get("paged_attention_max_seq_len_kv") or args["k"].dim[2]
    return np.asarray(philox.keep(np, seed, offset, *args["q"].dim[:3], s_kv, args["dropout"][0]))


def _dump(setup: Setup) -> Expected:
    return {"rng_dump": _kept(setup).astype(np.float64)} if "rng_dump" in setup.results else {}


def _options(setup: Setup, keep_scale: float) -> oracle.Options:
    args = setup.case.args
    scale: Any = args.get("attn_scale", 1.0)
    bottom = args.get("use_causal_mask_bottom_right", False)
    left = [args[n] for n in _LEFT if n in args]
    right = [args[n] for n in _RIGHT if n in args]
    causal = bottom or args.get("use_causal_mask", False)
    return oracle.Options(
        scale=float(setup.arrays["attn_scale"].item()) if isinstance(scale, Arg) else scale,
        bottom_right=bottom or args.get("diagonal_alignment") is diagonal_alignment.BOTTOM_RIGHT,
        left=left[0] if left else None,
        right=0 if causal else right[0] if right else None,
        alibi=args.get("use_alibi_mask", False),
        keep_scale=keep_scale,
    )


def _table(setup: Setup, name: str) -> np.ndarray:
    """A page table (B, 1, blocks, 1); a packed one with 0 behind what it holds of each entry."""
    arg: Arg = setup.case.args[name]
    if arg.ragged is None:
        return setup.arrays[name]
    starts = _starts(setup, name, arg).tolist()
    table = np.zeros(arg.dim, np.int64)
    for b, (first, end) in enumerate(itertools.pairwise(starts)):
        held = setup.arrays[name][first:end][: arg.dim[2]]
        table[b, 0, : len(held), 0] = held
    return table


def _starts(setup: Setup, name: str, arg: Arg) -> np.ndarray:
    return setup.arrays[f"{name}.ragged"].reshape(-1).astype(np.int64) * arg.multiplier


def _index(setup: Setup, name: str, arg: Arg, b: int, part: torch.Tensor) -> np.ndarray:
    assert arg.stride is not None
    start = int(_starts(setup, name, arg)[b])
    return oracle.packed_index(start, part.shape[0], part.shape[1], part.shape[2], arg.stride)


def _whole(setup: Setup, port: str, parts: list[torch.Tensor]) -> np.ndarray:
    """An output from its live rows: a packed one with poison elsewhere, a dense one with what padding
    gets.
    """
    arg = setup.case.outputs.get(port, setup.case.args.get(port))
    result = setup.results[port]
    if arg is None or arg.ragged is None:
        return oracle.to_dense(parts, result.shape, -math.inf if port in ("Stats", "score_max") else 0.0)
    expected = np.full(result.shape, np.nan)
    for b, part in enumerate(parts):
        expected[_index(setup, port, arg, b, part)] = part.numpy()
    return expected
