"""The predicted time of a product that keeps 2 of every 4 columns, on sparse tensor cores: the law of ``nm_gather``.

Its turns take 64 columns of W, kept or not.  A product reads the rows of x that it multiplies out of shared memory as
fast as it multiplies (32 rows of ``cols`` 16-bit numbers at 128 bytes a clock: cols / 2 clocks), so W's kept elements,
16 rows' worth, come on top.
"""

from __future__ import annotations

from typing import Any, Final

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.fours import shared_bytes, slot_bytes, values_size, words_size
from sparsegen.ir.numbers.groups import ROWS, STEP, rows_each, threads
from sparsegen.products import gather_cost as gather
from sparsegen.products.cost import rate
from sparsegen.products.gather_cost import BASE, LEAST, Shape, walk, walked
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = gather.REASONS | {
    "tensor": "products of the busiest SM's tiles: 64 rows, the block's columns, 32 columns of W at a time",
    "l2": "W's kept elements and the rows of x of all turns of the busiest SM, through its port to L2",
    "hbm": "W's kept elements and their words, x, y and the epilogue's arrays, once each",
}
SYMBOLS: Final[dict[str, str]] = gather.SYMBOLS | {
    "B": "bytes of W's kept elements and their words",
    "steps": "turns of a tile, 64 columns of W each",
    "odd": "1 if 8 does not divide N (of an x by columns: K), else 0",
}
#: Clocks of a product in which its 64 rows of W come out of shared memory.
KEPT: Final = 16.0


def shape_of(p: NmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    groups = s.rows // ROWS
    tiles = -(-p.m // s.rows) * -(-p.n // s.cols)
    shared = shared_bytes(groups, s.cols, s.stages)
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
        "odd": 1 * p.turned("row", "column"),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    return walk(v, a, 2 * a.max(LEAST, v.cols / 2 + KEPT))


LAW: Final = Law(law, SYMBOLS, REASONS, gather.ADDED, rate, "TB/s")
