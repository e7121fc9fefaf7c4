"""``barriers``: a block barrier wherever threads would otherwise see each other's shared data too early or too late.

A linear scan with the shared tiles written and read since the last barrier; the body of a loop is scanned twice, so
that hazards from one turn to the next are found.  Nothing else puts barriers into a tile program.

Padding that a ``zero`` writes needs none: it is written by nothing else.  ``steps`` begins with a barrier of its own.
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
        late = reads & (s.written | s.padded)
        if late or writes & (s.read if pads else s.written | s.read):
            if not isinstance(op, t.Steps):
                out.append(t.Barrier(loc=op.loc))
            s.written, s.padded, s.read = set(), set(), set()
        into = s.in_flight if isinstance(op, t.Prefetch) else s.padded if pads else s.written
        into |= writes
        s.read |= reads
        out.append(op)
    return tuple(out)


def _shared(op: Op, *, writes: bool) -> set[Buffer]:
    own = {b for b in buffers(op, writes=writes) if b.space == "shared"}
    return own.union(*(_shared(inner, writes=writes) for r in regions(op) for inner in r))
