"""The rules of blocks that run together: of functions that have clusters, and of what their blocks do together."""

from __future__ import annotations

from . import warp as w
from . import warp_cluster as c
from .checks import Context, check
from .expr import Expr
from .node import Op
from .uniform import CLUSTER
from .verify_memory import mbarrier, vector
from .verify_warp import converged, elem_bytes, in_space

#: Bytes that a thread stores at once in another block's shared memory.
STORED = (4, 8, 16)


@check(w.Func)
def _func(op: w.Func, ctx: Context) -> None:
    ctx.one_of(op.cluster, c.SIZES, "cluster")
    ctx.need(op.grid[0] % op.cluster == 0, f"{op.grid[0]} blocks along x are no whole clusters of {op.cluster}")
    ctx.need(op.cluster == 1 or not op.together, "blocks that all run together, and clusters of them")
    ctx.need(op.cluster == 1 or op.threads % 32 == 0, f"blocks of a cluster have full warps, not {op.threads} threads")


def _in_cluster(ctx: Context) -> int:
    """How many blocks the function's clusters have: several."""
    size = int(getattr(ctx.func, "cluster", 1))
    ctx.need(size > 1, "the function has no clusters", "give it cluster=2, 4 or 8")
    return size


def _rank(ctx: Context, rank: Expr) -> None:
    """A place in the cluster."""
    size = _in_cluster(ctx)
    ctx.integer(rank, "the rank")
    ctx.need(rank.lo < size and rank.hi >= 0, f"rank {rank} is in {rank.lo}..{rank.hi}, of {size} blocks")


@check(c.ClusterBarrier)
def _barrier(op: Op, ctx: Context) -> None:
    _in_cluster(ctx)
    converged(op, ctx, CLUSTER, "all threads of all blocks of the cluster")


@check(c.ClusterSt)
def _st(op: c.ClusterSt, ctx: Context) -> None:
    in_space(ctx, op.buf, "shared")
    vector(ctx, op.buf, len(op.vals))
    nbytes = len(op.vals) * elem_bytes(ctx, op.buf.dtype)
    ctx.need(nbytes in STORED, f"stores {nbytes} bytes at once, but 4, 8 or 16 are possible")
    for v in op.vals:
        ctx.typed(v, op.buf.dtype, "what is stored")
    ctx.inside(op.buf, op.index, len(op.vals), None)
    mbarrier(op, ctx, op.bars, op.bar)
    _rank(ctx, op.rank)


@check(w.MbarTryWait)
def _wait(op: w.MbarTryWait, ctx: Context) -> None:
    if op.cluster:
        _in_cluster(ctx)


@check(c.ClusterArrive)
def _arrive(op: c.ClusterArrive, ctx: Context) -> None:
    mbarrier(op, ctx, op.bars, op.index)
    _rank(ctx, op.rank)
