"""Which CUDA context is current: the one rule that every door to the driver applies before it does anything
for a device.

Owns the table below and the primary contexts, which are retained once per device for the life of the process.

    stream              device named    current context       bound
    a real stream       either          any                   the stream's own
    0, 0x1, 0x2         yes             one of that device    left alone
    0, 0x1, 0x2         yes             none, or another's    that device's primary
    0, 0x1, 0x2         no              some                  left alone
    0, 0x1, 0x2         no              none                  primary of the thread's current device

Default streams carry no context of their own: `cuStreamGetCtx` answers for them with whatever the thread
holds, so they are told apart by their constants and never asked.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from . import driver

DEFAULT_STREAMS = frozenset({0, 1, 2})  # null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD

_primaries: dict[int, int] = {}
_lock = threading.Lock()


def ensure_current_context(stream: int, device: int | None = None) -> int:
    """Make the right context current on this thread for work on `stream`; without a driver, nothing.

    Parameters
    ----------
    stream
        A `cudaStream_t` as an integer.
    device
        Ordinal that the work is for, where the caller named one.

    Returns
    -------
    int
        The context to make current again afterwards; 0 where the caller held the right one or none.

    Raises
    ------
    ValueError
        There is no such device; raised before the driver is called.
    CudaError
        A driver call failed.
    """
    if driver.absence():
        return 0
    if device is not None and device not in _primaries:
        driver.device_info(device)
    held = int(driver.call("cuCtxGetCurrent"))
    wanted = _wanted(stream, device, held)
    if wanted == held:
        return 0
    driver.call("cuCtxSetCurrent", wanted, doing="binding a context")
    return held


def restore(held: int) -> None:
    """Make the context current again that `ensure_current_context` answered with."""
    if held:
        driver.call("cuCtxSetCurrent", held, doing="restoring the caller's context")


@contextmanager
def current(stream: int, device: int | None = None) -> Iterator[None]:
    """The right context for the block; the one that was current before is current again after it, also after
    an error. A thread that had none keeps the one bound, so that the next call finds it.
    """
    held = ensure_current_context(stream, device)
    try:
        yield
    finally:
        restore(held)


def primary(ordinal: int) -> int:
    """The primary context of a device, retained once for the life of the process."""
    with _lock:
        found = _primaries.get(ordinal)
        if found is None:
            device = driver.call("cuDeviceGet", ordinal)
            found = _primaries[ordinal] = int(driver.call("cuDevicePrimaryCtxRetain", device))
    return found


def thread_device() -> int:
    """Ordinal of the thread's current device: torch's where torch is loaded and has begun with CUDA, else the
    runtime's.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    return driver.current_device()


def _wanted(stream: int, device: int | None, held: int) -> int:
    if stream not in DEFAULT_STREAMS:
        return int(driver.call("cuStreamGetCtx", stream, doing="asking a stream for its context"))
    if device is None:
        return held or primary(thread_device())
    if held and (held == _primaries.get(device) or int(driver.call("cuCtxGetDevice")) == device):
        return held
    return primary(device)
