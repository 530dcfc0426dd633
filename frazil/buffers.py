"""Memory that callers own, as one value: what a bound operand is, whatever library made it.

Owns the reading of foreign buffers (NumPy, torch, DLPack producers, CUDA array interface, bare addresses) and
nothing of what a plan expects of them. Imports no framework: torch tensors are recognised by their methods,
everything else by the protocols.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .dtypes import data_type, from_any, itemsize, numpy_dtype
from .errors import GraphError
from .geometry import is_nested, row_major, span

Device = int | str  # "cpu", an ordinal, or the name of another kind


def device_name(device: Device | None) -> str:
    """How errors name a device."""
    return f"cuda:{device}" if isinstance(device, int) else str(device)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory.

    Attributes
    ----------
    address
        Of the first element.
    data_type, dim, stride
        What the producer says of it, strides in elements; None for a bare address, of which nothing is known.
    device
        "cpu", the ordinal of a CUDA device, the name of another kind of device, or None where unknown.
    read_only
        The producer forbids writing.
    owner
        Keeps the memory alive.
    """

    address: int
    data_type: data_type | None = None
    dim: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    device: Device | None = None
    read_only: bool = False
    owner: Any = field(default=None, repr=False)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie without gaps in row-major order; axes of extent 1 do not count."""
        if self.dim is None or self.stride is None:
            return False
        pairs = zip(self.dim, self.stride, row_major(self.dim), strict=True)
        return 0 in self.dim or all(d == 1 or s == e for d, s, e in pairs)

    @property
    def is_dense(self) -> bool:
        """Whether the elements fill their memory without gaps, in whatever order of axes."""
        if self.dim is None or self.stride is None:
            return False
        return math.prod(self.dim) == span(self.dim, self.stride) and is_nested(self.dim, self.stride)


def read(value: Any) -> Buffer:
    """The buffer that a caller's object stands for.

    Raises
    ------
    TypeError
        Nothing says where the object's memory is.
    GraphError
        Its memory cannot be used as it is (lazily negated, sparse, or of an unknown element type).
    """
    if isinstance(value, Buffer):
        return value
    if isinstance(value, np.ndarray):
        return _from_numpy(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Buffer(value)
    if _is_torch(value):
        return _from_torch(value)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value.__cuda_array_interface__, "cuda", value)
    if hasattr(value, "__dlpack__"):
        return _from_producer(value)
    if type(value).__name__ == "PyCapsule":
        return _from_capsule(value)
    if hasattr(value, "__array_interface__"):
        return _from_interface(value.__array_interface__, "cpu", value)
    raise TypeError(
        f"{type(value).__name__} is no buffer: an array, torch tensor, DLPack producer or address is needed"
    )


@dataclass(frozen=True, slots=True)
class Likeness:
    """What a torch tensor says of itself, but for its address: checks that one tensor passed hold for all
    like it.
    """

    kind: Any
    dtype: Any
    device: Any
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @staticmethod
    def of(value: Any) -> Likeness | None:
        """The likeness of a torch tensor; None for other objects."""
        if not _is_torch(value):
            return None
        return Likeness(type(value), value.dtype, value.device, tuple(value.shape), tuple(value.stride()))

    def fits(self, value: Any) -> bool:
        """Whether a tensor is like the one seen; dtypes that can be conjugated never are."""
        return (
            type(value) is self.kind
            and value.dtype is self.dtype
            and value.shape == self.shape
            and value.stride() == self.stride
            and value.device == self.device
            and not value.is_neg()
        )


def host_view(
    address: int, dtype: data_type, dim: Sequence[int], stride: Sequence[int], offset: int = 0
) -> np.ndarray:
    """A NumPy view of host memory with the given geometry (strides in elements); `offset` in bytes.

    The view does not keep the memory alive; its owner does.
    """
    kind = numpy_dtype(dtype)
    size = itemsize(dtype)
    if 0 in dim:
        return np.empty(tuple(dim), kind)
    nbytes = (1 + sum((d - 1) * s for d, s in zip(dim, stride, strict=True))) * size
    memory = (ctypes.c_byte * nbytes).from_address(address + offset)
    return np.ndarray(tuple(dim), kind, buffer=memoryview(memory), strides=tuple(s * size for s in stride))


def is_buffer(value: Any) -> bool:
    """Whether `read` would find memory behind a value that is not a bare address."""
    return isinstance(value, np.ndarray) or _is_torch(value) or hasattr(value, "__dlpack__")


def _is_torch(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "element_size")


def _from_numpy(array: np.ndarray) -> Buffer:
    dtype, size = _native(array.dtype), array.dtype.itemsize
    if any(s % size for s in array.strides):
        raise GraphError("strides of an array", got=f"{array.strides} bytes", expected=f"multiples of {size}")
    stride = tuple(s // size for s in array.strides)
    address = array.__array_interface__["data"][0] if array.dtype.kind != "V" else array.ctypes.data
    return Buffer(address, dtype, array.shape, stride, "cpu", not array.flags.writeable, array)


def _native(kind: np.dtype) -> data_type:
    """The element type of a NumPy type, which must be in the machine's byte order."""
    if not kind.isnative:
        raise GraphError("byte order of an array", got=kind.str, expected="the machine's own")
    return from_any(kind)


def _from_torch(tensor: Any) -> Buffer:
    kind = tensor.device.type
    if tensor.layout is not None and str(tensor.layout) != "torch.strided":
        raise GraphError("layout of a torch tensor", got=str(tensor.layout), expected="torch.strided")
    if tensor.is_neg() or tensor.is_conj():
        raise GraphError(
            "a lazily negated or conjugated torch tensor", expected="resolve_neg() or resolve_conj()"
        )
    device: Device = "cpu" if kind == "cpu" else (tensor.device.index or 0) if kind == "cuda" else kind
    address = tensor.data_ptr() if kind != "meta" else 0
    return Buffer(
        address, from_any(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), device, False, tensor
    )


def _from_interface(interface: dict[str, Any], device: Device | None, owner: Any) -> Buffer:
    dim, kind, strides = tuple(interface["shape"]), np.dtype(interface["typestr"]), interface.get("strides")
    dtype = _native(kind)
    if interface.get("data") is None or interface.get("mask") is not None:
        raise TypeError("an array interface without an address, or with a mask")
    if any(s % kind.itemsize for s in strides or ()):
        raise GraphError(
            "strides of an array", got=f"{strides} bytes", expected=f"multiples of {kind.itemsize}"
        )
    stride = row_major(dim) if strides is None else tuple(s // kind.itemsize for s in strides)
    address, read_only = interface["data"]
    return Buffer(address or 0, dtype, dim, stride, device, bool(read_only), owner)


# DLPack (dlpack.h, version 1): the structures behind a capsule.


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_DL_TYPES = {
    (0, 8): data_type.INT8,
    (0, 32): data_type.INT32,
    (0, 64): data_type.INT64,
    (1, 8): data_type.UINT8,
    (2, 16): data_type.HALF,
    (2, 32): data_type.FLOAT,
    (2, 64): data_type.DOUBLE,
    (4, 16): data_type.BFLOAT16,
    (6, 8): data_type.BOOLEAN,
    (10, 8): data_type.FP8_E4M3,
    (12, 8): data_type.FP8_E5M2,
    (14, 8): data_type.FP8_E8M0,
}
_DL_DEVICES = {1: "cpu", 3: "cpu", 11: "cpu"}  # kDLCPU, kDLCUDAHost; kDLROCMHost is host memory, too
_DL_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged

_get_name = ctypes.pythonapi.PyCapsule_GetName
_get_name.restype, _get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = (ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p])


def _from_producer(value: Any) -> Buffer:
    try:
        # Only the versioned form says whether the memory may be written; older producers do not know the
        # argument.
        try:
            capsule = value.__dlpack__(max_version=(1, 1))
        except TypeError:
            capsule = value.__dlpack__()
    except BufferError as error:  # the protocol's word for memory that cannot be handed out as it is
        raise GraphError(f"a DLPack producer refuses ({error})") from None
    return _from_capsule(capsule)


def _from_capsule(capsule: Any) -> Buffer:
    """Read a DLPack capsule without consuming it: the capsule stays the owner and frees the memory when it
    goes.
    """
    name = _get_name(capsule)
    read_only = False
    if name == b"dltensor":
        tensor = _DLTensor.from_address(_get_pointer(capsule, name))
    elif name == b"dltensor_versioned":
        versioned = _Versioned.from_address(_get_pointer(capsule, name))
        tensor, read_only = versioned.tensor, bool(versioned.flags & 1)
    else:
        raise GraphError(
            "DLPack capsule", got=(name or b"").decode(), expected="dltensor or dltensor_versioned"
        )
    dtype = _DL_TYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        got = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
        raise GraphError("element type of a DLPack tensor", got=got, expected=sorted(set(_DL_TYPES.values())))
    dim = tuple(tensor.shape[i] for i in range(tensor.ndim))
    stride = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else row_major(dim)
    if tensor.device_type in _DL_CUDA:
        device: Device = tensor.device_id
    else:
        device = _DL_DEVICES.get(tensor.device_type, f"DLPack device type {tensor.device_type}")
    return Buffer((tensor.data or 0) + tensor.byte_offset, dtype, dim, stride, device, read_only, capsule)
