"""The predicted time of Magicube's own product: what the paper's ideas change is bank conflicts, operations that turn
digits, waits that a prefetch hides.

    time = launch + turn + start + max(tensor, issue, shared, l2, hbm, chain)

Fitted to 37 kernels of 6 products of 8 and 16 bits on one H200, within 3 % in the median, 8 % for nine of ten; of 4
bits one was measured.  Other GPUs were not measured.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.strided import MEET, Planes, stride, tile_words, turned
from sparsegen.ir.numbers.vectors import digits
from sparsegen.ir.types import DTYPES
from sparsegen.products import strided, vectors_cost
from sparsegen.products.vectors import VectorNumbers
from sparsegen.products.vectors_cost import NEXT, rate
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    **{name: vectors_cost.REASONS[name] for name in ("tensor", "hbm", "turn", "launch")},
    "issue": "instructions of the busiest SM's steps: values, columns and rows of x, what turns words, mma",
    "shared": "words of x out of shared memory and rows into it, bank conflicts counted",
    "l2": "rows of x, W's values and columns of the busiest SM's steps, through its port to L2",
    "chain": "the steps of the longest vector row: two barriers each, and the wait for rows that no prefetch hides",
    "start": "the first columns, then the first rows",
}
SYMBOLS: Final[dict[str, str]] = {
    **{name: vectors_cost.SYMBOLS[name] for name in "M K X Y B E wide odd".split()},
    "here": "steps of the blocks of the busiest SM",
    "longest": "steps of the longest vector row",
    "rounds": "blocks of the busiest SM over those that it runs at a time",
    "W": "warps of a block",
    "vectors": "vectors of a step",
    "rows": "rows of x that a lane turns",
    "operations": "operations that turn a lane's words",
    "products": "mma of a step and warp",
    "words": "words of W's values of a step",
    "meet": "lanes that meet in a bank",
    "apart": "1 if rows come after the products of the step before, else 0",
}
ADDED: Final = frozenset(("start", "turn", "launch"))
# ---- fitted
#: Instructions of a warp's step besides, and clocks of a step alone: barriers, reads of shared memory, mma.
STEP_ISSUE, CHAIN = 114.0, 864.0
#: The wait for a row of x in L2, in DRAM latencies.
WAIT = 0.12
#: The share of an SM's port to L2 that is reached, and clocks of it that a step takes besides.
PORT, FETCH = 0.39, 21.0
#: Clocks of an mma of 4 bits over those of one of as many bytes, where tensor cores have none (Hopper).
EMULATED: Final = 86.0
#: Operations that turn four words by four, and those for 16 digits of 4 bits, shuffled and not.
TURN, SHUFFLED, APART = 8, 8, 46
#: Registers of a thread besides its sums, its rows and what it turns.
BASE: Final = 30


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    planes: Planes
    steps: int
    longest: int
    blocks: int
    shared: int
    registers: int
    resident: int


def bits_of(p: VectorNumbers) -> int:
    """Bits of a digit: 4 where x has no more."""
    return 4 if p.x_kind.bits == 4 else 8


def planes_of(p: VectorNumbers, stack: bool) -> Planes:
    """The digits of a product, and how its sums lie."""
    bits, kind = bits_of(p), DTYPES[p.dtype]
    return Planes(digits(kind, bits, of=p.bits, alike=stack), digits(p.x_kind, bits), p.height, stack)


def shape_of(p: VectorNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not."""
    made = planes_of(p, s.stack)
    size = stride(made.bits)
    steps, longest = strided.steps(p.own, made.bits), -(-p.own[-1][0] // size)
    blocks = -(-p.m // p.height) * -(-p.row_bytes // s.wide)
    shared = 4 * tile_words(s.wide, made.bits, s.pad) + 8 * size + 8 * made.words
    registers = BASE + made.size + size // 4 + 2 * turned(made.bits)
    resident = occupancy(registers, shared, s.wide, device).blocks
    return Shape(made, steps, longest, blocks, shared, registers, resident)


def price(p: VectorNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    made, size = g.planes, stride(g.planes.bits)
    here = -(-g.blocks // device.sms)
    rows, registers = turned(made.bits), made.columns * len(made.x_digits)
    slower = EMULATED if made.bits == 4 and device.compute_capability >= HOPPER else 1.0
    halves = 0 if made.bits == 8 else 4 * (SHUFFLED if s.shuffle else APART)
    values = {
        "M": p.m, "K": p.k, "X": p.row_bytes, "Y": DTYPES[p.y].nbytes * p.m * p.n,
        "B": g.steps * (2 * size + 4 * made.words), "E": p.operands, "wide": s.wide, "vectors": size,
        "here": g.steps * -(-p.row_bytes // s.wide) / device.sms, "longest": g.longest,
        "rounds": max(1.0, here / g.resident), "W": s.wide // 32, "rows": rows,
        "operations": TURN * rows // 4 + halves, "products": registers * len(made.groups), "words": made.words,
        "meet": 1 if s.pad else MEET, "apart": 0 if s.prefetch else 1, "launch": device.launch_s, "f": device.clock,
        "sub": device.sub_cores, "cpi": device.cpi["s8.m16n8k32"] * slower, "bw_S": device.bw_shared / device.sms,
        "bw_G": device.hbm_read_gbs * 1e9, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
        "lat_dram": device.lat_dram, "odd": 1 * (p.columns or p.row_bytes % 16 > 0),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    warps = v.here * v.W
    busy = {
        "tensor": warps * v.products * v.cpi / 4 / v.sub / v.f,  # a quarter of an m16n8k32, as of m8n8k32 in 4 bits
        "issue": warps * (STEP_ISSUE + v.rows + v.operations + v.products) / v.sub / v.f,
        "shared": warps * (v.rows * 128 * v.meet + 32 * v.vectors) / v.bw_S,
        "l2": v.here * ((v.vectors * v.wide + 2 * v.vectors + 4 * v.words) / (PORT * v.bw_L2) + FETCH / v.f),
        "hbm": (v.B + v.K * v.X + v.Y + v.E) / v.bw_G,
        "chain": v.longest * v.rounds * (CHAIN + v.apart * 2 * WAIT * v.lat_dram) / v.f,
    }
    start, turn = 2 * WAIT * v.lat_dram / v.f, v.odd * (NEXT * v.launch + 2 * v.K * v.X / v.bw_G)
    added = {"start": start, "turn": turn, "launch": v.launch}
    return a.max(*busy.values()) + sum(added.values()), {**busy, **added}


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
