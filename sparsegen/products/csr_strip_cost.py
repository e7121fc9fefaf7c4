"""The predicted time of a product with ragged rows against strips of x that stay in shared memory.

    time = launch + turn + start + cut + max(shared, issue, l2, hbm, chain) + exposed

``shared``, ``issue`` and ``l2`` are what the busiest SM does, ``chain`` what its busiest team waits for, one thing
after another.  Fitted to 246 kernels of 150 products on one H200, called in a loop: within 5 % in the median, 14 % for
nine of ten.  Other GPUs were not measured.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.mixed import sums_pitch
from sparsegen.ir.numbers.resident import PIECE, WIDTHS, padded_rows, pieces
from sparsegen.products import gather_cost
from sparsegen.products.cost import in_the_way, multiply, nbytes, rate
from sparsegen.products.csr_strip import cut_of, filled, spare
from sparsegen.products.ragged import Ragged
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "shared": "a strip's row for each entry, and the strips themselves, through the busiest SM's shared memory",
    "issue": "instructions of its warps' turns and rows, over its sub-cores",
    "l2": "its strips, and the entries of its rows, through its port to L2",
    "hbm": "W's arrays, x, y and the epilogue's arrays, once each",
    "chain": "the turns and rows of the busiest team, one after another",
    "exposed": "units that are nearly as busy as the longest get in its way",
    "start": "each round of blocks waits for its strips before it multiplies",
    "turn": gather_cost.REASONS["turn"],
    "cut": "rows that are cut: teams meet when all pieces are there, and add them up",
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of W",
    "K": "columns of W",
    "N": "columns of x",
    "B": "bytes of W's arrays",
    "E": "bytes of bias, scale and residual",
    "wide": "bytes of a strip's row",
    "lists": "blocks that share a strip's rows of W",
    "here": "blocks of the busiest SM",
    "rounds": "its blocks, over those that it runs at a time",
    "filled": "entries, with those that fill up turns",
    "turns": "turns of all teams",
    "teams": "teams of a warp",
    "last": "turns of the busiest team",
    "length": "rows of a team",
    "unroll": "entries of a turn",
    "columns": "columns of x of a piece",
    "pieces": "pieces of a row of x that a lane has of an entry",
    "shuffles": "of a row's sums: over the lanes that share its entries",
    "boxes": "the share of a port to L2 that copies of a strip reach",
    "cuts": "1 if rows are cut, else 0",
    "odd": gather_cost.SYMBOLS["odd"],
}
ADDED: Final = frozenset(("exposed", "start", "turn", "cut", "launch"))
#: Instructions of a turn, of an entry (its place, its load), and of a row and each of its sums.
TURN, ENTRY, ROW, SUM = 8.0, 0.84, 50.0, 4.0
# ---- fitted
#: Passes of a warp's load through shared memory over those without bank conflicts, by the bytes of a row: lanes of two,
#: or four, rows read at once.
CONFLICTS: Final = {32: 2.4, 64: 1.47, 128: 1.0}
#: And over these, where such lanes are of two rows of W: the shorter one's lanes have nothing to read at the end.
APART: Final = 1.3
#: Clocks of a turn of one team, and of a row: its sums, and the store.
CHAIN, OF_ROW = 239.0, 626.0
#: Clocks in which the pieces of rows that are cut are added up.
CUT: Final = 1077.0
#: The share of an SM's port to L2 that boxes of rows reach, by their bytes.
BOXES: Final = {32: 0.24, 64: 0.75, 128: 1.0}
#: L2 latencies before a strip begins to come, and how busy units add up.
START, NORM = 2.0, 1.76
#: Turns of the busiest team over the mean, where a row goes to the team that has the fewest (three pruned layers).
EVEN: Final = 1.05
#: What a kernel costs that follows another one, over a launch alone.
NEXT: Final = 0.5
#: Bytes that a shuffle moves.
WARP: Final = 128
#: Registers of a thread besides sums, rows of x, and entries of this turn and the next.
BASE: Final = 24


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM; ``slots``: pieces of
    a list's rows that are cut, at most."""

    strips: int
    teams: int
    length: int
    turns: float
    last: float
    shared: int
    registers: int
    resident: int
    pieces: int
    slots: int = 0


def shape_of(p: Ragged, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    across = s.wide // PIECE
    teams = s.threads // (across * s.groups)
    slots = s.lists * teams
    strips = -(-p.n * p.item // s.wide)
    turns = np.ceil(p.table.length / (s.unroll * s.groups))
    shared = (padded_rows(p.k) + 1) * s.wide + 8 * (device.compute_capability >= HOPPER)
    words = max(1, p.item // 4)  # of a sum, and of an entry's value
    each = PIECE // p.item * words  # of a piece's sums
    many = pieces(s.wide, s.unroll, 4 * each)
    cut = cut_of([(int(n), int(rows)) for n, rows in zip(turns, p.table.rows, strict=True)], s.lists, teams)
    pitch = sums_pitch(s.wide // p.item) * 4 * words
    shared += cut.slots * pitch if cut else 0
    registers = BASE + many * each + s.unroll * PIECE // 4 + s.unroll // many * (2 + words)
    resident = min(occupancy(registers, shared, s.threads, device).blocks, -(-strips * s.lists // device.sms))
    length, total = max(1, -(-p.m // slots)), float((p.table.rows * turns).sum())
    if cut:
        length = -(-(p.m + cut.slots * s.lists) // slots)
        return Shape(strips, teams, length, total, max(cut.most, EVEN * total / slots), shared, registers, resident,
                     many, cut.slots)  # fmt: skip
    more = spare(float(turns[-1]), total, p.m, slots)
    last = max(float(turns[-1]), EVEN * total / slots) if more else _last(p, turns, slots, length)
    return Shape(strips, teams, length + more, total, last, shared, registers, resident, many)


def _last(p: Ragged, turns: Any, slots: int, length: int) -> float:
    """Turns of the busiest of so many teams: rows are dealt to and fro, the longest first, so it is about
    the first or the last one."""
    level = np.arange(length)
    most = 0.0
    for odd in (0, 1):
        place = level * slots + np.where(level % 2 == odd, 0, slots - 1)
        place = place[place < p.m]
        which = np.searchsorted(p.table.upto, p.m - 1 - place, side="right") - 1
        most = max(most, float(turns[which].sum()))
    return most


def price(p: Ragged, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    here = -(-g.strips * s.lists // device.sms)
    apart = APART if s.groups == 1 and s.wide < WIDTHS[-1] else 1.0
    values = {
        "M": p.m, "K": p.k, "N": p.n, "B": p.nbytes, "E": p.operands, "item": p.item, "wide": s.wide,
        "lists": s.lists, "here": here, "rounds": -(-here // g.resident), "filled": filled(p, s.unroll),
        "turns": g.turns, "teams": g.teams // s.warps, "last": g.last, "length": g.length, "unroll": s.unroll,
        "columns": PIECE // p.item, "pieces": g.pieces,
        "shuffles": (g.pieces - 1 + math.log2(s.groups)) * (PIECE // p.item),
        "multiply": multiply(p.item, device), "conflicts": CONFLICTS[s.wide] * apart, "boxes": BOXES[s.wide],
        "launch": device.launch_s, "f": device.clock, "sub": device.sub_cores,
        "busy": min(1.0, g.resident * s.warps / device.sub_cores), "bw_S": device.bw_shared / device.sms,
        "bw_G": device.hbm_read_gbs * 1e9, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
        "lat_l2": device.lat_l2, "cuts": 1 * (g.slots > 0), "odd": 1 * (p.n * p.item % PIECE > 0),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    strip, part = v.K * v.wide, v.here / v.lists  # the share of all rows of a strip that the busiest SM has
    turn = TURN + v.unroll * (ENTRY + v.columns * v.multiply)
    instructions = part * (v.turns * turn + v.M * (ROW + SUM * v.columns + 2 * v.shuffles)) / v.teams
    lanes = v.wide / PIECE / v.pieces  # that load an entry
    moved = part * v.filled * (v.wide * v.conflicts + lanes * (4 + v.item))
    busy = {
        "shared": (moved + v.here * strip + part * v.M * v.shuffles / v.teams * WARP) / v.bw_S,
        "issue": instructions / (v.sub * v.busy) / v.f,
        "l2": (v.here * strip + part * v.filled * (4 + v.item)) / v.bw_L2,
        "hbm": nbytes(v) / v.bw_G,
        "chain": v.rounds * (v.last * CHAIN + v.length * OF_ROW) / v.f,
    }
    most, exposed = in_the_way(busy, NORM, a)
    start = v.rounds * START * v.lat_l2 / v.f + v.here * strip / (v.boxes * v.bw_L2)
    again = v.odd * (NEXT * v.launch + 2 * v.item * v.K * v.N / v.bw_G)
    cut = v.cuts * v.rounds * CUT / v.f
    terms = {**busy, "exposed": exposed, "start": start, "turn": again, "cut": cut, "launch": v.launch}
    return v.launch + again + start + cut + most + exposed, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
