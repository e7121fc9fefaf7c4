"""How much a launch does on the emulator, before it runs: warp-level ops, counted for some lanes that stand for all.

How often a loop turns may hang on what a kernel reads of a table, such as where a row of a matrix begins and ends: the
longest row says nothing of all the others.  So some lanes are drawn, and what they read of tables is looked up.  The
variable of a loop is drawn too, as loops inside of it may hang on it.  Means of such draws are the means of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sparsegen.ir import warp
from sparsegen.ir.expr import Expr, evaluate
from sparsegen.plan import Bound
from sparsegen.run.host import HostArray

#: Lanes that stand for all of a launch.
LANES: Final = 64
#: Where a register lies whose place is not known: below all others.
SOMEWHERE: Final = -16


def lane_ops(bound: Bound, arrays: Mapping[str, HostArray]) -> float:
    """Roughly how many warp-level ops all lanes of a launch run, with these arrays (by role).

    A loop whose bounds nothing is known of turns as often as it may.
    """
    func, draw = bound.func, np.random.default_rng(0)
    tables = {p.name: arrays[role].reshape(-1) for p, role in bound.roles if role in arrays}
    whole = {name: table for name, table in tables.items() if table.dtype.kind in "iu"}
    mean = sum(_Lane(func, whole, draw).ops(func.body) for _ in range(LANES)) / LANES
    return mean * math.prod(func.grid) * func.threads


class _Lane(dict[str, int]):
    """A lane by its integers: those of the launch are drawn, others are worked out when they are first asked for.

    A name of which nothing is known raises KeyError.
    """

    def __init__(self, func: warp.Func, tables: Mapping[str, HostArray], draw: np.random.Generator) -> None:
        super().__init__({name: int(draw.integers(value.hi + 1)) for name, value in func.builtins().items()})
        self["lane"], self["warp"] = self["tid"] % 32, self["tid"] // 32
        self._tables, self._draw = tables, draw
        self._made: dict[str, Expr | tuple[HostArray, Expr, int]] = {}  # or an element of a table, so far from a place
        self._registers: dict[tuple[str, int], Expr] = {}

    def __missing__(self, name: str) -> int:
        how = self._made[name]
        self[name] = evaluate(how, self) if isinstance(how, Expr) else int(how[0][evaluate(how[1], self) + how[2]])
        return self[name]

    def ops(self, body: Sequence[Any]) -> float:
        """Ops of a region that the lane runs; of a branch both sides, but the second one half."""
        total = 0.0
        for op in body:
            if isinstance(op, warp.For):
                total += self._turns(op) * self.ops(op.body)
            elif isinstance(op, warp.If):
                total += self.ops(op.then) + self.ops(op.orelse) / 2
            elif isinstance(op, warp.Loop):
                total += self.ops(op.body)
            else:
                self._note(op)
                total += 1.0
        return total

    def _note(self, op: Any) -> None:
        """What an op makes known: of a shuffle, whose lanes are alike, what the lane has itself."""
        if isinstance(op, (warp.Let, warp.Shfl)):
            self._made[op.out[0].name] = op.expr if isinstance(op, warp.Let) else op.a
        elif isinstance(op, warp.Ld) and op.buf.name in self._tables:
            self._made |= {out.name: (self._tables[op.buf.name], op.index, i) for i, out in enumerate(op.out)}
        elif isinstance(op, warp.St) and op.buf.space == "reg":
            first = self._number(op.index, SOMEWHERE)
            self._registers |= {(op.buf.name, first + i): value for i, value in enumerate(op.vals)}
        elif isinstance(op, warp.Ld) and op.buf.space == "reg":
            first = self._number(op.index, SOMEWHERE)
            held = ((out.name, self._registers.get((op.buf.name, first + i))) for i, out in enumerate(op.out))
            self._made |= {name: value for name, value in held if value is not None}

    def _turns(self, op: warp.For) -> int:
        """How often a loop turns; its variable becomes that of one of its turns."""
        start, stop, step = self._number(op.start, op.start.lo), self._number(op.stop, op.stop.hi), max(1, op.step.lo)
        turns = max(1, -(-(stop - start) // step))
        self[op.var.name] = start + step * int(self._draw.integers(turns))
        return turns

    def _number(self, e: Expr, bound: int) -> int:
        """What an expression is for the lane; ``bound`` where it cannot be known before."""
        try:
            return evaluate(e, self)
        except (KeyError, IndexError):
            return bound
