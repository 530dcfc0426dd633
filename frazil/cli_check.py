"""The check behind `frazil run`: the same graph, computed in float64 by the reference engine.

Owns how a graph is widened to float64 and how far a result may lie from the wide one. The operations'
references are written once for float32 and float64, so this shows what the plan's arithmetic and roundings
cost, for any engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .api import Graph
from .cli_inputs import allocate
from .cli_plan import restored
from .dtypes import FLOATING, INTEGRAL, cast, data_type, numpy_dtype
from .errors import GraphError
from .tensor import Tensor

# Relative to the largest magnitude of a result: float32 arithmetic, its sums in any order.
_ARITHMETIC = 2e-5
# Roundings of values between nodes add up on their way to an output.
_AMPLIFIED = 4.0
# Of integers and booleans, which jump where a float on their way lies on an edge.
_MAY_DIFFER = 1e-3


@dataclass(frozen=True)
class Comparison:
    """The largest error of an output, and the largest share of what is allowed at its element."""

    error: float
    share: float

    @property
    def ok(self) -> bool:
        """Whether the output is as expected."""
        return self.share <= 1

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "WRONG"
        return f"largest error {self.error:.2g}, {100 * self.share:.2g}% of what is allowed: {verdict}"


def widened(graph: Graph) -> tuple[Graph | None, str]:
    """The graph in float64 for the CPU, or None where nothing would change; and what of it is float64."""
    text = graph.to_json()
    document = json.loads(text)
    for node in document["nodes"]:
        if data_type[node["compute_data_type"]] in FLOATING:
            node["compute_data_type"] = "DOUBLE"
    arithmetic = json.dumps(document)
    for tensor in document["tensors"]:
        if data_type[tensor["data_type"]] in FLOATING:
            tensor["data_type"] = "DOUBLE"
    if document == json.loads(text):
        return None, "float64 would change nothing"
    try:
        return restored(json.dumps(document), "cpu"), "with all floats in float64"
    except GraphError:  # an operation that is defined for narrow types alone
        return restored(arithmetic, "cpu"), "with its arithmetic in float64"


def expected(wide: Graph, inputs: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Outputs of a widened graph by uid, from the inputs of the original by uid."""
    wide.build()
    pack: dict[int, Any] = {}
    for tensor in wide.get_inputs():
        array = inputs[tensor.uid]
        pack[tensor.uid] = array.astype(numpy_dtype(tensor.data_type))
    results = {t.uid: allocate(t, 0) for t in wide.get_outputs()}
    wide.execute({**pack, **results}, wide.empty_workspace())
    return results


def compare(graph: Graph, tensor: Tensor, actual: np.ndarray, wide: np.ndarray) -> Comparison:
    """An output of a graph against the same output computed in float64."""
    return within(actual, wide, tensor.data_type, _between(graph, tensor))


def within(
    actual: np.ndarray, wide: np.ndarray, dtype: data_type, between: Sequence[data_type] = ()
) -> Comparison:
    """A result against a float64 one, rounded to the result's type.

    Allowed are the error of float32 arithmetic and of roundings to the types `between` nodes, relative to the
    largest magnitude, and one unit in the last place of the result's type.
    """
    if actual.size == 0:
        return Comparison(0.0, 0.0)
    rounded = cast(wide, dtype).astype(np.float64)
    got, wide = actual.astype(np.float64), wide.astype(np.float64)
    if dtype in INTEGRAL:
        differing = float(np.mean(got != rounded))
        return Comparison(differing, differing / _MAY_DIFFER)
    epsilon, smallest = _epsilon(dtype), float(ml_dtypes.finfo(numpy_dtype(dtype)).smallest_subnormal)
    with np.errstate(invalid="ignore"):
        # What the type cannot hold is expected as the type has it: saturated, or infinite.
        held = np.abs(rounded - wide) <= epsilon * np.abs(wide) + smallest
        wanted = np.where(held, wide, rounded)
        error = np.abs(got - wanted)
    finite = np.isfinite(wanted)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    error = np.where(finite & np.isfinite(got), error, np.where(same, 0.0, np.inf))
    magnitude = np.where(finite, np.abs(wanted), 0.0)
    share = _ARITHMETIC + _AMPLIFIED * max((_epsilon(t) for t in between), default=0.0)
    allowed = share * magnitude.max() + epsilon * magnitude + smallest
    return Comparison(float(error.max()), float((error / allowed).max()))


def _between(graph: Graph, tensor: Tensor) -> list[data_type]:
    """Types of the floating values that some node writes and another reads."""
    return [
        t.data_type
        for n in graph.nodes
        for t in n.read()
        if t.producer is not None and t is not tensor and t.data_type in FLOATING
    ]


def _epsilon(dtype: data_type) -> float:
    return float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)
