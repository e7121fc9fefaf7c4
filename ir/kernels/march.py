"""``march`` for updates on three axes: threads go down a column of the fields plane by plane, out of their registers.

Nothing goes through shared memory: blocks are small, many stay on an SM, and what they read beside their cells comes
from L1 and L2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from .. import formula as f
from .. import op_update as o
from .. import tile as t
from .. import tile_march as tm
from ..grid import keep
from ..module import Module
from ..node import Op
from ..passes.manager import register
from ..types import Buffer
from .common import each, replace_kernel, tile_count, tiles, vector
from .pointwise import names, one_step


@register("march")
@dataclass(frozen=True)
class March:
    """Blocks of ``rows`` x ``cols`` threads, of ``lines`` rows of 16 bytes each, that make ``planes`` planes.

    Linear stencils are such updates too.  Roles of its launches: ``in.NAME.LEVEL`` for what it reads, ``out.NAME`` for
    a field's new level; of a stencil ``in`` and ``out``.
    """

    rows: int = 4
    cols: int = 32
    lines: int = 4
    planes: int = 32
    unroll: int = 2
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(one_step(module), o.Update, self._kernel, axes=(3,))

    def _kernel(self, module: Module, op: o.Update) -> Module:
        code, results = f.contract(op.code, op.results)
        n = tm.march_of(code, op.fields, op.dtype.nbytes, self.lines)
        of_field = {name: sides for (name, _), sides in zip(op.fields, op.sides, strict=True)}
        arrays = tuple(n.held)
        grids = [
            replace(op.grids[f"in.{name}.{level}"], sides=of_field.get(name, op.coef_sides)) for name, level in arrays
        ] + [op.grids[o.written(name, 0)] for name, _ in op.fields]
        titles = names([*(f"{name}_{level}" if level else name for name, level in arrays),
                        *(f"{name}_new" for name, _ in op.fields)])  # fmt: skip
        buffers = tuple(Buffer(title, op.dtype, grid.size, "global") for title, grid in zip(titles, grids, strict=True))
        srcs, outs = buffers[: len(arrays)], buffers[len(arrays) :]
        kept = tuple(
            Buffer(f"kept_{src.name}", op.dtype, held.size, "reg")
            for src, held in zip(srcs, n.held.values(), strict=True)
        )
        scalars = o.scalars(op, 1, buffers)
        size = self.planes, self.rows * self.lines, self.cols * n.piece

        def body(loop: t.ForTiles) -> list[Op]:
            march = tm.March(
                outs=outs, srcs=srcs, kept=kept, at=loop.at, planes=self.planes, reads=arrays, fields=op.fields,
                code=code, results=results, threads=(self.rows, self.cols), lines=self.lines, grids=tuple(grids),
                vectors=tuple(vector(grid.pitch, n.piece) for grid in grids),
                keep=tuple(keep(op.radius, sides) for sides in op.sides), unroll=self.unroll,
                scalars=next(iter(scalars), None),
            )  # fmt: skip
            return [*(t.Alloc(buf=regs) for regs in kept), march]

        box, threads = (tuple((0, extent) for extent in op.shape),), (self.rows, self.cols)
        func = t.Func(
            symbol=op.symbol, params=(*buffers, *scalars), blocks=tile_count(box, size), threads=prod(threads),
            body=(tiles(box, size, 0, body),), min_blocks=self.min_blocks,
        )  # fmt: skip
        roles = (
            *(f"in.{name}.{level}" for name, level in arrays),
            *(o.written(name, 0) for name, _ in op.fields),
            *(o.SCALARS for _ in scalars),
        )
        return replace_kernel(module, op, func, roles)
