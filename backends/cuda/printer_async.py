"""What the printer says of ops that copy asynchronously, order threads, or are of several warps or blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sparsegen.ir import warp as w
from sparsegen.ir import warp_cluster as wc
from sparsegen.ir import warp_group as wg
from sparsegen.ir.expr import Expr
from sparsegen.ir.node import Op
from sparsegen.ir.numbers.registers import at_launch
from sparsegen.ir.tensor_copy import TensorCopy
from sparsegen.ir.types import Buffer
from sparsegen.ir.warp_launch import LaunchNext, LaunchWait
from sparsegen.ir.warp_tagged import StTagged, Trap

from . import ptx_ops as ptx
from .expr_c import PRIMARY, UNSIGNED, CText, join, render
from .ptx_tagged import ST_TAGGED, TRAP

if TYPE_CHECKING:
    from .printer import Printer


# ------------------------------------------------------------------------------------------------ copies
def _cp_async(p: Printer, op: w.CpAsync) -> str:
    guard = "" if op.where is None else f"if ({p.expr(op.where)}) "
    copy = ptx.cp_async(op.count * op.dst.dtype.nbytes)
    return guard + p.call(copy, p.address(op.dst, op.dst_index), p.offset(op.src, op.src_index))


def _bulk_copy(p: Printer, op: w.BulkCopy) -> str:
    nbytes = p.expr(op.count * op.dst.dtype.nbytes)
    ends = p.address(op.dst, op.dst_index), p.address(op.src, op.src_index)
    return p.call(ptx.BULK_COPY, *ends, nbytes, p.address(op.bars, op.bar))


def _tensor_copy(p: Printer, op: TensorCopy) -> str:
    name, coordinates = p.names.buffer(p.maps[op.src, op.map]), (p.expr(op.col), p.expr(op.row))
    return p.call(ptx.TENSOR_COPY, p.address(op.dst, op.dst_index), name, *coordinates, p.address(op.bars, op.bar))


# ------------------------------------------------------------------------------------------------ order
def _barrier(p: Printer, op: w.Barrier) -> str:
    if op.id == 0 and op.count in (0, p.func.threads):
        return "__syncthreads()"
    return p.call(ptx.BAR_SYNC, template=f"<{op.id}, {op.count or p.func.threads}>")


def _fence(p: Printer, op: w.Fence) -> str:
    calls = {"gpu": "__threadfence()", "block": "__threadfence_block()"}
    proxies = {"async": ptx.FENCE_ASYNC, "mbar_init": ptx.FENCE_MBAR_INIT}
    return calls.get(op.scope) or p.call(proxies[op.scope])


def _mbar_arrive(p: Printer, op: w.MbarArrive) -> str:
    bar = p.address(op.bars, op.index)
    return p.call(ptx.MBAR_ARRIVE, bar) if op.expect is None else p.call(ptx.MBAR_EXPECT, bar, p.expr(op.expect))


def _wgmma(p: Printer, op: wg.Wgmma) -> str:
    parts = [*op.a_tile, int(op.a_major == "mn"), *op.b_tile, int(op.b_major == "mn")]
    args = [p.names.buffer(op.acc.name), p.address(op.a, op.a_index), p.address(op.b, op.b_index)]
    if isinstance(op, wg.WgmmaSp):
        parts, args = [*parts, op.selector], [*args, f"{p.names.buffer(op.meta.name)}[0]"]
    helper = ptx.wgmma(op.a.dtype, op.cols, "sp" if isinstance(op, wg.WgmmaSp) else "")
    return p.call(helper, *args, template=f"<{', '.join(map(str, parts))}>")


def _wgmma_rs(p: Printer, op: wg.WgmmaRs) -> str:
    parts = ", ".join(map(str, [*op.b_tile, int(op.b_major == "mn")]))
    args = p.names.buffer(op.acc.name), p.names.buffer(op.a.name), p.address(op.b, op.b_index)
    return p.call(ptx.wgmma(op.b.dtype, op.cols, "rs"), *args, template=f"<{parts}>")


def _peer(p: Printer, buf: Buffer, index: Expr, rank: Expr) -> str:
    """The address of an element of a buffer of another block: nvcc maps the buffer once."""
    first = CText(p.call(ptx.PEER, p.names.buffer(buf.name), p.expr(rank)), PRIMARY, UNSIGNED)
    return join("+", first, render(index * buf.dtype.nbytes, p.names.value), UNSIGNED).text


def _cluster_st(p: Printer, op: wc.ClusterSt) -> str:
    n, dtype = len(op.vals), op.buf.dtype
    vals = [p.typed(e, dtype).within(PRIMARY) for e in op.vals]
    value = vals[0] if n == 1 else ptx.vector(dtype, vals)
    return p.call(ptx.cluster_st(n * dtype.nbytes), _peer(p, op.buf, op.index, op.rank), value,
                  _peer(p, op.bars, op.bar, op.rank))  # fmt: skip


def try_wait(p: Printer, op: w.MbarTryWait) -> str:
    """Whether a phase has completed, in the form that the architecture has."""
    helper = ptx.CLUSTER_TRY_WAIT if op.cluster else ptx.MBAR_TRY_WAIT if p.hopper else ptx.MBAR_TEST_WAIT
    return p.call(helper, p.address(op.bars, op.index), p.expr(op.parity))


def _set_registers(p: Printer, op: wg.SetRegisters) -> str:
    way = "inc" if op.count > at_launch(p.func.threads, p.func.min_blocks) else "dec"
    return p.call(ptx.SET_REGISTERS[way], template=f"<{op.count}>")


def _st_tagged(p: Printer, op: StTagged) -> str:
    dtype = op.buf.dtype
    values = [p.typed(e, dtype).within(PRIMARY) for e in (*op.vals, op.tag)]
    return p.call(ST_TAGGED[dtype.bits, len(values), op.scope], p.address(op.buf, op.index), *values)


#: Ops that define nothing and print as one statement: its text.
STATEMENTS: Final[dict[type[Op], Callable[[Printer, Any], str]]] = {
    w.CpAsync: _cp_async,
    w.BulkCopy: _bulk_copy,
    TensorCopy: _tensor_copy,
    w.CpWait: lambda p, op: p.call(ptx.CP_WAIT, template=f"<{op.pending}>"),
    w.CpCommit: lambda p, op: p.call(ptx.CP_COMMIT),
    w.Barrier: _barrier,
    w.Fence: _fence,
    w.SyncWarp: lambda p, op: "__syncwarp()",
    w.MbarInit: lambda p, op: p.call(ptx.MBAR_INIT, p.address(op.bars, op.index), str(op.count)),
    w.MbarArrive: _mbar_arrive,
    w.CpArrive: lambda p, op: p.call(ptx.CP_ARRIVE, p.address(op.bars, op.index)),
    StTagged: _st_tagged,
    Trap: lambda p, op: p.call(TRAP, p.expr(op.where)),
    LaunchNext: lambda p, op: p.call(ptx.LAUNCH_NEXT),
    LaunchWait: lambda p, op: p.call(ptx.LAUNCH_WAIT),
    wc.ClusterBarrier: lambda p, op: p.call(ptx.CLUSTER_BARRIER),
    wc.ClusterSt: _cluster_st,
    wc.ClusterArrive: lambda p, op: p.call(ptx.CLUSTER_ARRIVE, _peer(p, op.bars, op.index, op.rank)),
    wg.Wgmma: _wgmma,
    wg.WgmmaSp: _wgmma,
    wg.WgmmaRs: _wgmma_rs,
    wg.SetRegisters: _set_registers,
    wg.WgmmaFence: lambda p, op: p.call(ptx.WGMMA_FENCE),
    wg.WgmmaCommit: lambda p, op: p.call(ptx.WGMMA_COMMIT),
    wg.WgmmaWait: lambda p, op: p.call(ptx.WGMMA_WAIT, template=f"<{op.pending}>"),
}
