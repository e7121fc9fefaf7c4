"""``stream``: temporal blocking in registers; each warp walks down a strip and keeps all its time levels to itself.

Rows arrive through a cp.async ring of the warp; a row is added, level by level, to the rows that it touches.  There is
no block barrier, and nothing but the strip's halo is computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import op as o
from .. import tile as t
from .. import tile_walk as tw
from ..boundary_map import any_cell
from ..errors import ScheduleError
from ..expr import Value
from ..layout import layout
from ..module import Module
from ..node import Op
from ..numbers.stream import Strips
from ..passes.manager import register
from ..tile_levels import Levels
from ..types import Buffer, s32
from .common import each, field, grid, over_tiles, vector, weights


@register("stream")
@dataclass(frozen=True)
class Stream:
    """Strips of 32 * ``per_lane`` columns, ``rows`` outputs down, ``warps`` a block; ``stages`` rows under way."""

    per_lane: int = 4
    rows: int = 512
    warps: int = 2
    stages: int = 8
    unroll: int = 1
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel, axes=(2,))

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        (ry, rx), nx, size, levels = op.radius, op.shape[1], op.dtype.nbytes, op.levels
        n = Strips(
            radius=(ry, rx), levels=levels, nbytes=size, per_lane=self.per_lane, rows=self.rows,
            warps=self.warps, stages=self.stages,
        )  # fmt: skip
        if n.step <= 0 or rx > self.per_lane or self.per_lane % n.piece:
            raise ScheduleError(
                f"{levels} levels of radius {rx} leave nothing of a strip of {n.width} columns",
                hint="take fewer levels or more columns a lane",
            )
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        place = layout({"c": n.width}, lambda c: c + c // n.gap * n.piece)
        ring = Buffer("ring", op.dtype, n.ring, "shared")
        row = Buffer("row", w.dtype, self.per_lane, "reg")
        sums = Buffer("sums", w.dtype, max(1, levels * 2 * ry * self.per_lane), "reg")  # one row has none
        # cells outside are read only where their value does not matter (the rim's part), or wrapped
        cells = replace(grid(op), sides=any_cell(op.sides))
        turn = Value("row_turn", s32, 0, n.turns - 1)
        # 16-bit columns are too narrow to be copied one by one, asynchronously, where a piece lies across a border
        wide_in = vector(op.pitch[0], n.piece) if nx % n.piece == 0 or size >= 4 else 1
        wide_out = vector(op.pitch[1], n.piece)
        # a lane that copies just what it reads, and gives nothing to others afterwards, has its part of the ring alone
        private = wide_in == wide_out == self.per_lane and nx % wide_in == 0

        def body(loop: t.ForTiles) -> list[Op]:
            steps = Levels(values=row, sums=sums, weights=w, taps=op.taps, radius=(ry, rx), count=levels)
            emit = tw.Emit(
                dst=out, values=row, ring=ring, turn=turn, at=loop.at, delay=2 * n.above, lines=1, stages=self.stages,
                lead=(n.lead,), step=(n.step,), layout=place, grid=grid(op, "out"), box=op.box, vector=wide_out,
            )  # fmt: skip
            fetch = tw.Fetch(
                ring=ring, src=u, at=loop.at, turn=turn, above=n.above, lead=(n.lead,), lines=1, width=n.width,
                step=n.step, stages=self.stages, layout=place, grid=cells, vector=wide_in, border="piece",
            )  # fmt: skip
            take = tw.Take(values=row, ring=ring, turn=turn, lines=1, stages=self.stages, layout=place)
            walk = tw.Walk(
                turn=turn, held=(row,), turns=n.turns, stages=self.stages, scope="lane" if private else "warp",
                via="cp.async" if wide_in * size >= 4 else "ld", unroll=self.unroll, fill=(fetch,), read=(take,),
                body=(steps, emit),
            )  # fmt: skip
            return [t.Alloc(buf=sums, zeroed=True), walk]

        return over_tiles(
            module, op, n.tile, body, params=(u, out, w), constants={"w": values}, threads=32 * self.warps,
            before=(t.Alloc(buf=ring),), min_blocks=self.min_blocks,
        )  # fmt: skip
