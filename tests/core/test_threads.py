"""Many threads on one graph: one build, and calls that do not disturb each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import frazil
from frazil import StateError
from frazil.selection import Selection

from .helpers import REFERENCE, Fake, add_graph, anything, epilogue_graph, install, one_node, random, refused

THREADS = 16


def together(work: Callable[[int], Any]) -> list[Any]:
    """Results of `work(i)` from 16 threads that start at the same moment."""
    barrier = threading.Barrier(THREADS)

    def run(i: int) -> Any:
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


class Slow(Fake):
    """An engine that takes its time over every answer, so that threads meet in it."""

    def claim(self, *arguments: Any) -> Any:
        time.sleep(0.01)
        return super().claim(*arguments)

    def build(self, *arguments: Any) -> Any:
        time.sleep(0.01)
        return super().build(*arguments)


def oracle(pack: dict[Any, np.ndarray], g: frazil.Graph) -> np.ndarray:
    from scipy.special import erf

    wide = {t.name: v.astype(np.float64) for t, v in pack.items()}
    x = wide["a"] @ wide["b"] + wide["bias"]
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


@pytest.mark.parametrize("first", ["execute", "build", "execute_plan_at_index"])
@pytest.mark.parametrize("pieces", [False, True], ids=["whole", "pieces"])
def test_the_first_build_happens_once(
    first: str, pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # C-56
    engine = Slow("slow", one_node if pieces else anything)
    install(monkeypatch, engine)
    g, t = epilogue_graph()
    g.validate()

    def work(i: int) -> float:
        pack = random_pack(g, i)
        workspace = np.full(1 << 14, 0xFF, np.uint8)
        if first == "build":
            g.build()
        getattr(g, "execute" if first == "build" else first)(pack, workspace)
        return float(np.abs(pack[t["y"]] - oracle(pack, g)).max())

    errors = together(work)
    assert max(errors) < 1e-4
    assert len(engine.built) == (3 if pieces else 1), "built more than once"
    assert len(engine.asked) == len(set(engine.asked)), "asked more than once about one problem"
    assert g.get_execution_plan_count() == 1


def test_a_graph_counts_as_planned_when_its_plans_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    add = Selection.add

    def late(selection: Selection, candidates: Any) -> None:
        time.sleep(0.03)
        add(selection, candidates)

    monkeypatch.setattr(Selection, "add", late)
    g, *_ = add_graph()
    packs = [random_pack(g, i) for i in range(THREADS)]

    def work(i: int) -> None:
        time.sleep(0.003 * i)
        g.execute(packs[i])

    together(work)


def random_pack(g: frazil.Graph, seed: int) -> dict[Any, np.ndarray]:
    return random(g, np.random.default_rng(seed))


def test_one_plan_runs_in_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    g, t = epilogue_graph()
    g.build()

    def work(i: int) -> float:
        handle = frazil.create_handle("cpu")
        worst = 0.0
        for round in range(20):
            pack = random_pack(g, 100 * i + round)
            workspace = g.empty_workspace()
            workspace[...] = 0xFF
            g.execute(pack, workspace, handle=handle)
            worst = max(worst, float(np.abs(pack[t["y"]] - oracle(pack, g)).max()))
        frazil.destroy_handle(handle)
        return worst

    assert max(together(work)) < 1e-4


def test_explicit_planning_from_many_threads_plans_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Slow("slow", anything)
    install(monkeypatch, engine)
    g, *_ = add_graph()
    g.validate()

    def work(i: int) -> str:
        try:
            g.create_execution_plans()
        except StateError as error:
            return str(error)
        return "planned"

    results = together(work)
    assert results.count("planned") == 1 and len(engine.asked) == 1
    assert all("planned" in r for r in results) and g.get_execution_plan_count() == 1


def test_filters_build_each_plan_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Slow("slow", anything)
    install(monkeypatch, engine, REFERENCE)
    g, _ = epilogue_graph()
    g.deselect_workspace_greater_than(1 << 20)
    together(lambda i: g.build())
    assert len(engine.built) == 1 and g.get_execution_plan_count() == 2


def test_a_destroyed_handle_raises_wherever_it_is_used() -> None:  # C-56
    handle = frazil.create_handle("cpu")
    g, *_ = add_graph(handle=handle, target=None)
    pack = random(g, np.random.default_rng(0))
    g.execute(pack)
    stop = threading.Event()

    def work(i: int) -> str:
        if i == 0:
            time.sleep(0.02)
            frazil.destroy_handle(handle)
            stop.set()
            return "destroyed"
        mine = random(g, np.random.default_rng(i))
        while not stop.is_set():
            try:
                g.execute(mine)
            except StateError:
                return "refused"
        refused(lambda: g.execute(mine), "destroyed", error=StateError)
        return "refused"

    assert together(work) == ["destroyed", *["refused"] * (THREADS - 1)]
    refused(lambda: frazil.get_stream(handle), "destroyed", error=StateError)


def test_graphs_are_made_in_many_threads() -> None:
    def work(i: int) -> Any:
        g, a, b, y = add_graph((i + 1, 3))
        pack = random(g, np.random.default_rng(i))
        g.execute(pack)
        np.testing.assert_array_equal(pack[y], pack[a] + pack[b])
        return g.key()

    assert len(set(together(work))) == THREADS
