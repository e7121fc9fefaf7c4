"""``column``: temporal blocking on three axes; a block keeps a column of the field and walks down it plane by plane.

All time levels live in registers as partial sums; columns come from neighbouring lanes, rows from neighbouring warps
through shared memory.  A border that is not periodic holds at every level: tiles that touch it run a body of their own,
so nothing is left to a rim.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from .. import tile_planes as tp
from ..errors import ScheduleError
from ..expr import Value
from ..layout import layout
from ..module import Module
from ..node import Op
from ..types import Buffer, s32
from .manager import register
from .tile_common import align_left, each, field, replace_kernel, tile_count, tiles, vector, weights, whole

_PERIODIC: tuple[o.SideSpec, o.SideSpec] = (("periodic", 0.0), ("periodic", 0.0))


@register("column")
@dataclass(frozen=True)
class Column:
    """``warps`` warps of ``lines`` rows each, ``planes`` outputs on the slowest axis; ``stages`` planes under way."""

    lines: int = 2
    planes: int = 64
    warps: int = 16
    stages: int = 4
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel)

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        piece = 16 // op.dtype.nbytes
        (rz, ry, rx), levels = op.radius, op.levels
        lead = levels * ry, align_left(levels * rx, 2 * piece)  # windows start at a sector of 32 bytes
        size = self.warps * self.lines, 32 * piece
        step = size[0] - 2 * lead[0], size[1] - 2 * lead[1]
        # a side that no tap crosses has no say: along such an axis nothing outside is read, and nothing is kept
        sides = tuple(pair if r else _PERIODIC for pair, r in zip(op.sides, op.radius, strict=True))
        mirrored = any(side[0] == "neumann" for pair in sides for side in pair)
        if min(step) <= 0 or max(ry - self.lines, rx - piece) > 0 or (mirrored and max(op.radius) > 1):
            raise ScheduleError(
                f"{levels} levels of radius {op.radius} leave nothing of {size[0]} rows and {size[1]} columns, reach "
                "beyond the neighbouring thread, or cross a mirrored border by more than one cell",
                hint="take fewer levels, or more warps or lines; direct takes any radius",
            )
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        above = levels * rz
        cells = self.lines * piece
        ring = Buffer("ring", op.dtype, self.stages * size[0] * size[1], "shared", 128)
        # a star's planes need no neighbours to be complete
        chained = rz > 0 and all(sum(map(bool, offset)) <= 1 for offset, _ in op.taps)
        lag = rz if chained else rz + 1
        delay = above + (levels - 1) * lag + rz  # turns until the last level's first plane is complete
        edges = Buffer("edges", op.dtype, 2 * max(1, ry) * levels * self.warps * 2 * size[1], "shared", 128)
        plane = Buffer("plane", op.dtype, cells, "reg")
        sums = Buffer("sums", op.dtype, max(1, levels * 2 * rz * cells), "reg")
        planes = Buffer("planes", op.dtype, (levels if chained else levels + 1) * cells, "reg")
        turn = Value("plane_turn", s32, 0, self.planes + delay - 1)
        top = (1 << cells) - 1
        kept, outside = Value("kept_cells", s32, 0, top), Value("outside_cells", s32, 0, top)
        tile = self.planes, *step

        def body(loop: t.ForTiles) -> list[Op]:
            def steps(border: o.Sides) -> tp.PlaneLevels:
                return tp.PlaneLevels(
                    plane, sums, planes, edges, w, turn, kept, outside, loop.at, op.taps, (rz, ry, rx), levels, lag,
                    self.lines, above, lead, op.shape, border, loc=op.loc,
                )  # fmt: skip

            at = (loop.at[0] - above + turn, *loop.at[1:])
            # planes from the first cells that matter to the one that the last level completes, to the first level's,
            # and to those that a frozen side behind it keeps
            last = (levels - 1) * lag + 2 * rz
            before, window = (last, *lead), (last + 1 + rz, *size)

            def near(axes: tuple[int, ...], border: Op, inside: Op) -> Op:
                """The border's work where the window touches a side of these axes that is not periodic."""
                own = tuple(pair if axis in axes else _PERIODIC for axis, pair in enumerate(sides))
                if all(pair[0][0] == "periodic" for pair in own):
                    return inside
                return tp.IfBorder(at, before, window, op.shape, own, (border,), (inside,), loc=op.loc)

            # a block at the side of the field has its border in every turn, every block has that of the slowest axis in
            # its first and last turns
            work = near((1, 2), steps((_PERIODIC, *sides[1:])), steps(()))
            work = near((0,), steps(sides), work)
            store = tp.StorePlane(
                out, plane, ring, turn, loop.at, delay, self.lines, self.stages, lead, step, op.shape, op.pitch[1],
                op.box, vector(op.pitch[1], piece), loc=op.loc,
            )  # fmt: skip
            stream = tp.Planes(
                plane, turn, kept, outside, ring, u, loop.at, self.planes + delay, above, lead, self.lines, self.stages,
                op.shape, op.pitch[0], sides, (ry, rx), vector(op.pitch[0], piece), (work, store), loc=op.loc,
            )  # fmt: skip
            return [t.Registers(sums, loc=op.loc), t.Registers(planes, loc=op.loc), stream]

        flat = [t.Alloc(b, layout({"i": b.size}, lambda i: i), loc=op.loc) for b in (ring, edges)]
        loop = tiles(whole(op), tile, 0, body, op.loc)
        func = t.Func(
            op.symbol, (u, out, w), tile_count(whole(op), tile), 32 * self.warps, (*flat, loop), self.min_blocks,
            loc=op.loc,
        )  # fmt: skip
        return replace_kernel(module, op, func, {"w": values})
