"""Pointwise graphs on a CUDA device, beside torch's eager kernels and a plain copy.

    python bench/bench_pointwise.py --out bench/results/pointwise_h200.json

Every plan of a graph is checked against torch first. Rivals are interleaved; a figure is the median of seven
rounds of twenty calls, in microseconds on the device's own clock. Bytes count each operand once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import frazil
from frazil import data_type

ROUNDS, CALLS = 7, 20
SHAPES = (
    ((8192, 8192), (1, 8192)),
    ((64, 1024, 1024), (64, 1, 1024)),
    ((64, 1024, 1024), (64, 1024, 1)),
    ((8192, 8192), (8192, 8192)),
    ((4096, 1000), (4096, 1)),
    ((1001, 1003), (1, 1003)),
)
EXPRESSIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda g, x, b: g.add(x, b), lambda x, b: x + b),
    "bias_gelu": (lambda g, x, b: g.gelu(g.bias(x, b)), lambda x, b: torch.nn.functional.gelu(x + b)),
    "swish_mul": (lambda g, x, b: g.mul(g.swish(x), b), lambda x, b: torch.nn.functional.silu(x) * b),
}


def measured(rivals: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median microseconds of each rival, interleaved."""
    for run in rivals.values():
        for _ in range(5):
            run()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(ROUNDS):
        for name, run in rivals.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(CALLS):
                run()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) / CALLS * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def case(expression: str, dim: tuple[int, ...], other: tuple[int, ...]) -> dict[str, Any]:
    """One expression at one shape."""
    build, eager = EXPRESSIONS[expression]
    x, b = (torch.randn(d, device="cuda", dtype=torch.bfloat16) for d in (dim, other))
    y = torch.empty_like(x)
    g = frazil.Graph(
        io_data_type=data_type.BFLOAT16,
        intermediate_data_type=data_type.FLOAT,
        compute_data_type=data_type.FLOAT,
    )
    tx, tb = g.tensor(dim), g.tensor(other)
    ty = build(g, tx, tb).set_output(True)
    g.build()
    g.build_plans(frazil.build_plan_policy.ALL)
    pack = {tx: x, tb: b, ty: y}
    rivals: dict[str, Callable[[], Any]] = {"torch": lambda: eager(x, b), "copy": lambda: y.copy_(x)}
    for index in range(g.get_execution_plan_count()):
        y.fill_(float("nan"))
        g.execute_plan_at_index(pack, None, index)
        torch.testing.assert_close(y, eager(x.float(), b.float()).bfloat16(), rtol=2e-2, atol=2e-2)
        rivals[g.get_plan_name_at_index(index)] = lambda i=index: g.execute_plan_at_index(pack, None, i)
    us = measured(rivals)
    moved = 2 * (2 * x.numel() + b.numel())
    best = min((n for n in us if n.startswith("pointwise")), key=us.__getitem__)
    return {
        "expression": expression,
        "dim": dim,
        "other": other,
        "us": us,
        "best": best,
        "tb_per_s": moved / us[best] * 1e-6,
        "share_of_copy": (moved / us[best]) / (4 * x.numel() / us["copy"]),
        "torch_over_best": us["torch"] / us[best],
    }


def host() -> float:
    """Median microseconds that the host spends in one execute of three operands, from a drained queue."""
    x, b, y = (torch.randn(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    g = frazil.Graph(io_data_type=data_type.BFLOAT16, compute_data_type=data_type.FLOAT)
    tx, tb = g.tensor((64, 64)), g.tensor((64, 64))
    pack = {tx: x, tb: b, g.add(tx, tb).set_output(True): y}
    g.build()
    times = []
    for _ in range(500):
        torch.cuda.synchronize()
        start = time.perf_counter()
        g.execute(pack)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    rows = [case(name, *shape) for name in EXPRESSIONS for shape in SHAPES]
    for r in rows:
        where = f"{r['expression']:10} {r['dim']!s:18} {r['other']!s:18}"
        speed = f"{r['us'][r['best']]:8.1f} us  {r['tb_per_s']:.2f} TB/s  {r['share_of_copy']:.2f} of copy"
        print(f"{where} {speed}  torch/this {r['torch_over_best']:.2f}  {r['best']}")
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "compiler": frazil.compile.compiler_version(),
        "host_us_per_execute": host(),
        "rows": rows,
    }
    print(f"host: {report['host_us_per_execute']:.1f} us per execute of three operands")
    if out is not None:
        out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
