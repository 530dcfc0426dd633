"""The errors Frazil raises, and nothing else.

Four kinds: the caller's graph or pack is wrong (`GraphError`), a call came at the wrong time (`StateError`),
no engine serves the graph (`NotSupported`, which carries every engine's reason), and the driver failed
(`CudaError`). An error names what it is about in fields as well as in its text, so that programs need not
parse the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class FrazilError(Exception):
    """Base of every error that Frazil raises on purpose."""


class GraphError(FrazilError, ValueError):
    """The user's graph, variant pack or file is wrong.

    Parameters
    ----------
    what
        The condition that is missed, as a short phrase: "the head count of K".
    node
        Name of the node concerned, where there is one.
    tensor
        Name of the tensor concerned, where there is one.
    uid
        Its uid.
    got, expected
        The value found and the values allowed; either may be left out where the phrase says it all.
    """

    def __init__(
        self,
        what: str,
        *,
        node: str | None = None,
        tensor: str | None = None,
        uid: int | None = None,
        got: Any = None,
        expected: Any = None,
    ) -> None:
        self.what, self.node, self.tensor, self.uid = what, node, tensor, uid
        self.got, self.expected = got, expected
        place = []
        if node:
            place.append(f"node '{node}'")
        if tensor is not None or uid is not None:
            place.append(f"tensor '{tensor or ''}' (uid {uid})")
        text = f"{', '.join(place)}: {what}" if place else what
        if got is not None:
            text += f": got {_show(got)}"
        if expected is not None:
            text += f"{',' if got is not None else ':'} expected {_show(expected)}"
        super().__init__(text)


class StateError(FrazilError, RuntimeError):
    """A call that is right in itself came at the wrong time: frozen, not built, planned twice, destroyed."""


class NotSupported(FrazilError):
    """No engine serves the graph on the target.

    Attributes
    ----------
    declines
        Every engine's `Decline`, in catalog order; each has `engine` and `reason`.
    """

    def __init__(self, what: str, declines: Sequence[Any] = ()) -> None:
        self.what, self.declines = what, tuple(declines)
        lines = [what, *(f"  {d}" for d in self.declines)]
        super().__init__("\n".join(lines))


class CudaError(FrazilError, RuntimeError):
    """A driver call failed.

    Attributes
    ----------
    call, code
        Name of the driver function and the status it returned.
    """

    def __init__(self, call: str, code: int, status: str, doing: str = "") -> None:
        self.call, self.code, self.status, self.doing = call, code, status, doing
        super().__init__(f"{call} returned {code} ({status})" + (f" while {doing}" if doing else ""))


def _show(value: Any) -> str:
    """Text of a value for an error: strings as they stand, sequences as tuples."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(_show(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    return str(getattr(value, "name", value))
