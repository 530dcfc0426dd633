"""What an operation is: one record from which methods, inference, checks, reference, costs and tests all
come.

Owns the vocabulary of records (`Port`, `Attr`, `Param`, `Op`), the view of one use of a record that
inference, checks, costs and references receive (`Call`), and the small values that records trade in
(`Inferred`, `Scatter`, `Cost`, `Case`). Knows no particular operation, no graph, no engine and no device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from .dtypes import DataType, data_type, nbytes
from .errors import GraphError
from .geometry import row_major

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


class TensorLike(Protocol):
    """What inference, checks and references may know of a tensor: a graph's `Tensor` and a frozen spec both
    fit.
    """

    @property
    def dim(self) -> tuple[int, ...]: ...
    @property
    def stride(self) -> tuple[int, ...]: ...
    @property
    def data_type(self) -> data_type: ...
    @property
    def is_virtual(self) -> bool: ...
    @property
    def is_pass_by_value(self) -> bool: ...
    @property
    def is_ragged(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of an operation.

    Attributes
    ----------
    optional
        An input that may be absent.
    variadic
        An input that takes a sequence of tensors.
    index
        Holds integers that address or count (lengths, offsets, pages): never converted to the compute type.
    keyword
        An output that exists only when the caller passes a tensor for it by keyword.
    when
        An output that exists only where this predicate of the attributes holds.
    needs
        An output that exists only where the input of this name does.
    moved
        Its elements are moved, not computed with: a reference receives them in the tensor's own type.
    """

    name: str
    doc: str = ""
    optional: bool = False
    variadic: bool = False
    index: bool = False
    keyword: bool = False
    when: Callable[[Attrs], bool] | None = None
    needs: str | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Attr:
    """An attribute: `kind` turns what the caller wrote into a hashable value or raises TypeError or
    ValueError.
    """

    name: str
    default: Any
    kind: Kind
    doc: str = ""


class Kind(NamedTuple):
    """How an attribute reads: the annotation that editors see, and the conversion."""

    annotation: str
    convert: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a builder method that is neither a port nor an attribute; `Op.bind` turns it into
    them.
    """

    name: str
    default: Any = REQUIRED
    annotation: str = "Any"
    doc: str = ""


class Attrs(Mapping[str, Any]):
    """Attributes of one node: read as items or as fields, hashable, in the record's order."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_items", dict(items))

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self._items[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("attributes of a node are fixed")

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return f"Attrs({self._items})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Attrs, (self._items,))


class Inferred(NamedTuple):
    """What inference says of an output; `stride` None means row-major, `data_type` None means the graph's
    default.

    `loose` marks a data type that only fills a gap: one that the graph or the user names wins over it.
    """

    dim: tuple[int, ...]
    stride: tuple[int, ...] | None = None
    data_type: data_type | None = None
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Scatter:
    """A reference's result for a ragged output: `values[i]` belongs at element `index[i]` of the buffer."""

    index: np.ndarray
    values: np.ndarray


class Cost(NamedTuple):
    """Work of one call: floating-point operations, and bytes read and written once each."""

    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Call:
    """One use of an operation: its attributes and the tensors on its ports.

    Attributes
    ----------
    inputs
        Port name -> tensor, a tuple of tensors for a variadic port, or None for an absent one.
    outputs
        The outputs that exist, by port name. During inference their dims may still be empty: what the user
        declared.
    compute
        The compute data type.
    """

    op: Op
    name: str
    attrs: Attrs
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    compute: data_type

    def refuse(self, what: str, port: str | None = None, got: Any = None, expected: Any = None) -> GraphError:
        """The error for a condition that this call misses, naming node and tensor; the caller raises it."""
        tensor = None
        if port is not None:
            tensor = self.inputs.get(port)
            tensor = self.outputs.get(port) if tensor is None else tensor
        where = f"port '{port}': {what}" if port is not None else what
        return GraphError(
            where,
            node=self.name or self.op.name,
            tensor=getattr(tensor, "name", None),
            uid=getattr(tensor, "uid", None),
            got=got,
            expected=expected,
        )

    def require(
        self, ok: bool, what: str, port: str | None = None, got: Any = None, expected: Any = None
    ) -> None:
        """Raise `refuse(...)` unless `ok`."""
        if not ok:
            raise self.refuse(what, port, got, expected)

    def require_dense(self) -> None:
        """Refuse packed tensors, for a record that does not say `packed`."""
        for port, value in (*self.inputs.items(), *self.outputs.items()):
            for tensor in value if isinstance(value, tuple) else (value,):
                if tensor is not None and tensor.is_ragged:
                    raise GraphError(
                        f"port '{port}': a packed (ragged) tensor",
                        node=self.name or self.op.name,
                        tensor=getattr(tensor, "name", None),
                        uid=getattr(tensor, "uid", None),
                        expected="a dense one",
                    )

    def elements(self, port: str) -> int:
        """Number of elements of the tensor on a port, 0 where there is none."""
        tensor = self.inputs.get(port)
        tensor = self.outputs.get(port) if tensor is None else tensor
        return 0 if tensor is None else int(np.prod(tensor.dim, dtype=np.int64))


Arrays = Mapping[str, Any]
Reference = Callable[[ModuleType, Call, Arrays], Mapping[str, Any]]
Level = Literal["smoke", "full", "bench"]


@dataclass(frozen=True, slots=True)
class Arg:
    """A tensor of a case.

    Attributes
    ----------
    data_type
        None takes the case's own.
    fill
        How a test fills it: "normal", "uniform" (0 to 1), "positive" (0.5 to 1.5), "bool", "zeros", "ones",
        ("integers", low, high), or ("values", v0, v1, ...) in row-major order.
    by_value
        A host scalar.
    ragged, multiplier
        The offsets of a ragged tensor, and the number of elements that one unit of them stands for.
    total
        For a ragged tensor: elements of the packed buffer that tests allocate.
    """

    dim: tuple[int, ...]
    data_type: data_type | None = None
    stride: tuple[int, ...] | None = None
    fill: str | tuple[Any, ...] = "normal"
    by_value: bool = False
    ragged: Arg | None = None
    multiplier: int = 1
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One use of an operation from which tests and benchmarks are generated.

    `args` holds what is passed to the builder by parameter name: an `Arg` becomes a tensor (also inside a
    list or tuple), everything else is passed as it stands. `outputs` declares geometry or type of outputs by
    port name.
    """

    name: str
    args: Mapping[str, Any]
    outputs: Mapping[str, Arg] = field(default_factory=dict)
    data_type: DataType = data_type.FLOAT
    compute: DataType = DataType.FLOAT
    level: Level = "smoke"


class Bound(NamedTuple):
    """A builder's arguments in canonical form: tensors on input ports, attributes, tensors given for
    outputs.
    """

    inputs: dict[str, Any]
    attrs: dict[str, Any]
    outputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Op:
    """The only description of an operation.

    Attributes
    ----------
    name
        Name of the builder method and of the operation everywhere else.
    inputs, outputs
        Ports in canonical order.
    attrs
        Attributes in canonical order.
    infer
        `(call) -> {output port: Inferred}`; raises through `call.refuse` where the inputs cannot be combined.
    reference
        `(xp, call, arrays) -> {output port: array or Scatter}` in the compute type; the caller rounds the
        results. Arrays have the tensors' own shapes; a ragged tensor arrives as its flat buffer.
    cost
        `(call) -> Cost`.
    check
        `(call) -> None`; conditions that inference does not need.
    cases
        Uses of the operation for tests and benchmarks.
    doc
        First lines of the method's docstring, with the source where there is one.
    anchor
        The operation around which an engine builds a kernel (attention, matmul, convolution, norm).
    elementwise
        Each output element depends on the broadcast input elements at its own place alone; usable in
        callbacks.
    packed
        Its operands may be packed (ragged): inference, checks and reference know what that means.
    structured
        Its builder takes `out_dims`.
    signature
        Order of the builder's parameters where it is not inputs, attributes, compute_data_type, name: names
        of ports and attributes, and `Param`s for spellings that `bind` translates.
    bind
        `(record, arguments, graph) -> Bound` where the public spelling differs from the canonical form.
        `graph` is an opaque value for callbacks that build sub-expressions (`score_mod`).
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    infer: Callable[[Call], Mapping[str, Inferred]]
    reference: Reference
    cost: Callable[[Call], Cost]
    attrs: tuple[Attr, ...] = ()
    check: Callable[[Call], None] | None = None
    cases: tuple[Case, ...] = ()
    doc: str = ""
    anchor: bool = False
    elementwise: bool = False
    packed: bool = False
    structured: bool = False
    signature: tuple[str | Param, ...] | None = None
    bind: Callable[[Op, Mapping[str, Any], Any], Bound] | None = None

    def present(self, attrs: Attrs, inputs: Mapping[str, Any]) -> tuple[Port, ...]:
        """Outputs that exist without being passed by keyword, in order."""
        return tuple(
            p
            for p in self.outputs
            if not p.keyword
            and (p.when is None or p.when(attrs))
            and (p.needs is None or inputs[p.needs] is not None)
        )

    def returned(self) -> tuple[Port, ...]:
        """Outputs that the builder returns, in order."""
        return tuple(p for p in self.outputs if not p.keyword)


def io_cost(call: Call, flops: float) -> Cost:
    """Cost with every operand moved once and `flops` operations."""
    total = 0
    for tensor in (*_flatten(call.inputs.values()), *call.outputs.values()):
        total += nbytes(tensor.data_type, int(np.prod(tensor.dim, dtype=np.int64)))
    return Cost(flops, total)


def _flatten(values: Any) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        if isinstance(value, tuple):
            flat.extend(v for v in value if v is not None)
        elif value is not None:
            flat.append(value)
    return flat


# Geometry that several families share.


def ordered_like(dim: Sequence[int], tensor: TensorLike) -> tuple[int, ...]:
    """Compact strides for `dim` in the memory order of `tensor`: channels-last stays channels-last, BSHD
    stays BSHD.

    Axes of extent 1 and broadcast axes (stride 0) carry no order of their own and keep their row-major place.
    """
    if len(dim) != len(tensor.dim):
        return row_major(dim)
    rank = len(dim)
    real = [a for a in range(rank) if tensor.dim[a] > 1 and tensor.stride[a] > 0]
    by_memory = sorted(real, key=lambda a: (-tensor.stride[a], a))
    places = iter(by_memory)
    order = [next(places) if a in real else a for a in range(rank)]
    strides, step = [0] * rank, 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, dim[axis])
    return tuple(strides)


def broadcast_dims(call: Call, ports: Sequence[str]) -> tuple[int, ...]:
    """Extents of the right-aligned broadcast of the tensors on `ports`; raises where they do not
    broadcast.
    """
    tensors = [(p, call.inputs[p]) for p in ports if call.inputs.get(p) is not None]
    rank = max(len(t.dim) for _, t in tensors)
    result = [1] * rank
    for port, tensor in tensors:
        for axis, extent in enumerate(tensor.dim, start=rank - len(tensor.dim)):
            if extent == 1 or extent == result[axis]:
                continue
            call.require(
                result[axis] == 1,
                f"extent of axis {axis} does not broadcast",
                port,
                got=tensor.dim,
                expected=f"1 or {result[axis]} there",
            )
            result[axis] = extent
    return tuple(result)


# Kinds of attributes.


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError("an integer is needed")
    return int(value.__index__())


def _real(value: Any) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(type(value), "__float__"):
        raise TypeError("a number is needed")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError("True or False is needed")
    return bool(value)


INT = Kind("int", _integer)
FLOAT = Kind("float", _real)
BOOL = Kind("bool", _flag)
INTS = Kind("Sequence[int]", lambda value: tuple(_integer(v) for v in value))


def optional(kind: Kind) -> Kind:
    """`kind`, or None."""
    return Kind(f"{kind.annotation} | None", lambda value: None if value is None else kind.convert(value))


def one_of(enum: type) -> Kind:
    """A member of an enumeration, given as such or by its integer value."""
    return Kind(enum.__name__, enum)
