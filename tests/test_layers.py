"""Imports point downwards only: the layer table of the design, and the import graph computed from the
source.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from frazil.catalog import ENTRIES
from frazil.ops import OPS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "frazil"

LAYERS = (
    {"errors", "env", "dtypes", "enums", "geometry", "version"},
    {"target", "driver", "context", "handle", "buffers", "artifact", "compile", "cache", "libcudnn"},
    {"op", "expression", "tensor", "builders", "graph", "node", "spec", "ops"},
    {"engine", "program", "catalog", "match", "plan", "selection"},
    {"execute", "launch", "inputs", "placement", "serialize", "tune"},
    {"engines"},
    {"__init__", "__main__", "api", "planned", "cli"},
)


def module_of(path: Path) -> str:
    """Dotted name below the package; "__init__" for the package itself."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


MODULES = {module_of(p): p for p in sorted(PACKAGE.rglob("*.py"))}


def layer(module: str) -> int:
    """Number of the layer that a module belongs to."""
    head = module.split(".")[0]
    head = "cli" if head.startswith("cli_") else head
    for number, names in enumerate(LAYERS):
        if head in names:
            return number
    raise AssertionError(f"{module} is in no layer of the table")


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """Everything in a module's source."""
    return tuple(ast.walk(ast.parse(MODULES[module].read_text())))


@cache
def imports(module: str) -> frozenset[str]:
    """Modules of the package that a module imports, anywhere in its source."""
    found = set()
    base = "" if module == "__init__" else module
    inside = base.split(".") if MODULES[module].name == "__init__.py" else base.split(".")[:-1]
    if module == "__init__":
        inside = []
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = inside[: len(inside) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                whole = ".".join([*parts, alias.name])
                found.add(whole if whole in MODULES else ".".join(parts) or "__init__")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            found |= {"__init__" for n in names if n.split(".")[0] == "frazil"}
    return frozenset(found - {module})


def foreign(module: str) -> set[str]:
    """Top-level packages, other than this one, that a module imports anywhere in its source."""
    found = set()
    for node in nodes(module):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module: str) -> None:
    wrong = {m for m in imports(module) if layer(m) > layer(module)}
    assert not wrong, f"{module} (layer {layer(module)}) imports upwards: {sorted(wrong)}"


def test_no_import_cycle() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"import cycle: {' -> '.join((*path[path.index(module) :], module))}"
        if module not in done:
            for other in imports(module):
                visit(other, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


@pytest.mark.parametrize("module", MODULES)
def test_who_may_import_what(module: str) -> None:
    tops = {name.split(".")[0] for name in foreign(module)}
    assert "cuda" not in tops or module == "driver"
    kernels = module.startswith("engines.kernels")
    assert "triton" not in tops or module == "compile" or kernels
    assert not {"torch", "cupy", "jax"} & tops
    assert "click" not in tops or module.startswith("cli")
    if layer(module) <= 2:
        assert tops <= {"cuda", "ml_dtypes", "numpy", "triton"} | set(sys.stdlib_module_names)


@pytest.mark.parametrize("module", MODULES)
def test_only_tables_import_by_name(module: str) -> None:
    """An import by name is not in the graph that these tests compute."""
    names = {n.id for n in nodes(module) if isinstance(n, ast.Name)}
    assert module in ("catalog", "compile") or not {"import_module", "__import__", "exec", "eval"} & names


@pytest.mark.parametrize("module", MODULES)
def test_device_code_stands_apart(module: str) -> None:
    kernels = {m for m in imports(module) if m.startswith("engines.kernels")}
    if module.startswith("engines.kernels"):
        wrong = {m for m in imports(module) - kernels if layer(m) > 2}
        assert not wrong, f"device code imports {sorted(wrong)}"
    else:
        assert not kernels, "only compile.py imports device code, by name"


def test_contributing_shows_this_table() -> None:
    rows = re.findall(r"^\| (\d) \w+ \| (.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert [int(number) for number, _ in rows] == list(reversed(range(len(LAYERS))))
    shown = [
        {re.split(r"[./]", name)[0] for name in re.findall(r"`(.*?)`", files)} - {"cli_*"}
        for _, files in rows
    ]
    for number, names in enumerate(reversed(shown)):
        present = {m.split(".")[0] for m in MODULES if layer(m) == number and not m.startswith("cli_")}
        assert names == present - {"__init__", "__main__"}, f"layer {number} of CONTRIBUTING.md"


@pytest.mark.parametrize("module", MODULES)
def test_only_env_reads_the_environment(module: str) -> None:
    names = {n.attr for n in nodes(module) if isinstance(n, ast.Attribute)}
    names |= {n.name for n in nodes(module) if isinstance(n, ast.alias)}
    assert module == "env" or not {"environ", "environb", "getenv"} & names


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("engines.") and "kernels" not in m])
def test_engines_know_the_contract_and_nothing_above(module: str) -> None:
    allowed = {"engine", "program"}
    wrong = {m for m in imports(module) if layer(m) > 2 and m not in allowed}
    family = {
        m for m in imports(module) if m.startswith("engines.") and m.split(".")[1] != module.split(".")[1]
    }
    assert not wrong and not family


@pytest.mark.parametrize("module", ["plan", "execute", "launch", "inputs", "planned", "selection", "match"])
def test_planning_and_execution_name_no_operation_and_no_engine(module: str) -> None:
    names = set(OPS) | {e.name for e in ENTRIES} | {"sm_80", "sm_90", "sm_100", "sm_120"}
    texts = {n.value for n in nodes(module) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    # Keys of NumPy and of the instruction set that happen to be operation names.
    assert not (texts & names) - {"max", "min"}, f"{module} names {sorted(texts & names)}"
