"""Products with bitmap tiles whose warps share a ring: who fills which slot when, x in a slot and out of it."""

from __future__ import annotations

from typing import TypeVar

from .. import tile_bitmap_block as t
from .. import warp as w
from .. import warp_cluster as wc
from ..expr import TRUE, Expr, Value, all_of, as_expr, minimum, select
from ..numbers.bitmap import CHUNK, INDEX, MASKS, slot_words
from ..numbers.bitmap_block import PIECE, lag, longest
from ..op_spmm import SLAB
from ..swizzle import DEPTH, Tile
from ..types import Buffer, f32, s32, u32
from .bitmap import SLACK, part
from .context import Context, rule

#: How x of a fragment lies for a warpgroup: 8 x 8 elements (8 k of 8 columns) in 128 bytes, the next 8 k behind them,
#: the next 8 columns behind all of a slab's k.
BY_ROWS: Tile = (0, 2 * 8 * PIECE, 2 * SLAB * PIECE)

E = TypeVar("E", Expr, int)


@rule(t.ShareRuns)
def share_runs(cx: Context, op: t.ShareRuns) -> None:
    b = cx.b
    cx.shared += op.shared
    if op.met is not None:
        with b.if_(cx.tid.eq(0)):
            b.emit(w.MbarInit(op.met, as_expr(0), 1))
    number = b.let("number", cx.bx // op.splits)
    run = b.let("run", number // op.tiles)
    units, most = -(-op.strips // op.unit), longest(op.strips, op.runs, op.unit)
    if op.strips % (op.unit * op.runs) == 0:
        first, count = b.let("first", run * most), as_expr(most)
    else:
        each, more = divmod(units, op.runs)  # the first ``more`` runs have one unit more
        first = b.let("first", (run * each + minimum(run, more)) * op.unit, hi=op.strips - 1)
        own = each * op.unit + select(run.lt(more), op.unit, 0)
        count = b.let("count", minimum(own, op.strips - first), lo=1, hi=most)
    with cx.scope():
        cx.env |= {
            op.first: first, op.count: count, op.split: b.let("split", cx.bx % op.splits),
            op.column: b.let("column", number % op.tiles * op.cols),
        }  # fmt: skip
        cx.all(op.body)


class _Ring:
    """A block's ring: its slabs, the copies of one, and which warp makes them."""

    def __init__(self, cx: Context, op: t.WalkBlock) -> None:
        b = self.b = cx.b
        self.cx, self.op, self.warps = cx, op, cx.func.threads // 32  # of the block
        self.row_warps = self.warps // op.parts
        self.first, self.count, split = (cx.resolve(e) for e in (op.first, op.count, op.split))
        self.warp = cx.me()
        self.row_warp = b.let("row_warp", self.warp % self.row_warps)
        self.part = b.let("part", self.warp // self.row_warps)
        strip = b.let("strip", self.row_warp * op.rows)
        # a warp without a strip multiplies another's: in a warpgroup for the three others, else because that is faster
        # than a branch round each strip (77 us for 82 at 28672x8192, 16 columns)
        last = op.rows if op.whole else 1
        self.before = b.let("before", minimum(strip, self.count - last), lo=0, hi=op.most - 1)
        behind = op.rows - 1 if op.whole else minimum(self.count - 1 - self.before, op.rows - 1)
        self.left = b.let("left", behind, lo=0)
        self.begin, end = (b.let(name, part(split + i, op.splits, op.slabs)) for i, name in enumerate(("k0", "k1")))
        self.slabs = b.let("slabs", end - self.begin, lo=0, hi=-(-op.slabs // op.splits))
        #: slots ahead of a slab that are filled when it has been read
        self.reach = op.stages - lag(op.parts, op.late)
        self.ahead = b.alloc("ahead", u32, 2)  # of the warp's next slab to bring: where its chunks begin and end

    def tile(self, slab: Expr) -> Expr:
        """The block's first tile of its slab of a number."""
        op = self.op
        return self.b.let("tile", (self.begin + slab) * op.strips + self.first, lo=0, hi=op.slabs * op.strips - 1)

    def look(self, slab: Expr) -> None:
        """Finds the chunks of a slab."""
        b, op = self.b, self.op
        tile = self.tile(b.let("look", minimum(slab, self.slabs - 1), lo=0))
        for i, at in enumerate((tile, tile + self.count)):
            b.st(self.ahead, i, b.ld(op.index, at * INDEX, cache="nc", hint="place"))

    def fill(self, slab: Expr, slot: Expr) -> None:
        """Starts the copies of a slab: of W by one lane of the warp, of x by all."""
        cx, b, op = self.cx, self.b, self.op
        top = (op.values.size // 2 - SLACK) * CHUNK
        with b.if_(cx.lane.eq(0)):
            begin, end = (b.ld(self.ahead, i, lo=0, hi=top) for i in (0, 1))
            # 16 bytes are two chunks, and a lane may read one chunk past the last
            start = b.let("start", begin // (2 * CHUNK) * 2)
            chunks = b.let("chunks", (end // CHUNK + 3) // 2 * 2 - start, lo=0, hi=op.chunks)
            tile, to = self.tile(slab), b.let("to", slot * slot_words(op.most, op.chunks))
            b.emit(w.MbarArrive(op.bars, slot, self.count * ((INDEX + MASKS) * 4) + chunks * CHUNK))
            for src, at, first, count in (
                (op.index, tile * INDEX, 0, self.count * INDEX),
                (op.masks, tile * MASKS, op.most * INDEX, self.count * MASKS),
                (op.values, start * 2, op.most * (INDEX + MASKS), chunks * 2),
            ):
                b.emit(w.BulkCopy(op.ring, to + first, src, at, count, op.bars, slot))
        with cx.scope():
            cx.env |= {
                op.coming: b.let("coming", self.begin + slab, hi=op.slabs - 1),
                op.to: b.let("to", slot * (SLAB * op.cols)),
            }  # fmt: skip
            cx.all(op.fill)
        b.emit(w.CpArrive(op.bars, slot))

    def refill(self, slab: Expr, who: Expr) -> None:
        """The warp whose turn it is fills the slot ``reach`` ahead, once all warps have left it."""
        b, op = self.b, self.op
        later = b.let("later", slab + self.reach)
        with b.if_(all_of(who.eq(self.row_warp), later.ge(op.stages), later.lt(self.slabs))):
            slot = b.let("slot", later % op.stages)
            b.mbar_wait(op.bars, slot + op.stages, (later // op.stages + 1) % 2)
            if not op.grouped:  # those warps fence before each slab
                # an arrival waits for no load: without a fence the copy overtakes those that other warps have begun
                b.fence("async")
            self.fill(later, slot)
            self.look(later + self.warps)

    def begun(self) -> None:
        """Fills all slots, and looks for the first slab that the warp brings later."""
        b, op = self.b, self.op
        with b.for_("s", self.warp, minimum(self.slabs, op.stages), self.warps, unroll=1) as s:
            self.look(s)
            self.fill(s, s)
        # after its turns row_warp, row_warp + row_warps, ...: of the first one's slot there may be nothing to wait for
        own = b.let("own", self.row_warp * op.parts + self.part + self.reach)
        self.look(select(own.lt(op.stages), own + self.warps, own))


@rule(t.WalkBlock)
def walk_block(cx: Context, op: t.WalkBlock) -> None:
    b = cx.b
    ring = _Ring(cx, op)
    with b.if_(cx.tid.eq(0)):
        with b.for_("s", 0, op.stages) as s:
            b.emit(w.MbarInit(op.bars, s, 1 + 32))
            b.emit(w.MbarInit(op.bars, s + op.stages, ring.row_warps))
        b.fence("mbar_init")
    b.barrier()
    with b.if_(ring.slabs.gt(0)):
        ring.begun()
    # slot, its phase and whose turn it is are counted: a division costs as much as a fragment's masks
    state = b.alloc("state", s32, 3)
    for i, start in enumerate((ring.part, as_expr(0), as_expr(0))):
        b.st(state, i, b.name(start, "start"))
    with cx.scope(), b.for_("slab", ring.part, ring.slabs, op.parts, unroll=1) as slab:
        tops = op.stages - 1, 1, ring.row_warps - 1
        slot, phase, who = (b.ld(state, i, hint=h, lo=0, hi=top)
                            for i, (h, top) in enumerate(zip(("slot", "phase", "who"), tops, strict=True)))  # fmt: skip
        b.mbar_wait(op.bars, slot, phase)
        if op.grouped:
            b.fence("async")
        with cx.scope():
            if op.used is not None:
                cx.env[op.used] = b.let("used", select(slab.eq(0), -1, select(slot.eq(0), op.stages, slot) - 1))
            _body(cx, op, ring, slot)
        if not op.late:
            if op.grouped:
                b.wgmma_wait(0)
            _free(cx, op.bars, slot + op.stages)
        ring.refill(slab, who)
        over = slot.ge(op.stages - op.parts)
        b.st(state, 0, b.name(select(over, slot - (op.stages - op.parts), slot + op.parts), "slot"))
        b.st(state, 1, b.name(select(over, 1 - phase, phase), "phase"))
        b.st(state, 2, b.name(select(who.eq(ring.row_warps - 1), 0, who + 1), "who"))
    if op.late:
        b.wgmma_wait(0)


def _free(cx: Context, bars: Buffer, bar: Expr, where: Expr = TRUE) -> None:
    """A warp has left a slot."""
    b = cx.b
    b.sync()
    with b.if_(all_of(where, cx.lane.eq(0))):
        b.emit(w.MbarArrive(bars, bar))


@rule(t.FreeSlot)
def free_slot(cx: Context, op: t.FreeSlot) -> None:
    cx.b.wgmma_wait(0)
    slot = cx.resolve(op.slot)
    _free(cx, op.bars, slot + op.stages, slot.ge(0))


def _body(cx: Context, op: t.WalkBlock, ring: _Ring, slot: Expr) -> None:
    """What the warp does with its tiles and its x of a slot."""
    b = cx.b
    here = b.let("here", slot * slot_words(op.most, op.chunks))
    place = b.ld(op.ring, here, hint="place", lo=0, hi=op.stored * CHUNK)
    own = {
        op.left: ring.left,
        op.index_at: b.let("index", here + ring.before * INDEX),
        op.masks_at: b.let("masks", here + op.most * INDEX + ring.before * MASKS),
        op.values_at: b.let("values", here + op.most * (INDEX + MASKS)),
        op.base: b.let("base", place // (2 * CHUNK) * 2),
        op.x_at: b.let("x0", slot * (SLAB * op.cols)),
    }  # fmt: skip
    with cx.scope():
        cx.env |= own
        cx.all(op.body)


@rule(t.SumCluster)
def sum_cluster(cx: Context, op: t.SumCluster) -> None:
    b, warp = cx.b, cx.me()
    row_warps, words = cx.func.threads // 32 // op.parts, op.acc.size * 32  # words of a warp's sums
    if op.parts == 1:
        _of_blocks(cx, op, warp, row_warps)
        return
    row_warp, which = b.let("row_warp", warp % row_warps), b.let("which", warp // row_warps)
    b.barrier()  # all warps have left the ring, whose words are the sums' now
    with b.if_(which.gt(0)):
        at = b.let("at", (row_warp * (op.parts - 1) + which - 1) * words + cx.lane * 4, lo=0)
        for i in range(0, op.acc.size, 4):
            b.st(op.sums, at + i * 32, *_bits(cx, op, i))
    b.barrier()
    with b.if_(which.eq(0)):
        for part_ in range(op.parts - 1):
            _add(cx, op, b.let("at", (row_warp * (op.parts - 1) + part_) * words + cx.lane * 4))
    _of_blocks(cx, op, row_warp, row_warps, which.eq(0))


def _of_blocks(cx: Context, op: t.SumCluster, warp: Expr, warps: int, there: Expr = TRUE) -> None:
    """Adds up what the blocks of a cluster have, of warps that are ``there``, ``warps`` of them."""
    b, words = cx.b, op.acc.size * 32
    if op.bars is None:
        cx.guard(there, lambda: cx.all(op.body))
        return
    bars = op.bars
    owner, place = b.let("owner", warp % op.splits), b.let("place", warp // op.splits)
    size = -(-warps // op.splits) * words  # of each of the other blocks
    with b.if_(cx.tid.eq(0)):
        own = (warps - cx.rank + (op.splits - 1)) // op.splits
        b.emit(w.MbarArrive(bars, as_expr(0), own * ((op.splits - 1) * 4 * words)))
    b.emit(wc.ClusterBarrier())  # all blocks have left their rings, whose words are the sums' now
    lane = b.let("lane4", place * words + cx.lane * 4)
    with b.if_(all_of(there, owner.ne(cx.rank))):
        sender = b.let("sender", cx.rank - select(cx.rank.gt(owner), 1, 0), lo=0, hi=op.splits - 2)
        for i in range(0, op.acc.size, 4):
            at = sender * size + lane + i * 32
            b.emit(wc.ClusterSt(op.sums, at, tuple(_bits(cx, op, i)), bars, as_expr(0), owner))
    with b.if_(all_of(there, owner.eq(cx.rank))):
        b.mbar_wait(bars, 0, 0, cluster=True)
        for other in range(op.splits - 1):
            _add(cx, op, other * size + lane)
        cx.all(op.body)


def _bits(cx: Context, op: t.SumCluster, first: int) -> list[Value]:
    """Four of a lane's sums, as words."""
    return [cx.b.bitcast(cx.b.ld(op.acc, first + e, hint="sum"), u32) for e in range(4)]


def _add(cx: Context, op: t.SumCluster, at: Expr) -> None:
    """Adds a lane's sums of another warp to its own; they lie by fours from ``at`` on."""
    b = cx.b
    for i in range(0, op.acc.size, 4):
        for e, v in enumerate(b.ldv(op.sums, at + i * 32, 4, hint="part")):
            b.st(op.acc, i + e, b.binary("add", b.ld(op.acc, i + e, hint="sum"), b.bitcast(v, f32)))


@rule(t.CopyColumns)
def copy_columns(cx: Context, op: t.CopyColumns) -> None:
    b = cx.b
    slab, to, column = (cx.resolve(e) for e in (op.slab, op.to, op.column))
    first = b.let("k0", slab * SLAB)
    if op.order == "column":
        pieces = SLAB // PIECE
        col, piece = b.let("col", cx.lane // pieces), b.let("piece", cx.lane % pieces)
        mine = first + piece * PIECE
        row = b.let("row", minimum(mine, op.k - PIECE) if op.k % SLAB else mine)
        place = b.let("place", to + col * SLAB + (piece ^ (col % 4 * 2)) * PIECE)
        for i in range(0, op.cols, 32 // pieces):
            source = b.let("source", minimum(column + col + i, op.n - 1) * op.k + row)
            b.cp_async(op.dst, place + i * SLAB, op.src, source, PIECE)
        return
    # eight lanes side by side write eight adjacent places
    across = op.cols // PIECE
    wide = min(4, across)
    tall = 32 // wide
    at, piece = b.let("at", cx.lane % tall), b.let("piece", cx.lane // tall)
    row, place = b.let("row", _row(at)), b.let("place", to + piece * (SLAB * PIECE) + at * PIECE)
    for q in range(0, across, wide):
        source = b.let("source", (column + (piece + q) * PIECE) % op.n)
        for i in range(0, SLAB, tall):  # a power of two: which row is at a place is told bit by bit
            here = first + row + _row(i)
            k = b.let("k", minimum(here, op.k - 1) if op.k % SLAB else here)
            b.cp_async(op.dst, place + (q * SLAB + i) * PIECE, op.src, k * op.n + source, PIECE)


def _row(place: E) -> E:
    """The row of a slab at a place of the 64: 16 f + 4 t + j at 16 f + 2 t + j % 2 + 8 (j / 2)."""
    return place // 16 * 16 + place % 8 // 2 * 4 + place // 8 % 2 * 2 + place % 2


@rule(t.LoadColumns)
def load_columns(cx: Context, op: t.LoadColumns) -> None:
    b, blocks, first, at = cx.b, op.cols // 8, cx.resolve(op.first), cx.resolve(op.at)

    def put(f: int, block: int, pair: tuple[Value, ...]) -> None:
        for h, v in enumerate(pair):
            b.st(op.regs, (f * blocks + block) * 2 + h, v)

    if op.order == "column":
        g, lane_t = cx.coordinates()
        for f in range(op.fragments):
            piece = b.let("piece", (first + f) * 2 + lane_t // 2) ^ (g % 4 * 2)
            place = b.let("x", at + g * SLAB + piece * PIECE + lane_t % 2 * 4)
            for block in range(blocks):
                j0, j1, j2, j3 = b.ldv(op.src, place + block * (8 * SLAB), 4, hint="x")
                put(f, block, (b.pack(j0, j1, hint="b"), b.pack(j2, j3, hint="b")))
        return
    wide = 2 if blocks > 1 else 1  # blocks whose matrices come at once
    deep = min(op.fragments, 2 // wide)
    # lanes name rows: 16 of a fragment, then those of the next block, or of the next fragment
    lane = cx.lane % 16 * PIECE + cx.lane // 16 * (SLAB * PIECE if wide > 1 else 16 * PIECE * (deep - 1))
    own = b.let("x", at + first * (16 * PIECE) + lane)
    for f in range(0, op.fragments, deep):
        for block in range(0, blocks, wide):
            out = tuple(b.fresh("b", u32) for _ in range(2 * wide * deep))
            b.emit(w.LdMatrix(out, op.src, own + (f * 16 * PIECE + block * SLAB * PIECE), True))
            for i in range(wide * deep):
                put(f + i // wide, block + i % wide, out[2 * i : 2 * i + 2])


@rule(t.MultiplyFragments)
def multiply_fragments(cx: Context, op: t.MultiplyFragments) -> None:
    b, f = cx.b, cx.resolve(op.fragment)
    regs: Buffer = op.other if f.lo % 2 else op.a
    b.wgmma_fence()
    b.wgmma_rs(
        op.acc, regs, op.src, cx.resolve(op.at) + f * (DEPTH * PIECE), cols=op.cols, b_tile=BY_ROWS, b_major="mn"
    )
    b.wgmma_commit()
