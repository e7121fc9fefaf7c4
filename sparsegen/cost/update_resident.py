"""The predicted time of a launch of an update in ``resident``: all steps, fields in the registers of the SMs.

    time = once + steps · (||fma, alu, mufu, issue, shared|| + meet) + rounds · exchange

A step ends when the slowest block has made it, so all are alike: what a warp does, and one meeting of its block.
Between rounds the cells around a block's own go through shared memory and L2, with a tag each.  Figures without another
source are fitted, together, to 347 kernels that spill little: of random updates and small fields on an H100 and an H200
(tests/cost/test_drawn_updates.py), of suite ``updates``, and of many schedules of its fields on one H200
(tests/cost/test_onchip.py), of which half are predicted to 3.5 % and nine of ten to 12 %.  Those of whole lines
were then chosen from a grid around what came out, so that of the kernels of two fields the fastest are taken.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, prod
from typing import Any, Final

from sparsegen.cost import terms
from sparsegen.cost import update_windows as windows
from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law, steps_rate
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.update import deep, units
from sparsegen.cost.update_stream import ALU, MUFU
from sparsegen.cost.update_windows import beside, edges, made, on_three, passed, reads_of, swapped, wraps
from sparsegen.dsl.update import Update
from sparsegen.ir.numbers.held import Held
from sparsegen.ir.numbers.records import RECORD
from sparsegen.ir.op_update import parameters
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE

REASONS: Final[dict[str, str]] = {
    "hbm": "every array is read once a launch, and the newest levels are written",
    **windows.REASONS,
    "meet": "the warps of a block meet once a step, and results are waited for",
    "exchange": "cells around a block's own through shared memory and L2, with a tag each, once a round",
    "launch": "starting the kernel, and what its blocks do once",
}
#: The formula's symbols, and what they are.
SYMBOLS: Final[dict[str, str]] = {
    **windows.SYMBOLS, "steps": "time steps", "T": "steps between exchanges", "blocks": "blocks",
    "arrays": "arrays that change", "taken": "cells that a block gets", "given": "own cells that others get",
    "runs": "runs of adjacent ones of both", "gives": "lines that a warp at the edge gives",
    "sent": "bytes of a cell with its tag, or its part of a record",
    "again": "how often a warp at the edge asks for lines once more", "sector": "clocks of 32 bytes through L2",
    "partly": "how many of them a run fills in part",
    "through": "clocks from a store to the load that finds it",
    "images": "1 where they go through shared memory, else 0", "single": "1 where they go one by one, else 0",
}  # fmt: skip
#: Measured, some: clocks until all blocks have their tables and have counted themselves at the end.
ONCE: Final = 6000.0
#: Clocks of a meeting of a block and of what is waited for besides in a step, and of each of its warps that comes.
MEET, COMES = 140.0, 4.4
#: Clocks from a cell's store to the load that finds it, and of what is around that.
THROUGH: Final = 1002.0
#: Clocks of 32 bytes that an SM sends to L2 or gets from there, how many of them a run fills in part, and the share of
#: these where the cells of every block begin at a sector.
SECTOR, PARTLY, ALIGNED = 1.54, 1.36, 0.5
#: The same of whole lines, and clocks of each line that a warp gives, and of asking once more for as many lines as go
#: together.
LINE_THROUGH, LINE_SECTOR, GIVE, AGAIN = 750.0, 0.72, 150.0, 650.0
#: How often a window's image is as good as written or read in whole, and cells one by one with what lists them.
IMAGES, CELLS = 1.64, 4.7
#: Clocks of a cell that each thread of a sub-core's warp looks at, where cells go one by one.
EACH: Final = 19.0
#: Share of the time of shared memory that rows between warps and columns between lanes take of it.
SHOWN: Final = 0.72
#: The order of the norm, and the part of a warp more that a sub-core's warps issue like.
ORDER, LONE = 2.49, 0.66
#: Registers of a thread that asks for lines of f64, besides those of windows.
LINES: Final = 20
#: Registers of a thread whose cells go through images: besides its cells, how often it has those that a step makes
#: besides, and the most that this comes to, by words of an element (of 110 kernels, nvcc 13: up to what it spills).
IMAGED: Final = {1: (-4, 3.4, 168), 2: (10, 1.43, inf)}
#: Registers of a thread whose cells go one by one, and of each of them, by words of an element.
SINGLE: Final = {1: (24, 8), 2: (30, 10)}


@lru_cache(maxsize=1 << 12)
def numbers(update: Update, shape: tuple[int, ...], s: UpdateSchedule) -> Held:
    """Which cells the blocks of a complete schedule have."""
    share = s.planes, s.rows, s.cols
    return Held(on_three(shape), on_three(s.tiles), share, s.warps, s.every, reads_of(update), wraps(update))


def shared(update: Update, s: UpdateSchedule, held: Held) -> int:
    """Bytes of shared memory of a block: images of its windows, and rows that its warps show one another."""
    size, count = ITEMSIZE[update.dtype], swapped(update)
    return (count * prod(held.window) * size if held.by(count, size) == "images" else 0) + edges(update, s)


def registers(update: Update, s: UpdateSchedule, held: Held) -> int:
    """Estimated 32-bit registers of a thread: those of windows, and what is held while cells go between blocks.

    Where whole lines of f64 do (nvcc's numbers of 27 kernels) a value is held twice, the old one and what has come in
    its place.
    """
    size, cells = ITEMSIZE[update.dtype], int(s.planes * s.rows * s.cols)
    needed, words = windows.registers(update, s), max(1, size // 4)
    by = held.by(swapped(update), size)
    if by == "cells":
        fixed, each = SINGLE[words]
        return max(needed, fixed + each * cells)
    if by == "lines":
        twice = (2 - windows.HELD) * words * cells * windows.arrays(update)
        return needed + int(LINES + twice) if words > 1 else needed
    if by == "images":
        fixed, again, most = IMAGED[words]
        held_words = words * cells * (windows.arrays(update) + again * len(update.fields))
        return max(needed, int(min(most, fixed + held_words)))
    return needed


def _sent(update: Update, held: Held) -> float:
    """Bytes of a cell of one array on its way: of a line those of its records, else the cell and a tag as large."""
    count, size = swapped(update), ITEMSIZE[update.dtype]
    if held.by(count, size) == "lines":
        return 4 * RECORD * held.records(count, size).size / (held.window[2] * count)
    return 2 * max(4, size)


def _partly(update: Update, held: Held) -> float:
    """Sectors that a run of cells which go one by one fills in part."""
    cells = max(1, int(32 // _sent(update, held)))
    return PARTLY * (ALIGNED if all(low % cells == 0 for low, _ in held.own(2)) else 1.0)


def _lines(update: Update, held: Held) -> tuple[int, float]:
    """Lines that a warp at the edge of a block gives, and how often it asks once more for as many as go together."""
    at_once = held.records(swapped(update), ITEMSIZE[update.dtype]).lines_at_once
    gives, takes = held.edge_lines
    return gives, takes / at_once if held.share[0] * held.share[1] > at_once else 0.0


def least(device: DeviceProfile, steps: int) -> float:
    """Seconds below which no launch of so many steps stays: it is started, and blocks meet once a step."""
    return terms.STARTING * device.launch_s + (ONCE + steps * (MEET + COMES)) / device.clock


def cost(
    update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
) -> Cost:  # fmt: skip
    """The cost of one launch of ``steps`` steps; all words of the schedule are said."""
    held, size = numbers(update, shape, s), ITEMSIZE[update.dtype]
    ry, rows = held.reach[1], max(high - low for low, high in held.own(1))
    reads, writes = parameters(update.fields, update.coefs), parameters(update.fields, ())
    by = held.by(swapped(update), size)
    gives, again = _lines(update, held) if by == "lines" else (0, 0.0)
    values: dict[str, float] = {
        "N": held.cells, "steps": steps, "T": s.every, "blocks": held.blocks, "lines": s.planes * s.rows,
        "made": made(held), "planes": s.planes, "cols": s.cols, "warps": s.warps, "b": 1,
        "arrays": swapped(update), "reads": len(reads), "writes": len(writes),
        "counts": min(1.0, (rows + (s.every - 1) * ry) / held.window[1]),
        "taken": held.taken_cells, "given": held.given_cells, "runs": held.runs, "images": by == "images",
        "sent": _sent(update, held), "single": by == "cells", "gives": gives, "again": again,
        "sector": LINE_SECTOR if by == "lines" else SECTOR, "partly": 0 if by == "lines" else _partly(update, held),
        "through": LINE_THROUGH if by == "lines" else THROUGH,
        **units(update), "deep": deep(update), "beside": beside(update), "shown": 2 * ry * passed(update), "s": size,
        "word": max(1, size // 4), "sms": device.own_sms, "sub": device.sub_cores, "f": device.clock,
        "launch": terms.STARTING * device.launch_s,
        "bw_G": terms.REACH * device.bw_global, "bw_S": device.smem_bytes_per_clk_sm, "lat": device.lat_dram,
        "fma_rate": device.f64_fma_per_clk_sm if update.dtype == "f64" else device.f32_fma_per_clk_sm,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, shape, update, steps)


def _equations(s: UpdateSchedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms, for floats and for sympy alike."""
    clocks = v.steps / v.f
    warps = v.warps * v.counts
    cells, shown = warps * 32 * v.made * v.cols, v.shown * v.planes * v.cols
    issued = v.made * (v.cols * (v.FMA + v.ALU + v.MUFU) + v.beside * v.word)
    window, moved = v.warps * 32 * v.lines * v.cols, v.taken + v.given
    through_l2 = v.sector * (moved * v.sent / 32 + v.partly * v.runs)
    through_shared = v.images * (IMAGES * window + CELLS * moved) * v.s / v.bw_S
    moving = through_l2 + through_shared + EACH * v.single * v.lines * v.cols * v.warps / v.sub
    exchange = v.through + GIVE * v.gives + AGAIN * v.again + v.arrays * moving
    rounds = a.ceil(v.steps / v.T)
    found = {
        "hbm": v.N * v.s * (v.reads + v.writes) / v.bw_G + v.lat / v.f,
        "fma": clocks * cells * v.FMA / v.fma_rate,
        "alu": clocks * cells * v.ALU / ALU,
        "mufu": clocks * cells * v.MUFU / MUFU,
        "issue": clocks * (a.max(a.ceil(warps / v.sub), a.ceil(v.warps / v.sub) * v.counts) + LONE * v.word) * issued,
        "wait": clocks * v.made * v.cols * v.MUFU * v.deep,
        "shared": SHOWN * clocks * v.warps * v.counts * 32 * v.s * (v.made * v.beside + 2 * shown) / v.bw_S,
        "meet": clocks * (MEET + COMES * v.warps),
        "exchange": (rounds - 1) / v.f * exchange if v.taken else 0 * v.f,
        "launch": v.launch + ONCE / v.f,
    }
    parts = (*(found[name] for name in ("fma", "alu", "mufu", "shared")), found["issue"] + found["wait"])
    busy = sum((each**ORDER for each in parts), 0) ** (1 / ORDER)
    return found["launch"] + found["hbm"] + busy + found["meet"] + found["exchange"], found


LAW: Final = Law(_equations, SYMBOLS, REASONS, frozenset(("hbm", "launch")), steps_rate)
