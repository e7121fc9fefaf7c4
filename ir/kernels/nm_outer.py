"""``nm_outer``: a product with rows of W that share their columns, on CUDA cores, as outer products in registers.

nmSPARSE's vector-wise pattern (MLSys'23, section 3) for many columns of x in f32, for which there are no tensor cores:
a product of dense matrices whose inner loop walks the kept columns alone.  Windows of x wait whole in shared memory,
which costs as many bytes whatever is kept, and each row of x is found by its number in a list (NM-SpMM packs the rows
of a block instead); W's values lie as lanes read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_outer as tu
from ..errors import IRError
from ..expr import Value
from ..module import Module
from ..node import Op
from ..numbers.outer import HIGH, PIECE, list_words, share_of, threads, turns_of, windows_of
from ..passes.manager import register
from ..types import Buffer, f32, s32, u64
from .common import each, tiles
from .groups import Pieces, by_pieces
from .product import epilogue, launched, parameters


@register("nm_outer")
@dataclass(frozen=True)
class NmOuter:
    """Blocks with a tile of ``rows`` x ``cols`` of y, ``each`` columns and 8 rows of it a lane.

    A turn takes whole windows of ``deep`` columns of W together, or one, in a ring of ``stages`` slots.  Roles of the
    launch: ``in``, ``out``, W's packed arrays (``values`` and ``lists``), those of the epilogue.  An x by columns, or
    one whose rows are no whole pieces, is first written row by row into ``ws.turned``.
    """

    rows: int = 128
    cols: int = 128
    each: int = 8
    deep: int = 32
    stages: int = 3
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("nm",), dtypes=(f32,))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        n, m, vector = op.pattern[:3]
        if vector % HIGH:
            raise IRError(f"nm_outer multiplies {HIGH} rows that share their columns, not {vector}",
                          hint="take nm_lanes")  # fmt: skip
        windows = windows_of(m, self.deep)
        entries, share, turns = windows * n, share_of(vector), turns_of(op.k, m, windows)
        runs = -(-op.m // self.rows) * turns
        arrays = {
            "values": (f32, runs * entries * self.rows), "lists": (s32, runs * list_words(entries, self.rows, share)),
        }  # fmt: skip
        params = parameters(op, arrays, 0, 0)
        module, params, x = by_pieces(module, op, params, ("row",))
        tile, whole = (self.cols, self.rows), ((0, op.n), (0, op.m))  # rows of W are the faster: they share x
        loop = tiles((whole,), tile, 0, lambda at: self._tile(op, params, x, at, windows, turns))
        blocks = -(-op.m // self.rows) * -(-op.n // self.cols)
        warps = threads(self.rows, self.cols, self.each) // 32
        return launched(module, op, params, loop, blocks, warps, self.min_blocks)

    def _tile(
        self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, at: t.ForTiles, windows: int, turns: int
    ) -> tuple[Op, ...]:
        """What a block does with its tile."""
        n, m, vector = op.pattern[:3]
        (column, row), entries, share, deep = at.at, windows * n, share_of(vector), windows * m
        lists, stages = list_words(entries, self.rows, share), self.stages
        rings = (
            Buffer("x_ring", f32, stages * deep * self.cols, "shared", 16),
            Buffer("value_ring", f32, stages * entries * self.rows, "shared", 16),
            Buffer("list_ring", s32, stages * lists, "shared", 16),
        )
        bars = Buffer("bars", u64, 2 * stages, "shared", 8)
        names, held = Buffer("names", s32, PIECE, "reg"), Buffer("held", f32, HIGH + self.each, "reg")
        acc = Buffer("acc", f32, HIGH * self.each, "reg")
        turn, coming = Value("step", s32, 0, turns - 1), Value("coming", s32, 0, turns - 1)
        window = tu.CopyWindow(
            ring=rings[0], src=x.buffer, turn=turn, column=column, stages=stages, deep=deep, cols=self.cols, k=op.k,
            n=x.n,
        )  # fmt: skip
        runs = (
            tu.CopyRun(
                ring=ring, src=params[name], tile=row // self.rows, turn=turn, stages=stages, turns=turns, size=size
            )
            for ring, name, size in ((rings[1], "values", entries * self.rows), (rings[2], "lists", lists))
        )
        slot: dict[str, Any] = {
            "names": names, "held": held, "values": rings[1], "lists": rings[2], "x": rings[0], "turn": turn,
            "stages": stages, "entries": entries, "deep": deep, "rows": self.rows, "cols": self.cols, "share": share,
        }  # fmt: skip
        along = op.n if op.y_order == "row" else op.m
        store = tu.StoreOuter(
            acc=acc, row=row, column=column, rows=self.rows, cols=self.cols, vec=PIECE if along % PIECE == 0 else 1,
            **epilogue(op, params),
        )  # fmt: skip
        walk = tu.WalkApart(
            bars=bars, turn=turn, coming=coming, turns=turns, stages=stages, fill=(window, *runs),
            first=(tu.LoadEntry(**slot),), body=(tu.MultiplyOuter(acc=acc, **slot),),
            last=(tu.MultiplyOuter(acc=acc, coming=coming, **slot),),
        )  # fmt: skip
        allocs = (*(t.Alloc(buf=buf) for buf in (*rings, bars, names, held)), t.Alloc(buf=acc, zeroed=True))
        return (*allocs, walk, store)
