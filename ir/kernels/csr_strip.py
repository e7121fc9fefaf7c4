"""``csr_strip``: a product with rows of entries, on CUDA cores; x stays in shared memory, strip by strip.

``csr`` brings the row of x of every entry from L2, or L1.  Where all rows of x, a few columns wide, fit into shared
memory, a block loads them once, and teams of lanes walk rows of W against them: for each entry a lane reads 16 bytes
or more and multiplies them, while the entries of the next turn are on their way, be they of this row or of the next.

What bounds it is what comes to an SM's registers, 128 bytes a clock: the strip's rows, and each lane's own copy of the
places and values of its entries.  So lanes of wide rows have several pieces of a row, and share them with fewer lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from ..numbers.mixed import sums_pitch
from ..numbers.resident import ALIGN, PIECE, cut_rows, padded_rows, pieces
from ..passes.manager import register
from ..types import Buffer, s32, u64, widths
from .common import each
from .csr import ALIGN as LOAD
from .csr import by_team, turns
from .groups import Pieces, by_pieces
from .product import epilogue, launched, parameters


@register("csr_strip")
@dataclass(frozen=True)
class CsrStrip:
    """Blocks of ``warps`` warps, each with ``wide`` bytes of the rows of x and one of ``lists`` lists of W's rows.

    Teams have ``groups`` groups of lanes, as many as a strip's row has pieces of 16 bytes, which share a row's entries,
    ``unroll`` a turn; where lanes have several pieces, those of a group share its entries.  Every row's ``entries`` are
    filled up to whole turns of a group.  ``length``: rows of a team.  ``via``: how strips come.  ``slots``: pieces of a
    list's rows that are cut, at most; several teams of a block have them, leave their sums in shared memory, and when
    all have met add up and store.  Roles of the launch: ``in``, ``out``, W's arrays (``places``, ``values``,
    ``records``, and with slots ``cuts``), those of the epilogue.  An x by columns, or one whose rows are no whole
    pieces, is first written row by row into ``ws.turned``.
    """

    wide: int = 128
    lists: int = 1
    warps: int = 16
    groups: int = 1
    unroll: int = 4
    entries: int = 0
    length: int = 1
    via: str = "tensor"
    slots: int = 0
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

    @property
    def cuts(self) -> int:
        """Rows of a list that are cut, at most, in as many turns of all teams as they take."""
        return cut_rows(self.slots, 32 * self.warps // self.team)

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        entries = max(self.entries, LOAD)
        arrays = {
            "places": (s32, entries), "values": (op.dtype, entries), "records": (s32, self.lists * self.rows * r.RECORD)
        }  # fmt: skip
        if self.slots:
            arrays["cuts"] = (s32, self.lists * self.cuts * r.RECORD)
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
            n=x.n, via=self.via, swizzle=False,
        )  # fmt: skip
        cut = Buffer("cut", op.sums, self.slots * sums_pitch(cols), "shared") if self.slots else None
        held = (t.Alloc(buf=buf) for buf in (strip, cut, bars) if buf)
        number = block % self.lists
        walk = self._walk(op, params, (strip, bars, cut), number * self.rows, column)
        ends = (self._cuts(op, params, cut, number * self.cuts, column),) if cut else ()
        return ts.EachBlock(block=block, body=(*held, fill, *walk, *ends))

    def _lanes(self, op: o.Spmm) -> dict[str, Any]:
        """How the lanes of a team have the columns of a row's sums."""
        return {"across": self.across, "parts": self.groups, "vec": PIECE // op.dtype.nbytes, "blocks": 1}

    def _store(self, op: o.Spmm, params: dict[str, Buffer], sums: Buffer, row: Value, column: Expr) -> r.StoreRow:
        """What a team does with the sums of a whole row."""
        once = max(v for v in widths(op.dtype) if (op.y_panel or op.n) % v == 0 and op.vec % v == 0)
        return r.StoreRow(
            acc=sums, row=row, column=column, once=once, panel=op.y_panel, **self._lanes(op), **epilogue(op, params)
        )

    def _cuts(self, op: o.Spmm, params: dict[str, Buffer], cut: Buffer, first: Expr, column: Expr) -> tm.EachRow:
        """Rows that are cut, when all their pieces are there: added up in order, and stored."""
        lanes, row = self._lanes(op), Value("of", s32, 0, op.m)
        begin, end, place = (Value(name, s32, 0, self.slots) for name in ("from", "upto", "none"))
        sums = Buffer("total", op.sums, lanes["vec"], "reg")
        add = tm.AddRows(
            acc=sums, src=cut, first=begin, count=end - begin, rows=self.slots, cols=self.wide // op.dtype.nbytes,
            **lanes,
        )  # fmt: skip
        store = by_team(self._store(op, params, sums, row, column), sums, lanes)
        return tm.EachRow(
            records=params["cuts"], row=row, begin=begin, end=end, place=place, first=first, rows=self.cuts, m=op.m,
            entries=self.slots, team=self.team, ahead=(t.Meet(),), body=(t.Alloc(buf=sums, zeroed=True), add, store),
        )  # fmt: skip

    def _walk(
        self, op: o.Spmm, params: dict[str, Buffer], shared: tuple[Buffer, Buffer | None, Buffer | None], first: Expr,
        column: Expr,
    ) -> tuple[Op, ...]:  # fmt: skip
        """The rows of W of a team, or pieces of them, one after the other: their entries, the sums of its groups, and
        the store."""
        (strip, bars, cut), vec = shared, PIECE // op.dtype.nbytes
        many = pieces(self.wide, self.unroll, vec * op.sums.nbytes)
        by = self.unroll // many
        row = Value("row", s32, 0, op.m + self.slots)
        end, rest, until = (Value(name, s32, 0, self.entries) for name in ("end", "rest", "until"))
        start, then = (Value(name, s32, 0, self.entries + 32 * by) for name in ("start", "then"))
        acc, sums = Buffer("acc", op.sums, many * vec, "reg"), Buffer("sums", op.sums, vec, "reg")

        def gather(rows: Buffer, at: Value, **regs: Any) -> Op:
            return te.GatherResident(src=strip, places=rows, across=self.across, pieces=many, **regs)

        tables, top = (params["places"], params["values"]), strip.nbytes // PIECE - self.across
        turn = turns(tables, top, acc, (self.entries, until), by, gather)
        lanes = self._lanes(op)
        store: Op = self._store(op, params, sums, row, column)
        if cut:  # pieces are numbered by their slots, behind the rows and the one that does not exist
            put = tm.PutRow(
                dst=cut, acc=sums, place=row - (op.m + 1), rows=self.slots, cols=self.wide // op.dtype.nbytes, **lanes
            )
            store = t.When(pred=row.gt(op.m), body=(put,), other=(store,))
        join = te.JoinPieces(dst=sums, src=acc, across=self.across, pieces=many)
        # every team waits for the strip, also one that has no entries: no block ends before its strip has come
        wait = (te.AwaitResident(bars=bars, part=0, parts=1),) if bars else ()
        walk = r.WalkOn(
            coming=turn.coming, until=until, start=start, end=end, then=then, rest=rest, step=self.unroll * self.groups,
            load=(turn.load,), body=turn.body,
        )  # fmt: skip
        each = (t.Alloc(buf=acc, zeroed=True), walk, t.Alloc(buf=sums), join, by_team(store, sums, lanes))
        rows = r.WalkRows(
            records=params["records"], row=row, start=start, end=end, then=then, rest=rest, first=first,
            rows=self.rows, m=row.hi, entries=self.entries, across=self.across // many, parts=self.groups * many, by=by,
            ahead=(replace(turn.load, at=start, end=end), *wait), body=each,
        )  # fmt: skip
        return (*turn.registers, rows)
