"""The executor for CUDA devices: a program's kernels, loaded once per device, launched on the caller's
stream.

Owns loading, parameter blocks and the order of a call: resolve, check, bind the context, patch, launch.
Nothing here reads device memory, synchronises, allocates device memory or compiles. One executable serves
many threads: each call has a parameter block of its own.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import context, driver
from .dtypes import data_type
from .errors import StateError
from .execute import Executable
from .inputs import Bindings
from .program import (
    Argument,
    Const,
    Copy,
    Fill,
    HostScalar,
    Kernel,
    Null,
    Number,
    Program,
    Slot,
    Workspace,
    evaluate,
)
from .spec import Problem

_SERVED = (Kernel, Fill, Copy)
_FORMATS = {
    data_type.FLOAT: "<f",
    data_type.DOUBLE: "<d",
    data_type.INT32: "<i",
    data_type.INT64: "<q",
}
_CELL = 8  # bytes of a parameter's cell


class _Frame:
    """A parameter block of one call: cells of eight bytes, and the pointers to them that a launch takes."""

    __slots__ = ("address", "block", "cells", "pointers")

    def __init__(self, constants: bytes) -> None:
        count = len(constants) // _CELL
        self.block = bytearray(constants)
        self.cells = memoryview(self.block).cast("Q")
        base = ctypes.addressof(ctypes.c_byte.from_buffer(self.block))
        self.pointers = (ctypes.c_void_p * count)(*range(base, base + count * _CELL, _CELL))
        self.address = ctypes.addressof(self.pointers)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A kernel on a device, and its parameters.

    Attributes
    ----------
    constants
        The parameter block with all that is fixed.
    slots
        What each call fills in of operands' addresses: cell, port, byte offset.
    patches
        What else each call fills in: cell, argument.
    grid
        Where it does not depend on geometry.
    frames
        Parameter blocks that no call is using; one that is made when none is left joins them.
    """

    function: Any
    constants: bytes
    slots: tuple[tuple[int, int, int], ...]
    patches: tuple[tuple[int, Argument], ...]
    grid: tuple[int, int, int] | None
    kernel: Kernel
    frames: list[_Frame]


class CudaExecutable(Executable):
    """A program ready to run on CUDA devices."""

    def __init__(self, program: Program, problem: Problem, device: int) -> None:
        for instruction in program.instructions:
            args = instruction.args if isinstance(instruction, Kernel) else ()
            known = isinstance(instruction, _SERVED) and all(
                isinstance(a, (Slot, Workspace, Number, HostScalar, Null)) for a in args
            )
            if not known:
                raise StateError(f"instruction that no CUDA executor runs: {type(instruction).__name__}")
        super().__init__(program, problem, device)
        self._ordinal = device
        self._kernels: dict[int, list[_Loaded]] = {}
        self._lock = threading.Lock()
        # A plan may be built where its device is not: it is loaded where it first runs.
        if driver.device_count() > device:
            self.load(device)

    def load(self, device: int) -> list[_Loaded]:
        """Load the program's kernels on a device; once per device, whatever the threads."""
        with self._lock:
            found = self._kernels.get(device)
            if found is None:
                with context.current(0, device):
                    kernels = [i for i in self.program.instructions if isinstance(i, Kernel)]
                    found = self._kernels[device] = [_load(k, device) for k in kernels]
        return found

    def _run(self, found: Mapping[int, Any], bindings: Bindings, stream: int | None) -> None:
        if stream is None:
            stream = _current_stream(found.values(), self._ordinal)
        loaded = iter(self._kernels.get(self._ordinal) or self.load(self._ordinal))
        held = context.ensure_current_context(stream, self._ordinal)
        try:
            for instruction in self.program.instructions:
                if isinstance(instruction, Kernel):
                    _launch(next(loaded), bindings, stream)
                else:
                    _move(instruction, bindings, stream)
        finally:
            context.restore(held)


def _load(kernel: Kernel, device: int) -> _Loaded:
    artifact = kernel.artifact
    function = driver.load_kernel(artifact.cubin, artifact.entry, kernel.shared, device)
    constants = bytearray(_CELL * len(kernel.args))
    slots, patches = [], []
    for number, argument in enumerate(kernel.args):
        if isinstance(argument, Number) and isinstance(argument.value, (Const, float)):
            value = argument.value.value if isinstance(argument.value, Const) else argument.value
            struct.pack_into(_FORMATS[argument.data_type], constants, number * _CELL, value)
        elif isinstance(argument, Slot):
            slots.append((number, argument.port, argument.byte_offset))
        elif not isinstance(argument, Null):
            patches.append((number, argument))
    grid = _fixed_grid(kernel)
    return _Loaded(function, bytes(constants), tuple(slots), tuple(patches), grid, kernel, [])


def _fixed_grid(kernel: Kernel) -> tuple[int, int, int] | None:
    """The grid, where no extent or stride of an operand enters it."""
    try:
        x, y, z = (evaluate(e, {}) for e in kernel.grid)
    except KeyError:
        return None
    return x, y, z


def _launch(loaded: _Loaded, bindings: Bindings, stream: int) -> None:
    """Fill a parameter block that no other call is using, and launch; a grid with a zero is skipped."""
    kernel, grid = loaded.kernel, loaded.grid
    operands = bindings.operands
    if grid is None or loaded.patches:
        geometry = {p: (o.dim, o.stride) for p, o in operands.items()}
        if grid is None:
            x, y, z = (evaluate(e, geometry) for e in kernel.grid)
            grid = x, y, z
    if 0 in grid:
        return
    try:
        frame = loaded.frames.pop()
    except IndexError:
        frame = _Frame(loaded.constants)
    cells = frame.cells
    for number, port, offset in loaded.slots:
        cells[number] = operands[port].address + offset
    for number, argument in loaded.patches:
        _patch(frame.block, number * _CELL, argument, bindings, geometry)
    # The driver copies the parameters during the call, so that the block is free when it returns.
    driver.call(
        "cuLaunchKernel",
        loaded.function,
        *grid,
        kernel.block,
        1,
        1,
        kernel.shared,
        stream,
        frame.address,
        0,
        doing=kernel.artifact.entry,
    )
    loaded.frames.append(frame)


def _patch(block: Any, offset: int, argument: Argument, bindings: Bindings, geometry: Any) -> None:
    if isinstance(argument, (Slot, Workspace)):
        struct.pack_into("<Q", block, offset, bindings.address(argument))
    elif isinstance(argument, HostScalar):
        value = bindings.scalars[argument.port]
        struct.pack_into(_FORMATS[argument.data_type], block, offset, value)
    else:
        assert isinstance(argument, Number) and not isinstance(argument.value, float)
        struct.pack_into(_FORMATS[argument.data_type], block, offset, evaluate(argument.value, geometry))


def _move(instruction: Any, bindings: Bindings, stream: int) -> None:
    geometry = {p: (o.dim, o.stride) for p, o in bindings.operands.items()}
    nbytes = evaluate(instruction.nbytes, geometry)
    if nbytes == 0:
        return
    dst = bindings.address(instruction.dst)
    if isinstance(instruction, Copy):
        driver.call(
            "cuMemcpyDtoDAsync", dst, bindings.address(instruction.src), nbytes, stream, doing="copying"
        )
        return
    width = len(instruction.pattern)
    value = int.from_bytes(instruction.pattern, "little")
    driver.call(f"cuMemsetD{8 * width}Async", dst, value, nbytes // width, stream, doing="filling")


def _current_stream(values: Any, device: int) -> int:
    """The stream on which the framework that owns the operands works now; the default stream for bare
    addresses.
    """
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(v, torch.Tensor) for v in values):
        return int(torch._C._cuda_getCurrentRawStream(device))
    return 0
