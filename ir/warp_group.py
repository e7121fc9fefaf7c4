"""Products of a warpgroup (Hopper, sm_90a): four warps, 4 i .. 4 i + 3, multiply tiles of shared memory asynchronously.

The order of things: write ``acc``, ``wgmma_fence``, any number of ``wgmma``, ``wgmma_commit``, ``wgmma_wait``; read
``acc``.  Until the wait covers its group, a product may read its tiles and write ``acc`` at any time.  All four warps
run these ops together, all lanes active.
"""

from __future__ import annotations

from typing import TypeAlias

from .expr import Expr
from .node import Op, attr, buffer, define, operand
from .types import Buffer

#: Warps of a warpgroup, and rows of a product.
WARPS, ROWS = 4, 64
#: How many wgmma_commit may be waiting, as PTX has it.
MOST_PENDING = 7


@define("warp.wgmma")
class Wgmma(Op):
    """``acc += a * b`` by the four warps of a warpgroup, asynchronously: a is 64 x 16, b 16 x ``cols``.

    ``acc`` is a register array of each lane, f32[cols / 2].  Element r of lane l in the w-th warp of the warpgroup is
    row ``16 w + l / 4 + 8 (r / 2 % 2)``, column ``8 (r / 4) + 2 (l % 4) + r % 2`` of the product (PTX ISA, "wgmma",
    fragment of D).

    ``a`` and ``b`` are shared buffers of f16 or bf16; ``a_index``, ``b_index`` (in elements; the same in all lanes) say
    where their tiles start, ``a_tile``, ``b_tile`` how they lie there: swizzle (0, 32, 64, 128), leading and stride
    offset in bytes, as in the matrix descriptor; see :func:`sparsegen.ir.swizzle.tile_bytes`.  ``a_major``,
    ``b_major``: ``"k"`` where the 16 k of one row (of a) or column (of b) are adjacent, ``"mn"`` where the rows or
    columns of one k are.
    """

    acc: Buffer = buffer(writes=True)
    a: Buffer = buffer()
    a_index: Expr = operand()
    b: Buffer = buffer()
    b_index: Expr = operand()
    cols: int = attr()
    a_tile: tuple[int, int, int] = attr()
    b_tile: tuple[int, int, int] = attr()
    a_major: str = attr(one_of=("k", "mn"))
    b_major: str = attr(one_of=("k", "mn"))


@define("warp.wgmma_sp")
class WgmmaSp(Wgmma):
    """A :class:`Wgmma` of an a that keeps 2 of every 4 adjacent k: a is 64 x 32, of which 64 x 16 lie in its tile.

    b is 32 x ``cols``.  Which k are kept the lanes say by ``meta``, a register array u32[1] of each, laid out as in
    :mod:`sparsegen.ir.metadata`; ``selector`` says which lanes.  It is read at any time until the wait, as the tiles
    are, so it must be fenced as ``acc`` is, and not be written before the wait: on an H200 two warpgroups whose loops
    loaded the next words beside a product in flight got wrong sums, and CUTLASS's loop waits for all products first.
    """

    meta: Buffer = buffer()
    selector: int = attr(one_of=(0, 1))


@define("warp.wgmma_rs")
class WgmmaRs(Op):
    """A :class:`Wgmma` whose a lies in registers: an op of its own, since it has nothing that says where a tile lies.

    ``a`` is a register array u32[4] of each lane, two elements of b's type a word, the first in the low bits.  The w-th
    warp of the warpgroup holds rows 16 w .. 16 w + 15 as an mma m16n8k16 does (:mod:`sparsegen.ir.fragments`; PTX ISA,
    "wgmma", fragment of A).  It is read at any time until the wait, as b's tile is, so it must be fenced as ``acc`` is,
    and not be written before the wait.
    """

    acc: Buffer = buffer(writes=True)
    a: Buffer = buffer()
    b: Buffer = buffer()
    b_index: Expr = operand()
    cols: int = attr()
    b_tile: tuple[int, int, int] = attr()
    b_major: str = attr(one_of=("k", "mn"))


AnyWgmma: TypeAlias = Wgmma | WgmmaRs


@define("warp.set_registers")
class SetRegisters(Op):
    """Each thread of the warpgroup has ``count`` registers from now on, a multiple of 8, not those of the launch.

    With fewer it gives the rest back to the block; with more it waits until other warpgroups have given back enough.
    nvcc allots registers accordingly; values stay as they are.  Once in each warpgroup, of a kernel of which one block
    fills a multiprocessor.
    """

    count: int = attr()


@define("warp.wgmma_fence")
class WgmmaFence(Op):
    """Orders what the lanes did with their registers before the products that follow."""


@define("warp.wgmma_commit")
class WgmmaCommit(Op):
    """Closes the warpgroup's group of products."""


@define("warp.wgmma_wait")
class WgmmaWait(Op):
    """Waits until at most ``pending`` (0 .. 7) of the warpgroup's latest groups of products are in flight."""

    pending: int = attr()
