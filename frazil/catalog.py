"""The engines, as a static table of strings: id, name, and where the engine object is.

Ids are public (`get_engine_and_knobs_at_index`), appear in stored plans and never change their meaning. Order
is the last tie-break in ranking. An engine's module is imported when planning first asks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from . import env
from .engine import Engine
from .errors import GraphError


@dataclass(frozen=True, slots=True)
class Entry:
    """An engine of the catalog.

    Attributes
    ----------
    where
        "module:attribute" of the engine object, relative to the package where the module begins with a dot.
    is_open
        Its kernels are open source; `heur_mode.OPENSOURCE` offers these alone.
    """

    id: int
    name: str
    where: str
    is_open: bool = True

    def load(self) -> Engine:
        """The engine object."""
        module, _, attribute = self.where.partition(":")
        engine: Engine = getattr(import_module(module, __package__), attribute)
        return engine


Catalog = tuple[Entry, ...]

ENTRIES: Catalog = (
    Entry(1_000_000, "reference", ".engines.reference:ENGINE"),
    Entry(1_000_100, "pointwise_triton", ".engines.pointwise_triton:ENGINE"),
)


def offered(entries: Catalog = ENTRIES) -> Catalog:
    """The entries that the environment's engine filter leaves.

    Raises
    ------
    GraphError
        The filter names an engine that is not in the catalog.
    """
    only, without = env.engines()
    known = {e.name for e in entries}
    unknown = (only | without) - known
    if unknown:
        raise GraphError(
            "engine filter FRAZIL_ENGINES", got=sorted(unknown), expected=f"names among {sorted(known)}"
        )
    return tuple(e for e in entries if (not only or e.name in only) and e.name not in without)
