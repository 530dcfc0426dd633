# Written by tools/make_stub.py from the operation records.
from collections.abc import Callable, Sequence
from inspect import Signature
from typing import Any

from .enums import (
    attention_implementation,
    convolution_mode,
    diagonal_alignment,
    norm_forward_phase,
    reduction_mode,
    reshape_mode,
)
from .op import Op
from .tensor import Tensor

def signature(op: Op) -> Signature: ...
def describe(op: Op) -> list[tuple[str, Any, str, str]]: ...
def docstring(op: Op) -> str: ...

class Builders:
    def _add(self, op: Op, arguments: dict[str, Any]) -> Any: ...
    def abs(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Absolute value.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def ceil(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Smallest integer not below.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def cos(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Cosine, argument in radians.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def elu(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """x where x > 0, else exp(x) - 1.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def erf(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Error function.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def exp(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Exponential.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def floor(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Largest integer not above.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def gelu(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """x * Phi(x) with the normal distribution's Phi.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def gelu_approx_tanh(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), the usual approximation of GELU.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def identity(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Copy, with conversion to the output's type.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def log(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Natural logarithm.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def logical_not(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 where the input is 0, else 0.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def neg(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Negation.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def reciprocal(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 / x.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def rsqrt(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 / sqrt(x).

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def sigmoid(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 / (1 + exp(-x)).

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def sin(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Sine, argument in radians.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def softplus(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """log(1 + exp(x)).

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def sqrt(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Square root.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def tan(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Tangent, argument in radians.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def tanh(
        self,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Hyperbolic tangent.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def add(
        self,
        a: Any,
        b: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """a + b.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        a : Any
        b : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def add_square(
        self,
        a: Any,
        b: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """a + b * b.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        a : Any
        b : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def div(
        self,
        a: Any,
        b: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """a / b.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        a : Any
        b : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def logical_and(
        self,
        a: Any,
        b: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 where neither is 0, else 0.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        a : Any
        b : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def logical_or(
        self,
        a: Any,
        b: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """0 where both are 0, else 1.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        a : Any
        b : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def mul(
        self,
        a: Any,
        b: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """a * b.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        a : Any
        b : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def sub(
        self,
        a: Any,
        b: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """a - b.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        a : Any
        b : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def max(
        self,
        input0: Any,
        input1: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """The larger; NaN where either is NaN.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input0 : Any
        input1 : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def min(
        self,
        input0: Any,
        input1: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """The smaller; NaN where either is NaN.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input0 : Any
        input1 : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def mod(
        self,
        input0: Any,
        input1: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Remainder of input0 / input1, with the sign of input0.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input0 : Any
        input1 : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def pow(
        self,
        input0: Any,
        input1: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """input0 to the power of input1.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input0 : Any
        input1 : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def cmp_eq(
        self,
        input: Any,
        comparison: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 where equal, else 0.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        comparison : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def cmp_neq(
        self,
        input: Any,
        comparison: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 where not equal, else 0.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        comparison : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def cmp_gt(
        self,
        input: Any,
        comparison: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 where input > comparison, else 0.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        comparison : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def cmp_ge(
        self,
        input: Any,
        comparison: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 where input >= comparison, else 0.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        comparison : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def cmp_lt(
        self,
        input: Any,
        comparison: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 where input < comparison, else 0.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        comparison : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def cmp_le(
        self,
        input: Any,
        comparison: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """1 where input <= comparison, else 0.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        comparison : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def bias(
        self,
        input: Any,
        bias: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """input + bias.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        bias : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def scale(
        self,
        input: Any,
        scale: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """input * scale.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        scale : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def elu_backward(
        self,
        loss: Any,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of ELU at `input`, times `loss`.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        loss : Any
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def gelu_backward(
        self,
        loss: Any,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of GELU at `input`, times `loss`.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        loss : Any
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def gelu_approx_tanh_backward(
        self,
        loss: Any,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of the tanh form of GELU at `input`, times `loss`.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        loss : Any
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def sigmoid_backward(
        self,
        loss: Any,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of sigmoid at `input`, times `loss`.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        loss : Any
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def softplus_backward(
        self,
        loss: Any,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of softplus at `input`, times `loss`.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        loss : Any
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def tanh_backward(
        self,
        loss: Any,
        input: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of tanh at `input`, times `loss`.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        loss : Any
        input : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def binary_select(
        self,
        input0: Any,
        input1: Any,
        mask: Any,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """input0 where mask is not 0, else input1.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input0 : Any
        input1 : Any
        mask : Any
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def relu(
        self,
        input: Any,
        negative_slope: float | None = None,
        lower_clip: float | None = None,
        upper_clip: float | None = None,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """lower + slope (x - lower) where x <= lower, else min(x, upper).

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        negative_slope : float | None
            Slope below the lower clip; 0 where left out.
        lower_clip : float | None
            Where the slope begins; 0 where left out.
        upper_clip : float | None
            Largest result; none where left out.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def leaky_relu(
        self,
        input: Any,
        negative_slope: float,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """x where x > 0, else slope * x.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        negative_slope : float
            Slope below 0.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def swish(
        self,
        input: Any,
        swish_beta: float | None = None,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """x * sigmoid(beta x).

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        swish_beta : float | None
            Factor inside the sigmoid; 1 where left out.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def gen_index(
        self,
        input: Any,
        axis: int,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """The index of each element along `axis`; the input's values are not read.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        input : Any
        axis : int
            The axis along which to count.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def relu_backward(
        self,
        loss: Any,
        input: Any,
        negative_slope: float | None = None,
        lower_clip: float | None = None,
        upper_clip: float | None = None,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of relu.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        loss : Any
        input : Any
        negative_slope : float | None
            Slope below the lower clip; 0 where left out.
        lower_clip : float | None
            Where the slope begins; 0 where left out.
        upper_clip : float | None
            Largest result; none where left out.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def leaky_relu_backward(
        self,
        loss: Any,
        input: Any,
        negative_slope: float,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of leaky_relu.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        loss : Any
        input : Any
        negative_slope : float
            Slope below 0.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def swish_backward(
        self,
        loss: Any,
        input: Any,
        swish_beta: float | None = None,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """Gradient of swish.

        Inputs broadcast against each other, aligned at the last axis.

        Parameters
        ----------
        loss : Any
        input : Any
        swish_beta : float | None
            Factor inside the sigmoid; 1 where left out.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents of the broadcast of all inputs.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def matmul(
        self,
        A: Any,
        B: Any,
        compute_data_type: Any = None,
        padding: float = 0.0,
        name: str = "",
    ) -> Tensor:
        """Matrix product C = A @ B over the last two axes.

        Parameters
        ----------
        A : Any
            (..., M, K).
        B : Any
            (..., K, N); batch axes of extent 1 in A or B broadcast.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        padding : float
            Value of elements outside A and B; only 0 exists.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        C : Tensor
            (..., M, N).

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def reduction(
        self,
        input: Any,
        group_offset: Any = None,
        mode: reduction_mode = ...,
        compute_data_type: Any = None,
        name: str = "",
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> Tensor:
        """Combine elements along axes.

        Parameters
        ----------
        input : Any
            Any extents.
        group_offset : Any
            Starts of groups; grouped reductions are refused.
        mode : reduction_mode
            How elements combine.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extent 1 on each reduced axis; declare it with set_dim or out_dims, else all axes.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def reshape(
        self,
        input: Any,
        reshape_mode: reshape_mode = ...,
        compute_data_type: Any = None,
        name: str = "",
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> Tensor:
        """Give the elements other extents; their row-major order stays.

        VIEW_ONLY is refused where the input's strides do not allow that without moving elements, or
        where the output's declared strides are not those of the view; LOGICAL takes any strides.

        Parameters
        ----------
        input : Any
            Any extents.
        reshape_mode : reshape_mode
            Whether elements may move.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Extents by set_dim (and set_stride) or out_dims; one of them may be -1.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def slice(
        self,
        input: Any,
        slices: Sequence[Any],
        compute_data_type: Any = None,
        name: str = "",
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> Tensor:
        """Part of a tensor. Bounds read as in Python; axes without a slice are kept whole.

        Parameters
        ----------
        input : Any
            Any extents.
        slices : Sequence[Any]
            Python slices with steps of at least 1.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            The chosen elements.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def transpose(
        self,
        input: Any,
        permutation: Sequence[int],
        compute_data_type: Any = None,
        name: str = "",
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> Tensor:
        """Exchange axes.

        Parameters
        ----------
        input : Any
            Any extents.
        permutation : Sequence[int]
            The input's axis for each output axis.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            Axis i has the extent of the input's axis permutation[i].

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def concatenate(
        self,
        inputs: Sequence[Any],
        axis: int,
        in_place_index: int | None = None,
        compute_data_type: Any = None,
        name: str = "",
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> Tensor:
        """Join tensors along an axis.

        Parameters
        ----------
        inputs : Sequence[Any]
            Equal types, and equal extents but on the axis.
        axis : int
            Axis along which to join; negative ones count from the last.
        in_place_index : int | None
            The input that may share memory with the output.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        OUT_0 : Tensor
            The inputs behind each other.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def conv_fprop(
        self,
        image: Any,
        weight: Any,
        padding: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        convolution_mode: convolution_mode = ...,
        compute_data_type: Any = None,
        name: str = "",
        pre_padding: Sequence[int] | None = None,
        post_padding: Sequence[int] | None = None,
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> Tensor:
        """Convolution of an image with a filter, over one or two spatial axes.

        Parameters
        ----------
        image : Any
            (N, C, W) or (N, C, H, W).
        weight : Any
            The filter, (K, C, taps), of the image's type.
        padding : Sequence[int] | None
            Zeros on either side, per spatial axis: equal pre_padding and post_padding; 0 where none is given.
        stride : Sequence[int] | None
            Step between positions, per spatial axis; 1 where left out.
        dilation : Sequence[int] | None
            Step between filter taps, per spatial axis; 1 where left out.
        convolution_mode : convolution_mode
            CONVOLUTION flips the filter along each spatial axis.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.
        pre_padding : Sequence[int] | None
            Zeros before the image, per spatial axis.
        post_padding : Sequence[int] | None
            Zeros behind the image, per spatial axis.

        Returns
        -------
        Y : Tensor
            (N, K, spatial) in the image's memory order; spatial extent floor((image + pre + post - dilation (taps - 1) - 1) / stride) + 1.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def conv_dgrad(
        self,
        loss: Any,
        filter: Any,
        padding: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        convolution_mode: convolution_mode = ...,
        compute_data_type: Any = None,
        name: str = "",
        pre_padding: Sequence[int] | None = None,
        post_padding: Sequence[int] | None = None,
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> Tensor:
        """Gradient of `conv_fprop` with respect to its image.

        Parameters
        ----------
        loss : Any
            Gradient of the convolution's output, (N, K, spatial).
        filter : Any
            The convolution's weight, (K, C, taps), of the loss's type.
        padding : Sequence[int] | None
            Zeros on either side, per spatial axis: equal pre_padding and post_padding; 0 where none is given.
        stride : Sequence[int] | None
            Step between positions, per spatial axis; 1 where left out.
        dilation : Sequence[int] | None
            Step between filter taps, per spatial axis; 1 where left out.
        convolution_mode : convolution_mode
            CONVOLUTION flips the filter along each spatial axis.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.
        pre_padding : Sequence[int] | None
            Zeros before the image, per spatial axis.
        post_padding : Sequence[int] | None
            Zeros behind the image, per spatial axis.

        Returns
        -------
        DX : Tensor
            (N, C, spatial) in the loss's memory order; declare extents that are not unique.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def conv_wgrad(
        self,
        image: Any,
        loss: Any,
        padding: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        convolution_mode: convolution_mode = ...,
        compute_data_type: Any = None,
        name: str = "",
        pre_padding: Sequence[int] | None = None,
        post_padding: Sequence[int] | None = None,
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> Tensor:
        """Gradient of `conv_fprop` with respect to its weight.

        Parameters
        ----------
        image : Any
            (N, C, W) or (N, C, H, W).
        loss : Any
            Gradient of the convolution's output, (N, K, spatial).
        padding : Sequence[int] | None
            Zeros on either side, per spatial axis: equal pre_padding and post_padding; 0 where none is given.
        stride : Sequence[int] | None
            Step between positions, per spatial axis; 1 where left out.
        dilation : Sequence[int] | None
            Step between filter taps, per spatial axis; 1 where left out.
        convolution_mode : convolution_mode
            CONVOLUTION flips the filter along each spatial axis.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.
        pre_padding : Sequence[int] | None
            Zeros before the image, per spatial axis.
        post_padding : Sequence[int] | None
            Zeros behind the image, per spatial axis.

        Returns
        -------
        DW : Tensor
            (K, C, taps) in the image's memory order; declare extents that are not unique.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def layernorm(
        self,
        norm_forward_phase: norm_forward_phase,
        input: Any,
        scale: Any = None,
        bias: Any = None,
        epsilon: Any = None,
        compute_data_type: Any = None,
        name: str = "",
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Layer norm: (x - mean) / sqrt(var + epsilon) * scale + bias. (J. L. Ba et al., 2016, eq. 4.)

        Parameters
        ----------
        norm_forward_phase : norm_forward_phase
            INFERENCE: Y alone; TRAINING: statistics, too.
        input : Any
            Any extents.
        scale : Any
            Extent of the input on normalised axes, 1 elsewhere.
        bias : Any
            Like scale.
        epsilon : Any
            One number, by value or in memory.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        Y : Tensor
            Extents of the input, by default in its memory order.
        mean : Tensor, or None where it does not exist
            Extent 1 on normalised axes; FLOAT.
        inv_var : Tensor, or None where it does not exist
            1 / sqrt(var + epsilon), extent 1 on normalised axes; FLOAT.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def layernorm_backward(
        self,
        grad: Any,
        input: Any,
        scale: Any = None,
        mean: Any = None,
        inv_variance: Any = None,
        compute_data_type: Any = None,
        name: str = "",
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Gradients of layer norm from its saved statistics.

        Parameters
        ----------
        grad : Any
            Gradient of Y, any strides.
        input : Any
            Any extents.
        scale : Any
            Extent of the input on normalised axes, 1 elsewhere.
        mean : Any
            Saved by the forward.
        inv_variance : Any
            Saved by the forward; extent 1 on normalised axes.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        DX : Tensor
            Gradient of the input.
        DScale : Tensor, or None where it does not exist
            Gradient of scale, in its extents.
        DBias : Tensor
            Gradient of bias, in the extents of scale.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def rmsnorm(
        self,
        norm_forward_phase: norm_forward_phase,
        input: Any,
        scale: Any = None,
        bias: Any = None,
        epsilon: Any = None,
        compute_data_type: Any = None,
        name: str = "",
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> list[Any]:
        """RMS norm: x * inv_var * scale + bias, with inv_var = 1 / sqrt(mean(x^2) + epsilon).

        (B. Zhang, R. Sennrich, 2019, eq. 4.)

        Parameters
        ----------
        norm_forward_phase : norm_forward_phase
            INFERENCE: Y alone; TRAINING: statistics, too.
        input : Any
            Any extents.
        scale : Any
            Extent of the input on normalised axes, 1 elsewhere.
        bias : Any
            Like scale.
        epsilon : Any
            One number, by value or in memory.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        Y : Tensor
            Extents of the input, by default in its memory order.
        inv_var : Tensor, or None where it does not exist
            1 / sqrt(var + epsilon), extent 1 on normalised axes; FLOAT.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def rmsnorm_backward(
        self,
        grad: Any,
        input: Any,
        scale: Any = None,
        inv_variance: Any = None,
        has_dbias: bool = False,
        compute_data_type: Any = None,
        name: str = "",
        *,
        out_dims: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Gradients of RMS norm from its saved statistic.

        Parameters
        ----------
        grad : Any
            Gradient of Y, any strides.
        input : Any
            Any extents.
        scale : Any
            Extent of the input on normalised axes, 1 elsewhere.
        inv_variance : Any
            Saved by the forward; extent 1 on normalised axes.
        has_dbias : bool
            Whether DBias exists.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.

        Returns
        -------
        DX : Tensor
            Gradient of the input.
        DScale : Tensor, or None where it does not exist
            Gradient of scale, in its extents.
        DBias : Tensor, or None where it does not exist
            Gradient of bias.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def sdpa(
        self,
        q: Any,
        k: Any,
        v: Any,
        is_inference: bool | None = None,
        attn_scale: float | Any | None = None,
        bias: Any = None,
        block_mask: Any = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Any = None,
        seq_len_kv: Any = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: diagonal_alignment = ...,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: tuple[Any, ...] | None = None,
        rng_dump: Tensor | None = None,
        paged_attention_k_table: Any = None,
        paged_attention_v_table: Any = None,
        paged_attention_max_seq_len_kv: int | None = None,
        max_total_seq_len_q: int | None = None,
        max_total_seq_len_kv: int | None = None,
        compute_data_type: Any = None,
        name: str = "",
        score_mod: Callable[..., Any] | None = None,
        generate_stats: bool | None = None,
        implementation: attention_implementation = ...,
        score_max: Tensor | None = None,
        score_sum_exp: Tensor | None = None,
        sink_token: Any = None,
        unfuse_fma: bool = False,
        cu_seq_len_q: Any = None,
        cu_seq_len_kv: Any = None,
        stats_use_log2: bool = False,
        sliding_window: int | None = None,
        left_bound: int | None = None,
        right_bound: int | None = None,
        fn: Callable[..., Any] | None = None,
    ) -> list[Any]:
        """Scaled dot-product attention: O = softmax(scale * Q K^T + bias, masked) V.

        MHA, GQA and MQA by the head counts of k and v. Packed batches through `ragged_offset` of the
        tensors; paged keys and values through page tables. Rows that see no key give O = 0 and
        Stats = -inf. In a packed buffer only live rows are written. (A. Vaswani et al., 2017, eq. 1.)

        Parameters
        ----------
        q : Any
            (B, Hq, Sq, Dqk), unit stride along D.
        k : Any
            (B, Hk, Skv, Dqk), or pages (P, Hk, page size, Dqk); Hk divides Hq.
        v : Any
            (B, Hv, Skv, Dv), or pages (P, Hv, page size, Dv); Hv divides Hq.
        is_inference : bool | None
            Without Stats; give this or generate_stats.
        attn_scale : float | Any | None
            Factor of Q K^T, a number or a tensor; 1 where left out.
        bias : Any
            Added to the scaled scores; broadcasts to (B, Hq, Sq, Skv).
        block_mask : Any
            uint8, one bit per tile of 128 x 128.
        use_alibi_mask : bool
            Add slope * (key - row), with the usual slope of each head.
        use_padding_mask : bool
            Lengths are given; what lies behind them takes no part.
        seq_len_q : Any
            Live rows of each batch entry, (B, 1, 1, 1) of INT32 or INT64, held within 0 and Sq; with use_padding_mask, or beside a score_mod.
        seq_len_kv : Any
            Live keys of each batch entry, (B, 1, 1, 1); held within 0 and Skv.
        use_causal_mask : bool
            Top-left alignment and right bound 0.
        use_causal_mask_bottom_right : bool
            Bottom-right alignment and right bound 0.
        sliding_window_length : int | None
            The same as diagonal_band_left_bound.
        diagonal_alignment : diagonal_alignment
            Position p of row i on the diagonal: i, or i + len_kv - len_q with each entry's own lengths.
        diagonal_band_left_bound : int | None
            w: keys j > p - w are visible, w of them up to the diagonal.
        diagonal_band_right_bound : int | None
            r: keys j <= p + r are visible.
        dropout : tuple[Any, ...] | None
            (probability, seed tensor, offset tensor), or (mask tensor, scale tensor); backward also takes the inverse of the scale as a third, which it does not read.
        rng_dump : Tensor | None
            (B, Hq, Sq, Skv): 1 where dropout keeps a probability.
        paged_attention_k_table : Any
            Page of each block of keys, (B, 1, blocks, 1).
        paged_attention_v_table : Any
            Page of each block of values, (B, 1, blocks, 1).
        paged_attention_max_seq_len_kv : int | None
            Skv of paged operands; where left out that of bias or rng_dump, else what both tables hold.
        max_total_seq_len_q : int | None
            Upper bound of the packed rows; a hint.
        max_total_seq_len_kv : int | None
            Upper bound of the packed keys; a hint.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.
        score_mod : Callable[..., Any] | None
            (graph, score) -> score: elementwise operations on the scaled scores (B, Hq, Sq, Skv), before bias and masks.
        generate_stats : bool | None
            With Stats; give this or is_inference.
        implementation : attention_implementation
            Constrains the closed library's engine alone.
        score_max : Tensor | None
            (B, Hq, Sq, 1) FLOAT: largest logit of each row, the sink's included.
        score_sum_exp : Tensor | None
            (B, Hq, Sq, 1) FLOAT: sum of exp(logit - largest).
        sink_token : Any
            One more logit per head, (1, Hq, 1, 1), without a value.
        unfuse_fma : bool
            A hint to the closed library.
        cu_seq_len_q : Any
            Cumulative rows, B + 1 elements; hides what lies behind them by itself.
        cu_seq_len_kv : Any
            Cumulative keys, B + 1 elements; hides what lies behind them by itself.
        stats_use_log2 : bool
            Statistics in base 2.
        sliding_window : int | None
            The same as diagonal_band_left_bound.
        left_bound : int | None
            The same as diagonal_band_left_bound.
        right_bound : int | None
            The same as diagonal_band_right_bound.
        fn : Callable[..., Any] | None
            The same as score_mod.

        Returns
        -------
        O : Tensor
            (B, Hq, Sq, Dv), by default in the memory order of q.
        Stats : Tensor, or None where it does not exist
            (B, Hq, Sq, 1) FLOAT: natural logarithm of the sum of exponentials, the sink's included.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """

    def sdpa_backward(
        self,
        q: Any,
        k: Any,
        v: Any,
        o: Any,
        dO: Any,
        stats: Any,
        attn_scale: float | Any | None = None,
        bias: Any = None,
        dBias: Tensor | None = None,
        use_alibi_mask: bool = False,
        use_padding_mask: bool = False,
        seq_len_q: Any = None,
        seq_len_kv: Any = None,
        max_total_seq_len_q: int | None = None,
        max_total_seq_len_kv: int | None = None,
        use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
        sliding_window_length: int | None = None,
        diagonal_alignment: diagonal_alignment = ...,
        diagonal_band_left_bound: int | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: tuple[Any, ...] | None = None,
        rng_dump: Tensor | None = None,
        use_deterministic_algorithm: bool = False,
        compute_data_type: Any = None,
        name: str = "",
        score_mod: Callable[..., Any] | None = None,
        score_mod_bprop: Callable[..., Any] | None = None,
        sink_token: Any = None,
        dSink_token: Tensor | None = None,
        block_mask: Any = None,
        cu_seq_len_q: Any = None,
        cu_seq_len_kv: Any = None,
        sliding_window: int | None = None,
        left_bound: int | None = None,
        right_bound: int | None = None,
        fn: Callable[..., Any] | None = None,
    ) -> list[Any]:
        """Gradients of scaled dot-product attention.

        Takes the forward's operands, output and statistics with the same masks and dropout. Rows that
        see no key give zero gradients. In packed buffers only live rows are written.
        (T. Dao et al., 2022, appendix B.)

        Parameters
        ----------
        q : Any
            (B, Hq, Sq, Dqk), unit stride along D.
        k : Any
            (B, Hk, Skv, Dqk), or pages (P, Hk, page size, Dqk); Hk divides Hq.
        v : Any
            (B, Hv, Skv, Dv), or pages (P, Hv, page size, Dv); Hv divides Hq.
        o : Any
            The forward's output, (B, Hq, Sq, Dv).
        dO : Any
            Gradient of the output, any strides with 1 along D.
        stats : Any
            The forward's statistics in natural logarithm, (B, Hq, Sq, 1) FLOAT.
        attn_scale : float | Any | None
            Factor of Q K^T, a number or a tensor; 1 where left out.
        bias : Any
            Added to the scaled scores; broadcasts to (B, Hq, Sq, Skv).
        dBias : Tensor | None
            Gradient of bias, summed over the axes that it broadcasts.
        use_alibi_mask : bool
            Add slope * (key - row), with the usual slope of each head.
        use_padding_mask : bool
            Lengths are given; what lies behind them takes no part.
        seq_len_q : Any
            Live rows of each batch entry, (B, 1, 1, 1) of INT32 or INT64, held within 0 and Sq; with use_padding_mask, or beside a score_mod.
        seq_len_kv : Any
            Live keys of each batch entry, (B, 1, 1, 1); held within 0 and Skv.
        max_total_seq_len_q : int | None
            Upper bound of the packed rows; a hint.
        max_total_seq_len_kv : int | None
            Upper bound of the packed keys; a hint.
        use_causal_mask : bool
            Top-left alignment and right bound 0.
        use_causal_mask_bottom_right : bool
            Bottom-right alignment and right bound 0.
        sliding_window_length : int | None
            The same as diagonal_band_left_bound.
        diagonal_alignment : diagonal_alignment
            Position p of row i on the diagonal: i, or i + len_kv - len_q with each entry's own lengths.
        diagonal_band_left_bound : int | None
            w: keys j > p - w are visible, w of them up to the diagonal.
        diagonal_band_right_bound : int | None
            r: keys j <= p + r are visible.
        dropout : tuple[Any, ...] | None
            (probability, seed tensor, offset tensor), or (mask tensor, scale tensor); backward also takes the inverse of the scale as a third, which it does not read.
        rng_dump : Tensor | None
            (B, Hq, Sq, Skv): 1 where dropout keeps a probability.
        use_deterministic_algorithm : bool
            The same bits in every run.
        compute_data_type : Any
            Type of the arithmetic; the graph's where left out.
        name : str
            Name of the node; its outputs are called `<name>::<port>`.
        score_mod : Callable[..., Any] | None
            (graph, score) -> score: elementwise operations on the scaled scores (B, Hq, Sq, Skv), before bias and masks.
        score_mod_bprop : Callable[..., Any] | None
            (graph, gradient) -> gradient of score_mod; may use tensors that score_mod computed.
        sink_token : Any
            One more logit per head, (1, Hq, 1, 1), without a value.
        dSink_token : Tensor | None
            Gradient of sink_token, (1, Hq, 1, 1).
        block_mask : Any
            uint8, one bit per tile of 128 x 128.
        cu_seq_len_q : Any
            Cumulative rows, B + 1 elements; hides what lies behind them by itself.
        cu_seq_len_kv : Any
            Cumulative keys, B + 1 elements; hides what lies behind them by itself.
        sliding_window : int | None
            The same as diagonal_band_left_bound.
        left_bound : int | None
            The same as diagonal_band_left_bound.
        right_bound : int | None
            The same as diagonal_band_right_bound.
        fn : Callable[..., Any] | None
            The same as score_mod.

        Returns
        -------
        dQ : Tensor
            Gradient of q, by default in its strides.
        dK : Tensor
            Gradient of k, summed over the query heads of a group.
        dV : Tensor
            Gradient of v, summed over the query heads of a group.

        Raises
        ------
        GraphError
            A missing or foreign tensor, or an attribute of the wrong kind.
        """
