"""The tile ops of ragged work: rows of unequal length, cut into segments, walked by teams of lanes on CUDA cores.

No other family uses them: rows of unequal length need records, and teams that take different numbers of turns.

A *segment* is a run of one row's entries; an *entry* names a row of the dense operand and has a value.  A team of
``across`` x ``parts`` lanes has a segment: ``across`` lanes lie side by side along the dense operand's columns, and
``parts`` such groups share the entries.  Lane c of a group has, of each of ``blocks`` blocks of ``across * vec``
columns, the ``vec`` adjacent ones from ``c * vec`` on; registers hold them block by block.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .node import Op, attr, bind, buffer, define, operand, region
from .op_spmm import ORDERS
from .tile_rules import registers, same_type, whole
from .tile_store import Store
from .types import Buffer, DType, s32, sum_type, widths

#: Words of a segment's record: its row, its first entry, the one after its last, and :data:`RANK`.
RECORD = 4
#: The last word of a record is ``before + RANK * after``: how many segments of its row come before it, how many after.
RANK = 1 << 15


@define("tile.share_segments", kw_only=True)
class ShareSegments(Op):
    """Each team has one of ``count`` segments and a tile of ``cols`` columns; runs the body once.

    ``segments`` has a record of four words for each.  Segment ``number``, of row ``row``, has the entries from
    ``begin`` to the one before ``end``; its row has ``pieces`` segments, which follow one another from number
    ``first_piece`` on.  The columns from ``column`` on are the team's; tiles of columns are the slowest, so that all
    blocks that run at a time read the same columns.  ``rows`` and ``entries`` bound what the records say; a segment of
    row ``rows`` is one that only fills a warp or a block.
    """

    segments: Buffer = buffer()
    number: Value = bind()
    row: Value = bind()
    begin: Value = bind()
    end: Value = bind()
    first_piece: Value = bind()
    pieces: Value = bind()
    column: Value = bind()
    count: int = attr()
    rows: int = attr()
    entries: int = attr()
    team: int = attr()
    cols: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.walk_segment", kw_only=True)
class WalkSegment(Op):
    """Each team walks its entries ``begin`` .. ``end`` - 1; each of its ``parts`` groups has ``by`` of them a turn.

    A group's entries of a turn are those from ``at`` on, a multiple of ``align`` (the first turn begins that much
    earlier), and ``coming`` is what ``at`` will be next: ``ahead`` runs before the first turn, for the entries coming
    then, and ``body`` each turn.  Teams, and groups, may take different numbers of turns.
    """

    at: Value = bind()
    coming: Value = bind()
    begin: Expr = operand()
    end: Expr = operand()
    across: int = attr()
    parts: int = attr()
    by: int = attr()
    align: int = attr()
    ahead: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@define("tile.walk_rows", kw_only=True)
class WalkRows(Op):
    """Each team runs the body for every so-many-th of the ``rows`` rows of a list, one after the other.

    ``records`` has four words for each row, those of the list from number ``first`` on: its number ``row``, ``m`` at
    most, its first entry, the one after its last, and one that is not read.  Each of the team's ``parts`` groups has
    ``by`` entries a turn, those of its first turn of ``row`` from ``start`` on, all of them before ``end``; ``then``
    and ``rest`` are the same of the next row, and 0 is the ``rest`` that follows the last one.
    ``ahead`` runs before, with the first row's.  Records are loaded two rows ahead.
    Not ``tile.each_row``, in whose body nothing is known of the next row.
    """

    records: Buffer = buffer()
    row: Value = bind()
    start: Value = bind()
    end: Value = bind()
    then: Value = bind()
    rest: Value = bind()
    first: Expr = operand()
    rows: int = attr(least=1)
    m: int = attr()
    entries: int = attr()
    across: int = attr()
    parts: int = attr()
    by: int = attr()
    ahead: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@define("tile.walk_on", kw_only=True)
class WalkOn(Op):
    """A group's turns of a row's entries from ``start`` to before ``end``, ``step`` apart, and what comes after them.

    The body is a turn, for which entries are there already.  It loads those from ``coming`` on, before ``until``: the
    next turn's, or those of the row that begins with ``then`` (to before ``rest``), if it was the last one.  ``load``
    runs in its place for a row of which the group has no turn.  So no row waits for its first entries.
    Not ``tile.walk_segment``, which loads them itself, and waits.
    """

    coming: Value = bind()
    until: Value = bind()
    start: Expr = operand()
    end: Expr = operand()
    then: Expr = operand()
    rest: Expr = operand()
    step: int = attr()
    load: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()


@define("tile.load_entries", kw_only=True)
class LoadEntries(Op):
    """Loads the ``rows.size`` entries from ``at`` on into registers, ``align`` at once, in all lanes of a group alike;
    of values as many as an access takes.

    What the registers of entries from ``end`` on hold is not said.  ``top`` is the largest row that an entry may name.
    """

    rows: Buffer = buffer(writes=True, reads=False)
    values: Buffer = buffer(writes=True, reads=False)
    row_table: Buffer = buffer()
    value_table: Buffer = buffer()
    at: Expr = operand()
    end: Expr = operand()
    align: int = attr()
    top: int = attr()


@define("tile.gather", kw_only=True)
class Gather(Op):
    """Loads what the entries from ``at`` on name: the lane's columns of ``rows``, and their ``values`` as ``weights``.

    Both are zero for entries that do not belong to the segment (from ``begin`` to before ``end``); only among the first
    ``align`` may there be some before ``begin``.  ``src`` has ``n`` columns and ``k`` rows, one row after the other or
    (``order`` column) one column after the other.  ``column`` is the team's first column; columns from ``n`` on are
    zero.  Of rows ``panel`` adjacent columns lie together, one such matrix [k, panel] behind the other; 0: all do.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    weights: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    rows: Buffer = buffer()
    values: Buffer = buffer()
    at: Expr = operand()
    begin: Expr = operand()
    end: Expr = operand()
    align: int = attr()
    column: Expr = operand()
    k: int = attr()
    n: int = attr()
    across: int = attr()
    vec: int = attr()
    blocks: int = attr()
    order: str = attr(one_of=ORDERS)
    panel: int = attr(default=0)


@define("tile.multiply_rows", kw_only=True)
class MultiplyRows(Op):
    """``acc[c] += weights[i] * rows[i, c]`` by multiply-adds in the type of ``acc``, one i after the other."""

    acc: Buffer = buffer(writes=True)
    weights: Buffer = buffer()
    rows: Buffer = buffer()


@define("tile.sum_segments", kw_only=True)
class SumSegments(Op):
    """Adds up ``acc`` over a team, then over the segments of a row that is cut; runs the body where sums are complete.

    The ``parts`` groups of a team, ``across`` lanes apart, add up by a tree of shuffles: all have the same bits then.
    Segments from number ``cuts`` on are whole rows.  Of the others each puts its sums into its place in ``slots``, and
    the last to arrive (``counter`` has an element for each, zero before and after) adds them up in the row's order:
    the result does not depend on who that was.  Whole warps have segments of one sort.
    Not ``tile.sum_warps``: warps add up through shared memory, and its splits are parts of all rows alike.
    """

    acc: Buffer = buffer(writes=True)
    slots: Buffer | None = buffer(writes=True)
    counter: Buffer | None = buffer(writes=True)
    number: Expr = operand()
    first_piece: Expr = operand()
    pieces: Expr = operand()
    cuts: int = attr()
    count: int = attr()
    across: int = attr()
    parts: int = attr()
    vec: int = attr()
    blocks: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.store_row", kw_only=True)
class StoreRow(Store):
    """Stores the team's sums to row ``row`` of y, with the epilogue; one group of the team stores.

    ``onto``: sums of all of y, row by row, on top of which they come before.
    ``once``: adjacent elements that a store takes, ``vec`` or a part of it.  ``panel``: of y and the residual, as of
    ``tile.gather``.
    """

    acc: Buffer = buffer()
    row: Expr = operand()
    column: Expr = operand()
    across: int = attr()
    parts: int = attr()
    vec: int = attr()
    blocks: int = attr()
    once: int | None = attr(default=None)
    panel: int = attr(default=0)
    onto: Buffer | None = buffer(default=None)


# ------------------------------------------------------------------------------------------------ what they must obey
def of_team(ctx: Context, across: int, parts: int = 1) -> None:
    """Lanes of a team are a part of a warp."""
    ok = across >= 1 and parts >= 1 and 32 % (across * parts) == 0
    ctx.need(ok, f"a team of {across} x {parts} lanes does not divide a warp of 32")


def _vector(ctx: Context, vec: int, dtype: DType) -> None:
    ctx.one_of(vec, widths(dtype), f"elements of {dtype} at once")


@check(ShareSegments)
def _share_segments(op: ShareSegments, ctx: Context) -> None:
    of_team(ctx, op.team)
    teams = ctx.threads // op.team
    whole(ctx, op.count, teams, f"{op.count} segments do not fill blocks of {teams} teams",
             f"fill up with segments of row {op.rows}")  # fmt: skip
    size = (op.segments.dtype, op.segments.size)
    ctx.need(size == (s32, RECORD * op.count), f"{op.count} records of {RECORD} s32 are no {size[1]} x {size[0]}")


@check(WalkSegment)
def _walk_segment(op: WalkSegment, ctx: Context) -> None:
    of_team(ctx, op.across, op.parts)
    whole(ctx, op.by, op.align, f"{op.by} entries a turn are no multiple of {op.align}")


@check(WalkRows)
def _walk_rows(op: WalkRows, ctx: Context) -> None:
    of_team(ctx, op.across, op.parts)
    teams, records = ctx.threads // (op.across * op.parts), op.records
    whole(ctx, op.rows, teams, f"{teams} teams do not share {op.rows} rows")
    each = RECORD * op.rows
    ctx.need(records.dtype is s32 and records.size % each == 0, f"@{records.name} has no whole lists of {each} s32")


@check(WalkOn)
def _walk_on(op: WalkOn, ctx: Context) -> None:
    ctx.need(op.step >= 1, f"turns {op.step} entries apart")


@check(LoadEntries)
def _load_entries(op: LoadEntries, ctx: Context) -> None:
    registers(ctx, op.rows, 1)
    registers(ctx, op.values, op.rows.size, exactly=True)
    whole(ctx, op.rows.size, op.align, f"{op.rows.size} entries are no multiple of {op.align}")
    _vector(ctx, op.align, op.row_table.dtype)
    for regs, table in ((op.rows, op.row_table), (op.values, op.value_table)):
        same_type(ctx, regs, table)
        whole(ctx, table.size, op.align, f"@{table.name} has {table.size} elements, no multiple of {op.align}",
                 "pad it: the last entries are loaded with what follows them")  # fmt: skip


@check(Gather)
def _gather(op: Gather, ctx: Context) -> None:
    of_team(ctx, op.across)
    _vector(ctx, op.vec, op.src.dtype)
    registers(ctx, op.dst, op.rows.size * op.blocks * op.vec, exactly=True)
    for regs in (op.rows, op.values, op.weights):
        registers(ctx, regs, op.rows.size, exactly=True)
    ctx.need(op.src.size == op.k * op.n, f"{op.k} x {op.n} elements are not the {op.src.size} of @{op.src.name}")
    ctx.need((op.panel or op.n) % op.vec == 0 and (op.vec == 1 or op.order == "row"),
             f"{op.vec} adjacent columns at once of {op.panel or op.n}, {op.order} by {op.order}")  # fmt: skip
    _panel(op, ctx)


def _panel(op: Gather | StoreRow, ctx: Context) -> None:
    """Panels are of rows, and there is no part of one."""
    fits = op.panel >= 0 and op.order == "row" and op.n % max(1, op.panel) == 0
    ctx.need(not op.panel or fits, f"{op.n} columns, {op.order} by {op.order}, are no panels of {op.panel}")


@check(MultiplyRows)
def _multiply_rows(op: MultiplyRows, ctx: Context) -> None:
    registers(ctx, op.acc, 1)
    registers(ctx, op.weights, 1)
    registers(ctx, op.rows, op.acc.size * op.weights.size, exactly=True)
    same_type(ctx, op.acc, op.weights)


@check(SumSegments)
def _sum_segments(op: SumSegments, ctx: Context) -> None:
    of_team(ctx, op.across, op.parts)
    registers(ctx, op.acc, op.blocks * op.vec, exactly=True)
    teams = 32 // (op.across * op.parts)
    ctx.need(0 <= op.cuts <= op.count and op.cuts % teams == 0,
             f"{op.cuts} of {op.count} segments are cut, which are no whole warps of {teams} teams")  # fmt: skip
    ctx.need((op.cuts > 0) == (op.slots is not None) == (op.counter is not None),
             "slots and a counter are there if rows are cut, and only then")  # fmt: skip
    if op.slots is not None:
        same_type(ctx, op.acc, op.slots)


@check(StoreRow)
def _store_row(op: StoreRow, ctx: Context) -> None:
    of_team(ctx, op.across, op.parts)
    registers(ctx, op.acc, op.blocks * op.vec, exactly=True)
    sums = sum_type(op.out.dtype)
    ctx.need(op.acc.dtype is sums, f"the epilogue of {op.out.dtype} works in {sums}, not {op.acc.dtype}")
    once = op.once or op.vec
    whole(ctx, op.vec, once, f"{op.vec} adjacent columns are no whole stores of {once}")
    whole(ctx, op.panel or op.n, once, f"{once} adjacent columns at once of {op.panel or op.n}")
    _vector(ctx, once, op.out.dtype)
    _panel(op, ctx)
    if op.onto is not None:
        same_type(ctx, op.acc, op.onto)
        ctx.need(op.onto.size == op.m * op.n, f"{op.m} x {op.n} sums are not the {op.onto.size} of @{op.onto.name}")
