"""Budgets that keep the code readable; moved only by a commit that says why."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from frazil import env

PACKAGE = Path(__file__).parent.parent / "frazil"
FILES = sorted(PACKAGE.rglob("*.py"))

FILE_LINES, ENGINE_LINES, FUNCTION_LINES, PARAMETERS, VARIABLES = 500, 900, 80, 8, 12
DEVICE_FUNCTION_LINES = 200  # of device code, whose parameters are its compiler's affair
PACKAGE_LINES = 13_000

# Parameters that existing graph code dictates.
COMPATIBLE = {
    ("api.py", "__init__"),
    ("api.py", "execute"),
    ("api.py", "execute_plan_at_index"),
    ("graph.py", "tensor"),
}
# One parameter per command-line option, as the CLI library calls them.
COMMANDS = "cli.py"


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("name", [p.relative_to(PACKAGE).as_posix() for p in FILES])
def test_file(name: str) -> None:
    path = PACKAGE / name
    device_code = name.startswith("engines/kernels/")
    limit = ENGINE_LINES if name.startswith("engines/") else FILE_LINES
    assert lines(path) <= limit, f"{lines(path)} lines, {limit} allowed"
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        where = f"{name}:{node.lineno} {node.name}"
        limit = DEVICE_FUNCTION_LINES if device_code else FUNCTION_LINES
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        assert length <= limit, f"{where}: {length} lines, {limit} allowed"
        if not device_code and name != COMMANDS and (name, node.name) not in COMPATIBLE:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = len([a for a in arguments if a.arg not in ("self", "cls")])
            assert count <= PARAMETERS, f"{where}: {count} parameters, {PARAMETERS} allowed"


def test_package() -> None:
    total = sum(lines(p) for p in FILES)
    assert total <= PACKAGE_LINES, f"{total} lines, {PACKAGE_LINES} allowed"


def test_environment_variables() -> None:
    assert len(env.VARIABLES) <= VARIABLES
    read = re.findall(r"environ(?:\.get\(|\[)\s*\"(\w+)", (PACKAGE / "env.py").read_text())
    assert read and set(read) <= set(env.VARIABLES), "env.py reads a variable that its table does not list"
