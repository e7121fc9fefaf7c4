"""The predicted time of a product that keeps 2 of every 4 columns, on sparse tensor cores.

    time = launch + turn + fill + max(tensor, l2, hbm, ring) + exposed + store + narrow

The terms are those of ``nm_gather``, but turns take 64 columns of W, kept or not, and each waits for its products.  A
product reads the rows of x that it multiplies out of shared memory as fast as it multiplies (32 rows of ``cols`` 16-bit
numbers at 128 bytes a clock: cols / 2 clocks), so W's kept elements come on top.  Fitted to 33 kernels on one H200
(cold, or hot and 3 us more): within 6 % in the median, 13 % for nine of ten.
"""

from __future__ import annotations

from typing import Any, Final

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.fours import shared_bytes, slot_bytes, values_size, words_size
from sparsegen.ir.numbers.groups import BLOCK, ROWS, STEP, rows_each, stage_bytes, threads
from sparsegen.products import gather_cost as gather
from sparsegen.products.cost import in_the_way, nbytes, rate
from sparsegen.products.gather_cost import BASE, FILL, LEAST, NEXT, STORE, Shape, walked
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = gather.REASONS | {
    "tensor": "products of the busiest SM's tiles: 64 rows, the block's columns, 32 columns of W at a time",
    "l2": "W's kept elements and the rows of x of all turns of the busiest SM, through its port to L2",
    "hbm": "W's kept elements and their words, x, y and the epilogue's arrays, once each",
    "ring": "each turn of a block takes its way from L2, stages - 1 of them under way, and its products are waited for",
    "narrow": "rows of x of fewer than 128 bytes, each a request of its own of the copy unit",
}
OTHERS: Final = ("mixed", "lines")  # of gathers alone
SYMBOLS: Final[dict[str, str]] = {name: says for name, says in gather.SYMBOLS.items() if name not in OTHERS} | {
    "B": "bytes of W's kept elements and their words",
    "steps": "turns of a tile, 64 columns of W each",
    "odd": "1 if 8 does not divide N (of an x by columns: K), else 0",
    "extra": "requests for 128 bytes of x besides the first",
}
ADDED: Final = gather.ADDED | {"narrow"}
# ---- fitted
#: Clocks of a product in which its 64 rows of W come out of shared memory, and of a narrow row of x.
KEPT, NARROW = 23.0, 0.33
#: The shares of an SM's port to L2 and of DRAM's bandwidth that a walk reaches, and how busy units add up.
PORT, SHARE, NORM = 0.85, 1.0, 3.0
#: L2 latencies that a turn's data are under way, in a ring with other turns; clocks that its warpgroups take for it.
RING, CHAIN = 3.95, 222.0


def shape_of(p: NmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    groups = s.rows // ROWS
    tiles = -(-p.m // s.rows) * -(-p.n // s.cols)
    shared = shared_bytes(groups, s.cols, s.stages) + stage_bytes(p.n, 4 * groups)
    registers = BASE + s.cols // 2 + rows_each(s.cols)
    resident = occupancy(registers, shared, threads(groups), device).blocks
    return Shape(tiles, shared, registers, min(resident, -(-tiles // device.sms)))


def packed(p: NmNumbers, rows: int) -> int:
    """Bytes of the kept elements of all tiles of so many rows, and of their words."""
    groups = rows // ROWS
    return -(-p.m // rows) * -(-p.k // STEP) * (2 * values_size(groups) + 4 * words_size(groups))


def price(p: NmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    values: dict[str, Any] = walked(p, s, device, g) | {
        "B": packed(p, s.rows), "steps": -(-p.k // STEP), "slot": slot_bytes(s.rows // ROWS, s.cols),
        "odd": 1 * p.turned("row", "column"), "extra": 0 if p.columns else max(0, BLOCK // s.cols - 1),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    turns = v.rounds * v.steps * v.b
    busy = {
        "tensor": turns * v.groups * 2 * a.max(LEAST, v.cols / 2 + KEPT) / v.f,
        "l2": turns * v.slot / (PORT * v.bw_L2),
        "hbm": nbytes(v) / (SHARE * v.bw_G),
        "ring": v.rounds * v.steps * (RING * v.lat_l2 / (v.stages - 1) + CHAIN) / v.f,
    }
    most, exposed = in_the_way(busy, NORM, a)
    store, fill = v.rounds * STORE * v.cols / 8 * v.groups * v.b / v.f, FILL * v.lat_dram / v.f
    turn = v.odd * (NEXT * v.launch + 2 * v.item * v.K * v.N / v.bw_G)
    narrow = turns * STEP * v.extra * NARROW / v.f
    terms = {
        **busy, "exposed": exposed, "store": store, "fill": fill, "turn": turn, "narrow": narrow, "launch": v.launch,
    }  # fmt: skip
    return v.launch + turn + fill + most + exposed + store + narrow, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
