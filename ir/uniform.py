"""How uniform values and control are: over the block, over each warp, or not at all.

Values that depend on ``%tid`` or ``%lane`` differ between lanes, ``%warp`` is uniform in a warp.  A load gives what its
address gives: all lanes that read one address at once read one value.  Register arrays take the level of what is
stored in them.  The answer errs on the side of "differs".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from . import expr as ex
from . import warp as w
from .expr import Bin, Const, Expr, Value
from .node import Op, of_kind, operands, results, walk
from .types import Buffer

BLOCK: Final = 0
WARP: Final = 1
LANE: Final = 2
NAMES: Final = ("uniform over the block", "different from warp to warp", "different from lane to lane")


@dataclass
class Levels:
    """The level of every value, register array and region of a function."""

    values: dict[str, int] = field(default_factory=dict)
    regs: dict[Buffer, int] = field(default_factory=dict)
    control: dict[int, int] = field(default_factory=dict)  # id(op) -> level of the control around it
    changed: bool = False

    @classmethod
    def of(cls, func: Op) -> Levels:
        """The smallest solution for a function: repeated until nothing changes."""
        out = cls()
        if isinstance(func, w.Func):
            out.values = {"tid": LANE, "lane": LANE, "warp": WARP}
            out.changed = True
            while out.changed:
                out.changed = False
                out._region(func.body, BLOCK)
        return out

    def expr(self, e: Expr) -> int:
        """The level of an expression."""
        if isinstance(e, Bin):
            by_warp = _by_warp(e)
            return WARP if by_warp else max(self.expr(e.a), self.expr(e.b))
        if isinstance(e, ex.Select):
            return max(self.expr(e.c), self.expr(e.a), self.expr(e.b))
        return self.values.get(e.name, BLOCK) if isinstance(e, Value) else BLOCK

    def around(self, op: Op) -> int:
        """The level of the control flow that the op stands in."""
        return self.control.get(id(op), BLOCK)

    def _raise(self, table: dict[str, int], key: str, level: int) -> None:
        if table.get(key, BLOCK) < level:
            table[key] = level
            self.changed = True

    def _region(self, ops: tuple[Op, ...], control: int) -> None:
        for op in ops:
            if self.control.get(id(op), -1) < control:
                self.control[id(op)] = control
                self.changed = True
            level = self._result(op)
            for v in results(op):
                self._raise(self.values, v.name, level)
            if isinstance(op, w.St) and op.buf.space == "reg":
                stored = max(control, *(self.expr(e) for e in operands(op)))
                if self.regs.get(op.buf, BLOCK) < stored:
                    self.regs[op.buf] = stored
                    self.changed = True
            if isinstance(op, w.For):
                trips = max(self.expr(e) for e in (op.start, op.stop, op.step))
                self._raise(self.values, op.var.name, trips)
                self._region(op.body, max(control, trips))
            elif isinstance(op, w.If):
                cond = max(control, self.expr(op.cond))
                self._region(op.then, cond)
                self._region(op.orelse, cond)
            elif isinstance(op, w.Loop):
                leave = max((max(self.expr(o.cond), self.around(o)) for o in breaks(op)), default=BLOCK)
                self._region(op.body, max(control, leave))
            else:
                for r in of_kind(op, "region"):
                    self._region(r, control)

    def _result(self, op: Op) -> int:
        level = max((self.expr(e) for e in operands(op)), default=BLOCK)
        if isinstance(op, w.Ld):
            return max(level, self.regs.get(op.buf, BLOCK))
        if isinstance(op, w.Ballot):
            return min(level, WARP)
        if isinstance(op, w.Shfl):
            by = self.expr(op.by)
            return min(level, WARP) if op.mode == "idx" and by <= WARP else LANE
        return LANE if isinstance(op, (w.Mma, w.LdMatrix, w.Atom, w.MbarTryWait, w.Clock)) else level


def breaks(loop: w.Loop) -> list[w.BreakIf]:
    """The ``break_if`` ops that leave this loop (those of nested loops left out)."""
    inner = {id(o) for n in walk(loop.body) if isinstance(n, w.Loop) for o in walk(n.body)}
    return [o for o in walk(loop.body) if isinstance(o, w.BreakIf) and id(o) not in inner]


def _by_warp(e: Bin) -> bool:
    """Forms of ``%tid`` that agree within a warp: ``tid // 64``, ``tid >> 5``, ``tid < 96``, ``31 < tid``."""

    def is_tid(x: Expr) -> bool:
        return isinstance(x, Value) and x.name == "tid"

    def warps(x: Expr, plus: int = 0) -> bool:
        return isinstance(x, Const) and (x.value + plus) % 32 == 0

    if e.op == "//" and is_tid(e.a):
        return warps(e.b)
    if e.op == ">>" and is_tid(e.a):
        return isinstance(e.b, Const) and e.b.value >= 5
    if e.op in ("<", "<="):
        strict = e.op == "<"
        return (is_tid(e.a) and warps(e.b, 0 if strict else 1)) or (is_tid(e.b) and warps(e.a, 1 if strict else 0))
    return False
