"""Inputs that broke attention libraries, on the reference: numbers are those of the list of field cases.

O1 "uniform": Q = 0 gives the mean of the visible V rows and LSE = ln(count). O2 "which keys": V = identity
makes O the probabilities. O3 "shift": a constant on every logit moves LSE alone. O4 "split": packed equals
alone. O5 "poison": every byte that is no live input is NaN (`Spec` does that for every call). O6 "replay":
the same call twice is bitwise equal.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import frazil
from tests.oracles.attention_calls import backward, call, check_backward, check_forward, forward
from tests.oracles.attention_spec import BF16, BOTTOM_RIGHT, FLOAT, HALF, TOP_LEFT, DataType, Spec

PACKED_NAMES = ("q", "k", "v", "o", "stats", "dO", "dQ", "dK", "dV")
PACKED = dict.fromkeys(PACKED_NAMES, "packed")


def normal(*dim: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32."""
    return np.random.default_rng(seed).standard_normal(dim).astype(np.float32)


def identity(batch: int, heads: int, keys: int) -> np.ndarray:
    """V whose row j is e_j (O2)."""
    return np.broadcast_to(np.eye(keys, dtype=np.float32), (batch, heads, keys, keys)).copy()


def lengths(*values: int) -> np.ndarray:
    """A seq_len operand."""
    return np.array(values, np.int32).reshape(-1, 1, 1, 1)


def padding(q: list[int], kv: list[int]) -> dict[str, Any]:
    """Arguments of a padding mask."""
    return {"use_padding_mask": True, "seq_len_q": lengths(*q), "seq_len_kv": lengths(*kv)}


def run(arguments: dict[str, Any], **types: DataType) -> tuple[np.ndarray, np.ndarray]:
    """O and Stats of a forward call."""
    found = call("sdpa", {"generate_stats": True, **arguments}, **types)
    return found["O"].astype(np.float64), found["Stats"][..., 0].astype(np.float64)


def visible(o: np.ndarray) -> list[list[int]]:
    """With V = identity: the keys that each row of one head sees."""
    return [np.flatnonzero(row).tolist() for row in o]


def seen_by(rows: int, keys: int, arguments: dict[str, Any]) -> list[list[int]]:
    """Which keys each row sees under a mask; checks O1 on the way (Q = 0: every visible key weighs the
    same).
    """
    q, k = np.zeros((1, 1, rows, 8), np.float32), normal(1, 1, keys, 8)
    o, lse = run({"q": q, "k": k, "v": identity(1, 1, keys), **arguments})
    found = visible(o[0, 0])
    for row, keys_seen in enumerate(found):
        count = len(keys_seen)
        assert lse[0, 0, row] == pytest.approx(math.log(count) if count else -math.inf, abs=1e-6)
        assert np.allclose(o[0, 0, row, keys_seen], 1 / max(count, 1), rtol=1e-6)
    return found


def band(rows: int, keys: int, left: float, right: float, shift: int = 0) -> list[list[int]]:
    """Keys j with p - left < j <= p + right, p = row + shift."""
    return [[j for j in range(keys) if i + shift - left < j <= i + shift + right] for i in range(rows)]


# C-11: order of O.


@pytest.mark.parametrize("stride", [None, "bhsd", "bshd"])
def test_c11_order_of_o(stride: str | None) -> None:
    """Q in BSHD memory order: O is inferred in that order, and both declared orders give the same values."""
    b, h, s, d = 2, 3, 4, 8
    orders = {"bhsd": (h * s * d, s * d, d, 1), "bshd": (s * h * d, d, h * d, 1)}
    graph = frazil.Graph(io_data_type=FLOAT, compute_data_type=FLOAT, target="cpu")
    arrays = [normal(b, s, h, d, seed=i).transpose(0, 2, 1, 3) for i in range(3)]
    q, k, v = (graph.tensor((b, h, s, d), orders["bshd"]) for _ in arrays)
    o, _ = graph.sdpa(q, k, v, generate_stats=False)
    o.set_output(True)
    if stride is not None:
        o.set_stride(orders[stride])
    graph.validate()
    assert o.stride == orders[stride or "bshd"]
    graph.build()
    result = np.full(b * h * s * d, np.nan, np.float32)
    strides = tuple(4 * n for n in o.stride)
    view = np.lib.stride_tricks.as_strided(result, (b, h, s, d), strides)
    graph.execute({q: arrays[0], k: arrays[1], v: arrays[2], o: view}, graph.empty_workspace())
    scores = np.einsum("bhqd,bhkd->bhqk", *arrays[:2]).astype(np.float64)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhqk,bhkd->bhqd", p / p.sum(-1, keepdims=True), arrays[2])
    assert np.allclose(view, expected, atol=1e-5)
    assert not np.isnan(result).any()


@pytest.mark.parametrize("d_v", [8, 5])
def test_c11_order_of_gradients(d_v: int) -> None:
    """Each gradient is inferred in its own operand's order."""
    b, h, s = 2, 3, 4
    graph = frazil.Graph(io_data_type=FLOAT, compute_data_type=FLOAT, target="cpu")

    def bshd(heads: int, width: int) -> frazil.Tensor:
        return graph.tensor((b, heads, s, width), (s * heads * width, width, heads * width, 1))

    q, k, v, o, d_o = bshd(h, 8), graph.tensor((b, h, s, 8)), bshd(h, d_v), bshd(h, d_v), bshd(h, d_v)
    stats = graph.tensor((b, h, s, 1), data_type=FLOAT)
    grads = graph.sdpa_backward(q, k, v, o, d_o, stats)
    for grad in grads:
        grad.set_output(True)
    graph.validate()
    assert [g.stride for g in grads] == [q.stride, k.stride, v.stride]


# C-14: rows that see nothing.


def _masked(kind: str) -> tuple[dict[str, Any], np.ndarray]:
    """Arguments for two entries of 5 rows and 3 keys, and which rows (2, 5) see nothing."""
    q, k, v = normal(2, 2, 5, 8), normal(2, 2, 3, 8, seed=1), normal(2, 2, 3, 8, seed=2)
    dead = np.zeros((2, 5), bool)
    arguments: dict[str, Any] = {"q": q, "k": k, "v": v}
    if kind == "bottom_right":
        arguments["use_causal_mask_bottom_right"] = True
        dead[:, :2] = True
    elif kind == "length":
        arguments |= padding([5, 5], [0, 3])
        dead[0] = True
    elif kind == "bias":
        bias = np.zeros((2, 1, 5, 3), np.float32)
        bias[1, 0, 2:4] = -np.inf
        arguments["bias"] = bias
        dead[1, 2:4] = True
    return arguments, dead


@pytest.mark.parametrize("kind", ["bottom_right", "length", "bias"])
def test_c14_forward(kind: str) -> None:
    arguments, dead = _masked(kind)
    o, lse = run(arguments)
    for b in range(2):
        assert np.all(o[b, :, dead[b]] == 0)
        assert np.all(lse[b, :, dead[b]] == -np.inf)
        assert np.all(np.isfinite(o[b, :, ~dead[b]])) and np.all(np.isfinite(lse[b, :, ~dead[b]]))


@pytest.mark.parametrize("poison", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("kind", ["bottom_right", "length", "bias"])
def test_c14_backward(kind: str, poison: float) -> None:
    """dQ is 0 on dead rows, and whatever dO holds there reaches no gradient."""
    arguments, dead = _masked(kind)
    found = call("sdpa", {"generate_stats": True, **arguments})
    clean = normal(2, 2, 5, 8, seed=3)
    d_o = clean.copy()
    for b in range(2):
        d_o[b, :, dead[b]] = poison
        clean[b, :, dead[b]] = 0
    common = {**arguments, "o": found["O"], "stats": found["Stats"]}
    got = call("sdpa_backward", {**common, "dO": d_o})
    want = call("sdpa_backward", {**common, "dO": clean})
    for port in ("dQ", "dK", "dV"):
        assert np.array_equal(got[port], want[port]), port
        assert np.all(np.isfinite(got[port])), port
    for b in range(2):
        assert np.all(got["dQ"][b, :, dead[b]] == 0)


def test_c14_block_mask_row() -> None:
    """A boolean mask that is false for all of a row: the block mask's form of it."""
    q, k, v = np.zeros((1, 1, 130, 8), np.float32), normal(1, 1, 130, 8), normal(1, 1, 130, 8, seed=1)
    bits = np.array([[[[0], [1]]]], np.uint8)
    o, lse = run({"q": q, "k": k, "v": v, "block_mask": bits})
    assert np.all(o[0, 0, :128] == 0) and np.all(lse[0, 0, :128] == -np.inf)
    assert np.allclose(o[0, 0, 128:], v[0, 0, :128].mean(0), atol=1e-6)
    assert np.allclose(lse[0, 0, 128:], math.log(128), atol=1e-6)


def test_c14_lowest_finite_is_no_mask() -> None:
    """A row of finfo.min is uniform over all keys (O1), not masked."""
    q, k, v = np.zeros((1, 1, 3, 8), np.float32), normal(1, 1, 5, 8), normal(1, 1, 5, 8, seed=1)
    bias = np.zeros((1, 1, 3, 5), np.float32)
    bias[0, 0, 1] = np.finfo(np.float32).min
    o, lse = run({"q": q, "k": k, "v": v, "bias": bias})
    assert np.allclose(o[0, 0, 1], v[0, 0].mean(0), atol=1e-6)
    assert lse[0, 0, 1] == pytest.approx(float(np.finfo(np.float32).min))


# C-15: alignment with S_q != S_kv.


@pytest.mark.parametrize(("rows", "keys"), [(2, 5), (5, 2), (3, 128), (1, 128), (129, 65)])
@pytest.mark.parametrize("bottom", [False, True])
def test_c15_alignment(rows: int, keys: int, bottom: bool) -> None:
    flag = "use_causal_mask_bottom_right" if bottom else "use_causal_mask"
    shift = keys - rows if bottom else 0
    assert seen_by(rows, keys, {flag: True}) == band(rows, keys, math.inf, 0, shift)


def test_c15_named_examples() -> None:
    flag = {"use_causal_mask_bottom_right": True}
    assert seen_by(2, 5, flag) == [[0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert seen_by(5, 2, flag) == [[], [], [], [0], [0, 1]]


def test_c15_own_lengths() -> None:
    """Bottom right aligns by each entry's own lengths, not by the padded maxima."""
    own = [(5, 7), (2, 7), (5, 3), (4, 4)]
    q, k = np.zeros((4, 1, 5, 8), np.float32), normal(4, 1, 7, 8)
    arguments = {"q": q, "k": k, "v": identity(4, 1, 7), "use_causal_mask_bottom_right": True}
    o, _ = run(arguments | padding([a for a, _ in own], [b for _, b in own]))
    for b, (rows, keys) in enumerate(own):
        expected = band(rows, keys, math.inf, 0, keys - rows) + [[]] * (5 - rows)
        assert visible(o[b, 0]) == expected


# C-16, C-18, C-19: windows.


@pytest.mark.parametrize("left", ["diagonal_band_left_bound", "sliding_window_length"])
def test_c16_window_without_causal_flag(left: str) -> None:
    """Right bound 0 holds without the causal flag: a window of 9 keys is [i - 8, i]."""
    arguments = {left: 9, "diagonal_band_right_bound": 0}
    assert seen_by(64, 64, arguments) == [list(range(max(0, i - 8), i + 1)) for i in range(64)]


def test_c16_causal_with_window() -> None:
    """The causal flag and a left bound go together."""
    arguments = {"use_causal_mask": True, "sliding_window_length": 9}
    assert seen_by(64, 64, arguments) == [list(range(max(0, i - 8), i + 1)) for i in range(64)]


def test_c16_left_bound_alone_is_open_to_the_right() -> None:
    assert seen_by(6, 6, {"diagonal_band_left_bound": 2}) == band(6, 6, 2, math.inf)


@pytest.mark.parametrize("left", ["diagonal_band_left_bound", "sliding_window_length"])
def test_c18_window_counts_the_row_itself(left: str) -> None:
    """A window of W sees W keys: {i - W + 1 .. i}; both names mean the same."""
    found = seen_by(6, 6, {"use_causal_mask": True, left: 3})
    assert found == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert [len(keys) for keys in found] == [1, 2, 3, 3, 3, 3]


@pytest.mark.parametrize(("rows", "keys"), [(129, 65), (65, 129), (129, 129)])
@pytest.mark.parametrize("alignment", [TOP_LEFT, BOTTOM_RIGHT])
def test_c19_two_sided_window(rows: int, keys: int, alignment: Any) -> None:
    arguments = {
        "diagonal_band_left_bound": 33,
        "diagonal_band_right_bound": 64,
        "diagonal_alignment": alignment,
    }
    shift = keys - rows if alignment is BOTTOM_RIGHT else 0
    assert seen_by(rows, keys, arguments) == band(rows, keys, 33, 64, shift)


@pytest.mark.parametrize("bounds", [(-1, -3), (None, -3), (None, -1), (-1, None), (0, 0)])
def test_c19_bad_bounds_are_refused(bounds: tuple[int | None, int | None]) -> None:
    arguments = {"diagonal_band_left_bound": bounds[0], "diagonal_band_right_bound": bounds[1]}
    with pytest.raises(frazil.GraphError, match="bound"):
        seen_by(6, 6, arguments)


# C-21: broadcast bias.


@pytest.mark.parametrize("shape", [(2, 1, 1, 2), (1, 1, 2, 2), (1, 2, 1, 2), (2, 2, 2, 2), (2, 1, 2, 1)])
def test_c21_bias_broadcasts(shape: tuple[int, int, int, int]) -> None:
    """Also dBias, reduced back to the bias's own extents."""
    spec = Spec(batch=4, heads=(4, 4, 4), rows=32, keys=16, width=(16, 16), bias=shape)
    check_forward(spec)
    check_backward(spec)


# C-37: base of the LSE.


def test_c37_natural_logarithm() -> None:
    q, k, v = np.zeros((1, 1, 2, 8), np.float32), normal(1, 1, 8, 8), normal(1, 1, 8, 8, seed=1)
    _, lse = run({"q": q, "k": k, "v": v})
    assert np.allclose(lse, math.log(8), atol=1e-6)


def test_c37_binary_logarithm_on_request() -> None:
    q, k, v = np.zeros((1, 1, 2, 8), np.float32), normal(1, 1, 8, 8), normal(1, 1, 8, 8, seed=1)
    _, lse = run({"q": q, "k": k, "v": v, "stats_use_log2": True})
    assert np.allclose(lse, 3.0, atol=1e-6)


def test_c37_capped_scores_enter_the_lse() -> None:
    """All scores are 40: with a cap of 2 the LSE is 2 tanh(20) + ln 8."""
    q, k = np.full((1, 1, 2, 1), 40, np.float32), np.ones((1, 1, 8, 1), np.float32)
    constant = frazil.scalar_type.COMPILE_TIME_CONST

    def cap(graph: Any, score: Any) -> Any:
        limit = graph.tensor_scalar(2.0, constant)
        return graph.mul(graph.tanh(graph.div(score, limit)), limit)

    _, lse = run({"q": q, "k": k, "v": k, "score_mod": cap})
    assert np.allclose(lse, 2 * math.tanh(20) + math.log(8), atol=1e-5)


# C-38: sums in half precision.


@pytest.mark.parametrize("keys", [4096, 65536])
@pytest.mark.parametrize("dtype", [HALF, BF16])
def test_c38_sums_do_not_saturate(keys: int, dtype: DataType) -> None:
    kind = {HALF: np.float16, BF16: ml_dtypes.bfloat16}[dtype]
    q, k, v = np.zeros((1, 1, 2, 8), kind), np.ones((1, 1, keys, 8), kind), np.ones((1, 1, keys, 8), kind)
    o, lse = run({"q": q, "k": k, "v": v}, dtype=dtype)
    assert np.all(o == 1)
    assert np.allclose(lse, math.log(keys), rtol=1e-6)


@pytest.mark.parametrize("dtype", [HALF, BF16])
def test_c38_gradients_do_not_saturate(dtype: DataType) -> None:
    """dV of one key under 4096 rows of dO = 1 is 4096."""
    kind = {HALF: np.float16, BF16: ml_dtypes.bfloat16}[dtype]
    rows = 4096
    q, k, one = np.zeros((1, 1, rows, 8), kind), np.ones((1, 1, 1, 8), kind), np.ones((1, 1, rows, 8), kind)
    stats = np.zeros((1, 1, rows, 1), np.float32)
    arguments = {"q": q, "k": k, "v": k, "o": one, "dO": one, "stats": stats}
    found = call("sdpa_backward", arguments, dtype=dtype)
    assert np.all(found["dV"].astype(np.float32) == 4096)


# O3, O4, O6.


@pytest.mark.parametrize("constant", [3.0, -50.0, 1000.0])
def test_shift(constant: float) -> None:
    """A constant on every logit moves LSE by it and changes nothing else, also where exp of a logit
    overflows.
    """
    q, k, v, d_o = (normal(2, 2, s, 8, seed=i) for i, s in enumerate((5, 7, 7, 5)))
    arguments = {"q": q, "k": k, "v": v, "attn_scale": 0.3}
    bias = np.full((1, 1, 5, 7), constant, np.float32)
    plain, moved = (
        call("sdpa", {"generate_stats": True, **a}) for a in (arguments, {**arguments, "bias": bias})
    )
    assert np.allclose(plain["O"], moved["O"], atol=2e-4 * max(1, abs(constant) / 1000))
    assert np.allclose(moved["Stats"] - plain["Stats"], constant, rtol=1e-6, atol=1e-5)
    first, second = (
        call("sdpa_backward", {**a, "o": f["O"], "dO": d_o, "stats": f["Stats"]})
        for a, f in ((arguments, plain), ({**arguments, "bias": bias}, moved))
    )
    for port in first:
        assert np.allclose(first[port], second[port], atol=1e-3), port


def test_split() -> None:
    """Every sequence of a packed call equals the same sequence alone."""
    spec = Spec(
        batch=4,
        heads=(4, 2, 1),
        rows=9,
        keys=11,
        lengths_q=(9, 1, 0, 5),
        lengths_kv=(3, 11, 4, 5),
        layout=PACKED,
        window={"use_causal_mask_bottom_right": True},
    )
    together = check_forward(spec)
    for b, (of_q, of_kv) in enumerate(zip(spec.live_q, spec.live_kv, strict=True)):
        if of_q == 0:
            continue
        alone = {
            name: together.inputs[name].flat[together.inputs[name].entry(b, n)][None].copy()
            for name, n in (("q", of_q), ("k", of_kv), ("v", of_kv))
        }
        o, lse = run({**alone, "attn_scale": 0.4, "use_causal_mask_bottom_right": True})
        placed, stats = together.outputs["O"], together.outputs["Stats"]
        assert np.allclose(placed.flat[placed.entry(b, of_q)], o[0], atol=1e-6)
        assert np.allclose(stats.flat[stats.entry(b, of_q)][..., 0], lse[0], atol=1e-6)


@pytest.mark.parametrize("make", [forward, backward])
def test_replay(make: Any) -> None:
    """The same call twice is bitwise equal, dropout included."""
    spec = Spec(rows=20, keys=30, dropout=0.3, bias=(1, 2, 2, 2), sink=True)
    first, second = make(spec).run(), make(spec).run()
    for name, placed in first.outputs.items():
        assert np.array_equal(placed.flat.view(np.uint8), second.outputs[name].flat.view(np.uint8)), name
