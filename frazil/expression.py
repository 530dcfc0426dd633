"""Scalar expressions that a node carries as an attribute: what `score_mod` callbacks become.

An expression is data: a list of pointwise steps over numbered values. Owns its evaluation and nothing else;
which operations may appear is the caller's rule, and their records are looked up by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .dtypes import cast, data_type, math_type
from .op import Attrs, Call, Op


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: `args` number earlier values; a `data_type` other than NOT_SET rounds the result to
    it.
    """

    op: str
    attrs: Attrs
    args: tuple[int, ...]
    compute: data_type
    data_type: data_type = data_type.NOT_SET


@dataclass(frozen=True, slots=True)
class Expression:
    """Steps over numbered values.

    Values 0 to `leading` - 1 are what the operation itself supplies (the score, in backward also its
    gradient); the next `captures` are tensors of the surrounding graph; then one per step. `results` number
    the values to return.
    """

    leading: int
    captures: int
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def evaluate(self, xp: ModuleType, find: Callable[[str], Op], values: Sequence[Any]) -> tuple[Any, ...]:
        """Results for arrays of the leading and captured values, which broadcast against each other.

        Parameters
        ----------
        find
            Record of an operation by name.
        """
        known = list(values)
        for step in self.steps:
            op = find(step.op)
            arrays = {p.name: known[i] for p, i in zip(op.inputs, step.args, strict=False)}
            call = Call(
                op, step.op, step.attrs, dict.fromkeys(arrays), {op.outputs[0].name: None}, step.compute
            )
            result = op.reference(xp, call, arrays)[op.outputs[0].name]
            if step.data_type is not data_type.NOT_SET:
                result = cast(xp.asarray(result), step.data_type).astype(
                    math_type(step.compute, [step.data_type])
                )
            known.append(result)
        return tuple(known[i] for i in self.results)
