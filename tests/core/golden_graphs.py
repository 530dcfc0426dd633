"""Representative graphs whose plans are kept in tests/golden/plans, one function per file."""

from __future__ import annotations

import frazil
from frazil import data_type, norm_forward_phase, reduction_mode, reshape_mode, scalar_type

BF16, FLOAT, HALF, INT32 = data_type.BFLOAT16, data_type.FLOAT, data_type.HALF, data_type.INT32


def _graph(io: data_type = BF16, **options: object) -> frazil.Graph:
    return frazil.Graph(
        io_data_type=io,
        intermediate_data_type=FLOAT,
        compute_data_type=FLOAT,
        target="cpu",
        **options,  # type: ignore[arg-type]
    )


def matmul_bias_gelu() -> frazil.Graph:
    """A transposed weight, and the value before the activation as a second output."""
    g = _graph()
    x, w = g.tensor((4, 128, 64), name="x"), g.tensor((1, 64, 256), (16384, 1, 64), name="w")
    pre = g.bias(g.matmul(x, w), g.tensor((1, 1, 256), name="bias"))
    pre.set_output(True).set_name("pre")
    g.gelu(pre).set_output(True).set_name("y")
    return g


def pointwise_diamond() -> frazil.Graph:
    """Two branches, a scalar given at execute and a constant."""
    g = _graph(HALF)
    x = g.tensor((8, 16, 32), (512, 1, 16), name="x")
    scale = g.tensor_scalar(0.0, scalar_type.RUNTIME_PARAM, name="scale")
    one = g.tensor_scalar(1.0, scalar_type.COMPILE_TIME_CONST, name="one")
    middle = g.mul(x, scale)
    g.div(g.tanh(middle), g.add(g.exp(middle), one)).set_output(True).set_name("y")
    return g


def reduction_chain() -> frazil.Graph:
    """x / sqrt(mean(x^2) + epsilon), written with single operations."""
    g = _graph(FLOAT)
    x = g.tensor((32, 100), (128, 1), name="x")
    epsilon = g.tensor_scalar(1e-5, scalar_type.COMPILE_TIME_CONST, name="epsilon")
    mean = g.reduction(g.mul(x, x), mode=reduction_mode.AVG, out_dims=(32, 1))
    g.mul(x, g.rsqrt(g.add(mean, epsilon))).set_output(True).set_name("y")
    return g


def conv_bias_relu() -> frazil.Graph:
    """A channels-last convolution with its epilogue."""
    g = _graph()
    x = g.tensor((2, 16, 14, 14), (3136, 1, 224, 16), name="x")
    w = g.tensor((32, 16, 3, 3), (144, 1, 48, 16), name="w")
    y = g.conv_fprop(x, w, padding=[1, 1], stride=[2, 2], dilation=[1, 1])
    g.relu(g.bias(y, g.tensor((1, 32, 1, 1), name="bias"))).set_output(True).set_name("y")
    return g


def layernorm_training() -> frazil.Graph:
    """All three outputs."""
    g = _graph()
    x, scale, bias = g.tensor((6, 256, 1, 1), name="x"), *(g.tensor((1, 256, 1, 1), name=n) for n in "sb")
    epsilon = g.tensor_scalar(1e-5, scalar_type.COMPILE_TIME_CONST, name="epsilon")
    for t in g.layernorm(norm_forward_phase.TRAINING, x, scale, bias, epsilon):
        t.set_output(True)
    return g


def rmsnorm_backward() -> frazil.Graph:
    """Gradients of input, scale and bias."""
    g = _graph()
    dy, x = g.tensor((8, 64), name="dy"), g.tensor((8, 64), name="x")
    scale = g.tensor((1, 64), name="scale")
    inverse = g.tensor((8, 1), data_type=FLOAT, name="inv_rms")
    for t in g.rmsnorm_backward(dy, x, scale, inverse, has_dbias=True):
        t.set_output(True)
    return g


def sdpa_causal_gqa() -> frazil.Graph:
    """Q in memory order (B, S, H, D), fewer KV heads, statistics for the backward."""
    g = _graph()
    q = g.tensor((2, 8, 64, 128), (65536, 128, 1024, 1), name="q")
    k, v = (g.tensor((2, 2, 64, 128), (16384, 128, 256, 1), name=n) for n in "kv")
    o, stats = g.sdpa(q, k, v, attn_scale=0.125, use_causal_mask=True, generate_stats=True)
    o.set_output(True)
    stats.set_output(True)
    return g


def sdpa_packed() -> frazil.Graph:
    """Packed sequences with a window, and a score function of two nodes."""
    g = _graph(HALF)
    offsets = g.tensor((3, 1, 1, 1), data_type=INT32, name="offsets")
    dim, stride = (2, 4, 32, 64), (8192, 64, 256, 1)
    q, k, v = (g.tensor(dim, stride, ragged_offset=offsets, name=n) for n in "qkv")
    cap = g.tensor((1, 1, 1, 1), data_type=FLOAT, is_pass_by_value=True, name="cap")
    o, _ = g.sdpa(
        q,
        k,
        v,
        attn_scale=0.125,
        generate_stats=False,
        score_mod=lambda g, score: g.mul(g.tanh(g.div(score, cap)), cap),
    )
    o.set_output(True).set_dim(dim).set_stride(stride).set_ragged_offset(offsets)
    return g


def sdpa_backward_window() -> frazil.Graph:
    """Gradients under a sliding window, bottom right."""
    g = _graph(HALF)
    q, k, v, o, do = (g.tensor((1, 4, 48, 64), name=n) for n in ("q", "k", "v", "o", "dO"))
    stats = g.tensor((1, 4, 48, 1), data_type=FLOAT, name="stats")
    for t in g.sdpa_backward(
        q, k, v, o, do, stats, attn_scale=0.125, use_causal_mask_bottom_right=True, sliding_window_length=16
    ):
        t.set_output(True)
    return g


def reshape_family() -> frazil.Graph:
    """Slice, transpose, concatenate and reshape in a row."""
    g = _graph(FLOAT)
    x, y = g.tensor((2, 6, 8), name="x"), g.tensor((2, 8, 3), name="y")
    part = g.transpose(g.slice(x, slices=[slice(0, 2), slice(1, 4), slice(0, 8)]), permutation=[0, 2, 1])
    joined = g.concatenate([part, y], axis=2)
    g.reshape(joined, reshape_mode=reshape_mode.LOGICAL, out_dims=(2, 48)).set_output(True)
    return g


def matmul_dynamic() -> frazil.Graph:
    """Declared extents are maxima."""
    g = _graph(is_dynamic_shape_enabled=True)
    x, w = g.tensor((8, 64, 32), name="x"), g.tensor((8, 32, 16), name="w")
    g.relu(g.matmul(x, w)).set_output(True).set_name("y")
    return g


GRAPHS = {
    f.__name__: f
    for f in (
        *(matmul_bias_gelu, pointwise_diamond, reduction_chain, conv_bias_relu, layernorm_training),
        *(rmsnorm_backward, sdpa_causal_gqa, sdpa_packed, sdpa_backward_window, reshape_family),
        matmul_dynamic,
    )
}
