"""The terms of a stencil kernel's time and their formula: the same equations for floats and for sympy.

    serial = Σ over phases of (longest + (sum - longest) / w) + latency
    time   = launch + setup + max(memory, fetch, bound + (serial - bound) / b) + edge + rim

A phase lies between two barriers (fill: copy or transform the tile; use: multiply and store) and keeps several units
of the SM busy: tensor cores, FMA pipes, the load/store path to shared memory and L1, the schedulers.  ``bound`` is
the unit that is busiest over all phases, and with stages = 1 (a block waits for its own loads) the memory as well.
One law is used twice: n parties that go through the same stations one after another hide each other's work but for
one part in n (the pessimistic balanced-job bound of a closed queueing network).  Inside a phase the parties are the w
warps of a block on one scheduler; across phases they are the b blocks of an SM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsegen.schedule import StencilSchedule

Num = Any  #: a float, or a sympy expression

#: One line of reason for every term.
REASONS: dict[str, str] = {
    "tensor": "mma instructions x cycles per mma, over the SM's tensor cores",
    "fma": "multiply-adds on the CUDA cores",
    "hbm": "the grid is read and written once a launch (nothing if both time levels stay in L2)",
    "pitch": "rows that 16 bytes do not divide are stored in single elements: half sectors, each counted whole",
    "static": "blocks that stay take fixed shares of the tiles and do not reach the bandwidth of free ones; stream's "
    "stay for a whole strip or a large part of it",
    "l2": "tiles with their halo, and the results, go through each SM's port to L2",
    "l1": "loads under way need lines in L1, which is what shared memory leaves of the SM's 28 KiB and more",
    "shared": "bytes through the SM's load/store path (shared memory and L1), times their bank conflict degree",
    "issue": "warp instructions, one a clock and sub-core",
    "latency": "DRAM, shared memory and barriers that a block waits for, before division by the blocks that hide it",
    "fetch": "a tile fetched ahead takes at least a DRAM latency; stages - 1 of them are under way a block",
    "setup": "a block that stays loads its weights into registers once, from a table in the order of the fragments",
    "transform": "stencil2row in global memory: a launch of its own that reads the grid and writes A and B",
    "exposed": "what the resident blocks cannot overlap: work of all units but the binding one, and latency, over b",
    "edge": "tiles that touch a border map each index; blocks that stay meet them unevenly",
    "rim": "cells that time fusion gets wrong near a border: a launch of small tiles that does the steps one by one",
    "launch": "starting the kernels",
}
#: The formula's symbols, and what they are.
SYMBOLS: dict[str, str] = {
    "ny": "rows of the grid",
    "nx": "columns of the grid",
    "R": "rows of a tile",
    "C": "columns of a tile",
    "W": "columns of its window in memory",
    "k": "edge of the fused stencil",
    "p": "its non-zero weights",
    "threads": "threads a block",
    "b": "blocks an SM",
    "stages": "tiles in flight",
    "M": "rows of an mma",
    "N": "its columns, all blocks of 8",
    "D": "depth of a product: k * k rounded up to 4",
    "q_mma": "tensor-core cycles a tile: mma of each shape x their cycles",
    "n_mma": "mma a tile",
    "fragments": "weights that a lane holds",
    "rounds": "times that a thread waits for its loads of a tile",
    "d_load": "conflict degree of fragment loads",
    "d_store": "conflict degree of stores into A and B",
    "fill": "instructions per 32 elements put into A and B",
    "border": "share of a block's tiles that touch a border",
    "reach": "halo rows of a tile",
    "T": "levels of a pass that live in registers (stream)",
    "cols": "columns of a lane",
    "rx": "columns that a level reaches",
    "warps": "warps a block",
}
#: Warp instructions per 32 elements (or per event named), estimated from the printed inner loops.
INSTRUCTIONS: dict[str, float] = {
    "point": 12.0,  # direct: index and bounds of a point
    "copy": 8.0,  # one element (stages = 1) or one 16-byte copy (cp.async): index, bounds, load, store
    "scatter": 6.0,  # stencil2row: load a value, store it twice, advance
    "lut": 5.0,  # load and unpack the two offsets
    "computed": 22.0,  # two divisions by constants, two selects, two addresses
    "predicate": 20.0,  # dirty=off: two bounds tests, each with its branch and reconvergence (the paper: -19 %)
    "store": 4.0,  # address, bounds and store of a result
    "turn": 24.0,  # stream: a row's index, the ring's slot, wait and commit, two syncs, two guards
    "piece": 3.0,  # stream: address and copy of a piece of a row
}
#: Loads of a synchronous copy under way a thread, from global and out of shared memory (ir/lower/copy.py).
IN_FLIGHT, IN_FLIGHT_SHARED = 4, 2
#: Threads and tile edge of a rim's blocks (ir/passes/rim.py).
RIM_THREADS, RIM_TILE = 128, 16
#: Cells of a rim's tile where fields have one row (sparsegen/pipelines.py).
RIM_ROW = 256

# ---- fitted on one H200 (tests/cost/measured.py); everything above is counted or read from a profile
#: Time of the memory for blocks that stay, over that for blocks of one tile each.
STATIC = 1.32
#: Sectors written, over the least, where results are stored as single elements.
HALF_SECTORS = 1.5
#: Clocks that a loaded line is held in L1 from request to use, with the memory saturated.
L1_HOLD = 3750.0
#: Independent instructions of a warp that overlap: it counts as so many parties inside a phase.
ILP = 1.75
#: Clocks to start a block on an SM.
BLOCK = 75.0
#: Clocks that an element of a border tile costs a thread more than one inside.
EDGE = 140.0
#: Clocks until an entry of the lookup table is there (L1, behind the copies).
LUT_WAIT = 83.0
#: Clocks of a rim's cell, a step and a thread.
RIM = 360.0


@dataclass(frozen=True)
class Work:
    """What a block does for one tile: cycles of each unit of the SM, phase by phase (barriers between the phases)."""

    phases: tuple[dict[str, Num], ...]
    latency: Num
    fetched: Num  #: elements read from global memory
    read: Num = 1  #: the same a grid point, halo left out
    setup: Num = 0  #: cycles before a block's first tile
    stored: Num = 1  #: sectors written, over the least
    turns: Num = 1  #: fetches of a tile, one after the other


def equations(s: StencilSchedule, v: Any, max_: Any, min_: Any, ceil_: Any) -> tuple[Num, dict[str, Num]]:
    """Time and terms, in floats or in sympy according to ``v`` and the three functions."""
    stays = s.stages > 1  # a block keeps its place and takes tile after tile (stream: one wave or few)
    flat = s.family == "stream" and v.ny == 1  # its rows are short: blocks come and go
    element, out = (v.R + v.reach) * v.W, v.R * v.C  # of a tile, with and without halo
    tiles = ceil_(v.ny / v.R) * ceil_(v.nx / v.C)
    b = min_(v.b, ceil_(tiles / v.SMs))  # blocks that an SM has in fact
    per_sm = ceil_(tiles / (v.SMs * b)) * b if stays else ceil_(tiles / v.SMs)  # tiles of the busiest SM
    grid = v.ny * v.nx * v.item
    works = {"direct": _direct, "tiled": _tiled, "stencil2row": _stencil2row, "stream": _stream}
    work = works[s.family](s, v, element, out)
    scale = per_sm / v.f  # cycles a tile -> seconds
    hbm = v.miss * grid * (work.read + 1) / v.bw_G
    pitch = v.miss * grid * (v.half - 1) / v.bw_G
    static = (v.static - 1) * hbm if stays and not flat else 0
    l2 = scale * (work.fetched + out * v.half) * v.item / v.bw_L2
    l1 = 0 if stays or s.family == "direct" else scale * v.miss * element * v.item * v.l1_hold / v.l1
    memory = max_(hbm + pitch + static, l2, l1)
    if s.family == "stream":  # its few warps leave sub-cores idle where the grid is small
        scale *= max_(1, v.sub / (b * v.warps))
    terms: dict[str, Num] = {}
    for phase in work.phases:
        for name, cycles in phase.items():
            terms[name] = terms.get(name, 0) + cycles * scale
    bound = max_(*terms.values())
    if not stays:
        bound = max_(bound, memory)
    parties = max_(1, v.ilp * v.threads / 32 / v.sub)  # of a block, on one scheduler
    serial = sum(
        longest + (sum(phase.values()) - longest) / parties
        for phase in work.phases
        for longest in (max_(*phase.values()),)
    )
    latency = work.latency * scale
    own = 0 if stays else memory * work.read / (work.read + 1)  # a block waits for what it reads
    exposed = max_(0, serial * scale + latency + own - bound) / b
    fetch = v.lat_dram * work.turns * scale / ((v.stages - 1) * b) if stays else 0
    launches = 2 if s.transform == "explicit" else 1
    transform = v.miss * grid * (1 + work.read) / v.bw_G if s.transform == "explicit" else 0
    setup = work.setup / v.f if stays else 0
    edge = scale / b * v.border * v.edge * element / v.threads
    rim = v.rim_blocks and v.t_launch + ceil_(v.rim_blocks / (v.SMs * v.rim_b)) * v.rim_cycles / v.f
    time = launches * v.t_launch + transform + max_(memory, fetch, bound + exposed) + setup + edge + rim
    terms |= {"hbm": hbm, "l2": l2, "latency": latency, "exposed": exposed, "launch": launches * v.t_launch}
    rest = {"pitch": pitch, "static": static, "l1": l1, "setup": setup, "fetch": fetch, "transform": transform,
            "edge": edge, "rim": rim}  # fmt: skip
    return time, terms | {name: t for name, t in rest.items() if not (t == 0)}


def _direct(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """One thread a point: every weight's value comes through L1, and nothing is kept."""
    use = {
        "fma": out * v.p / v.fma_rate,
        "shared": out * v.item * (v.p + 1) / v.bw_S,
        "issue": out / 32 * (2 * v.p + INSTRUCTIONS["point"]) / v.sub,
    }
    return Work((use,), v.lat_dram * v.rounds + v.block, element)


def _tiled(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A tile in shared memory; a thread owns per_y rows of per_x outputs and reads each row's segment once."""
    stays = s.stages > 1
    copies = element / v.vector if stays else element
    fill = {"shared": element * v.item / v.bw_S, "issue": copies / 32 * INSTRUCTIONS["copy"] / v.sub}
    segments = v.threads * (v.per_y + v.k - 1)
    use = {
        "fma": out * v.p / v.fma_rate,
        "shared": (segments * v.span + out) * v.item / v.bw_S,
        "issue": (out * v.p + segments * v.span / v.per_x + out / v.per_x * INSTRUCTIONS["store"]) / 32 / v.sub,
    }
    wait = 0 if stays else v.lat_dram * v.rounds + v.block
    return Work((fill, use), wait + 2 * v.lat_barrier + v.lat_shared, element)


def _stencil2row(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A and B in shared memory, dual tessellation: products of M x (k + 1) outputs."""
    stays, explicit = s.stages > 1, s.transform == "explicit"
    products = out / (v.M * (v.k + 1))
    operand = 2 * v.D * v.M * products  # elements of A and B that are read
    window = (v.R + v.k - 1) * (v.C + v.k - 1)
    read = 2 * v.k / (v.k + 1) if explicit else 1
    loaded = read * v.C * (v.R + v.k - 1) if explicit else window
    stores = loaded if explicit else 2 * window * v.d_store
    traffic = stores + (element + window if stays else 0) + (window * 8 / v.item if s.lut else 0)
    copies = element / v.vector / 32 * INSTRUCTIONS["copy"] if stays else 0
    fill = {"shared": traffic * v.item / v.bw_S, "issue": (loaded / 32 * v.fill + copies) / v.sub}
    near = v.lat_shared if stays else v.lat_dram
    wait = v.rounds * (near + (v.lat_table if s.lut else 0)) + (0 if stays else v.block)
    if s.mma == "none":  # a lane makes two outputs a block of 8 columns, from one of A and two weights through L1
        fma = operand * v.N
        loads = operand / v.M * (1 + v.N / 8) * (v.M / 8)  # warp loads, a wavefront each
        use = {"fma": fma / v.fma_rate, "shared": (loads * 128 * v.d_load + out * v.item) / v.bw_S,
               "issue": (loads + fma / 32 + out / 32 * INSTRUCTIONS["store"]) / v.sub}  # fmt: skip
        return Work((fill, use), wait + 2 * v.lat_barrier + v.lat_shared, loaded, read)
    table = v.fragments * v.threads
    use = {
        "tensor": v.q_mma / v.sub,
        "shared": (operand * v.d_load + out) * v.item / v.bw_S,
        "issue": (operand / 32 + v.n_mma + out / 32 * INSTRUCTIONS["store"]) / v.sub,
    }
    if not stays:
        fill["shared"] += table * v.item / v.bw_S
        wait += v.lat_l2
    setup = v.lat_dram + table * v.item / v.bw_L2 if stays else 0
    return Work((fill, use), wait + 2 * v.lat_barrier + v.lat_shared, loaded, read, setup)


def _stream(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A warp walks down a strip: each row goes through all levels, which live in registers, and then leaves."""
    rows = v.R + v.reach
    lanes = v.warps * rows  # rows of a warp in a tile
    shuffled = 2 * v.rx * v.T  # elements that come from each neighbouring lane
    pieces = v.cols / v.vector
    own = v.cols * v.item / 16  # a lane's own columns, 16 bytes at a time
    instructions = (
        v.T * (v.cols * v.p + 2 * v.rx * v.item / 4)
        + INSTRUCTIONS["turn"]
        + pieces * (INSTRUCTIONS["piece"] + INSTRUCTIONS["store"])
        + 2 * own
    )
    use = {
        "fma": lanes * 32 * v.T * v.cols * v.p / v.fma_rate,
        "shared": lanes * 32 * (4 * v.cols + shuffled) * v.item / v.bw_S,
        "issue": lanes * instructions / v.sub,
    }
    wait = rows * 2 * v.lat_shared + v.lat_dram + v.block  # a row is read; results cross the lanes on their way out
    return Work((use,), wait, element, rows / v.R, turns=rows)
