"""The predicted time of a pass of an update in ``column``: planes through rings, a block walks along the slowest axis.

    time = launch + |sqrt(memory² + fetch²), fma, alu, mufu, shared, single, issue + wait| · (1 - filled · (1 - 1/b))

where |…| is a norm, as in :mod:`sparsegen.cost.update_stream`; what is read and worked out is counted from the
formula, the figures named fitted are of 603 kernels of random updates, of one to four time steps a pass, on an H100 and
on H200s: half of them are predicted to 10 %.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from sparsegen.cost import layer_levels as levels
from sparsegen.cost import layers, terms
from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.cost.cost import Cost, Law, steps_rate
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.layers import AGAIN, FETCH, STATIC, WAITED, loads, window
from sparsegen.cost.update import bordered, deep, units
from sparsegen.cost.update_stream import ALU, MUFU
from sparsegen.dsl.update import Update
from sparsegen.ir.numbers.layers import Layers
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE, PADDED_FROM

REASONS: Final[dict[str, str]] = {
    "hbm": "every array is read once a pass, with the planes that blocks have in common, and every new level written",
    "l2": "the same bytes through each SM's port to L2, with the halo of each tile",
    "fma": "multiplications and additions of the formula at every step, at the rim of windows too, on the CUDA cores",
    "alu": "its comparisons and choices",
    "mufu": "its divisions, roots and functions, as first estimated",
    "shared": "planes into the rings, pieces of them out again, and columns between lanes",
    "issue": "warp instructions, one a clock and sub-core",
    "wait": "warps that meet in each turn, and divisions, roots and functions with nothing to overlap with",
    "single": "cells that are fetched one by one where rows do not start at 16-byte boundaries",
    "fetch": "a plane that is fetched ahead is waited for where few planes are under way",
    "launch": "starting the kernel",
}
#: The formula's symbols, and what they are.
SYMBOLS: Final[dict[str, str]] = {
    "nz": "planes of the grid", "ny": "its rows", "nx": "its columns", "P": "planes of a block", "R": "its rows",
    "C": "its columns", "turns": "planes that a block walks over", "reads": "arrays read", "writes": "arrays written",
    "warps": "warps a block", "b": "blocks an SM", "FMA": "multiplications and additions a cell",
    "ALU": "comparisons and choices a cell", "MUFU": "divisions, roots and functions a cell",
    "W": "cells that a step makes in a turn", "T": "time steps of a pass",
    "lines": "rows of a thread", "near": "1 where a side is not periodic, else 0",
    "loads": "pieces from shared memory and to it a cell", "shuffles": "values from other lanes a cell",
    "moves": "cells that move on in registers, a cell", "window": "cells that a block fetches a plane",
    "singles": "cells of them that it fetches one by one",
    "over": "planes that a block fetches besides its own", "stages": "planes under way",
    "own_rows": "rows of a thread times fields",
}  # fmt: skip
#: Warp instructions of a turn besides its cells, and of each row of a thread in a step: counted in what nvcc 13 makes
#: of three kernels for sm_90a.
TURN, ROW = 60.0, 32.0
#: Fitted: what such a row takes more in a step where a border may be near, in instructions: choices behind
#: branches, over which nothing overlaps.
NEAR: Final = 46.0
#: Fitted: clocks that a block waits for its warps to meet, in a turn; and for each instruction of a warp, which waits
#: for those before it.
MEET, DEPEND = 190.0, 0.27
#: Fitted: clocks of a turn that a thread waits for each of its rows and fields (what it reads from shared memory, and
#: choices at borders), in a pass of one step and in each step of several, where nvcc has more to put in between.
ROW_WAIT, STEP_WAIT = 112.0, 10.0
#: Fitted: clocks of an SM for a warp's copy of single cells to shared memory, one a lane (5 to 6 where nothing else
#: runs, f32 out of L2, an H200).
SINGLE: Final = 8.0
#: Fitted: the order of the norm.
ORDER: Final = 3.9
#: Fitted: the share of their time that blocks of an SM fill for each other, if there are many.
FILLED: Final = 0.06


@lru_cache(maxsize=1 << 12)
def numbers(update: Update, s: UpdateSchedule, planes: int) -> Layers:
    """What a schedule of one time step a pass keeps of an update, in elements."""
    return Layers(
        reads=levels.reads_of(update), fields=dict(update.fields), nbytes=ITEMSIZE[update.dtype], lines=s.lines,
        planes=planes, warps=s.warps, stages=s.stages,
    )  # fmt: skip


def registers(update: Update, n: Layers) -> int:
    """Estimated 32-bit registers of a thread of a pass of one time step."""
    return layers.registers(n, bordered(update), units(update)["MUFU"] > 0)


def resident(update: Update, n: Layers, device: DeviceProfile) -> int:
    """Blocks of a pass of one time step that an SM has room for."""
    return layers.resident(n, registers(update, n), ITEMSIZE[update.dtype], device)


def _of_one(update: Update, s: UpdateSchedule, device: DeviceProfile) -> dict[str, float]:
    """What a pass of one time step reads, fetches and loads."""
    n = numbers(update, s, s.planes)
    arrays, cells = (*n.rings, *n.owns), n.tile[1] * n.tile[2]
    return {
        "R": n.tile[1], "C": n.tile[2], "W": cells, "turns": n.turns, "reads": len(arrays),
        "writes": len(update.fields), "b": resident(update, n, device), "loads": loads(n) / n.piece,
        "shuffles": 0.0, "moves": n.kept, "piece": n.piece, "over": n.delay * len(n.rings),
        "window": sum(window(n, array) for array in n.rings) + len(n.owns) * cells,
        "own_rows": s.lines * len(update.fields),
    }  # fmt: skip


def _of_several(update: Update, s: UpdateSchedule, device: DeviceProfile) -> dict[str, float]:
    """What a pass of several reads, fetches, loads and makes again at the rim of its windows."""
    n = levels.numbers(update, s, s.planes)
    rows, columns = n.window
    return {
        "R": n.tile[1], "C": n.tile[2], "W": rows * columns, "turns": n.turns, "reads": len(n.came),
        "writes": len(n.outputs), "b": levels.resident(update, n, device), "piece": n.piece,
        "loads": levels.moved(n) / (n.lines * n.piece), "shuffles": levels.shuffles(n) / (n.lines * n.piece),
        "moves": sum(n.kept.values()), "over": (n.turns - n.tile[0]) * len(n.came),
        "window": sum((rows + 2 * ring.halo) * columns for ring in n.came.values()),
        "own_rows": s.lines * len(update.fields),
    }  # fmt: skip


def cost(update: Update, shape: tuple[int, ...], s: UpdateSchedule, device: DeviceProfile, steps: int = 1) -> Cost:
    """The cost of a pass on a grid of ``shape``, of a call of ``steps``: most of many passes go between padded rows.

    The schedule's planes are said.
    """
    padded = steps >= PADDED_FROM * s.levels
    size, (nz, ny, nx) = ITEMSIZE[update.dtype], shape
    own = (_of_one if s.levels == 1 else _of_several)(update, s, device)
    values: dict[str, float] = {
        **own, **units(update), "nz": nz, "ny": ny, "nx": nx, "P": s.planes, "T": s.levels, "warps": s.warps,
        "lines": s.lines, "near": float(bordered(update)),
        "stages": s.stages, "s": size, "vector": own["piece"] if padded or nx % own["piece"] == 0 else 1,
        "sms": device.own_sms, "sub": device.sub_cores, "f": device.clock, "launch": terms.STARTING * device.launch_s,
        "miss": device.missed(nz * ny * nx * size * (own["reads"] + own["writes"])),
        "bw_G": terms.REACH * device.bw_global, "bw_S": device.smem_bytes_per_clk_sm, "lat": device.lat_dram,
        "bw_L2": device.l2_bytes_per_clk_sm, "deep": deep(update),
        "fma_rate": device.f64_fma_per_clk_sm if update.dtype == "f64" else device.f32_fma_per_clk_sm,
    }  # fmt: skip
    values["singles"] = own["window"] if values["vector"] < own["piece"] else 0
    return LAW.evaluate(s, values, device, shape, update, s.levels)


def _equations(s: UpdateSchedule, v: Any, a: Arithmetic) -> tuple[Any, dict[str, Any]]:
    """``time`` and its terms, for floats and for sympy alike."""
    blocks = a.ceil(v.nz / v.P) * a.ceil(v.ny / v.R) * a.ceil(v.nx / v.C)
    b = a.min(v.b, a.ceil(blocks / v.sms))
    per_sm = a.ceil(blocks / (v.sms * b)) * b
    scale = per_sm * v.turns / v.f  # seconds of a clock that each turn of a block takes
    held = b * v.warps / v.sub
    even = scale * a.ceil(held) / held
    grid = v.nz * v.ny * v.nx * v.s
    cells = v.R * v.C  # of a block's plane
    threads = v.warps * 32
    made = v.W * v.T  # cells that a turn makes
    work = made * (v.FMA + v.ALU + v.MUFU) + v.W * (v.moves * v.s / 4 + v.loads + v.shuffles * a.max(1, v.s / 4))
    work += cells * v.writes / v.vector
    around = TURN + v.lines * v.T * (ROW + NEAR * v.near) + v.window / v.vector / threads * FETCH
    issued = work / threads + around
    alone = issued + made / threads * v.FMA * (32 * v.sub / v.fma_rate - 1)  # f64 takes two clocks
    rows = ROW_WAIT if s.levels == 1 else STEP_WAIT * v.T
    found = {
        "hbm": v.miss * grid * (v.reads + v.over / v.P + v.writes) / v.bw_G,
        "l2": scale * (v.window + v.writes * cells) * v.s / v.bw_L2,
        "fma": even * made * v.FMA / v.fma_rate,
        "alu": even * made * v.ALU / ALU,
        "mufu": even * made * v.MUFU / MUFU,
        "shared": scale * (v.W * (v.loads * v.piece + v.shuffles) + 2 * v.window) * v.s / v.bw_S,
        "issue": even * v.warps * issued / v.sub,
        "wait": scale / b * (MEET + rows * v.own_rows + DEPEND * alone + made / threads * v.MUFU * v.deep),
        "single": scale * v.singles / 32 * SINGLE,
        "fetch": (1 + (terms.LOADED - 1) * v.miss) * v.lat * scale / ((v.stages - 1) * b),
        "launch": v.launch,
    }
    halo = (v.window / cells - v.reads) / (v.reads + v.writes)
    dram = STATIC * (1 + AGAIN * halo) * found["hbm"]
    memory = (a.max(dram, found["l2"]) ** 2 + (WAITED * found["fetch"]) ** 2) ** 0.5
    others = (*(found[name] for name in ("fma", "alu", "mufu", "shared", "single")), found["issue"] + found["wait"])
    busy = sum((t**ORDER for t in others), memory**ORDER) ** (1 / ORDER)
    return v.launch + busy * (1 - FILLED * (1 - 1 / b)), found


LAW: Final = Law(_equations, SYMBOLS, REASONS, frozenset(("fetch", "launch")), steps_rate)
