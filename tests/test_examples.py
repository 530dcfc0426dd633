"""Every example runs by itself, without torch, and prints a check that holds."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))
# Stands in front of the example: a stray import of torch fails.
NO_TORCH = "import sys, runpy; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
NUMBER = re.compile(r"\d\.?\d*e[+-]\d+")


def test_there_are_examples() -> None:
    assert [p.name[:2] for p in EXAMPLES] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path.name} says nothing of what it shows"
    inherited = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *inherited])}
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (check,) = [line for line in done.stdout.splitlines() if line.startswith("check: ")]
    assert "allowed" in check and NUMBER.search(check), check
