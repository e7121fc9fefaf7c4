"""How uniform values and control are: over the cluster, the block, each warpgroup, each warp, or not at all.

Values that depend on ``%tid`` or ``%lane`` differ between lanes, ``%warp`` is uniform in a warp, ``%bx`` and ``%rank``
in a block; of a function without clusters nothing differs from one of its blocks to the next.  A load gives what its
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
from .warp_atomics import Atom
from .warp_group import AnyWgmma
from .warp_matrix import MovMatrix
from .warp_tagged import LdTagged

CLUSTER: Final = 0
BLOCK: Final = 1
WARPGROUP: Final = 2
WARP: Final = 3
LANE: Final = 4
NAMES: Final = ("uniform over the cluster", "different from block to block of a cluster",
                "different from warpgroup to warpgroup", "different from warp to warp",
                "different from lane to lane")  # fmt: skip


@dataclass
class Levels:
    """The level of every value, register array and region of a function."""

    values: dict[str, int] = field(default_factory=dict)
    regs: dict[Buffer, int] = field(default_factory=dict)
    control: dict[int, int] = field(default_factory=dict)  # id(op) -> level of the control around it
    copies: dict[str, str] = field(default_factory=dict)  # of a value that a shuffle spreads over a warp that has it
    cluster: int = 1
    changed: bool = False

    @classmethod
    def of(cls, func: Op) -> Levels:
        """The smallest solution for a function: repeated until nothing changes."""
        out = cls()
        if isinstance(func, w.Func):
            out.cluster = func.cluster
            out.values = {"tid": LANE, "lane": LANE, "warp": WARP}
            out.values |= {"bx": BLOCK, "rank": BLOCK} if func.cluster > 1 else {}
            out.changed = True
            while out.changed:
                out.changed = False
                out._region(func.body, CLUSTER)
        return out

    def expr(self, e: Expr) -> int:
        """The level of an expression."""
        if isinstance(e, Bin):
            agreed = CLUSTER if self._of_cluster(e) else _by_thread(e, self.copies)
            return max(self.expr(e.a), self.expr(e.b)) if agreed is None else agreed
        if isinstance(e, ex.Select):
            return max(self.expr(e.c), self.expr(e.a), self.expr(e.b))
        return self.values.get(e.name, CLUSTER) if isinstance(e, Value) else CLUSTER

    def _of_cluster(self, e: Bin) -> bool:
        """Whether the expression is ``bx // cluster``: the number of the cluster."""
        if e.op not in ("//", ">>") or not isinstance(e.b, Const) or not isinstance(e.a, Value) or e.a.name != "bx":
            return False
        return bool((e.b.value if e.op == "//" else 1 << e.b.value) % self.cluster == 0)

    def around(self, op: Op) -> int:
        """The level of the control flow that the op stands in."""
        return self.control.get(id(op), CLUSTER)

    def _raise(self, table: dict[str, int], key: str, level: int) -> None:
        if table.get(key, CLUSTER) < level:
            table[key] = level
            self.changed = True

    def _stored(self, buf: Buffer, level: int) -> None:
        if self.regs.get(buf, CLUSTER) < level:
            self.regs[buf] = level
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
                self._stored(op.buf, max(control, *(self.expr(e) for e in operands(op))))
            elif isinstance(op, AnyWgmma):
                self._stored(op.acc, LANE)
            if isinstance(op, w.For):
                trips = max(self.expr(e) for e in (op.start, op.stop, op.step))
                self._raise(self.values, op.var.name, trips)
                self._region(op.body, max(control, trips))
            elif isinstance(op, w.If):
                cond = max(control, self.expr(op.cond))
                self._region(op.then, cond)
                self._region(op.orelse, cond)
            elif isinstance(op, w.Loop):
                leave = max((max(self.expr(o.cond), self.around(o)) for o in breaks(op)), default=CLUSTER)
                self._region(op.body, max(control, leave))
            else:
                for r in of_kind(op, "region"):
                    self._region(r, control)

    def _result(self, op: Op) -> int:
        level = max((self.expr(e) for e in operands(op)), default=CLUSTER)
        if isinstance(op, w.Ld):
            own = BLOCK if op.buf.space == "shared" and self.cluster > 1 else CLUSTER
            return max(level, own, self.regs.get(op.buf, CLUSTER))
        if isinstance(op, w.Ballot):
            return min(level, WARP)
        if isinstance(op, w.Shfl):
            by = self.expr(op.by)
            if op.mode == "idx" and isinstance(op.a, Value) and self.expr(op.a) <= WARP:
                self.copies[op.out[0].name] = self.copies.get(op.a.name, op.a.name)
            return min(level, WARP) if op.mode == "idx" and by <= WARP else LANE
        return LANE if isinstance(op, _BY_LANE) else level


#: Ops that give each lane something of its own.
_BY_LANE = (w.Mma, w.LdMatrix, MovMatrix, Atom, w.MbarTryWait, w.Clock, LdTagged)


def breaks(loop: w.Loop) -> list[w.BreakIf]:
    """The ``break_if`` ops that leave this loop (those of nested loops left out)."""
    inner = {id(o) for n in walk(loop.body) if isinstance(n, w.Loop) for o in walk(n.body)}
    return [o for o in walk(loop.body) if isinstance(o, w.BreakIf) and id(o) not in inner]


def _by_thread(e: Bin, copies: dict[str, str]) -> int | None:
    """The level of forms of ``%tid`` that agree within a warp, of ``%tid`` and ``%warp`` within a warpgroup.

    They are ``tid // 64``, ``tid >> 5``, ``tid < 96``, ``31 < tid``; ``tid // 128``, ``warp < 4``.
    """

    def unit(x: Expr) -> int:
        """How many threads of a warpgroup one step of the value is; 0 for another value."""
        return {"tid": 1, "warp": 32}.get(copies.get(x.name, x.name), 0) if isinstance(x, Value) else 0

    a, b = unit(e.a), unit(e.b)
    by = e.b if a else e.a
    if not isinstance(by, Const) or not (a or b):
        return None
    if e.op in ("//", ">>") and a:
        threads = a * (by.value if e.op == "//" else 1 << by.value)
    elif e.op in ("<", "<="):
        threads = (a or b) * (by.value + (e.op == ("<=" if a else "<")))
    else:
        return None
    return WARPGROUP if threads % 128 == 0 else WARP if threads % 32 == 0 else None
