"""``tile.update``: a formula of general reads, a short column of cells a thread, neighbours through the caches; and
``tile.copy_field``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

from .. import formula as f
from .. import tile_update as t
from ..boundary_map import PERIODIC, Mapped, map_index
from ..expr import FALSE, TRUE, Const, Expr, Value, all_of, as_expr
from ..grid import Grid, kept
from ..op import AXES
from .context import Context, rule
from .copy import read_mapped
from .formula import Formula


@rule(t.Update)
def update(cx: Context, op: t.Update) -> None:
    b, column = cx.b, _column(op)
    first = [
        b.let(name, cx.resolve(start) + (place * op.rows if axis == column else place))
        for axis, (name, start, place) in enumerate(
            zip(AXES[-len(op.at) :], op.at, _places(cx, op.threads), strict=True)
        )
    ]
    last = [i + (op.rows - 1 if axis == column else 0) for axis, i in enumerate(first)]
    margins = [_margin(op, axis) for axis in range(len(first))]
    extent = op.grids[0].extent
    inner = [
        all_of(i.ge(low), j.lt(n - high)) for i, j, n, (low, high) in zip(first, last, extent, margins, strict=True)
    ]

    def straight() -> None:
        cells = _Cells(cx, op, first, edge=False)
        cells.run(range(op.rows))

    def mapped() -> None:
        with b.for_("j", 0, op.rows, unroll=1) as j:  # one by one: few threads come here
            cell = [b.let("row", i + j) if axis == column else i for axis, i in enumerate(first)]
            valid = all_of(*(i.lt(n) for i, n in zip(cell, extent, strict=True)))
            cx.guard(valid, lambda: _Cells(cx, op, cell, edge=any(map(any, margins))).run(range(1)))

    whole = b.let("inner", all_of(*inner))
    if op.rows == 1 and not any(map(any, margins)):
        cx.guard(whole, straight)
    else:
        cx.branch(whole, straight, mapped)


@rule(t.CopyField)
def copy_field(cx: Context, op: t.CopyField) -> None:
    b, (src, dst) = cx.b, op.grids
    *before, n = src.extent
    rows, wide = prod(before), n + 2 * dst.ghosts
    number = b.let("number", cx.bx * cx.func.threads + cx.tid)
    with b.if_(number.lt(op.items)):
        place, first = b.let("place", number % wide), b.let("first", number // wide * op.lines)
        column = b.let("column", map_index(place - dst.ghosts, n, PERIODIC).index)
        there = [b.let("there", (first + i).lt(rows)) for i in range(op.lines)]
        values = [
            b.ld(op.src, (first + i) * src.pitch + column, where=there[i], cache="nc", hint="x")
            for i in range(op.lines)
        ]
        for i, value in enumerate(values):
            b.st(op.dst, (first + i) * dst.pitch + place + (dst.lead - dst.ghosts), value, where=there[i])


def _column(op: t.Update) -> int:
    """The axis along which a thread has several cells: that of the rows."""
    return max(0, len(op.at) - 2)


def _places(cx: Context, threads: tuple[int, ...]) -> list[Expr]:
    """This thread's place on each axis of its block."""
    strides = [*accumulate(reversed(threads[1:]), mul, initial=1)][::-1]
    out: list[Expr] = []
    for axis, (n, stride) in enumerate(zip(threads, strides, strict=True)):
        e = cx.tid // stride if stride != 32 else cx.warp
        out.append(cx.lane if (n, stride) == (32, 1) and len(threads) > 1 else e if axis == 0 else e % n)
    return out


def _margin(op: t.Update, axis: int) -> tuple[int, int]:
    """Cells at each end of an axis that read across it or are kept."""
    offsets = [offset[axis] for _, _, offset in f.reads(op.code)]
    kept = [keep[axis] for keep in op.keep]
    return max([0, *(-o for o in offsets), *(k[0] for k in kept)]), max([0, *offsets, *(k[1] for k in kept)])


class _Cells:
    """The formula for the cells of a thread: straight reads inside the domain, mapped ones where ``edge``.

    A number that two cells read is loaded once.
    """

    def __init__(self, cx: Context, op: t.Update, first: Sequence[Expr], *, edge: bool) -> None:
        self.cx, self.op, self.first, self.edge = cx, op, first, edge
        self.sources = {key: i for i, key in enumerate(op.reads)}
        self.bases: dict[int, Expr] = {}
        self.mapped: dict[tuple[Any, ...], Mapped] = {}
        self.known: dict[tuple[Any, ...], Value] = {}
        self.formula = Formula(cx, op.code, op.outs[0].dtype, op.scalars)

    def run(self, rows: range) -> None:
        """Works out and stores the cells so many rows below the first."""
        b, op = self.cx.b, self.op
        made = self.formula.results(op.results, [partial(self._read, row=row) for row in rows])
        for row, values in zip(rows, made, strict=True):
            for out, grid, value, old, keep in zip(
                op.outs, op.grids[len(op.srcs) :], values, op.old, op.keep, strict=True
            ):
                if self.edge and (stays := kept(self.first, grid.extent, keep)) != FALSE:
                    before = b.ld(op.srcs[old], self._at(op.grids[old], self._zero, row), hint="old")
                    value = b.select(b.let("kept", stays), before, value)
                b.st(out, self._at(grid, self._zero, row), value)

    # ------------------------------------------------------------------------------------------------ memory
    @property
    def _zero(self) -> f.Offset:
        return (0,) * len(self.first)

    def _read(self, read: f.Read, row: int) -> Value:
        name, level, offset = read
        source = self.sources[name, level]
        src, grid = self.op.srcs[source], self.op.grids[source]
        if self.edge and any(offset):
            axes = tuple(self._axis(axis, o, grid) for axis, o in enumerate(offset))
            return read_mapped(self.cx, src, as_expr(_linear([m.index for m in axes], grid)), axes)
        down = tuple(o + (row if axis == _column(self.op) else 0) for axis, o in enumerate(offset))
        key = (source, down)
        if key not in self.known:
            self.known[key] = self.cx.b.ld(src, self._at(grid, offset, row), hint=src.name)
        return self.known[key]

    def _at(self, grid: Grid, offset: f.Offset, row: int) -> Expr:
        """Where the cell at an offset from a thread's cell lies in an array."""
        if grid.pitch not in self.bases:
            self.bases[grid.pitch] = self.cx.b.let("here", as_expr(_linear(self.first, grid)))
        return self.bases[grid.pitch] + as_expr(_linear(offset, grid) + row * grid.pitch)

    def _axis(self, axis: int, offset: int, grid: Grid) -> Mapped:
        """What the cell at an offset along one axis is, each worked out once."""
        if offset == 0:
            return Mapped(self.first[axis], TRUE, FALSE, 0.0, 0.0)
        key = (axis, offset, grid.sides[axis])
        if key not in self.mapped:
            b, m = self.cx.b, map_index(self.first[axis] + offset, grid.extent[axis], grid.sides[axis])
            inside = m.inside if isinstance(m.inside, Const) else b.let("inside", m.inside)
            index = b.let(f"{AXES[axis - len(self.first)]}_at", m.index)
            self.mapped[key] = Mapped(index, inside, m.below, m.low, m.high)
        return self.mapped[key]


def _linear(index: Sequence[Any], grid: Grid) -> Any:
    """The place of a cell (or, for an offset, the distance) in an array: each axis on its own times its step."""
    steps = [prod(grid.extent[axis + 1 : -1]) * grid.pitch for axis in range(len(index) - 1)]
    return sum(i * s for i, s in zip(index[:-1], steps, strict=True)) + index[-1]
