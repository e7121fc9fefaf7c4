"""``nm_strips``: a product with strips of W that keep columns of their own, on tensor cores, by ``mma.sync``.

nmSPARSE's vector-wise pattern (MLSys'23, section 3) for vectors of fewer rows than a warpgroup has, and for GPUs
without warpgroups.  What a strip gathers alone would be read from L2 once a strip; so the rows of x of some whole
windows come once for all strips of a block, and each warp finds its own by the row addresses of ``ldmatrix``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_groups as tg
from .. import tile_strips as ts
from .. import tile_walk as tw
from ..errors import IRError
from ..expr import TRUE, Value, all_of, minimum
from ..module import Module
from ..numbers.arithmetic import up
from ..numbers.strips import ALIGN, DEPTH, Turn, kept_of, passes, sums, windows_of
from ..passes.manager import register
from ..types import Buffer, f32, s32, u16, u32
from .common import each
from .groups import FEW, Pieces, by_pieces, stage, together
from .product import epilogue, launched, parameters


@register("nm_strips")
@dataclass(frozen=True)
class NmStrips:
    """``blocks`` blocks of ``down`` x ``across`` warps: strips of ``strip`` rows, parts of ``cols`` columns of x.

    A turn takes about ``kept`` columns of a strip, ``rows`` rows of x of a block, in a ring of ``stages`` slots that
    goes on from tile to tile.  Roles
    of the launch: ``in``, ``out``, W's packed arrays (``values``, ``places`` and ``rows``), those of the epilogue.  An
    x by columns, or one whose rows are no whole pieces, is first written row by row into ``ws.turned``.
    """

    strip: int = 32
    down: int = 8
    across: int = 1
    cols: int = 128
    kept: int = 32
    rows: int = 128
    stages: int = 4
    blocks: int = 132
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("nm",))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if op.dtype.nbytes != 2:
            raise IRError(f"nm_strips multiplies 16-bit numbers, not {op.dtype}", hint="take nm_lanes")
        turn = self._turn(op)
        turns = -(-op.k // op.pattern[1] // turn.windows)
        parts = -(-op.m // (self.strip * self.down)) * turns
        arrays = {
            "values": (u32, parts * self.down * self.strip * turn.depth // 2),
            "places": (u16, parts * self.down * turn.depth), "rows": (u16, parts * turn.rows),
        }  # fmt: skip
        module, params, x = by_pieces(module, op, parameters(op, arrays, 0, 0), ("row",))
        tiles = -(-op.m // (self.strip * self.down)) * -(-op.n // self.cols)
        blocks = min(self.blocks, tiles)
        body = self._block(op, params, x, turns, blocks)
        return launched(module, op, params, body, blocks, self.down * self.across, self.min_blocks)

    def _turn(self, op: o.Spmm) -> Turn:
        windows = windows_of(op.pattern, self.strip, self.kept)
        return Turn(windows, up(windows * kept_of(op.pattern, self.strip), DEPTH), self.rows)

    def _block(
        self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, steps: int, blocks: int
    ) -> ts.EachBlock:  # fmt: skip
        """What a block does."""
        turn, (down, across) = self._turn(op), (self.down, self.across)
        row_tiles, col_tiles = -(-op.m // (self.strip * down)), -(-op.n // self.cols)
        tiles = row_tiles * col_tiles
        most = -(-tiles // blocks)
        threads, stages = 32 * down * across, self.stages
        values = Buffer("w_ring", u32, stages * down * self.strip * turn.depth // 2, "shared")
        places = Buffer("places_ring", u16, stages * down * turn.depth, "shared")
        window = Buffer("x_ring", op.dtype, stages * turn.rows * self.cols, "shared", ALIGN)
        listed = Buffer("listed", u32, passes(self.cols, threads, turn.rows), "reg")
        own, a = Buffer("own", u32, turn.depth // DEPTH, "reg"), Buffer("a", u32, self.strip // 2, "reg")
        b, acc = Buffer("b", u32, 8, "reg"), Buffer("acc", f32, sums(self.strip, self.cols // across), "reg")
        # turns go on from tile to tile; some blocks have one tile less than others
        block, now = Value("block", s32, 0, blocks - 1), Value("turn", s32, 0, most * steps - 1)
        number = block + now // steps * blocks
        there = TRUE if tiles % blocks == 0 else number.lt(tiles)
        number = minimum(number, tiles - 1)  # what those blocks copy nobody reads
        by_columns = col_tiles <= FEW
        tile = number // col_tiles if by_columns else number % row_tiles
        column = (number % col_tiles if by_columns else number // row_tiles) * self.cols
        step, slot = now % steps, now % stages
        copy = ts.CopyStrips(
            values=values, places=places, values_src=params["values"], places_src=params["places"], tile=tile,
            step=step, slot=slot, steps=steps, stages=stages, strip=self.strip, down=down, depth=turn.depth,
        )  # fmt: skip
        gather = ts.GatherWindow(
            dst=window, src=x.buffer, lists=params["rows"], listed=listed, turn=now, tile=tile, step=step,
            column=column, slot=slot, steps=steps, stages=stages, rows=turn.rows, cols=self.cols, k=op.k, n=x.n,
        )  # fmt: skip
        share: dict[str, Any] = {
            "own": own, "a": a, "b": b, "values": values, "places": places, "x": window, "there": there, "slot": slot,
            "stages": stages, "strip": self.strip, "warps": (down, across), "depth": turn.depth, "rows": turn.rows,
            "cols": self.cols,
        }  # fmt: skip
        multiply = ts.MultiplyStrips(acc=acc, shape=f"{op.dtype}.m16n8k16", **share)
        store = tg.StoreTile(
            acc=acc, row=tile * (down * self.strip), column=column, warps=(down, across), high=self.strip // DEPTH,
            vec=together(op, self.cols // across), stage=stage(op, down * across, self.cols // across),
            **epilogue(op, params),
        )  # fmt: skip
        last = step.eq(steps - 1) if there == TRUE else all_of(step.eq(steps - 1), there)
        walk = tw.Walk(
            turn=now, held=(listed, own, a, b), turns=most * steps, stages=stages, scope="block", via="cp.async",
            late=down * across // 2,
            fill=(copy, gather), read=(ts.TakeStrips(**share),),
            body=(multiply, ts.FinishTile(acc=acc, last=last, body=(store,))),
        )  # fmt: skip
        rings = (t.Alloc(buf=ring) for ring in (window, values, places))
        return ts.EachBlock(block=block, body=(*rings, t.Alloc(buf=acc, zeroed=True), walk))
