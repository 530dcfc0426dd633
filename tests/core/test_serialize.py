"""Graphs and plans as files: the same bytes on a second round, the same results, and no file that is wrong
unnoticed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import frazil
from frazil import NotSupported, StateError, data_type, knob_type, scalar_type, serialize
from frazil.op import Attrs
from frazil.ops import OPS
from frazil.program import Binary, Const, Extent, Fill, Number, Program, Slot
from frazil.spec import TensorSpec

from ..harness import run, setup
from .helpers import (
    FLOAT,
    REFERENCE,
    Fake,
    Tile,
    add_graph,
    anything,
    epilogue_graph,
    execute,
    graph,
    install,
    one_node,
    packed,
    random,
    refused,
)
from .test_program import BACKEND, KERNEL, MAP


def stored(g: frazil.Graph, **options: Any) -> bytes:
    """The built plan as bytes."""
    data = g.serialize(as_bytes=True, **options)
    assert isinstance(data, bytes)
    return data


def loaded(data: Any, *arguments: Any, **options: Any) -> frazil.Graph:
    """A fresh graph, filled from data."""
    g = frazil.Graph()
    g.deserialize(*arguments, data, **options)
    return g


def samples() -> dict[str, Callable[[], frazil.Graph]]:
    """Graphs that between them use everything that a file can hold."""

    def constants() -> frazil.Graph:
        g = graph(name="named", intermediate_data_type=data_type.BFLOAT16, is_dynamic_shape_enabled=True)
        x = g.tensor((2, 3), (1, 2), data_type.HALF, name="x", alignment_value=8)
        c = g.tensor_scalar(float("inf"), scalar_type.COMPILE_TIME_CONST, name="c")
        s = g.tensor_scalar(3, scalar_type.RUNTIME_PARAM, name="s")
        g.min(g.mul(g.relu(x, upper_clip=float("inf"), negative_slope=-0.0), s), c, name="n").set_output(True)
        g.tensor((5,), name="unread", uid=40)
        return g

    def callback() -> frazil.Graph:
        g = graph()
        q, k, v = (g.tensor((1, 2, 4, 8), name=n) for n in "qkv")
        cap = g.tensor((1, 1, 1, 1), name="cap", is_pass_by_value=True)
        mod = lambda g, score: g.mul(g.tanh(g.div(score, cap)), cap)
        o, stats = g.sdpa(q, k, v, attn_scale=0.25, generate_stats=True, score_mod=mod)
        o.set_output(True)
        stats.set_output(True)
        return g

    return {
        "add": lambda: add_graph()[0],
        "epilogue": lambda: epilogue_graph(middle_output=True)[0],
        "constants": constants,
        "packed": lambda: packed()[0],
        "callback": callback,
    }


SAMPLES = samples()


# Round trips.


@pytest.mark.parametrize("op", OPS)
def test_graphs_and_plans_of_every_case_come_back(op: str) -> None:
    for case in OPS[op].cases:
        if case.level != "smoke":
            continue
        seed = zlib.crc32(f"{op}/{case.name}".encode())
        made, again = (setup(op, case, np.random.default_rng(seed)) for _ in range(2))
        text = made.graph.to_json()
        back = loaded(text)
        assert back.to_json() == text, case.name
        assert back.key() == made.graph.key()
        assert back.problem == made.graph.problem, case.name
        first = run(made)
        data = stored(made.graph)
        again.graph.validate()
        again.graph = loaded(data)
        assert stored(again.graph) == data, case.name
        second = run(again)
        assert first.keys() == second.keys()
        for port in first:
            assert first[port].tobytes() == second[port].tobytes(), (case.name, port)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_come_back(name: str) -> None:
    g = SAMPLES[name]()
    text = g.to_json()
    again = loaded(text)
    assert again.to_json() == text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert again.key() == g.key()
    assert again.problem == g.problem
    assert [t.name for t in again.get_inputs()] == [t.name for t in g.get_inputs()]
    g.build()
    plan = loaded(stored(g))
    assert stored(plan) == stored(g)
    assert plan.get_engine_and_knobs_at_index(0) == g.get_engine_and_knobs_at_index(0)
    assert plan.get_workspace_size() == g.get_workspace_size()


def test_a_loaded_plan_gives_the_same_bytes(rng: Any) -> None:
    g, _ = epilogue_graph()
    pack = random(g, rng)
    execute(g, pack)
    for data in (stored(g), g.serialize(), list(stored(g, include_kernels=False)), bytearray(stored(g))):
        again = loaded(data)
        assert again.get_execution_plan_count() == 1
        mine = {t.uid: v.copy() for t, v in pack.items()}
        for t in g.get_outputs():
            mine[t.uid][...] = np.nan
        workspace = again.empty_workspace()
        workspace[...] = 0xFF
        again.execute(mine, workspace)
        for t in g.get_outputs():
            assert mine[t.uid].tobytes() == pack[t].tobytes()
        refused(lambda again=again: again.tensor((1,)), "planned", error=StateError)


def test_the_list_form_is_the_bytes() -> None:
    g, *_ = add_graph()
    g.build()
    as_list = g.serialize()
    assert isinstance(as_list, list)
    assert bytes(as_list) == stored(g)


def test_a_loaded_graph_is_open_and_takes_a_handle(rng: Any) -> None:
    g, *_ = add_graph()
    handle = frazil.create_handle("cpu")
    again = loaded(g.to_json(), handle)
    again.neg(again.find_tensor("y")).set_output(True)
    again.build()
    g.build()
    plan = loaded(stored(g), handle)
    frazil.destroy_handle(handle)
    refused(lambda: plan.execute(random(plan, rng)), "destroyed", error=StateError)
    refused(lambda: loaded(stored(g), "handle"), "Handle", error=TypeError)


def test_without_kernels_the_plan_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Fake("tiled", anything, choices=(Tile(32), Tile(64)))
    install(monkeypatch, engine, REFERENCE)
    g, _ = epilogue_graph()
    g.create_execution_plans()
    g.build_plan_at_index(1)
    small, full = stored(g, include_kernels=False), stored(g)
    assert len(small) < len(full)
    built = len(engine.built)
    assert loaded(full).selected_engine == "tiled[STAGES=2, TILE_M=64]"
    assert len(engine.built) == built, "a stored program is not built again"
    again = loaded(small)
    assert again.selected_engine == "tiled[STAGES=2, TILE_M=64]"
    assert len(engine.built) == built + 1
    assert stored(again, include_kernels=False) == small
    assert stored(again) == full
    refused(lambda: loaded(small, enforce_precompiled=True), "enforce_precompiled", "without kernels")
    loaded(full, enforce_precompiled=True)


def test_plans_of_several_parts_come_back(monkeypatch: pytest.MonkeyPatch, rng: Any) -> None:
    install(monkeypatch, Fake("single", one_node))
    g, _ = epilogue_graph()
    pack = random(g, rng)
    execute(g, pack)
    again = loaded(stored(g))
    assert again.selected_engine == "single + single + single"
    mine = {t.uid: v.copy() for t, v in pack.items()}
    again.execute(mine, again.empty_workspace())
    for t in g.get_outputs():
        assert mine[t.uid].tobytes() == pack[t].tobytes()
    install(monkeypatch, REFERENCE)
    refused(lambda: loaded(stored(g)), "no candidate", error=NotSupported)


# Values.

SPECIAL = [float("inf"), float("-inf"), float("nan"), -0.0, 0.1, 1e-320, 1.7976931348623157e308]
VALUES = {
    "kernel": KERNEL,
    "backend plan": BACKEND,
    "map": MAP,
    "expression": Binary("max", Binary("cdiv", Extent(0, 1), Const(3)), Const(-1)),
    "numbers": tuple(Number(v, FLOAT) for v in SPECIAL if v == v),
    "tensor": TensorSpec(FLOAT, (2, 0), (1, 2), value=0.5, ragged=3, uid=9, name='ü " \\ \n'),
    "attributes": Attrs({"a": None, "b": True, "c": (1, (2.5, "x")), "d": data_type.HALF, "e": ()}),
    "bytes": (b"", b"\x00\xff", bytes(range(256))),
    "set": frozenset({(1, 2), (0, 3)}),
    "program": Program(
        (TensorSpec(FLOAT, (1,), (1,)),), (KERNEL, BACKEND, Fill(Slot(0), Const(4), b"\0")), 64
    ),
    "integers": (0, -1, 2**63, -(2**63), True, False),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back(name: str) -> None:
    blobs: list[bytes] = []
    text = serialize._dump(serialize._encode(VALUES[name], blobs))
    back = serialize._decode(json.loads(text), tuple(blobs))
    assert back == VALUES[name]
    assert type(back) is type(VALUES[name])
    again: list[bytes] = []
    assert serialize._dump(serialize._encode(back, again)) == text
    assert again == blobs


@pytest.mark.parametrize("value", SPECIAL, ids=repr)
def test_special_floats_come_back_bit_for_bit(value: float) -> None:
    text = serialize._dump(serialize._encode(value, []))
    back = serialize._decode(json.loads(text), ())
    assert np.float64(back).tobytes() == np.float64(value).tobytes()
    assert "NaN" not in text
    assert "Infinity" not in text


def test_what_has_no_stored_form() -> None:
    for value in (object(), {1: 2}, [1], {1}, 1j):
        refused(lambda value=value: serialize._encode(value, []), type(value).__name__, error=TypeError)


def test_every_instruction_and_argument_can_be_stored() -> None:
    from typing import get_args

    from frazil import program

    kinds = [*get_args(program.Instruction), *get_args(program.Argument), *get_args(program.Expr), Program]
    assert {k.__name__ for k in kinds} <= set(serialize._VALUES)


def test_kernels_come_back_in_a_plan_file() -> None:
    g, *_ = add_graph()
    program = Program(
        g.problem.tensors,
        (KERNEL, replace(KERNEL, grid=(Const(0),) * 3), BACKEND, Fill(Slot(0), Extent(0, 0), b"\0")),
        workspace=96,
        aligned=((0, 16), (2, 128)),
        may_alias=frozenset({(2, 0), (2, 1)}),
    )
    knobs = {knob_type.TILE_M: 64, knob_type.STAGES: 3}
    plan = serialize.StoredPlan(g.to_json(), "sm_90", 16, "hopper[...]", 7, knobs, program)
    data = serialize.plan_to_bytes(plan)
    assert data.count(KERNEL.artifact.cubin) == 2
    assert serialize.plan_from_bytes(data) == plan
    assert serialize.plan_to_bytes(serialize.plan_from_bytes(data)) == data
    cpu = frazil.Graph(target="cpu")
    refused(lambda: cpu.deserialize(data), "architecture", "sm_90", "cpu")
    refused(lambda: loaded(data, frazil.create_handle("cpu")), "architecture", "sm_90", "cpu")
    cpu.deserialize(add_graph()[0].to_json())  # a refused file leaves the graph empty


# Keys.


def keyed(change: str) -> int:
    """The key of a small graph, changed in one thing."""
    options = {"io_data_type": data_type.HALF} if change == "io type" else {}
    if change == "compute type":
        options = {"compute_data_type": data_type.DOUBLE}
    g = graph(**options)
    a = g.tensor((4, 4), (1, 4) if change == "stride" else None, name="a")
    b = g.tensor((4, 4), name="renamed" if change == "name" else "b", uid=99 if change == "uid" else None)
    scale = g.tensor_scalar(0.5 if change == "scale" else 0.25, scalar_type.COMPILE_TIME_CONST)
    y = g.leaky_relu(g.mul(g.matmul(a, b), scale), negative_slope=0.2 if change == "slope" else 0.1)
    y.set_output(True)
    if change == "second output":
        g.nodes[0].outputs["C"].set_output(True)
    if change == "output type":
        y.set_data_type(data_type.BFLOAT16)
    if change == "declared as inferred":
        g.validate()
        y.set_dim(y.dim).set_stride(y.stride)
    if change == "validated and planned":
        g.build()
    return g.key()


CHANGES = [
    "io type",
    "compute type",
    "stride",
    "name",
    "uid",
    "scale",
    "slope",
    "second output",
    "output type",
]


def test_keys_differ_exactly_where_graphs_do() -> None:  # C-01, C-02
    assert len({keyed(c) for c in ["", *CHANGES]}) == 1 + len(CHANGES)
    assert keyed("") == keyed("") == keyed("declared as inferred") == keyed("validated and planned")


def test_the_key_does_not_depend_on_when_uids_were_set() -> None:
    def build(late: bool) -> frazil.Graph:
        g = graph()
        a = g.tensor((2,), name="a", uid=None if late else 7)
        b = g.tensor((2,), name="b", uid=8)
        if late:
            a.set_uid(7)
        g.add(a, b).set_output(True).set_uid(9)
        return g

    assert build(True).key() == build(False).key()
    assert loaded(build(True).to_json()).to_json() == build(False).to_json()


def test_the_key_follows_changes() -> None:
    g, a, _, _ = add_graph()
    before = g.key()
    a.set_stride((24, 8, 2))
    assert g.key() != before
    a.set_stride((12, 4, 1))
    assert g.key() == before
