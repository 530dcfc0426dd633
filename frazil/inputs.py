"""From what a caller passes to what a program needs: keys to ports, objects to buffers, and every check
before a launch.

All checks happen here and before anything is written; nothing here runs an instruction. What one tensor
passed is remembered by its likeness, so that a call with tensors like those of the last pays for their
addresses alone.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .buffers import Buffer, Device, Likeness, device_name, host_view, read
from .dtypes import INTEGRAL, data_type, itemsize, nbytes, numpy_dtype
from .errors import GraphError
from .geometry import is_nested
from .placement import Override, Place, check_maxima, geometry, same_place
from .program import Program, Slot, Workspace
from .spec import TensorSpec

# A step bound for the exact overlap test: interleaved views (Q, K and V of one buffer) resolve far below it.
_OVERLAP_WORK = 10_000
_LARGEST_FLOAT = 2**1023


class Operand(NamedTuple):
    """A bound port: its address, its geometry, and what keeps the memory alive."""

    address: int
    place: Place
    owner: Any

    @property
    def dim(self) -> tuple[int, ...]:
        """Extents in force."""
        return self.place.dim

    @property
    def stride(self) -> tuple[int, ...]:
        """Strides in force, in elements."""
        return self.place.stride

    @property
    def elements(self) -> int:
        """Elements from the first to behind the last."""
        return self.place.elements


class _Seen(NamedTuple):
    """A buffer that passed all checks of a port, whose like need only have their addresses checked."""

    likeness: Likeness
    place: Place
    alignment: int


@dataclass(frozen=True, slots=True)
class Bindings:
    """Everything one call runs on: operands and host scalars by port, and the workspace."""

    operands: dict[int, Operand]
    scalars: dict[int, int | float]
    workspace: Buffer | None

    def address(self, where: Slot | Workspace) -> int:
        """Where an argument of an instruction points."""
        if isinstance(where, Slot):
            return self.operands[where.port].address + where.byte_offset
        # Without workspace a program's regions are empty, and an empty region may lie anywhere.
        return (self.workspace.address if self.workspace is not None else 0) + where.offset


class Ports:
    """The ports of a program that a caller binds, and the keys that name them."""

    def __init__(self, program: Program, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.program = program
        self.outputs = frozenset(outputs)
        self.required = tuple(dict.fromkeys((*inputs, *outputs)))
        self.by_uid = {program.tensors[i].uid: i for i in self.required}
        self._by_name: dict[str, int | None] = {}
        for i in self.required:
            name = program.tensors[i].name
            self._by_name[name] = None if name in self._by_name else i
        self._aligned = dict(program.aligned)
        self._written = tuple(i for i in self.required if i in self.outputs)
        # Written whole and read by any thread: an entry is a value, and a stale one only costs the full
        # checks.
        self._seen: dict[int, _Seen] = {}

    def resolve(self, pack: Any, uids: Sequence[int] | None) -> dict[int, Any]:
        """Objects by port from a mapping keyed by tensor, uid or name, or from a list in the order of `uids`.

        Keys that name no port are ignored, and so is the key None.

        Raises
        ------
        GraphError
            A name that several tensors have, one tensor bound twice, a missing operand, lists of unequal
            length.
        """
        found: dict[int, Any] = {}
        unknown = []
        for key, value in pairs(pack, uids):
            port = self._port(key)
            if port is None:
                unknown.append(key)
            elif port in found and found[port] is not value:
                spec = self.program.tensors[port]
                raise GraphError("bound twice in the variant pack", tensor=spec.name, uid=spec.uid)
            else:
                found[port] = value
        for port in self.required:
            if found.get(port) is None:
                spec = self.program.tensors[port]
                extra = f"; the pack's keys {unknown} name no operand" if unknown else ""
                kind = "output" if port in self.outputs else "input"
                raise GraphError(
                    f"the variant pack is missing a buffer for this {kind}{extra}",
                    tensor=spec.name,
                    uid=spec.uid,
                )
        return found

    def bind(
        self, found: Mapping[int, Any], workspace: Any, device: Device, overrides: Mapping[int, Override]
    ) -> Bindings:
        """Check every operand and the workspace against the program.

        Parameters
        ----------
        found
            Objects by port.
        device
            Where the program runs: "cpu" or an ordinal.
        overrides
            Extents and strides in force instead of the declared ones, by port.

        Raises
        ------
        GraphError
            Wrong element type, device, extents, size or alignment, an output that cannot be written or
            overlaps another operand, or a workspace that is missing or too small; nothing has been written
            then.
        """
        operands: dict[int, Operand] = {}
        scalars: dict[int, int | float] = {}
        for port in self.required:
            value = found[port]
            seen = self._seen.get(port)
            if seen is not None and not overrides and seen.likeness.fits(value):
                address = value.data_ptr()
                if address % seen.alignment == 0 and (address > 0 or seen.place.elements == 0):
                    operands[port] = Operand(address, seen.place, value)
                    continue
            spec = self.program.tensors[port]
            if spec.is_pass_by_value:
                scalars[port] = _scalar(spec, value)
            else:
                operands[port] = self._operand(port, spec, value, device, overrides.get(port))
        scratch = self._workspace(workspace, device)
        self._check_overlap(operands, scratch)
        return Bindings(operands, scalars, scratch)

    def _port(self, key: Any) -> int | None:
        if isinstance(key, str):
            if key in self._by_name and self._by_name[key] is None:
                uids = [
                    self.program.tensors[i].uid for i in self.required if self.program.tensors[i].name == key
                ]
                raise GraphError(
                    f"several tensors have the name '{key}'", got=uids, expected="keys by uid or tensor"
                )
            return self._by_name.get(key)
        if hasattr(key, "get_uid"):
            key = key.get_uid()
        if isinstance(key, bool) or not hasattr(type(key), "__index__"):
            raise TypeError(
                f"key of a variant pack: a Tensor, uid or name is needed, got {type(key).__name__}"
            )
        return self.by_uid.get(int(key))

    def _operand(
        self, port: int, spec: TensorSpec, value: Any, device: Device, override: Override | None
    ) -> Operand:
        where: dict[str, Any] = {"tensor": spec.name, "uid": spec.uid}
        try:
            buffer = read(value)
        except (TypeError, GraphError) as error:
            raise GraphError(f"bound object ({error})", **where) from None
        if buffer.data_type is not None and not _same_bits(buffer.data_type, spec.data_type):
            raise GraphError(
                "data type of the bound buffer", got=buffer.data_type, expected=spec.data_type, **where
            )
        if _elsewhere(buffer.device, device):
            raise GraphError(
                "device of the bound buffer",
                got=device_name(buffer.device),
                expected=device_name(device),
                **where,
            )
        if spec.is_ragged and buffer.dim is None and device == "cpu":
            raise GraphError(
                "size of the bound packed buffer",
                got="a bare address",
                expected="a buffer that says how many elements it holds",
                **where,
            )
        dim, stride, elements = geometry(spec, buffer, override)
        place = Place(dim, stride, elements, nbytes(spec.data_type, elements))
        operand = Operand(buffer.address, place, buffer)
        if port in self.program.fixed and not same_place(spec, place):
            expected = f"{spec.stride}, which the plan was built for"
            raise GraphError("strides of the bound buffer", got=operand.stride, expected=expected, **where)
        if operand.elements and buffer.address <= 0:
            raise GraphError("address of the bound buffer", got=buffer.address, expected="memory", **where)
        alignment = self._aligned.get(port, itemsize(spec.data_type))
        if buffer.address % alignment and operand.elements:
            got = f"{buffer.address:#x}, {buffer.address % alignment} bytes past a multiple of {alignment}"
            raise GraphError(
                "alignment of the bound buffer", got=got, expected=f"a multiple of {alignment}", **where
            )
        if port in self.outputs:
            if buffer.read_only:
                raise GraphError("the bound output is read-only", **where)
            # Where the rows of a packed tensor lie, its offsets say and not its strides.
            if not spec.is_ragged and not is_nested(operand.dim, operand.stride):
                got = f"{operand.stride} for {operand.dim}"
                raise GraphError(
                    "strides of the bound output", got=got, expected="no two elements at one address", **where
                )
        likeness = Likeness.of(value)
        if likeness is not None and override is None:
            self._seen[port] = _Seen(likeness, place, alignment)
        return operand

    def _workspace(self, workspace: Any, device: Device) -> Buffer | None:
        needed, alignment = self.program.workspace, self.program.alignment
        if needed == 0:
            return None
        if workspace is None:
            raise GraphError("workspace is missing", expected=f"{needed} bytes (get_workspace_size())")
        try:
            buffer = read(workspace)
        except (TypeError, GraphError) as error:
            raise GraphError(f"workspace ({error})") from None
        if _elsewhere(buffer.device, device):
            raise GraphError(
                "device of the workspace", got=device_name(buffer.device), expected=device_name(device)
            )
        if buffer.dim is not None:
            if not buffer.is_contiguous:
                raise GraphError("strides of the workspace", got=buffer.stride, expected="contiguous memory")
            capacity = nbytes(buffer.data_type or data_type.UINT8, int(np.prod(buffer.dim, dtype=np.int64)))
            if capacity < needed:
                raise GraphError(
                    "size of the workspace", got=f"{capacity} bytes", expected=f"at least {needed} bytes"
                )
        if buffer.read_only:
            raise GraphError("the workspace is read-only")
        if buffer.address <= 0:
            raise GraphError("address of the workspace", got=buffer.address, expected="memory")
        if buffer.address % alignment:
            expected = f"a multiple of {alignment} (empty_workspace() gives one)"
            raise GraphError("alignment of the workspace", got=f"{buffer.address:#x}", expected=expected)
        return buffer

    def _check_overlap(self, operands: Mapping[int, Operand], workspace: Buffer | None) -> None:
        if workspace is not None:
            start, end = workspace.address, workspace.address + self.program.workspace
            for port, operand in operands.items():
                low, high = operand.address, operand.address + operand.place.nbytes
                if low < high and low < end and start < high:
                    spec = self.program.tensors[port]
                    kind = "output" if port in self.outputs else "input"
                    raise GraphError(
                        f"the bound {kind} overlaps the workspace", tensor=spec.name, uid=spec.uid
                    )
        for output in self._written:
            mine = operands[output]
            low, high = mine.address, mine.address + mine.place.nbytes
            for port, other in operands.items():
                if other.address < high and low < other.address + other.place.nbytes:
                    self._check_pair(output, mine, port, other)

    def _check_pair(self, output: int, mine: Operand, port: int, other: Operand) -> None:
        """Refuse an output that shares memory with another operand that it may not share with."""
        done = port in self.outputs and port <= output
        if done or (output, port) in self.program.may_alias:
            return
        spec, second = self.program.tensors[output], self.program.tensors[port]
        if _share(mine, spec, other, second):
            what = f"the bound output shares memory with {second.label}"
            raise GraphError(what, tensor=spec.name, uid=spec.uid)


def overrides_by_port(
    ports: Ports,
    uids: Sequence[int] | None,
    shapes: Sequence[Sequence[int]] | None,
    strides: Sequence[Sequence[int]] | None,
) -> dict[int, Override]:
    """The three lists of an override as extents and strides by port.

    Raises
    ------
    GraphError
        Lists of unequal length, an unknown uid, a uid named twice, another rank, or extents above the
        declared ones.
    """
    given: list[Any] = [v for v in (uids, shapes, strides) if v is not None]
    if not given:
        return {}
    lists: tuple[Any, ...] = (uids, shapes, strides)
    lengths = [len(v) if hasattr(type(v), "__len__") else None for v in lists]
    if None in lengths or len(set(lengths)) != 1:
        raise GraphError(
            "lengths of override_uids, override_shapes, override_strides",
            got=lengths,
            expected="three lists of equal length",
        )
    result: dict[int, Override] = {}
    for uid, shape, stride in zip(*given, strict=True):
        port = ports.by_uid.get(uid) if hasattr(type(uid), "__index__") else None
        if port is None:
            raise GraphError("override of an unknown uid", got=uid, expected=f"one of {sorted(ports.by_uid)}")
        spec = ports.program.tensors[port]
        where: dict[str, Any] = {"tensor": spec.name, "uid": spec.uid}
        if port in result:
            raise GraphError("overridden twice", **where)
        try:
            dim, step = tuple(map(operator.index, shape)), tuple(map(operator.index, stride))
        except TypeError:
            raise GraphError(
                "override", got=repr((shape, stride)), expected="two sequences of integers", **where
            ) from None
        if not spec.dynamic:
            raise GraphError(
                "override", got=dim, expected="a graph made with is_override_shape_enabled=True", **where
            )
        if len(dim) != len(spec.dim) or len(step) != len(spec.dim):
            raise GraphError(
                "rank of an override", got=(dim, step), expected=f"{len(spec.dim)} axes", **where
            )
        if any(s < 0 for s in step):
            raise GraphError("strides of an override", got=step, expected="no negative stride", **where)
        check_maxima(spec, dim)
        result[port] = dim, step
    return result


def pairs(pack: Any, uids: Sequence[int] | None) -> list[tuple[Any, Any]]:
    """A variant pack as pairs of key and object, from a mapping or from a list in the order of `uids`."""
    if isinstance(pack, Mapping):
        return [(k, v) for k, v in pack.items() if k is not None]
    if uids is None:
        raise GraphError("a variant pack given as a list", expected="tensor_uids, the uid of each buffer")
    if len(pack) != len(uids):
        raise GraphError(
            "tensor_uids", got=f"{len(uids)} uids for {len(pack)} buffers", expected="one uid per buffer"
        )
    if len(set(uids)) != len(uids):
        raise GraphError("tensor_uids", got=list(uids), expected="no uid twice")
    return list(zip(uids, pack, strict=True))


def _scalar(spec: TensorSpec, value: Any) -> int | float:
    """The number given for a by-value operand: a number, or a host buffer of one element."""
    where: dict[str, Any] = {"tensor": spec.name, "uid": spec.uid}
    if isinstance(value, (bool, int, float, np.generic)):
        number = value.item() if isinstance(value, np.generic) else value
        if not isinstance(number, (bool, int, float)) or not _holds(spec.data_type, number):
            raise GraphError("host scalar", got=repr(value), expected=spec.data_type, **where)
        return number
    try:
        buffer = read(value)
    except (TypeError, GraphError) as error:
        raise GraphError(f"bound host scalar ({error})", **where) from None
    if buffer.device != "cpu":
        raise GraphError(
            "device of a host scalar",
            got=buffer.device,
            expected="a number, or one element on the CPU",
            **where,
        )
    if buffer.dim is None or buffer.data_type is None or any(d != 1 for d in buffer.dim):
        raise GraphError("shape of a host scalar", got=buffer.dim, expected="one element", **where)
    if not _same_bits(buffer.data_type, spec.data_type):
        raise GraphError("data type of a host scalar", got=buffer.data_type, expected=spec.data_type, **where)
    return host_view(buffer.address, buffer.data_type, (), ()).item()


def _holds(dtype: data_type, number: float) -> bool:
    """Whether a number is one of an integer type's; a floating type takes any, rounded."""
    if dtype not in INTEGRAL:
        return isinstance(number, float) or abs(number) <= _LARGEST_FLOAT
    if dtype is data_type.BOOLEAN:
        return number in (0, 1)
    info = np.iinfo(numpy_dtype(dtype))
    return info.min <= number <= info.max and number == int(number)


def _elsewhere(found: Device | None, wanted: Device) -> bool:
    """Whether memory is known to be on another device; "cuda" stands for one whose number the producer does
    not say.
    """
    return found is not None and found != wanted and not (found == "cuda" and isinstance(wanted, int))


def _same_bits(given: data_type, declared: data_type) -> bool:
    """Types that may be bound for each other: equal ones, and raw bytes for types that frameworks may
    lack.
    """
    raw = declared in (data_type.FP8_E8M0, data_type.FP4_E2M1, data_type.INT4, data_type.BOOLEAN)
    return given is declared or (given is data_type.UINT8 and raw)


def _share(a: Operand, a_spec: TensorSpec, b: Operand, b_spec: TensorSpec) -> bool:
    """Whether two operands whose regions overlap have a byte in common, as far as a bounded search can
    tell.
    """
    first, second = _memory(a, a_spec), _memory(b, b_spec)
    try:
        return bool(np.shares_memory(first, second, _OVERLAP_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False


def _memory(operand: Operand, spec: TensorSpec) -> np.ndarray:
    if spec.is_ragged:
        return host_view(operand.address, spec.data_type, (operand.elements,), (1,))
    return host_view(operand.address, spec.data_type, operand.dim, operand.stride)
