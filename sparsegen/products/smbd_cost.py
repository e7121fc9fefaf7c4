"""The predicted time of SpInfer's own product: what its ideas change is population counts, waits, and loads of x.

    time = launch + turn + start + splits + SLOW * max(count, issue, tensor, shared, l2, hbm, chain)

Operations are counted in the lowered program.  The rate of population counts is the hardware's, and SLOW is by what the
paper's published code took longer on one H200 (28672x8192x16, 40 to 70 % zeros: 173 to 186 us); our kernel's own times
were not fitted.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.smbd import BITMAPS, STRIPS, fragments, shared_bytes, sums
from sparsegen.products import vectors_cost
from sparsegen.products.smbd import NestedNumbers
from sparsegen.products.vectors_cost import NEXT, rate
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    **{name: vectors_cost.REASONS[name] for name in ("tensor", "hbm", "turn", "launch")},
    "count": "population counts of 64 bits: of all of a bitmap, of those below a lane's, and of a second value's",
    "issue": "instructions of the busiest SM: what decodes bitmaps, loads of x, mma, copies",
    "shared": "bitmaps and values out of shared memory, operands of x, and copies into it",
    "l2": "group tiles and slabs of x of the busiest SM's blocks, through its port to L2",
    "chain": "the turns of a block, one after another: barriers, decoding, and the wait for copies that nothing hides",
    "splits": "sums of the blocks that share a row of group tiles, through L2",
    "start": "the first group tile: where it begins, then its values",
}
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of W",
    "K": "columns of W",
    "B": "bytes of W's format",
    "X": "bytes of a row of x",
    "Y": "bytes of y",
    "E": "bytes of bias, scale and residual",
    "cols": "columns of x of a block",
    "W": "warps of a block",
    "here": "turns of the blocks of the busiest SM",
    "turns": "turns of a block",
    "rounds": "blocks of the busiest SM over those that it runs at a time",
    "blocks": "blocks in all",
    "cut": "1 if several blocks share a row of group tiles, else 0",
    "counts": "population counts of a bitmap",
    "loads": "instructions that load the operands of x of two mma",
    "waits": "the part of the copies' latency that a turn waits for",
    "odd": "1 if x is written row by row first, else 0",
}
ADDED: Final = frozenset(("start", "splits", "turn", "launch"))
# ---- counted
#: Instructions of a bitmap besides population counts of 64 bits, and of a turn and warp: copies, addresses, barriers.
BITMAP_ISSUE, TURN_ISSUE = 17.0, 60.0
#: Wavefronts of a bitmap's loads: half of one for two bitmaps, two of values.
WAVEFRONTS: Final = 2.5
#: Population counts of 32 bits that one of 64 takes, and lanes of a sub-core that do one a clock.
HALVES, LANES = 2, 4
# ---- estimated
#: How much longer than its busiest unit the paper's code takes.
SLOW: Final = 1.4
#: Clocks of a turn's barriers and addresses alone.
CHAIN: Final = 300.0
#: Latencies of L2 until the last of several splits has the others' sums.
EXCHANGE: Final = 5.0
#: Registers of a thread besides its sums and its operands of W, of which twice as many are on their way, and those of
#: the places of x's elements that lanes load themselves.
BASE, PLACES = 60, 8


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    blocks: int
    turns: int
    shared: int
    registers: int
    resident: int


def shape_of(p: NestedNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not."""
    blocks = p.rows * -(-p.n // s.cols) * s.splits
    shared = shared_bytes(p.most, s.cols, s.buffers, s.splits == 1)
    registers = BASE + sums(s.cols, s.warps) + 2 * fragments(s.warps) + (0 if s.ldmatrix else PLACES)
    resident = occupancy(registers, shared, 32 * s.warps, device).blocks
    return Shape(blocks, -(-p.slabs // s.splits), shared, registers, resident)


def price(p: NestedNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    blocks = g.blocks / device.sms
    # with one slot nothing hides the copies; with one group W's decoding does not hide those of x
    waits = 1.0 if s.buffers == 1 else 0.25 if s.groups == 2 else 0.4
    values = {
        "M": p.m, "K": p.k, "X": 2 * p.n, "Y": 2 * p.m * p.n, "B": p.nbytes + 16 * p.rows * p.slabs, "E": p.operands,
        "cols": s.cols, "W": s.warps, "here": max(1.0, blocks) * g.turns, "turns": g.turns,
        "rounds": max(1.0, blocks / g.resident), "blocks": g.blocks, "cut": 1 * (s.splits > 1),
        "counts": 2 if s.two_phase else 3, "loads": 1 if s.ldmatrix else 8, "waits": waits, "odd": 1 * (p.n % 8 > 0),
        "launch": device.launch_s, "f": device.clock, "sub": device.sub_cores, "cpi": device.cpi[f"{p.dtype}.m16n8k16"],
        "bw_S": device.bw_shared / device.sms, "bw_G": device.hbm_read_gbs * 1e9,
        "bw_L2": device.l2_bytes_per_clk_sm * device.clock, "lat_dram": device.lat_dram, "lat_l2": device.lat_l2,
        "sms": device.sms,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    tile = v.B / v.M / v.K * BITMAPS * BITMAPS  # bytes of a group tile, about
    mma = STRIPS * 4 * v.cols / 8
    loads = v.W * v.cols / 4 * v.loads
    counted = v.counts * HALVES * 32 / LANES
    busy = {
        "count": v.here * BITMAPS * counted / v.sub / v.f,
        "issue": v.here * (BITMAPS * (BITMAP_ISSUE + v.counts * HALVES) + loads + mma + v.W * TURN_ISSUE) / v.sub / v.f,
        "tensor": v.here * mma * v.cpi / v.sub / v.f,
        "shared": v.here * (128 * (BITMAPS * WAVEFRONTS + 4 * loads / v.loads) + tile + 128 * v.cols) / v.bw_S,
        "l2": v.here * (tile + 128 * v.cols) / v.bw_L2,
        "hbm": (v.B + v.K * v.X + v.Y + v.E) / v.bw_G,
        "chain": v.turns * v.rounds * (CHAIN + BITMAPS / v.W * counted / 4 + v.waits * v.lat_dram) / v.f,
    }
    sums = 4 * v.blocks * BITMAPS * v.cols  # bytes
    added = {
        "start": 2 * v.lat_dram / v.f,
        "splits": v.cut * (EXCHANGE * v.lat_l2 / v.f + 2 * sums / v.sms / v.bw_L2),
        "turn": v.odd * (NEXT * v.launch + 2 * v.K * v.X / v.bw_G),
        "launch": v.launch,
    }
    return SLOW * a.max(*busy.values()) + sum(added.values()), {**busy, **added}


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
