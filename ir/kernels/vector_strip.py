"""``vector_strip``: a product with vectors on tensor cores; x stays in shared memory, strip by strip.

A block has a strip of all rows of x, a few columns wide, and warps that walk vector rows of W against it.  Magicube
(SC'22, section 4.2) brings a block's rows of x anew for every vector row; here they come once for some hundred, by the
copy unit, and lanes find theirs by the row addresses of ``ldmatrix``: the gather costs no instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_nm as tn
from .. import tile_pieces as tp
from .. import tile_ragged as tg
from .. import tile_resident as te
from .. import tile_strips as ts
from .. import tile_tasks as tk
from .. import tile_vectors as tv
from ..errors import IRError
from ..expr import Expr, Value, as_expr, select
from ..module import Module
from ..node import Op
from ..numbers.arithmetic import up
from ..numbers.resident import ALIGN, padded_rows
from ..numbers.vectors import HIGH, SPARE, STEP, Sums, words
from ..passes.manager import register
from ..types import Buffer, DType, s32, u16, u32, u64
from .common import each
from .groups import Pieces, by_pieces
from .product import epilogue, launched, parameters


@register("vector_strip")
@dataclass(frozen=True)
class VectorStrip:
    """Blocks of ``warps`` warps, each with one of ``lists`` lists of tasks and ``wide`` bytes of a row of x.

    ``steps``: how many steps of 32 vectors all vector rows have; ``length``: tasks of a warp; ``unroll``: steps of a
    turn, of which the next are loaded meanwhile; ``parts``: of a strip, whose first ones are multiplied while others
    come.  ``via``: how it comes.  ``slots``: tasks of a list's vector rows that are cut, at most; all those of a row
    are of one list, so that its block adds them up in shared memory.  Roles of the launch: ``in``, ``out``, W's packed
    arrays (``places``, ``values``, ``tasks``, and with slots ``cuts``), and those of the epilogue.  An x by columns, or
    one whose rows are no whole pieces, is first written row by row into ``ws.turned``.
    """

    warps: int = 32
    lists: int = 1
    wide: int = 32
    unroll: int = 2
    parts: int = 4
    steps: int = 1
    length: int = 1
    slots: int = 0
    via: str = "tensor"
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=o.VECTORS)

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if not op.w_digits:
            raise IRError("vectors are multiplied digit by digit", hint="run the pass decompose first")
        steps = self.steps + SPARE
        arrays = {
            "places": (u16, steps * STEP), "values": (u32, steps * 32 * words(op.w_digits)),
            "tasks": (s32, self.lists * self.length * self.warps * tk.RECORD),
        }  # fmt: skip
        arrays |= cut_arrays(op, self.slots)
        module, params, x = by_pieces(module, op, parameters(op, arrays, 0, 0), ("row",))
        blocks = -(-op.row_bytes // self.wide) * self.lists
        return launched(module, op, params, self._block(op, params, x, blocks), blocks, self.warps, self.min_blocks)

    def _block(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, blocks: int) -> ts.EachBlock:
        """The strip of a block, and the tasks of its warps."""
        dtype, parts = x.buffer.dtype, self.parts if self.via == "tensor" else 1
        cols, rows = self.wide // dtype.nbytes, padded_rows(op.k, parts)
        strip = Buffer("strip", dtype, rows * cols, "shared", ALIGN)
        bars = Buffer("bars", u64, parts, "shared") if self.via == "tensor" else None
        sums = Sums.of(op.w_digits, op.x_digits, self.wide)
        slots = Slots.shared(sums, self.slots, self.warps) if self.slots else None
        block = Value("block", s32, 0, blocks - 1)
        number = block // self.lists
        fill = te.FillResident(
            dst=strip, src=x.buffer, bars=bars, row=as_expr(0), column=number * cols, rows=rows, cols=cols, parts=parts,
            m=op.k, n=x.n, via=self.via,
        )  # fmt: skip
        names = ("row", "begin", "end", "word")
        tops = (-(-op.m // HIGH) - 1, self.steps, self.steps, (1 << tv.BITS * (tv.PARTS - 1)) - 1)
        row, begin, end, word = (Value(name, s32, 0, top) for name, top in zip(names, tops, strict=True))
        after = Value("after", s32, 0, self.steps)
        now = [
            Buffer(n, d, self.unroll * k, "reg") for n, d, k in (("rows", s32, 1), ("words", u32, words(op.w_digits)))
        ]
        later = [Buffer(f"{buf.name}_later", buf.dtype, buf.size, "reg") for buf in now]
        first = tv.LoadVectors(
            rows=later[0], words=later[1], places=params["places"], values=params["values"], at=begin,
            strip=strip.nbytes,
        )  # fmt: skip
        tasks = tk.EachTask(
            tasks=params["tasks"], row=row, begin=begin, end=end, word=word, after=after, list=block % self.lists,
            length=self.length, rows=row.hi + 1, steps=self.steps, ahead=(first,),
            body=self._task(op, params, (bars, strip, slots), (begin, end, word, after), (row, number), (now, first)),
        )  # fmt: skip
        held = [t.Alloc(buf=buf) for buf in (strip, bars, *now, *later) if buf is not None]
        allocs = (*held, *(slots.allocs if slots else ()))
        settle = (te.SettleResident(bars=bars, parts=bars.size),) if bars else ()
        return ts.EachBlock(block=block, body=(*allocs, fill, tasks, *settle))

    def _task(
        self, op: o.Spmm, params: dict[str, Buffer], shared: tuple[Buffer | None, Buffer, Slots | None],
        steps: tuple[Value, Value, Value, Value], place: tuple[Value, Expr], loads: tuple[list[Buffer], tv.LoadVectors],
    ) -> tuple[Op, ...]:  # fmt: skip
        """A vector row: the words and places of a turn are loaded while those of the turn before are multiplied, those
        of the next row's first turn with the last one."""
        (bars, strip, slots), (begin, end, word, after), (row, number), (now, first) = shared, steps, place, loads
        sums = Sums.of(op.w_digits, op.x_digits, self.wide)
        acc = Buffer("acc", sums.dtype, sums.size, "reg")
        at, coming = Value("at", s32, 0, self.steps), Value("coming", s32, 0, self.steps + self.unroll)
        digits: dict[str, Any] = {"w_digits": op.w_digits, "x_digits": op.x_digits, "wide": self.wide}
        load = replace(first, at=select(coming.lt(end), coming, after))
        waits = (
            [tv.AwaitSteps(bars=bars, at=at, begin=begin, word=word, by=self.unroll, parts=bars.size)] if bars else []
        )
        multiply = tv.MultiplyVectors(acc=acc, x=strip, rows=now[0], words=now[1], at=at, end=end, **digits)
        take = (tn.HandOver(dst=mine, src=next_) for mine, next_ in zip(now, (first.rows, first.words), strict=True))
        walk = tg.WalkSegment(
            at=at, coming=coming, begin=begin, end=end, across=32, parts=1, by=self.unroll, align=1, ahead=(),
            body=(*take, load, *waits, multiply),
        )  # fmt: skip
        store = tv.StoreVectors(
            acc=acc, row=row, column=number * (sums.units * sums.columns), vec=together(op, sums), **digits,
            **epilogue(op, params),
        )  # fmt: skip
        begun = (te.AwaitResident(bars=bars, part=0, parts=bars.size),) if bars else ()
        ends = whole(params, acc, (row, begin, as_expr(0)), slots, store)
        return (t.Alloc(buf=acc, zeroed=True), *begun, walk, ends)


def cut_arrays(op: o.Spmm, slots: int) -> dict[str, tuple[DType, int]]:
    """What a kernel reads of W where vector rows are cut."""
    return {"cuts": (s32, tp.CUT * -(-op.m // HIGH))} if slots else {}


@dataclass(frozen=True)
class Slots:
    """Where tasks of rows that are cut leave their sums and count themselves, for each of some tiles of columns."""

    sums: Buffer
    counter: Buffer
    tiles: int = 1

    @staticmethod
    def shared(sums: Sums, count: int, warps: int) -> Slots:
        """So many slots of a block, whose warps each clear as many elements of the counter."""
        held = Buffer("slots", sums.dtype, sums.slot * count, "shared")
        return Slots(held, Buffer("counter", u32, up(count, warps), "shared"))

    @property
    def allocs(self) -> tuple[Op, ...]:
        """What has them in shared memory: the counter is zero once the block has met."""
        return (t.Alloc(buf=self.sums), t.Alloc(buf=self.counter, zeroed=True))


def whole(
    params: dict[str, Buffer], acc: Buffer, at: tuple[Value, Value, Expr], slots: Slots | None, store: tv.StoreVectors
) -> Op:
    """The store, or where vector rows are cut into tasks with ``slots``, that of the task that comes last; ``at``: the
    vector row, the first step, and which tile of columns it is."""
    if slots is None:
        return store
    row, begin, tile = at
    return tp.SumPieces(
        acc=acc, cuts=params["cuts"], slots=slots.sums, counter=slots.counter, row=row, begin=begin, tile=tile,
        rows=row.hi + 1, tiles=slots.tiles, body=(store,),
    )  # fmt: skip


def together(op: o.Spmm, sums: Sums) -> int:
    """Adjacent elements of y that a lane stores at once."""
    along, most = op.n if op.y_order == "row" else op.m, tv.widest(sums, op.y_stored, op.y_order)
    return next(v for v in (4, 2, 1) if v <= most and along % v == 0)
