"""``barriers``: a block barrier wherever threads would otherwise see each other's shared data too early or too late.

The dataflow graph says what depends on what, from turn to turn of a loop as well; barriers cut all its edges.  Nothing
else puts barriers into a tile program.

Padding that a ``zero`` writes needs none: it is written by nothing else.  ``steps`` begins with a barrier of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .. import tile as t
from ..dataflow import dataflow, events, meetings
from ..module import Module
from ..node import Op
from .manager import register


@register("barriers")
@dataclass(frozen=True)
class Barriers:
    """Inserts the barriers of every tile kernel."""

    def run(self, module: Module) -> Module:
        return replace(module, funcs=tuple(_func(f) if isinstance(f, t.Func) else f for f in module.funcs))


def _func(func: t.Func) -> t.Func:
    nodes = events(func.body)
    met = meetings(dataflow(nodes))
    needed = {event.place: i in met for i, event in enumerate(nodes)}  # of a loop's turns the last one counts
    return replace(func, body=_placed(func.body, (), needed))


def _placed(ops: tuple[Op, ...], within: tuple[int, ...], needed: Mapping[tuple[int, ...], bool]) -> tuple[Op, ...]:
    out: list[Op] = []
    for i, op in enumerate(ops):
        place = (*within, i)
        if isinstance(op, t.ForTiles):
            op = replace(op, body=_placed(op.body, place, needed))
        elif needed[place] and not isinstance(op, t.Steps):
            out.append(t.Meet(loc=op.loc))
        out.append(op)
    return tuple(out)
