"""Causal attention with grouped heads (GQA).

Shows: an attention node with several query heads to each head of K and V, operands that lie in memory as
tokens x heads (BSHD) while the graph speaks of (B, H, S, D), and the log-sum-exp of each row as a second
output.
"""

import numpy as np

import frazil

B, HQ, HKV, S, D = 2, 8, 2, 48, 32
SCALE = D**-0.5

graph = frazil.Graph(
    io_data_type=frazil.data_type.HALF,
    intermediate_data_type=frazil.data_type.FLOAT,
    compute_data_type=frazil.data_type.FLOAT,
    target="cpu",  # the host's reference; left out, the graph is planned for the GPU
)


def bshd(heads: int, name: str) -> frazil.Tensor:
    """(B, heads, S, D) whose memory order is batch, token, head, channel."""
    return graph.tensor((B, heads, S, D), (S * heads * D, D, heads * D, 1), name=name)


q, k, v = bshd(HQ, "q"), bshd(HKV, "k"), bshd(HKV, "v")
o, stats = graph.sdpa(q, k, v, attn_scale=SCALE, use_causal_mask=True, generate_stats=True)
o.set_name("o").set_output(True)
stats.set_name("stats").set_data_type(frazil.data_type.FLOAT).set_output(True)
graph.build()
print(f"o: {o.dim} with strides {o.stride}: the memory order of q; stats: {stats.dim}")

# Buffers are made as (B, S, H, D) and bound as (B, H, S, D) views: no copy.
rng = np.random.default_rng(0)
data = {
    t: rng.standard_normal((B, S, t.dim[1], D)).astype(np.float16).transpose(0, 2, 1, 3) for t in (q, k, v)
}
o_buffer = np.empty((B, S, HQ, D), np.float16).transpose(0, 2, 1, 3)
lse_buffer = np.empty((B, HQ, S, 1), np.float32)
graph.execute({**data, o: o_buffer, stats: lse_buffer}, graph.empty_workspace())

# The same in float64: query head h reads head h // (HQ // HKV) of K and V, and keys up to its own position.
q64, k64, v64 = (data[t].astype(np.float64) for t in (q, k, v))
k64, v64 = (x.repeat(HQ // HKV, axis=1) for x in (k64, v64))
scores = np.where(np.tri(S, dtype=bool), SCALE * q64 @ k64.swapaxes(2, 3), -np.inf)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
o_error = np.max(np.abs(o_buffer - weights / total @ v64))
lse_error = np.max(np.abs(lse_buffer - (scores.max(axis=-1, keepdims=True) + np.log(total))))
print(f"check: largest error {o_error:.2e} of o, allowed 2e-03; {lse_error:.2e} of stats, allowed 1e-05")
assert o_error <= 2e-3 and lse_error <= 1e-5
