"""The tensors of a graph and the table that gives them identity.

Owns a tensor's declared and inferred properties, uids and names, and the rule that a frozen graph does not
change. Knows nothing of nodes, buffers or devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from .dtypes import DataType, data_type, from_any
from .enums import scalar_type, tensor_reordering
from .errors import GraphError, StateError
from .geometry import is_nested


class TensorTable:
    """All tensors of one graph by uid, whether they may still change, and a counter of changes."""

    def __init__(self) -> None:
        self.frozen = False
        self.version = 0
        self._by_uid: dict[int, Tensor] = {}
        self._next = 1

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: int) -> Tensor | None:
        """The tensor with this uid, if any."""
        return self._by_uid.get(uid)

    def add(self, tensor: Tensor, uid: int | None) -> None:
        """Enter a new tensor under the caller's uid, or under the next free one."""
        self.guard("adding a tensor")
        uid = -1 if uid is None else tensor._integer(uid, "uid")
        if uid < 0:
            tensor._uid, tensor._auto_uid = self._free(), True
            self._by_uid[tensor._uid] = tensor
        else:
            self._claim(tensor, uid)

    def rename_uid(self, tensor: Tensor, uid: int) -> None:
        """Give an entered tensor the caller's uid; one that only had a number by default gives way."""
        del self._by_uid[tensor._uid]
        try:
            self._claim(tensor, uid)
        except GraphError:
            self._by_uid[tensor._uid] = tensor
            raise

    def remove(self, tensor: Tensor) -> None:
        """Drop a tensor that belongs to a sub-expression rather than to the graph."""
        self._by_uid.pop(tensor._uid, None)

    def guard(self, doing: str) -> None:
        """Raise StateError where the graph is planned already."""
        if self.frozen:
            raise StateError(f"{doing}: the graph is planned, and nothing about it changes after that")

    def _claim(self, tensor: Tensor, uid: int) -> None:
        holder = self._by_uid.get(uid)
        if holder is not None and not holder._auto_uid:
            raise GraphError("uid is taken", tensor=tensor._name, uid=uid, got=f"uid of '{holder._name}'")
        if holder is not None:
            del self._by_uid[uid]
        tensor._uid, tensor._auto_uid = uid, False
        self._by_uid[uid] = tensor
        if holder is not None:
            holder._uid = self._free()
            self._by_uid[holder._uid] = holder

    def _free(self) -> int:
        while self._next in self._by_uid:
            self._next += 1
        self._next += 1
        return self._next - 1


class Tensor:
    """A tensor of a graph: an input, an output, or a value between nodes.

    Setters return the tensor, so that they chain. After planning they raise `StateError`, but for a value
    that equals the present one. `dim` and `stride` are in elements; empty until declared or inferred by
    `validate()`.
    """

    def __init__(
        self, table: TensorTable, *, name: str = "", uid: int | None = None, is_virtual: bool = False
    ) -> None:
        self._table = table
        self._name = str(name)
        self._uid, self._auto_uid = -1, True
        self._dim: tuple[int, ...] = ()
        self._stride: tuple[int, ...] = ()
        self._data_type = data_type.NOT_SET
        self._inferred: tuple[tuple[int, ...], tuple[int, ...], data_type] = ((), (), data_type.NOT_SET)
        self._is_virtual = is_virtual
        self._pass_by_value = False
        self._value: int | float | None = None
        self._ragged_offset: Tensor | None = None
        self._ragged_offset_multiplier = 1
        self._reordering = tensor_reordering.NONE
        self._alignment_value = 1
        self._producer: str | None = None
        table.add(self, uid)

    # Identity.

    @property
    def uid(self) -> int:
        """Key of the tensor in a variant pack; unique in its graph."""
        return self._uid

    @uid.setter
    def uid(self, value: int) -> None:
        self.set_uid(value)

    @property
    def name(self) -> str:
        """Key of the tensor in a variant pack, where no other tensor has the same name."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._assign("_name", str(value))

    # Geometry and type: what was declared, else what was inferred.

    @property
    def dim(self) -> tuple[int, ...]:
        """Extents; a declared -1, which leaves an extent of an output to inference, until that has found
        it.
        """
        open_extent = -1 in self._dim and bool(self._inferred[0])
        return self._inferred[0] if open_extent or not self._dim else self._dim

    @dim.setter
    def dim(self, value: Sequence[int]) -> None:
        self._assign("_dim", self._integers(value, "dim"), equal_to=self.dim)

    @property
    def stride(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis, in elements."""
        return self._stride or self._inferred[1]

    @stride.setter
    def stride(self, value: Sequence[int]) -> None:
        self._assign("_stride", self._integers(value, "stride"), equal_to=self.stride)

    @property
    def data_type(self) -> DataType:
        """Element type."""
        return self._data_type if self._data_type is not data_type.NOT_SET else self._inferred[2]

    @data_type.setter
    def data_type(self, value: Any) -> None:
        self._assign("_data_type", from_any(value), equal_to=self.data_type)

    @property
    def declared(self) -> tuple[tuple[int, ...], tuple[int, ...], DataType]:
        """Dim, stride and data type as the user set them; empty where inference is to find them."""
        return self._dim, self._stride, self._data_type

    def infer(self, dim: tuple[int, ...], stride: tuple[int, ...], dtype: DataType) -> None:
        """Record what inference found; declared values stay in force."""
        self._inferred = (dim, stride, dtype)

    @property
    def producer(self) -> str | None:
        """Name of the node that writes the tensor; None for an input."""
        return self._producer

    def made_by(self, node: str) -> None:
        """Record the node that writes the tensor; for the graph that adds it."""
        self._producer = node

    # Flags.

    @property
    def is_virtual(self) -> bool:
        """Whether the tensor lives only between nodes; False for inputs and outputs."""
        return self._is_virtual

    @is_virtual.setter
    def is_virtual(self, value: bool) -> None:
        self._assign("_is_virtual", bool(value))

    @property
    def is_pass_by_value(self) -> bool:
        """Whether the tensor is one number given from the host at execute."""
        return self._pass_by_value

    @property
    def pass_by_value(self) -> bool:
        """The same as `is_pass_by_value`."""
        return self._pass_by_value

    @pass_by_value.setter
    def pass_by_value(self, value: bool) -> None:
        self._assign("_pass_by_value", bool(value))

    @property
    def value(self) -> int | float | None:
        """The number of a compile-time constant, else None."""
        return self._value

    @property
    def scalar_type(self) -> scalar_type:
        """Whether a host scalar is part of the graph or given at execute."""
        return scalar_type.RUNTIME_PARAM if self._value is None else scalar_type.COMPILE_TIME_CONST

    @property
    def ragged_offset(self) -> Tensor | None:
        """Where each batch entry of a packed tensor starts, in elements times the multiplier; (B+1, 1, 1,
        1).
        """
        return self._ragged_offset

    @ragged_offset.setter
    def ragged_offset(self, value: Tensor | None) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"ragged_offset: a Tensor is needed, got {type(value).__name__}")
        if value is not None and value._table is not self._table:
            raise self._wrong(
                "ragged_offset", f"tensor '{value._name}' of another graph", "one of this graph"
            )
        self._assign("_ragged_offset", value)

    @property
    def is_ragged(self) -> bool:
        """Whether the tensor is packed."""
        return self._ragged_offset is not None

    @property
    def ragged_offset_multiplier(self) -> int:
        """Elements that one unit of the ragged offset stands for."""
        return self._ragged_offset_multiplier

    @property
    def reordering_type(self) -> tensor_reordering:
        """Element order beyond strides."""
        return self._reordering

    @property
    def alignment_value(self) -> int:
        """A promise about the tensor's values (for instance page sizes): all are multiples of it."""
        return self._alignment_value

    # Setters that chain.

    def set_output(self, value: bool) -> Tensor:
        """Make the tensor an output of the graph (or, with False, a value between nodes again)."""
        return self._assign("_is_virtual", not value)

    def set_is_virtual(self, value: bool) -> Tensor:
        """Set `is_virtual`."""
        return self._assign("_is_virtual", bool(value))

    def set_is_pass_by_value(self, value: bool) -> Tensor:
        """Set `is_pass_by_value`."""
        return self._assign("_pass_by_value", bool(value))

    def set_data_type(self, value: Any) -> Tensor:
        """Set the element type; framework types are accepted."""
        self.data_type = value
        return self

    def set_name(self, value: str) -> Tensor:
        """Set the name."""
        self.name = value
        return self

    def set_dim(self, value: Sequence[int]) -> Tensor:
        """Set the extents."""
        self.dim = value
        return self

    def set_stride(self, value: Sequence[int]) -> Tensor:
        """Set the strides, in elements."""
        self.stride = value
        return self

    def set_uid(self, value: int) -> Tensor:
        """Set the uid; a tensor that had it by default gets another, one that had it by choice is an
        error.
        """
        value = self._integer(value, "uid")
        if value < 0 or (value == self._uid and (not self._auto_uid or self._table.frozen)):
            return self
        self._table.guard(f"tensor '{self._name}' (uid {self._uid}): uid")
        self._table.rename_uid(self, value)
        self._table.version += 1
        return self

    def set_ragged_offset(self, value: Tensor | None) -> Tensor:
        """Set the offsets that make the tensor packed, or None for a dense one."""
        self.ragged_offset = value
        return self

    def set_ragged_offset_multiplier(self, value: int) -> Tensor:
        """Set the number of elements that one unit of the ragged offset stands for, at least 1."""
        return self._assign("_ragged_offset_multiplier", self._positive(value, "ragged_offset_multiplier"))

    def set_reordering_type(self, value: tensor_reordering) -> Tensor:
        """Set the element order."""
        try:
            return self._assign("_reordering", tensor_reordering(value))
        except ValueError:
            raise self._wrong("reordering_type", repr(value), "a tensor_reordering") from None

    def set_alignment_value(self, value: int) -> Tensor:
        """Promise that every value of the tensor is a multiple of `value`, at least 1."""
        return self._assign("_alignment_value", self._positive(value, "alignment_value"))

    def set_value(self, value: float) -> Tensor:
        """Make the tensor a compile-time constant."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong("value", repr(value), "an int or a float")
        self._assign("_pass_by_value", True)
        return self._assign("_value", value)

    # Getters, spelled as existing code spells them.

    def get_uid(self) -> int:
        """The uid."""
        return self._uid

    def get_name(self) -> str:
        """The name."""
        return self._name

    def get_dim(self) -> list[int]:
        """The extents."""
        return list(self.dim)

    def get_stride(self) -> list[int]:
        """The strides, in elements."""
        return list(self.stride)

    def get_data_type(self) -> DataType:
        """The element type."""
        return self.data_type

    def get_is_virtual(self) -> bool:
        """Whether the tensor lives only between nodes."""
        return self._is_virtual

    def get_is_pass_by_value(self) -> bool:
        """Whether the tensor is a host scalar."""
        return self._pass_by_value

    def get_reordering_type(self) -> tensor_reordering:
        """The element order."""
        return self._reordering

    def get_ragged_offset_multiplier(self) -> int:
        """Elements per unit of the ragged offset."""
        return self._ragged_offset_multiplier

    def validate(self) -> None:
        """Check that extents and strides agree with each other.

        Raises
        ------
        GraphError
            A negative extent or stride, strides of another rank, an output that overlaps itself, a host
            scalar that is an output or has more than one element, or ragged offsets that do not fit.
        """
        if any(d < 0 for d in self.dim):
            raise self._wrong("dim", self.dim, "no negative extent")
        if len(self.stride) != len(self.dim):
            raise self._wrong("stride", self.stride, f"{len(self.dim)} strides, one per extent of {self.dim}")
        if any(s < 0 for s in self.stride):
            raise self._wrong("stride", self.stride, "no negative stride")
        if self._pass_by_value and any(d != 1 for d in self.dim):
            raise self._wrong("dim of a host scalar", self.dim, "extent 1 on every axis")
        if self._pass_by_value and self.producer is not None:
            raise self._wrong("host scalar", f"an output of node '{self.producer}'", "an input")
        # Where the rows of a packed tensor lie depends on offsets and lengths that only execute knows.
        written = self.producer is not None and not self._is_virtual and not self.is_ragged
        if written and not is_nested(self.dim, self.stride):
            raise self._wrong(
                "stride of an output", f"{self.stride} for {self.dim}", "no two elements at one address"
            )
        if self._ragged_offset is not None:
            self._validate_offsets(self._ragged_offset)

    def _validate_offsets(self, offsets: Tensor) -> None:
        if offsets.producer is not None:
            raise self._wrong("ragged_offset", f"an output of node '{offsets.producer}'", "an input")
        if offsets.data_type not in (data_type.NOT_SET, data_type.INT32, data_type.INT64):
            raise offsets._wrong("data type of a ragged offset", offsets.data_type, "INT32 or INT64")
        if self.dim and math.prod(offsets.dim) != self.dim[0] + 1:
            expected = f"{self.dim[0] + 1} elements, one more than '{self._name}' has batch entries"
            raise offsets._wrong("dim of a ragged offset", offsets.dim, expected)

    def __repr__(self) -> str:
        return (
            f"Tensor(name={self._name!r}, uid={self._uid}, dim={list(self.dim)}, stride={list(self.stride)}, "
            f"data_type={self.data_type.name}, is_virtual={self._is_virtual})"
        )

    def _wrong(self, what: str, got: Any, expected: Any) -> GraphError:
        return GraphError(what, tensor=self._name, uid=self._uid, got=got, expected=expected)

    def _assign(self, field: str, value: Any, equal_to: Any = None) -> Tensor:
        present = getattr(self, field) if equal_to is None else equal_to
        if value is present or value == present:
            if not self._table.frozen:
                setattr(self, field, value)
            return self
        self._table.guard(f"tensor '{self._name}' (uid {self._uid}): {field.lstrip('_')}")
        setattr(self, field, value)
        self._table.version += 1
        return self

    def _integer(self, value: Any, what: str) -> int:
        if isinstance(value, bool) or not hasattr(type(value), "__index__"):
            raise self._wrong(what, repr(value), "an integer")
        return int(value.__index__())

    def _positive(self, value: Any, what: str) -> int:
        number = self._integer(value, what)
        if number < 1:
            raise self._wrong(what, number, "at least 1")
        return number

    def _integers(self, value: Sequence[int], what: str) -> tuple[int, ...]:
        try:
            return tuple(int(v.__index__()) for v in value)
        except (TypeError, AttributeError):
            raise self._wrong(what, repr(value), "a sequence of integers") from None
