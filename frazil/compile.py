"""From kernel source to `Artifact`, for a target and without a GPU: the one place that runs Triton.

Owns the key of an artifact, the compiler's options, and the rule that nothing is compiled twice: not by two
threads, and not again where a cache has it. Kernel modules are imported here alone, and only on a miss.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any

from . import env
from .artifact import Artifact
from .cache import Cache, default
from .errors import NotSupported
from .target import Target

_KERNELS = "frazil.engines.kernels"
_locks: dict[str, threading.Lock] = {}
_loaded: dict[str, Artifact] = {}
_guard = threading.Lock()


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What to compile.

    Attributes
    ----------
    module, entry
        Module below frazil.engines.kernels, and the kernel in it.
    signature
        Run-time arguments in order: name and type ("*bf16", "i32", "fp32", or a tuple of types).
    constants
        Compile-time arguments: name and hashable value.
    divisible
        Run-time arguments, as (position,) or (position, item), whose values are multiples of 16.
    warps, stages
        Warps per block, and depth of software pipelining.
    """

    module: str
    entry: str
    signature: tuple[tuple[str, Any], ...]
    constants: tuple[tuple[str, Any], ...]
    divisible: tuple[tuple[int, ...], ...] = ()
    warps: int = 4
    stages: int = 3


def artifact(source: KernelSource, target: Target, cache_: Cache | None = None) -> Artifact:
    """The compiled kernel, from memory, the cache on disk, or the compiler.

    Raises
    ------
    NotSupported
        It is in no cache, and Triton is not installed or compiling is forbidden; the text names what is
        missing.
    """
    key = source_key(source, target)
    compiler = compiler_version()
    with _guard:
        found = _loaded.get(key)
        lock = _locks.setdefault(key, threading.Lock())
    if found is not None:
        return found
    with lock:
        found = _loaded.get(key)
        if found is None:
            store = cache_ or default()
            found = store.find(key, compiler)
            if found is None:
                found = _compile(source, target, key, compiler)
                store.store(found)
            _loaded[key] = found
    return found


def source_key(source: KernelSource, target: Target) -> str:
    """Digest of the kernel's source and of all it imports, its compile-time parameters and the
    architecture.
    """
    digest = hashlib.sha256()
    for name in sorted(_closure(f"{_KERNELS}.{source.module}")):
        digest.update(_file(name).read_bytes())
    digest.update(repr((source, target.arch)).encode())
    return digest.hexdigest()


@cache
def compiler_version() -> str | None:
    """Name and version of the installed compiler; None without one."""
    try:
        return f"triton-{metadata.version('triton')}"
    except metadata.PackageNotFoundError:
        return None


def _closure(name: str) -> frozenset[str]:
    """A kernel module and every module of the package that it imports, found without importing it."""
    found: set[str] = set()
    open_ = [name]
    while open_:
        module = open_.pop()
        if module in found:
            continue
        found.add(module)
        open_ += _imports(module)
    return frozenset(found)


@cache
def _imports(module: str) -> tuple[str, ...]:
    found = []
    for node in ast.walk(ast.parse(_file(module).read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = module.rsplit(".", node.level)[0]
            target = f"{base}.{node.module}" if node.module else base
            found += [target] if _exists(target) else []
            found += [f"{target}.{a.name}" for a in node.names if _exists(f"{target}.{a.name}")]
    return tuple(n for n in found if _file(n).name != "__init__.py")


@cache
def _root() -> Path:
    spec = util.find_spec("frazil.engines")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent.parent


def _path(module: str) -> Path:
    return _root().joinpath(*module.split(".")[1:])


def _exists(module: str) -> bool:
    return _path(module).with_suffix(".py").exists() or (_path(module) / "__init__.py").exists()


def _file(module: str) -> Path:
    path = _path(module).with_suffix(".py")
    return path if path.exists() else _path(module) / "__init__.py"


def _compile(source: KernelSource, target: Target, key: str, compiler: str | None) -> Artifact:
    name = f"{source.module}.{source.entry} for {target.arch} (key {key[:12]})"
    if env.no_compile():
        raise NotSupported(f"kernel {name} is in no cache, and FRAZIL_NO_COMPILE forbids compiling it")
    if compiler is None:
        raise NotSupported(f"kernel {name} is in no cache, and no Triton is installed (frazil[kernels])")
    compiled = _triton(source, target)
    info = compiled.metadata
    usage = _resources(compiled.asm["cubin"], info.name)
    return Artifact(
        key=key,
        entry=info.name,
        arch=target.arch,
        compiler=compiler,
        threads=32 * info.num_warps,
        registers=usage[0],
        spill_bytes=usage[1],
        shared=info.shared,
        cubin=compiled.asm["cubin"],
    )


def _triton(source: KernelSource, target: Target) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(import_module(f"{_KERNELS}.{source.module}"), source.entry)
    constants = dict(source.constants)
    signature = {**dict(source.signature), **dict.fromkeys(constants, "constexpr")}
    ordered = {n: signature[n] for n in function.arg_names}
    attributes = {path: [["tt.divisibility", 16]] for path in source.divisible}
    major, minor = target.compute_capability
    return triton.compile(
        ASTSource(function, ordered, constants, attributes),
        target=GPUTarget("cuda", 10 * major + minor, 32),
        options={"num_warps": source.warps, "num_stages": source.stages},
    )


def _resources(cubin: bytes, entry: str) -> tuple[int, int]:
    """Registers per thread and bytes of local memory per thread, as the toolkit's own tool reads them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    match = re.search(rf"Function {re.escape(entry)}:\s+REG:(\d+) STACK:(\d+)", text)
    assert match is not None, text
    return int(match[1]), int(match[2])
