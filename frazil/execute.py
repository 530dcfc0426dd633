"""The executor: runs a program on operands that a caller owns.

Owns the order of a call (resolve, check, run) and the meaning of each instruction on a CPU target. Contains
no operation or engine name: a host call runs whatever record its node names. One executable serves many
threads; a call keeps all of its state on its own stack.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .buffers import Device, host_view
from .dtypes import cast, data_type, math_type, numpy_dtype
from .errors import GraphError, StateError
from .geometry import row_major
from .inputs import Bindings, Ports, overrides_by_port
from .op import Call, Port, Scatter
from .program import Address, Copy, Fill, HostCall, Program, Slot, Upload, evaluate
from .spec import Problem, TensorSpec

Specs = Sequence[TensorSpec]

_HOST_INSTRUCTIONS = (HostCall, Fill, Copy, Upload)


class Executable:
    """A program ready to run on a device: what the executors of all devices have in common."""

    def __init__(self, program: Program, problem: Problem, device: Device) -> None:
        self.program, self.device = program, device
        self._ports = Ports(program, problem.inputs, problem.outputs)

    @property
    def workspace(self) -> int:
        """Bytes of workspace that `execute` needs."""
        return self.program.workspace

    def execute(
        self,
        pack: Any,
        workspace: Any = None,
        uids: Sequence[int] | None = None,
        overrides: tuple[Any, Any, Any] = (None, None, None),
        stream: int | None = None,
    ) -> None:
        """Run the program on `stream`, or where it is None on the current stream of the operands' owner.

        Raises
        ------
        GraphError
            An operand, override or the workspace does not fit; nothing has been written or launched then.
        CudaError
            A driver call failed.
        """
        found = self._ports.resolve(pack, uids)
        changed = overrides_by_port(self._ports, *overrides)
        self._run(found, self._ports.bind(found, workspace, self.device, changed), stream)

    def _run(self, found: Mapping[int, Any], bindings: Bindings, stream: int | None) -> None:
        """Run the instructions on what was bound; `found` holds the caller's own objects by port."""
        raise NotImplementedError


class CpuExecutable(Executable):
    """A program ready to run on the host; it is done when `execute` returns, whatever the stream."""

    def __init__(self, program: Program, problem: Problem) -> None:
        foreign = [type(i).__name__ for i in program.instructions if not isinstance(i, _HOST_INSTRUCTIONS)]
        if foreign:
            raise StateError(f"a CPU target runs host instructions alone: the program has {foreign}")
        super().__init__(program, problem, "cpu")

    def _run(self, found: Mapping[int, Any], bindings: Bindings, stream: int | None) -> None:
        specs = self._effective(bindings)
        for instruction in self.program.instructions:
            _perform(instruction, specs, bindings)

    def _effective(self, bindings: Bindings) -> Specs:
        """The program's tensors with the geometry in force; what depends on a changed extent is derived
        anew.
        """
        declared = self.program.tensors
        specs = list(declared)
        for port, operand in bindings.operands.items():
            if (operand.dim, operand.stride) != (declared[port].dim, declared[port].stride):
                specs[port] = replace(declared[port], dim=operand.dim, stride=operand.stride)
        if any(s.dim != d.dim for s, d in zip(specs, declared, strict=True)):
            for instruction in self.program.instructions:
                if isinstance(instruction, HostCall):
                    _derive(instruction, declared, specs)
        return specs


def _derive(instruction: HostCall, declared: Specs, specs: list[TensorSpec]) -> None:
    """Repeat a node's inference on the extents in force, and check them against what is bound."""
    node = instruction.node
    unknown = [
        replace(s, dim=(), stride=()) if s.is_virtual and i in node.writes() else s
        for i, s in enumerate(specs)
    ]
    call = node.call(unknown)
    found = call.op.infer(call)
    for port, number in node.outputs:
        spec, dim = specs[number], found[port].dim
        if not spec.is_virtual:
            call.require(spec.dim == dim, "extents in force", port, got=spec.dim, expected=dim)
            continue
        original = node.call(
            [replace(s, dim=(), stride=()) if i == number else s for i, s in enumerate(declared)]
        )
        if call.op.infer(original)[port].dim != declared[number].dim:
            raise call.refuse(
                "extents declared by the user", port, got="changed inputs", expected="the declared ones"
            )
        specs[number] = replace(spec, dim=dim, stride=found[port].stride or row_major(dim))
    call = node.call(specs)
    if call.op.check is not None:
        call.op.check(call)


def _perform(instruction: Any, specs: Specs, bindings: Bindings) -> None:
    if isinstance(instruction, HostCall):
        _host_call(instruction, specs, bindings)
        return
    dst = bindings.address(instruction.dst)
    if isinstance(instruction, Upload):
        ctypes.memmove(dst, instruction.data, len(instruction.data))
        return
    nbytes = evaluate(instruction.nbytes, {i: (s.dim, s.stride) for i, s in enumerate(specs)})
    if isinstance(instruction, Copy):
        ctypes.memmove(dst, bindings.address(instruction.src), nbytes)
        return
    pattern = instruction.pattern
    ctypes.memmove(dst, (pattern * -(-nbytes // len(pattern)))[:nbytes], nbytes)


def _host_call(instruction: HostCall, specs: Specs, bindings: Bindings) -> None:
    """Run one node's reference: read all operands, compute, round, and only then write."""
    call = instruction.node.call(specs)
    views = {number: _view(number, address, specs, bindings) for number, address in instruction.operands}
    operands = [call.op.inputs[i] for i in range(len(call.op.inputs))]
    math = math_type(call.compute, _data_types(call, operands))
    arrays = {
        port.name: _read(port, dict(instruction.node.inputs)[port.name], views, specs, math)
        for port in operands
    }
    for port, number, offsets in _packed(instruction, specs):
        arrays |= {f"{port}.ragged": views[offsets], f"{port}.elements": views[number].size}
    with np.errstate(all="ignore"):
        results = call.op.reference(np, call, arrays)
        rounded = [
            (views[number], _round(results[port], specs[number], call, port))
            for port, number in instruction.node.outputs
        ]
    for view, result in rounded:
        if isinstance(result, Scatter):
            view[result.index] = result.values
        else:
            view[...] = result


def _view(number: int, address: Address, specs: Specs, bindings: Bindings) -> np.ndarray:
    """The memory of a tensor: in its geometry, or flat for a packed one; a host scalar as an array of one
    element.
    """
    spec = specs[number]
    if number in bindings.scalars:
        value = np.asarray(bindings.scalars[number])
        return cast(value, spec.data_type).reshape(spec.dim)
    if isinstance(address, Slot):
        operand = bindings.operands[address.port]
        if spec.is_ragged:
            return host_view(operand.address, spec.data_type, (operand.elements,), (1,), address.byte_offset)
        return host_view(operand.address, spec.data_type, operand.dim, operand.stride, address.byte_offset)
    if spec.elements == 0:  # a program may need no workspace at all
        return np.empty(spec.dim, numpy_dtype(spec.data_type))
    assert bindings.workspace is not None
    return host_view(bindings.workspace.address, spec.data_type, spec.dim, spec.stride, address.offset)


def _data_types(call: Call, ports: Sequence[Port]) -> list[data_type]:
    """Element types of the operands that take part in the arithmetic."""
    found: list[data_type] = []
    for port in ports:
        value = call.inputs[port.name]
        if value is not None and not port.index:
            found += [t.data_type for t in (value if isinstance(value, tuple) else (value,))]
    return found


def _read(port: Port, value: Any, views: Mapping[int, np.ndarray], specs: Specs, math: np.dtype) -> Any:
    if isinstance(value, tuple):
        return tuple(_read(port, v, views, specs, math) for v in value)
    if value is None:
        return None
    spec = specs[value]
    if spec.value is not None:
        array = np.full(spec.dim, spec.value, numpy_dtype(spec.data_type))
    else:
        array = views[value]
    return array if port.index or port.moved else array.astype(math)


def _packed(instruction: HostCall, specs: Specs) -> list[tuple[str, int, int]]:
    """Each port with a packed tensor, the number of that tensor, and of the one that holds its offsets."""
    ports = [(p, n) for p, n in (*instruction.node.inputs, *instruction.node.outputs) if isinstance(n, int)]
    return [(p, n, offsets) for p, n in ports if (offsets := specs[n].ragged) is not None]


def _round(result: Any, spec: TensorSpec, call: Call, port: str) -> Any:
    if isinstance(result, Scatter):
        return Scatter(result.index, cast(result.values, spec.data_type))
    array = np.asarray(result)
    if array.shape != spec.dim:
        raise GraphError(
            f"the reference of {call.op.name} gave {port} another shape", got=array.shape, expected=spec.dim
        )
    # A result may be a view of an operand, which another output of the same call is about to overwrite.
    rounded = cast(array, spec.data_type)
    return rounded.copy() if rounded is array else rounded
