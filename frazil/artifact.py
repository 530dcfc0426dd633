"""A compiled kernel as a value: what programs launch and caches store. Knows neither compiler nor driver."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel.

    Attributes
    ----------
    key
        Digest of kernel source, compile-time parameters, architecture and compiler version: what identifies
        it.
    entry
        Name of the kernel in the cubin.
    arch
        Architecture that the cubin is for.
    compiler
        Name and version of the compiler.
    threads
        Threads of a block.
    registers, spill_bytes, shared
        Resources: registers per thread, bytes spilled per thread, bytes of dynamic shared memory.
    cubin
        The binary.
    """

    key: str
    entry: str
    arch: str
    compiler: str
    threads: int
    registers: int
    spill_bytes: int
    shared: int
    cubin: bytes = field(repr=False)
