"""Which of a graph's candidates is in force: the list of plans, the filters that bar some, and the user's
choice.

Indices are stable: a filter bars a plan, it does not remove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .errors import GraphError, NotSupported, StateError
from .plan import Candidate

Reason = Callable[[int, Candidate], "str | None"]


class Selection:
    """Candidates best first, and the one that `execute` runs."""

    def __init__(self) -> None:
        self._plans: list[Candidate] = []
        self._filters: list[Reason] = []
        self._barred: dict[int, str] = {}
        self._pinned: int | None = None

    @property
    def plans(self) -> tuple[Candidate, ...]:
        """All candidates."""
        return tuple(self._plans)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Append candidates; filters set before apply to them, too."""
        self._plans += candidates
        self._apply(self._filters)

    def bar(self, reason: Reason) -> None:
        """Bar every present and later plan for which `reason(index, candidate)` gives a text."""
        self._filters.append(reason)
        self._apply([reason])

    def pin(self, index: int) -> None:
        """Choose a plan; it stays chosen whatever planning would prefer."""
        self.open(index)
        self._pinned = index

    def unbarred(self) -> list[int]:
        """Indices that no filter bars."""
        return [i for i in range(len(self._plans)) if i not in self._barred]

    def at(self, index: int) -> Candidate:
        """The plan with an index."""
        if not self._plans:
            raise StateError("the graph has no plans; call create_execution_plans() first")
        if not 0 <= index < len(self._plans):
            raise GraphError("no plan has this index", got=index, expected=f"0 to {len(self._plans) - 1}")
        return self._plans[index]

    def open(self, index: int) -> Candidate:
        """The plan with an index, which no filter may bar."""
        candidate = self.at(index)
        if index in self._barred:
            raise GraphError(
                f"plan {index} ({candidate.name}) is barred by a filter", got=self._barred[index]
            )
        return candidate

    def current(self) -> int:
        """Index of the plan in force: the pinned one, else the best that no filter bars.

        Raises
        ------
        StateError
            There are no plans.
        NotSupported
            Every plan is barred.
        """
        self.at(0)
        if self._pinned is not None:
            self.open(self._pinned)
            return self._pinned
        usable = self.unbarred()
        if not usable:
            reasons = "; ".join(f"{i} {self._plans[i].name}: {why}" for i, why in self._barred.items())
            raise NotSupported(f"every plan is barred by a filter: {reasons}")
        return usable[0]

    def _apply(self, reasons: Iterable[Reason]) -> None:
        for reason in reasons:
            for index, candidate in enumerate(self._plans):
                why = reason(index, candidate) if index not in self._barred else None
                if why is not None:
                    self._barred[index] = why
