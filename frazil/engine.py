"""The contract between planning and engines: what an engine is asked, and the values in which it answers.

An engine is an object with a name. `claim` says, as a value, that it serves a problem on a target or the
first condition that it misses; `configs` lists its choices, best first; `build` turns one choice into a
program. No engine code runs after that. This module knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from .enums import behavior_note, knob_type, numerical_note
from .program import Program
from .spec import Problem
from .target import Target


class Tier(IntEnum):
    """Order among engines before expected time: measured fastest, good, last resort."""

    LEAD = 0
    OFFER = 1
    LAST = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """An engine serves the problem.

    Attributes
    ----------
    expected_us
        Expected microseconds, from the operations' cost and the engine's measured efficiency.
    """

    tier: Tier
    expected_us: float
    behavior_notes: frozenset[behavior_note] = frozenset()
    numerical_notes: frozenset[numerical_note] = frozenset()


@dataclass(frozen=True, slots=True)
class Decline:
    """An engine does not serve the problem; `reason` is the first condition missed, with actual and allowed
    value.
    """

    reason: str
    engine: str = ""
    problem: str = ""

    @staticmethod
    def because(what: str, got: Any, allowed: Any) -> Decline:
        """A decline whose reason states what was found and what is served."""
        return Decline(
            f"{what}: got {getattr(got, 'name', got)}, served: {getattr(allowed, 'name', allowed)}"
        )

    def __str__(self) -> str:
        place = f" on [{self.problem}]" if self.problem else ""
        return f"{self.engine or 'engine'} declines{place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Config:
    """Choices of an engine for one problem. Engines derive their own; one without choices uses this."""

    def knobs(self) -> dict[knob_type, int]:
        """The choices that users may see and replay."""
        return {}


class Engine(Protocol):
    """What `catalog` loads and planning asks."""

    @property
    def name(self) -> str:
        """Name in plans, logs and filters."""
        ...

    def claim(self, problem: Problem, target: Target) -> Claim | Decline:
        """Whether the engine serves the problem."""
        ...

    def configs(self, problem: Problem, target: Target) -> Sequence[Config]:
        """Choices for a claimed problem, best first; at least one."""
        ...

    def build(self, problem: Problem, config: Config, target: Target) -> Program:
        """The program of one choice."""
        ...
