"""Tile ops of ``patches``: row groups streamed through a warp, levels of partial sums on tensor cores.

A *group* is some adjacent rows of a warp's strip of columns; a *patch* is one row of an mma: as many adjacent outputs
as the mma has columns, as high as a group.  All maps here are layouts of a warp's own share of a shared buffer.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .fragments import SHAPES
from .layout import Layout
from .node import Op, attr, buffer, declare, define, operand
from .op import Box
from .tile_rules import extents, inside, mma, registers, same_type, shared
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
    y: Expr = operand()
    x: Expr = operand()
    turn: Expr = operand()
    delay: int = attr()
    step: int = attr()
    c: Layout = attr()
    shape: str = attr()
    pitch: int = attr()
    box: Box = attr()


@check(ReadGroup)
def _read_group(op: ReadGroup, ctx: Context) -> None:
    mma(ctx, op.shape, op.held)
    strips, m, depth = op.a.extents
    rows = SHAPES[op.shape].m
    ctx.need(m == rows and depth % 4 == 0, f"operands of {m} rows and {depth} columns are no slices of {op.shape}")
    registers(ctx, op.held, strips * depth // 4 * rows // 8, exactly=True)
    shared(ctx, op.src, ctx.threads // 32 * op.a.size(), "the groups of all warps")


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
    shared(ctx, op.dst, ctx.threads // 32 * op.c.size(), "the groups of all warps")


@check(StoreGroup)
def _store_group(op: StoreGroup, ctx: Context) -> None:
    _accumulator(ctx, op.done, op.c, op.shape)
    ctx.need(len(op.c.index) == 2, "the place in the field is a row and a column")
    ctx.need(op.step <= op.c.shape()[1], f"a strip of {op.c.shape()[1]} columns has no {op.step} to store")
    inside(ctx, op.box, (op.dst.size // op.pitch, op.pitch))
