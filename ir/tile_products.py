"""Tile ops of products on tensor cores whose sums move on, or whose results are multiplied again.

``patches``: row groups streamed through a warp, levels of partial sums.  A *group* is some adjacent rows of a warp's
strip of columns; a *patch* is one row of an mma: as many adjacent outputs as the mma has columns, as high as a group.
Their maps are layouts of a warp's own share of a shared buffer.  ``toeplitz``: products with a banded matrix whose
operand slides past the accumulators.  ``lowrank``: products with constant banded matrices from both sides.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import FALSE, Expr, Value
from .fragments import SHAPES
from .grid import Grid
from .layout import Layout
from .node import Op, attr, bind, buffer, declare, define, operand, region
from .numbers.lowrank import slices
from .op import Box
from .spread import Strips
from .tile_rules import extents, field, inside, mma, registers, same_type, shared, spread
from .types import Buffer


@define("tile.read_group", kw_only=True)
class ReadGroup(Op):
    """Reads a group as operands: patch m of sub-strip s is row m of an mma, its element k is ``a(s, m, k)`` from ``at``
    on in the warp's share of ``src``.  Register (s * slices + i) * rows + j holds a lane's j-th row of slice i.
    Only patches keeps operands in registers for several products; others read them as they multiply.
    """

    held: Buffer = declare()
    src: Buffer = buffer()
    at: Expr = operand()
    a: Layout = attr()
    shape: str = attr()


@define("tile.add_group", kw_only=True)
class AddGroup(Op):
    """Adds a group of rows to the sums of the ``touched`` groups of outputs that need it; the oldest is then complete.

    ``held`` are the operands of its ``slices`` slices for each of ``strips`` sub-strips.  ``weights`` are a lane's
    fragments: slice i of the matrix for the q-th youngest of the touched groups is register q * slices + i.  ``sums``
    has, for each level, the accumulators of the ``touched - 1`` unfinished groups, the youngest first; ``done`` gets
    those of the complete one.  ``shape`` is the mma for most of a sum (the rest takes narrower ones).
    Only patches: see ``tile.levels``.
    """

    done: Buffer = declare()
    sums: Buffer = buffer(writes=True)
    held: Buffer = buffer()
    weights: Buffer = buffer()
    shape: str = attr()
    strips: int = attr()
    slices: int = attr()
    level: int = attr()
    touched: int = attr()


@define("tile.pass_group", kw_only=True)
class PassGroup(Op):
    """Puts a complete group into shared memory: row m, column n of the accumulator at ``c(s, m, n)`` from ``at`` on.

    Only patches: its levels follow one another through shared memory, all others in registers.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    done: Buffer = buffer()
    at: Expr = operand()
    c: Layout = attr()
    shape: str = attr()


@define("tile.store_group", kw_only=True)
class StoreGroup(Op):
    """Stores a complete group as output rows y + (turn - ``delay``) * rows ..., once there are any, inside ``box``.

    Row m, column n of sub-strip s is cell ``c(s, m, n)`` (row, column) of the strip, whose first ``step`` columns are
    the warp's.  Only patches: its cells come single, two rows in a register pair, so no vector and no ring serves them.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    done: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    turn: Expr = operand()
    delay: int = attr()
    step: int = attr()
    c: Layout = attr()
    shape: str = attr()
    grid: Grid = attr()
    box: Box = attr()


@define("tile.slide", kw_only=True)
class Slide(Op):
    """Products of runs of columns with a band of weights; every element of a run is read once.

    Fragment row m of warp w is run w * M + m, and its column c is element ``layout(run, c)`` of ``src``'s ``slot``.
    Product i is ``sum over q < 8 * bands: run[8 i + q] * weights[q, n]`` for the 8 columns n: a Toeplitz product, so
    the 8 columns that the next product needs anew are added to the unfinished sums of the ``bands`` products that they
    touch, and then forgotten.  ``acc`` holds those sums, the finished product first, when the body runs for ``product``
    = i, in order.  ``shape`` is the mma instruction; slice s of the weights (4 of their rows) is register s.
    Only toeplitz: slices are outside, targets inside, so that A slides past; see ``tile.levels``.
    """

    acc: Buffer = declare()
    product: Value = bind()
    src: Buffer = buffer()
    weights: Buffer = buffer()
    slot: Expr = operand(default=FALSE)
    layout: Layout = attr()
    shape: str = attr()
    products: int = attr()
    bands: int = attr()
    body: tuple[Op, ...] = region()


@define("tile.sandwich", kw_only=True)
class Sandwich(Op):
    """``Y = sum over terms t of U_t X V_t``: U_t and V_t are banded, X is a window of the shared tile ``src``.

    ``spread`` says which strip and column blocks of the tile are a warp's.  Row i of U_t is a_t, shifted by
    i; column j of V_t is b_t, shifted by j.  Output (r, c) of a tile needs the elements (r ... r + 2 ``radius[0]``,
    c ... c + 2 ``radius[1]``) of ``layout``.

    ``factors`` holds a lane's registers, for each term those of U and then those of V: register s of lane
    4 g + t is a[4 s + t - g], and b[column - g] with column the (4 s + t)-th of ``columns``, zero outside.  ``columns``
    is the window's column that column n of the first product stands for, a permutation of 8: the accumulator of that
    product is operand A of the second as it is, its elements (2 t) one slice of K and (2 t + 1) the next.
    ``shape`` is the mma for most of a sum, ``acc`` block by block.
    Only lowrank multiplies what it has just multiplied.
    """

    acc: Buffer = declare()
    src: Buffer = buffer()
    factors: Buffer = buffer()
    layout: Layout = attr()
    columns: Layout = attr()
    shape: str = attr()
    spread: Strips = attr()
    terms: int = attr()
    radius: tuple[int, int] = attr()
    slot: Expr = operand(default=FALSE)


@check(ReadGroup)
def _read_group(op: ReadGroup, ctx: Context) -> None:
    mma(ctx, op.shape, op.held)
    strips, m, depth = op.a.extents
    rows = SHAPES[op.shape].m
    ctx.need(m == rows and depth % 4 == 0, f"operands of {m} rows and {depth} columns are no slices of {op.shape}")
    registers(ctx, op.held, strips * depth // 4 * rows // 8, exactly=True)
    shared(ctx, op.src, ctx.warps() * op.a.size(), "the groups of all warps")


@check(AddGroup)
def _add_group(op: AddGroup, ctx: Context) -> None:
    mma(ctx, op.shape, op.done)
    regs = op.strips * len(SHAPES[op.shape].c.elements)
    registers(ctx, op.done, regs, exactly=True)
    registers(ctx, op.sums, (op.level + 1) * (op.touched - 1) * regs)
    registers(ctx, op.held, op.strips * op.slices * SHAPES[op.shape].m // 8, exactly=True)
    registers(ctx, op.weights, op.touched * op.slices, exactly=True)
    same_type(ctx, op.done, op.sums, op.held, op.weights)


def _accumulator(ctx: Context, done: Buffer, c: Layout, shape: str) -> None:
    """``c`` places the elements of ``done``, accumulators of an mma."""
    mma(ctx, shape, done)
    extents(ctx, c, (c.extents[0], SHAPES[shape].m, SHAPES[shape].n), "an accumulator's place")
    registers(ctx, done, c.extents[0] * len(SHAPES[shape].c.elements), exactly=True)


@check(PassGroup)
def _pass_group(op: PassGroup, ctx: Context) -> None:
    _accumulator(ctx, op.done, op.c, op.shape)
    shared(ctx, op.dst, ctx.warps() * op.c.size(), "the groups of all warps")


@check(StoreGroup)
def _store_group(op: StoreGroup, ctx: Context) -> None:
    _accumulator(ctx, op.done, op.c, op.shape)
    ctx.need(len(op.c.index) == 2, "the place in the field is a row and a column")
    ctx.need(op.step <= op.c.shape()[1], f"a strip of {op.c.shape()[1]} columns has no {op.step} to store")
    field(ctx, op.grid, op.dst, at=len(op.at), box=len(op.box))
    inside(ctx, op.box, op.grid.extent)


@check(Slide)
def _slide(op: Slide, ctx: Context) -> None:
    mma(ctx, op.shape, op.acc)
    regs, warps = len(SHAPES[op.shape].c.elements), ctx.warps()
    registers(ctx, op.acc, (op.bands + 1) * regs, exactly=True)
    registers(ctx, op.weights, 2 * op.bands)
    extents(ctx, op.layout, (warps * SHAPES[op.shape].m, 8 * (op.products + op.bands - 1)), "the runs")
    shared(ctx, op.src, op.layout.size(), "the runs")
    ctx.need(op.product.hi == op.products - 1, f"%{op.product.name} must count {op.products} products")


@check(Sandwich)
def _sandwich(op: Sandwich, ctx: Context) -> None:
    mma(ctx, op.shape, op.acc)
    spread(ctx, op.spread, op.acc)
    (rows, cols), (ry, rx) = op.spread.size, op.radius
    extents(ctx, op.layout, (rows + 2 * ry, cols + 2 * rx), "the window")
    shared(ctx, op.src, op.layout.size(), "the window's elements")
    registers(ctx, op.factors, op.terms * (slices(2 * ry) + slices(2 * rx)), exactly=True)
    extents(ctx, op.columns, (8,), "the order of columns")
    ctx.need(op.columns.injective() and op.columns.size() == 8, f"{op.columns} is no permutation of 8 columns")
