"""Write frazil/builders.pyi from the operation records; with --check, fail where the committed file
differs.

Editors read names, types, defaults and documentation of the builder methods there, since the methods do not
exist in the source.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The records of the tree that this file stands in, whatever is installed.
sys.path.insert(0, str(ROOT))

from frazil import enums  # noqa: E402
from frazil.builders import docstring, signature  # noqa: E402
from frazil.op import Op  # noqa: E402
from frazil.ops import OPS  # noqa: E402

STUB = ROOT / "frazil" / "builders.pyi"


def parameter(p: inspect.Parameter) -> str:
    """One parameter with its type, and its default where that is a plain value of the type."""
    if p.default is inspect.Parameter.empty:
        return f"{p.name}: {p.annotation}"
    default = "..."
    if p.default is None:
        default = "None" if p.annotation == "Any" or "None" in p.annotation else "..."
    elif type(p.default) in (bool, int, float):
        default = repr(p.default)
    elif type(p.default) is str:
        default = json.dumps(p.default)
    return f"{p.name}: {p.annotation} = {default}"


def method(op: Op) -> str:
    """One method's stub."""
    public = signature(op)
    parameters = list(public.parameters.values())[1:]
    listed = ["self", *(parameter(p) for p in parameters)]
    keyword_only = [i for i, p in enumerate(parameters, 1) if p.kind is inspect.Parameter.KEYWORD_ONLY]
    if keyword_only:
        listed.insert(keyword_only[0], "*")
    head = "".join(f"        {p},\n" for p in listed)
    doc = textwrap.indent(f'"""{docstring(op)}\n"""', "        ", lambda line: bool(line.strip()))
    return f"    def {op.name}(\n{head}    ) -> {public.return_annotation}:\n{doc}\n"


def text() -> str:
    """The whole stub."""
    methods = "\n".join(method(op) for op in OPS.values())
    annotations = {p.annotation for op in OPS.values() for p in list(signature(op).parameters.values())[1:]}
    words = {word for annotation in annotations for word in re.findall(r"\w+", annotation)}
    used = "".join(f"    {name},\n" for name in sorted(words & set(enums.__all__)))
    return f"""\
# Written by tools/make_stub.py from the operation records.
from collections.abc import Callable, Sequence
from inspect import Signature
from typing import Any

from .enums import (
{used})
from .op import Op
from .tensor import Tensor

def signature(op: Op) -> Signature: ...
def describe(op: Op) -> list[tuple[str, Any, str, str]]: ...
def docstring(op: Op) -> str: ...

class Builders:
    def _add(self, op: Op, arguments: dict[str, Any]) -> Any: ...
{methods}"""


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    if parser.parse_args().check:
        return 0 if STUB.exists() and STUB.read_text() == text() else 1
    STUB.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
