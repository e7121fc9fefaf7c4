"""``patches``: temporal blocking on tensor cores; each warp walks down a strip, groups of rows at a time.

A row of an mma is a *patch* of outputs, its operand the window that they need.  Every group of rows is read once from
shared memory and added to all the groups of outputs that it touches; the sums wait in registers, and moving them on is
free because mma has C and D apart.  Levels are chained through a group of shared memory that the warp alone uses, so
there is no block barrier; a level takes what the level before made one turn ago, so that the levels of a turn do not
wait for one another.  Column n of the accumulator is row n % 2, column n // 2 of the patch: a lane then holds what the
next level wants to find in adjacent columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import op as o
from .. import tile as t
from .. import tile_products as p
from .. import tile_walk as tw
from ..boundary_map import any_cell
from ..errors import ScheduleError
from ..expr import Expr, Value, as_expr, evaluate
from ..fragments import SHAPES
from ..fuse import dense_weights
from ..layout import Layout, layout
from ..module import Module
from ..node import Op
from ..numbers.patches import PATCH, Groups
from ..passes.manager import choice, register
from ..types import Buffer, f64, s32
from .common import each, field, grid, over_tiles, vector


@register("patches")
@dataclass(frozen=True)
class Patches:
    """Strips of ``strips`` sub-strips, M patches wide each, ``rows`` outputs down, ``warps`` a block.

    ``stages`` groups are under way.
    """

    mma: str = choice("f64.m16n8k16", "f64.m8n8k4")
    strips: int = 2
    rows: int = 512
    warps: int = 4
    stages: int = 6
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, lambda m, op: _Build(self, op).kernel(m), axes=(2,))


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
        self.n = Groups(
            radius=(ry, rx), levels=op.levels, m=m, strips=s.strips, rows=s.rows, warps=s.warps, stages=s.stages
        )
        if self.n.step <= 0:
            raise ScheduleError(
                f"levels={op.levels} of radius {rx} leave nothing of a strip of {self.n.columns} columns",
                hint="take fewer levels, a lower fuse, or more strips",
            )

    def _operand(self) -> Layout:
        """(sub-strip, patch, k) to an element of a group."""

        def at(s: Expr, m: Expr, k: Expr) -> Expr:
            row, column = self.n.window.cell(k)
            return self._index(row, s * self.n.part + m * PATCH[1] + column + self.n.shift)

        return layout({"s": self.s.strips, "m": SHAPES[self.s.mma].m, "k": 4 * self.n.window.slices}, at)

    def _cell(self, s: Expr, m: Expr, n: Expr) -> tuple[Expr, Expr]:
        """(row, column) of an accumulator's element in the strip."""
        height, across = PATCH
        return n % height, s * self.n.part + m * across + n // height

    def _cells(self) -> dict[str, int]:
        return {"s": self.s.strips, "m": SHAPES[self.s.mma].m, "n": 8}

    def weight_table(self) -> Any:
        """The weights in fragment order, [touched group, slice, lane]: a lane has (k, n) = (lane % 4, lane // 4).

        Element (k, n) of the matrix for the q-th youngest touched group is the weight with which cell k of the window
        counts for output n of the patch: that of the offset between the two.
        """
        w, height = dense_weights(self.op), PATCH[0]
        out = np.zeros((self.n.touched, self.n.window.slices, 32))
        for q, i, lane in np.ndindex(out.shape):
            k, n = 4 * i + lane % 4, lane // 4
            row, column = (evaluate(e, {}) for e in self.n.window.cell(as_expr(k)))
            dy, dx = height * q + row - n % height, column - n // height
            if 0 <= dy < w.shape[0] and 0 <= dx < w.shape[1]:
                out[q, i, lane] = w[dy, dx]
        return out.ravel()

    def kernel(self, module: Module) -> Module:
        s, op = self.s, self.op
        height, size, n = PATCH[0], self.n.size, self.n
        regs = s.strips * len(SHAPES[s.mma].c.elements)
        u, out, values = field(op, "u"), field(op, "out"), self.weight_table()
        table = Buffer("w", op.dtype, values.size, "global")
        held = Buffer("wf", op.dtype, values.size // 32, "reg")
        ring = Buffer("ring", op.dtype, n.ring, "shared")
        between = Buffer("between", op.dtype, n.between, "shared")
        sums = Buffer("sums", op.dtype, max(1, op.levels * (self.n.touched - 1) * regs), "reg")
        turn, here = Value("group_turn", s32, 0, n.turns - 1), Value("group", s32, 0, (s.stages - 1) * size)
        a, slices = self._operand(), self.n.window.slices
        operands = [
            Buffer(f"a{i}", op.dtype, s.strips * slices * SHAPES[s.mma].m // 8, "reg") for i in range(op.levels)
        ]
        placed = layout(self._cells(), lambda x, m, n: self._placed(*self._cell(x, m, n)))
        # cells outside are read only where their value does not matter (the rim's part), or wrapped
        sides = any_cell(op.sides)
        wide = 2 if op.shape[1] % 2 == 0 and vector(op.pitch[0], 2) > 1 else 1

        def read(i: int) -> Op:
            src, at = (ring, here) if i == 0 else (between, as_expr((i - 1) * size))
            return p.ReadGroup(held=operands[i], src=src, at=at, a=a, shape=s.mma)

        def add(loop: t.ForTiles, i: int) -> list[Op]:
            done = Buffer(f"done{i}", op.dtype, regs, "reg")
            adds = p.AddGroup(
                done=done, sums=sums, held=operands[i], weights=held, shape=s.mma, strips=s.strips, slices=slices,
                level=i, touched=self.n.touched,
            )  # fmt: skip
            if i < op.levels - 1:
                after = p.PassGroup(dst=between, done=done, at=as_expr(i * size), c=placed, shape=s.mma)
                return [adds, after]
            cells = layout(self._cells(), self._cell)
            store = p.StoreGroup(
                dst=out, done=done, at=loop.at, turn=turn, delay=self.n.delay, step=self.n.step, c=cells, shape=s.mma,
                grid=grid(op, "out"), box=op.box,
            )  # fmt: skip
            return [adds, store]

        def levels(loop: t.ForTiles) -> tuple[Op, ...]:
            return _with_meets([x for i in reversed(range(op.levels)) for x in (read(i), *add(loop, i))])

        def body(loop: t.ForTiles) -> list[Op]:
            fetch = tw.Fetch(
                ring=ring, src=u, at=loop.at, turn=turn, above=n.above, lead=(n.lead,), lines=height, width=n.width,
                step=n.step, stages=s.stages, layout=layout({"r": height, "c": n.width}, self._index),
                grid=replace(grid(op), sides=sides), vector=wide, border="whole",
            )  # fmt: skip
            walk = tw.Walk(
                turn=turn, here=here, turns=n.turns, stages=s.stages, scope="warp", via="cp.async", slot=size,
                fill=(fetch,), body=levels(loop),
            )  # fmt: skip
            return [t.Alloc(buf=sums, zeroed=True), walk]

        shared: list[Op] = [t.Alloc(buf=ring)]
        shared += [t.Alloc(buf=between, zeroed=True)] if op.levels > 1 else []
        return over_tiles(
            module, op, n.tile, body, params=(u, out, table), constants={"w": values}, threads=32 * s.warps,
            before=(*shared, t.Fragments(regs=held, table=table)), min_blocks=s.min_blocks,
        )  # fmt: skip

    def _index(self, r: Expr, c: Expr) -> Expr:
        return r * self.n.pitch + c

    def _placed(self, row: Expr, column: Expr) -> Expr:
        """Where a level's output goes in the group that the next level reads."""
        return self._index(row, column + self.n.shift)


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
            out.append(t.Meet(scope="warp"))
            read = set()
        out.append(op)
    return tuple(out)
