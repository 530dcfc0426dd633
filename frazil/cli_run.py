"""`frazil run`: a stored graph or plan on inputs from a file or made up; its outputs, timing, and a check.

Owns the order of the steps and the text of the report.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import cli_check, cli_device, cli_inputs, cli_plan
from .api import Graph
from .cli_text import Mistake, columns, duration, labelled, progress
from .tensor import Tensor


@dataclass(frozen=True)
class Options:
    """What `frazil run` was asked for, besides the file.

    Attributes
    ----------
    inputs
        An .npz file; None makes up every input.
    fill
        Make up the inputs that the file lacks.
    """

    inputs: Path | None = None
    fill: bool = False
    seed: int = 0
    repeat: int = 5
    target: str | None = None


@dataclass(frozen=True)
class Report:
    """The answer: text, whether the check passed, and the outputs."""

    text: str
    ok: bool
    outputs: dict[Tensor, np.ndarray]


def run(file: cli_plan.File, options: Options) -> Report:
    """Execute a stored graph or plan."""
    graph, prepare, note = _prepared(file, options.target)
    start = time.perf_counter()
    prepare()
    built = time.perf_counter() - start
    operands = _operands(graph, options)
    outputs = {
        t: cli_inputs.allocate(t, 0 if t.is_ragged else cli_inputs.POISON) for t in graph.get_outputs()
    }
    pack = {**{t: i.array for t, i in operands.items()}, **outputs}
    wide, how = cli_check.widened(graph)
    steps = options.repeat + (wide is not None)
    verdicts: dict[Tensor, cli_check.Comparison] = {}
    with progress(steps, "running", graph.plans[0].expected_us * 1e-6 * steps) as step:
        times = measured(graph, pack, options.repeat, step)
        if wide is not None:
            expected = cli_check.expected(wide, {t.uid: i.array for t, i in operands.items()})
            verdicts = {t: cli_check.compare(graph, t, a, expected[t.uid]) for t, a in outputs.items()}
            step()
    lines = [
        *([note] if note else []),
        labelled("plan", f"{graph.problem.text} on {graph.target.arch}: {graph.selected_engine}"),
        labelled("inputs", _inputs(operands, options.seed)),
        labelled("outputs", columns([_summary(t, a) for t, a in outputs.items()], indent=0)),
        labelled("time", timing("load" if file.plan else "plan and build", built, times)),
        labelled("check", _check(how, verdicts)),
    ]
    return Report("\n".join(lines), all(v.ok for v in verdicts.values()), outputs)


def measured(graph: Graph, pack: Mapping[Any, Any], repeat: int, step: Callable[[], None]) -> list[float]:
    """Seconds of each of several executions; `step` is called after each."""
    times = []
    with cli_device.resident(graph, pack) as (bound, workspace, wait):
        for _ in range(repeat):
            start = time.perf_counter()
            graph.execute(bound, workspace)
            wait()
            times.append(time.perf_counter() - start)
            step()
    return times


def timing(preparation: str, seconds: float, times: Sequence[float]) -> str:
    """Text for the time of a preparation and the times of executions."""
    median, best = duration(statistics.median(times)), duration(min(times))
    return f"{preparation} {duration(seconds)}, execute {median} (median of {len(times)}, best {best})"


def save(outputs: Mapping[Tensor, np.ndarray], path: Path) -> None:
    """Write outputs as .npz: by name, or by uid where a name is not unique; bfloat16 and FP8 as float32."""
    names = [t.name for t in outputs]
    arrays = {}
    for tensor, array in outputs.items():
        unique = tensor.name and names.count(tensor.name) == 1
        plain = array.dtype.isbuiltin == 1  # NumPy stores no others
        arrays[tensor.name if unique else str(tensor.uid)] = array if plain else array.astype(np.float32)
    try:
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None


def _prepared(file: cli_plan.File, target: str | None) -> tuple[Graph, Callable[[], None], str]:
    """A graph, what readies it for execution, and a line to be told."""
    if file.plan is not None:
        if target not in (None, file.plan.arch):
            advice = "store the graph (graph.to_json()) to plan it for another"
            raise Mistake(f"{file.path}: a plan for {file.plan.arch} cannot run on {target}: {advice}")
        empty = Graph()
        return empty, lambda: empty.deserialize(file.data), ""
    if target is not None:
        graph, note = cli_plan.restored(file.graph, target), ""
    else:
        graph, note = cli_plan.here(lambda found: cli_plan.restored(file.graph, found))
    return graph, graph.build, note


def _operands(graph: Graph, options: Options) -> dict[Tensor, cli_inputs.Input]:
    cli_inputs.require_memory(graph)
    given = {} if options.inputs is None else cli_inputs.from_npz(graph, options.inputs)
    if options.inputs is not None and not options.fill:
        cli_inputs.require_all(graph, given, options.inputs)
    invented = cli_inputs.invented(graph, given, options.seed)
    return {t: given[t] if t in given else invented[t] for t in graph.get_inputs()}


def _inputs(operands: Mapping[Tensor, cli_inputs.Input], seed: int) -> str:
    rows = [(*_geometry(t), i.origin) for t, i in operands.items()]
    made_up = any(i.seeded for i in operands.values())
    return columns(rows, indent=0) + (f"\nmade up with --seed {seed}" if made_up else "")


def _geometry(tensor: Tensor) -> tuple[str, str, str]:
    return cli_inputs.label(tensor), str(tensor.dim), tensor.data_type.name


def _summary(tensor: Tensor, array: np.ndarray) -> tuple[str, ...]:
    wide = array.astype(np.float64)
    valid = wide[~np.isnan(wide)]
    finite = valid[np.isfinite(valid)]
    if not valid.size:
        return (*_geometry(tensor), "no element" if not wide.size else f"NaN {wide.size}")
    mean = f"mean {finite.mean():.5g}" if finite.size else "mean -"
    return (
        *_geometry(tensor),
        f"min {valid.min():.5g}  max {valid.max():.5g}  {mean}  NaN {wide.size - valid.size}",
    )


def _check(how: str, verdicts: Mapping[Tensor, cli_check.Comparison]) -> str:
    if not verdicts:
        return f"none: {how}"
    rows = [(cli_inputs.label(t), str(v)) for t, v in verdicts.items()]
    return f"against the same graph on the reference engine, {how}\n" + columns(rows, indent=0)
