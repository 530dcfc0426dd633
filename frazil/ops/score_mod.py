"""What `score_mod` callbacks become: expressions over the scaled scores, their values, and their gradient.

Owns the derivative of the expressions whose score runs through one chain of steps, so that a backward needs
no callback of its own for soft-capping, scaling, masks and additive terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ..dtypes import data_type
from ..expression import Expression, Step
from ..op import Attrs, Op
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


def evaluate(xp: ModuleType, expression: Expression, values: Sequence[Any]) -> tuple[Any, ...]:
    """Results of an expression over arrays."""
    return expression.evaluate(xp, _ELEMENTWISE.__getitem__, values)


def bind(graph: Any, node: str, forward: Any, backward: Any = None) -> tuple[Expression | None, list[Any]]:
    """The expression of the callbacks, and the tensors that it captures."""
    if forward is None:
        return None, []
    callbacks: list[Callable[..., Any]] = [forward] if backward is None else [forward, backward]
    expression, captured = graph.trace(callbacks, node)
    return expression, captured


def with_gradient(expression: Expression) -> Expression | None:
    """The expression with a second leading value, the gradient of its result, and the gradient of the score
    as a second result; None where the score takes more than one way or passes an operation without a rule."""
    first = expression.leading + expression.captures
    chain = _chain(expression, first)
    if chain is None:
        return None
    steps = [_shifted(s) for s in expression.steps]
    made = _Steps(steps, first + 1)
    gradient = 1
    for number, position in reversed(chain):
        gradient = _pass(made, steps[number - first], position, gradient)
    return Expression(2, expression.captures, tuple(made.steps), (_shift(expression.results[0]), gradient))


def _chain(expression: Expression, first: int) -> list[tuple[int, int]] | None:
    """Steps from the score to the result, each with the position of the operand that carries it."""
    carrier = 0
    found: list[tuple[int, int]] = []
    for number, step in enumerate(expression.steps, start=first):
        hits = [p for p, a in enumerate(step.args) if a == carrier or (found and a in [n for n, _ in found])]
        if not hits or step.op == "gen_index":
            continue
        if len(hits) > 1 or step.args[hits[0]] != carrier or (step.op, hits[0]) not in _RULES:
            return None
        found.append((number, hits[0]))
        carrier = number
    return found if carrier == expression.results[0] else None


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
