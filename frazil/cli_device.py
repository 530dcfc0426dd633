"""Operands where a plan runs: host arrays for the CPU; for a CUDA device, copies on it for as long as they
are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import context, driver
from .api import Graph
from .dtypes import nbytes
from .geometry import span
from .tensor import Tensor

Bound = tuple[Mapping[Any, Any], Any, Callable[[], None]]


@contextmanager
def resident(graph: Graph, pack: Mapping[Any, np.ndarray]) -> Iterator[Bound]:
    """The pack and a workspace where the selected plan runs, and a function that waits for it; host arrays
    hold what outputs were written when the block ends.
    """
    if graph.target.is_cpu:
        yield pack, graph.empty_workspace(), lambda: None
        return
    with context.current(0, context.thread_device()):
        tensors = {key: key if isinstance(key, Tensor) else graph.find_tensor(key) for key in pack}
        moved = {k: t for k, t in tensors.items() if not t.is_pass_by_value}
        sizes = {k: nbytes(t.data_type, _elements(t, pack[k])) for k, t in moved.items()}
        memory = {
            k: driver.call("cuMemAlloc", max(size, 1), doing="running a file") for k, size in sizes.items()
        }
        scratch = driver.call("cuMemAlloc", max(graph.get_workspace_size(), 1), doing="allocating")
        try:
            for key, size in sizes.items():
                if size:
                    driver.call("cuMemcpyHtoD", memory[key], pack[key].ctypes.data, size)
            bound = {k: int(memory[k]) if k in memory else pack[k].item() for k in pack}
            yield bound, int(scratch), lambda: driver.call("cuCtxSynchronize")
            for key, size in sizes.items():
                if size and tensors[key].producer is not None:
                    driver.call("cuMemcpyDtoH", pack[key].ctypes.data, memory[key], size)
        finally:
            for address in (*memory.values(), scratch):
                driver.call("cuMemFree", address)


def _elements(tensor: Tensor, array: np.ndarray) -> int:
    return int(array.size) if tensor.is_ragged else span(tensor.dim, tensor.stride)
