"""The predicted time of an N:M product of strips: turns of all tiles of the busiest SM.

    time = launch + turn + fill + max(tensor, shared, l2, hbm, ring) + exposed + store

``tensor``, ``shared`` and ``l2`` are of the turns of the SM with the most tiles, ``store`` and ``fill`` of each of its
tiles: what does not overlap with products.  Fitted to kernels on one H200 with the memory cold (tests/cost/data/nm.csv,
suite nm, and those of regret that took less than twice the best); other GPUs were not measured.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.groups import stage_bytes
from sparsegen.ir.numbers.strips import DEPTH, Turn, passes, slot_bytes, sums
from sparsegen.products import gather_cost
from sparsegen.products.cost import in_the_way, nbytes, rate
from sparsegen.products.nm import NmNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "tensor": "mma instructions of the busiest SM's tiles x cycles per mma, over its tensor cores",
    "shared": "fragments of x, of W and the copies of both through shared memory, bank conflicts counted",
    "l2": "W's strips and the rows of x that a tile keeps of all turns of the busiest SM, through its port to L2",
    "hbm": "W's strips and lists, x, y and the epilogue's arrays, once each",
    "ring": "each turn of a block takes its way from L2, stages - 1 of them under way, and a barrier",
    "exposed": "units that are nearly as busy as the longest get in its way",
    "store": "sums of each tile to y, while no product is under way",
    "fill": "the first turns of a block, before its first product",
    "turn": gather_cost.REASONS["turn"],
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    **{name: gather_cost.SYMBOLS[name] for name in ("M", "K", "N", "E", "cols", "rounds", "slot", "stages", "odd")},
    "B": "bytes of W's strips and lists",
    "strip": "rows of W of a warp",
    "down": "strips of a block",
    "across": "warps that share a strip's columns of x",
    "deep": "mma of a turn, one after the other: kept columns by 16",
    "rows": "rows of x of a turn, those that any strip of a block keeps",
    "steps": "turns of a tile",
}
ADDED: Final = frozenset(("exposed", "store", "fill", "turn", "launch"))
# ---- fitted
#: Passes of a fragment of x through shared memory, over those without bank conflicts (1.1 to 1.3 are counted).
CONFLICTS: Final = 1.69
#: DRAM latencies before the first product, clocks for 16 x 8 of a tile's sums, and how busy units add up.
FILL, STORE, NORM = 2.84, 18.8, 7.8
#: The shares of an SM's port to L2 and of DRAM's bandwidth that a walk reaches.
PORT, SHARE = 0.7, 0.81
#: How long a turn's data are under way, over what the port takes of them; clocks of a turn besides (a barrier, first
#: fragments, copies); cycles of an mma over those that it takes alone: the warps of a block copy and multiply in step.
WAY, MEET, ISSUE = 1.37, 843.0, 1.99
#: What a kernel costs that follows another one, over a launch alone (estimated).
NEXT: Final = 0.5
#: Registers of a thread besides its sums, fragments and the rows that it copies.
BASE: Final = 40


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    tiles: int
    turn: Turn
    steps: int
    shared: int
    copied: int
    registers: int
    resident: int


def shape_of(p: NmNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    down, across = s.warps
    turn = p.turn(s.strip, down, s.kept)
    tiles = -(-p.m // (s.strip * down)) * -(-p.n // s.cols)
    shared = s.stages * slot_bytes(s.strip, down, s.cols, turn) + stage_bytes(p.n, down * across)
    copied = passes(s.cols, s.threads, turn.rows)
    registers = BASE + sums(s.strip, s.cols // across) + s.strip // 2 + copied + turn.depth // DEPTH
    resident = occupancy(registers, shared, s.threads, device).blocks
    return Shape(
        tiles, turn, -(-p.k // p.pattern[1] // turn.windows), shared, copied, registers,
        min(resident, -(-tiles // device.sms)),
    )  # fmt: skip


def packed(p: NmNumbers, s: Schedule) -> int:
    """Bytes of the strips of a complete schedule, of their places and of the lists of rows."""
    strip, down = int(s.strip), int(s.warps[0])
    turn = p.turn(strip, down, s.kept)
    parts = -(-p.m // (strip * down)) * -(-p.k // p.pattern[1] // turn.windows)
    return parts * 2 * (down * turn.depth * (strip + 1) + turn.rows)


def price(p: NmNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    down, across = s.warps
    values = {
        "M": p.m, "K": p.k, "N": p.n, "B": packed(p, s), "E": p.operands, "item": p.item,
        "strip": s.strip, "down": down, "across": across, "cols": s.cols, "deep": g.turn.depth // DEPTH,
        "rows": g.turn.rows, "steps": g.steps,
        "rounds": -(-g.tiles // (device.sms * g.resident)), "slot": slot_bytes(s.strip, down, s.cols, g.turn),
        "b": g.resident, "launch": device.launch_s, "f": device.clock, "sub": device.sub_cores,
        "cpi": device.cpi["f16.m16n8k16"], "bw_S": device.bw_shared / device.sms,
        "bw_G": device.hbm_read_gbs * 1e9, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
        "lat_dram": device.lat_dram, "stages": s.stages, "odd": 1 * p.turned("row"),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    turns = v.rounds * v.steps * v.b
    warps, high = v.down * v.across, v.strip / DEPTH
    products = v.deep * high * v.cols / 8 * v.down  # mma of a turn
    x = v.rows * v.cols * 2
    weights = v.slot - x
    # each warp reads 16 x 16 elements of x for each 16 columns, a lane 16 bytes; what is copied passes as well
    read = v.deep * v.down * v.cols / 16 * 512 * CONFLICTS + weights * v.across
    come = v.b * (x + weights) / (PORT * v.bw_L2)  # seconds until a turn's data have come
    busy = {
        "tensor": turns * products * ISSUE * v.cpi / (v.sub * a.min(1, v.b * warps / v.sub)) / v.f,
        "shared": turns * (read + x + weights) / v.bw_S,
        "l2": v.rounds * v.steps * come,
        "hbm": nbytes(v) / (SHARE * v.bw_G),
        "ring": v.rounds * v.steps * (WAY * come / (v.stages - 1) + MEET / v.f),
    }
    most, exposed = in_the_way(busy, NORM, a)
    store, fill = v.rounds * STORE * v.cols / 8 * high * v.down * v.b / v.f, FILL * v.lat_dram / v.f
    turn = v.odd * (NEXT * v.launch + 2 * v.item * v.K * v.N / v.bw_G)
    terms = {**busy, "exposed": exposed, "store": store, "fill": fill, "turn": turn, "launch": v.launch}
    return v.launch + turn + fill + most + exposed + store, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
