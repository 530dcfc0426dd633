"""Random attention calls against the oracle, forward and backward.

One seed is one call. A failure prints the line that reruns it; `python -m tests.ops.test_sdpa_fuzz --seed
1000 --count 500` runs more seeds than the test does.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.ops.test_sdpa import softcap
from tests.oracles.attention_calls import check_backward, check_forward
from tests.oracles.attention_spec import BF16, BOTTOM_RIGHT, DOUBLE, FLOAT, HALF, INT32, INT64, Spec

SEEDS = 300  # about 20 s on one core

_DENSE = ("bhsd", "bshd", "sbhd", "wide", "interleaved")
_INPUTS = (*_DENSE, "one_batch", "one_head")
_PACKED = ("packed", "packed_gaps", "packed_wide")
_GRADIENTS = {"dQ": "q", "dK": "k", "dV": "v"}


def describe(seed: int) -> Spec:
    """The call that belongs to a seed."""
    rng = np.random.default_rng(seed)
    kv_heads = [(1, 1), (2, 2), (1, 2), (2, 1)][rng.integers(4)]
    heads = (2 * int(rng.integers(1, 4)), *kv_heads)
    kind = rng.choice(["dense", "padded", "packed", "paged"], p=[0.3, 0.25, 0.3, 0.15])
    batch = int(rng.integers(1, 5))
    rows, keys = (_extent(rng) for _ in range(2))
    dtype = [FLOAT, FLOAT, HALF, BF16, DOUBLE][rng.integers(5)]
    spec = Spec(
        batch=batch,
        heads=heads,
        rows=rows,
        keys=keys,
        width=tuple(int(n) for n in rng.choice([1, 3, 8, 16, 24], 2)),
        dtype=dtype,
        compute=DOUBLE if dtype is DOUBLE else FLOAT,
        scale=[None, 0.0, -0.3, 0.25, 0.25, 1.5][rng.integers(6)],
        scale_tensor=False,
        window=_window(rng),
        seed=seed,
    )
    if spec.scale is None and max(spec.width) > 8:
        spec = replace(spec, scale=0.25)
    if kind != "dense":
        of_q, of_kv = ([_length(rng, most) for _ in range(batch)] for most in (rows, keys))
        cumulative = bool(rng.random() < 0.2)
        spec = replace(spec, lengths_q=tuple(of_q), lengths_kv=tuple(of_kv), cumulative=cumulative)
    spec = replace(spec, layout=_layouts(rng, kind))
    if kind == "packed":
        spec = replace(
            spec,
            offsets=INT64 if rng.random() < 0.5 else INT32,
            multiplied=bool(rng.random() < 0.5),
            totals=bool(rng.random() < 0.3),
        )
    if kind == "paged":
        spec = replace(spec, keys=max(keys, 1), page=int(rng.choice([1, 2, 3, 4, 8, 16, 64])))
    return _features(rng, spec)


def _extent(rng: np.random.Generator) -> int:
    if rng.random() < 0.03:
        return int(rng.choice([0, rng.integers(120, 270)]))
    return int(rng.choice([1, 2, rng.integers(1, 10), rng.integers(1, 40), rng.integers(60, 70)]))


def _length(rng: np.random.Generator, most: int) -> int:
    return int(rng.choice([0, most, rng.integers(0, most + 1), rng.integers(0, most + 1)]))


def _window(rng: np.random.Generator) -> dict[str, Any]:
    """Mask arguments, none in a third of the calls."""
    window: dict[str, Any] = {}
    choice = rng.integers(6)
    if choice == 0:
        window["use_causal_mask"] = True
    elif choice == 1:
        window["use_causal_mask_bottom_right"] = True
    elif choice in (2, 3):
        window["diagonal_band_right_bound"] = int(rng.integers(0, 6))
        if rng.random() < 0.5:
            window["diagonal_alignment"] = BOTTOM_RIGHT
    if choice != 5 and rng.random() < 0.4:
        name = ["sliding_window_length", "diagonal_band_left_bound"][rng.integers(2)]
        window[name] = int(rng.integers(1, 12))
    return window


def _layouts(rng: np.random.Generator, kind: str) -> dict[str, str]:
    layout = {}
    together = rng.random() < 0.7  # else some tensors of a packed call are dense
    for name in ("q", "k", "v", "o", "dO", "stats", "dQ", "dK", "dV"):
        if kind == "packed" and (together or rng.random() < 0.5):
            options = (*_PACKED, "packed_heads") if name == "stats" else _PACKED
        else:
            options = _INPUTS if name in ("q", "k", "v") and kind == "dense" else _DENSE
        layout[name] = str(rng.choice(options))
    return layout


def _features(rng: np.random.Generator, spec: Spec) -> Spec:
    """Add bias, sink, dropout, ALiBi and the extra outputs, each with its own chance."""
    found: dict[str, Any] = {}
    if rng.random() < 0.3:
        found["bias"] = tuple(int(n) for n in rng.integers(1, 3, 4))
    if rng.random() < 0.25:
        found["sink"] = True
    if rng.random() < 0.2:
        found["dropout"] = ("mask", 1.25) if rng.random() < 0.2 else float(rng.choice([0.1, 0.5, 0.9]))
    if rng.random() < 0.15:
        found["alibi"] = True
    if rng.random() < 0.15:
        apply, gradient, expected = softcap(0.5)
        found["score_mod"] = (apply, gradient if rng.random() < 0.5 else None, expected)
    if rng.random() < 0.1:
        tiles = (-(-spec.rows // 128), -(-spec.keys // 1024))
        found["tiles"] = rng.integers(0, 256, (spec.batch, spec.heads[0], *tiles))
    if rng.random() < 0.15:
        found["extras"] = True
    if rng.random() < 0.15:
        found["scale_tensor"] = spec.scale is not None
    if rng.random() < 0.1:
        found["stats"] = False
    return replace(spec, **found)


def run(seed: int) -> None:
    """Check one seed."""
    passed = False
    try:
        spec = describe(seed)
        check_forward(spec)
        if spec.page is None:
            check_backward(spec)
        passed = True
    finally:
        if not passed:
            print(f"rerun: python -m tests.ops.test_sdpa_fuzz --seed {seed}")


@pytest.mark.parametrize("seed", [pytest.param(n, id=f"seed{n:05}") for n in range(SEEDS)])
def test_fuzz(seed: int) -> None:
    run(seed)


def main() -> None:
    """Run seeds from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=1, help="seeds to run")
    wanted = parser.parse_args()
    start = time.monotonic()
    for seed in range(wanted.seed, wanted.seed + wanted.count):
        run(seed)
    print(f"{wanted.count} seeds passed in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
