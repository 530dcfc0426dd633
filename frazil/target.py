"""What a plan is made for, as plain data: an architecture and the few numbers that planning uses.

Owns the table of known architectures. Planning for one needs no device: `Target.named("sm_90")`;
`Target.current()` asks the driver for the device at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import context, driver
from .errors import GraphError


@dataclass(frozen=True, slots=True)
class Target:
    """A device to plan for.

    Attributes
    ----------
    arch
        "sm_90" and the like, or "cpu".
    sm_count
        Streaming multiprocessors; for the CPU, 1.
    shared_memory
        Largest dynamic shared memory of a block, in bytes.
    l2_cache
        Bytes.
    bandwidth
        Bytes per second of device memory, read and written together.
    flops
        Floating-point operations per second of a dense 16-bit matrix product.
    """

    arch: str
    sm_count: int
    shared_memory: int
    l2_cache: int
    bandwidth: float
    flops: float

    @property
    def is_cpu(self) -> bool:
        """Whether programs for this target run on the host."""
        return self.arch == "cpu"

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor); (0, 0) for the CPU."""
        return (0, 0) if self.is_cpu else divmod(int(self.arch.removeprefix("sm_")), 10)

    def limited(self, sm_count: int | None) -> Target:
        """The same target with fewer multiprocessors; None leaves it as it is."""
        if sm_count is not None and sm_count < 1:
            raise GraphError("sm_count of a target", got=sm_count, expected="at least 1")
        return self if sm_count is None else replace(self, sm_count=sm_count)

    @staticmethod
    def named(arch: str) -> Target:
        """The target for an architecture, with the figures of its largest common device.

        Raises
        ------
        GraphError
            The architecture is not in the table.
        """
        try:
            return _KNOWN[arch]
        except KeyError:
            raise GraphError("unknown target", got=arch, expected=f"one of {', '.join(_KNOWN)}") from None

    @staticmethod
    def of(target: Target | str) -> Target:
        """The target itself, or the one that a name stands for.

        Raises
        ------
        GraphError
            The name is not in the table.
        TypeError
            Neither a target nor a name.
        """
        if not isinstance(target, (Target, str)):
            raise TypeError(f"target: a Target or its name is needed, got {type(target).__name__}")
        return Target.named(target) if isinstance(target, str) else target

    @staticmethod
    def current(ordinal: int | None = None) -> Target:
        """The target of a CUDA device (the thread's current one where `ordinal` is None), or the CPU where
        there is none.
        """
        if driver.device_count() == 0:
            return _KNOWN["cpu"]
        facts = driver.device_info(context.thread_device() if ordinal is None else ordinal)
        arch = "sm_{}{}".format(*facts.compute_capability)
        base = _KNOWN.get(arch, replace(_KNOWN["sm_90"], arch=arch))
        return replace(
            base,
            sm_count=facts.sm_count,
            shared_memory=facts.shared_memory_per_block_optin,
            l2_cache=facts.l2_cache_bytes,
        )


# sm_90: copy and cuBLAS rates measured on an H200; the others are the vendor's published figures. The CPU's
# are those of two ordinary cores: they only order candidates.
_KNOWN = {
    "sm_80": Target("sm_80", 108, 163 * 1024, 40 << 20, 1.9e12, 312e12),
    "sm_90": Target("sm_90", 132, 227 * 1024, 60 << 20, 4.25e12, 781e12),
    "sm_100": Target("sm_100", 148, 227 * 1024, 126 << 20, 8.0e12, 2250e12),
    "sm_120": Target("sm_120", 188, 99 * 1024, 128 << 20, 1.8e12, 500e12),
    "cpu": Target("cpu", 1, 0, 0, 1e10, 5e10),
}
