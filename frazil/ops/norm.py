"""Layer norm and RMS norm, forward and backward. Owns their records.

Normalised are the axes on which scale (or bias) has the input's extent; without either, those on which the
declared statistics have extent 1, else every axis but the first. In backward the statistics say it. An axis
on which the input itself has extent 1 makes no difference to what is computed, so it may count either way.
Where only such axes remain, the last is the normalised one; where there is none, nothing would be normalised,
and the call is refused. The variance is the biased one, and the saved value is 1 / sqrt(var + epsilon).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..dtypes import FLOATING, data_type
from ..enums import norm_forward_phase
from ..op import (
    BOOL,
    REQUIRED,
    Arg,
    Attr,
    Attrs,
    Call,
    Case,
    Cost,
    Inferred,
    Op,
    Port,
    io_cost,
    one_of,
    ordered_like,
)

Axes = tuple[int, ...]

_STATISTICS = ("mean", "inv_var", "inv_variance")
_STATISTIC_TYPES = (data_type.FLOAT, data_type.DOUBLE)


def _is_training(attrs: Attrs) -> bool:
    return attrs.norm_forward_phase is norm_forward_phase.TRAINING


def _statistic(call: Call, dim: tuple[int, ...]) -> Inferred:
    wide = call.inputs["input"].data_type is data_type.DOUBLE
    return Inferred(dim, None, data_type.DOUBLE if wide else data_type.FLOAT)


def _reduced(dim: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    return tuple(1 if a in axes else d for a, d in enumerate(dim))


def _parameter_dim(dim: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    return tuple(d if a in axes else 1 for a, d in enumerate(dim))


def _forward_axes(call: Call) -> Axes:
    """Normalised axes of a forward call."""
    dim = call.inputs["input"].dim
    for port in ("scale", "bias"):
        parameter = call.inputs[port]
        if parameter is not None:
            return _or_last(call, port, tuple(a for a, extent in enumerate(parameter.dim) if extent != 1))
    for port in ("inv_var", "mean"):
        declared = call.outputs.get(port)
        if declared is not None and declared.dim and len(declared.dim) == len(dim):
            return _or_last(call, port, _collapsed(dim, declared.dim))
    return _or_last(call, "input", tuple(range(1, len(dim))))


def _backward_axes(call: Call) -> Axes:
    """Normalised axes of a backward call."""
    found = _collapsed(call.inputs["input"].dim, call.inputs["inv_variance"].dim)
    return _or_last(call, "inv_variance", found)


def _collapsed(dim: tuple[int, ...], statistic: tuple[int, ...]) -> Axes:
    return tuple(a for a in range(len(dim)) if statistic[a] == 1 and dim[a] != 1)


def _or_last(call: Call, port: str, axes: Axes) -> Axes:
    """The axes that the tensor on `port` names, or the last one where it names none and that has extent 1."""
    dim = call.inputs["input"].dim
    if axes or dim[-1:] == (1,):
        return axes or (len(dim) - 1,)
    tensor = call.inputs.get(port) or call.outputs[port]
    expected = f"scale, or statistics, that tell which axes of the input {dim} are normalised"
    raise call.refuse("no axis to normalise", port, got=tensor.dim, expected=expected)


def _require_elements(call: Call, axes: Axes) -> None:
    dim = call.inputs["input"].dim
    empty = any(dim[a] == 0 for a in axes)
    call.require(
        not empty, "normalised axes without elements", "input", got=dim, expected="elements to normalise"
    )


def _check_parameters(call: Call) -> None:
    dim = call.inputs["input"].dim
    first = None
    for port in ("scale", "bias"):
        tensor = call.inputs.get(port)
        if tensor is None:
            continue
        fits = len(tensor.dim) == len(dim) and all(p in (1, d) for p, d in zip(tensor.dim, dim, strict=True))
        expected = f"1 or the extent of the input {dim} on each axis"
        call.require(fits, "extents", port, got=tensor.dim, expected=expected)
        first = first or tensor.dim
        call.require(tensor.dim == first, "extents", port, got=tensor.dim, expected=f"{first}, as scale has")
    epsilon = call.inputs.get("epsilon")
    if epsilon is not None:
        call.require(
            all(d == 1 for d in epsilon.dim), "extents", "epsilon", got=epsilon.dim, expected="one element"
        )


def _check_types(call: Call) -> None:
    """Refuse operands that are no floating-point numbers, and statistics that are narrower than FLOAT."""
    for port, tensor in (*call.inputs.items(), *call.outputs.items()):
        if tensor is None:
            continue
        found = tensor.data_type
        if port in _STATISTICS:
            expected = " or ".join(t.name for t in _STATISTIC_TYPES)
            call.require(found in _STATISTIC_TYPES, "data type", port, got=found, expected=expected)
        elif port in call.inputs:
            floating = found in FLOATING
            call.require(floating, "data type", port, got=found, expected="a floating-point type")


def _check_forward(call: Call) -> None:
    _check_types(call)
    phase = call.attrs.norm_forward_phase
    known = phase is not norm_forward_phase.NOT_SET
    call.require(known, "attribute norm_forward_phase", got=phase, expected="INFERENCE or TRAINING")


def _infer(call: Call) -> Mapping[str, Inferred]:
    _check_parameters(call)
    x, axes = call.inputs["input"], _forward_axes(call)
    _require_elements(call, axes)
    statistic = _statistic(call, _reduced(x.dim, axes))
    found = {"Y": Inferred(x.dim, ordered_like(x.dim, x)), "mean": statistic, "inv_var": statistic}
    return {port: found[port] for port in call.outputs}


def _infer_backward(call: Call) -> Mapping[str, Inferred]:
    _check_parameters(call)
    x = call.inputs["input"]
    grad = call.inputs["grad"]
    call.require(grad.dim == x.dim, "extents", "grad", got=grad.dim, expected=x.dim)
    saved = [p for p in ("mean", "inv_variance") if p in call.inputs]
    for port in saved:
        dim = call.inputs[port].dim
        fits = len(dim) == len(x.dim) and all(s in (1, d) for s, d in zip(dim, x.dim, strict=True))
        call.require(
            fits, "extents", port, got=dim, expected=f"1 or the extent of the input {x.dim} on each axis"
        )
        same = dim == call.inputs["inv_variance"].dim
        call.require(same, "extents", port, got=dim, expected=call.inputs["inv_variance"].dim)
    axes = _backward_axes(call)
    _require_elements(call, axes)
    parameter = _parameter_dim(x.dim, axes)
    scale = call.inputs["scale"]
    if scale is not None:
        expected = f"{parameter}: the axes that inv_variance {call.inputs['inv_variance'].dim} leaves"
        call.require(scale.dim == parameter, "extents", "scale", got=scale.dim, expected=expected)
    found = {
        "DX": Inferred(x.dim, ordered_like(x.dim, x)),
        "DScale": Inferred(parameter),
        "DBias": Inferred(parameter),
    }
    return {port: found[port] for port in call.outputs}


def _normalise(xp: ModuleType, call: Call, arrays: Mapping[str, Any], centred: bool) -> Mapping[str, Any]:
    x, axes = arrays["input"], _forward_axes(call)
    mean = xp.mean(x, axis=axes, keepdims=True) if centred else x.dtype.type(0)
    deviation = x - mean
    variance = xp.mean(deviation * deviation, axis=axes, keepdims=True)
    inverse = 1 / xp.sqrt(variance + arrays["epsilon"].reshape(()))
    y = deviation * inverse
    if arrays["scale"] is not None:
        y = y * arrays["scale"]
    if arrays["bias"] is not None:
        y = y + arrays["bias"]
    found = {"Y": y, "mean": mean, "inv_var": inverse}
    return {port: found[port] for port in call.outputs}


def _gradients(xp: ModuleType, call: Call, arrays: Mapping[str, Any], centred: bool) -> Mapping[str, Any]:
    x, grad, inverse = arrays["input"], arrays["grad"], arrays["inv_variance"]
    axes = _backward_axes(call)
    others = tuple(a for a in range(x.ndim) if a not in axes)
    normal = (x - arrays["mean"] if centred else x) * inverse
    inner = grad if arrays["scale"] is None else grad * arrays["scale"]
    dx = inner - normal * xp.mean(inner * normal, axis=axes, keepdims=True)
    if centred:
        dx = dx - xp.mean(inner, axis=axes, keepdims=True)
    found = {
        "DX": dx * inverse,
        "DScale": xp.sum(grad * normal, axis=others, keepdims=True),
        "DBias": xp.sum(grad, axis=others, keepdims=True),
    }
    return {port: found[port] for port in call.outputs}


def _cost(call: Call) -> Cost:
    return io_cost(call, 8.0 * call.elements("input"))


# Cases.

_EPSILON = Arg((1, 1, 1), data_type.FLOAT, fill=("values", 1e-3), by_value=True)
_TRAINING, _INFERENCE = norm_forward_phase.TRAINING, norm_forward_phase.INFERENCE
_HALF, _BF16 = data_type.HALF, data_type.BFLOAT16
_GEOMETRIES: tuple[tuple[str, Arg, tuple[int, ...]], ...] = (
    ("last_axis", Arg((4, 8, 64)), (1, 1, 64)),
    ("cudnn_layout", Arg((6, 10, 1, 1), stride=(10, 1, 10, 10)), (1, 10, 1, 1)),
    ("channels_last", Arg((3, 5, 4, 2), stride=(40, 1, 10, 5)), (1, 5, 4, 2)),
    ("several_axes", Arg((10, 8, 16)), (1, 8, 16)),
    ("odd_row", Arg((52, 7, 65)), (1, 1, 65)),
    ("transposed", Arg((4, 6, 8), stride=(48, 1, 6)), (1, 1, 8)),
    ("wider_buffer", Arg((4, 6, 8), stride=(192, 32, 1)), (1, 1, 8)),
    ("broadcast", Arg((4, 6, 8), stride=(0, 8, 1)), (1, 1, 8)),
    ("size_one_axes", Arg((1, 6, 1), stride=(77, 1, 13)), (1, 6, 1)),
    ("one_element_rows", Arg((4, 6, 1)), (1, 1, 1)),
    ("no_rows", Arg((0, 6, 8)), (1, 1, 8)),
    ("long_row", Arg((1, 2, 8192), fill="ones"), (1, 1, 8192)),
)
_TYPES = ((_HALF, "half"), (_BF16, "bfloat16"), (data_type.DOUBLE, "float64"))


def _forward_case(
    name: str, x: Arg, parameter: tuple[int, ...] | None, bias: bool = True, **rest: Any
) -> Case:
    phase = rest.pop("phase", _TRAINING)
    args: dict[str, Any] = {
        "norm_forward_phase": phase,
        "input": x,
        "scale": None,
        "bias": None,
        "epsilon": _EPSILON,
    }
    if parameter is not None:
        args["scale"] = Arg(parameter, fill="positive")
        args["bias"] = Arg(parameter) if bias else None
    return Case(name, args, **rest)


def _forward_cases(bias: bool) -> tuple[Case, ...]:
    plain = Arg((4, 8, 64))
    return (
        *(_forward_case(name, x, parameter, bias) for name, x, parameter in _GEOMETRIES),
        *(
            _forward_case(name, plain, (1, 1, 64), bias, data_type=kind, compute=_math(kind))
            for kind, name in _TYPES
        ),
        _forward_case("inference", plain, (1, 1, 64), bias, phase=_INFERENCE),
        _forward_case("with_bias", plain, (1, 1, 64), True, data_type=_BF16),
        _forward_case("without_bias", plain, (1, 1, 64), False),
        _forward_case("without_parameters", plain, None),
        _forward_case("bench", Arg((1, 8192, 8192)), (1, 1, 8192), bias, data_type=_BF16, level="bench"),
    )


def _math(kind: data_type) -> data_type:
    return data_type.DOUBLE if kind is data_type.DOUBLE else data_type.FLOAT


def _backward_case(name: str, x: Arg, parameter: tuple[int, ...], centred: bool, **rest: Any) -> Case:
    axes = tuple(a for a, extent in enumerate(parameter) if extent != 1)
    kind = _math(rest.get("data_type", data_type.FLOAT))
    statistic = Arg(_reduced(x.dim, axes), kind, fill="positive")
    grad = Arg(x.dim, stride=rest.pop("grad_stride", None))
    scale = Arg(parameter, fill="positive") if rest.pop("scale", True) else None
    args = {"grad": grad, "input": x, "scale": scale, "inv_variance": statistic}
    args |= {"mean": Arg(statistic.dim, kind)} if centred else {"has_dbias": rest.pop("has_dbias", True)}
    return Case(name, args, compute=kind, **rest)


def _backward_cases(centred: bool) -> tuple[Case, ...]:
    plain = Arg((4, 8, 64))
    geometries = [g for g in _GEOMETRIES if g[0] != "one_element_rows"]
    return (
        *(_backward_case(name, x, parameter, centred) for name, x, parameter in geometries),
        *(_backward_case(name, plain, (1, 1, 64), centred, data_type=kind) for kind, name in _TYPES),
        _backward_case("grad_transposed", plain, (1, 1, 64), centred, grad_stride=(1, 4, 32)),
        _backward_case("grad_broadcast", plain, (1, 1, 64), centred, grad_stride=(0, 0, 0)),
        _backward_case("bench", Arg((1, 8192, 8192)), (1, 1, 8192), centred, data_type=_BF16, level="bench"),
    )


_PHASE = Attr(
    "norm_forward_phase",
    REQUIRED,
    one_of(norm_forward_phase),
    "INFERENCE: Y alone; TRAINING: statistics, too.",
)
_X = Port("input", "Any extents.")
_SCALE = Port("scale", "Extent of the input on normalised axes, 1 elsewhere.", optional=True)
_BIAS = Port("bias", "Like scale.", optional=True)
_EPSILON_PORT = Port("epsilon", "One number, by value or in memory.")
_Y = Port("Y", "Extents of the input, by default in its memory order.")
_MEAN = Port("mean", "Extent 1 on normalised axes; FLOAT.", when=_is_training)
_INVERSE = Port("inv_var", "1 / sqrt(var + epsilon), extent 1 on normalised axes; FLOAT.", when=_is_training)
_SAVED = Port("inv_variance", "Saved by the forward; extent 1 on normalised axes.")
_GRAD = Port("grad", "Gradient of Y, any strides.")
_GRADIENTS = (
    Port("DX", "Gradient of the input."),
    Port("DScale", "Gradient of scale, in its extents.", needs="scale"),
    Port("DBias", "Gradient of bias, in the extents of scale."),
)

OPS = (
    Op(
        name="layernorm",
        inputs=(_X, _SCALE, _BIAS, _EPSILON_PORT),
        outputs=(_Y, _MEAN, _INVERSE),
        attrs=(_PHASE,),
        infer=_infer,
        check=_check_forward,
        reference=lambda xp, call, arrays: _normalise(xp, call, arrays, centred=True),
        cost=_cost,
        cases=_forward_cases(bias=True),
        doc="Layer norm: (x - mean) / sqrt(var + epsilon) * scale + bias. (J. L. Ba et al., 2016, eq. 4.)",
        anchor=True,
        structured=True,
        signature=("norm_forward_phase", "input", "scale", "bias", "epsilon"),
    ),
    Op(
        name="layernorm_backward",
        inputs=(_GRAD, _X, _SCALE, Port("mean", "Saved by the forward."), _SAVED),
        outputs=_GRADIENTS,
        infer=_infer_backward,
        check=_check_types,
        reference=lambda xp, call, arrays: _gradients(xp, call, arrays, centred=True),
        cost=_cost,
        cases=_backward_cases(centred=True),
        doc="Gradients of layer norm from its saved statistics.",
        anchor=True,
        structured=True,
    ),
    Op(
        name="rmsnorm",
        inputs=(_X, _SCALE, _BIAS, _EPSILON_PORT),
        outputs=(_Y, _INVERSE),
        attrs=(_PHASE,),
        infer=_infer,
        check=_check_forward,
        reference=lambda xp, call, arrays: _normalise(xp, call, arrays, centred=False),
        cost=_cost,
        cases=_forward_cases(bias=False),
        doc=(
            "RMS norm: x * inv_var * scale + bias, with inv_var = 1 / sqrt(mean(x^2) + epsilon).\n\n"
            "(B. Zhang, R. Sennrich, 2019, eq. 4.)"
        ),
        anchor=True,
        structured=True,
        signature=("norm_forward_phase", "input", "scale", "bias", "epsilon"),
    ),
    Op(
        name="rmsnorm_backward",
        inputs=(_GRAD, _X, _SCALE, _SAVED),
        outputs=(
            _GRADIENTS[0],
            _GRADIENTS[1],
            Port("DBias", "Gradient of bias.", when=lambda attrs: bool(attrs.has_dbias)),
        ),
        attrs=(Attr("has_dbias", False, BOOL, "Whether DBias exists."),),
        infer=_infer_backward,
        check=_check_types,
        reference=lambda xp, call, arrays: _gradients(xp, call, arrays, centred=False),
        cost=_cost,
        cases=_backward_cases(centred=False),
        doc="Gradients of RMS norm from its saved statistic.",
        anchor=True,
        structured=True,
    ),
)
