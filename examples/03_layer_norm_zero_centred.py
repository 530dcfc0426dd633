"""Layer norm with a zero-centred gamma, forward and backward.

Shows: y = (x - mean) / std * (gamma + 1) + beta, where gamma + 1 is a pointwise node that feeds the norm's
scale; the statistics that the forward hands to the backward; several outputs of one graph. The gradients
are checked by finite differences of a float64 formula.
"""

import numpy as np

import frazil

ROWS, WIDTH, EPSILON = 12, 40, 1e-5

graph = frazil.Graph(io_data_type=frazil.data_type.FLOAT, target="cpu")
x, dy = graph.tensor((ROWS, WIDTH, 1, 1), name="x"), graph.tensor((ROWS, WIDTH, 1, 1), name="dy")
gamma, beta = graph.tensor((1, WIDTH, 1, 1), name="gamma"), graph.tensor((1, WIDTH, 1, 1), name="beta")

# Numbers that belong to the graph; a RUNTIME_PARAM would be given at execute.
constant = frazil.scalar_type.COMPILE_TIME_CONST
scale = graph.add(gamma, graph.tensor_scalar(1.0, constant))
epsilon = graph.tensor_scalar(EPSILON, constant)

y, mean, inv_std = graph.layernorm(
    norm_forward_phase=frazil.norm_forward_phase.TRAINING, input=x, scale=scale, bias=beta, epsilon=epsilon
)
dx, dgamma, dbeta = graph.layernorm_backward(dy, x, scale, mean, inv_std)
outputs = {"y": y, "dx": dx, "dgamma": dgamma, "dbeta": dbeta}
for name, tensor in outputs.items():
    tensor.set_name(name).set_output(True)
graph.build()
print(
    f"plan: {graph.selected_engine}; {len(graph.nodes)} nodes, workspace {graph.get_workspace_size()} bytes"
)

rng = np.random.default_rng(0)
given = {t.name: rng.standard_normal(t.dim).astype(np.float32) for t in (x, dy, gamma, beta)}
results = {name: np.empty(tensor.dim, np.float32) for name, tensor in outputs.items()}
graph.execute({**given, **results}, graph.empty_workspace())


def formula(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """The forward in the type of its arguments."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON) * (gamma + 1) + beta


exact = {name: array.astype(np.float64) for name, array in given.items()}
weight = exact.pop("dy")
error = {"y": np.max(np.abs(results["y"] - formula(**exact)))}
for name in ("x", "gamma", "beta"):
    # Derivative of sum(dy * y) in a random direction: a central difference, against <gradient, direction>.
    direction, step = rng.standard_normal(exact[name].shape), 1e-5
    ahead, behind = ({**exact, name: exact[name] + s * step * direction} for s in (1, -1))
    difference = np.sum(weight * (formula(**ahead) - formula(**behind))) / (2 * step)
    error[f"d{name}"] = abs(np.sum(results[f"d{name}"] * direction) - difference) / np.linalg.norm(direction)
print(f"check: errors {', '.join(f'{k} {v:.1e}' for k, v in error.items())}, allowed 1.0e-05")
assert all(e <= 1e-5 for e in error.values())
