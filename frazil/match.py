"""How a graph is offered to engines: as a whole first, then in partitions.

Owns the partitioning alone. It knows which operations anchor a kernel (their records say so), not what any
engine serves.
"""

from __future__ import annotations

from collections.abc import Iterator

from .ops import find
from .spec import Problem

Partition = tuple[tuple[int, ...], ...]  # node indices of each part, in an order of execution


def partitions(problem: Problem) -> Iterator[Partition]:
    """Partitions to try, in order: the whole, one part per anchor with its neighbours, one part per node."""
    count = len(problem.nodes)
    seen = set()
    for partition in ((tuple(range(count)),), _around_anchors(problem), tuple((i,) for i in range(count))):
        if partition not in seen:
            seen.add(partition)
            yield partition


def _around_anchors(problem: Problem) -> Partition:
    """Group nodes in order so that each group is connected and has one anchor at most.

    A node joins the group of the latest producer of its inputs, unless both have an anchor or the group would
    then depend on a later one; otherwise it opens a group. Groups come out in an order of execution.
    """
    producer = {t: i for i, n in enumerate(problem.nodes) for t in n.writes()}
    group_of: list[int] = []
    groups: list[list[int]] = []
    anchored: list[bool] = []
    for index, node in enumerate(problem.nodes):
        anchor = find(node.op).anchor
        sources = [group_of[producer[t]] for t in node.reads() if t in producer]
        latest = max(sources, default=None)
        # Joining the latest group keeps every dependency pointing from a lower group number to a higher or
        # equal one.
        if latest is not None and not (anchor and anchored[latest]):
            groups[latest].append(index)
            anchored[latest] |= anchor
        else:
            latest = len(groups)
            groups.append([index])
            anchored.append(anchor)
        group_of.append(latest)
    return tuple(tuple(g) for g in groups)
