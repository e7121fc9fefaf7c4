"""The predicted time of a sampled product in strips: what the busiest SM fetches and multiplies.

    time = launch + turn + fill + max(shared, l2, tensor, issue, hbm, chain) + exposed

The figures below, and those of gathered columns, are fitted to 100 kernels of 10 random problems and 8 of suite
``magicube``, on one H200: within 5 % in the median, 20 % for nine of ten.  Other GPUs were not measured.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.formats.matrix import KINDS
from sparsegen.ir.numbers.sampled import (
    CHUNK,
    GROUP,
    PIECE,
    STRIPS,
    TILE,
    Cut,
    chunks,
    cut,
    length,
    own,
    shared_bytes,
    sums,
)
from sparsegen.products.cost import in_the_way
from sparsegen.products.sddmm import SddmmNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "shared": "rows of strips by row address, and the rows of a, through shared memory",
    "l2": "strips, the rows of a of every task and the pattern's lists, through the busiest SM's port to L2",
    "tensor": "mma instructions of the busiest SM's tiles x cycles per mma, over its tensor cores",
    "issue": "instructions of a tile besides: addresses, digits, sums, stores",
    "hbm": "a, b and the result, once each",
    "exposed": "units that are nearly as busy as the longest get in its way",
    "fill": "the strip of a block, before its first product",
    "turn": "where a or b does not lie along k in whole pieces of 16 bytes, writing it so by a kernel before",
    "chain": "the tiles of the busiest warp, one after another, and the way of each task's rows of a",
    "launch": "starting the kernels",
}
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of a",
    "K": "columns of a",
    "N": "columns of b",
    "B": "bytes of the result",
    "V": "vectors that are kept",
    "T": "tiles of 16 of them",
    "P": "bytes of a row of a, or a column of b",
    "rows": "columns of b of a strip",
    "warps": "warps of a block",
    "groups": "blocks of a strip",
    "parts": "launches that share k",
    "tasks": "tasks of a warp",
    "odd": "launches that write a or b anew",
    "rounds": "blocks of an SM, one after the other",
}
ADDED: Final = frozenset(("exposed", "fill", "turn", "launch"))
#: Passes of a gathered row through shared memory, over those without bank conflicts, and what the port to L2 reaches.
CONFLICTS, PORT = 1.34, 1.09
#: Issue slots of a tile besides products and their loads, and of a product: its load, mma, and digits (fitted).
TILE_COST: Final = 60.0
EACH: Final = {8: 9.5, 4: 51.0, 16: 28.6}
#: Clocks of a tile alone, and of each 32 bytes along k of it.
CHAIN, CHAIN_CHUNK = 179.0, 26.6
#: What a launch costs that follows another one of the call, over a launch alone: that of a part of k, and one that
#: writes a or b anew; the share of DRAM's bandwidth that is reached.
NEXT, TURN, SHARE = 0.68, 0.66, 0.78
#: The share of a launch that one which overlaps with the launch before saves (estimated).
OVERLAP: Final = 0.15
#: L2 latencies of a task's rows of a: that come ahead, or that do not.  Other warps hide what a warp waits for, and
#: rows that come ahead cost instructions: without it 4096 x 512 x 4096 took 2 to 7 % less (one H200, 80 to 95 % zeros).
AHEAD, BASIC = 3.9, 3.6
NORM: Final = 2.26
#: What of a strip's way from L2 nothing hides.
FILL: Final = 0.97
#: Bytes of a vector of the result, of 8 rows.
RESULT: Final = 4 * GROUP
#: Registers of a thread besides its rows of a and sums.
BASE: Final = 40


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    blocks: int
    length: int
    tiles: int
    cut: Cut
    shared: int
    registers: int
    resident: int


def cuts(p: SddmmNumbers, parts: int = 1) -> tuple[Cut, ...]:
    """How rows are cut, in so many parts or more: of arrays as they are described, and of integers of 4 bits that come
    in bytes."""
    bits = KINDS[p.dtype].bits
    found = cut(p.k * bits // 8, bits, parts)
    return (found, cut(p.k, 8, parts)) if bits == 4 else (found,)


def registers(p: SddmmNumbers, c: Cut) -> int:
    """Registers of a thread, about."""
    bits = KINDS[p.dtype].bits
    return BASE + own(c.nbytes, bits) + sums(bits) + (24 if bits == 16 else 8)


def known(p: SddmmNumbers, s: Schedule, c: Cut, device: DeviceProfile) -> dict[str, float]:
    """The values that all families have, by their symbols."""
    bits = KINDS[p.dtype].bits
    nbytes = p.k * bits // 8
    return {
        "M": p.m, "K": p.k, "N": p.n, "B": p.nbytes, "V": p.vectors, "P": nbytes, "parts": c.parts,
        "each": EACH[bits], "mma": {8: 1, 4: 2, 16: 2}[bits], "width": c.parts * c.nbytes,
        "chunks": c.parts * chunks(min(nbytes, c.nbytes), bits),
        "launch": (1 - OVERLAP * s.overlap) * device.launch_s,
        "f": device.clock, "sub": device.sub_cores, "cpi": device.cpi.get("s8.m16n8k32", 8.0),
        "bw_S": device.bw_shared / device.sms, "bw_G": device.hbm_read_gbs * 1e9, "lat": device.lat_l2,
        "lat_dram": device.lat_dram, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
        "odd": 2 * (nbytes % PIECE > 0),
    }  # fmt: skip


def shape_of(p: SddmmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    (c, *_), used = cuts(p, s.parts), registers(p, cuts(p, s.parts)[0])
    blocks, each = -(-p.n // s.rows) * s.groups, length(-(-p.m // GROUP), s.groups, s.warps)
    shared = max(shared_bytes(s.rows, s.warps, form) for form in cuts(p, s.parts))
    resident = min(occupancy(used, shared, s.threads, device).blocks, -(-blocks // device.sms))
    return Shape(blocks, each, p.tiles[STRIPS.index(s.rows)], c, shared, used, resident)


def price(p: SddmmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    values = {
        **known(p, s, g.cut, device), "T": g.tiles, "rows": s.rows, "warps": s.warps, "groups": s.groups,
        "tasks": g.length, "rounds": -(-g.blocks // (device.sms * g.resident)), "b": g.resident,
        "longest": p.longest[STRIPS.index(s.rows)], "ahead": AHEAD if s.prefetch else BASIC,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def units(v: Any, a: Arithmetic, tiles: Any, fetched: Any, passed: Any, more: Any = 0) -> dict[str, Any]:
    """Seconds of the units of the busiest SM: of so many tiles, bytes from L2 and through shared memory, and ``more``
    instructions a tile."""
    slots = v.sub * a.min(1, v.b * v.warps / (2 * v.sub)) * v.f
    return {
        "shared": passed / v.bw_S,
        "l2": fetched / (PORT * v.bw_L2),
        "tensor": tiles * v.chunks * v.mma * v.cpi / (v.sub * v.f),
        "issue": tiles * (TILE_COST + v.chunks * v.each + more) / slots,
        "hbm": ((v.M + v.N) * v.P + v.B) / (SHARE * v.bw_G),
    }


def summed(v: Any, a: Arithmetic, busy: dict[str, Any], apart: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of units that are busy at a time, and of what comes before them or after."""
    most, exposed = in_the_way(busy, NORM, a)
    turn = v.odd * (TURN * v.launch + (v.M + v.N) * v.P / v.bw_G)
    launch = (1 + (v.parts - 1) * NEXT) * v.launch
    terms = {**busy, "exposed": exposed, **apart, "turn": turn, "launch": launch}
    return launch + turn + most + exposed + sum(apart.values()), terms


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    here = v.rounds * v.b  # blocks of the busiest SM
    mean = v.T / (a.ceil(v.N / v.rows) * v.groups) * here
    tiles = a.max(mean, v.longest)
    rows = v.tasks * v.warps * here * GROUP * v.width
    fetched = here * v.rows * v.width + rows + tiles * TILE * (2 * v.parts + RESULT * (2 * v.parts - 1))
    busy = units(v, a, tiles, fetched, tiles * v.chunks * TILE * CHUNK * CONFLICTS + 2 * rows)
    alone = a.max(v.longest, mean / (v.b * v.warps)) * (CHAIN * v.parts + CHAIN_CHUNK * v.chunks)
    busy["chain"] = (alone + v.rounds * v.tasks * v.parts * v.ahead * v.lat) / v.f
    fill = FILL * v.rounds * v.rows * v.width * v.b / v.bw_L2 + v.parts * v.lat / v.f
    return summed(v, a, busy, {"fill": fill})


def rate(cost: Cost) -> float:
    """TB/s of a, b and the result."""
    v = cost.values
    return float((v["M"] + v["N"]) * v["P"] + v["B"]) / cost.time / 1e12


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
