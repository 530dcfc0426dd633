"""Spellings of attention's parameters, and what is packed, paged or typed how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import frazil
from frazil.dtypes import data_type
from frazil.enums import diagonal_alignment
from frazil.ops.attention import Sizes

INT32, INT64 = data_type.INT32, data_type.INT64


def node(graph: Any = None, **arguments: Any) -> Any:
    """The validated node of an sdpa call on (2, 4, 9, 8) and (2, 2, 11, 8)."""
    graph = graph or frazil.Graph(io_data_type=data_type.FLOAT, target="cpu")
    q, k, v = (
        graph.tensor(d, name=n) for n, d in (("q", (2, 4, 9, 8)), ("k", (2, 2, 11, 8)), ("v", (2, 2, 11, 8)))
    )
    made = {n: a(graph) if callable(a) and n != "score_mod" else a for n, a in arguments.items()}
    o, stats = graph.sdpa(q, k, v, **{"generate_stats": True, **made})
    for tensor in (o, stats):
        if tensor is not None:
            tensor.set_output(True)
    graph.validate()
    return graph.nodes[0]


SAME = [
    ({"use_causal_mask": True}, {"diagonal_band_right_bound": 0}),
    (
        {"use_causal_mask_bottom_right": True},
        {"diagonal_alignment": diagonal_alignment.BOTTOM_RIGHT, "right_bound": 0},
    ),
    ({"sliding_window_length": 3}, {"diagonal_band_left_bound": 3}),
    ({"sliding_window": 3}, {"left_bound": 3}),
    ({"sliding_window": 3, "left_bound": 3}, {"diagonal_band_left_bound": np.int64(3)}),
    ({"right_bound": 2}, {"diagonal_band_right_bound": 2}),
    ({"diagonal_alignment": 1}, {"diagonal_alignment": diagonal_alignment.BOTTOM_RIGHT}),
    ({"attn_scale": np.float32(0.5)}, {"attn_scale": 0.5}),
    ({"attn_scale": None}, {"attn_scale": 1}),
    ({"generate_stats": None, "is_inference": True}, {"generate_stats": False}),
    ({"generate_stats": None, "is_inference": False}, {"generate_stats": np.bool_(True)}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert node(**one).attrs == node(**other).attrs


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "flag_as_number": ({"use_causal_mask": 1}, "use_causal_mask.*got 1"),
    "flag_as_text": ({"use_causal_mask_bottom_right": "no"}, "use_causal_mask_bottom_right.*'no'"),
    "stats_as_text": ({"generate_stats": "yes"}, "generate_stats.*'yes'"),
    "inference_as_number": ({"generate_stats": None, "is_inference": 0}, "is_inference.*got 0"),
    "alignment": ({"diagonal_alignment": 7}, "diagonal_alignment.*got 7"),
    "no_alignment": ({"diagonal_alignment": None}, "diagonal_alignment.*None"),
    "list_as_bound": ({"left_bound": [1]}, r"left_bound.*\[1\]"),
    "no_seed": ({"dropout": lambda g: (0.5, None, g.tensor((1,), data_type=INT32))}, "dropout_seed"),
    "no_offset": ({"dropout": lambda g: (0.5, g.tensor((1,), data_type=INT32), None)}, "dropout_offset"),
    "integer_bias": ({"bias": lambda g: g.tensor((1, 1, 9, 11), data_type=INT32)}, "bias.*INT32"),
    "integer_sink": ({"sink_token": lambda g: g.tensor((1, 4, 1, 1), data_type=INT32)}, "sink_token.*INT32"),
    "integer_maximum": ({"score_max": lambda g: g.tensor((2, 4, 9, 1), data_type=INT32)}, "score_max.*INT32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal(name: str) -> None:
    arguments, text = REFUSED[name]
    with pytest.raises(frazil.GraphError, match=text):
        node(**arguments)


@pytest.mark.parametrize("port", ["bias", "dropout_mask", "rng_dump", "seq_len_q"])
def test_packed_where_no_rows_are(port: str) -> None:
    """Only operands and results with a row per token can be packed."""

    def packed(graph: Any, dim: tuple[int, ...], kind: data_type = data_type.FLOAT) -> Any:
        offsets = graph.tensor((3, 1, 1, 1), data_type=INT32)
        return graph.tensor(dim, data_type=kind, ragged_offset=offsets)

    def seed(graph: Any) -> Any:
        return graph.tensor((1,), data_type=INT64)

    scores, lengths = (2, 4, 9, 11), (2, 1, 1, 1)
    arguments: dict[str, dict[str, Any]] = {
        "bias": {"bias": lambda g: packed(g, scores)},
        "dropout_mask": {"dropout": lambda g: (packed(g, scores), g.tensor((1,)))},
        "rng_dump": {"rng_dump": lambda g: packed(g, scores), "dropout": lambda g: (0.5, seed(g), seed(g))},
        "seq_len_q": {
            "use_padding_mask": True,
            "seq_len_q": lambda g: packed(g, lengths, INT32),
            "seq_len_kv": lambda g: g.tensor(lengths, data_type=INT32),
        },
    }
    with pytest.raises(frazil.GraphError, match=f"{port}.*ragged offset"):
        node(**arguments[port])


@pytest.mark.parametrize("kind", [data_type.HALF, data_type.BFLOAT16, INT32])
def test_statistics_of_doubles(kind: data_type) -> None:
    """Statistics of DOUBLE operands are DOUBLE or FLOAT, nothing narrower."""
    for declared in (data_type.FLOAT, data_type.DOUBLE, kind):
        graph = frazil.Graph(io_data_type=data_type.DOUBLE, compute_data_type=data_type.DOUBLE, target="cpu")
        q, k, v = (graph.tensor((1, 2, 3, 4)) for _ in "qkv")
        o, stats = graph.sdpa(q, k, v, generate_stats=True)
        o.set_output(True)
        stats.set_output(True).set_data_type(declared)
        if declared is kind:
            with pytest.raises(frazil.GraphError, match=f"Stats.*{kind.name}"):
                graph.validate()
        else:
            graph.validate()


@pytest.mark.parametrize(
    ("bias", "tables", "keys"),
    [(None, (3, 3), 12), (None, (3, 2), 8), (10, (3, 3), 10), (1, (3, 3), 12)],
)
def test_keys_of_paged_operands(bias: int | None, tables: tuple[int, int], keys: int) -> None:
    """Without a declared maximum Skv is what bias says, or what both tables have room for."""
    graph = frazil.Graph(io_data_type=data_type.FLOAT, target="cpu")
    q, k, v = (graph.tensor(d) for d in ((2, 4, 9, 8), (5, 2, 4, 8), (5, 2, 4, 8)))
    lengths, tables_of = [graph.tensor((2, 1, 1, 1), data_type=INT32) for _ in "qk"], []
    tables_of += [graph.tensor((2, 1, n, 1), data_type=INT32) for n in tables]
    o, _ = graph.sdpa(
        q,
        k,
        v,
        generate_stats=False,
        bias=None if bias is None else graph.tensor((1, 1, 9, bias)),
        use_padding_mask=True,
        seq_len_q=lengths[0],
        seq_len_kv=lengths[1],
        paged_attention_k_table=tables_of[0],
        paged_attention_v_table=tables_of[1],
    )
    o.set_output(True)
    graph.validate()
    assert Sizes.of(graph.nodes[0].call).s_kv == keys
