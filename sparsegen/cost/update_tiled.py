"""The predicted time of a pass of an update in ``tiled``: windows in registers that overlap by what its steps spoil.

    time   = launch + |hbm, blocks, begin + moved + worked - (1 - 1/b) min(moved, worked)|
    moved  = l1 + l2
    worked = |fma, alu, mufu, issue + wait, shared|

All windows are alike: a wave of ``b`` blocks on every SM loads them, makes T steps, and stores what is good.  A block
that is alone on its SM waits for its window before it works on it; where there are more, one works while another waits.
What is named fitted is of 1352 kernels of random updates on an H100 and on H200s, so that what is chosen is near the
fastest: half of them are predicted to 13 %, nine of ten to 33 %, small windows and those of one warp worst.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, prod
from typing import Any, Final

from sparsegen.cost import terms
from sparsegen.cost import update_windows as windows
from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law, steps_rate
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.cost.update import deep, units
from sparsegen.cost.update_stream import ALU, MUFU
from sparsegen.cost.update_windows import arrays, beside, edges, made, on_three, passed, reads_of, registers, wraps
from sparsegen.dsl.update import Update
from sparsegen.ir.numbers.held import Held, overlapping
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE

REASONS: Final[dict[str, str]] = {
    "hbm": "every array is read and every new level written once a pass (nothing if all fit in L2)",
    "l2": "windows with what overlaps, and results, through each SM's port to L2",
    "l1": "lanes load and store columns that lie apart: lines of L1 for each",
    **windows.REASONS,
    "issue": "warp instructions, each of which waits for the one before where an SM has few warps",
    "wait": "warps that meet in each step, and divisions, roots and functions with nothing to overlap with",
    "blocks": "blocks start one after the other on an SM",
    "launch": "starting the kernel",
}
#: The formula's symbols, and what they are.
SYMBOLS: Final[dict[str, str]] = {
    **windows.SYMBOLS, "T": "time steps of a pass", "b": "blocks that an SM runs at a time",
    "waves": "waves of blocks", "own": "cells that a block stores",
    "meets": "1 where a block has several warps, which meet in each step, else 0",
}  # fmt: skip
#: Fitted: share of a launch that a pass takes besides its start, clocks between two blocks that start on an SM, and
#: the time that lines of L1 take over that of as many bytes.
STARTS, BLOCK, LINES = 0.046, 121.0, 1.42
#: Fitted: warp instructions issued for each operation that is counted, the clocks that a warp takes for one where no
#: others fill them, the share of the latencies of divisions, roots and functions that it waits for, and the clocks of a
#: step that warps of a block wait for each other.
ISSUED, CHAIN, DEEP, MEET = 0.5, 2.43, 0.84, 90.0
#: Fitted: the orders of the norms of units, and of memory, blocks and work.
ORDER, APART = 1.2, 2.17
#: Share of L2 that fields may take and stay there.
L2_SHARE: Final = 0.7


@lru_cache(maxsize=1 << 13)
def numbers(update: Update, shape: tuple[int, ...], s: UpdateSchedule) -> Held | None:
    """The windows of a schedule; None where they do not fit."""
    share = s.planes, s.rows, s.cols
    return overlapping(on_three(shape), share, s.warps, s.levels, reads_of(update), wraps(update))


def resident(update: Update, s: UpdateSchedule, device: DeviceProfile) -> int:
    """Blocks that an SM has room for, as estimated; at least one."""
    return max(1, occupancy(min(255, registers(update, s)), edges(update, s), s.threads, device).blocks)


def cost(update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile) -> Cost:
    """The cost of one pass of a schedule that fits."""
    held, size, blocks = numbers(update, shape, s), ITEMSIZE[update.dtype], resident(update, s, device)
    assert held is not None  # misfit has said so
    ry, rows, reads = held.reach[1], held.most[1], arrays(update)
    writes = sum(min(levels, s.levels) for _, levels in update.fields)
    waves = ceil(held.blocks / (device.own_sms * blocks))
    values: dict[str, float] = {
        "N": held.cells, "T": s.levels, "b": min(blocks, ceil(held.blocks / device.own_sms)), "waves": waves,
        "lines": s.planes * s.rows, "made": made(held), "planes": s.planes, "cols": s.cols, "warps": s.warps,
        "own": prod(held.most), "counts": min(1.0, (rows + (s.levels - 1) * ry) / held.window[1]),
        "reads": reads, "writes": writes, "meets": float(s.warps > 1),
        **units(update), "beside": beside(update), "shown": 2 * ry * passed(update), "s": size,
        "word": max(1, size // 4), "sub": device.sub_cores, "f": device.clock, "begin": STARTS * device.launch_s,
        "launch": terms.STARTING * device.launch_s, "deep": deep(update),
        "dram": 0.0 if held.cells * size * (reads + writes) <= L2_SHARE * device.own_l2 else 1.0,
        "bw_G": terms.REACH * device.bw_global, "bw_L2": device.l2_bytes_per_clk_sm,
        "bw_S": device.smem_bytes_per_clk_sm,
        "fma_rate": device.f64_fma_per_clk_sm if update.dtype == "f64" else device.f32_fma_per_clk_sm,
    }  # fmt: skip
    return LAW.evaluate(s, values, device, shape, update, s.levels)


def _equations(s: UpdateSchedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms, for floats and for sympy alike."""
    wave = v.waves / v.f
    steps, warps = wave * v.T, v.b * v.warps * v.counts
    window, lanes = v.warps * 32 * v.lines * v.cols, 32 * v.made * v.cols
    issued = v.made * (v.cols * (v.FMA + v.ALU + v.MUFU) + v.beside * v.word)
    found = {
        "hbm": v.dram * v.N * v.s * (v.reads + v.writes) / v.bw_G,
        "l2": wave * v.b * v.s * (window * v.reads + v.own * v.writes) / v.bw_L2,
        "l1": LINES * wave * v.b * v.s * v.cols * (window * v.reads + v.own * v.writes) / v.bw_S,
        "fma": steps * warps * lanes * v.FMA / v.fma_rate,
        "alu": steps * warps * lanes * v.ALU / ALU,
        "mufu": steps * warps * lanes * v.MUFU / MUFU,
        "issue": steps * a.max(ISSUED * v.b * v.warps / v.sub, CHAIN) * v.counts * issued,
        "shared": steps * warps * 32 * v.s * (v.made * v.beside + 2 * v.shown * v.planes * v.cols) / v.bw_S,
        "wait": steps * (DEEP * v.made * v.cols * v.MUFU * v.deep + MEET * v.meets),
        "blocks": wave * v.b * BLOCK,
        "launch": v.launch,
    }
    units = (*(found[name] for name in ("fma", "alu", "mufu", "shared")), found["issue"] + found["wait"])
    busy = sum((t**ORDER for t in units), 0) ** (1 / ORDER)
    moved = found["l2"] + found["l1"]
    work = v.begin + moved + busy - (1 - 1 / v.b) * a.min(moved, busy)
    return v.launch + (found["hbm"] ** APART + found["blocks"] ** APART + work**APART) ** (1 / APART), found


LAW: Final = Law(_equations, SYMBOLS, REASONS, frozenset(("launch",)), steps_rate)
