"""Files that are wrong: damaged, cut, of another version, made up. Each is refused by name, or is right after
all.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

import frazil
from frazil import GraphError, NotSupported, StateError, knob_type, serialize

from .helpers import (
    add_graph,
    epilogue_graph,
    refused,
)
from .test_serialize import SAMPLES, loaded, stored


def test_a_graph_with_content_is_not_filled() -> None:
    g, *_ = add_graph()
    g.build()
    for data in (g.to_json(), stored(g)):
        full, *_ = add_graph()
        refused(lambda full=full, data=data: full.deserialize(data), "empty", error=StateError)
        only_tensor = frazil.Graph()
        only_tensor.tensor((1,))
        refused(lambda g=only_tensor, data=data: g.deserialize(data), "empty", error=StateError)


@pytest.mark.parametrize(
    "data", [b"", b"FRAZIL", b"PK\x03\x04", b"\x80\x04K\x01.", [70, 82], [300], ["a"], (1.5,)]
)
def test_what_is_no_plan(data: Any) -> None:
    refused(lambda: loaded(data), "plan file")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '"x"', '{"format":"other","version":1}', "NaN"]
)
def test_what_is_no_graph(text: str) -> None:
    refused(lambda: loaded(text), "file")


def test_what_cannot_be_data() -> None:
    for value in (None, 5, object()):
        refused(lambda value=value: loaded(value), "deserialize", type(value).__name__, error=TypeError)
    g = frazil.Graph()
    for arguments in ((), (None, None, b"")):
        refused(lambda arguments=arguments: g.deserialize(*arguments), "arguments", error=TypeError)


def plan_bytes() -> bytes:
    g, *_ = add_graph()
    g.build()
    return stored(g)


def test_every_flipped_byte_is_noticed() -> None:
    data = plan_bytes()
    places = [*range(64), *range(64, len(data) - 48, 37), *range(len(data) - 48, len(data))]
    for place in places:
        broken = bytearray(data)
        broken[place] ^= 0x10
        g = frazil.Graph()
        refused(lambda g=g, broken=broken: g.deserialize(bytes(broken)), "plan file")
        assert not g.tensors


def test_every_cut_and_every_tail_is_noticed() -> None:
    data = plan_bytes()
    for size in [*range(64), *range(64, len(data), 41), len(data) - 1]:
        refused(lambda size=size: loaded(data[:size]), "plan file")
    for tail in (b"\0", b"\n", data):
        refused(lambda tail=tail: loaded(data + tail), "plan file")


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and binaries of a plan file."""
    end = 16 + int.from_bytes(data[8:16], "little")
    return json.loads(data[16:end]), data[end:-32]


def sealed(header: Any, binaries: bytes) -> bytes:
    """A plan file with a right digest."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = b"FRAZIL\x00\x01" + len(text).to_bytes(8, "little") + text + binaries
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("version", 2, ["version", "2", "1"]),
        ("format", "frazil.graph", ["format", "frazil.graph", "frazil.plan"]),
        ("frazil", "99.0", ["another version of Frazil", "99.0", frazil.__version__]),
        ("arch", "sm_90", ["architecture", "sm_90", "cpu"]),
        ("blobs", [1], ["binaries"]),
        ("blobs", [-1, 1], ["binaries"]),
    ],
)
def test_headers_of_other_versions_are_refused_by_name(key: str, value: Any, words: list[str]) -> None:
    header, binaries = header_of(plan_bytes())
    header[key] = value
    g = frazil.Graph(target="cpu")
    refused(lambda: g.deserialize(sealed(header, binaries)), *words)
    assert not g.tensors


def test_headers_that_are_no_text() -> None:
    for header in (b"\xff\xfe", b"{", b"[" * 100_000, b'{"a":NaN}', b'{"a":' + b"9" * 5000 + b"}"):
        refused(lambda header=header: loaded(sealed(header, b"")), "file")


def test_an_unknown_architecture_or_engine_is_refused_by_name() -> None:
    header, binaries = header_of(plan_bytes())
    refused(lambda: loaded(sealed({**header, "arch": "sm_77"}, binaries)), "sm_77")
    refused(lambda: loaded(sealed({**header, "id": 12345}, binaries)), "12345", error=NotSupported)
    other = {**header, "knobs": {"TILE_M": 3}}
    refused(lambda: loaded(sealed(other, binaries)), knob_type.TILE_M.name, error=NotSupported)


def test_a_program_of_another_graph_is_refused() -> None:
    header, binaries = header_of(plan_bytes())
    g, _ = epilogue_graph()
    header["graph"] = json.loads(g.to_json())
    refused(lambda: loaded(sealed(header, binaries)), "program", "graph")


def test_nodes_that_read_what_is_not_there_yet_are_refused() -> None:
    document = json.loads(epilogue_graph()[0].to_json())
    document["nodes"].reverse()
    refused(lambda: loaded(json.dumps(document)), "gelu", "before any node produces it")
    later = json.loads(epilogue_graph()[0].to_json())
    later["nodes"][1:] = reversed(later["nodes"][1:])
    refused(lambda: loaded(json.dumps(later)), "gelu", "before any node produces it")
    swapped = json.loads(epilogue_graph(middle_output=True)[0].to_json())
    swapped["nodes"][0], swapped["nodes"][1] = swapped["nodes"][1], swapped["nodes"][0]
    refused(lambda: loaded(json.dumps(swapped)), "bias", "'mm'", "before any node produces it")
    itself = json.loads(add_graph()[0].to_json())
    itself["nodes"][0]["inputs"]["a"] = 3
    refused(lambda: loaded(json.dumps(itself)), "'y'", "before any node produces it")


def test_ports_that_an_operation_has_not_are_refused() -> None:
    document = json.loads(add_graph()[0].to_json())
    node = document["nodes"][0]
    for change in (
        {"outputs": {}},
        {"outputs": {"OUT_0": 3, "OUT_1": 2}},
        {"outputs": {"C": 3}},
        {"inputs": {"a": 1}},
        {"inputs": {"a": 1, "b": 2, "c": 2}},
        {"outputs": {"OUT_0": 1}},
    ):
        broken = {**document, "nodes": [{**node, **change}]}
        refused(lambda broken=broken: loaded(json.dumps(broken)), "sum")
    twice = {**document, "nodes": [node, {**node, "name": "again"}]}
    refused(lambda: loaded(json.dumps(twice)), "again", "produced twice", "'y'")
    unknown = {**document, "nodes": [{**node, "op": "subtract"}]}
    refused(lambda: loaded(json.dumps(unknown)), "unknown operation", "subtract")


SUBSTITUTES: list[Any] = [
    None,
    -1,
    2**70,
    1.5,
    True,
    "x",
    [],
    {},
    [[]],
    {"type": "Const"},
    {"enum": "data_type"},
]


def damaged(document: Any) -> Iterator[tuple[str, Any]]:
    """Copies of a document in which one entry is missing or something else."""

    def places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, inner in items:
            yield (*path, key)
            yield from places(inner, (*path, key))

    for number, path in enumerate(places(document, ())):
        for wrong in ("missing", *SUBSTITUTES[number % 2 :: 2]):
            broken = copy.deepcopy(document)
            inner = broken
            for key in path[:-1]:
                inner = inner[key]
            if wrong == "missing":
                del inner[path[-1]]
            else:
                inner[path[-1]] = wrong
            yield f"{path} = {wrong!r}", broken


@pytest.mark.parametrize("name", ["constants", "packed", "callback"])
def test_a_damaged_graph_is_refused_or_right(name: str) -> None:
    document = json.loads(SAMPLES[name]().to_json())
    refusals = 0
    for what, broken in damaged(document):
        g = frazil.Graph()
        try:
            g.deserialize(json.dumps(broken))
        except (GraphError, NotSupported):
            refusals += 1
            assert not g.tensors, f"{what}: something of a refused file stays"
            continue
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        assert loaded(g.to_json()).to_json() == g.to_json(), what
    assert refusals > 500


def test_a_damaged_plan_is_refused_or_right() -> None:
    header, binaries = header_of(plan_bytes())
    refusals = 0
    for what, broken in damaged({**header, "graph": None}):
        if broken.get("graph", 0) is None:
            broken["graph"] = header["graph"]
        try:
            g = loaded(sealed(broken, binaries))
        except (GraphError, NotSupported):
            refusals += 1
            continue
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        assert loaded(stored(g)).to_json() == g.to_json(), what
    assert refusals > 500


def test_a_refused_plan_leaves_the_graph_empty() -> None:
    """The engine that a plan records is compared, and what was read of a refused file is dropped."""
    made = frazil.Graph(io_data_type=frazil.data_type.FLOAT, target="cpu")
    made.relu(made.tensor((2,))).set_output(True)
    made.build()
    stored = serialize.plan_from_bytes(made.serialize(as_bytes=True))
    wrong = serialize.plan_to_bytes(dataclasses.replace(stored, engine="another"))
    g = frazil.Graph()
    with pytest.raises(frazil.GraphError, match="engine: got another, expected reference"):
        g.deserialize(wrong)
    assert not g.nodes and not g.plans
    g.deserialize(made.serialize(as_bytes=True))
    assert g.selected_engine == "reference"
