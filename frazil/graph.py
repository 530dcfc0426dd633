"""The pure graph: nodes, tensors, and the inference that completes what the user left out.

Owns how builder calls become nodes, default types, and validation. Knows no device, buffer, engine or plan;
the public `Graph` (api.py) adds the lifecycle to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .builders import Builders
from .dtypes import data_type, from_any
from .enums import scalar_type, tensor_reordering
from .errors import GraphError, StateError
from .expression import Expression
from .geometry import row_major
from .node import Node, as_step, bind, convert, declare
from .op import Inferred, Op
from .tensor import Tensor, TensorTable

# For methods with a parameter called `scalar_type`.
scalar_kind = scalar_type


@dataclass(frozen=True, slots=True)
class GraphContext:
    """Name of a graph and the types that its tensors and nodes take where they name none."""

    name: str
    io_data_type: data_type
    intermediate_data_type: data_type
    compute_data_type: data_type


class GraphIR(Builders):
    """A graph under construction. Builder methods, one per operation record, come from `Builders`."""

    def __init__(self, context: GraphContext) -> None:
        self._context = context
        self._nodes: list[Node] = []
        self._table = TensorTable()
        self._validated = -1
        self._recording: list[Node] | None = None
        self._counts: dict[str, int] = {}

    # Tensors.

    def tensor(
        self,
        dim: Sequence[int],
        stride: Sequence[int] | None = None,
        data_type: Any = None,
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        ragged_offset: Tensor | None = None,
        reordering_type: tensor_reordering | None = None,
        name: str = "",
        uid: int | None = None,
        ragged_offset_multiplier: int = 1,
        alignment_value: int = 1,
    ) -> Tensor:
        """Declare a tensor.

        Parameters
        ----------
        dim
            Extents.
        stride
            Distance between neighbours along each axis, in elements; row-major where left out.
        data_type
            Element type, also a framework's; the graph's `io_data_type` where left out.
        is_virtual
            Lives only between nodes.
        is_pass_by_value
            One number, given from the host at execute.
        ragged_offset
            Makes the tensor packed: where each batch entry starts, in elements times
            `ragged_offset_multiplier`.
        uid
            Key in variant packs; chosen by the graph where left out or -1.
        alignment_value
            A promise that the tensor's values are multiples of it.

        Raises
        ------
        GraphError
            Extents and strides that do not fit together, or a uid that another tensor was given.
        StateError
            The graph is planned already.
        """
        made = Tensor(self._table, name=name, uid=uid, is_virtual=is_virtual)
        complete = False
        try:
            made.set_dim(dim).set_stride(row_major(made.dim) if stride is None else stride)
            made.set_data_type(data_type).set_is_pass_by_value(is_pass_by_value)
            made.set_ragged_offset(ragged_offset).set_ragged_offset_multiplier(ragged_offset_multiplier)
            made.set_reordering_type(reordering_type or tensor_reordering.NONE).set_alignment_value(
                alignment_value
            )
            made.validate()
            complete = True
        finally:
            if not complete:
                self._table.remove(made)
        return made

    def tensor_scalar(self, value: float, scalar_type: scalar_type, name: str = "") -> Tensor:
        """A scalar: part of the graph (COMPILE_TIME_CONST), or given at execute (RUNTIME_PARAM) with this as
        its type.

        A float makes a FLOAT scalar, an int an INT32 or, where it does not fit, an INT64 one.
        """
        constant = scalar_kind(scalar_type) is scalar_kind.COMPILE_TIME_CONST
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise GraphError("value of a scalar", tensor=name, got=repr(value), expected="an int or a float")
        if isinstance(value, float):
            dtype = data_type.FLOAT
        else:
            dtype = data_type.INT32 if -(2**31) <= value < 2**31 else data_type.INT64
        made = self.tensor((1,), data_type=dtype, is_pass_by_value=True, name=name)
        return made.set_value(value) if constant else made

    # Looking at the graph.

    @property
    def context(self) -> GraphContext:
        """Name and default types."""
        return self._context

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes in the order in which they were added, which is an order of execution."""
        return tuple(self._nodes)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return tuple(self._table)

    @property
    def table(self) -> TensorTable:
        """The table of tensors; for code that restores a stored graph."""
        return self._table

    def find_tensor(self, key: str | int | Tensor) -> Tensor:
        """The tensor with a name or uid.

        Raises
        ------
        GraphError
            There is none, or several have the name.
        """
        if isinstance(key, str):
            found = [t for t in self._table if t.name == key]
            if len(found) != 1:
                names = sorted({t.name for t in self._table if t.name})
                raise GraphError(
                    f"{'no tensor has' if not found else 'several tensors have'} the name '{key}'",
                    got=[t.uid for t in found] or None,
                    expected=f"one of {names}" if not found else "a uid, or distinct names",
                )
            return found[0]
        if hasattr(key, "get_uid"):
            key = key.get_uid()
        if isinstance(key, bool) or not hasattr(type(key), "__index__"):
            raise TypeError(f"find_tensor: a Tensor, uid or name is needed, got {type(key).__name__}")
        tensor = self._table.get(int(key))
        if tensor is None:
            raise GraphError(
                "no tensor has this uid", got=key, expected=f"one of {sorted(t.uid for t in self._table)}"
            )
        return tensor

    def query_tensor_attributes_of_uid(self, uid: int) -> Tensor:
        """The tensor with a uid."""
        return self.find_tensor(int(uid))

    def get_node(self, name: str) -> Node:
        """The node with a name."""
        for node in self._nodes:
            if node.name == name:
                return node
        raise GraphError(f"no node has the name '{name}'", expected=f"one of {[n.name for n in self._nodes]}")

    def get_inputs(self) -> list[Tensor]:
        """Tensors that a variant pack must supply to be read, host scalars and ragged offsets included."""
        read = [t for n in self._nodes for t in n.read()]
        return [t for t in dict.fromkeys(read) if t.producer is None and t.value is None]

    def get_outputs(self) -> list[Tensor]:
        """Tensors that a variant pack must supply to be written."""
        return [t for n in self._nodes for t in n.outputs.values() if not t.is_virtual]

    # Restoring a stored graph.

    def take_over(self, other: GraphIR) -> None:
        """Become `other`, which a stored graph was read into; only an empty graph can."""
        if self._nodes or len(self._table):
            raise StateError(
                "a stored graph is read into an empty one: this graph has tensors or nodes already"
            )
        self._context, self._nodes, self._table = other._context, other._nodes, other._table
        self._validated = other._validated

    def restore_node(
        self,
        op: Op,
        name: str,
        attrs: Mapping[str, Any],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Tensor],
        compute: data_type,
    ) -> None:
        """Add a node in canonical form over tensors that exist.

        Raises
        ------
        GraphError
            Ports or attributes that the operation does not have, lacks, or of the wrong kind.
        """
        self._table.guard(f"adding a node ({op.name})")
        if set(attrs) != {a.name for a in op.attrs}:
            raise GraphError(
                f"attributes of {op.name}", node=name, got=[*attrs], expected=[a.name for a in op.attrs]
            )
        converted = convert(op, name, attrs)
        ports = {p.name for p in op.inputs}
        present = {p.name for p in op.present(converted, {p: inputs.get(p) for p in ports})}
        most = present | {p.name for p in op.outputs if p.keyword}
        if set(inputs) != ports or not present <= set(outputs) <= most:
            got, expected = [*inputs, *outputs], [*sorted(ports), *sorted(most)]
            raise GraphError(f"ports of {op.name}", node=name, got=got, expected=expected)
        checked = {p.name: self._input(op, name, p, inputs[p.name]) for p in op.inputs}
        given = self._given(name, outputs)
        for tensor in given.values():
            tensor.made_by(name)
        self._nodes.append(Node(op, name, converted, checked, given, compute))
        self._table.version += 1

    # Validation.

    def validate(self) -> None:
        """Complete dims, strides and types, and check every node.

        Raises
        ------
        GraphError
            Something about the graph is wrong; the text names node, tensor, what was found and what was
            expected.
        """
        if self._validated == self._table.version:
            return
        if not self._nodes:
            raise GraphError("the graph has no nodes")
        for tensor in self._table:
            tensor.infer((), (), data_type.NOT_SET)
        produced: set[Tensor] = set()
        for node in self._nodes:
            inputs = [t for t in node.read() if t not in produced]
            for tensor in inputs:
                self._complete_input(tensor, node)
            for tensor in inputs:
                tensor.validate()
            call = node.call
            if not node.op.packed:
                call.require_dense()
            for port, found in node.op.infer(call).items():
                if port in node.outputs:
                    self._complete_output(node, port, found)
            for tensor in node.outputs.values():
                tensor.validate()
            if node.op.check is not None:
                node.op.check(call)
            produced.update(node.outputs.values())
        if not self.get_outputs():
            raise GraphError("the graph has no output", expected="set_output(True) on at least one tensor")
        self._validated = self._table.version

    def freeze(self) -> None:
        """Validate, then forbid every further change."""
        self.validate()
        self._table.frozen = True

    def _complete_input(self, tensor: Tensor, node: Node) -> None:
        where: dict[str, Any] = {"node": node.name, "tensor": tensor.name, "uid": tensor.uid}
        if tensor.is_virtual or tensor.producer is not None:
            kind = "a virtual tensor" if tensor.is_virtual else f"the output of node '{tensor.producer}'"
            raise GraphError(f"{kind} is read before any node produces it", **where)
        if tensor.data_type is data_type.NOT_SET:
            if self._context.io_data_type is data_type.NOT_SET:
                raise GraphError(
                    "no data type", expected="one on the tensor, or the graph's io_data_type", **where
                )
            tensor.infer((), (), self._context.io_data_type)

    def _complete_output(self, node: Node, port: str, found: Inferred) -> None:
        tensor = node.outputs[port]
        dim, _, dtype = tensor.declared
        same = len(dim) == len(found.dim) and all(d in (-1, f) for d, f in zip(dim, found.dim, strict=True))
        if dim and not same:
            raise node.call.refuse("declared extents", port, got=dim, expected=found.dim)
        default = self._context.intermediate_data_type if tensor.is_virtual else self._context.io_data_type
        inferred = found.data_type or data_type.NOT_SET
        if found.loose and default is not data_type.NOT_SET:
            inferred = default
        inferred = inferred or default
        if not inferred and not dtype:
            first = next((t for t in node.read() if t.data_type), None)
            inferred = first.data_type if first is not None else data_type.NOT_SET
        tensor.infer(found.dim, found.stride or row_major(found.dim), inferred)

    # Adding nodes.

    def _add(self, op: Op, arguments: Mapping[str, Any]) -> Any:
        """Turn one builder call into a node; what the builder returns."""
        self._table.guard(f"adding a node ({op.name})")
        name = str(arguments["name"] or self._auto_name(op.name))
        compute = from_any(arguments["compute_data_type"]) or self._context.compute_data_type
        bound = (op.bind or bind)(op, {**arguments, "name": name}, self)
        attrs = convert(op, name, bound.attrs)
        inputs = {p.name: self._input(op, name, p, bound.inputs.get(p.name)) for p in op.inputs}
        given = self._given(name, bound.outputs)
        present = op.present(attrs, inputs)
        outputs = {p.name: Tensor(self._table, name=f"{name}::{p.name}", is_virtual=True) for p in present}
        outputs.update(given)
        for tensor in outputs.values():
            tensor.made_by(name)
        node = Node(op, name, attrs, inputs, outputs, compute or data_type.FLOAT)
        (self._nodes if self._recording is None else self._recording).append(node)
        self._table.version += 1
        declare(node, arguments.get("out_dims"))
        returned = [outputs.get(p.name) for p in op.returned()]
        return returned[0] if len(returned) == 1 else returned

    def trace(
        self, functions: Sequence[Callable[[Any, Tensor], Tensor]], node: str
    ) -> tuple[Expression, list[Tensor]]:
        """Run callbacks such as `score_mod` and return what they build as one expression, with the tensors it
        captures.

        Function i receives the graph and leading value i, and its result is result i. Operations that a
        callback adds do not become nodes of the graph; tensors that it declares do become inputs of it.

        Raises
        ------
        GraphError
            A callback adds an operation that is not elementwise, or does not return a tensor.
        """
        outer, self._recording = self._recording, []
        leading = [
            Tensor(self._table, name=f"{node}::value{i}", is_virtual=True) for i in range(len(functions))
        ]
        try:
            results = [f(self, value) for f, value in zip(functions, leading, strict=True)]
        finally:
            steps, self._recording = self._recording, outer
            made = [t for n in steps for t in n.outputs.values()]
            for tensor in (*leading, *made):
                self._table.remove(tensor)
        for step in steps:
            if not step.op.elementwise:
                expected = "elementwise operations alone"
                raise GraphError("operation in a callback", node=node, got=step.op.name, expected=expected)
        captured = [
            t for t in dict.fromkeys(t for n in steps for t in n.read()) if t not in leading and t not in made
        ]
        number = {t: i for i, t in enumerate((*leading, *captured, *made))}
        for result in results:
            if not isinstance(result, Tensor) or result not in number:
                expected = "a tensor that it computed"
                raise GraphError("result of a callback", node=node, got=repr(result), expected=expected)
        return Expression(
            len(leading),
            len(captured),
            tuple(as_step(n, number) for n in steps),
            tuple(number[r] for r in results),
        ), captured

    def _auto_name(self, op: str) -> str:
        count = self._counts[op] = self._counts.get(op, -1) + 1
        return f"{op}.{count}"

    def _input(self, op: Op, node: str, port: Any, value: Any) -> Any:
        if value is None or (port.variadic and len(value) == 0):
            if not port.optional:
                raise GraphError(
                    f"port '{port.name}' of {op.name} is missing", node=node, expected="a tensor"
                )
            return None
        if port.variadic:
            return tuple(self._own(node, port.name, v) for v in value)
        return self._own(node, port.name, value)

    def _own(self, node: str, port: str, value: Any) -> Tensor:
        """The graph's own tensor for what was passed to an input port."""
        tensor = value if isinstance(value, Tensor) else self._adopt(value, node, port)
        if tensor._table is not self._table:
            raise GraphError(
                f"port '{port}': tensor of another graph", node=node, tensor=tensor.name, uid=tensor.uid
            )
        return tensor

    def _given(self, node: str, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """Tensors that the caller passes for output ports."""
        given: dict[str, Tensor] = {}
        for port, value in values.items():
            if value is None:
                continue
            if not isinstance(value, Tensor):
                got = type(value).__name__
                raise TypeError(f"node '{node}': {port}: a Tensor of the graph is needed, got {got}")
            tensor = self._own(node, port, value)
            if tensor.producer is not None or tensor in given.values():
                raise GraphError("tensor is produced twice", node=node, tensor=tensor.name, uid=tensor.uid)
            given[port] = tensor
        return given

    def _adopt(self, value: Any, node: str, port: str) -> Tensor:
        """What to do with an input that is no tensor of a graph."""
        raise TypeError(f"node '{node}': port '{port}': a Tensor is needed, got {type(value).__name__}")
