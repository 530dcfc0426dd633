"""The graph's builder methods, one per operation record, with real signatures and docstrings.

Owns how a record reads as a method. The methods do not exist in this source: editors and mypy read
`builders.pyi`, which tools/make_stub.py writes from the same functions and a test compares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .op import REQUIRED, Op, Param
from .ops import OPS

_COMMON = {
    "compute_data_type": (None, "Any", "Type of the arithmetic; the graph's where left out."),
    "name": ("", "str", "Name of the node; its outputs are called `<name>::<port>`."),
}


class Builders:
    """Base of every graph: the methods that add nodes."""

    def _add(self, op: Op, arguments: dict[str, Any]) -> Any:
        raise NotImplementedError


def signature(op: Op) -> inspect.Signature:
    """The public signature of an operation's builder.

    A required parameter that stands behind an optional one carries the default None and is checked by the
    builder.
    """
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    seen_default = False
    for name, default, annotation, _ in describe(op):
        if default is REQUIRED and seen_default:
            default = None
        seen_default |= default is not REQUIRED
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if default is REQUIRED else default,
                annotation=annotation,
            )
        )
    if op.structured:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter("out_dims", kind, default=None, annotation="Sequence[Any] | None")
        )
    many = len(op.returned()) > 1
    return inspect.Signature(parameters, return_annotation="list[Any]" if many else "Tensor")


def describe(op: Op) -> list[tuple[str, Any, str, str]]:
    """Parameters of a builder in order: name, default (or REQUIRED), annotation, documentation."""
    known = dict(_COMMON)
    for port in op.inputs:
        annotation = "Sequence[Any]" if port.variadic else "Any"
        known[port.name] = (None if port.optional else REQUIRED, annotation, port.doc)
    for port in op.outputs:
        known[port.name] = (None, "Tensor | None", port.doc)
    for attr in op.attrs:
        known[attr.name] = (attr.default, attr.kind.annotation, attr.doc)
    order: list[str | Param] = list(
        op.signature or [*(p.name for p in op.inputs), *(a.name for a in op.attrs)]
    )
    named = {p if isinstance(p, str) else p.name for p in order}
    order += [extra for extra in _COMMON if extra not in named]
    return [
        (p, *known[p]) if isinstance(p, str) else (p.name, p.default, p.annotation, p.doc)  # type: ignore[misc]
        for p in order
    ]


def docstring(op: Op) -> str:
    """The docstring of an operation's builder."""
    lines = [op.doc.strip(), "", "Parameters", "----------"]
    for name, _, annotation, doc in describe(op):
        lines += [f"{name} : {annotation}", *([f"    {doc}"] if doc else [])]
    lines += ["", "Returns", "-------"]
    for port in op.returned():
        suffix = (
            ", or None where it does not exist" if port.when is not None or port.needs is not None else ""
        )
        lines += [f"{port.name} : Tensor{suffix}", *([f"    {port.doc}"] if port.doc else [])]
    lines += [
        "",
        "Raises",
        "------",
        "GraphError",
        "    A missing or foreign tensor, or an attribute of the wrong kind.",
    ]
    return "\n".join(lines)


def _method(op: Op) -> Callable[..., Any]:
    public = signature(op)

    def build(*args: Any, **kwargs: Any) -> Any:
        bound = public.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        return arguments.pop("self")._add(op, arguments)

    build.__name__, build.__qualname__ = op.name, f"Graph.{op.name}"
    build.__doc__ = docstring(op)
    build.__signature__ = public  # type: ignore[attr-defined]
    return build


for _op in OPS.values():
    setattr(Builders, _op.name, _method(_op))
