"""Field reports about graphs, plans, buffers and installation that need no GPU, each with the inputs
reported.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import frazil
from frazil import data_type, norm_forward_phase, reduction_mode, scalar_type
from frazil.dtypes import cast, numpy_dtype

from ..core.helpers import add_graph, execute, graph, poison, refused, untouched

BF16, FLOAT, HALF = data_type.BFLOAT16, data_type.FLOAT, data_type.HALF


def attention_oracle(q: Any, k: Any, v: Any, scale: float) -> np.ndarray:
    """softmax(scale Q K^T) V in float64, with query heads grouped over KV heads."""
    q, k, v = (np.asarray(t).astype(np.float64) for t in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(t, group, axis=1) for t in (k, v))
    s = scale * q @ k.swapaxes(2, 3)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, dtype: data_type) -> tuple[int, Any]:
    """Key of the graph and result of attention over arrays in their own layouts."""
    g = frazil.Graph(io_data_type=dtype, compute_data_type=FLOAT, target="cpu")
    size = numpy_dtype(dtype).itemsize
    t = [g.tensor(a.shape, [s // size for s in a.strides], name=n) for n, a in (("q", q), ("k", k), ("v", v))]
    o, _ = g.sdpa(*t, attn_scale=scale, generate_stats=False)
    o.set_output(True)
    g.validate()
    out = poison(*o.dim, dtype=numpy_dtype(dtype))
    execute(g, {t[0]: q, t[1]: k, t[2]: v, o: out})
    return g.key(), out


@pytest.mark.parametrize("order", [1, -1], ids=["contiguous first", "contiguous last"])
def test_c01_layout_and_type_are_part_of_the_plan(order: int, rng: Any) -> None:
    def rounded(*dim: int) -> np.ndarray:
        return cast(rng.standard_normal(dim), BF16)

    q, kv, bshd = rounded(2, 4, 128, 64), rounded(2, 128, 2, 2, 64), rounded(2, 128, 2, 64)
    interleaved = kv[:, :, 0].transpose(0, 2, 1, 3), kv[:, :, 1].transpose(0, 2, 1, 3)
    contiguous = tuple(np.ascontiguousarray(t) for t in interleaved)
    permuted = bshd.transpose(0, 2, 1, 3), contiguous[1]
    half = tuple(cast(t.astype(np.float32), HALF) for t in (q, *contiguous))
    calls = [(q, *contiguous, BF16), (q, *interleaved, BF16), (q, *permuted, BF16), (*half, HALF)]
    keys = set()
    for *arrays, dtype in calls[::order]:
        key, out = attention(*arrays, 0.125, dtype)
        keys.add(key)
        np.testing.assert_allclose(
            out.astype(np.float64), attention_oracle(*arrays, 0.125), rtol=2**-8, atol=2e-5
        )
    assert len(keys) == len(calls)


def test_c02_a_scale_is_part_of_the_plan(rng: Any) -> None:
    q, k, v = (cast(rng.standard_normal((1, 2, 32, 128)), BF16) for _ in range(3))
    keys = set()
    for scale in (128**-0.5, 3 * 128**-0.5):
        key, out = attention(q, k, v, scale, BF16)
        keys.add(key)
        np.testing.assert_allclose(
            out.astype(np.float64), attention_oracle(q, k, v, scale), rtol=2**-8, atol=2e-5
        )
    assert len(keys) == 2


@pytest.mark.parametrize("m", [1, 7])
@pytest.mark.parametrize("odd", [(0, 0, 0), (99, 5, 3), (1, 1, 1)], ids=str)
def test_c05_strides_of_axes_of_extent_1_do_not_matter(odd: tuple[int, int, int], m: int, rng: Any) -> None:
    va, vb = (
        rng.standard_normal((1, m, 1)).astype(np.float32),
        rng.standard_normal((1, 1, 5)).astype(np.float32),
    )
    results = []
    for a_stride, b_stride in (((m, 1, 1), (5, 5, 1)), ((odd[0], 1, odd[1]), (odd[2], odd[0], 1))):
        g = graph()
        a, b = g.tensor((1, m, 1), a_stride), g.tensor((1, 1, 5), b_stride)
        c = g.matmul(a, b).set_output(True)
        out = poison(1, m, 5)
        g.execute({a: va, b: vb, c: out})
        views = [
            np.lib.stride_tricks.as_strided(v, v.shape, [4 * s for s in stride])
            for v, stride in ((va, a_stride), (vb, b_stride))
        ]
        again = poison(1, m, 5)
        g.execute({a: views[0], b: views[1], c: again})
        results += [out, again]
    for result in results:
        np.testing.assert_array_equal(result, va @ vb)


def test_c05_channels_last_of_one_channel(rng: Any) -> None:
    image, weight = (rng.standard_normal(d).astype(np.float32) for d in ((1, 1, 5, 5), (2, 1, 3, 3)))
    expected = torch.nn.functional.conv2d(*(torch.from_numpy(t).double() for t in (image, weight))).numpy()
    for stride in ((25, 25, 5, 1), (25, 1, 5, 1), (1, 77, 5, 1)):
        g = graph()
        x, w = g.tensor(image.shape, stride), g.tensor(weight.shape, (9, 1, 3, 1))
        y = g.conv_fprop(x, w, padding=[0, 0], stride=[1, 1], dilation=[1, 1]).set_output(True)
        out = poison(1, 2, 3, 3)
        g.execute({x: image, w: weight, y: out})
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_c06_an_inferred_output_has_no_stride_0(rng: Any) -> None:
    q = np.broadcast_to(cast(rng.standard_normal((2, 1, 128, 64)), BF16), (2, 4, 128, 64))
    k = np.broadcast_to(cast(rng.standard_normal((1, 1, 128, 64)), BF16), (2, 4, 128, 64))
    _, out = attention(q, k, k, 0.125, BF16)
    np.testing.assert_allclose(
        out.astype(np.float64), attention_oracle(q, k, k, 0.125), rtol=2**-8, atol=2e-5
    )
    for op in ("relu", "neg", "identity"):
        g = graph()
        y = getattr(g, op)(g.tensor((2, 4, 8), (0, 0, 1))).set_output(True)
        g.validate()
        assert y.stride[-1] == 1
        assert 0 not in y.stride


def test_c11_outputs_keep_the_memory_order_of_their_input() -> None:
    g = graph()
    y = g.relu(g.tensor((2, 4, 8, 16), (512, 16, 64, 1))).set_output(True)
    g.validate()
    assert y.stride == (512, 16, 64, 1)
    o, _ = g.sdpa(
        *(g.tensor((2, 4, 8, 16), (512, 16, 64, 1)) for _ in range(3)), attn_scale=1.0, generate_stats=False
    )
    o.set_output(True)
    g.validate()
    assert o.stride == (512, 16, 64, 1)


@pytest.mark.parametrize("dtype", [HALF, BF16], ids=lambda d: d.name)
@pytest.mark.parametrize("count", [4096, 65536])
def test_c38_sums_do_not_saturate(dtype: data_type, count: int) -> None:
    kind = numpy_dtype(dtype)
    g = frazil.Graph(io_data_type=dtype, compute_data_type=FLOAT, target="cpu")
    x, w = g.tensor((1, count), name="x"), g.tensor((count, 1), name="w")
    total = g.reduction(x, mode=reduction_mode.ADD, out_dims=(1, 1)).set_output(True).set_data_type(FLOAT)
    mean = g.reduction(x, mode=reduction_mode.AVG, out_dims=(1, 1)).set_output(True)
    product = g.matmul(x, w).set_output(True).set_data_type(FLOAT)
    outs = {total: poison(1, 1), mean: np.zeros((1, 1), kind), product: poison(1, 1)}
    g.execute({x: np.ones((1, count), kind), w: np.ones((count, 1), kind), **outs})
    assert [float(v.item()) for v in outs.values()] == [count, 1, count]


def test_c38_attention_and_norm_over_equal_elements() -> None:
    ones = np.ones((1, 1, 4096, 8), numpy_dtype(HALF))
    _, out = attention(np.zeros((1, 1, 2, 8), numpy_dtype(HALF)), ones, ones, 1.0, HALF)
    assert (out == 1).all()
    g = frazil.Graph(io_data_type=HALF, compute_data_type=FLOAT, target="cpu")
    x, scale = g.tensor((1, 8192)), g.tensor((1, 8192))
    epsilon = g.tensor_scalar(0.0, scalar_type.COMPILE_TIME_CONST)
    y, inverse = g.rmsnorm(norm_forward_phase.TRAINING, x, scale, None, epsilon)
    y.set_output(True)
    inverse.set_output(True)
    g.validate()
    pack = {t: np.zeros(t.dim, numpy_dtype(t.data_type)) for t in (y, inverse)}
    g.execute(
        {x: np.full((1, 8192), 3, np.float16), scale: np.ones((1, 8192), np.float16), **pack},
        g.build() or g.empty_workspace(),
    )
    assert (pack[y] == 1).all()
    np.testing.assert_allclose(pack[inverse], 1 / 3, rtol=1e-6)


def test_c56_sixteen_threads_build_and_execute_one_graph() -> None:
    g, a, b, y = add_graph((64, 64))
    barrier = threading.Barrier(16)

    def work(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        va, vb = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
        out = poison(64, 64)
        barrier.wait()
        for _ in range(10):
            g.execute({a: va, b: vb, y: out})
        return bool((out == va + vb).all())

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


@pytest.mark.parametrize("kind", ["head size", "architecture", "head counts"])
def test_c65_a_refusal_says_why(kind: str) -> None:
    g = frazil.Graph(io_data_type=HALF, target="sm_90" if kind != "head counts" else "cpu")
    d, heads = (7, 4) if kind == "head size" else (64, 4)
    kv_heads = 3 if kind == "head counts" else 2
    q, k, v = (g.tensor((2, h, 16, d), name=n) for n, h in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
    o, _ = g.sdpa(q, k, v, attn_scale=1.0, generate_stats=False, name="attention")
    o.set_output(True)
    if kind == "head counts":  # the graph itself is wrong
        refused(g.build, "attention", "'k'", "3", "4")
        return
    error = refused(g.build, "sdpa", "sm_90", "reference", "served", error=frazil.NotSupported).value
    assert type(error) is frazil.cudnnGraphNotSupportedError
    assert {d.engine for d in error.declines} == {e.name for e in frazil.catalog.ENTRIES}
    assert all(d.reason for d in error.declines)


def test_c66_broadcast_over_a_trailing_axis_of_extent_1() -> None:
    g = graph()
    a, b = g.tensor((1, 2, 2), (4, 2, 1)), g.tensor((1, 2, 1), (2, 1, 1))
    y = g.add(a, b).set_output(True)
    out = poison(1, 2, 2)
    g.execute({a: np.array([[[1, 2], [3, 4]]], np.float32), b: np.array([[[10], [20]]], np.float32), y: out})
    assert out.tolist() == [[[11, 12], [23, 24]]]


def layernorm_then_mul() -> tuple[frazil.Graph, dict[str, Any]]:
    """The graph of the report, with every uid set."""
    g = graph()
    t = {
        "x": g.tensor((4, 8), name="x", uid=10),
        "scale": g.tensor((1, 8), name="scale", uid=11),
        "bias": g.tensor((1, 8), name="bias", uid=12),
        "gate": g.tensor((4, 8), name="gate", uid=13),
    }
    epsilon = g.tensor_scalar(1e-5, scalar_type.COMPILE_TIME_CONST)
    t["norm"], t["mean"], t["inv"] = g.layernorm(
        norm_forward_phase.TRAINING, t["x"], t["scale"], t["bias"], epsilon
    )
    t["y"] = g.mul(t["norm"], t["gate"]).set_output(True).set_name("y").set_uid(20)
    return g, t


def test_c68_virtual_statistics_need_no_buffer() -> None:
    g, t = layernorm_then_mul()
    g.validate()
    assert t["mean"].is_virtual
    pack = {t[n]: np.ones(t[n].dim, np.float32) for n in ("x", "scale", "bias", "gate")}
    out = poison(4, 8)
    execute(g, {**pack, t["y"]: out})
    assert (out == 1).all()


@pytest.mark.parametrize("name", ["x", "scale", "bias", "gate", "y"])
@pytest.mark.parametrize("fault", ["missing", "too small", "on a device", "another type"])
def test_c68_a_wrong_buffer_is_named_with_declared_and_given(name: str, fault: str) -> None:
    g, t = layernorm_then_mul()
    g.build()
    pack = {n: np.ones(t[n].dim, np.float32) for n in ("x", "scale", "bias", "gate")}
    out = poison(4, 8)
    pack["y"] = out
    words = {
        "missing": ["missing"],
        "too small": ["size", "7 elements"],
        "on a device": ["device", "meta", "cpu"],
        "another type": ["BFLOAT16", "FLOAT"],
    }[fault]
    if fault == "missing":
        del pack[name]
    else:
        pack[name] = {
            "too small": np.ones(7, np.float32),
            "on a device": torch.ones(t[name].dim, device="meta"),
            "another type": torch.ones(t[name].dim, dtype=torch.bfloat16),
        }[fault]
    refused(lambda: g.execute(pack, g.empty_workspace()), f"'{name}'", f"uid {t[name].uid}", *words)
    assert untouched(out)


def test_c68_zero_extents_are_no_work() -> None:
    for dim, stride in (((0, 8), (8, 1)), ((4, 0), (0, 1)), ((0, 0), (1, 1)), ((0, 5), (100, 7))):
        g = graph()
        x = g.tensor(dim, stride)
        y = g.relu(x).set_output(True)
        assert g.problem.tensors[0].span == 0
        g.execute({x: np.zeros(dim, np.float32), y: np.zeros(dim, np.float32)})
        g.execute({x: torch.empty(dim), y: torch.empty(dim)})


def test_c68_statistics_of_a_narrow_type_are_refused_or_right(rng: Any) -> None:
    g = frazil.Graph(io_data_type=BF16, compute_data_type=FLOAT, target="cpu")
    q, k, v = (g.tensor((1, 2, 4, 8), name=n) for n in "qkv")
    o, stats = g.sdpa(q, k, v, attn_scale=1.0, generate_stats=True, name="attention")
    o.set_output(True)
    stats.set_output(True).set_data_type(BF16)
    refused(g.validate, "attention", "BFLOAT16", "FLOAT")


def test_c71_names_do_not_change_under_a_plan() -> None:
    g, a, b, y = add_graph((4,))
    g.sub(y, b).set_output(True).set_name("z")
    g.build()
    for change in (lambda: a.set_name("b"), lambda: b.set_name("a"), lambda: setattr(a, "name", "b")):
        refused(change, "planned", error=frazil.StateError)
    a.set_name("a")
    one, two = np.full(4, 1, np.float32), np.full(4, 2, np.float32)
    outs = {"y": poison(4), "z": poison(4)}
    g.execute({"a": one, "b": two, **outs}, g.empty_workspace())
    assert outs["y"].tolist() == [3] * 4
    assert outs["z"].tolist() == [1] * 4
