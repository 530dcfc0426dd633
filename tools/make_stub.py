"""Write frazil/builders.pyi from the operation records; with --check, fail where the committed file
differs.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from pathlib import Path

from frazil import enums
from frazil.builders import signature
from frazil.op import Op
from frazil.ops import OPS

STUB = Path(__file__).parent.parent / "frazil" / "builders.pyi"


def method(op: Op) -> str:
    """One method's stub."""
    parameters = ["self"]
    keyword_only = False
    for p in list(signature(op).parameters.values())[1:]:
        if p.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            parameters.append("*")
            keyword_only = True
        default = "" if p.default is inspect.Parameter.empty else " = ..."
        parameters.append(f"{p.name}: {p.annotation}{default}")
    return f"    def {op.name}({', '.join(parameters)}) -> {signature(op).return_annotation}: ..."


def text() -> str:
    """The whole stub."""
    methods = "\n".join(method(op) for op in OPS.values())
    used = sorted(name for name in enums.__all__ if re.search(rf": {name}\b", methods))
    lines = [
        "# Written by tools/make_stub.py from the operation records.",
        "from collections.abc import Callable, Sequence",
        "from inspect import Signature",
        "from typing import Any",
        "",
        f"from .enums import {', '.join(used)}",
        "from .expression import Expression",
        "from .op import Op",
        "from .tensor import Tensor",
        "",
        "def signature(op: Op) -> Signature: ...",
        "def describe(op: Op) -> list[tuple[str, Any, str, str]]: ...",
        "def docstring(op: Op) -> str: ...",
        "",
        "class Builders:",
        "    def _add(self, op: Op, arguments: dict[str, Any]) -> Any: ...",
        methods,
        "",
    ]
    return "\n".join(line for line in lines if "Expression" not in line or "Expression" in methods)


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return 0 if STUB.read_text() == text() else 1
    STUB.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
