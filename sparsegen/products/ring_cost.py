"""The predicted time of a product with vectors by warps that gather their rows of x.

    time = launch + turn + start + max(l2, lines, issue, tensor, shared, hbm, chain) + exposed + store + cut

``l2``, ``issue`` and ``shared`` are of the steps of the busiest SM, ``chain`` of the longest vector row.  Fitted to the
mean of cold times and those in a loop, of 64 problems on one H200: within 7 % in the median, 25 % for nine of ten; the
start and the cut then to 40 random problems.  These were of integers; what FLOATS says of floats is fitted to 218
products called in a loop (122 of them in tests/cost/data/looped.csv.xz): within 6 % in the median, 15 % for nine of
ten.  Other GPUs were not measured.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.vectors import PIECE, STEP
from sparsegen.ir.types import DTYPES
from sparsegen.products import vectors_cost
from sparsegen.products.cost import in_the_way
from sparsegen.products.vectors import VectorNumbers
from sparsegen.products.vectors_cost import SECTORS, SPREAD, in_flight, lines_of, mma_of, rate, sums_of
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    **{name: vectors_cost.REASONS[name] for name in ("tensor", "lines", "hbm", "exposed", "cut", "turn", "launch")},
    "l2": "gathered rows of x, and W's values and numbers, of the busiest SM's steps, through its port to L2",
    "issue": "instructions of these steps: copies, fragments of x with their permutes, values, mma",
    "shared": "rows of x into shared memory, and out of it as fragments",
    "chain": "the steps of the longest vector row, one after another, of which some are on their way at a time",
    "store": "sums to y, while no product is under way",
    "start": "records, numbers and the first rows of x, one after another, for each round of blocks",
}
SYMBOLS: Final[dict[str, str]] = {
    **{name: vectors_cost.SYMBOLS[name] for name in "M K X Y B E lines products fragments words odd".split()},
    "wide": "bytes of a row of x that a warp gathers",
    "sums": "sums of a lane",
    "stages": "slots of a warp's ring",
    "here": "steps of the warps of the busiest SM",
    "longest": "steps of the longest vector row",
    "cuts": "where the longest vector row is cut",
    "W": "warps of the busiest SM",
    "rounds": "blocks of the busiest SM over those that it runs at a time",
}
ADDED: Final = frozenset(("exposed", "start", "store", "cut", "turn", "launch"))
# ---- fitted
#: Instructions of a step besides those of fragments and products, and of a fragment.
STEP_ISSUE, FRAGMENT_ISSUE = 300.0, 2.0
#: DRAM latencies of each cut of the longest row that is cut.
JOIN: Final = 0.6
#: Bytes that a gathered row takes from L2 besides its own.
BESIDE: Final = 256
#: Clocks of a sum's way to y, and the share of an SM's port to L2 that is reached.
STORE, PORT = 20.0, 2.66


class Fitted(NamedTuple):
    """Clocks of a step alone and of each slot that is filled first, DRAM latencies before the first product and of rows
    that are cut, pieces of 32 bytes a second out of one line, and how busy units add up."""

    chain: float
    slot: float
    fill: float
    cut: float
    sectors: float
    norm: float


INTEGERS, FLOATS = Fitted(700.0, 450.0, 1.9, 5.0, SECTORS, 2.25), Fitted(480.0, 520.0, 0.0, 9.0, 3.6e9, 2.36)
#: What a kernel costs that follows another one, over a launch alone (estimated).
NEXT: Final = 0.5
#: Registers of a thread besides its sums and the words of a step.
BASE: Final = 36


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    lists: int
    blocks: int
    shared: int
    registers: int
    resident: int


def shape_of(p: VectorNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    (down, across), lists = s.warps, -(-sum(rows for _, rows in p.cut(s.cut)) // s.warps[0])
    blocks = -(-p.row_bytes // (s.wide * across)) * lists
    of_floats = 0 if p.integers else in_flight(p, s.wide)
    shared = down * across * s.stages * (STEP * s.wide + 128 * p.words)
    registers = BASE + of_floats + sums_of(p, s.wide).size + p.words
    return Shape(lists, blocks, shared, registers, occupancy(registers, shared, 32 * down * across, device).blocks)


def price(p: VectorNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    sums, (down, across) = sums_of(p, s.wide), s.warps
    here = -(-g.blocks // device.sms)
    parts = -(-p.row_bytes // s.wide)
    values = {
        "M": p.m, "K": p.k, "X": p.row_bytes, "Y": DTYPES[p.y].nbytes * p.m * p.n, "B": p.steps * (64 + 128 * p.words),
        "E": p.operands, "lines": lines_of(p), "SMs": device.sms, "wide": s.wide,
        "stages": s.stages, "here": p.steps * parts / device.sms,
        "longest": min(p.longest, s.cut), "W": here * down * across, "rounds": max(1.0, here / g.resident),
        "products": sums.products, "fragments": s.wide / PIECE, "words": p.words, "sums": sums.size,
        "b": min(g.resident, here),
        "launch": device.launch_s, "f": device.clock, "sub": device.sub_cores, "cpi": device.cpi[mma_of(p)],
        "bw_S": device.bw_shared / device.sms, "bw_G": device.hbm_read_gbs * 1e9,
        "bw_L2": device.l2_bytes_per_clk_sm * device.clock, "lat_dram": device.lat_dram,
        "cuts": -(-p.longest // s.cut) - 1, "odd": 1 * (p.columns or p.row_bytes % PIECE > 0),
        **(INTEGERS if p.integers else FLOATS)._asdict(),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    step = STEP_ISSUE + FRAGMENT_ISSUE * v.fragments + v.products
    busy = {
        "tensor": v.here * v.products * v.cpi / v.sub / v.f,
        "issue": v.here * step / v.sub / v.f,
        "shared": v.here * v.fragments * 1024 / v.bw_S,
        "l2": v.here * (STEP * (v.wide + BESIDE) + 64 + 128 * v.words) / (PORT * v.bw_L2),
        "lines": v.here * v.SMs * STEP * v.wide / (32 * v.sectors * v.lines**SPREAD),
        "hbm": (v.B + v.K * v.X + v.Y + v.E) / v.bw_G,
        "chain": v.longest * v.chain * v.rounds / v.f,
    }
    most, exposed = in_the_way(busy, v.norm, a)
    start = v.rounds * (v.fill * v.lat_dram + v.slot * v.stages) / v.f
    store = STORE * v.sums * v.W / v.sub / v.f
    cut = (a.min(1, v.cuts) * v.cut + v.cuts * JOIN) * v.lat_dram / v.f
    turn = v.odd * (NEXT * v.launch + 2 * v.K * v.X / v.bw_G)
    added = {"start": start, "store": store, "cut": cut, "turn": turn, "launch": v.launch}
    return most + exposed + sum(added.values()), {**busy, "exposed": exposed, **added}


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
