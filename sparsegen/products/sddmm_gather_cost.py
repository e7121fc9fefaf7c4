"""The predicted time of a sampled product of gathered columns: what the busiest SM fetches and multiplies.

    time = launch + turn + start + max(shared, l2, tensor, issue, hbm, ring) + exposed

With the figures of the product in strips.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.gathered import MOST, shared_bytes
from sparsegen.ir.numbers.sampled import GROUP, TILE, Cut
from sparsegen.products import sddmm_cost
from sparsegen.products.sddmm import SddmmNumbers
from sparsegen.products.sddmm_cost import RESULT, cuts, known, rate, registers, summed, units
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    **{n: sddmm_cost.REASONS[n] for n in ("tensor", "issue", "hbm", "exposed", "turn", "launch")},
    "shared": "gathered columns and the rows of a, in and out of shared memory",
    "l2": "the gathered columns, the rows of a of every task and the lists, through the busiest SM's port to L2",
    "ring": "the columns of each tile take their way from L2, stages - 1 of them under way",
    "start": "a task's record, its columns, and their first copies",
}
SYMBOLS: Final[dict[str, str]] = {
    **{n: sddmm_cost.SYMBOLS[n] for n in ("M", "K", "N", "B", "V", "T", "P", "warps", "parts", "odd", "rounds")},
    "R": "tasks, one a warp",
    "stages": "slots of a ring",
}
ADDED: Final = frozenset(("exposed", "start", "turn", "launch"))
# ---- fitted
#: DRAM latencies before a task's first product, and L2's of a tile's columns.
START, WAY = 3.55, 1.36
#: What bytes of gathered columns take of the port to L2, over those of whole strips.
GATHERED: Final = 0.9
#: Instructions of 32 copies of 16 bytes.
COPY: Final = 4.8


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    blocks: int
    runs: int
    tiles: int
    cut: Cut
    shared: int
    registers: int
    resident: int


def shape_of(p: SddmmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    (c, *_), used = cuts(p), registers(p, cuts(p)[0])
    runs = p.runs[MOST.index(s.most)]
    blocks = -(-runs // s.warps)
    shared = max(shared_bytes(s.warps, s.stages, form) for form in cuts(p))
    resident = min(occupancy(used, shared, s.threads, device).blocks, -(-blocks // device.sms))
    return Shape(blocks, runs, p.whole, c, shared, used, resident)


def price(p: SddmmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    values = {
        **known(p, s, g.cut, device), "T": g.tiles, "R": g.runs, "warps": s.warps, "stages": s.stages,
        "rounds": -(-g.blocks // (device.sms * g.resident)), "b": g.resident,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    tasks = v.rounds * v.b * v.warps  # of the busiest SM
    tiles = v.T / v.R * tasks
    fetched = (tiles * TILE + tasks * GROUP) * v.width + tiles * TILE * (8 * v.parts + RESULT * (2 * v.parts - 1))
    way = v.lat / v.f
    busy = {
        **units(v, a, tiles, GATHERED * fetched, 2 * fetched, TILE * v.width / 512 * COPY),
        "ring": v.rounds * v.parts * v.T / v.R * WAY * way / (v.stages - 1),
    }
    return summed(v, a, busy, {"start": v.rounds * v.parts * START * v.lat_dram / v.f})


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
