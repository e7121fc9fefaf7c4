"""``column`` for general updates: a block walks down a column of the fields plane by plane, one time step a pass.

Planes of what is read beside a cell come through rings, what is read above and below stays in registers, and arrays
that are read at the cell alone go through slots of each thread.  A border is met where planes are copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import formula as f
from .. import op_update as o
from .. import tile as t
from .. import tile_layers as tl
from .. import tile_walk as tw
from ..boundary_map import PERIODIC
from ..expr import Value
from ..grid import keep
from ..module import Module
from ..node import Op
from ..numbers.layers import Array
from ..op import Sides
from ..passes.manager import register
from ..types import Buffer, s32
from .common import each, replace_kernel, tile_count, tiles, vector
from .pointwise import names, one_step


@register("column-update")
@dataclass(frozen=True)
class ColumnUpdate:
    """``warps`` warps of ``lines`` rows each, ``planes`` outputs on the slowest axis; ``stages`` planes under way.

    Linear stencils are such updates too.  Roles of its launches: ``in.NAME.LEVEL`` for what it reads, ``out.NAME`` for
    a field's new level; of a stencil ``in`` and ``out``.
    """

    lines: int = 2
    planes: int = 64
    warps: int = 8
    stages: int = 3
    unroll: int = 1
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(one_step(module), o.Update, self._kernel, axes=(3,))

    def _kernel(self, module: Module, op: o.Update) -> Module:
        code, results = f.contract(op.code, op.results)
        n = tl.layers_of(
            code, op.fields, op.dtype.nbytes, lines=self.lines, warps=self.warps, stages=self.stages, planes=self.planes
        )
        params = [source for source in o.parameters(op.fields, op.coefs) if source in {*n.rings, *n.owns}]
        grids = op.grids
        grids_in = {(name, level): grids[f"in.{name}.{level}"] for name, level in params}
        grids_out = tuple(grids[o.written(name, 0)] for name, _ in op.fields)
        titles = names([*(f"{name}_{level}" if level else name for name, level in params),
                        *(f"{name}_new" for name, _ in op.fields)])  # fmt: skip
        buffers = tuple(
            Buffer(title, op.dtype, grid.size, "global")
            for title, grid in zip(titles, (*grids_in.values(), *grids_out), strict=True)
        )
        src, outs = dict(zip(params, buffers, strict=False)), buffers[len(params) :]
        scalars = o.scalars(op, 1, buffers)
        arrays = (*n.rings, *n.owns)
        rings = {array: Buffer(f"ring_{src[array].name}", op.dtype, n.ring(array), "shared", 128) for array in arrays}
        kept = tuple(
            Buffer(f"kept_{src[array].name}", op.dtype, planes.kept * self.lines * n.piece, "reg")
            for array, planes in n.rings.items() if planes.kept
        )  # fmt: skip
        of_field = {name: sides for (name, _), sides in zip(op.fields, op.sides, strict=True)}
        turn = Value("plane_turn", s32, 0, n.turns - 1)

        def body(loop: t.ForTiles) -> list[Op]:
            def fetch(array: Array) -> Op:
                far = array in n.rings and n.rings[array].columns > op.radius[-1]
                sides = read_sides(of_field.get(array[0], op.coef_sides), () if far else op.sides)
                grid = replace(grids_in[array], sides=sides)
                wide = vector(grid.pitch, n.piece)
                if array in n.owns:
                    return tl.FetchOwn(
                        ring=rings[array], src=src[array], at=loop.at, turn=turn, ahead=-n.delay, lines=self.lines,
                        stages=self.stages, piece=n.piece, vector=wide, grid=grid,
                    )  # fmt: skip
                planes = n.rings[array]
                return tl.FetchLayer(
                    ring=rings[array], src=src[array], at=loop.at, turn=turn, ahead=planes.ahead - n.delay,
                    rows=n.tile[1], cols=n.tile[2], halo=planes.halo, corners=planes.corners, skew=n.skew(array),
                    stages=n.slots(array), piece=n.piece, vector=wide, grid=grid,
                )  # fmt: skip

            layer = tl.UpdateLayer(
                outs=outs, rings=tuple(rings.values()), kept=kept, turn=turn, at=loop.at, fields=op.fields, code=code,
                results=results, lines=self.lines, stages=self.stages,
                grids=grids_out, vectors=tuple(vector(grid.pitch, n.piece) for grid in grids_out),
                keep=tuple(keep(op.radius, sides) for sides in op.sides), scalars=next(iter(scalars), None),
            )  # fmt: skip
            walk = tw.Walk(
                turn=turn, turns=n.turns, stages=self.stages, scope="block", via="cp.async", unroll=self.unroll,
                fill=tuple(map(fetch, arrays)), body=(layer,),
            )  # fmt: skip
            return [*(t.Alloc(buf=regs, zeroed=True) for regs in kept), walk]

        box = (tuple((0, size) for size in op.shape),)
        func = t.Func(
            symbol=op.symbol, params=(*buffers, *scalars), blocks=tile_count(box, n.tile), threads=32 * self.warps,
            body=(*(t.Alloc(buf=ring) for ring in rings.values()), tiles(box, n.tile, 0, body)),
            min_blocks=self.min_blocks,
        )  # fmt: skip
        roles = (
            *(f"in.{name}.{level}" for name, level in params),
            *(o.written(name, 0) for name, _ in op.fields),
            *(o.SCALARS for _ in scalars),
        )
        return replace_kernel(module, op, func, roles)


def read_sides(sides: Sides, fields: tuple[Sides, ...]) -> Sides:
    """How copies read outside: columns wrap, piece by piece, where every one of ``fields`` keeps all cells that would
    read them (without any: as the sides say)."""
    kept = fields and all(side[0] == "frozen" for of_field in fields for side in of_field[-1])
    return (*sides[:-1], PERIODIC) if kept else sides
