"""Tensors and graphs before planning: identity, declaration, inference, freezing, and the words of
refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import frazil
from frazil import data_type, reduction_mode, scalar_type, tensor_reordering
from frazil.ops import OPS

from ..harness import setup
from .helpers import add_graph, execute, graph, random, refused

HALF, FLOAT, BF16, INT32 = data_type.HALF, data_type.FLOAT, data_type.BFLOAT16, data_type.INT32

# Identity.


def test_uids_are_chosen_by_the_graph_unless_given() -> None:
    g = graph()
    a, b, c = g.tensor((1,)), g.tensor((1,), uid=7), g.tensor((1,), uid=-1)
    assert (a.uid, b.uid) == (1, 7) and c.uid not in (1, 7)
    assert len({t.uid for t in g.tensors}) == 3


def test_a_given_uid_wins_over_a_chosen_one() -> None:
    g = graph()
    a = g.tensor((1,), name="a")
    b = g.tensor((1,), name="b", uid=a.uid)
    assert b.uid == 1 and a.uid != 1 and g.find_tensor(1) is b and g.find_tensor(a.uid) is a
    b2 = g.tensor((1,), name="b2").set_uid(a.uid)
    assert len({a.uid, b.uid, b2.uid}) == 3


def test_two_given_uids_clash() -> None:
    g = graph()
    g.tensor((1,), name="a", uid=5)
    b = g.tensor((1,), name="b")
    refused(lambda: b.set_uid(5), "uid", "5", "'a'", "'b'")
    assert g.find_tensor("b") is b  # a refused change leaves everything in place
    refused(lambda: g.tensor((1,), name="c", uid=5), "uid", "'a'", "'c'")
    refused(lambda: g.find_tensor("c"), "no tensor has the name 'c'")


def test_the_uid_that_a_tensor_has_becomes_its_own_when_set() -> None:
    g = graph()
    a = g.tensor((1,), name="a")
    a.set_uid(a.uid)
    refused(lambda: g.tensor((1,), uid=a.uid), "uid is taken")


@pytest.mark.parametrize("uid", [1.5, "5", True, [1]], ids=repr)
def test_a_uid_is_an_integer(uid: Any) -> None:
    g = graph()
    t = g.tensor((1,), name="x")
    refused(lambda: t.set_uid(uid), "'x'", "uid", repr(uid), "an integer")
    refused(lambda: g.tensor((1,), name="y", uid=uid), "'y'", "uid", "an integer")
    assert len(g.tensors) == 1


def test_numpy_integers_are_integers() -> None:
    t = graph().tensor(np.array([2, 3]), uid=np.int64(9)).set_stride((np.int32(3), 1))
    assert (t.uid, t.dim, t.stride) == (9, (2, 3), (3, 1))
    assert all(type(v) is int for v in (t.uid, *t.dim, *t.stride))


def test_names_may_repeat_but_lookup_then_refuses() -> None:
    g = graph()
    a, b = g.tensor((1,), name="x"), g.tensor((1,), name="x")
    refused(lambda: g.find_tensor("x"), "several", "'x'", str(a.uid), str(b.uid))
    assert g.find_tensor(b.uid) is b and g.find_tensor(b) is b
    b.set_name("z")
    assert g.find_tensor("x") is a and g.find_tensor("z") is b
    refused(lambda: g.find_tensor(99), "uid", "99")
    refused(lambda: g.find_tensor(1.0), "float", error=TypeError)


def test_nodes_have_names() -> None:
    g = graph()
    x = g.tensor((1,))
    y = g.relu(g.relu(x), name="second")
    assert [n.name for n in g.nodes] == ["relu.0", "second"] and y.name == "second::OUT_0"
    assert g.get_node("second") is g.nodes[1]
    refused(lambda: g.get_node("third"), "'third'", "second")


# Setters and getters.

SETTERS: list[tuple[str, Any, Any]] = [
    ("output", True, None),
    ("data_type", HALF, HALF),
    ("name", "n", "n"),
    ("dim", (2, 3), [2, 3]),
    ("stride", (5, 1), [5, 1]),
    ("uid", 77, 77),
    ("ragged_offset", None, None),
    ("ragged_offset_multiplier", 4, 4),
    ("reordering_type", tensor_reordering.F8_128x4, tensor_reordering.F8_128x4),
    ("is_virtual", True, True),
    ("is_pass_by_value", True, True),
    ("alignment_value", 16, None),
]


@pytest.mark.parametrize(("name", "value", "read"), SETTERS, ids=[s[0] for s in SETTERS])
def test_setters_chain_and_getters_read_back(name: str, value: Any, read: Any) -> None:
    t = graph().tensor((4, 4))
    assert getattr(t, f"set_{name}")(value) is t
    if hasattr(t, f"get_{name}"):
        assert getattr(t, f"get_{name}")() == read
    field = {"output": "is_virtual"}.get(name, name)
    expected = tuple(value) if isinstance(value, tuple) else False if name == "output" else value
    assert getattr(t, field) == expected


def test_a_chain_in_one_line() -> None:
    t = graph().tensor((1,)).set_dim([2, 3]).set_stride([3, 1]).set_data_type(torch.float16).set_name("q")
    assert repr(t) == ("Tensor(name='q', uid=1, dim=[2, 3], stride=[3, 1], data_type=HALF, is_virtual=False)")


def test_properties_set_as_setters_do() -> None:
    t = graph().tensor((1,))
    t.dim, t.stride, t.data_type, t.name, t.uid = [2], (1,), "half", "n", 8
    t.is_virtual, t.pass_by_value, t.ragged_offset = True, False, None
    assert (t.dim, t.stride, t.data_type, t.name, t.uid, t.is_virtual) == ((2,), (1,), HALF, "n", 8, True)


def test_geometry_and_types_of_torch_are_accepted() -> None:
    source = torch.empty(2, 3, 4, dtype=torch.bfloat16).transpose(1, 2)
    g = graph()
    t = g.tensor(source.shape, source.stride(), source.dtype)
    assert (t.dim, t.stride, t.data_type) == ((2, 4, 3), (12, 1, 4), BF16)
    assert g.tensor_like(source).get_stride() == [12, 1, 4]
    typed = frazil.Graph(io_data_type=torch.float16, compute_data_type=np.float32)
    assert (typed.context.io_data_type, typed.context.compute_data_type) == (HALF, FLOAT)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": (2, -1)}, ["dim", "(2, -1)", "no negative extent"]),
        ({"dim": (2, 3), "stride": (3,)}, ["stride", "(3,)", "2 strides"]),
        ({"dim": (2, 3), "stride": (-3, 1)}, ["stride", "(-3, 1)", "no negative stride"]),
        ({"dim": (2, 3), "is_pass_by_value": True}, ["host scalar", "(2, 3)"]),
        ({"dim": (2.0, 3)}, ["dim", "(2.0, 3)", "integers"]),
        ({"dim": 4}, ["dim", "4", "sequence"]),
        ({"dim": "23"}, ["dim", "'23'"]),
        ({"dim": None}, ["dim", "None"]),
        ({"dim": (2,), "data_type": "complex64"}, ["data type", "complex64"]),
        ({"dim": (2,), "data_type": reduction_mode.ADD}, ["data type", "reduction_mode.ADD"]),
        ({"dim": (2,), "ragged_offset_multiplier": 0}, ["ragged_offset_multiplier", "0", "at least 1"]),
        ({"dim": (2,), "ragged_offset_multiplier": 1.5}, ["ragged_offset_multiplier", "1.5", "an integer"]),
        ({"dim": (2,), "alignment_value": -4}, ["alignment_value", "-4", "at least 1"]),
        ({"dim": (2,), "alignment_value": "8"}, ["alignment_value", "'8'", "an integer"]),
        ({"dim": (2,), "reordering_type": 9}, ["reordering_type", "9"]),
    ],
    ids=lambda v: str(v)[:60],
)
def test_wrong_declarations_name_the_tensor(options: dict[str, Any], words: list[str]) -> None:
    g = graph()
    refused(lambda: g.tensor(**options, name="bad", uid=12), *words)
    assert not g.tensors, "a refused tensor stays in the graph"
    error = refused(lambda: g.tensor(**options, name="bad", uid=12)).value
    assert error.what and isinstance(error, ValueError)


def test_a_ragged_offset_is_a_tensor_of_the_same_graph() -> None:
    g, other = graph(), graph()
    foreign = other.tensor((3, 1, 1, 1), data_type=INT32, name="foreign")
    refused(lambda: g.tensor((2, 1, 4, 8), ragged_offset=foreign, name="q"), "'q'", "'foreign'")
    t = g.tensor((2, 1, 4, 8), name="q")
    refused(lambda: t.set_ragged_offset(foreign), "ragged_offset", "'q'", "another graph")
    refused(lambda: t.set_ragged_offset([0, 4, 8]), "list", error=TypeError)


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ({"dim": (3, 1, 1, 1), "data_type": FLOAT}, ["'off'", "FLOAT", "INT32 or INT64"]),
        ({"dim": (3, 1, 1, 1)}, ["'off'", "FLOAT", "INT32 or INT64"]),  # the graph's io_data_type
        ({"dim": (2, 1, 1, 1), "data_type": INT32}, ["'off'", "(2, 1, 1, 1)", "3 elements", "'x'"]),
    ],
)
def test_ragged_offsets_that_do_not_fit_are_refused(offsets: dict[str, Any], words: list[str]) -> None:
    g = graph()

    def build() -> None:
        x = g.tensor((2, 4), name="x", ragged_offset=g.tensor(**offsets, name="off"))
        g.relu(x).set_output(True)
        g.validate()

    refused(build, *words)


def test_a_ragged_offset_is_no_result() -> None:
    g = graph()
    offsets = g.add(g.tensor((3, 1, 1, 1), data_type=INT32), g.tensor((3, 1, 1, 1), data_type=INT32))
    words = ("'x'", "ragged_offset", "add.0", "an input")
    refused(lambda: g.tensor((2, 4), name="x", ragged_offset=offsets), *words)
    g.relu(g.tensor((2, 4), name="x").set_ragged_offset(offsets)).set_output(True)
    refused(g.validate, *words)


def test_packed_tensors_are_for_operations_that_know_them() -> None:
    dense = [name for name, op in OPS.items() if not op.packed]
    assert set(OPS) - set(dense) == {"sdpa", "sdpa_backward"}
    for name in dense:
        case = next(c for c in OPS[name].cases if c.level == "smoke")
        made = setup(name, case, np.random.default_rng(0))
        tensor = next(iter(made.tensors.values()))
        offsets = made.graph.tensor((tensor.dim[0] + 1, 1, 1, 1), data_type=INT32)
        tensor.set_ragged_offset(offsets).set_is_pass_by_value(False)
        refused(made.graph.validate, made.graph.nodes[0].name, tensor.name, "packed")


def test_a_callback_that_fails_leaves_nothing_behind() -> None:
    g = graph()
    q = g.tensor((1, 2, 4, 8), name="q")

    def fail(g: frazil.Graph, score: Any) -> Any:
        g.relu(score)
        raise ZeroDivisionError("in a callback")

    options: dict[str, Any] = {"attn_scale": 1.0, "generate_stats": False}
    with pytest.raises(ZeroDivisionError):
        g.sdpa(q, q, q, **options, score_mod=fail)
    for wrong in (lambda g, s: g.matmul(s, s), lambda g, s: 3, lambda g, s: g.tensor((1,), name="new")):
        with pytest.raises(frazil.GraphError):
            g.sdpa(q, q, q, **options, score_mod=wrong)
    assert {t.name for t in g.tensors} <= {"q", "new"}
    assert not g.nodes
    g.sdpa(q, q, q, **options)[0].set_output(True)
    g.validate()
    leaked: list[Any] = []
    g.sdpa(q, q, q, **options, score_mod=lambda g, s: leaked.append(g.neg(s)) or leaked[0])
    g.relu(leaked[0], name="late").set_output(True)
    refused(g.validate, "late", "before any node produces it")


# Inference.


def test_validate_completes_and_repeats() -> None:
    g = graph(intermediate_data_type=BF16)
    x = g.tensor((2, 3), name="x", data_type=HALF)
    y = g.relu(x)
    z = g.neg(y).set_output(True)
    assert (y.dim, y.data_type, z.data_type) == ((), data_type.NOT_SET, data_type.NOT_SET)
    g.validate()
    found = (y.dim, y.stride, y.data_type, z.data_type)
    assert found == ((2, 3), (3, 1), BF16, FLOAT)
    g.validate()
    assert found == (y.dim, y.stride, y.data_type, z.data_type)


def test_validate_sees_changes() -> None:
    g = graph()
    x = g.tensor((2, 3), name="x")
    y = g.relu(x).set_output(True)
    g.validate()
    x.set_dim((4, 5)).set_stride((5, 1))
    g.validate()
    assert y.dim == (4, 5)
    x.set_data_type(data_type.DOUBLE)
    y.set_stride((1, 4))
    g.validate()
    assert y.stride == (1, 4)
    z = g.neg(y).set_output(True)
    g.validate()
    assert z.dim == (4, 5)
    y.set_dim((4, 6))
    refused(g.validate, "relu.0", "(4, 6)", "(4, 5)")


@pytest.mark.parametrize(
    ("context", "inputs", "virtual", "output"),
    [
        ({}, HALF, HALF, HALF),  # no defaults: the first input's
        ({"io_data_type": BF16}, None, BF16, BF16),
        ({"io_data_type": BF16}, HALF, BF16, BF16),
        ({"io_data_type": BF16, "intermediate_data_type": FLOAT}, HALF, FLOAT, BF16),
        ({"intermediate_data_type": FLOAT}, HALF, FLOAT, FLOAT),
    ],
)
def test_default_types(context: dict[str, Any], inputs: Any, virtual: Any, output: Any) -> None:
    g = frazil.Graph(**context)
    middle = g.relu(g.tensor((2,), data_type=inputs))
    last = g.relu(middle).set_output(True)
    g.validate()
    assert (middle.data_type, last.data_type) == (virtual, output)
    declared = g.neg(middle).set_output(True).set_data_type(data_type.DOUBLE)
    g.validate()
    assert declared.data_type is data_type.DOUBLE


def test_no_type_at_all_is_refused() -> None:
    g = frazil.Graph()
    g.relu(g.tensor((2,), name="x"), name="act").set_output(True)
    refused(g.validate, "act", "'x'", "no data type", "io_data_type")


def test_compute_types() -> None:
    g = frazil.Graph(io_data_type=HALF)
    g.relu(g.relu(g.tensor((1,))), compute_data_type=torch.float64)
    assert [n.compute_data_type for n in g.nodes] == [HALF, data_type.DOUBLE]
    assert frazil.Graph().context.compute_data_type is data_type.NOT_SET


def test_out_dims_declare_the_outputs() -> None:
    g = graph()
    x = g.tensor((2, 3, 4))
    y = g.reduction(x, mode=reduction_mode.ADD, out_dims=(2, 1, 4)).set_output(True)
    assert y.dim == (2, 1, 4)
    z = g.reduction(x, mode=reduction_mode.ADD, out_dims=[[2, 3, 1]]).set_output(True)
    w = g.reduction(x, mode=reduction_mode.ADD).set_output(True)
    g.validate()
    assert (z.dim, w.dim) == ((2, 3, 1), (1, 1, 1))
    g.reduction(x, mode=reduction_mode.ADD, out_dims=(2, 2, 4), name="bad").set_output(True)
    refused(g.validate, "bad", "(2, 2, 4)", "(2, 3, 4)")


# What is refused.


@pytest.mark.parametrize("stride", [(0, 1), (1, 1), (2, 1), (3, 2)], ids=str)
def test_an_output_does_not_overlap_itself(stride: tuple[int, int]) -> None:
    g = graph()
    g.relu(g.tensor((4, 3)), name="act").set_output(True).set_stride(stride).set_name("y")
    refused(g.validate, "'y'", "stride of an output", str(stride), "(4, 3)")


@pytest.mark.parametrize("stride", [(3, 1), (1, 4), (16, 5), (1, 100)], ids=str)
def test_an_output_may_have_gaps_and_any_order(stride: tuple[int, int], rng: Any) -> None:
    g = graph()
    y = g.relu(g.tensor((4, 3))).set_output(True).set_stride(stride)
    pack = random(g, rng)
    execute(g, pack)
    source = next(v for t, v in pack.items() if t is not y)
    np.testing.assert_array_equal(pack[y], np.maximum(source, 0))


def test_no_nodes_and_no_outputs() -> None:
    g = graph()
    refused(g.validate, "no nodes")
    g.relu(g.tensor((2,)))
    refused(g.validate, "no output", "set_output(True)")
    assert g.get_outputs() == []


def test_a_virtual_input_is_refused() -> None:
    g = graph()
    g.relu(g.tensor((2,), name="x", is_virtual=True), name="act").set_output(True)
    refused(g.validate, "act", "'x'", "virtual", "before any node produces it")


def test_an_output_of_the_graph_may_be_read_by_nodes() -> None:
    g = graph()
    y = g.relu(g.tensor((2,), name="x")).set_output(True)
    z = g.neg(y).set_output(True)
    assert g.get_outputs() == [y, z] and [t.name for t in g.get_inputs()] == ["x"]
    g.validate()


def test_a_host_scalar_is_no_output() -> None:
    g = graph()
    g.relu(g.tensor((1,)), name="act").set_output(True).set_is_pass_by_value(True).set_name("y")
    refused(g.validate, "'y'", "host scalar", "act", "an input")


def test_a_tensor_of_another_graph_is_refused() -> None:
    g, other = graph(), graph()
    x = other.tensor((2,), name="theirs")
    refused(lambda: g.relu(x, name="act"), "act", "'theirs'", "another graph")
    refused(lambda: g.add(g.tensor((2,)), x), "'b'", "'theirs'")
    assert not g.nodes


@pytest.mark.parametrize("value", [1.0, "x", [1, 2], pytest.param(object(), id="object"), True], ids=repr)
def test_what_is_no_tensor_is_refused(value: Any) -> None:
    g = graph()
    refused(lambda: g.relu(value, name="act"), "act", "input", type(value).__name__, error=TypeError)
    refused(lambda: g.relu(None, name="act"), "act", "input", "missing")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda g, x: g.reduction(x, name="r"), ["r", "mode", "missing"]),
        (lambda g, x: g.reduction(x, mode=99, name="r"), ["r", "mode", "99"]),
        (lambda g, x: g.leaky_relu(x, "0.1", name="r"), ["r", "negative_slope", "'0.1'", "float"]),
        (lambda g, x: g.gen_index(x, 1.5, name="r"), ["r", "axis", "1.5", "int"]),
        (lambda g, x: g.relu(x, compute_data_type="nope", name="r"), ["data type", "nope"]),
    ],
    ids=["missing", "enum", "real", "integer", "compute type"],
)
def test_wrong_attributes_name_node_and_attribute(build: Callable[..., Any], words: list[str]) -> None:
    g = graph()
    x = g.tensor((2, 3))
    refused(lambda: build(g, x), *words)
    assert not g.nodes and len(g.tensors) == 1


def test_inference_errors_name_node_tensor_and_values() -> None:
    g = graph()
    g.add(g.tensor((2, 3), name="a"), g.tensor((4, 3), name="b", uid=8), name="sum").set_output(True)
    error = refused(g.validate, "'sum'", "'b'", "uid 8", "(4, 3)").value
    assert (error.node, error.tensor, error.uid, error.got) == ("sum", "b", 8, (4, 3))


def test_unknown_keywords_are_type_errors() -> None:
    g = graph()
    with pytest.raises(TypeError):
        g.relu(g.tensor((1,)), negatives_slope=0.1)
    with pytest.raises(TypeError):
        g.add(g.tensor((1,)))


# Scalars.


@pytest.mark.parametrize(
    ("value", "expected"), [(0.5, FLOAT), (3, INT32), (2**31 - 1, INT32), (2**31, data_type.INT64)]
)
def test_scalars(value: float, expected: data_type) -> None:
    g = graph()
    constant = g.tensor_scalar(value, scalar_type.COMPILE_TIME_CONST, name="c")
    runtime = g.tensor_scalar(value, scalar_type.RUNTIME_PARAM, name="r")
    assert (constant.value, constant.data_type, constant.dim) == (value, expected, (1,))
    assert (runtime.value, runtime.is_pass_by_value) == (None, True)
    assert constant.scalar_type is scalar_type.COMPILE_TIME_CONST
    assert runtime.scalar_type is scalar_type.RUNTIME_PARAM
    y = g.mul(g.tensor((2,), name="x"), constant).set_output(True)
    z = g.add(y, runtime).set_output(True)
    assert {t.name for t in g.get_inputs()} == {"x", "r"} and z


@pytest.mark.parametrize("value", ["1", None, True, [1.0]], ids=repr)
def test_what_is_no_scalar(value: Any) -> None:
    g = graph()
    refused(lambda: g.tensor_scalar(value, scalar_type.RUNTIME_PARAM, name="s"), "'s'", "an int or a float")
    refused(lambda: g.tensor((1,), name="t").set_value(value), "'t'", "value", "an int or a float")
    with pytest.raises(ValueError, match="scalar_type"):
        g.tensor_scalar(1.0, 7)


# Buffers as builder inputs.


def test_framework_tensors_become_inputs_bound_by_default(rng: Any) -> None:
    g = graph()
    x = rng.standard_normal((4, 8)).astype(np.float32)
    w = torch.from_numpy(rng.standard_normal((8, 3)).astype(np.float32)).t().contiguous().t()
    y = g.matmul(x, w, name="mm").set_output(True).set_name("y")
    names = [t.name for t in g.get_inputs()]
    assert names == ["mm::A", "mm::B"] and g.get_inputs()[1].stride == (1, 8)
    out = np.full((4, 3), np.nan, np.float32)
    g.execute({y: out})
    np.testing.assert_allclose(out, x @ w.numpy(), rtol=1e-5, atol=1e-6)
    other = np.ones_like(x)
    for key in (g.get_inputs()[0], g.get_inputs()[0].uid, "mm::A"):
        out[:] = np.nan
        g.execute({y: out, key: other})
        np.testing.assert_allclose(out, other @ w.numpy(), rtol=1e-5, atol=1e-6)
    out[:] = np.nan
    g.execute([out, other], tensor_uids=[y.uid, g.get_inputs()[0].uid])
    np.testing.assert_allclose(out, other @ w.numpy(), rtol=1e-5, atol=1e-6)


def test_tensor_like() -> None:
    g = graph()
    x = g.tensor((2, 3), (1, 2), HALF, name="x")
    copy = g.tensor_like(x, name="copy")
    assert (copy.dim, copy.stride, copy.data_type, copy.name) == (x.dim, x.stride, HALF, "copy")
    assert copy.uid != x.uid
    assert g.tensor_like(np.zeros((2, 1), np.int64)).data_type is data_type.INT64
    assert g.tensor_like(x, is_virtual=True).is_virtual
    refused(lambda: g.tensor_like(np.zeros(4, np.float32)[::-1], name="r"), "'r'", "negative stride")
    refused(lambda: g.tensor_like(1234), "bare address", error=TypeError)
    refused(lambda: g.tensor_like(np.zeros(2, ">f4")), "byte order")
    gpu = frazil.Graph(io_data_type=FLOAT, target="sm_90")
    assert gpu.tensor_like(np.ones(1, np.float32)).is_pass_by_value  # a host number, for a device
    assert not gpu.tensor_like(np.ones(2, np.float32)).is_pass_by_value


# Looking at a graph.


def test_inspection() -> None:
    g, a, b, y = add_graph(name="mine")
    assert g.get_inputs() == [a, b] and g.get_outputs() == [y] and g.tensors == (a, b, y)
    data = g.inspect()
    assert (data["name"], [n["op"] for n in data["nodes"]]) == ("mine", ["add"])
    assert repr(g).startswith("{") and g.query_tensor_attributes_of_uid(3) is y
    assert frazil.pygraph is frazil.Graph
