"""``column`` for several time steps of a general update a pass: a block walks down a column of the fields.

Planes of what comes in arrive in rings; each step makes a plane a turn, and hands it to the next through registers,
other lanes and rings of its own.  A border holds at every step: blocks and turns near one run a body of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import formula as f
from .. import op_update as o
from .. import tile as t
from .. import tile_layer_levels as tll
from .. import tile_layers as tl
from .. import tile_levels as te
from .. import tile_walk as tw
from ..boundary_map import PERIODIC
from ..errors import ScheduleError
from ..expr import Value
from ..grid import Grid
from ..module import Module
from ..node import Op
from ..numbers.layers import Array
from ..passes.manager import register
from ..types import Buffer, s32
from .column_update import read_sides
from .common import each, replace_kernel, tile_count, tiles, vector
from .held import wrapping
from .pointwise import names


@register("column-levels")
@dataclass(frozen=True)
class ColumnLevels:
    """``warps`` warps of ``lines`` rows each, ``planes`` outputs on the slowest axis; ``stages`` planes under way.

    Roles of its launches: ``in.NAME.LEVEL`` for what it reads, ``out.NAME.LEVEL`` for what it writes (levels from 0,
    the newest; ``out.NAME`` for that).
    """

    lines: int = 2
    planes: int = 64
    warps: int = 8
    stages: int = 3
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Update, self._kernel, axes=(3,))

    def _kernel(self, module: Module, op: o.Update) -> Module:
        code, results = f.contract(op.code, op.results)
        n = tll.layer_levels_of(
            code, op.fields, op.dtype.nbytes, op.levels, lines=self.lines, warps=self.warps, stages=self.stages,
            planes=self.planes,
        )  # fmt: skip
        if (why := n.legal(op.shape)) is not None:
            raise ScheduleError(why, hint="take fewer levels, or more warps or lines")
        wrapping(op.sides)
        params = o.parameters(op.fields, op.coefs)
        came = [(name, level) for name, level in params if (name, -level) in n.came]
        given = op.grids
        grids_in = {(name, -level): given[f"in.{name}.{level}"] for name, level in came}
        grids = tuple(given[o.written(*made)] for made in n.outputs)
        titles = names([*(_title(*source) for source in came), *(f"{_title(*made)}_new" for made in n.outputs)])
        buffers = tuple(
            Buffer(title, op.dtype, grid.size, "global")
            for title, grid in zip(titles, (*grids_in.values(), *grids), strict=True)
        )
        outs, scalars = buffers[len(came) :], o.scalars(op, op.levels, buffers)
        arrays = dict(zip(grids_in, buffers, strict=False))
        rings = {
            source: Buffer(f"ring_{arrays[source].name}", op.dtype, n.skew + n.size(ring), "shared", 128)
            for source, ring in n.came.items()
        }  # fmt: skip
        made = tuple(
            Buffer(f"made_{name}_{time}", op.dtype, n.size(ring), "shared", 128)
            for (name, time), ring in n.made.items()
        )
        cells = self.lines * n.piece
        kept = tuple(
            Buffer(f"kept_{name}_{time}", op.dtype, (depth + 1) * cells, "reg")
            for (name, time), depth in n.kept.items()
        )
        of_field = {name: sides for (name, _), sides in zip(op.fields, op.sides, strict=True)}
        turn = Value("plane_turn", s32, 0, n.turns - 1)

        def body(loop: t.ForTiles) -> list[Op]:
            at = loop.at[0], loop.at[1] - n.lead[0], loop.at[2] - n.lead[1]  # of the window

            def fetch(source: Array) -> Op:
                grid, ring = grids_in[source], n.came[source]
                far = n.beside > op.radius[-1] and source[0] not in of_field
                sides = read_sides(of_field.get(source[0], op.coef_sides), () if far else op.sides)
                return tl.FetchLayer(
                    ring=rings[source], src=arrays[source], at=at, turn=turn, ahead=ring.ahead - n.delay(1),
                    rows=n.window[0], cols=n.window[1], halo=(ring.halo, 0), corners=True, rim=n.lead[1], skew=n.skew,
                    stages=ring.slots, piece=n.piece, vector=vector(grid.pitch, n.piece),
                    grid=replace(grid, sides=sides),
                )  # fmt: skip

            def steps(*axes: int) -> Op:
                """All steps, with the border of these axes."""
                border = tuple(
                    tuple(pair if axis in axes else PERIODIC for axis, pair in enumerate(sides)) for sides in op.sides
                )
                return tll.UpdateLayers(
                    outs=outs, rings=tuple(rings.values()), made=made, kept=kept, turn=turn, at=loop.at,
                    fields=op.fields, code=code, results=results, count=op.levels, lines=self.lines,
                    planes=self.planes, stages=self.stages, grids=grids, radius=op.radius,
                    vectors=tuple(vector(grid.pitch, n.piece) for grid in grids), sides=border if axes else (),
                    scalars=next(iter(scalars), None),
                )  # fmt: skip

            def near(axes: tuple[int, ...], border: Op, inside: Op) -> Op:
                """The border's work where the planes of a turn touch a side of these axes that is not periodic."""
                sides = tuple(
                    pair if axis in axes and n.radius[axis] else PERIODIC for axis, pair in enumerate(op.sides[0])
                )
                if all(pair[0][0] == "periodic" for pair in sides):
                    return inside
                # all planes that a turn makes, and as far around the cells that it makes as a frozen side keeps them
                made = ((op.levels - 1) * n.lag, *n.lead), (1 + (op.levels - 1) * n.lag, *n.window)
                return te.IfBorder(
                    at=(loop.at[0] + turn - n.delay(1), *loop.at[1:]),
                    before=tuple(first + r for first, r in zip(made[0], n.radius, strict=True)),
                    size=tuple(count + 2 * r for count, r in zip(made[1], n.radius, strict=True)),
                    grid=Grid(op.shape, op.pitch[0], sides), near=(border,), inside=(inside,),
                )  # fmt: skip

            # a block at the side of the field has its border in every turn, every block has that of the slowest axis in
            # its first and last turns
            work = near((0,), steps(0, 1, 2), near((1, 2), steps(1, 2), steps()))
            walk = tw.Walk(
                turn=turn, turns=n.turns, stages=self.stages, scope="block", via="cp.async",
                fill=tuple(map(fetch, n.came)), body=(work,),
            )  # fmt: skip
            return [*(t.Alloc(buf=regs, zeroed=True) for regs in kept), walk]

        box = (tuple((0, size) for size in op.shape),)
        func = t.Func(
            symbol=op.symbol, params=(*buffers, *scalars), blocks=tile_count(box, n.tile), threads=32 * self.warps,
            body=(*(t.Alloc(buf=ring) for ring in (*rings.values(), *made)), tiles(box, n.tile, 0, body)),
            min_blocks=self.min_blocks,
        )  # fmt: skip
        arrays_of = (*(f"in.{name}.{level}" for name, level in came), *(o.written(*made) for made in n.outputs))
        roles = (*arrays_of, *(o.SCALARS for _ in scalars))
        return replace_kernel(module, op, func, roles)


def _title(name: str, level: int) -> str:
    return f"{name}_{level}" if level else name
