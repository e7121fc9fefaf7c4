"""``nm_windows``: a product with an N:M pattern on CUDA cores; a lane has a window of W, and sums meet in shuffles.

nmSPARSE's kernel for one column (MLSys'23, section 4, SpMV): x waits in shared memory offset by offset, its windows
side by side, so that a lane finds whatever its window keeps in a bank of its own; the degree of conflicts is 1 for
every M.  Entries of some rows in 32 windows, a chunk, are loaded a turn ahead, packed as ``nm_lanes`` packs those of 32
rows in some windows.  ``layout="windows"`` leaves x as it is, to show what the other one is for.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op_spmm as o
from .. import tile as t
from .. import tile_nm as tn
from .. import tile_ragged as r
from .. import tile_windows as tw
from ..expr import Value, as_expr
from ..module import Module
from ..node import Op
from ..numbers.arithmetic import up
from ..numbers.nm import LANES, chunks, x_words
from ..passes.manager import choice, register
from ..types import Buffer, f32, s32, u32
from .chunks import walk_chunks
from .common import each
from .product import epilogue, launched, parameters


@register("nm_windows")
@dataclass(frozen=True)
class NmWindows:
    """Blocks of ``warps`` groups of rows, a warp each, and ``cols`` columns of x.

    Roles of the launch: ``in``, ``out``, W's packed arrays (``values`` and ``offsets``, in words), the epilogue's.
    """

    warps: int = 8
    cols: int = 1
    layout: str = choice("offsets", "windows")
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("nm",))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        n, m = op.pattern[:2]
        c = chunks(n, m, op.dtype.nbytes)
        groups, across, pitch = -(-op.m // c.windows), -(-op.n // self.cols), up(-(-op.k // m), LANES)
        per = groups * pitch * c.parts
        arrays = {"values": (u32, per * c.stored * op.dtype.nbytes // 4), "offsets": (u32, per * c.words)}
        params = parameters(op, arrays, 0, 0)
        body = self._share(op, params, groups, across, pitch)
        return launched(module, op, params, body, -(-groups // self.warps) * across, self.warps, self.min_blocks)

    def _share(self, op: o.Spmm, params: dict[str, Buffer], groups: int, across: int, pitch: int) -> tw.ShareGroups:
        """What a block does."""
        n, m = op.pattern[:2]
        item = op.dtype.nbytes
        c = chunks(n, m, item)
        group, row = Value("group", s32, 0, groups - 1), Value("row", s32, 0, op.m)
        column, mine = Value("column", s32, 0, op.n - 1), Value("mine", s32, 0, op.n + self.cols - 1)
        xs = Buffer("xs", u32, pitch * m * x_words(self.cols, item), "shared", 16)
        acc, total = Buffer("acc", f32, c.windows * self.cols, "reg"), Buffer("total", f32, 1, "reg")
        order = "column" if op.n == 1 else op.x_order
        vec = min(op.vec, 16 // item) if order == op.x_order else 1
        stage: Op
        if self.layout == "offsets":
            stage = tw.StageOffsets(
                dst=xs, src=params["in"], column=column, cols=self.cols, m=m, pitch=pitch, k=op.k, n=op.n, order=order,
                vec=vec,
            )  # fmt: skip
        else:
            stage = tn.StageColumns(
                dst=xs, src=params["in"], column=column, cols=self.cols, m=m, held=pitch * m, k=op.k, n=op.n,
                order=order, vec=vec,
            )  # fmt: skip
        store = r.StoreRow(acc=total, row=row, column=mine, across=1, parts=1, vec=1, blocks=1, **epilogue(op, params))
        add = tw.SumLanes(total=total, column=mine, acc=acc, first=column, cols=self.cols, body=(store,))
        regs, first, walk = walk_chunks(
            op, params, group, groups, pitch // LANES * c.parts, (as_expr(0), 1),
            lambda values, offsets, chunk: tw.MultiplyWindows(
                acc=acc, values=values, offsets=offsets, x=xs, chunk=chunk, n=n, m=m, cols=self.cols, pitch=pitch,
                layout=self.layout, dtype=op.dtype,
            ),
        )  # fmt: skip
        return tw.ShareGroups(
            group=group, row=row, column=column, rows=op.m, high=c.windows, warps=self.warps, tiles=across,
            cols=self.cols, body=(t.Alloc(buf=xs), t.Alloc(buf=acc, zeroed=True), *regs, first, stage, walk, add),
        )  # fmt: skip
