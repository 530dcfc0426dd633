"""From a file or a builder to a planned graph: what `frazil run`, `explain` and `demo` have in common.

Owns the recognition of stored graphs and plans, and the rule that where no GPU engine serves a graph the CPU
does, said in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import context, driver, serialize
from .api import Graph
from .cli_text import Mistake
from .errors import FrazilError
from .target import Target


@dataclass(frozen=True)
class File:
    """A stored graph or plan.

    Attributes
    ----------
    graph
        The graph as JSON; that of the plan, for a plan.
    plan
        What the plan file says, or None for a graph.
    data
        The bytes of the file.
    """

    path: Path
    graph: str
    plan: serialize.StoredPlan | None
    data: bytes

    @property
    def target(self) -> Target | None:
        """The target that a plan was made for."""
        return None if self.plan is None else Target.named(self.plan.arch).limited(self.plan.sm_count)


def read_file(path: Path) -> File:
    """Read a graph (the text of `graph.to_json()`) or a plan (the bytes of `graph.serialize(as_bytes=True)`).

    Raises
    ------
    Mistake
        There is no such file, or it holds something else, or it is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    try:
        if data.startswith(b"FRAZIL"):
            plan = serialize.plan_from_bytes(data)
            return File(path, plan.graph, plan, data)
        if data.lstrip().startswith(b"{"):
            text = data.decode()
            restored(text, "cpu")
            return File(path, text, None, data)
    except FrazilError as error:
        raise Mistake(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise Mistake(f"{path}: not UTF-8, so no stored graph") from None
    raise Mistake(
        f"{path}: neither a stored graph (JSON, of graph.to_json()) nor a stored plan "
        f"(of graph.serialize(as_bytes=True)); it begins with {data[:8]!r}"
    )


def restored(text: str, target: Target | str | None) -> Graph:
    """A validated graph from its JSON, to be planned for a target."""
    graph = Graph(target=target)
    graph.deserialize(text)
    return graph


def here(make: Callable[[Target], Graph]) -> tuple[Graph, str]:
    """A graph for the device at hand, or for the CPU where no GPU engine serves it; and a line to say so.

    Parameters
    ----------
    make
        Describes the graph for a target.
    """
    target = Target.current()
    if target.is_cpu:
        return make(target), "no CUDA device here (`frazil doctor` says why): planned for the CPU engine"
    graph = make(target)
    if graph.explain().candidates:
        return graph, ""
    name = driver.device_info(context.thread_device()).device_name
    line = f"{name} ({target.arch}): no GPU engine serves this graph, so it is planned for the CPU engine"
    return make(Target.named("cpu")), line
