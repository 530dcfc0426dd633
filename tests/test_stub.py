"""Builder methods follow from the records: the stub file, the signatures, and which methods exist."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import frazil
from frazil.builders import Builders, describe, signature
from frazil.ops import OPS

ROOT = Path(__file__).parent.parent


def test_committed_stub_is_what_the_records_say() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "make_stub.py"), "--check"], check=False)
    assert done.returncode == 0, "run python tools/make_stub.py"


def test_a_method_exists_if_and_only_if_a_record_does() -> None:
    methods = {n for n, f in vars(Builders).items() if inspect.isfunction(f) and not n.startswith("_")}
    assert methods == set(OPS)


@pytest.mark.parametrize("name", OPS)
def test_method(name: str) -> None:
    method = getattr(frazil.Graph, name)
    op = OPS[name]
    assert inspect.signature(method) == signature(op)
    for parameter, *_ in describe(op):
        assert f"{parameter} : " in method.__doc__
    assert method.__doc__.startswith(op.doc.splitlines()[0])
    parameters = [p[0] for p in describe(op)]
    assert len(set(parameters)) == len(parameters)


def test_attention_signature_is_that_of_existing_code() -> None:
    """Names, order and defaults up to the aliases that Frazil adds at the end."""
    names = [p[0] for p in describe(OPS["sdpa"])]
    expected = [
        "q",
        "k",
        "v",
        "is_inference",
        "attn_scale",
        "bias",
        "block_mask",
        "use_alibi_mask",
        "use_padding_mask",
        "seq_len_q",
        "seq_len_kv",
        "use_causal_mask",
        "use_causal_mask_bottom_right",
        "sliding_window_length",
        "diagonal_alignment",
        "diagonal_band_left_bound",
        "diagonal_band_right_bound",
        "dropout",
        "rng_dump",
        "paged_attention_k_table",
        "paged_attention_v_table",
        "paged_attention_max_seq_len_kv",
        "max_total_seq_len_q",
        "max_total_seq_len_kv",
        "compute_data_type",
        "name",
        "score_mod",
        "generate_stats",
        "implementation",
        "score_max",
        "score_sum_exp",
        "sink_token",
        "unfuse_fma",
        "cu_seq_len_q",
        "cu_seq_len_kv",
        "stats_use_log2",
    ]
    assert names[: len(expected)] == expected
    names = [p[0] for p in describe(OPS["sdpa_backward"])]
    expected = [
        "q",
        "k",
        "v",
        "o",
        "dO",
        "stats",
        "attn_scale",
        "bias",
        "dBias",
        "use_alibi_mask",
        "use_padding_mask",
        "seq_len_q",
        "seq_len_kv",
        "max_total_seq_len_q",
        "max_total_seq_len_kv",
        "use_causal_mask",
        "use_causal_mask_bottom_right",
        "sliding_window_length",
        "diagonal_alignment",
        "diagonal_band_left_bound",
        "diagonal_band_right_bound",
        "dropout",
        "rng_dump",
        "use_deterministic_algorithm",
        "compute_data_type",
        "name",
        "score_mod",
        "score_mod_bprop",
        "sink_token",
        "dSink_token",
    ]
    assert names[: len(expected)] == expected
