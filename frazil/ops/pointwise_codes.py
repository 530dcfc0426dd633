"""Numbers of the elementwise operations in compiled expressions: what an engine writes and a kernel reads.

The numbers are compile-time parameters of kernels and appear in nothing that is stored but artifacts' keys.
Knows neither Triton nor engines.
"""

from __future__ import annotations

UNARY = (
    *("abs", "ceil", "cos", "elu", "erf", "exp", "floor", "gelu", "gelu_approx_tanh", "identity", "log"),
    *("logical_not", "neg", "reciprocal", "rsqrt", "sigmoid", "sin", "softplus", "sqrt", "tan", "tanh"),
    *("relu", "leaky_relu", "swish"),
)
BINARY = (
    *("add", "add_square", "div", "logical_and", "logical_or", "mul", "sub", "max", "min", "mod", "pow"),
    *("cmp_eq", "cmp_neq", "cmp_gt", "cmp_ge", "cmp_lt", "cmp_le", "bias", "scale"),
)
BACKWARD = (
    *("elu_backward", "gelu_backward", "gelu_approx_tanh_backward", "sigmoid_backward", "softplus_backward"),
    *("tanh_backward", "relu_backward", "leaky_relu_backward", "swish_backward"),
)
CODES = {
    name: i for i, name in enumerate((*UNARY, *BINARY, *BACKWARD, "binary_select", "to_half", "to_bfloat16"))
}
