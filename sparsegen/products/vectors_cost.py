"""The predicted time of a product with vectors, by strips of x that stay in shared memory.

    time = launch + turn + start + max(tensor, issue, shared, l2, lines, hbm, chain) + exposed + cut

``issue``, ``shared`` and ``l2`` are of the steps of the busiest SM, ``chain`` of those of its busiest warp.  Fitted to
the mean of cold times and those in a loop, of 64 problems on one H200: within 7 % in the median, 18 % for nine of ten.
``lines`` came later, of 20 problems: with few columns of x a product took up to 1.6 times what the rest expects; and of
40 the start of a block's warps.  These were of integers; what FLOATS says of floats is fitted to 225 products called in
a loop (tests/cost/data/looped.csv.xz): within 7 % in the median, 20 % for nine of ten.  Other GPUs were not measured.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.resident import WIDTHS, padded_rows
from sparsegen.ir.numbers.vectors import PIECE, Sums, digits
from sparsegen.ir.types import DTYPES
from sparsegen.products.cost import in_the_way
from sparsegen.products.vectors import VectorNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "tensor": "mma instructions of the busiest SM's steps x cycles per mma, over its tensor cores",
    "issue": "instructions of these steps: fragments of x with their permutes, places and values, mma",
    "shared": "fragments of x out of shared memory, bank conflicts counted",
    "l2": "the strips of the busiest SM, and W's values and places of its steps, through its port to L2",
    "lines": "x out of L2 for all SMs: readers of the same few lines wait for one another",
    "hbm": "W's arrays, x, y and the epilogue's arrays, once each",
    "chain": "the steps of the busiest warp, one after another: fragments and mma, and each turn waits for its values",
    "exposed": "units that are nearly as busy as the longest get in its way",
    "start": "records, the first values and the strip, as far as products wait for it",
    "cut": "vector rows that are cut: tasks leave their sums in shared memory, and the last of a row adds them up",
    "turn": "where x comes by columns, or in rows of no whole pieces of 16 bytes, writing it so by a kernel before",
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of W",
    "K": "columns of W",
    "X": "bytes of a row of x",
    "Y": "bytes of y",
    "B": "bytes of W's places and values",
    "E": "bytes of bias, scale and residual",
    "wide": "bytes of a strip's row",
    "lines": "lines of 128 bytes that x has",
    "blocks": "blocks, a strip each",
    "here": "strips of the busiest SM",
    "steps": "steps of its warps, one after another: their mean",
    "longest": "steps of the busiest warp",
    "W": "warps of a block",
    "products": "mma of a step",
    "fragments": "fragments of x of a step",
    "tasks": "vector rows of a warp, one after another",
    "words": "words of W's values that a lane has of a step",
    "unroll": "steps of a turn, whose values are loaded together",
    "pieces": "1 if vector rows are cut, else 0",
    "odd": "1 if x is first written row by row, else 0",
}
ADDED: Final = frozenset(("exposed", "start", "cut", "turn", "launch"))
# ---- fitted
#: Passes of a fragment through shared memory, over those without bank conflicts.
CONFLICTS: Final = 1.0
#: Instructions of a step besides those of fragments and products, and of a fragment.
STEP_ISSUE, FRAGMENT_ISSUE = 0.0, 2.0
#: DRAM latencies before the first product, and the share of DRAM's bandwidth that is reached.
FILL, SHARE = 0.2, 0.59


class Fitted(NamedTuple):
    """Clocks of a warp's step alone, of a turn that waits for its values, of a task besides, and in which each warp of
    a block starts; how far products wait for a strip, DRAM latencies of rows that are cut, the share of an SM's port to
    L2 that is reached, and how busy units add up."""

    chain: float
    wait: float
    task: float
    warp: float
    waited: float
    cut: float
    port: float
    norm: float


INTEGERS: Final = Fitted(119.0, 433.0, 600.0, 40.0, 1.71, 0.5, 0.35, 2.0)
FLOATS: Final = Fitted(0.0, 496.0, 1352.0, 33.5, 1.43, 1.0, 0.48, 1.88)
#: Pieces of 32 bytes a second that all SMs get out of lines that they all read: so many for one line, and by which
#: power more of more lines.
SECTORS, SPREAD = 0.55e9, 0.7
#: What a kernel costs that follows another one, over a launch alone (estimated).
NEXT: Final = 0.5
#: Bytes of a line of L2.
LINE: Final = 128
#: Registers of a thread besides its sums, and those of a step: with fewer nvcc spills.  Elements of 4 bits make two
#: fragments of one, so more of these are under way: as many as half the bytes of a row, beyond 32 of these.  Of floats
#: all fragments of a step are, as nothing is made of them but products.
BASE: Final = 28


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    strips: int
    blocks: int
    longest: int
    mean: float
    shared: int
    registers: int
    resident: int


def sums_of(p: VectorNumbers, wide: int) -> Sums:
    """How a lane's sums lie, of a strip's row of so many bytes."""
    return Sums.of(digits(DTYPES[p.dtype]), digits(p.x_kind), wide)


def mma_of(p: VectorNumbers) -> str:
    """The mma whose cycles count: that of signed integers, or of floats of 16 bits, which all take the same."""
    return "s8.m16n8k32" if p.integers else "f16.m16n8k16"


def in_flight(p: VectorNumbers, wide: int) -> int:
    """Registers of a thread of fragments under way, beyond those of bytes of integers, which are few."""
    if p.integers:
        return (wide - WIDTHS[0]) // 2 if p.x_kind.bits == 4 else 0
    return wide // PIECE * 4


def shape_of(p: VectorNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    strips = -(-p.row_bytes // s.wide)
    blocks = strips * s.lists
    slots = s.lists * s.warps
    longest, left = 0, 0
    for steps, rows in reversed(p.cut(s.cut)):  # dealt to and fro: of each round of warps the first row is the longest
        taken = max(0, -(-(rows - left) // slots))
        longest, left = longest + steps * taken, left + taken * slots - rows
    if count := p.slots(s.cut, s.lists):  # each piece goes to the warp that has the least to do
        longest = max(p.cut(s.cut)[-1][0], -(-p.steps // slots) + 1)
    boxes = s.parts if device.compute_capability >= HOPPER else 0
    sums = sums_of(p, s.wide)
    shared = padded_rows(p.k, max(1, boxes)) * s.wide + 8 * boxes + 4 * (sums.slot * count + up(count, s.warps))
    registers = BASE + in_flight(p, s.wide) + sums.size + s.unroll * 2 * (1 + p.words)
    resident = min(occupancy(registers, shared, 32 * s.warps, device).blocks, -(-blocks // device.sms))
    return Shape(strips, blocks, longest, p.steps / slots, shared, registers, resident)


def lines_of(p: VectorNumbers) -> float:
    """Lines of L2 that x has, its rows of whole pieces."""
    return max(1.0, p.k * -(-p.row_bytes // PIECE) * PIECE / LINE)


def price(p: VectorNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    sums = sums_of(p, s.wide)
    here = -(-g.blocks // device.sms)
    y = DTYPES[p.y].nbytes
    values = {
        "M": p.m, "K": p.k, "X": p.row_bytes, "Y": y * p.m * p.n, "B": p.steps * (64 + 128 * p.words),
        "E": p.operands, "lines": lines_of(p), "blocks": g.blocks,
        "wide": s.wide, "here": here, "steps": g.mean, "longest": g.longest, "W": s.warps,
        "products": sums.products, "fragments": s.wide / PIECE, "words": p.words,
        "tasks": -(-p.rows // (s.lists * s.warps)), "b": g.resident,
        "launch": device.launch_s, "f": device.clock, "sub": device.sub_cores, "cpi": device.cpi[mma_of(p)],
        "bw_S": device.bw_shared / device.sms, "bw_G": device.hbm_read_gbs * 1e9,
        "bw_L2": device.l2_bytes_per_clk_sm * device.clock, "lat_dram": device.lat_dram,
        "unroll": s.unroll, "pieces": 1 * (s.cut < p.longest), "odd": 1 * (p.columns or p.row_bytes % PIECE > 0),
        **(INTEGERS if p.integers else FLOATS)._asdict(),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    steps = v.here * v.W * v.steps
    more = v.words / 2
    busy = {
        "tensor": steps * v.products * v.cpi / v.sub / v.f,
        "issue": steps * (STEP_ISSUE + 3 * more + FRAGMENT_ISSUE * v.fragments + v.products) / v.sub / v.f,
        "shared": steps * v.fragments * 512 * CONFLICTS / v.bw_S,
        "l2": (v.here * v.K * v.wide + steps * (64 + 128 * v.words)) / (v.port * v.bw_L2),
        "lines": v.blocks * v.K * v.wide / (32 * SECTORS * v.lines**SPREAD),
        "hbm": (v.B + v.K * v.X + v.Y + v.E) / (SHARE * v.bw_G),
        "chain": (v.longest * (v.chain + v.wait / v.unroll) + v.tasks * v.task) * v.here / v.b / v.f,
    }
    most, exposed = in_the_way(busy, v.norm, a)
    start = v.here / v.b * (FILL * v.lat_dram + v.warp * v.W) / v.f + v.waited * v.b * v.K * v.wide / v.bw_L2
    cut, turn = v.pieces * v.cut * v.lat_dram / v.f, v.odd * (NEXT * v.launch + 2 * v.K * v.X / v.bw_G)
    added = {"start": start, "cut": cut, "turn": turn, "launch": v.launch}
    return most + exposed + sum(added.values()), {**busy, "exposed": exposed, **added}


def rate(cost: Cost) -> float:
    """TB/s of W's places and values, x, y and the epilogue's arrays, once each."""
    v = cost.values
    return float(v["B"] + v["K"] * v["X"] + v["Y"] + v["E"]) / cost.time / 1e12


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
