"""``stream``: temporal blocking in registers; each warp walks down a strip and keeps all its time levels to itself.

Rows arrive through a cp.async ring of the warp; a row is added, level by level, to the rows that it touches.  There is
no block barrier, and nothing but the strip's halo is computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from .. import tile_stream as ts
from ..boundary_map import any_cell
from ..errors import ScheduleError
from ..expr import Value
from ..layout import layout
from ..module import Module
from ..node import Op
from ..types import Buffer, s32
from .manager import register
from .tile_common import each, field, replace_kernel, tile_count, tiles, vector, weights, whole


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
        return each(module, o.Stencil, self._kernel)

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        (ry, rx), (ny, nx), size = op.radius, op.shape, op.dtype.nbytes
        levels, piece = op.levels, 16 // size
        width = 32 * self.per_lane
        lead = -(-levels * rx // piece) * piece
        step = width - 2 * lead
        if step <= 0 or rx > self.per_lane or self.per_lane % piece:
            raise ScheduleError(
                f"{levels} levels of radius {rx} leave nothing of a strip of {width} columns",
                hint="take fewer levels or more columns a lane",
            )
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        # 16-byte pieces, one left out after every eight: lanes then read their own pieces without conflicts
        place = layout({"c": width}, lambda c: c + c // (8 * piece) * piece)
        slot = width + width // (8 * piece) * piece
        ring = Buffer("ring", op.dtype, self.warps * self.stages * slot, "shared")
        row = Buffer("row", w.dtype, self.per_lane, "reg")
        sums = Buffer("sums", w.dtype, max(1, levels * 2 * ry * self.per_lane), "reg")  # one row has none
        above = levels * ry
        # cells outside are read only where their value does not matter (the rim's part), or wrapped
        sides = any_cell(op.sides)
        turn = Value("row_turn", s32, 0, self.rows + 2 * above - 1)
        # 16-bit columns are too narrow to be copied one by one, asynchronously, where a piece lies across a border
        wide_in = vector(op.pitch[0], piece) if nx % piece == 0 or size >= 4 else 1
        wide_out = vector(op.pitch[1], piece)

        def body(loop: t.ForTiles) -> list[Op]:
            steps = ts.Levels(row, sums, w, op.taps, (ry, rx), levels, loc=op.loc)
            emit = ts.Emit(
                out, row, ring, loop.y, loop.x, turn, 2 * above, self.rows, step, lead, width, self.stages, place,
                op.pitch[1], op.box, wide_out, loc=op.loc,
            )  # fmt: skip
            stream = ts.Stream(
                row, turn, ring, u, loop.y, loop.x, self.rows, above, step, lead, width, self.stages, place, (ny, nx),
                op.pitch[0], sides, wide_in, self.unroll, (steps, emit), loc=op.loc,
            )  # fmt: skip
            return [t.Registers(sums, loc=op.loc), stream]

        cols = self.warps * step
        loop = tiles(whole(op), (self.rows, cols), 0, body, op.loc)
        func = t.Func(
            op.symbol, (u, out, w), tile_count(whole(op), (self.rows, cols)), 32 * self.warps,
            (t.Alloc(ring, layout({"i": ring.size}, lambda i: i), loc=op.loc), loop), self.min_blocks, loc=op.loc,
        )  # fmt: skip
        return replace_kernel(module, op, func, {"w": values})
