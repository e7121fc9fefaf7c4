"""The predicted time of an N:M product on CUDA cores: W's bytes, words of x out of shared memory, instructions.

    time = launch + latency + max(hbm, shared, issue) + exposed

with the memory cold.  The constants are fitted to 113 kernels on one H200 (tests/cost/data/nm.csv): within 4 % in the
median, 11 % for nine of ten.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.nm import LANES, shared_words, staged, x_words
from sparsegen.products.cost import in_the_way, nbytes, rate
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "hbm": "W's packed values and offsets, x, y and the epilogue's arrays, once each; tiles of columns run together",
    "shared": "the words of x that each entry of 32 rows needs, out of shared memory, and x into it",
    "issue": "instructions of all entries and of x on its way to shared memory; few warps fill few slots",
    "exposed": "units that are nearly as busy as the longest get in its way",
    "latency": "x before the first entry of each round of blocks, and the sums of a tile's warps after the last",
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of W",
    "K": "columns of W",
    "N": "columns of x",
    "B": "bytes of W as it is packed",
    "E": "bytes of bias, scale and residual",
    "cols": "columns of x of a block",
    "words": "32-bit words of a row of x of a block",
    "entries": "entries of a lane of each of a block's tiles, with those that fill up chunks",
    "here": "blocks of the busiest SM",
    "held": "rows of x that a block holds",
    "degree": "bank conflicts of a word of x",
    "rounds": "blocks of the busiest SM over those that it runs at a time",
    "warps": "warps of a block",
}
ADDED: Final = frozenset(("exposed", "latency", "launch"))
# ---- fitted
#: Instructions of an entry (its offset, its value), of each word of x for it, of each sum, and to stage a word of x.
ENTRY, WORD, SUM, STAGE = 4.0, 0.94, 1.93, 5.7
#: DRAM latencies of a round of blocks, clocks for each word of x that a thread puts into shared memory before the first
#: entry, and the power with which busy units get in each other's way.
ROUND, TAKE, NORM = 5.3, 72.0, 3.0
#: Warps' worth of latency that a warp's instruction waits for.
PARTIES: Final = 1.48
#: The share of DRAM's bandwidth that W's chunks reach.
SHARE: Final = 0.913
#: Registers of a thread besides its sums and two chunks.
BASE: Final = 14


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    blocks: int
    held: int
    shared: int
    registers: int
    resident: int


def shape_of(p: NmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    across, parts = s.warps
    c, m = p.chunks, p.pattern[1]
    tiles = -(-p.m // LANES)
    blocks = -(-tiles // across) * -(-p.n // s.cols)
    nbytes = 4 * shared_words(p.k, m, c, s.cols, p.item, across * parts)
    need = BASE + s.cols + 2 * (c.stored * p.item // 4 + c.words)
    resident = min(occupancy(need, nbytes, s.threads, device).blocks, -(-blocks // device.sms))
    return Shape(blocks, staged(p.k, m, c), nbytes, need, resident)


def price(p: NmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    here = -(-g.blocks // device.sms)
    values = {
        "M": p.m, "K": p.k, "N": p.n, "B": p.packed, "E": p.operands, "item": p.item,
        "cols": s.cols, "words": x_words(s.cols, p.item),
        "entries": s.warps[0] * p.count * p.chunks.entries, "held": g.held, "here": here,
        "degree": -(-p.pattern[1] // 32), "rounds": -(-here // g.resident),
        "warps": s.warps[0] * s.warps[1], "b": g.resident, "launch": device.launch_s, "sub": device.sub_cores,
        "f": device.clock, "bw_G": device.hbm_read_gbs * 1e9, "bw_S": device.bw_shared / device.sms,
        "lat_dram": device.lat_dram,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    warps = v.b * v.warps / v.sub  # of a sub-core
    entries, staged_words = v.here * v.entries, v.here * v.held * v.words / 32  # of the busiest SM, for 32 lanes
    issued = entries * (ENTRY + v.words * WORD + v.cols * SUM) + staged_words * STAGE
    busy = {
        "hbm": nbytes(v) / (SHARE * v.bw_G),
        "shared": (entries * v.words * v.degree + staged_words) * 128 / v.bw_S,
        "issue": issued / (v.sub * v.f) * (warps + PARTIES) / warps,
    }
    most, exposed = in_the_way(busy, NORM, a)
    latency = v.rounds * (ROUND * v.lat_dram + TAKE * v.held * v.words / 32 / v.warps) / v.f
    terms = {**busy, "exposed": exposed, "latency": latency, "launch": v.launch}
    return v.launch + latency + most + exposed, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
