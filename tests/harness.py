"""Turns a record's `Case` into a graph, data and a call, and compares the results with an oracle.

Everything that is no live element is poisoned first: outputs, the gaps between strided elements, and the
workspace. Data is NumPy (ml_dtypes where NumPy has no type); oracles convert it as they like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import frazil
from frazil.dtypes import FLOATING, data_type, numpy_dtype
from frazil.geometry import row_major, span
from frazil.op import Arg, Case, Op
from frazil.ops import OPS

POISON = 0xFF  # NaN in every float type, -1 in the signed integers


@dataclass
class Setup:
    """A case as a graph with data.

    `arrays` holds what is bound, by parameter name ("inputs[0]" for the elements of a sequence): views in the
    declared geometry, or flat buffers for packed tensors, whose offsets are under "<name>.ragged". `outputs`
    and `results` are by port name; `results` are filled by `run`.
    """

    op: Op
    case: Case
    graph: frazil.Graph
    tensors: dict[str, frazil.Tensor] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: dict[str, frazil.Tensor] = field(default_factory=dict)
    results: dict[str, np.ndarray] = field(default_factory=dict)

    def args(self) -> dict[str, Any]:
        """The case's arguments with each `Arg` replaced by its array: what an oracle takes."""
        return {k: self._value(k, v) for k, v in self.case.args.items()}

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, Arg):
            return self.arrays.get(name)
        if isinstance(value, (list, tuple)) and any(isinstance(v, Arg) for v in value):
            return type(value)(self._value(f"{name}[{i}]", v) for i, v in enumerate(value))
        return value


def cases(*names: str, levels: Iterable[str] = ("smoke", "full")) -> list[Any]:
    """Pytest parameters (op name, case) for every case of some operations."""
    import pytest

    return [
        pytest.param(name, case, id=f"{name}-{case.name}")
        for name in names
        for case in OPS[name].cases
        if case.level in levels
    ]


def poisoned(
    dim: Iterable[int], stride: Iterable[int] | None, dtype: data_type, total: int | None = None
) -> np.ndarray:
    """A view with the given geometry over fresh memory in which every byte is poison; flat where `total` is
    given.
    """
    dim = tuple(dim)
    stride = row_major(dim) if stride is None else tuple(stride)
    kind = numpy_dtype(dtype)
    count = span(dim, stride) if total is None else total
    memory = np.full(max(count, 1) * kind.itemsize, POISON, np.uint8)
    if total is not None or 0 in dim:
        return memory.view(kind)[:count] if total is not None else np.empty(dim, kind)
    # as_strided goes by the array interface, which has no name for float8_e5m2.
    return np.ndarray(dim, kind, buffer=memory, strides=tuple(s * kind.itemsize for s in stride))


def values(arg: Arg, shape: tuple[int, ...], dtype: data_type, rng: np.random.Generator) -> np.ndarray:
    """Random or fixed values for an argument, rounded to its type."""
    fill = arg.fill
    if isinstance(fill, tuple):
        if fill[0] == "integers":
            array = rng.integers(fill[1], fill[2], shape)
        else:
            assert fill[0] == "values", fill
            array = np.asarray(fill[1:], np.float64 if dtype in FLOATING else np.int64).reshape(shape)
    elif fill == "normal":
        array = rng.standard_normal(shape)
    elif fill == "uniform":
        array = rng.random(shape)
    elif fill == "positive":
        array = rng.random(shape) + 0.5
    elif fill == "bool":
        array = rng.integers(0, 2, shape)
    else:
        array = np.full(shape, {"zeros": 0, "ones": 1}[fill])
    return array.astype(numpy_dtype(dtype))


def setup(name: str, case: Case, rng: np.random.Generator, target: str = "cpu") -> Setup:
    """Build the graph of a case and its data."""
    op = OPS[name]
    graph = frazil.Graph(
        io_data_type=case.data_type,
        intermediate_data_type=data_type.FLOAT,
        compute_data_type=case.compute,
        target=target,
    )
    made = Setup(op, case, graph)
    arguments = {k: _argument(made, k, v, rng) for k, v in case.args.items()}
    getattr(graph, name)(**arguments)
    made.outputs = dict(graph.nodes[-1].outputs)
    for port, tensor in made.outputs.items():
        declared = case.outputs.get(port)
        if declared is not None:
            tensor.set_dim(declared.dim)
            if declared.stride is not None:
                tensor.set_stride(declared.stride)
            if declared.data_type is not None:
                tensor.set_data_type(declared.data_type)
            if declared.ragged is not None:
                offsets = _tensor(made, f"{port}.ragged", declared.ragged, rng)
                tensor.set_ragged_offset(offsets).set_ragged_offset_multiplier(declared.multiplier)
        tensor.set_output(True)
    return made


def run(made: Setup) -> dict[str, np.ndarray]:
    """Execute a setup on poisoned outputs and workspace; results by port, packed ones flat."""
    graph = made.graph
    graph.build()
    pack: dict[Any, Any] = {made.tensors[k]: v for k, v in made.arrays.items()}
    for port, tensor in made.outputs.items():
        declared = made.case.outputs.get(port)
        given = made.case.args.get(port)
        arg = declared if declared is not None else given if isinstance(given, Arg) else None
        total = arg.total if arg is not None else None
        if tensor.is_ragged and total is None:
            total = span(tensor.dim, tensor.stride)
        made.results[port] = poisoned(tensor.dim, tensor.stride, tensor.data_type, total)
        pack[tensor] = made.results[port]
    workspace = graph.empty_workspace()
    workspace[...] = POISON
    graph.execute(pack, workspace)
    return made.results


def check(name: str, case: Case, oracle: Any, rng: np.random.Generator) -> Setup:
    """Run a case and compare every output with `oracle(setup) -> {port: float64 array}`."""
    made = setup(name, case, rng)
    results = run(made)
    expected = oracle(made)
    missing = set(results) - set(expected)
    assert not missing, f"the oracle of {name} says nothing of {missing}"
    for port, result in results.items():
        assert_close(
            result, expected[port], made.outputs[port].data_type, f"{name}/{case.name}/{port}", case.compute
        )
    return made


def assert_close(
    actual: np.ndarray,
    expected: np.ndarray,
    dtype: data_type,
    what: str = "",
    compute: data_type = data_type.FLOAT,
    factor: float = 1.0,
) -> None:
    """Compare a result with float64: the error of the arithmetic, plus one unit of the output type's last
    place.

    The arithmetic's share is relative to the largest magnitude of the tensor: 2e-5 for float32, 1e-12 for
    float64.
    """
    expected = np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    if actual.size == 0:
        return
    got = actual.astype(np.float64)
    finite = np.isfinite(expected)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    assert np.all(same | finite), (
        f"{what}: non-finite values differ at {np.argwhere(~(same | finite))[:4].tolist()}"
    )
    scale = np.max(np.abs(expected[finite]), initial=0.0)
    bound = factor * scale * (1e-12 if compute is data_type.DOUBLE else 2e-5)
    if dtype in FLOATING:
        info = ml_dtypes.finfo(numpy_dtype(dtype))
        tiny = float(info.smallest_subnormal)
        bound = bound + factor * np.maximum(np.abs(np.where(finite, expected, 0)) * float(info.eps), tiny)
    error = np.abs(np.where(finite, got - np.where(finite, expected, 0), 0))
    worst = np.unravel_index(np.argmax(error - bound), error.shape)
    ok = np.all(error <= bound) and np.all(np.isfinite(got[finite]))
    assert ok, (
        f"{what}: at {tuple(int(i) for i in worst)} got {got[worst]}, expected {expected[worst]}, "
        f"error {error[worst]:.3g}, allowed {np.broadcast_to(bound, error.shape)[worst]:.3g}"
    )


def _argument(made: Setup, name: str, value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, Arg):
        return _tensor(made, name, value, rng)
    if isinstance(value, (list, tuple)) and any(isinstance(v, Arg) for v in value):
        return type(value)(_argument(made, f"{name}[{i}]", v, rng) for i, v in enumerate(value))
    return value


def _tensor(made: Setup, name: str, arg: Arg, rng: np.random.Generator) -> frazil.Tensor:
    dtype = arg.data_type or made.case.data_type
    offsets = None if arg.ragged is None else _tensor(made, f"{name}.ragged", arg.ragged, rng)
    tensor = made.graph.tensor(
        arg.dim,
        arg.stride,
        dtype,
        is_pass_by_value=arg.by_value,
        ragged_offset=offsets,
        ragged_offset_multiplier=arg.multiplier,
        name=name,
    )
    made.tensors[name] = tensor
    if any(p.name == name and p.keyword for p in made.op.outputs):
        del made.tensors[name]
        return tensor
    if arg.ragged is not None:
        total = span(tensor.dim, tensor.stride) if arg.total is None else arg.total
        array = poisoned((total,), None, dtype)
        array[...] = values(arg, (total,), dtype, rng)
    else:
        array = poisoned(tensor.dim, tensor.stride, dtype)
        if array.size:
            # A broadcast axis (stride 0) holds one value: fill through the first element along it.
            base = array[tuple(slice(0, 1) if s == 0 else slice(None) for s in tensor.stride)]
            base[...] = values(arg, base.shape, dtype, rng)
    made.arrays[name] = array
    return tensor


def as_float64(value: Mapping[str, Any]) -> dict[str, Any]:
    """Floating arrays widened to float64, everything else as it is."""
    return {
        k: v.astype(np.float64) if isinstance(v, np.ndarray) and v.dtype.kind in "fV" else v
        for k, v in value.items()
    }
