"""The tile ops of sparse attention (Magicube's, fused): a warp's scores, their softmax and the values, in integers.

A task is 8 rows of q and some keys of a *part*, of which k and v wait in shared memory.  Scores are made with q as the
16 rows of an mma, half of them empty: then the sums lie in the lanes as exponentials must for ``v^T p^T``, and neither
goes through shared memory.  A block of steps of 32 keys has its scores at once; what came before is scaled to the
largest score so far.

No other family uses them: their rows are softmaxed before they are multiplied.
"""

from __future__ import annotations

from typing import Any

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, base, buffer, define, operand, region
from .numbers.attention import BLOCKS, HEIGHTS, ROWS, SOFTMAX_BITS, STEP, WIDTHS
from .tile_rules import registers, shared
from .types import Buffer, f16, f32, s8, s32, u32


@base
class OfTask(Op):
    """Base of ops of a task: what a lane has of its 8 rows of ``d`` elements, of vectors of ``height`` rows.

    ``sums``: with the lane's g = lane / 4 and t = lane mod 4, of each 16 elements 2 g and 2 g + 1, each of rows 2 t and
    2 t + 1, over exponentials below ``top``; ``total``: the lane's share of the exponentials of row g.
    ``fresh``: q and the scales are made by the launch before, which this one may overlap with.
    """

    sums: Buffer = buffer()
    top: Buffer = buffer()
    total: Buffer = buffer()
    d: int = attr()
    fresh: bool = attr(default=False)


@base
class Scaled(OfTask):
    """Base of those that know what scores are worth."""

    q_scale: Buffer = buffer()
    k_scale: Buffer = buffer()


@define("tile.load_task", kw_only=True)
class LoadTask(Op):
    """Asks for what a task begins with: its rows of q, to ``query``, and the places of block ``begin``, to ``coming``.

    ``q`` (words) is [heads, queries, d]; row i of the task is query ``height * row + i`` of head ``head``, rows from
    ``height`` on are zeros, and those of a row that there is not.  ``places``: as of ``tile.attend``.
    """

    query: Buffer = buffer(writes=True, reads=False)
    coming: Buffer = buffer(writes=True, reads=False)
    q: Buffer = buffer()
    places: Buffer = buffer()
    head: Expr = operand()
    row: Expr = operand()
    begin: Expr = operand()
    queries: int = attr(least=1)
    height: int = attr()
    steps: int = attr()
    d: int = attr()
    fresh: bool = attr(default=False)


@define("tile.attend", kw_only=True)
class Attend(Scaled):
    """Scores, exponentials and their sums of a task: blocks ``begin`` .. ``end`` - 1 of ``steps`` steps of 32 keys.

    ``tile.load_task`` has left rows of q and the places of the first block in ``query`` and ``coming``.  ``places``
    has 32 x ``steps`` words for each block, lane by lane: where in ``k`` and ``v`` two of its keys lie, and which slots
    have a key (:data:`.numbers.attention.FIRST`); what fills a step up are keys of the task again.  ``k`` and ``v`` are
    swizzled rows.  ``bits``: of the exponentials.  ``ready`` runs before k and v are read, ``then`` when
    ``query`` and ``coming`` are no longer needed.
    """

    sums: Buffer = buffer(writes=True, reads=False)
    top: Buffer = buffer(writes=True, reads=False)
    total: Buffer = buffer(writes=True, reads=False)
    query: Buffer = buffer()
    coming: Buffer = buffer(writes=True)
    k: Buffer = buffer()
    v: Buffer = buffer()
    places: Buffer = buffer()
    begin: Expr = operand()
    end: Expr = operand()
    steps: int = attr()
    bits: int = attr()
    ready: tuple[Op, ...] = region()
    then: tuple[Op, ...] = region(default=())


@define("tile.store_part", kw_only=True)
class StorePart(Scaled):
    """Leaves a task's result, divided by its sum of exponentials, and largest score and sum of its rows.

    Task ``number`` has ``8 * d`` elements of ``partial`` as the lanes hold them, and of each row two of ``stats``.
    """

    partial: Buffer = buffer(writes=True, reads=False)
    stats: Buffer = buffer(writes=True, reads=False)
    number: Expr = operand()


@define("tile.store_attention", kw_only=True)
class StoreAttention(OfTask):
    """Stores a task's result to ``out`` [heads, queries, d], divided by its sum of exponentials, times ``v_scale``."""

    out: Buffer = buffer(writes=True, reads=False)
    v_scale: Buffer = buffer()
    head: Expr = operand()
    row: Expr = operand()
    queries: int = attr(least=1)
    height: int = attr()


@define("tile.join_parts", kw_only=True)
class JoinParts(Op):
    """Each warp joins what ``parts`` tasks of 8 rows have left, and stores it to ``out`` [heads, queries, d].

    The tasks of rows ``row`` of head h are numbers ``(h * rows + row) * parts`` and the next ones.
    """

    out: Buffer = buffer(writes=True, reads=False)
    partial: Buffer = buffer()
    stats: Buffer = buffer()
    v_scale: Buffer = buffer()
    parts: int = attr()
    heads: int = attr()
    queries: int = attr(least=1)
    height: int = attr()
    d: int = attr()


# ------------------------------------------------------------------------------------------------ what they must obey
def _scale(ctx: Context, *bufs: Buffer) -> None:
    for buf in bufs:
        ctx.need(buf.dtype is f32 and buf.size == 1, f"@{buf.name} is no scale: one f32")


def _task(op: OfTask, ctx: Context) -> None:
    ctx.one_of(op.d, WIDTHS, "elements of a head")
    registers(ctx, op.sums, op.d // 4, exactly=True)
    registers(ctx, op.top, 1, exactly=True)
    registers(ctx, op.total, 1, exactly=True)
    for buf in (op.sums, op.top, op.total):
        ctx.need(buf.dtype is f32, f"@{buf.name} holds f32, not {buf.dtype}")
    if isinstance(op, Scaled):
        _scale(ctx, op.q_scale, op.k_scale)


def _stored(op: Any, ctx: Context) -> None:
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    ctx.need(op.out.dtype is f16, f"results are f16, not {op.out.dtype}")
    ctx.need(op.out.size % (op.queries * op.d) == 0, f"@{op.out.name} has no whole heads of {op.queries} x {op.d}")
    _scale(ctx, op.v_scale)


def _loaded(op: LoadTask | Attend, ctx: Context) -> None:
    ctx.one_of(op.d, WIDTHS, "elements of a head")
    ctx.one_of(op.steps, BLOCKS, "steps of a block")
    registers(ctx, op.query, op.d // 16, exactly=True)
    registers(ctx, op.coming, op.steps, exactly=True)
    ctx.need(
        op.query.dtype is s32 and op.coming.dtype is op.places.dtype is u32, "q is words of s32, places are of u32"
    )
    ctx.need(op.places.size % (STEP * op.steps) == 0, f"@{op.places.name} has no whole blocks of {op.steps} steps")


@check(LoadTask)
def _load_task(op: LoadTask, ctx: Context) -> None:
    _loaded(op, ctx)
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    ctx.need(op.q.dtype is s32, f"@{op.q.name} holds words of s32, not {op.q.dtype}")
    ctx.need(4 * op.q.size % (op.queries * op.d) == 0, f"@{op.q.name} has no whole heads of {op.queries} x {op.d}")


@check(Attend)
def _attend(op: Attend, ctx: Context) -> None:
    _task(op, ctx)
    _loaded(op, ctx)
    ctx.one_of(op.bits, SOFTMAX_BITS, "bits of the exponentials")
    for buf in (op.k, op.v):
        ctx.need(buf.dtype is s8 and buf.size % op.d == 0, f"@{buf.name} holds no rows of {op.d} s8")
        shared(ctx, buf, op.d, "a row")


@check(StorePart)
def _store_part(op: StorePart, ctx: Context) -> None:
    _task(op, ctx)
    ctx.need((op.partial.dtype, op.stats.dtype) == (f16, f32), "parts of results are f16, their sums f32")
    tasks, rest = divmod(op.partial.size, ROWS * op.d)
    ctx.need(not rest and op.stats.size == tasks * ROWS * 2, f"@{op.stats.name} has not two numbers a row of parts")


@check(StoreAttention)
def _store_attention(op: StoreAttention, ctx: Context) -> None:
    _task(op, ctx)
    _stored(op, ctx)


@check(JoinParts)
def _join_parts(op: JoinParts, ctx: Context) -> None:
    ctx.one_of(op.d, WIDTHS, "elements of a head")
    _stored(op, ctx)
    tasks = op.heads * -(-op.queries // op.height) * op.parts
    ctx.need(op.parts >= 1 and op.partial.size == tasks * ROWS * op.d and op.stats.size == tasks * ROWS * 2,
             f"@{op.partial.name} and @{op.stats.name} are not those of {tasks} tasks")  # fmt: skip
