"""Time to plan a graph of five nodes on the CPU: validate, ask the engines, rank, build the program.

    python bench/bench_planning.py [--rounds 500] [--out bench/results/planning.json]

A new graph is planned in each round, after a warm-up that imports the engines; making its nodes is timed
beside it. Prints the median and the tenth and ninetieth percentile in milliseconds. One plan is checked
first: its result is compared with the same computation in float64.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import frazil
from frazil import data_type

NODES = "matmul -> bias -> gelu_approx_tanh -> mul -> relu"


def make() -> tuple[frazil.Graph, dict[str, frazil.Tensor]]:
    """The graph: y = relu(gelu(x @ w + bias) * gate)."""
    g = frazil.Graph(
        io_data_type=data_type.BFLOAT16,
        intermediate_data_type=data_type.FLOAT,
        compute_data_type=data_type.FLOAT,
        target="cpu",
    )
    extents = {"x": (8, 512, 256), "w": (1, 256, 1024), "bias": (1, 1, 1024), "gate": (8, 512, 1024)}
    t = {name: g.tensor(dim, name=name) for name, dim in extents.items()}
    y = g.gelu_approx_tanh(g.bias(g.matmul(t["x"], t["w"]), t["bias"]))
    t["y"] = g.relu(g.mul(y, t["gate"])).set_output(True)
    return g, t


def plan(g: frazil.Graph) -> None:
    """What is timed."""
    g.validate()
    g.create_execution_plans()
    g.build_plans()


def check() -> float:
    """Largest error of the built plan against float64, relative to the largest result."""
    g, t = make()
    plan(g)
    rng = np.random.default_rng(0)
    kind = frazil.dtypes.numpy_dtype(data_type.BFLOAT16)
    pack: dict[Any, Any] = {
        t[n]: rng.standard_normal(t[n].dim).astype(kind) for n in ("x", "w", "bias", "gate")
    }
    pack[t["y"]] = np.zeros(t["y"].dim, kind)
    g.execute(pack, g.empty_workspace())
    x, w, bias, gate = (pack[t[n]].astype(np.float64) for n in ("x", "w", "bias", "gate"))
    h = x @ w + bias
    h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    expected = np.maximum(h * gate, 0)
    return float(np.abs(pack[t["y"]].astype(np.float64) - expected).max() / expected.max())


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return (time.perf_counter() - start) * 1e3, result


def measure(rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each round: making the graph's nodes, and planning it."""
    times: dict[str, list[float]] = {"describe": [], "plan": []}
    for index in range(rounds + 20):
        described, (g, _) = timed(make)
        planned, _ = timed(lambda g=g: plan(g))
        if index >= 20:  # the first rounds warm up
            times["describe"].append(described)
            times["plan"].append(planned)
    return times


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    options = parser.parse_args()
    error = check()
    if not error < 0.01:
        sys.exit(f"the plan is wrong: relative error {error:.3g}, allowed 0.01")
    figures = {
        name: dict(
            zip(("p10_ms", "median_ms", "p90_ms"), np.percentile(ms, (10, 50, 90)).round(4), strict=True)
        )
        for name, ms in measure(options.rounds).items()
    }
    for name, found in figures.items():
        low, median, high = found.values()
        print(f"{name:9s} median {median:.2f} ms  (p10 {low:.2f}, p90 {high:.2f})")
    if options.out:
        report = {
            "benchmark": "planning",
            "graph": NODES,
            "rounds": options.rounds,
            "relative_error": error,
            "frazil": frazil.__version__,
            "python": platform.python_version(),
            "machine": platform.processor() or platform.machine(),
            **figures,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
