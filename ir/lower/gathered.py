"""Sampled products of gathered columns: copies to a warp's ring, the wait for a tile, its products."""

from __future__ import annotations

from .. import tile_gathered as t
from ..expr import Expr, Value, as_expr
from ..numbers.gathered import COLUMN_BITS
from ..numbers.sampled import CHUNK, GROUP, PHASE, PIECE, TILE, chunks, tiles
from ..swizzle import swizzled
from .context import Context, rule
from .sampled import products


class _Slot:
    """A slot of the warp's ring: 16 columns of b, slice by slice."""

    def __init__(self, cx: Context, op: t.EachGathered | t.MultiplyGathered) -> None:
        item = op.ring.dtype.nbytes
        self.piece, self.cols = PIECE // item, op.width // item
        self.apart = TILE * self.cols
        self.size = self.apart * op.slices
        self.mine = cx.b.let("ring", cx.warp * (op.stages * self.size))
        self.place = swizzled(TILE, op.width, op.width, item)

    def at(self, slot: Expr, row: Expr, piece: Expr) -> Expr:
        """Where a piece of a column begins."""
        across = self.cols // self.piece
        inner = self.place(row, piece % across * self.piece)
        return self.mine + slot * self.size + inner + piece // across * self.apart


@rule(t.EachGathered)
def each_gathered(cx: Context, op: t.EachGathered) -> None:
    b, ahead = cx.b, op.stages - 1
    pieces = chunks(op.nbytes, op.src.dtype.bits) * CHUNK // PIECE
    begin, end = cx.resolve(op.begin), cx.resolve(op.end)
    many = b.let("tiles", tiles(b.let("count", end - begin, lo=0)), hi=op.columns.size // TILE)
    mine, ring = b.let("mine", begin + cx.lane % TILE), _Slot(cx, op)
    g, lane = cx.coordinates()
    which, members = cx.resolve(op.which), op.which.hi + 1
    own_row, none = b.let("own_row", lane * 2 // op.height), b.name(as_expr(op.vectors * members), "none")
    cx.alloc(op.next)
    cx.alloc(op.place)

    def look(tile: Expr) -> Value:
        return b.ld(op.columns, mine + tile * TILE, where=tile.lt(many), cache="nc", hint="column", lo=0)

    def copy(tile: Expr, column: Value) -> None:
        """Starts the copies of a tile, if there is one; they are a group in any case."""
        slot = b.let("slot", tile % op.stages)

        def start() -> None:
            for first in range(0, TILE * pieces, 32):
                number = cx.lane + first
                row, piece = b.let("r", number // pieces), b.let("piece", number % pieces)
                named = b.shfl("idx", column, row, hint="named")
                line = b.let("line", _column(named), lo=0, hi=op.m - 1)
                source = (which * op.m + line) * op.n + (op.column + piece * ring.piece) % op.n
                b.cp_async(op.ring, b.let("to", ring.at(slot, row, piece)), op.src, source, ring.piece)

        cx.guard(tile.lt(many), start)
        b.commit()

    def multiply(tile: Expr) -> None:
        for half in range(TILE // PHASE):
            at = b.let("at", begin + tile * TILE + half * PHASE + g)
            place = b.ld(op.places, at, cache="nc", hint="place")
            if members > 1:
                own = b.name(which * op.vectors + place, "place")
                place = b.select(b.let("real", place.lt(op.vectors)), own, none, hint="place")
            if op.height < GROUP:
                row = b.ld(op.columns, at, cache="nc", hint="row", lo=0) // (1 << COLUMN_BITS)
                place = b.select(b.let("there", row.eq(own_row)), place, none, hint="place")
            b.st(op.place, half, place)
        cx.env[op.slot] = b.let("slot", tile % op.stages)
        cx.all(op.body)

    def there() -> None:
        b.wait(ahead - 1)
        b.sync()  # the columns are there, and those of the tile before have been read

    # One loop, and the copies once in it: a warp has few tiles, and instructions come from L2 the first time.
    b.st(op.next, 0, look(as_expr(0)))
    with cx.scope(), b.for_("turn", 0, many + ahead, unroll=1) as turn:
        cx.guard(turn.ge(ahead), there)
        copy(turn, b.ld(op.next, 0, hint="column", lo=0))
        b.st(op.next, 0, look(turn + 1))
        cx.guard(turn.eq(ahead), lambda: cx.all(op.first))
        cx.guard(turn.ge(ahead), lambda: multiply(b.let("tile", turn - ahead, lo=0)))


def _column(entry: Value) -> Expr:
    """The column of b that an entry of a list names."""
    return entry % (1 << COLUMN_BITS)


@rule(t.MultiplyGathered)
def multiply_gathered(cx: Context, op: t.MultiplyGathered) -> None:
    ring, b = _Slot(cx, op), cx.b
    begin = b.let("row", ring.at(cx.resolve(op.slot), cx.lane % TILE, cx.lane // TILE))
    products(cx, op, op.ring, begin, ring.apart)
