"""The pointwise engine without a GPU: what it claims and declines, one artifact per layout class, resources
of its kernels.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frazil
from frazil import compile as compiler
from frazil import data_type, plan
from frazil.artifact import Artifact
from frazil.engines import pointwise_triton
from frazil.program import Const, Kernel
from frazil.spec import Problem, freeze

ENGINE = pointwise_triton.ENGINE
SM90 = frazil.Target.named("sm_90")
GOLDEN = Path(__file__).parent.parent / "golden" / "resources.json"


def graph(dtype: data_type = data_type.BFLOAT16) -> frazil.Graph:
    return frazil.Graph(
        io_data_type=dtype,
        intermediate_data_type=data_type.FLOAT,
        compute_data_type=data_type.FLOAT,
        target="sm_90",
    )


def problem(g: frazil.Graph) -> Problem:
    g.validate()
    return freeze(g.nodes, False)


def bias_gelu(dim: tuple[int, ...], bias: tuple[int, ...], dtype: data_type = data_type.BFLOAT16) -> Problem:
    g = graph(dtype)
    g.gelu(g.bias(g.tensor(dim), g.tensor(bias))).set_output(True)
    return problem(g)


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[compiler.KernelSource]:
    """What the engine asks the compiler for; nothing is compiled."""
    found: list[compiler.KernelSource] = []

    def record(source: compiler.KernelSource, target: frazil.Target) -> Artifact:
        found.append(source)
        return Artifact(
            compiler.source_key(source, target), "pointwise", target.arch, "none", 128, 0, 0, 0, b""
        )

    monkeypatch.setattr(compiler, "artifact", record)
    return found


def test_c72_a_hundred_shapes_of_one_class_are_one_artifact(
    requested: list[Any], rng: np.random.Generator
) -> None:
    for _ in range(100):
        rows, columns = int(rng.integers(1, 500)) * 16, int(rng.integers(1, 500)) * 16
        p = bias_gelu((rows, columns), (1, columns))
        ENGINE.build(p, ENGINE.configs(p, SM90)[0], SM90)
    assert len({compiler.source_key(s, SM90) for s in requested}) == 1


@pytest.mark.parametrize(
    "dim, bias, merged, inner",
    [
        ((4, 128, 256), (1, 1, 256), (512, 256), (1, 1, 1)),
        ((4, 128, 256), (4, 128, 256), (131072,), (1, 1, 1)),
        ((4, 128, 256), (4, 128, 1), (512, 256), (1, 0, 1)),
        ((4, 128, 256), (1, 128, 1), (4, 128, 256), (1, 0, 1)),
        ((1, 5, 1), (1, 1, 1), (5,), (1, 0, 1)),
        ((1, 1), (1, 1), (1,), (1, 1, 1)),
    ],
)
def test_axes_merge_as_far_as_all_operands_allow(
    requested: list[Any], dim: Any, bias: Any, merged: Any, inner: Any
) -> None:
    p = bias_gelu(dim, bias)
    (kernel,) = ENGINE.build(p, ENGINE.configs(p, SM90)[0], SM90).instructions
    assert isinstance(kernel, Kernel)
    constants = dict(requested[0].constants)
    assert constants["RANK"] == len(merged) and constants["INNER"] == inner
    numbers = [a.value.value for a in kernel.args if hasattr(a, "value") and isinstance(a.value, Const)]
    assert tuple(numbers[1 : 1 + len(merged)]) == merged and numbers[0] == np.prod(merged)


def decline(g: frazil.Graph, target: str = "sm_90") -> str:
    answer = ENGINE.claim(problem(g), frazil.Target.named(target))
    assert isinstance(answer, frazil.Decline)
    return answer.reason


def test_declines_say_what_is_served() -> None:
    g = graph()
    g.relu(g.matmul(g.tensor((2, 2)), g.tensor((2, 2)))).set_output(True)
    assert "operation of node 'matmul.0': got matmul, served: elementwise" in decline(g)
    g = graph(data_type.INT32)
    g.add(g.tensor((2,), name="a"), g.tensor((2,))).set_output(True)
    assert "data type of tensor 'a' (uid 1): got INT32" in decline(g)
    g = graph()
    g.relu(g.tensor((2,))).set_output(True)
    assert "got cpu, served: sm_80 and later" in decline(g, "cpu")
    g = graph()
    part = g.relu(g.tensor((1, 4))).set_output(True)
    g.add(part, g.tensor((4, 4))).set_output(True)
    assert "extents of output" in decline(g)
    g = graph()
    g.gen_index(g.tensor((2, 2)), axis=1).set_output(True)
    assert "got gen_index" in decline(g)


def smoke() -> dict[str, Problem]:
    """The kernels whose resources are held against the golden table."""
    swish = graph()
    x = swish.tensor((4096, 4096))
    swish.mul(swish.swish(x), swish.tensor((4096, 4096))).set_output(True)
    return {
        "bias_gelu_bf16_rows": bias_gelu((4096, 4096), (1, 4096)),
        "bias_gelu_fp16_columns": bias_gelu((4096, 4096), (4096, 1), data_type.HALF),
        "bias_gelu_fp32_flat": bias_gelu((4096, 4096), (4096, 4096), data_type.FLOAT),
        "bias_gelu_bf16_odd": bias_gelu((1001, 77), (1, 77)),
        "swish_mul_bf16_flat": problem(swish),
    }


def resources() -> dict[str, dict[str, int]]:
    """Registers and spilled bytes of each smoke kernel for sm_90."""
    table = {}
    for name, p in smoke().items():
        (candidate, *_) = [c for c in plan.plan(p, SM90).candidates if c.name.startswith("pointwise_triton")]
        (kernel,) = plan.build(candidate, p, SM90).instructions
        assert isinstance(kernel, Kernel)
        table[name] = {"registers": kernel.artifact.registers, "spill_bytes": kernel.artifact.spill_bytes}
    return table


@pytest.mark.skipif(
    compiler.compiler_version() != "triton-3.6.0", reason="the golden table is that of Triton 3.6.0"
)
def test_resources_do_not_rise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path))
    golden = json.loads(GOLDEN.read_text())
    found = resources()
    assert found.keys() == golden.keys()
    for name, used in found.items():
        for what, value in used.items():
            assert value <= golden[name][what], f"{name}: {what} {value}, {golden[name][what]} allowed"


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    GOLDEN.write_text(json.dumps(resources(), indent=2) + "\n")
