"""The predicted time of an N:M product on tensor cores: turns of all tiles of the busiest SM.

    time = launch + turn + fill + max(tensor, l2, hbm, ring) + exposed + store

``tensor`` and ``l2`` are of the turns of the SM with the most tiles, ``store`` and ``fill`` of each of its tiles: what
does not overlap with products.  Fitted to kernels on one H200 with the memory cold: those in tests/cost/data/nm.csv,
in docs/bench/nm.json and in the part patterns of docs/bench/regret.json.xz and of three more seeds (4 % in the median).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.groups import (
    BLOCK,
    ROWS,
    STEP,
    padded,
    rows_each,
    shared_bytes,
    slot_bytes,
    stage_bytes,
    straddles,
    threads,
)
from sparsegen.products.cost import WARPGROUP, in_the_way, nbytes, rate
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "tensor": "products of the busiest SM's tiles: 64 rows, the block's columns, 16 kept columns at a time",
    "l2": "W's tiles and the gathered rows of x of all turns of the busiest SM, through its port to L2",
    "hbm": "W's tiles and lists, x, y and the epilogue's arrays, once each",
    "ring": "each turn of a block takes its way from L2, stages - 1 of them under way",
    "exposed": "units that are nearly as busy as the longest get in its way",
    "store": "sums of each tile to y, while no product is under way",
    "fill": "the first turns of a block, before its first product",
    "turn": "where x is no rows of whole pieces of 8 columns, writing it so by a kernel before",
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of W",
    "K": "columns of W",
    "N": "columns of x",
    "B": "bytes of W's tiles and lists",
    "E": "bytes of bias, scale and residual",
    "groups": "warpgroups of a block, 64 rows each",
    "cols": "columns of x of a block",
    "steps": "turns of a tile, 64 kept columns each",
    "rounds": "tiles that a block takes, one after the other",
    "slot": "bytes of a turn",
    "stages": "slots of the ring",
    "mixed": "1, or more for tiles whose rows share neither their columns nor keep all",
    "odd": "1 if x is first written row by row, else 0",
    "lines": "lines of L2 in which a block's share of a row of x lies, over the fewest",
}
ADDED: Final = frozenset(("exposed", "store", "fill", "turn", "launch"))
#: Fewest clocks of a wgmma.
LEAST: Final = 32.0
# ---- fitted
#: DRAM latencies before the first product, clocks for each 8 columns of a tile's sums, and how busy units add up.
FILL, STORE, NORM = 1.7, 69.0, 4.7
#: The shares of an SM's port to L2 and of DRAM's bandwidth that a walk reaches.
PORT, SHARE = 0.627, 0.708
#: What a kernel costs that follows another one and begins while that ends, over a launch alone.
NEXT: Final = 0.32
#: The share of the tensor cores' speed that large products reach, which slow the clock.
PEAK: Final = 0.774
#: L2 latencies that a turn's data are under way, in a ring with other turns.
RING: Final = 5.97
#: What a turn takes of a tile whose rows keep different columns, over one whose rows share them: the blocks that run at
#: a time gather other rows of x each.
MIXED: Final = 1.254
#: Registers of a thread besides its sums and the rows that it copies.
BASE: Final = 24


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    tiles: int
    shared: int
    registers: int
    resident: int


def shape_of(p: NmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    groups = s.rows // ROWS
    tiles = -(-p.m // s.rows) * -(-p.n // s.cols)
    shared = shared_bytes(groups, s.cols, s.stages, p.steps[s.rows]) + stage_bytes(p.n, 4 * groups)
    registers = BASE + s.cols // 2 + rows_each(s.cols)
    resident = occupancy(registers, shared, threads(groups), device).blocks
    return Shape(tiles, shared, registers, min(resident, -(-tiles // device.sms)))


def packed(p: NmNumbers, rows: int) -> int:
    """Bytes of the tiles of so many rows, and of their lists."""
    return -(-p.m // rows) * p.steps[rows] * STEP * 2 * (rows + 1)


def price(p: NmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    values: dict[str, Any] = walked(p, s, device, g) | {
        "B": packed(p, s.rows), "steps": p.steps[s.rows], "slot": slot_bytes(s.rows // ROWS, s.cols),
        **x_rows(p, s),
        "mixed": MIXED if p.pattern[2] % s.rows and p.steps[s.rows] * STEP < p.k else 1.0,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def x_rows(p: NmNumbers, s: Schedule) -> dict[str, Any]:
    """Whether x is written anew first, and in how many lines a block's share of a row lies, over the fewest."""
    reads = -(-p.m // s.rows) * p.steps[s.rows] * STEP / p.k
    odd = p.turned("row") or padded(p.n, p.item, reads)
    return {"odd": 1 * odd, "lines": 1 + (not odd and straddles(p.n, p.item)) * min(s.cols, BLOCK) / BLOCK}


def walked(p: NmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> dict[str, Any]:
    """The values of a walk's law that no family has of its own."""
    return {
        "M": p.m, "K": p.k, "N": p.n, "E": p.operands, "item": p.item, "groups": s.rows // ROWS, "cols": s.cols,
        "rounds": -(-g.tiles // (device.sms * g.resident)), "b": g.resident, "launch": device.launch_s,
        "f": device.clock,
        "bw_G": device.hbm_read_gbs * 1e9, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
        "lat_dram": device.lat_dram, "lat_l2": device.lat_l2, "stages": s.stages,
    }  # fmt: skip


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    turns = v.rounds * v.steps * v.b
    busy = {
        "tensor": turns * 4 * v.groups * a.max(LEAST, 64 * 16 * v.cols / WARPGROUP) / (PEAK * v.f),
        "l2": turns * v.mixed * (v.slot + (v.lines - 1) * 2 * STEP * v.cols) / (PORT * v.bw_L2),
        "hbm": nbytes(v) / (SHARE * v.bw_G),
        "ring": v.rounds * v.steps * RING * v.lat_l2 / (v.stages - 1) / v.f,
    }
    most, exposed = in_the_way(busy, NORM, a)
    store, fill = v.rounds * STORE * v.cols / 8 * v.groups * v.b / v.f, FILL * v.lat_dram / v.f
    turn = v.odd * (NEXT * v.launch + 2 * v.item * v.K * v.N / v.bw_G)
    terms = {**busy, "exposed": exposed, "store": store, "fill": fill, "turn": turn, "launch": v.launch}
    return v.launch + turn + fill + most + exposed + store, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
