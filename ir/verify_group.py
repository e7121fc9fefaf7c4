"""The rules of a warpgroup's products."""

from __future__ import annotations

from . import warp_group as g
from .checks import Context, check
from .expr import Const, Expr
from .metadata import DENSE
from .node import Op
from .numbers.registers import MOST, SET, UNIT, at_launch
from .swizzle import DEPTH, SWIZZLES, Tile, atom, tile_bytes
from .text import declaration
from .types import Buffer, f32, u32
from .uniform import NAMES, WARPGROUP
from .verify_warp import converged, in_space


@check(g.Wgmma, g.WgmmaSp, g.WgmmaRs, g.WgmmaFence, g.WgmmaCommit, g.WgmmaWait, g.SetRegisters)
def _together(op: Op, ctx: Context) -> None:
    ctx.need(ctx.threads % (32 * g.WARPS) == 0, f"needs full warpgroups, but a block has {ctx.threads} threads",
             "give the block a multiple of 128 threads")  # fmt: skip
    converged(op, ctx, WARPGROUP, "all four warps of a warpgroup")


@check(g.SetRegisters)
def _set_registers(op: g.SetRegisters, ctx: Context) -> None:
    ctx.need(op.count in SET, f"{op.count} registers are no multiple of {UNIT} in {SET[0]}..{SET[-1]}")
    own = at_launch(ctx.threads, int(getattr(ctx.func, "min_blocks", 1)))
    ctx.need(own < MOST, f"{ctx.threads} threads have {own} registers each: there is nothing to share out")
    ctx.need(op.count != own, f"{op.count} registers are those of the launch")


@check(g.WgmmaWait)
def _wait(op: g.WgmmaWait, ctx: Context) -> None:
    ctx.need(0 <= op.pending <= g.MOST_PENDING, f"pending {op.pending} is not in 0..{g.MOST_PENDING}")


@check(g.Wgmma, g.WgmmaSp, g.WgmmaRs)
def _sums(op: g.AnyWgmma, ctx: Context) -> None:
    ctx.need(op.cols % 8 == 0 and 8 <= op.cols <= 256, f"{op.cols} columns are no multiple of 8 in 8..256")
    in_space(ctx, op.acc, "reg")
    ctx.need(op.acc.dtype is f32 and op.acc.size == op.cols // 2,
             f"{declaration(op.acc)} must be f32[{op.cols // 2}], of {op.cols} columns half a one a lane")  # fmt: skip


@check(g.Wgmma, g.WgmmaSp)
def _tile_of_a(op: g.Wgmma, ctx: Context) -> None:
    ctx.need(op.a.dtype is op.b.dtype, f"multiplies {op.a.dtype} by {op.b.dtype}: the types differ")
    _operand(ctx, "a", op.a, op.a_index, g.ROWS, op.a_tile, op.a_major)


@check(g.WgmmaRs)
def _registers_of_a(op: g.WgmmaRs, ctx: Context) -> None:
    in_space(ctx, op.a, "reg")
    ctx.need(op.a.dtype is u32 and op.a.size == 4, f"{declaration(op.a)} must be u32[4], 8 elements of each lane")


@check(g.Wgmma, g.WgmmaSp, g.WgmmaRs)
def _tile_of_b(op: g.AnyWgmma, ctx: Context) -> None:
    depth = DENSE if isinstance(op, g.WgmmaSp) else DEPTH
    _operand(ctx, "b", op.b, op.b_index, op.cols, op.b_tile, op.b_major, depth)


@check(g.WgmmaSp)
def _metadata(op: g.WgmmaSp, ctx: Context) -> None:
    in_space(ctx, op.meta, "reg")
    ctx.need(op.meta.dtype is u32 and op.meta.size == 1, f"{declaration(op.meta)} must be u32[1], a word of each lane")


def _operand(
    ctx: Context, what: str, buf: Buffer, index: Expr, count: int, tile: Tile, major: str, depth: int = DEPTH
) -> None:
    in_space(ctx, buf, "shared")
    ctx.need(buf.dtype.name in ("f16", "bf16"), f"multiplies f16 or bf16, but {declaration(buf)}")
    swizzle, *offsets = tile
    ctx.one_of(swizzle, SWIZZLES, f"{what}_tile: swizzle")
    for nbytes in offsets:
        ctx.need(nbytes % 16 == 0 and 0 <= nbytes < 1 << 18, f"{what}_tile: offset {nbytes} is no multiple of 16 bytes "
                 f"below {1 << 18}")  # fmt: skip
    ctx.need(major == "k" or count * 2 % max(swizzle, 16) == 0,
             f"{what}: {count} {'rows' if what == 'a' else 'columns'} of 16 bits do not fill rows of {swizzle} bytes",
             "take a narrower swizzle")  # fmt: skip
    ctx.need(
        major == "mn" or not swizzle or 2 * depth <= swizzle,
        f"{what}: {depth} k of 16 bits do not fit rows of {swizzle} bytes",
        "take a wider swizzle",
    )
    ctx.need(buf.align % atom(swizzle) == 0, f"{declaration(buf)} is aligned to less than the {atom(swizzle)} bytes "
             f"of a swizzle of {swizzle}", f"declare align={atom(swizzle)}")  # fmt: skip
    level = ctx.levels.expr(index)
    ctx.need(level <= WARPGROUP, f"{what}_index {index} is {NAMES[level]}, but the warpgroup has one tile",
             "make it of values that its four warps share: %warp // 4, %tid // 128, loops, loads")  # fmt: skip
    ctx.inside(buf, index, 1, None)
    if isinstance(index, Const):
        start = 2 * index.value
        ctx.need(starts_well(start, swizzle), f"{what}_index {index} is byte {start}, {askew(swizzle)}")
        last = int(tile_bytes(count, tile, major, start, depth).max()) // 2
        ctx.need(last < buf.size or ctx.conditional,
                 f"the tile from {what}_index {index} reaches element {last}: outside {declaration(buf)}")  # fmt: skip


def starts_well(start: int, swizzle: int) -> bool:
    """Whether a tile may start at this byte: in the first row of a swizzle's pattern, at one of its pieces."""
    return start % 16 == 0 and start % atom(swizzle) < max(swizzle, 16)


def askew(swizzle: int) -> str:
    """What is wrong with a tile that does not."""
    first = f", in the first {swizzle} of {atom(swizzle)}" if swizzle else ""
    return f"but a tile starts at a multiple of 16 bytes{first}"
