"""Frozen descriptions of tensors, nodes and connected sub-graphs: what engines are asked about and plans are
keyed by.

Owns the values that planning and programs work with, and how a graph freezes into them. Two problems are
equal when they describe the same work: uids and names travel along for error texts but take no part in
equality.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from .dtypes import data_type, nbytes
from .enums import tensor_reordering
from .geometry import span
from .op import Attrs, Call
from .ops import find
from .tensor import Tensor


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of a problem.

    Attributes
    ----------
    ragged
        Number of the tensor that holds the offsets, for a packed tensor.
    dynamic
        Extents and strides may be overridden at execute; the declared ones are maxima.
    value
        The number of a compile-time constant.
    """

    data_type: data_type
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    is_virtual: bool = False
    is_pass_by_value: bool = False
    value: int | float | None = None
    ragged: int | None = None
    ragged_multiplier: int = 1
    reordering: tensor_reordering = tensor_reordering.NONE
    alignment_value: int = 1
    dynamic: bool = False
    uid: int = field(default=-1, compare=False)
    name: str = field(default="", compare=False)

    @property
    def is_ragged(self) -> bool:
        """Whether the tensor is packed."""
        return self.ragged is not None

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.dim:
            count *= extent
        return count

    @property
    def span(self) -> int:
        """Elements from the first to behind the last one in memory; 0 where an extent is 0."""
        return span(self.dim, self.stride)

    @property
    def label(self) -> str:
        """How errors name the tensor."""
        return f"tensor '{self.name}' (uid {self.uid})"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node of a problem: ports name tensors by number; a variadic port holds a tuple of numbers."""

    op: str
    attrs: Attrs
    inputs: tuple[tuple[str, int | tuple[int, ...] | None], ...]
    outputs: tuple[tuple[str, int], ...]
    compute: data_type
    name: str = field(default="", compare=False)

    def reads(self) -> tuple[int, ...]:
        """Numbers of the tensors on input ports."""
        return tuple(
            i for _, v in self.inputs for i in (v if isinstance(v, tuple) else (v,)) if i is not None
        )

    def writes(self) -> tuple[int, ...]:
        """Numbers of the tensors on output ports."""
        return tuple(i for _, i in self.outputs)

    def call(self, tensors: Sequence[Any]) -> Call:
        """The node as an operation's functions see it, over tensors by number."""

        def pick(value: int | tuple[int, ...] | None) -> Any:
            if isinstance(value, tuple):
                return tuple(tensors[i] for i in value)
            return None if value is None else tensors[value]

        inputs = {p: pick(v) for p, v in self.inputs}
        outputs = {p: tensors[i] for p, i in self.outputs}
        return Call(find(self.op), self.name, self.attrs, inputs, outputs, self.compute)


@dataclass(frozen=True)
class Problem:
    """A frozen connected sub-graph: nodes in an order of execution, and their tensors."""

    nodes: tuple[NodeSpec, ...]
    tensors: tuple[TensorSpec, ...]

    @property
    def anchor(self) -> NodeSpec | None:
        """The node around which an engine builds a kernel, where exactly one is of that kind."""
        anchors = [n for n in self.nodes if find(n.op).anchor]
        return anchors[0] if len(anchors) == 1 else None

    def call(self, node: NodeSpec) -> Call:
        """A node over this problem's tensors."""
        return node.call(self.tensors)

    @cached_property
    def written(self) -> frozenset[int]:
        """Numbers of the tensors that some node writes."""
        return frozenset(i for n in self.nodes for i in n.writes())

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the tensors that must be given to be read: operands, offsets, run-time scalars."""
        return tuple(i for i, t in enumerate(self.tensors) if i not in self.written and t.value is None)

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Numbers of the tensors that must be given to be written."""
        return tuple(i for i, t in enumerate(self.tensors) if i in self.written and not t.is_virtual)

    @property
    def text(self) -> str:
        """One line for logs: the operations in order."""
        return " -> ".join(n.op for n in self.nodes)


def freeze(nodes: Iterable[Any], dynamic: bool) -> Problem:
    """The problem that a validated graph's nodes describe; tensors are numbered in order of first appearance.

    Parameters
    ----------
    nodes
        `graph.Node`s in an order of execution.
    dynamic
        Whether extents and strides may be overridden at execute.
    """
    nodes = list(nodes)
    tensors: dict[Tensor, int] = {}
    for node in nodes:
        for tensor in (*node.read(), *node.outputs.values()):
            tensors.setdefault(tensor, len(tensors))
    return Problem(
        tuple(_node(n, tensors) for n in nodes), tuple(_tensor(t, tensors, dynamic) for t in tensors)
    )


def restrict(problem: Problem, keep: Sequence[int]) -> tuple[Problem, tuple[int, ...]]:
    """The sub-problem of some nodes (by index), and for each of its tensors the number in the whole problem.

    Virtual tensors that another node of the whole reads or writes become real: they cross the border.
    """
    chosen = [problem.nodes[i] for i in keep]
    others = [n for i, n in enumerate(problem.nodes) if i not in set(keep)]
    crossing = {i for n in others for i in (*n.reads(), *n.writes())}
    numbers: dict[int, int] = {}
    for node in chosen:
        for i in (*node.reads(), *node.writes()):
            numbers.setdefault(i, len(numbers))
            offsets = problem.tensors[i].ragged
            if offsets is not None:
                numbers.setdefault(offsets, len(numbers))
    tensors = []
    for i in numbers:
        spec = problem.tensors[i]
        ragged = None if spec.ragged is None else numbers[spec.ragged]
        tensors.append(replace(spec, is_virtual=spec.is_virtual and i not in crossing, ragged=ragged))
    nodes = tuple(
        NodeSpec(
            n.op,
            n.attrs,
            tuple((p, _renumber(v, numbers)) for p, v in n.inputs),
            tuple((p, numbers[i]) for p, i in n.outputs),
            n.compute,
            n.name,
        )
        for n in chosen
    )
    return Problem(nodes, tuple(tensors)), tuple(numbers)


def _renumber(
    value: int | tuple[int, ...] | None, numbers: Mapping[int, int]
) -> int | tuple[int, ...] | None:
    if isinstance(value, tuple):
        return tuple(numbers[i] for i in value)
    return None if value is None else numbers[value]


def _node(node: Any, numbers: Mapping[Tensor, int]) -> NodeSpec:
    def number(value: Any) -> int | tuple[int, ...] | None:
        if isinstance(value, tuple):
            return tuple(numbers[t] for t in value)
        return None if value is None else numbers[value]

    return NodeSpec(
        node.op.name,
        node.attrs,
        tuple((p, number(v)) for p, v in node.inputs.items()),
        tuple((p, numbers[t]) for p, t in node.outputs.items()),
        node.compute_data_type,
        node.name,
    )


def _tensor(tensor: Tensor, numbers: Mapping[Tensor, int], dynamic: bool) -> TensorSpec:
    return TensorSpec(
        data_type=tensor.data_type,
        dim=tensor.dim,
        stride=tensor.stride,
        is_virtual=tensor.is_virtual,
        is_pass_by_value=tensor.is_pass_by_value,
        value=tensor.value,
        ragged=None if tensor.ragged_offset is None else numbers[tensor.ragged_offset],
        ragged_multiplier=tensor.ragged_offset_multiplier,
        reordering=tensor.reordering_type,
        alignment_value=tensor.alignment_value,
        dynamic=dynamic,
        uid=tensor.uid,
        name=tensor.name,
    )


def workspace_bytes(spec: TensorSpec) -> int:
    """Bytes that a value between nodes takes in workspace."""
    return nbytes(spec.data_type, spec.span)
