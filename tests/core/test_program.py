"""Programs as data: expressions, linking of every instruction and argument, and what the CPU executor does
with each.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import frazil
from frazil import StateError, data_type
from frazil.artifact import Artifact
from frazil.program import (
    Argument,
    BackendPlan,
    Binary,
    Const,
    Copy,
    Extent,
    Fill,
    HostCall,
    HostScalar,
    Instruction,
    Kernel,
    Null,
    Number,
    Program,
    Slot,
    Stride,
    TensorMap,
    Upload,
    Workspace,
    evaluate,
    link,
    round_up,
)
from frazil.spec import Problem, TensorSpec

from .helpers import FLOAT, Fake, add_graph, anything, graph, inputs, install, poison, refused, untouched


def made_of(kind: type) -> Any:
    """A value of a class whose fields are plain, each filled by its type."""
    plain = {str: "text", int: 64, bytes: b"\x7fELF cubin"}
    return kind(**{name: plain[hint] for name, hint in get_type_hints(kind).items()})


ARTIFACT = made_of(Artifact)
ROWS = Binary("cdiv", Extent(0, 0), Const(64))
MAP = TensorMap(
    Slot(0, 32), data_type.HALF, (Extent(0, 0), Const(64)), (Stride(0, 0), Const(1)), (64, 64), 128
)
KERNEL = Kernel(
    ARTIFACT,
    (ROWS, Const(2), Binary("min", Extent(1, 1), Const(8))),
    128,
    (
        *(Slot(0), Slot(1, 16), Workspace(64), Null(), MAP, replace(MAP, base=Workspace(128), swizzle=0)),
        *(Number(Binary("*", Extent(2, 0), Stride(2, 0)), data_type.INT32), Number(0.5, FLOAT)),
        HostScalar(2, FLOAT),
    ),
    cluster=(2, 1, 1),
    shared=1024,
    attributes=("programmatic",),
)
BACKEND = BackendPlan(b"{}", ((7, Slot(1)), (0, Workspace(32))), Workspace(256))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Const(7), 7),
        (Extent(0, 1), 5),
        (Extent(3, 0), 9),
        (Stride(0, 0), 20),
        (Binary("+", Const(2), Extent(0, 0)), 6),
        (Binary("*", Extent(0, 0), Extent(0, 1)), 20),
        (Binary("cdiv", Extent(0, 1), Const(2)), 3),
        (Binary("cdiv", Const(6), Const(3)), 2),
        (Binary("cdiv", Const(0), Const(3)), 0),
        (Binary("min", Extent(0, 0), Const(3)), 3),
        (Binary("max", Extent(0, 0), Const(3)), 4),
        (Binary("*", Binary("cdiv", Extent(0, 1), Const(4)), Binary("+", Stride(3, 0), Const(1))), 4),
        (Const(2**40), 2**40),
    ],
    ids=str,
)
def test_expressions(expr: Any, expected: int) -> None:
    assert evaluate(expr, {0: ((4, 5), (20, 1)), 3: ((9,), (1,))}) == expected


def test_programs_are_values() -> None:
    again = Kernel(
        Artifact(*(getattr(ARTIFACT, f.name) for f in fields(ARTIFACT))),
        *(getattr(KERNEL, f.name) for f in fields(KERNEL)[1:]),
    )
    assert again == KERNEL
    assert hash(again) == hash(KERNEL)
    assert b"ELF" not in repr(ARTIFACT).encode(), "a cubin is not for logs"
    assert [round_up(v, 16) for v in (0, 1, 16, 17)] == [0, 16, 16, 32]


# Linking: ports 0, 1, 2 of a part are 4, 2, 5 of the whole, of which 2 lives in workspace at 512; 700 bytes
# of such tensors are rounded up to the alignment of the part, whose own workspace follows.

PORTS, SCRATCH, BASE = (4, 2, 5), {2: 512}, 768


def linked(*instructions: Any, **options: Any) -> tuple[Any, ...]:
    """The instructions of a part, in terms of the whole."""
    spec = TensorSpec(FLOAT, (4,), (1,))
    part = Program((spec,) * 3, instructions, 512, alignment=256, **options)
    other = Program((spec,) * 3, (), 128)
    return link((spec,) * 6, [(part, PORTS), (other, (0, 1, 3))], SCRATCH, 700).instructions


MOVED_MAP = TensorMap(
    Slot(4, 32), data_type.HALF, (Extent(4, 0), Const(64)), (Stride(4, 0), Const(1)), (64, 64), 128
)
RELOCATED = {
    "Kernel": (
        KERNEL,
        Kernel(
            ARTIFACT,
            (Binary("cdiv", Extent(4, 0), Const(64)), Const(2), Binary("min", Extent(2, 1), Const(8))),
            128,
            (
                *(Slot(4), Workspace(512 + 16), Workspace(BASE + 64), Null(), MOVED_MAP),
                replace(MOVED_MAP, base=Workspace(BASE + 128), swizzle=0),
                Number(Binary("*", Extent(5, 0), Stride(5, 0)), data_type.INT32),
                *(Number(0.5, FLOAT), HostScalar(5, FLOAT)),
            ),
            cluster=(2, 1, 1),
            shared=1024,
            attributes=("programmatic",),
        ),
    ),
    "Kernel over a map of what lives between parts": (
        replace(KERNEL, grid=(Const(1),) * 3, args=(replace(MAP, base=Slot(1, 8)),)),
        replace(KERNEL, grid=(Const(1),) * 3, args=(replace(MOVED_MAP, base=Workspace(520)),)),
    ),
    "Fill": (
        Fill(Slot(1, 4), Binary("*", Extent(0, 0), Const(4)), b"\0\1"),
        Fill(Workspace(516), Binary("*", Extent(4, 0), Const(4)), b"\0\1"),
    ),
    "Copy": (
        Copy(Slot(0), Workspace(8), Extent(2, 0)),
        Copy(Slot(4), Workspace(BASE + 8), Extent(5, 0)),
    ),
    "Upload": (Upload(Workspace(0), b"\0\1\2\3"), Upload(Workspace(BASE), b"\0\1\2\3")),
    "BackendPlan": (
        BACKEND,
        BackendPlan(b"{}", ((7, Workspace(512)), (0, Workspace(BASE + 32))), Workspace(BASE + 256)),
    ),
    "BackendPlan without workspace": (
        replace(BACKEND, workspace=None),
        BackendPlan(b"{}", ((7, Workspace(512)), (0, Workspace(BASE + 32)))),
    ),
}


@pytest.mark.parametrize("kind", RELOCATED)
def test_linking_moves_every_place(kind: str) -> None:
    given, expected = RELOCATED[kind]
    assert linked(given) == (expected,)


def test_linking_moves_a_host_call() -> None:
    g = graph()
    parts = [g.tensor((2, 3)) for _ in range(2)]
    g.add(*parts).set_output(True)
    (node,) = g.problem.nodes
    call = HostCall(node, ((0, Slot(0)), (1, Slot(1)), (2, Workspace(16))))
    (moved,) = linked(call)
    assert moved.operands == ((4, Slot(4)), (2, Workspace(512)), (5, Workspace(BASE + 16)))
    assert (moved.node.reads(), moved.node.writes()) == ((4, 2), (5,))
    assert moved.node.attrs == node.attrs


def test_every_kind_is_tried_above() -> None:
    arguments = {type(a) for a in KERNEL.args}
    assert arguments == set(get_args(Argument))
    assert {type(given) for given, _ in RELOCATED.values()} | {HostCall} == set(get_args(Instruction))


def test_linking_adds_up_workspace_and_requirements() -> None:
    spec = TensorSpec(FLOAT, (4,), (1,))
    specs = (spec,) * 6
    alias = frozenset({(0, 1)})
    first = Program((spec,) * 2, (), 100, alignment=128, aligned=((0, 64), (1, 32)), may_alias=alias)
    second = Program((spec,) * 2, (), 40, aligned=((0, 512), (1, 16)))
    whole = link(specs, [(first, (0, 1)), (second, (1, 5))], {5: 0}, 256)
    assert (whole.workspace, whole.alignment) == (256 + 100, 128)
    assert whole.aligned == ((0, 64), (1, 512))
    assert whole.may_alias == frozenset(), "a later part may read what an earlier one writes"
    between = link(specs, [(first, (5, 1)), (replace(second, workspace=0), (5, 2))], {5: 0}, 256)
    assert between.alignment == 512, "what lives between parts is aligned as they ask"
    assert link(specs, [(first, (3, 4))], {}, 0).may_alias == {(3, 4)}
    nothing = link(specs, [(replace(first, workspace=0), (0, 1))], {}, 0)
    assert nothing.workspace == 0


# The CPU executor.


def run(
    monkeypatch: pytest.MonkeyPatch, *instructions: Any, workspace: int = 0, dim: tuple[int, ...] = (2, 3, 4)
) -> tuple[np.ndarray, np.ndarray]:
    """Output of a program over ports 0, 1 (inputs) and 2 (output), and input 0."""

    def edit(program: Program) -> Program:
        return replace(program, instructions=instructions, workspace=workspace)

    install(monkeypatch, Fake("given", anything, edit=edit))
    g, a, b, y = add_graph(dim, is_dynamic_shape_enabled=True)
    g.build()
    va, vb = inputs(np.random.default_rng(0), *dim)
    out = poison(*dim)
    g.execute({a: va, b: vb, y: out}, g.empty_workspace())
    return out, va


BYTES = Binary("*", Binary("*", Extent(2, 0), Stride(2, 0)), Const(4))


@pytest.mark.parametrize("pattern", [b"\x07", b"\x01\x02", b"\x00\x00\x80\x3f"], ids=repr)
def test_fill(pattern: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = run(monkeypatch, Fill(Slot(2), BYTES, pattern))
    assert out.tobytes() == pattern * (96 // len(pattern))
    out, _ = run(monkeypatch, Fill(Slot(2, 8), Const(12), pattern))
    assert untouched(out.ravel()[:2])
    assert out.tobytes()[8:20] == pattern * (12 // len(pattern))
    assert untouched(out.ravel()[5:])
    out, _ = run(monkeypatch, Fill(Slot(2), Const(0), pattern))
    assert untouched(out)


def test_copy_through_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    out, source = run(
        monkeypatch,
        Copy(Workspace(16), Slot(0), BYTES),
        Copy(Slot(2), Workspace(16), Const(48)),
        Copy(Slot(2, 48), Slot(0), Const(48)),
        workspace=112,
    )
    half = source.ravel()[:12]
    np.testing.assert_array_equal(out.ravel(), np.concatenate([half, half]))


def test_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.arange(6, dtype=np.float32).tobytes()
    out, _ = run(monkeypatch, Upload(Slot(2, 4), data), Upload(Workspace(0), b"xyz"), workspace=16)
    assert untouched(out.ravel()[:1])
    assert out.ravel()[1:7].tolist() == [0, 1, 2, 3, 4, 5]
    assert untouched(out.ravel()[7:])


def test_expressions_follow_the_geometry_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    edit = lambda p: replace(p, instructions=(Fill(Slot(2), BYTES, b"\0"),))
    install(monkeypatch, Fake("given", anything, edit=edit))
    g, a, b, y = add_graph((4, 3), is_dynamic_shape_enabled=True)
    va, vb = inputs(np.random.default_rng(0), 2, 3)
    memory = poison(4, 3)
    g.execute({a: va, b: vb, y: memory[:2]})
    assert (memory[:2] == 0).all()
    assert untouched(memory[2:])


@pytest.mark.parametrize("instruction", [KERNEL, BACKEND], ids=lambda i: type(i).__name__)
def test_a_cpu_target_refuses_device_instructions(instruction: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(lambda: run(monkeypatch, instruction), type(instruction).__name__, "CPU", error=StateError)


def test_an_operand_is_aligned_as_the_program_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Fake("wide", anything, edit=lambda p: replace(p, aligned=((0, 32), (2, 64)))))
    g, a, b, y = add_graph((16,))
    memory = poison(80)
    start = (-memory.ctypes.data % 64) // 4
    at = lambda i: memory[start + i : start + i + 16]
    pack = {a: at(0), b: poison(16), y: at(32)}
    g.execute(pack)
    refused(lambda: g.execute({**pack, a: at(4)}), "'a'", "alignment", "16 bytes past a multiple of 32")
    refused(lambda: g.execute({**pack, y: at(40)}), "'y'", "alignment", "32 bytes past a multiple of 64")


# Problems: what programs are over.


def test_problems_are_equal_when_they_describe_the_same_work() -> None:
    one, *_ = add_graph()
    other = graph()
    made = other.add(other.tensor((2, 3, 4), name="p"), other.tensor((2, 3, 4), uid=77), name="q")
    made.set_output(True)
    assert one.problem == other.problem
    assert hash(one.problem) == hash(other.problem)
    assert one.problem.text == "add"


CHANGES = {
    "stride": lambda a, y: a.set_stride((24, 8, 2)),
    "data type": lambda a, y: a.set_data_type(data_type.HALF),
    "output type": lambda a, y: y.set_data_type(data_type.HALF),
    "output stride": lambda a, y: y.set_stride((1, 2, 6)),
    "reordering": lambda a, y: a.set_reordering_type(frazil.tensor_reordering.F16x16),
    "alignment": lambda a, y: a.set_alignment_value(8),
}


@pytest.mark.parametrize("change", CHANGES)
def test_problems_differ_in_everything_that_a_kernel_depends_on(change: str) -> None:  # C-01
    one, *_ = add_graph()
    other, a, _, y = add_graph()
    CHANGES[change](a, y)
    assert one.problem != other.problem
    assert one.key() != other.key()


def test_anchors() -> None:
    g = graph()
    a = g.tensor((4, 4))
    y = g.relu(g.matmul(a, a)).set_output(True)
    assert g.problem.anchor is not None
    assert g.problem.anchor.op == "matmul"
    g.matmul(y, a).set_output(True)
    assert g.problem.anchor is None


def test_inputs_and_outputs_of_a_problem() -> None:
    g = graph()
    x = g.tensor((2, 3), name="x")
    s = g.tensor_scalar(2.0, frazil.scalar_type.RUNTIME_PARAM, name="s")
    c = g.tensor_scalar(3.0, frazil.scalar_type.COMPILE_TIME_CONST, name="c")
    middle = g.mul(x, s).set_output(True).set_name("m")
    g.add(g.relu(middle), c).set_output(True).set_name("y")
    problem: Problem = g.problem
    assert [problem.tensors[i].name for i in problem.inputs] == ["x", "s"]
    assert [problem.tensors[i].name for i in problem.outputs] == ["m", "y"]
