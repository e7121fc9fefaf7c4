"""The terms of a stencil kernel's time and their formula: the same equations for floats and for sympy.

    serial = Σ over phases of (longest + (sum - longest) / w) + latency
    time   = launch + setup + max(√(memory² + fetch²), start, bound + (serial - bound) / b) + edge + rim

A phase lies between two barriers (fill: copy or transform the tile; use: multiply and store) and keeps several units
of the SM busy: tensor cores, FMA pipes, the load/store path to shared memory and L1, the schedulers.  ``bound`` is
the unit that is busiest over all phases, and with stages = 1 (a block waits for its own loads) the memory as well.
One law is used twice: n parties that go through the same stations one after another hide each other's work but for
one part in n (the pessimistic balanced-job bound of a closed queueing network).  Inside a phase the parties are the w
warps of a block on one scheduler; across phases they are the b blocks of an SM.  Blocks that first load their tile and
then work on it (tiled) are b customers of two queues, the memory's and the SM's: with exponential times the busier one,
the other r times as busy, does 1 - (1 - r) rᵇ / (1 - rᵇ⁺¹) of what it could (M/M/1/b; the part of b that waits is
at the other), and where that is more it is what ``exposed`` says.
"""

from __future__ import annotations

from typing import Any

from sparsegen.cost.arithmetic import Arithmetic
from sparsegen.families.base import Num, family
from sparsegen.schedule import StencilSchedule

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
    "fetch": "a tile fetched ahead takes the latency of a loaded DRAM; stages - 1 of them are under way a "
    "block; or turns that each ask for what the next one reads",
    "start": "blocks start on an SM one after another, so small ones come no faster than that",
    "setup": "a block that stays loads its weights into registers once, from a table in the order of the fragments",
    "transform": "stencil2row in global memory: a launch of its own that reads the grid and writes A and B",
    "exposed": "what the resident blocks cannot overlap: work of all units but the binding one, and latency, over b; "
    "or the memory's rest while all of them are past their loads, or phases that all blocks of a first wave are in",
    "edge": "tiles that touch a border map each index; blocks that stay meet them unevenly",
    "rim": "cells that time fusion gets wrong near a border: a launch of small tiles that does the steps one by one",
    "launch": "starting the kernels",
}
#: The formula's symbols, and what they are.
SYMBOLS: dict[str, str] = {
    "nz": "planes of the grid",
    "ny": "rows of the grid",
    "nx": "columns of the grid",
    "P": "planes of a tile",
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
    "reach_z": "its halo planes",
    "T": "levels of a pass that live in registers (stream, patches)",
    "cols": "columns of a lane",
    "rx": "columns that a level reaches",
    "warps": "warps a block",
    "strips": "fragments of M patches side by side in a warp's strip (patches)",
}
#: Threads and tile edge of a rim's blocks (ir/kernels/rim.py).
RIM_THREADS, RIM_TILE = 128, 16

# ---- fitted on one H200 (tests/cost/measured.py); everything above is counted or read from a profile
#: Share of the driver's copy speed that a kernel's loads and stores reach.
REACH = 0.945
#: Share of the time between empty launches, which the host takes, that a kernel adds by its start and its end.
STARTING = 0.88
#: Time of the memory for blocks that stay, over that for blocks of one tile each.
STATIC = 1.2
#: Sectors written, over the least, where results are stored as single elements.
HALF_SECTORS = 1.4
#: Clocks that a loaded line is held in L1 from request to use, with the memory saturated (on one axis not at all: a
#: warp's loads take whole lines).
L1_HOLD = 3750.0
#: Warps' worth of latency that a warp's instruction waits for: w warps of a scheduler issue w / (w + WAITS) a clock.
WAITS = 1.1
#: Independent instructions of a warp that overlap: it counts as so many parties inside a phase.
ILP = 2.5
#: Clocks from the start of one block on an SM to that of the next.
APART = 156.0
#: What a tile that is fetched ahead waits for while others are, over the latency of an idle memory.
LOADED = 1.7
#: Below one, so that two queues of equal length have a formula.
EVEN = 1 - 1e-9
#: Clocks that an element of a border tile costs a thread more than one inside.
EDGE = 37.0
#: Clocks of a rim's cell, a step and a thread, and of each of its weights; share of a launch that starting it after its
#: pass takes (with those, 1131 kernels with rims on the H200 and 61 of small fields on an H100).
RIM, TAP, AFTER = 110.0, 29.0, 0.9


def equations(s: StencilSchedule, v: Any, a: Arithmetic) -> tuple[Num, dict[str, Num]]:
    """Time and terms of the values ``v``, be they floats or sympy's symbols, in their arithmetic."""
    max_, min_, ceil_ = a.max, a.min, a.ceil
    stays = s.stages > 1  # a block keeps its place and takes tile after tile (stream: one wave or few)
    flat = s.levelled and v.ny == 1  # its rows are short: blocks come and go
    element, out = (v.R + v.reach) * v.W, v.R * v.C  # of a tile, with and without halo
    tiles = ceil_(v.ny / v.R) * ceil_(v.nx / v.C)
    grid = v.ny * v.nx * v.item
    if hasattr(v, "nz"):
        element, out, tiles, grid = element * (v.P + v.reach_z), out * v.P, tiles * ceil_(v.nz / v.P), grid * v.nz
    b = min_(v.b, ceil_(tiles / v.SMs))  # blocks that an SM has in fact
    per_sm = ceil_(tiles / (v.SMs * b)) * b if stays else ceil_(tiles / v.SMs)  # tiles of the busiest SM
    work = family(s).work(s, v, element, out)
    scale = per_sm / v.f  # cycles a tile -> seconds
    hbm = v.miss * grid * (work.read + 1) / v.bw_G
    pitch = v.miss * grid * (v.half - 1) / v.bw_G
    static = (v.static - 1) * hbm if stays and not flat else 0
    l2 = scale * (work.fetched + out * v.half) * v.item / v.bw_L2
    # on a grid of one row a warp's loads take whole lines
    far = element * v.P / (v.P + v.reach_z) if hasattr(v, "nz") else element  # halo planes come from L2
    l1 = 0 if stays or not work.through_l1 else scale * v.miss * far * v.item * v.l1_hold / v.l1
    memory = max_(hbm + pitch + static, l2, l1)
    if hasattr(v, "warps"):  # warps that the sub-cores cannot share out evenly leave some of them idle
        scale *= v.sub * ceil_(b * v.warps / v.sub) / (b * v.warps)
    terms: dict[str, Num] = {}
    waiting = 1 + v.waits * v.sub / (b * v.threads / 32)  # few warps leave issue slots empty
    for phase in work.phases:
        phase["issue"] = phase["issue"] * waiting
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
    own = 0 if stays or not work.waits else memory * work.read / (work.read + 1)  # a block waits for what it reads
    exposed = max_(0, serial * scale + latency + own - bound) / max_(1, b * work.share)
    if not stays:  # blocks that start together go through their phases together: those of later waves do not
        staggered = 1 + (max_(1, b * work.share) - 1) * (1 - 1 / max_(1, per_sm / b))
        exposed = max_(exposed, max_(0, serial * scale + own - bound) / staggered)
    if work.queues:  # blocks that load first and then do the rest meet in two queues, of which one is empty at times
        rest = serial * scale + latency
        ratio = min_(min_(memory, rest) / max_(memory, rest), EVEN)
        exposed = max_(exposed, work.queues * bound * ratio**b * (1 - ratio) / (1 - ratio**b))
    fetch = work.paced * scale / b
    if stays:
        fetch = (1 + (LOADED - 1) * v.miss) * v.lat_dram * work.turns * scale / ((v.stages - 1) * b)
    start = 0 if stays else v.apart * scale
    launches = 2 if s.transform == "explicit" else 1
    transform = v.miss * grid * (1 + work.made) / v.bw_G if s.transform == "explicit" else 0
    setup = (work.setup + b * work.table / v.bw_L2) / v.f if stays else 0
    edge = scale / b * v.border * v.edge * element / v.threads
    rim = v.rim_blocks and AFTER * v.t_launch + ceil_(v.rim_blocks / (v.SMs * v.rim_b)) * v.rim_cycles / v.f
    slowest = max_((memory**2 + fetch**2) ** 0.5, start, bound + exposed)
    time = launches * v.t_launch + transform + slowest + setup + edge + rim
    terms |= {"hbm": hbm, "l2": l2, "latency": latency, "exposed": exposed, "launch": launches * v.t_launch}
    rest = {"pitch": pitch, "static": static, "l1": l1, "setup": setup, "fetch": fetch, "start": start,
            "transform": transform, "edge": edge, "rim": rim}  # fmt: skip
    return time, terms | {name: t for name, t in rest.items() if not (t == 0)}
