"""The predicted time of a launch of an update in ``resident``: all steps, fields in the registers of the SMs.

    time = once + steps · (||fma, alu, mufu, issue, shared|| + meet) + rounds · exchange

A step ends when the slowest block has made it, so all are alike: what a warp does, and one meeting of its block.
Between rounds the cells around a block's own go through shared memory and L2, with a tag each.  What is named measured
is of hand-written kernels on one H200 (``benchmarks/floors/onchip_wave_floor.cu``); nothing is fitted yet.
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
    "meet": "the warps of a block meet once a step",
    "exchange": "cells around a block's own through shared memory and L2, with a tag each, once a round",
    "launch": "starting the kernel",
}
#: The formula's symbols, and what they are.
SYMBOLS: Final[dict[str, str]] = {
    "N": "cells of the grid", "steps": "time steps", "T": "steps between exchanges",
    "blocks": "blocks", "lines": "rows of a thread in all its planes", "planes": "planes of a thread",
    "cols": "its columns", "warps": "warps a block",
    "counts": "share of the rows of a window that still count", "halo": "cells that a block gets",
    "arrays": "arrays held", "reads": "arrays read", "writes": "arrays written",
    "FMA": "multiplications and additions a cell", "ALU": "comparisons and choices a cell",
    "MUFU": "divisions and square roots a cell", "beside": "values from neighbouring lanes a row",
    "shown": "rows that a warp shows above and below, of a plane",
}  # fmt: skip
#: Measured: clocks of a meeting of a block, with the rows that are read behind it (0.22 us).
MEET: Final = 430.0
#: Measured: clocks from a cell's store to the load that finds it, and of what is around that.
THROUGH: Final = 1500.0
#: Warp instructions of a step besides those of cells, of a row that is shown, and of a cell that is given or taken.
STEP, SHOWN, CELL = 40.0, 4.0, 16.0
#: The order of the norm, as of ``stream``.
ORDER: Final = 4.7
#: 32-bit registers of a thread besides the cells that it holds, and how many it needs for each of these (of 14 kernels
#: that nvcc 13 compiled for sm_90a, those that need more spill).
REGISTERS, HELD = 50, 1.25


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
    """Estimated 32-bit registers of a thread: its cells of every array, and rows of other warps."""
    words = max(1, ITEMSIZE[update.dtype] // 4)
    return int(REGISTERS + words * s.cols * (HELD * arrays(update) * s.planes * s.rows + 2 * reach(update)[1]))


def shared(update: Update, s: UpdateSchedule) -> int:
    """Bytes of shared memory of a block: images of its windows, and rows that its warps show one another."""
    passed = {(name, level) for name, level, (_, dy, _) in offsets(update) if dy}
    line = s.planes * s.cols * s.threads * ITEMSIZE[update.dtype]
    return int(line * (arrays(update) * s.rows + 4 * len(passed) * reach(update)[1]))


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
        "halo": held.halo_cells, **units(update),
        "beside": 2 * rx * len({(n, level, dz, dy) for n, level, (dz, dy, dx) in found if dx}),
        "shown": 2 * ry * len(passed), "s": size, "word": max(1, size // 4), "sms": device.sms,
        "sub": device.sub_cores, "f": device.clock, "launch": terms.STARTING * device.launch_s,
        "bw_G": terms.REACH * device.bw_global, "bw_S": device.smem_bytes_per_clk_sm,
        "bw_L2": device.l2_bytes_per_clk_sm, "lat": device.lat_dram,
        "fma_rate": device.f64_fma_per_clk_sm if update.dtype == "f64" else device.f32_fma_per_clk_sm,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, shape, update, steps)


def _equations(s: UpdateSchedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms, for floats and for sympy alike."""
    clocks = v.steps / v.f
    warps = v.warps * v.counts
    cells = warps * 32 * v.lines * v.cols
    shown = v.shown * v.planes * v.cols
    issued = v.lines * (v.cols * (v.FMA + v.ALU + v.MUFU) + v.beside * v.word) + STEP + SHOWN * shown
    window = v.warps * 32 * v.lines * v.cols
    swapped = (
        THROUGH + v.arrays * (2 * window * v.s / v.bw_S + 2 * v.halo * 2 * v.s / v.bw_L2)
        + v.arrays * 2 * v.halo * CELL / 32 / v.sub
    )  # fmt: skip
    rounds = a.ceil(v.steps / v.T)
    found = {
        "hbm": v.N * v.s * (v.reads + v.writes) / v.bw_G + v.lat / v.f,
        "fma": clocks * cells * v.FMA / v.fma_rate,
        "alu": clocks * cells * v.ALU / ALU,
        "mufu": clocks * cells * v.MUFU / MUFU,
        "issue": clocks * warps * issued / v.sub,
        "shared": clocks * v.warps * 32 * v.s * (v.lines * v.beside + 2 * shown) / v.bw_S,
        "meet": clocks * MEET,
        "exchange": (rounds - 1) * swapped / v.f if v.halo else 0 * v.f,
        "launch": v.launch,
    }
    busy = sum((found[name] ** ORDER for name in ("fma", "alu", "mufu", "issue", "shared")), 0) ** (1 / ORDER)
    return v.launch + found["hbm"] + busy + found["meet"] + found["exchange"], found


LAW: Final = Law(_equations, SYMBOLS, REASONS, frozenset(("hbm", "launch")), steps_rate)
