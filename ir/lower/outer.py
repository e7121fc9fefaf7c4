"""Outer products of an N:M pattern's kept columns and rows of x: a block's ring, a lane's sums, their way to y."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import tile_outer as t
from .. import warp as w
from ..expr import Expr, ExprLike, Value, all_of, as_expr, minimum
from ..numbers.arithmetic import up
from ..numbers.outer import ACROSS, HIGH, PIECE, TALL, list_words
from ..types import f32
from .context import Context, phased, rule
from .epilogue import finish, of_row


@rule(t.WalkApart)
def walk_apart(cx: Context, op: t.WalkApart) -> None:
    b, ahead = cx.b, op.stages - 1
    with b.if_(cx.tid.eq(0)), b.for_("s", 0, op.stages) as s:
        b.emit(w.MbarInit(op.bars, s, cx.func.threads))
        b.emit(w.MbarInit(op.bars, s + op.stages, cx.func.threads // 32))
    b.barrier()
    fills = [cx.phase(inner) for inner in op.fill]

    def slot(turn: Expr) -> Expr:
        return b.let("slot", turn % op.stages)

    def fill(turn: Expr) -> None:
        cx.env[op.turn] = turn
        for one in fills:
            one()
        b.emit(w.CpArrive(op.bars, slot(turn)))

    def wait(turn: Expr) -> None:
        """The data of a turn are there."""
        b.mbar_wait(op.bars, slot(turn), turn // op.stages % 2)

    with cx.scope():
        for i in range(min(ahead, op.turns)):
            fill(as_expr(i))
        cx.env[op.turn] = as_expr(0)
        wait(as_expr(0))
        cx.all(op.first)
        with b.for_("turn", 0, op.turns, unroll=1) as turn:
            coming = b.let("coming", minimum(turn + 1, op.turns - 1))
            cx.env |= {op.turn: turn, op.coming: coming}
            cx.all(op.body)
            if op.turns > ahead:
                with b.if_((turn + ahead).lt(op.turns)):
                    later = b.let("later", turn + ahead, hi=op.turns - 1)
                    # of the first turns no slot is in use: the phase before the first counts as over
                    b.mbar_wait(op.bars, slot(later) + op.stages, (later // op.stages + 1) % 2)
                    fill(later)
            cx.env[op.turn] = turn
            wait(coming)
            cx.all(op.last)
            b.sync()
            with b.if_(cx.lane.eq(0)):
                b.emit(w.MbarArrive(op.bars, slot(turn) + op.stages))


@phased(t.CopyWindow)
def copy_window(cx: Context, op: t.CopyWindow) -> Callable[[], None]:
    b, per = cx.b, op.cols // PIECE
    high = cx.func.threads // per  # rows of x that the block's threads take at a time
    first, piece = b.let("first", cx.tid // per), b.let("piece", cx.tid % per * PIECE)
    column = b.let("column", (cx.resolve(op.column) + piece) % op.n)  # lanes' pieces stay side by side
    to, start = b.let("to", first * op.cols + piece), b.let("start", first * op.n + column)

    def turn() -> None:
        now = cx.resolve(op.turn)
        slot = b.let("slot", now % op.stages * (op.deep * op.cols) + to)
        top = b.let("top", now * op.deep)
        begin = b.let("begin", start + top * op.n)
        for row in range(0, op.deep, high):
            inside = [(first + row).lt(op.deep)] * (row + high > op.deep)
            inside += [(first + top + row).lt(op.k)] * (op.k % op.deep != 0)
            where = all_of(*inside) if inside else None
            b.cp_async(op.ring, slot + row * op.cols, op.src, begin + row * op.n, PIECE, where=where)

    return turn


@phased(t.CopyRun)
def copy_run(cx: Context, op: t.CopyRun) -> Callable[[], None]:
    b, each = cx.b, 16 // op.ring.dtype.nbytes  # elements of a piece
    step, mine = cx.func.threads * each, b.let("mine", cx.tid * each)
    run = b.let("run", cx.resolve(op.tile) * (op.turns * op.size) + mine)

    def turn() -> None:
        now = cx.resolve(op.turn)
        slot, begin = b.let("slot", now % op.stages * op.size + mine), b.let("begin", run + now * op.size)
        for at in range(0, op.size, step):
            where = (mine + at).lt(op.size) if at + step > op.size else None
            b.cp_async(op.ring, slot + at, op.src, begin + at, each, where=where)

    return turn


def _place(cx: Context, cols: int, each: int) -> tuple[Expr, Expr]:
    """The lane's first row and first column of the tile."""
    b, across = cx.b, cols // (ACROSS * each)
    row = b.let("row", cx.warp // across * TALL + cx.lane // ACROSS * HIGH)
    return row, b.let("col", cx.warp % across * (ACROSS * each) + cx.lane % ACROSS * PIECE)


class _Lane:
    """The lane's part of a turn's slot."""

    def __init__(self, cx: Context, op: t.LoadEntry | t.MultiplyOuter, turn: Expr) -> None:
        self.cx, self.op, self.each, b = cx, op, op.held.size - HIGH, cx.b
        row, col = _place(cx, op.cols, self.each)
        slot = b.let("slot", turn % op.stages)
        self.x = b.let("x0", slot * (op.deep * op.cols) + col)
        self.values = b.let("w0", slot * (op.entries * op.rows) + row)
        self.lists = b.let(
            "l0", slot * list_words(op.entries, op.rows, op.share) + row // op.share * up(op.entries, PIECE)
        )

    def names(self, first: ExprLike) -> tuple[Value, ...]:
        """Rows of x that a piece of the list names."""
        op = self.op
        return self.cx.b.ldv(op.lists, self.lists + first, PIECE, hint="name", lo=0, hi=op.deep - 1)

    def operands(self, entry: ExprLike, name: Value) -> list[Value]:
        """The values of W of an entry, and the columns of the row of x."""
        b, op = self.cx.b, self.op
        at, base = self.values + entry * op.rows, b.let("at", self.x + name * op.cols)
        found = [v for part in range(0, HIGH, PIECE) for v in b.ldv(op.values, at + part, PIECE, hint="w")]
        parts = (base + part * (ACROSS * PIECE) for part in range(self.each // PIECE))
        return found + [v for part in parts for v in b.ldv(op.x, part, PIECE, hint="x")]

    def keep(self, names: Sequence[Value], operands: Sequence[Value]) -> None:
        """What the next piece begins with."""
        for regs, found in ((self.op.names, names), (self.op.held, operands)):
            for i, v in enumerate(found):
                self.cx.b.st(regs, i, v)


@rule(t.LoadEntry)
def load_entry(cx: Context, op: t.LoadEntry) -> None:
    lane = _Lane(cx, op, cx.resolve(op.turn))
    names = lane.names(0)
    lane.keep(names, lane.operands(0, names[0]))


@rule(t.MultiplyOuter)
def multiply_outer(cx: Context, op: t.MultiplyOuter) -> None:
    b, here = cx.b, _Lane(cx, op, cx.resolve(op.turn))
    each, last = here.each, (op.entries - 1) // PIECE * PIECE

    def multiply(found: list[Value]) -> None:
        """Each multiply-add but the first has an operand of the one before, which need not be read again."""
        rows = list(enumerate(found[:HIGH]))
        for c, v in enumerate(found[HIGH:]):
            for r, weight in rows[:: -1 if c % 2 else 1]:
                b.st(op.acc, r * each + c, b.fma(weight, v, b.ld(op.acc, r * each + c, hint="c")))

    def piece(entry: ExprLike, count: int, then: _Lane, after: ExprLike) -> None:
        """The ``count`` entries of a piece; the next one begins ``then`` at entry ``after``."""
        names = [b.ld(op.names, i, hint="name", lo=0, hi=op.deep - 1) for i in range(count)]
        found = [b.ld(op.held, i, hint="f") for i in range(HIGH + each)]
        coming = then.names(after)
        for e in range(1, count):
            ahead = here.operands(entry + e, names[e])
            multiply(found)
            found = ahead
        then.keep(coming, then.operands(after, coming[0]))
        multiply(found)

    if op.coming is None:
        with b.for_("entry", 0, last, PIECE, unroll=1) as entry:
            piece(entry, PIECE, here, b.let("after", entry + PIECE))
    else:
        piece(last, op.entries - last, _Lane(cx, op, cx.resolve(op.coming)), 0)


@rule(t.StoreOuter)
def store_outer(cx: Context, op: t.StoreOuter) -> None:
    b, each = cx.b, op.acc.size // HIGH
    down, across = _place(cx, op.cols, each)
    row, column = b.let("row0", cx.resolve(op.row) + down), b.let("col0", cx.resolve(op.column) + across)
    plain = op.activation == "none" and op.scale is op.bias is op.residual is None

    def total(r: int, c: int) -> Value:
        """A sum.  Stored as it is, nvcc keeps it all along in the register that a store of four wants: in the bank of
        the x that it is added to, which halves the rate of multiply-adds.  So it goes through an instruction more."""
        v = b.ld(op.acc, r * each + c, hint="sum")
        return b.shfl("idx", v, cx.lane, hint="sum") if plain else v

    for r in range(0, HIGH, PIECE):
        rows = range(r, r + PIECE)
        reads = [minimum(row + i, op.m - 1) for i in rows]
        scales, biases = ([of_row(cx, buf, at) for at in reads] for buf in (op.scale, op.bias))
        for part in range(0, each, PIECE):
            sums = [
                [finish(cx, total(i, part + c), scale, bias, op.activation) for c in range(PIECE)]
                for i, scale, bias in zip(rows, scales, biases, strict=True)
            ]
            first = b.let("column", column + part * ACROSS)
            if op.order == "row":
                for i, run in enumerate(sums):
                    _put(cx, op, run, (row + (r + i), first))
            else:
                for c in range(PIECE):
                    _put(cx, op, [run[c] for run in sums], (row + r, first + c))


def _put(cx: Context, op: t.StoreOuter, sums: list[Value], at: tuple[Expr, Expr]) -> None:
    """Adds the residual to four adjacent elements of y, and stores those that exist."""
    b, (row, col), by_row = cx.b, at, op.order == "row"
    for e in range(0, PIECE, op.vec):
        r, c = (row, col + e) if by_row else (row + e, col)
        here = b.let("here", all_of(r.lt(op.m), c.lt(op.n)))
        to = r * op.n + c if by_row else c * op.m + r
        vals = sums[e : e + op.vec]
        if op.residual is not None:
            more = b.ldv(op.residual, to, op.vec, where=here, hint="r")
            vals = [b.binary("add", v, cx.convert(part, f32)) for v, part in zip(vals, more, strict=True)]
        b.st(op.out, to, *(cx.convert(v, op.out.dtype) for v in vals), where=here)
