"""The tile ops of products that decode W for warpgroups: packed words come ahead, and are spread into swizzled tiles.

No other family uses them: its weights are all that is packed so.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .node import Op, attr, buffer, define, operand
from .numbers.decode import WARPS, Entries, sharers
from .numbers.groups import COPIERS, LEAST, PIECE, ROWS, STEP, bars
from .tile_groups import Fill, in_ring
from .tile_rules import registers, same_type, shared
from .types import Buffer, u32


@define("tile.load_packed", kw_only=True)
class LoadPacked(Op):
    """Each copying lane loads its words of a step from shared memory, when they are there, into registers.

    Words of ``ahead`` turns are there or on their way, those of each warp with an mbarrier of their own.  Before its
    first step of a tile each of the ``teams`` starts the copies of those that it will need.  ``turn`` counts all turns
    of the block.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    ring: Buffer = buffer(writes=True)
    src: Buffer = buffer()
    bars: Buffer = buffer(writes=True)
    tile: Expr = operand()
    step: Expr = operand()
    turn: Expr = operand()
    steps: int = attr(least=1)
    ahead: int = attr()
    teams: int = attr()


@define("tile.fetch_packed", kw_only=True)
class FetchPacked(Op):
    """Each warp starts the copy of its words of ``ahead`` steps on, to where those of this step were.

    One bulk copy; none beyond a tile's last step.  Its lanes have met since they loaded the words of this step.
    """

    ring: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    bars: Buffer = buffer(writes=True)
    tile: Expr = operand()
    step: Expr = operand()
    turn: Expr = operand()
    steps: int = attr(least=1)
    words: int = attr(least=1)
    ahead: int = attr()
    teams: int = attr()


@define("tile.decode_tile", kw_only=True)
class DecodeTile(Fill):
    """Writes W's tile of a turn into a slot, ``groups`` x 64 rows of 64 columns, swizzled: zeros, and what is kept.

    The lanes of a warp meet after it, and one of them arrives at the slot's mbarrier.
    Each copying lane has a row, or a share of it: of ``runs`` of ``run`` adjacent columns the values, and then their
    places in the swizzled row, a byte each, in the words of ``entries``.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    entries: Buffer = buffer()
    bars: Buffer = buffer(writes=True)
    slot: Expr = operand()
    groups: int = attr(least=1)
    run: int = attr(one_of=(1, 2, 4, 8))
    runs: int = attr()

    @property
    def arrivals(self) -> int:
        """Of each warp that copies."""
        return COPIERS // 32


# ------------------------------------------------------------------------------------------------ what they must obey
def _packed(ctx: Context, op: LoadPacked | FetchPacked, words: int) -> None:
    turn = COPIERS * words
    same_type(ctx, op.ring, op.src)
    ctx.need(op.src.dtype is u32, f"@{op.src.name} has words, not {op.src.dtype}")
    ctx.need(op.teams >= 1 and op.ahead >= 1 and op.ahead % op.teams == 0,
             f"words of {op.ahead} turns are not as many for each of {op.teams} teams")  # fmt: skip
    shared(ctx, op.ring, op.ahead * turn, f"the words of {op.ahead} turns")
    shared(ctx, op.bars, bars(LEAST, WARPS * op.ahead), "the mbarriers of a ring and of packed words")
    ctx.need(op.src.size % (op.steps * turn) == 0, f"@{op.src.name} has no whole tiles of {op.steps} x {turn} words")


@check(LoadPacked)
def _load_packed(op: LoadPacked, ctx: Context) -> None:
    same_type(ctx, op.dst, op.src)
    registers(ctx, op.dst, 1)
    _packed(ctx, op, op.dst.size)


@check(FetchPacked)
def _fetch_packed(op: FetchPacked, ctx: Context) -> None:
    _packed(ctx, op, op.words)


@check(DecodeTile)
def _decode_tile(op: DecodeTile, ctx: Context) -> None:
    in_ring(ctx, op.dst, STEP * ROWS * op.groups, "W's tile of a turn")
    ctx.need(op.groups in (1, 2), f"{COPIERS} lanes share no {op.groups} x {ROWS} rows")
    ctx.need(op.dst.dtype.nbytes == 2, f"W's elements have 16 bits, not {op.dst.dtype}")
    ctx.need(op.run * op.runs * sharers(op.groups) <= STEP, f"{op.runs} runs of {op.run} are more than a row has")
    registers(ctx, op.entries, Entries(op.run, op.runs).words, exactly=True)
    ctx.need(PIECE % op.run == 0 and op.entries.dtype is u32, "values and places come in words")
