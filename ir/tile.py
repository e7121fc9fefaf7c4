"""The tile level: how, in tiles.

A kernel walks over tiles of the output; ops move windows of data between memory spaces through layouts, multiply them
and store the result.  Shared tiles are declared with their layout and the number of slots of their ring; addresses,
lanes and copies' widths appear only when :mod:`sparsegen.ir.lower` turns a tile program into a warp program.
"""

from __future__ import annotations

from math import prod
from typing import Final

from .expr import FALSE, Expr, Value
from .grid import Grid
from .layout import Layout
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .op import Box, Tap, tile_counts
from .spread import Products, Spread, Threads
from .types import Buffer

#: What a lookup table holds where a map is not defined and there is no dirty slot.
NOWHERE: Final = 0xFFFF


@define("tile.func", kw_only=True)
class Func(Op):
    """A kernel of ``blocks`` blocks of ``threads`` threads; ``min_blocks`` a multiprocessor bounds the registers.

    A block asks for ``least_shared`` bytes of shared memory, if its tiles are smaller.  ``cluster`` adjacent blocks
    run together and may write to each other's shared memory (Hopper).  ``together``: all blocks run at the same time.
    """

    symbol: str = attr()
    params: tuple[Buffer, ...] = declare()
    blocks: int = attr()
    threads: int = attr()
    body: tuple[Op, ...] = region()
    min_blocks: int = attr(default=1)
    least_shared: int = attr(default=0)
    cluster: int = attr(default=1)
    together: bool = attr(default=False)


@define("tile.alloc", kw_only=True)
class Alloc(Op):
    """A shared tile: ``layout`` gives an element's place in a slot of ``buf.size // slots`` elements, in order if None.

    Or a register array of each lane, alive to the end of the region.  ``zeroed``: it begins as zeros (each warp writes
    an equal share of a tile, its own).
    """

    buf: Buffer = declare()
    layout: Layout | None = attr(default=None)
    slots: int = attr(default=1)
    zeroed: bool = attr(default=False)


@define("tile.slots", kw_only=True)
class Slots(Op):
    """A workspace parameter holds ``count`` tiles, one after the other.

    Only stencil2row has tiles in global memory (transform=explicit); those in shared memory have slots by their alloc.
    """

    buf: Buffer = buffer()
    count: int = attr()


@define("tile.for_tiles", kw_only=True)
class ForTiles(Op):
    """Runs the body for tiles of ``size`` outputs (an extent on each axis) that cover each of ``boxes``, in order.

    ``at`` is the tile's first cell (the domain's coordinates, slowest axis first), ``end`` the first ones past its box.
    With ``stride`` 0 a block has one tile, else it takes every ``stride``-th.  ``number`` is the tile's number and
    ``turn`` how many tiles the block has done before it.  Users: all stencils and updates.

    ``early``: so many tiles on the first axis, of the box's end and of its beginning, come before all others, with
    those beside them; ``told[0]`` grows by one for each of these that is done, so that a copy may begin before the
    launch is over.  For blocks of one tile of one box.
    """

    at: tuple[Value, ...] = bind()
    end: tuple[Value, ...] = bind()
    number: Value = bind()
    turn: Value = bind()
    boxes: tuple[Box, ...] = attr()
    size: tuple[int, ...] = attr(least=1)
    stride: int = attr()
    body: tuple[Op, ...] = region()
    early: tuple[int, int] = attr(default=(0, 0))
    told: Buffer | None = buffer(default=None, writes=True)

    @property
    def first(self) -> int:
        """How many tiles come before all others."""
        return sum(self.early) * prod(tile_counts(self.boxes[0], self.size)[1:])


@define("tile.prefetch", kw_only=True)
class Prefetch(Op):
    """Runs its body ``distance`` turns ahead: for the tile that this block will have then, if it has one.

    The loop's own values mean that later tile inside.  The pipeline pass makes these from copies; the first
    ``distance`` of them run before the loop.  Each turn is one group of asynchronous copies.  0: for the tile at hand.
    """

    distance: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.wait", kw_only=True)
class Wait(Op):
    """Waits until at most ``pending`` of the latest prefetches are in flight."""

    pending: int = attr()


@define("tile.overlap", kw_only=True)
class Overlap(Op):
    """Launches overlap: the ``next`` one may begin from here on, or here this one waits for the ``last`` to end.

    Only Hopper has such launches.  Users: ``nm_lanes``, and products whose x is written row by row before.
    """

    launch: str = attr(one_of=("last", "next"))


@define("tile.meet", kw_only=True)
class Meet(Op):
    """The threads of the ``block``, or the lanes of each ``warp``, meet: they see what the others have written before.

    Users: all with shared tiles (block; the barriers pass puts them there), patches (warp).
    """

    scope: str = attr(default="block", one_of=("block", "warp"))


@define("tile.when", kw_only=True)
class When(Op):
    """Runs ``body`` where the condition holds, ``other`` elsewhere; lanes that share work agree on it.

    Only csr_strip has teams that do one or the other with their sums.
    """

    pred: Expr = operand()
    body: tuple[Op, ...] = region()
    other: tuple[Op, ...] = region(default=())


@define("tile.copy", kw_only=True)
class Copy(Op):
    """Copies a window of ``rows`` x ``cols`` elements through layouts: the one data movement of all schedules.

    ``src`` is the field ``grid`` in global memory (the window starts at cell ``at``, which may lie outside: such cells
    follow its sides), or a shared tile (element (r, c) at ``src_map``).  It goes
    to each of ``maps`` that is defined there: stencil2row, padding and swizzles are layouts.  ``vector`` elements move
    at once (only with one map that keeps them adjacent).  ``mode``: ``async`` or ``plain``.
    ``dirty``: elements that a map leaves out are written to that index instead of being skipped (dirty-bits padding);
    ``table``: (r, c) and the maps' indices come from a lookup table that the host has worked out.
    ``slot`` / ``src_slot``: place in the ring of the tile (or, in global memory, which tile of many).
    ``end``: the window goes from a shared tile to the cells of ``grid`` in ``dst``, up to these (only rims: all others
    store from registers).
    """

    dst: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    rows: int = attr()
    cols: int = attr()
    grid: Grid = attr()
    maps: tuple[Layout, ...] = attr(default=())
    slot: Expr = operand(default=FALSE)
    src_slot: Expr = operand(default=FALSE)
    vector: int = attr(default=1, least=1)
    mode: str = attr(default="plain", one_of=("async", "plain"))
    src_map: Layout | None = attr(default=None)
    dirty: int | None = attr(default=None)
    table: Buffer | None = buffer(default=None)
    end: tuple[Expr, ...] = operand(default=())


@define("tile.zero", kw_only=True)
class Zero(Op):
    """Writes zero to the elements of a slot of ``dst`` that ``table`` lists (padding that an mma will read).

    ``degree``: the bank-conflict degree of the table's order (``walk_degree``), for a shared ``dst``.  Only stencil2row
    pads what it reads; others zero a whole tile (``tile.alloc``).
    """

    dst: Buffer = buffer(writes=True, reads=False)
    table: Buffer = buffer()
    slot: Expr = operand(default=FALSE)
    degree: int = attr(default=1)


@define("tile.fragments", kw_only=True)
class Fragments(Op):
    """Loads each lane's ``regs.size`` registers from a table in fragment order: register r of lane l at 32 r + l.

    Of a longer table: the registers from ``first`` on.  Users: stencil2row, patches, toeplitz, lowrank.
    """

    regs: Buffer = declare()
    table: Buffer = buffer()
    first: int = attr(default=0)


@define("tile.product", kw_only=True)
class Product(Op):
    """Products of a tile's rows with constant matrices, added to what ``acc`` holds (to zero, if it is ``new``).

    For each product i of the ``spread`` and each of its column blocks n:
    ``acc[i, n] += sum over segments, q < depth: a[i, m, q] * w[q, n]`` with m the fragment's row.  ``a`` has one layout
    (i, m, q) -> element of ``src`` for each segment; segment s owns weight slices s*depth/4 ... of ``weights``.
    ``shape`` is the mma instruction for most of the sum (the rest takes narrower ones); ``shape`` "fma" multiplies on
    the CUDA cores with the fragments of the spread instead, its weights straight from the table.
    ``first``: the first element of ``weights`` that is meant.  Only stencil2row, with shared tiles and with matrices in
    global memory: products of patches and toeplitz go to sums that move on, those of lowrank feed one another.
    """

    new: Buffer | None = declare(default=None)
    acc: Buffer = buffer(writes=True)
    src: Buffer = buffer()
    weights: Buffer = buffer()
    a: tuple[Layout, ...] = attr()
    shape: str = attr()
    spread: Products = attr()
    depth: int = attr()
    src_offset: Expr = operand(default=FALSE)
    first: int = attr(default=0)


@define("tile.store", kw_only=True)
class Store(Op):
    """Stores an accumulator's cells to the field ``grid`` where they lie in ``box``; the tile starts at cell ``at``.

    ``spread`` says which cells the registers of ``acc`` are.  ``keep`` gives, for each axis, how many cells from the
    low and the high border keep the value of ``src`` (frozen), whose rows are ``src_pitch`` apart.  ``vector`` adjacent
    cells go at once where a lane has them.
    Users: direct, tiled, stencil2row, toeplitz, lowrank.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    acc: Buffer = buffer()
    src: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    spread: Spread = attr()
    grid: Grid = attr()
    box: Box = attr()
    keep: tuple[tuple[int, int], ...] = attr()
    src_pitch: int = attr()
    vector: int = attr()


@define("tile.points", kw_only=True)
class Points(Op):
    """Weighted sums on the CUDA cores: weight i of the taps is ``weights[i]``; the tile starts at cell ``at``.

    A thread makes the adjacent outputs of a ``Threads`` spread anew.  ``src`` is a shared tile whose element (r, c) of
    ``layout`` is cell (y + r - before[0], x + c - before[1]), or the field ``grid`` in global memory (``layout`` None),
    read cell by cell, across borders as its sides say.  With a ``Products`` spread they are added to accumulators of an
    mma, out of global memory, ``vector`` elements at once; ``offsets`` is then a table of the taps' offsets, axis by
    axis.  Users: direct, tiled, stencil2row (the points of small planes).
    """

    new: Buffer | None = declare(default=None)
    acc: Buffer = buffer(writes=True)
    src: Buffer = buffer()
    weights: Buffer = buffer()
    offsets: Buffer | None = buffer(default=None)
    at: tuple[Expr, ...] = operand()
    slot: Expr = operand(default=FALSE)
    taps: tuple[Tap, ...] = attr()
    spread: Threads | Products = attr()
    grid: Grid = attr()
    layout: Layout | None = attr(default=None)
    before: tuple[int, int] = attr(default=(0, 0))
    vector: int = attr(default=1)


@define("tile.steps", kw_only=True)
class Steps(Op):
    """``steps`` exact time steps of a window between the two slots of shared tile ``levels``.

    Each begins with a barrier.  Step s (from 1) reads slot (s - 1) % 2 and writes slot s % 2: the cells at least
    s * ``radius`` from the window's edge.  Element (r, c) is cell (y + r, x + c) of ``grid``, ``at`` = (y, x), and
    ``layout`` its place in a slot; cells outside the domain are left alone, reads across a border follow its sides, and
    a cell that a frozen border keeps takes its old value.
    Only rims: a window that shrinks has no partial sums to keep.
    """

    levels: Buffer = buffer(writes=True)
    weights: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    rows: int = attr()
    cols: int = attr()
    steps: int = attr()
    taps: tuple[Tap, ...] = attr()
    radius: tuple[int, int] = attr()
    layout: Layout = attr()
    grid: Grid = attr()
