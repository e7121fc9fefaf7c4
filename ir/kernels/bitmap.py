"""``bitmap``: a product with bitmap tiles; W streams past accumulators that stay in registers.

A block owns a run of strips for all of its slabs, so that its sums leave it once, at the end; its warps share the
slabs, each with a ring of bulk copies of its own (one slot deep here: the pipeline pass gives it its stages).  SpInfer
(EuroSys'25, section 4.3) decodes into registers too, but walks blocks of 64 rows and adds up 16-bit partial sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_bitmap as tb
from ..errors import ScheduleError
from ..expr import Value
from ..fragments import SHAPES
from ..module import Module
from ..node import Op
from ..numbers.bitmap import INDEX, MASKS, lane_sums, slot_words
from ..numbers.experts import TASK, most_tiles
from ..passes.manager import choice, register
from ..tile_experts import ShareExperts
from ..types import Buffer, f32, s32, u32, u64
from .common import each
from .product import epilogue, launched, parameters

#: 32-bit words of shared memory that no GPU exceeds: an upper bound of places there.
MOST_WORDS = 1 << 16
#: Blocks of 8 columns of x that are fetched a turn ahead: by columns they come as operands, by rows they are packed.
MOST_AHEAD = {"row": 2, "column": 4}


@register("bitmap")
@dataclass(frozen=True)
class Bitmap:
    """Blocks of ``row_warps`` x ``slab_warps`` warps; a warp has ``rows`` strips at most, a block ``cols`` columns.

    ``groups`` runs of strips, ``splits`` blocks that share one; ``chunks``: of values that a slot has room for;
    ``bulk``: copies by the bulk copy engine (sm_90) or by ``cp.async``.
    ``mma`` names the shape, or is ``none`` for one column on CUDA cores.  Roles of the launch: ``in``, ``out``,
    W's arrays (``index``, ``masks``, ``values``), of experts ``offsets``, those of the epilogue, and with splits
    ``workspace.slots`` and ``workspace.counter`` (zero before and after).
    """

    mma: str = choice("f16.m16n8k16", "bf16.m16n8k16", "none")
    cols: int = 8
    row_warps: int = 1
    slab_warps: int = 1
    rows: int = 1
    groups: int = 1
    splits: int = 1
    chunks: int = 64
    bulk: bool = True
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("bitmap",), several=True)

    @property
    def one(self) -> bool:
        """One column, on CUDA cores."""
        return self.mma == "none"

    @property
    def blocks(self) -> int:
        """B fragments side by side."""
        return 1 if self.one else self.cols // 8

    @property
    def warps(self) -> int:
        return self.row_warps * self.slab_warps

    @property
    def sums(self) -> int:
        """Sums of a block, as the warps of one slab hold them between them."""
        return self.row_warps * self.rows * 16 * (1 if self.one else 8 * self.blocks)

    def _order(self, op: o.Spmm) -> str:
        """A single column is one in either order."""
        return "column" if op.n == 1 else op.x_order

    def _vec(self, op: o.Spmm) -> int:
        """Columns of an expert may begin anywhere in a row."""
        return op.vec if self._order(op) == op.x_order and not (op.experts and op.x_order == "row") else 1

    def _tiles(self, op: o.Spmm) -> int:
        """Tiles of columns of x; of experts, which have columns of their own, as many as there may be."""
        if op.experts:
            return most_tiles(op.n, op.experts, self.cols)
        return 1 if self.one else -(-op.n // self.cols)

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if (self.one and (op.n != 1 or op.experts)) or (
            not self.one and (SHAPES[self.mma].a.dtype is not op.multiplied or self.cols % 8)
        ):
            raise ScheduleError(
                f"bitmap with mma={self.mma} cols={self.cols} of {op.dtype} weights and n={op.n}",
                hint="mma=none is for n=1; an mma multiplies its own type by 8 columns at a time",
            )
        count, runs = op.strips * op.slabs, self.groups * self._tiles(op)
        arrays = {"index": (u32, (count + 1) * INDEX), "masks": (u32, count * MASKS), "values": (u32, op.chunks * 2)}
        arrays |= {"offsets": (s32, op.experts + 1)} if op.experts else {}
        cut = self.splits > 1
        params = parameters(op, arrays, cut * runs * self.splits * self.sums, cut * runs)
        body = self._share(op, params)
        return launched(module, op, params, body, runs * self.splits, self.warps, self.min_blocks)

    def _share(self, op: o.Spmm, params: dict[str, Buffer]) -> Op:
        """What a block does."""
        per = lane_sums(self.one, self.cols)
        least = self.sums * self.slab_warps
        ring = Buffer("ring", u32, max(self.warps * slot_words(self.rows, self.chunks), least), "shared", 128)
        bars = Buffer("full", u64, self.warps, "shared", 8) if self.bulk else None
        turn = Buffer("turn", u32, 1, "shared") if self.splits > 1 else None
        acc, total = Buffer("acc", f32, self.rows * per, "reg"), Buffer("total", f32, 4, "reg")
        first, count = Value("first", s32, 0, op.strips - 1), Value("count", s32, 0, op.strips)
        split, column = Value("split", s32, 0, self.splits - 1), Value("column", s32, 0, op.n - 1)
        row, col = Value("row", s32, 0, op.strips * o.STRIP - 1), Value("col", s32, 0, self.cols - 1)
        end, expert = Value("end", s32, 0, op.n), Value("expert", s32, 0, max(0, op.experts - 1))
        own: dict[str, Any] = {"end": end, "expert": expert} if op.experts else {}
        store = tb.StoreProduct(
            total=total, row=row, col=col, column=column, blocks=self.blocks, shape=self.mma, gated=op.gated,
            experts=op.experts, **own, **epilogue(op, params),
        )  # fmt: skip
        add = tb.SumWarps(
            total=total, row=row, col=col, acc=acc, sums=ring, turn=turn, slots=params.get("workspace.slots"),
            counter=params.get("workspace.counter"), first=first, count=count, split=split, row_warps=self.row_warps,
            slab_warps=self.slab_warps, rows=self.rows, blocks=self.blocks, splits=self.splits, tiles=self._tiles(op),
            shape=self.mma, body=(store,),
        )  # fmt: skip
        slab, coming = Value("slab", s32, 0, op.slabs - 1), Value("coming", s32, 0, op.slabs - 1)
        mine = Value("mine", s32, 0, self.rows)
        slot, base = Value("slot", s32, 0, MOST_WORDS), Value("base", s32, 0, op.chunks)
        size = 8 * self.blocks if self._order(op) == "column" else 16 * ((self.blocks + 1) // 2)
        raw = Buffer("raw", u32, size, "reg")
        # x of the next turn waits in registers; many columns leave none for it
        early = self.blocks <= MOST_AHEAD[self._order(op)]
        fetch = tb.FetchColumns(
            raw=raw, x=params["in"], slab=coming if early else slab, column=column, k=op.k, n=op.n,
            blocks=self.blocks, order=self._order(op), vec=self._vec(op), end=own.get("end"),
        )  # fmt: skip
        walk = tb.WalkSlabs(
            ring=ring, bars=bars, slab=slab, coming=coming, mine=mine, slot=slot, base=base,
            index=params["index"], masks=params["masks"], values=params["values"], first=first, count=count,
            split=split, strips=op.strips, slabs=op.slabs, splits=self.splits, row_warps=self.row_warps,
            slab_warps=self.slab_warps, rows=self.rows, chunks=self.chunks, stored=op.chunks, least=least,
            ahead=(fetch,) if early else (), early=() if early else (fetch,),
            body=self._multiply(op, raw, acc, ring, (mine, slot, base)),
        )  # fmt: skip
        shared = tuple(buffer for buffer in (ring, bars, turn) if buffer is not None)
        run: dict[str, Any] = {
            "first": first, "count": count, "split": split, "column": column, "strips": op.strips_each,
            "groups": self.groups, "splits": self.splits, "tiles": self._tiles(op), "cols": self.cols,
            "body": (*(t.Alloc(buf=regs, zeroed=True) for regs in (acc, raw)), walk, add),
        }  # fmt: skip
        if not op.experts:
            return tb.ShareStrips(shared=shared, **run)
        task = Buffer("task", s32, TASK, "shared", 4)
        return ShareExperts(
            shared=(*shared, task), task=task, offsets=params["offsets"], experts=op.experts, n=op.n, **own, **run
        )

    def _multiply(self, op: o.Spmm, raw: Buffer, acc: Buffer, ring: Buffer, at: tuple[Value, ...]) -> tuple[Op, ...]:
        """What a warp does with a slab."""
        mine, slot, base = at
        xs = Buffer("xs", f32 if self.one else u32, 16 if self.one else 8 * self.blocks, "reg")
        a = Buffer("a", u32, 4, "reg")
        strip, fragment = Value("strip", s32, 0, self.rows - 1), Value("fragment", s32, 0, 3)
        multiply = tb.MultiplyFragment(
            acc=acc, a=a, x=xs, strip=strip, fragment=fragment, dtype=op.multiplied, shape=self.mma, blocks=self.blocks,
        )  # fmt: skip
        expand = tb.ExpandBitmap(
            a=a, other=None, strip=strip, fragment=fragment, ring=ring, index=slot, masks=slot + self.rows * INDEX,
            values=slot + self.rows * (INDEX + MASKS), base=base, mine=mine, rows=self.rows, narrow=op.narrow,
            body=(multiply,),
        )  # fmt: skip
        pack = tb.PackColumns(regs=xs, raw=raw, dtype=op.multiplied, blocks=self.blocks, order=self._order(op))
        return pack, t.Alloc(buf=a), expand
