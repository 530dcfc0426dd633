"""Scaled dot-product attention, forward: O = softmax(logits) V. Owns the record of `sdpa`.

Rows that see no key give O = 0, statistics -inf (the sink's logit where there is one), maximum -inf and sum
0. Rows behind the lengths of a dense tensor are written so, too; in a packed buffer nothing but live rows is
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..dtypes import data_type
from ..enums import attention_implementation
from ..errors import GraphError
from ..op import BOOL, Attr, Bound, Call, Cost, Inferred, Op, Param, Port, io_cost, one_of, ordered_like
from . import attention_params as params
from . import score_mod
from .attention import (
    OPERANDS,
    SCORE_ATTRS,
    SCORE_PORTS,
    Sizes,
    check_operands,
    factors,
    require_floating,
    require_statistics,
    require_unit_stride,
    result,
    scores,
    statistics,
)
from .attention_mask import Band
from .sdpa_cases import FORWARD

_LN2 = 0.6931471805599453


def _bind(op: Op, arguments: Mapping[str, Any], graph: Any) -> Bound:
    number, tensor = params.scale(arguments)
    dropped, probability = params.dropout(arguments)
    stats, inference = arguments["generate_stats"], arguments["is_inference"]
    if (stats is None) == (inference is None):
        got = f"generate_stats={stats}, is_inference={inference}"
        raise GraphError("statistics", node=arguments["name"], got=got, expected="exactly one of the two")
    callback = params.one_of(arguments, "score_mod", "fn")
    expression, captured = score_mod.bind(graph, arguments["name"], callback)
    inputs = {
        **{p: arguments[p] for p in ("q", "k", "v", "bias", "block_mask", "sink_token")},
        **{p: arguments[p] for p in ("seq_len_q", "seq_len_kv", "cu_seq_len_q", "cu_seq_len_kv")},
        "page_table_k": arguments["paged_attention_k_table"],
        "page_table_v": arguments["paged_attention_v_table"],
        "scale": tensor,
        "captures": captured,
        **dropped,
    }
    attrs = {
        **params.band(arguments),
        **{a: arguments[a] for a in ("use_alibi_mask", "use_padding_mask", "stats_use_log2")},
        **{
            a: arguments[a]
            for a in ("max_total_seq_len_q", "max_total_seq_len_kv", "implementation", "unfuse_fma")
        },
        "attn_scale": number,
        "dropout_probability": probability,
        "max_seq_len_kv": arguments["paged_attention_max_seq_len_kv"],
        "score_mod": expression,
        "generate_stats": params.flag(arguments, "generate_stats")
        if inference is None
        else not params.flag(arguments, "is_inference"),
    }
    return Bound(inputs, attrs, {p: arguments[p] for p in ("rng_dump", "score_max", "score_sum_exp")})


def _infer(call: Call) -> Mapping[str, Inferred]:
    sizes = check_operands(call)
    q = call.inputs["q"]
    dim = (sizes.b, sizes.h_q, sizes.s_q, sizes.d_v)
    found = {
        "O": Inferred(dim, ordered_like(dim, q)),
        "Stats": statistics(call, sizes),
        "score_max": statistics(call, sizes),
        "score_sum_exp": statistics(call, sizes),
        "rng_dump": Inferred(sizes.scores, None, data_type.FLOAT, loose=True),
    }
    return {port: found[port] for port in call.outputs}


def _check(call: Call) -> None:
    require_unit_stride(call, "O")
    require_floating(call, "O")
    for port in ("Stats", "score_max", "score_sum_exp"):
        if port in call.outputs:
            require_statistics(call, port)
    if "rng_dump" in call.outputs and call.attrs.dropout_probability is None:
        raise call.refuse(
            "asked for without generated dropout", "rng_dump", expected="dropout=(probability, ...)"
        )


def _reference(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    s = scores(xp, call, arrays)
    zero = s.q.dtype.type(0)
    limit = xp.max(s.logits, axis=3, keepdims=True, initial=-xp.inf)
    sink = arrays["sink_token"]
    live = xp.arange(s.q.shape[2]).reshape(1, 1, -1, 1) < s.rows.reshape(-1, 1, 1, 1)
    if sink is not None:
        limit = xp.where(live, xp.maximum(limit, sink), -xp.inf)
    shift = xp.where(xp.isfinite(limit), limit, zero)
    weights = xp.exp(s.logits - shift)
    total = xp.sum(weights, axis=3, keepdims=True)
    if sink is not None:
        total = xp.where(live, total + xp.exp(sink - shift), zero)
    probabilities = weights / xp.where(total == 0, 1, total)
    kept, factor = factors(xp, call, arrays)
    # What a given mask holds at hidden places is as harmless as what lies in padding.
    used = (
        probabilities
        if kept is None
        else xp.where(s.seen, probabilities * kept * s.q.dtype.type(factor), zero)
    )
    natural = xp.where(total == 0, -xp.inf, xp.log(total) + shift)
    found = {
        "O": xp.matmul(used, s.v),
        "Stats": natural / _LN2 if call.attrs.stats_use_log2 else natural,
        "score_max": limit,
        "score_sum_exp": total,
    }
    results = {p: result(xp, call, arrays, p, v, s.rows) for p, v in found.items() if p in call.outputs}
    if "rng_dump" in call.outputs:
        results["rng_dump"] = xp.asarray(kept)
    return results


def attention_flops(call: Call) -> float:
    """Floating-point operations of Q K^T and P V; half under a causal mask."""
    z = Sizes.of(call)
    return (
        2.0
        * z.b
        * z.h_q
        * z.s_q
        * z.s_kv
        * (z.d_qk + z.d_v)
        * (0.5 if Band.of(call.attrs).is_causal else 1.0)
    )


def _cost(call: Call) -> Cost:
    return io_cost(call, attention_flops(call))


SDPA = Op(
    name="sdpa",
    inputs=(*OPERANDS, *SCORE_PORTS),
    outputs=(
        Port("O", "(B, Hq, Sq, Dv), by default in the memory order of q."),
        Port(
            "Stats",
            "(B, Hq, Sq, 1) FLOAT: natural logarithm of the sum of exponentials, the sink's included.",
            when=lambda a: bool(a.generate_stats),
        ),
        Port("rng_dump", "(B, Hq, Sq, Skv): 1 where dropout keeps a probability.", keyword=True),
        Port(
            "score_max", "(B, Hq, Sq, 1) FLOAT: largest logit of each row, the sink's included.", keyword=True
        ),
        Port("score_sum_exp", "(B, Hq, Sq, 1) FLOAT: sum of exp(logit - largest).", keyword=True),
    ),
    attrs=(
        *SCORE_ATTRS,
        Attr("generate_stats", False, BOOL),
        Attr("stats_use_log2", False, BOOL, "Statistics in base 2."),
        Attr("implementation", attention_implementation.AUTO, one_of(attention_implementation)),
        Attr("unfuse_fma", False, BOOL, "A hint to the closed library."),
    ),
    infer=_infer,
    check=_check,
    reference=_reference,
    cost=_cost,
    cases=FORWARD,
    doc=(
        "Scaled dot-product attention: O = softmax(scale * Q K^T + bias, masked) V.\n\n"
        "MHA, GQA and MQA by the head counts of k and v. Packed batches through `ragged_offset` of the\n"
        "tensors; paged keys and values through page tables. Rows that see no key give O = 0 and\n"
        "Stats = -inf. In a packed buffer only live rows are written. (A. Vaswani et al., 2017, eq. 1.)"
    ),
    anchor=True,
    packed=True,
    signature=(
        *("q", "k", "v"),
        Param("is_inference", None, "bool | None", "Without Stats; give this or generate_stats."),
        *(
            params.SCALE,
            "bias",
            "block_mask",
            "use_alibi_mask",
            "use_padding_mask",
            "seq_len_q",
            "seq_len_kv",
        ),
        *(*params.MASKS, "rng_dump"),
        Param("paged_attention_k_table", None, "Any", "Page of each block of keys, (B, 1, blocks, 1)."),
        Param("paged_attention_v_table", None, "Any", "Page of each block of values, (B, 1, blocks, 1)."),
        Param(
            "paged_attention_max_seq_len_kv",
            None,
            "int | None",
            "Skv of paged operands; where left out that of bias or rng_dump, else what both tables hold.",
        ),
        *("max_total_seq_len_q", "max_total_seq_len_kv", "compute_data_type", "name", params.SCORE_MOD),
        Param("generate_stats", None, "bool | None", "With Stats; give this or is_inference."),
        *(params.IMPLEMENTATION, "score_max", "score_sum_exp", "sink_token", "unfuse_fma"),
        *("cu_seq_len_q", "cu_seq_len_kv", "stats_use_log2", *params.ALIASES),
    ),
    bind=_bind,
)

OPS = (SDPA,)
