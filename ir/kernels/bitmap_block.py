"""``bitmap_block``: a product with bitmap tiles whose warps share a ring, decoded into operands of mma or warpgroups.

A block owns a run of strips for some of its slabs.  One bulk copy of each array brings all strips of a slab, x comes
beside it, once for all warps, and the warps fill slots by turns, so that none of them waits for many small copies.  For
many columns a warpgroup multiplies what its warps decode: W is decoded once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_bitmap as tb
from .. import tile_bitmap_block as tk
from .. import tile_groups as tw
from ..errors import ScheduleError
from ..expr import Value, as_expr
from ..fragments import SHAPES
from ..module import Module
from ..node import Op
from ..numbers.bitmap import INDEX, MASKS, lane_sums, slot_words
from ..numbers.bitmap_block import COLS, GROUP_COLS, GROUPED, PIECE, exchanged, is_late, longest, operands
from ..passes.manager import choice, register
from ..types import Buffer, f32, s32, u32, u64
from .bitmap import MOST_WORDS
from .common import each
from .groups import Pieces, by_pieces, stage, together
from .product import epilogue, launched, parameters


@register("bitmap_block")
@dataclass(frozen=True)
class BitmapBlock:
    """Blocks of ``parts`` times ``row_warps`` warps, with ``rows`` strips each, and ``cols`` columns.

    ``runs`` of strips, as even as whole warps come, have a block each, or a cluster of ``splits`` of them; ``stages``:
    slots of the ring, each with room for ``chunks`` chunks of values of a run and slab.  ``mma``: the shape, or
    ``wgmma``: warpgroups multiply.  Roles of the launch: ``in``, ``out``, W's arrays (``index``, ``masks``, ``values``)
    and those of the epilogue.  An x whose rows, or columns, are no whole pieces, and for warpgroups one by columns, is
    first written row by row into ``ws.turned``.
    """

    mma: str = choice("f16.m16n8k16", "bf16.m16n8k16", GROUPED)
    cols: int = 8
    row_warps: int = 1
    parts: int = 1
    rows: int = 1
    runs: int = 1
    splits: int = 1
    stages: int = 4
    chunks: int = 64
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("bitmap",))

    @property
    def grouped(self) -> bool:
        """Whether warpgroups multiply."""
        return self.mma == GROUPED

    @property
    def late(self) -> bool:
        """Whether products go on while the next slab is decoded."""
        return is_late(self.mma, self.cols)

    @property
    def warps(self) -> int:
        return self.row_warps * self.parts

    def most(self, op: o.Spmm) -> int:
        """Strips of a block, at most."""
        return longest(op.strips, self.runs, self.rows)

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        known = self.cols in (GROUP_COLS if self.grouped else COLS)
        if not known or not (self.grouped or SHAPES[self.mma].a.dtype is op.multiplied):
            raise ScheduleError(
                f"bitmap_block with mma={self.mma} cols={self.cols} of {op.dtype} weights",
                hint="an mma multiplies its own type, by 8, 16, 32 or 64 columns (wgmma also by 128)",
            )
        count, tiles = op.strips * op.slabs, -(-op.n // self.cols)
        arrays = {"index": (u32, (count + 1) * INDEX), "masks": (u32, count * MASKS), "values": (u32, op.chunks * 2)}
        params = parameters(op, arrays, 0, 0)
        if op.n == 1 and not self.grouped and op.k % PIECE == 0 and op.vec % PIECE == 0:
            x = Pieces(params["in"], 1, "column")  # a single column is one in either order
        else:
            module, params, x = by_pieces(module, op, params, ("row",) if self.grouped else ("row", "column"))
        body = self._share(op, params, x, tiles)
        blocks = self.runs * tiles * self.splits
        return launched(module, op, params, body, blocks, self.warps, self.min_blocks, cluster=self.splits)

    def _share(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, tiles: int) -> tk.ShareRuns:
        """What a block does."""
        acc = Buffer("acc", f32, self.rows * lane_sums(False, self.cols), "reg")
        most = self.most(op)
        first, count = Value("first", s32, 0, op.strips - 1), Value("count", s32, 1, most)
        split, column = Value("split", s32, 0, self.splits - 1), Value("column", s32, 0, op.n - 1)
        sent = exchanged(acc.size, (self.row_warps, self.parts), self.splits)
        words = max(self.stages * slot_words(most, self.chunks), sent)
        ring = Buffer("ring", u32, words, "shared", 128)
        columns = Buffer("columns", op.multiplied, self.stages * o.SLAB * self.cols, "shared", 128)
        bars = Buffer("bars", u64, 2 * self.stages, "shared", 8)
        met = Buffer("met", u64, 1, "shared", 8) if self.splits > 1 else None
        end = replace(op, y_order="column") if op.n == 1 else op  # a single column is one in either order
        store = tw.StoreTile(
            acc=acc, row=first * o.STRIP, end=(first + count) * o.STRIP, column=column,
            warps=(self.row_warps, 1), high=self.rows,
            vec=together(end, self.cols), stage=stage(end, self.warps, self.cols), **epilogue(end, params),
        )  # fmt: skip
        add = tk.SumCluster(acc=acc, sums=ring, bars=met, parts=self.parts, splits=self.splits, body=(store,))
        a = tuple(Buffer(name, u32, 4, "reg") for name in ("a", "a1")[: 1 + self.grouped])
        held = tuple(t.Alloc(buf=buf) for buf in a)  # products read them until the next slab is begun
        walk = self._walk(op, params, x, (first, count, split, column), (ring, columns, bars), (acc, *a))
        shared = tuple(buf for buf in (ring, columns, bars, met) if buf is not None)
        return tk.ShareRuns(
            shared=shared, met=met, first=first, count=count, split=split, column=column, strips=op.strips,
            unit=self.rows, runs=self.runs, splits=self.splits, tiles=tiles, cols=self.cols,
            body=(*held, t.Alloc(buf=acc, zeroed=True), walk, add),
        )  # fmt: skip

    def _walk(
        self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, at: tuple[Value, ...], shared: tuple[Buffer, ...],
        registers: tuple[Buffer, ...],
    ) -> tk.WalkBlock:  # fmt: skip
        """The turns of a block."""
        (first, count, split, column), (ring, columns, bars), (acc, a, *others) = at, shared, registers
        coming, to = Value("coming", s32, 0, op.slabs - 1), Value("to", s32, 0, columns.size - 1)
        left, base = Value("left", s32, 0, self.rows - 1), Value("base", s32, 0, op.chunks)
        index_at, masks_at, values_at = (Value(name, s32, 0, MOST_WORDS) for name in ("index_at", "masks_at", "at"))
        x_at, used = Value("x_at", s32, 0, columns.size - 1), Value("used", s32, -1, self.stages - 1)
        copy = tk.CopyColumns(
            dst=columns, src=x.buffer, slab=coming, to=to, column=column, cols=self.cols, k=op.k, n=x.n, order=x.order
        )
        strip = Value("strip", s32, 0, self.rows - 1)
        expand: dict[str, Any] = {
            "a": a, "other": next(iter(others), None), "strip": strip, "fragment": Value("fragment", s32, 0, 3),
            "ring": ring, "index": index_at, "masks": masks_at, "values": values_at, "base": base,
            "mine": as_expr(self.rows), "left": left, "rows": self.rows, "narrow": op.narrow,
        }  # fmt: skip
        free = tk.FreeSlot(bars=bars, slot=used, stages=self.stages)
        return tk.WalkBlock(
            left=left, index_at=index_at, masks_at=masks_at, values_at=values_at, base=base, x_at=x_at, coming=coming,
            to=to, ring=ring, columns=columns, bars=bars, index=params["index"], masks=params["masks"],
            values=params["values"], first=first, count=count, split=split, most=self.most(op), strips=op.strips,
            slabs=op.slabs, splits=self.splits, parts=self.parts, rows=self.rows, cols=self.cols, chunks=self.chunks,
            stored=op.chunks, stages=self.stages, grouped=self.grouped, fill=(copy,),
            whole=op.strips % self.rows == 0, late=self.late, used=used if self.late else None,
            body=self._multiply(op, expand, acc, columns, x_at, x.order, free),
        )  # fmt: skip

    def _multiply(
        self, op: o.Spmm, expand: dict[str, Any], acc: Buffer, columns: Buffer, x_at: Value, order: str,
        free: tk.FreeSlot,
    ) -> tuple[Op, ...]:  # fmt: skip
        """What a warp does with a slab."""
        a, fragment = expand["a"], expand["fragment"]
        if self.grouped:
            product = tk.MultiplyFragments(
                acc=acc, a=a, other=expand["other"], src=columns, at=x_at, fragment=fragment, dtype=op.multiplied,
                cols=self.cols,
            )  # fmt: skip
            return (tb.ExpandBitmap(early=self.late, begun=(free,) * self.late, body=(product,), **expand),)
        once = self.rows > 1  # x of a slab waits in registers if several strips multiply it
        fragments = 4 if once else 1
        xs = Buffer("xs", u32, operands(self.cols, fragments), "reg")
        load = tk.LoadColumns(
            regs=xs, src=columns, at=x_at, first=as_expr(0) if once else fragment, fragments=fragments,
            cols=self.cols, order=order,
        )  # fmt: skip
        multiply = tb.MultiplyFragment(
            acc=acc, a=a, x=xs, strip=expand["strip"], fragment=fragment, dtype=op.multiplied, shape=self.mma,
            blocks=self.cols // 8,
        )  # fmt: skip
        if once:
            return t.Alloc(buf=xs), load, tb.ExpandBitmap(body=(multiply,), **expand)
        return t.Alloc(buf=xs), tb.ExpandBitmap(body=(load, multiply), **expand)
