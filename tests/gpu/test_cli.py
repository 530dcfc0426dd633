"""`frazil run` with the plan's operands on the device."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import frazil
from frazil import data_type
from frazil.cli import main

pytestmark = pytest.mark.gpu


def test_run_of_a_pointwise_graph_uses_the_device(tmp_path: Path) -> None:
    g = frazil.Graph(io_data_type=data_type.BFLOAT16, compute_data_type=data_type.FLOAT, target="cpu")
    x, bias = g.tensor((64, 96), name="x"), g.tensor((1, 96), name="bias")
    g.gelu(g.bias(x, bias)).set_output(True).set_name("y")
    file = tmp_path / "graph.json"
    file.write_text(g.to_json())
    done = CliRunner().invoke(main, ["run", str(file)])
    assert done.exit_code == 0, done.output
    assert "pointwise_triton" in done.output and "ok" in done.output
