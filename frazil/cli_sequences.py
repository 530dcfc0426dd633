"""Integers that address and count, made up to be valid: lengths, their sums, packed tensors' offsets, pages.

Owns the sequences of an attention graph, one set for queries and one for keys, from which all of those
follow. An input that it does not know is left to the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .geometry import span
from .graph import GraphIR, Node
from .tensor import Tensor

# Ports whose token axis runs over keys; every other packed tensor of an attention node runs over queries.
_OVER_KEYS = frozenset({"k", "v", "dK", "dV"})
_LENGTHS = {"seq_len_q": "q", "seq_len_kv": "kv"}
_SUMS = {"cu_seq_len_q": "q", "cu_seq_len_kv": "kv"}
_PAGES = {"page_table_k": "k", "page_table_v": "v"}


class Sequences:
    """Values for the addressing inputs of one graph.

    Parameters
    ----------
    given
        Values that the user gave: an object with an `array` by tensor.
    """

    def __init__(self, graph: GraphIR, given: Mapping[Tensor, Any], rng: np.random.Generator) -> None:
        self._rng = rng
        self._values: dict[Tensor, np.ndarray] = {}
        for node in graph.nodes:
            if {"q", "k"} <= node.inputs.keys():
                self._describe(node, given)

    def fill(self, tensor: Tensor) -> np.ndarray | None:
        """Values for an input, flat for a packed one, or None where it holds something else."""
        shape = (span(tensor.dim, tensor.stride),) if tensor.is_ragged else tensor.dim
        found = self._values.get(tensor)
        return None if found is None or found.size != np.prod(shape, dtype=int) else found.reshape(shape)

    def _describe(self, node: Node, given: Mapping[Tensor, Any]) -> None:
        """Add what one attention node addresses with."""
        q, k = node.inputs["q"], node.inputs["k"]
        if len(q.dim) != 4 or len(k.dim) != 4:
            return
        longest = {"q": q.dim[2], "kv": k.dim[2]}
        table = node.inputs.get("page_table_k")
        if table is not None:
            longest["kv"] = node.attrs.get("max_seq_len_kv") or table.dim[2] * k.dim[2]
        lengths = {side: self._lengths(node, side, longest[side], given) for side in ("q", "kv")}
        if longest["q"] == longest["kv"] and not any(
            node.inputs.get(p) in given for p in (*_LENGTHS, *_SUMS)
        ):
            lengths["q"] = lengths["kv"] = np.minimum(lengths["q"], lengths["kv"])
        sums = {side: np.concatenate([[0], np.cumsum(values)]) for side, values in lengths.items()}
        for port, side in _LENGTHS.items():
            self._set(node.inputs.get(port), lengths[side])
        for port, side in _SUMS.items():
            self._set(node.inputs.get(port), sums[side])
        for port, paged in _PAGES.items():
            pages = node.inputs.get(port)
            if pages is not None:
                count, blocks = int(np.prod(pages.dim)), node.inputs[paged].dim[0]
                sums[port] = np.arange(pages.dim[0] + 1) * pages.dim[2]
                self._set(pages, self._rng.permutation(np.arange(max(count, blocks)) % blocks)[:count])
        for side, packed in _packed(node):
            self._set(packed.ragged_offset, _offsets(packed, sums[side]))

    def _lengths(self, node: Node, side: str, longest: int, given: Mapping[Tensor, Any]) -> np.ndarray:
        """Lengths on one side: as given, else from a quarter to all of the declared extent."""
        counts, totals = (node.inputs.get(f"{kind}_{side}") for kind in ("seq_len", "cu_seq_len"))
        if counts is not None and counts in given:
            return np.asarray(given[counts].array, np.int64).reshape(-1)
        if totals is not None and totals in given:
            return np.diff(np.asarray(given[totals].array, np.int64).reshape(-1))
        batch = node.inputs["q"].dim[0]
        most = min(longest, _room(node, side) // max(batch, 1))
        return self._rng.integers(min(most, 1 + most // 4), most + 1, batch)

    def _set(self, tensor: Tensor | None, values: np.ndarray | None) -> None:
        """Note the values of an input; one that would need two different ones is left to the user."""
        if tensor is None or tensor.producer is not None:
            return
        known = self._values.get(tensor)
        if values is None or (known is not None and not np.array_equal(known, values)):
            values = np.empty(0, np.int64)
        self._values[tensor] = values


def _packed(node: Node) -> list[tuple[str, Tensor]]:
    """The packed tensors of an attention node, each with what its token axis runs over."""
    ports = (*node.inputs.items(), *node.outputs.items())
    packed = [(p, t) for p, t in ports if isinstance(t, Tensor) and t.is_ragged]
    return [(p if p in _PAGES else "kv" if p in _OVER_KEYS else "q", t) for p, t in packed]


def _room(node: Node, side: str) -> int:
    """Tokens that the packed tensors of one side have room for, all sequences together."""
    promised = node.attrs.get(f"max_total_seq_len_{side}")
    room = [2**31 if promised is None else int(promised)]
    for found, packed in _packed(node):
        if found == side and len(packed.dim) == 4 and packed.stride[2] > 0:
            (batch, heads, rows, _), (entry, head, row, _) = packed.dim, packed.stride
            room.append(((batch - 1) * entry + (rows - 1) * row) // row + 1)
            if heads > 1 and head > row:  # heads outside tokens: no head may reach the next
                room.append(head // row)
    return min(room)


def _offsets(packed: Tensor, sums: np.ndarray) -> np.ndarray | None:
    """Where each sequence of a packed (B, H, S, D) tensor starts, in units of its multiplier."""
    elements = [int(total) * packed.stride[2] for total in sums]
    unit = packed.ragged_offset_multiplier
    if len(packed.dim) != 4 or any(e % unit for e in elements):
        return None
    return np.array([e // unit for e in elements], np.int64)
