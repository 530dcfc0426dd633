"""The cache of compiled kernels on disk: content-addressed, atomic, private, shared by processes.

Owns where artifacts lie and their stored form; knows neither compiler nor driver. An entry that is damaged,
truncated or of another format is a miss. A directory that cannot be written is still read: a cache can be
shipped.

    <root>/<source key, 2 digits>/<source key>/<compiler>.artifact
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from . import env
from .artifact import Artifact

_MAGIC = b"FRAZART\x01"
_DIGEST = hashlib.sha256().digest_size


class Cache:
    """Artifacts below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, source_key: str, compiler: str | None) -> Artifact | None:
        """The artifact of a source key made by a compiler; with None, by the newest compiler that left
        one.
        """
        folder = self._folder(source_key)
        if compiler is not None:
            return _read(folder / f"{compiler}.artifact", source_key)
        try:
            paths = sorted(folder.glob("*.artifact"), reverse=True)
        except OSError:
            return None
        return next((a for a in (_read(p, source_key) for p in paths) if a is not None), None)

    def store(self, artifact: Artifact) -> bool:
        """Write an artifact; False where the directory cannot be written."""
        folder = self._folder(artifact.key)
        header = {k: v for k, v in asdict(artifact).items() if k != "cubin"}
        text = json.dumps(header, sort_keys=True).encode()
        body = b"".join([_MAGIC, len(text).to_bytes(8, "little"), text, artifact.cubin])
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
        except OSError:
            return False
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body + hashlib.sha256(body).digest())
            os.replace(name, folder / f"{artifact.compiler}.artifact")
        except OSError:
            Path(name).unlink(missing_ok=True)
            return False
        return True

    def paths(self) -> Iterator[Path]:
        """All entries."""
        return self.root.glob("*/*/*.artifact")

    def size(self) -> tuple[int, int]:
        """Number of entries and their bytes."""
        sizes = [p.stat().st_size for p in self.paths()]
        return len(sizes), sum(sizes)

    def prune(self, limit: int) -> int:
        """Remove the entries stored longest ago until at most `limit` bytes are left; how many went."""
        entries = sorted(self.paths(), key=lambda p: p.stat().st_mtime, reverse=True)
        kept, removed = 0, 0
        for path in entries:
            kept += path.stat().st_size
            if kept > limit:
                path.unlink(missing_ok=True)
                removed += 1
        return removed

    def _folder(self, source_key: str) -> Path:
        return self.root / source_key[:2] / source_key


def default() -> Cache:
    """The user's cache: FRAZIL_CACHE_DIR, else `frazil` below the user's cache directory."""
    named = env.cache_directory()
    return Cache(Path(named).expanduser() if named else Path.home() / ".cache" / "frazil")


def _read(path: Path, source_key: str) -> Artifact | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if body[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != digest:
        return None
    start = len(_MAGIC) + 8
    end = start + int.from_bytes(body[len(_MAGIC) : start], "little")
    header = json.loads(body[start:end])
    if header.get("key") != source_key:
        return None
    return Artifact(**header, cubin=body[end:])
