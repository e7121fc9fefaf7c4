"""Clusters (Hopper): blocks that run together, and each others' shared memory, which they write and signal.

A function's ``cluster`` blocks with adjacent numbers are a cluster; ``%rank`` is a block's place in it.  A block may
touch another's shared memory once it knows that this has begun (after a ``cluster_barrier``) and as long as it has not
ended: a block must wait for whoever writes to it, by ``mbar_try_wait`` with ``cluster``.
"""

from __future__ import annotations

from typing import Final

from .expr import Expr
from .node import Op, buffer, define, operand
from .types import Buffer

#: Blocks that a cluster may have.
SIZES: Final = (1, 2, 4, 8)


@define("warp.cluster_barrier")
class ClusterBarrier(Op):
    """All threads of all blocks of the cluster meet, and see each other's accesses to all memory."""


@define("warp.cluster_st")
class ClusterSt(Op):
    """Stores adjacent elements (4, 8 or 16 bytes) to the buffer of the block ``rank`` of the cluster, asynchronously.

    Its bytes count towards the phase of the mbarrier ``bars[bar]`` of that block: whoever waits there finds them.
    """

    buf: Buffer = buffer(writes=True, reads=False)
    index: Expr = operand()
    vals: tuple[Expr, ...] = operand()
    bars: Buffer = buffer(writes=True)
    bar: Expr = operand()
    rank: Expr = operand()


@define("warp.cluster_arrive")
class ClusterArrive(Op):
    """One arrival on ``bars[index]`` of the block ``rank``: who waits there sees what the thread has done before."""

    bars: Buffer = buffer(writes=True)
    index: Expr = operand()
    rank: Expr = operand()
