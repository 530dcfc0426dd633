"""`import frazil` is quick and needs none of CUDA, torch, Triton or the CLI library."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import frazil

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "triton", "cuda", "cudnn", "click")


def run(code: str, cache: str | None = None) -> str:
    """Output of a fresh interpreter; with `cache`, compiled modules are kept there, as in any ordinary
    installation.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE" or cache is None}
    if cache is not None:
        environment["PYTHONPYCACHEPREFIX"] = cache
    command = [sys.executable, "-c", code]
    # With -c, the working directory comes first on the path: it is this tree that is imported.
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_takes_less_than_half_a_second(tmp_path: Path) -> None:
    def seconds(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(code, str(tmp_path))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Processor time, and the best of several runs: what else the machine does must not decide.
    assert min(seconds("import frazil") for _ in range(4)) < 0.5


def test_c74_import_loads_nothing_heavy() -> None:
    # Some packages load themselves at the start of every interpreter: those do not count.
    code = (
        "import sys; old = {*sys.modules}; import frazil, json; print(json.dumps([*({*sys.modules} - old)]))"
    )
    loaded = json.loads(run(code))
    assert "frazil.api" in loaded
    assert not {m for m in loaded if m.split(".")[0] in HEAVY}


def test_c74_a_graph_runs_where_nothing_else_can_be_imported() -> None:
    code = f"""
import sys
for name in {HEAVY!r}: sys.modules[name] = None
import numpy as np, frazil
assert frazil.Target.current().arch == "cpu"
g = frazil.Graph(io_data_type=frazil.data_type.FLOAT, handle=frazil.create_handle())
x = g.tensor((2, 3)); y = g.relu(x).set_output(True)
out = np.empty((2, 3), "f4")
g.execute({{x: np.ones((2, 3), "f4"), y: out}})
print(out.sum(), len(g.explain("sm_120").candidates) > 0)
"""
    assert run(code).strip() == "6.0 True"


def test_names_of_existing_code() -> None:
    assert (
        frazil.pygraph is frazil.Graph and frazil.tensor is frazil.Tensor and frazil.handle is frazil.Handle
    )
    assert frazil.cudnnGraphNotSupportedError is frazil.NotSupported
    assert all(hasattr(frazil, name) for name in frazil.__all__)
