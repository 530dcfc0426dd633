"""From a graph to a plan in force: planning once, ranking, filters, replay, explanation, and their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import frazil
from frazil import (
    GraphError,
    NotSupported,
    StateError,
    Tier,
    behavior_note,
    build_plan_policy,
    heur_mode,
    knob_type,
    numerical_note,
)

from .helpers import (
    REFERENCE,
    Fake,
    Tile,
    add_graph,
    anything,
    epilogue_graph,
    execute,
    install,
    one_node,
    random,
    refused,
)

Monkey = pytest.MonkeyPatch


# Planning once.


def test_the_steps_one_by_one(rng: Any) -> None:
    g, a, b, y = add_graph()
    assert g.get_execution_plan_count() == 0 and g.selected_engine is None
    g.validate()
    g.build_operation_graph()
    g.create_execution_plans([heur_mode.A, heur_mode.FALLBACK])
    g.check_support()
    assert g.get_execution_plan_count() == 1 and g.selected_engine == "reference"
    g.build_plans()
    pack = random(g, rng)
    assert g.execute(pack, g.empty_workspace()) is None
    np.testing.assert_array_equal(pack[y], pack[a] + pack[b])


def test_planning_is_one_shot() -> None:
    g, *_ = add_graph()
    g.create_execution_plans()
    refused(g.create_execution_plans, "planned already", error=StateError)
    g.build()
    g.build()
    assert g.get_execution_plan_count() == 1


def test_a_wrong_graph_is_not_planned_and_stays_open() -> None:
    g, _, b, _ = add_graph()
    b.set_dim((2, 3, 5)).set_stride((15, 5, 1))
    refused(g.create_execution_plans, "sum")
    b.set_dim((2, 3, 4)).set_stride((12, 4, 1))
    g.build()


def test_execute_plans_and_builds(rng: Any) -> None:
    g, a, b, y = add_graph()
    pack = random(g, rng)
    g.execute(pack)
    np.testing.assert_array_equal(pack[y], pack[a] + pack[b])
    other, a, b, y = add_graph()
    other.execute_plan_at_index(
        {1: pack[g.find_tensor(1)], 2: pack[g.find_tensor(2)], 3: pack[g.find_tensor(3)]}
    )


BEFORE_PLANNING: dict[str, Callable[[frazil.Graph], Any]] = {
    "build_plans": lambda g: g.build_plans(),
    "check_support": lambda g: g.check_support(),
    "select_plan": lambda g: g.select_plan(0),
    "build_plan_at_index": lambda g: g.build_plan_at_index(0),
    "get_plan_name_at_index": lambda g: g.get_plan_name_at_index(0),
    "get_engine_and_knobs_at_index": lambda g: g.get_engine_and_knobs_at_index(0),
    "get_behavior_notes": lambda g: g.get_behavior_notes(),
    "get_workspace_size": lambda g: g.get_workspace_size(),
    "get_workspace_size_plan_at_index": lambda g: g.get_workspace_size_plan_at_index(0),
    "empty_workspace": lambda g: g.empty_workspace(),
    "serialize": lambda g: g.serialize(),
}


@pytest.mark.parametrize("name", BEFORE_PLANNING)
def test_what_needs_a_plan_says_so(name: str) -> None:
    g, *_ = add_graph()
    text = str(refused(lambda: BEFORE_PLANNING[name](g), error=StateError).value)
    assert "create_execution_plans" in text or "build" in text


@pytest.mark.parametrize("name", ["get_workspace_size", "empty_workspace", "serialize"])
def test_what_needs_a_built_plan_says_so(name: str) -> None:
    g, *_ = add_graph()
    g.create_execution_plans()
    refused(lambda: BEFORE_PLANNING[name](g), "not built", error=StateError)


@pytest.mark.parametrize("index", [-1, 1, 99])
def test_an_index_out_of_range_is_refused(index: int, rng: Any) -> None:
    g, *_ = add_graph()
    g.create_execution_plans()
    for call in (
        lambda: g.select_plan(index),
        lambda: g.build_plan_at_index(index),
        lambda: g.get_plan_name_at_index(index),
        lambda: g.execute_plan_at_index(random(g, rng), None, index),
    ):
        refused(call, str(index), "0 to 0")


# Ranking.


def test_ranking_is_by_tier_then_time_then_catalog(monkeypatch: Monkey) -> None:
    engines = [
        Fake("late", anything, Tier.OFFER, 5.0),
        Fake("last", anything, Tier.LAST, 0.1),
        Fake("slow", anything, Tier.OFFER, 9.0),
        Fake("lead", anything, Tier.LEAD, 50.0),
        Fake("later", anything, Tier.OFFER, 5.0),
    ]
    install(monkeypatch, *engines)
    g, *_ = add_graph()
    g.create_execution_plans()
    assert [p.name for p in g.plans] == ["lead", "late", "later", "slow", "last"]
    assert [e.asked for e in engines] == [["add"]] * 5, "an engine is asked once about one problem"
    assert not any(e.built for e in engines), "nothing is built before it is chosen"


def test_configs_keep_the_order_of_their_engine(monkeypatch: Monkey) -> None:
    install(monkeypatch, Fake("tiled", anything, choices=(Tile(64), Tile(128), Tile(32))))
    g, *_ = add_graph()
    g.create_execution_plans()
    names = [g.get_plan_name_at_index(i) for i in range(3)]
    assert names == [
        "tiled[STAGES=2, TILE_M=64]",
        "tiled[STAGES=4, TILE_M=128]",
        "tiled[STAGES=1, TILE_M=32]",
    ]


def tiled(monkeypatch: Monkey) -> tuple[frazil.Graph, Fake]:
    """A planned graph with plans 0 and 1 of a tiled engine and 2 of the reference."""
    engine = Fake(
        "tiled",
        anything,
        choices=(Tile(64), Tile(128)),
        behavior=frozenset({behavior_note.RUNTIME_COMPILATION}),
        numeric=frozenset({numerical_note.TENSOR_CORE, numerical_note.NONDETERMINISTIC}),
    )
    install(monkeypatch, engine, REFERENCE)
    g, _ = epilogue_graph()
    g.create_execution_plans()
    assert g.get_execution_plan_count() == 3
    return g, engine


# Selection.


def test_execute_at_an_index_does_not_select(monkeypatch: Monkey, rng: Any) -> None:
    g, engine = tiled(monkeypatch)
    g.build_plans()
    workspace = g.empty_workspace()
    pack = random(g, rng)
    y = g.get_outputs()[0]
    results = []
    for index in (2, 1, 0):
        pack[y][...] = np.nan
        g.execute_plan_at_index(pack, workspace, index)
        results.append(pack[y].copy())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert g.selected_engine == g.get_plan_name_at_index(0)
    assert [c.size for _, c in engine.built] == [64, 128], "built lazily, and once each"


def test_select_plan_is_strict(monkeypatch: Monkey, rng: Any) -> None:
    g, engine = tiled(monkeypatch)
    g.select_plan(1)
    g.build()
    assert g.selected_engine == "tiled[STAGES=4, TILE_M=128]" and [c.size for _, c in engine.built] == [128]
    g.deselect_engines(["TILE_M=128"])
    refused(lambda: g.execute(random(g, rng)), "1", "barred", "TILE_M=128")
    g.build_plan_at_index(2)
    assert g.selected_engine == "reference"


def test_build_all(monkeypatch: Monkey) -> None:
    g, engine = tiled(monkeypatch)
    g.deselect_engines(["TILE_M=64"])
    g.build_plans(build_plan_policy.ALL)
    assert [c.size for _, c in engine.built] == [128]
    assert g.get_workspace_size_plan_at_index(2) > 0
    refused(lambda: g.get_workspace_size_plan_at_index(0), "not built", error=StateError)


FILTERS: dict[str, tuple[Callable[[frazil.Graph], Any], list[int]]] = {
    "engines": (lambda g: g.deselect_engines(["til"]), [2]),
    "engines by knob": (lambda g: g.deselect_engines(["nothing", "STAGES=4"]), [0, 2]),
    "no engines": (lambda g: g.deselect_engines([]), [0, 1, 2]),
    "deselect behavior": (lambda g: g.deselect_behavior_notes([behavior_note.RUNTIME_COMPILATION]), [2]),
    "select behavior": (lambda g: g.select_behavior_notes([behavior_note.RUNTIME_COMPILATION]), [0, 1]),
    "deselect numeric": (lambda g: g.deselect_numeric_notes([numerical_note.NONDETERMINISTIC]), [2]),
    "deselect other": (lambda g: g.deselect_numeric_notes([numerical_note.FFT]), [0, 1, 2]),
    "select numeric": (lambda g: g.select_numeric_notes([numerical_note.TENSOR_CORE]), [0, 1]),
    "workspace": (lambda g: g.deselect_workspace_greater_than(0), []),
    "workspace enough": (lambda g: g.deselect_workspace_greater_than(1 << 20), [0, 1, 2]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_bar_and_do_not_renumber(name: str, monkeypatch: Monkey, rng: Any) -> None:
    g, _ = tiled(monkeypatch)
    call, usable = FILTERS[name]
    names = [g.get_plan_name_at_index(i) for i in range(3)]
    call(g)
    assert [g.get_plan_name_at_index(i) for i in range(3)] == names and g.get_execution_plan_count() == 3
    for index in set(range(3)) - set(usable):
        refused(lambda index=index: g.select_plan(index), str(index), "barred")
        refused(lambda index=index: g.execute_plan_at_index(random(g, rng), None, index), "barred")
    if usable:
        g.build_plans()
        assert g.selected_engine == names[usable[0]]
    else:
        refused(g.build_plans, "every plan is barred", *names, error=NotSupported)
        refused(g.check_support, "workspace", "> 0", error=NotSupported)


@pytest.mark.parametrize("name", FILTERS)
def test_filters_set_before_planning_apply(name: str, monkeypatch: Monkey, rng: Any) -> None:
    tiled(monkeypatch)
    g, _ = epilogue_graph()
    call, usable = FILTERS[name]
    call(g)
    if not usable:
        refused(lambda: g.execute(random(g, rng)), "every plan is barred", error=NotSupported)
        return
    y, pack = g.get_outputs()[0], random(g, rng)
    g.execute(pack, np.empty(1 << 16, np.uint8))
    assert g.selected_engine == g.get_plan_name_at_index(usable[0]) and not np.isnan(pack[y]).any()


def test_notes(monkeypatch: Monkey) -> None:
    g, _ = tiled(monkeypatch)
    assert g.get_behavior_notes() == [behavior_note.RUNTIME_COMPILATION]
    assert g.get_behavior_notes_for_plan_at_index(2) == []
    g.select_plan(2)
    assert g.get_behavior_notes() == []


# Replay.


def test_every_plan_replays_by_id_and_knobs(monkeypatch: Monkey, rng: Any) -> None:
    g, _ = tiled(monkeypatch)
    for index in range(3):
        id, knobs = g.get_engine_and_knobs_at_index(index)
        again, _ = epilogue_graph()
        again.create_execution_plan(id, {int(k): v for k, v in knobs.items()})
        assert [p.name for p in again.plans] == [g.get_plan_name_at_index(index)]
        refused(again.create_execution_plans, "planned already", error=StateError)
        refused(lambda again=again: again.tensor((1,)), "planned", error=StateError)
        pack = random(again, rng)
        execute(again, pack)
        assert not np.isnan(pack[again.get_outputs()[0]]).any()
    again.create_execution_plan(1, {knob_type.TILE_M: 128, knob_type.STAGES: 4})
    assert [p.name for p in again.plans] == ["reference", "tiled[STAGES=4, TILE_M=128]"]
    first, _ = epilogue_graph()
    first.create_execution_plan(1)
    assert first.selected_engine == "tiled[STAGES=2, TILE_M=64]"


def test_what_cannot_be_replayed_says_what_can(monkeypatch: Monkey) -> None:
    g, _ = tiled(monkeypatch)
    text = "tiled[STAGES=2, TILE_M=64]"
    refused(lambda: g.create_execution_plan(99), "99", "1 " + text, "2 reference", error=NotSupported)
    for knobs in ({knob_type.TILE_M: 7}, {int(knob_type.TILE_M): 7}):
        refused(lambda knobs=knobs: g.create_execution_plan(1, knobs), "TILE_M=7", text, error=NotSupported)
    fresh, _ = epilogue_graph()
    refused(lambda: fresh.create_execution_plan(99), error=NotSupported)
    fresh.tensor((1,))  # a refused plan freezes nothing
    fresh.build()


# Filters of planning.


def test_opensource_offers_open_engines_alone(monkeypatch: Monkey) -> None:
    closed, mine = Fake("closed", anything, Tier.LEAD), Fake("mine", one_node)
    install(monkeypatch, closed, mine, closed=["closed"])
    g, _ = epilogue_graph()
    g.create_execution_plans([heur_mode.OPENSOURCE])
    assert [p.name for p in g.plans] == ["mine + mine + mine"]
    g, _ = epilogue_graph()
    g.create_execution_plans([heur_mode.OPENSOURCE, heur_mode.A])
    assert [p.name for p in g.plans] == ["closed", "mine + mine + mine"]
    install(monkeypatch, closed, closed=["closed"])
    g, _ = epilogue_graph()
    refused(lambda: g.create_execution_plans([heur_mode.OPENSOURCE]), error=NotSupported)
    g.create_execution_plans()


def test_the_environment_filters_engines(monkeypatch: Monkey) -> None:
    install(monkeypatch, Fake("one", anything), Fake("two", anything, expected_us=2.0), REFERENCE)

    def names(value: str) -> list[str]:
        monkeypatch.setenv("FRAZIL_ENGINES", value)
        g, *_ = add_graph()
        g.create_execution_plans()
        return [p.name for p in g.plans]

    assert names("") == ["one", "two", "reference"]
    assert names("reference, two") == ["two", "reference"]
    assert names("-one") == ["two", "reference"]
    assert names("one,two,-one") == ["two"]
    refused(lambda: names("three,-four"), "FRAZIL_ENGINES", "four", "three", "one", "reference")


# Workspace and handles.


def test_workspace(monkeypatch: Monkey, rng: Any) -> None:
    g, _ = epilogue_graph()
    g.build()
    size = g.get_workspace_size()
    assert size >= 2 * (2 * 8 * 4 * 4) and g.get_workspace_size(override_uids=[1]) == size
    assert g.get_workspace_size_plan_at_index(0, None) == size
    for like in (None, np.empty(1)):
        workspace = g.empty_workspace(like)
        assert workspace.nbytes >= size
        pack = random(g, rng)
        g.execute(pack, workspace)
        assert not np.isnan(pack[g.get_outputs()[0]]).any()
    g.execute(random(g, rng), np.empty(size, np.uint8))  # any host array serves
    refused(lambda: g.empty_workspace(like=[1]), "list", error=TypeError)
    single, *_ = add_graph()
    single.build()
    assert single.get_workspace_size() == 0 and single.empty_workspace().nbytes == 0
    single.execute(random(single, rng), None)


def test_handles_of_graph_and_call(rng: Any) -> None:
    mine, other = frazil.create_handle("cpu"), frazil.create_handle("cpu")
    g, *_ = add_graph(handle=mine, target=None)
    assert g.target.is_cpu
    pack = random(g, rng)
    g.execute(pack)
    g.execute(pack, handle=other)
    refused(lambda: g.execute(pack, handle=7), "Handle", error=TypeError)
    refused(lambda: frazil.Graph(handle="cpu"), "Handle", error=TypeError)
    frazil.destroy_handle(other)
    refused(lambda: g.execute(pack, handle=other), "destroyed", error=StateError)
    frazil.destroy_handle(mine)
    refused(lambda: g.execute(pack), "destroyed", error=StateError)
    g.execute(pack, handle=frazil.create_handle("cpu"))
    refused(lambda: frazil.Graph(handle=mine), "destroyed", error=StateError)


def test_targets_of_the_constructor() -> None:
    assert frazil.Graph(sm_version=90).target.arch == "sm_90"
    assert frazil.Graph(sm_version=90, sm_count=8).target.sm_count == 8
    assert frazil.Graph(target=frazil.Target.named("sm_80")).target.arch == "sm_80"
    refused(lambda: frazil.Graph(target="sm_1"), "sm_1", "sm_90", error=GraphError)
    refused(lambda: frazil.Graph(target=90), "target", "int", error=TypeError)
    assert frazil.Graph().get_cuda_graph_retention() is frazil.cuda_graph_retention.PER_GRAPH
    none = frazil.Graph(cuda_graph_retention=frazil.cuda_graph_retention.NONE)
    assert none.get_cuda_graph_retention() is frazil.cuda_graph_retention.NONE
