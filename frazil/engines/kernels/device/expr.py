"""Elementwise expressions on the device: one step at a time, chosen at compile time.

An expression is a compile-time tuple of steps (code, operand, operand, operand, p0, p1, p2) over numbered
values. The codes are those of pointwise_codes.py; p0 to p2 are the operation's attributes. All values are
float32.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from ....ops.pointwise_codes import CODES

ABS = tl.constexpr(CODES["abs"])
CEIL = tl.constexpr(CODES["ceil"])
COS = tl.constexpr(CODES["cos"])
ELU = tl.constexpr(CODES["elu"])
ERF = tl.constexpr(CODES["erf"])
EXP = tl.constexpr(CODES["exp"])
FLOOR = tl.constexpr(CODES["floor"])
GELU = tl.constexpr(CODES["gelu"])
GELU_TANH = tl.constexpr(CODES["gelu_approx_tanh"])
IDENTITY = tl.constexpr(CODES["identity"])
LOG = tl.constexpr(CODES["log"])
LOGICAL_NOT = tl.constexpr(CODES["logical_not"])
NEG = tl.constexpr(CODES["neg"])
RECIPROCAL = tl.constexpr(CODES["reciprocal"])
RSQRT = tl.constexpr(CODES["rsqrt"])
SIGMOID = tl.constexpr(CODES["sigmoid"])
SIN = tl.constexpr(CODES["sin"])
SOFTPLUS = tl.constexpr(CODES["softplus"])
SQRT = tl.constexpr(CODES["sqrt"])
TAN = tl.constexpr(CODES["tan"])
TANH = tl.constexpr(CODES["tanh"])
RELU = tl.constexpr(CODES["relu"])
LEAKY_RELU = tl.constexpr(CODES["leaky_relu"])
SWISH = tl.constexpr(CODES["swish"])
ADD = tl.constexpr(CODES["add"])
ADD_SQUARE = tl.constexpr(CODES["add_square"])
DIV = tl.constexpr(CODES["div"])
LOGICAL_AND = tl.constexpr(CODES["logical_and"])
LOGICAL_OR = tl.constexpr(CODES["logical_or"])
MUL = tl.constexpr(CODES["mul"])
SUB = tl.constexpr(CODES["sub"])
MAX = tl.constexpr(CODES["max"])
MIN = tl.constexpr(CODES["min"])
MOD = tl.constexpr(CODES["mod"])
POW = tl.constexpr(CODES["pow"])
CMP_EQ = tl.constexpr(CODES["cmp_eq"])
CMP_NEQ = tl.constexpr(CODES["cmp_neq"])
CMP_GT = tl.constexpr(CODES["cmp_gt"])
CMP_GE = tl.constexpr(CODES["cmp_ge"])
CMP_LT = tl.constexpr(CODES["cmp_lt"])
CMP_LE = tl.constexpr(CODES["cmp_le"])
BIAS = tl.constexpr(CODES["bias"])
SCALE = tl.constexpr(CODES["scale"])
ELU_BACKWARD = tl.constexpr(CODES["elu_backward"])
GELU_BACKWARD = tl.constexpr(CODES["gelu_backward"])
GELU_TANH_BACKWARD = tl.constexpr(CODES["gelu_approx_tanh_backward"])
SIGMOID_BACKWARD = tl.constexpr(CODES["sigmoid_backward"])
SOFTPLUS_BACKWARD = tl.constexpr(CODES["softplus_backward"])
TANH_BACKWARD = tl.constexpr(CODES["tanh_backward"])
RELU_BACKWARD = tl.constexpr(CODES["relu_backward"])
LEAKY_RELU_BACKWARD = tl.constexpr(CODES["leaky_relu_backward"])
SWISH_BACKWARD = tl.constexpr(CODES["swish_backward"])
BINARY_SELECT = tl.constexpr(CODES["binary_select"])
TO_HALF = tl.constexpr(CODES["to_half"])

INV_SQRT2 = tl.constexpr(0.7071067811865475)
INV_SQRT_2PI = tl.constexpr(0.3989422804014327)
SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)


@triton.jit
def _sigmoid(x):
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


@triton.jit
def _tanh_argument(x):
    return SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)


@triton.jit
def _unary(CODE: tl.constexpr, x, P0: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr):
    if CODE == ABS:
        return tl.abs(x)
    elif CODE == CEIL:
        return tl.ceil(x)
    elif CODE == COS:
        return libdevice.cos(x)
    elif CODE == ELU:
        return tl.where(x > 0, x, libdevice.expm1(x))
    elif CODE == ERF:
        return tl.erf(x)
    elif CODE == EXP:
        return tl.exp(x)
    elif CODE == FLOOR:
        return tl.floor(x)
    elif CODE == GELU:
        return 0.5 * x * (1.0 + tl.erf(x * INV_SQRT2))
    elif CODE == GELU_TANH:
        return 0.5 * x * (1.0 + libdevice.tanh(_tanh_argument(x)))
    elif CODE == IDENTITY:
        return x
    elif CODE == LOG:
        return tl.log(x)
    elif CODE == LOGICAL_NOT:
        return (x == 0).to(tl.float32)
    elif CODE == NEG:
        return -x
    elif CODE == RECIPROCAL:
        return 1.0 / x
    elif CODE == RSQRT:
        return 1.0 / tl.sqrt_rn(x)
    elif CODE == SIGMOID:
        return _sigmoid(x)
    elif CODE == SIN:
        return libdevice.sin(x)
    elif CODE == SOFTPLUS:
        return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) + libdevice.log1p(tl.exp(-tl.abs(x)))
    elif CODE == SQRT:
        return tl.sqrt_rn(x)
    elif CODE == TAN:
        return libdevice.tan(x)
    elif CODE == TANH:
        return libdevice.tanh(x)
    elif CODE == RELU:
        below = tl.full(x.shape, P1, tl.float32) if P0 == 0.0 else P1 + P0 * (x - P1)
        return tl.where(x != x, x, tl.where(x <= P1, below, tl.minimum(x, P2)))
    elif CODE == LEAKY_RELU:
        return tl.where(x > 0, x, P0 * x)
    elif CODE == SWISH:
        return x * _sigmoid(P0 * x)
    else:
        # The one that is left rounds to bfloat16, or to float16.
        return x.to(tl.float16).to(tl.float32) if CODE == TO_HALF else x.to(tl.bfloat16).to(tl.float32)


@triton.jit
def _binary(CODE: tl.constexpr, a, b):
    if CODE == ADD or CODE == BIAS:
        return a + b
    elif CODE == ADD_SQUARE:
        return a + b * b
    elif CODE == DIV:
        return tl.div_rn(a, b)
    elif CODE == LOGICAL_AND:
        return ((a != 0) & (b != 0)).to(tl.float32)
    elif CODE == LOGICAL_OR:
        return ((a != 0) | (b != 0)).to(tl.float32)
    elif CODE == MUL or CODE == SCALE:
        return a * b
    elif CODE == SUB:
        return a - b
    elif CODE == MAX:
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif CODE == MIN:
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif CODE == MOD:
        return libdevice.fmod(a, b)
    elif CODE == POW:
        return libdevice.pow(a, b)
    elif CODE == CMP_EQ:
        return (a == b).to(tl.float32)
    elif CODE == CMP_NEQ:
        return (a != b).to(tl.float32)
    elif CODE == CMP_GT:
        return (a > b).to(tl.float32)
    elif CODE == CMP_GE:
        return (a >= b).to(tl.float32)
    elif CODE == CMP_LT:
        return (a < b).to(tl.float32)
    else:
        tl.static_assert(CODE == CMP_LE)
        return (a <= b).to(tl.float32)


@triton.jit
def _backward(CODE: tl.constexpr, g, x, P0: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr):
    if CODE == ELU_BACKWARD:
        return g * tl.where(x > 0, 1.0, tl.exp(x))
    elif CODE == GELU_BACKWARD:
        return g * (0.5 * (1.0 + tl.erf(x * INV_SQRT2)) + x * tl.exp(-0.5 * x * x) * INV_SQRT_2PI)
    elif CODE == GELU_TANH_BACKWARD:
        # Beyond, tanh is 1 or -1 to the last place, and the square of x would overflow; a NaN stays one.
        x = tl.where(x > 50.0, 50.0, tl.where(x < -50.0, -50.0, x))
        t = libdevice.tanh(_tanh_argument(x))
        slope = 0.5 * x * (1.0 - t * t) * SQRT_2_OVER_PI * (1.0 + 3 * 0.044715 * x * x)
        return g * (0.5 * (1.0 + t) + slope)
    elif CODE == SIGMOID_BACKWARD:
        return g * _sigmoid(x) * _sigmoid(-x)
    elif CODE == SOFTPLUS_BACKWARD:
        return g * _sigmoid(x)
    elif CODE == TANH_BACKWARD:
        t = libdevice.tanh(x)
        return g * (1.0 - t * t)
    elif CODE == RELU_BACKWARD:
        return g * tl.where(x <= P1, P0, tl.where(x >= P2, 0.0, 1.0))
    elif CODE == LEAKY_RELU_BACKWARD:
        return g * tl.where(x > 0, 1.0, P0)
    else:
        tl.static_assert(CODE == SWISH_BACKWARD)
        s = _sigmoid(P0 * x)
        # In this order, a product P0 * x that overflows does not meet the 0 of the sigmoid's slope.
        return g * (s + P0 * (x * (s * _sigmoid(-P0 * x))))


@triton.jit
def apply(CODE: tl.constexpr, a, b, c, P0: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr):
    """One step; operands that the operation does not have are ignored."""
    if CODE < ADD or CODE > BINARY_SELECT:
        return _unary(CODE, a, P0, P1, P2)
    elif CODE < ELU_BACKWARD:
        return _binary(CODE, a, b)
    elif CODE < BINARY_SELECT:
        return _backward(CODE, a, b, P0, P1, P2)
    else:
        return tl.where(c != 0, a, b)
