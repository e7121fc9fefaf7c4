"""``csr``: a product with rows of entries, on CUDA cores; teams of lanes gather the rows of x that the entries name.

What bounds it is how fast rows of x come from the caches: each lane loads 16 bytes at a time, ``unroll`` of them in
flight, and the entries of the turn to come meanwhile.  Rows are cut into segments of bounded length (the host works
out a record for each), so that no team is long at work when the others have done.  Sums are made in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import op_spmm as o
from .. import tile as t
from .. import tile_ragged as r
from ..expr import Value
from ..module import Module
from ..node import Op
from ..passes.manager import register
from ..types import Buffer, f32, s32, widths
from .common import each
from .groups import Pieces
from .product import epilogue, launched, parameters

#: Entries whose rows, and whose values, one load takes; tables of entries are padded to a multiple.
ALIGN = 4


def padded(entries: int) -> int:
    """Elements of the tables of so many entries: a multiple of :data:`ALIGN`, and one such at least."""
    return max(-(-entries // ALIGN), 1) * ALIGN


@register("csr")
@dataclass(frozen=True)
class Csr:
    """Teams of ``across`` x ``parts`` lanes, ``warps`` warps a block; a lane has ``columns`` columns of x.

    It loads as many of them at once as lie side by side, up to 16 bytes.  ``unroll`` entries a turn; ``segments``: how
    many there are, the first ``cuts`` of them of rows that are cut.  Roles of the launch: ``in``, ``out``, W's arrays
    (``idx``, ``values``), ``segments``, those of the epilogue, and with cuts ``workspace.slots`` and
    ``workspace.counter`` (zero before and after).
    """

    across: int = 16
    parts: int = 1
    columns: int = 1
    unroll: int = 4
    warps: int = 4
    segments: int = 1
    cuts: int = 0

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("csr",))

    @property
    def team(self) -> int:
        """Lanes of a team."""
        return self.across * self.parts

    @property
    def cols(self) -> int:
        """Columns of x that a team has."""
        return self.across * self.columns

    def _vec(self, op: o.Spmm) -> int:
        """Columns that an access takes."""
        if op.x_order != "row":
            return 1
        return max(v for v in widths(op.dtype) if op.vec % v == 0 and self.columns % v == 0)

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if op.format != "csr":
            return module
        tiles, entries = -(-op.n // self.cols), padded(op.entries)
        arrays = {"idx": (s32, entries), "values": (op.dtype, entries), "segments": (s32, self.segments * r.RECORD)}
        params = parameters(op, arrays, self.cuts * tiles * self.cols, self.cuts * tiles)
        blocks = self.segments * self.team // (32 * self.warps) * tiles
        return launched(module, op, params, self._share(op, params), blocks, self.warps)

    def _share(self, op: o.Spmm, params: dict[str, Buffer]) -> r.ShareSegments:
        """What a team does."""
        number, piece = Value("number", s32, 0, self.segments - 1), Value("piece", s32, 0, self.segments - 1)
        pieces, row = Value("pieces", s32, 1, self.segments), Value("row", s32, 0, op.m)
        begin, end = Value("begin", s32, 0, op.entries), Value("end", s32, 0, op.entries)
        column = Value("column", s32, 0, op.n - 1)
        acc = Buffer("acc", f32, self.columns, "reg")
        vec = self._vec(op)
        blocks = self.columns // vec
        walk = self._walk(op, params, acc, begin, end, column)
        store = r.StoreRow(
            acc=acc, row=row, column=column, across=self.across, parts=self.parts, vec=vec, blocks=blocks,
            **epilogue(op, params),
        )  # fmt: skip
        add = r.SumSegments(
            acc=acc, slots=params.get("workspace.slots"), counter=params.get("workspace.counter"), number=number,
            first_piece=piece, pieces=pieces, cuts=self.cuts, count=self.segments, across=self.across,
            parts=self.parts, vec=vec, blocks=blocks, body=(store,),
        )  # fmt: skip
        return r.ShareSegments(
            segments=params["segments"], number=number, row=row, begin=begin, end=end, first_piece=piece,
            pieces=pieces, column=column, count=self.segments, rows=op.m, entries=op.entries, team=self.team,
            cols=self.cols, body=(t.Alloc(buf=acc, zeroed=True), *walk, add),
        )  # fmt: skip

    def _walk(
        self, op: o.Spmm, params: dict[str, Buffer], acc: Buffer, begin: Value, end: Value, column: Value
    ) -> tuple[Op, ...]:
        """Adds up a segment's entries."""
        vec = self._vec(op)
        lanes = {"across": self.across, "parts": self.parts, "vec": vec, "blocks": self.columns // vec}
        x = Pieces(params["in"], op.n, op.x_order)
        return walk_entries(op, params, x, acc, (begin, end, column), self.unroll, lanes)


def walk_entries(
    op: o.Spmm, params: dict[str, Buffer], x: Pieces, acc: Buffer, of: tuple[Value, Value, Value], unroll: int,
    lanes: dict[str, int],
) -> tuple[Op, ...]:  # fmt: skip
    """Adds up entries: rows of x are on their way while the entries of the next turn are loaded.

    ``of``: the first entry, the one after the last, and the team's first column; ``lanes``: the team's ``across`` and
    ``parts``, a lane's ``blocks`` and ``vec``.
    """
    begin, end, column = of
    align = min(unroll, ALIGN)
    at, coming = Value("at", s32, 0, op.entries), Value("coming", s32, 0, op.entries + 32 * unroll)
    rows, values = Buffer("rows", s32, unroll, "reg"), Buffer("vals", op.dtype, unroll, "reg")
    weights = Buffer("weights", f32, unroll, "reg")
    raw = Buffer("raw", op.dtype, unroll * acc.size, "reg")
    load = r.LoadEntries(
        rows=rows, values=values, row_table=params["idx"], value_table=params["values"], at=coming, end=end,
        align=align, top=op.k - 1,
    )  # fmt: skip
    gather = r.Gather(
        dst=raw, weights=weights, src=x.buffer, rows=rows, values=values, at=at, begin=begin, end=end, align=align,
        column=column, k=op.k, n=x.n, across=lanes["across"], vec=lanes["vec"], blocks=lanes["blocks"], order=x.order,
    )  # fmt: skip
    multiply = r.MultiplyRows(acc=acc, weights=weights, rows=raw)
    walk = r.WalkSegment(
        at=at, coming=coming, begin=begin, end=end, across=lanes["across"], parts=lanes["parts"], by=unroll,
        align=align, ahead=(load,), body=(gather, load, multiply),
    )  # fmt: skip
    return (*(t.Alloc(buf=regs, zeroed=True) for regs in (rows, values, raw, weights)), walk)
