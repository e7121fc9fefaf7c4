"""A warp's walk over chunks of packed entries, of which the next one is always on its way."""

from __future__ import annotations

from collections.abc import Callable

from .. import op_spmm as o
from .. import tile as t
from .. import tile_nm as tn
from ..expr import Expr, Value
from ..node import Op
from ..numbers.nm import chunks
from ..types import Buffer, s32, u32


def walk_chunks(
    op: o.Spmm, params: dict[str, Buffer], tile: Value, tiles: int, count: int, share: tuple[Expr, int],
    multiply: Callable[[Buffer, Buffer, Value], Op],
) -> tuple[tuple[Op, ...], Op, Op]:  # fmt: skip
    """Registers, the load of the first chunk, and the walk.

    W's tables ``values`` and ``offsets``, among the roles of the launch, have ``tiles`` tiles of ``count`` chunks; the
    warp takes those of ``tile`` that are its ``share``, (part, of how many).  ``multiply`` makes the op that multiplies
    a chunk: of the registers of its values, of its offsets, and its number.
    """
    c, (part, parts) = chunks(*op.pattern[:2], op.dtype.nbytes), share
    size = c.stored * op.dtype.nbytes // 4
    chunk, coming = Value("chunk", s32, 0, count - 1), Value("coming", s32, 0, count + parts - 1)
    values, offsets = Buffer("now", u32, size, "reg"), Buffer("now_at", u32, c.words, "reg")
    next_values, next_offsets = Buffer("later", u32, size, "reg"), Buffer("later_at", u32, c.words, "reg")
    first, load = (
        tn.LoadChunk(
            values=next_values, offsets=next_offsets, value_table=params["values"], offset_table=params["offsets"],
            tile=tile, chunk=which, tiles=tiles, count=count,
        )
        for which in (part, coming)
    )  # fmt: skip
    now = (tn.HandOver(dst=values, src=next_values), tn.HandOver(dst=offsets, src=next_offsets))
    body = (*now, load, multiply(values, offsets, chunk))
    walk = tn.WalkChunks(chunk=chunk, coming=coming, part=part, parts=parts, count=count, body=body)
    return tuple(t.Alloc(buf=regs) for regs in (values, offsets, next_values, next_offsets)), first, walk
