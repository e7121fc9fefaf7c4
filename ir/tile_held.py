"""Tile ops of fields that stay in registers for all time steps of a launch, block by block.

A block has a window of every array, on three axes.  A thread has a ``share`` of it: all planes, of each so many
adjacent rows, which warps have one below the other, and of each row so many adjacent columns, which lanes have side by
side.  :class:`sparsegen.ir.numbers.held.Held` says which cells are whose.  Only resident: elsewhere a launch makes few
steps, and the next one reads what it has written.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

from .checks import Context, check
from .expr import Const, Expr, Value
from .formula import Code, problem, reads
from .grid import Grid
from .node import Op, attr, bind, buffer, define, operand, region
from .numbers.held import FACTS, Cells, Line
from .numbers.records import RECORD, Records
from .op import Sides, check_sides
from .tile_rules import axes, field, registers, same_type, scalars, shared, whole
from .types import Buffer, s32, u32, u64


@define("tile.window", kw_only=True)
class Window(Op):
    """Runs its body with what ``facts`` says of the block: ``first``, the cell where its window begins, and
    ``own``, the first of its own cells; these are the window's from ``low`` to before ``high``."""

    first: tuple[Value, ...] = bind()
    own: tuple[Value, ...] = bind()
    low: tuple[Value, ...] = bind()
    high: tuple[Value, ...] = bind()
    facts: Buffer = buffer()
    body: tuple[Op, ...] = region()


@define("tile.rounds", kw_only=True)
class Rounds(Op):
    """Exchanges cells, as ``swap`` says, and runs its body once for every ``every`` of the time steps that ``steps``
    says, which are ``total``: round ``round``, which makes ``left`` of them; ``ahead`` of all it runs other ops.

    ``tag`` is of this round and of no other one of this launch or of earlier ones: ``epoch`` is kept between launches,
    and moved on by the last block that ends, as ``counter`` says.
    """

    round: Value = bind()
    left: Value = bind()
    tag: Value = bind()
    steps: Buffer = buffer()
    epoch: Buffer = buffer(writes=True)
    counter: Buffer = buffer(writes=True)
    every: int = attr()
    total: Value | None = bind(default=None)
    swap: tuple[Op, ...] = region()
    body: tuple[Op, ...] = region()
    ahead: tuple[Op, ...] = region(default=())


@define("tile.load_held", kw_only=True)
class LoadHeld(Op):
    """Loads the block's window of ``src``, which begins at cell ``first``; past the field's end it begins anew."""

    held: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    first: tuple[Expr, ...] = operand()
    share: Cells = attr()
    grid: Grid = attr()


@define("tile.store_held", kw_only=True)
class StoreHeld(Op):
    """Stores the block's own cells of a window to the field ``grid``: ``own`` is the first of them."""

    dst: Buffer = buffer(writes=True, reads=False)
    held: Buffer = buffer()
    own: tuple[Expr, ...] = operand()
    low: tuple[Expr, ...] = operand()
    high: tuple[Expr, ...] = operand()
    share: Cells = attr()
    grid: Grid = attr()


@define("tile.exchange", kw_only=True)
class Exchange(Op):
    """Gives own cells of all of ``held`` to other blocks and takes theirs, in every round but the first.

    Through ``image``, a window of each in shared memory, and ``cells``: for each parity of the round and each array
    ``extent`` pairs of a value and its tag.  ``given`` and ``taken`` list, for each block, cells of the field and their
    places in an image.  A pair may be overwritten two rounds later: by then the block that does so has taken the next
    round's cells of all that read it, who gave them after they had taken these.  ``turn``: lanes that a column and a
    line of an image begin further round than the one before; ``degree``: the bank-conflict degree of the lists.
    """

    held: tuple[Buffer, ...] = buffer(writes=True)
    image: Buffer = buffer(writes=True)
    cells: Buffer = buffer(writes=True)
    given: Buffer = buffer()
    taken: Buffer = buffer()
    round: Expr = operand()
    tag: Expr = operand()
    low: tuple[Expr, ...] = operand()
    high: tuple[Expr, ...] = operand()
    share: Cells = attr()
    extent: int = attr()
    turn: tuple[int, int] = attr()
    degree: int = attr()


@define("tile.exchange_lines", kw_only=True)
class ExchangeLines(Op):
    """``tile.exchange`` where each line along the last axis is one block's: lines go from registers to registers.

    ``bits`` says of each block and warp which lines of its threads it gives, and which it takes, of those that any warp
    does, ``given`` and ``taken``, in the order in which they are looked at: all of ``held`` at once.  ``cells`` has
    the records of :class:`sparsegen.ir.numbers.records.Records`, line by line, for each parity of the round.  The
    block does not meet: a warp that depends on others of its block has met them in a step, one that depends on none
    waits for no one.
    """

    held: tuple[Buffer, ...] = buffer(writes=True)
    cells: Buffer = buffer(writes=True)
    bits: Buffer = buffer()
    round: Expr = operand()
    tag: Expr = operand()
    first: tuple[Expr, ...] = operand()
    share: Cells = attr()
    extent: Cells = attr()
    given: tuple[Line, ...] = attr()
    taken: tuple[Line, ...] = attr()

    @property
    def records(self) -> Records:
        """Those of a line."""
        return Records.of(self.share[2] * len(self.held), self.held[0].dtype.bits)


@define("tile.exchange_cells", kw_only=True)
class ExchangeCells(Op):
    """``tile.exchange`` for windows of few cells a thread: cells go from registers to registers, one by one.

    ``bits`` says of each block and thread which of its cells it gives, and which it takes.  A line of ``cells`` has
    ``across`` columns of each remainder by those of a lane, so that lanes are side by side wherever windows begin.  A
    thread asks for ``at_once`` cells at the same time; the block does not meet, as with lines.
    """

    held: tuple[Buffer, ...] = buffer(writes=True)
    cells: Buffer = buffer(writes=True)
    bits: Buffer = buffer()
    round: Expr = operand()
    tag: Expr = operand()
    first: tuple[Expr, ...] = operand()
    share: Cells = attr()
    extent: Cells = attr()
    at_once: int = attr()

    @property
    def across(self) -> int:
        """Columns of a line of each remainder."""
        return -(-self.extent[2] // self.share[2])

    @property
    def pairs(self) -> int:
        """Values with tags of an array and a round."""
        return self.extent[0] * self.extent[1] * self.share[2] * self.across


#: What exchanges cells.
Swap: TypeAlias = Exchange | ExchangeLines | ExchangeCells


@define("tile.held_steps", kw_only=True)
class HeldSteps(Op):
    """``left`` time steps of windows in registers: ``code`` for every cell whose result still counts.

    ``held``: the levels of each of ``fields`` (name, time levels), newest first, then ``coefs``.  Columns come from
    neighbouring lanes, rows from neighbouring warps through ``edges`` (none where no rows are read), whose halves steps
    use by turns; ``done`` have been made before these.  Of planes those from ``made[0]`` to before ``made[1]`` are
    made: others are of no use after a step.  A step spoils ``reach`` cells at the ends of a window, but for
    those where the field ends, and none of an axis that is ``closed``, whose ends are neighbours.  ``sides`` are those
    of each field, then of the coefficients (``frozen``: the edge cell), ``keep`` how many cells a frozen side keeps.
    ``scalars``: those of each of all steps, in the constant bank; in global memory where the number of all is not known
    before the launch.  ``before`` and ``after`` run around each step, whose number is ``number``: the newest levels are
    what the step reads, and what it has made.
    """

    held: tuple[Buffer, ...] = buffer(writes=True)
    edges: Buffer | None = buffer(writes=True)
    done: Expr = operand()
    left: Expr = operand()
    first: tuple[Expr, ...] = operand()
    low: tuple[Expr, ...] = operand()
    high: tuple[Expr, ...] = operand()
    fields: tuple[tuple[str, int], ...] = attr()
    coefs: tuple[str, ...] = attr()
    code: Code = attr()
    results: tuple[int, ...] = attr()
    share: Cells = attr()
    reach: Cells = attr()
    made: tuple[int, int] = attr()
    keep: Cells = attr()
    closed: tuple[bool, bool, bool] = attr()
    extent: Cells = attr()
    sides: tuple[Sides, ...] = attr()
    scalars: Buffer | None = buffer(default=None)
    number: Value | None = bind(default=None)
    before: tuple[Op, ...] = region(default=())
    after: tuple[Op, ...] = region(default=())

    @property
    def arrays(self) -> tuple[tuple[str, int], ...]:
        """What each of ``held`` is: a parameter and its time level."""
        of_fields = ((name, level) for name, levels in self.fields for level in range(levels))
        return (*of_fields, *((name, 0) for name in self.coefs))

    @property
    def passed(self) -> tuple[tuple[str, int], ...]:
        """Arrays that are read in other rows: those that warps show one another."""
        found = {(name, level) for name, level, offset in reads(self.code) if offset[1]}
        return tuple(array for array in self.arrays if array in found)

    @property
    def far(self) -> int:
        """Rows up or down that the farthest read lies."""
        return farthest(self.code, 1)


def farthest(code: Code, axis: int) -> int:
    """How far along an axis the farthest read of a formula lies, in cells."""
    return max((abs(offset[axis]) for _, _, offset in reads(code)), default=0)


def edge_elements(code: Code, share: Cells, threads: int) -> int:
    """Elements of the rows that all warps of a block show one another, for two steps."""
    planes, _, cols = share
    shown = {(name, level) for name, level, offset in reads(code) if offset[1]}
    return 4 * len(shown) * farthest(code, 1) * planes * cols * threads


def _window(op: LoadHeld | StoreHeld | Swap | HeldSteps, ctx: Context, *bufs: Buffer) -> None:
    ctx.need(min(op.share) >= 1, f"a thread has no {list(op.share)} cells")
    for buf in bufs:
        registers(ctx, buf, prod(op.share), exactly=True)


def _blocks(ctx: Context) -> int:
    return int(getattr(ctx.func, "blocks", 1))


@check(Window)
def _facts(op: Window, ctx: Context) -> None:
    ctx.need(op.facts.dtype is s32, f"@{op.facts.name} has numbers of blocks, it cannot be {op.facts.dtype}")
    least = FACTS * _blocks(ctx)
    ctx.need(op.facts.size >= least, f"{FACTS} numbers of each block are {least}, @{op.facts.name} has {op.facts.size}")
    for of in (op.first, op.own, op.low, op.high):
        ctx.need(len(of) == 3, f"windows of {len(of)} axes")


@check(Rounds)
def _rounds(op: Rounds, ctx: Context) -> None:
    ctx.need(op.every >= 1, f"{op.every} steps a round")
    ctx.need(op.steps.dtype is s32 and op.steps.space == "param", f"@{op.steps.name} is no number of steps")
    for buf in (op.epoch, op.counter):
        ctx.need(buf.dtype is u32, f"@{buf.name} counts in u32, not in {buf.dtype}")
    ctx.need(op.total is None or op.total.lo >= 1, f"%{op.total and op.total.name} may be no steps")
    ctx.need(op.left.lo >= 0 and op.left.hi >= op.every, f"%{op.left.name} ends at {op.left.hi} of {op.every} steps")
    ctx.need(op.tag.dtype is u32, f"%{op.tag.name} is {op.tag.dtype}, a tag is u32")
    ctx.need(bool(getattr(ctx.func, "together", False)), "blocks of which not all run at the same time wait for others")


@check(LoadHeld)
def _load_held(op: LoadHeld, ctx: Context) -> None:
    _window(op, ctx, op.held)
    same_type(ctx, op.held, op.src)
    field(ctx, op.grid, op.src, first=len(op.first))


@check(StoreHeld)
def _store_held(op: StoreHeld, ctx: Context) -> None:
    _window(op, ctx, op.held)
    same_type(ctx, op.held, op.dst)
    field(ctx, op.grid, op.dst, own=len(op.own), low=len(op.low), high=len(op.high))


def _pairs(ctx: Context, op: Exchange | ExchangeCells, cells: int) -> None:
    dtype, count = op.held[0].dtype, len(op.held)
    word = u64 if dtype.bits == 64 else u32
    ctx.need(op.cells.dtype is word, f"a cell of {dtype} and its tag are {word}, not {op.cells.dtype}")
    ctx.need(op.cells.size >= 4 * count * cells, f"pairs of two rounds, {count} arrays and {cells} cells, "
             f"@{op.cells.name} has {op.cells.size} elements")  # fmt: skip


@check(ExchangeLines)
def _exchange_lines(op: ExchangeLines, ctx: Context) -> None:
    _direct(op, ctx, op.share[0] * op.share[1], ctx.warps())
    for lines in (op.given, op.taken):
        ctx.need(all(0 <= p < op.share[0] and 0 <= k < op.share[1] for p, k in lines), f"a thread has no {lines}")
    ctx.need(op.cells.dtype is u32, f"records have words of u32, @{op.cells.name} has {op.cells.dtype}")
    least = 2 * op.extent[0] * op.extent[1] * op.records.size * RECORD
    ctx.need(op.cells.size >= least, f"records of two rounds, of {op.extent[0] * op.extent[1]} lines, are {least} "
             f"words, @{op.cells.name} has {op.cells.size}")  # fmt: skip
    ctx.need(op.extent[2] == 32 * op.share[2], f"lines of {op.extent[2]} cells are not {op.share[2]} of each lane")


@check(ExchangeCells)
def _exchange_cells(op: ExchangeCells, ctx: Context) -> None:
    _direct(op, ctx, prod(op.share), ctx.threads)
    _pairs(ctx, op, op.pairs)
    ctx.need(op.at_once >= 1, f"asks for {op.at_once} cells at the same time")


def _direct(op: ExchangeLines | ExchangeCells, ctx: Context, count: int, owners: int) -> None:
    """``count`` bits to give and to take of each of a block's ``owners``."""
    _window(op, ctx, *op.held)
    words = -(-count // 32) * 2 * owners * _blocks(ctx)
    ctx.need(op.bits.dtype is u32, f"@{op.bits.name} has bits, it cannot be {op.bits.dtype}")
    ctx.need(op.bits.size == words, f"bits of all take {words} words, @{op.bits.name} has {op.bits.size}")
    axes(ctx, op.extent, window=len(op.first))


@check(Exchange)
def _exchange(op: Exchange, ctx: Context) -> None:
    _window(op, ctx, *op.held)
    same_type(ctx, op.image, *op.held)
    count, size = len(op.held), op.held[0].size * ctx.threads
    shared(ctx, op.image, count * size, f"images of {count} windows")
    _pairs(ctx, op, op.extent)
    for table in (op.given, op.taken):
        ctx.need(table.dtype is s32, f"@{table.name} lists cells, it cannot be {table.dtype}")
        whole(ctx, table.size, 2 * _blocks(ctx), f"@{table.name} has no pairs of all blocks")
    ctx.need(op.degree >= 1, f"a bank-conflict degree of {op.degree}")
    ctx.need(len(op.low) == len(op.high) == 3, "windows have three axes")


@check(HeldSteps)
def _held_steps(op: HeldSteps, ctx: Context) -> None:
    _window(op, ctx, *op.held)
    ctx.need(len(op.held) == len(op.arrays), f"{len(op.held)} windows of {len(op.arrays)} arrays")
    ctx.need(len(op.results) == len(op.fields) >= 1, f"{len(op.results)} results of {len(op.fields)} fields")
    wrong = problem(op.code, op.results, {**dict(op.fields), **dict.fromkeys(op.coefs, 1)}, 3)
    ctx.need(wrong is None, str(wrong))
    steps = op.done + op.left  # those of all steps, whose number is then a constant
    scalars(ctx, op.code, op.scalars, op.held[0].dtype, steps.value if isinstance(steps, Const) else 0)
    far = [farthest(op.code, axis) for axis in range(3)]
    ctx.need(all(max(reads, keeps) <= has for reads, keeps, has in zip(far, op.keep, op.share, strict=True)),
             f"reads {far} cells away reach beyond the neighbouring thread, which has {list(op.share)}")  # fmt: skip
    ctx.need(0 <= op.made[0] < op.made[1] <= op.share[0], f"a thread of {op.share[0]} planes makes none from "
             f"{op.made[0]} to {op.made[1]}")  # fmt: skip
    window = op.share[0], op.share[1] * ctx.warps(), op.share[2] * 32
    for axis, (closed, n, size) in enumerate(zip(op.closed, op.extent, window, strict=True)):
        ctx.need(n == size or not closed, f"one window is not all of axis {axis}: {size} cells of {n}")
    ctx.need(
        (op.edges is not None) == bool(op.passed), "warps have edges where they show one another rows, and then alone"
    )
    if op.edges is not None:
        same_type(ctx, op.edges, *op.held)
        shared(ctx, op.edges, edge_elements(op.code, op.share, ctx.threads), "the edges of two steps")
    ctx.need(len(op.sides) == len(op.fields) + 1, f"{len(op.sides)} boundaries of {len(op.fields)} fields and of the "
             "coefficients")  # fmt: skip
    around = op.before or op.after
    ctx.need((op.number is None) == (not around), "what runs before or after a step, and nothing else, has its number")
    for sides in op.sides:
        axes(ctx, op.extent, sides=len(sides))
        check_sides(ctx, sides)
    for of in (op.first, op.low, op.high):
        axes(ctx, op.extent, window=len(of))
