"""Pointwise operations, forward and backward. Owns their records: name, ports, attributes, and the float
reference.

Every record here is elementwise: an output element depends on the broadcast input elements at its own place
alone. Backward operations receive the gradient of the output (`loss`) and the forward's *input*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..dtypes import data_type
from ..op import (
    FLOAT,
    INT,
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
    broadcast_dims,
    io_cost,
    optional,
    ordered_like,
)
from .special import erf

Function = Callable[..., Any]  # (xp, attrs, *arrays) -> array

_INV_SQRT2 = 0.7071067811865475244
_INV_SQRT_2PI = 0.3989422804014326779
_SQRT_2_OVER_PI = 0.7978845608028653559


def sigmoid(xp: ModuleType, x: Any) -> Any:
    """1 / (1 + exp(-x)), without overflow at either end."""
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _softplus(xp: ModuleType, x: Any) -> Any:
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


def _gelu_slope(xp: ModuleType, x: Any) -> Any:
    return 0.5 * (1 + erf(xp, x * _INV_SQRT2)) + x * xp.exp(-0.5 * x * x) * _INV_SQRT_2PI


def _tanh_argument(x: Any) -> Any:
    return _SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)


def _gelu_tanh_slope(xp: ModuleType, x: Any) -> Any:
    # Beyond, tanh is 1 or -1 to the last place, and the square of x would overflow.
    x = xp.clip(x, -50.0, 50.0)
    t = xp.tanh(_tanh_argument(x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x)


def _swish_slope(xp: ModuleType, x: Any, beta: float) -> Any:
    s = sigmoid(xp, beta * x)
    # In this order, a product beta * x that overflows does not meet the 0 of the sigmoid's slope.
    return s + beta * (x * (s * sigmoid(xp, -beta * x)))


def _power(xp: ModuleType, base: Any, exponent: Any) -> Any:
    # NumPy has no negative power of an integer, and wraps where a positive one does not fit.
    return xp.power(base * 1.0 if base.dtype.kind in "iu" else base, exponent)


def _clips(a: Attrs) -> tuple[float, float, float]:
    """Slope, lower and upper clip of a ReLU, with the defaults of the plain one."""
    lower = 0.0 if a.lower_clip is None else a.lower_clip
    upper = float("inf") if a.upper_clip is None else a.upper_clip
    return (0.0 if a.negative_slope is None else a.negative_slope), lower, upper


def _relu(xp: ModuleType, a: Attrs, x: Any) -> Any:
    slope, lower, upper = _clips(a)
    # A slope of 0 must give `lower` also for -inf, where 0 * inf would be NaN.
    below = lower + slope * (x - lower) if slope else xp.full_like(x, lower)
    return xp.where(xp.isnan(x), x, xp.where(x <= lower, below, xp.minimum(x, upper)))


def _relu_backward(xp: ModuleType, a: Attrs, loss: Any, x: Any) -> Any:
    slope, lower, upper = _clips(a)
    return loss * xp.where(x <= lower, slope, xp.where(x >= upper, 0.0, 1.0)).astype(x.dtype)


def _gen_index(xp: ModuleType, a: Attrs, x: Any) -> Any:
    shape = [1] * x.ndim
    shape[a.axis] = x.shape[a.axis]
    return xp.broadcast_to(xp.arange(x.shape[a.axis]).reshape(shape), x.shape).astype(x.dtype)


def _truth(xp: ModuleType, value: Any, like: Any) -> Any:
    return xp.asarray(value).astype(like.dtype)


_UNARY: dict[str, tuple[str, Function]] = {
    "abs": ("Absolute value.", lambda xp, a, x: xp.abs(x)),
    "ceil": ("Smallest integer not below.", lambda xp, a, x: xp.ceil(x)),
    "cos": ("Cosine, argument in radians.", lambda xp, a, x: xp.cos(x)),
    "elu": (
        "x where x > 0, else exp(x) - 1.",
        lambda xp, a, x: xp.where(x > 0, x, xp.expm1(xp.minimum(x, 0))),
    ),
    "erf": ("Error function.", lambda xp, a, x: erf(xp, x)),
    "exp": ("Exponential.", lambda xp, a, x: xp.exp(x)),
    "floor": ("Largest integer not above.", lambda xp, a, x: xp.floor(x)),
    "gelu": (
        "x * Phi(x) with the normal distribution's Phi.",
        lambda xp, a, x: 0.5 * x * (1 + erf(xp, x * _INV_SQRT2)),
    ),
    "gelu_approx_tanh": (
        "0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), the usual approximation of GELU.",
        lambda xp, a, x: 0.5 * x * (1 + xp.tanh(_tanh_argument(x))),
    ),
    "identity": ("Copy, with conversion to the output's type.", lambda xp, a, x: x),
    "log": ("Natural logarithm.", lambda xp, a, x: xp.log(x)),
    "logical_not": ("1 where the input is 0, else 0.", lambda xp, a, x: _truth(xp, x == 0, x)),
    "neg": ("Negation.", lambda xp, a, x: -x),
    "reciprocal": ("1 / x.", lambda xp, a, x: 1 / x),
    "rsqrt": ("1 / sqrt(x).", lambda xp, a, x: 1 / xp.sqrt(x)),
    "sigmoid": ("1 / (1 + exp(-x)).", lambda xp, a, x: sigmoid(xp, x)),
    "sin": ("Sine, argument in radians.", lambda xp, a, x: xp.sin(x)),
    "softplus": ("log(1 + exp(x)).", lambda xp, a, x: _softplus(xp, x)),
    "sqrt": ("Square root.", lambda xp, a, x: xp.sqrt(x)),
    "tan": ("Tangent, argument in radians.", lambda xp, a, x: xp.tan(x)),
    "tanh": ("Hyperbolic tangent.", lambda xp, a, x: xp.tanh(x)),
}

_BINARY: dict[str, tuple[tuple[str, str], str, Function]] = {
    "add": (("a", "b"), "a + b.", lambda xp, at, a, b: a + b),
    "add_square": (("a", "b"), "a + b * b.", lambda xp, at, a, b: a + b * b),
    "div": (("a", "b"), "a / b.", lambda xp, at, a, b: a / b),
    "logical_and": (
        ("a", "b"),
        "1 where neither is 0, else 0.",
        lambda xp, at, a, b: _truth(xp, (a != 0) & (b != 0), a),
    ),
    "logical_or": (
        ("a", "b"),
        "0 where both are 0, else 1.",
        lambda xp, at, a, b: _truth(xp, (a != 0) | (b != 0), a),
    ),
    "mul": (("a", "b"), "a * b.", lambda xp, at, a, b: a * b),
    "sub": (("a", "b"), "a - b.", lambda xp, at, a, b: a - b),
    "max": (
        ("input0", "input1"),
        "The larger; NaN where either is NaN.",
        lambda xp, at, a, b: xp.maximum(a, b),
    ),
    "min": (
        ("input0", "input1"),
        "The smaller; NaN where either is NaN.",
        lambda xp, at, a, b: xp.minimum(a, b),
    ),
    "mod": (
        ("input0", "input1"),
        "Remainder of input0 / input1, with the sign of input0.",
        lambda xp, at, a, b: xp.fmod(a, b),
    ),
    "pow": (("input0", "input1"), "input0 to the power of input1.", lambda xp, at, a, b: _power(xp, a, b)),
    "cmp_eq": (("input", "comparison"), "1 where equal, else 0.", lambda xp, at, a, b: _truth(xp, a == b, a)),
    "cmp_neq": (
        ("input", "comparison"),
        "1 where not equal, else 0.",
        lambda xp, at, a, b: _truth(xp, a != b, a),
    ),
    "cmp_gt": (
        ("input", "comparison"),
        "1 where input > comparison, else 0.",
        lambda xp, at, a, b: _truth(xp, a > b, a),
    ),
    "cmp_ge": (
        ("input", "comparison"),
        "1 where input >= comparison, else 0.",
        lambda xp, at, a, b: _truth(xp, a >= b, a),
    ),
    "cmp_lt": (
        ("input", "comparison"),
        "1 where input < comparison, else 0.",
        lambda xp, at, a, b: _truth(xp, a < b, a),
    ),
    "cmp_le": (
        ("input", "comparison"),
        "1 where input <= comparison, else 0.",
        lambda xp, at, a, b: _truth(xp, a <= b, a),
    ),
    "bias": (("input", "bias"), "input + bias.", lambda xp, at, a, b: a + b),
    "scale": (("input", "scale"), "input * scale.", lambda xp, at, a, b: a * b),
}

_BACKWARD: dict[str, tuple[str, Function]] = {
    "elu_backward": (
        "ELU",
        lambda xp, a, g, x: g * xp.where(x > 0, xp.ones_like(x), xp.exp(xp.minimum(x, 0))),
    ),
    "gelu_backward": ("GELU", lambda xp, a, g, x: g * _gelu_slope(xp, x)),
    "gelu_approx_tanh_backward": ("the tanh form of GELU", lambda xp, a, g, x: g * _gelu_tanh_slope(xp, x)),
    "sigmoid_backward": ("sigmoid", lambda xp, a, g, x: g * sigmoid(xp, x) * sigmoid(xp, -x)),
    "softplus_backward": ("softplus", lambda xp, a, g, x: g * sigmoid(xp, x)),
    "tanh_backward": ("tanh", lambda xp, a, g, x: g * (1 - xp.tanh(x) ** 2)),
}

_SLOPE = Attr("negative_slope", None, optional(FLOAT), "Slope below the lower clip; 0 where left out.")
_CLIPS = (
    _SLOPE,
    Attr("lower_clip", None, optional(FLOAT), "Where the slope begins; 0 where left out."),
    Attr("upper_clip", None, optional(FLOAT), "Largest result; none where left out."),
)
_LEAK = (Attr("negative_slope", REQUIRED, FLOAT, "Slope below 0."),)
_BETA = (Attr("swish_beta", None, optional(FLOAT), "Factor inside the sigmoid; 1 where left out."),)
_AXIS = (Attr("axis", REQUIRED, INT, "The axis along which to count."),)


def _beta(a: Attrs) -> float:
    return 1.0 if a.swish_beta is None else a.swish_beta


def _leaky(xp: ModuleType, a: Attrs, x: Any) -> Any:
    return xp.where(x > 0, x, a.negative_slope * x)


def _leaky_backward(xp: ModuleType, a: Attrs, loss: Any, x: Any) -> Any:
    return loss * xp.where(x > 0, 1.0, a.negative_slope).astype(x.dtype)


_PARAMETRIZED: dict[str, tuple[tuple[str, ...], tuple[Attr, ...], str, Function]] = {
    "binary_select": (
        ("input0", "input1", "mask"),
        (),
        "input0 where mask is not 0, else input1.",
        lambda xp, a, x, y, m: xp.where(m != 0, x, y),
    ),
    "relu": (("input",), _CLIPS, "lower + slope (x - lower) where x <= lower, else min(x, upper).", _relu),
    "leaky_relu": (("input",), _LEAK, "x where x > 0, else slope * x.", _leaky),
    "swish": (("input",), _BETA, "x * sigmoid(beta x).", lambda xp, a, x: x * sigmoid(xp, _beta(a) * x)),
    "gen_index": (
        ("input",),
        _AXIS,
        "The index of each element along `axis`; the input's values are not read.",
        _gen_index,
    ),
    "relu_backward": (("loss", "input"), _CLIPS, "Gradient of relu.", _relu_backward),
    "leaky_relu_backward": (("loss", "input"), _LEAK, "Gradient of leaky_relu.", _leaky_backward),
    "swish_backward": (
        ("loss", "input"),
        _BETA,
        "Gradient of swish.",
        lambda xp, a, g, x: g * _swish_slope(xp, x, _beta(a)),
    ),
}


def _infer(call: Call) -> Mapping[str, Inferred]:
    ports = list(call.inputs)
    dim = broadcast_dims(call, ports)
    full = next((call.inputs[p] for p in ports if call.inputs[p].dim == dim), None)
    return {"OUT_0": Inferred(dim, ordered_like(dim, full) if full is not None else None)}


def _check_axis(call: Call) -> None:
    rank = len(call.inputs["input"].dim)
    call.require(
        0 <= call.attrs.axis < rank, "attribute axis", got=call.attrs.axis, expected=f"0 to {rank - 1}"
    )


def _reference(function: Function) -> Callable[[ModuleType, Call, Mapping[str, Any]], Mapping[str, Any]]:
    def run(xp: ModuleType, call: Call, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        with xp.errstate(all="ignore"):
            return {"OUT_0": function(xp, call.attrs, *arrays.values())}

    return run


def _cost(call: Call) -> Cost:
    return io_cost(call, float(call.elements("OUT_0")))


# Cases: every operation on one plain shape in float32; layouts, types and broadcasting on a few, since they
# are shared.

_DOMAIN = {"log": "positive", "sqrt": "positive", "rsqrt": "positive", "reciprocal": "positive"}
_BOOLEAN = {"logical_not", "logical_and", "logical_or"}
_VALUES = {"negative_slope": 0.1, "lower_clip": -0.5, "upper_clip": 0.75, "swish_beta": 1.5, "axis": 1}
_LAYOUTS: tuple[tuple[str, Arg, Arg], ...] = (
    ("trailing_one", Arg((1, 2, 2)), Arg((1, 2, 1))),
    ("row_and_column", Arg((3, 1, 5)), Arg((1, 4, 1))),
    ("lower_rank", Arg((2, 3, 4)), Arg((4,))),
    ("transposed", Arg((2, 3, 4), stride=(12, 1, 3)), Arg((2, 3, 4))),
    ("channels_last", Arg((2, 8, 3, 3), stride=(72, 1, 24, 8)), Arg((1, 8, 1, 1), stride=(8, 1, 8, 8))),
    ("stride_zero", Arg((2, 3, 4), stride=(0, 4, 1)), Arg((2, 3, 4), stride=(12, 0, 1))),
    ("size_one_odd_stride", Arg((1, 3, 1), stride=(77, 1, 13)), Arg((1, 3, 1), stride=(1, 1, 1))),
    ("empty", Arg((2, 0, 4)), Arg((1, 1, 4))),
)


def _arg(name: str, port: str) -> Arg:
    if port == "mask" or name in _BOOLEAN:
        return Arg((2, 3, 5), data_type.BOOLEAN, fill="bool")
    if name.startswith("cmp"):
        return Arg((2, 3, 5), fill=("integers", 0, 3))
    fill = "positive" if name == "pow" or (name in ("div", "mod") and port in ("b", "input1")) else "normal"
    return Arg((2, 3, 5), fill=_DOMAIN.get(name, fill))


def _cases(name: str, ports: tuple[str, ...], attrs: tuple[Attr, ...]) -> tuple[Case, ...]:
    values = {a.name: _VALUES[a.name] for a in attrs}
    outputs = (
        {"OUT_0": Arg((2, 3, 5), data_type.BOOLEAN)} if name in _BOOLEAN or name.startswith("cmp") else {}
    )
    plain = {**{p: _arg(name, p) for p in ports}, **values}
    cases = [Case("plain", plain, outputs)]
    if not outputs:
        cases += [
            Case("half", plain, data_type=data_type.HALF),
            Case("bfloat16", plain, data_type=data_type.BFLOAT16, level="full"),
            Case("float64", plain, data_type=data_type.DOUBLE, compute=data_type.DOUBLE, level="full"),
        ]
    if name in ("add", "mul"):
        cases += [Case(label, dict(zip(ports, pair, strict=True))) for label, *pair in _LAYOUTS]
        whole = {p: Arg((4, 5), fill=("integers", -1000, 1000)) for p in ports}
        cases.append(Case("int32", whole, data_type=data_type.INT32, compute=data_type.INT32))
        big = {p: Arg((64, 1024, 1024)) for p in ports}
        cases.append(Case("bench", big, data_type=data_type.BFLOAT16, level="bench"))
    if len(attrs) == 3:
        cases.append(Case("defaults", {p: _arg(name, p) for p in ports}))
    return tuple(cases)


def _op(name: str, ports: tuple[str, ...], attrs: tuple[Attr, ...], doc: str, function: Function) -> Op:
    return Op(
        name=name,
        inputs=tuple(Port(p, moved=name == "identity") for p in ports),
        outputs=(Port("OUT_0", "Extents of the broadcast of all inputs."),),
        attrs=attrs,
        infer=_infer,
        check=_check_axis if name == "gen_index" else None,
        reference=_reference(function),
        cost=_cost,
        cases=_cases(name, ports, attrs),
        doc=f"{doc}\n\nInputs broadcast against each other, aligned at the last axis.",
        elementwise=True,
    )


OPS = (
    *(_op(name, ("input",), (), doc, function) for name, (doc, function) in _UNARY.items()),
    *(_op(name, ports, (), doc, function) for name, (ports, doc, function) in _BINARY.items()),
    *(
        _op(name, ("loss", "input"), (), f"Gradient of {of} at `input`, times `loss`.", function)
        for name, (of, function) in _BACKWARD.items()
    ),
    *(
        _op(name, ports, attrs, doc, function)
        for name, (ports, attrs, doc, function) in _PARAMETRIZED.items()
    ),
)
