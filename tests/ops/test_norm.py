"""Norms against torch in float64: every case, true statistics against autograd, conventions (C-69, C-49),
refusals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import frazil
from frazil import GraphError, data_type, norm_forward_phase
from frazil.op import Arg, Case
from tests import harness
from tests.layouts import layout

torch = pytest.importorskip("torch", reason="torch is the oracle")
oracle = pytest.importorskip("tests.oracles.norm", reason="torch is the oracle")

TRAINING = norm_forward_phase.TRAINING
FLOAT = data_type.FLOAT


@pytest.mark.parametrize("name, case", harness.cases("layernorm", "rmsnorm"))
def test_forward(name: str, case: Case, rng: np.random.Generator) -> None:
    harness.check(name, case, oracle.forward, rng)


@pytest.mark.parametrize("name, case", harness.cases("layernorm_backward", "rmsnorm_backward"))
def test_backward(name: str, case: Case, rng: np.random.Generator) -> None:
    harness.check(name, case, oracle.backward, rng)


@pytest.mark.parametrize("seed", range(80))
def test_fuzz(seed: int) -> None:
    """Random extents, normalised axes, strides, types and absent parameters, forward and backward."""
    rng = np.random.default_rng(seed)
    dtype = data_type(rng.choice([FLOAT, data_type.HALF, data_type.BFLOAT16]))
    dim = tuple(int(d) for d in rng.integers(1, 7, rng.integers(2, 5)))
    first = int(rng.integers(1, len(dim)))
    parameter = tuple(1 if a < first else d for a, d in enumerate(dim))
    centred, backward = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    x = Arg(dim, stride=layout(rng, dim))
    scale = Arg(parameter, stride=layout(rng, parameter), fill="positive") if rng.random() < 0.8 else None
    name = ("layernorm" if centred else "rmsnorm") + ("_backward" if backward else "")
    if backward:
        saved = Arg(tuple(d if a < first else 1 for a, d in enumerate(dim)), FLOAT, fill="positive")
        args = {"grad": Arg(dim, stride=layout(rng, dim)), "input": x, "scale": scale, "inv_variance": saved}
        args |= {"mean": Arg(saved.dim, FLOAT)} if centred else {"has_dbias": bool(rng.random() < 0.5)}
    else:
        bias = Arg(parameter, stride=layout(rng, parameter)) if rng.random() < 0.7 else None
        epsilon = Arg((1,) * len(dim), FLOAT, fill=("values", 1e-2), by_value=bool(rng.random() < 0.5))
        args = {"norm_forward_phase": TRAINING, "input": x, "scale": scale, "bias": bias, "epsilon": epsilon}
        if scale is None and bias is None:
            first = 1
    try:
        harness.check(
            name, Case("fuzz", args, data_type=dtype), oracle.backward if backward else oracle.forward, rng
        )
    except Exception:
        print(f"rerun: pytest tests/ops/test_norm.py -k 'test_fuzz and {seed}'")
        raise


def graph(dtype: data_type = FLOAT) -> frazil.Graph:
    return frazil.Graph(io_data_type=dtype, compute_data_type=dtype, target="cpu")


def run(g: frazil.Graph, pack: dict[Any, np.ndarray], outputs: list[frazil.Tensor]) -> list[np.ndarray]:
    g.build()
    made = [harness.poisoned(t.dim, t.stride, t.data_type) for t in outputs]
    g.execute({**pack, **dict(zip(outputs, made, strict=True))}, g.empty_workspace())
    return made


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(
    "dim, parameter",
    [((52, 7, 64), (1, 1, 64)), ((1000, 8, 16), (1, 8, 16)), ((700, 6, 129), (1, 6, 129)), ((4, 9), (1, 9))],
)
def test_gradients_are_those_of_autograd(
    centred: bool, dim: Any, parameter: Any, rng: np.random.Generator
) -> None:
    """Forward, then backward from its own statistics, in float64; a spread of 3 tells 1/sqrt(var) from
    1/var.
    """
    x, grad = 3 * rng.standard_normal(dim), rng.standard_normal(dim)
    scale, bias = rng.random(parameter) + 0.5, rng.standard_normal(parameter)
    g = graph(data_type.DOUBLE)
    t = {
        n: g.tensor(a.shape, name=n) for n, a in {"x": x, "scale": scale, "bias": bias, "grad": grad}.items()
    }
    epsilon = g.tensor((1, 1, 1)[: len(dim)], is_pass_by_value=True, name="epsilon")
    norm = g.layernorm if centred else g.rmsnorm
    y, *saved = norm(TRAINING, t["x"], t["scale"], t["bias"], epsilon)
    if centred:
        gradients = g.layernorm_backward(t["grad"], t["x"], t["scale"], *saved)
    else:
        gradients = g.rmsnorm_backward(t["grad"], t["x"], t["scale"], *saved, has_dbias=True)
    outputs = [o.set_output(True) for o in (y, *gradients)]
    made = run(g, {"x": x, "scale": scale, "bias": bias, "grad": grad, "epsilon": 1e-5}, outputs)

    leaves = [torch.tensor(a, requires_grad=True) for a in (x, scale, bias)]
    axes = [a for a, d in enumerate(parameter) if d != 1]
    inner = [dim[a] for a in axes]
    if centred:
        expected = torch.nn.functional.layer_norm(
            leaves[0], inner, leaves[1].reshape(inner), leaves[2].reshape(inner), 1e-5
        )
    else:
        expected = torch.nn.functional.rms_norm(leaves[0], inner, leaves[1].reshape(inner), 1e-5) + leaves[2]
    wanted = torch.autograd.grad(expected, leaves, torch.tensor(grad))
    for got, right in zip(made, (expected, *wanted), strict=True):
        np.testing.assert_allclose(got, right.detach().numpy(), rtol=1e-9, atol=1e-9)


def test_c69_extents_of_statistics() -> None:
    g = graph()
    epsilon = g.tensor((1, 1, 1), is_pass_by_value=True)
    y, inverse = g.rmsnorm(TRAINING, g.tensor((4, 8, 64)), g.tensor((1, 1, 64)), None, epsilon)
    y.set_output(True)
    g.validate()
    assert inverse.dim == (4, 8, 1) and inverse.data_type is FLOAT


@pytest.mark.parametrize("dtype", [data_type.HALF, data_type.BFLOAT16])
def test_c38_mean_of_equal_elements_is_the_element(dtype: data_type) -> None:
    g = frazil.Graph(io_data_type=dtype, intermediate_data_type=FLOAT, compute_data_type=FLOAT, target="cpu")
    x, scale, bias = g.tensor((1, 1, 8192)), g.tensor((1, 1, 8192)), g.tensor((1, 1, 8192))
    epsilon = g.tensor((1, 1, 1), data_type=FLOAT, is_pass_by_value=True)
    _, mean, inverse = g.layernorm(TRAINING, x, scale, bias, epsilon)
    outputs = [t.set_output(True) for t in (mean, inverse)]
    kind = frazil.dtypes.numpy_dtype(dtype)
    values = np.full((1, 1, 8192), 0.1, np.float32).astype(kind)
    made = run(g, {x: values, scale: values, bias: values, epsilon: 1.0}, outputs)
    assert made[0].item() == float(values[0, 0, 0]) and made[1].item() == 1.0


def test_zero_centred_gamma_is_an_add_before_the_norm(rng: np.random.Generator) -> None:
    g = graph()
    x, gamma, beta = (
        g.tensor((6, 1, 32), name="x"),
        g.tensor((1, 1, 32), name="gamma"),
        g.tensor((1, 1, 32), name="beta"),
    )
    one = g.tensor_scalar(1.0, frazil.scalar_type.COMPILE_TIME_CONST)
    epsilon = g.tensor((1, 1, 1), is_pass_by_value=True, name="epsilon")
    y, *_ = g.layernorm(TRAINING, x, g.add(gamma, one), beta, epsilon)
    data = {
        n: rng.standard_normal(t.dim).astype("f4") for n, t in (("x", x), ("gamma", gamma), ("beta", beta))
    }
    (made,) = run(g, {**data, "epsilon": 1e-5}, [y.set_output(True)])
    tensors = {n: torch.tensor(a).double() for n, a in data.items()}
    scale = 1 + tensors["gamma"].reshape(-1)
    right = torch.nn.functional.layer_norm(tensors["x"], [32], scale, tensors["beta"].reshape(-1), 1e-5)
    np.testing.assert_allclose(made, right.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "scale, text",
    [
        (
            (1, 1, 32),
            r"port 'scale': extents: got \(1, 1, 32\), expected 1 or the extent of the input \(4, 8, 64\)",
        ),
        ((64,), r"port 'scale': extents: got \(64,\)"),
    ],
)
def test_refuses_other_extents_of_scale(scale: tuple[int, ...], text: str) -> None:
    g = graph()
    epsilon = g.tensor((1, 1, 1), is_pass_by_value=True)
    g.rmsnorm(TRAINING, g.tensor((4, 8, 64)), g.tensor(scale, name="gamma"), None, epsilon)[0].set_output(
        True
    )
    with pytest.raises(GraphError, match=r"tensor 'gamma'.*" + text):
        g.validate()


def test_refuses_statistics_that_do_not_fit_scale() -> None:
    g = graph()
    x, scale = g.tensor((4, 8, 64)), g.tensor((1, 8, 64), name="gamma")
    saved = [g.tensor((4, 8, 1)) for _ in range(2)]
    g.layernorm_backward(g.tensor((4, 8, 64)), x, scale, *saved)[0].set_output(True)
    with pytest.raises(GraphError, match=r"'gamma'.*got \(1, 8, 64\), expected \(1, 1, 64\)"):
        g.validate()


def test_refuses_an_unset_phase_and_a_missing_epsilon() -> None:
    g = graph()
    with pytest.raises(GraphError, match="port 'epsilon' of rmsnorm is missing"):
        g.rmsnorm(TRAINING, g.tensor((4, 8)), g.tensor((1, 8)))
    g.rmsnorm(norm_forward_phase.NOT_SET, g.tensor((4, 8)), g.tensor((1, 8)), None, g.tensor((1, 1)))[
        0
    ].set_output(True)
    with pytest.raises(GraphError, match="norm_forward_phase: got NOT_SET, expected INFERENCE or TRAINING"):
        g.validate()
