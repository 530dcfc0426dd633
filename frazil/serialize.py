"""Graphs and plans as files: JSON for graphs, a versioned container of JSON and raw binaries for plans. Never
pickle.

Owns both formats. Text is canonical (sorted keys, no spaces that carry no meaning), so that storing what was
loaded gives the same bytes again. What a file says is checked as if a user had typed it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from functools import cache
from itertools import accumulate, pairwise
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from . import enums
from .artifact import Artifact
from .dtypes import data_type
from .errors import GraphError
from .expression import Expression, Step
from .graph import GraphContext, GraphIR, Node
from .op import Attrs
from .ops import OPS
from .program import (
    BackendPlan,
    Binary,
    Const,
    Copy,
    Extent,
    Fill,
    HostCall,
    HostScalar,
    Kernel,
    Null,
    Number,
    Program,
    Slot,
    Stride,
    TensorMap,
    Upload,
    Workspace,
)
from .spec import NodeSpec, TensorSpec
from .tensor import Tensor
from .version import __version__

GRAPH_FORMAT, PLAN_FORMAT, FORMAT_VERSION = "frazil.graph", "frazil.plan", 1
_MAGIC = b"FRAZIL\x00\x01"
_DIGEST = hashlib.sha256().digest_size

_VALUES: dict[str, type] = {
    t.__name__: t
    for t in (
        *(
            Artifact,
            BackendPlan,
            Binary,
            Const,
            Copy,
            Expression,
            Extent,
            Fill,
            HostCall,
            HostScalar,
            Kernel,
            NodeSpec,
        ),
        *(Null, Number, Program, Slot, Step, Stride, TensorMap, TensorSpec, Upload, Workspace),
    )
}
_ENUMS: dict[str, type[IntEnum]] = {
    "data_type": data_type,
    **{name: getattr(enums, name) for name in enums.__all__},
}


# Graphs.


def graph_to_json(graph: GraphIR, dynamic: bool) -> str:
    """A graph as JSON: context, tensors with the geometry in force, nodes in order."""
    context = graph.context
    document = {
        "format": GRAPH_FORMAT,
        "version": FORMAT_VERSION,
        "name": context.name,
        "io_data_type": context.io_data_type.name,
        "intermediate_data_type": context.intermediate_data_type.name,
        "compute_data_type": context.compute_data_type.name,
        "dynamic": dynamic,
        "tensors": [_tensor(t) for t in sorted(graph.tensors, key=lambda t: t.uid)],
        "nodes": [_node(n) for n in graph.nodes],
    }
    return _dump(document)


def graph_from_json(graph: GraphIR, text: str) -> bool:
    """Fill an empty graph from JSON, and validate it; whether its extents are dynamic.

    Raises
    ------
    GraphError
        Not a graph of this format and version, or a graph that is wrong; `graph` is as it was then.
    """
    document = _parse(text, GRAPH_FORMAT)
    with _refusing(GRAPH_FORMAT):
        types = (data_type[document[f"{k}_data_type"]] for k in ("io", "intermediate", "compute"))
        read = GraphIR(GraphContext(str(document["name"]), *types))
        _fill(read, document)
        read.validate()
        dynamic = bool(document["dynamic"])
    graph.take_over(read)
    return dynamic


@contextmanager
def _refusing(format: str) -> Iterator[None]:
    """Turn what Python says of a file with missing or wrong entries into a GraphError."""
    try:
        yield
    except GraphError:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise GraphError(f"{format} file: malformed ({type(error).__name__}: {error})") from error


def _fill(graph: GraphIR, document: Mapping[str, Any]) -> None:
    by_uid: dict[int, Tensor] = {}
    for entry in document["tensors"]:
        tensor = Tensor(
            graph.table, name=entry["name"], uid=entry["uid"], is_virtual=bool(entry.get("virtual"))
        )
        if entry["dim"]:
            tensor.set_dim(entry["dim"]).set_stride(entry["stride"])
        tensor.set_data_type(data_type[entry["data_type"]])
        tensor.set_is_pass_by_value(entry.get("by_value", False))
        tensor.set_ragged_offset_multiplier(entry.get("ragged_multiplier", 1))
        tensor.set_reordering_type(enums.tensor_reordering[entry.get("reordering", "NONE")])
        tensor.set_alignment_value(entry.get("alignment_value", 1))
        if "value" in entry:
            tensor.set_value(_decode(entry["value"], ()))
        by_uid[tensor.uid] = tensor
    for entry in document["tensors"]:
        if "ragged_offset" in entry:
            by_uid[entry["uid"]].set_ragged_offset(by_uid[entry["ragged_offset"]])
    for entry in document["nodes"]:
        op = OPS.get(entry["op"])
        if op is None:
            raise GraphError("graph file: unknown operation", node=entry["name"], got=entry["op"])
        attrs = {k: _decode(v, ()) for k, v in entry["attrs"].items()}
        inputs = {
            p: tuple(by_uid[u] for u in v) if isinstance(v, list) else None if v is None else by_uid[v]
            for p, v in entry["inputs"].items()
        }
        outputs = {p: by_uid[u] for p, u in entry["outputs"].items()}
        graph.restore_node(op, entry["name"], attrs, inputs, outputs, data_type[entry["compute_data_type"]])


def _tensor(tensor: Tensor) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "uid": tensor.uid,
        "name": tensor.name,
        "dim": list(tensor.dim),
        "stride": list(tensor.stride),
        "data_type": tensor.data_type.name,
    }
    if tensor.is_virtual:
        entry["virtual"] = True
    if tensor.is_pass_by_value:
        entry["by_value"] = True
    if tensor.value is not None:
        entry["value"] = _encode(tensor.value, [])
    if tensor.ragged_offset is not None:
        entry["ragged_offset"] = tensor.ragged_offset.uid
        entry["ragged_multiplier"] = tensor.ragged_offset_multiplier
    if tensor.reordering_type is not enums.tensor_reordering.NONE:
        entry["reordering"] = tensor.reordering_type.name
    if tensor.alignment_value != 1:
        entry["alignment_value"] = tensor.alignment_value
    return entry


def _node(node: Node) -> dict[str, Any]:
    def uid(value: Any) -> Any:
        if isinstance(value, tuple):
            return [t.uid for t in value]
        return None if value is None else value.uid

    return {
        "op": node.op.name,
        "name": node.name,
        "compute_data_type": node.compute_data_type.name,
        "attrs": {k: _encode(v, []) for k, v in node.attrs.items()},
        "inputs": {p: uid(v) for p, v in node.inputs.items()},
        "outputs": {p: t.uid for p, t in node.outputs.items()},
    }


# Plans.


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """What a plan file holds: the graph as JSON, the target, what replays the candidate, and the program if
    included.
    """

    graph: str
    arch: str
    sm_count: int
    engine: str
    id: int
    knobs: dict[enums.knob_type, int]
    program: Program | None


def plan_to_bytes(stored: StoredPlan) -> bytes:
    """A plan as a container: magic, length of the header, header, binaries, digest of all before it."""
    blobs: list[bytes] = []
    header = {
        "format": PLAN_FORMAT,
        "version": FORMAT_VERSION,
        "frazil": __version__,
        "arch": stored.arch,
        "sm_count": stored.sm_count,
        "engine": stored.engine,
        "id": stored.id,
        "knobs": {k.name: v for k, v in stored.knobs.items()},
        "graph": json.loads(stored.graph),
        "program": None if stored.program is None else _encode(stored.program, blobs),
    }
    header["blobs"] = [len(b) for b in blobs]
    text = _dump(header).encode()
    body = b"".join([_MAGIC, len(text).to_bytes(8, "little"), text, *blobs])
    return body + hashlib.sha256(body).digest()


def plan_from_bytes(data: bytes) -> StoredPlan:
    """Read a container.

    Raises
    ------
    GraphError
        Not a plan, damaged, or made by another version of the format or of Frazil.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise GraphError("plan file", got=repr(data[:8]), expected=repr(_MAGIC))
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise GraphError("plan file: damaged", got="another digest", expected="that of its content")
    start = len(_MAGIC) + 8
    end = start + int.from_bytes(body[len(_MAGIC) : start], "little")
    with _refusing(PLAN_FORMAT):
        return _read_plan(_parse(body[start:end].decode(), PLAN_FORMAT), body[end:])


def _read_plan(header: Mapping[str, Any], binaries: bytes) -> StoredPlan:
    if header["frazil"] != __version__:
        raise GraphError(
            "plan file: made by another version of Frazil", got=header["frazil"], expected=__version__
        )
    ends = [0, *accumulate(header["blobs"])]
    if ends[-1] != len(binaries) or ends != sorted(ends):
        raise GraphError("plan file: sizes of its binaries", got=header["blobs"], expected=len(binaries))
    blobs = tuple(binaries[a:b] for a, b in pairwise(ends))
    knobs = {enums.knob_type[k]: int(v) for k, v in header["knobs"].items()}
    program = None if header["program"] is None else _decode(header["program"], blobs)
    if not isinstance(program, Program | None):
        raise TypeError(f"a program is needed, got {type(program).__name__}")
    return StoredPlan(
        _dump(header["graph"]),
        str(header["arch"]),
        int(header["sm_count"]),
        str(header["engine"]),
        int(header["id"]),
        knobs,
        program,
    )


# Values.


def _encode(value: Any, blobs: list[bytes]) -> Any:
    if isinstance(value, IntEnum):
        return {"enum": type(value).__name__, "value": value.name}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, bytes):
        blobs.append(value)
        return {"blob": len(blobs) - 1}
    if isinstance(value, tuple):
        return [_encode(v, blobs) for v in value]
    if isinstance(value, frozenset):
        return {"set": sorted(_encode(v, blobs) for v in value)}
    if isinstance(value, Attrs):
        return {"attrs": [[k, _encode(v, blobs)] for k, v in value.items()]}
    if is_dataclass(value) and type(value).__name__ in _VALUES:
        return {
            "type": type(value).__name__,
            **{f.name: _encode(getattr(value, f.name), blobs) for f in fields(value)},
        }
    raise TypeError(f"{type(value).__name__} has no stored form")


def _decode(value: Any, blobs: tuple[bytes, ...]) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v, blobs) for v in value)
    if not isinstance(value, dict):
        return value
    if "type" in value:
        kind = _VALUES[value["type"]]
        given = {k: _decode(v, blobs) for k, v in value.items() if k != "type"}
        for name, hint in _hints(kind).items():
            if not _fits(given[name], hint):
                raise TypeError(f"{kind.__name__}.{name}: got {given[name]!r}")
        return kind(**given)
    if "enum" in value:
        return _ENUMS[value["enum"]][value["value"]]
    if "float" in value:
        return float(value["float"])
    if "blob" in value:
        return blobs[value["blob"]]
    if "set" in value:
        return frozenset(_decode(v, blobs) for v in value["set"])
    return Attrs({k: _decode(v, blobs) for k, v in value["attrs"]})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a decoded value is what a field is declared as."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(_fits(value, a) for a in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[-1] is Ellipsis:
            return all(_fits(v, arguments[0]) for v in value)
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if origin is frozenset:
        return isinstance(value, frozenset) and all(_fits(v, arguments[0]) for v in value)
    if hint is int or hint is float:
        return type(value) is hint
    return isinstance(value, hint)


def _dump(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _parse(text: str, expected: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{expected} file: not JSON ({error})") from None
    found = document.get("format") if isinstance(document, dict) else type(document).__name__
    if found != expected:
        raise GraphError("format of the file", got=found, expected=expected)
    if document.get("version") != FORMAT_VERSION:
        raise GraphError(
            f"version of the {expected} file", got=document.get("version"), expected=FORMAT_VERSION
        )
    return document
