"""Fixtures and marks for all tests."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from frazil import driver


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
                if mark in item.keywords:
                    item.add_marker(pytest.mark.skip(reason=reason))
