"""``tile.update_layers``: time steps of a plane of every field, from registers, other lanes and rings of planes."""

from __future__ import annotations

from functools import partial
from itertools import chain

from .. import formula as f
from .. import tile_layer_levels as t
from ..expr import FALSE, Expr, Value, all_of, maximum, minimum
from ..grid import keep, kept
from ..numbers.layers import Array
from .context import Context, rule
from .formula import Formula
from .layer_border import Border, Lines
from .layers import store


@rule(t.UpdateLayers)
def update_layers(cx: Context, op: t.UpdateLayers) -> None:
    _Turn(cx, op).run()


class _Turn:
    """A turn of a block."""

    def __init__(self, cx: Context, op: t.UpdateLayers) -> None:
        self.cx, self.op, self.n = cx, op, op.numbers(cx.func.threads)
        self.turn, self.lines, self.piece = cx.resolve(op.turn), op.lines, self.n.piece
        self.rings = dict(zip((*self.n.came, *self.n.made), (*op.rings, *op.made), strict=True))
        self.kept = dict(zip(self.n.kept, op.kept, strict=True))
        self.row = cx.b.let("wr", cx.warp * op.lines)  # the thread's first row of the window
        self.border = Border(cx, op, self.n, self.kept, self.rings, self.row)

    def run(self) -> None:
        """Takes the newest planes in, makes a plane a step once those it reads are there, moves on what is kept."""
        arrived = _Around(self, 1)
        for name in self.n.fields:
            self._keep((name, 0), [arrived.ring((name, 0), 0, line) for line in range(self.lines)])
        for step in range(1, self.op.count + 1):
            self.cx.guard(self.turn.ge(self.n.first(step)), lambda step=step: self._step(step))  # type: ignore[misc]
        size = self.lines * self.piece
        for source, depth in self.n.kept.items():
            regs = self.kept[source]
            moved = [self.cx.b.ld(regs, i, hint="u") for i in range(depth * size)]
            for i, value in enumerate(moved):
                self.cx.b.st(regs, size + i, value)

    def _keep(self, source: Array, lines: Lines) -> None:
        """Keeps the cells of the plane that this turn brings."""
        for i, value in enumerate(chain(*lines)):
            self.cx.b.st(self.kept[source], i, value)

    def _step(self, step: int) -> None:
        """A step's plane; one beyond a side of the slowest axis is what the side makes of it."""
        b, last = self.cx.b, step == self.op.count
        plane = b.let("oz", self.cx.resolve(self.op.at[0]) + self.turn - self.n.delay(step), lo=0 if last else None)
        if not self.border.ends:
            self._make(step, plane)
            return
        with b.if_(b.let("inside", all_of(plane.ge(0), plane.lt(self.op.grids[0].extent[0])))):
            self._make(step, plane)
            if not last:
                self.border.images(step, plane)
        if not last:
            with b.else_():
                self.border.beyond(step, plane)

    def _make(self, step: int, plane: Expr) -> None:
        cx, op = self.cx, self.op
        around, formula = _Around(self, step), Formula(cx, op.code, op.outs[0].dtype, op.scalars)
        _, y, x = map(cx.resolve, op.at)
        rows = [cx.b.let("oy", y - self.n.lead[0] + self.row + line) for line in range(self.lines)]
        col = cx.b.let("ox", x - self.n.lead[1] + cx.lane * self.piece)
        made: dict[str, list[list[Value]]] = {name: [] for name, _ in op.fields}
        reads = [partial(around.read, line=line, c=c) for line in range(self.lines) for c in range(self.piece)]
        cells = formula.results(op.results, reads, step - 1)
        for line, row in enumerate(rows):
            for i, (name, _) in enumerate(op.fields):
                values = [cell[i] for cell in cells[line * self.piece : (line + 1) * self.piece]]
                for c in range(self.piece if op.sides else 0):
                    stays = kept((plane, row, col + c), op.grids[0].extent, keep(op.radius, op.sides[i]))
                    if stays != FALSE:
                        old = around.read((name, 0, (0, 0, 0)), line, c)
                        values[c] = cx.b.select(cx.b.let("kept", stays), old, values[c])
                made[name].append(values)
        for (name, back), out, grid, wide in zip(self.n.outputs, op.outs, op.grids, op.vectors, strict=True):
            if back == op.count - step:
                within = self._within(step, plane)
                for line, row in enumerate(rows):
                    there = all_of(within, self._stored_row(line), row.lt(grid.extent[1]))
                    store(cx, out, grid, wide, (plane, row, col), made[name][line], there, self._stored_column)
        for name, lines in made.items() if step < op.count else ():
            set_lines = [self.border.set(name, row, col, values) for row, values in zip(rows, lines, strict=True)]
            self._keep((name, step), set_lines)
            self.border.write((name, step), 0, set_lines)

    def _within(self, step: int, plane: Expr) -> Expr:
        """Whether a step's plane is one of the tile's, in the field; steps before the last make others, too."""
        first = self.cx.resolve(self.op.at[0])
        inside = plane.lt(self.op.grids[0].extent[0])
        if step == self.op.count:
            return inside
        return all_of(inside, plane.ge(first), plane.lt(first + self.op.planes))

    def _stored_row(self, line: int) -> Expr:
        """Whether a row of the window is the tile's."""
        row, above = self.row + line, self.n.lead[0]
        return all_of(row.ge(above), row.lt(above + self.n.tile[1]))

    def _stored_column(self, column: Expr) -> Expr:
        """Whether a column of the window is the tile's."""
        before = self.n.lead[1]
        return all_of(column.ge(before), column.lt(before + self.n.tile[2]))


class _Around:
    """What a step reads in a turn: each piece and each cell of another lane once."""

    def __init__(self, turn: _Turn, step: int) -> None:
        self.turn, self.step, self.n, self.cx = turn, step, turn.n, turn.cx
        self.pieces: dict[tuple[Array, int, int, bool], tuple[Value, ...]] = {}
        self.shuffled: dict[tuple[Array, int, int, bool, int], Value] = {}

    def read(self, what: f.Read, line: int, c: int) -> Value:
        """The value that a read of the formula means for a thread's cell."""
        name, level, (dz, dy, dx) = what
        source = self.n.source((name, level), self.step)
        back, count = self.n.back(source, self.step, dz), self.turn.piece
        key = source, back, line + dy, bool(dy)
        lanes, at = divmod(c + dx, count)
        if not lanes:
            return self._piece(*key)[at]
        cell = (*key, c + dx)
        if cell not in self.shuffled:
            mode = "up" if lanes < 0 else "down"
            self.shuffled[cell] = self.cx.b.shfl(mode, self._piece(*key)[at], abs(lanes), hint="x")
        return self.shuffled[cell]

    def _piece(self, source: Array, back: int, row: int, away: bool) -> tuple[Value, ...]:
        """A lane's piece of a row, so many rows from the thread's first: its own from registers, unless the row of a
        plane is read beside others and may lie across a border."""
        key = source, back, row, away
        if key not in self.pieces:
            turn, count = self.turn, self.turn.piece
            imaged = away and source in self.n.made and turn.border.rows(source[0])
            if self.n.at_hand(source, back, row) and not imaged:
                first = (back * turn.lines + row) * count
                self.pieces[key] = tuple(self.cx.b.ld(turn.kept[source], first + c, hint="u") for c in range(count))
            else:
                self.pieces[key] = self.ring(source, back, row)
        return self.pieces[key]

    def ring(self, source: Array, back: int, row: int) -> tuple[Value, ...]:
        """A lane's piece of a row of a plane that came or was made so many turns ago."""
        turn, (rows, width) = self.turn, self.n.window
        at = turn.row + row
        if source in self.n.came:
            at = at + self.n.came[source].halo
        elif not 0 <= row < turn.lines:  # beyond the window nothing is made, and nothing that counts is made of it
            at = maximum(at, 0) if row < 0 else minimum(at, rows - 1)
        here = turn.border.slot(source, back)
        return self.cx.b.ldv(
            turn.rings[source], here + at * width + self.cx.lane * turn.piece, turn.piece, hint="u"
        )  # fmt: skip
