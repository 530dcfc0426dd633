"""The inputs of a stored graph: from an .npz file, or made up so that there is something sensible to compute.

Owns how values are converted to a tensor's element type and laid out as declared, and which values each kind
of port may be given. Integers that address or count are made up only where the graph says what is valid.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .api import Graph
from .cli_sequences import Sequences
from .cli_text import Mistake
from .dtypes import FLOATING, INTEGRAL, cast, data_type, has_numpy, itemsize, nbytes, numpy_dtype
from .geometry import span
from .graph import GraphIR
from .op import Port
from .tensor import Tensor

POISON = 0xFF  # a byte that makes NaN in every float type: an element that is not written shows

# Types without a NumPy type of their own: bit patterns are given as unsigned integers of the same size.
_BITS = frozenset(FLOATING - {data_type.FLOAT, data_type.DOUBLE})

# Values where normal data would mean nothing: a constant, uniform between two bounds, integers of a range.
_BY_PORT: dict[str, float | tuple[float, float] | range] = {
    "epsilon": 1e-5,
    "momentum": 0.1,
    "inv_variance": (0.5, 1.5),
    "in_running_var": (0.5, 1.5),
    "variance": (0.5, 1.5),
    "block_mask": range(256),
    "dropout_seed": range(1 << 31),
    "dropout_offset": 0,
}


@dataclass(frozen=True)
class Input:
    """A value for an input, in a few words what it is, and whether a seed had a part in it."""

    array: np.ndarray
    origin: str
    seeded: bool = False


def allocate(tensor: Tensor, fill: int) -> np.ndarray:
    """Memory for a tensor in its declared geometry, every byte set to `fill`; flat for a packed tensor."""
    kind, count = numpy_dtype(tensor.data_type), span(tensor.dim, tensor.stride)
    memory = np.full(count * kind.itemsize, fill, np.uint8)
    if tensor.is_ragged:
        return memory.view(kind)
    if count == 0:
        return np.empty(tensor.dim, kind)
    # NumPy keeps the stride of an axis of extent 1, which may be any number, in 64 bits.
    steps = [s if d > 1 else min(s, 1 << 32) for d, s in zip(tensor.dim, tensor.stride, strict=True)]
    return np.ndarray(tensor.dim, kind, memory, 0, [s * kind.itemsize for s in steps])


def require_memory(graph: Graph, more: int = 0) -> None:
    """Refuse a graph whose operands, workspace and `more` bytes this machine cannot hold.

    Raises
    ------
    Mistake
        Names what is needed and what there is, or a tensor whose element type NumPy lacks.
    """
    total = graph.get_workspace_size() + more
    for tensor in (*graph.get_inputs(), *graph.get_outputs()):
        if not has_numpy(tensor.data_type):
            raise Mistake(f"{label(tensor)}: NumPy cannot hold {tensor.data_type.name}")
        total += nbytes(tensor.data_type, span(tensor.dim, tensor.stride))
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else total
    if total > there:
        needed, present = total / 2**30, there / 2**30
        raise Mistake(f"this needs {needed:.4g} GiB of memory, and the machine has {present:.4g} GiB")


# From a file.


def from_npz(graph: GraphIR, path: Path) -> dict[Tensor, Input]:
    """The inputs that an .npz file holds, its arrays named by tensor or by uid.

    Raises
    ------
    Mistake
        No such file, another kind of file, an array that names no input, or one of the wrong shape or type.
    """
    arrays = _load(path)
    found: dict[Tensor, Input] = {}
    inputs = graph.get_inputs()
    for name, array in arrays.items():
        named = [t for t in inputs if name in (t.name, str(t.uid))]
        if len(named) != 1:
            problem = (
                "is the name of several inputs, so take uids"
                if named
                else "is neither the name nor the uid of an input"
            )
            raise Mistake(f"{path}: array '{name}' {problem}; inputs are: {_list(inputs)}")
        tensor = named[0]
        if tensor in found:
            raise Mistake(f"{path}: input {label(tensor)} is there twice, by name and by uid")
        found[tensor] = Input(_given(tensor, array, f"{path}: array '{name}'"), f"from {path.name}")
    return found


def _load(path: Path) -> dict[str, np.ndarray]:
    other = Mistake(f"{path}: not an .npz file of plain arrays (numpy.savez writes one)")
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise other
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        raise other from None
    if not all(isinstance(a, np.ndarray) for a in arrays.values()):
        raise other
    return arrays


def require_all(graph: GraphIR, found: Mapping[Tensor, Input], path: Path) -> None:
    """Refuse a file that does not hold every input."""
    absent = [t for t in graph.get_inputs() if t not in found]
    if absent:
        raise Mistake(f"{path}: lacks {_list(absent)} (--fill makes up what the file lacks)")


def label(tensor: Tensor) -> str:
    """How the command line names a tensor."""
    return f"'{tensor.name}' (uid {tensor.uid})"


def _list(tensors: list[Tensor]) -> str:
    return ", ".join(f"{label(t)} {t.data_type.name} {t.dim}" for t in tensors)


def _given(tensor: Tensor, array: np.ndarray, where: str) -> np.ndarray:
    """An array of the file in the element type and layout of the tensor."""
    array = _converted(tensor, array, where)
    if tensor.is_ragged:
        return np.ascontiguousarray(array)
    if array.shape != tensor.dim and not (tensor.is_pass_by_value and array.size == 1):
        raise Mistake(f"{where}: got shape {array.shape}, expected {tensor.dim} for input {label(tensor)}")
    array = array.reshape(tensor.dim)
    if any(s == 0 < d - 1 for d, s in zip(tensor.dim, tensor.stride, strict=True)):
        return array  # a broadcast axis in the declaration, not in the file: bound as it is
    memory = allocate(tensor, 0)
    memory[...] = array
    return memory


def _converted(tensor: Tensor, array: np.ndarray, where: str) -> np.ndarray:
    dtype, kind = tensor.data_type, numpy_dtype(tensor.data_type)
    if array.dtype == kind:
        return array
    if dtype in _BITS and array.dtype.kind in "uV" and array.dtype.itemsize == itemsize(dtype):
        return array.view(kind)
    if dtype in FLOATING and array.dtype.kind == "f":
        return cast(array, dtype)
    if dtype in INTEGRAL and array.dtype.kind in "iub" and np.array_equal(array.astype(kind), array):
        return array.astype(kind)
    bits = f", or bit patterns as uint{8 * itemsize(dtype)}" if dtype in _BITS else ""
    expected = f"floats{bits}" if dtype in FLOATING else f"integers in the range of {dtype.name}"
    raise Mistake(f"{where}: got {array.dtype}, expected {expected} for input {label(tensor)}")


# Made up.


def invented(graph: GraphIR, given: Mapping[Tensor, Input], seed: int) -> dict[Tensor, Input]:
    """Values for the inputs that are not given; lengths, offsets and pages describe the same sequences.

    Raises
    ------
    Mistake
        An input holds integers of which the graph does not say what is valid; names all such inputs.
    """
    rng = np.random.default_rng(seed)
    sequences = Sequences(graph, given, rng)
    uses = _uses(graph)
    found: dict[Tensor, Input] = {}
    unknown = []
    for tensor in graph.get_inputs():
        if tensor in given:
            continue
        addressing = sequences.fill(tensor)
        if addressing is not None:
            found[tensor] = Input(_laid_out(tensor, addressing), "valid indices", True)
        elif not uses[tensor] or any(p.index and p.name not in _BY_PORT for p in uses[tensor]):
            unknown.append(tensor)
        else:
            values, origin = _values(tensor, [p.name for p in uses[tensor]], rng)
            found[tensor] = Input(_laid_out(tensor, values), origin, isinstance(values, np.ndarray))
    if unknown:
        raise Mistake(f"inputs that cannot be made up, give them with --inputs FILE.npz: {_list(unknown)}")
    return found


def _uses(graph: GraphIR) -> dict[Tensor, list[Port]]:
    """The ports on which each tensor is read; none for one that only holds offsets of another."""
    uses: dict[Tensor, list[Port]] = {t: [] for t in graph.get_inputs()}
    for node in graph.nodes:
        for port in node.op.inputs:
            value = node.inputs[port.name]
            for tensor in value if isinstance(value, tuple) else (value,):
                if tensor in uses:
                    uses[tensor].append(port)
    return uses


def _values(tensor: Tensor, ports: list[str], rng: np.random.Generator) -> tuple[Any, str]:
    """Numbers that broadcast to the distinct elements of a tensor, and what they are."""
    shape = _distinct(tensor)
    known = next((_BY_PORT[p] for p in ports if p in _BY_PORT), None)
    if isinstance(known, range):
        return rng.integers(
            known.start, known.stop, shape
        ), f"random integers {known.start} to {known.stop - 1}"
    if isinstance(known, tuple):
        return rng.uniform(*known, shape), f"uniform {known[0]:g} to {known[1]:g}"
    if known is not None:
        return known, f"{known:g}"
    if tensor.data_type is data_type.FP8_E8M0:
        return 2.0 ** rng.integers(-1, 2, shape), "powers of two"
    if tensor.data_type is data_type.BOOLEAN:
        return rng.integers(0, 2, shape), "random bits"
    if tensor.data_type in INTEGRAL:
        low = 0 if tensor.data_type is data_type.UINT8 else -8
        return rng.integers(low, 8, shape), f"random integers {low} to 7"
    return rng.standard_normal(shape), "normal"


def _laid_out(tensor: Tensor, values: Any) -> np.ndarray:
    """Values in a tensor's element type and declared layout."""
    memory = allocate(tensor, 0)
    if memory.size:
        own = memory
        if not tensor.is_ragged:
            once = (slice(0, 1) if s == 0 else slice(None) for s in tensor.stride)
            index: tuple[Any, ...] = (..., *once)  # a view also where there is no axis
            own = memory[index]
        own[...] = cast(np.asarray(values), tensor.data_type)
    return memory


def _distinct(tensor: Tensor) -> tuple[int, ...]:
    """Shape of a tensor's own elements: a broadcast axis counts once, a packed tensor is flat."""
    if tensor.is_ragged:
        return (span(tensor.dim, tensor.stride),)
    return tuple(min(d, 1) if s == 0 else d for d, s in zip(tensor.dim, tensor.stride, strict=True))
