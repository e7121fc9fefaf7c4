"""``column``: temporal blocking on three axes; a block keeps a column of the field and walks down it plane by plane.

All time levels live in registers as partial sums; columns come from neighbouring lanes, rows from neighbouring warps
through shared memory.  A border that is not periodic holds at every level: tiles that touch it run a body of their own,
so nothing is left to a rim.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import op as o
from .. import tile as t
from .. import tile_levels as tl
from .. import tile_walk as tw
from ..boundary_map import PERIODIC, any_cell
from ..errors import ScheduleError
from ..expr import Value
from ..module import Module
from ..node import Op
from ..numbers.column import Planes
from ..passes.manager import register
from ..types import Buffer, s32
from .common import each, field, grid, over_tiles, vector, weights


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
        return each(module, o.Stencil, self._kernel, axes=(3,))

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        (rz, ry, rx), levels = op.radius, op.levels
        # a star's planes need no neighbours to be complete
        chained = rz > 0 and all(sum(map(bool, offset)) <= 1 for offset, _ in op.taps)
        n = Planes(
            radius=(rz, ry, rx), levels=levels, nbytes=op.dtype.nbytes, lines=self.lines, planes=self.planes,
            warps=self.warps, stages=self.stages, chained=chained,
        )  # fmt: skip
        # a side that no tap crosses has no say: along such an axis nothing outside is read, and nothing is kept
        sides = tuple(pair if r else PERIODIC for pair, r in zip(op.sides, op.radius, strict=True))
        mirrored = any(side[0] == "neumann" for pair in sides for side in pair)
        if min(n.step) <= 0 or max(ry - self.lines, rx - n.piece) > 0 or (mirrored and max(op.radius) > 1):
            raise ScheduleError(
                f"{levels} levels of radius {op.radius} leave nothing of {n.size[0]} rows and {n.size[1]} columns, "
                "reach beyond the neighbouring thread, or cross a mirrored border by more than one cell",
                hint="take fewer levels, or more warps or lines; direct takes any radius",
            )
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        ring = Buffer("ring", op.dtype, n.ring, "shared", 128)
        edges = Buffer("edges", op.dtype, n.edges, "shared", 128)
        plane = Buffer("plane", op.dtype, n.cells, "reg")
        sums = Buffer("sums", op.dtype, max(1, levels * 2 * rz * n.cells), "reg")
        planes = Buffer("planes", op.dtype, (levels if chained else levels + 1) * n.cells, "reg")
        turn = Value("plane_turn", s32, 0, n.turns - 1)
        top = (1 << n.cells) - 1
        kept, outside = Value("kept_cells", s32, 0, top), Value("outside_cells", s32, 0, top)

        wide_in, wide_out = (vector(pitch, n.piece) for pitch in op.pitch)
        # a lane that copies just what it reads, and gives nothing to others afterwards, has its part of the ring alone
        private = wide_in == wide_out == n.piece

        def body(loop: t.ForTiles) -> list[Op]:
            def steps(border: o.Sides) -> tl.PlaneLevels:
                return tl.PlaneLevels(
                    values=plane, sums=sums, planes=planes, edges=edges, weights=w, turn=turn, kept=kept,
                    outside=outside, at=loop.at, taps=op.taps, radius=(rz, ry, rx), count=levels, lag=n.lag,
                    lines=self.lines, above=n.above, lead=n.lead, grid=replace(grid(op), sides=border),
                )  # fmt: skip

            at = (loop.at[0] - n.above + turn, *loop.at[1:])
            # planes from the first cells that matter to the one that the last level completes, to the first level's,
            # and to those that a frozen side behind it keeps
            last = (levels - 1) * n.lag + 2 * rz
            before, window = (last, *n.lead), (last + 1 + rz, *n.size)

            def near(axes: tuple[int, ...], border: Op, inside: Op) -> Op:
                """The border's work where the window touches a side of these axes that is not periodic."""
                own = tuple(pair if axis in axes else PERIODIC for axis, pair in enumerate(sides))
                if all(pair[0][0] == "periodic" for pair in own):
                    return inside
                own_grid = replace(grid(op), sides=own)
                return tl.IfBorder(at=at, before=before, size=window, grid=own_grid, near=(border,), inside=(inside,))

            # a block at the side of the field has its border in every turn, every block has that of the slowest axis in
            # its first and last turns
            work = near((1, 2), steps((PERIODIC, *sides[1:])), steps(()))
            work = near((0,), steps(sides), work)
            emit = tw.Emit(
                dst=out, values=plane, ring=ring, turn=turn, at=loop.at, delay=n.delay, lines=self.lines,
                stages=self.stages, lead=n.lead, step=n.step, grid=grid(op, "out"), box=op.box, vector=wide_out,
            )  # fmt: skip
            masks = tuple(
                tl.Mask(
                    cells=cells, kind=kind, at=loop.at, lead=n.lead, lines=self.lines, per_lane=n.piece,
                    keep=(ry, rx), grid=replace(grid(op), sides=sides),
                )
                for cells, kind in ((kept, "frozen"), (outside, "dirichlet"))
            )  # fmt: skip
            # what lies outside a border that is not periodic is set or read otherwise at every level
            fetch = tw.Fetch(
                ring=ring, src=u, at=loop.at, turn=turn, above=n.above, lead=n.lead, lines=self.lines,
                width=n.size[1], stages=self.stages, grid=replace(grid(op), sides=any_cell(sides)), vector=wide_in,
                border="predicate",
            )  # fmt: skip
            take = tw.Take(values=plane, ring=ring, turn=turn, lines=self.lines, stages=self.stages)
            walk = tw.Walk(
                turn=turn, known=(kept, outside), held=(plane,), turns=n.turns, stages=self.stages,
                scope="lane" if private else "warp", via="cp.async", fill=(fetch,), once=masks, read=(take,),
                body=(work, emit),
            )  # fmt: skip
            return [*(t.Alloc(buf=regs, zeroed=True) for regs in (sums, planes)), walk]

        return over_tiles(
            module, op, n.tile, body, params=(u, out, w), constants={"w": values}, threads=32 * self.warps,
            before=(t.Alloc(buf=ring), t.Alloc(buf=edges)),
            min_blocks=self.min_blocks,
        )  # fmt: skip
