"""Products of strips: copies of a turn, fragments out of a shared tile of x by row address, mma, the end of a tile."""

from __future__ import annotations

from collections.abc import Callable

from .. import tile_strips as t
from .. import warp as w
from ..expr import TRUE, Expr, Value, as_expr, minimum
from ..numbers.strips import BANKS, DEPTH, PIECE, passes, row_bytes
from ..swizzle import swizzled
from ..types import Buffer, u32
from .context import Context, phased, rule

#: Words of a 16-byte piece.
WORDS = 4
#: Rows of a phase of ``ldmatrix`` that lie in one bank, at most: columns are spread over banks as evenly as all strips
#: of a tile let them (sparsegen/products/nm_strips.py), 1.1 to 1.3 on average.
DEGREE = 4


@rule(t.EachBlock)
def each_block(cx: Context, op: t.EachBlock) -> None:
    with cx.scope():
        cx.env[op.block] = cx.bx
        cx.all(op.body)


@phased(t.CopyStrips)
def copy_strips(cx: Context, op: t.CopyStrips) -> Callable[[], None]:
    b, places = cx.b, op.down * op.depth

    def pieces(dst: Buffer, src: Buffer, size: int, wide: int) -> None:
        number = cx.resolve(op.tile) * op.steps + cx.resolve(op.step)
        source = b.let("from", number * size + cx.tid * wide)
        to = b.let("to", cx.resolve(op.slot) * size + cx.tid * wide)
        for first in range(0, size // wide, cx.func.threads):
            at, real = first * wide, (cx.tid + first).lt(size // wide)
            b.cp_async(dst, to + at, src, source + at, wide, where=None if real == TRUE else real)

    def turn() -> None:
        pieces(op.values, op.values_src, places * op.strip // 2, WORDS)
        pieces(op.places, op.places_src, places, PIECE)

    return turn


@phased(t.GatherWindow)
def gather_window(cx: Context, op: t.GatherWindow) -> Callable[[], None]:
    """No branch but where threads have no row: from one nvcc would work out addresses anew, for each copy."""
    b, across, width = cx.b, op.cols // PIECE, row_bytes(op.cols) // 2
    each, high = passes(op.cols, cx.func.threads, op.rows), cx.func.threads // across
    first, piece = b.let("first", cx.tid // across), b.let("piece", cx.tid % across)
    inner = b.let("inner", piece % (width // PIECE) * PIECE)
    real = [(first + i * high).lt(op.rows) if (i + 1) * high > op.rows else None for i in range(each)]
    block, place = piece // (width // PIECE) * (op.rows * width), swizzled(op.rows, 2 * width, 2 * width)
    if high % BANKS:
        own = [b.let("own", block + place(minimum(first + i * high, op.rows - 1), inner)) for i in range(each)]
    else:  # pieces of rows that lie a multiple of 8 apart are exchanged alike
        begin = b.let("own", block + place(minimum(first, op.rows - 1), inner))
        own = [begin + i * (high * width) for i in range(each)]
    assert isinstance(op.turn, Value)
    turns = op.turn

    def look(turn: Expr) -> None:
        """Loads the thread's part of a turn's list."""
        with cx.scope():
            cx.env[turns] = turn
            begin = b.let("list", (cx.resolve(op.tile) * op.steps + cx.resolve(op.step)) * op.rows + first)
            for i, has in enumerate(real):
                named = b.ld(op.lists, begin + i * high, where=has, cache="nc", hint="k", lo=0, hi=op.k - 1)
                b.st(op.listed, i, b.convert(named, u32))

    def turn() -> None:
        column = b.let("column", (cx.resolve(op.column) + piece * PIECE) % op.n)  # lanes' pieces stay side by side
        to = b.let("to", cx.resolve(op.slot) * (op.rows * op.cols))
        for i, has in enumerate(real):
            k = b.ld(op.listed, i, hint="k", lo=0, hi=op.k - 1)
            b.cp_async(op.dst, to + own[i], op.src, k * op.n + column, PIECE, where=has)
        look(b.let("later", minimum(cx.resolve(turns) + 1, turns.hi)))

    look(as_expr(0))
    return turn


class _Warp:
    """A warp's share of a turn: its strip, its columns, and the fragments of both."""

    def __init__(self, cx: Context, op: t.TakeStrips | t.MultiplyStrips) -> None:
        self.cx, self.op, b = cx, op, cx.b
        down, across = op.warps
        self.high, self.deep, self.wide = op.strip // DEPTH, op.depth // DEPTH, op.cols // across // DEPTH
        slot = b.let("slot", cx.resolve(op.slot))
        strip = b.let("strip", cx.warp % down) if across > 1 else cx.warp
        number = b.let("number", slot * down + strip)
        self.values = b.let("w0", number * (op.strip * op.depth // 2) + cx.lane * WORDS)
        self.places = b.let("p0", number * op.depth + cx.lane % DEPTH)
        self.x = b.let("x0", slot * (op.rows * op.cols))
        self.part = b.let("part", cx.warp // down * (op.cols // across)) if across > 1 else as_expr(0)

    def own(self) -> None:
        """Where the lane's row of x begins for each 16 kept columns: of the lanes from 16 on the piece beside."""
        b, op, width = self.cx.b, self.op, row_bytes(self.op.cols) // 2
        inner = b.let("inner", self.part % width + self.cx.lane // DEPTH * PIECE)
        begin = b.let("x0", self.x + self.part // width * (op.rows * width))
        for j in range(self.deep):
            row = b.ld(op.places, self.places + j * DEPTH, hint="place", lo=0, hi=op.rows - 1)
            at = b.let("at", begin + swizzled(op.rows, 2 * width, 2 * width)(row, inner))
            b.st(op.own, j, b.convert(b.name(at, "at"), u32))

    def read(self, number: int) -> None:
        """Reads the fragments of 16 of the columns of x, and with the first of them those of the strip."""
        b, op, width = self.cx.b, self.op, row_bytes(self.op.cols) // 2
        j, q = divmod(number, self.wide)
        if q == 0:
            for i in range(self.high):
                found = b.ldv(op.values, self.values + (j * self.high + i) * (32 * WORDS), WORDS, hint="a")
                for e, v in enumerate(found):
                    b.st(op.a, (j % 2 * self.high + i) * WORDS + e, v)
        row = b.ld(op.own, j, hint="row", lo=0, hi=op.x.size - 1)
        block, inner = divmod(q * DEPTH, width)  # of a part that begins amid a block, the part's width is a power of 2
        at = (row ^ inner) + block * (op.rows * width)
        out = tuple(b.fresh("b", u32) for _ in range(WORDS))
        b.emit(w.LdMatrix(out, op.x, as_expr(at), True, DEGREE))
        for e, v in enumerate(out):
            b.st(op.b, number % 2 * WORDS + e, v)

    def multiply(self, op: t.MultiplyStrips, number: int) -> None:
        """All rows of the strip by these columns."""
        b, (j, q) = self.cx.b, divmod(number, self.wide)
        for i in range(self.high):
            a = [b.ld(op.a, (j % 2 * self.high + i) * WORDS + e, hint="a") for e in range(WORDS)]
            for h in (0, 1):
                x = [b.ld(op.b, number % 2 * WORDS + 2 * h + e, hint="b") for e in (0, 1)]
                self.cx.multiply(op.shape, a, x, op.acc, (i * 2 * self.wide + 2 * q + h) * 4)


@phased(t.TakeStrips)
def take_strips(cx: Context, op: t.TakeStrips) -> Callable[[], None]:
    def take() -> None:
        warp = _Warp(cx, op)
        warp.own()
        warp.read(0)

    return lambda: cx.guard(cx.resolve(op.there), take)


@rule(t.MultiplyStrips)
def multiply_strips(cx: Context, op: t.MultiplyStrips) -> None:
    """The next fragments are on their way while these are multiplied."""

    def products() -> None:
        warp = _Warp(cx, op)
        last = warp.deep * warp.wide - 1
        for number in range(last + 1):
            if number < last:
                warp.read(number + 1)
            warp.multiply(op, number)

    cx.guard(cx.resolve(op.there), products)


@rule(t.FinishTile)
def finish_tile(cx: Context, op: t.FinishTile) -> None:
    def finish() -> None:
        cx.all(op.body)
        cx.clear(op.acc)

    cx.guard(cx.resolve(op.last), finish)
