"""One plan of several parts: which partitions are tried, how parts are linked, and that they run in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import frazil
from frazil import (
    NotSupported,
    Tier,
)
from frazil.match import partitions
from frazil.ops import find
from frazil.spec import Problem, restrict

from .helpers import (
    REFERENCE,
    Fake,
    Tile,
    anything,
    epilogue_graph,
    execute,
    graph,
    has_anchor,
    install,
    one_node,
    random,
    refused,
)

Monkey = pytest.MonkeyPatch


def without_anchor(problem: Problem) -> str | None:
    """Serve single nodes that are no anchor."""
    return "anchor" if problem.anchor is not None else one_node(problem)


def same_as_reference(g: frazil.Graph, again: frazil.Graph, rng: np.random.Generator) -> None:
    """Outputs of `g` are bit for bit those of `again`, the same graph on the reference engine."""
    pack = random(g, rng)
    expected = {t.uid: v.copy() for t, v in pack.items()}
    execute(g, pack)
    execute(again, expected)
    for t in g.get_outputs():
        assert not np.isnan(pack[t]).any()
        np.testing.assert_array_equal(pack[t], expected[t.uid])


def on_reference(monkeypatch: Monkey, build: Callable[[], frazil.Graph]) -> frazil.Graph:
    """The graph, planned on the reference engine alone."""
    with monkeypatch.context() as m:
        install(m, REFERENCE)
        g = build()
        g.build()
    return g


@pytest.mark.parametrize("middle", [False, True])
def test_pieces_are_linked_into_one_program(middle: bool, monkeypatch: Monkey, rng: Any) -> None:
    wholes = on_reference(monkeypatch, lambda: epilogue_graph(middle_output=middle)[0])
    mm, pw = (
        Fake("mm", lambda p: None if [n.op for n in p.nodes] == ["matmul"] else "op"),
        Fake("pw", without_anchor),
    )
    install(monkeypatch, mm, pw)
    g, _ = epilogue_graph(middle_output=middle)
    g.build()
    assert [p.name for p in g.plans] == ["mm + pw + pw"]
    assert mm.asked[:2] == ["matmul -> bias -> gelu", "matmul"] and mm.built == [("matmul", frazil.Config())]
    assert g.get_workspace_size() > 0
    same_as_reference(g, wholes, rng)


def test_pieces_replay_as_one(monkeypatch: Monkey, rng: Any) -> None:
    wholes = on_reference(monkeypatch, lambda: epilogue_graph()[0])
    install(
        monkeypatch,
        Fake("mm", has_anchor, choices=(Tile(64),), expected_us=3.0),
        Fake("pw", one_node, expected_us=4.0),
    )
    g, _ = epilogue_graph()
    g.create_execution_plans()
    by_name = {p.name: i for i, p in enumerate(g.plans)}
    assert list(by_name) == ["mm[STAGES=2, TILE_M=64]", "mm[STAGES=2, TILE_M=64] + pw + pw"]
    pieces = g.plans[1]
    assert (pieces.tier, pieces.expected_us, pieces.knobs) == (Tier.OFFER, 11.0, {})
    again, _ = epilogue_graph()
    again.create_execution_plan(*g.get_engine_and_knobs_at_index(1))
    assert again.selected_engine == pieces.name
    same_as_reference(again, wholes, rng)
    other = graph()
    other.gelu(other.relu(other.neg(other.tensor((2,))))).set_output(True)
    refused(lambda: other.create_execution_plan(pieces.id), str(pieces.id), error=NotSupported)


def test_one_engine_is_not_asked_piece_by_piece_for_what_it_serves_whole(monkeypatch: Monkey) -> None:
    install(monkeypatch, Fake("all", anything), Fake("single", one_node, expected_us=0.1))
    g, _ = epilogue_graph()
    g.create_execution_plans()
    assert [p.name for p in g.plans] == ["single + single + single", "all"]


def two_anchors() -> frazil.Graph:
    """relu((x @ y) + 1 row) @ z, gelu: two matmuls, each with neighbours."""
    g = graph()
    x, y, z, row = (
        g.tensor(d, name=n)
        for n, d in (("x", (3, 4, 5)), ("y", (3, 5, 6)), ("z", (3, 6, 2)), ("row", (1, 1, 6)))
    )
    g.gelu(g.matmul(g.relu(g.add(g.matmul(x, y), row)), z)).set_output(True)
    return g


def test_pieces_around_two_anchors(monkeypatch: Monkey, rng: Any) -> None:
    wholes = on_reference(monkeypatch, two_anchors)
    engine = Fake("anchored", has_anchor)
    install(monkeypatch, engine)
    g = two_anchors()
    g.build()
    assert [[n.op for n in p.problem.nodes] for p in g.plans[0].parts] == [
        ["matmul", "add", "relu"],
        ["matmul", "gelu"],
    ]
    same_as_reference(g, wholes, rng)


def crossing() -> frazil.Graph:
    """Two matmuls whose chains read each other: parts must run in an order in which every value exists."""
    g = graph()
    a, b = g.tensor((4, 4), name="a"), g.tensor((4, 4), name="b")
    first, second = g.matmul(a, b), g.matmul(b, a)
    down = g.tanh(first)
    both = g.add(second, down).set_output(True)
    g.mul(g.sin(both), g.mul(first, down)).set_output(True)
    return g


def diamond() -> frazil.Graph:
    """One value read by two nodes whose results meet again."""
    g = graph()
    x = g.exp(g.tensor((3, 5), name="x"))
    g.add(g.neg(x), g.sqrt(x)).set_output(True)
    return g


def islands() -> frazil.Graph:
    """Two sub-graphs that have nothing in common."""
    g = graph()
    g.relu(g.neg(g.tensor((3,), name="x"))).set_output(True)
    g.matmul(g.tensor((2, 2), name="a"), g.tensor((2, 2), name="b")).set_output(True)
    return g


@pytest.mark.parametrize("build", [crossing, diamond, islands, two_anchors], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "serves", [one_node, lambda p: None if len(p.nodes) < 4 else "too many"], ids=["1", "3"]
)
def test_pieces_run_in_order(build: Any, serves: Any, monkeypatch: Monkey, rng: Any) -> None:
    wholes = on_reference(monkeypatch, build)
    install(monkeypatch, Fake("small", serves))
    same_as_reference(build(), wholes, rng)


def random_graph(rng: np.random.Generator) -> frazil.Graph:
    """A random graph of square matrices in which some inner values are outputs."""
    g = graph()
    known = [g.tensor((4, 4), name=f"x{i}") for i in range(2)]
    for _ in range(int(rng.integers(2, 9))):
        picks = [known[int(i)] for i in rng.integers(0, len(known), 2)]
        op = ["matmul", "add", "tanh", "sin", "sub"][int(rng.integers(5))]
        made = getattr(g, op)(*(picks if op in ("matmul", "add", "sub") else picks[:1]))
        known.append(made.set_output(bool(rng.random() < 0.25)))
    known[-1].set_output(True)
    return g


@pytest.mark.parametrize("seed", range(40))
def test_partitions_of_random_graphs(seed: int, monkeypatch: Monkey) -> None:
    problem = random_graph(np.random.default_rng(seed)).problem
    producer = {t: i for i, n in enumerate(problem.nodes) for t in n.writes()}
    found = list(partitions(problem))
    count = len(problem.nodes)
    assert found[0] == (tuple(range(count)),) and found[-1] == tuple((i,) for i in range(count))
    for parts in found:
        assert sorted(i for p in parts for i in p) == list(range(count))
        place = {i: k for k, p in enumerate(parts) for i in p}
        for index, node in enumerate(problem.nodes):
            for t in node.reads():
                assert t not in producer or place[producer[t]] <= place[index]
        for part in parts if len(parts) > 1 else ():
            assert list(part) == sorted(part)
            assert sum(find(problem.nodes[i].op).anchor for i in part) <= 1
            reached = {part[0]}
            for i in part[1:]:
                assert {producer[t] for t in problem.nodes[i].reads() if t in producer} & reached
                reached.add(i)
    for parts in found[1:]:
        for keep in parts:
            sub, ports = restrict(problem, keep)
            assert sub.tensors == tuple(
                replace(problem.tensors[p], is_virtual=s.is_virtual)
                for p, s in zip(ports, sub.tensors, strict=True)
            )


@pytest.mark.parametrize("seed", range(12))
def test_pieces_of_random_graphs_equal_the_whole(seed: int, monkeypatch: Monkey) -> None:
    wholes = on_reference(monkeypatch, lambda: random_graph(np.random.default_rng(seed)))
    for serves in (one_node, lambda p: None if len(p.nodes) < len(wholes.nodes) else "all"):
        install(monkeypatch, Fake("small", serves))
        same_as_reference(
            random_graph(np.random.default_rng(seed)), wholes, np.random.default_rng(seed + 1000)
        )
