"""The CUDA driver: the only importer of cuda.bindings, and the one place where a driver status is read.

An absent package, driver or device is a state ("no devices"), not an error; a call that fails on a present
device is a `CudaError`. Nothing here creates a context.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from .errors import CudaError

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_STUB_LIBRARY = 34  # CUDA_ERROR_STUB_LIBRARY
_DEFAULT_SHARED = 48 * 1024  # bytes of dynamic shared memory that need no opt-in


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What planning and reports need to know of a CUDA device; sizes in bytes."""

    ordinal: int
    device_name: str
    compute_capability: tuple[int, int]
    sm_count: int
    shared_memory_per_block_optin: int
    l2_cache_bytes: int
    memory_bytes: int

    @property
    def sm_version(self) -> int:
        """90 for compute capability 9.0."""
        major, minor = self.compute_capability
        return 10 * major + minor


@lru_cache(maxsize=1)
def _library() -> tuple[Any, str]:
    """The bindings after a successful cuInit, or None and the reason."""
    try:
        from cuda.bindings import driver as bindings
    except ImportError as error:
        return None, f"cuda-bindings does not import ({error})"
    try:
        (status,) = bindings.cuInit(0)
    except RuntimeError as error:  # the bindings' word for a driver library that is not there
        return None, f"no CUDA driver ({error})"
    if int(status) in (_NO_DEVICE, _STUB_LIBRARY):
        return None, f"no CUDA device ({status.name})"
    if int(status) != 0:
        return None, f"cuInit failed ({status.name})"
    return bindings, ""


def absence() -> str:
    """Why there is no usable driver; empty where there is one."""
    return _library()[1]


def call(function: str, *arguments: Any, doing: str = "") -> Any:
    """Call a driver function by name and return its results: none, one, or a tuple.

    Raises
    ------
    CudaError
        The driver answered with an error, or there is no driver.
    """
    bindings, reason = _library()
    if bindings is None:
        raise CudaError(function, _NO_DEVICE, reason, doing)
    status, *results = getattr(bindings, function)(*arguments)
    if int(status) != 0:
        raise CudaError(function, int(status), status.name, doing)
    return None if not results else results[0] if len(results) == 1 else tuple(results)


def load_kernel(cubin: bytes, entry: str, shared: int, ordinal: int) -> Any:
    """A kernel of a cubin as what `cuLaunchKernel` takes, allowed `shared` bytes of dynamic shared memory on
    a device.

    The library is independent of contexts and is never unloaded.
    """
    doing = f"loading {entry}"
    library = call("cuLibraryLoadData", cubin, [], [], 0, [], [], 0, doing=doing)
    kernel = call("cuLibraryGetKernel", library, entry.encode(), doing=doing)
    bindings = _library()[0]
    if shared > _DEFAULT_SHARED:
        limit = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuKernelSetAttribute", limit, shared, kernel, call("cuDeviceGet", ordinal), doing=doing)
    # The driver puts off loading to the first launch, where it would wait for the device: load now instead.
    call("cuFuncLoad", call("cuKernelGetFunction", kernel, doing=doing), doing=doing)
    return bindings.CUfunction(int(kernel))


def device_count() -> int:
    """Number of CUDA devices; 0 where there is no driver."""
    return 0 if absence() else int(call("cuDeviceGetCount"))


def driver_version() -> int:
    """Version of CUDA that the driver serves (13000 for 13.0); 0 where there is none."""
    return 0 if absence() else int(call("cuDriverGetVersion"))


def current_device() -> int:
    """Ordinal of the device whose context is current on this thread; 0 where none is."""
    context = call("cuCtxGetCurrent")
    return int(call("cuCtxGetDevice")) if int(context) != 0 else 0


@cache
def device_info(ordinal: int) -> DeviceInfo:
    """Facts of a device.

    Raises
    ------
    ValueError
        There is no such device; raised before the driver is asked about it.
    """
    count = device_count()
    if not 0 <= ordinal < count:
        raise ValueError(f"CUDA device {ordinal}: this machine has {count}")
    device = call("cuDeviceGet", ordinal)
    names = _library()[0].CUdevice_attribute

    def attribute(name: str) -> int:
        return int(call("cuDeviceGetAttribute", getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    return DeviceInfo(
        ordinal=ordinal,
        device_name=call("cuDeviceGetName", 256, device).split(b"\0")[0].decode(),
        compute_capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        shared_memory_per_block_optin=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        l2_cache_bytes=attribute("L2_CACHE_SIZE"),
        memory_bytes=int(call("cuDeviceTotalMem", device)),
    )
