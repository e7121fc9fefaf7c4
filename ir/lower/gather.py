"""Products that gather rows of x for warpgroups: the walk over tiles and turns, copies, products, stores."""

from __future__ import annotations

from .. import tile_gather as t
from .. import warp as w
from ..expr import TRUE, Expr, Value, all_of, as_expr, minimum
from ..numbers.gather import COPIERS, GROUP, PIECE, ROWS, SIDE, SIDE_PITCH, STEP, across, row_bytes, rows_each
from ..swizzle import DEPTH, k_major, mn_major, swizzled
from ..types import f32, u16
from .context import Context, rule
from .epilogue import finish, of_row

#: The named barrier of the threads that copy.
COPYING = 1
#: Lanes that have the pairs of a row's 8 columns between them.
QUAD = 4


@rule(t.WalkKept)
def walk_kept(cx: Context, op: t.WalkKept) -> None:
    b = cx.b
    cx.shared += op.shared
    multipliers = op.groups * GROUP // 32  # warps
    with b.if_(cx.tid.eq(0)):
        with b.for_("s", 0, op.stages) as s:
            b.emit(w.MbarInit(op.bars, s, COPIERS + 1))  # each thread's copies, and the bytes of the bulk copy
            b.emit(w.MbarInit(op.bars, s + op.stages, multipliers))
        for which in (0, 1):
            b.emit(w.MbarInit(op.bars, as_expr(2 * op.stages + which), 1))
        b.fence("mbar_init")
    b.barrier()
    walk = _Walk(cx, op)
    with b.if_(b.shfl("idx", cx.warp, 0, hint="me").lt(multipliers)):  # from a shuffle nvcc knows it to be uniform
        walk.multiply()
    with b.else_():
        walk.copy()


class _Walk:
    """The turns of a block: number ``turn`` is step turn % steps of its tile turn // steps, in slot turn % stages."""

    def __init__(self, cx: Context, op: t.WalkKept) -> None:
        self.cx, self.op, b = cx, op, cx.b
        tiles = op.row_tiles * op.col_tiles
        self.most = -(-tiles // op.blocks)
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

    def copy(self) -> None:
        """The warps that copy fill slots as they become empty."""
        cx, b, op = self.cx, self.cx.b, self.op
        for regs in op.registers:
            if regs != op.acc:
                cx.alloc(regs)

        def ahead(tile: Expr) -> None:
            with cx.scope(), b.if_(tile.lt(self.mine)):
                self.at(tile)
                cx.env[op.list] = b.let("list", tile % 2)
                cx.all(op.ahead)

        ahead(as_expr(0))
        with cx.scope(), b.for_("round", 0, self.mine, unroll=1) as tile:
            b.barrier(COPYING, COPIERS)  # the list of the tile before has been read
            ahead(b.let("next", tile + 1))
            which = cx.env[op.list] = b.let("list", tile % 2)
            b.mbar_wait(op.bars, which + 2 * op.stages, tile // 2 % 2)
            self.at(tile)
            first = b.let("first", tile * op.steps, hi=(self.most - 1) * op.steps)
            with b.for_("step", 0, op.steps, unroll=1) as step:
                turn = b.let("turn", first + step, hi=self.most * op.steps - 1)
                slot = self.slot(turn)
                cx.env |= {op.step: step, op.slot: slot}
                cx.all(op.look)
                # of the first turns no slot is in use: the phase before the first counts as over
                b.mbar_wait(op.bars, slot + op.stages, (turn // op.stages + 1) % 2)
                cx.all(op.fill)
                b.emit(w.CpArrive(op.bars, slot))

    def multiply(self) -> None:
        """The warpgroups multiply slots as they become full, one product under way while the next one begins."""
        cx, b, op = self.cx, self.cx.b, self.op
        cx.alloc(op.acc)
        with cx.scope(), b.for_("round", 0, self.mine, unroll=1) as tile:
            cx.clear(op.acc)
            first = b.let("first", tile * op.steps, hi=self.most * op.steps - 1)
            with b.for_("step", 0, op.steps, unroll=1) as step:
                turn = b.let("turn", first + step, hi=self.most * op.steps - 1)
                slot = cx.env[op.slot] = self.slot(turn)
                b.mbar_wait(op.bars, slot, turn // op.stages % 2)
                b.fence("async")  # rows of x came by the generic proxy
                b.wgmma_fence()
                cx.all(op.body)
                b.wgmma_commit()
                b.wgmma_wait(1)
                self.free(turn + (op.stages - 1), step.gt(0))  # the slot of the turn before
            b.wgmma_wait(0)
            self.free(first + (op.steps - 1))
            self.at(tile)
            cx.all(op.done)

    def free(self, turn: Expr, where: Expr = TRUE) -> None:
        """The warp's product in a turn's slot has ended, if there was one: one lane says so for all."""
        b, op = self.cx.b, self.op
        with b.if_(all_of(where, self.cx.lane.eq(0))):
            b.emit(w.MbarArrive(op.bars, self.slot(turn) + op.stages))


def _share(cx: Context, cols: int) -> tuple[Expr, Expr]:
    """The first row of x that the copying thread takes a piece of, and which piece."""
    b, wide = cx.b, across(cols)
    thread = b.let("copier", cx.tid - (cx.func.threads - COPIERS), lo=0)
    return b.let("mine", thread // wide * rows_each(cols)), b.let("piece", thread % wide)


@rule(t.CopyList)
def copy_list(cx: Context, op: t.CopyList) -> None:
    b, words, which = cx.b, op.steps * STEP // 2, cx.resolve(op.list)
    bar = b.let("bar", which + (op.bars.size - 2))
    with b.if_(cx.tid.eq(cx.func.threads - COPIERS)):
        b.emit(w.MbarArrive(op.bars, bar, as_expr(words * op.src.dtype.nbytes)))
        b.emit(w.BulkCopy(op.dst, which * words, op.src, cx.resolve(op.tile) * words, as_expr(words), op.bars, bar))


@rule(t.ListRows)
def list_rows(cx: Context, op: t.ListRows) -> None:
    b, size = cx.b, op.rows.size
    first, _ = _share(cx, op.cols)
    at = b.let("at", (cx.resolve(op.list) * op.steps + cx.resolve(op.step)) * (STEP // 2) + first // 2)
    wide = min(size, 4)
    for e in range(0, size, wide):
        for i, v in enumerate(b.ldv(op.lists, at + e, wide, hint="k")):
            b.st(op.rows, e + i, v)


@rule(t.GatherRows)
def gather_rows(cx: Context, op: t.GatherRows) -> None:
    b, width = cx.b, row_bytes(op.cols) // 2
    first, piece = _share(cx, op.cols)
    column = b.let("column", minimum(cx.resolve(op.column) + piece * PIECE, op.n - PIECE))
    place = swizzled(STEP, 2 * width, 2 * width)
    begin = b.let("begin", cx.resolve(op.slot) * (STEP * op.cols) + piece // (width // PIECE) * (STEP * width))
    inner = b.let("inner", piece % (width // PIECE) * PIECE)
    for i in range(rows_each(op.cols)):
        half = i % 2 if rows_each(op.cols) > 1 else first % 2
        row = b.let("k", (b.ld(op.rows, i // 2, hint="pair") >> half * 16) & 0xFFFF, hi=op.k - 1)
        to = begin + place(b.let("row", first + i), inner)
        b.cp_async(op.dst, to, op.src, row * op.n + column, PIECE)


@rule(t.CopyTile)
def copy_tile(cx: Context, op: t.CopyTile) -> None:
    b, size, slot = cx.b, STEP * ROWS * op.groups, cx.resolve(op.slot)
    with b.if_(cx.tid.eq(cx.func.threads - COPIERS)):
        source = b.let("from", (cx.resolve(op.tile) * op.steps + cx.resolve(op.step)) * size)
        b.emit(w.MbarArrive(op.bars, slot, as_expr(size * op.src.dtype.nbytes)))
        b.emit(w.BulkCopy(op.dst, slot * size, op.src, source, as_expr(size), op.bars, slot))


@rule(t.MultiplyGroup)
def multiply_group(cx: Context, op: t.MultiplyGroup) -> None:
    b, width = cx.b, row_bytes(op.cols)
    group = b.let("group", b.shfl("idx", cx.warp, 0, hint="me") // 4)  # from a shuffle nvcc knows it to be uniform
    slot = cx.resolve(op.slot)
    a = b.let("a0", slot * (STEP * ROWS * op.groups) + group * (STEP * ROWS))
    x = b.let("b0", slot * (STEP * op.cols))
    for k in range(0, STEP, DEPTH):
        b.wgmma(op.acc, op.a, a + k, op.b, x + k * (width // 2), cols=op.cols, a_tile=k_major(2 * STEP),
                b_tile=mn_major(width, STEP), a_major="k", b_major="mn")  # fmt: skip


@rule(t.StoreTile)
def store_tile(cx: Context, op: t.StoreTile) -> None:
    b = cx.b
    g, lane = cx.coordinates()
    first = b.let("row0", cx.resolve(op.tile) * (ROWS * op.groups) + cx.warp * 16 + g)
    column = cx.resolve(op.column)
    for half in (0, 1):
        row = b.let("row", first + 8 * half)
        there = row.lt(op.m)
        read = b.let("read", minimum(row, op.m - 1))  # lanes whose row does not exist take part in exchanges
        scale, bias = (of_row(cx, buf, read) for buf in (op.scale, op.bias))

        def pair(block: int, half: int = half, scale: Value | None = scale, bias: Value | None = bias) -> list[Value]:
            """The lane's two sums of a block of 8 columns, after the epilogue but for the residual."""
            sums = (b.ld(op.acc, 4 * block + 2 * half + e, hint="sum") for e in (0, 1))
            return [finish(cx, v, scale, bias, op.activation) for v in sums]

        if op.vec == 2 * QUAD:
            for block in range(0, op.acc.size // 4, QUAD):
                col = b.let("col", column + 8 * block + lane * 8)
                here = b.let("here", all_of(there, col.lt(op.n)))
                _eight(cx, op, [pair(block + e) for e in range(QUAD)], lane, (row, col, here))
            continue
        for block in range(op.acc.size // 4):
            sums, col = pair(block), b.let("col", column + 8 * block + lane * 2)
            for e in range(0, 2, op.vec):
                _put(cx, op, sums[e : e + op.vec], row, col + e, b.let("here", all_of(there, (col + e).lt(op.n))))


def _eight(
    cx: Context, op: t.StoreTile, pairs: list[list[Value]], lane: Expr, at: tuple[Expr, Expr, Expr]
) -> None:  # fmt: skip
    """Stores eight adjacent columns: the lanes of a quad, each with a pair of four blocks, exchange them.

    Lane q has pair q of each block, and gets all of block q: a transposition of 4 x 4, in two rounds.
    """
    b, (row, col, here) = cx.b, at
    bits = [[b.bitcast(cx.convert(v, op.out.dtype), u16) for v in two] for two in pairs]
    words = [b.pack(low, high, hint="two") for low, high in bits]
    for far in (1, 2):
        odd = b.let("odd", (lane & far).ne(0))
        for z in (0, 1):
            low, high = (2 * z, 2 * z + 1) if far == 1 else (z, z + 2)
            sent = b.select(odd, words[low], words[high])
            got = b.shfl("xor", sent, far)
            words[low], words[high] = b.select(odd, got, words[low]), b.select(odd, words[high], got)
    vals = []
    for word in words:
        for part in (b.binary("and", word, 0xFFFF), b.binary("shr", word, 16)):
            vals.append(b.bitcast(b.convert(part, u16), op.out.dtype))
    b.st(op.out, row * op.n + col, *vals, where=here)


def _put(cx: Context, op: t.StoreTile, vals: list[Value], row: Expr, col: Expr, here: Expr) -> None:
    """Adds the residual to one sum, or to two adjacent ones, and stores them."""
    b = cx.b
    at = row * op.n + col if op.order == "row" else col * op.m + row
    if op.residual is not None:
        more = b.ldv(op.residual, at, len(vals), where=here, hint="r")
        vals = [b.binary("add", v, cx.convert(r, f32)) for v, r in zip(vals, more, strict=True)]
    b.st(op.out, at, *(cx.convert(v, op.out.dtype) for v in vals), where=here)


@rule(t.TurnColumns)
def turn_columns(cx: Context, op: t.TurnColumns) -> None:
    b, warps = cx.b, cx.func.threads // 32
    wide = -(-op.pitch // SIDE)
    k0, n0 = b.let("k0", cx.bx // wide * SIDE), b.let("n0", cx.bx % wide * SIDE)

    def load(k: Expr, n: Expr, at: Expr) -> Value:
        return b.ld(op.src, at, where=all_of(k.lt(op.k), n.lt(op.n)), cache="nc", hint="x")

    def store(k: Expr, n: Expr, v: Value) -> None:
        b.st(op.dst, k * op.pitch + n, v, where=all_of(k.lt(op.k), n.lt(op.pitch)))

    if op.order == "row":  # only further apart: each lane stores what it has loaded
        with b.for_("i", cx.warp, SIDE, warps, unroll=4) as i:
            k, n = k0 + i, n0 + cx.lane
            store(k, n, load(k, n, k * op.n + n))
        return
    cx.shared.append(op.tile)
    with b.for_("i", cx.warp, SIDE, warps, unroll=4) as i:
        k, n = k0 + cx.lane, n0 + i  # lanes lie side by side along what is adjacent in x: rows of a column
        b.st(op.tile, cx.lane * SIDE_PITCH + i, load(k, n, n * op.k + k))
    b.barrier()
    with b.for_("i", cx.warp, SIDE, warps, unroll=4) as i:
        store(k0 + i, n0 + cx.lane, b.ld(op.tile, i * SIDE_PITCH + cx.lane, hint="x"))
