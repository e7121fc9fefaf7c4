"""``slab``: one time step a pass on three axes; a block walks down the field plane by plane with whole rows of it.

Rows come by bulk copies, one each, so that memory is read in long runs and no thread spends instructions on it.  A
plane is added to the sums of the planes that it touches, then forgotten: sums are all that threads keep, whatever the
weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op as o
from .. import tile as t
from .. import tile_slab as ts
from .. import tile_walk as tw
from ..errors import ScheduleError
from ..expr import Value
from ..grid import keep
from ..module import Module
from ..node import Op
from ..numbers.slab import Slab as Numbers
from ..passes.manager import register
from ..types import Buffer, s32, u64
from .common import each, field, grid, over_tiles, vector, weights


@register("slab")
@dataclass(frozen=True)
class Slab:
    """Blocks of ``warps`` warps with rows of up to ``cols`` columns, ``lines`` of them a thread; ``planes`` outputs on
    the slowest axis, ``stages`` planes under way.  Rows that are no whole pieces of 16 bytes all threads copy."""

    lines: int = 4
    cols: int = 768
    warps: int = 24
    planes: int = 12
    stages: int = 3
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Stencil, self._kernel, axes=(3,))

    def _kernel(self, module: Module, op: o.Stencil) -> Module:
        (rz, ry, rx), nx = op.radius, op.shape[-1]
        n = Numbers(
            radius=(rz, ry, rx), nbytes=op.dtype.nbytes, lines=self.lines, cols=self.cols, warps=self.warps,
            planes=self.planes, stages=self.stages,
        )  # fmt: skip
        if not n.legal(self.cols, self.warps) or nx > self.cols:
            raise ScheduleError(f"rows of {nx} cells and of {self.cols} columns for {self.warps} warps",
                                hint="let whole warps share out whole rows")  # fmt: skip
        u, out = field(op, "u"), field(op, "out")
        w, values = weights(op)
        kept = keep(op.radius, op.sides)
        ring = Buffer("ring", op.dtype, n.ring, "shared", 128)
        wide = vector(op.pitch[0], n.piece) if nx % n.piece == 0 else 1
        bulk = wide > 1 and n.rows <= 32
        bars = Buffer("full", u64, self.stages, "shared", 8) if bulk else None
        sums = Buffer("sums", op.dtype, 2 * rz * n.cells, "reg") if rz else None
        own = Buffer("own", op.dtype, rz * n.cells, "reg") if rz and any(map(any, kept)) else None
        turn = Value("plane_turn", s32, 0, n.turns - 1)

        def body(loop: t.ForTiles) -> list[Op]:
            fetch = ts.FetchSlab(
                ring=ring, src=u, bars=bars, at=loop.at, turn=turn, above=rz, before=ry, rows=n.rows, width=self.cols,
                stages=self.stages, vector=wide, grid=grid(op),
            )  # fmt: skip
            add = ts.SumPlane(
                dst=out, ring=ring, sums=sums, own=own, weights=w, turn=turn, at=loop.at, taps=op.taps,
                radius=(rz, ry, rx), threads=(n.down, n.across), lines=self.lines, stages=self.stages, width=self.cols,
                keep=kept, grid=grid(op), out_grid=grid(op, "out"), vector=vector(op.pitch[1], n.piece),
            )  # fmt: skip
            walk = tw.Walk(
                turn=turn, turns=n.turns, stages=self.stages, scope="block", via="bulk" if bulk else "cp.async",
                bars=bars, fill=(fetch,), body=(add,),
            )  # fmt: skip
            return [*(t.Alloc(buf=regs, zeroed=True) for regs in (sums, own) if regs is not None), walk]

        before = [t.Alloc(buf=buf) for buf in (ring, bars) if buf is not None]
        return over_tiles(
            module, op, n.tile, body, params=(u, out, w), constants={"w": values}, threads=32 * self.warps,
            before=tuple(before), min_blocks=self.min_blocks,
        )  # fmt: skip
