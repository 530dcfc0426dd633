"""One operation of a graph, and how a builder call becomes one.

A node is fixed once it is made: its name, attributes and ports are read-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from .dtypes import data_type
from .errors import GraphError
from .expression import Step
from .op import REQUIRED, Attrs, Bound, Call, Op
from .tensor import Tensor


class Node:
    """An operation: its record, attributes, and the tensors on its ports."""

    __slots__ = ("_call",)

    def __init__(
        self,
        op: Op,
        name: str,
        attrs: Attrs,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Tensor],
        compute: data_type,
    ) -> None:
        # In the record's order, so that a graph numbers its tensors the same way after it was stored.
        read = MappingProxyType({p.name: inputs[p.name] for p in op.inputs})
        written = MappingProxyType({p.name: outputs[p.name] for p in op.outputs if p.name in outputs})
        self._call = Call(op, name, attrs, read, written, compute)

    @property
    def call(self) -> Call:
        """The node as inference, checks and costs see it."""
        return self._call

    @property
    def op(self) -> Op:
        """The operation's record."""
        return self._call.op

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._call.name

    @property
    def attrs(self) -> Attrs:
        """Attributes."""
        return self._call.attrs

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Port -> tensor, a tuple of tensors for a variadic port, or None for an absent one."""
        return self._call.inputs

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        """Port -> tensor, for the outputs that exist."""
        return self._call.outputs

    @property
    def compute_data_type(self) -> data_type:
        """Type of the arithmetic."""
        return self._call.compute

    def read(self) -> list[Tensor]:
        """Tensors that the node reads, ragged offsets of its inputs and outputs included."""
        found = [
            t for v in self.inputs.values() for t in (v if isinstance(v, tuple) else (v,)) if t is not None
        ]
        offsets = [t.ragged_offset for t in (*found, *self.outputs.values()) if t.ragged_offset is not None]
        return [*found, *offsets]

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.op.name})"


def bind(op: Op, arguments: Mapping[str, Any], graph: Any) -> Bound:
    """Canonical form of a builder call whose public spelling is the canonical one."""
    return Bound(
        {p.name: arguments[p.name] for p in op.inputs},
        {a.name: arguments[a.name] for a in op.attrs},
        {p.name: arguments[p.name] for p in op.outputs if p.keyword},
    )


def convert(op: Op, node: str, values: Mapping[str, Any]) -> Attrs:
    """Attributes from what the caller wrote; GraphError where one is missing or of the wrong kind."""
    converted = {}
    for attr in op.attrs:
        value = values.get(attr.name, attr.default)
        if value is REQUIRED or (value is None and attr.default is REQUIRED):
            raise GraphError(
                f"attribute '{attr.name}' of {op.name} is missing", node=node, expected=attr.kind.annotation
            )
        try:
            converted[attr.name] = attr.kind.convert(value)
        except (TypeError, ValueError) as error:
            raise GraphError(
                f"attribute '{attr.name}' of {op.name} ({error})",
                node=node,
                got=repr(value),
                expected=attr.kind.annotation,
            ) from None
    return Attrs(converted)


def declare(node: Node, out_dims: Sequence[Any] | None) -> None:
    """Apply `out_dims`: extents of the first output, or a sequence of extents for the outputs in order."""
    if out_dims is None:
        return
    several = bool(out_dims) and not hasattr(type(out_dims[0]), "__index__")
    for tensor, dim in zip(node.outputs.values(), out_dims if several else [out_dims], strict=False):
        if dim is not None:
            tensor.set_dim(dim)


def as_step(node: Node, number: Mapping[Tensor, int]) -> Step:
    """A node as a step of an expression over numbered values."""
    args = tuple(number[node.inputs[p.name]] for p in node.op.inputs if node.inputs[p.name] is not None)
    (output,) = node.outputs.values()
    return Step(node.op.name, node.attrs, args, node.compute_data_type, output.declared[2])
