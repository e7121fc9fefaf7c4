"""Whole programs as on the GPU: a producer and consumers on a ring of bulk copies, a split sum, a streaming warp."""

from __future__ import annotations

from typing import Any

import numpy as np
from emulator_kit import glob, kernel, shared

from sparsegen.ir import warp as w
from sparsegen.ir.expr import as_expr, minimum
from sparsegen.ir.types import f64, pred, u32, u64

STAGES, TILE, CONSUMERS = 3, 64, 2


def ring(tiles: int = 7, blocks: int = 2) -> w.Func:
    """A producer lane fills a ring by bulk copies; two warps sum the tiles, each thread its own column."""
    src, out = glob("src", f64, blocks * tiles * TILE), glob("out", f64, blocks * TILE)
    ring_, bars = shared("ring", f64, STAGES * TILE), shared("bars", u64, 2 * STAGES)  # full 0..2, empty 3..5

    def body(b: Any, v: Any) -> None:
        with b.if_(v.tid.eq(0)):
            for s in range(STAGES):
                b.emit(w.MbarInit(bars, b.let("s", v.tid * 0 + s), 1))
                b.emit(w.MbarInit(bars, b.let("s", v.tid * 0 + STAGES + s), CONSUMERS))
            b.fence("mbar_init")
        b.barrier()
        with b.if_(v.warp.eq(CONSUMERS)):
            with b.if_(v.lane.eq(0)), b.for_("i", 0, tiles) as i:
                slot, turn = b.let("slot", i % STAGES), b.let("turn", i // STAGES)
                b.mbar_wait(bars, slot + STAGES, (turn + 1) % 2)
                b.fence("async")
                b.emit(w.MbarArrive(bars, slot, b.let("bytes", v.lane * 0 + TILE * 8)))
                b.emit(w.BulkCopy(ring_, slot * TILE, src, (v.bx * tiles + i) * TILE, v.lane * 0 + TILE, bars, slot))
        with b.else_():
            acc = b.alloc("acc", f64, 1)
            b.st(acc, 0, b.const(f64, 0.0))
            with b.for_("j", 0, tiles) as j:
                slot = b.let("slot", j % STAGES)
                b.mbar_wait(bars, slot, j // STAGES % 2)
                b.st(acc, 0, b.binary("add", b.ld(acc, 0), b.ld(ring_, slot * TILE + v.tid)))
                b.sync()
                with b.if_(v.lane.eq(0)):
                    b.emit(w.MbarArrive(bars, slot + STAGES))
            b.st(out, v.bx * TILE + v.tid, b.ld(acc, 0))

    return kernel(body, (src, out), (ring_, bars), threads=32 * (CONSUMERS + 1), grid=(blocks, 1, 1))


def ring_args(f: w.Func) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments and the expected output."""
    src, blocks = f.params[0], f.grid[0]
    data = np.random.default_rng(3).uniform(-1, 1, src.size)
    total = np.zeros((blocks, TILE))
    for tile in data.reshape(blocks, -1, TILE).transpose(1, 0, 2):
        total += tile
    return {"src": data, "out": np.zeros(blocks * TILE)}, {"out": total.reshape(-1)}


def split_sum(splits: int = 4, groups: int = 3) -> w.Func:
    """Each block sums its part; the last of a group to arrive adds the group's partial sums in fixed order."""
    n = 64
    src, out = glob("src", f64, splits * groups * n), glob("out", f64, groups)
    part, count = glob("part", f64, splits * groups), glob("count", u32, groups)
    lanes, last = shared("lanes", f64, n), shared("last", u32, 1)

    def body(b: Any, v: Any) -> None:
        b.st(lanes, v.tid, b.ld(src, (v.by * splits + v.bx) * n + v.tid))
        b.barrier()
        with b.if_(v.tid.eq(0)):
            acc = b.alloc("acc", f64, 1)
            b.st(acc, 0, b.const(f64, 0.0))
            with b.for_("i", 0, n) as i:
                b.st(acc, 0, b.binary("add", b.ld(acc, 0), b.ld(lanes, i)))
            b.st(part, v.by * splits + v.bx, b.ld(acc, 0))
            b.fence("gpu")
            old = b.atom("inc", count, v.by, splits - 1)
            b.fence("gpu")
            b.st(last, 0, old)
        b.barrier()
        is_last = b.ld(last, 0, lo=0, hi=splits - 1).eq(splits - 1)
        with b.if_(is_last), b.if_(v.tid.eq(32)):
            acc = b.alloc("acc", f64, 1)
            b.st(acc, 0, b.const(f64, 0.0))
            with b.for_("i", 0, splits) as i:
                b.st(acc, 0, b.binary("add", b.ld(acc, 0), b.ld(part, v.by * splits + i)))
            b.st(out, v.by, b.ld(acc, 0))

    return kernel(body, (src, out, part, count), (lanes, last), threads=n, grid=(splits, groups, 1))


def split_args(f: w.Func) -> tuple[dict[str, Any], dict[str, Any]]:
    splits, groups, _ = f.grid
    data = np.random.default_rng(5).uniform(-1, 1, f.params[0].size)
    want = [sum(float(np.add.accumulate(np.r_[0.0, p])[-1]) for p in g) for g in data.reshape(groups, splits, -1)]
    args = {
        "src": data,
        "out": np.zeros(groups),
        "part": np.zeros(splits * groups),
        "count": np.zeros(groups, np.uint32),
    }
    return args, {"out": np.array(want), "count": np.zeros(groups, np.uint32)}


def last_warp(warps: int = 4) -> w.Func:
    """Each warp of a block leaves a number in shared memory; the last one to arrive adds them up in order."""
    out, part, count = glob("out", f64, 2), shared("part", f64, warps), shared("count", u32, 1)

    def body(b: Any, v: Any) -> None:
        with b.if_(v.tid.eq(0)):
            b.st(count, 0, as_expr(0))
        b.barrier()
        with b.if_(v.lane.eq(0)):
            b.st(part, v.warp, b.convert(b.name(v.warp + v.bx, "own"), f64))
            b.fence("block")
            old = b.atom("inc", count, 0, warps - 1)
            b.fence("block")
            with b.if_(old.eq(warps - 1)):
                acc = b.alloc("acc", f64, 1)
                b.st(acc, 0, b.const(f64, 0.0))
                with b.for_("i", 0, warps) as i:
                    b.st(acc, 0, b.binary("add", b.ld(acc, 0), b.ld(part, i)))
                b.st(out, v.bx, b.ld(acc, 0))

    return kernel(body, (out,), (part, count), threads=32 * warps, grid=(2, 1, 1))


def last_warp_args(f: w.Func) -> tuple[dict[str, Any], dict[str, Any]]:
    warps = f.threads // 32
    return {"out": np.zeros(2)}, {"out": np.array([sum(range(warps)), sum(range(1, warps + 1))], float)}


def stream(rows: int = 9, depth: int = 3, warps: int = 2) -> w.Func:
    """Each warp streams down its own strip: rows come through a cp.async ring, x neighbours by shuffle, no barrier."""
    u, out = glob("u", f64, rows * 32 * warps), glob("out", f64, rows * 32 * warps)
    tile = shared("tile", f64, warps * depth * 32)
    pitch = 32 * warps

    def body(b: Any, v: Any) -> None:
        base = b.let("base", v.warp * (depth * 32))

        def issue(y: Any) -> None:
            b.cp_async(tile, base + y % depth * 32 + v.lane, u, y * pitch + v.tid, 1)

        for y in range(depth - 1):
            issue(v.lane * 0 + y)
            b.commit()
        with b.for_("y", 0, rows) as y:
            b.wait(depth - 2)
            b.sync()
            x = b.ld(tile, base + y % depth * 32 + 31 - v.lane)  # the row reversed: another lane's copy
            with b.if_(y.lt(rows - depth + 1)):
                issue(minimum(y + depth - 1, rows - 1))
            b.commit()
            left, right = b.shfl("up", x, 1), b.shfl("down", x, 1)
            b.st(out, y * pitch + v.tid, b.binary("add", b.binary("add", left, right), x))

    return kernel(body, (u, out), (tile,), threads=32 * warps)


def stream_args(f: w.Func) -> tuple[dict[str, Any], dict[str, Any]]:
    u = np.random.default_rng(6).uniform(-1, 1, f.params[0].size)
    x = u.reshape(-1, f.threads // 32, 32)[:, :, ::-1]
    left, right = np.concatenate([x[..., :1], x[..., :-1]], -1), np.concatenate([x[..., 1:], x[..., -1:]], -1)
    return {"u": u, "out": np.zeros(u.size)}, {"out": ((left + right) + x).reshape(-1)}


def vote() -> w.Func:
    """Has any thread of the block a negative number?  A reduction tree with warp syncs and a barrier."""
    src, out, tile = glob("src", f64, 64), glob("out", f64, 64), shared("tile", f64, 64)

    def body(b: Any, v: Any) -> None:
        b.st(tile, v.tid, b.ld(src, v.tid))
        for step in (16, 8, 4, 2, 1):
            b.sync()
            with b.if_(v.lane.lt(step)):
                b.st(tile, v.tid, b.binary("min", b.ld(tile, v.tid), b.ld(tile, v.tid + step)))
        b.barrier()
        neg = b.fresh("neg", pred)
        low = b.binary("min", b.ld(tile, 0), b.ld(tile, 32))
        b.emit(w.Convert((neg,), b.binary("min", low, b.const(f64, 0.0))))
        b.st(out, v.tid, b.select(neg, b.const(f64, 1.0), b.const(f64, 0.0)))

    return kernel(body, (src, out), (tile,), threads=64)


def vote_args(f: w.Func) -> tuple[dict[str, Any], dict[str, Any]]:
    data = np.arange(64.0)
    data[45] = -1.0
    return {"src": data, "out": np.zeros(64)}, {"out": np.ones(64)}


PROGRAMS = {"ring": (ring, ring_args), "split_sum": (split_sum, split_args), "stream": (stream, stream_args),
            "vote": (vote, vote_args), "last_warp": (last_warp, last_warp_args)}  # fmt: skip
