"""``csr``: a product with rows of entries, on CUDA cores; teams of lanes gather the rows of x that the entries name.

What bounds it is how fast rows of x come from the caches: each lane loads 16 bytes at a time, ``unroll`` of them in
flight, and the entries of the turn to come meanwhile.  Rows are cut into segments of bounded length (the host works
out a record for each), so that no team is long at work when the others have done.  Sums are made in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import op_spmm as o
from .. import tile as t
from .. import tile_ragged as r
from ..expr import Value, as_expr
from ..module import Module
from ..node import Op
from ..passes.manager import register
from ..types import Buffer, s32, widths
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
    (``idx``, ``values``), ``segments``, those of the epilogue, ``sums`` for a product that begins with some, and with
    cuts ``workspace.slots`` and ``workspace.counter`` (zero before and after).
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
        of = op.vec, self.columns, op.y_panel or op.n
        return max(v for v in widths(op.dtype) if all(n % v == 0 for n in of))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if op.format != "csr":
            return module
        tiles, entries = -(-op.n // self.cols), padded(op.entries)
        arrays = {"idx": (s32, entries), "values": (op.dtype, entries), "segments": (s32, self.segments * r.RECORD)}
        params = parameters(op, arrays, self.cuts * tiles * self.cols, self.cuts * tiles, op.sums)
        blocks = self.segments * self.team // (32 * self.warps) * tiles
        return launched(module, op, params, self._share(op, params), blocks, self.warps)

    def _share(self, op: o.Spmm, params: dict[str, Buffer]) -> r.ShareSegments:
        """What a team does."""
        number, piece = Value("number", s32, 0, self.segments - 1), Value("piece", s32, 0, self.segments - 1)
        pieces, row = Value("pieces", s32, 1, self.segments), Value("row", s32, 0, op.m)
        begin, end = Value("begin", s32, 0, op.entries), Value("end", s32, 0, op.entries)
        column = Value("column", s32, 0, op.n - 1)
        acc = Buffer("acc", op.sums, self.columns, "reg")
        vec = self._vec(op)
        blocks = self.columns // vec
        walk = self._walk(op, params, acc, begin, end, column)
        store = r.StoreRow(
            acc=acc, row=row, column=column, across=self.across, parts=self.parts, vec=vec, blocks=blocks,
            panel=op.y_panel, onto=params.get("sums"), **epilogue(op, params),
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
        x = Pieces(params["in"], op.n, op.x_order, panel=op.x_panel)
        return walk_entries(op, params, x, acc, (begin, end, column), self.unroll, lanes)


def walk_entries(
    op: o.Spmm, params: dict[str, Buffer], x: Pieces, acc: Buffer, of: tuple[Value, Value, Value], unroll: int,
    lanes: dict[str, int], name: str = "",
) -> tuple[Op, ...]:  # fmt: skip
    """Adds up entries, whose rows of x come from global memory.

    ``of``: the first entry, the one after the last, and the team's first column; ``lanes``: the team's ``across`` and
    ``parts``, a lane's ``blocks`` and ``vec``; ``name``: what the names of a kernel's second walk begin with.
    """
    begin, end, column = of

    def gather(**regs: Any) -> Op:
        return r.Gather(
            src=x.buffer, begin=begin, end=end, align=min(unroll, ALIGN), column=column, k=op.k, n=x.n,
            across=lanes["across"], vec=lanes["vec"], blocks=lanes["blocks"], order=x.order, panel=x.panel, **regs,
        )  # fmt: skip

    turn = turns((params["idx"], params["values"]), op.k - 1, acc, (begin.hi, end), unroll, gather, name)
    walk = r.WalkSegment(
        at=turn.at, coming=turn.coming, begin=begin, end=end, across=lanes["across"], parts=lanes["parts"], by=unroll,
        align=min(unroll, ALIGN), ahead=(turn.load,), body=turn.body,
    )  # fmt: skip
    return (*turn.registers, walk)


class Turn(NamedTuple):
    """A turn of entries: where it begins, and the next one; its registers, what loads entries, and what it does."""

    at: Value
    coming: Value
    registers: tuple[Op, ...]
    load: r.LoadEntries
    body: tuple[Op, ...]


def turns(
    tables: tuple[Buffer, Buffer], top: int, acc: Buffer, of: tuple[int, Value], by: int, gather: Callable[..., Op],
    name: str = "",
) -> Turn:  # fmt: skip
    """Turns of ``by`` entries: rows of x are on their way while the entries of the next turn are loaded.

    ``tables``: numbers of rows, ``top`` at most, and values; ``of``: how many entries there are, and which is the one
    after the last that comes; ``gather`` makes the op that brings rows of x, of its registers and the entry ``at``
    hand; ``name``: what names begin with.
    """
    (idx, values), (entries, end) = tables, of
    at, coming = Value(f"{name}at", s32, 0, entries), Value(f"{name}coming", s32, 0, entries + 32 * by)
    rows, vals = Buffer(f"{name}rows", s32, by, "reg"), Buffer(f"{name}vals", values.dtype, by, "reg")
    weights = Buffer(f"{name}weights", acc.dtype, by, "reg")
    raw = Buffer(f"{name}raw", values.dtype, by * acc.size, "reg")
    load = r.LoadEntries(
        rows=rows, values=vals, row_table=idx, value_table=values, at=coming, end=end, align=min(by, ALIGN), top=top
    )
    bring = gather(dst=raw, weights=weights, rows=rows, values=vals, at=at)
    multiply = r.MultiplyRows(acc=acc, weights=weights, rows=raw)
    made = tuple(t.Alloc(buf=regs, zeroed=True) for regs in (rows, vals, raw, weights))
    return Turn(at, coming, made, load, (bring, load, multiply))


def by_team(store: Op, acc: Buffer, lanes: dict[str, Any]) -> Op:
    """``store`` of the sums of all groups of a team that has a whole row."""
    if lanes["parts"] == 1:
        return store
    none = as_expr(0)  # no segments of the row meet
    return r.SumSegments(
        acc=acc, slots=None, counter=None, number=none, first_piece=none, pieces=none, cuts=0, count=0, **lanes,
        body=(store,),
    )  # fmt: skip
