"""After planning nothing about a graph changes; setting an equal value stays legal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import frazil
from frazil import StateError, data_type, scalar_type, tensor_reordering
from frazil.ops import OPS

from .helpers import add_graph, graph, packed, random, refused

HALF, FLOAT, BF16, INT32 = data_type.HALF, data_type.FLOAT, data_type.BFLOAT16, data_type.INT32


def changes(t: Any, other: Any) -> dict[str, Callable[[], Any]]:
    """Every way to change a tensor."""
    return {
        "output": lambda: t.set_output(False),
        "is_virtual": lambda: t.set_is_virtual(not t.is_virtual),
        "by_value": lambda: t.set_is_pass_by_value(not t.is_pass_by_value),
        "data_type": lambda: t.set_data_type(data_type.DOUBLE),
        "name": lambda: t.set_name("renamed"),
        "dim": lambda: t.set_dim((9, 9, 9)),
        "stride": lambda: t.set_stride((99, 9, 1)),
        "uid": lambda: t.set_uid(1000),
        "ragged_offset": lambda: t.set_ragged_offset(other),
        "multiplier": lambda: t.set_ragged_offset_multiplier(2),
        "reordering": lambda: t.set_reordering_type(tensor_reordering.INT8x32),
        "alignment": lambda: t.set_alignment_value(64),
        "value": lambda: t.set_value(2.0),
        "name property": lambda: setattr(t, "name", "renamed"),
        "uid property": lambda: setattr(t, "uid", 1000),
        "dim property": lambda: setattr(t, "dim", (9, 9, 9)),
    }


KINDS = [
    "output", "is_virtual", "by_value", "data_type", "name", "dim", "stride", "uid", "ragged_offset", "multiplier",
    "reordering", "alignment", "value", "name property", "uid property", "dim property",
]  # fmt: skip


@pytest.mark.parametrize("change", KINDS)
@pytest.mark.parametrize("which", ["input", "output", "virtual"])
def test_nothing_about_a_tensor_changes_after_planning(change: str, which: str) -> None:
    g = graph()
    a, b = g.tensor((2, 3, 4), name="a"), g.tensor((2, 3, 4), name="b")
    middle = g.add(a, b)
    y = g.relu(middle).set_output(True)
    tensor = {"input": a, "output": y, "virtual": middle}[which]
    g.create_execution_plans()
    before = g.to_json()
    if change == "output" and which == "virtual":
        tensor.set_output(False)  # which it is
    else:
        refused(changes(tensor, b)[change], "planned", tensor.name, error=StateError)
    assert g.to_json() == before
    g.build()


def test_equal_values_stay_legal_after_planning() -> None:
    g, named, _ = packed()
    g.create_execution_plans()
    for t in g.tensors:
        t.set_output(not t.is_virtual).set_is_virtual(t.is_virtual).set_is_pass_by_value(t.is_pass_by_value)
        t.set_data_type(t.data_type).set_name(t.name).set_dim(list(t.dim)).set_stride(t.get_stride())
        t.set_uid(t.uid).set_uid(-1).set_ragged_offset(t.ragged_offset)
        t.set_ragged_offset_multiplier(t.ragged_offset_multiplier)
        t.set_reordering_type(t.reordering_type).set_alignment_value(t.alignment_value)
        t.name, t.uid, t.dim, t.stride, t.data_type = t.name, t.uid, t.dim, t.stride, t.data_type
    assert named["q"].set_data_type(np.float32) is named["q"]


def test_nothing_is_added_after_planning() -> None:
    g, a, _, _ = add_graph()
    g.create_execution_plans()
    for build in (
        lambda: g.tensor((1,)),
        lambda: g.tensor_like(np.zeros(3, np.float32)),
        lambda: g.tensor_scalar(1.0, scalar_type.RUNTIME_PARAM),
    ):
        refused(build, "planned", error=StateError)
    for op in OPS.values():
        arguments = dict.fromkeys((p.name for p in op.inputs), a)
        signature = getattr(g, op.name).__signature__.parameters
        given = {k: v for k, v in arguments.items() if k in signature}
        missing = [k for k, p in signature.items() if p.default is p.empty and k not in given and k != "self"]
        given |= dict.fromkeys(missing, a)
        refused(partial(getattr(g, op.name), **given), "planned", error=StateError)
    assert len(g.tensors) == 3 and len(g.nodes) == 1


def test_renaming_after_build_cannot_swap_inputs(rng: Any) -> None:  # C-71
    g, a, b, y = add_graph()
    g.build()
    refused(lambda: a.set_name("b"), "'a'", "name", error=StateError)
    refused(lambda: b.set_uid(1), "'b'", "uid", error=StateError)
    pack = random(g, rng)
    g.execute({t.name: v for t, v in pack.items()})
    np.testing.assert_array_equal(pack[y], pack[a] + pack[b])


def test_nodes_are_read_only() -> None:
    g = frazil.Graph(io_data_type=frazil.data_type.FLOAT, target="cpu")
    y = g.relu(g.tensor((2,))).set_output(True)
    (node,) = g.nodes
    for name in ("name", "op", "attrs", "inputs", "outputs", "compute_data_type"):
        with pytest.raises(AttributeError):
            setattr(node, name, None)
    with pytest.raises(TypeError):
        node.inputs["input"] = None  # type: ignore[index]
    with pytest.raises(AttributeError):
        y.producer = None  # type: ignore[misc]
