"""Wrong attention calls: each is refused at validate, and the text names node, tensor, what was got and what
was expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

import frazil
from tests.oracles.attention_spec import BF16, BOOLEAN, FLOAT, HALF, INT32, INT64, UINT8, DataType


@dataclass(frozen=True)
class T:
    """A tensor of a refused call."""

    dim: tuple[int, ...]
    dtype: DataType | None = None
    stride: tuple[int, ...] | None = None


def refusal(op: str, arguments: dict[str, Any], tensor: str | None, text: str) -> None:
    """Build and validate; the error must name the node, the tensor, and match `text`."""
    graph = frazil.Graph(
        io_data_type=HALF, intermediate_data_type=FLOAT, compute_data_type=FLOAT, target="cpu"
    )

    def made(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(made(f"{name}[{i}]", v) for i, v in enumerate(value))
        return (
            graph.tensor(value.dim, value.stride, value.dtype, name=name) if isinstance(value, T) else value
        )

    with pytest.raises(frazil.GraphError, match=text) as caught:
        returned = getattr(graph, op)(name="attn", **{k: made(k, v) for k, v in arguments.items()})
        for output in returned:
            if output is not None:
                output.set_output(True)
        graph.validate()
    assert caught.value.node == "attn"
    assert "'attn'" in str(caught.value)
    if tensor is not None:
        assert caught.value.tensor == tensor
        assert f"'{tensor}'" in str(caught.value) and "got" in str(caught.value)
    assert "got" in str(caught.value) or "expected" in str(caught.value)


LENGTHS = {
    "use_padding_mask": True,
    "seq_len_q": T((2, 1, 1, 1), INT32),
    "seq_len_kv": T((2, 1, 1, 1), INT32),
}
SEED = T((1, 1, 1, 1), INT64)
OPERANDS = {"q": T((2, 4, 5, 8)), "k": T((2, 2, 7, 8)), "v": T((2, 2, 7, 8))}
PAGES = {
    "k": T((9, 2, 4, 8)),
    "v": T((9, 2, 4, 8)),
    "paged_attention_k_table": T((2, 1, 2, 1), INT32),
    "paged_attention_v_table": T((2, 1, 2, 1), INT32),
    "paged_attention_max_seq_len_kv": 7,
}

# Wrong calls that forward and backward refuse alike: changed arguments, tensor named, text.
REFUSED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "rank_of_q": ({"q": T((2, 4, 40))}, "q", r"\(2, 4, 40\)"),
    "rank_of_k": ({"k": T((2, 2, 1, 7, 8))}, "k", r"\(2, 2, 1, 7, 8\)"),
    "heads_of_k": ({"k": T((2, 3, 7, 8))}, "k", "3"),
    "heads_of_v": ({"v": T((2, 3, 7, 8))}, "v", "3"),
    "more_heads_in_k": ({"k": T((2, 8, 7, 8))}, "k", "8"),
    "batch_of_k": ({"k": T((3, 2, 7, 8))}, "k", "3"),
    "batch_of_v": ({"v": T((1, 2, 7, 8))}, "v", "1"),
    "width_of_k": ({"k": T((2, 2, 7, 6))}, "k", "6"),
    "keys_of_v": ({"v": T((2, 2, 6, 8))}, "v", "6"),
    "stride_of_q": ({"q": T((2, 4, 5, 8), stride=(320, 80, 16, 2))}, "q", r"stride"),
    "stride_of_k": ({"k": T((2, 2, 7, 8), stride=(112, 56, 1, 7))}, "k", r"stride"),
    "stride_of_v": ({"v": T((2, 2, 7, 8), stride=(224, 112, 16, 2))}, "v", r"stride"),
    "dtype_of_k": ({"k": T((2, 2, 7, 8), BF16)}, "k", "BFLOAT16.*HALF"),
    "dtype_of_v": ({"v": T((2, 2, 7, 8), FLOAT)}, "v", "FLOAT.*HALF"),
    "dtype_integer": (
        {n: T(t.dim, INT32) for n, t in (("q", OPERANDS["q"]), ("k", OPERANDS["k"]), ("v", OPERANDS["v"]))},
        "q",
        "INT32",
    ),
    "both_causal_flags": (
        {"use_causal_mask": True, "use_causal_mask_bottom_right": True},
        None,
        "use_causal_mask",
    ),
    "causal_and_right_bound": (
        {"use_causal_mask": True, "diagonal_band_right_bound": 0},
        None,
        "diagonal_band_right_bound",
    ),
    "bottom_right_and_right_bound": (
        {"use_causal_mask_bottom_right": True, "diagonal_band_right_bound": 3},
        None,
        "diagonal_band_right_bound",
    ),
    "two_left_bounds": (
        {"sliding_window_length": 3, "diagonal_band_left_bound": 4},
        None,
        "sliding_window_length",
    ),
    "right_bound_negative": ({"diagonal_band_right_bound": -3}, None, "-3"),
    "left_bound_negative": ({"diagonal_band_left_bound": -1}, None, "-1"),
    "window_negative": ({"sliding_window_length": -5}, None, "-5"),
    "right_bound_fraction": ({"diagonal_band_right_bound": 1.5}, None, "1.5"),
    "left_bound_flag": ({"diagonal_band_left_bound": True}, None, "True"),
    "scale_text": ({"attn_scale": "0.5"}, None, "attn_scale"),
    "scale_nan": ({"attn_scale": math.nan}, None, "nan"),
    "scale_extent": ({"attn_scale": T((1, 4, 1, 1), FLOAT)}, "attn_scale", "4"),
    "padding_without_lengths": ({"use_padding_mask": True}, None, "seq_len"),
    "padding_without_kv": ({**LENGTHS, "seq_len_kv": None}, None, "seq_len_kv"),
    "lengths_without_padding": ({**LENGTHS, "use_padding_mask": False}, None, "use_padding_mask"),
    "lengths_shape": ({**LENGTHS, "seq_len_q": T((3, 1, 1, 1), INT32)}, "seq_len_q", "3"),
    "lengths_count": ({**LENGTHS, "seq_len_kv": T((2, 2, 1, 1), INT32)}, "seq_len_kv", "2"),
    "lengths_type": ({**LENGTHS, "seq_len_q": T((2, 1, 1, 1), FLOAT)}, "seq_len_q", "FLOAT"),
    "bias_extent": ({"bias": T((1, 4, 5, 6))}, "bias", r"\(1, 4, 5, 6\)"),
    "bias_heads": ({"bias": T((1, 2, 5, 7))}, "bias", r"\(1, 2, 5, 7\)"),
    "bias_rank": ({"bias": T((5, 7))}, "bias", r"\(5, 7\)"),
    "bias_boolean": ({"bias": T((1, 1, 5, 7), BOOLEAN)}, "bias", "BOOLEAN"),
    "dropout_one": ({"dropout": (1.0, SEED, SEED)}, None, "1.0"),
    "dropout_negative": ({"dropout": (-0.1, SEED, SEED)}, None, "-0.1"),
    "dropout_two": ({"dropout": (2.0, SEED, SEED)}, None, "2.0"),
    "dropout_nan": ({"dropout": (math.nan, SEED, SEED)}, None, "nan"),
    "dropout_alone": ({"dropout": (0.5,)}, None, "dropout"),
    "dropout_number": ({"dropout": 0.5}, None, "dropout"),
    "dropout_seed_type": ({"dropout": (0.5, T((1, 1, 1, 1), FLOAT), SEED)}, "dropout[1]", "FLOAT"),
    "dropout_seed_extent": ({"dropout": (0.5, T((2, 1, 1, 1), INT64), SEED)}, "dropout[1]", "2"),
    "sink_extent": ({"sink_token": T((1, 2, 1, 1), FLOAT)}, "sink_token", r"\(1, 2, 1, 1\)"),
    "score_mod_matmul": ({"score_mod": lambda g, s: g.matmul(s, s)}, None, "matmul"),
    "score_mod_returns_nothing": ({"score_mod": lambda g, s: None}, None, "callback"),
    "score_mod_returns_number": ({"score_mod": lambda g, s: 1.0}, None, "callback"),
}
REFUSED_FORWARD: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "stats_unsaid": ({"generate_stats": None}, None, "generate_stats"),
    "stats_said_twice": ({"generate_stats": True, "is_inference": True}, None, "is_inference"),
    "page_table_alone": (
        {**PAGES, **LENGTHS, "paged_attention_v_table": None},
        None,
        "paged_attention_v_table",
    ),
    "pages_without_lengths": (PAGES, None, "seq_len|padding"),
    "pages_too_few": ({**PAGES, **LENGTHS, "paged_attention_max_seq_len_kv": 9}, None, "9"),
    "page_table_batch": (
        {**PAGES, **LENGTHS, "paged_attention_k_table": T((3, 1, 2, 1), INT32)},
        "paged_attention_k_table",
        "3",
    ),
    "page_table_type": (
        {**PAGES, **LENGTHS, "paged_attention_k_table": T((2, 1, 2, 1), FLOAT)},
        "paged_attention_k_table",
        "FLOAT",
    ),
    "maximum_without_pages": ({"paged_attention_max_seq_len_kv": 7}, None, "paged_attention_max_seq_len_kv"),
    "block_mask_extent": ({"block_mask": T((2, 4, 2, 1), UINT8)}, "block_mask", r"\(2, 4, 2, 1\)"),
    "block_mask_type": ({"block_mask": T((2, 4, 1, 1), INT32)}, "block_mask", "INT32"),
    "rng_dump_without_dropout": ({"rng_dump": T((2, 4, 5, 7), FLOAT)}, None, "rng_dump"),
    "score_max_extent": ({"score_max": T((2, 4, 5, 2), FLOAT)}, "score_max", r"\(2, 4, 5, 2\)"),
}


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_FORWARD])
def test_refusal(name: str) -> None:
    changes, tensor, text = {**REFUSED, **REFUSED_FORWARD}[name]
    refusal("sdpa", {**OPERANDS, "generate_stats": False, **changes}, tensor, text)


@pytest.mark.parametrize("dtype", [HALF, BF16])
def test_refusal_of_narrow_stats(dtype: DataType) -> None:
    graph = frazil.Graph(io_data_type=HALF, compute_data_type=FLOAT, target="cpu")
    q, k, v = (graph.tensor(t.dim, name=n) for n, t in OPERANDS.items())
    o, stats = graph.sdpa(q, k, v, generate_stats=True, name="attn")
    o.set_output(True)
    stats.set_output(True).set_data_type(dtype).set_name("lse")
    with pytest.raises(frazil.GraphError, match=f"got {dtype.name}, expected .*FLOAT") as caught:
        graph.validate()
    assert (caught.value.node, caught.value.tensor) == ("attn", "lse")


def test_refusal_of_offsets_shape() -> None:
    graph = frazil.Graph(io_data_type=HALF, compute_data_type=FLOAT, target="cpu")
    offsets = graph.tensor((2, 1, 1, 1), data_type=INT32, name="offsets")
    q, k, v = (graph.tensor(t.dim, name=n) for n, t in OPERANDS.items())
    lengths = [graph.tensor((2, 1, 1, 1), data_type=INT32) for _ in range(2)]
    q.set_ragged_offset(offsets)
    arguments = {"use_padding_mask": True, "seq_len_q": lengths[0], "seq_len_kv": lengths[1]}
    o, _ = graph.sdpa(q, k, v, generate_stats=False, name="attn", **arguments)
    o.set_output(True)
    with pytest.raises(frazil.GraphError, match=r"\(2, 1, 1, 1\).*3 elements"):
        graph.validate()


BACKWARD = {**OPERANDS, "o": T((2, 4, 5, 8)), "dO": T((2, 4, 5, 8)), "stats": T((2, 4, 5, 1), FLOAT)}
REFUSED_BACKWARD: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "o_extent": ({"o": T((2, 4, 6, 8))}, "o", r"\(2, 4, 6, 8\)"),
    "d_o_extent": ({"dO": T((2, 4, 5, 7))}, "dO", r"\(2, 4, 5, 7\)"),
    "d_o_stride": ({"dO": T((2, 4, 5, 8), stride=(320, 80, 16, 2))}, "dO", "stride"),
    "o_type": ({"o": T((2, 4, 5, 8), BF16)}, "o", "BFLOAT16"),
    "stats_extent": ({"stats": T((2, 4, 5, 8), FLOAT)}, "stats", r"\(2, 4, 5, 8\)"),
    "stats_type": ({"stats": T((2, 4, 5, 1), BF16)}, "stats", "BFLOAT16"),
    "d_bias_without_bias": ({"dBias": T((1, 4, 5, 7))}, None, "bias"),
    "d_bias_extent": ({"bias": T((1, 4, 5, 7)), "dBias": T((1, 1, 5, 7))}, "dBias", r"\(1, 1, 5, 7\)"),
    "d_sink_without_sink": ({"dSink_token": T((1, 4, 1, 1), FLOAT)}, None, "sink_token"),
    "score_mod_without_gradient": ({"score_mod": lambda g, s: g.mul(s, s)}, None, "score_mod_bprop"),
    "gradient_without_score_mod": ({"score_mod_bprop": lambda g, s: g.tanh(s)}, None, "score_mod"),
}


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_BACKWARD])
def test_refusal_backward(name: str) -> None:
    changes, tensor, text = {**REFUSED, **REFUSED_BACKWARD}[name]
    refusal("sdpa_backward", {**BACKWARD, **changes}, tensor, text)
