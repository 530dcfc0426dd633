"""Attention over packed sequences (THD).

Shows: sequences of different lengths one behind the other in a single (T, H, D) buffer, with no padding
stored. The graph declares the maxima (B, H, S, D); a ragged offset says where each sequence starts, the
length tensors say how many tokens it has. Lengths and offsets are data: the same plan serves the next
batch.
"""

from itertools import pairwise

import numpy as np

import frazil

LENGTHS, MAXIMUM = [7, 30, 1, 18], 32
B, H, D = len(LENGTHS), 4, 16
SCALE = D**-0.5

graph = frazil.Graph(
    io_data_type=frazil.data_type.HALF,
    intermediate_data_type=frazil.data_type.FLOAT,
    compute_data_type=frazil.data_type.FLOAT,
    target="cpu",  # the host's reference; left out, the graph is planned for the GPU
)
starts = graph.tensor((B + 1, 1, 1, 1), data_type=frazil.data_type.INT64, name="starts")
lengths = graph.tensor((B, 1, 1, 1), data_type=frazil.data_type.INT32, name="lengths")


def packed(tensor: frazil.Tensor) -> frazil.Tensor:
    """Sequence b of the tensor starts at token `starts[b]`, which is H * D elements for each token."""
    return tensor.set_ragged_offset(starts).set_ragged_offset_multiplier(H * D)


# Within a sequence: a token is H * D elements further, a head D.
declared = {"dim": (B, H, MAXIMUM, D), "stride": (MAXIMUM * H * D, D, H * D, 1)}
q, k, v = (packed(graph.tensor(**declared, name=name)) for name in "qkv")
o, _ = graph.sdpa(
    q,
    k,
    v,
    attn_scale=SCALE,
    use_causal_mask=True,
    use_padding_mask=True,
    seq_len_q=lengths,
    seq_len_kv=lengths,
    generate_stats=False,
)
packed(o.set_dim(declared["dim"]).set_stride(declared["stride"])).set_name("o").set_output(True)
graph.build()


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention of one sequence, (tokens, H, D), in float64."""
    q, k, v = (x.astype(np.float64).swapaxes(0, 1) for x in (q, k, v))
    scores = np.where(np.tri(q.shape[1], dtype=bool), SCALE * q @ k.swapaxes(1, 2), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True) @ v).swapaxes(0, 1)


errors = []
for batch in (LENGTHS, [32, 5, 0, 9]):
    ends = np.cumsum([0, *batch])
    total = int(ends[-1])
    rng = np.random.default_rng(total)
    data = {t: rng.standard_normal((total, H, D)).astype(np.float16) for t in (q, k, v)}
    result = np.full((total, H, D), np.nan, np.float16)
    where = {
        starts: ends.astype(np.int64).reshape(starts.dim),
        lengths: np.array(batch, np.int32).reshape(lengths.dim),
    }
    graph.execute({**data, **where, o: result}, graph.empty_workspace())
    # Each sequence alone must give the same rows.
    for begin, end in pairwise(ends):
        if end > begin:
            alone = attention(*(data[t][begin:end] for t in (q, k, v)))
            errors.append(np.max(np.abs(result[begin:end] - alone)))
    print(f"lengths {batch}: {total} tokens packed, {B * MAXIMUM} if padded")
print(f"check: largest error {np.max(errors):.2e}, allowed 2.00e-03")
assert np.max(errors) <= 2e-3
