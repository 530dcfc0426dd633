"""Fixtures and marks for all tests."""

from __future__ import annotations

import os
import re
import zlib
from importlib.util import find_spec
from pathlib import Path

# Tests run side by side: one thread of arithmetic each, set before NumPy reads it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

from frazil import driver

HERE = Path(__file__).parent
HAS_TORCH = find_spec("torch") is not None

# Without torch, the files that use it as oracle are left out; the header of the run says so.
_NEED_TORCH = [
    str(path.relative_to(HERE))
    for path in HERE.rglob("test_*.py")
    if re.search(
        r"^import torch|^from tests\.oracles|^from tests\.harness import|torch = pytest",
        path.read_text(),
        re.M,
    )
]
collect_ignore = [] if HAS_TORCH else _NEED_TORCH


def pytest_report_header() -> str:
    """What is left out."""
    return (
        "torch: the oracle" if HAS_TORCH else f"torch is not installed: left out are {', '.join(_NEED_TORCH)}"
    )


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded from the test's own id, so that a test sees the same data alone and among others."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests where there are not enough GPUs."""
    devices = driver.device_count()
    for mark, needed in (("gpu", 1), ("multigpu", 2)):
        if devices < needed:
            reason = f"needs {needed} CUDA device{'s' if needed > 1 else ''}, this machine has {devices}"
            for item in items:
                if item.get_closest_marker(mark) is not None:
                    item.add_marker(pytest.mark.skip(reason=reason))
