"""``patches``: temporal blocking on tensor cores; each warp walks down a strip, groups of rows at a time.

A row of an mma is a *patch* of outputs, its operand the window that they need.  Every group of rows is read once from
shared memory and added to all the groups of outputs that it touches; the sums wait in registers, and moving them on is
free because mma has C and D apart.  Levels are chained through a group of shared memory that the warp alone uses, so
there is no block barrier; a level takes what the level before made one turn ago, so that the levels of a turn do not
wait for one another.  Column n of the accumulator is row n % 2, column n // 2 of the patch: a lane then holds what the
next level wants to find in adjacent columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import op as o
from .. import tile as t
from .. import tile_patches as p
from ..boundary_map import any_cell
from ..errors import ScheduleError
from ..expr import Expr, Value, as_expr, evaluate, maximum, select
from ..fragments import SHAPES
from ..layout import Layout, layout
from ..module import Module
from ..node import Op
from ..types import Buffer, f64, s32
from .fuse_time import dense_weights
from .manager import register
from .tile_common import align_left, each, field, replace_kernel, tile_count, tiles, vector, whole

#: Rows and columns of a patch; a group is as many rows.  Of the patches of eight outputs this takes the fewest mma.
PATCH = (2, 4)


@dataclass(frozen=True)
class Window:
    """The cells of a group that a patch needs, as the K of an mma: all whole quads of columns, then what is left.

    Both rows together fill the last slice, as an even number of columns is left.
    """

    columns: int  #: the patch's and its halo's

    @property
    def quads(self) -> int:
        """Slices a row that take four adjacent columns."""
        return self.columns // 4

    @property
    def slices(self) -> int:
        """Slices of four of a group."""
        return PATCH[0] * self.columns // 4

    def cell(self, k: Expr) -> tuple[Expr, Expr]:
        """(row, column) of operand element k."""
        whole = 4 * PATCH[0] * self.quads
        row, column = k // 4 // self.quads, k // 4 % self.quads * 4 + k % 4
        if not (rest := self.columns % 4):
            return row, column
        inside, left = k.lt(whole), maximum(k - whole, 0)
        return select(inside, row, left // rest), select(inside, column, left % rest + 4 * self.quads)


def strip_columns(columns: int, radius: int, levels: int) -> int:
    """Columns of a strip that are right after all levels (each of them spoils its halo at the right end)."""
    return (columns - 2 * radius * (levels - 1)) // 4 * 4


def row_pitch(width: int, radius: int) -> int:
    """Columns from row to row of a group of ``width`` (even) columns, so that its slices are read without conflicts.

    A quad of columns is read by adjacent patches in a row.  Where a slice takes two columns of both rows, these must
    fill each other's gaps: then rows are 2 (mod 4) apart.
    """
    return width + 2 if radius % 2 and width % 4 == 0 else width


@register("patches")
@dataclass(frozen=True)
class Patches:
    """Strips of ``strips`` sub-strips, M patches wide each, ``rows`` outputs down, ``warps`` a block.

    ``stages`` groups are under way.
    """

    mma: str = "f64.m16n8k16"
    strips: int = 2
    rows: int = 512
    warps: int = 4
    stages: int = 6
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, lambda m, op: _Build(self, op).kernel(m))


class _Build:
    """The numbers of one kernel, and its parts."""

    def __init__(self, s: Patches, op: o.Stencil) -> None:
        self.s, self.op = s, op
        height, across = PATCH
        ry, rx = op.radius
        m = SHAPES[s.mma].m
        if s.rows % height or op.dtype != f64:
            raise ScheduleError(
                f"patches of {height}x{across} {op.dtype} outputs with rows={s.rows}",
                hint=f"the stencil must be f64, and rows a multiple of {height}",
            )
        self.window = Window(across + 2 * rx)
        self.touched = -(-(height + 2 * ry) // height)  # groups of outputs that need a group of rows
        self.lead = align_left(rx * op.levels, 2)
        self.shift = self.lead - rx * op.levels  # columns fetched for nothing but alignment
        self.part = m * across
        self.columns = s.strips * self.part
        self.step = strip_columns(self.columns, rx, op.levels)
        if self.step <= 0:
            raise ScheduleError(
                f"levels={op.levels} of radius {rx} leave nothing of a strip of {self.columns} columns",
                hint="take fewer levels, a lower fuse, or more strips",
            )
        self.width = -(-(self.shift + self.columns + 2 * rx) // 2) * 2
        self.pitch = row_pitch(self.width, rx)
        self.delay = (self.touched - 1) * op.levels + op.levels - 1

    def _operand(self) -> Layout:
        """(sub-strip, patch, k) to an element of a group."""

        def at(s: Expr, m: Expr, k: Expr) -> Expr:
            row, column = self.window.cell(k)
            return self._index(row, s * self.part + m * PATCH[1] + column + self.shift)

        return layout({"s": self.s.strips, "m": SHAPES[self.s.mma].m, "k": 4 * self.window.slices}, at)

    def _cell(self, s: Expr, m: Expr, n: Expr) -> tuple[Expr, Expr]:
        """(row, column) of an accumulator's element in the strip."""
        height, across = PATCH
        return n % height, s * self.part + m * across + n // height

    def _cells(self) -> dict[str, int]:
        return {"s": self.s.strips, "m": SHAPES[self.s.mma].m, "n": 8}

    def weight_table(self) -> Any:
        """The weights in fragment order, [touched group, slice, lane]: a lane has (k, n) = (lane % 4, lane // 4).

        Element (k, n) of the matrix for the q-th youngest touched group is the weight with which cell k of the window
        counts for output n of the patch: that of the offset between the two.
        """
        w, height = dense_weights(self.op), PATCH[0]
        out = np.zeros((self.touched, self.window.slices, 32))
        for q, i, lane in np.ndindex(out.shape):
            k, n = 4 * i + lane % 4, lane // 4
            row, column = (evaluate(e, {}) for e in self.window.cell(as_expr(k)))
            dy, dx = height * q + row - n % height, column - n // height
            if 0 <= dy < w.shape[0] and 0 <= dx < w.shape[1]:
                out[q, i, lane] = w[dy, dx]
        return out.ravel()

    def kernel(self, module: Module) -> Module:
        s, op, loc = self.s, self.op, self.op.loc
        height, size = PATCH[0], PATCH[0] * self.pitch
        regs = s.strips * len(SHAPES[s.mma].c.elements)
        u, out, values = field(op, "u"), field(op, "out"), self.weight_table()
        table = Buffer("w", op.dtype, values.size, "global")
        held = Buffer("wf", op.dtype, values.size // 32, "reg")
        ring = Buffer("ring", op.dtype, s.warps * s.stages * size, "shared")
        between = Buffer("between", op.dtype, s.warps * (op.levels - 1) * size, "shared")
        sums = Buffer("sums", op.dtype, max(1, op.levels * (self.touched - 1) * regs), "reg")
        turns = s.rows // height + self.delay
        turn, here = Value("group_turn", s32, 0, turns - 1), Value("group", s32, 0, (s.stages - 1) * size)
        a, slices = self._operand(), self.window.slices
        operands = [
            Buffer(f"a{i}", op.dtype, s.strips * slices * SHAPES[s.mma].m // 8, "reg") for i in range(op.levels)
        ]
        placed = layout(self._cells(), lambda x, m, n: self._placed(*self._cell(x, m, n)))
        # cells outside are read only where their value does not matter (the rim's part), or wrapped
        sides = any_cell(op.sides)
        wide = 2 if op.shape[1] % 2 == 0 and vector(op.pitch[0], 2) > 1 else 1

        def read(i: int) -> Op:
            src, at = (ring, here) if i == 0 else (between, as_expr((i - 1) * size))
            return p.ReadGroup(operands[i], src, at, a, s.mma, loc=loc)

        def add(loop: t.ForTiles, i: int) -> list[Op]:
            done = Buffer(f"done{i}", op.dtype, regs, "reg")
            adds = p.AddGroup(done, sums, operands[i], held, s.mma, s.strips, slices, i, self.touched, loc=loc)
            if i < op.levels - 1:
                return [adds, p.PassGroup(between, done, as_expr(i * size), placed, s.mma, loc=loc)]
            cells = layout(self._cells(), self._cell)
            return [adds, p.StoreGroup(out, done, loop.y, loop.x, turn, self.delay, self.step, cells, s.mma,
                                       op.pitch[1], op.box, loc=loc)]  # fmt: skip

        def levels(loop: t.ForTiles) -> tuple[Op, ...]:
            return _with_meets([x for i in reversed(range(op.levels)) for x in (read(i), *add(loop, i))])

        def body(loop: t.ForTiles) -> list[Op]:
            stream = p.RowGroups(
                turn, here, ring, u, loop.y, loop.x, turns, op.radius[0] * op.levels, self.step, self.lead, s.stages,
                layout({"r": height, "c": self.width}, self._index), (op.shape[-2], op.shape[-1]), op.pitch[0], sides,
                wide, levels(loop), loc=loc,
            )  # fmt: skip
            return [t.Registers(sums, loc=loc), stream]

        tile = s.rows, s.warps * self.step
        loop = tiles(whole(op), tile, 0, body, loc)
        shared: list[Op] = [t.Alloc(ring, layout({"i": ring.size}, lambda i: i), loc=loc)]
        shared += [p.Groups(between, loc=loc)] if op.levels > 1 else []
        func = t.Func(
            op.symbol, (u, out, table), tile_count(whole(op), tile), 32 * s.warps,
            (*shared, t.Fragments(held, table, loc=loc), loop), s.min_blocks, loc=loc,
        )  # fmt: skip
        return replace_kernel(module, op, func, {"w": values})

    def _index(self, r: Expr, c: Expr) -> Expr:
        return r * self.pitch + c

    def _placed(self, row: Expr, column: Expr) -> Expr:
        """Where a level's output goes in the group that the next level reads."""
        return self._index(row, column + self.shift)


def _with_meets(ops: list[Op]) -> tuple[Op, ...]:
    """The ops of a turn, the warp meeting wherever a lane could overwrite a group that others still read.

    Whether they could read one too early is no question: the group was made in the turn before.
    """
    out: list[Op] = []
    read: set[Expr] = set()
    for op in ops:
        if isinstance(op, p.ReadGroup):
            read.add(op.at)
        elif isinstance(op, p.PassGroup) and op.at in read:
            out.append(p.Meet(loc=op.loc))
            read = set()
        out.append(op)
    return tuple(out)
