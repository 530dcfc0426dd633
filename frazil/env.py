"""The environment variables that Frazil reads, each with its meaning; no other module reads the
environment.
"""

from __future__ import annotations

import os

VARIABLES = {
    "FRAZIL_CACHE_DIR": "Directory of compiled kernels; ~/.cache/frazil where unset.",
    "FRAZIL_NO_COMPILE": "1: a kernel that is in no cache is an error instead of being compiled.",
    "FRAZIL_ENGINES": "Comma-separated engine names to offer; a name with a leading '-' is left out instead.",
    "FRAZIL_LOG": "Level of the log on stderr (debug, info, warning); nothing is logged there where unset.",
}


def engines() -> tuple[frozenset[str], frozenset[str]]:
    """Engine names to offer (empty: all) and to leave out, from FRAZIL_ENGINES."""
    words = [w.strip() for w in os.environ.get("FRAZIL_ENGINES", "").split(",") if w.strip()]
    only = frozenset(w for w in words if not w.startswith("-"))
    return only, frozenset(w[1:] for w in words if w.startswith("-"))


def log_level() -> str:
    """Level named by FRAZIL_LOG, in upper case; empty where unset."""
    return os.environ.get("FRAZIL_LOG", "").strip().upper()


def settings() -> dict[str, str]:
    """The variables of this table that are set, with their values."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def cache_directory() -> str:
    """Directory named by FRAZIL_CACHE_DIR; empty where unset."""
    return os.environ.get("FRAZIL_CACHE_DIR", "").strip()


def no_compile() -> bool:
    """Whether FRAZIL_NO_COMPILE forbids compiling."""
    return os.environ.get("FRAZIL_NO_COMPILE", "").strip() not in ("", "0")
