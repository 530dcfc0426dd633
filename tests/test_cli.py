"""The command line: every command, its JSON, its exit codes, and the line that answers a user's mistake."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from scipy import special

import frazil
from frazil import cli_check, cli_demo, cli_doctor, cli_plan, cli_run, driver
from frazil.artifact import Artifact
from frazil.cache import Cache
from frazil.cli import main
from frazil.cli_text import columns, duration, progress
from frazil.ops import OPS
from frazil.target import Target
from tests.cli_helpers import FLOAT, call, layer, mistake

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "layer.json"
    path.write_text(layer().to_json())
    return path


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path, graph = tmp_path / "layer.plan", layer()
    graph.build()
    path.write_bytes(graph.serialize(as_bytes=True))
    return path


# Help.


@pytest.mark.parametrize("name", ["", *main.commands])
def test_help_has_examples_that_parse(name: str) -> None:
    result = call(*([name] if name else []), "--help")
    assert result.exit_code == 0
    lines = result.stdout.split("Examples:\n")[1].strip().splitlines()
    for line in lines:
        for number, part in enumerate(line.split(">")[0].split("&&")):
            program, *words = shlex.split(part)
            at = next(i for i, word in enumerate(words) if word in main.commands)
            assert program == "frazil" and (number or name in ("", words[at]))
            main.make_context("frazil", list(words))
            main.commands[words[at]].make_context(words[at], words[at + 1 :])


def test_every_option_says_what_it_does() -> None:
    for name, command in main.commands.items():
        options = [p for p in command.params if isinstance(p, click.Option)]
        assert command.help and all(o.help for o in options), name


def test_version() -> None:
    assert frazil.__version__ in call("--version").stdout


# Demo.


def test_demo_passes() -> None:
    result = call("demo", "--seq", 96)
    assert result.exit_code == 0, result.output
    assert re.search(r"^plan +.*sdpa.* on cpu", result.stdout, re.MULTILINE)
    assert re.search(r"^time +plan and build .* execute .* .median of", result.stdout, re.MULTILINE)
    assert result.stdout.count(": ok") == 2 and "WRONG" not in result.stdout
    assert sum("CPU engine" in line for line in result.stdout.splitlines()) == 1


@pytest.mark.parametrize("shape", [(2, 6, 3, 33, 17), (1, 4, 4, 1, 8), (1, 5, 1, 64, 1)])
def test_demo_shapes(shape: tuple[int, ...]) -> None:
    options = zip(("batch", "heads", "kv-heads", "seq", "dim"), shape, strict=True)
    result = call("demo", "--seed", 3, *(word for k, v in options for word in (f"--{k}", v)))
    assert result.exit_code == 0, result.output


def test_demo_fails_on_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(graph: frazil.Graph, pack: dict[Any, Any], repeat: int, step: Any) -> list[float]:
        times = cli_run.measured(graph, pack, repeat, step)
        pack["O"][0, 3, 50, 7] += 0.25
        return times

    monkeypatch.setattr(cli_demo, "measured", wrong)
    result = call("demo", "--seq", 96)
    assert result.exit_code == 1
    assert re.search(r"O .*WRONG", result.stdout) and re.search(r"LSE .*: ok", result.stdout)


def test_demo_expects_what_scipy_computes() -> None:
    shape = cli_demo.Shape(2, 4, 2, 40, 16)
    inputs = cli_demo.activations(shape, 1)
    q, k, v = (x.astype(np.float64) for x in inputs)
    k, v = (x.repeat(2, axis=1) for x in (k, v))
    logits = np.einsum("bhid,bhjd->bhij", q, k) / 4
    logits[..., np.arange(40)[:, None] < np.arange(40)] = -np.inf
    o = np.einsum("bhij,bhjd->bhid", special.softmax(logits, axis=-1), v)
    lse = special.logsumexp(logits, axis=-1, keepdims=True)

    def verdicts() -> dict[str, cli_check.Comparison]:
        return cli_demo._check(shape, inputs, (o, lse), lambda: None)

    assert all(c.share < 1e-6 for c in verdicts().values())
    lse[1, 2, 3] += 1e-3
    assert not verdicts()["LSE"].ok and verdicts()["O"].ok
    o[0, 0, 0, 0] = np.nan
    assert not verdicts()["O"].ok


def test_without_a_gpu_engine_the_cpu_serves_and_the_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = driver.DeviceInfo(0, "NVIDIA H200", (9, 0), 132, 232448, 50 << 20, 141 << 30)
    monkeypatch.setattr(Target, "current", staticmethod(lambda ordinal=None: Target.named("sm_90")))
    monkeypatch.setattr(driver, "current_device", lambda: 0)
    monkeypatch.setattr(driver, "device_info", lambda ordinal: facts)
    monkeypatch.setenv("FRAZIL_ENGINES", "reference")
    graph, line = cli_plan.here(lambda target: cli_plan.restored(layer().to_json(), target))
    assert graph.target.is_cpu
    assert "NVIDIA H200 (sm_90)" in line and "CPU engine" in line and "\n" not in line


def test_demo_saves_a_graph_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    assert call("demo", "--seq", 32, "--save", path).exit_code == 0
    assert call("run", path).exit_code == 0
    assert "No such file" in call("demo", "--seq", 8, "--save", tmp_path / "no" / "demo.json").stderr


# Explain, ops, doctor, log.


def test_explain(graph_file: Path, plan_file: Path) -> None:
    text = call("explain", graph_file, "--target", "sm_90").stdout
    assert text.startswith("matmul -> bias -> gelu -> cmp_gt on sm_90") and "reference declines" in text
    assert "on cpu" in call("explain", graph_file, "--target", "cpu").stdout
    text = call("explain", plan_file).stdout
    assert text.startswith("a plan for cpu, by engine reference") and "0: reference" in text


def test_explain_json(graph_file: Path, plan_file: Path) -> None:
    data = json.loads(call("explain", graph_file, "--target", "sm_90", "--json").stdout)
    assert data["target"] == "sm_90" and data["problem"] == ["matmul", "bias", "gelu", "cmp_gt"]
    assert data["plan"] is None and any(d["engine"] == "reference" for d in data["declines"])
    data = json.loads(call("explain", plan_file, "--json").stdout)
    assert data["plan"]["engine"] == "reference" and data["candidates"]


def test_ops() -> None:
    listed = call("ops").stdout
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in OPS)
    assert "Parameters" in call("ops", "matmul").stdout
    assert "flash" in mistake("ops", "flash")


def test_doctor() -> None:
    result = call("doctor", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["packages"]["numpy"]["loaded"] == report["packages"]["numpy"]["installed"] == np.__version__
    assert report["packages"]["frazil"]["loaded"] == frazil.__version__
    assert report["machine"]["engines"] == [e.name for e in frazil.catalog.ENTRIES]
    for missing in report["missing"]:
        assert missing["what"] and missing["enables"]
    text = cli_doctor.text(report)
    assert f"Python {report['python']['version']}" in text
    assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in report["packages"])


def test_doctor_lists_devices_and_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {
        "driver": {"cuda": 13010, "absence": ""},
        "devices": [
            {
                "ordinal": 0,
                "device_name": "NVIDIA H200",
                "compute_capability": [9, 0],
                "sm_count": 132,
                "memory_bytes": 150 << 30,
            }
        ],
        "engines": ["reference"],
        "settings": {"FRAZIL_LOG": "info"},
    }

    def child(code: str) -> dict[str, Any]:
        if "facts" in code:
            return {"value": facts}
        if "triton" in code:
            return {"error": "OSError: libtriton.so: undefined symbol"}
        if "torch" in code:
            return {"value": ["2.5.0", "/elsewhere/torch/__init__.py"]}
        return {"value": ["", "/x.py"]}

    versions = {"triton": "3.6.0", "torch": "2.9.0"}
    monkeypatch.setattr(cli_doctor, "_child", child)
    monkeypatch.setattr(cli_doctor, "_installed", lambda name: versions.get(name, ""))
    report = cli_doctor.collect()
    text = cli_doctor.text(report)
    assert "serves CUDA 13.1" in text and "NVIDIA H200, sm_90, 132 multiprocessors, 150.0 GiB" in text
    assert re.search(r"triton +3\.6\.0 +- +does not import: OSError", text)
    assert re.search(r"torch +2\.9\.0 +2\.5\.0 +loaded another version .*/elsewhere/torch", text)
    assert "FRAZIL_LOG=info" in text and "a CUDA device:" not in text
    assert [m["what"] for m in report["missing"]][:2] == ["triton", "nvidia-cudnn-cu13 or nvidia-cudnn-cu12"]


def test_log_levels(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "INFO frazil" in call("--log", "info", "explain", graph_file).stderr
    assert call("explain", graph_file).stderr == ""
    monkeypatch.setenv("FRAZIL_LOG", "info")
    assert "INFO frazil" in call("explain", graph_file).stderr
    assert call("--log", "error", "explain", graph_file).stderr == ""
    assert "expected one of debug, info" in mistake("--log", "loud", "ops")


# Mistakes.


def test_mistakes_about_files(tmp_path: Path, plan_file: Path) -> None:
    assert mistake("run", tmp_path / "none.json") == f"{tmp_path / 'none.json'}: No such file or directory"
    assert "directory" in mistake("explain", tmp_path)
    contents = {
        "x.py": (b"import frazil", "neither a stored graph"),
        "empty": (b"", "neither a stored graph"),
        "bits": (b"{\xff\xfe", "not UTF-8"),
        "cut.json": (b'{"format": "frazil.gr', "not JSON"),
        "other.json": (b'{"format": "onnx"}', "got onnx, expected frazil.graph"),
        "list.json": (b'{"a": 1}', "expected frazil.graph"),
        "later.json": (b'{"format": "frazil.graph", "version": 99}', "got 99, expected 1"),
        "thin.json": (b'{"format": "frazil.graph", "version": 1}', "malformed"),
    }
    whole = plan_file.read_bytes()
    for cut in (len(whole) // 2, len(whole) - 1, 40, 9):
        contents[f"{cut}.plan"] = (whole[:cut], "damaged")
    contents["flipped.plan"] = (whole[:200] + bytes([whole[200] ^ 1]) + whole[201:], "damaged")
    for name, (data, expected) in contents.items():
        path = tmp_path / name
        path.write_bytes(data)
        for command in ("run", "explain"):
            line = mistake(command, path)
            assert line.startswith(f"{path}: ") and expected in line, (name, line)


def test_mistakes_about_targets(graph_file: Path, plan_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_ENGINES", "reference")
    assert "got sm_42, expected one of" in mistake("explain", graph_file, "--target", "sm_42")
    assert "a plan for cpu cannot run on sm_90" in mistake("run", plan_file, "--target", "sm_90")
    result = call("run", graph_file, "--target", "sm_90")
    assert result.exit_code == 2 and result.stderr.startswith("Error: no engine serves [matmul")


def test_errors_of_the_graph_are_shown_as_text() -> None:
    assert "attention" in mistake("demo", "--heads", 8, "--kv-heads", 3)


def test_what_no_machine_can_hold_is_refused(tmp_path: Path) -> None:
    assert "GiB of memory" in mistake(
        *["demo", "--batch", "64", "--heads", "128", "--kv-heads", "128", "--seq", "4096"]
    )
    graph = frazil.Graph(io_data_type=FLOAT, target="cpu")
    graph.exp(graph.tensor((1 << 30, 1 << 20), name="x")).set_output(True)
    path = tmp_path / "large.json"
    path.write_text(graph.to_json())
    assert "GiB of memory" in mistake("run", path)


# Text.


def test_columns_and_durations() -> None:
    assert columns([("a", "bb"), ("ccc", "")]) == "  a    bb\n  ccc"
    assert [duration(s) for s in (2.5e-6, 1e-3, 0.25, 12.0)] == ["2.5 us", "1 ms", "250 ms", "12 s"]


def test_a_bar_appears_where_the_wait_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(list):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None:
            self.append(text)

        def flush(self) -> None:
            pass

    shown = {}
    for expected in (0.1, 5.0):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress(2, "running", expected) as step:
            step()
            step()
        shown[expected] = "".join(terminal)
    assert shown[0.1] == "" and "running" in shown[5.0] and "100%" in shown[5.0]


# Processes of their own.


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*variables.pop("first", "").split(), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **variables, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )


def test_importing_frazil_does_not_import_the_command_line() -> None:
    code = "import sys, frazil; print([m for m in sys.modules if m == 'click' or m.startswith('frazil.cli')])"
    done = python("-c", code)
    assert done.stdout.strip() == "[]", done.stderr
    done = python("-m", "frazil", "run", "none.json")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("Error: none.json:")


def test_doctor_works_where_frazil_does_not_import(tmp_path: Path) -> None:
    """Case C-76: with a broken NumPy nothing of Frazil imports, and the report says so."""
    for name in ("numpy", "torch", "triton", "ml_dtypes"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is broken here')")
    done = python(str(ROOT / "frazil" / "cli_doctor.py"), "--json", first=str(tmp_path))
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert "numpy is broken here" in report["packages"]["numpy"]["error"]
    assert report["packages"]["numpy"]["installed"] == np.__version__
    assert "broken here" in report["machine"]["error"]
    assert "does not import: " in cli_doctor.text(report)


def test_cache_size_and_prune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path))
    for letter in "ab":
        made = Artifact(letter * 64, "kernel", "sm_90", "triton-0", 128, 1, 0, 0, b"x" * (1 << 20))
        assert Cache(tmp_path).store(made)
    assert "2 kernels, 2.0 MiB" in call("cache", "size").stdout
    assert "removed 0" in call("cache", "prune").stdout
    assert "removed 2" in call("cache", "prune", "--mib", "0").stdout
    assert "0 kernels, 0.0 MiB" in call("cache", "size").stdout
