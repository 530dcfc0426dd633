"""Scaled dot-product attention, backward. Owns the record of `sdpa_backward`.

Probabilities are recomputed from the forward's statistics (natural logarithm): P = exp(logit - Stats). With
dP = dO V^T, delta = rowsum(dO * O) and dS = P * (dP - delta): dV = P^T dO, dQ = scale * dS K, dK = scale *
dS^T Q. Rows that see no key give zero gradients, whatever dO, O and the statistics hold there; a NaN in a
live row stays one. Logits near the lowest number of the statistics' type leave those no room for the sum, so
that the probabilities of such a row do not sum to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..dtypes import data_type
from ..errors import GraphError
from ..op import BOOL, Attr, Bound, Call, Cost, Inferred, Op, Port, io_cost, row_major
from . import attention_params as params
from . import score_mod
from .attention import (
    OPERANDS,
    SCORE_ATTRS,
    SCORE_PORTS,
    Scores,
    Sizes,
    check_operands,
    factors,
    operand,
    require_extents,
    require_floating,
    require_statistics,
    require_unit_stride,
    result,
    scores,
)
from .sdpa import attention_flops
from .sdpa_cases import BACKWARD


def _bind(op: Op, arguments: Mapping[str, Any], graph: Any) -> Bound:
    number, tensor = params.scale(arguments)
    dropped, probability = params.dropout(arguments)
    callback = params.one_of(arguments, "score_mod", "fn")
    backward = arguments["score_mod_bprop"]
    if callback is None and backward is not None:
        raise GraphError("score_mod_bprop without score_mod", node=arguments["name"], expected="both")
    expression, captured = score_mod.bind(graph, arguments["name"], callback, backward)
    if expression is not None and backward is None:
        expression = score_mod.with_gradient(expression)
        if expression is None:
            got = (
                "a score_mod whose gradient cannot be derived (several ways, or an operation without a rule)"
            )
            raise GraphError(
                "score_mod_bprop is missing", node=arguments["name"], got=got, expected="score_mod_bprop"
            )
    inputs = {
        **{p: arguments[p] for p in ("q", "k", "v", "o", "dO", "stats", "bias", "sink_token")},
        **{
            p: arguments[p]
            for p in ("seq_len_q", "seq_len_kv", "cu_seq_len_q", "cu_seq_len_kv", "block_mask")
        },
        "scale": tensor,
        "captures": captured,
        **dropped,
    }
    attrs = {
        **params.band(arguments),
        **{a: arguments[a] for a in ("use_alibi_mask", "use_padding_mask", "use_deterministic_algorithm")},
        **{a: arguments[a] for a in ("max_total_seq_len_q", "max_total_seq_len_kv")},
        "attn_scale": number,
        "dropout_probability": probability,
        "score_mod": expression,
    }
    return Bound(inputs, attrs, {p: arguments[p] for p in ("dBias", "dSink_token", "rng_dump")})


def _infer(call: Call) -> Mapping[str, Inferred]:
    sizes = check_operands(call)
    rows = (sizes.b, sizes.h_q, sizes.s_q)
    for port, dim in (("o", (*rows, sizes.d_v)), ("dO", (*rows, sizes.d_v)), ("stats", (*rows, 1))):
        require_extents(call, port, dim)
    for port in ("o", "dO"):
        require_unit_stride(call, port)
        found, wanted = call.inputs[port].data_type, call.inputs["q"].data_type
        call.require(found is wanted, "data type", port, got=found, expected=wanted)
    require_statistics(call, "stats")
    result_of = {"dQ": "q", "dK": "k", "dV": "v", "dBias": "bias", "dSink_token": "sink_token"}
    inferred = {}
    for port in call.outputs:
        if port == "rng_dump":
            inferred[port] = Inferred(sizes.scores, None, data_type.FLOAT, loose=True)
            continue
        source = call.inputs[result_of[port]]
        call.require(source is not None, "gradient of an absent tensor", port, expected=result_of[port])
        inferred[port] = Inferred(source.dim, _dense(source), None)
    return inferred


def _dense(source: Any) -> tuple[int, ...]:
    """Strides of a gradient: those of its tensor, unless the tensor broadcasts in memory."""
    broadcast = any(s == 0 and d > 1 for d, s in zip(source.dim, source.stride, strict=True))
    return row_major(source.dim) if broadcast else tuple(source.stride)


def _check(call: Call) -> None:
    for port in ("dQ", "dK", "dV"):
        require_unit_stride(call, port)
    for port in call.outputs:
        if port != "rng_dump":
            require_floating(call, port)
    if "rng_dump" in call.outputs and call.attrs.dropout_probability is None:
        raise call.refuse(
            "asked for without generated dropout", "rng_dump", expected="dropout=(probability, ...)"
        )


def _reference(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    s = scores(xp, call, arrays)
    kind = s.q.dtype.type
    o, d_o, stats = (operand(xp, call, arrays, p, s.rows) for p in ("o", "dO", "stats"))
    # A row that sees nothing has no gradient, whatever lies in dO, O and the statistics there.
    sees = xp.any(s.logits != -xp.inf, axis=3, keepdims=True)
    o, d_o, stats = (xp.where(sees, t, kind(0)) for t in (o, d_o, stats))
    p = xp.where(s.seen, xp.exp(s.logits - stats), kind(0))
    kept, factor = factors(xp, call, arrays)
    dropped = kind(factor) if kept is None else xp.where(s.seen, kept * kind(factor), kind(0))
    d_p = xp.matmul(d_o, s.v.swapaxes(2, 3)) * dropped
    delta = xp.sum(d_o * o, axis=3, keepdims=True)
    d_s = p * (d_p - delta)
    d_raw = _through_score_mod(xp, call, arrays, s, d_s)
    z = Sizes.of(call)
    found = {
        "dQ": xp.matmul(d_raw, s.k) * s.scale,
        "dK": _grouped(xp, xp.matmul(d_raw.swapaxes(2, 3), s.q) * s.scale, z.h_k),
        "dV": _grouped(xp, xp.matmul((p * dropped).swapaxes(2, 3), d_o), z.h_v),
    }
    lengths = {"dQ": s.rows, "dK": s.keys, "dV": s.keys}
    results = {port: result(xp, call, arrays, port, v, lengths[port]) for port, v in found.items()}
    if "dBias" in call.outputs:
        dim = call.outputs["dBias"].dim
        axes = tuple(a for a in range(4) if dim[a] == 1)
        results["dBias"] = xp.sum(d_s, axis=axes, keepdims=True)
    if "dSink_token" in call.outputs:
        share = xp.where(sees, xp.exp(arrays["sink_token"] - stats), kind(0))
        results["dSink_token"] = -xp.sum(share * delta, axis=(0, 2, 3), keepdims=True)
    if "rng_dump" in call.outputs:
        results["rng_dump"] = xp.asarray(kept)
    return results


def _through_score_mod(xp: ModuleType, call: Call, arrays: Mapping[str, Any], s: Scores, d_s: Any) -> Any:
    """The gradient with respect to the scaled scores."""
    expression = call.attrs.score_mod
    if expression is None:
        return d_s
    gradient = score_mod.evaluate(xp, expression, [s.raw, d_s, *(arrays["captures"] or ())])[1]
    # Where the logit is -inf the gradient is 0, also where the callback's slope is not finite.
    hidden = s.logits == -xp.inf
    return xp.where(hidden, d_s.dtype.type(0), xp.broadcast_to(gradient, d_s.shape))


def _grouped(xp: ModuleType, gradient: Any, heads: int) -> Any:
    """Sum over the query heads that share a head of K or V."""
    b, h, s, d = gradient.shape
    return xp.sum(gradient.reshape(b, heads, h // max(1, heads), s, d), axis=2)


def _cost(call: Call) -> Cost:
    return io_cost(call, 2.5 * attention_flops(call))


SDPA_BACKWARD = Op(
    name="sdpa_backward",
    inputs=(
        *OPERANDS,
        Port("o", "The forward's output, (B, Hq, Sq, Dv)."),
        Port("dO", "Gradient of the output, any strides with 1 along D."),
        Port("stats", "The forward's statistics in natural logarithm, (B, Hq, Sq, 1) FLOAT."),
        *SCORE_PORTS,
    ),
    outputs=(
        Port("dQ", "Gradient of q, by default in its strides."),
        Port("dK", "Gradient of k, summed over the query heads of a group."),
        Port("dV", "Gradient of v, summed over the query heads of a group."),
        Port("dBias", "Gradient of bias, summed over the axes that it broadcasts.", keyword=True),
        Port("dSink_token", "Gradient of sink_token, (1, Hq, 1, 1).", keyword=True),
        Port("rng_dump", "(B, Hq, Sq, Skv): 1 where dropout keeps a probability.", keyword=True),
    ),
    attrs=(*SCORE_ATTRS, Attr("use_deterministic_algorithm", False, BOOL, "The same bits in every run.")),
    infer=_infer,
    check=_check,
    reference=_reference,
    cost=_cost,
    cases=BACKWARD,
    doc=(
        "Gradients of scaled dot-product attention.\n\n"
        "Takes the forward's operands, output and statistics with the same masks and dropout. Rows that\n"
        "see no key give zero gradients. In packed buffers only live rows are written.\n"
        "(T. Dao et al., 2022, appendix B.)"
    ),
    anchor=True,
    packed=True,
    signature=(
        *(
            "q",
            "k",
            "v",
            "o",
            "dO",
            "stats",
            params.SCALE,
            "bias",
            "dBias",
            "use_alibi_mask",
            "use_padding_mask",
        ),
        *(
            "seq_len_q",
            "seq_len_kv",
            "max_total_seq_len_q",
            "max_total_seq_len_kv",
            *params.MASKS,
            "rng_dump",
        ),
        *(
            "use_deterministic_algorithm",
            "compute_data_type",
            "name",
            params.SCORE_MOD,
            params.SCORE_MOD_BPROP,
        ),
        *("sink_token", "dSink_token", "block_mask", "cu_seq_len_q", "cu_seq_len_kv", *params.ALIASES),
    ),
    bind=_bind,
)

OPS = (SDPA_BACKWARD,)
