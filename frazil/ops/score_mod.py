"""What `score_mod` callbacks become: expressions over the scaled scores, their values, and their gradient.

Owns the check of an expression against the extents of the scores, and the derivative of expressions that the
score runs through on one path of operations with a rule here, so that a backward needs no callback of its own
for soft-capping, scaling, masks and additive terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..dtypes import data_type
from ..errors import GraphError
from ..expression import Expression, Step
from ..geometry import row_major
from ..op import Attrs, Call, Op
from . import pointwise

_ELEMENTWISE: dict[str, Op] = {op.name: op for op in pointwise.OPS}
_NONE = Attrs({})

# By operation and position of the score: how the gradient g passes. "g" unchanged, an operation on g and the
# other operand, or the name of the operation's own backward, which takes g and the operation's input.
_RULES: dict[tuple[str, int], str] = {
    **{(op, i): "same" for op in ("add", "bias") for i in (0, 1)},
    ("identity", 0): "same",
    ("sub", 0): "same",
    ("sub", 1): "negate",
    ("neg", 0): "negate",
    **{(op, i): "times_other" for op in ("mul", "scale") for i in (0, 1)},
    ("div", 0): "over_other",
    ("binary_select", 0): "where",
    ("binary_select", 1): "where_not",
    **{(f, 0): "backward" for f in ("tanh", "sigmoid", "elu", "gelu", "gelu_approx_tanh", "softplus")},
    **{(f, 0): "backward" for f in ("relu", "leaky_relu", "swish")},
}

# Constant between jumps, in every operand: no gradient passes.
_FLAT = {"gen_index", "ceil", "floor", "logical_and", "logical_or", "logical_not"} | {
    f"cmp_{c}" for c in ("eq", "neq", "gt", "ge", "lt", "le")
}


def evaluate(xp: ModuleType, expression: Expression, values: Sequence[Any]) -> tuple[Any, ...]:
    """Results of an expression over arrays."""
    return expression.evaluate(xp, _ELEMENTWISE.__getitem__, values)


def bind(graph: Any, node: str, forward: Any, backward: Any = None) -> tuple[Expression | None, list[Any]]:
    """The expression of the callbacks, and the tensors that it captures."""
    if forward is None:
        return None, []
    callbacks: list[Callable[..., Any]] = [forward] if backward is None else [forward, backward]
    for name, callback in zip(("score_mod", "score_mod_bprop"), callbacks, strict=False):
        if not callable(callback):
            expected = "a function of the graph and a tensor"
            raise GraphError(name, node=node, got=repr(callback), expected=expected)
    expression, captured = graph.trace(callbacks, node)
    return expression, captured


@dataclass(frozen=True, slots=True)
class _Value:
    """What the inference of a step may know of its operands."""

    dim: tuple[int, ...]
    name: str = ""
    data_type: data_type = data_type.FLOAT
    is_virtual: bool = True
    is_pass_by_value: bool = False
    is_ragged: bool = False

    @property
    def stride(self) -> tuple[int, ...]:
        return row_major(self.dim)


def check(call: Call, expression: Expression, scores: tuple[int, ...]) -> None:
    """Refuse captured tensors and steps that do not fit scores of the given extents."""
    captures = call.inputs["captures"] or ()
    for tensor in captures:
        what = f"tensor '{getattr(tensor, 'name', '')}' that score_mod uses"
        call.require(not tensor.is_ragged, what, got="a packed tensor", expected="a dense one")
        padded = (1,) * (len(scores) - len(tensor.dim)) + tuple(tensor.dim)
        fits = len(padded) == len(scores) and all(d in (1, s) for d, s in zip(padded, scores, strict=True))
        call.require(fits, what, got=tensor.dim, expected=f"extents that broadcast to {scores}")
    known = [*[_Value(scores)] * expression.leading, *(_Value(tuple(t.dim)) for t in captures)]
    for step in expression.steps:
        op = _ELEMENTWISE[step.op]
        operands = {p.name: known[i] for p, i in zip(op.inputs, step.args, strict=False)}
        name = f"{call.name or call.op.name}, {step.op} of score_mod"
        inner = Call(op, name, step.attrs, operands, {}, step.compute)
        (found,) = op.infer(inner).values()
        if op.check is not None:
            op.check(inner)
        known.append(_Value(found.dim))


def with_gradient(expression: Expression) -> Expression | None:
    """The expression with a second leading value, the gradient of its result, and the gradient of the score
    as a second result; None where the score takes more than one path or passes an operation without a rule.
    """
    first = 1 + expression.captures
    depends = {0}
    for number, step in enumerate(expression.steps, start=first):
        if any(a in depends and _passes(step, p) for p, a in enumerate(step.args)):
            depends.add(number)
    steps = [_shifted(s) for s in expression.steps]
    made = _Steps(steps, first + 1)
    gradients = {expression.results[0]: 1}
    for number in reversed(range(first, first + len(steps))):
        if number not in gradients or number not in depends:
            continue
        for position, source in enumerate(expression.steps[number - first].args):
            if source not in depends or not _passes(expression.steps[number - first], position):
                continue
            if source in gradients or (steps[number - first].op, position) not in _RULES:
                return None
            gradients[source] = _pass(made, steps[number - first], position, gradients[number])
    score = gradients[0] if 0 in gradients else made.add("sub", 1, 1)
    return Expression(2, expression.captures, tuple(made.steps), (_shift(expression.results[0]), score))


def _passes(step: Step, position: int) -> bool:
    """Whether a result varies smoothly with an operand: comparisons, and what selects, do not."""
    return step.op not in _FLAT and (step.op, position) != ("binary_select", 2)


class _Steps:
    """Steps under construction, with the number that the next one gets."""

    def __init__(self, steps: Sequence[Step], base: int) -> None:
        self.steps, self._base = list(steps), base

    def add(self, op: str, *args: int, attrs: Attrs = _NONE) -> int:
        """Append a step; its number."""
        self.steps.append(Step(op, attrs, args, data_type.FLOAT))
        return self._base + len(self.steps) - 1


def _pass(made: _Steps, step: Step, position: int, g: int) -> int:
    """Number of the gradient before a step, from that behind it."""
    rule = _RULES[step.op, position]
    if rule == "same":
        return g
    if rule == "negate":
        return made.add("neg", g)
    if rule == "times_other":
        return made.add("mul", g, step.args[1 - position])
    if rule == "over_other":
        return made.add("div", g, step.args[1])
    if rule == "backward":
        return made.add(f"{step.op}_backward", g, step.args[0], attrs=step.attrs)
    zero = made.add("sub", g, g)
    chosen = (g, zero) if rule == "where" else (zero, g)
    return made.add("binary_select", *chosen, step.args[2])


def _shifted(step: Step) -> Step:
    return Step(step.op, step.attrs, tuple(_shift(a) for a in step.args), step.compute, step.data_type)


def _shift(number: int) -> int:
    """A value's number once the gradient stands behind the score."""
    return number if number == 0 else number + 1
