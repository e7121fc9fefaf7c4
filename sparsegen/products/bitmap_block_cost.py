"""The predicted time of a product with bitmap tiles whose warps share a ring.

    time = launch + turn + start + longest of (hbm, decode, tensor, shared, l2, chain; ring) + exposed + reduce

``decode``: w warps of a sub-core issue w / (w + PARTIES) instructions a clock between them, as in ``bitmap``.
``exposed``: units that are nearly as busy as the longest one get in its way, by the NORM-th root of the sum of powers.
"""

from __future__ import annotations

from typing import Any, Final

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.numbers.bitmap_block import GROUPED, PIECE, is_late, lag
from sparsegen.ir.op_spmm import SLAB, STRIP
from sparsegen.products import cost as plain
from sparsegen.products import gather_cost
from sparsegen.products.bitmap_block import Shape
from sparsegen.products.cost import ITEM, WARPGROUP, in_the_way, nbytes, rate
from sparsegen.products.product import BitmapNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    **{name: plain.REASONS[name] for name in ("hbm", "l2", "tensor", "exposed", "launch")},
    "reduce": "sums of the blocks of a cluster, through each other's shared memory",
    "decode": "instructions that spread values into fragments, and of each turn of the ring; few warps fill few slots",
    "shared": "masks, values and x out of shared memory",
    "chain": "what a warp does with its slabs, one thing after another, and with those that it brings for its set",
    "ring": "each turn of a block's ring takes a loaded DRAM latency, with slots under way that are not read",
    "start": "what a round of blocks waits for before its first tiles, and at its end",
    "turn": gather_cost.REASONS["turn"],
}
SYMBOLS: Final[dict[str, str]] = {
    **{name: plain.SYMBOLS[name] for name in ("M", "K", "N", "B", "E", "cols", "splits", "b")},
    "W": "warps of a block that share a slab",
    "parts": "sets of them, which take slabs by turns",
    "rows": "strips of a warp",
    "stages": "slots of a block's ring",
    "lag": "slots that are read or rest",
    "strips": "strips of 16 rows of W",
    "most": "strips of the busiest block",
    "slabs": "slabs of 64 columns of W",
    "here": "blocks of the busiest SM",
    "odd": "1 if x is written row by row first, else 0",
    "wavefronts": "128-byte wavefronts of a tile's loads",
    "group": "1 if warpgroups multiply, else 0",
}
ADDED: Final = frozenset(("exposed", "reduce", "start", "turn", "launch"))
# ---- counted in SASS (nvcc 13.0, sm_90a)
#: 128-byte wavefronts of a tile's loads from shared memory: 16 of 8 bytes a lane, mask, index.
WAVEFRONTS: Final = plain.WAVEFRONTS
# ---- fitted on one H200 to 463 kernels of 170 products, cold (within 5 % in the median, 18 % for nine of ten), and to
# ---- 39 in a loop (10 and 20 %)
#: Warp instructions of a tile besides mma and loads of x, and of a warp's slab.
TILE, TURN = 70.9, 40.3
#: Warps' worth of latency that a warp's instruction waits for; of a warpgroup's product besides.
PARTIES, TOGETHER = 6.65, 0.696
#: Clocks of a warp's slab alone, of each of its tiles, and of a slab that it brings, besides for each column of x.
CHAIN, CHAIN_TILE, BRING, BRING_COLUMN = 115.0, 185.0, 18.6, 135.0
#: The power with which busy units get in each other's way, and a loaded DRAM latency over the idle one.
NORM, LOADED = 2.56, 1.7
#: Of a round of blocks without tiles DRAM latencies, clocks, and clocks for each column of a warp's mma; and L2
#: latencies until blocks of a cluster have each other's sums.
START, SETTLE, SETTLE_COLUMN, MEET = 4.38, 1827.0, 58.4, 4.43
#: What a kernel costs that follows another one, over a launch alone.
NEXT: Final = 1.39


def price(p: BitmapNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    grouped = s.mma == GROUPED
    whole = (p.k if p.columns or p.n == 1 else p.n) % PIECE == 0
    clusters = device.sms // s.splits * s.splits
    values = {
        "M": p.m, "K": p.k, "N": p.n, "B": p.nbytes, "E": p.operands, "item": ITEM,
        "W": s.warps[0],
        "parts": s.warps[1], "cols": s.cols, "rows": s.rows, "stages": s.stages,
        "lag": lag(s.warps[1], is_late(s.mma, s.cols)), "splits": s.splits, "b": g.resident,
        "strips": -(-p.m // STRIP), "slabs": -(-p.k // SLAB), "here": -(-g.blocks // clusters), "most": g.most,
        "wavefronts": plain.NARROW_WAVEFRONTS if p.narrow else WAVEFRONTS,
        "odd": 1 * (not whole or (grouped and p.columns)), "group": 1 * grouped, "launch": device.launch_s,
        "SMs": device.sms, "sub": device.sub_cores, "f": device.clock, "cpi": device.cpi["f16.m16n8k16"],
        "bw_G": device.hbm_read_gbs * 1e9, "bw_S": device.bw_shared / device.sms,
        "bw_L2": device.l2_bytes_per_clk_sm * device.clock, "lat_dram": device.lat_dram, "lat_l2": device.lat_l2,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    turns = a.ceil(a.ceil(v.slabs / v.splits) / v.parts)
    tile = v.B / (v.strips * v.slabs)  # bytes
    tiles = v.here * turns * v.parts * v.W * v.rows  # of the busiest SM
    rounds = a.ceil(v.here / v.b)
    w = v.b * v.W * v.parts / v.sub
    loads = (1 - v.group) * v.cols / 4  # ldmatrix of x, for all strips of a warp
    mma = (1 - v.group) * v.cols / 2
    issued = tiles * (TILE + mma + (loads + TURN) / v.rows)
    cycles = v.group * STRIP * SLAB * v.cols / WARPGROUP * v.sub + (1 - v.group) * 4 * v.cols / 8 * v.cpi
    wide = v.cols * SLAB * ITEM  # bytes of x of a slab
    sums = v.here * v.W * v.rows * STRIP * v.cols * 4  # bytes of a block's sums
    busy = {
        "hbm": nbytes(v) / v.bw_G,
        "decode": issued / v.sub / v.f * (1 + (PARTIES + TOGETHER * v.group) / w),
        "tensor": tiles * cycles / v.sub / v.f,
        "shared": tiles * (v.wavefronts + v.cols / v.rows) * 128 / v.bw_S,
        "chain": rounds * turns * (CHAIN + CHAIN_TILE * v.rows + (BRING + BRING_COLUMN * v.cols) / v.W) / v.f,
        "l2": v.here * turns * v.parts * (v.most * tile + wide) / v.bw_L2,
    }
    ring = rounds * turns * v.parts * LOADED * v.lat_dram / (v.stages - v.lag) / v.f
    longest, exposed = in_the_way(busy, NORM, a)
    terms = {
        **busy, "ring": ring, "exposed": exposed,
        "reduce": sums * 2 * (v.parts - 1 / v.splits) / v.bw_S + (v.splits - 1) * MEET * v.lat_l2 / v.f,
        "start": rounds * (START * v.lat_dram + SETTLE + SETTLE_COLUMN * v.cols) / v.f,
        "turn": v.odd * (NEXT * v.launch + 2 * ITEM * v.K * v.N / v.bw_G), "launch": v.launch,
    }  # fmt: skip
    added = v.launch + terms["start"] + terms["turn"] + terms["reduce"]
    return a.max(longest + exposed, ring) + added, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
