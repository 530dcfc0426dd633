"""The command line: `frazil demo`, `run`, `explain`, `ops`, `cache` and `doctor`.

Owns commands, options, help and exit codes: 0 done, 1 a check failed, 2 it could not be done, with one line
on stderr. The work is done in the cli_*.py modules.
"""

from __future__ import annotations

import inspect
import json
import logging
from pathlib import Path
from typing import Any

import click

from . import cache as cached
from . import cli_demo, cli_doctor, cli_plan, cli_run, env
from .builders import docstring, signature
from .cli_text import Mistake, columns, progress
from .errors import FrazilError
from .ops import OPS
from .version import __version__

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FILE = click.Path(path_type=Path)


class Group(click.Group):
    """A group whose commands report the errors that Frazil raises as one text, never as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except FrazilError as error:
            raise Mistake(str(error)) from error
        except MemoryError as error:
            raise Mistake(f"not enough memory: {error}") from error


def _examples(*lines: str) -> str:
    """Text that stands below a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=_examples("frazil demo", "frazil doctor", "frazil --log info run layer.json"),
)
@click.option(
    "--log",
    "level",
    metavar="LEVEL",
    help="Log to stderr from this level on: debug, info, warning or error. Default: the variable FRAZIL_LOG.",
)
@click.version_option(__version__, prog_name="frazil")
@click.pass_context
def main(ctx: click.Context, level: str | None) -> None:
    """Graphs of deep-learning operations, planned once and executed as one launch."""
    chosen = (level or env.log_level()).upper()
    if not chosen:
        return
    if chosen not in _LEVELS:
        source = "--log" if level else "FRAZIL_LOG"
        raise Mistake(f"{source}: got {level or chosen}, expected one of {', '.join(_LEVELS).lower()}")
    log, handler = logging.getLogger("frazil"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(chosen)
    ctx.call_on_close(lambda: log.removeHandler(handler))
    ctx.call_on_close(lambda: log.setLevel(before))


@main.command(
    epilog=_examples(
        "frazil demo",
        "frazil demo --seq 1024 --heads 16 --kv-heads 4 --dim 128",
        "frazil demo --save demo.json && frazil explain demo.json --target sm_90",
    )
)
@click.option("--batch", type=click.IntRange(1, 64), default=1, show_default=True, help="Sequences.")
@click.option("--heads", type=click.IntRange(1, 128), default=8, show_default=True, help="Query heads.")
@click.option(
    "--kv-heads", type=click.IntRange(1, 128), default=2, show_default=True, help="Heads of K and V."
)
@click.option(
    "--seq", type=click.IntRange(1, 4096), default=512, show_default=True, help="Tokens of a sequence."
)
@click.option("--dim", type=click.IntRange(1, 512), default=64, show_default=True, help="Size of a head.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the data.")
@click.option("--save", type=_FILE, help="Also write the graph to this file, for `frazil run` and `explain`.")
def demo(batch: int, heads: int, kv_heads: int, seq: int, dim: int, seed: int, save: Path | None) -> None:
    """Plan causal attention for the device at hand, execute it, and check it against float64.

    Ends with exit code 1 where the result is wrong.
    """
    report = cli_demo.demo(cli_demo.Shape(batch, heads, kv_heads, seq, dim), seed)
    click.echo(report.text)
    if save is not None:
        _write(save, report.graph.to_json())
    _finish(report.ok)


@main.command(
    epilog=_examples(
        "frazil run layer.json",
        "frazil run layer.json --inputs x.npz --outputs y.npz",
        "frazil run layer.plan --repeat 100",
    )
)
@click.argument("file", type=_FILE)
@click.option("--inputs", type=_FILE, help="An .npz file with one array per input, by name or uid.")
@click.option("--fill", is_flag=True, help="Make up the inputs that the .npz file lacks.")
@click.option("--outputs", type=_FILE, help="Write the outputs to this .npz file.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of inputs that are made up.")
@click.option(
    "--repeat", type=click.IntRange(1), default=5, show_default=True, help="Executions to be timed."
)
@click.option("--target", help="Plan a graph for this target, e.g. cpu. Default: the device at hand.")
def run(
    file: Path,
    inputs: Path | None,
    fill: bool,
    outputs: Path | None,
    seed: int,
    repeat: int,
    target: str | None,
) -> None:
    """Execute a stored graph or plan: outputs, timing, and a check against the reference engine in float64.

    FILE holds the text of graph.to_json() or the bytes of graph.serialize(as_bytes=True). Inputs are made up
    unless --inputs gives them. bfloat16 and FP8 arrays are given as floats, which are rounded, or as bit
    patterns (uint16, uint8); they are written as float32, which holds them exactly. A packed tensor is one
    flat array, or (T, H, D). Ends with exit code 1 where the check fails.
    """
    report = cli_run.run(cli_plan.read_file(file), cli_run.Options(inputs, fill, seed, repeat, target))
    click.echo(report.text)
    if outputs is not None:
        cli_run.save(report.outputs, outputs)
    _finish(report.ok)


@main.command(
    epilog=_examples("frazil explain layer.json", "frazil explain layer.json --target sm_90 --json")
)
@click.argument("file", type=_FILE)
@click.option("--target", help="Explain for this target, e.g. sm_90 or cpu. Default: the device at hand.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def explain(file: Path, target: str | None, as_json: bool) -> None:
    """What each engine would do with a stored graph on a target, or why it declines.

    Needs no GPU. A stored plan is explained for the target that it was made for.
    """
    stored = cli_plan.read_file(file)
    planning = cli_plan.restored(stored.graph, None).explain(target or stored.target)
    if as_json:
        plan = None if stored.plan is None else {"engine": stored.plan.engine, "id": stored.plan.id}
        click.echo(json.dumps({"file": str(file), "plan": plan, **planning.to_dict()}, indent=2))
        return
    if stored.plan is not None:
        click.echo(f"a plan for {stored.plan.arch}, by engine {stored.plan.engine} (id {stored.plan.id})")
    click.echo(str(planning))


@main.command(epilog=_examples("frazil doctor", "frazil doctor --json > report.json"))
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(as_json: bool) -> None:
    """What is installed, what loads, what is missing, and what each missing thing would enable.

    This is the report for a bug. Where Frazil does not even import, run the file frazil/cli_doctor.py with
    Python. Ends with exit code 1 where something of the base install does not work.
    """
    with progress(cli_doctor.steps(), "asking", expected=2.0) as step:
        report = cli_doctor.collect(step)
    click.echo(json.dumps(report, indent=2) if as_json else cli_doctor.text(report))
    _finish(report["ok"])


@main.command(epilog=_examples("frazil cache size", "frazil cache prune --mib 512"))
@click.argument("action", type=click.Choice(["size", "prune"]))
@click.option("--mib", type=click.IntRange(min=0), default=1024, show_default=True, help="What prune leaves.")
def cache(action: str, mib: int) -> None:
    """The cache of compiled kernels: its size, or remove the entries stored longest ago."""
    kernels = cached.default()
    if action == "prune":
        click.echo(f"removed {kernels.prune(mib << 20)}")
    count, total = kernels.size()
    click.echo(f"{kernels.root}: {count} kernels, {total / 2**20:.1f} MiB")


@main.command(epilog=_examples("frazil ops", "frazil ops matmul"))
@click.argument("name", required=False)
def ops(name: str | None) -> None:
    """The operations that a graph can have, or the manual of one."""
    if name is None:
        click.echo(columns([(op.name, op.doc.strip().splitlines()[0]) for op in OPS.values()], indent=0))
        return
    if name not in OPS:
        raise Mistake(f"no operation is called '{name}'; `frazil ops` lists them")
    parameters = list(signature(OPS[name]).parameters.values())[1:]
    shown = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters])
    click.echo(f"graph.{name}{shown}\n\n{docstring(OPS[name])}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None


def _finish(ok: bool) -> None:
    if not ok:
        raise click.exceptions.Exit(1)
