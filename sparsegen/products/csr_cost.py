"""The predicted time of a product with ragged rows: gathered rows on their way, and what has to be done meanwhile.

    time = launch + start + max(hbm, l2, lines, issue, wait, longest) + exposed

A team waits for each turn's rows, which come from L2, so that a product takes as long as all warps' turns over those
that are resident, or as the turns of the longest segment one after the other.  ``exposed``: what is nearly as long as
the longest gets in its way, by the NORM-th root of the sum of the NORM-th powers.

Instructions are counted in the lowered program; the other constants are fitted to 707 products on one H200, called in a
loop (tests/cost/data/looped.csv.xz): networks, graphs, bands, clusters, entries anywhere, 32 to 512 columns, f16 and
f32; within 7 % in the median, 20 % for nine of ten.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.types import DTYPES, widths
from sparsegen.products.cost import in_the_way, multiply, nbytes, rate
from sparsegen.products.ragged import Ragged, Walk, walk
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "hbm": "W's arrays, x, y and the epilogue's arrays, once each; x as often as L2 does not keep rows that are named",
    "l2": "the rows of x that entries name, but for those that L1 keeps, and W anew for each tile of columns",
    "lines": "each line of a row of x that a lane's load touches takes L1 a clock, found there or not",
    "issue": "instructions of all warps' turns and segments, over the sub-cores",
    "wait": "each turn of a warp waits for its rows, pieces of rows for each other; over the warps that are resident",
    "longest": "the turns of the longest segment, one after the other, and the sum of its row's pieces",
    "exposed": "what is nearly as long as the longest gets in its way",
    "start": "a warp's record, its first entries and their rows, one after another, and the store",
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    "M": "rows of W",
    "K": "columns of W",
    "unread": "of these that have no entry, at least",
    "N": "columns of x",
    "Z": "entries of W",
    "B": "bytes of W's arrays",
    "E": "bytes of bias, scale and residual",
    "T": "tiles of columns of x",
    "columns": "columns of x of a lane",
    "unroll": "entries of a turn",
    "teams": "teams of a warp",
    "segments": "segments, over the teams of a warp, of all tiles",
    "turns": "turns of all warps",
    "last": "turns of the longest segment",
    "cuts": "segments of rows that are cut, over the teams of a warp, of all tiles",
    "pieces": "segments of the longest row",
    "fresh": "the share of gathered rows that L1 does not have",
    "far": "the share of gathered rows that L2 does not have",
    "line": "bytes of a row of x of a tile",
    "touched": "lines of L1 that a load of a team touches, of one entry",
    "warps": "warps that an SM runs at a time",
}
ADDED: Final = frozenset(("exposed", "start", "launch"))
#: Instructions of a turn, of an entry, of each of a lane's loads, and of a segment and each of its sums.
TURN, ENTRY, LOAD, SEGMENT, SUM = 20.0, 7.0, 2.0, 90.0, 4.0


# ---- fitted
class Fitted(NamedTuple):
    """The share of L2's bandwidth that rows at any place reach, and clocks of L1 for a line that is touched; L2
    latencies of a turn for each load of a lane, and besides of the turns of one team; of a segment that is a piece of a
    row, of each piece that is summed up, and of a warp's start and end; the power with which busy units get in each
    other's way."""

    gather: float
    l1: float
    wait: float
    chain: float
    join: float
    piece: float
    start: float
    norm: float


#: Of 16 bits, and of more.
NARROW: Final = Fitted(1.14, 0.91, 0.117, 1.12, 7.5, 0.4, 2.67, 1.41)
WIDE: Final = Fitted(1.1, 1.2, 0.093, 1.1, 8.35, 0.51, 1.96, 1.32)
#: Bytes of a line of L1.
LINE_BYTES: Final = 128
#: Bytes of an SM's L1 for gathered rows (of 256 KiB, which W's entries pass through as well).
L1: Final = 180_000
#: The share of L2 that x's rows have, and the width of a band over the mean distance of its entries from the diagonal.
L2, BAND = 0.6, 4.0
#: Registers of a thread besides sums and rows, and of an entry of the next turn.
BASE, OF_ENTRY = 24, 2


class Shape(NamedTuple):
    """What a schedule makes of a product; ``vec``: elements that a load takes where x is by rows."""

    tiles: int
    vec: int
    walk: Walk
    blocks: float
    registers: int
    resident: int


def shape_of(p: Ragged, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not."""
    across, parts = s.team
    tiles = -(-p.n // (across * s.columns))
    vec = max(v for v in widths(DTYPES[p.dtype]) if p.n % v == 0 and s.columns % v == 0)
    teams = 32 // (across * parts)
    found = walk(p, s.cut, s.unroll * parts, s.unroll, teams)
    blocks = found.segments / teams / s.warps * tiles
    need = registers(p.item, s)
    resident = min(
        device.regs_sm // (-(-need // 8) * 8 * s.threads),
        device.max_threads_sm // s.threads,
        device.max_blocks_sm,
        int(-(-blocks // device.sms)),
    )
    return Shape(tiles, vec, found, blocks, need, max(1, resident))


def registers(item: int, s: Schedule) -> int:
    """Registers of a thread, within 8 of those of nvcc 13.0 on sm_90a: sums, rows on their way, entries to come."""
    words = max(1, item // 4)  # of a sum, and of an entry's value
    return int(BASE + s.columns * words + s.unroll * s.columns * item // 4 + (OF_ENTRY - 1 + words) * s.unroll)


def price(p: Ragged, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    return LAW.evaluate(s, _values(p, s, device, g), device, (p.m, p.k, p.n), p)


def _values(p: Ragged, s: Schedule, device: DeviceProfile, g: Shape) -> dict[str, float]:
    """The symbols of the formula and their numbers."""
    across, parts = s.team
    teams = 32 // (across * parts)
    line = max(32, min(across * s.columns, p.n) * p.item)  # L2 gives sectors of 32 bytes
    return {
        "M": p.m, "K": p.k, "unread": p.k - p.touched, "N": p.n, "Z": p.entries, "B": p.nbytes, "E": p.operands,
        "T": g.tiles, "columns": s.columns, "unroll": s.unroll, "teams": teams,
        "segments": g.walk.segments / teams * g.tiles,
        "turns": g.walk.turns * g.tiles, "last": g.walk.longest, "cuts": g.walk.cuts / teams * g.tiles,
        "pieces": g.walk.pieces, "joined": 1 * (g.walk.pieces > 1), "line": line,
        "fresh": 1 - float(p.named(L1 / line)),
        "far": _far(p, line, device),
        "touched": -(-min(across * s.columns, p.n) * p.item * g.vec // s.columns // LINE_BYTES),
        "warps": g.resident * s.warps, "b": g.resident, "item": p.item, "loads": s.unroll * s.columns // g.vec,
        "multiply": multiply(p.item, device), "launch": device.launch_s, "SMs": device.sms, "sub": device.sub_cores,
        "f": device.clock, "bw_G": device.hbm_read_gbs * 1e9, "lat_l2": device.lat_l2,
        "bw_L2": device.l2_bytes_per_clk_sm * device.clock * device.sms,
        **(NARROW if p.item == 2 else WIDE)._asdict(),
    }  # fmt: skip


def _far(p: Ragged, line: int, device: DeviceProfile) -> float:
    """The share of gathered rows of ``line`` bytes that L2 does not keep until they are named again."""
    kept = device.l2_bytes * L2 / line
    return 0.0 if min(1.0, BAND * p.spread) * p.k <= kept else 1 - float(p.named(kept))


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    of_turn = TURN + v.unroll * (ENTRY + v.columns * v.multiply) + v.loads * LOAD
    instructions = v.turns * of_turn + v.segments * (SEGMENT + SUM * v.columns)
    turn, x = v.wait * v.loads * v.lat_l2, v.item * (v.K - v.unread) * v.N
    busy = {
        "hbm": (nbytes(v) - v.item * v.unread * v.N - x + a.max(x, v.Z * v.T * v.line * v.far)) / v.bw_G,
        "l2": v.Z * v.T * (v.line * v.fresh + 4 + v.item) / (v.gather * v.bw_L2),
        "lines": v.Z * v.T * v.loads / v.unroll * v.touched * v.l1 / (v.SMs * v.f),
        "issue": instructions / (v.sub * v.SMs * v.f),
        "wait": (v.turns * turn + v.cuts * v.join * v.lat_l2) / (v.SMs * v.warps * v.f),
        "longest": (v.last * (v.chain * v.lat_l2 + turn) + v.joined * (v.join + v.piece * v.pieces) * v.lat_l2) / v.f,
    }
    most, exposed = in_the_way(busy, v.norm, a)
    start = v.start * v.lat_l2 / v.f
    return v.launch + start + most + exposed, {**busy, "exposed": exposed, "start": start, "launch": v.launch}


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
