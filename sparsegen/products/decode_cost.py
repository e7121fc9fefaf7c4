"""The predicted time of an N:M product whose tiles of W are decoded for tensor cores: turns of the busiest SM.

    time = launch + turn + fill + max(tensor, shared, l2, hbm, ring, decode, chain) + exposed + store

``tensor``, ``shared``, ``l2`` are of the turns of the SM with the most tiles, ``ring``, ``decode`` and ``chain`` of a
block's; ``store`` of each of its tiles: what does not overlap with products.  Mostly shared memory is the longest.
Fitted to kernels on one H200 (tests/cost/data/nm.csv), with the memory cold.
"""

from __future__ import annotations

from typing import Any, Final

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.decode import Entries, entries, shared_bytes
from sparsegen.ir.numbers.groups import COPIERS, ROWS, STEP, stage_bytes, threads
from sparsegen.products import gather_cost
from sparsegen.products.cost import WARPGROUP, in_the_way, nbytes, rate
from sparsegen.products.gather_cost import BASE, LEAST, Shape
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "tensor": "products of the busiest SM's tiles: 64 rows, the block's columns, 16 columns of W at a time",
    "shared": "of the same tiles: operands of the products, zeros and kept values of W, x, packed words, by wavefronts",
    "l2": "packed words of W and rows of x of all turns of the busiest SM, through its port to L2",
    "hbm": "packed words, x, y and the epilogue's arrays, once each",
    "ring": gather_cost.REASONS["ring"],
    "decode": "what a copying warp does of a turn, one thing after another: waits, zeros, kept values; teams share",
    "chain": "what a multiplying warp does of a turn, one thing after another: waits, fences, products, handing back",
    **{name: gather_cost.REASONS[name] for name in ("exposed", "store", "fill")},
    "turn": "where x's rows (or columns) are no whole pieces of 8, writing rows that are by a kernel before",
    "launch": gather_cost.REASONS["launch"],
}
SYMBOLS: Final[dict[str, str]] = {
    **{name: gather_cost.SYMBOLS[name] for name in ("M", "K", "N", "E", "groups", "cols", "rounds", "stages")},
    "B": "bytes of W's packed words",
    "steps": "turns of a tile, 64 columns of W each",
    "packed": "bytes of packed words of a turn",
    "runs": "runs of adjacent columns that a copying lane has of a turn",
    "degree": "wavefronts of a warp's store of them",
    "teams": "of four warps that copy",
    "odd": "1 if adjacent elements of x are no whole pieces of 8, else 0",
}
ADDED: Final = gather_cost.ADDED
# ---- fitted
#: DRAM latencies before the first product, clocks for each 8 columns of a tile's sums, and how busy units add up.
FILL, STORE, NORM = 10.4, 81.0, 5.8
#: The shares of an SM's port to L2 and of DRAM's bandwidth that a walk reaches.
PORT, SHARE = 0.735, 0.65
#: L2 latencies that a turn's data are under way, in a ring with other turns.
RING: Final = 5.3
#: Clocks of a copying warp: of a turn, and of each run; and of a turn of a multiplying one.
TURN, RUN, CHAIN = 550.0, 13.0, 345.0
#: Share of the shared memory's bandwidth that a walk reaches.
SMEM: Final = 0.895
#: Passes of 32, 32, 16 and 8 lanes that a warp's store of runs of 1, 2, 4 and 8 columns takes: each 128 bytes wide.
#: Counted of random patterns from 12.5 to 50 %, as they are packed.
DEGREES: Final = {1: 2.2, 2: 2.8, 4: 3.0, 8: 4.0}


def shape_of(p: NmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    groups, e = s.rows // ROWS, entries_of(p, s.rows)
    tiles = -(-p.m // s.rows) * -(-p.n // s.cols)
    shared = shared_bytes(groups, s.cols, s.stages, s.teams, e) + stage_bytes(p.n, 4 * groups)
    registers = BASE + max(s.cols // 2, e.words + 16)
    resident = occupancy(registers, shared, threads(groups, s.teams), device).blocks
    return Shape(tiles, shared, registers, min(resident, -(-tiles // device.sms)))


def entries_of(p: NmNumbers, rows: int) -> Entries:
    """What a copying lane has of a turn of tiles of so many rows."""
    n, m, _, wide = p.pattern
    return entries(n, m, wide, rows // ROWS)


def steps_of(p: NmNumbers) -> int:
    """Turns of a tile."""
    return -(-p.k // STEP)


def packed(p: NmNumbers, rows: int) -> int:
    """Bytes of the packed words of tiles of so many rows."""
    return -(-p.m // rows) * steps_of(p) * 4 * entries_of(p, rows).turn


def price(p: NmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    e = entries_of(p, s.rows)
    values = gather_cost.walked(p, s, device, g) | {
        "B": packed(p, s.rows), "steps": steps_of(p), "packed": 4 * e.turn, "runs": e.runs, "degree": DEGREES[e.run],
        "bw_S": device.bw_shared / device.sms, "teams": s.teams, "odd": 1 * p.turned("row", "column"),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    alone = v.rounds * v.steps  # turns of a block
    turns = alone * v.b
    x = STEP * v.item * v.cols  # bytes of a turn
    operands = 4 * v.groups * (16 + v.cols / 4)  # wavefronts of 128 bytes: of 64 x 16 of W, and of 16 rows of x
    decoded = v.groups * ROWS + COPIERS / 32 * v.runs * v.degree
    busy = {
        "tensor": turns * 4 * v.groups * a.max(LEAST, 64 * 16 * v.cols / WARPGROUP) / v.f,
        "shared": turns * (128 * (operands + decoded) + x + 2 * v.packed) / (SMEM * v.bw_S),
        "l2": turns * (x + v.packed) / (PORT * v.bw_L2),
        "hbm": nbytes(v) / (SHARE * v.bw_G),
        "ring": alone * RING * v.lat_l2 / (v.stages - 1) / v.f,
        "decode": alone * (TURN + RUN * v.runs) / v.teams / v.f,
        "chain": alone * CHAIN / v.f,
    }
    most, exposed = in_the_way(busy, NORM, a)
    store, fill = v.rounds * STORE * v.cols / 8 * v.groups * v.b / v.f, FILL * v.lat_dram / v.f
    turn = v.odd * (gather_cost.NEXT * v.launch + 2 * v.item * v.K * v.N / v.bw_G)
    terms = {**busy, "exposed": exposed, "store": store, "fill": fill, "turn": turn, "launch": v.launch}
    return v.launch + turn + fill + most + exposed + store, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
