"""A matrix product with bias and GELU as one graph.

Shows: declaring tensors, chaining operations, an output of another type than the inputs, and one `execute`
for the whole chain. Values between the nodes are virtual: they have no buffer of the caller's, only a share
of the workspace.
"""

from math import erf

import ml_dtypes
import numpy as np

import frazil

BATCH, M, N, K = 2, 64, 96, 128

# target="cpu" runs the reference on the host, so that this works anywhere; left out, the graph is planned for
# the GPU.
graph = frazil.Graph(
    io_data_type=frazil.data_type.BFLOAT16,
    intermediate_data_type=frazil.data_type.FLOAT,
    compute_data_type=frazil.data_type.FLOAT,
    target="cpu",
)
x = graph.tensor((BATCH, M, K), name="x")
weight = graph.tensor((1, K, N), name="weight")  # a batch axis of extent 1 broadcasts
bias = graph.tensor((1, 1, N), name="bias")
y = graph.gelu(graph.bias(graph.matmul(x, weight), bias))
y.set_name("y").set_data_type(frazil.data_type.FLOAT).set_output(True)

graph.build()  # validate, plan, build; execute() is then only a launch
print(f"plan: {graph.selected_engine}, {graph.get_workspace_size()} bytes of workspace")
print(f"y: {y.dim} {y.data_type.name}")

rng = np.random.default_rng(0)
data = {t: rng.standard_normal(t.dim).astype(ml_dtypes.bfloat16) for t in (x, weight, bias)}
result = np.empty(y.dim, np.float32)
graph.execute({**data, y: result}, graph.empty_workspace())

# The same in float64, with nothing of Frazil's.
a, b, c = (data[t].astype(np.float64) for t in (x, weight, bias))
z = a @ b + c
expected = 0.5 * z * (1 + np.vectorize(erf)(z / np.sqrt(2)))
error = np.max(np.abs(result - expected))
print(f"check: largest error {error:.2e}, allowed 1.00e-04")
assert error <= 1e-4
