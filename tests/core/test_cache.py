"""The cache of compiled kernels: what is stored comes back, damage is a miss, processes and threads share it
(C-56, C-57).
"""

from __future__ import annotations

import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest

import frazil
from frazil import compile as compiler
from frazil.artifact import Artifact
from frazil.cache import Cache
from frazil.compile import KernelSource, source_key

SM90 = frazil.Target.named("sm_90")
SOURCE = KernelSource("pointwise", "pointwise", (("n", "i32"),), (("BLOCK", 1024),))


def artifact(
    key: str = "ab" * 32, compiler: str = "triton-3.6.0", cubin: bytes = b"\x7fELF binary"
) -> Artifact:
    return Artifact(key, "pointwise", "sm_90", compiler, 128, 32, 0, 0, cubin)


def entry(cache: Cache) -> Path:
    (path,) = cache.paths()
    return path


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "kernels")
    assert cache.find("ab" * 32, "triton-3.6.0") is None
    assert cache.store(artifact())
    assert cache.find("ab" * 32, "triton-3.6.0") == artifact()
    assert cache.find("ab" * 32, "triton-3.9.0") is None
    assert stat.S_IMODE(os.stat(tmp_path / "kernels").st_mode) == 0o700
    assert not list(tmp_path.rglob("*.part"))


def test_without_a_compiler_the_newest_entry_serves(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for version in ("triton-3.6.0", "triton-3.9.0"):
        cache.store(artifact(compiler=version))
    found = cache.find("ab" * 32, None)
    assert found is not None and found.compiler == "triton-3.9.0"


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign", "other key"])
def test_a_damaged_entry_is_a_miss(tmp_path: Path, damage: str) -> None:
    cache = Cache(tmp_path)
    cache.store(artifact())
    path = entry(cache)
    data = path.read_bytes()
    if damage == "other key":
        cache.store(artifact("cd" * 32))
        data = cache.root.joinpath("cd", "cd" * 32, "triton-3.6.0.artifact").read_bytes()
    changed = {
        "truncated": data[:-9],
        "flipped": data[:40] + bytes([data[40] ^ 1]) + data[41:],
        "empty": b"",
        "foreign": b"x",
    }
    path.write_bytes(changed.get(damage, data))
    assert cache.find("ab" * 32, "triton-3.6.0") is None
    assert cache.store(artifact()) and cache.find("ab" * 32, "triton-3.6.0") == artifact()


def test_prune_keeps_what_was_used_last(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for i in range(4):
        cache.store(artifact(f"{i}{i}" * 32))
        os.utime(cache.root / f"{i}{i}" / (f"{i}{i}" * 32) / "triton-3.6.0.artifact", (i, i))
    count, total = cache.size()
    assert count == 4
    assert cache.prune(total // 2) == 2
    assert cache.find("33" * 32, "triton-3.6.0") is not None and cache.find("00" * 32, "triton-3.6.0") is None


def _rounds(root: str, barrier: object) -> None:
    cache = Cache(Path(root))
    barrier.wait()  # type: ignore[attr-defined]
    for i in range(50):
        found = cache.find("ab" * 32, "triton-3.6.0")
        assert found is None or found == artifact(cubin=b"x" * 100_000)
        if i % 5 == 0:
            assert cache.store(artifact(cubin=b"x" * 100_000))


def test_c57_processes_share_a_directory(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(8)
    workers = [context.Process(target=_rounds, args=(str(tmp_path), barrier)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [w.exitcode for w in workers] == [0] * 8
    assert Cache(tmp_path).find("ab" * 32, "triton-3.6.0") == artifact(cubin=b"x" * 100_000)


def test_c56_threads_compile_one_key_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def slow(source: KernelSource, target: frazil.Target, key: str, version: str | None) -> Artifact:
        made.append(key)
        threading.Event().wait(0.05)
        return artifact(key)

    monkeypatch.setattr(compiler, "_compile", slow)
    monkeypatch.setattr(compiler, "_loaded", {})
    barrier = threading.Barrier(16)
    results = []

    def work() -> None:
        barrier.wait()
        results.append(compiler.artifact(SOURCE, SM90, Cache(tmp_path)))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(results) == 16 and len(set(results)) == 1


def test_forbidden_compiling_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_loaded", {})
    monkeypatch.setenv("FRAZIL_NO_COMPILE", "1")
    with pytest.raises(frazil.NotSupported, match=r"pointwise\.pointwise for sm_90 .*FRAZIL_NO_COMPILE"):
        compiler.artifact(SOURCE, SM90, Cache(tmp_path))


def test_a_shipped_cache_serves_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = artifact(source_key(SOURCE, SM90))
    Cache(tmp_path).store(shipped)
    monkeypatch.setattr(compiler, "_loaded", {})
    monkeypatch.setattr(compiler, "compiler_version", lambda: None)
    assert compiler.artifact(SOURCE, SM90, Cache(tmp_path)) == shipped
    with pytest.raises(frazil.NotSupported, match="no Triton is installed"):
        compiler.artifact(SOURCE, frazil.Target.named("sm_80"), Cache(tmp_path))


def test_a_key_follows_source_parameters_and_architecture() -> None:
    other = KernelSource("pointwise", "pointwise", (("n", "i32"),), (("BLOCK", 512),))
    keys = {
        source_key(SOURCE, SM90),
        source_key(other, SM90),
        source_key(SOURCE, frazil.Target.named("sm_80")),
    }
    assert len(keys) == 3
    assert source_key(SOURCE, SM90.limited(64)) == source_key(SOURCE, SM90)
    files = compiler._closure("frazil.engines.kernels.pointwise")
    assert "frazil.engines.kernels.device.expr" in files and "frazil.ops.pointwise_codes" in files
