"""The rules of the warp level's memory accesses, tensor-core ops and synchronisation."""

from __future__ import annotations

from . import expr as ex
from . import warp as w
from .checks import Context, check
from .expr import Const, Expr
from .fragments import SHAPES, SPARSE, signature
from .node import Op
from .text import declaration
from .types import Buffer, pred, u32, u64
from .uniform import BLOCK, WARP
from .verify_warp import converged, elem_bytes, in_space, whole_warp
from .warp_atomics import Atom, Red
from .warp_matrix import MmaSp
from .warp_tagged import SCOPES, LdTagged, StTagged, Trap


def vector(ctx: Context, buf: Buffer, count: int) -> None:
    """So many adjacent elements of a buffer can be accessed at once."""
    possible = (1, 2, 4, 8) if buf.dtype.bits == 16 else (1, 2, 4)
    ctx.need(count in possible, f"accesses {count} elements at once, but 1, 2 or 4 (or 8 of 16 bits) are possible")
    nbytes = count * elem_bytes(ctx, buf.dtype)
    ctx.need(nbytes <= 16, f"accesses {count} x {buf.dtype} = {nbytes} bytes at once, but at most 16 are possible")
    if buf.space in ("global", "shared"):
        ctx.need(buf.align % nbytes == 0, f"accesses {nbytes} bytes at once, but {declaration(buf)} is aligned to less",
                 f"declare align={nbytes}")  # fmt: skip


def _reg_index(ctx: Context, buf: Buffer, index: Expr) -> None:
    """A register array's index must become a constant: it may depend on loop variables only."""
    if buf.space != "reg":
        return
    todo, seen = list(ex.values(index)), set()
    while todo:
        v = todo.pop()
        source = ctx.defined.get(v)
        if isinstance(source, w.Let) and v not in seen:
            seen.add(v)
            todo += ex.values(source.expr)
        elif not isinstance(source, (w.For, w.Let)):
            ctx.fail(f"index {index} of the register array @{buf.name} depends on %{v.name}, which is no loop variable",
                     "registers have no addresses: unroll a loop and select, or use shared memory")  # fmt: skip


# ------------------------------------------------------------------------------------------------------- memory
@check(w.Alloc)
def _alloc(op: w.Alloc, ctx: Context) -> None:
    in_space(ctx, op.buf, "reg")


@check(w.Ld)
def _ld(op: w.Ld, ctx: Context) -> None:
    vector(ctx, op.buf, len(op.out))
    for v in op.out:
        ctx.need(v.dtype is op.buf.dtype, f"{declaration(v)} loads from {declaration(op.buf)}: the types differ")
    ctx.one_of(op.cache, ("", "cg", "cs", "nc"), "cache hint")
    ctx.need(not op.cache or op.buf.space == "global", f"cache hint {op.cache!r} is for global memory only")
    ctx.need(op.cache != "nc" or op.buf not in ctx.written, f"cache 'nc', but the function writes @{op.buf.name}")
    ctx.condition(op.where, "where")
    ctx.inside(op.buf, op.index, len(op.out), op.where)
    _reg_index(ctx, op.buf, op.index)


@check(w.St)
def _st(op: w.St, ctx: Context) -> None:
    in_space(ctx, op.buf, "global", "shared", "reg")
    vector(ctx, op.buf, len(op.vals))
    for v in op.vals:
        ctx.typed(v, op.buf.dtype, "what is stored")
    ctx.one_of(op.cache, ("", "cg", "cs", "wt"), "cache hint")
    ctx.need(not op.cache or op.buf.space == "global", f"cache hint {op.cache!r} is for global memory only")
    ctx.condition(op.where, "where")
    ctx.inside(op.buf, op.index, len(op.vals), op.where)
    _reg_index(ctx, op.buf, op.index)


@check(LdTagged, StTagged)
def _tagged(op: LdTagged | StTagged, ctx: Context) -> None:
    in_space(ctx, op.buf, "global")
    count = len(op.out if isinstance(op, LdTagged) else op.vals) + isinstance(op, StTagged)
    ctx.need((op.buf.dtype, count) in ((u32, 2), (u64, 2), (u32, 4)), "a value and its tag are u32 or u64, three "
             f"values and theirs u32, but {count} elements are of {declaration(op.buf)}")  # fmt: skip
    ctx.one_of(op.scope, SCOPES, "scope")
    nbytes = count * op.buf.dtype.nbytes
    ctx.need(op.buf.align % nbytes == 0, f"accesses {nbytes} bytes at once, but {declaration(op.buf)} is aligned to "
             "less", f"declare align={nbytes}")  # fmt: skip
    if isinstance(op, LdTagged):
        for v in op.out:
            ctx.need(v.dtype is op.buf.dtype, f"{declaration(v)} loads from {declaration(op.buf)}: the types differ")
    else:
        for part in (*op.vals, op.tag):
            ctx.typed(part, op.buf.dtype, "what is stored")
    where = op.where if isinstance(op, LdTagged) else None
    ctx.condition(where, "where")
    if isinstance(op, LdTagged):
        ctx.need((op.where is None) == (op.other is None), "a tag goes with a condition")
        if op.other is not None:
            ctx.typed(op.other, op.buf.dtype, "the tag of what is not loaded")
    ctx.inside(op.buf, op.index, count, where)


@check(Trap)
def _trap(op: Trap, ctx: Context) -> None:
    ctx.condition(op.where, "where")


def _copy(op: w.CpAsync | w.BulkCopy, ctx: Context) -> int:
    in_space(ctx, op.src, "global")
    in_space(ctx, op.dst, "shared")
    ctx.need(op.src.dtype is op.dst.dtype, f"copies {op.src.dtype} to {op.dst.dtype}: the types differ")
    return elem_bytes(ctx, op.dst.dtype)


@check(w.CpAsync)
def _cp_async(op: w.CpAsync, ctx: Context) -> None:
    nbytes = op.count * _copy(op, ctx)
    ctx.need(nbytes in (4, 8, 16), f"copies {op.count} x {op.dst.dtype} = {nbytes} bytes, but 4, 8 or 16 are possible")
    for b in (op.src, op.dst):
        ctx.need(b.align % nbytes == 0, f"copies {nbytes} bytes, but {declaration(b)} is aligned to less")
    ctx.condition(op.where, "where")
    ctx.inside(op.dst, op.dst_index, op.count, op.where)
    ctx.inside(op.src, op.src_index, op.count, op.where)


@check(w.CpWait)
def _cp_wait(op: w.CpWait, ctx: Context) -> None:
    ctx.need(op.pending >= 0, f"pending {op.pending} is negative")


@check(w.BulkCopy)
def _bulk_copy(op: w.BulkCopy, ctx: Context) -> None:
    size = _copy(op, ctx)
    ctx.integer(op.count, "the count")
    for e, what in ((op.count, "count"), (op.dst_index, "destination"), (op.src_index, "source")):
        if isinstance(e, Const):
            ctx.need(e.value * size % 16 == 0, f"{what} {e} x {op.dst.dtype} is no multiple of 16 bytes")
    for b in (op.src, op.dst):
        ctx.need(b.align % 16 == 0, f"{declaration(b)} must be aligned to 16 bytes")
    ctx.inside(op.dst, op.dst_index, 1, None)
    ctx.inside(op.src, op.src_index, 1, None)
    mbarrier(op, ctx, op.bars, op.bar)


@check(w.LdMatrix)
def _ldmatrix(op: w.LdMatrix, ctx: Context) -> None:
    ctx.need(len(op.out) in (1, 2, 4), f"has {len(op.out)} results, but must have 1 or 2 or 4")
    in_space(ctx, op.buf, "shared")
    ctx.need(op.buf.dtype.bits in (8, 16), f"loads elements of 8 or 16 bits, but {declaration(op.buf)}")
    ctx.need(op.buf.align % 16 == 0, f"{declaration(op.buf)} must be aligned to 16 bytes")
    for v in op.out:
        ctx.need(v.dtype is u32, f"gives u32, but {declaration(v)}")
    ctx.inside(op.buf, op.index, 1, None)
    whole_warp(op, ctx)


@check(w.Mma)
def _mma(op: w.Mma, ctx: Context) -> None:
    ctx.one_of(op.shape, tuple(SHAPES), "mma shape")
    _registers(op, ctx)


def _registers(op: w.Mma, ctx: Context) -> None:
    """The registers of an mma are those of its shape's fragments, and all lanes are there."""
    want = signature(op.shape)
    operands = (("a", op.a, want.a), ("b", op.b, want.b), ("c", op.c, want.c), ("d", op.out, want.c))
    for what, regs, (dtype, n) in operands:
        ctx.need(len(regs) == n, f"{op.shape}: {what} has {len(regs)} registers, but takes {n} x {dtype}")
        for r in regs:
            ctx.typed(r, dtype, f"{op.shape}: each register of {what}")
    whole_warp(op, ctx)


@check(MmaSp)
def _mma_sp(op: MmaSp, ctx: Context) -> None:
    ctx.one_of(op.shape, tuple(SPARSE), "shape of a sparse mma")
    _registers(op, ctx)
    ctx.typed(op.meta, u32, "meta")


@check(Atom, Red)
def _atomic(op: Atom | Red, ctx: Context) -> None:
    in_space(ctx, op.buf, "global", "shared")
    if isinstance(op, Atom):
        ctx.one_of(op.op, ("add", "max", "min", "exch", "inc"), "atomic operation")
        ctx.need(op.out[0].dtype is op.buf.dtype, f"{declaration(op.out[0])} is the old value of {declaration(op.buf)}")
        ctx.need(op.op != "inc" or op.buf.dtype is u32, f"inc is for u32, not {op.buf.dtype}")
    else:
        ctx.one_of(op.op, ("add",), "reduction")
    ctx.typed(op.val, op.buf.dtype, "the operand")
    ctx.inside(op.buf, op.index, 1, None)


# ------------------------------------------------------------------------------------------------------- order
@check(w.Barrier)
def _barrier(op: w.Barrier, ctx: Context) -> None:
    ctx.need(0 <= op.id <= 15, f"barrier {op.id} is not in 0..15")
    ctx.need(op.count % 32 == 0 and 0 <= op.count <= ctx.threads,
             f"{op.count} threads must be whole warps of the block's {ctx.threads} threads")  # fmt: skip
    if op.count == 0:
        converged(op, ctx, BLOCK, "all threads of the block")
    else:
        converged(op, ctx, WARP, "all lanes of a warp")


@check(w.SyncWarp)
def _sync(op: w.SyncWarp, ctx: Context) -> None:
    converged(op, ctx, WARP, "all lanes of a warp")


@check(w.Fence)
def _fence(op: w.Fence, ctx: Context) -> None:
    ctx.one_of(op.scope, ("gpu", "block", "async", "mbar_init"), "fence")


def mbarrier(op: Op, ctx: Context, bars: Buffer, index: Expr) -> None:
    """``bars[index]`` is an mbarrier."""
    in_space(ctx, bars, "shared")
    ctx.need(bars.dtype is u64, f"mbarriers are u64, but {declaration(bars)}")
    ctx.inside(bars, index, 1, None)


@check(w.MbarInit)
def _mbar_init(op: w.MbarInit, ctx: Context) -> None:
    mbarrier(op, ctx, op.bars, op.index)
    ctx.need(1 <= op.count < 2**20, f"{op.count} arrivals a phase are not in 1..{2**20 - 1}")


@check(w.MbarArrive)
def _mbar_arrive(op: w.MbarArrive, ctx: Context) -> None:
    mbarrier(op, ctx, op.bars, op.index)
    ctx.integer(op.expect, "expect")


@check(w.CpArrive)
def _cp_arrive(op: w.CpArrive, ctx: Context) -> None:
    mbarrier(op, ctx, op.bars, op.index)


@check(w.MbarTryWait)
def _mbar_try_wait(op: w.MbarTryWait, ctx: Context) -> None:
    ctx.need(op.out[0].dtype is pred, f"gives a predicate, but {declaration(op.out[0])}")
    mbarrier(op, ctx, op.bars, op.index)
    ctx.integer(op.parity, "the parity")
