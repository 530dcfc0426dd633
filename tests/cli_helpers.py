"""What the tests of the command line share: calls of commands, and graphs to store."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

import frazil
from frazil.cli import main
from frazil.dtypes import data_type

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
