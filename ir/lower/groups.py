"""Products of warpgroups that other warps feed: the walk over tiles and turns, copies, products, x row by row."""

from __future__ import annotations

from functools import partial

from .. import tile_groups as t
from .. import warp as w
from ..expr import TRUE, Expr, all_of, as_expr
from ..numbers.groups import COPIERS, GROUP, ROWS, STEP, across, row_bytes, rows_each
from ..numbers.registers import rest
from ..swizzle import DEPTH, k_major, mn_major
from ..tensor_copy import TensorCopy, TensorMap
from ..warp_group import SetRegisters
from .context import PHASED, Context, rule

#: The named barrier of the threads that copy.
COPYING = 1


@rule(t.WalkGroups)
def walk_groups(cx: Context, op: t.WalkGroups) -> None:
    b = cx.b
    cx.shared += op.shared
    arrivals = sum(fill.arrivals for fill in (*op.early, *op.fill) if isinstance(fill, t.Fill))
    multipliers = op.groups * GROUP // 32  # warps
    with b.if_(cx.tid.eq(0)):
        with b.for_("s", 0, op.stages) as s:
            b.emit(w.MbarInit(op.bars, s, arrivals))
            b.emit(w.MbarInit(op.bars, s + op.stages, multipliers))
        for which in range(op.lists):
            b.emit(w.MbarInit(op.bars, as_expr(2 * op.stages + which), 1))
        b.fence("mbar_init")
    b.barrier()
    walk = _Walk(cx, op)
    with b.if_(cx.me().lt(multipliers)):
        if op.keep:
            b.emit(SetRegisters(rest(cx.func.threads, cx.func.threads - op.groups * GROUP, op.keep)))
        walk.multiply()
    with b.else_():
        if op.keep:
            b.emit(SetRegisters(op.keep))
        walk.copy()


class _Walk:
    """The turns of a block: number ``turn`` is step turn % steps of its tile turn // steps, in slot turn % stages."""

    def __init__(self, cx: Context, op: t.WalkGroups) -> None:
        self.cx, self.op, b = cx, op, cx.b
        tiles = op.row_tiles * op.col_tiles
        self.most = -(-tiles // op.blocks)
        self.generic = any(not (isinstance(f, t.Fill) and f.asynchronous) for f in (*op.early, *op.fill))
        self.mine = b.let("mine", (tiles + op.blocks - 1 - cx.bx) // op.blocks, lo=0, hi=self.most)

    def at(self, tile: Expr) -> None:
        """What the walk's values stand for in all turns of the block's tile of a number."""
        b, op = self.cx.b, self.op
        number = b.let("number", self.cx.bx + tile * op.blocks, hi=op.row_tiles * op.col_tiles - 1)
        by_rows = op.fastest == "rows"
        row = number % op.row_tiles if by_rows else number // op.col_tiles
        col = number // op.row_tiles if by_rows else number % op.col_tiles
        self.cx.env |= {op.tile: b.let("tile", row), op.column: b.let("column", col * op.cols)}

    def slot(self, turn: Expr) -> Expr:
        """The slot of a turn."""
        return self.cx.b.let("slot", turn % self.op.stages)

    def list(self, tile: Expr) -> Expr:
        """The list of a tile, one of two."""
        which = self.cx.b.let("list", tile % 2)
        if self.op.list is not None:
            self.cx.env[self.op.list] = which
        return which

    def begin(self, first: Expr) -> Expr:
        """The first step of the team, of a tile that begins with turn ``first``."""
        cx, b, op = self.cx, self.cx.b, self.op
        if op.teams == 1:
            return as_expr(0)
        warp = cx.me()
        team = b.let("team", warp // (COPIERS // 32) - op.groups, lo=0)
        return b.let("begin", (team + (op.teams - first % op.teams)) % op.teams)

    def copy(self) -> None:
        """The warps that copy fill slots as they become empty."""
        cx, b, op = self.cx, self.cx.b, self.op
        for regs in op.registers:
            if regs != op.acc:
                cx.alloc(regs)

        def ahead(tile: Expr) -> None:
            with cx.scope(), b.if_(tile.lt(self.mine)):
                self.at(tile)
                self.list(tile)
                cx.all(op.ahead)

        if op.ahead:
            ahead(as_expr(0))
        there = min(op.stages, op.steps) if op.early and op.begin else 0  # turns of which W comes before x
        if there:
            with cx.scope(), b.for_("step", 0, there) as step:
                self.at(as_expr(0))
                cx.env |= {op.step: step, op.slot: step}
                cx.all(op.early)
        cx.all(op.begin)
        with cx.scope(), b.for_("round", 0, self.mine, unroll=1) as tile:
            if op.ahead:
                b.barrier(COPYING, COPIERS)  # the list of the tile before has been read,
                with b.if_(cx.tid.eq(cx.func.threads - COPIERS)):
                    b.fence("async")  # and those loads have landed
                ahead(b.let("next", tile + 1))
                which = self.list(tile)
                b.mbar_wait(op.bars, which + 2 * op.stages, tile // 2 % 2)
            self.at(tile)
            first = b.let("first", tile * op.steps, hi=(self.most - 1) * op.steps)
            with b.for_("step", self.begin(first), op.steps, op.teams, unroll=1) as step:
                turn = b.let("turn", first + step, hi=self.most * op.steps - 1)
                slot = self.slot(turn)
                cx.env |= {op.step: step, op.slot: slot} | ({op.turn: turn} if op.turn is not None else {})
                cx.all(op.look)
                # of the first turns no slot is in use: the phase before the first counts as over
                b.mbar_wait(op.bars, slot + op.stages, (turn // op.stages + 1) % 2)
                if there:
                    with b.if_(turn.ge(there)):
                        cx.all(op.early)
                else:
                    cx.all(op.early)
                cx.all(op.fill)

    def multiply(self) -> None:
        """The warpgroups multiply slots as they become full, ``pending`` turns under way while the next one begins."""
        cx, b, op = self.cx, self.cx.b, self.op
        cx.alloc(op.acc)
        body = [cx.phase(f) if type(f) in PHASED else partial(cx.lower, f) for f in op.body]
        with cx.scope(), b.for_("round", 0, self.mine, unroll=1) as tile:
            cx.clear(op.acc)
            first = b.let("first", tile * op.steps, hi=self.most * op.steps - 1)
            with b.for_("step", 0, op.steps, unroll=1) as step:
                turn = b.let("turn", first + step, hi=self.most * op.steps - 1)
                slot = cx.env[op.slot] = self.slot(turn)
                b.mbar_wait(op.bars, slot, turn // op.stages % 2)
                if self.generic:
                    b.fence("async")
                for multiply in body:
                    multiply()
                b.wgmma_commit()
                b.wgmma_wait(op.pending)
                if op.pending:
                    self.free(turn + (op.stages - 1), step.gt(0))  # the slot of the turn before
                else:
                    self.free(turn)
            if op.pending:
                b.wgmma_wait(0)
                self.free(first + (op.steps - 1))
            self.at(tile)
            cx.all(op.done)

    def free(self, turn: Expr, where: Expr = TRUE) -> None:
        """The warp's product in a turn's slot has ended, if there was one: one lane says so for all."""
        b, op = self.cx.b, self.op
        with b.if_(all_of(where, self.cx.lane.eq(0))):
            b.emit(w.MbarArrive(op.bars, self.slot(turn) + op.stages))


def share(cx: Context, cols: int) -> tuple[Expr, Expr]:
    """The first row of x that the copying thread takes a piece of, and which piece."""
    b, wide = cx.b, across(cols)
    thread = b.let("copier", cx.tid - (cx.func.threads - COPIERS), lo=0)
    return b.let("mine", thread // wide * rows_each(cols)), b.let("piece", thread % wide)


@rule(t.CopyTile)
def copy_tile(cx: Context, op: t.CopyTile) -> None:
    b, slot = cx.b, cx.resolve(op.slot)
    with b.if_(cx.tid.eq(cx.func.threads - COPIERS)):
        if op.by_lanes:
            b.fence("async")
        source = b.let("from", (cx.resolve(op.tile) * op.steps + cx.resolve(op.step)) * op.size)
        b.emit(w.MbarArrive(op.bars, slot, as_expr(op.size * op.src.dtype.nbytes)))
        b.emit(w.BulkCopy(op.dst, slot * op.size, op.src, source, as_expr(op.size), op.bars, slot))


@rule(t.CopyRows)
def copy_rows(cx: Context, op: t.CopyRows) -> None:
    b, slot = cx.b, cx.resolve(op.slot)
    with b.if_((cx.tid % COPIERS).eq(0)):  # of each team
        first, column = b.let("first", cx.resolve(op.step) * STEP), cx.resolve(op.column)
        begin, wide = b.let("begin", slot * (STEP * op.cols)), row_bytes(op.cols) // 2
        b.emit(w.MbarArrive(op.bars, slot, as_expr(STEP * op.cols * op.src.dtype.nbytes)))
        if op.order == "row":
            boxes = TensorMap(op.k, op.n, op.n, (STEP, wide), 2 * wide)
            for at in range(0, op.cols, wide):
                b.emit(TensorCopy(op.dst, begin + at * STEP, op.src, first, column + at, op.bars, slot, boxes))
        else:
            turned = TensorMap(op.n, op.k, op.k, (op.cols, STEP), 2 * STEP)
            b.emit(TensorCopy(op.dst, begin, op.src, column, first, op.bars, slot, turned))


def my_group(cx: Context) -> Expr:
    """The number of the warpgroup."""
    b = cx.b
    return b.let("group", cx.me() // 4)


@rule(t.MultiplyGroup)
def multiply_group(cx: Context, op: t.MultiplyGroup) -> None:
    b, by_row = cx.b, op.order == "row"
    width = row_bytes(op.cols)
    b_tile, deep = (mn_major(width, STEP), width // 2) if by_row else (k_major(2 * STEP), 1)
    b.wgmma_fence()
    group, slot = my_group(cx), cx.resolve(op.slot)
    a = b.let("a0", slot * (STEP * ROWS * op.groups) + group * (STEP * ROWS))
    x = b.let("b0", slot * (STEP * op.cols))
    for k in range(0, STEP, DEPTH):
        b.wgmma(op.acc, op.a, a + k, op.b, x + k * deep, cols=op.cols, a_tile=k_major(2 * STEP), b_tile=b_tile,
                a_major="k", b_major="mn" if by_row else "k")  # fmt: skip
