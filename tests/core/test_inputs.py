"""What may be bound, and under which keys: buffers of every library, in every form that has an address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import frazil
from frazil import GraphError, data_type
from frazil.buffers import Buffer, _DLTensor, read
from frazil.dtypes import cast

from .helpers import (
    FLOAT,
    Interface,
    Producer,
    add_graph,
    capsule_of,
    graph,
    inputs,
    poison,
    refused,
    untouched,
)
from .test_dtypes import TORCH

HALF, BF16, INT32 = data_type.HALF, data_type.BFLOAT16, data_type.INT32

# Keys.

KEYS: dict[str, Callable[..., Any]] = {
    "tensors": lambda a, b, y, va, vb, vy: {a: va, b: vb, y: vy},
    "uids": lambda a, b, y, va, vb, vy: {1: va, 2: vb, 3: vy},
    "numpy uids": lambda a, b, y, va, vb, vy: {np.int32(1): va, np.int64(2): vb, 3: vy},
    "names": lambda a, b, y, va, vb, vy: {"a": va, "b": vb, "y": vy},
    "mixed": lambda a, b, y, va, vb, vy: {a: va, "b": vb, 3: vy},
    "other order": lambda a, b, y, va, vb, vy: {"y": vy, 2: vb, a: va},
    "extra": lambda a, b, y, va, vb, vy: {a: va, b: vb, y: vy, 99: vy, "z": 3, None: vb},
    "twice the same": lambda a, b, y, va, vb, vy: {a: va, "a": va, 1: va, b: vb, y: vy},
    "same object twice": lambda a, b, y, va, vb, vy: {a: va, b: va, y: vy},
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys(kind: str, rng: Any) -> None:
    g, a, b, y = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    out = poison(2, 3, 4)
    g.execute(KEYS[kind](a, b, y, va, vb, out))
    np.testing.assert_array_equal(out, va + (va if kind == "same object twice" else vb))


def test_tensors_of_another_graph_with_the_same_uids(rng: Any) -> None:
    g, *_ = add_graph()
    _, a, b, y = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    out = poison(2, 3, 4)
    g.execute({a: va, b: vb, y: out})
    np.testing.assert_array_equal(out, va + vb)


@pytest.mark.parametrize("sequence", [list, tuple])
def test_an_ordered_list(sequence: Any, rng: Any) -> None:
    g, *_ = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    out = poison(2, 3, 4)
    g.execute(sequence([out, vb, va, None]), tensor_uids=[3, 2, 1, 17])
    np.testing.assert_array_equal(out, va + vb)


@pytest.mark.parametrize(
    ("pack", "uids", "words"),
    [
        (lambda a, b, y: [a, b, y], None, ["tensor_uids"]),
        (lambda a, b, y: [a, b, y], [1, 2], ["tensor_uids", "2 uids for 3 buffers"]),
        (lambda a, b, y: [a, b, y], [1, 2, 2], ["tensor_uids", "no uid twice"]),
        (lambda a, b, y: [a, b], [1, 2], ["'y'", "uid 3", "missing", "output"]),
        (lambda a, b, y: {"a": a, "y": y}, None, ["'b'", "uid 2", "missing", "input"]),
        (lambda a, b, y: {"a": a, "y": y, "bb": b}, None, ["'b'", "missing", "'bb'"]),
        (lambda a, b, y: {"a": a, "b": None, "y": y}, None, ["'b'", "missing"]),
        (lambda a, b, y: {"a": a, 1: b, "b": b, "y": y}, None, ["'a'", "bound twice"]),
        (lambda a, b, y: {}, None, ["'a'", "uid 1", "missing"]),
    ],
)
def test_wrong_packs_are_refused(pack: Any, uids: Any, words: list[str], rng: Any) -> None:
    g, *_ = add_graph()
    out = poison(2, 3, 4)
    refused(lambda: g.execute(pack(*inputs(rng, 2, 3, 4), out), tensor_uids=uids), *words)
    assert untouched(out)


@pytest.mark.parametrize("key", [1.0, True, b"a", (1,)], ids=repr)
def test_what_is_no_key(key: Any, rng: Any) -> None:
    g, a, b, y = add_graph()
    out = poison(2, 3, 4)
    va, vb = inputs(rng, 2, 3, 4)
    pack = {key: va, a: va, b: vb, y: out} if key not in (1.0, True) else [(key, va)]
    if isinstance(pack, dict):
        refused(lambda: g.execute(pack), type(key).__name__, error=TypeError)
    else:  # equal to the uid 1, so only as the sole key
        refused(lambda: g.execute({key: va, b: vb, y: out}), type(key).__name__, error=TypeError)
    assert untouched(out)


def test_an_ambiguous_name_is_refused_by_name(rng: Any) -> None:
    g = graph()
    a, b = g.tensor((3,), name="x"), g.tensor((3,), name="x")
    y = g.sub(a, b).set_output(True).set_name("y")
    va, vb = inputs(rng, 3)
    out = poison(3)
    refused(lambda: g.execute({"x": va, b: vb, y: out}), "several", "'x'", str(a.uid), str(b.uid))
    assert untouched(out)
    g.execute({a.uid: va, b: vb, "y": out})
    np.testing.assert_array_equal(out, va - vb)


# Buffers of every library.


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": lambda v: v,
    "numpy read-only": lambda v: np.frombuffer(v.tobytes(), np.float32).reshape(v.shape),
    "numpy transposed": lambda v: v.T.copy().T,
    "numpy slice": lambda v: np.pad(v, ((0, 0), (0, 0), (3, 2)))[:, :, 3:-2],
    "numpy step": lambda v: np.repeat(v, 2, axis=2)[:, :, ::2],
    "torch": lambda v: torch.from_numpy(v.copy()),
    "torch gradient": lambda v: torch.from_numpy(v.copy()).requires_grad_(),
    "torch transposed": lambda v: torch.from_numpy(v.copy()).transpose(0, 2).contiguous().transpose(0, 2),
    "torch slice": lambda v: torch.nn.functional.pad(torch.from_numpy(v), (1, 4, 2, 1))[:, 2:-1, 1:-4],
    "torch parameter": lambda v: torch.nn.Parameter(torch.from_numpy(v.copy())),
    "versioned producer": lambda v: Producer(v.copy()),
    "unversioned producer": lambda v: Producer(v.copy(), versioned=False),
    "torch producer": lambda v: Producer(torch.from_numpy(v.copy())),
    "capsule": lambda v: v.copy().__dlpack__(),
    "torch capsule": lambda v: torch.from_numpy(v.copy()).__dlpack__(),
    "array interface": lambda v: Interface(v.copy()),
    "array interface with strides": lambda v: Interface(v.T.copy().T),
    "Buffer": lambda v: read(v.copy()),
}


@pytest.mark.parametrize("form", FORMS)
def test_inputs_of_every_form(form: str, rng: Any) -> None:
    g, a, b, y = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    given, out = FORMS[form](va), poison(2, 3, 4)
    g.execute({a: given, b: vb, y: out})
    np.testing.assert_array_equal(out, va + vb)


OUTPUTS = [k for k in FORMS if k != "numpy read-only"]


@pytest.mark.parametrize("form", OUTPUTS)
def test_outputs_of_every_form(form: str, rng: Any) -> None:
    g, a, b, y = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    out = FORMS[form](poison(2, 3, 4))
    g.execute({a: va, b: vb, y: out})
    buffer = read(out)
    found = np.lib.stride_tricks.as_strided(
        np.ctypeslib.as_array(ctypes.cast(buffer.address, ctypes.POINTER(ctypes.c_float)), (1,)),
        buffer.dim,
        tuple(4 * s for s in buffer.stride or ()),
    )
    np.testing.assert_array_equal(found, va + vb)


def test_bare_addresses_take_the_declaration(rng: Any) -> None:
    g, a, b, y = add_graph()
    a.set_stride((1, 2, 6))
    y.set_stride((12, 4, 1))
    va, vb = inputs(rng, 2, 3, 4)
    memory, out = np.asfortranarray(va), poison(2, 3, 4)
    g.execute({a: memory.ctypes.data, b: vb.ctypes.data, y: out.ctypes.data})
    np.testing.assert_array_equal(out, va + vb)


TYPES = {**TORCH, data_type.FP8_E8M0: torch.float8_e8m0fnu}


@pytest.mark.parametrize("kind", ["numpy", "torch", "producer"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_every_type_of_every_library(dtype: data_type, kind: str) -> None:
    values = np.array([[1, 2], [4, 1]], np.float32)
    g = frazil.Graph(io_data_type=dtype, compute_data_type=FLOAT, target="cpu")
    x = g.tensor((2, 2))
    y = g.identity(x).set_output(True)
    given: Any = cast(values, dtype)
    out: Any = np.zeros_like(given)
    if kind != "numpy":
        given = torch.from_numpy(values).to(TYPES[dtype])
        out = torch.zeros((2, 2 * given.element_size()), dtype=torch.uint8).view(TYPES[dtype])
    wrap = Producer if kind == "producer" else lambda v: v
    g.execute({x: wrap(given), y: wrap(out)})
    found = out.to(torch.float64).numpy() if isinstance(out, torch.Tensor) else out.astype(np.float64)
    np.testing.assert_array_equal(found, 1.0 if dtype is data_type.BOOLEAN else values)


def test_raw_bytes_serve_types_that_frameworks_lack(rng: Any) -> None:
    g = frazil.Graph(io_data_type=data_type.FP8_E8M0, compute_data_type=FLOAT, target="cpu")
    x = g.tensor((3,))
    y = g.identity(x).set_output(True).set_data_type(FLOAT)
    out = poison(3)
    g.execute({x: np.array([126, 127, 130], np.uint8), y: out})
    assert out.tolist() == [0.5, 1.0, 8.0]
    h = frazil.Graph(io_data_type=data_type.FP8_E4M3, compute_data_type=FLOAT, target="cpu")
    x = h.tensor((3,), name="x")
    h.identity(x).set_output(True).set_data_type(FLOAT).set_name("y")
    refused(lambda: h.execute({x: np.zeros(3, np.uint8), "y": out}), "'x'", "UINT8", "FP8_E4M3")


def test_producers_are_asked_for_the_versioned_form_first(rng: Any) -> None:
    g, a, b, y = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    new, old, out = Producer(va), Producer(vb, versioned=False), poison(2, 3, 4)
    g.execute({a: new, b: old, y: out})
    assert [list(o) for o in new.asked] == [["max_version"]] and old.asked == [{"max_version": (1, 1)}, {}]
    frozen = poison(2, 3, 4)
    frozen.flags.writeable = False
    refused(lambda: g.execute({a: va, b: vb, y: Producer(frozen)}), "'y'", "read-only")
    refused(lambda: g.execute({a: va, b: vb, y: Producer(frozen, versioned=False)}), "'y'", "DLPack")
    assert untouched(frozen)
    va.flags.writeable = False
    g.execute({a: Producer(va), b: vb, y: out})


def test_a_capsule_may_point_behind_its_data(rng: Any) -> None:
    g, a, b, y = add_graph()
    memory, vb, out = (
        rng.standard_normal(40).astype(np.float32),
        np.zeros((2, 3, 4), np.float32),
        poison(2, 3, 4),
    )
    shape = (ctypes.c_int64 * 3)(2, 3, 4)
    tensor = _DLTensor(memory.ctypes.data, 1, 0, 3, 2, 32, 1, shape, None, 36)
    g.execute({a: capsule_of(tensor), b: vb, y: out})
    np.testing.assert_array_equal(out.ravel(), memory[9:33])


def test_a_capsule_serves_again_and_frees_its_memory_once(rng: Any) -> None:
    g, a, b, y = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    capsule, out = torch.from_numpy(va.copy()).__dlpack__(), poison(2, 3, 4)
    for _ in range(3):
        g.execute({a: capsule, b: capsule, y: out})
    np.testing.assert_array_equal(out, va + va)
    torch.from_dlpack(capsule)
    refused(lambda: g.execute({a: capsule, b: vb, y: out}), "'a'", "DLPack capsule", "used_dltensor")


def test_buffers_are_values() -> None:
    array = np.zeros((2, 3), np.float32)
    buffer = read(array)
    assert (buffer.dim, buffer.stride, buffer.data_type, buffer.device) == ((2, 3), (3, 1), FLOAT, "cpu")
    assert read(buffer) is buffer and buffer.is_contiguous and not Buffer(5).is_contiguous
    with pytest.raises((GraphError, TypeError)):
        read(np.zeros(3, "U4"))
