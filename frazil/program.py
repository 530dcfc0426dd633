"""Programs: what engines compile problems into, as data that an executor runs.

Owns the closed set of instructions, arguments and integer expressions, and the linking of parts into one
program. Nothing here runs: a program holds no function, handle or device memory, so it can be stored,
compared and sent elsewhere. Ports are tensors of the problem, by number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from .artifact import Artifact
from .dtypes import data_type
from .spec import NodeSpec, TensorSpec

# Integer expressions over the geometry of operands.


@dataclass(frozen=True, slots=True)
class Const:
    """A number."""

    value: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Extent of an operand along an axis."""

    port: int
    axis: int


@dataclass(frozen=True, slots=True)
class Stride:
    """Stride of an operand along an axis, in elements."""

    port: int
    axis: int


@dataclass(frozen=True, slots=True)
class Binary:
    """`left <op> right` with op one of + * cdiv min max."""

    op: str
    left: Expr
    right: Expr


Expr = Const | Extent | Stride | Binary
Geometry = Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]

_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "cdiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}


def evaluate(expr: Expr, geometry: Geometry) -> int:
    """Value of an expression; `geometry` gives (extents, strides) of each port."""
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Extent):
        return geometry[expr.port][0][expr.axis]
    if isinstance(expr, Stride):
        return geometry[expr.port][1][expr.axis]
    return _OPERATIONS[expr.op](evaluate(expr.left, geometry), evaluate(expr.right, geometry))


# Arguments.


@dataclass(frozen=True, slots=True)
class Slot:
    """Address of an operand, plus bytes."""

    port: int
    byte_offset: int = 0


@dataclass(frozen=True, slots=True)
class Workspace:
    """Address within the workspace."""

    offset: int


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a given type: an expression, or a float that is fixed."""

    value: Expr | float
    data_type: data_type


@dataclass(frozen=True, slots=True)
class HostScalar:
    """The number that was given for a by-value operand, converted to a type."""

    port: int
    data_type: data_type


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map (TMA descriptor) over an operand or a region of workspace.

    Attributes
    ----------
    extents, strides
        From the outermost axis in; strides in elements, the innermost is 1.
    box
        Extents of one copy.
    swizzle
        Bytes: 0, 32, 64 or 128.
    """

    base: Slot | Workspace
    data_type: data_type
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True, slots=True)
class Null:
    """A null pointer."""


Address = Slot | Workspace
Argument = Slot | Workspace | Number | HostScalar | TensorMap | Null

# Instructions.


@dataclass(frozen=True, slots=True)
class Kernel:
    """Launch a compiled kernel; a launch with a zero in its grid is skipped."""

    artifact: Artifact
    grid: tuple[Expr, Expr, Expr]
    block: int
    args: tuple[Argument, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fill:
    """Set `nbytes` bytes to a repeated 1, 2 or 4 byte pattern."""

    dst: Address
    nbytes: Expr
    pattern: bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy bytes within the device."""

    dst: Address
    src: Address
    nbytes: Expr


@dataclass(frozen=True, slots=True)
class Upload:
    """Write bytes that the program owns."""

    dst: Address
    data: bytes


@dataclass(frozen=True, slots=True)
class BackendPlan:
    """Run a plan of the closed library, stored in its own form."""

    plan: bytes
    operands: tuple[tuple[int, Address], ...]
    workspace: Workspace | None = None


@dataclass(frozen=True, slots=True)
class HostCall:
    """Run one operation's own reference on the host; only for a CPU target.

    Attributes
    ----------
    node
        The operation, over the program's tensors.
    operands
        Where each of the node's tensors lives: number of the tensor, and its address.
    """

    node: NodeSpec
    operands: tuple[tuple[int, Address], ...]


Instruction = Kernel | Fill | Copy | Upload | BackendPlan | HostCall


@dataclass(frozen=True)
class Program:
    """Instructions over the tensors of a problem.

    Attributes
    ----------
    tensors
        The problem's tensors; ports number them.
    workspace
        Bytes of scratch memory, for the declared maxima.
    alignment
        Bytes to which the workspace is aligned.
    aligned
        Bytes to which an operand's address must be aligned, by port, where that is more than its element
        size.
    may_alias
        Pairs (output, input) of ports that may share memory.
    fixed
        Ports whose strides are part of the program: a buffer with other strides is refused.
    """

    tensors: tuple[TensorSpec, ...]
    instructions: tuple[Instruction, ...]
    workspace: int = 0
    alignment: int = 16
    aligned: tuple[tuple[int, int], ...] = ()
    may_alias: frozenset[tuple[int, int]] = frozenset()
    fixed: frozenset[int] = frozenset()


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple not below `value`."""
    return -(-value // multiple) * multiple


def link(
    tensors: Sequence[TensorSpec],
    parts: Sequence[tuple[Program, Sequence[int]]],
    scratch: Mapping[int, int],
    end: int,
) -> Program:
    """One program from parts that run one after the other.

    Parameters
    ----------
    tensors
        Tensors of the whole problem.
    parts
        Each part's program, and for each of its ports the number of the tensor in the whole.
    scratch
        Workspace offset of each tensor that lives between parts.
    end
        Bytes of workspace that `scratch` takes; the parts' own workspace lies behind it and is shared by all,
        since they run in order.
    """
    # What lives between parts is aligned as they ask only if the workspace is.
    asked = [b for p, ports in parts for port, b in p.aligned if ports[port] in scratch]
    alignment = max([16, *(p.alignment for p, _ in parts), *asked])
    base = round_up(end, alignment)
    instructions: list[Instruction] = []
    aligned: dict[int, int] = {}
    for program, ports in parts:
        instructions += [_relocate(i, ports, scratch, base) for i in program.instructions]
        for port, bytes_ in program.aligned:
            if ports[port] not in scratch:
                aligned[ports[port]] = max(aligned.get(ports[port], 1), bytes_)
    own = max([p.workspace for p, _ in parts], default=0)
    # A later part may still read what an earlier one would overwrite, so only single parts keep their
    # permissions.
    may_alias: frozenset[tuple[int, int]] = frozenset()
    if len(parts) == 1:
        program, ports = parts[0]
        may_alias = frozenset((ports[o], ports[i]) for o, i in program.may_alias)
    size = base + own if own else end
    fixed = frozenset(ports[i] for program, ports in parts for i in program.fixed if ports[i] not in scratch)
    return Program(
        tuple(tensors), tuple(instructions), size, alignment, tuple(sorted(aligned.items())), may_alias, fixed
    )


def _relocate(value: Any, ports: Sequence[int], scratch: Mapping[int, int], base: int) -> Any:
    """A piece of a part's program in terms of the whole: ports renumbered, own workspace moved behind
    `base`.
    """
    if isinstance(value, Slot):
        port = ports[value.port]
        return (
            Workspace(scratch[port] + value.byte_offset) if port in scratch else Slot(port, value.byte_offset)
        )
    if isinstance(value, Workspace):
        return Workspace(base + value.offset)
    if isinstance(value, (Extent, Stride)):
        return type(value)(ports[value.port], value.axis)
    if isinstance(value, HostScalar):
        return HostScalar(ports[value.port], value.data_type)
    if isinstance(value, HostCall):
        operands = tuple((ports[i], _relocate(a, ports, scratch, base)) for i, a in value.operands)
        return HostCall(_renumber(value.node, ports), operands)
    if isinstance(value, tuple):
        return tuple(_relocate(v, ports, scratch, base) for v in value)
    if isinstance(value, (Binary, Number, TensorMap, Kernel, Fill, Copy, Upload, BackendPlan)):
        changed = {
            f.name: _relocate(getattr(value, f.name), ports, scratch, base)
            for f in fields(value)
            if f.name != "artifact"
        }
        return replace(value, **changed)
    return value


def _renumber(node: NodeSpec, ports: Sequence[int]) -> NodeSpec:
    def number(value: int | tuple[int, ...] | None) -> int | tuple[int, ...] | None:
        if isinstance(value, tuple):
            return tuple(ports[i] for i in value)
        return None if value is None else ports[value]

    return replace(
        node,
        inputs=tuple((p, number(v)) for p, v in node.inputs),
        outputs=tuple((p, ports[i]) for p, i in node.outputs),
    )
