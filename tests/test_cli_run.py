"""`frazil run`: inputs given and made up, outputs, the check, and mistakes about them."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
import pytest
from scipy import special

import frazil
from frazil import cli_check, cli_inputs, cli_plan, cli_run
from frazil.dtypes import data_type
from frazil.ops import OPS
from tests import harness
from tests.cli_helpers import BF16, FLOAT, call, layer, mistake, packed


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


# Reports.


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


def test_run_of_a_plan(plan_file: Path, graph_file: Path, tmp_path: Path) -> None:
    of_plan, of_graph = tmp_path / "plan.npz", tmp_path / "graph.npz"
    result = call("run", plan_file, "--outputs", of_plan)
    assert result.exit_code == 0 and re.search(r"^time +load ", result.stdout, re.MULTILINE)
    assert call("run", graph_file, "--outputs", of_graph).exit_code == 0
    np.testing.assert_array_equal(np.load(of_plan)["Y"], np.load(of_graph)["Y"])


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


def test_float64_and_integer_graphs_have_no_check(tmp_path: Path) -> None:
    graph = frazil.Graph(io_data_type=data_type.DOUBLE, target="cpu")
    graph.exp(graph.tensor((4,), name="x")).set_output(True)
    path = tmp_path / "double.json"
    path.write_text(graph.to_json())
    result = call("run", path)
    assert result.exit_code == 0 and "check   none: float64 would change nothing" in result.stdout


# Inputs and outputs as files.


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of `layer`, those of narrow type already rounded to it."""
    rng = np.random.default_rng(seed)
    shapes = {"A": (2, 8, 16), "B": (2, 16, 4), "b": (1, 1, 4)}
    made = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    return {k: v if k == "b" else v.astype(ml_dtypes.bfloat16).astype(np.float32) for k, v in made.items()}


def test_run_computes_what_the_graph_says(graph_file: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "x.npz", tmp_path / "y.npz"
    given = arrays()
    np.savez(source, **given)
    assert call("run", graph_file, "--inputs", source, "--outputs", target).exit_code == 0
    stored = np.load(target)
    assert {k: v.dtype for k, v in stored.items()} == {"Y": np.float32, "positive": np.bool_}
    x = np.matmul(given["A"], given["B"], dtype=np.float64) + given["b"]
    expected = x * special.ndtr(x)
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


def test_seed_and_fill(graph_file: Path, tmp_path: Path) -> None:
    def output(*options: Any) -> np.ndarray:
        assert call("run", graph_file, "--outputs", tmp_path / "y.npz", *options).exit_code == 0
        return np.load(tmp_path / "y.npz")["Y"]

    assert np.array_equal(output("--seed", 5), output("--seed", 5))
    assert not np.array_equal(output("--seed", 5), output("--seed", 6))
    np.savez(tmp_path / "a.npz", A=np.zeros((2, 8, 16), np.float32))
    filled = output("--inputs", tmp_path / "a.npz", "--fill")
    assert np.array_equal(filled, np.broadcast_to(filled[0, 0], filled.shape))


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


# Inputs that are made up.


@pytest.mark.parametrize("name", OPS)
def test_every_case_of_an_operation_runs(name: str) -> None:
    """Whatever a record's cases do with layouts and types, made-up inputs are valid and the check holds."""
    for case in OPS[name].cases:
        if case.level != "smoke":
            continue
        text = harness.setup(name, case, np.random.default_rng(0)).graph.to_json()
        file = cli_plan.File(Path(case.name), text, None, b"")
        report = cli_run.run(file, cli_run.Options(repeat=1, target="cpu"))
        assert report.ok, f"{case.name}: {report.text}"


def test_layouts_are_as_declared() -> None:
    graph = frazil.Graph(target="cpu")
    wide = graph.tensor((2, 3), stride=(8, 2), data_type=FLOAT)
    shared = graph.tensor((4, 3), stride=(0, 1), data_type=data_type.FP8_E5M2)
    empty = graph.tensor((0, 3), data_type=FLOAT)
    number = graph.tensor((), data_type=FLOAT)
    assert cli_inputs._laid_out(number, 2.5) == 2.5
    for tensor in (wide, shared, empty, number):
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


def test_lengths_fit_into_the_packed_memory() -> None:
    """Heads outside tokens leave room for as many tokens as lie between two heads, however long a sequence
    may be.
    """
    graph = frazil.Graph("tight", FLOAT, FLOAT, FLOAT, target="cpu")
    tensors = []
    for name in "qkv":
        offsets = graph.tensor((4, 1, 1, 1), data_type=data_type.INT32, name=f"{name}.offsets")
        tensors.append(graph.tensor((3, 2, 9, 4), (36, 40, 4, 1), name=name, ragged_offset=offsets))
    graph.sdpa(*tensors, is_inference=True)[0].set_output(True)
    graph.validate()
    for seed in range(20):
        found = cli_inputs.invented(graph, {}, seed)
        ends = [found[t.ragged_offset].array.reshape(-1)[-1] // 4 for t in tensors]
        assert max(ends) <= 10, seed


def test_offsets_follow_given_lengths(tmp_path: Path) -> None:
    graph, inputs = packed(True)
    path = tmp_path / "x.npz"
    np.savez(path, seq_len_q=np.array([3, 1, 12], np.int32).reshape(3, 1, 1, 1))
    given = cli_inputs.from_npz(graph, path)
    found = cli_inputs.invented(graph, given, 0)
    assert inputs["seq_len_q"] not in found
    steps = np.diff(found[inputs["q.offsets"]].array.reshape(-1))
    assert (steps // inputs["q"].stride[2]).tolist() == [3, 1, 12]


def test_indices_of_unknown_meaning_are_asked_for(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = cli_plan.restored(graph_file.read_text(), "cpu")
    op = graph.nodes[1].op
    ports = (op.inputs[0], dataclasses.replace(op.inputs[1], index=True))
    call = dataclasses.replace(graph.nodes[1].call, op=dataclasses.replace(op, inputs=ports))
    monkeypatch.setattr(graph.nodes[1], "_call", call)
    with pytest.raises(
        click.ClickException, match=r"give them with --inputs FILE.npz: 'b' \(uid \d+\) FLOAT"
    ):
        cli_inputs.invented(graph, {}, 0)


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
