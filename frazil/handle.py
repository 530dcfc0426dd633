"""Handles: a device and a stream on it. Owns the rules for both; knows no graph and no plan.

A handle belongs to one thread at a time. A stream is an integer (`cudaStream_t`); work on the CPU is done
when `execute` returns, so a CPU handle's stream orders nothing and is only remembered.
"""

from __future__ import annotations

from typing import Literal

from . import context, driver
from .errors import StateError
from .target import Target


class Handle:
    """A device and a stream.

    Parameters
    ----------
    ordinal
        A CUDA device, or "cpu".
    stream
        Stream on which work is launched; 0 is the default stream.

    Raises
    ------
    ValueError
        There is no such device.
    """

    def __init__(self, ordinal: int | Literal["cpu"], stream: int = 0) -> None:
        if ordinal != "cpu" and (isinstance(ordinal, bool) or not isinstance(ordinal, int)):
            raise TypeError(f'device: an ordinal or "cpu" is needed, got {ordinal!r}')
        self._device = None if ordinal == "cpu" else driver.device_info(ordinal)
        self._stream, self._alive = _number(stream), True

    @property
    def ordinal(self) -> int | Literal["cpu"]:
        """Number of the CUDA device, or "cpu"."""
        return "cpu" if self._device is None else self._device.ordinal

    @property
    def device(self) -> driver.DeviceInfo | None:
        """The CUDA device; None for the CPU."""
        return self._device

    @property
    def stream(self) -> int:
        """The stream."""
        return self._stream

    @property
    def target(self) -> Target:
        """What plans for this handle are made for."""
        return Target.named("cpu") if self._device is None else Target.current(self._device.ordinal)

    def check(self) -> Handle:
        """The handle itself.

        Raises
        ------
        StateError
            It was destroyed.
        """
        if not self._alive:
            raise StateError("the handle was destroyed")
        return self

    def __repr__(self) -> str:
        state = "" if self._alive else ", destroyed"
        return f"Handle({self.ordinal!r}, stream={self._stream:#x}{state})"


def create_handle(device: int | Literal["cpu"] | None = None) -> Handle:
    """A new handle for a device: the given one, else the thread's current CUDA device, else the CPU.

    Raises
    ------
    ValueError
        There is no such device.
    """
    if device is None:
        device = context.thread_device() if driver.device_count() else "cpu"
    return Handle(device)


def destroy_handle(handle: Handle) -> None:
    """End a handle; every later use of it raises `StateError`."""
    checked(handle)._alive = False


def set_stream(handle: Handle, stream: int) -> None:
    """Make work of this handle run on `stream`; the same stream again costs nothing."""
    if checked(handle)._stream != stream:
        handle._stream = _number(stream)


def get_stream(handle: Handle) -> int:
    """The handle's stream."""
    return checked(handle)._stream


def checked(handle: Handle) -> Handle:
    """A live handle.

    Raises
    ------
    TypeError
        Not a handle.
    StateError
        It was destroyed.
    """
    if not isinstance(handle, Handle):
        raise TypeError(f"a frazil Handle is needed, got {type(handle).__name__}")
    return handle.check()


def _number(stream: int) -> int:
    if isinstance(stream, bool) or not isinstance(stream, int) or stream < 0:
        raise TypeError(f"stream: a non-negative integer (cudaStream_t) is needed, got {stream!r}")
    return stream
