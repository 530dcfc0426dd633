"""Fixtures and marks for all tests."""

from __future__ import annotations

import os
import zlib
from importlib.util import find_spec
from pathlib import Path

# Tests run side by side: one thread of arithmetic each, set before NumPy reads it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

from frazil import driver

NO_TORCH = "torch, the oracle of these tests, is not installed"


class Module(pytest.Module):
    """A file of tests, skipped as a whole where what it imports needs torch and there is none."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        try:
            return list(super().collect())
        except self.CollectError as error:
            if getattr(error.__cause__, "name", None) != "torch":
                raise
        pytest.skip(NO_TORCH, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> Module:
    """Every file of tests is a `Module`."""
    return Module.from_parent(parent, path=module_path)


def pytest_report_header() -> str:
    """Whether there is an oracle."""
    return "torch: the oracle" if find_spec("torch") else f"{NO_TORCH}: they are skipped"


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
