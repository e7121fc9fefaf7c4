"""``tile.march``: threads go along the slowest axis; what they read again stays in registers, the next plane is on its
way while one is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from .. import formula as f
from .. import tile_march as t
from ..boundary_map import Mapped, map_index
from ..expr import FALSE, TRUE, Expr, Value, all_of, any_of, as_expr, minimum, select
from ..grid import Grid
from ..numbers.layers import Array
from ..numbers.march import Held
from ..types import Buffer
from .context import Context, rule
from .copy import constant, read_mapped
from .formula import Formula
from .layers import keep_border, store


@rule(t.March)
def march(cx: Context, op: t.March) -> None:
    width, nx = op.threads[1] * op.numbers.piece, op.grids[0].extent[2]
    inside: Expr = TRUE if min(op.vectors[: len(op.srcs)]) > 1 else FALSE
    if inside == TRUE and nx % width:
        inside = cx.b.let("inside", as_expr(cx.resolve(op.at[2]) + width).le(nx))
    cx.branch(inside, lambda: _March(cx, op, whole=True).run(), lambda: _March(cx, op, whole=False).run())


@dataclass(frozen=True)
class _Source:
    """An array, and where a thread's rows and columns of it lie in a plane."""

    src: Buffer
    grid: Grid
    held: Held
    regs: Buffer
    rows: dict[int, tuple[Mapped, Expr]]  # of a row: its first element
    columns: list[Mapped]  # of the piece's cells; where all are inside only of the first
    beside: list[Mapped]  # of the first and the last lane


class _March:
    """A thread's cells; ``whole``: its pieces are loaded whole, else cell by cell."""

    def __init__(self, cx: Context, op: t.March, *, whole: bool) -> None:
        self.cx, self.op, self.n, self.whole = cx, op, op.numbers, whole
        b = cx.b
        self.z, y, x = map(cx.resolve, op.at)
        down, across = cx.place(op.threads)
        self.row = b.let("row", y + down * op.lines)
        self.col = b.let("col", x + across * self.n.piece)
        self.first, self.last = b.let("first", cx.lane.eq(0)), b.let("last", cx.lane.eq(31))
        self.edge = b.let("edge", any_of(self.first, self.last))
        self.sources = {
            array: self._source(src, grid, held, regs)
            for (array, held), src, grid, regs in zip(
                self.n.held.items(), op.srcs, op.grids, op.kept, strict=False
            )
        }  # fmt: skip
        self.formula = Formula(cx, op.code, op.outs[0].dtype, op.scalars)

    def _source(self, src: Buffer, grid: Grid, held: Held, regs: Buffer) -> _Source:
        b, (_, ny, nx) = self.cx.b, grid.extent
        rows = dict[int, tuple[Mapped, Expr]]()
        for row in held.rows:
            line = self._named(map_index(self.row + row, ny, grid.sides[1]), "line")
            rows[row] = line, b.let("start", line.index * grid.pitch)
        inside = [Mapped(self.col, TRUE, FALSE, 0.0, 0.0)]
        columns = inside if self.whole else [
            self._named(map_index(self.col + c, nx, grid.sides[2]), "column") for c in range(self.n.piece)
        ]  # fmt: skip
        far = b.let("far", self.col + select(self.first, -held.reach, self.n.piece)) if held.edges else self.col
        beside = [self._named(map_index(far + k, nx, grid.sides[2]), "beside") for k in range(held.reach)]
        return _Source(src, grid, held, regs, rows, columns, beside)

    def _named(self, m: Mapped, hint: str) -> Mapped:
        b = self.cx.b
        where = m.inside if m.inside == TRUE else b.let("inside", m.inside)
        return Mapped(b.let(hint, m.index), where, m.below, m.low, m.high)

    def run(self) -> None:
        """Loads the first planes, then makes plane after plane."""
        b, op, nz = self.cx.b, self.op, self.op.grids[0].extent[0]
        count = b.let("count", minimum(nz - self.z, op.planes)) if nz % op.planes else as_expr(op.planes)
        for source in self.sources.values():
            self._begin(source)
        with b.for_("turn", 0, count, unroll=op.unroll) as turn:
            # behind the last plane nothing new is asked for: what is in the caches comes once more
            ahead = b.let("ahead", minimum(turn + 1, count - 1))
            fresh = [(source, list(self._next(source, ahead))) for source in self.sources.values()]
            for source in self.sources.values():
                for row, (_, high) in source.held.edges.items():
                    self._pass_on(source, row, high)
            self._make(b.let("plane", self.z + turn))
            for source, loaded in fresh:
                self._move(source, loaded)

    # ------------------------------------------------------------------------------------------------ loads
    def _begin(self, source: _Source) -> None:
        """Loads the planes that the first turn reads, up to what it passes on itself."""
        held = source.held
        for plane in range(min(low for low, _ in held.rows.values()), max(high for _, high in held.rows.values()) + 1):
            there = self._plane(source, as_expr(self.z + plane))
            for row, (low, high) in held.rows.items():
                if low <= plane <= high:
                    self._keep(source, held.at(row, plane), self._piece(source, row, *there))
            for row, (low, high) in held.edges.items():
                if low <= plane <= high:
                    self._keep(source, held.far(row), self._edge(source, row, *there))
                if low <= plane < high:
                    self._pass_on(source, row, plane)

    def _keep(self, source: _Source, place: int, values: Sequence[Value]) -> None:
        for c, value in enumerate(values):
            self.cx.b.st(source.regs, place + c, value)

    def _plane(self, source: _Source, at: Expr) -> tuple[Mapped, Expr]:
        """A plane of the field, and its first element."""
        nz, ny, _ = source.grid.extent
        plane = self._named(map_index(at, nz, source.grid.sides[0]), "at")
        return plane, self.cx.b.let("base", plane.index * (ny * source.grid.pitch))

    def _next(self, source: _Source, ahead: Expr) -> Iterator[tuple[int, Sequence[Value]]]:
        """What comes in for the next plane and where it goes: of each row the plane behind the last one that it has."""
        held = source.held
        spans = (*held.rows.values(), *held.edges.values())
        planes = {high: self._plane(source, self.z + ahead + high) for high in sorted({high for _, high in spans})}
        for row, (_, high) in held.rows.items():
            yield held.at(row, high), self._piece(source, row, *planes[high])
        for row, (_, high) in held.edges.items():
            yield held.far(row), self._edge(source, row, *planes[high])

    def _piece(self, source: _Source, row: int, plane: Mapped, base: Expr) -> Sequence[Value]:
        b, (line, start) = self.cx.b, source.rows[row]
        at = base + start
        if not self.whole:
            return [read_mapped(self.cx, source.src, at + m.index, (plane, line, m)) for m in source.columns]
        values = b.ldv(source.src, at + self.col, self.n.piece, hint=source.src.name)
        return self._outside(source.src, values, (plane, line))

    def _edge(self, source: _Source, row: int, plane: Mapped, base: Expr) -> Sequence[Value]:
        line, start = source.rows[row]
        found = list[Value]()
        for m in source.beside:
            value = self.cx.b.ld(source.src, base + start + m.index, where=self.edge, hint=source.src.name)
            found += self._outside(source.src, [value], (plane, line, m))
        return found

    def _outside(self, src: Buffer, values: Sequence[Value], axes: tuple[Mapped, ...]) -> Sequence[Value]:
        """The cells, or what a side holds in their place."""
        if (inside := all_of(*(m.inside for m in axes))) == TRUE:
            return values
        held, there = constant(self.cx, src, axes), self.cx.b.let("there", inside)
        return [self.cx.b.select(there, value, held) for value in values]

    # ------------------------------------------------------------------------------------------------ a plane
    def _pass_on(self, source: _Source, row: int, plane: int) -> None:
        """The cells beside a row's piece, from the lanes beside; the outermost lanes have loaded theirs."""
        b, held, piece = self.cx.b, source.held, self.n.piece
        for k in range(2 * held.reach):
            left, k = k < held.reach, k % held.reach
            own = b.ld(source.regs, held.at(row, plane) + (k + piece - held.reach if left else k), hint="u")
            got = b.shfl("up" if left else "down", own, 1)
            far = b.ld(source.regs, held.far(row) + k, hint="far")
            value = b.select(self.first if left else self.last, far, got)
            b.st(source.regs, held.beside(row, plane) + k + (0 if left else held.reach), value)

    def _cell(self, array: Array, row: int, plane: int, column: int) -> Value:
        """The cell of a row and plane, in the thread's piece or beside it."""
        source, piece = self.sources[array], self.n.piece
        if 0 <= column < piece:
            place = source.held.at(row, plane) + column
        else:
            place = source.held.beside(row, plane) + (column if column < 0 else column - piece) + source.held.reach
        return self.cx.b.ld(source.regs, place, hint="u")

    def _make(self, plane: Expr) -> None:
        cx, op, n = self.cx, self.op, self.n
        results = tuple(zip(op.fields, op.outs, op.grids[len(op.srcs) :], op.vectors[len(op.srcs) :], strict=True))

        def read(what: f.Read, line: int, c: int) -> Value:
            name, level, (dz, dy, dx) = what
            return self._cell((name, level), line + dy, dz, c + dx)

        for line in range(op.lines):
            row = cx.b.let("oy", self.row + line)
            made = self.formula.results(op.results, [partial(read, line=line, c=c) for c in range(n.piece)])
            for i, ((name, _), out, grid, wide) in enumerate(results):
                values = [cell[i] for cell in made]
                keep_border(
                    cx, grid, op.keep[i], (plane, row, self.col), values,
                    lambda c, name=name, line=line: self._cell((name, 0), line, 0, c),  # type: ignore[misc]
                )  # fmt: skip
                store(cx, out, grid, wide, (plane, row, self.col), values, row.lt(grid.extent[1]))

    def _move(self, source: _Source, loaded: list[tuple[int, Sequence[Value]]]) -> None:
        """Planes move on by one, and the new ones come in."""
        b, held = self.cx.b, source.held
        for spans, place, cells in (
            (held.rows, held.at, held.piece), (held.edges, held.beside, 2 * held.reach)
        ):  # fmt: skip
            for row, (low, high) in spans.items():
                for plane in range(low, high):
                    moved = [b.ld(source.regs, place(row, plane + 1) + c, hint="u") for c in range(cells)]
                    self._keep(source, place(row, plane), moved)
        for at, values in loaded:
            self._keep(source, at, values)
