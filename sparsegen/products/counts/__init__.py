"""Counts of a product's launch from its schedule alone: instructions, bytes, sectors, wavefronts, for any size.

The names are those of the emulator (``k.counts()``), and tests compare both.  What does not depend on the weights is
exact.  What does (how long the copies of values are, on which banks the decode's loads meet) is expected for zeros that
lie anywhere: see :mod:`sparsegen.products.counts.data`.  Neither the emulator nor the warp level is imported.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from sparsegen.cost.counts.requests import sectors
from sparsegen.formats.bitmap import SLACK
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.op_spmm import SLAB
from sparsegen.products.counts.base import LANE, Call, Orders, Shares
from sparsegen.products.counts.data import PIECE, Refills, conflicts, copies
from sparsegen.products.counts.ends import ends
from sparsegen.products.geometry import BULK, CHUNK, legal
from sparsegen.products.product import Epilogue, Problem
from sparsegen.products.schedule import SpmmSchedule

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

#: Bytes of a tile's index entry and of its masks.
INDEX, MASKS = 16, 128
#: Turns whose places are looked up at once, one a lane.
LOOK = 32


def counts(
    p: Problem, epilogue: Epilogue, schedule: SpmmSchedule, device: DeviceProfile, orders: Orders
) -> dict[str, float]:
    """The counts of a launch of a complete schedule, none of them zero; ScheduleError if it cannot run there."""
    if schedule.family != "bitmap" or not schedule.complete:
        raise ScheduleError(
            f"there are no counts of {str(schedule)!r}: "
            + ("the cost model has to choose the rest" if schedule.family == "bitmap" else "it is a library's product"),
            hint="take the schedule of a compiled kernel: sg.compile(product, schedule='bitmap').schedule",
        )
    g = legal(p, schedule, device)
    bulk = device.compute_capability >= BULK
    call = Call(p, epilogue, schedule, g, orders, Shares.of(schedule, g), bulk)
    out: dict[str, float] = {}
    for part in (_ring(call), _copies(call), _decode(call), _columns(call), ends(call)):
        for name, n in part.items():
            out[name] = out.get(name, 0) + n
    return {name: n for name, n in out.items() if n}


def _ring(c: Call) -> Counter[str]:
    """The rings of all warps but the copies themselves: barriers, waits, places of the turns to come."""
    turns, mine, own = c.shares.turns, c.shares.mine, c.shares.own
    refills, looks = c.refills, np.where(turns > 0, (turns - 1) // LOOK + 1, 0)
    all_looks = c.g.tiles * len(mine) * int(looks.sum())
    out = Counter({
        "cvt.u32.u32": c.warps,  # the zero that registers begin with
        "shfl": c.warps + 2 * refills,
        "ld.global": 2 * all_looks,
        "bytes.global.read": 2 * all_looks * 128,
        "ld.shared": refills,  # the place of the first chunk
        "bytes.shared.read": refills * 128,
        "wavefronts.shared": refills,
    })  # fmt: skip
    if c.bulk:
        out.update({
            "mbar_init": c.s.stages * c.warps, "fence": c.warps, "sync": c.warps + refills, "mbar_arrive": refills,
            "mbar_try_wait": refills, "bulk_copy": 3 * refills,
        })  # fmt: skip
    else:
        out.update({"sync": 2 * refills, "cp_wait": refills, "cp_commit": c.s.stages * c.warps + refills})
    for begin, n in zip(c.shares.begin, turns, strict=True):
        if n:
            turn = np.minimum(np.arange(0, n, LOOK)[:, None] + LANE, n - 1)
            tile = ((begin + turn * c.s.warps[1]) * c.g.strips)[None] + own[:, None, None]
            for at in (tile, tile + mine[:, None, None]):
                out["sectors.global.read"] += c.g.tiles * int(sectors(at.reshape(-1, 32) * INDEX, 4).sum())
    return out


def _copies(c: Call) -> dict[str, float]:
    """Index, masks and values of every turn, into the rings."""
    p, own, mine, tiles = c.p, c.shares.own, c.shares.mine, c.g.tiles
    last = own + mine == c.g.strips
    kinds = [
        Refills(tiles * int(here.sum()) * slabs, int(n), cut, cols)
        for n in np.unique(mine) for cut in (False, True) if (here := (mine == n) & (last == cut)).any()
        for slabs, cols in ((p.k // SLAB, SLAB), (int(p.k % SLAB > 0), p.k % SLAB)) if slabs
    ]  # fmt: skip
    values = copies(p, kinds)
    fixed = tiles * c.g.strips * c.g.slabs * (INDEX + MASKS)
    nbytes = fixed + CHUNK * (tiles * (p.chunks - SLACK) + values.extra)
    if c.bulk:
        return {"bytes.bulk": nbytes}
    at = (np.arange(c.g.slabs)[:, None] * c.g.strips + own).reshape(-1, 1) * INDEX
    lanes = np.tile(mine, c.g.slabs)[:, None]
    index = int(sectors(at + INDEX * LANE, INDEX, lanes > LANE).sum())
    slabs = tiles * c.g.slabs
    pieces = slabs * int((1 - (-mine * MASKS // (16 * PIECE))).sum()) + values.pieces
    return {
        "cp_async": pieces,
        "cp_async.shared": pieces,
        "bytes.global.read": nbytes,
        "bytes.shared.write": nbytes,
        "sectors.global.read": tiles * index + slabs * c.g.strips * MASKS // 32 + values.sectors,
        "wavefronts.cp_async": slabs * int((-(-mine // 8) + mine).sum()) + values.wavefronts,
    }


def _decode(c: Call) -> dict[str, float]:
    """Tiles into fragments, and their products with x."""
    s, mine, refills = c.s, c.shares.mine, c.refills
    tiles = c.g.tiles * c.g.strips * c.g.slabs
    slabs = c.g.tiles * c.g.slabs
    scans = refills + slabs * int(np.minimum(mine, s.rows - 1).sum())  # of the strip to come, if a warp may have one
    fragments, bad = 4 * tiles, c.g.tiles * conflicts(c.p)
    halves = 2 * (8 * refills + 4 * fragments) if c.one else 0  # of x and of the weights, to f32
    # the only slot of the only warp has an address that is known
    known = s.warps == (1, 1) and c.g.slabs == 1
    out: dict[str, float] = {
        "add.u32": 8 * scans + 4 * fragments,
        "and.u32": 4 * scans + fragments + halves // 2,
        "shl.u32": 3 * scans + 3 * fragments,
        "shr.u32": 7 * tiles + halves // 2,
        "sub.u32": scans + refills,
        "mul.u32": 2 * fragments + refills,
        "cvt.u32.s32": (1 if known else 2) * refills,
        "cvt.u32.u32": refills if known else 0,
        "popc": 4 * scans + fragments,
        "shfl": 5 * scans,
        "dp4a": fragments,
        "funnel": 4 * fragments,
        "prmt": 8 * fragments,
        "ld.shared": tiles + tiles + 4 * fragments,  # masks, index, values
        "bytes.shared.read": tiles * (128 + 16 * 32) + 4 * fragments * 8 * 32,
        "wavefronts.shared": tiles * (1 + 4) + 8 * fragments + bad,
        "conflicts.shared": bad,
    }
    if c.one:
        return out | {"cvt.u16.u32": halves, f"cvt.f32.{c.p.dtype}": halves, "fma.f32": 8 * fragments}
    return out | {f"mma.{s.mma}": c.blocks * fragments}


def _columns(c: Call) -> Counter[str]:
    """Loads of x: each slab's by every warp that has strips, for each tile of columns."""
    p, blocks, times = c.p, c.blocks, len(c.shares.mine)
    by_rows = c.orders.x == "row" and p.n > 1
    length = blocks if by_rows else 4
    vec = c.orders.vec if by_rows == (c.orders.x == "row") else 1
    wide = min(vec, length)
    same = p.n == 1 and blocks == 1
    runs = [(f, j, 0) for f in range(4) for j in range(4)] if by_rows else [
        (f, 0, n) for f in range(4) for n in range(blocks)
    ]  # fmt: skip
    out: Counter[str] = Counter()
    slab = np.arange(c.g.slabs)[:, None] * SLAB + LANE % 4 * 4
    for column in range(0, c.g.tiles * c.s.cols, c.s.cols):
        across = np.zeros(32, np.int64) if same else column + LANE // 4 * blocks
        for f, j, n in runs:
            for e in range(0, length, wide):
                row = slab + (16 * f + j + (0 if by_rows else e))
                col = across + n + (e if by_rows else 0)
                at = row * p.n + col if by_rows else col * p.k + row
                on = (row < p.k) & (same | (col < p.n))
                out["ld.global"] += times * int(on.any(axis=1).sum())
                out["bytes.global.read"] += times * int(on.sum()) * 2 * wide
                out["sectors.global.read"] += times * int(sectors(2 * at, 2 * wide, on).sum())
    if length == 1:
        out["cvt.u32.u16"] = len(runs) * c.refills
    else:
        out["pack"] = len(runs) * length // 2 * c.refills
    if by_rows:
        out["prmt"] = 8 * blocks * c.refills
    return out


__all__ = ["Orders", "counts"]
