"""The command line: every command, its JSON, its exit codes, and the one line that answers a user's
mistake."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result

import frazil
from frazil import cli_check, cli_demo, cli_doctor, cli_inputs, cli_plan, cli_run, driver
from frazil.cli import main
from frazil.cli_text import columns, duration, progress
from frazil.dtypes import data_type
from frazil.ops import OPS
from frazil.target import Target
from tests.harness import setup

ROOT = Path(__file__).resolve().parent.parent
BF16, FLOAT, BOOLEAN = data_type.BFLOAT16, data_type.FLOAT, data_type.BOOLEAN


def call(*arguments: Any) -> Result:
    """Run a command in this process; an exception that is not an exit is a failure of the test."""
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def mistake(*arguments: Any) -> str:
    """The one line with which a mistake ends."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: "), line
    return line.removeprefix("Error: ")


def layer() -> frazil.Graph:
    """Y = gelu(A @ B + b), and which of its elements are positive."""
    graph = frazil.Graph("layer", BF16, FLOAT, FLOAT, target="cpu")
    a, w = graph.tensor((2, 8, 16), name="A"), graph.tensor((2, 16, 4), name="B")
    bias = graph.tensor((1, 1, 4), name="b", data_type=FLOAT)
    y = graph.gelu(graph.bias(graph.matmul(a, w), bias)).set_output(True).set_name("Y")
    graph.cmp_gt(y, graph.tensor_scalar(0.0, frazil.scalar_type.COMPILE_TIME_CONST)).set_output(
        True
    ).set_name("positive").set_data_type(BOOLEAN)
    return graph


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


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of `layer`, those of narrow type already rounded to it."""
    rng = np.random.default_rng(seed)
    shapes = {"A": (2, 8, 16), "B": (2, 16, 4), "b": (1, 1, 4)}
    made = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    return {k: v if k == "b" else v.astype(ml_dtypes.bfloat16).astype(np.float32) for k, v in made.items()}


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


def test_demo_expects_what_torch_computes() -> None:
    torch = pytest.importorskip("torch")
    shape = cli_demo.Shape(2, 4, 2, 40, 16)
    inputs = cli_demo.activations(shape, 1)
    q, k, v = (torch.from_numpy(x.astype(np.float64)) for x in inputs)
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=shape.scale)
    scores = (q @ k.mT * shape.scale).masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf)
    lse = scores.logsumexp(-1, keepdim=True)
    exact = cli_demo._check(shape, inputs, (o.numpy(), lse.numpy()), lambda: None)
    assert all(c.share < 1e-6 for c in exact.values())
    lse[1, 2, 3] += 1e-3
    assert not cli_demo._check(shape, inputs, (o.numpy(), lse.numpy()), lambda: None)["LSE"].ok
    o[0, 0, 0, 0] = torch.nan
    assert not cli_demo._check(shape, inputs, (o.numpy(), lse.numpy()), lambda: None)["O"].ok


def test_without_a_gpu_engine_the_cpu_serves_and_the_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = driver.DeviceInfo(0, "NVIDIA H200", (9, 0), 132, 232448, 50 << 20, 141 << 30)
    monkeypatch.setattr(Target, "current", staticmethod(lambda ordinal=None: Target.named("sm_90")))
    monkeypatch.setattr(driver, "current_device", lambda: 0)
    monkeypatch.setattr(driver, "device_info", lambda ordinal: facts)
    monkeypatch.setattr(frazil.catalog, "ENTRIES", frazil.catalog.ENTRIES[-1:])
    graph, line = cli_plan.here(lambda target: cli_plan.restored(layer().to_json(), target))
    assert graph.target.is_cpu
    assert "NVIDIA H200 (sm_90)" in line and "CPU engine" in line and "\n" not in line


def test_demo_saves_a_graph_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    assert call("demo", "--seq", 32, "--save", path).exit_code == 0
    assert call("run", path).exit_code == 0
    assert "No such file" in call("demo", "--seq", 8, "--save", tmp_path / "no" / "demo.json").stderr


# Run.


def test_run_reports_outputs_timing_and_check(graph_file: Path) -> None:
    result = call("run", graph_file, "--repeat", 3)
    assert result.exit_code == 0 and result.stderr == ""
    text = result.stdout
    assert re.search(r"^plan .*matmul -> bias -> gelu -> cmp_gt on cpu: reference", text, re.MULTILINE)
    assert re.search(r"'A' \(uid \d+\) +\(2, 8, 16\) +BFLOAT16 +normal", text)
    assert re.search(r"^outputs +'Y' .* min \S+  max \S+  mean \S+  NaN 0", text, re.MULTILINE)
    assert re.search(r"^time .*median of 3,", text, re.MULTILINE)
    assert re.search(r"^check +against the same graph on the reference engine.*float64", text, re.MULTILINE)
    assert text.count(": ok") == 2


def test_run_computes_what_the_graph_says(graph_file: Path, tmp_path: Path) -> None:
    x, y = tmp_path / "x.npz", tmp_path / "y.npz"
    given = arrays()
    np.savez(x, **given)
    assert call("run", graph_file, "--inputs", x, "--outputs", y).exit_code == 0
    stored = np.load(y)
    assert {k: v.dtype for k, v in stored.items()} == {"Y": np.float32, "positive": np.bool_}
    torch = pytest.importorskip("torch")
    a, b, bias = (torch.from_numpy(v.astype(np.float64)) for v in given.values())
    expected = torch.nn.functional.gelu(a @ b + bias).numpy()
    np.testing.assert_allclose(stored["Y"], expected, rtol=2**-8, atol=1e-6)
    np.testing.assert_array_equal(stored["positive"], stored["Y"] > 0)


def test_run_takes_names_uids_and_bit_patterns(graph_file: Path, tmp_path: Path) -> None:
    graph = cli_plan.restored(graph_file.read_text(), "cpu")
    narrow = {k: v if k == "b" else v.astype(ml_dtypes.bfloat16) for k, v in arrays().items()}
    bits = {k: v if k == "b" else v.view(np.uint16) for k, v in narrow.items()}
    forms = {
        "names": arrays(),
        "uids": {str(graph.find_tensor(k).uid): v for k, v in arrays().items()},
        "float64": {k: v.astype(np.float64) for k, v in arrays().items()},
        "bits": bits,
        "bfloat16 as NumPy stores it": narrow,
    }
    outputs = []
    for name, form in forms.items():
        np.savez(tmp_path / "x.npz", **form)
        done = call("run", graph_file, "--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "y.npz")
        assert done.exit_code == 0, name
        outputs.append(np.load(tmp_path / "y.npz")["Y"])
    assert all(np.array_equal(outputs[0], other) for other in outputs[1:])


def test_run_of_a_plan(plan_file: Path, graph_file: Path, tmp_path: Path) -> None:
    of_plan, of_graph = tmp_path / "plan.npz", tmp_path / "graph.npz"
    result = call("run", plan_file, "--outputs", of_plan)
    assert result.exit_code == 0 and re.search(r"^time +load ", result.stdout, re.MULTILINE)
    assert call("run", graph_file, "--outputs", of_graph).exit_code == 0
    np.testing.assert_array_equal(np.load(of_plan)["Y"], np.load(of_graph)["Y"])


def test_seed_and_fill(graph_file: Path, tmp_path: Path) -> None:
    def output(*options: Any) -> np.ndarray:
        assert call("run", graph_file, "--outputs", tmp_path / "y.npz", *options).exit_code == 0
        return np.load(tmp_path / "y.npz")["Y"]

    assert np.array_equal(output("--seed", 5), output("--seed", 5))
    assert not np.array_equal(output("--seed", 5), output("--seed", 6))
    np.savez(tmp_path / "a.npz", A=np.zeros((2, 8, 16), np.float32))
    filled = output("--inputs", tmp_path / "a.npz", "--fill")
    assert np.array_equal(filled, np.broadcast_to(filled[0, 0], filled.shape))


def test_run_fails_on_a_wrong_result(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = cli_run.measured

    def wrong(graph: frazil.Graph, pack: dict[Any, Any], repeat: int, step: Any) -> list[float]:
        times = measured(graph, pack, repeat, step)
        pack[graph.find_tensor("Y")][1, 2, 3] += 0.125
        return times

    monkeypatch.setattr(cli_run, "measured", wrong)
    result = call("run", graph_file)
    assert result.exit_code == 1
    assert re.search(r"'Y' .*WRONG", result.stdout) and re.search(r"'positive' .*: ok", result.stdout)


def test_an_element_that_is_not_written_shows(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_run, "measured", lambda *arguments: [1.0])
    result = call("run", graph_file)
    assert result.exit_code == 1 and "NaN 64" in result.stdout


@pytest.mark.parametrize("name", OPS)
def test_every_case_of_an_operation_runs(name: str) -> None:
    """Whatever a record's cases do with layouts and types, made-up inputs are valid and the check holds."""
    for case in OPS[name].cases:
        if case.level != "smoke":
            continue
        text = setup(name, case, np.random.default_rng(0)).graph.to_json()
        file = cli_plan.File(Path(case.name), text, None, b"")
        report = cli_run.run(file, cli_run.Options(repeat=1, target="cpu"))
        assert report.ok, f"{case.name}: {report.text}"


def test_layouts_are_as_declared() -> None:
    graph = frazil.Graph(target="cpu")
    wide = graph.tensor((2, 3), stride=(8, 2), data_type=FLOAT)
    shared = graph.tensor((4, 3), stride=(0, 1), data_type=data_type.FP8_E5M2)
    empty = graph.tensor((0, 3), data_type=FLOAT)
    for tensor in (wide, shared, empty):
        array = cli_inputs.allocate(tensor, 0)
        assert array.shape == tensor.dim
        if array.size:
            assert array.strides == tuple(s * array.dtype.itemsize for s in tensor.stride)


@pytest.mark.parametrize("ragged", [False, True])
def test_lengths_and_offsets_are_made_up(ragged: bool, tmp_path: Path) -> None:
    graph, inputs = packed(ragged)
    found = cli_inputs.invented(graph, {}, 0)
    q_lengths, kv_lengths = (found[inputs[n]].array.reshape(-1) for n in ("seq_len_q", "seq_len_kv"))
    assert np.all((q_lengths >= 1) & (q_lengths <= 12)) and np.all((kv_lengths >= 1) & (kv_lengths <= 20))
    if ragged:
        for port, lengths in (("q", q_lengths), ("k", kv_lengths)):
            offsets = found[inputs[f"{port}.offsets"]].array.reshape(-1)
            assert offsets[0] == 0 and np.array_equal(np.diff(offsets), lengths * inputs[port].stride[2])
    path = tmp_path / "packed.json"
    path.write_text(graph.to_json())
    result = call("run", path)
    assert result.exit_code == 0, result.output
    assert "valid indices" in result.stdout


def test_offsets_follow_given_lengths(tmp_path: Path) -> None:
    graph, inputs = packed(True)
    path = tmp_path / "x.npz"
    np.savez(path, seq_len_q=np.array([3, 1, 12], np.int32).reshape(3, 1, 1, 1))
    given = cli_inputs.from_npz(graph, path)
    found = cli_inputs.invented(graph, given, 0)
    assert inputs["seq_len_q"] not in found
    steps = np.diff(found[inputs["q.offsets"]].array.reshape(-1))
    assert (steps // inputs["q"].stride[2]).tolist() == [3, 1, 12]


def packed(ragged: bool) -> tuple[frazil.Graph, dict[str, frazil.Tensor]]:
    """Attention over three sequences of different lengths, in padded or in packed tensors."""
    graph = frazil.Graph("packed", BF16, FLOAT, FLOAT, target="cpu")
    made: dict[str, frazil.Tensor] = {}
    for name, heads, longest in (("q", 4, 12), ("k", 2, 20), ("v", 2, 20)):
        dim, stride = (3, heads, longest, 8), (heads * longest * 8, 8, heads * 8, 1)
        if ragged:
            made[f"{name}.offsets"] = graph.tensor(
                (4, 1, 1, 1), data_type=data_type.INT32, name=f"{name}.offsets"
            )
        made[name] = graph.tensor(dim, stride, name=name, ragged_offset=made.get(f"{name}.offsets"))
    for name in ("seq_len_q", "seq_len_kv"):
        made[name] = graph.tensor((3, 1, 1, 1), data_type=data_type.INT32, name=name)
    o, _ = graph.sdpa(
        q=made["q"],
        k=made["k"],
        v=made["v"],
        attn_scale=0.3,
        use_padding_mask=True,
        generate_stats=False,
        seq_len_q=made["seq_len_q"],
        seq_len_kv=made["seq_len_kv"],
    )
    o.set_output(True).set_name("O")
    if ragged:
        o.set_dim(made["q"].dim).set_stride(made["q"].stride).set_ragged_offset(made["q.offsets"])
    graph.validate()
    return graph, made


# Comparison with float64.


@pytest.mark.parametrize(
    ("actual", "wide", "dtype", "ok"),
    [
        ([1.0, np.inf, np.nan], [1.0, np.inf, np.nan], FLOAT, True),
        ([1.0, np.inf, 0.0], [1.0, np.inf, np.nan], FLOAT, False),
        ([1.0, -np.inf], [1.0, np.inf], FLOAT, False),
        ([1.0, np.nan], [1.0, 2.0], FLOAT, False),
        ([448.0], [1e4], data_type.FP8_E4M3, True),
        ([np.inf], [1e9], data_type.HALF, True),
        ([65504.0], [1e9], data_type.HALF, False),
        ([100.0, 1.0], [100.0, 1.0019], FLOAT, True),
        ([100.0, 1.0], [100.0, 1.0021], FLOAT, False),
        ([1.0], [1.0078], BF16, True),
        ([1.0], [1.0082], BF16, False),
        ([3], [3.4], data_type.INT32, True),
        ([4], [3.4], data_type.INT32, False),
        ([], [], FLOAT, True),
    ],
)
def test_comparison(actual: list[float], wide: list[float], dtype: data_type, ok: bool) -> None:
    narrow = np.asarray(actual, np.float64).astype(frazil.dtypes.numpy_dtype(dtype))
    assert cli_check.within(narrow, np.asarray(wide), dtype).ok is ok


def test_float64_and_integer_graphs_have_no_check(tmp_path: Path) -> None:
    graph = frazil.Graph(io_data_type=data_type.DOUBLE, target="cpu")
    graph.exp(graph.tensor((4,), name="x")).set_output(True)
    path = tmp_path / "double.json"
    path.write_text(graph.to_json())
    result = call("run", path)
    assert result.exit_code == 0 and "check   none: float64 would change nothing" in result.stdout


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


def test_mistakes_about_targets(graph_file: Path, plan_file: Path) -> None:
    assert "got sm_42, expected one of" in mistake("explain", graph_file, "--target", "sm_42")
    assert "a plan for cpu cannot run on sm_90" in mistake("run", plan_file, "--target", "sm_90")
    result = call("run", graph_file, "--target", "sm_90")
    assert result.exit_code == 2 and result.stderr.startswith("Error: no engine serves [matmul")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda x: x.pop("B"), r"lacks 'B' \(uid \d+\) BFLOAT16 \(2, 16, 4\)"),
        (
            lambda x: x.update(A=np.zeros((2, 8, 17), "f4")),
            r"'A': got shape \(2, 8, 17\), expected \(2, 8, 16\)",
        ),
        (
            lambda x: x.update(A=np.zeros((2, 8, 16), "c8")),
            r"'A': got complex64, expected floats, or bit patterns as uint16",
        ),
        (lambda x: x.update(b=np.zeros((1, 1, 4), "u2")), r"'b': got uint16, expected floats"),
        (
            lambda x: x.update(bias=np.zeros(4)),
            r"'bias' is neither the name nor the uid of an input; inputs are: 'A'",
        ),
        (lambda x: x.update({"1": x["A"]}), r"'A' \(uid 1\) is there twice"),
    ],
)
def test_mistakes_about_inputs(
    graph_file: Path, tmp_path: Path, change: Callable[[dict[str, np.ndarray]], Any], expected: str
) -> None:
    given, path = arrays(), tmp_path / "x.npz"
    change(given)
    np.savez(path, **given)
    line = mistake("run", graph_file, "--inputs", path)
    assert line.startswith(f"{path}: ") and re.search(expected, line), line


def test_mistakes_about_npz_files(graph_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    assert "No such file" in mistake("run", graph_file, "--inputs", path)
    np.savez(path, **arrays())
    whole = path.read_bytes()
    for data in (b"", b"text", whole[:100], whole[:-30]):
        path.write_bytes(data)
        assert "not an .npz file" in mistake("run", graph_file, "--inputs", path), data[:10]
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert "not an .npz file" in mistake("run", graph_file, "--inputs", tmp_path / "x.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A", "text")
    assert "not an .npz file" in mistake("run", graph_file, "--inputs", path)
    np.savez(path, A=np.array([None]))
    assert "not an .npz file" in mistake("run", graph_file, "--inputs", path)
    result = call("run", graph_file, "--outputs", tmp_path / "no" / "y.npz")
    assert result.exit_code == 2 and "No such file" in result.stderr


def test_integers_are_checked(tmp_path: Path) -> None:
    graph = frazil.Graph(io_data_type=data_type.INT8, compute_data_type=data_type.INT32, target="cpu")
    graph.abs(graph.tensor((3,), name="x")).set_output(True).set_name("y")
    path, inputs = tmp_path / "abs.json", tmp_path / "x.npz"
    path.write_text(graph.to_json())
    np.savez(inputs, x=np.array([1, -128, 127], np.int64))
    assert call("run", path, "--inputs", inputs).exit_code == 0
    for wrong in (np.array([1, 2, 128]), np.array([1.0, 2.0, 3.0])):
        np.savez(inputs, x=wrong)
        assert "expected integers in the range of INT8" in mistake("run", path, "--inputs", inputs)


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


def test_indices_of_unknown_meaning_are_asked_for(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = cli_plan.restored(graph_file.read_text(), "cpu")
    op = graph.nodes[1].op
    ports = (op.inputs[0], dataclasses.replace(op.inputs[1], index=True))
    monkeypatch.setattr(graph.nodes[1], "op", dataclasses.replace(op, inputs=ports))
    with pytest.raises(
        click.ClickException, match=r"give them with --inputs FILE.npz: 'b' \(uid \d+\) FLOAT"
    ):
        cli_inputs.invented(graph, {}, 0)


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
