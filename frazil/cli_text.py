"""What the command line prints: columns, durations, progress, and the one line that ends on a user's mistake.

Knows nothing of graphs or plans. Results go to stdout, everything else to stderr, so that output can be
piped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

_PATIENCE = 1.0  # seconds that something may take before it shows a bar


class Mistake(click.ClickException):
    """What the user asked for cannot be done: ends the command with one line on stderr and exit code 2."""

    exit_code = 2


def columns(rows: Sequence[Sequence[str]], indent: int = 2) -> str:
    """Rows of text in aligned columns, two spaces apart."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(" " * indent + line for line in lines)


def labelled(label: str, text: str) -> str:
    """A label and a text, whose further lines stand below its first."""
    return f"{label:<8}" + text.replace("\n", "\n" + " " * 8)


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them, with three digits."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


@contextmanager
def progress(length: int, label: str, expected: float = 0.0) -> Iterator[Callable[[], None]]:
    """Yields a function to call after each of `length` steps; a bar on stderr where they take over a second.

    Parameters
    ----------
    expected
        Seconds that all steps are expected to take, where known: a long first step then has its bar at once.
        Otherwise the first steps tell.
    """
    start, done = time.monotonic(), 0
    bar = click.progressbar(length=length, label=label, file=sys.stderr)
    shown = False

    def show(seconds: float) -> None:
        nonlocal shown
        if not shown and seconds > _PATIENCE and sys.stderr.isatty():
            bar.__enter__()
            bar.update(done)
            shown = True

    def step() -> None:
        nonlocal done
        done += 1
        if shown:
            bar.update(1)
        else:
            show((time.monotonic() - start) / done * length)

    show(expected)
    try:
        yield step
    finally:
        if shown:
            bar.__exit__(None, None, None)
