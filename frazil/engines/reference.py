"""The reference engine: runs each operation's own reference on the host. Serves every graph on a CPU target,
no other.

It is the definition that every other engine is tested against, and it is last wherever another engine serves.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import has_numpy
from ..engine import Claim, Config, Decline, Tier
from ..enums import tensor_reordering
from ..program import Address, HostCall, Program, Slot, Workspace, round_up
from ..spec import Problem, workspace_bytes
from ..target import Target

_LINE = 64  # bytes; a cache line, so that values of neighbouring tensors do not share one
_ALIGNMENT = 16  # bytes; what every host allocator gives, so that a plain array serves as workspace


class ReferenceEngine:
    """See the module."""

    name = "reference"

    def claim(self, problem: Problem, target: Target) -> Claim | Decline:
        """Serves a CPU target, for element types and orders that NumPy can represent."""
        if not target.is_cpu:
            return Decline.because("target", target.arch, "cpu")
        for tensor in problem.tensors:
            if not has_numpy(tensor.data_type):
                return Decline.because(
                    f"data type of {tensor.label}", tensor.data_type, "types with one NumPy element"
                )
            if tensor.reordering is not tensor_reordering.NONE:
                return Decline.because(
                    f"reordering of {tensor.label}", tensor.reordering, tensor_reordering.NONE
                )
        seconds = 0.0
        for node in problem.nodes:
            call = problem.call(node)
            cost = call.op.cost(call)
            seconds += cost.flops / target.flops + cost.bytes / target.bandwidth
        return Claim(Tier.LAST, seconds * 1e6)

    def configs(self, problem: Problem, target: Target) -> Sequence[Config]:
        """One: there is nothing to choose."""
        return (Config(),)

    def build(self, problem: Problem, config: Config, target: Target) -> Program:
        """One host call per node; values between nodes live in workspace."""
        offsets: dict[int, int] = {}
        end = 0
        for number, tensor in enumerate(problem.tensors):
            if tensor.is_virtual:
                offsets[number] = end
                end = round_up(end + workspace_bytes(tensor), _LINE)

        def address(number: int) -> Address:
            return Workspace(offsets[number]) if number in offsets else Slot(number)

        calls = []
        for node in problem.nodes:
            numbers = dict.fromkeys((*node.reads(), *node.writes()))
            for number in list(numbers):
                ragged = problem.tensors[number].ragged
                if ragged is not None:
                    numbers[ragged] = None
            given = [n for n in numbers if problem.tensors[n].value is None]
            calls.append(HostCall(node, tuple((n, address(n)) for n in given)))
        return Program(problem.tensors, tuple(calls), end, _ALIGNMENT, may_alias=_aliases(problem))


def _aliases(problem: Problem) -> frozenset[tuple[int, int]]:
    """An output may share memory with an input that no node reads after the output is written.

    A node reads all of its operands before it writes any, so the node that writes may itself be the last
    reader.
    """
    last_read: dict[int, int] = {}
    for index, node in enumerate(problem.nodes):
        for number in node.reads():
            last_read[number] = index
    return frozenset(
        (output, number)
        for index, node in enumerate(problem.nodes)
        for output in node.writes()
        if output in problem.outputs
        for number in problem.inputs
        if last_read.get(number, len(problem.nodes)) <= index
    )


ENGINE = ReferenceEngine()
