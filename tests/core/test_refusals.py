"""Operands and workspaces that do not fit: refused by name, before anything is written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import frazil
from frazil import data_type
from frazil.buffers import _DLTensor
from frazil.inputs import Ports

from .helpers import (
    POISON,
    Bytes,
    Interface,
    OnDevice,
    add_graph,
    capsule_of,
    epilogue_graph,
    graph,
    inputs,
    poison,
    random,
    refused,
    untouched,
)

HALF, BF16, INT32 = data_type.HALF, data_type.BFLOAT16, data_type.INT32

# Refusals: by name, and before anything is written.


def on_device() -> Any:
    return OnDevice((2, 3, 4))


def foreign_capsule(device_type: int, bits: int = 32, code: int = 2, lanes: int = 1) -> Any:
    """A capsule of 2 x 3 x 4 elements on some kind of device."""
    shape = (ctypes.c_int64 * 3)(2, 3, 4)
    tensor = _DLTensor(1 << 40, device_type, 1, 3, code, bits, lanes, shape, None, 0)
    KEPT.append(tensor)
    return capsule_of(tensor)


KEPT: list[Any] = []


def negated(*dim: int) -> torch.Tensor:
    """A tensor that torch negates when it is read."""
    return torch.zeros(dim, dtype=torch.complex64).conj().imag


def misaligned(*dim: int) -> np.ndarray:
    size = int(np.prod(dim)) * 4
    return np.full(size + 8, POISON, np.uint8)[2 : 2 + size].view(np.float32).reshape(dim)


WRONG: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "type": (lambda: poison(2, 3, 4, dtype=np.float64), ["data type", "DOUBLE", "FLOAT"]),
    "integer for float": (lambda: poison(2, 3, 4, dtype=np.int32), ["data type", "INT32", "FLOAT"]),
    "torch type": (lambda: torch.zeros(2, 3, 4, dtype=torch.bfloat16), ["data type", "BFLOAT16", "FLOAT"]),
    "complex": (lambda: np.zeros((2, 3, 4), np.complex64), ["complex64"]),
    "objects": (lambda: np.zeros((2, 3, 4), object), ["data type"]),
    "byte order": (lambda: np.zeros((2, 3, 4), ">f4"), ["byte order", ">f4"]),
    "byte order of an interface": (lambda: Interface(np.zeros((2, 3, 4), ">f4")), ["byte order"]),
    "CUDA array": (on_device, ["device", "cuda", "cpu"]),
    "CUDA capsule": (lambda: foreign_capsule(2), ["device", "cuda:1", "cpu"]),
    "Metal capsule": (lambda: foreign_capsule(8), ["device", "8", "cpu"]),
    "vector type": (lambda: foreign_capsule(1, lanes=4), ["4 lanes"]),
    "odd type": (lambda: foreign_capsule(1, bits=16, code=5), ["code 5"]),
    "meta tensor": (lambda: torch.zeros(2, 3, 4, device="meta"), ["device", "meta", "cpu"]),
    "sparse tensor": (lambda: torch.zeros(2, 3, 4).to_sparse(), ["layout", "sparse"]),
    "gaps and another shape": (lambda: poison(2, 3, 5)[:, :, ::2], ["shape", "(2, 3, 3)", "(2, 3, 4)"]),
    "fewer rows": (lambda: poison(2, 3, 4)[:, ::2], ["shape", "(2, 2, 4)"]),
    "too small": (lambda: poison(2, 3, 3), ["size", "18 elements", "24"]),
    "too small, other rank": (lambda: poison(23), ["size", "23 elements", "24"]),
    "empty": (lambda: poison(0), ["size", "0 elements", "24"]),
    "misaligned": (lambda: misaligned(2, 3, 4), ["alignment", "2 bytes past", "multiple of 4"]),
    "misaligned address": (lambda: misaligned(2, 3, 4).ctypes.data, ["alignment", "multiple of 4"]),
    "null": (lambda: 0, ["address", "memory"]),
    "negative address": (lambda: -4096, ["address", "memory"]),
    "negative strides": (lambda: poison(2, 3, 4)[:, ::-1], ["negative stride", "(12, -4, 1)"]),
    "lazily negated": (lambda: negated(2, 3, 4), ["negated", "resolve_neg"]),
    "no buffer": (object, ["object"]),
    "a list": (lambda: [1.0, 2.0], ["list"]),
    "a float": (lambda: 1.0, ["float"]),
    "a bool": (lambda: True, ["bool"]),
    "a string": (lambda: "a", ["str"]),
    "not in elements": (lambda: np.zeros((2, 3, 4), [("a", "f4"), ("b", "i1")])["a"], ["strides", "bytes"]),
    "masked interface": (lambda: Interface(poison(2, 3, 4), mask=poison(2, 3, 4)), ["mask"]),
    "interface without data": (lambda: Interface(poison(2, 3, 4), data=None), ["address"]),
}  # fmt: skip


@pytest.mark.parametrize("port", ["a", "b", "y"])
@pytest.mark.parametrize("kind", WRONG)
def test_wrong_buffers_are_refused_by_name(kind: str, port: str, rng: Any) -> None:
    make, words = WRONG[kind]
    g, *_ = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    out = poison(2, 3, 4)
    pack = {"a": va, "b": vb, "y": out, port: make()}
    error = refused(lambda: g.execute(pack), f"'{port}'", f"uid {g.find_tensor(port).uid}", *words).value
    assert error.tensor == port and untouched(out)


def floats(memory: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(memory.view(np.float32))


WRONG_OUTPUTS: dict[str, tuple[Callable[[np.ndarray], Any], list[str]]] = {
    "read-only": (lambda m: m[:96].view(np.float32).reshape(2, 3, 4), ["read-only"]),
    "broadcast": (lambda m: np.broadcast_to(m[:16].view(np.float32), (2, 3, 4)), ["read-only"]),
    "stride 0": (lambda m: floats(m).as_strided((2, 3, 4), (0, 0, 1)), ["strides", "(0, 0, 1)"]),
    "overlapping rows": (lambda m: floats(m).as_strided((2, 3, 4), (8, 2, 1)), ["(8, 2, 1)", "one address"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG_OUTPUTS)
def test_outputs_that_cannot_be_written(kind: str, rng: Any) -> None:
    g, a, b, y = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    memory = np.full(256, POISON, np.uint8)
    make, words = WRONG_OUTPUTS[kind]
    memory.flags.writeable = kind not in ("read-only",)
    refused(lambda: g.execute({a: va, b: vb, y: make(memory)}), "'y'", "uid 3", "output", *words)
    assert untouched(memory)
    out = poison(2, 3, 4)
    source = memory[:96].view(np.float32).reshape(2, 3, 4)
    g.execute({a: source, b: vb, y: out})  # reading such memory is fine


def test_a_device_is_known_by_number_or_as_any(rng: Any) -> None:
    """The checks of a plan for a device, which read no memory: here with addresses that lead nowhere."""
    g, *_ = add_graph()
    g.build()
    ports = Ports(g._built[0].program, g.problem.inputs, g.problem.outputs)
    base = 1 << 40
    a, b, y = (OnDevice((2, 3, 4), base + 4096 * i) for i in range(3))
    bound = ports.bind(ports.resolve({1: a, 2: b, 3: y}, None), None, 0, {})
    assert [o.address for o in bound.operands.values()] == [base, base + 4096, base + 8192]
    host = ports.resolve({1: a, 2: np.zeros((2, 3, 4), np.float32), 3: y}, None)
    refused(lambda: ports.bind(host, None, 0, {}), "'b'", "device", "cpu", "cuda:0")
    other = ports.resolve({1: a, 2: foreign_capsule(2), 3: y}, None)
    refused(lambda: ports.bind(other, None, 0, {}), "'b'", "device", "cuda:1", "cuda:0")
    assert ports.bind(other, None, 1, {}).operands
    late, x, y, z = late_reader()
    late.build()
    ports = Ports(late._built[0].program, late.problem.inputs, late.problem.outputs)
    shared = {x: OnDevice((4, 4), base), y: OnDevice((4, 4), base + 32), z: OnDevice((4, 4), base + 4096)}
    refused(lambda: ports.bind(ports.resolve(shared, None), None, 0, {}), "'y'", "shares memory", "'x'")


# Aliases.


def test_in_place_where_nothing_reads_the_input_later(rng: Any) -> None:
    g, a, b, y = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    expected = va + vb
    g.execute({a: va, b: vb, y: va})
    np.testing.assert_array_equal(va, expected)
    g.execute({a: va, b: va, y: va})
    np.testing.assert_array_equal(va, expected + expected)


def test_shifted_in_place_is_right(rng: Any) -> None:
    g, a, b, y = add_graph((16,))
    memory = rng.standard_normal(20).astype(np.float32)
    vb = np.zeros(16, np.float32)
    expected = memory[1:17].copy()
    g.execute({a: memory[1:17], b: vb, y: memory[:16]})
    np.testing.assert_array_equal(memory[:16], expected)


def late_reader() -> tuple[frazil.Graph, Any, Any, Any]:
    """y is written first, x is read again afterwards."""
    g = graph()
    x = g.tensor((4, 4), name="x")
    y = g.relu(x).set_output(True).set_name("y")
    z = g.add(y, x).set_output(True).set_name("z")
    return g, x, y, z


@pytest.mark.parametrize(
    "bind",
    [
        lambda m: (m[:16].reshape(4, 4), m[:16].reshape(4, 4), m[16:32].reshape(4, 4)),
        lambda m: (m[:16].reshape(4, 4), m[8:24].reshape(4, 4), m[32:48].reshape(4, 4)),
        lambda m: (m[:32].reshape(4, 8)[:, :4], m[3:35].reshape(4, 8)[:, :4], m[48:64].reshape(4, 4)),
    ],
    ids=["same", "half", "interleaved with one column in common"],
)
def test_an_output_over_an_input_that_is_read_later(bind: Any) -> None:
    g, x, y, z = late_reader()
    memory = poison(64)
    vx, vy, vz = bind(memory)
    refused(lambda: g.execute({x: vx, y: vy, z: vz}), "'y'", "shares memory with", "'x'", f"uid {x.uid}")
    assert untouched(memory)


def test_two_outputs_in_one_place_are_refused() -> None:
    g, x, y, z = late_reader()
    out = poison(4, 4)
    refused(
        lambda: g.execute({x: np.ones((4, 4), np.float32), y: out, z: out}), "'y'", "'z'", "shares memory"
    )
    assert untouched(out)


def test_interleaved_views_that_do_not_overlap_are_accepted(rng: Any) -> None:
    g, x, y, z = late_reader()
    memory = poison(4, 3, 4)  # like Q, K and V in one buffer
    source = rng.standard_normal((4, 4)).astype(np.float32)
    memory[:, 0] = source
    g.execute({x: memory[:, 0], y: memory[:, 1], z: memory[:, 2]})
    np.testing.assert_array_equal(memory[:, 0], source)
    np.testing.assert_array_equal(memory[:, 1], np.maximum(source, 0))
    np.testing.assert_array_equal(memory[:, 2], np.maximum(source, 0) + source)


def test_interleaved_heads_of_many_axes(rng: Any) -> None:
    g, x, y, z = late_reader()
    for t in (x, y, z):
        t.set_dim((2, 3, 8, 4))
    for t in (x,):
        t.set_stride((96, 32, 4, 1))
    memory = poison(2, 8, 3, 3, 4)  # B, S, QKV, H, D
    views = [memory[:, :, i].transpose(0, 2, 1, 3) for i in range(3)]
    source = rng.standard_normal((2, 3, 8, 4)).astype(np.float32)
    views[0][...] = source
    g.execute({x: views[0], y: views[1], z: views[2]})
    np.testing.assert_array_equal(views[2], np.maximum(source, 0) + source)


# Workspace.


def with_workspace() -> tuple[frazil.Graph, dict[Any, np.ndarray], int]:
    """A built graph that needs workspace, with a pack."""
    g, _ = epilogue_graph()
    g.build()
    return g, random(g, np.random.default_rng(0)), g.get_workspace_size()


WORKSPACES: dict[str, tuple[Callable[[int], Any], list[str]]] = {
    "missing": (lambda n: None, ["missing", "get_workspace_size"]),
    "too small": (lambda n: np.empty(n - 1, np.uint8), ["size", "at least"]),
    "too few elements": (lambda n: torch.empty(n // 4 - 1), ["size", "at least"]),
    "misaligned": (lambda n: Bytes(n, 1).view, ["alignment", "multiple of", "empty_workspace"]),
    "with gaps": (lambda n: np.empty((n, 2), np.uint8)[:, 0], ["strides", "contiguous"]),
    "reversed": (lambda n: np.empty(2 * n, np.uint8)[::-1], ["strides", "contiguous"]),
    "on a device": (lambda n: OnDevice((n,)), ["device", "cuda", "cpu"]),
    "on no device": (lambda n: torch.empty(n, dtype=torch.uint8, device="meta"), ["device", "meta"]),
    "read-only": (lambda n: np.frombuffer(bytes(n + 64), np.uint8)[:n], ["read-only"]),
    "null": (lambda n: 0, ["address", "memory"]),
    "a misaligned address": (lambda n: (1 << 30) + 8, ["alignment"]),
    "no buffer": (lambda n: "here", ["str"]),
    "lazily negated": (lambda n: negated(n), ["negated"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", WORKSPACES)
def test_wrong_workspaces_are_refused(kind: str) -> None:
    g, pack, size = with_workspace()
    make, words = WORKSPACES[kind]
    workspace = make(size)
    if kind == "read-only" and workspace.ctypes.data % 16:
        pytest.skip("the bytes object is not aligned")
    refused(lambda: g.execute(pack, workspace), "workspace", *words)
    assert np.isnan(pack[g.get_outputs()[0]]).all()


@pytest.mark.parametrize("start", [0, 16, 48, 128])
def test_right_workspaces(start: int) -> None:
    g, pack, size = with_workspace()
    y = g.get_outputs()[0]
    results = []
    keep = Bytes(size, start)
    for workspace in (
        *(keep.view, keep.view.ctypes.data, np.empty(size * 2), torch.empty(size)),
        g.empty_workspace(like=torch.empty(1)),
    ):
        pack[y][...] = np.nan
        g.execute(pack, workspace)
        results.append(pack[y].copy())
    assert not np.isnan(results).any() and all((r == results[0]).all() for r in results)


@pytest.mark.parametrize("port", ["a", "b", "bias", "y"])
def test_nothing_may_overlap_the_workspace(port: str) -> None:
    g, pack, size = with_workspace()
    tensor = g.get_outputs()[0] if port == "y" else g.find_tensor(port)
    keep = Bytes(size + 4096, 0)
    count = int(np.prod(tensor.dim)) * 4
    pack[tensor] = keep.view[size - 16 : size - 16 + count].view(np.float32).reshape(tensor.dim)
    refused(
        lambda: g.execute(pack, keep.view[:size]), tensor.name, f"uid {tensor.uid}", "overlaps the workspace"
    )
    assert untouched(keep.view)
    pack[tensor] = keep.view[size : size + count].view(np.float32).reshape(tensor.dim)
    pack[tensor][...] = 1
    g.execute(pack, keep.view[:size])
