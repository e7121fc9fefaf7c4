"""Structured control, flattened: branches that mask or split a group, loops, and where groups meet again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.expr import Const
from sparsegen.ir.node import Op, regions, walk
from sparsegen.ir.warp_cluster import ClusterBarrier
from sparsegen.ir.warp_group import SetRegisters
from sparsegen.ir.warp_tagged import LdTagged

from . import cluster, order, register_pool, warpgroup
from .group import Group
from .values import number, predicate

if TYPE_CHECKING:
    from .compile import Scope


@dataclass
class Label:
    """A place in the program, known once it is reached."""

    pc: int = -1


@dataclass(frozen=True)
class Context:
    """The region being emitted: what it belongs to, where its end is, and the region around it."""

    kind: str | None
    end: Label
    outer: Context | None
    exit: Label | None = None  # of a loop


def simple(ops: tuple[Op, ...]) -> bool:
    """Whether warps with no active lane may run along (masked): nothing inside blocks or loops on its own."""
    alone = (w.Barrier, ClusterBarrier, w.MbarTryWait, w.Loop, w.BreakIf, *warpgroup.OPS)
    return not any(isinstance(op, alone) for op in walk(ops))


def settle(g: Group, end: Label) -> bool:
    """Sends the warps without an active lane to ``end``; false if that is all of them."""
    if g.mask is None:
        return True
    alive = g.mask.any(1)
    if alive.all():
        return True
    if not alive.any():
        return False
    other = g.split(alive)
    g.m.push(other, end.pc)
    return True


def uniform(v: Any) -> Any:
    """An array whose elements are all equal, as an int."""
    if isinstance(v, np.ndarray):
        first = v.reshape(-1)[0]
        return int(first) if (v == first).all() else v
    return int(v)


class Flow:
    """The part of the compiler that emits control."""

    sc: Scope
    end: Callable[..., None]
    start: Callable[..., int]
    region: Callable[..., None]
    tally: Callable[[str], None]
    cur: Any

    def control(self, op: Op, ctx: Context) -> bool:
        """Emits a control op; false if it is none."""
        if isinstance(op, w.If):
            self._if(op, ctx)
        elif isinstance(op, w.For):
            self._for(op, ctx)
        elif isinstance(op, w.Loop):
            self._loop(op, ctx)
        elif isinstance(op, w.BreakIf):
            self._break(op, ctx)
        elif isinstance(op, w.Barrier):
            after = Label()
            self.tally("barrier")
            self.end(order.barrier(op, self.sc, after))
            self.start(after, meets=True)
        elif isinstance(op, ClusterBarrier):
            after = Label()
            self.tally("cluster_barrier")
            self.end(cluster.barrier(op, self.sc, after))
            self.start(after, meets=True)
        elif isinstance(op, w.MbarTryWait):
            here, after = Label(), Label()
            self.end(lambda g: here.pc)
            self.start(here, meets=True)
            control = order.try_wait(op, self.sc, here, after)
            self.end(control)
            self.start(after, meets=True)
        elif isinstance(op, warpgroup.OPS):
            here, after = Label(), Label()
            self.tally(warpgroup.counted(op))
            self.end(lambda g: here.pc)
            self.start(here, meets=True)
            taking = isinstance(op, SetRegisters)
            self.end((register_pool.control if taking else warpgroup.control)(op, self.sc, here, after))
            self.start(after, meets=True)
        else:
            return False
        return True

    # -------------------------------------------------------------------------------------------- if
    def _if(self, op: w.If, ctx: Context) -> None:
        if isinstance(op.cond, Const):
            chosen = op.then if op.cond.value else op.orelse
            self.region(chosen, ctx)
            return
        then, other, join, end_then, end_else = Label(), Label(), Label(), Label(), Label()
        has_else = bool(op.orelse)
        self.end(_branch(predicate(op.cond, self.sc.slots), then, other, has_else,
                         simple(op.then) and simple(op.orelse)))  # fmt: skip
        self.start(then)
        self.region(op.then, Context("if", end_then, ctx))
        self.end(lambda g: end_then.pc)
        self.start(end_then)
        self.end(_end_then(other, join, simple(op.orelse)))
        if has_else:
            self.start(other)
            self.region(op.orelse, Context("if", end_else, ctx))
            self.end(lambda g: end_else.pc)
            self.start(end_else)
            self.end(lambda g: join.pc)
        self.start(join, meets=True)
        if not has_else:
            other.pc = join.pc
        depth = _breaks(op, ctx)
        if depth is None:
            self._restore()
        else:
            after = Label()
            assert ctx.kind is not None
            self.end(_pop_gone(depth, ctx.exit if ctx.kind == "loop" and ctx.exit else ctx.end, after))
            self.start(after)

    # -------------------------------------------------------------------------------------------- for
    def _for(self, op: w.For, ctx: Context) -> None:
        a, z, s = (number(x, self.sc.slots) for x in (op.start, op.stop, op.step))
        body, done, back = Label(), Label(), Label()
        before_slots, before = dict(self.sc.slots), set(self.sc.here)
        slot = self.sc.define(op.var)
        easy = simple(op.body)

        def head(g: Group) -> int:
            e = g.stack[-1]
            v, stop = uniform(e[2]), uniform(e[3])
            if type(v) is int and type(stop) is int:
                if v < stop:
                    e[2] = g.env[slot] = v
                    if e[1] is not g.mask:
                        g.set_mask(e[1])
                    return body.pc
            else:
                act = np.broadcast_to(np.asarray(v < stop), (g.n, 32))
                if e[1] is not None:
                    act = act & e[1]
                alive = act.any(1)
                live = int(alive.sum())
                if live:
                    if live < g.n and not (easy and 2 * live >= g.n):
                        other = g.split(alive)
                        left = other.stack.pop()
                        other.set_mask(left[1])
                        g.m.push(other, done.pc)
                        act, e = act[alive], g.stack[-1]
                        v = e[2]
                    g.set_mask(act)
                    g.env[slot] = v
                    return body.pc
            g.stack.pop()
            g.set_mask(e[1])
            return done.pc

        def enter(g: Group) -> int:
            env = g.env
            first, stop, step = a(env), z(env), s(env)
            if g.m.window is not None and g.m.window.loop is op:
                first, stop = g.m.window.narrow(g.m, g.rows, first, stop)
            if type(first) is int and type(stop) is int and first >= stop:
                return done.pc
            if g.mask is not None:  # lanes that do not take part must not make the loop look divergent
                first, stop, step = (_quiet(x, g) for x in (first, stop, step))
            g.stack.append(["for", g.mask, first, stop, uniform(step)])
            return head(g)

        def again(g: Group) -> int:
            e = g.stack[-1]
            e[2] = e[2] + e[4]
            return head(g)

        self.end(enter)
        self.start(body, meets=True)
        self.region(op.body, Context("for", back, ctx))
        self.end(lambda g: back.pc)
        self.sc.slots, self.sc.here = before_slots, before
        self.start(back, meets=True)
        self.end(again)
        self.start(done, meets=True)

    # -------------------------------------------------------------------------------------------- loop
    def _loop(self, op: w.Loop, ctx: Context) -> None:
        body, back, leave = Label(), Label(), Label()
        info = self.sc.info(op)
        polls = any(isinstance(inner, LdTagged) for inner in walk(op.body))

        def enter(g: Group) -> int:
            g.stack.append(["loop", g.mask, None, 0, -1])
            return body.pc

        def again(g: Group) -> int:
            e = g.stack[-1]
            e[3] += 1
            g.spins += 1
            if e[3] > g.m.spin_limit:
                g.m.find("livelock", info, f"a loop has run {e[3]} times and does not end",
                         "let its break condition come true; another block or warp may never run that would make it so",
                         row=int(g.rows[0]))  # fmt: skip
                g.m.abort()
                return -1
            if not settle(g, leave):
                return leave.pc
            if polls:
                if e[4] == g.m.events:  # nothing has come since it asked last
                    g.m.park(g, body.pc, info, "waits for the tag of a cell")
                    return -1
                e[4] = g.m.events
            return body.pc

        self.end(enter)
        self.start(body, meets=True)
        self.region(op.body, Context("loop", back, ctx, leave))
        self.end(lambda g: back.pc)
        self.start(back)
        self.end(again)
        self.start(leave, meets=True)
        self._restore()

    def _restore(self) -> None:
        """At the start of a segment: the mask is again what it was before the branch or loop."""
        self.cur.steps.append(_pop)
        self.cur.before = 1

    def _break(self, op: w.BreakIf, ctx: Context) -> None:
        nested, c = 0, ctx
        while c.kind == "if":
            assert c.outer is not None
            nested, c = nested + 1, c.outer
        assert c.exit is not None
        cond, after, leave = predicate(op.cond, self.sc.slots), Label(), (c.exit if not nested else ctx.end)

        def brk(g: Group) -> int:
            p = cond(g.env)
            gone = g.full() & p
            if not gone.any():
                return after.pc
            if nested:
                e = g.stack[-1 - nested]
                e[2] = gone if e[2] is None else e[2] | gone
            g.set_mask(g.full() & ~gone)
            return after.pc if settle(g, leave) else leave.pc

        self.end(brk)
        self.start(after)


def _quiet(x: Any, g: Group) -> Any:
    """A loop bound with the values of inactive lanes replaced by that of an active one."""
    if not isinstance(x, np.ndarray) or not g.lanes:
        return x
    full = np.broadcast_to(x, (g.n, 32))
    return np.where(g.full(), full, full.reshape(-1)[g.sel()[0]])


def _branch(cond: Any, then: Label, other: Label, has_else: bool, easy: bool) -> Callable[[Group], int]:
    def branch(g: Group) -> int:
        c = cond(g.env)
        if not isinstance(c, np.ndarray):
            g.stack.append(["if", g.mask, None])
            return then.pc if c else other.pc
        c = np.broadcast_to(c, (g.n, 32))
        t, f = (c, ~c) if g.mask is None else (c & g.mask, g.mask & ~c)
        wt, wf = t.any(1), f.any(1)
        nt = int(wt.sum())
        if not nt or not wf.any():
            g.stack.append(["if", g.mask, None])
            return then.pc if nt else other.pc
        if easy and (2 * nt >= g.n if not has_else else (wt & wf).any()):
            g.stack.append(["if", g.mask, f if has_else else None])
            g.set_mask(t)
            return then.pc
        if nt < g.n:
            rest = g.split(wt)
            rest.stack.append(["if", rest.mask, None])
            g.m.push(rest, other.pc)
            t, f = t[wt], f[wt]
        g.stack.append(["if", g.mask, f if has_else and f.any() else None])
        g.set_mask(t)
        return then.pc

    return branch


def _end_then(other: Label, join: Label, easy: bool) -> Callable[[Group], int]:
    def end_then(g: Group) -> int:
        e = g.stack[-1]
        f, e[2] = e[2], None
        if f is None:
            return join.pc
        g.set_mask(f)
        if not g.lanes:
            return join.pc
        if not easy:
            settle(g, join)
        return other.pc

    return end_then


def _pop(g: Group) -> None:
    e = g.stack.pop()
    if e[1] is not g.mask:
        g.set_mask(e[1])


def _pop_gone(depth: int, end: Label, after: Label) -> Callable[[Group], int]:
    def pop_gone(g: Group) -> int:
        e = g.stack.pop()
        gone = g.stack[-depth][2]
        if gone is None:
            g.set_mask(e[1])
            return after.pc
        g.set_mask(~gone if e[1] is None else e[1] & ~gone)
        return after.pc if settle(g, end) else end.pc

    return pop_gone


def _breaks(op: w.If, ctx: Context) -> int | None:
    """How far up the stack the loop is that a break inside this branch leaves (None if there is no such break)."""

    def has(ops: tuple[Op, ...]) -> bool:
        for o in ops:
            if isinstance(o, w.BreakIf):
                return True
            if not isinstance(o, (w.Loop, w.For)) and any(has(r) for r in regions(o)):
                return True
        return False

    if not has(op.then) and not has(op.orelse):
        return None
    depth, c = 1, ctx
    while c.kind == "if":
        assert c.outer is not None
        depth, c = depth + 1, c.outer
    return depth
