"""``hybrid``: a product with rows that have dense tiles and other entries, in one launch, without atomics.

BSA-SpMM (Euro-Par 2024, section 4) multiplies dense tiles on tensor cores and the rest on CUDA cores in two kernels
that add to y by atomics.  Here a block has some rows and multiplies both: tiles out of a ring of rows of x, then the
other entries on top of the same sums, which leave it once, in the order in which W has its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_mixed as tm
from .. import tile_outer as tu
from .. import tile_ragged as r
from .. import tile_turned as tt
from .. import tile_walk as tw
from ..errors import IRError
from ..expr import Value
from ..module import Module
from ..node import Op
from ..numbers.mixed import (
    PLACES,
    RECORD,
    ROWS,
    SPAN,
    TILES,
    Team,
    Warps,
    fits,
    groups_of,
    slots,
    sums_pitch,
    team_of,
    tile_words,
)
from ..numbers.strips import ALIGN, COLS, sums
from ..passes.manager import register
from ..types import Buffer, DType, f32, s32, u32, widths
from .common import each
from .csr import by_team, padded, walk_entries
from .groups import Pieces, by_pieces
from .product import epilogue, launched, parameters


@register("hybrid")
@dataclass(frozen=True)
class Hybrid:
    """Blocks with ``rows`` rows and ``cols`` columns; ``down`` x ``across`` warps share the sums of dense tiles, and
    ``slices`` sets of so many the k of each turn, or turns.

    These have ``tile`` columns; bands of rows take ``dense`` turns in all, one ``longest`` at most.  Where there are
    none, or no other entries, the kernel has nothing for them.  ``mma``: warps multiply them (``sync``), or warpgroups
    of four that share the columns (``wgmma``).  ``stages``: slots of the ring; ``unroll``: other
    entries of a group of lanes a turn; ``cuts``: pieces of rows of a band that are cut, at most; ``blanks``: whether
    turns without a tile fill bands up.  Roles of the launch: ``in``, ``out``, W's arrays (``spans`` and ``records``; of
    dense tiles ``columns`` and ``tiles``; of other entries ``idx`` and ``values``, and of rows that are cut
    ``pieces``), those of the epilogue.  An x by columns, or one whose rows are no whole pieces, is first written row by
    row into ``ws.turned``.
    """

    rows: int = 32
    tile: int = 32
    down: int = 1
    across: int = 4
    slices: int = 1
    mma: str = "sync"
    cols: int = 128
    stages: int = 4
    unroll: int = 4
    dense: int = 0
    longest: int = 0
    cuts: int = 0
    blanks: bool = False
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("hybrid",))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        known = self.tile in TILES and self.rows in ROWS and self.cols in COLS and self.rows % self.tile == 0
        whole = self.mma == "sync" or groups_of(self.cols, self.share) > 0
        if not known or not whole or not fits(self.rows, self.cols, self.share):
            raise IRError(
                f"{self.down} x {self.across} x {self.slices} warps do not share a band of {self.rows} rows and "
                f"{self.cols} columns with dense tiles of {self.tile}",
                hint="tiles of 16, 32 or 64, bands as high as one or some, columns and warps by powers of two",
            )
        bands, tiles = -(-op.m // self.rows), -(-op.n // self.cols)
        arrays: dict[str, tuple[DType, int]] = {
            "spans": (s32, SPAN * bands), "records": (s32, RECORD * self.rows * bands)
        }  # fmt: skip
        if self.longest:
            arrays |= {"columns": (s32, self.dense), "tiles": (self._stored(op), self.dense * self._size(op))}
        if op.entries:
            arrays |= {"idx": (s32, padded(op.entries)), "values": (op.dtype, padded(op.entries))}
        if self.cuts:
            arrays |= {"pieces": (s32, RECORD * self.rows * bands)}
        module, params, x = by_pieces(module, op, parameters(op, arrays, 0, 0), ("row",))
        body = self._share(op, params, x)
        return launched(module, op, params, body, bands * tiles, prod(self.share), self.min_blocks)

    @property
    def share(self) -> Warps:
        """The warps of a block."""
        return self.down, self.across, self.slices

    def _stored(self, op: o.Spmm) -> DType:
        """What the kernel reads of dense tiles: their elements, or of fragments pairs of 16-bit values, or single
        ones."""
        return op.dtype if self.mma == "wgmma" else f32 if op.dtype is f32 else u32

    def _size(self, op: o.Spmm) -> int:
        """How many of these a turn has."""
        return tile_words(self.rows, self.tile, op.dtype.nbytes) * 4 // self._stored(op).nbytes

    def _team(self, op: o.Spmm) -> Team:
        """The teams that share a band's rows: they load whole pieces of x where y takes as many."""
        vec = max(v for v in widths(op.dtype) if (op.y_panel or op.n) % v == 0)
        return team_of(self.rows, self.cols, prod(self.share), vec)

    def _share(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces) -> tm.ShareBands:
        """What a block does."""
        bands, tiles = -(-op.m // self.rows), -(-op.n // self.cols)
        begin, turns = Value("begin", s32, 0, self.dense), Value("turns", s32, 0, self.longest)
        first, column = Value("first", s32, 0, (bands - 1) * self.rows), Value("column", s32, 0, op.n - 1)
        size = self.slices * self.rows * sums_pitch(self.cols)
        whole = Buffer("sums", f32, size, "shared") if self.longest else None
        count = slots(self.cuts, 32 * prod(self.share) // self._team(op).lanes)
        cut = Buffer("cut", f32, count * sums_pitch(self.cols), "shared") if self.cuts else None
        held, ahead = self._dense(op, params, x, (begin, turns, column), whole) if whole else ((), ())
        if cut is not None:
            held, ahead = (*held, t.Alloc(buf=cut)), (self._pieces(op, params, x, (first, column), cut, count, ahead),)
        meet = (t.Meet(),) if ahead else ()
        return tm.ShareBands(
            spans=params["spans"], begin=begin, turns=turns, first=first, column=column, count=bands, rows=self.rows,
            dense=self.dense, longest=self.longest, tiles=tiles, cols=self.cols,
            body=(*held, self._rows(op, params, x, (first, column), (whole, cut, count), (*ahead, *meet))),
        )  # fmt: skip

    def _dense(
        self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, at: tuple[Value, Value, Value], whole: Buffer
    ) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
        """What is in shared memory, and the products of a band's dense tiles, whose sums go there."""
        (begin, turns, column), stages = at, self.stages
        size = self._size(op)
        window = Buffer("x_ring", op.dtype, stages * self.tile * self.cols, "shared", ALIGN)
        values = Buffer("w_ring", self._stored(op), stages * size, "shared", ALIGN if self.mma == "wgmma" else 16)
        listed, turn = Buffer("listed", s32, 1, "reg"), Value("turn", s32, 0, self.longest - 1)
        share: dict[str, Any] = {"rows": self.rows, "warps": self.share, "cols": self.cols}
        copy = tm.CopyBand(
            dst=window, src=x.buffer, columns=params["columns"], listed=listed, begin=begin, turn=turn, column=column,
            stages=stages, tile=self.tile, cols=self.cols, k=op.k, n=x.n, blanks=self.blanks,
        )  # fmt: skip
        run = tu.CopyRun(ring=values, src=params["tiles"], tile=begin, turn=turn, stages=stages, turns=1, size=size)
        of_turn: dict[str, Any] = {"values": values, "x": window, "turn": turn, "stages": stages, "tile": self.tile}
        each = sums(self.rows // self.down, self.cols // self.across)
        multiply: Op
        if self.mma == "wgmma":
            parts = 2 * each // self.rows
            accs = tuple(Buffer(f"acc{p}", f32, self.rows // 2, "reg") for p in range(parts))
            multiply = tt.MultiplyTurned(accs=accs, **of_turn, **share)
            put: Op = tt.PutTurned(dst=whole, accs=accs, **share)
        else:
            accs = (Buffer("acc", f32, each, "reg"),)
            shape = "tf32.m16n8k8" if op.dtype is f32 else f"{op.dtype}.m16n8k16"
            split = op.dtype is f32 and not op.precision
            multiply = tm.MultiplyBand(acc=accs[0], shape=shape, split=split, **of_turn, **share)
            put = tm.PutSums(dst=whole, acc=accs[0], **share)
        walk = tw.Walk(
            turn=turn, held=(listed,), turns=self.longest, count=turns, stages=stages, scope="block", via="cp.async",
            fill=(copy, run), body=(multiply,),
        )  # fmt: skip
        rings = tuple(t.Alloc(buf=buf) for buf in (window, values, whole))
        return rings, (*(t.Alloc(buf=acc, zeroed=True) for acc in accs), walk, put)

    def _pieces(
        self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, at: tuple[Value, Value], cut: Buffer, count: int,
        ahead: tuple[Op, ...],
    ) -> tm.EachRow:  # fmt: skip
        """The pieces of a band's rows that are cut: their sums go to the ``count`` rows of ``cut``."""
        (first, column), place = at, Value("slot", s32, 0, count - 1)
        row, (begin, end) = Value("of", s32, 0, op.m), (Value(f"cut_{e}", s32, 0, op.entries) for e in ("from", "end"))
        lanes, acc = self._lanes(op, "cut_total")
        put = by_team(tm.PutRow(dst=cut, acc=acc, place=place, rows=count, cols=self.cols, **lanes), acc, lanes)
        entries = walk_entries(op, params, x, acc, (begin, end, column), self.unroll, lanes, "cut_")
        return tm.EachRow(
            records=params["pieces"], row=row, begin=begin, end=end, place=place, first=first, rows=count, m=op.m,
            entries=op.entries, team=self._team(op).lanes, ahead=ahead,
            body=(t.Alloc(buf=acc, zeroed=True), *entries, put),
        )  # fmt: skip

    def _rows(
        self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, at: tuple[Value, Value],
        sums: tuple[Buffer | None, Buffer | None, int], ahead: tuple[Op, ...],
    ) -> tm.EachRow:  # fmt: skip
        """The other entries of a band's rows, on top of the ``sums`` of dense tiles and of pieces (``ahead`` leaves
        them), and the store."""
        (first, column), (whole, cut, count) = at, sums
        word = Value("place", s32, 0, (PLACES * PLACES * (count + 1) if cut else self.rows) - 1)
        row, (begin, end) = Value("row", s32, 0, op.m), (Value(e, s32, 0, op.entries) for e in ("from", "end"))
        lanes, acc = self._lanes(op, "total")
        once = min(lanes["vec"], widths(op.y_stored)[-1])
        put = r.StoreRow(
            acc=acc, row=row, column=column, once=once if once < lanes["vec"] else None, panel=op.y_panel, **lanes,
            **epilogue(op, params),
        )  # fmt: skip
        store = by_team(put, acc, lanes)
        begun: list[Op] = [t.Alloc(buf=acc, zeroed=whole is None)]
        if whole is not None:
            place = word % PLACES if cut else word
            begun.append(tm.TakeSums(
                acc=acc, src=whole, place=place, slices=self.slices, rows=self.rows, cols=self.cols, **lanes
            ))  # fmt: skip
        if cut is not None:
            begun.append(tm.AddRows(
                acc=acc, src=cut, first=word // PLACES % PLACES, count=word // PLACES**2, rows=count, cols=self.cols,
                **lanes,
            ))  # fmt: skip
        entries = walk_entries(op, params, x, acc, (begin, end, column), self.unroll, lanes) if op.entries else ()
        return tm.EachRow(
            records=params["records"], row=row, begin=begin, end=end, place=word, first=first, rows=self.rows,
            m=op.m, entries=op.entries, team=self._team(op).lanes, ahead=ahead, body=(*begun, *entries, store),
        )  # fmt: skip

    def _lanes(self, op: o.Spmm, name: str) -> tuple[dict[str, Any], Buffer]:
        """How the lanes of a team share a row, and the sums of each."""
        team = self._team(op)
        lanes = {"across": team.across, "parts": team.parts, "vec": team.vec, "blocks": team.blocks}
        return lanes, Buffer(name, f32, team.vec * team.blocks, "reg")
