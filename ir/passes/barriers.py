"""``barriers``: a block barrier wherever threads would otherwise see each other's shared data too early or too late.

A linear scan with the shared tiles written and read since the last barrier; the body of a loop is scanned twice, so
that hazards from one turn to the next are found.  Nothing else puts barriers into a tile program.

Two things are known to need none: padding that a ``zero`` writes is written by nothing else, and a ``put`` reads the
elements of the ``step`` before it in the same threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .. import tile as t
from ..module import Module
from ..node import Op, buffers, regions
from ..types import Buffer
from .manager import register


@dataclass
class _State:
    written: set[Buffer] = field(default_factory=set)
    padded: set[Buffer] = field(default_factory=set)
    read: set[Buffer] = field(default_factory=set)
    in_flight: set[Buffer] = field(default_factory=set)


@register("barriers")
@dataclass(frozen=True)
class Barriers:
    """Inserts the barriers of every tile kernel."""

    def run(self, module: Module) -> Module:
        return replace(module, funcs=tuple(
            replace(f, body=_scan(f.body, _State())) if isinstance(f, t.Func) else f for f in module.funcs
        ))  # fmt: skip


def _scan(ops: tuple[Op, ...], s: _State) -> tuple[Op, ...]:
    out: list[Op] = []
    before: Op | None = None
    for op in ops:
        if isinstance(op, t.ForTiles):
            if op.stride:
                ahead = {b for p in op.body if isinstance(p, t.Prefetch) for b in _shared(p, writes=True)}
                s.in_flight |= ahead
                first = _scan(op.body, s)
                body = _scan(tuple(x for x in first if not isinstance(x, t.Barrier)), s)
            else:
                body = _scan(op.body, s)
            out.append(replace(op, body=body))
            continue
        writes, reads = _shared(op, writes=True), _shared(op, writes=False)
        if isinstance(op, t.Wait):  # what was in flight is there now, but only for the threads that fetched it
            s.written |= s.in_flight
        pads = isinstance(op, t.Zero)
        late = not _same_threads(before, op) and reads & (s.written | s.padded)
        if late or writes & (s.read if pads else s.written | s.read):
            out.append(t.Barrier(loc=op.loc))
            s.written, s.padded, s.read = set(), set(), set()
        into = s.in_flight if isinstance(op, t.Prefetch) else s.padded if pads else s.written
        into |= writes
        s.read |= reads
        out.append(op)
        before = op
    return tuple(out)


def _same_threads(before: Op | None, op: Op) -> bool:
    """Whether each thread of ``op`` reads only what itself wrote in the op just before."""
    return (
        isinstance(op, t.Put)
        and isinstance(before, t.Step)
        and (op.src, op.margin, op.layout) == (before.dst, before.margin, before.layout)
        and (op.rows, op.cols) == (before.rows - 2 * op.margin[0], before.cols - 2 * op.margin[1])
    )


def _shared(op: Op, *, writes: bool) -> set[Buffer]:
    own = {b for b in buffers(op, writes=writes) if b.space == "shared"}
    return own.union(*(_shared(inner, writes=writes) for r in regions(op) for inner in r))
