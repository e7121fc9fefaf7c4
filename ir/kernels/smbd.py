"""``smbd``: a product with nested bitmap tiles as SpInfer has it (EuroSys'25, section 4.3, algorithm 1).

A block has a row of group tiles, 64 rows of W, and a part of the columns of x.  In each turn it copies a group tile as
it lies in TCA-BME and a slab of x to shared memory; warps share the tile's strips, decode bitmaps into operands of mma
in registers, and multiply while the next turn's copies are on their way.  ``bitmap`` is the product as later
measurements would have it: decoding in it takes a third of the instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_groups as tw
from .. import tile_smbd as tm
from .. import tile_strips as ts
from ..expr import Value
from ..module import Module
from ..node import Op
from ..numbers.smbd import BITMAPS, PIECE, SIDE, STRIPS, fragments, place, sums
from ..passes.manager import register
from ..types import Buffer, DType, f32, s32, u16, u32, u64
from .common import each
from .groups import Pieces, by_pieces, stage, together
from .product import epilogue, launched, parameters


@register("smbd")
@dataclass(frozen=True)
class Smbd:
    """Blocks of a row of group tiles by ``cols`` columns, a part of ``splits`` of the row's slabs each.

    ``warps`` share a tile's strips; ``most``: values of the fullest group tile; ``buffers``: slots of shared memory;
    ``groups`` of copies a turn; ``two_phase``: a second value follows its first one; ``ldmatrix``: operands of x come
    by it; ``min_blocks`` of an SM bound the registers.  Roles of the launch: ``in``, ``out``, W's arrays (``starts``,
    ``bitmaps``, ``values``), those of the epilogue, and with splits ``workspace.slots`` and ``workspace.counter`` (zero
    before and after).  An x that has no whole pieces is first written row by row into ``ws.turned``.
    """

    cols: int = 16
    warps: int = 4
    splits: int = 1
    buffers: int = 2
    groups: int = 2
    two_phase: bool = True
    ldmatrix: bool = True
    most: int = PIECE
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("tca_bme",))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        rows, tiles = -(-op.m // SIDE), -(-op.n // self.cols)
        count = rows * op.slabs
        arrays: dict[str, tuple[DType, int]] = {
            "starts": (u32, STRIPS * count + 1), "bitmaps": (u64, BITMAPS * count), "values": (u16, op.entries),
        }  # fmt: skip
        cut, size = self.splits > 1, 32 * self.warps * sums(self.cols, self.warps)
        params = parameters(op, arrays, cut * rows * tiles * self.splits * size, cut * rows * tiles)
        module, params, x = by_pieces(module, op, params, o.ORDERS)
        body = self._block(op, params, x, rows, tiles)
        return launched(module, op, params, body, rows * tiles * self.splits, self.warps, self.min_blocks)

    def _block(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, rows: int, tiles: int) -> ts.EachBlock:
        """A row of group tiles and a part of the columns; blocks of one row, and one part of it, follow one another."""
        two, warps = self.buffers, self.warps
        block = Value("block", s32, 0, rows * tiles * self.splits - 1)
        column, split, row = block % tiles * self.cols, block // tiles % self.splits, block // (tiles * self.splits)
        first = Buffer("first", u32, two * STRIPS, "shared", 16)
        bits = Buffer("bits", u64, two * BITMAPS, "shared", 16)
        kept = Buffer("kept", u16, two * self.most, "shared", 16)
        x_tile = Buffer("x_tile", op.dtype, two * place(self.cols, x.order).size(), "shared", 128)
        a, acc = Buffer("a", u32, fragments(warps), "reg"), Buffer("acc", f32, sums(self.cols, warps), "reg")
        at, slab = Value("at", s32, 0, rows * op.slabs - 1), Value("slab", s32, 0, op.slabs - 1)
        slot = Value("slot", s32, 0, two - 1)
        group: dict[str, Any] = {"first": first, "bits": bits, "kept": kept, "slot": slot, "buffers": two}
        part: dict[str, Any] = {"slot": slot, "buffers": two, "cols": self.cols, "order": x.order}
        weights = tm.CopyNested(
            starts=params["starts"], bitmaps=params["bitmaps"], values=params["values"], at=at, **group
        )
        columns = tm.CopySlab(dst=x_tile, src=x.buffer, slab=slab, column=column, k=op.k, n=x.n, **part)
        decode = tm.DecodeNested(a=a, two_phase=self.two_phase, **group)
        multiply = tm.MultiplyNested(
            acc=acc, a=a, x=x_tile, ldmatrix=self.ldmatrix, shape=f"{op.dtype}.m16n8k16", **part
        )
        walk = tm.WalkNested(
            row=row, split=split, at=at, slab=slab, slot=slot, slabs=op.slabs, splits=self.splits, buffers=two,
            groups=self.groups, weights=(weights,), columns=(columns,), decode=(decode,), body=(multiply,),
        )  # fmt: skip
        end: Op = tw.StoreTile(
            acc=acc, row=row * (STRIPS * o.STRIP), column=column, warps=(warps, 1), high=STRIPS // warps,
            vec=together(op, self.cols), stage=stage(op, warps, self.cols), **epilogue(op, params),
        )  # fmt: skip
        if self.splits > 1:
            end = tm.SumSplits(
                acc=acc, slots=params["workspace.slots"], counter=params["workspace.counter"],
                turn=Buffer("turn", u32, 1, "shared"), tile=row * tiles + block % tiles, split=split,
                splits=self.splits, body=(end,),
            )  # fmt: skip
        allocs = tuple(t.Alloc(buf=buf) for buf in (x_tile, kept, bits, first, a))
        return ts.EachBlock(block=block, body=(*allocs, t.Alloc(buf=acc, zeroed=True), walk, end))
