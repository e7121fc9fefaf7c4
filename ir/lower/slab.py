"""``tile.fetch_slab`` and ``tile.sum_plane``: whole rows of a plane into a ring, and into sums of planes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .. import tile_slab as t
from .. import warp as w
from ..boundary_map import Mapped, map_index
from ..expr import TRUE, Expr, Value, all_of, as_expr, minimum
from ..layout import bank_degree
from ..types import Buffer
from .context import Context, phased, rule
from .copy import constant
from .layers import keep_border, store


@phased(t.FetchSlab)
def fetch_slab(cx: Context, op: t.FetchSlab) -> Callable[[], None]:
    b, (nz, ny, nx), sides = cx.b, op.grid.extent, op.grid.sides
    z, y, _ = map(cx.resolve, op.at)
    first = b.let("first", y - op.before)

    def start(row: Expr) -> Expr:
        return map_index(first + row, ny, sides[1]).index * op.grid.pitch

    own = b.let("own", start(cx.lane)) if op.bars else as_expr(0)

    def turn() -> None:
        now = cx.resolve(op.turn)
        plane = b.let("plane", map_index(z - op.above + now, nz, sides[0]).index * (ny * op.grid.pitch))
        number = b.let("slot", now % op.stages)
        to = number * (op.rows * op.width)
        if op.bars is None:
            per_row = nx // op.vector
            with b.for_("e", cx.tid, op.rows * per_row, cx.func.threads) as e:
                row, column = b.let("r", e // per_row), e % per_row * op.vector
                b.cp_async(op.ring, to + row * op.width + column, op.src, plane + start(row) + column, op.vector)
            return
        bars = op.bars
        with b.if_(cx.warp.eq(0)):
            with b.if_(cx.lane.eq(0)):
                b.emit(w.MbarArrive(bars, number, as_expr(op.rows * nx * op.src.dtype.nbytes)))
            with b.if_(cx.lane.lt(op.rows)):
                b.emit(w.BulkCopy(op.ring, to + cx.lane * op.width, op.src, plane + own, as_expr(nx), bars, number))

    return turn


@rule(t.SumPlane)
def sum_plane(cx: Context, op: t.SumPlane) -> None:
    _Plane(cx, op).run()


class _Plane:
    """A thread's part of the plane that has come: its cells and those beside them, and the sums that they go into."""

    def __init__(self, cx: Context, op: t.SumPlane) -> None:
        self.cx, self.op, b = cx, op, cx.b
        self.rz, self.ry, self.rx = op.radius
        self.piece = op.width // op.threads[1]
        (self.z, y, _), self.turn = map(cx.resolve, op.at), cx.resolve(op.turn)
        down, across = cx.place(op.threads)
        self.line = b.let("line", down * op.lines)  # the thread's first output in the tile
        self.row, self.col = b.let("row", y + self.line), b.let("col", across * self.piece)
        slot = (op.threads[0] * op.lines + 2 * self.ry) * op.width
        self.slot = b.let("slot", self.turn % op.stages * slot)
        _, ny, nx = op.grid.extent
        _, sides_y, sides_x = op.grid.sides
        self.plane = map_index(self.z - self.rz + self.turn, op.grid.extent[0], op.grid.sides[0])
        self.rows = {j: map_index(self.row + j, ny, sides_y) for j in range(-self.ry, op.lines + self.ry)}
        # of threads behind the rows' end any cells will do
        self.whole = nx % self.piece == 0
        self.at = b.let("at", minimum(self.col, nx - self.piece)) if self.whole else self.col
        beside = [c for c in range(-self.rx, self.piece + self.rx) if not (self.whole and 0 <= c < self.piece)]
        self.columns = {c: self._named(map_index(self.col + c, nx, sides_x)) for c in beside}
        self.weights = [(offset, b.ld(op.weights, i, hint="w")) for i, (offset, _) in enumerate(op.taps)]
        self.sums: dict[tuple[int, int, int], Value] = {}  # (k planes to completion, line, column)
        self.freezes = any(map(any, op.keep))
        self.own: dict[tuple[int, int], Value] = {}

    def _named(self, m: Mapped) -> Mapped:
        b = self.cx.b
        inside = m.inside if m.inside == TRUE else b.let("inside", m.inside)
        return Mapped(b.let("column", m.index), inside, m.below, m.low, m.high)

    def run(self) -> None:
        """Row by row of what the thread reads, so that few cells are held at a time."""
        op = self.op
        for j in range(-self.ry, op.lines + self.ry):
            self._add_row(j)
        self._keep_sums()
        self.cx.guard(self.turn.ge(2 * self.rz), self._store)

    # ------------------------------------------------------------------------------------------------ cells
    def _row(self, j: int, needed: set[int]) -> dict[int, Value]:
        """Cells of row ``j`` from the thread's first, by their columns from its own."""
        b, ring = self.cx.b, self.op.ring
        start = self.slot + (self.line + (j + self.ry)) * self.op.width
        found: dict[int, Value] = {}
        if self.whole and needed & set(range(self.piece)):
            for c, value in enumerate(b.ldv(ring, start + self.at, self.piece, hint="u")):
                found[c] = self._inside(value, j, TRUE)
        degree = bank_degree([lane * self.piece for lane in range(32)], ring.dtype.nbytes)
        for c in sorted(needed - set(found)):
            m = self.columns[c]
            found[c] = self._inside(b.ld(ring, start + m.index, hint="u", degree=degree), j, m)
        return found

    def _inside(self, value: Value, j: int, column: Mapped | Expr) -> Value:
        """The value, or what a side holds in its place."""
        axes = (self.plane, self.rows[j], *([column] if isinstance(column, Mapped) else []))
        if (inside := all_of(*(m.inside for m in axes))) == TRUE:
            return value
        return self.cx.b.select(self.cx.b.let("there", inside), value, constant(self.cx, self.op.ring, axes))

    def _add_row(self, j: int) -> None:
        cx, op = self.cx, self.op
        taps = [(dz, j - dy, dx, weight) for (dz, dy, dx), weight in self.weights if 0 <= j - dy < op.lines]
        needed = {c + dx for _, _, dx, _ in taps for c in range(self.piece)}
        mine = set(range(self.piece)) if self.freezes and 0 <= j < op.lines else set[int]()
        if not (cells := self._row(j, needed | mine)):
            return
        self.own |= {(j, c): cells[c] for c in mine}
        for dz, line, dx, weight in taps:
            for c in range(self.piece):
                key = self.rz - dz, line, c
                if key not in self.sums and key[0] < 2 * self.rz:
                    self.sums[key] = self._held(op.sums, *key)
                self.sums[key] = cx.plus(self.sums.get(key), weight, cells[c + dx])

    # ------------------------------------------------------------------------------------------------ sums
    def _place(self, k: int, line: int, c: int) -> int:
        return (k * self.op.lines + line) * self.piece + c

    def _held(self, regs: Buffer | None, k: int, line: int, c: int) -> Value:
        assert regs is not None
        return self.cx.b.ld(regs, self._place(k, line, c), hint="s")

    def _given(self, k: int, line: int, c: int) -> Value:
        """The sum of the plane that is ``k`` planes from completion."""
        if (k, line, c) in self.sums:
            return self.sums[k, line, c]
        return self._held(self.op.sums, k, line, c) if k < 2 * self.rz else self.cx.zero(self.op.dst.dtype)

    def _cells(self) -> list[tuple[int, int]]:
        return [(line, c) for line in range(self.op.lines) for c in range(self.piece)]

    def _keep_sums(self) -> None:
        """Unfinished planes are one plane nearer to completion; the complete one is taken out first."""
        op = self.op
        self.made = {cell: self._given(0, *cell) for cell in self._cells()}
        self.old = {cell: self._old(*cell) for cell in self._cells()} if self.freezes else {}
        moved = {(k, *cell): self._given(k, *cell) for k in range(1, 2 * self.rz + 1) for cell in self._cells()}
        for (k, line, c), value in moved.items():
            assert op.sums is not None
            self.cx.b.st(op.sums, self._place(k - 1, line, c), value)
        if op.own is not None:
            passed = {(k, *cell): self._held(op.own, k, *cell) for k in range(self.rz - 1) for cell in self._cells()}
            for (k, line, c), value in passed.items():
                self.cx.b.st(op.own, self._place(k + 1, line, c), value)
            for (line, c), value in self.own.items():
                self.cx.b.st(op.own, self._place(0, line, c), value)

    def _old(self, line: int, c: int) -> Value:
        """What a cell of the complete plane was, which came rz turns ago."""
        return self._held(self.op.own, self.rz - 1, line, c) if self.rz else self.own[line, c]

    def _store(self) -> None:
        cx, b, op = self.cx, self.cx.b, self.op
        nz, ny, _ = op.out_grid.extent
        plane = b.let("oz", self.z + (self.turn - 2 * self.rz), lo=0)
        for line in range(op.lines):
            at = plane, b.let("oy", self.row + line), self.col
            values = [self.made[line, c] for c in range(self.piece)]
            keep_border(cx, op.out_grid, op.keep, at, values, partial(self._before, line))
            store(cx, op.dst, op.out_grid, op.vector, at, values, all_of(plane.lt(nz), at[1].lt(ny)))

    def _before(self, line: int, c: int) -> Value:
        return self.old[line, c]
