"""The dataflow of a tile kernel as a graph: which op must not run before which, because of the shared tiles they touch.

Nodes are the *events* of a region, ops in the order in which a block reaches them, each turn of a loop one event of an
op.  The pipeline pass reads off who uses what is fetched, the barrier pass where threads must meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from . import tile as t
from .node import Op, buffers, regions
from .types import Buffer

if TYPE_CHECKING:
    import networkx

Graph: TypeAlias = "networkx.MultiDiGraph[int]"
Tiles = frozenset[Buffer]
#: Why an event comes after another: it reads what that wrote, overwrites what that read, or what that wrote.
RAW: Final = "read after write"
WAR: Final = "write after read"
WAW: Final = "write after write"


@dataclass(frozen=True)
class Event:
    """One run of the op at ``place`` (indices into bodies, outer first), and the shared tiles that it touches.

    It ``writes`` tiles from then on; other threads find in them what it ``leaves`` there: a prefetch leaves nothing,
    the wait for it leaves what was in flight.  ``pads``: it only writes padding, which nothing else does.
    """

    op: Op
    place: tuple[int, ...]
    reads: Tiles
    writes: Tiles
    leaves: Tiles
    pads: bool


def events(ops: Sequence[Op]) -> list[Event]:
    """The events of a body; loops of blocks that stay are run twice, so that hazards between turns are among them."""
    return list(_events(ops, (), set()))


def _events(ops: Sequence[Op], within: tuple[int, ...], in_flight: set[Buffer]) -> Iterator[Event]:
    for i, op in enumerate(ops):
        place = (*within, i)
        if isinstance(op, t.ForTiles):
            if op.stride:  # the first prefetches run before the loop
                in_flight |= {b for p in op.body if isinstance(p, t.Prefetch) for b in shared(p, writes=True)}
            for _ in range(2 if op.stride else 1):
                yield from _events(op.body, place, in_flight)
            continue
        writes = leaves = shared(op, writes=True)
        if isinstance(op, t.Prefetch):
            in_flight |= writes
            leaves = frozenset()
        elif isinstance(op, t.Wait):  # there now, but only for the threads that fetched it
            leaves = frozenset(in_flight)
        yield Event(op, place, shared(op, writes=False), writes, leaves, isinstance(op, t.Zero))


def shared(op: Op, *, writes: bool) -> Tiles:
    """The shared tiles that an op and its regions write, or read."""
    own = {b for b in buffers(op, writes=writes) if b.space == "shared"}
    return frozenset(own).union(*(shared(inner, writes=writes) for r in regions(op) for inner in r))


def dataflow(nodes: Sequence[Event]) -> Graph:
    """An edge from each event to each later one that depends on it; its key says why, ``tiles`` through which tiles."""
    import networkx  # 0.2 s: whoever only chooses a schedule does not pay them

    graph: Graph = networkx.MultiDiGraph()
    graph.add_nodes_from(range(len(nodes)))
    for (i, first), (j, then) in combinations(enumerate(nodes), 2):
        for why, tiles in _dependence(first, then):
            if tiles:
                graph.add_edge(i, j, key=why, tiles=tiles)
    return graph


def _dependence(first: Event, then: Event) -> Iterator[tuple[str, Tiles]]:
    yield RAW, first.leaves & then.reads
    yield WAR, first.reads & then.writes
    if not (first.pads or then.pads):
        yield WAW, first.leaves & then.writes


def meetings(graph: Graph) -> set[int]:
    """The fewest events before which all threads must meet: every edge ends after a meeting that it begins before."""
    found: set[int] = set()
    last = 0
    for j in sorted(graph):
        if any(i >= last for i in graph.predecessors(j)):
            found.add(j)
            last = j
    return found


def readers(graph: Graph, writers: Sequence[int]) -> list[int]:
    """The events that read what these write, in order."""
    edges: Any = graph.out_edges(writers, keys=True)
    return sorted({j for _, j, why in edges if why == RAW})
