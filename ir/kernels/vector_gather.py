"""``vector_gather``: a product with few vectors of integers on tensor cores; warps gather the rows of x that they need.

Magicube's own way (SC'22, section 4.2): for each vector row the rows of x that its vectors name come to shared memory,
some steps ahead.  Here a warp does all of it alone, so none waits for another, and rows of W may be of any length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_ring as tr
from .. import tile_strips as ts
from .. import tile_tasks as tk
from .. import tile_vectors as tv
from ..errors import IRError
from ..expr import Value
from ..module import Module
from ..node import Op
from ..numbers.resident import ALIGN
from ..numbers.vectors import HIGH, SPARE, STEP, Sums, number_type, words
from ..passes.manager import register
from ..types import Buffer, s32, u32
from .common import each
from .groups import Pieces, by_pieces
from .product import epilogue, launched, parameters
from .vector_strip import Slots, cut_arrays, together, whole


@register("vector_gather")
@dataclass(frozen=True)
class VectorGather:
    """Blocks of ``down`` x ``across`` warps: ``down`` vector rows at a time, ``across`` parts of ``wide`` bytes of x.

    A block has one of ``lists`` lists of tasks, ``length`` a warp; ``steps``: how many steps of 32 vectors all vector
    rows have; ``stages``: slots of a warp's ring; ``slots``: tasks of vector rows that are cut.  Roles of the launch:
    ``in``, ``out``, W's packed arrays (``numbers``, ``values``, ``tasks``, and with slots ``cuts``), those of the
    epilogue, and with slots ``workspace.slots`` and ``workspace.counter`` (zero before and after).  An x by columns,
    or one whose rows are no whole pieces, is first written row by row into ``ws.turned``.
    """

    down: int = 2
    across: int = 4
    wide: int = 64
    stages: int = 4
    lists: int = 1
    steps: int = 1
    length: int = 1
    slots: int = 0

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=o.VECTORS)

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if not op.w_digits:
            raise IRError("vectors are multiplied digit by digit", hint="run the pass decompose first")
        steps, warps = self.steps + SPARE, self.down * self.across
        arrays = {
            "numbers": (number_type(op.k), steps * STEP), "values": (u32, steps * 32 * words(op.w_digits)),
            "tasks": (s32, self.lists * self.length * warps * tk.RECORD),
        }  # fmt: skip
        sums, tiles = Sums.of(op.w_digits, op.x_digits, self.wide), -(-op.row_bytes // (self.wide * self.across))
        arrays |= cut_arrays(op, self.slots)
        counter = self.slots * tiles * self.across
        params = parameters(op, arrays, sums.slot * counter, counter, sums.dtype)
        module, params, x = by_pieces(module, op, params, ("row",))
        blocks = tiles * self.lists
        return launched(module, op, params, self._block(op, params, x, blocks), blocks, warps)

    def _block(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, blocks: int) -> ts.EachBlock:
        """The tasks of a block's warps."""
        slots, item = self.down * self.across * self.stages, x.buffer.dtype.nbytes
        rows = Buffer("x_ring", x.buffer.dtype, slots * STEP * self.wide // item, "shared", ALIGN)
        values = Buffer("w_ring", u32, slots * 32 * words(op.w_digits), "shared")
        block = Value("block", s32, 0, blocks - 1)
        names, tops = ("row", "begin", "end", "part"), (-(-op.m // HIGH) - 1, self.steps, self.steps, self.across - 1)
        row, begin, end, part = (Value(name, s32, 0, top) for name, top in zip(names, tops, strict=True))
        number = block // self.lists * self.across + part  # of the warp's part of a row of x
        tasks = tk.EachTask(
            tasks=params["tasks"], row=row, begin=begin, end=end, word=part, list=block % self.lists,
            length=self.length, rows=row.hi + 1, steps=self.steps,
            body=self._task(op, params, x, (rows, values), (begin, end), (row, number)),
        )  # fmt: skip
        return ts.EachBlock(block=block, body=(t.Alloc(buf=rows), t.Alloc(buf=values), tasks))

    def _task(
        self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, rings: tuple[Buffer, Buffer],
        bounds: tuple[Value, Value], at_task: tuple[Value, Any],
    ) -> tuple[Op, ...]:  # fmt: skip
        """A part of a vector row."""
        (rows, values), (begin, end), (row, number) = rings, bounds, at_task
        sums = Sums.of(op.w_digits, op.x_digits, self.wide)
        acc, own = Buffer("acc", sums.dtype, sums.size, "reg"), Buffer("own", s32, 1, "reg")
        mine = Buffer("words", u32, words(op.w_digits), "reg")
        at, slot = Value("at", s32, 0, self.steps), Value("slot", s32, 0, self.stages - 1)
        k = Value("k", s32, 0, op.k - 1)
        digits: dict[str, Any] = {"w_digits": op.w_digits, "x_digits": op.x_digits, "wide": self.wide}
        gather = tr.GatherStep(
            x=rows, words=values, src=x.buffer, values=params["values"], number=k, at=at, slot=slot,
            column=number * (self.wide // x.buffer.dtype.nbytes), stages=self.stages, wide=self.wide, k=op.k, n=x.n,
        )  # fmt: skip
        take = tr.TakeStep(rows=own, words=mine, ring=values, slot=slot, stages=self.stages, wide=self.wide)
        multiply = tv.MultiplyVectors(acc=acc, x=rows, rows=own, words=mine, at=at, end=end, **digits)
        walk = tr.WalkRing(
            numbers=params["numbers"], at=at, slot=slot, number=k, begin=begin, end=end, stages=self.stages,
            fill=(gather,), body=(take, multiply),
        )  # fmt: skip
        store = tv.StoreVectors(
            acc=acc, row=row, column=number * (sums.units * sums.columns), vec=together(op, sums), **digits,
            **epilogue(op, params),
        )  # fmt: skip
        ends = whole(params, acc, (row, begin, number), self._slots(params), store)
        return (t.Alloc(buf=acc, zeroed=True), t.Alloc(buf=own), t.Alloc(buf=mine), walk, ends)

    def _slots(self, params: dict[str, Buffer]) -> Slots | None:
        """Where tasks of rows that are cut leave their sums: in global memory, as they are of any blocks."""
        if not self.slots:
            return None
        counter = params["workspace.counter"]
        return Slots(params["workspace.slots"], counter, counter.size // self.slots)
