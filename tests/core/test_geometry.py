"""Extents and strides in force: of buffers, of overrides, of packed tensors, and of nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import frazil
from frazil import data_type, reduction_mode

from .helpers import (
    POISON,
    add_graph,
    execute,
    graph,
    inputs,
    packed,
    packed_oracle,
    poison,
    random,
    refused,
    untouched,
)

HALF, BF16, INT32 = data_type.HALF, data_type.BFLOAT16, data_type.INT32

# Geometry in force.


@pytest.mark.parametrize("shape", [(24,), (4, 6), (1, 2, 3, 4), (3, 2, 4), (30,), (2, 3, 5)], ids=str)
def test_contiguous_memory_that_covers_the_declaration_is_read_as_declared(shape: Any, rng: Any) -> None:
    g, a, b, y = add_graph()
    vb = rng.standard_normal((2, 3, 4)).astype(np.float32)
    memory, out = rng.standard_normal(shape).astype(np.float32), poison(*shape)
    g.execute({a: memory, b: vb, y: out})
    np.testing.assert_array_equal(
        out.ravel()[:24].reshape(2, 3, 4), memory.ravel()[:24].reshape(2, 3, 4) + vb
    )
    assert untouched(out.ravel()[24:])


def test_declared_strides_hold_for_memory_of_another_shape(rng: Any) -> None:
    g, a, b, y = add_graph()
    a.set_stride((1, 2, 6))
    y.set_stride((20, 5, 1))
    memory, vb, out = rng.standard_normal(24).astype(np.float32), np.zeros((2, 3, 4), np.float32), poison(34)
    g.execute({a: memory, b: vb, y: out})
    found = np.lib.stride_tricks.as_strided(out, (2, 3, 4), (80, 20, 4))
    np.testing.assert_array_equal(found, memory.reshape(4, 3, 2).T)
    assert np.isnan(out).sum() == 34 - 24
    refused(lambda: g.execute({a: memory, b: vb, y: poison(33)}), "'y'", "size", "33 elements", "34")


def test_the_same_shape_keeps_its_own_strides(rng: Any) -> None:
    g, a, b, y = add_graph()
    va, vb = inputs(rng, 2, 3, 4)
    for order in ((0, 2, 1), (2, 1, 0), (1, 2, 0)):
        back = np.argsort(order)
        memory = np.ascontiguousarray(va.transpose(order)).transpose(back)
        out = poison(*(va.shape[i] for i in order)).transpose(back)
        g.execute({a: memory, b: np.broadcast_to(vb[:, :1], (2, 3, 4)), y: out})
        np.testing.assert_array_equal(out, va + vb[:, :1])


@pytest.mark.parametrize("dim", [(0,), (3, 0), (0, 4), (2, 0, 3)], ids=str)
def test_nothing_to_do(dim: tuple[int, ...]) -> None:  # C-68
    g, a, b, y = add_graph(dim)
    g.execute({a: np.zeros(dim, np.float32), b: np.zeros(dim, np.float32), y: np.zeros(dim, np.float32)})
    g.execute({a: torch.zeros(dim), b: torch.zeros(0), y: torch.zeros(dim)})
    g.execute({a: 0, b: 0, y: 0})
    odd, a, b, y = add_graph(dim)
    for t in (a, b, y):
        t.set_stride((7,) * len(dim))
    odd.execute({a: np.zeros(dim, np.float32), b: np.zeros(dim, np.float32), y: np.zeros(dim, np.float32)})


@pytest.mark.parametrize("dim", [(0,), (3, 0)], ids=str)
def test_nothing_between_nodes_needs_no_workspace(dim: tuple[int, ...]) -> None:
    g = graph()
    x = g.tensor(dim)
    y = g.relu(g.exp(g.neg(x))).set_output(True)
    g.build()
    assert g.get_workspace_size() == 0
    g.execute({x: np.zeros(dim, np.float32), y: np.zeros(dim, np.float32)})


def test_nothing_to_sum_is_zero() -> None:
    g = graph()
    x, w = g.tensor((3, 0)), g.tensor((0, 4))
    y = g.relu(g.matmul(x, w)).set_output(True)
    out = poison(3, 4)
    execute(g, {x: np.zeros((3, 0), np.float32), w: np.zeros((0, 4), np.float32), y: out})
    assert (out == 0).all()


def test_empty_outputs_do_not_overlap_anything() -> None:
    g = graph()
    x, w = g.tensor((3, 4)), g.tensor((4, 0))
    t = g.matmul(x, w).set_output(True).set_name("t")
    y = g.relu(g.relu(x)).set_output(True)
    g.build()
    workspace = g.empty_workspace()
    inside = workspace[16:16].view(np.float32).reshape(3, 0)
    out = poison(3, 4)
    g.execute({x: np.ones((3, 4), np.float32), w: np.zeros((4, 0), np.float32), t: inside, y: out}, workspace)
    assert (out == 1).all()


def test_rank_0_tensors(rng: Any) -> None:
    g = graph()
    a, b = g.tensor(()), g.tensor((2,))
    y = g.add(a, b).set_output(True)
    out = poison(2)
    g.execute({a: np.array(2.0, np.float32), b: np.ones(2, np.float32), y: out})
    assert out.tolist() == [3, 3]


# Overrides and dynamic shapes.


def dynamic(**options: Any) -> tuple[frazil.Graph, dict[str, Any]]:
    """y = gelu(a @ b + bias), declared for at most (4, 8, 16) @ (4, 16, 6)."""
    g = graph(**{"is_dynamic_shape_enabled": True, **options})
    t = {n: g.tensor(d, name=n) for n, d in (("a", (4, 8, 16)), ("b", (4, 16, 6)), ("bias", (1, 1, 6)))}
    t["y"] = g.relu(g.add(g.matmul(t["a"], t["b"]), t["bias"])).set_output(True).set_name("y")
    g.build()
    return g, t


SIZES = [(4, 8, 16, 6), (2, 3, 5, 6), (1, 1, 1, 1), (4, 8, 16, 1), (0, 8, 16, 6), (3, 8, 0, 2)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("how", ["bound", "overridden", "addresses"])
def test_smaller_extents(sizes: tuple[int, ...], how: str, rng: Any) -> None:
    n, m, k, w = sizes
    g, t = dynamic()
    va, vb = (rng.standard_normal(d).astype(np.float32) for d in ((n, m, k), (n, k, w)))
    bias, out = rng.standard_normal((1, 1, w)).astype(np.float32), poison(n, m, w)
    arrays = {"a": va, "b": vb, "bias": bias, "y": out}
    workspace = g.empty_workspace()
    workspace[...] = POISON
    if how == "bound":
        g.execute(arrays, workspace)
    else:
        wide = {k: np.full(int(np.prod(t[k].dim)), np.nan, np.float32) for k in arrays}
        for name, array in arrays.items():
            wide[name][: array.size] = array.ravel()
        shapes = [v.shape for v in arrays.values()]
        strides = [tuple(s // 4 for s in v.strides) for v in arrays.values()]
        given = {k: v.ctypes.data for k, v in wide.items()} if how == "addresses" else wide
        uids = [t[k].uid for k in arrays]
        g.execute(given, workspace, override_uids=uids, override_shapes=shapes, override_strides=strides)
        assert np.isnan(wide["y"][out.size :]).all()
        out = wide["y"][: out.size].reshape(out.shape)
    expected = np.maximum(va.astype(np.float64) @ vb + bias, 0)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_overridden_strides_alone(rng: Any) -> None:
    g, t = dynamic()
    va, vb = (
        rng.standard_normal((4, 8, 16)).astype(np.float32),
        rng.standard_normal((4, 16, 6)).astype(np.float32),
    )
    bias, out, flipped = np.zeros((1, 1, 6), np.float32), poison(4, 8, 6), poison(4, 8, 6)
    g.execute({"a": va, "b": vb, "bias": bias, "y": out}, g.empty_workspace())
    memory = np.ascontiguousarray(va.transpose(2, 1, 0))
    pack = {"a": memory.ravel(), "b": vb, "bias": bias, "y": flipped}
    g.execute(
        pack,
        g.empty_workspace(),
        override_uids=[t["a"].uid],
        override_shapes=[(4, 8, 16)],
        override_strides=[(1, 4, 32)],
    )
    np.testing.assert_array_equal(out, flipped)


# uids, shapes, strides, and words of the refusal
BAD_OVERRIDES: dict[str, tuple[Any, Any, Any, list[str]]] = {
    "one list": ([1], None, None, ["override_uids", "equal length"]),
    "two lists": ([1], [(4, 8, 16)], None, ["equal length"]),
    "unequal": ([1], [(4, 8, 16)] * 2, [(128, 16, 1)], ["(1, 2, 1)", "equal length"]),
    "unknown uid": ([99], [(1,)], [(1,)], ["99", "unknown uid"]),
    "virtual uid": ([4], [(4, 8, 6)], [(48, 6, 1)], ["4", "unknown uid"]),
    "twice": ([1, 1], [(4, 8, 16)] * 2, [(128, 16, 1)] * 2, ["'a'", "twice"]),
    "rank": ([1], [(8, 16)], [(16, 1)], ["'a'", "rank", "3 axes"]),
    "larger": ([1], [(4, 9, 16)], [(144, 16, 1)], ["'a'", "(4, 9, 16)", "(4, 8, 16)"]),
    "negative extent": ([1], [(4, -1, 16)], [(1, 1, 1)], ["'a'", "(4, -1, 16)"]),
    "negative stride": ([1], [(4, 8, 16)], [(128, 16, -1)], ["'a'", "negative"]),
    "text": ([1], ["abc"], [(128, 16, 1)], ["'a'", "integers"]),
    "fractions": ([1], [(4, 8.0, 16)], [(128, 16, 1)], ["'a'", "integers"]),
    "no sequence": ([1], [4], [(128, 16, 1)], ["'a'", "integers"]),
    "no lists": (1, 2, 3, ["override_uids", "lists"]),
    "beyond the buffer": ([1], [(4, 8, 16)], [(512, 16, 1)], ["'a'", "size"]),
    "output over itself": ([6], [(4, 8, 6)], [(48, 1, 1)], ["'y'", "strides"]),
    "inconsistent": ([1], [(4, 7, 16)], [(112, 16, 1)], ["'y'", "(4, 8, 6)", "(4, 7, 6)"]),
    "inner": ([1], [(4, 8, 15)], [(120, 15, 1)], ["matmul.0", "'b'", "15"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_OVERRIDES)
def test_wrong_overrides_are_refused(kind: str, rng: Any) -> None:
    g, t = dynamic()
    assert (t["a"].uid, t["y"].uid) == (1, 6)
    uids, shapes, strides, words = BAD_OVERRIDES[kind]
    options = {"override_uids": uids, "override_shapes": shapes, "override_strides": strides}
    pack = random(g, rng)
    workspace = g.empty_workspace()
    workspace[...] = POISON
    refused(lambda: g.execute(pack, workspace, **options), *words)
    assert np.isnan(pack[t["y"]]).all() and untouched(workspace)


def test_bound_extents_beyond_the_declared_are_refused(rng: Any) -> None:
    g, t = dynamic()
    pack = random(g, rng)
    pack[t["a"]] = np.zeros((4, 9, 16), np.float32)
    refused(
        lambda: g.execute(pack, g.empty_workspace()), "'a'", "(4, 9, 16)", "at most the declared (4, 8, 16)"
    )
    pack[t["a"]] = np.zeros((4, 7, 16), np.float32)
    refused(lambda: g.execute(pack, g.empty_workspace()), "'y'", "(4, 8, 6)", "(4, 7, 6)")
    assert np.isnan(pack[t["y"]]).all()


def test_overrides_need_a_graph_made_for_them(rng: Any) -> None:
    g, *_ = add_graph()
    options = {"override_uids": [1], "override_shapes": [(2, 3, 4)], "override_strides": [(12, 4, 1)]}
    refused(lambda: g.execute(random(g, rng), **options), "'a'", "is_override_shape_enabled")
    h, *_ = add_graph(is_override_shape_enabled=True)
    pack = random(h, rng)
    h.execute(pack, **options)
    np.testing.assert_array_equal(pack[h.find_tensor(3)], pack[h.find_tensor(1)] + pack[h.find_tensor(2)])


def test_a_virtual_result_with_declared_extents_does_not_follow(rng: Any) -> None:
    g = graph(is_dynamic_shape_enabled=True)
    x = g.tensor((4, 6), name="x")
    y = g.relu(g.reduction(x, mode=reduction_mode.ADD, out_dims=(4, 1))).set_output(True)
    g.build()
    out = poison(3, 1)
    refused(
        lambda: g.execute({x: np.ones((3, 6), np.float32), y: out}, g.empty_workspace()),
        "reduction.0",
        "declared",
    )
    assert untouched(out)
    h = graph(is_dynamic_shape_enabled=True)
    x = h.tensor((4, 6), name="x")
    y = h.reduction(x, mode=reduction_mode.ADD, out_dims=(4, 1)).set_output(True)
    h.execute({x: np.ones((3, 5), np.float32), y: out})
    assert (out == 5).all()


# Packed tensors.


PACKED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "(T, H, D)": lambda v: v,
    "with tail": lambda v: np.concatenate([v, np.full((4, 2, 8), np.nan, np.float32)]),
    "flat": lambda v: v.reshape(-1),
    "as declared": lambda v: np.concatenate([v, v[:3]]).reshape(2, 4, 2, 8).transpose(0, 2, 1, 3),
}


@pytest.mark.parametrize("form", PACKED)
def test_packed_buffers(form: str) -> None:
    g, _, arrays = packed()
    pack = {n: PACKED[form](v) if n in "qkv" else v for n, v in arrays.items()}
    g.execute(pack, np.empty(1 << 16, np.uint8))
    np.testing.assert_allclose(arrays["o"], packed_oracle(arrays), rtol=1e-5, atol=1e-6)


WRONG_PACKED: dict[str, tuple[Callable[[np.ndarray], Any], list[str]]] = {
    "inner extents": (lambda v: np.zeros((5, 1, 16), np.float32), ["layout", "(5, 1, 16)"]),
    "inner strides": (lambda v: np.zeros((5, 8, 2), np.float32).transpose(0, 2, 1), ["layout", "(16, 1, 2)"]),
    "token stride": (lambda v: np.zeros((5, 3, 8), np.float32)[:, :2], ["layout", "(24, 8, 1)"]),
    "too short": (lambda v: v[:4], ["outside", "elements"]),
    "empty": (lambda v: v[:0], ["outside", "elements"]),
    "address": (lambda v: v.ctypes.data, ["size", "bare address"]),
    "type": (lambda v: v.astype(np.float64), ["data type", "DOUBLE"]),
}  # fmt: skip


@pytest.mark.parametrize("port", ["k", "o"])
@pytest.mark.parametrize("kind", WRONG_PACKED)
def test_wrong_packed_buffers_are_refused(kind: str, port: str) -> None:
    g, t, arrays = packed()
    make, words = WRONG_PACKED[kind]
    out = arrays["o"]
    arrays[port] = make(arrays[port])
    refused(lambda: g.execute(arrays, np.empty(1 << 16, np.uint8)), f"'{port}'", f"uid {t[port].uid}", *words)
    assert untouched(out)


def test_a_packed_buffer_follows_an_override() -> None:
    g, t, arrays = packed()
    expected = packed_oracle(arrays)
    wide = {n: poison(5, 3, 8) for n in "qkvo"}  # tokens of 24 elements, of which 16 are there
    for n in "qkv":
        wide[n][:, :2] = arrays[n]
    pack = {**{n: w[:, :2] for n, w in wide.items()}, "offsets": np.array([0, 9, 15], np.int32)}
    workspace = np.empty(1 << 16, np.uint8)
    refused(lambda: g.execute(pack, workspace), "'q'", "layout", "(24, 8, 1)")
    strides = [(96, 8, 24, 1)] * 4
    uids, shapes = [t[n].uid for n in "qkvo"], [(2, 2, 4, 8)] * 4
    g.execute(pack, workspace, override_uids=uids, override_shapes=shapes, override_strides=strides)
    np.testing.assert_allclose(pack["o"], expected, rtol=1e-5, atol=1e-6)
    assert untouched(wide["o"][:, 2])


def test_memory_without_gaps_in_another_order_of_axes_is_read_as_declared() -> None:
    """A channels-last buffer of more elements than declared: its bytes are what counts."""
    g = frazil.Graph(io_data_type=frazil.data_type.FLOAT, target="cpu")
    x = g.tensor((1, 2, 2, 2), (8, 1, 4, 2))
    y = g.identity(x).set_output(True)
    memory = np.arange(24, dtype=np.float32)
    bound = np.lib.stride_tricks.as_strided(memory, (2, 3, 2, 2), (48, 4, 24, 12))
    out = np.empty((1, 2, 2, 2), np.float32)
    g.execute({x: bound, y: out})
    assert out.tolist() == np.lib.stride_tricks.as_strided(memory, (1, 2, 2, 2), (32, 4, 16, 8)).tolist()
