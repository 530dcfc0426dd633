"""Packed tensors: where rows lie, and that packed and padded runs agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import frazil
from frazil.dtypes import data_type
from frazil.ops import ragged

INT32, INT64 = data_type.INT32, data_type.INT64
LENGTHS = (5, 0, 3)
STARTS = np.cumsum([0, *LENGTHS])


def call_with(dim: tuple[int, ...], stride: tuple[int, ...], multiplier: int = 1) -> Any:
    tensor = SimpleNamespace(dim=dim, stride=stride, ragged_multiplier=multiplier)
    return SimpleNamespace(inputs={"q": tensor}, outputs={"O": tensor})


@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize("unit", [1, 2])
def test_gather_and_scatter_are_inverse(by_head: bool, unit: int) -> None:
    heads, width, total = 3, 4, int(STARTS[-1])
    step, head = (width, total * width) if by_head else (heads * width, width)
    call = call_with((3, heads, 5, width), (0, head, step, 1), unit)
    flat = np.arange(1, total * heads * width + 1, dtype=np.float32)
    offsets = (STARTS * step // unit).astype(np.int32)
    arrays = dict.fromkeys(("q", "O"), flat)
    arrays |= {f"{p}.ragged": offsets for p in ("q", "O")} | {f"{p}.elements": flat.size for p in ("q", "O")}
    rows = np.array(LENGTHS)
    padded = ragged.gather(np, call, "q", arrays, rows)
    shape = (heads, total, width) if by_head else (total, heads, width)
    tokens = flat.reshape(shape) if not by_head else flat.reshape(shape).swapaxes(0, 1)
    for b, (start, length) in enumerate(zip(STARTS, LENGTHS, strict=False)):
        assert np.array_equal(padded[b, :, :length].swapaxes(0, 1), tokens[start : start + length])
        assert not padded[b, :, length:].any()
    found = ragged.scatter(np, call, "O", arrays, padded, rows)
    back = np.zeros_like(flat)
    back[found.index] = found.values
    assert np.array_equal(back, flat)
    assert np.array_equal(ragged.lengths(np, call, "q", arrays), LENGTHS)


def test_offsets_are_64_bit() -> None:
    """C-29: a 32-bit offset times its unit, 300000 tokens of 64 heads of 128."""
    call = call_with((1, 64, 1, 128), (0, 128, 8192, 1), 8192)
    arrays = {"q.ragged": np.array([0, 300000], np.int32)}
    found = ragged.offsets(np, call, "q", arrays)
    assert found.dtype == np.int64 and found.tolist() == [0, 2457600000]


def attention(packed: str, extra: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Results of one attention with some of q, k, v, o and statistics packed, as padded arrays of live
    rows.
    """
    rng = np.random.default_rng(5)
    values = {
        n: rng.standard_normal((3, h, 5, 8)).astype(np.float32) for n, h in zip("qkv", (4, 2, 2), strict=True)
    }
    graph = frazil.Graph(io_data_type=data_type.FLOAT, target="cpu")
    pack: dict[Any, Any] = {}

    def offsets(tensor: Any, step: int) -> None:
        held = graph.tensor((4, 1, 1, 1), data_type=INT64)
        pack[held] = (STARTS * step).reshape(4, 1, 1, 1)
        tensor.set_ragged_offset(held)

    def flat(array: np.ndarray) -> np.ndarray:
        rows = [array[b, :, :length].swapaxes(0, 1) for b, length in enumerate(LENGTHS)]
        return np.ascontiguousarray(np.concatenate(rows))

    tensors = {}
    for name, array in values.items():
        heads = array.shape[1]
        tensors[name] = graph.tensor(array.shape, stride=(5 * heads * 8, 8, heads * 8, 1))
        if name in packed:
            offsets(tensors[name], heads * 8)
        strided = np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
        pack[tensors[name]] = flat(array) if name in packed else strided
    outputs = {n: graph.tensor((3, 4, 5, 1), stride=(20, 1, 4, 1)) for n in extra}
    lengths = {}
    for side in ("q", "kv"):
        if not set(side) & set(packed):
            lengths[f"cu_seq_len_{side}"] = graph.tensor((4,), data_type=INT32)
            pack[lengths[f"cu_seq_len_{side}"]] = STARTS.astype(np.int32)
    outputs["O"], outputs["Stats"] = graph.sdpa(**tensors, generate_stats=True, **lengths, **outputs)
    outputs["O"].set_stride((160, 8, 32, 1))
    outputs["Stats"].set_stride((20, 1, 4, 1))
    results = {}
    for name, tensor in outputs.items():
        tensor.set_output(True)
        width = 8 if name == "O" else 1
        if "o" in packed:
            offsets(tensor, 4 * width)
        results[name] = np.full((int(STARTS[-1]) if "o" in packed else 15) * 4 * width, 7, np.float32)
        shape = (-1, 4, width) if "o" in packed else (3, 5, 4, width)
        results[name] = results[name].reshape(shape)
        pack[tensor] = results[name] if "o" in packed else results[name].swapaxes(1, 2)
    graph.build()
    graph.execute(pack, graph.empty_workspace())
    if "o" in packed:
        return results
    return {n: np.concatenate([r[b, :x] for b, x in enumerate(LENGTHS)]) for n, r in results.items()}


@pytest.mark.parametrize("packed", ["q", "kv", "k", "v", "qk", "o", "qo", "qkv", "qkvo"])
def test_packed_is_padded(packed: str) -> None:
    """Any mix of packed and padded tensors gives the same rows; lengths come from whichever side has them."""
    extra = ("score_max", "score_sum_exp")
    expected, got = attention("", extra), attention(packed, extra)
    assert np.isfinite(expected["Stats"]).all()
    for port, value in expected.items():
        assert np.array_equal(got[port].reshape(value.shape), value), port
