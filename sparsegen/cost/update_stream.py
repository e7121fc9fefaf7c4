"""The predicted time of a pass of an update in ``stream``: several time steps while rows walk through registers.

    time = launch + |sqrt(memory² + fetch²), fma, alu, mufu, shared, |issue, alone| + wait, depend + wait|

where |…| is a norm of a high order: a little more than the longest of what overlaps.  Of a low one is that of what a
sub-core issues and of what a warp takes alone: as many warps as fill a sub-core wait for one another and for
themselves (a closed queue with delays; Lazowska et al., Quantitative System Performance, 1984).  Bytes, operations and
rows are counted from the formula and the schedule; the figures named fitted are of 1064 kernels of random updates.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sparsegen.cost import terms
from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law, steps_rate
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.cost.update import DEPEND, deep, units
from sparsegen.dsl.update import Update
from sparsegen.ir import formula
from sparsegen.ir.numbers.rows import Rows
from sparsegen.ir.op_update import parameters
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE, PADDED_FROM

REASONS: Final[dict[str, str]] = {
    "hbm": "every array is read once a pass, with the rows that strips have in common, and every new level written",
    "l2": "the same bytes through each SM's port to L2, with the columns that strips have in common",
    "fma": "multiplications and additions of the formula at every level on the CUDA cores",
    "alu": "its comparisons and choices",
    "mufu": "its divisions, roots and functions, as first estimated",
    "shared": "rows through the rings, those that wait once a level, and columns between lanes",
    "issue": "warp instructions, one a clock and sub-core; more where a turn's code is longer than the cache for it",
    "alone": "a warp's own instructions, those of f64 two clocks each, where few other warps fill the time",
    "depend": "a warp's own steps, one after the other, where few other warps fill the time between instructions",
    "wait": "divisions, roots and functions that a warp waits for, with nothing to overlap with",
    "fetch": "a row that is fetched ahead is waited for where few rows are under way",
    "launch": "starting the kernel",
}
#: The formula's symbols, and what they are.
SYMBOLS: Final[dict[str, str]] = {
    "ny": "rows of the grid", "nx": "its columns", "R": "rows of a block's strips", "C": "their columns",
    "turns": "rows that a warp walks over", "reads": "arrays read", "writes": "arrays written", "T": "levels of a pass",
    "cols": "columns of a lane", "warps": "warps a block", "b": "blocks an SM",
    "FMA": "multiplications and additions a cell", "ALU": "comparisons and choices a cell",
    "MUFU": "divisions, roots and functions a cell", "chosen": "cells of a lane that a border chooses a level",
    "unroll": "turns written one after the other",
    "waits": "rows that wait, read once a level", "shuffles": "values from neighbouring lanes a level",
    "moves": "rows that move on in registers a level", "stages": "rows under way",
}  # fmt: skip
#: Fitted: warp instructions of a turn besides its arrays, of each 16 bytes of a lane that are read, and written.
TURN, READ, WRITTEN = 10.4, 13.7, 12.5
#: Fitted: share of the moves of rows that are instructions, unless the turns written out are as many as rows are kept.
MOVES: Final = 0.78
#: Fitted: instructions of a turn that are at hand at once, and how much longer others take at most.
AT_HAND, FROM_AFAR = 2280.0, 1.17
#: Fitted: bytes of shared memory's bandwidth that a byte between lanes takes.
SHUFFLE: Final = 1.93
#: Fitted: the orders of the norm of what overlaps, and of what warps issue together and each alone.
ORDER, ALONE = 5.8, 2.8
#: Comparisons and choices a clock and SM, estimates of a division or root (CUDA C++ Programming Guide, arithmetic).
ALU, MUFU = 64, 16
#: 32-bit registers of a thread besides rows that it keeps, and of each array (addresses).
REGISTERS, ADDRESSES = 34, 5
#: Cells of a column, a field and a level that turns written one after the other keep besides, by words of an element.
TURNS = 0.2, 0.6


def read_offsets(update: Update) -> tuple[tuple[str, int, tuple[int, int]], ...]:
    """The reads of a formula on two axes: one axis is a row."""
    return tuple((name, level, (0, 0, *o)[-2:]) for name, level, o in formula.reads(update.code))  # type: ignore[misc]


@lru_cache(maxsize=1 << 12)
def numbers(update: Update, s: UpdateSchedule, rows: int) -> Rows:
    """What a schedule keeps of an update, in elements."""
    return Rows(
        reads=read_offsets(update), fields=dict(update.fields), levels=s.levels, nbytes=ITEMSIZE[update.dtype],
        per_lane=s.cols, rows=rows, warps=s.warps, stages=s.stages,
    )  # fmt: skip


def chosen(update: Update, s: UpdateSchedule, n: Rows) -> int:
    """Cells of a lane that a level chooses for a border of columns: constants are set once, a frozen side keeps what it
    has, images are chosen in each row that is read beside a cell.  Where rows end a few turns alone choose."""
    reach, count = max(n.rx, n.beside), 0
    for (name, _), sides in zip(update.fields, update.sides, strict=True):
        beside = len({(level, dy) for of, level, (dy, dx) in n.reads if of == name and dx})
        chosen = {"periodic": 0, "neumann": beside}
        count += reach * sum(chosen.get(side.kind, 1) for side in sides[-1])
    return count


def period(n: Rows) -> int:
    """Turns after which rows that a level keeps are in the same registers again."""
    return 1 + max(n.depth(name) for name in n.fields)


def registers(update: Update, s: UpdateSchedule, n: Rows) -> int:
    """Estimated 32-bit registers of a thread: rows of all levels, those at hand, addresses."""
    words = max(1, ITEMSIZE[update.dtype] // 4)
    arrays = len(parameters(update.fields, update.coefs)) + len(n.outputs)
    at_hand = 2 * len(update.fields) + max(0, len(n.outputs) - len(update.fields)) + 1
    written = TURNS[words - 1] * len(update.fields) * s.levels if s.unroll > 1 else 0.0
    return int(REGISTERS + ADDRESSES * arrays + words * s.cols * (n.kept + at_hand + written))


def resident(update: Update, s: UpdateSchedule, n: Rows, device: DeviceProfile) -> int:
    """Blocks that an SM has room for, as estimated; at least one."""
    shared = n.slots * n.ring * ITEMSIZE[update.dtype]
    return max(1, occupancy(min(255, registers(update, s, n)), shared, s.threads, device).blocks)


def cost(update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1) -> Cost:
    """The cost of one pass on a grid of ``shape``, of a call of ``steps``: most of many passes go between padded rows.

    The schedule's rows are said.
    """
    padded = steps >= PADDED_FROM * s.levels
    n, size, shape = numbers(update, s, s.rows), ITEMSIZE[update.dtype], (1, *shape)[-2:]
    reads = parameters(update.fields, update.coefs)
    writes, nbytes = len(n.outputs), shape[0] * shape[1] * size
    beside = {(name, level, dy, dx) for name, level, (dy, dx) in n.reads if dx}
    values: dict[str, float] = {
        "ny": shape[0], "nx": shape[1], "R": s.rows, "C": n.tile[1], "turns": n.turns, "reads": len(reads),
        "writes": writes, "T": s.levels, "cols": s.cols, "warps": s.warps, "b": resident(update, s, n, device),
        **units(update), "chosen": chosen(update, s, n), "stages": s.stages, "s": size, "word": max(1, size // 4),
        "unroll": s.unroll,
        "waits": len({(name, dy) for name, _, (dy, _) in n.reads if name in update.coefs}),
        "shuffles": sum(abs(dx) for *_, dx in beside) and len({b[:3] for b in beside}) * 2 * n.rx,
        "moves": 0.0 if s.unroll == period(n) else MOVES * n.kept / s.levels, "width": s.warps * n.width,
        "vector": 16 / size if padded or shape[1] * size % 16 == 0 else 1,
        "sms": device.own_sms, "sub": device.sub_cores, "f": device.clock, "launch": terms.STARTING * device.launch_s,
        "miss": device.missed(nbytes * (len(reads) + writes)), "bw_G": terms.REACH * device.bw_global,
        "bw_S": device.smem_bytes_per_clk_sm, "bw_L2": device.l2_bytes_per_clk_sm, "lat": device.lat_dram,
        "deep": deep(update),
        "fma_rate": device.f64_fma_per_clk_sm if update.dtype == "f64" else device.f32_fma_per_clk_sm,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, shape, update, s.levels)


def _equations(s: UpdateSchedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms, for floats and for sympy alike."""
    blocks = a.ceil(v.ny / v.R) * a.ceil(v.nx / v.C)
    b = a.min(v.b, a.ceil(blocks / v.sms))
    per_sm = a.ceil(blocks / (v.sms * b)) * b
    scale = per_sm * v.turns / v.f  # seconds of a clock that each turn of a block takes
    held = b * v.warps / v.sub  # warps of a sub-core
    even = scale * a.ceil(held) / held
    grid = v.ny * v.nx * v.s
    pieces = v.cols / v.vector
    level = v.cols * (v.FMA + v.ALU + v.MUFU + v.moves * v.word + v.waits * v.s / 16) + (v.shuffles + v.chosen) * v.word
    issued = v.T * level + TURN + (v.reads * READ + v.writes * WRITTEN) * pieces
    far = a.max(1, a.min(FROM_AFAR, issued * v.unroll / AT_HAND))
    cells = even * v.warps * 32 * v.T * v.cols
    moved = v.cols * (2 * v.reads + 2 * v.writes + v.waits * v.T) + SHUFFLE * v.T * v.shuffles
    found = {
        "hbm": v.miss * grid * (v.reads * v.turns / v.R + v.writes) / v.bw_G,
        "l2": scale * (v.reads * v.width + v.writes * v.C) * v.s / v.bw_L2,
        "fma": cells * v.FMA / v.fma_rate,
        "alu": cells * v.ALU / ALU,
        "mufu": cells * v.MUFU / MUFU,
        "shared": scale * v.warps * 32 * v.s * moved / v.bw_S,
        "issue": even * v.warps * issued / v.sub * far,
        "alone": scale / b * (issued + v.T * v.cols * v.FMA * (32 * v.sub / v.fma_rate - 1)),
        "depend": scale / b * v.T * (v.FMA + v.ALU) * DEPEND,
        "wait": scale / b * v.T * v.cols * v.MUFU * v.deep,
        "fetch": (1 + (terms.LOADED - 1) * v.miss) * v.lat * scale / ((v.stages - 1) * b),
        "launch": v.launch,
    }
    memory = (a.max(terms.STATIC * found["hbm"], found["l2"]) ** 2 + found["fetch"] ** 2) ** 0.5
    others = [found[name] for name in ("fma", "alu", "mufu", "shared")]
    issue = (found["issue"] ** ALONE + found["alone"] ** ALONE) ** (1 / ALONE)
    others += [busy + found["wait"] for busy in (issue, found["depend"])]
    return v.launch + sum((t**ORDER for t in others), memory**ORDER) ** (1 / ORDER), found


LAW: Final = Law(_equations, SYMBOLS, REASONS, frozenset(("fetch", "launch")), steps_rate)
