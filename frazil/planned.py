"""A graph with plans: from a validated graph to a selected, built candidate.

Owns the lifecycle between validation and execution: planning once, freezing, explicit plans, filters,
building. Knows nothing of buffers or of how programs run.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from . import catalog, context, driver, plan
from .enums import (
    behavior_note,
    build_plan_policy,
    heur_mode,
    knob_type,
    numerical_note,
)
from .errors import NotSupported, StateError
from .execute import CpuExecutable, Executable
from .graph import GraphContext, GraphIR
from .handle import Handle
from .launch import CudaExecutable
from .plan import Candidate, Planning
from .program import Program
from .selection import Selection
from .spec import Problem, freeze
from .target import Target


class PlannedGraph(GraphIR):
    """A graph and the plans for it on one target."""

    def __init__(
        self, context: GraphContext, handle: Handle | None, wanted: Target | None, dynamic: bool
    ) -> None:
        super().__init__(context)
        self._handle, self._wanted, self._dynamic = handle, wanted, dynamic
        self._problem: Problem | None = None
        self._planning: Planning | None = None
        self._selection = Selection()
        self._built: dict[int, Executable] = {}
        self._lock = threading.RLock()

    @property
    def target(self) -> Target:
        """What the graph is planned for."""
        if self._wanted is None:
            self._wanted = Target.current() if self._handle is None else self._handle.target
        return self._wanted

    @property
    def problem(self) -> Problem:
        """The validated graph as engines see it."""
        self.validate()
        if self._problem is None or not self._table.frozen:
            self._problem = freeze(self._nodes, self._dynamic)
        return self._problem

    def build_operation_graph(self) -> None:
        """Validate the graph; a step of its own for compatibility."""
        self.validate()

    def create_execution_plans(self, heuristics: Sequence[heur_mode] | None = None) -> None:
        """Ask the engines, rank what they offer, and freeze the graph.

        Parameters
        ----------
        heuristics
            `OPENSOURCE` alone offers only candidates with open kernels; every other list offers all.

        Raises
        ------
        GraphError
            The graph is wrong.
        NotSupported
            No engine serves it; carries every engine's reason.
        StateError
            The graph is planned already.
        """
        with self._lock:
            if self._planning is not None:
                raise StateError("create_execution_plans: the graph is planned already")
            planning = self._plan()
            only_open = [heur_mode(h) for h in heuristics or ()] == [heur_mode.OPENSOURCE]
            plans = [c for c in planning.candidates if c.is_open or not only_open]
            if not plans:
                raise _not_supported(planning)
            self._adopt_plans(planning, plans)

    def create_execution_plan(self, engine_id: int, knobs: Mapping[knob_type, int] | None = None) -> None:
        """Append one plan named by what `get_engine_and_knobs_at_index` returned, and freeze the graph.

        Raises
        ------
        NotSupported
            No engine offers it for this graph.
        """
        with self._lock:
            planning = self._planning or self._plan()
            self._adopt_plans(planning, [planning.find(int(engine_id), knobs)])

    def check_support(self) -> None:
        """Raise `NotSupported` unless the selected plan serves the graph."""
        self._selection.current()

    def build_plans(
        self, policy: build_plan_policy = build_plan_policy.HEURISTICS_CHOICE, ctx: Any = None
    ) -> None:
        """Build the selected plan, or with `build_plan_policy.ALL` every one that is not barred.

        `ctx` is accepted for compatibility.
        """
        chosen = self._selection.current()
        for index in self._selection.unbarred() if build_plan_policy(policy) is build_plan_policy.ALL else []:
            self._executable(index)
        self._executable(chosen)

    def build(self, heuristics: Sequence[heur_mode] | None = None, ctx: Any = None) -> None:
        """All steps: validate, plan, build."""
        self._ensure_planned(heuristics)
        self.build_plans()

    def explain(self, target: Target | str | None = None) -> Planning:
        """What each engine would do with the graph on a target, or why it declines; text by `str`, data by
        `to_dict`.

        Works without a device and on a graph that is not planned; changes nothing.
        """
        if target is None and self._planning is not None:
            return self._planning
        chosen = self.target if target is None else Target.of(target)
        return plan.plan(self.problem, chosen, catalog.ENTRIES)

    # Plans.

    @property
    def plans(self) -> tuple[Candidate, ...]:
        """The candidates, best first."""
        return self._selection.plans

    @property
    def selected_engine(self) -> str | None:
        """Name of the plan that `execute` runs."""
        return self.plans[self._selection.current()].name if self.plans else None

    def get_execution_plan_count(self) -> int:
        """Number of plans; 0 before planning."""
        return len(self.plans)

    def get_plan_name_at_index(self, index: int) -> str:
        """Engine and knobs of a plan."""
        return self._selection.at(index).name

    def get_engine_and_knobs_at_index(self, index: int) -> tuple[int, dict[knob_type, int]]:
        """What `create_execution_plan` takes to replay a plan."""
        candidate = self._selection.at(index)
        return candidate.id, candidate.knobs

    def get_behavior_notes(self) -> list[behavior_note]:
        """Notes of the selected plan."""
        return self.get_behavior_notes_for_plan_at_index(self._selection.current())

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[behavior_note]:
        """Notes of a plan."""
        return sorted(self._selection.at(index).behavior_notes)

    def select_plan(self, index: int) -> None:
        """Make `execute` run this plan and no other.

        Raises
        ------
        GraphError
            No such plan, or it is barred by a filter.
        """
        self._selection.pin(index)

    def build_plan_at_index(self, index: int) -> None:
        """Build a plan and select it."""
        self.select_plan(index)
        self._executable(index)

    def deselect_engines(self, names: Sequence[str]) -> None:
        """Bar plans whose name contains one of `names`. Indices do not shift."""
        self._selection.bar(
            lambda i, c: next((f"engine name contains '{n}'" for n in names if n in c.name), None)
        )

    def deselect_workspace_greater_than(self, limit: int) -> None:
        """Bar plans that need more than `limit` bytes of workspace."""

        def reason(index: int, candidate: Candidate) -> str | None:
            needed = self._executable(index).workspace
            return f"workspace {needed} > {limit}" if needed > limit else None

        self._selection.bar(reason)

    def deselect_behavior_notes(self, notes: Sequence[behavior_note]) -> None:
        """Bar plans with one of the notes."""
        self._selection.bar(lambda i, c: _named("has", c.behavior_notes & set(notes)))

    def select_behavior_notes(self, notes: Sequence[behavior_note]) -> None:
        """Bar plans that lack one of the notes."""
        self._selection.bar(lambda i, c: _named("lacks", set(notes) - c.behavior_notes))

    def deselect_numeric_notes(self, notes: Sequence[numerical_note]) -> None:
        """Bar plans with one of the notes."""
        self._selection.bar(lambda i, c: _named("has", c.numerical_notes & set(notes)))

    def select_numeric_notes(self, notes: Sequence[numerical_note]) -> None:
        """Bar plans that lack one of the notes."""
        self._selection.bar(lambda i, c: _named("lacks", set(notes) - c.numerical_notes))

    # Internals.

    def _ensure_planned(self, heuristics: Sequence[heur_mode] | None = None) -> None:
        """Plan unless that is done; of several threads one does it, and the others wait for it."""
        if self._planning is None:
            with self._lock:
                if self._planning is None:
                    self.create_execution_plans(heuristics)

    def _adopt_plans(self, planning: Planning, plans: Sequence[Candidate]) -> None:
        """Freeze the graph and offer `plans`; `_planning` is set last, since other threads take it for "all
        is there".
        """
        self.freeze()
        self._selection.add(plans)
        self._planning = planning

    def _plan(self) -> Planning:
        return plan.plan(self.problem, self.target, catalog.ENTRIES)

    def _executable(self, index: int) -> Executable:
        """The built plan, built by exactly one thread."""
        built = self._built.get(index)
        if built is None:
            with self._lock:
                built = self._built.get(index)
                if built is None:
                    program = plan.build(self._selection.at(index), self.problem, self.target)
                    built = self._built[index] = self._load(program)
        return built

    def _load(self, program: Program) -> Executable:
        """A program on the graph's device: the CPU, the handle's, or the thread's current one."""
        if self.target.is_cpu:
            return CpuExecutable(program, self.problem)
        if self._handle is not None and self._handle.ordinal != "cpu":
            return CudaExecutable(program, self.problem, self._handle.ordinal)
        return CudaExecutable(program, self.problem, context.thread_device() if driver.device_count() else 0)


def _not_supported(planning: Planning) -> NotSupported:
    return NotSupported(
        f"no engine serves [{planning.problem.text}] on {planning.target.arch}; what each one missed first:",
        planning.declines,
    )


def _named(verb: str, notes: Any) -> str | None:
    return f"{verb} {', '.join(sorted(n.name for n in notes))}" if notes else None
