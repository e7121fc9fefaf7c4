"""The tile op of products of several matrices, each with columns of its own: which block has which.

Only bitmap tiles are shared so: the strips of a matrix are a part of those of the one that is stored.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Value
from .node import Op, attr, bind, buffer, declare, define, region
from .numbers.experts import TASK, most_tiles
from .tile_rules import shared
from .types import Buffer, s32


@define("tile.share_experts", kw_only=True)
class ShareExperts(Op):
    """Each block owns a run of strips of one expert, a part of the slabs and a tile of the expert's columns of x.

    Expert e has ``strips`` strips and the columns from offsets[e] on up to offsets[e + 1], in tiles of ``cols``; all of
    these are numbered, expert by expert, and are ``tiles`` at most.  Of ``groups`` runs of an expert's strips block b
    has run b // (splits * tiles) of the expert of tile b % tiles: ``count`` strips from ``first`` on, counted over all
    experts; and part ``split`` of ``splits`` of the slabs, and the columns from ``column`` on, as far as ``end``.  It
    runs the body once, or leaves if there is no such tile.  The first warp finds it, and puts it into ``task``, one of
    the ``shared`` buffers.

    Offsets beyond the ``n`` columns count as n, so that no array tells a block to leave x.
    """

    shared: tuple[Buffer, ...] = declare()
    task: Buffer = buffer(writes=True)
    offsets: Buffer = buffer()
    first: Value = bind()
    count: Value = bind()
    split: Value = bind()
    column: Value = bind()
    end: Value = bind()
    expert: Value = bind()
    strips: int = attr()
    groups: int = attr()
    splits: int = attr()
    tiles: int = attr()
    cols: int = attr()
    experts: int = attr()
    n: int = attr()
    body: tuple[Op, ...] = region()


@check(ShareExperts)
def _share_experts(op: ShareExperts, ctx: Context) -> None:
    for buf in op.shared:
        ctx.need(buf.space == "shared", f"@{buf.name} must be in shared memory, not in {buf.space}")
    shared(ctx, op.task, TASK, "a task")
    ctx.need(1 <= op.groups <= op.strips, f"{op.strips} strips make no {op.groups} runs")
    ctx.need(op.splits >= 1 and op.cols >= 1, f"{op.splits} splits of tiles of {op.cols} columns")
    ctx.need(op.tiles >= most_tiles(op.n, op.experts, op.cols), f"{op.n} columns may have more than {op.tiles} tiles")
    for buf, size in ((op.offsets, op.experts + 1), (op.task, op.task.size)):
        ctx.need(buf.dtype is s32 and buf.size == size, f"@{buf.name} is {buf.size} x {buf.dtype}, not {size} x s32")
