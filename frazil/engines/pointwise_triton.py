"""Pointwise graphs on CUDA devices: any connected graph of elementwise operations with broadcasting, as one
kernel.

The expression is a compile-time parameter of one kernel body; extents, strides and numbers are run-time
arguments, so that one artifact serves every shape of a layout class: types, steps, merged rank, and which
operands have stride 1 or 0 along the last merged axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .. import compile
from ..dtypes import data_type
from ..engine import Claim, Config, Decline, Tier
from ..enums import knob_type
from ..geometry import span
from ..op import Attrs
from ..ops import find
from ..ops.pointwise_codes import CODES
from ..program import Argument, Binary, Const, HostScalar, Kernel, Null, Number, Program, Slot
from ..spec import NodeSpec, Problem
from ..target import Target

_POINTER = {
    data_type.FLOAT: "*fp32",
    data_type.HALF: "*fp16",
    data_type.BFLOAT16: "*bf16",
    data_type.BOOLEAN: "*i8",
}
_ROUNDING = {data_type.HALF: "to_half", data_type.BFLOAT16: "to_bfloat16"}
_VIRTUAL = (data_type.FLOAT, data_type.BOOLEAN, *_ROUNDING)
_RANKS = 6
_INT32_LIMIT = 2**31 - 2**16  # leaves room for the last block
# Share of the copy bandwidth (0.56 to 1.06 by expression and shape, 0.7 between them), and microseconds of a
# launch: one H200, bench/results/pointwise_h200.json.
_EFFICIENCY, _LAUNCH_US = 0.7, 2.0


@dataclass(frozen=True, slots=True)
class PointwiseConfig(Config):
    """Elements of a block, and warps."""

    block: int = 1024
    warps: int = 4

    def knobs(self) -> dict[knob_type, int]:
        """The block size."""
        return {knob_type.BLOCK_SIZE: self.block}


@dataclass(frozen=True, slots=True)
class _Space:
    """The output space with axes merged as far as all operands allow.

    Attributes
    ----------
    strides
        Of each operand, 0 where it broadcasts.
    """

    dim: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    def inner(self) -> tuple[int, ...]:
        """By operand: 0 where it broadcasts along the last axis, 1 where its elements are neighbours there,
        else 2.
        """
        return tuple(min(s[-1], 2) for s in self.strides)


class PointwiseTriton:
    """See the module."""

    name = "pointwise_triton"

    def claim(self, problem: Problem, target: Target) -> Claim | Decline:
        """Serves elementwise graphs in float arithmetic whose outputs all have the full extents."""
        declined = _decline(problem, target)
        if declined is not None:
            return declined
        moved = sum(
            t.elements * (4 if t.data_type is data_type.FLOAT else 2)
            for t in problem.tensors
            if not t.is_virtual
        )
        return Claim(Tier.OFFER, moved / (target.bandwidth * _EFFICIENCY) * 1e6 + _LAUNCH_US)

    def configs(self, problem: Problem, target: Target) -> Sequence[Config]:
        """Block sizes; 1024 was the best or within 2 % of it on every shape measured."""
        return PointwiseConfig(), PointwiseConfig(2048, 8), PointwiseConfig(512, 4)

    def build(self, problem: Problem, config: Config, target: Target) -> Program:
        """One launch."""
        assert isinstance(config, PointwiseConfig)
        inputs, scalars, outputs = _operands(problem)
        space = _merge(problem, (*inputs, *outputs))
        count = prod(space.dim)
        wide = max(count, *(span(space.dim, s) for s in space.strides)) > _INT32_LIMIT
        integer = "i64" if wide else "i32"
        rank = len(space.dim)
        strides = [s for operand in space.strides for s in operand]
        source = compile.KernelSource(
            "pointwise",
            "pointwise",
            (
                ("inputs", tuple(_POINTER[problem.tensors[i].data_type] for i in inputs)),
                ("outputs", tuple(_POINTER[problem.tensors[i].data_type] for i in outputs)),
                ("scalars", ("fp32",) * len(scalars)),
                ("n", integer),
                ("shape", (integer,) * rank),
                ("strides", (integer,) * len(strides)),
            ),
            (
                ("STEPS", _steps(problem, (*inputs, *scalars))),
                ("RESULTS", _results(problem, (*inputs, *scalars), outputs)),
                ("INNER", space.inner()),
                ("BOOLEAN", tuple(problem.tensors[i].data_type is data_type.BOOLEAN for i in outputs)),
                ("RANK", rank),
                ("WIDE", wide),
                ("BLOCK", config.block),
            ),
            _divisible(len(inputs), len(outputs), count, space.dim, strides),
            config.warps,
        )
        artifact = compile.artifact(source, target)
        kind = data_type.INT64 if wide else data_type.INT32
        numbers = (count, *space.dim, *strides)
        args: list[Argument] = [Slot(i) for i in (*inputs, *outputs)]
        args += [_scalar(problem, i) for i in scalars]
        args += [Number(Const(v), kind) for v in numbers]
        args += [Null(), Null()]
        grid = (Binary("cdiv", Const(count), Const(config.block)), Const(1), Const(1))
        kernel = Kernel(artifact, grid, artifact.threads, tuple(args), shared=artifact.shared)
        fixed = frozenset((*inputs, *outputs))
        aligned = tuple((i, 16) for i in (*inputs, *outputs))
        # A program's elements are read before they are written, at the same places: an output may be an input
        # of its extents.
        aliases = frozenset(
            (o, i)
            for o in outputs
            for i in inputs
            if (problem.tensors[i].dim, problem.tensors[i].stride)
            == (problem.tensors[o].dim, problem.tensors[o].stride)
        )
        return Program(problem.tensors, (kernel,), aligned=aligned, may_alias=aliases, fixed=fixed)


def _decline(problem: Problem, target: Target) -> Decline | None:
    """The first condition that a problem misses."""
    if target.is_cpu or target.compute_capability < (8, 0):
        return Decline.because("target", target.arch, "sm_80 and later")
    for node in problem.nodes:
        if node.op not in CODES or not find(node.op).elementwise:
            return Decline.because(f"operation of node '{node.name}'", node.op, "elementwise operations")
        if node.compute not in (data_type.FLOAT, data_type.BOOLEAN, data_type.HALF, data_type.BFLOAT16):
            return Decline.because(f"compute type of node '{node.name}'", node.compute, data_type.FLOAT)
    inputs, scalars, outputs = _operands(problem)
    if not inputs:
        return Decline.because("inputs", "host scalars alone", "at least one tensor in memory")
    full = problem.tensors[outputs[0]].dim
    for number, tensor in enumerate(problem.tensors):
        served = tuple(_POINTER) if not tensor.is_virtual else _VIRTUAL
        if number in scalars:
            served = (data_type.FLOAT, data_type.INT32)
        if tensor.data_type not in served:
            allowed = ", ".join(t.name for t in served)
            return Decline.because(f"data type of {tensor.label}", tensor.data_type, allowed)
        if tensor.is_ragged or tensor.dynamic:
            return Decline.because(f"extents of {tensor.label}", "packed or dynamic", "fixed extents")
        if number in outputs and tensor.dim != full:
            return Decline.because(f"extents of output {tensor.label}", tensor.dim, full)
    widest = max((t.dim for t in problem.tensors), key=lambda d: (len(d), prod(d)))
    if prod(full) < max(prod(problem.tensors[i].dim) for i in inputs) or len(widest) > len(full):
        return Decline.because("extents of the outputs", full, "the broadcast of all inputs")
    rank = len(_merge(problem, (*inputs, *outputs)).dim)
    return Decline.because("axes after merging", rank, f"at most {_RANKS}") if rank > _RANKS else None


def _operands(problem: Problem) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Numbers of the tensors in memory that are read, of the scalars, and of the outputs."""
    read = dict.fromkeys(i for n in problem.nodes for i in n.reads() if i not in problem.written)
    scalars = tuple(i for i in read if problem.tensors[i].is_pass_by_value)
    return tuple(i for i in read if i not in scalars), scalars, problem.outputs


def _merge(problem: Problem, operands: Sequence[int]) -> _Space:
    """Drop axes of extent 1 and merge neighbours that are one run in every operand."""
    full = problem.tensors[problem.outputs[0]].dim
    rank = len(full)
    spread = []
    for number in operands:
        tensor = problem.tensors[number]
        lead = rank - len(tensor.dim)
        pairs = zip(tensor.dim, tensor.stride, full[lead:], strict=True)
        spread.append((0,) * lead + tuple(0 if d == 1 and e != 1 else s for d, s, e in pairs))
    axes: list[tuple[int, list[int]]] = []
    for axis in range(rank):
        if full[axis] == 1:
            continue
        here = [s[axis] for s in spread]
        if axes and all(o == full[axis] * s for o, s in zip(axes[-1][1], here, strict=True)):
            axes[-1] = (axes[-1][0] * full[axis], here)
        else:
            axes.append((full[axis], here))
    if not axes:
        axes = [(1, [1] * len(spread))]
    return _Space(tuple(d for d, _ in axes), tuple(tuple(s[k] for _, s in axes) for k in range(len(spread))))


def _steps(problem: Problem, leaves: Sequence[int]) -> tuple[tuple[Any, ...], ...]:
    """The nodes as steps over numbered values: operands first, then one value per step."""
    numbers = {tensor: i for i, tensor in enumerate(leaves)}
    steps: list[tuple[Any, ...]] = []
    for node in problem.nodes:
        args = [numbers[i] for i in node.reads()]
        args += [args[0]] * (3 - len(args))
        steps.append((CODES[node.op], *args, *_parameters(node)))
        (output,) = node.writes()
        numbers[output] = len(leaves) + len(steps) - 1
        rounding = _ROUNDING.get(problem.tensors[output].data_type)
        if rounding is not None:
            steps.append((CODES[rounding], numbers[output], 0, 0, 0.0, 0.0, 0.0))
            numbers[output] += 1
    return tuple(steps)


def _results(problem: Problem, leaves: Sequence[int], outputs: Sequence[int]) -> tuple[int, ...]:
    """Numbers of the values that the outputs hold."""
    numbers, count = {}, len(leaves)
    for node in problem.nodes:
        (output,) = node.writes()
        count += 1 if problem.tensors[output].data_type not in _ROUNDING else 2
        numbers[output] = count - 1
    return tuple(numbers[o] for o in outputs)


def _parameters(node: NodeSpec) -> tuple[float, float, float]:
    """Attributes of a step, with the defaults that the operation gives them."""
    a: Attrs = node.attrs
    if "swish_beta" in a:
        return (1.0 if a.swish_beta is None else a.swish_beta), 0.0, 0.0
    if "lower_clip" in a:
        slope, lower, upper = a.negative_slope, a.lower_clip, a.upper_clip
        return slope or 0.0, lower or 0.0, float("inf") if upper is None else upper
    return float(a.get("negative_slope", 0.0)), 0.0, 0.0


def _scalar(problem: Problem, number: int) -> Argument:
    value = problem.tensors[number].value
    return HostScalar(number, data_type.FLOAT) if value is None else Number(float(value), data_type.FLOAT)


def _divisible(
    inputs: int, outputs: int, count: int, dim: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Arguments that are multiples of 16: all pointers, and the numbers that are."""
    found: list[tuple[int, ...]] = [(0, i) for i in range(inputs)]
    found += [(1, i) for i in range(outputs)]
    found += [(3,)] if count % 16 == 0 else []
    found += [(4, i) for i, d in enumerate(dim) if d % 16 == 0]
    found += [(5, i) for i, s in enumerate(strides) if s % 16 == 0]
    return tuple(found)


ENGINE = PointwiseTriton()
