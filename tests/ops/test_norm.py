"""Norms against torch in float64: every case, a fuzz, true statistics against autograd, conventions (C-38, C-49,
C-68, C-69), refusals.
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
    [
        ((52, 7, 64), (1, 1, 64)),
        ((1000, 8, 16), (1, 8, 16)),
        ((700, 6, 129), (1, 6, 129)),
        ((4, 9), (1, 9)),
        ((64,), (64,)),
        ((6, 10, 3, 2), (1, 10, 3, 2)),
        ((40, 10, 1, 1), (1, 10, 1, 1)),
        ((5, 3, 1), (1, 1, 1)),
    ],
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
    epsilon = g.tensor((1,) * len(dim), is_pass_by_value=True, name="epsilon")
    norm = g.layernorm if centred else g.rmsnorm
    y, *saved = norm(TRAINING, t["x"], t["scale"], t["bias"], epsilon)
    if centred:
        gradients = g.layernorm_backward(t["grad"], t["x"], t["scale"], *saved)
    else:
        gradients = g.rmsnorm_backward(t["grad"], t["x"], t["scale"], *saved, has_dbias=True)
    outputs = [o.set_output(True) for o in (y, *gradients)]
    made = run(g, {"x": x, "scale": scale, "bias": bias, "grad": grad, "epsilon": 1e-5}, outputs)

    leaves = [torch.tensor(a, requires_grad=True) for a in (x, scale, bias)]
    first = next((a for a, d in enumerate(parameter) if d != 1), len(dim) - 1)
    inner = list(dim[first:])
    if centred:
        expected = torch.nn.functional.layer_norm(
            leaves[0], inner, leaves[1].reshape(inner), leaves[2].reshape(inner), 1e-5
        )
    else:
        expected = torch.nn.functional.rms_norm(leaves[0], inner, leaves[1].reshape(inner), 1e-5)
        expected = expected + leaves[2].reshape(inner)
    wanted = torch.autograd.grad(expected, leaves, torch.tensor(grad))
    for got, right in zip(made, (expected, *wanted), strict=True):
        np.testing.assert_allclose(got, right.detach().numpy(), rtol=1e-9, atol=1e-9)


def test_c49_bias_without_weight_over_many_rows(rng: np.random.Generator) -> None:
    """DBias of a norm without scale, in the extents of what is normalised; the reported number of rows."""
    dim = (100000, 8, 16)
    x, grad = (rng.standard_normal(dim, dtype=np.float32) for _ in range(2))
    saved = rng.random((dim[0], 1, 1), dtype=np.float32) + np.float32(0.5)
    g = graph()
    t = [g.tensor(a.shape) for a in (grad, x, saved)]
    dx, dscale, dbias = g.rmsnorm_backward(t[0], t[1], None, t[2], has_dbias=True)
    assert dscale is None
    made = run(g, dict(zip(t, (grad, x, saved), strict=True)), [o.set_output(True) for o in (dx, dbias)])
    assert made[1].shape == (1, 8, 16)
    harness.assert_close(made[1], grad.sum(0, dtype=np.float64, keepdims=True), FLOAT)
    normal = x * saved
    inner = (grad * normal).mean((1, 2), dtype=np.float64, keepdims=True)
    harness.assert_close(made[0], (grad - normal * inner) * saved, FLOAT)


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


@pytest.mark.parametrize("dtype", [data_type.HALF, data_type.BFLOAT16, FLOAT])
def test_a_mean_far_from_zero_does_not_swallow_the_variance(
    dtype: data_type, rng: np.random.Generator
) -> None:
    """Mean of squares minus square of the mean would give anything here: the variance is 1 in 1e6."""
    x = Arg((3, 512), fill=("integers", 1000, 1004))
    args = {"norm_forward_phase": TRAINING, "input": x, "scale": Arg((1, 512), fill="ones")}
    args |= {"bias": None, "epsilon": Arg((1, 1), FLOAT, fill="zeros", by_value=True)}
    harness.check("layernorm", Case("far", args, data_type=dtype), oracle.forward, rng)


def test_equal_elements_without_epsilon_are_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    g = graph()
    x, scale = g.tensor((2, 8)), g.tensor((1, 8))
    epsilon = g.tensor((1, 1), is_pass_by_value=True)
    y, *_ = g.layernorm(TRAINING, x, scale, None, epsilon)
    ones = np.ones((2, 8), np.float32)
    (made,) = run(g, {x: ones, scale: ones[:1], epsilon: 0.0}, [y.set_output(True)])
    assert np.isnan(made).all() and not recwarn.list


@pytest.mark.parametrize("name, statistics", [("layernorm", 2), ("rmsnorm", 1)])
def test_inference_has_no_statistics(name: str, statistics: int) -> None:
    g = graph()
    args = g.tensor((4, 8)), g.tensor((1, 8)), None, g.tensor((1, 1), is_pass_by_value=True)
    y, *saved = getattr(g, name)(norm_forward_phase.INFERENCE, *args)
    y.set_output(True)
    g.validate()
    assert saved == [None] * statistics and len(g.nodes[0].outputs) == 1


def test_which_gradients_exist() -> None:
    g = graph()
    grad, x, scale, saved = g.tensor((4, 8)), g.tensor((4, 8)), g.tensor((1, 8)), g.tensor((4, 1))

    def exist(gradients: list[Any]) -> list[bool]:
        return [t is not None for t in gradients]

    assert exist(g.layernorm_backward(grad, x, scale, saved, saved)) == [True, True, True]
    assert exist(g.layernorm_backward(grad, x, None, saved, saved)) == [True, False, True]
    assert exist(g.rmsnorm_backward(grad, x, scale, saved)) == [True, True, False]
    assert exist(g.rmsnorm_backward(grad, x, scale, saved, has_dbias=True)) == [True, True, True]
    assert exist(g.rmsnorm_backward(grad, x, None, saved, has_dbias=True)) == [True, False, True]


def test_results_take_the_memory_order_of_the_input() -> None:
    g = frazil.Graph(io_data_type=data_type.HALF, compute_data_type=FLOAT, target="cpu")
    x = g.tensor((2, 8, 3, 4), (96, 1, 32, 8))
    scale, epsilon = g.tensor((1, 8, 3, 4)), g.tensor((1,) * 4, data_type=FLOAT, is_pass_by_value=True)
    y, mean, inverse = g.layernorm(TRAINING, x, scale, None, epsilon)
    dx, dscale, dbias = g.layernorm_backward(g.tensor((2, 8, 3, 4)), x, scale, mean, inverse)
    for t in (y, dx, dscale, dbias):
        t.set_output(True)
    g.validate()
    assert y.stride == dx.stride == (96, 1, 32, 8)
    assert y.data_type is dx.data_type is dscale.data_type is data_type.HALF
    assert mean.dim == inverse.dim == (2, 1, 1, 1) and mean.data_type is inverse.data_type is FLOAT
    assert dscale.dim == dbias.dim == (1, 8, 3, 4)


@pytest.mark.parametrize("phase, axes", [("declared", (2,)), ("undeclared", (1, 2))])
def test_axes_of_a_norm_without_parameters(phase: str, axes: tuple[int, ...]) -> None:
    """The declared statistics say it, else all but the first are normalised."""
    g = graph()
    x, epsilon = g.tensor((4, 6, 8)), g.tensor((1, 1, 1), is_pass_by_value=True)
    y, inverse = g.rmsnorm(TRAINING, x, None, None, epsilon)
    if phase == "declared":
        inverse.set_dim((4, 6, 1))
    data = np.arange(192, dtype=np.float32).reshape(4, 6, 8)
    outputs = [y.set_output(True), inverse.set_output(True)]
    made = run(g, {x: data, epsilon: 1e-3}, outputs)
    right = 1 / np.sqrt((data.astype(np.float64) ** 2).mean(axes, keepdims=True) + 1e-3)
    np.testing.assert_allclose(made[1], right, rtol=2e-5)
    np.testing.assert_allclose(made[0], data * right, rtol=2e-5)


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


@pytest.mark.parametrize(
    "dim, scale, text",
    [
        ((4, 8, 64), (1, 1, 1), r"port 'scale': no axis to normalise: got \(1, 1, 1\)"),
        ((64,), None, r"port 'input': no axis to normalise: got \(64,\)"),
        ((4, 0), (1, 0), r"port 'input': normalised axes without elements: got \(4, 0\)"),
    ],
)
def test_refuses_to_normalise_nothing(dim: tuple[int, ...], scale: Any, text: str) -> None:
    g = graph()
    parameter = None if scale is None else g.tensor(scale)
    epsilon = g.tensor((1,), is_pass_by_value=True)
    g.rmsnorm(TRAINING, g.tensor(dim), parameter, None, epsilon)[0].set_output(True)
    with pytest.raises(GraphError, match=text):
        g.validate()


@pytest.mark.parametrize(
    "dim, saved, text",
    [
        ((4, 8), (4, 8), r"port 'inv_variance': no axis to normalise: got \(4, 8\)"),
        ((4, 8), (4,), r"port 'inv_variance': extents: got \(4,\), expected 1 or the extent of the input"),
        ((4, 8), (3, 1), r"port 'inv_variance': extents: got \(3, 1\)"),
        ((4, 0), (4, 1), r"port 'input': normalised axes without elements: got \(4, 0\)"),
    ],
)
def test_backward_refuses_statistics_that_do_not_fit(dim: Any, saved: Any, text: str) -> None:
    g = graph()
    g.rmsnorm_backward(g.tensor(dim), g.tensor(dim), None, g.tensor(saved))[0].set_output(True)
    with pytest.raises(GraphError, match=text):
        g.validate()


def test_backward_refuses_other_extents_of_grad_and_mean() -> None:
    g = graph()
    x, saved = g.tensor((4, 8)), g.tensor((4, 1))
    g.rmsnorm_backward(g.tensor((4, 7), name="dy"), x, None, saved)[0].set_output(True)
    with pytest.raises(GraphError, match=r"tensor 'dy'.*port 'grad': extents: got \(4, 7\)"):
        g.validate()
    g = graph()
    saved = g.tensor((4, 1))
    gradients = g.layernorm_backward(g.tensor((4, 8)), g.tensor((4, 8)), None, g.tensor((1, 1)), saved)
    gradients[0].set_output(True)
    with pytest.raises(GraphError, match=r"port 'mean': extents: got \(1, 1\), expected \(4, 1\)"):
        g.validate()


@pytest.mark.parametrize("dtype", [data_type.BFLOAT16, data_type.HALF, data_type.INT32])
def test_c68_narrow_statistics_are_refused(dtype: data_type) -> None:
    text = f"data type: got {dtype.name}, expected FLOAT or DOUBLE"
    for port in ("mean", "inv_var"):
        g = graph()
        args = g.tensor((4, 8)), g.tensor((1, 8)), None, g.tensor((1, 1), is_pass_by_value=True)
        y, *saved = g.layernorm(TRAINING, *args)
        y.set_output(True)
        saved[port == "inv_var"].set_output(True).set_data_type(dtype)
        with pytest.raises(GraphError, match=f"port '{port}': {text}"):
            g.validate()
    g = frazil.Graph(io_data_type=dtype, compute_data_type=FLOAT, target="cpu")
    x = g.tensor((4, 8), data_type=data_type.HALF)
    g.rmsnorm_backward(x, x, None, g.tensor((4, 1)))[0].set_output(True)
    with pytest.raises(GraphError, match=f"port 'inv_variance': {text}"):
        g.validate()


def test_refuses_integers() -> None:
    g = graph()
    args = (
        g.tensor((4, 8), data_type="int32"),
        g.tensor((1, 8)),
        None,
        g.tensor((1, 1), is_pass_by_value=True),
    )
    g.layernorm(TRAINING, *args)[0].set_output(True)
    with pytest.raises(
        GraphError, match="port 'input': data type: got INT32, expected a floating-point type"
    ):
        g.validate()


def test_refuses_epsilon_of_several_elements() -> None:
    g = graph()
    args = g.tensor((4, 8)), g.tensor((1, 8)), None, g.tensor((4, 1), name="eps")
    g.layernorm(TRAINING, *args)[0].set_output(True)
    with pytest.raises(GraphError, match=r"tensor 'eps'.*extents: got \(4, 1\), expected one element"):
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
