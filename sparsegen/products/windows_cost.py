"""The predicted time of an N:M product whose lanes have a window each: W's bytes, words of x, instructions.

    time = launch + latency + max(hbm, shared, issue) + exposed

with the memory cold, as for ``nm_lanes``.  Fitted to 50 kernels on one H200 (tests/cost/data/nm.csv): within 4 % in the
median, 9 % for nine of ten.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.lower.windows import most_met
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.nm import LANES, x_words
from sparsegen.products import nm_cost
from sparsegen.products.cost import in_the_way, nbytes, rate
from sparsegen.products.nm import NmNumbers
from sparsegen.products.nm_cost import BASE
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = nm_cost.REASONS | {
    "hbm": "W's packed values and offsets, x, y and the epilogue's arrays; of W a part again for more tiles of columns",
    "shared": "the words of x that each entry of 32 windows needs, out of shared memory, and x into it",
    "latency": "x before the first entry of each round of blocks, and the sums over lanes after the last",
}
SYMBOLS: Final[dict[str, str]] = nm_cost.SYMBOLS | {
    "entries": "entries of a lane of each of a block's groups of rows, with those that fill up chunks",
    "ends": "instructions of a block that add up its lanes' sums",
}
# ---- fitted
#: Instructions of an entry, of each word of x for it, of each sum, and to stage a word of x.
ENTRY, WORD, SUM, STAGE = 1.0, 2.41, 4.0, 49.0
#: DRAM latencies of a round of blocks, and the power with which busy units get in each other's way.
ROUND, NORM = 7.33, 8.0
#: Warps' worth of latency that a warp's instruction waits for.
PARTIES: Final = 0.31
#: The share of DRAM's bandwidth that W's chunks reach, and of W that comes again for each further tile of columns.
SHARE, AGAIN = 0.842, 0.335
#: Wavefronts of a warp's read of x as it is, over the root of the columns that a window keeps: entries are in order, so
#: the more there are, the nearer are those of 32 windows.
CROWD: Final = 2.46
#: Instructions of a sum over lanes: five shuffles, five additions, the choice of the lane that stores it.
LAST: Final = 11


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    blocks: int
    pitch: int
    shared: int
    registers: int
    resident: int


def shape_of(p: NmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    c, m = p.chunks, p.pattern[1]
    pitch, groups = up(-(-p.k // m), LANES), -(-p.m // c.windows)
    blocks = -(-groups // s.warps) * -(-p.n // s.cols)
    nbytes = 4 * pitch * m * x_words(s.cols, p.item)
    need = BASE + c.windows * s.cols + 2 * (c.stored * p.item // 4 + c.words)
    resident = min(occupancy(need, nbytes, LANES * s.warps, device).blocks, -(-blocks // device.sms))
    return Shape(blocks, pitch, nbytes, need, resident)


def packed(p: NmNumbers) -> int:
    """Bytes of W's values and offsets: of all groups of rows and all lanes of 32 windows."""
    c = p.chunks
    pitch = up(-(-p.k // p.pattern[1]), LANES)
    return -(-p.m // c.windows) * pitch * c.parts * (c.stored * p.item + 4 * c.words)


def price(p: NmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    here, c, words = -(-g.blocks // device.sms), p.chunks, x_words(s.cols, p.item)
    n, m = p.pattern[:2]
    values = {
        "M": p.m, "K": p.k, "N": p.n, "B": packed(p), "E": p.operands, "item": p.item, "cols": s.cols, "words": words,
        "entries": s.warps * (g.pitch // LANES) * c.parts * c.entries, "ends": s.warps * c.windows * s.cols * LAST,
        "held": g.pitch * m, "here": here,
        "degree": 1 if s.layout == "offsets" else min(CROWD * n**0.5, most_met(m * words, m)),
        "rounds": -(-here // g.resident), "warps": s.warps, "b": g.resident, "launch": device.launch_s,
        "sub": device.sub_cores, "f": device.clock, "bw_G": device.hbm_read_gbs * 1e9,
        "bw_S": device.bw_shared / device.sms, "lat_dram": device.lat_dram,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    warps = v.b * v.warps / v.sub  # of a sub-core
    entries, staged = v.here * v.entries, v.here * v.held * v.words / LANES  # of the busiest SM, for 32 lanes
    issued = entries * (ENTRY + v.words * WORD + v.cols * SUM) + staged * STAGE + v.here * v.ends
    again = v.B * AGAIN * (a.ceil(v.N / v.cols) - 1)
    busy = {
        "hbm": (nbytes(v) + again) / (SHARE * v.bw_G),
        "shared": (entries * v.words * v.degree + staged) * 128 / v.bw_S,
        "issue": issued / (v.sub * v.f) * (warps + PARTIES) / warps,
    }
    most, exposed = in_the_way(busy, NORM, a)
    latency = v.rounds * ROUND * v.lat_dram / v.f
    terms = {**busy, "exposed": exposed, "latency": latency, "launch": v.launch}
    return v.launch + latency + most + exposed, terms


LAW: Final = Law(law, SYMBOLS, REASONS, nm_cost.ADDED, rate, "TB/s")
