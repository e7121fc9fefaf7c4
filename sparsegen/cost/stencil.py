"""What a stencil schedule costs on a device: named terms, one formula, evaluated in plain floats or shown by sympy.

The formula, for a grid whose tiles are shared out over the SMs, b resident blocks on each:

    phase  = longest + (sum - longest) / w               for each phase of a block's tile
    time   = launch + setup + max(memory, fetch, bound + (Σ phases + latency - bound) / b)

A phase is what lies between two barriers (fill: copy or transform the tile; use: multiply and store). It keeps
several units of the SM busy: tensor cores, FMA pipes, the load/store path to shared memory and L1, the schedulers.
``bound`` is the unit that is busiest over all phases; ``memory`` is HBM or the L2 ports, whichever takes longer.
The same law is used twice: n parties that go through the same stations one after another hide each other's work but
for one part in n (the pessimistic balanced-job bound of a closed queueing network). Inside a phase the parties are
the w warps that a block has on one scheduler; across phases they are the b blocks of an SM, because barriers keep a
block's warps in step. With stages = 1 a block waits for its own loads: memory is then a unit of its first phase,
each batch of loads adds a DRAM latency, and blocks live for one tile, so each pays setup again. With stages >= 2
memory overlaps and blocks stay.

What is measured, counted and fitted: rates, CPI and bandwidths come from the profile; mma, FMA, shared bytes and
bank conflicts are counted from the schedule. Fitted to the hand-written kernels on the H200
(tests/cost/test_stencil_cost.py) are the choice of that law, INSTRUCTIONS, LOADS_COPY and LOADS_SCATTER,
CONSTANT_ADDRESSES and the estimate of registers, which gives b. No figure belongs to a single schedule. Known
errors: the gain of dirty bits on the A100 is under-predicted (the paper: 19 %), and the one-step tiled figure
(250 GS/s) lies between stages = 1 and stages = 2. Neither the emulator nor the warp level is imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from sparsegen.cost.devices import DeviceProfile
from sparsegen.geometry import Geometry, fused_k, geometry, legal, legalise, registers
from sparsegen.schedule import ITEMSIZE, StencilSchedule

Num = Any  #: a float, or a sympy expression: the same equations are used for both

#: One line of reason for every term.
REASONS: dict[str, str] = {
    "tensor": "mma instructions x cycles per mma, over the SM's tensor cores",
    "fma": "multiply-adds on the CUDA cores",
    "hbm": "the grid is read and written once a launch (nothing if both time levels stay in L2)",
    "l2": "tiles with their halo, and the results, go through each SM's port to L2",
    "shared": "bytes through the SM's load/store path (shared memory and L1), times their bank conflict degree",
    "issue": "warp instructions, one a clock and sub-core",
    "latency": "DRAM, shared memory and barriers that a block waits for, before division by the blocks that hide it",
    "fetch": "a tile fetched ahead takes at least a DRAM latency; stages - 1 of them are under way a block",
    "setup": "a block loads its weights into registers before its first tile",
    "transform": "stencil2row in global memory: a launch of its own that reads the grid and writes A and B",
    "exposed": "what the resident blocks cannot overlap: work of all units but the binding one, and latency, over b",
    "launch": "starting the kernels",
}
#: Warp instructions per 32 elements (or per event named), estimated from the hand-written kernels' inner loops.
INSTRUCTIONS: dict[str, float] = {
    "point": 12.0,  # direct: index and bounds of a point
    "copy": 8.0,  # one element (stages = 1) or one 16-byte copy (cp.async): index, bounds, load, store
    "scatter": 6.0,  # stencil2row: load a value, store it twice, advance
    "lut": 5.0,  # load and unpack the two offsets
    "computed": 22.0,  # two divisions by constants, two selects, two addresses
    "predicate": 10.0,  # dirty=off: two bounds tests, each with its branch and reconvergence
    "store": 4.0,  # address, bounds and store of a result
}
#: Loads that a thread has under way (the unrolling of its copy loop); a scatter needs two addresses a value.
LOADS_COPY, LOADS_SCATTER = 8.0, 6.0
#: Addresses a clock that an SM serves from the constant bank when a warp's lanes differ (the weights of a fragment).
CONSTANT_ADDRESSES = 2.0


#: The formula's symbols, and what they are.
SYMBOLS: dict[str, str] = {
    "ny": "rows of the grid",
    "nx": "columns of the grid",
    "R": "rows of a tile",
    "C": "columns of a tile",
    "k": "edge of the fused stencil",
    "p": "its non-zero weights",
    "threads": "threads a block",
    "b": "blocks an SM",
    "stages": "tiles in flight",
    "M": "rows of an mma",
    "K_f": "K of an mma",
    "CPI": "cycles per mma and sub-core",
    "d_load": "conflict degree of fragment loads",
    "d_store": "conflict degree of stores into A and B",
    "fill": "instructions per 32 elements put into A and B",
}


@dataclass(frozen=True)
class Cost:
    """The predicted cost of one launch.  ``terms`` are seconds; they overlap, so they do not add up to ``time``."""

    schedule: StencilSchedule
    device: str
    shape: tuple[int, int]
    time: float
    terms: dict[str, float]
    steps_per_launch: int
    binds: str
    blocks_per_sm: int
    #: the numbers behind the formula's symbols
    values: dict[str, float] = field(repr=False)

    @property
    def time_per_step(self) -> float:
        """Seconds per real time step."""
        return self.time / self.steps_per_launch

    @property
    def rate(self) -> float:
        """GS/s: points x real time steps a second, in 1e9."""
        return self.shape[0] * self.shape[1] / self.time_per_step / 1e9

    @property
    def formula(self) -> Num:
        """``time`` as a sympy expression in schedule and grid symbols (SYMBOLS); device figures are numbers in it.

        ``formula.xreplace(cost.substitution())`` is ``time``, by the same equations (so is ``subs``, in seconds).
        """
        import sympy

        def lazy(function: Any) -> Any:  # else sympy tries for seconds to compare the arguments
            return lambda *args: function(*map(sympy.sympify, args), evaluate=False)

        v = {name: sympy.Symbol(name) if name in SYMBOLS else sympy.sympify(x) for name, x in self.values.items()}
        return _equations(self.schedule, SimpleNamespace(**v), lazy(sympy.Max), lazy(sympy.Min), lazy(sympy.ceiling))[0]

    def substitution(self) -> dict[Num, Num]:
        """The formula's symbols and their numbers."""
        import sympy

        return {sympy.Symbol(name): sympy.sympify(x) for name, x in self.values.items() if name in SYMBOLS}

    def reasons(self) -> dict[str, str]:
        """Why each term is there, one line each."""
        return {name: REASONS[name] for name in self.terms}


def cost(
    k: int, points: int, shape: tuple[int, int], schedule: StencilSchedule, device: DeviceProfile, dtype: str = "f64"
) -> Cost:
    """Cost of one launch for a stencil of edge ``k`` with ``points`` non-zero weights (one step's) on a grid.

    ScheduleError if the schedule is not legal there.
    """
    schedule = legalise(schedule, k)
    legal(schedule, k, device, dtype)
    return evaluate(k, points, shape, schedule, device, dtype, geometry(schedule, k, ITEMSIZE[dtype]))


def evaluate(
    k: int, points: int, shape: tuple[int, int], s: StencilSchedule, device: DeviceProfile, dtype: str, g: Geometry
) -> Cost:
    """``cost`` for a schedule known to be legal, with its geometry at hand."""
    b = blocks_per_sm(s, g, device)
    values = _values(s, g, fused_points(k, points, s.fuse), shape, device, dtype, b)
    time, terms = _equations(s, SimpleNamespace(**values), max, min, math.ceil)
    binds = max((n for n in terms if n not in ("exposed", "latency")), key=terms.__getitem__)
    if terms["latency"] / b > terms[binds]:
        binds = "latency"
    return Cost(s, device.name, shape, time, terms, s.fuse, binds, b, values)


@cache
def fused_points(k: int, points: int, fuse: int) -> int:
    """Non-zero weights after fusion: the 5-point star becomes a diamond, anything else is taken as a full box."""
    kk = fused_k(k, fuse)
    if fuse == 1:
        return points
    if points == 2 * k - 1 and k == 3:  # the 5-point star: |dy| + |dx| <= fuse
        return 2 * fuse * (fuse + 1) + 1
    return kk * kk


def blocks_per_sm(s: StencilSchedule, g: Geometry, device: DeviceProfile) -> int:
    """Blocks resident on an SM, at least 1, by threads, registers and shared memory (1 KiB a block is the system's)."""
    regs = -(-registers(s, g) // 8) * 8
    return max(
        1,
        min(
            device.max_threads_sm // g.threads,
            device.smem_sm // (g.smem_bytes + 1024),
            device.regs_sm // (regs * g.threads),
            device.max_blocks_sm,
        ),
    )


@cache
def fragment_degree(stride: int) -> float:
    """Wavefronts of an 8 x 4 f64 fragment load (rows ``stride`` doubles apart) over the least possible, 2."""
    worst = []
    for half in (0, 4):
        banks = [((half + row) * stride + col) % 16 for row in range(4) for col in range(4)]
        worst.append(max(banks.count(bank) for bank in banks))
    return sum(worst) / 2


def store_degree(g: Geometry) -> float:
    """Mean wavefronts of a warp's store into A or B over the least possible, 2; the whole tile, dirty slot included."""
    return _store_degree(g.halo_rows, g.halo_cols, g.k, g.groups, g.stride_ab, g.offset_dirty if g.slots else -1)


@cache
def _store_degree(rows: int, cols: int, k: int, groups: int, stride: int, dirty: int) -> float:
    e = np.arange(rows * cols)
    row, col = e // cols, e % cols
    total, halves = 0, 0
    for shift, base in ((0, 0), (k, groups * stride)):
        group, j = (col - shift) // (k + 1), (col - shift) % (k + 1)
        live = (col >= shift) & (j < k) & (group < groups)
        address = np.where(live, base + group * stride + k * row + j, dirty)
        address = np.append(address, np.full(-len(e) % 16, -1)).reshape(-1, 16)
        address.sort(axis=1)
        fresh = np.diff(address, axis=1, prepend=-2) != 0  # lanes that write one address together cost one
        fresh &= address >= 0
        half = np.nonzero(fresh)[0]
        counts = np.bincount(16 * half + address[fresh] % 16, minlength=address.size).reshape(-1, 16)
        total, halves = total + int(counts.max(axis=1).sum()), halves + len(address)
    return total / halves


def _values(
    s: StencilSchedule, g: Geometry, points: int, shape: tuple[int, int], d: DeviceProfile, dtype: str, b: int
) -> dict[str, float]:
    """The symbols of the formula and their numbers: grid, schedule, device."""
    item = ITEMSIZE[dtype]
    v: dict[str, float] = {
        "ny": shape[0],
        "nx": shape[1],
        "R": g.rows,
        "C": g.cols,
        "k": g.k,
        "p": points,
        "threads": g.threads,
        "b": b,
        "item": item,
        "stages": s.stages,
        "SMs": d.sms,
        "sub": d.sub_cores,
        "f": d.clock,
        "bw_G": d.bw_global,
        "bw_S": d.smem_bytes_per_clk_sm,
        "bw_L2": d.l2_bytes_per_clk_sm,
        "fma_rate": d.f64_fma_per_clk_sm if dtype == "f64" else d.f32_fma_per_clk_sm,
        "t_launch": d.launch_s,
        "lat_dram": d.lat_dram,
        "lat_shared": d.lat_shared,
        "lat_l2": d.lat_l2,
        "lat_barrier": d.lat_barrier,
        "miss": 0.0 if 2 * shape[0] * shape[1] * item <= d.l2_bytes else 1.0,
    }
    if s.family == "stencil2row":
        f64 = dtype == "f64"
        v |= {
            "M": g.m,
            "K_f": g.k_f,
            "CPI": d.cpi.get(s.mma, 1.0),
            "d_load": fragment_degree(g.stride_ab) if f64 else 1.0,
            "d_store": store_degree(g) if f64 and s.transform == "implicit" else 1.0,
            "fill": INSTRUCTIONS["scatter"]
            + INSTRUCTIONS["lut" if s.lut else "computed"]
            + (0.0 if s.dirty else INSTRUCTIONS["predicate"]),
        }
    return v


def _equations(s: StencilSchedule, v: Any, max_: Any, min_: Any, ceil_: Any) -> tuple[Num, dict[str, Num]]:
    """Time and terms, in floats or in sympy according to ``v`` and the three functions."""
    element, out = (v.R + v.k - 1) * (v.C + v.k - 1), v.R * v.C  # of a tile, with and without halo
    tiles = ceil_(v.ny / v.R) * ceil_(v.nx / v.C)
    b = min_(v.b, ceil_(tiles / v.SMs))  # blocks that an SM has in fact
    per_sm = ceil_(tiles / (v.SMs * b)) * b  # tiles of the busiest SM: whole waves
    grid = v.ny * v.nx * v.item
    work = {"direct": _direct, "tiled": _tiled, "stencil2row": _stencil2row}[s.family](s, v, element, out, max_, ceil_)
    scale = per_sm / v.f  # cycles a tile -> seconds
    hbm = v.miss * grid * (work.read + 1) / v.bw_G
    l2 = scale * (work.fetched + out) * v.item / v.bw_L2
    memory = max_(hbm, l2)
    setup = work.setup * (scale if s.stages == 1 else b / v.f)
    units = [{n: c * scale for n, c in phase.items()} for phase in work.phases]
    terms: dict[str, Num] = {}
    for phase in units:
        for name, t in phase.items():
            terms[name] = terms.get(name, 0) + t
    bound = max_(*terms.values())
    if s.stages == 1:  # a block waits for its own loads: a unit of its first phase
        units[0]["memory"] = memory
        bound = max_(bound, memory, setup)
    warps = max_(1, v.threads / 32 / v.sub)  # of a block, on one scheduler
    serial = sum(
        longest + (sum(phase.values()) - longest) / warps for phase in units for longest in (max_(*phase.values()),)
    )
    latency = work.latency * scale
    exposed = max_(0, serial + latency + (setup if s.stages == 1 else 0) - bound) / b
    fetch = 0 if s.stages == 1 else v.lat_dram * scale / ((v.stages - 1) * b)
    launches = 2 if s.transform == "explicit" else 1
    transform = v.miss * grid * (1 + work.read) / v.bw_G if s.transform == "explicit" else 0
    time = launches * v.t_launch + transform + max_(memory, fetch, bound + exposed) + (0 if s.stages == 1 else setup)
    terms |= {"hbm": hbm, "l2": l2, "latency": latency, "exposed": exposed, "launch": launches * v.t_launch}
    terms |= {name: t for name, t in (("setup", setup), ("fetch", fetch), ("transform", transform)) if not (t == 0)}
    return time, terms


@dataclass(frozen=True)
class _Work:
    """What a block does for one tile: cycles of each unit of the SM, phase by phase (barriers between the phases)."""

    phases: tuple[dict[str, Num], ...]
    latency: Num
    fetched: Num  #: elements read from global memory
    read: Num = 1  #: the same a grid point, halo left out
    setup: Num = 0  #: cycles before a block's first tile


def _direct(s: StencilSchedule, v: Any, element: Num, out: Num, max_: Any, ceil_: Any) -> _Work:
    """One thread a point: every weight's value comes through L1, and nothing is kept."""
    return _Work(
        (
            {
                "fma": out * v.p / v.fma_rate,
                "shared": out * v.item * (v.p + 1) / v.bw_S,
                "issue": out / 32 * (2 * v.p + INSTRUCTIONS["point"]) / v.sub,
            },
        ),
        v.lat_dram,
        element,
    )


def _tiled(s: StencilSchedule, v: Any, element: Num, out: Num, max_: Any, ceil_: Any) -> _Work:
    """A tile in shared memory; a thread owns a column of ``rpt`` points and reads it once a column offset."""
    rpt = out / v.threads
    loads = (rpt + v.k - 1) * v.k / rpt
    copies = element if s.stages == 1 else element * v.item / 16
    fill = {"shared": element * v.item / v.bw_S, "issue": copies / 32 * INSTRUCTIONS["copy"] / v.sub}
    use = {
        "fma": out * v.p / v.fma_rate,
        "shared": out * (loads + 1) * v.item / v.bw_S,
        "issue": out / 32 * (v.p + loads + INSTRUCTIONS["store"]) / v.sub,
    }
    wait = v.lat_dram * max_(1, element / v.threads / LOADS_COPY) if s.stages == 1 else 0
    return _Work((fill, use), wait + 2 * v.lat_barrier + v.lat_shared, element)


def _stencil2row(s: StencilSchedule, v: Any, element: Num, out: Num, max_: Any, ceil_: Any) -> _Work:
    """A and B in shared memory, dual tessellation: K-padded products of M x (k + 1) outputs."""
    slices = ceil_(v.k * v.k / v.K_f)
    products = out / (v.M * (v.k + 1))
    mmas = 2 * slices * ceil_((v.k + 1) / 8) * products
    fragments = 2 * v.K_f * slices * v.M * products  # elements of A and B that are read
    ahead, explicit = s.stages > 1, s.transform == "explicit"
    read = 2 * v.k / (v.k + 1) if explicit else 1
    loaded = read * v.C * (v.R + v.k - 1) if explicit else element
    stores = loaded if explicit else 2 * element * v.d_store
    traffic = stores + (2 * element if ahead else 0) + (element * 8 / v.item if s.lut else 0)
    copies = element * v.item / 16 / 32 * INSTRUCTIONS["copy"] if ahead else 0
    fill = {"shared": traffic * v.item / v.bw_S, "issue": (loaded / 32 * v.fill + copies) / v.sub}
    chain = v.lat_dram + (v.lat_l2 if s.lut else 0)
    wait = 0 if ahead else chain * max_(1, loaded / v.threads / LOADS_SCATTER)
    issue = fragments / 32 + out / 32 * INSTRUCTIONS["store"]
    use = {"shared": (fragments * v.d_load + out) * v.item / v.bw_S}
    setup: Num = 0
    if s.mma == "none":
        fma = fragments * (v.k + 1)  # zero slots included: the same matrices
        use |= {"fma": fma / v.fma_rate, "issue": (issue + fma / 32) / v.sub}
    else:
        use |= {"tensor": mmas * v.CPI / v.sub, "issue": (issue + mmas) / v.sub}
        setup = v.k * v.k * (v.k + 1) * v.threads / 32 / CONSTANT_ADDRESSES
    return _Work((fill, use), wait + 2 * v.lat_barrier + v.lat_shared, loaded, read, setup)
