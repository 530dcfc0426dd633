"""`frazil demo`: causal attention with grouped heads, planned for the device at hand, executed and checked.

Owns the data, the graph and the expected result, which is written out in NumPy float64 from the definition of
attention and shares nothing with the operation's own reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .api import Graph
from .cli_check import Comparison
from .cli_inputs import POISON, allocate, require_memory
from .cli_plan import here
from .cli_run import measured, timing
from .cli_text import columns, labelled, progress
from .dtypes import cast, data_type
from .target import Target

_REPEAT = 5
_SCORE_BYTES = 32  # that the reference engine has at a time for each score
_ROUNDING = 2.0**-9  # of bfloat16, relative: half a unit in the last place


@dataclass(frozen=True)
class Shape:
    """Extents of the demo's attention; `heads` of queries share `kv_heads` of keys and values."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    dim: int

    @property
    def scale(self) -> float:
        """What the scores are multiplied by."""
        return float(self.dim**-0.5)


@dataclass(frozen=True)
class Report:
    """The answer: text, whether the check passed, and the graph."""

    text: str
    ok: bool
    graph: Graph


def demo(shape: Shape, seed: int) -> Report:
    """Plan, execute and check attention on made-up activations."""
    graph, note = here(lambda target: describe(shape, target))
    start = time.perf_counter()
    graph.build()
    built = time.perf_counter() - start
    scores = shape.batch * shape.heads * shape.seq**2
    require_memory(graph, _SCORE_BYTES * scores if graph.target.is_cpu else 0)
    q, k, v = activations(shape, seed)
    o, lse = (allocate(graph.find_tensor(n), POISON) for n in ("O", "LSE"))
    with progress(_REPEAT + shape.heads, "running", graph.plans[0].expected_us * 1e-6 * _REPEAT) as step:
        times = measured(graph, {"q": q, "k": k, "v": v, "O": o, "LSE": lse}, _REPEAT, step)
        checks = _check(shape, (q, k, v), (o, lse), step)
    compared = columns([(name, str(c)) for name, c in checks.items()], indent=0)
    lines = [
        f"Causal attention in bfloat16: Q {q.shape}, K and V {k.shape}",
        *([note] if note else []),
        labelled("plan", str(graph.explain())),
        labelled("time", timing("plan and build", built, times)),
        labelled("check", f"against float64, written out in NumPy\n{compared}"),
    ]
    return Report("\n".join(lines), all(c.ok for c in checks.values()), graph)


def describe(shape: Shape, target: Target | str) -> Graph:
    """The graph: O and LSE of causal attention, with keys and values shared by groups of heads."""
    graph = Graph(
        "demo",
        io_data_type=data_type.BFLOAT16,
        intermediate_data_type=data_type.FLOAT,
        compute_data_type=data_type.FLOAT,
        target=target,
    )
    q = graph.tensor((shape.batch, shape.heads, shape.seq, shape.dim), name="q")
    k, v = (graph.tensor((shape.batch, shape.kv_heads, shape.seq, shape.dim), name=n) for n in "kv")
    o, stats = graph.sdpa(
        q=q, k=k, v=v, attn_scale=shape.scale, use_causal_mask=True, generate_stats=True, name="attention"
    )
    o.set_output(True).set_name("O")
    stats.set_output(True).set_name("LSE").set_data_type(data_type.FLOAT)
    return graph


def activations(shape: Shape, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, K and V as models have them: a few channels far larger, positions rotated into Q and K."""
    rng = np.random.default_rng(seed)

    def draw(heads: int) -> np.ndarray:
        gain = np.ones((heads, 1, shape.dim))
        outliers = rng.random(gain.shape) < 2 / shape.dim
        return rng.standard_normal((shape.batch, heads, shape.seq, shape.dim)) * np.where(outliers, 6.0, gain)

    q, k, v = draw(shape.heads), draw(shape.kv_heads), draw(shape.kv_heads)
    return (
        cast(_rotated(q), data_type.BFLOAT16),
        cast(_rotated(k), data_type.BFLOAT16),
        cast(v, data_type.BFLOAT16),
    )


def _rotated(x: np.ndarray) -> np.ndarray:
    """Rotary position embedding (arXiv:2104.09864, eq. 34), halves paired."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[-2])[:, None] * 10000.0 ** (-np.arange(half) / max(half, 1))
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos, rest], axis=-1)


def _check(
    shape: Shape, inputs: tuple[np.ndarray, ...], results: tuple[np.ndarray, ...], step: Callable[[], None]
) -> dict[str, Comparison]:
    """The comparison of each output with attention as it is defined.

    Allowed for O: twice what rounding the probabilities and O itself to bfloat16 can cost, element by
    element. Allowed for LSE: twice what float32 sums over the head dimension can cost, relative to the
    largest score.
    """
    q, k, v = (x.astype(np.float64) for x in inputs)
    o, lse = (x.astype(np.float64) for x in results)
    worst = {"O": [0.0, 0.0], "LSE": [0.0, 0.0]}
    hidden = np.triu(np.ones((shape.seq, shape.seq), bool), 1)
    for head in range(shape.heads):
        shared = head * shape.kv_heads // shape.heads
        scores = q[:, head] @ k[:, shared].swapaxes(-1, -2) * shape.scale
        scores[:, hidden] = -np.inf
        top = scores.max(-1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(-1, keepdims=True)
        weights /= total
        expected_o, expected_lse = weights @ v[:, shared], top + np.log(total)
        allowed_o = 2 * _ROUNDING * (weights @ np.abs(v[:, shared]) + np.abs(expected_o))
        allowed_lse = 2 * shape.dim * 2.0**-24 * (1 + np.abs(np.where(hidden, 0, scores)).max())
        _note(worst["O"], o[:, head], expected_o, allowed_o)
        _note(worst["LSE"], lse[:, head], expected_lse, allowed_lse)
        step()
    return {name: Comparison(*pair) for name, pair in worst.items()}


def _note(worst: list[float], actual: np.ndarray, expected: np.ndarray, allowed: Any) -> None:
    """Raise (error, share of the allowed error) to that of these elements; NaN is infinitely wrong."""
    error = np.nan_to_num(np.abs(actual - expected), nan=np.inf)
    worst[:] = (max(worst[0], float(error.max())), max(worst[1], float((error / allowed).max())))
