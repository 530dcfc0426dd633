"""What engines say of a graph: the explanation as text and as data, refusals, and exceptions of engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import frazil
from frazil import (
    NotSupported,
    StateError,
    data_type,
    numerical_note,
)
from frazil.program import BackendPlan, Const, Fill, Slot

from .helpers import (
    REFERENCE,
    Fake,
    Tile,
    add_graph,
    anything,
    epilogue_graph,
    graph,
    has_anchor,
    install,
    one_node,
    random,
    refused,
)

Monkey = pytest.MonkeyPatch


def test_explain_says_what_each_engine_would_do(monkeypatch: Monkey) -> None:
    install(
        monkeypatch,
        Fake("hopper", lambda p: "head size: got 7, served: multiples of 8", arch="sm_90"),
        Fake("tiled", anything, choices=(Tile(64),), numeric=frozenset({numerical_note.TENSOR_CORE})),
        Fake("single", one_node, expected_us=0.25),
    )
    g, _ = epilogue_graph()
    cpu, hopper, blackwell = g.explain(), g.explain("sm_90"), g.explain(frazil.Target.named("sm_100"))
    g.tensor((1,))  # nothing is planned or frozen by it
    assert g.get_execution_plan_count() == 0
    text = str(cpu)
    for words in (
        "matmul -> bias -> gelu on cpu",
        "0: single + single + single",
        "1: tiled[STAGES=2, TILE_M=64]",
    ):
        assert words in text
    assert "hopper declines on [matmul -> bias -> gelu]: target: got cpu, served: sm_90" in text
    data = cpu.to_dict()
    assert (data["problem"], data["target"]) == (["matmul", "bias", "gelu"], "cpu")
    assert data["candidates"][1] == {
        "id": 2, "name": "tiled[STAGES=2, TILE_M=64]", "tier": "OFFER", "expected_us": 1.0,
        "knobs": {"TILE_M": 64, "STAGES": 2}, "behavior_notes": [], "numerical_notes": ["TENSOR_CORE"],
        "parts": [{"engine": "tiled", "ops": ["matmul", "bias", "gelu"]}],
    }  # fmt: skip
    assert [p["ops"] for p in data["candidates"][0]["parts"]] == [["matmul"], ["bias"], ["gelu"]]
    assert "hopper declines on [matmul -> bias -> gelu]: head size: got 7, served: multiples of 8" in str(
        hopper
    )
    assert "no engine serves this graph here" in str(hopper) and not hopper.candidates
    assert {d["engine"] for d in blackwell.to_dict()["declines"]} == {"hopper", "tiled", "single"}
    g.build()
    assert g.explain().candidates == g.plans and g.explain("sm_90").target.arch == "sm_90"
    refused(lambda: g.explain("sm_91"), "sm_91", "sm_90")


def test_a_refused_graph_lists_every_engine_with_its_reason(monkeypatch: Monkey) -> None:  # C-65
    install(
        monkeypatch,
        Fake("first", lambda p: "head size D: got 7, served: multiples of 8"),
        Fake("hopper", anything, arch="sm_90"),
        Fake("mm", has_anchor),
    )
    g = graph()
    g.relu(g.neg(g.tensor((2, 7), name="x"))).set_output(True)
    error = refused(
        g.build,
        "no engine serves [neg -> relu] on cpu",
        "first declines on [neg -> relu]: head size D: got 7, served: multiples of 8",
        "hopper declines on [neg -> relu]: target: got cpu, served: sm_90",
        "mm declines on [neg -> relu]: anchor: got none or several, served: one",
        error=NotSupported,
    ).value
    assert isinstance(error, frazil.cudnnGraphNotSupportedError) and not isinstance(
        error, (ValueError, RuntimeError)
    )
    assert {d.engine for d in error.declines} == {"first", "hopper", "mm"}
    g.neg(g.tensor((1,)))  # a refused graph stays open


def test_the_shipped_catalog_refuses_a_gpu_by_name() -> None:
    g, _ = epilogue_graph(target="sm_90")
    refused(g.build, "sm_90", "reference", "served: cpu", error=NotSupported)
    reordered, a, _, _ = add_graph()
    a.set_reordering_type(frazil.tensor_reordering.F8_128x4)
    refused(reordered.build, "reordering", "'a'", "uid 1", "F8_128x4", error=NotSupported)
    packed, a, b, _ = add_graph()
    for t in (a, b):
        t.set_data_type(data_type.FP4_E2M1)
    refused(packed.build, "'a'", "FP4_E2M1", error=NotSupported)


@pytest.mark.parametrize("where", ["claim", "configs", "build"])
def test_an_exception_of_an_engine_propagates(where: str, monkeypatch: Monkey) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a bug of an engine")

    engine = Fake("broken", anything)
    setattr(engine, where, fail)
    install(monkeypatch, engine, REFERENCE)
    g, *_ = add_graph()
    with pytest.raises(ZeroDivisionError, match="a bug of an engine"):
        g.build()
    setattr(engine, where, getattr(Fake("fine", anything), where))
    g.build()
    assert g.get_execution_plan_count() == 2


def test_a_plan_for_a_device_does_not_run_on_host_memory(monkeypatch: Monkey, rng: Any) -> None:
    def fill(program: Any) -> Any:
        return replace(program, instructions=(Fill(Slot(2), Const(96), b"\0"),))

    install(monkeypatch, Fake("gpu", anything, arch="sm_90", edit=fill))
    g, *_ = add_graph(target="sm_90")
    g.build()
    pack = random(g, rng)
    refused(lambda: g.execute(pack), "cuda:0", error=frazil.FrazilError)
    assert np.isnan(pack[g.find_tensor(3)]).all()


def test_a_cpu_program_holds_host_instructions_alone(monkeypatch: Monkey) -> None:
    install(
        monkeypatch, Fake("odd", anything, edit=lambda p: replace(p, instructions=(BackendPlan(b"", ()),)))
    )
    g, *_ = add_graph()
    refused(g.build, "host instructions", "BackendPlan", error=StateError)
