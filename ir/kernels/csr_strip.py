"""``csr_strip``: a product with rows of entries, on CUDA cores; x stays in shared memory, strip by strip.

``csr`` brings the row of x of every entry from L2, or L1.  Where all rows of x, a few columns wide, fit into shared
memory, a block loads them once, and teams of lanes walk rows of W against them: for each entry a lane reads 16 bytes
and multiplies them, while the entries of the next turn are on their way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_mixed as tm
from .. import tile_ragged as r
from .. import tile_resident as te
from .. import tile_strips as ts
from ..expr import Expr, Value, as_expr
from ..module import Module
from ..node import Op
from ..numbers.mixed import RECORD
from ..numbers.resident import ALIGN, PIECE, padded_rows
from ..passes.manager import register
from ..types import Buffer, s32, u64, widths
from .common import each
from .csr import ALIGN as LOAD
from .csr import by_team, walked
from .groups import Pieces, by_pieces
from .product import epilogue, launched, parameters


@register("csr_strip")
@dataclass(frozen=True)
class CsrStrip:
    """Blocks of ``warps`` warps, each with ``wide`` bytes of the rows of x and one of ``lists`` lists of W's rows.

    Teams have ``groups`` groups of lanes, each a piece of 16 bytes of a strip's row, which share a row's entries,
    ``unroll`` a turn; every row's ``entries`` are filled up to whole turns of a group.  ``length``: rows of a team.
    ``via``: how strips come.  Roles of the launch: ``in``, ``out``, W's arrays (``places``, ``values``, ``records``),
    those of the epilogue.  An x by columns, or one whose rows are no whole pieces, is first written row by row into
    ``ws.turned``.
    """

    wide: int = 128
    lists: int = 1
    warps: int = 16
    groups: int = 1
    unroll: int = 4
    entries: int = 0
    length: int = 1
    via: str = "tensor"
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("csr",))

    @property
    def across(self) -> int:
        """Lanes of a group."""
        return self.wide // PIECE

    @property
    def team(self) -> int:
        """Lanes of a team."""
        return self.across * self.groups

    @property
    def rows(self) -> int:
        """Rows of a list."""
        return self.length * (32 * self.warps // self.team)

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        entries = max(self.entries, LOAD)
        arrays = {
            "places": (s32, entries), "values": (op.dtype, entries), "records": (s32, self.lists * self.rows * RECORD)
        }  # fmt: skip
        module, params, x = by_pieces(module, op, parameters(op, arrays, 0, 0), ("row",))
        blocks = -(-op.row_bytes // self.wide) * self.lists
        return launched(module, op, params, self._block(op, params, x, blocks), blocks, self.warps, self.min_blocks)

    def _block(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, blocks: int) -> ts.EachBlock:
        """The strip of a block, and the rows of its teams."""
        cols, rows = self.wide // op.dtype.nbytes, padded_rows(op.k)
        strip = Buffer("strip", op.dtype, (rows + 1) * cols, "shared", ALIGN)
        bars = Buffer("bars", u64, 1, "shared") if self.via == "tensor" else None
        block = Value("block", s32, 0, blocks - 1)
        column = block // self.lists * cols
        fill = te.FillResident(
            dst=strip, src=x.buffer, bars=bars, row=as_expr(0), column=column, rows=rows, cols=cols, zeros=1, m=op.k,
            n=x.n, via=self.via,
        )  # fmt: skip
        row, place = Value("row", s32, 0, op.m), Value("place", s32, 0, self.rows - 1)
        begin, end = (Value(name, s32, 0, self.entries) for name in ("begin", "end"))
        teams = tm.EachRow(
            records=params["records"], row=row, begin=begin, end=end, place=place,
            first=block % self.lists * self.rows, rows=self.rows, m=op.m, entries=self.entries, team=self.team,
            ahead=(), body=self._row(op, params, (strip, bars), (row, begin, end), column),
        )  # fmt: skip
        held = (t.Alloc(buf=buf) for buf in (strip, bars) if buf)
        return ts.EachBlock(block=block, body=(*held, fill, teams))

    def _row(
        self, op: o.Spmm, params: dict[str, Buffer], shared: tuple[Buffer, Buffer | None],
        of: tuple[Value, Value, Value], column: Expr,
    ) -> tuple[Op, ...]:  # fmt: skip
        """A row of W: its entries, the sums of the team's groups, and the store."""
        (strip, bars), (row, begin, end), vec = shared, of, PIECE // op.dtype.nbytes
        acc = Buffer("acc", op.sums, vec, "reg")
        lanes: dict[str, Any] = {"across": self.across, "parts": self.groups, "vec": vec, "blocks": 1}
        once = max(v for v in widths(op.dtype) if (op.y_panel or op.n) % v == 0 and op.vec % v == 0)
        store = r.StoreRow(
            acc=acc, row=row, column=column, once=once, panel=op.y_panel, **lanes, **epilogue(op, params)
        )

        def gather(rows: Buffer, at: Value, **regs: Any) -> Op:
            return te.GatherResident(src=strip, places=rows, across=self.across, **regs)

        # every team waits for the strip, also one that has no entries: no block ends before its strip has come
        wait = (te.AwaitResident(bars=bars, part=0, parts=1),) if bars else ()
        walk = walked(
            gather, (params["places"], params["values"]), strip.nbytes // PIECE - self.across, acc, (begin, end),
            self.unroll, lanes, wait,
        )  # fmt: skip
        return (t.Alloc(buf=acc, zeroed=True), *walk, by_team(store, acc, lanes))
