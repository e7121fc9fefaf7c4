"""Tile ops of kernels that walk: a ring of slots in shared memory, filled ahead, and what fills, reads or leaves it."""

from __future__ import annotations

from typing import Final

from .checks import Context, check
from .expr import Expr, Value
from .grid import Grid
from .layout import Layout
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .op import Box
from .tile_rules import extents, field, inside, registers, same_type, shared, whole
from .types import Buffer


@define("tile.walk", kw_only=True)
class Walk(Op):
    """Runs its body turn by turn, while the data of ``stages`` - 1 later turns are on their way in a ring.

    Turn t refills the slot of turn t - 1: ``fill`` runs for turn t + ``stages`` - 1 once the lanes have met that read
    what a lane has copied (``scope``: itself alone, its warp, its block), ``read`` has taken the turn's data into
    registers, and before the body.  ``held`` are registers for what it takes.  ``here`` is the first element of the
    turn's slot, where a slot has ``slot`` elements.  ``once`` works out the ``known`` values of all turns, while the
    first copies are on their way.  ``via``: asynchronously, a group a turn; by bulk copies, whose bytes an mbarrier a
    slot counts (``bars``, made here, once a block); or through registers.  Warps from number ``late`` on (0: none) fill
    after the body: of those that share a tensor core some multiply while others copy.
    ``count``: how many turns there are, of ``turns`` at most, where only the block knows.
    From turn ``calm[0]`` on, and before ``calm[1]``, ``inner`` runs in place of the body: a loop of its own between two
    others, so that what only a block's first and last turns need takes no time and no room from the others; ``unroll``
    is of that loop then.
    A ring whose rows the body reads turns later (coefficients of later levels) has so many more slots than ``stages``.
    Users: stream, patches, column, slab, nm_strips, hybrid.
    """

    turn: Value = bind()
    here: Value | None = bind(default=None)
    known: tuple[Value, ...] = bind(default=())
    held: tuple[Buffer, ...] = declare(default=())
    turns: int = attr()
    count: Expr | None = operand(default=None)
    calm: tuple[Expr, ...] = operand(default=())
    stages: int = attr()
    scope: str = attr(one_of=("lane", "warp", "block"))
    via: str = attr(one_of=("cp.async", "bulk", "ld"))
    bars: Buffer | None = buffer(writes=True, default=None)
    slot: int = attr(default=0)
    late: int = attr(default=0)
    unroll: int = attr(default=1)
    fill: tuple[Op, ...] = region()
    once: tuple[Op, ...] = region(default=())
    read: tuple[Op, ...] = region(default=())
    body: tuple[Op, ...] = region(default=())
    inner: tuple[Op, ...] = region(default=())


@define("tile.fetch", kw_only=True)
class Fetch(Op):
    """Starts a warp's copies of a turn of a walk: its part of a window of the field ``grid`` into the turn's slot.

    The window begins ``above`` before ``at`` on the axis that the walk goes along, and ``lead`` before it on the
    others; a warp takes ``lines`` rows of ``width`` columns.  On two axes these are those of turn ``turn``, and the
    window of warp w begins ``step`` * w columns further on; on three they are of plane ``turn``, and the rows of warp w
    begin at w * ``lines``.  ``layout`` places (row, column) of a warp's slot; on three axes rows lie one after the
    other, line by line of all warps.  ``vector`` elements move at once; lanes take pieces side by side.  Cells outside
    follow the field's sides; those that lie across a border are copied as ``border`` says (each is the machine code
    that was fastest for its users): pieces that cross it go cell by cell, by a branch (``piece``) or by predicates
    (``predicate``), or no piece crosses it (``whole``).  Users: stream, patches, column.
    """

    ring: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    turn: Expr = operand()
    above: int = attr()
    lead: tuple[int, ...] = attr()
    lines: int = attr()
    width: int = attr()
    step: int = attr(default=0)
    stages: int = attr()
    layout: Layout | None = attr(default=None)
    grid: Grid = attr()
    vector: int = attr()
    border: str = attr(one_of=("piece", "predicate", "whole"))


@define("tile.take", kw_only=True)
class Take(Op):
    """Each lane takes its own adjacent columns of ``lines`` rows out of the turn's slot, and converts them.

    ``layout`` places a column of the slot of a warp that has a ring of its own; without one the rows of a slot lie one
    after the other, line by line of all warps.  Users: stream, column.
    """

    values: Buffer = buffer(writes=True, reads=False)
    ring: Buffer = buffer()
    turn: Expr = operand()
    lines: int = attr()
    stages: int = attr()
    layout: Layout | None = attr(default=None)


@define("tile.emit", kw_only=True)
class Emit(Op):
    """Stores the row, or the plane, in ``values`` as that of turn ``turn`` - ``delay``, once there is one, in ``box``.

    ``at`` is the tile's first cell of the field ``grid``.  Of the window's columns (on three axes: rows and columns)
    those from ``lead`` to ``lead + step - 1`` are the tile's.  ``vector`` cells are stored at once; if a lane has more,
    they go through the turn's slot of the ring, which has been read, so that lanes store adjacent cells.  ``lines`` and
    ``layout`` are those of ``tile.take``.  At the end of a box cells are stored one by one: on two axes those of which
    a predicate says that they are no whole piece, on three each by its own (the faster code for either).
    Users: stream, column.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    values: Buffer = buffer()
    ring: Buffer = buffer(writes=True)
    turn: Expr = operand()
    at: tuple[Expr, ...] = operand()
    delay: int = attr()
    lines: int = attr()
    stages: int = attr()
    lead: tuple[int, ...] = attr()
    step: tuple[int, ...] = attr()
    layout: Layout | None = attr(default=None)
    grid: Grid = attr()
    box: Box = attr()
    vector: int = attr()


#: The ops that fill a ring, and those that take a slot's data out of it; files of single families add theirs.
FILLS: Final[set[type[Op]]] = {Fetch}
READS: Final[set[type[Op]]] = {Take}


@check(Walk)
def _walk(op: Walk, ctx: Context) -> None:
    ctx.need(op.stages >= 2, f"a ring of {op.stages} slots has none to fill ahead", "take at least 2 stages")
    ctx.need((op.bars is not None) == (op.via == "bulk"), "bulk copies end on mbarriers, and no others")
    if op.bars is not None:
        shared(ctx, op.bars, op.stages, "an mbarrier a slot")
        ctx.need(op.scope == "block" and not op.late, "bulk copies are waited for by a block, before its body")
    ctx.need(op.turns >= 1 and op.turn.lo >= 0 and op.turn.hi == op.turns - 1,
             f"%{op.turn.name} must count {op.turns} turns from 0", "it ends at turns - 1")  # fmt: skip
    ctx.need(len(op.calm) == 2 * bool(op.inner), f"{len(op.calm)} ends of the turns of its inner region",
             "give the first of them and the one behind the last, or neither")  # fmt: skip
    if op.here is not None:
        ctx.need(op.slot > 0 and op.here.hi == (op.stages - 1) * op.slot,
                 f"%{op.here.name} must reach the last of {op.stages} slots of {op.slot} elements")  # fmt: skip
    for inner in (*op.fill, *op.read):
        if type(inner) in FILLS | READS:  # a ring that is read late has more slots
            stages: int = inner.stages  # type: ignore[attr-defined]
            ctx.need(stages >= op.stages, f"{inner.name} has {stages} stages, its walk {op.stages}")
    for inner in op.fill:
        ctx.need(type(inner) in FILLS, f"{inner.name} does not fill a ring", "let fill hold fetches only")
    for inner in op.read:
        ctx.need(type(inner) in READS, f"{inner.name} does not take a slot's data", "let read hold takes only")


@check(Fetch)
def _fetch(op: Fetch, ctx: Context) -> None:
    field(ctx, op.grid, op.src, at=len(op.at), sides=len(op.grid.sides))
    same_type(ctx, op.ring, op.src)
    whole(ctx, op.width, op.vector, f"a row of {op.width} columns is no whole number of pieces of {op.vector}")
    ctx.need(not op.grid.ghosts, "windows of rows with ghosts are those of layers")
    _ring(ctx, op.ring, op.stages, op.layout.size() if op.layout else op.lines * op.width)


@check(Take, Emit)
def _through(op: Take | Emit, ctx: Context) -> None:
    registers(ctx, op.values, 1)
    whole(ctx, op.values.size, op.lines, f"{op.values.size} registers do not share out among {op.lines} rows")
    width = 32 * op.values.size // op.lines
    if op.layout is not None:
        extents(ctx, op.layout, (width,), "a row of the ring")
    _ring(ctx, op.ring, op.stages, op.layout.size() if op.layout else op.lines * width)


@check(Emit)
def _emit(op: Emit, ctx: Context) -> None:
    per_lane = op.values.size // op.lines
    whole(ctx, per_lane, op.vector, f"a lane's {per_lane} columns are no whole pieces of {op.vector}")
    window = (op.lines * ctx.warps(), 32 * per_lane)[-len(op.lead) :]
    ok = len(op.step) == len(op.lead) == len(op.at) - 1
    ok = ok and all(first + n <= size for first, n, size in zip(op.lead, op.step, window, strict=True))
    ctx.need(ok, f"a tile of {list(op.step)} from {list(op.lead)} on is not in a window of {list(window)}")
    ctx.need(not op.grid.ghosts, "rows with ghosts are those of layers")
    field(ctx, op.grid, op.dst, at=len(op.at), box=len(op.box))
    inside(ctx, op.box, op.grid.extent)


def _ring(ctx: Context, ring: Buffer, stages: int, size: int) -> None:
    """The ring holds ``stages`` slots, of so many elements a warp."""
    shared(ctx, ring, ctx.warps() * stages * size, f"{stages} slots of all warps")
