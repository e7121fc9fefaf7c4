"""The predicted time of a launch of an update in ``resident``: all steps, fields in the registers of the SMs.

    time = once + steps · (||fma, alu, mufu, issue, shared|| + meet) + rounds · exchange

A step ends when the slowest block has made it, so all are alike: what a warp does, and one meeting of its block.
Between rounds the cells around a block's own go through shared memory and L2, with a tag each.  What is named fitted is
of 177 kernels of eleven updates on one H100, of which half are predicted to 5 %.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sparsegen.cost import terms
from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law, steps_rate
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.update import units
from sparsegen.cost.update_stream import ALU, MUFU
from sparsegen.dsl.update import Update
from sparsegen.ir import formula
from sparsegen.ir.numbers.held import Cells, Held, spread
from sparsegen.ir.op_update import parameters
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE

REASONS: Final[dict[str, str]] = {
    "hbm": "every array is read once a launch, and the newest levels are written",
    "fma": "multiplications and additions of the formula for all cells of a window that still count",
    "alu": "its comparisons and choices",
    "mufu": "its divisions and square roots, as first estimated",
    "issue": "warp instructions, one a clock and sub-core",
    "shared": "rows that warps show one another, and columns between lanes",
    "meet": "the warps of a block meet once a step, and results are waited for",
    "exchange": "cells around a block's own through shared memory and L2, with a tag each, once a round",
    "launch": "starting the kernel, and what its blocks do once",
}
#: The formula's symbols, and what they are.
SYMBOLS: Final[dict[str, str]] = {
    "N": "cells of the grid", "steps": "time steps", "T": "steps between exchanges",
    "blocks": "blocks", "lines": "rows of a thread in all its planes", "planes": "planes of a thread",
    "cols": "its columns", "warps": "warps a block",
    "counts": "share of the rows of a window that still count", "arrays": "arrays held",
    "taken": "cells that a block gets", "given": "own cells that others get", "runs": "runs of adjacent ones of both",
    "again": "times more than once that a warp asks for lines",
    "images": "1 where they go through shared memory, 0 where they are whole lines",
    "reads": "arrays read", "writes": "arrays written",
    "FMA": "multiplications and additions a cell", "ALU": "comparisons and choices a cell",
    "MUFU": "divisions and square roots a cell", "beside": "values from neighbouring lanes a row",
    "shown": "rows that a warp shows above and below, of a plane",
}  # fmt: skip
#: Measured, some: clocks until all blocks have their tables and have counted themselves at the end.
ONCE: Final = 6000.0
#: Fitted: clocks of a meeting of a block, and of what is waited for besides.
MEET: Final = 243.0
#: Fitted: clocks from a cell's store to the load that finds it, and of what is around that.
THROUGH: Final = 988.0
#: Fitted: clocks of 32 bytes that an SM sends to L2 or gets from there, and how many of them a run fills in part.
SECTOR, PARTLY = 1.27, 0.75
#: Fitted: how often a window's image is as good as written or read in whole, and cells one by one with what lists them.
IMAGES, CELLS = 2.28, 9.0
#: Measured, some: clocks of asking for lines once more, which a warp with more of them than go together does.
AGAIN: Final = 700.0
#: Fitted: the order of the norm, and the part of a warp more that a sub-core's warps issue like.
ORDER, LONE = 2.22, 0.3
#: 32-bit registers of a thread besides the cells that it holds, and how many it needs for each of these (of 14 kernels
#: that nvcc 13 compiled for sm_90a, those that need more spill).
REGISTERS, HELD = 48, 1.25


def offsets(update: Update) -> tuple[tuple[str, int, Cells], ...]:
    """The reads of a formula on three axes: those that a field has not come first."""
    return tuple((name, level, (0, 0, *o)[-3:]) for name, level, o in formula.reads(update.code))  # type: ignore[misc]


def reach(update: Update) -> Cells:
    """Planes, rows and columns that the farthest reads lie away."""
    planes, rows, columns = (max([0, *(abs(o[axis]) for *_, o in offsets(update))]) for axis in range(3))
    return planes, rows, columns


def on_three(of: tuple[int, ...]) -> Cells:
    """A number of each axis, with 1 for those that a field has not."""
    planes, rows, columns = (1, 1, *of)[-3:]
    return planes, rows, columns


def wraps(update: Update) -> tuple[bool, bool, bool]:
    """Of each axis, whether the first field wraps; axes that it has not do."""
    planes, rows, columns = (True, True, *(pair[0].kind == "periodic" for pair in update.sides[0]))[-3:]
    return planes, rows, columns


@lru_cache(maxsize=1 << 12)
def numbers(update: Update, shape: tuple[int, ...], s: UpdateSchedule) -> Held:
    """Which cells the blocks of a complete schedule have."""
    share = s.planes, s.rows, s.cols
    reads = spread(offset for *_, offset in offsets(update))
    return Held(on_three(shape), on_three(s.tiles), share, s.warps, s.every, reads, wraps(update))


def arrays(update: Update) -> int:
    """Windows that a block holds: every level of each field, and the coefficients."""
    return len(parameters(update.fields, update.coefs))


def registers(update: Update, s: UpdateSchedule) -> int:
    """Estimated 32-bit registers of a thread: its cells of every array, rows of other warps, and what is old but still
    read: a plane's rows where there are several planes, a level where levels turn."""
    words, lines = max(1, ITEMSIZE[update.dtype] // 4), s.planes * s.rows
    old = lines if max(levels for _, levels in update.fields) > 1 else s.rows if s.planes > 1 else 0
    shown = reach(update)[1] * max(2, s.planes)
    return int(REGISTERS + words * s.cols * (HELD * arrays(update) * lines + shown + old))


def shared(update: Update, held: Held) -> int:
    """Bytes of shared memory of a block: images of its windows, and rows that its warps show one another."""
    passed = {(name, level) for name, level, (_, dy, _) in offsets(update) if dy}
    planes, rows, cols = held.share
    line = planes * cols * 32 * held.warps * ITEMSIZE[update.dtype]
    images = 0 if held.by_lines else arrays(update) * rows
    return int(line * (images + 4 * len(passed) * held.reach[1]))


def least(device: DeviceProfile, steps: int) -> float:
    """Seconds below which no launch of so many steps stays: it is started, and blocks meet once a step."""
    return terms.STARTING * device.launch_s + (ONCE + steps * MEET) / device.clock


def cost(
    update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int
) -> Cost:  # fmt: skip
    """The cost of one launch of ``steps`` steps; all words of the schedule are said."""
    held, size = numbers(update, shape, s), ITEMSIZE[update.dtype]
    found, (_, ry, rx) = offsets(update), held.reach
    rows = max(high - low for low, high in held.own(1))
    passed = {(name, level) for name, level, (_, dy, _) in found if dy}
    reads, writes = parameters(update.fields, update.coefs), parameters(update.fields, ())
    values: dict[str, float] = {
        "N": held.cells, "steps": steps, "T": s.every, "blocks": held.blocks, "lines": s.planes * s.rows,
        "planes": s.planes, "cols": s.cols, "warps": s.warps, "b": 1, "arrays": len(reads), "reads": len(reads),
        "writes": len(writes), "counts": min(1.0, (rows + (s.every - 1) * ry) / held.window[1]),
        "taken": held.taken_cells, "given": held.given_cells, "runs": held.runs, "images": not held.by_lines,
        "again": -(-s.planes * s.rows // held.lines_at_once(len(reads), size)) - 1 if held.by_lines else 0,
        **units(update),
        "beside": 2 * rx * len({(n, level, dz, dy) for n, level, (dz, dy, dx) in found if dx}),
        "shown": 2 * ry * len(passed), "s": size, "word": max(1, size // 4), "sms": device.sms,
        "sub": device.sub_cores, "f": device.clock, "launch": terms.STARTING * device.launch_s,
        "bw_G": terms.REACH * device.bw_global, "bw_S": device.smem_bytes_per_clk_sm, "lat": device.lat_dram,
        "fma_rate": device.f64_fma_per_clk_sm if update.dtype == "f64" else device.f32_fma_per_clk_sm,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, shape, update, steps)


def _equations(s: UpdateSchedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms, for floats and for sympy alike."""
    clocks = v.steps / v.f
    warps = v.warps * v.counts
    cells, shown = warps * 32 * v.lines * v.cols, v.shown * v.planes * v.cols
    issued = v.lines * (v.cols * (v.FMA + v.ALU + v.MUFU) + v.beside * v.word)
    window, moved = v.warps * 32 * v.lines * v.cols, v.taken + v.given
    through_l2 = SECTOR * (moved * 2 * v.word * 4 / 32 + PARTLY * v.runs)
    through_shared = v.images * (IMAGES * window + CELLS * moved) * v.s / v.bw_S
    rounds = a.ceil(v.steps / v.T)
    found = {
        "hbm": v.N * v.s * (v.reads + v.writes) / v.bw_G + v.lat / v.f,
        "fma": clocks * cells * v.FMA / v.fma_rate,
        "alu": clocks * cells * v.ALU / ALU,
        "mufu": clocks * cells * v.MUFU / MUFU,
        "issue": clocks * (a.ceil(v.warps / v.sub) + LONE) * v.counts * issued,
        "shared": clocks * v.warps * v.counts * 32 * v.s * (v.lines * v.beside + 2 * shown) / v.bw_S,
        "meet": clocks * MEET,
        "exchange": (rounds - 1) / v.f * (THROUGH + AGAIN * v.again + v.arrays * (through_l2 + through_shared))
        if v.taken
        else 0 * v.f,
        "launch": v.launch + ONCE / v.f,
    }
    busy = sum((found[name] ** ORDER for name in ("fma", "alu", "mufu", "issue", "shared")), 0) ** (1 / ORDER)
    return found["launch"] + found["hbm"] + busy + found["meet"] + found["exchange"], found


LAW: Final = Law(_equations, SYMBOLS, REASONS, frozenset(("hbm", "launch")), steps_rate)
