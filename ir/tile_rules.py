"""What tile programs must obey: questions that many ops share, and the rules of :mod:`sparsegen.ir.tile`'s ops.

Rules ask what the lowering takes for granted: extents of layouts, registers of accumulators, slots, types.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from . import formula
from . import tile as t
from .checks import Context, check
from .expr import Expr
from .formula import Code
from .fragments import SHAPES
from .grid import Grid
from .layout import Layout
from .node import walk
from .op import Box, Tap, tile_counts
from .spread import Products, Spread
from .types import Buffer, DType, cell_type


# ---------------------------------------------------------------------------------------------------- shared questions
def registers(ctx: Context, buf: Buffer, least: int, *, exactly: bool = False) -> None:
    """A register array holds so many elements, or more."""
    ctx.need(buf.space == "reg", f"@{buf.name} must be in registers, not in {buf.space} memory")
    ok = buf.size == least if exactly else buf.size >= least
    ctx.need(ok, f"@{buf.name} has {buf.size} registers, but {least} are meant")


def shared(ctx: Context, buf: Buffer, least: int, what: str) -> None:
    """A tile is in shared memory and has room."""
    ctx.need(buf.space == "shared", f"@{buf.name} must be in shared memory, not in {buf.space}")
    ctx.need(buf.size >= least, f"{what} take {least} elements, @{buf.name} has {buf.size}")


def scalars(ctx: Context, code: Code, given: Buffer | None, dtype: DType, steps: int) -> None:
    """A formula's scalars are of the type of sums: in the constant bank, as many as so many time steps have; in global
    memory where the number of steps is not known before the launch (0), those of any number."""
    count = len(formula.scalars(code))
    some = "some" if given else "none"
    ctx.need((given is not None) == bool(count), f"{count} scalars of a formula, {some} given")
    if given is not None:
        space, what = ("param", "in the constant bank") if steps else ("global", "in global memory")
        ctx.need(given.space == space, f"@{given.name} must be {what}, not {given.space}")
        ctx.need(given.dtype is cell_type(dtype), f"@{given.name} holds {given.dtype}, sums are of {cell_type(dtype)}")
        fits = given.size == steps * count if steps else given.size % count == 0
        ctx.need(fits, f"@{given.name} has {given.size} of {count} scalars of {steps or 'some'} steps")


def batched(ctx: Context, buf: Buffer, which: Expr, m: int, n: int) -> None:
    """The buffer has a matrix [m, n] for each product of a batch, of which one is number ``which``."""
    many = which.hi + 1
    of = f"{many} x " * (many > 1)
    ctx.need(
        which.lo >= 0 and buf.size == many * m * n, f"{of}{m} x {n} elements are not the {buf.size} of @{buf.name}"
    )


def same_type(ctx: Context, *bufs: Buffer) -> None:
    """The buffers hold one type."""
    first, *others = bufs
    for b in others:
        ctx.need(b.dtype is first.dtype, f"@{b.name} is {b.dtype}, @{first.name} {first.dtype}")


def whole(ctx: Context, total: int, part: int, message: str, hint: str | None = None) -> None:
    """So many things are a whole number of parts."""
    ctx.need(part >= 1 and total % part == 0, message, hint)


def mma(ctx: Context, shape: str, buf: Buffer) -> None:
    """The mma shape exists and makes sums of the buffer's type."""
    ctx.one_of(shape, tuple(SHAPES), "mma shape")
    made = SHAPES[shape].c.dtype
    ctx.need(made is buf.dtype, f"{shape} makes sums of {made}, @{buf.name} is {buf.dtype}")


def extents(ctx: Context, layout: Layout, want: tuple[int, ...], what: str) -> None:
    """A layout is over the indices that the op runs over."""
    ctx.need(layout.extents == want, f"{what} is a layout over {list(layout.extents)}, not over {list(want)}")


def axes(ctx: Context, extent: tuple[int, ...], **given: int) -> None:
    """Coordinates, sides and boxes are given for as many axes as the field has."""
    for name, n in given.items():
        ctx.need(n == len(extent), f"{name} of {n} axes, the field has {len(extent)}")


def field(ctx: Context, g: Grid, buf: Buffer | None = None, **given: int) -> None:
    """A field, and what is ``given`` for its axes, make sense; it lies in the buffer."""
    axes(ctx, g.extent, **({"sides": len(g.sides)} if g.sides else {}) | given)
    ghosts = f", {g.ghosts} ghosts at both ends," if g.ghosts else ""
    ctx.need(g.lead >= g.ghosts, f"{g.ghosts} ghosts before the first cell of a row have room for {g.lead}")
    ctx.need(g.pitch >= g.lead + g.extent[-1] + g.ghosts,
             f"rows of {g.extent[-1]} cells{ghosts} cannot stand {g.pitch} apart")  # fmt: skip
    ctx.need(0 <= 2 * g.ghosts <= g.extent[-1], f"{g.ghosts} ghosts at both ends of {g.extent[-1]} cells")
    ok = buf is None or buf.size >= g.size
    ctx.need(ok, f"a field of {list(g.extent)} takes {g.size} elements, @{buf and buf.name} has {buf and buf.size}")


def spread(ctx: Context, over: Spread, acc: Buffer) -> None:
    """The spread's threads are the block's, and its registers those of the accumulator."""
    ctx.need(over.threads == ctx.threads, f"{over.threads} threads hold the sums, the block has {ctx.threads}")
    registers(ctx, acc, over.registers)


def begins(ctx: Context, new: Buffer | None, acc: Buffer) -> None:
    """What an op declares for its sums, if it does, is what it sums in."""
    ctx.need(new in (None, acc), f"@{acc.name} is what the sums begin in")


def taps(ctx: Context, weights: Buffer, given: tuple[Tap, ...], axes: int) -> None:
    """Each tap has an offset on all axes, and its weight."""
    for offset, _ in given:
        ctx.need(len(offset) == axes, f"a tap at {list(offset)}, the cells have {axes} axes")
    ctx.need(weights.size >= len(given), f"{len(given)} taps, but @{weights.name} has {weights.size} weights")


def inside(ctx: Context, box: Box, extent: tuple[int, ...]) -> None:
    """A box lies in the field."""
    ok = all(0 <= low < high <= n for (low, high), n in zip(box, extent, strict=True))
    ctx.need(ok, f"the box {list(map(list, box))} does not lie in a field of {list(extent)}")


# ---------------------------------------------------------------------------------------------------------------- rules
@check(t.Func)
def _func(op: t.Func, ctx: Context) -> None:
    ctx.need(1 <= op.threads <= 1024, f"{op.threads} threads; a block has 1 to 1024")
    ctx.need(op.blocks >= 1 and op.min_blocks >= 1, f"{op.blocks} blocks, at least {op.min_blocks} a multiprocessor")
    for p in op.params:
        ctx.need(p.space in ("global", "param"), f"parameter @{p.name} cannot be in {p.space} memory")


@check(t.When)
def _when(op: t.When, ctx: Context) -> None:
    met = [inner for inner in walk((*op.body, *op.other)) if isinstance(inner, t.Meet) and inner.scope == "block"]
    ctx.need(not met, "not all threads of the block come to where they are to meet")


@check(t.Alloc)
def _alloc(op: t.Alloc, ctx: Context) -> None:
    ctx.one_of(op.buf.space, ("shared", "reg"), "space")
    least = op.slots * (op.layout.size() if op.layout else 1)
    ctx.need(op.buf.size >= least, f"{op.slots} slots of the layout take {least} elements, of {op.buf.size}")
    whole(ctx, op.buf.size, op.slots, f"{op.buf.size} elements are no {op.slots} slots of one size")


@check(t.Slots)
def _slots(op: t.Slots, ctx: Context) -> None:
    ok = op.count >= 1 and op.buf.size % op.count == 0
    ctx.need(ok, f"{op.buf.size} elements are no {op.count} tiles of one size")


@check(t.ForTiles)
def _for_tiles(op: t.ForTiles, ctx: Context) -> None:
    for box in op.boxes:
        axes(ctx, op.size, box=len(box), at=len(op.at), end=len(op.end))
    count = sum(prod(tile_counts(box, op.size)) for box in op.boxes)
    ctx.need(op.number.hi >= count - 1, f"%{op.number.name} ends at {op.number.hi}, there are {count} tiles")
    ctx.need(op.stride >= 0, f"a stride of {op.stride} tiles")
    if op.told is not None or any(op.early):
        ctx.need(not op.stride and len(op.boxes) == 1, "tiles come early where each block has one, of one box")
        ctx.need(op.told is not None, f"nobody is told of the {op.early} tiles that come early")
        most = tile_counts(op.boxes[0], op.size)[0]
        ctx.need(min(op.early) >= 0 and sum(op.early) <= most, f"{op.early} of {most} tiles cannot come early")


@check(t.Prefetch)
def _prefetch(op: t.Prefetch, ctx: Context) -> None:
    loop = ctx.parent
    ctx.need(isinstance(loop, t.ForTiles), f"a prefetch belongs right into a loop over tiles, not into {loop.name}")
    ctx.need(op.distance >= 0, f"a distance of {op.distance} turns")


@check(t.Wait)
def _wait(op: t.Wait, ctx: Context) -> None:
    ctx.need(op.pending >= 0, f"{op.pending} groups cannot be in flight")


@check(t.Copy)
def _copy(op: t.Copy, ctx: Context) -> None:
    window = (op.rows, op.cols)
    field(ctx, op.grid, at=len(op.at))
    for m in op.maps:
        extents(ctx, m, window, "where it goes")
        size = m.size()
        ctx.need(op.dst.size >= size, f"a window takes {size} elements of @{op.dst.name}, which has {op.dst.size}")
    if op.vector > 1 or op.mode == "async":
        ctx.need(len(op.maps) == 1 and op.cols % op.vector == 0,
                 f"pieces of {op.vector} need one place to go and whole rows of {op.cols}")  # fmt: skip
    if op.mode == "async":
        same_type(ctx, op.dst, op.src)
    if op.src.space == "shared":
        ctx.need(op.src_map is not None, f"no layout says where @{op.src.name} has the window")
        if op.src_map is not None:
            extents(ctx, op.src_map, window, "where it comes from")
        ctx.need(bool(op.maps) != bool(op.end), "a window goes to the places of its maps, or to cells up to an end")
    else:
        field(ctx, op.grid, op.src, sides=len(op.grid.sides))
    if op.end:
        field(ctx, op.grid, op.dst, end=len(op.end))


@check(t.Zero)
def _zero(op: t.Zero, ctx: Context) -> None:
    ctx.need(op.table.dtype.is_int, f"@{op.table.name} lists elements, it cannot be {op.table.dtype}")
    ctx.need(op.degree >= 1, f"a bank-conflict degree of {op.degree}")


@check(t.Fragments)
def _fragments(op: t.Fragments, ctx: Context) -> None:
    same_type(ctx, op.regs, op.table)
    registers(ctx, op.regs, 1)
    last = 32 * (op.first + op.regs.size)
    ctx.need(op.table.size >= last, f"{op.regs.size} registers of 32 lanes end at {last}, @{op.table.name} at "
             f"{op.table.size}")  # fmt: skip


@check(t.Product)
def _product(op: t.Product, ctx: Context) -> None:
    begins(ctx, op.new, op.acc)
    spread(ctx, op.spread, op.acc)
    ctx.need(op.spread.products % op.spread.warps == 0,
             f"{op.spread.products} products do not share out among {op.spread.warps} warps")  # fmt: skip
    whole(ctx, op.depth, 4, f"a depth of {op.depth} is no whole number of slices of 4")
    for m in op.a:
        extents(ctx, m, (op.spread.products, SHAPES[op.spread.base].m, op.depth), "an operand")
    slices = len(op.a) * op.depth // 4 * op.spread.blocks
    if op.shape == "fma":
        ctx.need(op.weights.size >= op.first + 32 * slices, f"@{op.weights.name} holds no {slices} slices of weights")
        return
    mma(ctx, op.shape, op.acc)
    ctx.need(SHAPES[op.shape].m == SHAPES[op.spread.base].m, f"{op.shape} has other rows than {op.spread.base}")
    registers(ctx, op.weights, op.first + slices)


@check(t.Store)
def _store(op: t.Store, ctx: Context) -> None:
    spread(ctx, op.spread, op.acc)
    field(ctx, op.grid, op.dst, box=len(op.box), keep=len(op.keep), at=len(op.at))
    inside(ctx, op.box, op.grid.extent)
    field(ctx, replace(op.grid, pitch=op.src_pitch), op.src)
    same_type(ctx, op.dst, op.src)


@check(t.Points)
def _points(op: t.Points, ctx: Context) -> None:
    begins(ctx, op.new, op.acc)
    spread(ctx, op.spread, op.acc)
    taps(ctx, op.weights, op.taps, len(op.at))
    same_type(ctx, op.acc, op.weights)
    ctx.one_of(op.vector, (1, 2), "elements at once")
    field(ctx, op.grid, at=len(op.at), sides=len(op.grid.sides))
    if isinstance(op.spread, Products):
        count = len(op.taps) * len(op.at)
        ok = op.offsets is not None and op.offsets.size >= count
        ctx.need(ok and op.new is None, f"{count} offsets of taps are added to accumulators that are there")
    elif op.layout is None:
        ctx.need(op.spread.registers == 1, "out of global memory a thread makes one output")
    else:
        reach = [tuple(f(o[axis] for o, _ in op.taps) for f in (min, max)) for axis in (-2, -1)]
        window = zip(op.layout.extents, op.before, op.spread.size, reach, strict=True)
        ok = all(before + low >= 0 and before + size + high <= n for n, before, size, (low, high) in window)
        ctx.need(ok, f"the taps reach beyond a window of {list(op.layout.extents)}")


@check(t.Steps)
def _steps(op: t.Steps, ctx: Context) -> None:
    extents(ctx, op.layout, (op.rows, op.cols), "the window")
    shared(ctx, op.levels, 2 * op.layout.size(), "both levels")
    same_type(ctx, op.levels, op.weights)
    taps(ctx, op.weights, op.taps, len(op.at))
    left = min(op.rows - 2 * op.radius[0] * op.steps, op.cols - 2 * op.radius[1] * op.steps)
    ctx.need(op.steps >= 1 and left >= 1, f"{op.steps} steps leave nothing of a window of {op.rows}x{op.cols}")
    field(ctx, op.grid, at=len(op.at), sides=len(op.grid.sides))
