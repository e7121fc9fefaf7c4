"""The predicted time of a product with dense tiles and other entries.

    time = launch + turn + start + (tiles + others, hbm)
    tiles = (l2, tensor, shared, parts, turns),  others = (rows, issue, sums, chain)

where (a, b, ...) are units that get in each other's way: the NORM-th root of the sum of the NORM-th powers.  A block
multiplies its dense tiles first.  ``turns`` and ``chain`` are what the busiest block waits for, one thing after
another, and those before it in its place; the others what all blocks do, over the SMs, but no less than the busiest
band of rows does on one.
Fitted to 543 kernels of 480 products on one H200, called in a loop: within 12 % in the median, 31 % for nine of ten,
and where it is near the fastest of all formats within 10 and 26 %.  Those with hundreds of other entries in a row that
is not cut are the furthest off.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.mixed import SIDE, Team, passes, shared_bytes, slot_bytes, slots, sums_bytes, team_of
from sparsegen.ir.numbers.strips import DEPTH, sums
from sparsegen.ir.types import DTYPES, widths
from sparsegen.products import csr_cost, gather_cost
from sparsegen.products.cost import nbytes, rate
from sparsegen.products.gather_cost import LEAST, PEAK
from sparsegen.products.hybrid import HybridNumbers
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "l2": "dense tiles and their rows of x, through the SMs' ports to L2",
    "tensor": "mma instructions of dense tiles x cycles per mma, over the tensor cores",
    "shared": "copies of dense tiles and their rows of x, and fragments of both, through shared memory",
    "parts": "instructions that split f32 and add its sums, over the sub-cores",
    "turns": "turns of dense tiles of the busiest block, and of those before it in its place, one by one",
    "rows": "rows of x of other entries, in lines of L1, and their entries, through the SMs' ports to L2",
    "issue": "instructions of other entries and of rows, over the sub-cores",
    "sums": "sums of dense tiles, in and out of shared memory",
    "chain": "other entries of the busiest block: pieces of rows, then rows; and of those before it in its place",
    "hbm": "W's arrays, x, y and the epilogue's arrays, once each; rows of x that L2 has no place for",
    "exposed": "units that are nearly as busy as the longest get in its way, and other entries come after dense tiles",
    "start": "what a round of blocks waits for before its first products",
    "turn": gather_cost.REASONS["turn"],
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    **{name: gather_cost.SYMBOLS[name] for name in ("M", "K", "N", "E", "cols", "rounds", "slot", "stages", "odd")},
    "B": "bytes of W's arrays",
    "T": "tiles of columns of x",
    "D": "turns of all bands",
    "R": "rows of a band",
    "Z": "entries outside of dense tiles",
    "tile": "rows and columns of a dense tile",
    "down": "warps that share the rows of a band",
    "across": "warps that share its columns of x",
    "slices": "sets of warps that share k",
    "longest": "turns of the longest band",
    "bands": "bands of rows",
    "waves": "blocks of an SM over those that it runs at a time, but the busiest one",
    "most": "other entries of the longest row that is not cut",
    "cuts": "pieces of rows of a band at most",
    "piece": "other entries of the longest piece",
    "uneven": "rows of x that the busiest band reads, over what an SM reads, or 1",
    "far": "the share of x's rows that are read which L2 has no place for",
    "unread": "columns of W that have no entry, at least",
    "unroll": "other entries of a turn",
    "parts": "groups of lanes that share a row's other entries",
    "teams": "teams of a block",
    "columns": "columns of x of a lane",
    "each": "mma of the parts of two fragments, or of the fragments themselves: one",
    "split": "instructions that split a number, if it is split",
    "add": "instructions that add a sum of a turn to the others, if numbers are split",
}
ADDED: Final = frozenset(("exposed", "start", "turn", "launch"))
# ---- fitted
#: The shares of the ports to L2 that copies reach, and rows at any place.
PORT, GATHER = 0.95, 0.75
#: Clocks of a turn (a barrier, fragments), of each copy of 16 bytes that a thread makes for it, and L2 latencies of a
#: turn of other entries.
MEET, COPY, WAIT = 131.0, 76.0, 1.29
#: DRAM latencies before the first product, and how busy units add up.
START, NORM = 2.26, 1.53
#: Cycles of an mma over those that it takes alone, and L2 latencies of a row of other entries besides its turns.
ISSUE, ROW = 1.7, 0.87
# ---- estimated
#: Instructions of a turn of other entries, of an entry, and of a row and each of a lane's sums.
TURN, ENTRY, RECORD, SUM = csr_cost.TURN, csr_cost.ENTRY, 60.0, 5.0
#: What a kernel costs that follows another one, over a launch alone (estimated).
NEXT: Final = 0.5
#: Bytes of a line of L1, which a part of a row of x takes whole.
LINE: Final = 128
# ---- counted
#: Registers of a thread besides its sums, fragments and the rows that it copies; where f32 is split into parts those of
#: these, besides the sums of a turn.
BASE, PARTS = 40, 12
#: Instructions that take another slice's sum: a load of four, and an addition.
TAKE = 1.25
#: Where f32 is split also mma of parts for one, instructions that split a number (two of integers and one of floats),
#: and one that adds a turn's sum to the others.
EACH, SPLIT, ADD = 3, 3, 1


class Shape(NamedTuple):
    """What a schedule makes of a product; ``shared`` in bytes a block, ``resident`` blocks an SM."""

    tiles: int
    team: Team
    shared: int
    registers: int
    resident: int


def shape_of(p: HybridNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    (down, across), rows = s.warps, s.high * p.tile
    team = team_of(rows, s.cols, s.threads // 32, max(v for v in widths(DTYPES[p.dtype]) if p.n % v == 0))
    own = sums(rows // down, s.cols // across)
    fragments = 0 if s.mma == "wgmma" else rows // down // 4
    held = own + fragments + passes(p.tile, s.cols, s.threads, p.item) + p.split * (own + PARTS)
    columns = team.vec * team.blocks
    others = csr_cost.OF_ENTRY * s.unroll + columns + s.unroll * columns * p.item // 4
    cut = slots(p.counted(s.high).cuts, s.threads // team.lanes)
    dense = shared_bytes(rows, p.tile, s.cols, s.stages, p.item, s.slices) if p.dense else 0
    shared = dense + sums_bytes(cut, s.cols)
    registers = BASE + max(held, others)
    blocks = p.bands(s.high) * -(-p.n // s.cols)
    resident = min(occupancy(registers, shared, s.threads, device).blocks, -(-blocks // device.sms))
    return Shape(-(-p.n // s.cols), team, shared, registers, resident)


def price(p: HybridNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    (down, across), blocks, of = s.warps, p.bands(s.high) * g.tiles, p.counted(s.high)
    values = {
        "M": p.m, "K": p.k, "N": p.n, "B": p.nbytes, "E": p.operands, "item": p.item, "T": g.tiles, "D": of.turns,
        "R": s.high * p.tile, "Z": p.entries, "tile": p.tile, "down": down, "across": across, "slices": s.slices,
        "cols": s.cols, "stages": s.stages, "longest": of.longest, "most": of.whole, "cuts": of.cuts, "piece": of.piece,
        "unroll": s.unroll, "parts": g.team.parts,
        "uneven": max(1.0, of.busiest * device.sms / max(1.0, of.mean * blocks)),
        "teams": s.threads // g.team.lanes, "columns": g.team.vec * g.team.blocks,
        "each": EACH if p.split else 1, "split": SPLIT * p.split, "add": ADD * p.split,
        "far": max(0.0, 1 - device.l2_bytes / max(1, p.touched * p.n * p.item)), "unread": p.k - p.touched,
        "bands": p.bands(s.high),
        "waves": max(0.0, blocks / (device.sms * g.resident) - 1),
        "slot": slot_bytes(s.high * p.tile, p.tile, s.cols, p.item), "rounds": -(-blocks // (device.sms * g.resident)),
        "b": g.resident, "launch": device.launch_s, "f": device.clock, "sub": device.sub_cores, "SMs": device.sms,
        "cpi": device.cpi["tf32.m16n8k8" if p.item == 4 else "f16.m16n8k16"], "bw_S": device.bw_shared / device.sms,
        "bw_G": device.hbm_read_gbs * 1e9, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
        "lat_dram": device.lat_dram, "lat_l2": device.lat_l2, "odd": 1 * (p.n * p.item % 16 > 0),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.m, p.k, p.n), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    here = v.uneven / v.SMs  # of the busiest SM, over what all have to do
    turns, rows = v.D * v.T, v.M * v.T
    # turns of a row, and of a piece
    longest, mean, piece = (a.ceil(n / (v.unroll * v.parts)) for n in (v.most, v.Z / v.M, v.piece))
    entries = v.Z * v.T
    products = v.R / DEPTH * v.tile / DEPTH * v.cols / 8 * v.item / 2 * v.each  # mma of a turn, of tf32 half as deep
    numbers = v.tile * v.cols * v.down + v.R * v.tile * v.across  # of all warps' fragments
    clocks = products * ISSUE * v.cpi / v.sub
    if s.mma == "wgmma":  # each reads both operands itself, of 64 columns of x
        numbers = v.tile * v.cols + v.R * v.tile * v.cols / SIDE
        clocks = v.tile / DEPTH * v.cols / SIDE * a.max(LEAST, v.R / 2) / PEAK
    wide = v.item * v.cols  # bytes of a row of x of a tile of columns
    entry = TURN / v.unroll + ENTRY + 2 * v.columns
    row = RECORD + (SUM + TAKE * (v.slices - 1)) * v.columns
    issued = (entries * entry + rows * row) * v.cols / v.columns / 32
    come, copies = v.slot / (PORT * v.bw_L2), v.slot / (16 * 32 * v.down * v.across * v.slices)
    tiles = {
        "l2": here * turns * come,
        "tensor": here * turns * clocks / v.f,
        "shared": here * turns * (numbers * v.item + v.slot) / v.bw_S,
        "parts": here * turns * (numbers * v.split + v.R * v.cols * v.slices * v.add) / 32 / v.sub / v.f,
        "turns": (v.longest + v.waves * v.D / v.bands) * (v.lat_l2 / (v.stages - 1) + MEET + COPY * copies) / v.f,
    }
    others = {
        "rows": here * entries * (a.max(wide, LINE) + 4 + v.item) / (GATHER * v.bw_L2),
        "issue": here * issued / v.sub / v.f,
        "sums": here * rows * v.cols * 8 * v.slices / v.bw_S,
        "chain": ((1 + v.waves) * v.R / v.teams * (ROW + WAIT * mean) + WAIT * (longest - mean)) * v.lat_l2 / v.f
        + a.ceil(v.cuts / v.teams) * (ROW + WAIT * piece) * v.lat_l2 / v.f,
    }
    moved = nbytes(v) - v.item * v.unread * v.N + v.far * v.Z * v.item * v.N
    busy = {**tiles, **others, "hbm": moved / v.bw_G}

    def together(*times: Any) -> Any:
        """Units that get in each other's way."""
        return sum(t**NORM for t in times) ** (1 / NORM)

    # a block multiplies its tiles first, then the other entries; all of it moves through DRAM meanwhile
    most = together(together(*tiles.values()) + together(*others.values()), busy["hbm"])
    exposed = most - a.max(*busy.values())
    start = START * v.rounds * v.lat_dram / v.f
    turn = v.odd * (NEXT * v.launch + 2 * v.item * v.K * v.N / v.bw_G)
    terms = {**busy, "exposed": exposed, "start": start, "turn": turn, "launch": v.launch}
    return v.launch + turn + start + most, terms


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
