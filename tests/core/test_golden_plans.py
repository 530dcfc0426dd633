"""Plans of representative graphs, compared with tests/golden/plans/*.json.

A refactoring leaves these files as they are; a change of heuristics, inference or programs shows as a
readable difference in them. Write them anew with

    python -m tests.core.test_golden_plans --write

and look at `git diff tests/golden/plans` before committing.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from frazil import plan, serialize

from .golden_graphs import GRAPHS

FOLDER = Path(__file__).parents[1] / "golden" / "plans"
TARGETS = ("cpu", "sm_90")


def described(name: str) -> dict[str, Any]:
    """Explanations for each target, and the best CPU program: what a golden file holds."""
    g = GRAPHS[name]()
    planning = g.explain("cpu")
    program = plan.build(planning.candidates[0], planning.problem, planning.target)
    return {
        "graph": GRAPHS[name].__doc__,
        "plans": [g.explain(target).to_dict() for target in TARGETS],
        "program": brief(serialize._encode(program, [])),
    }


def brief(value: Any) -> Any:
    """A stored value, with enumerations by name and ports as mappings, without what is absent or the
    default.
    """
    if isinstance(value, list):
        return [brief(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "enum" in value:
        return value["value"]
    if "attrs" in value and "type" not in value:
        return {k: brief(v) for k, v in value["attrs"] if v is not None}
    kept = {k: brief(v) for k, v in value.items()}
    if "type" in value:
        usual = {f.name: f.default for f in dataclasses.fields(serialize._VALUES[value["type"]])}
        usual = {k: getattr(v, "name", v) for k, v in usual.items() if k not in ("uid", "name")}
        kept = {k: v for k, v in kept.items() if usual.get(k, ...) != v}
    if value.get("type") == "NodeSpec":
        kept |= {side: {p: v for p, v in value[side] if v is not None} for side in ("inputs", "outputs")}
    return kept


def text(document: Any, indent: int = 0) -> str:
    """JSON with one line for each list or mapping that fits, so that a changed tensor is a changed line."""
    short = json.dumps(document, sort_keys=True)
    if len(short) + indent <= 150 or not isinstance(document, (dict, list)) or not document:
        return short
    pad = " " * (indent + 1)
    if isinstance(document, list):
        inner = [pad + text(v, indent + 1) for v in document]
        return "[\n" + ",\n".join(inner) + "\n" + pad[1:] + "]"
    inner = [f"{pad}{json.dumps(k)}: {text(v, indent + 1)}" for k, v in sorted(document.items())]
    return "{\n" + ",\n".join(inner) + "\n" + pad[1:] + "}"


@pytest.mark.parametrize("name", GRAPHS)
def test_plan_is_as_it_was(name: str) -> None:
    found = text(described(name)) + "\n"
    file = FOLDER / f"{name}.json"
    assert file.exists(), f"{file} is missing: python -m tests.core.test_golden_plans --write"
    assert found == file.read_text(), f"{file} differs: see the docstring of this test"


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_kept_is_the_plan_that_runs(name: str) -> None:
    g = GRAPHS[name]()
    g.build()
    kept = json.loads((FOLDER / f"{name}.json").read_text())
    assert g.get_workspace_size() == kept["program"].get("workspace", 0)
    assert g.get_plan_name_at_index(0) == kept["plans"][0]["candidates"][0]["name"]
    assert [len(n["inputs"]) for n in g.inspect()["nodes"]]


def test_no_file_is_left_over() -> None:
    assert {f.stem for f in FOLDER.glob("*.json")} == set(GRAPHS)


def write() -> None:
    """Write all files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file in FOLDER.glob("*.json"):
        file.unlink()
    for name in GRAPHS:
        (FOLDER / f"{name}.json").write_text(text(described(name)) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.core.test_golden_plans --write")
    write()
