"""Copies of planes of updates on three axes: tiles with their halo into rings, a thread's own cells into its slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from .. import tile_layers as t
from ..boundary_map import EDGE, Mapped, elsewhere, map_index
from ..expr import FALSE, TRUE, Expr, all_of, any_of, maximum, minimum, select
from ..layout import bank_degree
from .across import Across
from .context import Context, phased
from .copy import bring
from .ghosts import place_of


@dataclass(frozen=True)
class _Piece:
    """A piece of a thread: its place in a slot, and what of it no turn changes."""

    valid: Expr
    place: Expr
    column: Expr  # the first cell that is read where all of them are inside
    line: Mapped
    start: Expr  # the first element of its row in a plane
    whole: Expr  # predicate: all cells lie inside along the row, and so does the row
    image: Expr  # the cell that stands for the first one where the piece lies outside, and how the others follow
    way: Expr
    inside: Mapped  # of the first cell


@phased(t.FetchLayer)
def fetch_layer(cx: Context, op: t.FetchLayer) -> Callable[[], None]:
    b, (nz, ny, _), z_sides = cx.b, op.grid.extent, op.grid.sides[0]
    z = cx.resolve(op.at[0])
    size = (op.rows + 2 * op.halo[0]) * (op.cols + 2 * op.halo[1])
    cells = _cells(cx, op) if op.vector == 1 else None
    window = None
    if op.vector > 1 and op.grid.extent[2] % op.piece and not op.grid.ghosts:
        first, width = cx.resolve(op.at[2]) - op.halo[1], op.cols + 2 * op.halo[1]
        window = Across(first, width, op.halo[1] + op.rim, op.grid.extent[2], op.piece)
    pieces, singles = _pieces(cx, op, window) if not cells else [], _singles(cx, op, window) if window else []

    def turn() -> None:
        now = cx.resolve(op.turn)
        plane = map_index(z + now + op.ahead, nz, z_sides)
        there = plane.inside if plane.inside == TRUE else b.let("there", plane.inside)
        base = b.let("plane", plane.index * (ny * op.grid.pitch))
        slot = b.let("slot", op.skew + now % op.stages * size)
        if cells:
            cells(plane, base, slot)
        for piece in pieces:

            def move(piece: _Piece = piece) -> None:
                to, source = slot + piece.place, base + piece.start
                copy = partial(b.cp_async, op.ring, to, op.src, source + piece.column, op.piece)
                other = partial(_across, cx, op, to, source, piece, plane)
                if window:  # pieces lie inside along their rows
                    other = partial(_constant, cx, op, to, (plane, piece.line))
                cx.branch(all_of(piece.whole, there), copy, other)

            cx.guard(piece.valid, move)
        for single in singles:

            def one(single: _Single = single) -> None:
                axes = (plane, single.line, single.column)
                _cell(cx, op, slot + single.place, base + single.source, axes, single.degree)

            cx.guard(single.valid, one)

    return turn


def _cells(cx: Context, op: t.FetchLayer) -> Callable[[Mapped, Expr, Expr], None]:
    """Copies of single cells: a warp's rows of the tile and halo are ``warps`` apart, its lanes side by side.

    Of a row that lies inside those of a lane are a constant apart, and need one address: a copy whose address is worked
    out for it alone waits for registers that an earlier copy has yet to read.
    """
    b, (_, ny, nx), (_, y_sides, x_sides) = cx.b, op.grid.extent, op.grid.sides
    _, y, x = map(cx.resolve, op.at)
    warps, rows, width = cx.func.threads // 32, op.rows + 2 * op.halo[0], op.cols + 2 * op.halo[1]
    first = x - op.halo[1]
    inner = b.let("inner", all_of(first.ge(0), (first + width).le(nx)))
    lines, columns = [], []
    for i in range(0, rows, warps):
        line = map_index(y - op.halo[0] + (cx.warp + i), ny, y_sides)
        lines.append((cx.warp + i, line, b.let("start", line.index * op.grid.pitch)))
    for j in range(0, width, 32):
        cell = map_index(first + (cx.lane + j), nx, x_sides)
        columns.append((cx.lane + j, cell, b.let("column", cell.index)))

    def copy(plane: Mapped, base: Expr, slot: Expr) -> None:
        def move(row: Expr, local: Expr, axes: tuple[Mapped, ...], source: Expr) -> None:
            to = slot + row * width + local
            cx.guard(all_of(row.lt(rows), local.lt(width)), lambda: _cell(cx, op, to, source, axes, 1))

        def within() -> None:
            for row, line, start in lines:
                at = b.let("at", base + start + (first + cx.lane))
                for j, (local, *_) in enumerate(columns):
                    move(row, local, (plane, line), at + 32 * j)

        def across() -> None:
            for row, line, start in lines:
                for local, cell, column in columns:
                    move(row, local, (plane, line, cell), base + start + column)

        cx.branch(inner, within, across)

    return copy


def _pieces(cx: Context, op: t.FetchLayer, window: Across | None) -> list[_Piece]:
    """The pieces of a plane's tile and halo that this thread copies."""
    b, (_, ny, nx), (_, y_sides, x_sides) = cx.b, op.grid.extent, op.grid.sides
    _, y, x = map(cx.resolve, op.at)
    (halo, lead), threads = op.halo, cx.func.threads
    across = (op.cols + 2 * lead) // op.piece  # pieces of a row of the tile, and of a row of the halo
    beside = across if op.corners else op.cols // op.piece
    inner, total = op.rows * across, op.rows * across + 2 * halo * beside
    far = nx + lead + op.rim  # nothing that counts is made of pieces from here on
    found = []
    for i in range(-(-total // threads)):
        number = cx.tid + i * threads
        # the rows of the tile come first, then those above and below it
        within, rest = number.lt(inner), maximum(number - inner, 0)
        outer = select((rest // beside).lt(halo), rest // beside, rest // beside + op.rows)
        row = b.let("row", select(within, halo + number // across, outer) if halo else number // across)
        first = 0 if op.corners else lead // op.piece
        piece = select(within, number % across, first + rest % beside) if halo else number % across
        piece = b.let("piece", piece)
        column = b.let("column", x - lead + piece * op.piece)
        line, valid = map_index(y - halo + row, ny, y_sides), number.lt(total)
        inside = all_of(column.ge(0), column.le(nx - op.piece))
        if op.grid.ghosts:
            column, inside = b.let("place", place_of(op.grid, column, op.piece)), TRUE
        elif window is not None:
            column, here = window.piece(column)
            column, valid, inside = b.let("column", column), b.let("valid", all_of(valid, here)), TRUE
        else:
            behind, near = column.ge(far), column
            if x_sides[0][0] == "periodic":  # pieces wrap whole
                near, inside = minimum(map_index(column, nx, x_sides).index, nx - op.piece), TRUE
            column = b.let("column", select(behind, elsewhere(column, nx, op.piece), near))
            inside = any_of(inside, behind)
        place = b.let("place", row * (op.cols + 2 * lead) + piece * op.piece)
        start = b.let("start", line.index * op.grid.pitch)
        whole = b.let("whole", all_of(inside, line.inside))
        cell = map_index(column, nx, x_sides)
        step = {"neumann": -1, "frozen": 0}  # an image runs the other way, and the edge stays where it is
        low, high = (step.get(kind, 1) for kind, _ in x_sides)
        way = b.let("way", select(column.lt(0), low, select(column.ge(nx), high, 1)))
        # of pieces so far outside that nothing reads them any cells are copied
        image = b.let("image", maximum(cell.index, select(way.lt(0), op.piece - 1, 0)))
        found.append(_Piece(valid, place, column, line, start, whole, image, way, cell))
    return found


@dataclass(frozen=True)
class _Single:
    """A cell across a border, of a thread: its place in a slot, and what it is read from in a plane."""

    valid: Expr
    place: Expr
    source: Expr
    line: Mapped
    column: Mapped
    degree: int  # lanes of a warp that meet in a bank


def _singles(cx: Context, op: t.FetchLayer, window: Across) -> list[_Single]:
    """The cells of a plane's tile and halo that this thread copies one by one, in blocks that have some."""
    b, (_, ny, nx), (_, y_sides, x_sides) = cx.b, op.grid.extent, op.grid.sides
    rows, width, found = op.rows + 2 * op.halo[0], op.cols + 2 * op.halo[1], []
    for i in range(0, rows * window.count, cx.func.threads):
        number = cx.tid + i
        row = b.let("row", number // window.count)
        degree = max(
            bank_degree([n // window.count * width + n % window.count for n in range(w, w + 32)], op.ring.dtype.nbytes)
            for w in range(i, i + cx.func.threads, 32)
        )
        for cell, local, mine in window.cells(number % window.count):
            line = map_index(cx.resolve(op.at[1]) - op.halo[0] + row, ny, y_sides)
            column = map_index(cell, nx, x_sides)
            source = b.let("source", line.index * op.grid.pitch + column.index)
            valid = b.let("single", all_of(window.clear.eq(0), row.lt(rows), mine))
            found.append(_Single(valid, b.let("place", row * width + local), source, line, column, degree))
    return found


def _across(cx: Context, op: t.FetchLayer, to: Expr, source: Expr, piece: _Piece, plane: Mapped) -> None:
    """A piece that is not copied at once: an image is copied cell by cell, a constant is written instead."""

    def copied() -> None:
        for e in range(op.piece):
            bring(cx, op.ring, to + e, op.src, source + (piece.image + piece.way * e), 1, degree=op.piece)

    axes = (plane, piece.line, piece.inside)
    cx.branch(all_of(*(m.inside for m in axes)), copied, lambda: _constant(cx, op, to, axes))


def _constant(cx: Context, op: t.FetchLayer, to: Expr, axes: tuple[Mapped, ...]) -> None:
    """The constant of the slowest axis along which a piece lies outside."""
    b, held = cx.b, _constants(axes)
    value = b.const(op.ring.dtype, next(iter(held)) if len(held) == 1 else 0.0, hint="outside")
    for m in reversed(axes) if len(held) > 1 else ():
        for side, constant in ((m.below, m.low), (m.below.eq(0), m.high)):
            out = all_of(m.inside.eq(0), side) if m.inside != TRUE else FALSE
            if out != FALSE:
                value = b.select(b.let("out", out), b.const(op.ring.dtype, constant, hint="outside"), value)
    # lanes write adjacent pieces; two rows meet where those of the tile end
    b.st(op.ring, to, *[value] * op.piece, degree=2)


def _constants(axes: Iterable[Mapped]) -> set[float]:
    """What stands for cells outside."""
    return {constant for m in axes if m.inside != TRUE for constant in (m.low, m.high)}


def _cell(
    cx: Context, op: t.FetchLayer, to: Expr, source: Expr, axes: tuple[Mapped, ...], degree: int
) -> None:  # fmt: skip
    """Copies one cell, or writes the constant that it holds: that of the slowest axis that lies outside."""
    b = cx.b
    inside = all_of(*(m.inside for m in axes))
    where = b.let("inside", inside) if inside != TRUE else TRUE
    bring(cx, op.ring, to, op.src, source, 1, None if where == TRUE else where, degree)
    if len(held := _constants(axes)) == 1:  # wherever the cell lies
        outside = b.let("out", where.eq(0))
        b.st(op.ring, to, b.const(op.ring.dtype, held.pop(), hint="outside"), where=outside, degree=degree)
        return
    taken: Expr = FALSE
    for m in (m for m in axes if m.inside != TRUE):
        for beyond, constant in ((m.below, m.low), (m.below.eq(0), m.high)):
            out = all_of(m.inside.eq(0), beyond, taken.eq(0))
            if out != FALSE:
                value = b.const(op.ring.dtype, constant, hint="outside")
                b.st(op.ring, to, value, where=b.let("out", out), degree=degree)
        taken = any_of(taken, m.inside.eq(0))


@phased(t.FetchOwn)
def fetch_own(cx: Context, op: t.FetchOwn) -> Callable[[], None]:
    b, (nz, ny, nx) = cx.b, op.grid.extent
    z, y, x = map(cx.resolve, op.at)
    rows = [minimum(y + cx.warp * op.lines + line, ny - 1) for line in range(op.lines)]
    single = op.vector == 1  # then a lane copies cells beside its neighbours', for whatever lane has them
    cells = [cx.lane + 32 * e for e in range(op.piece)] if single else [cx.lane * op.piece]
    thread = cx.warp * 32 if single else cx.tid
    starts = [b.let("start", row * op.grid.pitch) for row in rows]
    # nothing that counts is made of cells past the end
    columns = [b.let("column", place_of(op.grid, x + cell, op.vector)) for cell in cells]
    inner = b.let("inner", (x + 32 * op.piece).le(nx)) if single else FALSE

    def turn() -> None:
        now = cx.resolve(op.turn)
        plane = map_index(z + now + op.ahead, nz, EDGE)
        base = b.let("plane", plane.index * (ny * op.grid.pitch))
        places = [b.let("to", own_place(cx, op.stages, op.lines, op.piece, now, i, thread)) for i in range(op.lines)]

        def within() -> None:
            for to, start in zip(places, starts, strict=True):
                at = b.let("at", base + start + (x + cx.lane))
                for e, cell in enumerate(cells):
                    bring(cx, op.ring, to + cell, op.src, at + 32 * e, 1)

        def across() -> None:
            for to, start in zip(places, starts, strict=True):
                for cell, column in zip(cells, columns, strict=True):
                    bring(cx, op.ring, to + cell if single else to, op.src, base + start + column, op.vector)

        cx.branch(inner, within, across)

    return turn


def own_place(cx: Context, stages: int, lines: int, piece: int, turn: Expr, line: int, thread: Expr) -> Expr:
    """The first element of a thread's own cells of a row, in the slot of a turn."""
    return ((turn % stages * lines + line) * cx.func.threads + thread) * piece
