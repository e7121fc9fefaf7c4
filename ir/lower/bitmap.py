"""Products with bitmap tiles: shares, the ring of a warp, x as B fragments, and the decode."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from typing import Final, NamedTuple

from .. import tile_bitmap as t
from .. import warp as w
from ..expr import Expr, Value, all_of, as_expr, minimum
from ..numbers.bitmap import CHUNK, INDEX, MASKS
from ..op_spmm import SLAB
from ..types import f32, u16, u32
from . import bitmap_narrow
from .bitmap_narrow import Pair
from .context import Context, rule

#: Words that a lane copies at once where there are no bulk copies.
PIECE = 4
#: Chunks of zeros behind the last values.
SLACK = 4
#: One bit of each nibble: the elements of a fragment in a lane's mask.
NIBBLES = 0x11111111
#: A mask with a bit in each of four nibbles, times this: the selector of a byte permute of zero and four compressed
#: bytes.  A nibble counts the ones before it, and has 4 more where the mask has a one: then it is the next one of the
#: bytes, else one of zero's (0 to 3).
SPREAD: Final = 0x1114
#: Bits that a fragment's nibbles may be shifted by, so that the product is still whole: its factor is shifted back.
LEAST_SHIFT: Final = 2
#: Selectors that interleave low and high bytes of values 0, 1 and of 2, 3.
FIRST_PAIR, SECOND_PAIR = 0x5140, 0x7362
#: Selectors that join the low, or the high, halves of two registers.
LOW_HALVES, HIGH_HALVES = 0x5410, 0x7632


def part(index: Expr, parts: int, total: Expr | int) -> Expr:
    """Where part ``index`` of ``parts`` begins, of ``total`` things shared as evenly as they come."""
    return index * total // parts


@rule(t.ShareStrips)
def share_strips(cx: Context, op: t.ShareStrips) -> None:
    b = cx.b
    cx.shared += op.shared
    run = b.let("run", cx.bx // (op.splits * op.tiles))
    first = b.let("first", part(run, op.groups, op.strips))
    count = b.let("count", part(run + 1, op.groups, op.strips) - first, lo=0, hi=-(-op.strips // op.groups))
    with cx.scope():
        cx.env |= {
            op.first: first, op.count: count, op.split: b.let("split", cx.bx // op.tiles % op.splits),
            op.column: b.let("column", cx.bx % op.tiles * op.cols),
        }  # fmt: skip
        cx.all(op.body)


class _Ring:
    """A warp's ring: its strips, its turns, the copies of a turn."""

    def __init__(self, cx: Context, op: t.WalkSlabs) -> None:
        b = self.b = cx.b
        self.cx, self.op = cx, op
        # the same in all lanes, and from a shuffle nvcc knows it: no branch that depends on it then needs a way round
        warp = cx.me()
        row_warp, slab_warp = b.let("row_warp", warp % op.row_warps), b.let("slab_warp", warp // op.row_warps)
        first, count, split = (cx.resolve(e) for e in (op.first, op.count, op.split))
        before = b.let("before", part(row_warp, op.row_warps, count))
        self.own = b.let("own", first + before, hi=op.strips)
        self.mine = b.let("mine", part(row_warp + 1, op.row_warps, count) - before, lo=0, hi=op.rows)
        self.begin = b.let("begin", part(split, op.splits, op.slabs) + slab_warp)
        end = part(split + 1, op.splits, op.slabs)
        left = b.let("left", end - self.begin + (op.slab_warps - 1), lo=0)  # none begins further past the end
        most = -(-op.slabs // op.slab_warps)
        self.turns = b.let("turns", left // op.slab_warps * minimum(self.mine, 1), hi=most)
        self.bar = b.let("bar", warp * op.stages)
        self.ahead = b.alloc("ahead", u32, 2)  # of turn i: where its chunks begin and end, in lane i % 32

    def slab(self, turn: Expr) -> Expr:
        return self.begin + turn * self.op.slab_warps

    def tile(self, turn: Expr) -> Expr:
        """The warp's first tile of a turn."""
        op = self.op
        return self.b.let("tile", self.slab(turn) * op.strips + self.own, hi=op.slabs * op.strips - 1)

    def look(self, turn: Expr) -> None:
        """Each lane finds the chunks of one of the next 32 turns."""
        b, op = self.b, self.op
        tile = self.tile(b.let("look", minimum(turn + self.cx.lane, self.turns - 1), lo=0))
        for i, at in enumerate((tile, tile + self.mine)):
            b.st(self.ahead, i, b.ld(op.index, at * INDEX, cache="nc", hint="place"))

    def fetch(self, turn: Expr, stage: Expr) -> None:
        """Starts the copies of a turn: of the index, the masks and the values of the warp's strips."""
        b, op = self.b, self.op
        top = (op.values.size // 2 - SLACK) * CHUNK
        places = [b.ld(self.ahead, i, lo=0, hi=top) for i in (0, 1)]
        begin, end = (b.shfl("idx", place, turn % 32, hint="place") for place in places)
        with b.if_(self.cx.lane.eq(0)) if op.bars else nullcontext():
            # 16 bytes are two chunks, and a lane may read one chunk past the last
            start = b.let("start", begin // (2 * CHUNK) * 2)
            chunks = b.let("chunks", (end // CHUNK + 3) // 2 * 2 - start, lo=0, hi=op.chunks)
            tile, bar, slot = self.tile(turn), self.bar + stage, self.slot(stage)
            if op.bars:
                b.emit(w.MbarArrive(op.bars, bar, self.mine * ((INDEX + MASKS) * 4) + chunks * CHUNK))
            for src, at, to, count in (
                (op.index, tile * INDEX, slot, self.mine * INDEX),
                (op.masks, tile * MASKS, slot + op.rows * INDEX, self.mine * MASKS),
                (op.values, start * 2, slot + op.rows * (INDEX + MASKS), chunks * 2),
            ):
                if op.bars:
                    b.emit(w.BulkCopy(op.ring, to, src, at, count, op.bars, bar))
                    continue
                with b.for_("piece", self.cx.lane * PIECE, count, 32 * PIECE) as piece:
                    b.cp_async(op.ring, to + piece, src, at + piece, PIECE)

    def slot(self, stage: Expr) -> Expr:
        """First word of a stage's slot."""
        return (self.bar + stage) * self.op.slot_words


@rule(t.WalkSlabs)
def walk_slabs(cx: Context, op: t.WalkSlabs) -> None:
    b, ring = cx.b, _Ring(cx, op)
    if op.bars:
        with b.if_(cx.lane.eq(0)):
            with b.for_("s", 0, op.stages) as s:
                b.emit(w.MbarInit(op.bars, ring.bar + s, 1))
            b.fence("mbar_init")
        b.sync()

    def ahead(slab: Expr) -> None:
        cx.env[op.coming] = slab
        cx.all(op.ahead)

    with b.if_(ring.turns.gt(0)):
        ring.look(as_expr(0))
        ahead(ring.begin)
    if op.bars:
        with b.for_("s", 0, minimum(ring.turns, op.stages)) as s:
            ring.fetch(s, s)
    else:  # a group for each stage, if need be an empty one, so that those of later turns can be counted
        with b.for_("s", 0, op.stages, unroll=1) as s:
            with b.if_(s.lt(ring.turns)):
                ring.fetch(s, s)
            b.commit()
    with cx.scope(), b.for_("turn", 0, ring.turns, unroll=1) as turn:
        stage = b.let("stage", turn % op.stages)
        cx.env[op.slab], cx.env[op.mine] = b.let("slab", ring.slab(turn), hi=op.slabs - 1), ring.mine
        slot = cx.env[op.slot] = b.let("slot", ring.slot(stage))
        cx.all(op.early)
        if op.bars:
            b.mbar_wait(op.bars, ring.bar + stage, turn // op.stages % 2)
        else:
            b.wait(op.stages - 1)
            b.sync()
        place = b.ld(op.ring, slot, hint="place", lo=0, hi=op.stored * CHUNK)
        cx.env[op.base] = b.let("base", place // (2 * CHUNK) * 2)
        cx.all(op.body)
        if op.ahead:
            with b.if_((turn + 1).lt(ring.turns)):
                ahead(b.let("coming", ring.slab(turn + 1), hi=op.slabs - 1))
        b.sync()  # all lanes have read the slot before it is filled again
        later = b.let("later", turn + op.stages)
        with b.if_(later.lt(ring.turns)):
            with b.if_((later % 32).eq(0)):
                ring.look(later)
            ring.fetch(later, stage)
        if not op.bars:
            b.commit()


@rule(t.FetchColumns)
def fetch_columns(cx: Context, op: t.FetchColumns) -> None:
    b, by_rows = cx.b, op.order == "row"
    g, lane_t = cx.coordinates()
    first = b.let("k0", cx.resolve(op.slab) * SLAB + lane_t * 4)
    all_there = op.end is None and op.n % (8 * op.blocks) == 0
    # the other columns of the fragment are dropped, whatever they are
    same = op.end is None and op.n == 1 and op.blocks == 1
    left = as_expr(0) if same else b.let("n0", cx.resolve(op.column) + g * op.blocks)
    end = as_expr(op.n) if op.end is None else cx.resolve(op.end)
    length = op.blocks if by_rows else 4
    wide = min(op.vec, length)

    def load(f: int, j: int, n: int) -> tuple[Value, ...]:
        """``wide`` neighbours, along a row or along a column, from row 16 f + j and column n of the lane's on."""
        row, col = first + (16 * f + j), left + n
        inside = [] if op.k % SLAB == 0 else [row.lt(op.k)]
        inside += [] if same or all_there else [col.lt(end)]
        at = row * op.n + col if by_rows else col * op.k + row
        return b.ldv(op.x, at, wide, where=all_of(*inside) if inside else None, cache="nc", hint="x")

    for i, (f, run) in enumerate(product(range(4), range(4 if by_rows else op.blocks))):
        found: list[Value] = []
        for e in range(0, length, wide):
            found += load(f, run, e) if by_rows else load(f, e, run)
        if length == 1:
            b.st(op.raw, i, b.convert(b.bitcast(found[0], u16), u32))
        for e in range(0, length - 1, 2):
            b.st(op.raw, (i * length + e) // 2, b.pack(found[e], found[e + 1], hint="pair"))


@rule(t.PackColumns)
def pack_columns(cx: Context, op: t.PackColumns) -> None:
    b = cx.b
    cx.alloc(op.regs)
    if op.regs.dtype is f32:
        for i in range(8):
            for e, v in enumerate(cx.halves(b.ld(op.raw, i, hint="pair"), op.dtype)):
                b.st(op.regs, 2 * i + e, v)
        return
    words = (op.blocks + 1) // 2  # of a row's elements
    for f in range(4):
        for n in range(op.blocks):
            for h in (0, 1):
                at = (f * op.blocks + n) * 2 + h
                if op.order == "column":
                    b.st(op.regs, at, b.ld(op.raw, at, hint="b"))
                    continue
                low, high = (b.ld(op.raw, (f * 4 + 2 * h + e) * words + n // 2, hint="x") for e in (0, 1))
                b.st(op.regs, at, b.prmt(low, high, HIGH_HALVES if n % 2 else LOW_HALVES, hint="b"))


def exclusive(cx: Context, v: Value) -> Value:
    """The sum of ``v`` over the lanes before, in 32 bits."""
    b = cx.b
    total = v
    for far in (1, 2, 4, 8, 16):
        total = b.shfl("scan", total, far, hint="scan")
    return b.binary("sub", total, v, hint="before")


class _Four(NamedTuple):
    """A lane's values of four elements as they lie in the ring: two chunks, of which they begin ``shift`` bits into
    each plane's first word, and where the elements are."""

    low: tuple[Value, ...]
    high: tuple[Value, ...]
    shift: Value
    mask: Value


class _Decoder:
    """Decodes the tiles of one slot."""

    def __init__(self, cx: Context, op: t.ExpandBitmap) -> None:
        b = self.b = cx.b
        self.cx, self.op = cx, op
        self.index, self.masks, self.mine = (cx.resolve(e) for e in (op.index, op.masks, op.mine))
        #: added to what the index says, it gives bytes in the ring
        values = b.convert(b.name(cx.resolve(op.values) * 4, "bytes"), u32)
        base = b.convert(b.name(cx.resolve(op.base), "base"), u32)
        self.shift = b.binary("sub", values, b.binary("mul", base, CHUNK), hint="shift")  # the index wraps as well
        self.next = b.alloc("next", u32, 2)  # of the strip to come: its mask, the values of the lanes before

    def look(self, strip: Expr) -> None:
        """The lane's mask of a strip, and how many values the lanes before have, a byte for each fragment."""
        b, op = self.b, self.op
        here = strip.lt(self.mine) if strip != as_expr(0) and op.left is None else None
        place = self.masks + self.tile(strip) * MASKS + self.cx.lane
        word = b.ld(op.ring, place, where=here, hint="mask")
        packed = None
        for f in range(4):  # of all lanes before 248 at most: it fits a byte
            ones = b.unary("popc", b.binary("and", word, NIBBLES << f), hint="ones")
            packed = b.binary("add", packed, b.binary("shl", ones, 8 * f)) if packed else ones
        assert packed is not None
        b.st(self.next, 0, word)
        b.st(self.next, 1, exclusive(self.cx, packed))

    def tile(self, strip: Expr) -> Expr:
        """The tile that is a strip's."""
        return strip if self.op.left is None else minimum(strip, self.cx.resolve(self.op.left))

    def nibbles(self, word: Value, f: int) -> Value:
        """The lane's elements of fragment f, one in each nibble, shifted by f bits or LEAST_SHIFT."""
        over = f - min(f, LEAST_SHIFT)
        moved = self.b.binary("shr", word, over) if over else word
        return self.b.binary("and", moved, NIBBLES << (f - over), hint="x")

    def strip(self, strip: Expr) -> None:
        """All fragments of a tile, and between them the next strip's look ahead."""
        cx, b, op = self.cx, self.b, self.op
        places = b.ldv(op.ring, self.index + self.tile(strip) * INDEX, INDEX, hint="place")
        word, before = b.ld(self.next, 0, hint="mask"), b.ld(self.next, 1, hint="before")
        with b.if_((strip + 1).lt(op.rows)):
            self.look(strip + 1)
        found = self.fetch(word, before, places, 0)
        if op.begun:
            cx.guard(strip.eq(0), lambda: cx.all(op.begun))
        for f in range(4):
            regs, here = (op.other if op.other is not None and f % 2 else op.a), found
            if op.early and f < 3:
                found = self.fetch(word, before, places, f + 1)
            if op.other is not None and f > 1:
                b.wgmma_wait(1)
            rows = [self.expand(part, f) for part in here]  # g and g + 8
            for column in (0, 1):
                for row in (0, 1):
                    b.st(regs, column * 2 + row, rows[row][column])
            cx.env |= {op.strip: strip, op.fragment: as_expr(f)}
            cx.all(op.body)
            if not op.early and f < 3:
                found = self.fetch(word, before, places, f + 1)

    def fetch(self, word: Value, before: Value, places: Sequence[Value], f: int) -> tuple[_Four | Pair, _Four | Pair]:
        """The lane's values of fragment f as they lie in the ring, those of rows g and of rows g + 8; of 8 bits they
        are expanded at once."""
        b, narrow = self.b, self.op.narrow
        x = self.nibbles(word, f)
        upper = b.binary("shr", x, 16, hint="upper")
        at, item = b.fresh("at", u32, 0, self.op.ring.size * 4), 1 if narrow else 2  # bytes of an element
        b.emit(w.Dp4a((at,), before, as_expr(item << (8 * f)), b.binary("add", places[f], self.shift)))
        if narrow:
            spread = self.selector(upper, f), self.selector(x, f)
            return bitmap_narrow.rows(self.cx, self.op.ring, at, upper, spread, narrow)
        after = b.fresh("at", u32, 0, self.op.ring.size * 4)
        b.emit(w.Binary((after,), "add", at, b.binary("shl", b.unary("popc", upper), 1)))
        return self.four(at, upper), self.four(after, x)

    def selector(self, mask: Value, f: int) -> Value:
        """The selector that spreads four bytes to where the low four nibbles of ``mask``, of fragment f, are 1."""
        return self.b.binary("mul", mask, SPREAD >> min(f, LEAST_SHIFT), hint="sel")

    def four(self, at: Value, mask: Value) -> _Four:
        """The values of the low four nibbles of ``mask``, compressed.

        They begin at byte ``at`` of the ring, were it one of two-byte values.
        """
        b = self.b
        place = at // CHUNK * 2
        # a lane spans 16 bytes at most: 16 lanes reach over 256, twice what the banks hold
        low = b.ldv(self.op.ring, place, 2, hint="low", degree=2)
        high = b.ldv(self.op.ring, place + 2, 2, hint="high", degree=2)
        return _Four(low, high, b.binary("shl", at, 2, hint="shift"), mask)

    def expand(self, found: _Four | Pair, f: int) -> Pair:
        """Four values of fragment f, zeros included, two a register."""
        if not isinstance(found, _Four):
            return found
        b, sel = self.b, self.selector(found.mask, f)
        planes: list[Value] = []
        for lo, hi in zip(found.low, found.high, strict=True):
            aligned = b.funnel(lo, hi, found.shift, hint="bytes")
            planes.append(b.prmt(0, aligned, sel, hint="plane"))
        first, second = (b.prmt(planes[0], planes[1], which, hint="pair") for which in (FIRST_PAIR, SECOND_PAIR))
        return first, second


@rule(t.ExpandBitmap)
def expand_bitmap(cx: Context, op: t.ExpandBitmap) -> None:
    decoder = _Decoder(cx, op)
    decoder.look(as_expr(0))
    with cx.scope(), cx.b.for_("strip", 0, op.rows, unroll=0) as strip:
        cx.guard(strip.lt(decoder.mine), lambda: decoder.strip(strip))


@rule(t.MultiplyFragment)
def multiply_fragment(cx: Context, op: t.MultiplyFragment) -> None:
    b, strip, f = cx.b, cx.resolve(op.strip), cx.resolve(op.fragment)
    a = [b.ld(op.a, r, hint="a") for r in range(4)]
    if op.shape == "none":
        _multiply_column(cx, op, a, strip, f)
        return
    first = f * op.blocks if op.x.size == 8 * op.blocks else as_expr(0)
    for n in range(op.blocks):
        xs = [b.ld(op.x, (first + n) * 2 + h, hint="b") for h in (0, 1)]
        cx.multiply(op.shape, a, xs, op.acc, (strip * op.blocks + n) * 4)


def _multiply_column(cx: Context, op: t.MultiplyFragment, a: list[Value], strip: Expr, f: Expr) -> None:
    """Multiply-adds in f32: of A, registers 0 and 2 are row g, 1 and 3 row g + 8."""
    b = cx.b
    for row in (0, 1):
        total = b.ld(op.acc, strip * 2 + row, hint="c")
        for column in (0, 1):
            for i, value in enumerate(cx.halves(a[column * 2 + row], op.dtype)):
                total = b.fma(value, b.ld(op.x, f * 4 + (2 * column + i), hint="x"), total)
        b.st(op.acc, strip * 2 + row, total)
