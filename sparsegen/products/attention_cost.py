"""The predicted time of fused sparse attention: blocks of keys of the busiest SM, what comes before and after them.

    time = launch + quantise + fill + tasks + max(issue, shared, tensor, l2, chain) + exposed + join

``fill``: k and v of an SM's blocks come through its port to L2 before the first product.  Instructions are counted in
the program; the other constants are fitted to 100 kernels of 10 random problems and 3 of suite ``magicube``, on one
H200: within 8 % in the median, 15 % for nine of ten.  Other GPUs were not measured.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.ir.numbers.attention import PIECE, ROWS, STEP, length, part_bytes
from sparsegen.products.attention import AttentionNumbers
from sparsegen.products.cost import in_the_way
from sparsegen.schedule import Schedule

REASONS: Final[dict[str, str]] = {
    "issue": "instructions of the busiest SM's blocks of keys and tasks, over its sub-cores",
    "shared": "rows of k and v out of shared memory, bank conflicts counted",
    "tensor": "mma of scores and values x cycles per mma, over the SM's tensor cores",
    "l2": "k and v of each block, places of the keys, q and the parts of results, through the SM's port to L2",
    "chain": "the blocks of keys of the busiest warp, one after another",
    "exposed": "units that are nearly as busy as the longest get in its way",
    "fill": "k and v of a block, before its first product",
    "tasks": "what a warp waits for between its tasks: a record, then places and rows of q",
    "join": "the kernel that joins the parts of the keys",
    "quantise": "two kernels before: the largest elements of q, k and v, and their integers",
    "launch": "starting the kernel",
}
SYMBOLS: Final[dict[str, str]] = {
    "heads": "heads of all batches",
    "M": "queries",
    "N": "keys",
    "d": "elements of a head",
    "part": "bytes of k and v of a block",
    "parts": "parts of the keys",
    "warps": "warps of a block",
    "keys": "keys of a block, whose scores are made at once",
    "rounds": "blocks that an SM runs one after another",
    "b": "blocks that an SM runs at a time",
    "count": "blocks of keys of an SM",
    "longest": "blocks of keys of the longest vector row",
    "tasks": "tasks of an SM",
    "length": "tasks of a warp",
    "f16": "1 where q, k and v come in f16",
}
ADDED: Final = frozenset(("exposed", "fill", "tasks", "join", "quantise", "launch"))
#: Instructions of a step besides those of its scores and of each 16 elements of a head; of a block, and of each 16
#: elements; of a task.
OF_STEP, OF_PIECE, BLOCK, BLOCK_PIECE, TASK = 58.0, 10.5, 26.0, 8.0, 120.0
#: Bank conflicts of rows of k and v, as tasks order their keys.
CONFLICTS: Final = 1.15
# ---- fitted
#: The share of issue slots that is used, and the power with which busy units get in each other's way.
ISSUE, NORM = 0.82, 2.15
#: Bytes of the port to L2 that a fill reaches; latencies of L2 of a task; of DRAM of a fill and a second kernel.
PORT, WAIT, FILL, JOIN = 0.33, 3.3, 1.56, 0.66
#: Clocks of a block of keys alone, and of each of its steps of 32 keys: of d = 64 twice as many.
CHAIN, CHAIN_STEP = 730.0, 40.0
#: A kernel that follows another one in a call, over a launch alone.
NEXT: Final = 0.4
#: Registers of a thread (nvcc 13.0, sm_90a), by keys at once: some, and of each 16 elements of a head; of these also
#: for exponentials of 16 bits.
REGISTERS: Final = {32: (40, 10), 64: (51, 13), 128: (80, 16)}
OF_PLANES: Final = 4


class Shape(NamedTuple):
    """What a schedule makes of it.

    ``fills``: blocks of keys of a head; ``words``: of places; ``shared`` in bytes a block, ``resident`` blocks an SM.
    """

    blocks: int
    length: int
    fills: int
    longest: int
    words: int
    shared: int
    registers: int
    resident: int


def shape_of(p: AttentionNumbers, s: Schedule, device: DeviceProfile) -> Shape:
    """The numbers of a complete schedule, legal or not; ``resident`` is 0 for a block that does not fit an SM."""
    count, longest = p.blocks(s.parts, s.keys)
    blocks, shared = p.heads * s.parts * s.groups, part_bytes(p.n, s.parts, p.d) + 16
    some, each = REGISTERS[s.keys]
    registers = some + (each + OF_PLANES * (p.softmax_bits // 8 - 1)) * (p.d // PIECE)
    resident = occupancy(registers, shared, s.threads, device).blocks
    return Shape(
        blocks, length(p.rows, s.groups, s.warps), count, longest, count * s.keys, shared, registers,
        min(resident, -(-blocks // device.sms)),
    )  # fmt: skip


def price(p: AttentionNumbers, s: Schedule, device: DeviceProfile, g: Shape) -> Cost:
    """The cost of a complete schedule that is legal there; ``g``: its numbers."""
    here = -(-g.blocks // device.sms)  # blocks of the busiest SM
    share = here / (s.parts * s.groups)  # of all tasks of a head
    own = max(g.fills * share, float(g.longest))
    values = {
        "heads": p.heads, "M": p.m, "N": p.n, "d": p.d, "part": part_bytes(p.n, s.parts, p.d), "parts": s.parts,
        "warps": s.warps, "keys": s.keys, "longest": g.longest, "rounds": -(-here // g.resident), "b": g.resident,
        "count": own, "tasks": p.rows * s.parts * share, "length": g.length * -(-here // g.resident), "rows": p.rows,
        "planes": p.softmax_bits // 8, "f16": 1 * (not p.quantized), "launch": device.launch_s, "f": device.clock,
        "sub": device.sub_cores, "cpi": device.cpi["s8.m16n8k32"], "bw_S": device.bw_shared / device.sms,
        "bw_G": device.hbm_read_gbs * 1e9, "bw_L2": device.l2_bytes_per_clk_sm * device.clock,
        "SMs": device.sms, "lat_l2": device.lat_l2, "lat_dram": device.lat_dram, "join": 1 * (s.parts > 1),
    }  # fmt: skip
    return LAW.evaluate(s, values, device, (p.heads, p.m, p.n, p.d), p)


def law(s: Schedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms: of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    pieces, steps = v.d / PIECE, v.count * v.keys / STEP
    depth = 1 + pieces / 4
    warps = v.b * v.warps / v.sub
    issued = steps * (OF_STEP + OF_PIECE * pieces) + v.count * (BLOCK + BLOCK_PIECE * pieces) + v.tasks * TASK
    mma = 2 * pieces + v.planes * pieces
    partial = ROWS * (2 * v.d + 8)  # bytes of a task's result
    places = steps * STEP * 4 + v.tasks * (ROWS * v.d + 16 + partial)
    busy = {
        "issue": issued / (v.sub * ISSUE * a.min(1, warps / 4)) / v.f,
        "shared": steps * 2 * STEP * v.d * CONFLICTS / v.bw_S,
        "tensor": steps * mma * v.cpi / v.sub / v.f,
        "l2": places / v.bw_L2,
        "chain": a.max(v.longest, v.count / (v.b * v.warps)) * (CHAIN + CHAIN_STEP * v.keys / STEP * depth) / v.f,
    }
    most, exposed = in_the_way(busy, NORM, a)
    fill = v.rounds * (v.b * v.part / (PORT * v.bw_L2) + FILL * v.lat_dram / v.f)
    tasks = v.length * WAIT * v.lat_l2 / v.f
    moved = v.heads * v.rows * v.parts * partial
    join = v.join * (NEXT * v.launch + 2 * moved / (v.bw_L2 * v.SMs) + JOIN * v.lat_dram / v.f)
    quantise = quantising(v)
    terms = {
        **busy, "exposed": exposed, "fill": fill, "tasks": tasks, "join": join, "quantise": quantise,
        "launch": v.launch,
    }  # fmt: skip
    return v.launch + quantise + fill + tasks + most + exposed + join, terms


def quantising(v: Any) -> Any:
    """The two kernels that make integers of q, k and v, where these are floats."""
    given = v.heads * v.d * (v.M + 2 * v.N)
    return v.f16 * 2 * (NEXT * v.launch + 2 * given / (PORT * v.bw_L2 * v.SMs) + JOIN * v.lat_dram / v.f)


def rate(cost: Cost) -> float:
    """TB/s of q, k, v and the result."""
    return float(cost.facts.nbytes / cost.time / 1e12)


LAW: Final = Law(law, SYMBOLS, REASONS, ADDED, rate, "TB/s")
