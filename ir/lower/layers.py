"""Updates on three axes, plane by plane: the formula out of rings and registers (``layer_fetch`` fills the rings)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .. import formula as f
from .. import tile_layers as t
from ..expr import FALSE, TRUE, Expr, Value, all_of, as_expr
from ..grid import Grid, kept
from ..numbers.layers import Array
from ..types import Buffer
from .beside import side_by_side
from .context import Context, rule
from .formula import Formula
from .ghosts import store_ghosted
from .layer_fetch import own_place


@rule(t.UpdateLayer)
def update_layer(cx: Context, op: t.UpdateLayer) -> None:
    _Layer(cx, op).run()


class _Layer:
    """A turn of a block."""

    def __init__(self, cx: Context, op: t.UpdateLayer) -> None:
        self.cx, self.op, self.n = cx, op, op.numbers(cx.func.threads)
        self.turn, self.lines, self.piece = cx.resolve(op.turn), op.lines, self.n.piece
        self.buffers = dict(zip((*self.n.rings, *self.n.owns), op.rings, strict=True))
        held = [array for array, planes in self.n.rings.items() if planes.kept]
        self.kept = dict(zip(held, op.kept, strict=True))
        self.loaded: dict[tuple[Array, int, int, int], tuple[Value, ...]] = {}
        self.formula = Formula(cx, op.code, op.outs[0].dtype, op.scalars)

    def run(self) -> None:
        """Takes the newest planes in, makes a plane once the first ones are there, and moves what is kept on."""
        newest = {array: [self._piece(array, 0, line, 0) for line in range(self.lines)] for array in self.kept}
        self.cx.guard(self.turn.ge(self.n.delay), self._make)
        for array, regs in self.kept.items():
            planes = self.n.rings[array].kept
            for line in range(self.lines):
                for c in range(self.piece):
                    moved = [newest[array][line][c]] + [
                        self.cx.b.ld(regs, self._place(lag, line, c), hint="u") for lag in range(1, planes)
                    ]
                    for lag, value in enumerate(moved, 1):
                        self.cx.b.st(regs, self._place(lag, line, c), value)

    def _place(self, lag: int, line: int, c: int) -> int:
        """Where the own cell of the plane that came ``lag`` turns ago is kept."""
        return ((lag - 1) * self.lines + line) * self.piece + c

    def _piece(self, array: Array, lag: int, row: int, piece: int) -> tuple[Value, ...]:
        """A piece of a plane that came ``lag`` turns ago: so many rows and pieces from the thread's first."""
        key = (array, lag, row, piece)
        if key not in self.loaded:
            cx, n = self.cx, self.n
            (halo, lead), (rows, width) = n.rings[array].halo, n.window(array)
            slots = n.slots(array)
            here = cx.b.let("here", n.skew(array) + (self.turn + (slots - lag)) % slots * (rows * width))
            at = (
                here
                + (cx.warp * self.lines + (row + halo)) * width
                + cx.lane * self.piece
                + (lead + piece * self.piece)
            )
            self.loaded[key] = cx.b.ldv(self.buffers[array], at, self.piece, hint="u")
        return self.loaded[key]

    def _read(self, what: f.Read, line: int, c: int) -> Value:
        name, level, (dz, dy, dx) = what
        array = (name, level)
        if array not in self.n.rings:
            key = (array, 0, line, 0)
            if key not in self.loaded:
                at = own_place(self.cx, self.op.stages, self.lines, self.piece, self.turn, line, self.cx.tid)
                self.loaded[key] = self.cx.b.ldv(self.buffers[array], at, self.piece, hint="w")
            return self.loaded[key][c]
        lag = self.n.rings[array].ahead - dz
        if array in self.kept and lag and not (dy or dx):
            return self.cx.b.ld(self.kept[array], self._place(lag, line, c), hint="u")
        return self._piece(array, lag, line + dy, (c + dx) // self.piece)[(c + dx) % self.piece]

    def _make(self) -> None:
        cx, b, op = self.cx, self.cx.b, self.op
        z, y, x = map(cx.resolve, op.at)
        plane = b.let("oz", z + self.turn - self.n.delay, lo=0)
        nz, ny, _ = op.grids[0].extent
        col = b.let("ox", x + cx.lane * self.piece)
        reads = [partial(self._read, line=line, c=c) for line in range(self.lines) for c in range(self.piece)]
        cells = self.formula.results(op.results, reads, crowded=self.n.crowded)
        for line in range(self.lines):
            row = b.let("oy", y + cx.warp * self.lines + line)
            made = cells[line * self.piece : (line + 1) * self.piece]
            there = all_of(plane.lt(nz), row.lt(ny))
            for i, ((name, _), out, grid, wide) in enumerate(
                zip(op.fields, op.outs, op.grids, op.vectors, strict=True)
            ):
                values = [cell[i] for cell in made]
                keep_border(
                    cx, grid, op.keep[i], (plane, row, col), values,
                    lambda c, name=name, line=line: self._read((name, 0, (0, 0, 0)), line, c),  # type: ignore[misc]
                )  # fmt: skip
                store(cx, out, grid, wide, (plane, row, col), values, there)


def keep_border(
    cx: Context, grid: Grid, keep: tuple[tuple[int, int], ...], at: tuple[Expr, Expr, Expr], values: list[Value],
    old: Callable[[int], Value],
) -> None:  # fmt: skip
    """Puts the ``old`` values of cells in place of what was made of them where a frozen border keeps them; the cells
    are adjacent ones of a row, from ``at`` on."""
    for c, value in enumerate(values):
        stays = kept((*at[:2], at[2] + c), grid.extent, keep)
        if stays != FALSE:
            before = old(c)
            values[c] = cx.b.select(cx.b.let("kept", stays), before, value)


def store(
    cx: Context, out: Buffer, grid: Grid, wide: int, at: tuple[Expr, Expr, Expr], values: list[Value], there: Expr,
    stored: Callable[[Expr], Expr] = lambda column: TRUE,
) -> None:  # fmt: skip
    """Stores adjacent cells of a row from ``at`` on where their plane and row are ``there``, those inside the field.

    ``stored``: of a column of the warp's whether it is the tile's, as are all of a lane's or none.
    """
    own = cx.lane * len(values)
    if wide == 1:
        moved, columns = side_by_side(cx, values)
        for value, column in zip(moved, columns, strict=True):
            col = at[2] - own + column
            mine = cx.b.let("in", all_of(there, stored(column), col.lt(grid.extent[2])))
            cx.b.st(out, grid.element((*at[:2], col)), value, where=mine)
        return
    there = all_of(there, stored(own))
    if grid.ghosts:
        store_ghosted(cx, out, grid, at, values, all_of(there, at[2].lt(grid.extent[2])))
        return
    b, nx, first = cx.b, grid.extent[2], grid.element(at)
    inside = [all_of(there, as_expr(at[2] + c).lt(nx)) for c in range(len(values))]

    def single() -> None:
        for c, value in enumerate(values):
            b.st(out, first + c, value, where=b.let("in", inside[c]))

    b.st(out, first, *values, where=b.let("whole", inside[-1]))
    if nx % wide:  # single cells at the end of a row
        cx.guard(all_of(inside[0], as_expr(at[2] + (wide - 1)).ge(nx)), single)
