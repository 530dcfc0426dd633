"""Backward attention: features against autograd, finite differences in float64, dO of any strides,
refusals.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from frazil.op import Case
from tests import harness
from tests.ops.test_sdpa import FEATURES, GAPS
from tests.oracles import attention_cases
from tests.oracles.attention_calls import backward, call, check_backward, close
from tests.oracles.attention_spec import DOUBLE, HALF, DataType, Spec


@pytest.mark.parametrize(("name", "case"), harness.cases("sdpa_backward"))
def test_case(name: str, case: Case) -> None:
    made = harness.setup(name, case, np.random.default_rng(8))
    attention_cases.store_forward(made)
    results = harness.run(made)
    expected, floors = attention_cases.sdpa_backward(made), attention_cases.floors(made)
    for port, result in results.items():
        dtype = made.outputs[port].data_type
        close(result, expected[port], dtype, f"{case.name}/{port}", case.compute, floors.get(port, 0.0))


@pytest.mark.parametrize("spec", [pytest.param(s, id=n) for n, s in FEATURES.items()])
def test_feature(spec: Spec) -> None:
    check_backward(spec)


@pytest.mark.parametrize("spec", [Spec(rows=9, keys=12), GAPS])
def test_deterministic_flag_changes_nothing(spec: Spec) -> None:
    """The reference is deterministic with and without it."""
    plain = backward(spec).run()
    flagged = backward(replace(spec, window={"use_deterministic_algorithm": True})).run()
    for name, placed in plain.outputs.items():
        assert np.array_equal(placed.bound, flagged.outputs[name].bound, equal_nan=True)


# Forward and backward together: what the forward stores is what the backward needs.


def padded(of_q: list[int], of_kv: list[int]) -> dict[str, Any]:
    """Arguments of a padding mask."""
    q, kv = (np.array(n, np.int32).reshape(-1, 1, 1, 1) for n in (of_q, of_kv))
    return {"use_padding_mask": True, "seq_len_q": q, "seq_len_kv": kv}


def _normal(*dim: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dim)


CHAINS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal_window": {"use_causal_mask": True, "sliding_window_length": 3},
    "bottom_right": {"use_causal_mask_bottom_right": True},
    "padded": padded([5, 2], [3, 7]),
    "alibi": {"use_alibi_mask": True, "use_causal_mask": True},
    "bias": {"bias": _normal(1, 4, 5, 7, seed=9)},
    "bias_keys_only": {"bias": _normal(2, 1, 1, 7, seed=9)},
    "sink": {"sink_token": _normal(1, 4, 1, 1, seed=8)},
    "dropout": {"dropout": (0.3, np.full((1, 1, 1, 1), 77, np.int64), np.full((1, 1, 1, 1), 5, np.int64))},
}


@pytest.mark.parametrize("name", CHAINS)
def test_finite_differences(name: str) -> None:
    """Central differences of sum(dO * O) in float64, through the public forward, in every direction of a
    random set.
    """
    arrays = {
        "q": _normal(2, 4, 5, 6, seed=1),
        "k": _normal(2, 2, 7, 6, seed=2),
        "v": _normal(2, 1, 7, 3, seed=3),
        **CHAINS[name],
    }
    d_o = _normal(2, 4, 5, 3, seed=4)
    fixed = {"attn_scale": 0.4}
    types: dict[str, DataType] = {"dtype": DOUBLE, "compute": DOUBLE}

    def stored_for(changed: dict[str, Any]) -> dict[str, np.ndarray]:
        arguments = {**fixed, "generate_stats": True, **changed}
        return call("sdpa", arguments, {"Stats": ((2, 4, 5, 1), DOUBLE)}, **types)

    def objective(changed: dict[str, Any]) -> float:
        return float((d_o * stored_for(changed)["O"]).sum())

    stored = stored_for(arrays)
    given = {}
    if "bias" in arrays:
        given["dBias"] = (arrays["bias"].shape, DOUBLE)
    if "sink_token" in arrays:
        given["dSink_token"] = ((1, 4, 1, 1), DOUBLE)
    grads = call(
        "sdpa_backward",
        {**fixed, **arrays, "o": stored["O"], "dO": d_o, "stats": stored["Stats"]},
        given,
        **types,
    )
    step = 1e-5
    wrt = {"q": "dQ", "k": "dK", "v": "dV", "bias": "dBias", "sink_token": "dSink_token"}
    for operand, port in wrt.items():
        if operand not in arrays:
            continue
        for trial in range(3):
            direction = _normal(*arrays[operand].shape, seed=100 + trial)
            up, down = (
                objective({**arrays, operand: arrays[operand] + s * direction}) for s in (step, -step)
            )
            expected = (up - down) / (2 * step)
            assert (grads[port] * direction).sum() == pytest.approx(expected, rel=1e-7, abs=1e-8), port


# C-07: dO as frameworks hand it over.


def _d_o(kind: str, dim: tuple[int, ...]) -> np.ndarray:
    b, h, s, d = dim
    base = _normal(*dim, seed=5).astype(np.float16)
    if kind == "expanded_ones":
        return np.broadcast_to(np.ones((1, 1, 1, 1), np.float16), dim)
    if kind == "bshd":
        return np.ascontiguousarray(base.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    if kind == "chunk":
        wide = np.full((b, h, s, 3 * d), np.nan, np.float16)
        wide[..., d : 2 * d] = base
        return wide[..., d : 2 * d]
    return base


@pytest.mark.parametrize("kind", ["bshd", "chunk"])
def test_strides_of_d_o(kind: str) -> None:
    """Bitwise equal to the same values in row-major order."""
    dim = (2, 4, 4, 16)
    q, o = (_normal(*dim, seed=i).astype(np.float16) for i in range(2))
    k, v = (_normal(2, 4, 3, 16, seed=i).astype(np.float16) for i in (2, 3))
    stats = np.full((2, 4, 4, 1), 3, np.float32)
    common = {"q": q, "k": k, "v": v, "o": o, "stats": stats, "attn_scale": 0.25}
    d_o = _d_o(kind, dim)
    want = call("sdpa_backward", {**common, "dO": np.ascontiguousarray(d_o)}, dtype=HALF)
    got = call("sdpa_backward", {**common, "dO": d_o}, dtype=HALF)
    for port in want:
        assert np.array_equal(want[port].view(np.uint16), got[port].view(np.uint16)), port


def test_three_part_dropout_mask() -> None:
    """(mask, scale, inverse of scale), as existing code passes it, means (mask, scale)."""
    q, k, v, o, d_o = (_normal(2, 2, n, 8, seed=i).astype(np.float32) for i, n in enumerate((5, 7, 7, 5, 5)))
    stats = np.full((2, 2, 5, 1), 9, np.float32)
    mask = np.random.default_rng(3).integers(0, 2, (2, 2, 5, 7)).astype(np.float32)
    scale, inverse = (np.full((1, 1, 1, 1), x, np.float32) for x in (1.25, 0.8))
    common = {"q": q, "k": k, "v": v, "o": o, "dO": d_o, "stats": stats}
    two = call("sdpa_backward", {**common, "dropout": (mask, scale)})
    three = call("sdpa_backward", {**common, "dropout": (mask, scale, inverse)})
    for port in two:
        assert np.array_equal(two[port], three[port]), port
