"""The predicted time of an N:M product by outer products on CUDA cores: multiply-adds of the busiest SM's tiles.

    time = launch + turn + fill + max(fma, chain, l2, hbm) + exposed

``fma`` and ``l2`` are of the turns of the SM with the most blocks, ``chain`` of those of a single warp, where there are
too few to take turns.  Fitted to 50 kernels on one H200 (tests/cost/data/nm.csv), with the memory cold: within 3 % in
the median, 6 % for nine of ten.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.outer import (
    HIGH,
    list_words,
    share_of,
    shared_bytes,
    threads,
    turns_of,
    windows_of,
)
from sparsegen.products.cost import in_the_way, nbytes, rate
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "fma": "multiply-adds of the busiest SM's tiles, conflicts of registers included, and a turn's other instructions",
    "chain": "the same of one warp alone, with what it waits for in each turn",
    "l2": "windows of x, values and lists of all turns of the busiest SM, through its port to L2",
    "hbm": "W's values and lists, x, y and the epilogue's arrays, once each",
    "exposed": "units that are nearly as busy as the longest get in its way",
    "fill": "the first turns of each round of blocks and the way of its sums to y, while nothing is multiplied",
    "turn": "where x's rows are no whole pieces of 4 columns, writing them so by a kernel before",
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of W",
    "K": "columns of W",
    "N": "columns of x",
    "B": "bytes of W's tiles and lists",
    "E": "bytes of bias, scale and residual",
    "each": "columns of x of a lane",
    "turns": "turns of a tile",
    "entries": "kept columns of a turn",
    "slot": "bytes of a turn",
    "here": "blocks of the busiest SM",
    "parties": "their warps of the busiest sub-core, round by round",
    "rounds": "blocks of the busiest SM over those that it runs at a time",
    "odd": "1 if x is first written row by row, else 0",
}
ADDED: Final = frozenset(("exposed", "fill", "turn", "launch"))
# ---- fitted
#: Clocks of a multiply-add: by the kernels' machine code a quarter of them has three operands that no other left at
#: hand, so two in one of the two banks of registers.  Clocks of an entry of a warp besides.
FMA, ENTRY = 1.224, 7.9
#: Clocks of a turn of a warp besides: instructions, and with what it waits for.
TURN, WAIT = 96.0, 219.0
#: DRAM latencies of a round of blocks, and the power with which busy units get in each other's way.
FILL, NORM = 16.5, 7.9
#: The shares of an SM's port to L2 and of DRAM's bandwidth that a walk reaches.
PORT, SHARE = 0.49, 0.8
#: What a kernel costs that follows another one, over a launch alone (estimated).
NEXT: Final = 0.5
#: Registers of a thread besides its sums and the operands of two entries.
BASE: Final = 32


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    blocks: int
    turns: int
    entries: int
    threads: int
    shared: int
    registers: int
    resident: int


def shape_of(p: NmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    n, m, vector = p.pattern[:3]
    windows, share = windows_of(m, s.deep), share_of(vector)
    blocks, count = -(-p.m // s.rows) * -(-p.n // s.cols), threads(s.rows, s.cols, s.each)
    shared = shared_bytes(s.rows, s.cols, windows * m, windows * n, share, s.stages)
    registers = BASE + HIGH * s.each + 2 * (HIGH + s.each)
    resident = min(occupancy(registers, shared, count, device).blocks, -(-blocks // device.sms))
    return Shape(blocks, turns_of(p.k, m, windows), windows * n, count, shared, registers, resident)


def packed(p: NmNumbers, s: Schedule) -> int:
    """Bytes of the tiles of a schedule's rows, and of their lists."""
    n, m, vector = p.pattern[:3]
    windows = windows_of(m, s.deep)
    words = windows * n * s.rows + list_words(windows * n, s.rows, share_of(vector))
    return int(4 * -(-p.m // s.rows) * turns_of(p.k, m, windows) * words)


def price(p: NmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    here = -(-g.blocks // device.sms)
    # of each round's blocks at a time the warps are dealt to sub-cores, and a round ends with the fullest of these
    at_a_time = (*(g.resident,) * (here // g.resident), here % g.resident)
    values = {
        "M": p.m, "K": p.k, "N": p.n, "B": packed(p, s), "E": p.operands, "item": p.item, "each": s.each,
        "turns": g.turns, "entries": g.entries, "slot": g.shared / s.stages, "here": here,
        "rounds": -(-here // g.resident), "b": g.resident, "launch": device.launch_s,
        "f": device.clock, "bw_G": device.hbm_read_gbs * 1e9, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
        "fma": device.f32_fma_per_clk_sm / 32 / device.sub_cores, "lat_dram": device.lat_dram,
        "odd": 1 * p.turned("row"),
        "parties": sum(-(-blocks * g.threads // 32 // device.sub_cores) for blocks in at_a_time),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    turns, turn = v.here * v.turns, v.entries * (HIGH * v.each * FMA / v.fma + ENTRY)  # clocks of a warp's turn
    busy = {
        "fma": v.turns * v.parties * (turn + TURN) / v.f,
        "chain": v.rounds * v.turns * (turn + WAIT) / v.f,
        "l2": turns * v.slot / (PORT * v.bw_L2),
        "hbm": nbytes(v) / (SHARE * v.bw_G),
    }
    most, exposed = in_the_way(busy, NORM, a)
    fill = v.rounds * FILL * v.lat_dram / v.f
    odd = v.odd * (NEXT * v.launch + 2 * v.item * v.K * v.N / v.bw_G)
    terms = {**busy, "exposed": exposed, "fill": fill, "turn": odd, "launch": v.launch}
    return v.launch + odd + fill + most + exposed, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
