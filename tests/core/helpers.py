"""Small graphs, fake engines and assertions that several core tests share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import frazil
from frazil import catalog, data_type
from frazil.engine import Claim, Config, Decline, Tier
from frazil.engines.reference import ENGINE as REFERENCE
from frazil.enums import behavior_note, knob_type, numerical_note
from frazil.program import Program
from frazil.spec import Problem
from frazil.target import Target

FLOAT = data_type.FLOAT
POISON = 0xFF


def poison(*dim: int, dtype: Any = np.float32) -> np.ndarray:
    """An array in which every byte is 0xFF."""
    size = int(np.prod(dim)) * np.dtype(dtype).itemsize
    return np.full(size, POISON, np.uint8).view(dtype).reshape(dim)


def untouched(array: np.ndarray) -> bool:
    """Whether every byte is still poison."""
    return bool((np.ascontiguousarray(array).view(np.uint8) == POISON).all())


def inputs(rng: np.random.Generator, *dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Two random float arrays."""
    return tuple(rng.standard_normal(dim).astype(np.float32) for _ in range(2))  # type: ignore[return-value]


def graph(**options: Any) -> frazil.Graph:
    """An empty float graph for the CPU."""
    return frazil.Graph(**{"io_data_type": FLOAT, "target": "cpu", **options})


def add_graph(dim: Sequence[int] = (2, 3, 4), **options: Any) -> tuple[frazil.Graph, Any, Any, Any]:
    """y = a + b, with uids 1, 2 and 3 and names."""
    g = graph(**options)
    a, b = (g.tensor(dim, name=n, uid=u) for n, u in (("a", 1), ("b", 2)))
    y = g.add(a, b, name="sum").set_output(True).set_name("y").set_uid(3)
    return g, a, b, y


def epilogue_graph(*, middle_output: bool = False, **options: Any) -> tuple[frazil.Graph, dict[str, Any]]:
    """y = gelu(A @ B + bias): three nodes, whose first result may be an output, too."""
    g = graph(**options)
    t = {
        "a": g.tensor((2, 8, 16), name="a"),
        "b": g.tensor((2, 16, 4), name="b"),
        "bias": g.tensor((1, 1, 4), name="bias"),
    }
    t["c"] = g.matmul(t["a"], t["b"], name="mm").set_output(middle_output)
    t["y"] = g.gelu(g.bias(t["c"], t["bias"])).set_output(True)
    return g, t


def packed() -> tuple[frazil.Graph, dict[str, Any], dict[str, np.ndarray]]:
    """Attention over 3 + 2 packed tokens, declared as 2 sequences of at most 4; arrays are (T, H, D)."""
    g = graph(is_override_shape_enabled=True)
    offsets = g.tensor((3, 1, 1, 1), data_type=data_type.INT32, name="offsets")
    dim, stride = (2, 2, 4, 8), (64, 8, 16, 1)
    t = {n: g.tensor(dim, stride, ragged_offset=offsets, ragged_offset_multiplier=8, name=n) for n in "qkv"}
    t["o"], _ = g.sdpa(t["q"], t["k"], t["v"], attn_scale=1.0, generate_stats=False)
    t["o"].set_output(True).set_dim(dim).set_stride(stride).set_ragged_offset(offsets).set_name("o")
    t["o"].set_ragged_offset_multiplier(8)
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal((5, 2, 8)).astype(np.float32) for n in "qkv"}
    return g, t, {**arrays, "o": poison(5, 2, 8), "offsets": np.array([0, 6, 10], np.int32)}


def packed_oracle(arrays: dict[str, np.ndarray]) -> np.ndarray:
    found = np.empty((5, 2, 8))
    for s in (slice(0, 3), slice(3, 5)):
        q, k, v = (arrays[n][s].astype(np.float64).transpose(1, 0, 2) for n in "qkv")
        p = np.exp(q @ k.transpose(0, 2, 1))
        found[s] = (p / p.sum(-1, keepdims=True) @ v).transpose(1, 0, 2)
    return found


def random(g: frazil.Graph, rng: np.random.Generator) -> dict[Any, np.ndarray]:
    """A pack for a float graph: random inputs, NaN outputs."""
    g.validate()
    pack = {t: rng.standard_normal(t.dim).astype(np.float32) for t in g.get_inputs()}
    return {**pack, **{t: np.full(t.dim, np.nan, np.float32) for t in g.get_outputs()}}


def execute(g: frazil.Graph, pack: Any, **options: Any) -> None:
    """Build, and execute with a workspace in which every byte is poison."""
    g.build()
    workspace = g.empty_workspace()
    workspace[...] = 0xFF
    g.execute(pack, workspace, **options)


def refused(
    call: Callable[[], Any], *words: str, error: type[Exception] = frazil.GraphError
) -> pytest.ExceptionInfo[Any]:
    """The error of a call that must be refused, with each of `words` in its text."""
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    missing = [w for w in words if w not in text]
    assert not missing, f"{missing} not in: {text}"
    return caught


@dataclass(frozen=True)
class Tile(Config):
    """A choice of a fake engine."""

    size: int

    def knobs(self) -> dict[knob_type, int]:
        return {knob_type.TILE_M: self.size, knob_type.STAGES: self.size // 32}


@dataclass
class Fake:
    """An engine that runs what it claims through the reference, and counts its builds.

    `serves` decides on a problem: None or a reason to decline.
    """

    name: str
    serves: Callable[[Problem], str | None]
    tier: Tier = Tier.OFFER
    expected_us: float = 1.0
    choices: Sequence[Config] = (Config(),)
    behavior: frozenset[behavior_note] = frozenset()
    numeric: frozenset[numerical_note] = frozenset()
    arch: str = "cpu"
    edit: Callable[[Program], Program] = lambda program: program
    built: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def claim(self, problem: Problem, target: Target) -> Claim | Decline:
        self.asked.append(problem.text)
        if target.arch != self.arch:
            return Decline.because("target", target.arch, self.arch)
        reason = self.serves(problem)
        if reason is not None:
            return Decline(reason)
        return Claim(self.tier, self.expected_us, self.behavior, self.numeric)

    def configs(self, problem: Problem, target: Target) -> Sequence[Config]:
        return self.choices

    def build(self, problem: Problem, config: Config, target: Target) -> Program:
        self.built.append((problem.text, config))
        return self.edit(REFERENCE.build(problem, Config(), target))


def anything(problem: Problem) -> str | None:
    """Serve every problem."""
    return None


def one_node(problem: Problem) -> str | None:
    """Serve problems of one node."""
    count = len(problem.nodes)
    return None if count == 1 else f"number of nodes: got {count}, served: 1"


def has_anchor(problem: Problem) -> str | None:
    """Serve problems with exactly one anchor."""
    return None if problem.anchor is not None else "anchor: got none or several, served: one"


def install(monkeypatch: pytest.MonkeyPatch, *engines: Any, closed: Sequence[str] = ()) -> None:
    """Make `engines`, in this order and with ids 1, 2, ..., the whole catalog."""
    module = __name__
    entries = []
    for number, engine in enumerate(engines, start=1):
        attribute = f"installed_{engine.name}"
        monkeypatch.setitem(globals(), attribute, engine)
        entries.append(catalog.Entry(number, engine.name, f"{module}:{attribute}", engine.name not in closed))
    monkeypatch.setattr(catalog, "ENTRIES", tuple(entries))


# Buffers.


class Producer:
    """A DLPack producer of nobody's: only `__dlpack__`, with or without the versioned form."""

    def __init__(self, source: Any, versioned: bool = True) -> None:
        self.source, self.versioned, self.asked = source, versioned, []

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        if not self.versioned and options:
            raise TypeError("unexpected keyword")
        return self.source.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.source.__dlpack_device__()


class Interface:
    """An object that says where its memory is through the array interface alone."""

    def __init__(self, source: np.ndarray, **changes: Any) -> None:
        self.source = source
        self.__array_interface__ = {**source.__array_interface__, **changes}


class OnDevice:
    """A buffer whose memory is on a CUDA device, as CuPy and Numba say it."""

    def __init__(self, dim: tuple[int, ...], address: int = 1 << 40) -> None:
        self.__cuda_array_interface__ = {
            "shape": dim, "typestr": "<f4", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


class Bytes:
    """Host memory with a chosen start."""

    def __init__(self, size: int, start: int) -> None:
        self.memory = np.full(size + 4096, POISON, np.uint8)
        first = -self.memory.ctypes.data % 256 + start
        self.view = self.memory[first : first + size]


def capsule_of(tensor: ctypes.Structure) -> Any:
    """A DLPack capsule over a structure that the caller keeps alive."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(tensor), b"dltensor", None)
