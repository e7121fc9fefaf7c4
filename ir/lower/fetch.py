"""``tile.fetch`` and ``tile.take``: a turn's data into a slot of the ring, and out of it.

Both have two phases: where a warp's window is, and which cells lie across a border, is worked out once, ahead of the
walk.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import tile_walk as t
from ..boundary_map import map_index
from ..expr import TRUE, Expr, all_of, binary, minimum
from ..layout import Layout, bank_degree
from .across import Across
from .context import Context, phased
from .copy import bring


def warp_slot(cx: Context, size: int, stages: int, turn: Expr) -> Expr:
    """First element of a turn's slot of ``size`` elements, where each warp has a ring of its own."""
    return cx.warp * (stages * size) + turn % stages * size


def block_slot(cx: Context, lines: int, width: int, stages: int, turn: Expr, line: int) -> Expr:
    """First element of a warp's row of a turn's slot, where a slot has the rows of all warps, line by line."""
    warps = cx.func.threads // 32
    return turn % stages * (lines * warps * width) + (line * warps + cx.warp) * width


def lane_pieces(cx: Context, count: int, vector: int) -> list[Expr]:
    """First columns of the pieces of a row that a lane moves: number lane + 32 j, so that lanes lie side by side."""
    return [(cx.lane + 32 * j) * vector for j in range(count)]


def own_degree(place: Layout, nbytes: int, width: int, per_lane: int) -> int:
    """Conflict degree of a lane's accesses to its own adjacent columns, ``width`` at a time."""
    return max(
        bank_degree([place(lane * per_lane + p).lo for lane in range(32)], nbytes, width)
        for p in range(0, per_lane, width)
    )


@phased(t.Fetch)
def fetch(cx: Context, op: t.Fetch) -> Callable[[], None]:
    return {"piece": _by_branch, "predicate": _by_predicate, "whole": _whole}[op.border](cx, op)


def _column(op: t.Fetch, column: Expr, count: int) -> Expr:
    """The first of ``count`` columns to read together for a window's: pieces that divide the extent wrap whole."""
    n = op.grid.extent[-1]
    return minimum(map_index(column, n, op.grid.sides[-1]).index, n - count)


def _by_branch(cx: Context, op: t.Fetch) -> Callable[[], None]:
    """A row of a warp's own ring; where pieces do not divide the extent, cells across a border go one by one, a lane
    each, in the few warps that have some."""
    b, place = cx.b, op.layout
    assert place is not None
    n, vector = op.grid.extent[1], op.vector
    y, first = cx.resolve(op.at[0]), b.let("first", cx.resolve(op.at[1]) + cx.warp * op.step - op.lead[0])
    starts = lane_pieces(cx, op.width // 32 // vector, vector)
    places = [b.let("place", first + start) for start in starts]
    across = Across(first, op.width, op.lead[0], n, vector) if n % vector else None  # windows elsewhere never ask
    clear = b.let("clear", across.clear) if across else TRUE
    pieces = []
    for start, at in zip(starts, places, strict=True):
        column, here = across.piece(at) if across else (_column(op, at, vector), None)
        pieces.append((start, b.let("column", column), None if here is None else b.let("here", here)))
    singles = []
    if across:
        for j in range(0, across.count, 32):
            for cell, local, mine in across.cells(cx.lane + j):
                source = b.let("cell", map_index(cell, n, op.grid.sides[1]).index)
                singles.append((source, b.let("local", place(local)), b.let("mine", mine)))

    def turn() -> None:
        now = cx.resolve(op.turn)
        row = b.let("start", map_index(y - op.above + now, op.grid.extent[0], op.grid.sides[0]).index * op.grid.pitch)
        to = b.let("to", warp_slot(cx, op.ring.size // (cx.func.threads // 32) // op.stages, op.stages, now))
        for start, column, here in pieces:
            bring(cx, op.ring, to + place(start), op.src, row + column, vector, here)

        def single() -> None:
            for cell, local, mine in singles:
                bring(cx, op.ring, to + local, op.src, row + cell, 1, mine)

        cx.guard(clear.eq(0), single)

    return turn


def _whole(cx: Context, op: t.Fetch) -> Callable[[], None]:
    """Rows of a warp's own ring; pieces start at even columns of fields with an even extent, so they wrap whole."""
    b, place, (ny, _), along = cx.b, op.layout, op.grid.extent, op.grid.sides[0]
    assert place is not None
    share = op.ring.size // (cx.func.threads // 32)
    y, first = cx.resolve(op.at[0]), b.let("first", cx.resolve(op.at[1]) + cx.warp * op.step - op.lead[0])
    own = b.let("own", cx.warp * share)
    pieces = op.width // op.vector
    lanes = [cx.lane + 32 * j for j in range(-(-pieces // 32))]
    columns = [b.let("column", _column(op, first + p * op.vector, op.vector)) for p in lanes]

    def turn() -> None:
        now = cx.resolve(op.turn)
        to = b.let("to", own + now % op.stages * (share // op.stages))
        for r in range(op.lines):
            start = b.let("start", map_index(y - op.above + now * op.lines + r, ny, along).index * op.grid.pitch)
            for p, column in zip(lanes, columns, strict=True):
                has = p.lt(pieces)
                at = to + place(r, p * op.vector)
                b.cp_async(op.ring, at, op.src, start + column, op.vector, None if has == TRUE else has)

    return turn


def _by_predicate(cx: Context, op: t.Fetch) -> Callable[[], None]:
    """A warp's rows of a plane; a piece crosses a border whole (even start) unless the extent is odd."""
    b, (nz, ny, nx) = cx.b, op.grid.extent
    z, y, x = map(cx.resolve, op.at)
    straddles = nx % op.vector != 0
    first, pieces = b.let("first", x - op.lead[1]), lane_pieces(cx, op.width // 32 // op.vector, op.vector)
    step = 1 if straddles else op.vector
    rows = [
        b.let("row", map_index(y - op.lead[0] + cx.warp * op.lines + line, ny, op.grid.sides[1]).index * op.grid.pitch)
        for line in range(op.lines)
    ]
    columns = [
        [b.let("column", _column(op, first + piece + e, step)) for e in range(0, op.vector, step)] for piece in pieces
    ]
    whole = [b.let("whole", all_of((first + c).ge(0), (first + c).le(nx - op.vector))) for c in pieces]

    def turn() -> None:
        now = cx.resolve(op.turn)
        plane = b.let("plane", map_index(z - op.above + now, nz, op.grid.sides[0]).index * (ny * op.grid.pitch))
        for line in range(op.lines):
            to = b.let("to", block_slot(cx, op.lines, op.width, op.stages, now, line))
            start = b.let("start", plane + rows[line])
            for piece, column, inside in zip(pieces, columns, whole, strict=True):
                if not straddles:
                    b.cp_async(op.ring, to + piece, op.src, start + column[0], op.vector)
                    continue
                b.cp_async(op.ring, to + piece, op.src, start + column[0], op.vector, where=inside)
                for e, one in enumerate(column):
                    b.cp_async(op.ring, to + piece + e, op.src, start + one, 1, where=binary("==", inside, 0))

    return turn


@phased(t.Take)
def take(cx: Context, op: t.Take) -> Callable[[], None]:
    b, per_lane, wide = cx.b, op.values.size // op.lines, 16 // op.ring.dtype.nbytes
    place = op.layout

    def turn() -> None:
        now = cx.resolve(op.turn)
        for line in range(op.lines):
            if place is not None:
                size = op.ring.size // (cx.func.threads // 32) // op.stages
                row = b.let("here", warp_slot(cx, size, op.stages, now))
            else:
                row = block_slot(cx, op.lines, 32 * per_lane, op.stages, now, line)
            degree = own_degree(place, op.ring.dtype.nbytes, wide, per_lane) if place is not None else 1
            for c in range(0, per_lane, wide):
                at = cx.lane * per_lane + c
                found = b.ldv(op.ring, row + (place(at) if place is not None else at), wide, hint="v", degree=degree)
                for e, v in enumerate(found):
                    b.st(op.values, line * per_lane + c + e, cx.convert(v, op.values.dtype))

    return turn
