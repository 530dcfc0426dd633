"""Targets as data, and the driver on a machine without a GPU."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

import frazil
from frazil import CudaError, GraphError, StateError, Target, driver

from .helpers import refused

NAMES = ["sm_80", "sm_90", "sm_100", "sm_120", "cpu"]
no_gpu = pytest.mark.skipif(driver.device_count() > 0, reason="this machine has a CUDA device")


@pytest.mark.parametrize("name", NAMES)
def test_named_targets(name: str) -> None:
    target = Target.named(name)
    assert target.arch == name
    assert Target.of(name) is target
    assert Target.of(target) is target
    assert target.is_cpu == (name == "cpu")
    assert target.sm_count >= 1
    assert target.bandwidth > 0
    assert target.flops > 0
    assert (target.shared_memory > 0) == (name != "cpu")
    assert target == dataclasses.replace(target)
    assert hash(target) == hash(dataclasses.replace(target))
    with pytest.raises(dataclasses.FrozenInstanceError):
        target.sm_count = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "capability"),
    [("sm_80", (8, 0)), ("sm_90", (9, 0)), ("sm_100", (10, 0)), ("sm_120", (12, 0)), ("cpu", (0, 0))],
)
def test_compute_capability(name: str, capability: tuple[int, int]) -> None:
    assert Target.named(name).compute_capability == capability


@pytest.mark.parametrize("name", ["sm_91", "SM_90", "90", "", "h200"])
def test_unknown_names_are_refused(name: str) -> None:
    refused(lambda: Target.named(name), "unknown target", name, "sm_90", "cpu", error=GraphError)


@pytest.mark.parametrize("value", [90, None, 9.0, ["sm_90"]], ids=repr)
def test_what_is_no_target_is_a_type_error(value: object) -> None:
    refused(lambda: Target.of(value), "target", type(value).__name__, error=TypeError)  # type: ignore[arg-type]


def test_fewer_multiprocessors() -> None:
    target = Target.named("sm_90")
    assert target.limited(8).sm_count == 8
    assert target.limited(None) is target
    for count in (0, -1):
        refused(lambda count=count: target.limited(count), "sm_count", str(count))


@no_gpu
def test_no_gpu_is_a_clean_state() -> None:
    assert driver.device_count() == 0
    assert driver.driver_version() == 0
    assert driver.absence()
    assert Target.current() == Target.named("cpu")
    assert frazil.Graph().target.is_cpu
    handle = frazil.create_handle()
    assert handle.ordinal == "cpu"
    assert handle.device is None
    assert handle.target.is_cpu
    error = refused(lambda: driver.call("cuCtxGetCurrent", doing="asking"), "asking", error=CudaError).value
    assert (error.call, error.code) == ("cuCtxGetCurrent", 100)


@no_gpu
@pytest.mark.parametrize("ordinal", [0, 7, -1])
def test_an_ordinal_that_is_not_there(ordinal: int) -> None:
    refused(lambda: frazil.create_handle(ordinal), str(ordinal), "0", error=ValueError)
    refused(lambda: driver.device_info(ordinal), str(ordinal), error=ValueError)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", 1.5, True, [0]], ids=repr)
def test_what_is_no_device(device: object) -> None:
    refused(lambda: frazil.Handle(device), "device", repr(device), error=TypeError)  # type: ignore[arg-type]


# Handles.


def test_handles_hold_a_stream() -> None:
    handle = frazil.create_handle()
    assert frazil.get_stream(handle) == handle.stream
    frazil.set_stream(handle=handle, stream=0x1234)
    assert frazil.get_stream(handle) == 0x1234
    assert "0x1234" in repr(handle)
    frazil.set_stream(handle, 0x1234)
    frazil.destroy_handle(handle)
    assert "destroyed" in repr(handle)
    for use in (frazil.get_stream, frazil.destroy_handle, lambda h: frazil.set_stream(h, 1)):
        refused(lambda use=use: use(handle), "destroyed", error=StateError)


@pytest.mark.parametrize("stream", [-1, 1.5, "0", None, True], ids=repr)
def test_a_stream_is_an_integer(stream: object) -> None:
    handle = frazil.create_handle("cpu")
    frazil.set_stream(handle, 7)
    refused(lambda: frazil.set_stream(handle, stream), "stream", repr(stream), error=TypeError)  # type: ignore[arg-type]
    assert frazil.get_stream(handle) == 7


@pytest.mark.parametrize(
    "value", [None, 0, 140000000000, "handle", pytest.param(object(), id="object")], ids=repr
)
def test_what_is_no_handle_is_a_type_error(value: object) -> None:
    for use in (frazil.destroy_handle, frazil.get_stream, lambda h: frazil.set_stream(h, 0)):
        refused(lambda use=use: use(value), "Handle", type(value).__name__, error=TypeError)


def test_handles_are_themselves() -> None:
    one, other = frazil.create_handle("cpu"), frazil.create_handle("cpu")
    assert one != other
    assert len({one, other}) == 2
    assert frazil.handle is frazil.Handle
    with pytest.raises(TypeError):
        int(one)  # type: ignore[call-overload]


# Import.

PROGRAM = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocker())
import numpy as np
import frazil
assert not {blocked} & {{m.split(".")[0] for m in sys.modules}}, "imported"
g = frazil.Graph(io_data_type=frazil.data_type.FLOAT)
a, b = g.tensor((2, 2)), g.tensor((2, 2))
y = g.add(a, b).set_output(True)
assert g.target.is_cpu
out = np.zeros((2, 2), np.float32)
g.execute({{a: np.ones((2, 2), np.float32), b: np.ones((2, 2), np.float32), y: out}})
assert (out == 2).all()
try:
    frazil.create_handle(0)
except ValueError as error:
    print(error)
"""


def test_torch_triton_and_the_cuda_packages_are_optional() -> None:  # C-74
    blocked = {"torch", "triton", "cuda", "cudnn", "cupy", "jax"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(blocked=blocked)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "CUDA device 0" in done.stdout
