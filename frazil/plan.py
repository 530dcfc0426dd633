"""Planning: from a problem and a target to ordered candidates, and from a candidate to a program.

Owns ranking, candidates' identity, and the explanation of both. It asks engines through the contract alone
and contains no operation name, engine name or architecture test.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .catalog import ENTRIES, Catalog, Entry, offered
from .engine import Claim, Config, Decline, Engine, Tier
from .enums import behavior_note, knob_type, numerical_note
from .errors import NotSupported
from .match import partitions
from .program import Program, link, round_up
from .spec import Problem, restrict, workspace_bytes
from .target import Target

log = logging.getLogger("frazil")

_PARTITION_IDS = 1 << 40  # ids of candidates with several parts: this plus 32 bits of their digest
_ALIGNMENT = 256  # bytes between tensors that live between parts


@dataclass(frozen=True, slots=True)
class Part:
    """One engine's share of a candidate; `ports` gives each of its tensors' number in the whole problem."""

    problem: Problem
    ports: tuple[int, ...]
    entry: Entry
    config: Config
    claim: Claim


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to run a problem: an ordered list of parts, stored and replayed as one.

    Attributes
    ----------
    id, knobs
        What replays it: `create_execution_plan(id, knobs)`.
    """

    id: int
    parts: tuple[Part, ...]

    @property
    def knobs(self) -> dict[knob_type, int]:
        """Choices of a candidate of one part; those of several parts are in its id."""
        return self.parts[0].config.knobs() if len(self.parts) == 1 else {}

    @property
    def name(self) -> str:
        """Engines and knobs: "engine[KNOB=v]", parts joined by " + "."""
        return " + ".join(p.entry.name + _knob_text(p.config.knobs()) for p in self.parts)

    @property
    def tier(self) -> Tier:
        """The last of its parts' tiers."""
        return max(p.claim.tier for p in self.parts)

    @property
    def expected_us(self) -> float:
        """Sum over its parts."""
        return sum(p.claim.expected_us for p in self.parts)

    @property
    def behavior_notes(self) -> frozenset[behavior_note]:
        """Of all its parts."""
        return frozenset().union(*(p.claim.behavior_notes for p in self.parts))

    @property
    def numerical_notes(self) -> frozenset[numerical_note]:
        """Of all its parts."""
        return frozenset().union(*(p.claim.numerical_notes for p in self.parts))

    @property
    def is_open(self) -> bool:
        """Whether every part runs open kernels."""
        return all(p.entry.is_open for p in self.parts)


@dataclass(frozen=True, slots=True)
class Planning:
    """What planning found: candidates best first, and every decline."""

    problem: Problem
    target: Target
    candidates: tuple[Candidate, ...]
    declines: tuple[Decline, ...]

    def find(self, id: int, knobs: Mapping[knob_type, int] | None) -> Candidate:
        """The candidate that an id and knobs replay; knobs None takes the first with the id.

        Raises
        ------
        NotSupported
            No candidate has this id and these knobs.
        """
        for candidate in self.candidates:
            if candidate.id == id and (knobs is None or candidate.knobs == dict(knobs)):
                return candidate
        known = "; ".join(f"{c.id} {c.name}" for c in self.candidates) or "none"
        text = (
            f"no candidate has engine id {id}{_knob_text(knobs or {})}: got those, expected one of: {known}"
        )
        raise NotSupported(text, self.declines)

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        return {
            "problem": [n.op for n in self.problem.nodes],
            "target": self.target.arch,
            "candidates": [
                {
                    "id": c.id,
                    "name": c.name,
                    "tier": c.tier.name,
                    "expected_us": c.expected_us,
                    "knobs": {k.name: v for k, v in c.knobs.items()},
                    "behavior_notes": sorted(n.name for n in c.behavior_notes),
                    "numerical_notes": sorted(n.name for n in c.numerical_notes),
                    "parts": [
                        {"engine": p.entry.name, "ops": [n.op for n in p.problem.nodes]} for p in c.parts
                    ],
                }
                for c in self.candidates
            ],
            "declines": [{"engine": d.engine, "ops": d.problem, "reason": d.reason} for d in self.declines],
        }

    def __str__(self) -> str:
        lines = [f"{self.problem.text} on {self.target.arch}"]
        for index, c in enumerate(self.candidates):
            lines.append(f"  {index}: {c.name}  (id {c.id}, {c.tier.name}, expected {c.expected_us:.3g} us)")
            if len(c.parts) > 1:
                lines += [f"       {p.entry.name}: {p.problem.text}" for p in c.parts]
        lines += [f"  -  {d}" for d in self.declines]
        if not self.candidates:
            lines.append("  no engine serves this graph here")
        return "\n".join(lines)


def plan(problem: Problem, target: Target, catalog: Catalog = ENTRIES) -> Planning:
    """Ask every offered engine about the whole problem, then about partitions, and rank what they claim.

    Ranking is by tier, expected time, then the order in which candidates were found (the whole before
    partitions, catalog order, an engine's own order of configs); it needs no device.
    """
    engines = [(entry, entry.load()) for entry in offered(catalog)]
    declines: dict[tuple[str, str], Decline] = {}
    found: list[Candidate] = []
    for partition in partitions(problem):
        whole = len(partition) == 1
        answers = []
        for keep in partition:
            part, ports = (problem, tuple(range(len(problem.tensors)))) if whole else restrict(problem, keep)
            answers.append(list(_claims(part, ports, engines, target, declines)))
            if not answers[-1]:
                break
        if not all(answers):
            continue
        if whole:
            found += [Candidate(p.entry.id, (p,)) for p in answers[0]]
            continue
        for pool in (answers, [[p for p in a if p.entry.is_open] for a in answers]):
            if not all(pool):
                continue
            parts = tuple(min(a, key=lambda p: (p.claim.tier, p.claim.expected_us)) for a in pool)
            engines_used, known = {p.entry.id for p in parts}, {c.id for c in found}
            candidate = Candidate(_partition_id(parts), parts)
            # An engine that serves the whole has no use for being asked piece by piece.
            if candidate.id not in known and (len(engines_used) > 1 or not engines_used & known):
                found.append(candidate)
    found.sort(key=lambda c: (c.tier, c.expected_us))
    planning = Planning(problem, target, tuple(found), tuple(declines.values()))
    log.info("%s", planning)
    return planning


def build(candidate: Candidate, problem: Problem, target: Target) -> Program:
    """The program of a candidate."""
    engines = {p.entry.id: p.entry.load() for p in candidate.parts}
    programs = [(engines[p.entry.id].build(p.problem, p.config, target), p.ports) for p in candidate.parts]
    if len(programs) == 1:
        return programs[0][0]
    # What one part writes for another lives in workspace, unless the user asked to have it.
    inner = {i for p in candidate.parts for i in p.ports if problem.tensors[i].is_virtual}
    private = {
        p.ports[k] for p in candidate.parts for k, spec in enumerate(p.problem.tensors) if spec.is_virtual
    }
    scratch, end = {}, 0
    for number in sorted(inner - private):
        scratch[number] = end
        end = round_up(end + workspace_bytes(problem.tensors[number]), _ALIGNMENT)
    return link(problem.tensors, programs, scratch, end)


def _claims(
    problem: Problem,
    ports: tuple[int, ...],
    engines: list[tuple[Entry, Engine]],
    target: Target,
    declines: dict[tuple[str, str], Decline],
) -> Iterator[Part]:
    for entry, engine in engines:
        answer = engine.claim(problem, target)
        if isinstance(answer, Decline):
            decline = replace(answer, engine=entry.name, problem=problem.text)
            declines.setdefault((entry.name, decline.reason), decline)
            continue
        for config in engine.configs(problem, target):
            yield Part(problem, ports, entry, config, answer)


def _partition_id(parts: tuple[Part, ...]) -> int:
    text = "|".join(f"{p.entry.name}{_knob_text(p.config.knobs())}:{p.problem.text}:{p.ports}" for p in parts)
    return _PARTITION_IDS + int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _knob_text(knobs: Mapping[knob_type, int]) -> str:
    named = sorted((knob_type(k), v) for k, v in knobs.items())
    return f"[{', '.join(f'{k.name}={v}' for k, v in named)}]" if knobs else ""
