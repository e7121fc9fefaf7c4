"""The predicted time of one step of a general update on the CUDA cores: which unit is busiest, and the launch.

    time = launch + ||hbm or l2, l1|, fma, issue, latency|

Every array is read (or written) once from DRAM, but for what L2 keeps from step to step; each block takes its cells and
the rows and planes around them from L2, for blocks that lie beside one another run on other SMs; what its threads share
comes from L1.  Divisions, square roots and functions count as the instructions that they become.
"""

from __future__ import annotations

import math
from typing import Any, Final

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law, steps_rate
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.terms import REACH, STARTING
from sparsegen.dsl.update import Update
from sparsegen.ir import formula
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.op_update import parameters
from sparsegen.ir.types import DTYPES, cell_type
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE

REASONS: Final[dict[str, str]] = {
    "hbm": "every field, level and coefficient is read once a step, every new level written, but for what L2 keeps",
    "l2": "the cells of each block, and the rows and planes around them, from L2",
    "l1": "reads of neighbours that a thread does not share, and the results, through L1",
    "fma": "arithmetic of the formula on the CUDA cores",
    "issue": "warp instructions, one a clock and sub-core; near a border places of cells are worked out",
    "latency": "each wave of blocks waits for DRAM, and for its instructions, one after the other",
    "launch": "starting the kernel",
}
#: The formula's symbols, and what they are.
SYMBOLS: Final[dict[str, str]] = {
    "N": "cells of the grid",
    "covered": "cells that whole blocks cover",
    "fetched": "cells of arrays that a block takes from L2, a cell",
    "reads": "arrays read: levels of fields, and coefficients",
    "writes": "arrays written: a new level of each field",
    "loads": "loads a cell, what cells of one thread share counted once",
    "flops": "floating-point instructions a cell",
    "threads": "threads a block",
    "column": "cells of a thread",
    "within": "loads a cell whose lanes begin within a line of L1",
    "near": "share of the warps that have a cell which reads beyond the grid",
    "places": "places along the axes that such a cell reads from, besides its own",
}
#: FMA, ALU and MUFU instructions of what is no single one, on the path of usual numbers (read off what nvcc 13 makes of
#: it for sm_90a, without moves of constants).
_SEQUENCE: Final[dict[tuple[str, str], tuple[int, int, int]]] = {
    ("div", "f64"): (9, 0, 1), ("div", "f32"): (7, 0, 1), ("sqrt", "f64"): (11, 0, 1), ("sqrt", "f32"): (7, 0, 1),
    ("exp", "f64"): (15, 4, 0), ("exp", "f32"): (7, 1, 1), ("log", "f64"): (26, 8, 1), ("log", "f32"): (15, 8, 0),
    ("sin", "f64"): (14, 12, 1), ("sin", "f32"): (11, 9, 1), ("cos", "f64"): (14, 12, 1), ("cos", "f32"): (11, 9, 1),
    ("tanh", "f64"): (20, 6, 2), ("tanh", "f32"): (9, 5, 2), ("pow", "f64"): (80, 20, 1), ("pow", "f32"): (36, 16, 1),
}  # fmt: skip
#: Fitted: clocks between instructions of a warp that is alone, by those of a cell (91 kernels in ``stream``).
DEPEND: Final = 9.7
#: Fitted: clocks that a warp waits for a division or a square root: their branches leave nothing to overlap with
#: (94 kernels of 30 random updates on one H100, and those of docs/bench/updates.json).
_WAIT: Final = {"f64": 110.0, "f32": 75.0}
#: Multiply-adds of a quotient by a constant, in f64 with the comparison; and two instructions that choose.
_QUOTIENT: Final = {"f64": 4, "f32": 3}
#: What compares two numbers.
_COMPARED: Final = (*formula.COMPARE, "min", "max")
#: Integer and address instructions of a thread, and of each of its cells.
_OVERHEAD, _ADDRESS = 24, 2
#: Fitted: the orders of the norms; the share of a load more that one takes whose lanes begin within a line; and that of
#: the SMs' ports that the slices of L2 serve (181 kernels of random updates on one H100, half of them within 7 %).
ORDER: Final = 5.8
APART, WITHIN, SERVED = 2.14, 1.24, 0.555
#: Fitted to the same: instructions of a place along an axis where cells may lie outside, with what is chosen there.
PLACE: Final = 14
#: Fitted to the same: clocks from a load of a warp to its next one.
LOAD: Final = 9.0
#: Estimated registers of a thread: some for addresses, and of each 32-bit word that it loads (nvcc 13 for sm_90a: 181
#: kernels within 7 in the root mean square).
ADDRESSES, LOADED = 16, 0.9
#: Lanes of a warp.
WARP: Final = 32
#: Bytes of a line, and of the sectors of which L1 takes only those that it needs.
LINE, _SECTOR = 128, 32


def units(update: Update) -> dict[str, int]:
    """Floating-point instructions a cell, by the unit that does them.

    A division and a square root are an estimate of MUFU and the multiply-adds that make it exact, a function is a
    polynomial, most with MUFU; in f64 comparisons are done where multiply-adds are.  Signs and absolute values are part
    of what uses them.  Cells of 16 bits become f32 and back.
    """
    code, _ = formula.contract(update.code, update.results)
    once = formula.uniform(code)  # for all cells of a thread
    found, sums = {"FMA": 0, "ALU": 0, "MUFU": 0}, cell_type(DTYPES[update.dtype]).name
    if sums != update.dtype:
        found["ALU"] += len(parameters(update.fields, update.coefs)) + len(update.fields)
    for node in (n for at, n in enumerate(code) if n[0] in formula.SIGNATURES and at not in once):
        if node[0] in ("neg", "abs"):
            continue
        op = str(node[0])
        if formula.divisor(code, node) is not None:
            found["FMA"] += _QUOTIENT[sums]
            found["ALU"] += 2
        elif sequence := _SEQUENCE.get((op, sums)):
            for unit, count in zip(("FMA", "ALU", "MUFU"), sequence, strict=True):
                found[unit] += count
        else:
            arithmetic = op in ("add", "sub", "mul", "fma") or (update.dtype == "f64" and op in _COMPARED)
            found["FMA" if arithmetic else "ALU"] += 1
    return found


def bordered(update: Update) -> bool:
    """Whether a field has a side that is not periodic, where threads look where they are."""
    return any(side.kind != "periodic" for sides in update.sides for pair in sides for side in pair)


def deep(update: Update) -> float:
    """Clocks that a warp waits for each of ``units``' MUFU."""
    return _WAIT[cell_type(DTYPES[update.dtype]).name]


def flops(update: Update) -> int:
    """Floating-point instructions a cell, divisions, square roots and functions as what they become."""
    return sum(units(update).values())


def fetched(update: Update, rows: int, columns: int) -> int:
    """Cells of all arrays that a block of ``rows`` rows of ``columns`` threads takes from L2."""
    lines: dict[tuple[str, int, int, int], list[int]] = {}
    for name, level, offset in formula.reads(update.code):
        plane, row, column = (0, 0, *offset)[-3:]
        for at in range(row, row + rows):
            lines.setdefault((name, level, plane, at), []).append(column)
    sector = _SECTOR // ITEMSIZE[update.dtype]
    ends = (up(max(0, -min(far)), sector) + up(max(0, *far), sector) for far in lines.values())
    return len(lines) * columns + sum(ends)


def near(update: Update, shape: tuple[int, ...], column: int) -> float:
    """Share of the warps that have a cell which reads beyond the grid; a thread has ``column`` rows."""
    planes, rows, columns = (1, 1, *shape)[-3:]
    far, high, wide = (0, 0, *update.radius)[-3:]
    across, down = -(-columns // WARP), -(-rows // column)
    inside = max(0, (columns - wide) // WARP - -(-wide // WARP)) / across
    inside *= max(0, (rows - high) // column - -(-high // column)) / down
    return 1 - inside * max(0, planes - 2 * far) / planes


def cost(update: Update, shape: tuple[int, ...], schedule: UpdateSchedule, device: DeviceProfile) -> Cost:
    """The cost of one time step on a grid of ``shape``."""
    size, column = ITEMSIZE[update.dtype], schedule.column if update.ndim > 1 else 1
    axis = max(0, update.ndim - 2)
    across, down = schedule.block if update.ndim > 1 else (schedule.threads, 1)
    planes, rows, columns = (1, 1, *shape)[-3:]
    covered = planes * up(rows, down * column) * up(columns, across)
    loads = {
        (name, level, tuple(o + row * (a == axis) for a, o in enumerate(offset)))
        for row in range(column) for name, level, offset in formula.reads(update.code)
    }  # fmt: skip
    cells, writes = math.prod(shape), len(update.fields)
    reads = len(parameters(update.fields, update.coefs))
    rate = device.f64_fma_per_clk_sm if update.dtype == "f64" else device.f32_fma_per_clk_sm
    places = {(at, o) for *_, offset in formula.reads(update.code) for at, o in enumerate(offset) if o}
    work, words = units(update), max(1, size // 4)
    held = ADDRESSES + LOADED * words * len(loads)  # registers
    fitting = min(device.max_threads_sm, device.regs_sm / held - schedule.threads / 2)  # half a block is left over
    values: dict[str, float] = {
        "N": cells, "covered": covered, "reads": reads,
        "fetched": fetched(update, down * column, across) / (down * column * across),
        "writes": writes, "loads": len(loads) / column, "flops": sum(work.values()),
        "within": sum(offset[-1] * size % LINE != 0 for _, _, offset in loads) / column,
        "near": near(update, shape, column), "places": len(places),
        "waits": DEPEND * (work["FMA"] + work["ALU"]) + deep(update) * work["MUFU"],
        "threads": schedule.threads, "column": column, "s": size, "launch": STARTING * device.launch_s,
        "miss": (miss := device.missed(cells * size * (reads + writes))), "bw_G": REACH * device.bw_global,
        "bw_L2": SERVED * device.l2_bytes_per_clk_sm * device.own_sms * device.clock,
        "bw_S": device.bw_shared, "fma_s": rate * device.own_sms * device.clock,
        "issue_s": 32.0 * device.sub_cores * device.own_sms * device.clock,
        "resident": device.own_sms * max(schedule.threads, fitting), "f": device.clock,
        "lat": device.lat_l2 + miss * (device.lat_dram - device.lat_l2),
    }  # fmt: skip
    return LAW.evaluate(schedule, values, device, shape, update)


def _equations(s: UpdateSchedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms, for floats and for sympy alike."""
    issued = v.loads + v.writes + v.flops + _ADDRESS + _OVERHEAD / v.column
    terms = {
        "hbm": v.miss * v.N * v.s * (v.reads + v.writes) / v.bw_G,
        "l2": v.covered * v.s * (v.fetched + v.writes) / v.bw_L2,
        "l1": v.covered * v.s * (v.loads + WITHIN * v.within + v.writes) / v.bw_S,
        "fma": v.covered * v.flops / v.fma_s,
        "issue": v.covered * (issued + PLACE * v.near * v.places) / v.issue_s,
        "latency": a.ceil(v.covered / (v.resident * v.column)) * (v.lat + v.column * (v.waits + LOAD * v.loads)) / v.f,
        "launch": v.launch,
    }
    far = a.max(terms["hbm"], terms["l2"])
    loaded = (far**ORDER + terms["l1"] ** ORDER) ** (1 / ORDER)
    others = (terms[name] for name in ("fma", "issue", "latency"))
    return v.launch + sum((t**APART for t in others), loaded**APART) ** (1 / APART), terms


LAW: Final = Law(_equations, SYMBOLS, REASONS, frozenset(), steps_rate)
