"""The tile ops of N:M patterns whose lanes have a window each (nmSPARSE, MLSys'23, section 4: SpMV).

A lane keeps its 32nd part of the windows of some rows, so it reads words of x that are its window's alone.  Stored by
offsets, all windows side by side, these lie in the lane's own bank, whichever offsets its rows keep: no conflict for
any M.  Stored window by window, as x is, the lanes' words are M apart and meet in few banks.

No other family uses them: in ``nm_lanes`` all lanes are in one window, and have rows of their own.
"""

from __future__ import annotations

from typing import Final

from .checks import Context, check
from .expr import Expr, Value
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .numbers.nm import LANES, chunks, x_words
from .tile_nm import Stage
from .tile_rules import registers, shared
from .types import Buffer, DType, f32, u32, widths

#: How x lies in shared memory: offset by offset, the windows side by side, or window by window.
LAYOUTS: Final = ("offsets", "windows")


@define("tile.share_groups", kw_only=True)
class ShareGroups(Op):
    """Each warp has a group of ``high`` of the ``rows`` rows of W, all lanes each of them, in their windows.

    The body runs once.  A block has ``warps`` groups and ``cols`` columns of x; tiles of columns are the fastest.
    ``group`` is the warp's (the last one again, if there is none), ``row`` the row that the lane stores: of the first
    ``high`` lanes one each, else ``rows``.  ``column`` is the first column.
    """

    group: Value = bind()
    row: Value = bind()
    column: Value = bind()
    rows: int = attr()
    high: int = attr()
    warps: int = attr()
    tiles: int = attr()
    cols: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.stage_offsets", kw_only=True)
class StageOffsets(Stage):
    """Puts them offset by offset: word (o * B + b) * pitch + w has row w * m + o.

    ``pitch`` windows, a multiple of 32, lie side by side.
    """

    pitch: int = attr()


@define("tile.multiply_windows", kw_only=True)
class MultiplyWindows(Op):
    """``acc[row, b] += value * x[offset of the lane's window, b]`` for the entries of a chunk, in f32, in their order.

    ``n`` of every ``m`` are kept.  A chunk is of the rows of a group in 32 windows, a lane each, row by row; or of one
    row, a part of its entries there.  ``x`` is what ``tile.stage_offsets`` has left of ``pitch`` windows for ``cols``
    columns of ``dtype``, or with the layout ``windows`` what ``tile.stage_columns`` has.
    """

    acc: Buffer = buffer(writes=True)
    values: Buffer = buffer()
    offsets: Buffer = buffer()
    x: Buffer = buffer()
    chunk: Expr = operand()
    n: int = attr()
    m: int = attr()
    cols: int = attr()
    pitch: int = attr()
    layout: str = attr(one_of=LAYOUTS)
    dtype: DType = attr()


@define("tile.sum_lanes", kw_only=True)
class SumLanes(Op):
    """Adds up the sums of all lanes, by shuffles, for each row of a group and column.

    The body runs for each of ``cols`` columns: in lane r ``total`` has the sum of row r, ``column`` is ``first`` + b.
    """

    total: Buffer = declare()
    column: Value = bind()
    acc: Buffer = buffer()
    first: Expr = operand()
    cols: int = attr(least=1)
    body: tuple[Op, ...] = region()


# ------------------------------------------------------------------------------------------------ what they must obey
@check(ShareGroups)
def _share_groups(op: ShareGroups, ctx: Context) -> None:
    ctx.need(ctx.threads == LANES * op.warps, f"{op.warps} warps are not the {ctx.threads} threads of a block")
    ctx.need(1 <= op.high <= LANES, f"{op.high} rows of a group, which a warp's lanes store")


@check(StageOffsets)
def _stage_offsets(op: StageOffsets, ctx: Context) -> None:
    ctx.need(op.pitch % LANES == 0 and op.pitch * op.m >= op.k, f"{op.pitch} windows of {op.m} do not hold {op.k} rows")
    shared(ctx, op.dst, op.pitch * op.m * x_words(op.cols, op.src.dtype.nbytes), "the words of x")
    ctx.need(op.dst.dtype is u32, f"@{op.dst.name} holds words, not {op.dst.dtype}")
    ctx.one_of(op.vec, widths(op.src.dtype), f"elements of {op.src.dtype} at once")
    along = op.n if op.order == "row" else op.k
    ctx.need(along % op.vec == 0, f"{op.vec} elements at once, of runs of {along}")
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")


@check(MultiplyWindows)
def _multiply_windows(op: MultiplyWindows, ctx: Context) -> None:
    ctx.need(1 <= op.n < op.m, f"{op.n} of every {op.m} are kept")
    c = chunks(op.n, op.m, op.dtype.nbytes)
    registers(ctx, op.acc, c.windows * op.cols, exactly=True)
    registers(ctx, op.values, c.stored * op.dtype.nbytes // 4, exactly=True)
    registers(ctx, op.offsets, c.words, exactly=True)
    ctx.need(op.acc.dtype is f32, f"sums are made in f32, not {op.acc.dtype}")
    shared(ctx, op.x, x_words(op.cols, op.dtype.nbytes) * op.m * op.pitch, "the words of x")


@check(SumLanes)
def _sum_lanes(op: SumLanes, ctx: Context) -> None:
    registers(ctx, op.total, 1, exactly=True)
    ctx.need(op.acc.size % op.cols == 0 and op.acc.size <= LANES * op.cols,
             f"{op.acc.size} sums are no rows of {op.cols} columns that a warp's lanes store")  # fmt: skip
