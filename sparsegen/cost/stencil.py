"""What a stencil schedule costs on a device: named terms, one formula, evaluated in plain floats or shown by sympy.

What is counted, what is read and what is fitted: mma, FMA, bytes, bank conflicts, rounds of loads, border tiles and
the rim's blocks are counted from the schedule; rates, bandwidths and latencies come from the profile; INSTRUCTIONS are
estimates, ``predicate`` raised until the paper's order on the A100 came out.  The eight figures at the end of
:mod:`sparsegen.cost.terms` are fitted, to 52 launches of generated kernels on one H200 (tests/cost/measured.py); of
the DRAM latencies published for it, the idle one is used because the fit asked for it (461).  No figure belongs to a
single schedule, but STATIC stands for a loss whose cause no counter has shown yet, and L1_HOLD is longer than any
published latency.  Residuals, predicted / measured - 1, each with the blocks an SM that the launch had:

    tiled, stages = 1, box9 and heat, fuse 1 to 3   19 launches   median 2 %, worst  -6 % (25 taps in 7 x 7)
    tiled, stages = 1, box49, 2 to 6 blocks          6            median 2 %, worst  -7 % (2 blocks)
    tiled, stages = 2 and 3                          8            median 1 %, worst  -4 % (tile=16x64)
    direct                                           1            +4 %
    stencil2row m8n8k4, stages = 1                   2            +10 % (table), +13 % (computed)
    stencil2row m8n8k4, stages = 2 and 3             6            median 2 %, worst  -3 %
    stencil2row m16n8k4 and k8, stages = 2          10            median 2 %, worst -22 % (odd pitch), -8 % (dirichlet)
    spilled 64 bytes or more, not fitted             4            -30 %, -30 %, -13 %, -9 %: spills are not modelled

The estimate of registers bounds the blocks of an SM, so that what is chosen here does not spill.  Of boundaries the
model knows one kind; the times behind EDGE and RIM were taken with an older border path.  Neither the emulator nor the
warp level is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from sparsegen.cost.conflicts import fragment_degree, store_degree
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.terms import (
    BLOCK,
    EDGE,
    HALF_SECTORS,
    ILP,
    IN_FLIGHT,
    IN_FLIGHT_SHARED,
    INSTRUCTIONS,
    L1_HOLD,
    LUT_WAIT,
    REASONS,
    RIM,
    RIM_ROW,
    RIM_THREADS,
    RIM_TILE,
    STATIC,
    SYMBOLS,
    Num,
    equations,
)
from sparsegen.geometry import Geometry, chunk_rows, fused_k, geometry, legal, legalise, registers
from sparsegen.schedule import ITEMSIZE, StencilSchedule

#: Shared memory that the system takes of each block, and what it leaves to L1 however much blocks take.
SYSTEM, L1_LEAST = 1024, 28 << 10
#: Sizes that an SM's shared memory can be set to, KiB (CUDA C++ Programming Guide, compute capabilities).
CARVE = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
#: Kinds of boundary, the cheapest first.
KINDS = ("periodic", "neumann", "dirichlet", "frozen")


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
        return equations(self.schedule, SimpleNamespace(**v), lazy(sympy.Max), lazy(sympy.Min), lazy(sympy.ceiling))[0]

    def substitution(self) -> dict[Num, Num]:
        """The formula's symbols and their numbers."""
        import sympy

        return {sympy.Symbol(name): sympy.sympify(x) for name, x in self.values.items() if name in SYMBOLS}

    def reasons(self) -> dict[str, str]:
        """Why each term is there, one line each."""
        return {name: REASONS[name] for name in self.terms}


def cost(
    k: int, points: int, shape: tuple[int, int], schedule: StencilSchedule, device: DeviceProfile, dtype: str = "f64",
    boundary: str = "periodic", pitch: int | None = None, blocks: int | None = None, flat: bool = False,
) -> Cost:  # fmt: skip
    """Cost of one launch for a stencil of edge ``k`` with ``points`` non-zero weights (one step's) on a grid.

    ``boundary``: the kind of all sides (of unlike sides, see ``costliest``).  ``pitch``: elements from row to row, the
    grid's columns if not given.  ``blocks``: how many an SM has, where it is known.  ``flat``: the stencil has one row
    of ``k`` weights.  ScheduleError if it is not legal.
    """
    schedule = legalise(schedule, k)
    legal(schedule, k, device, dtype, is_full(k, points, flat), flat)
    g = geometry(schedule, k, ITEMSIZE[dtype], flat)
    return evaluate(k, points, shape, schedule, device, dtype, g, boundary, pitch, blocks, flat)


def evaluate(
    k: int, points: int, shape: tuple[int, int], s: StencilSchedule, device: DeviceProfile, dtype: str, g: Geometry,
    boundary: str = "periodic", pitch: int | None = None, blocks: int | None = None, flat: bool = False,
) -> Cost:  # fmt: skip
    """``cost`` for a schedule known to be legal, with its geometry at hand (``rows=auto`` is resolved)."""
    full = is_full(k, points, flat)
    b = blocks or blocks_per_sm(s, g, device, full)
    if s.family == "stream" and s.rows is None:
        g = geometry(filled(s, k, shape, device, ITEMSIZE[dtype], full, flat, b), k, ITEMSIZE[dtype], flat)
    fused = fused_k(k, s.fuse) if flat else fused_points(k, points, s.fuse)
    values = _values(s, g, fused, shape, device, dtype, b, boundary, pitch or shape[1], (k // 2, points))
    time, terms = equations(s, SimpleNamespace(**values), max, min, math.ceil)
    binds = max((n for n in terms if n not in ("exposed", "latency")), key=terms.__getitem__)
    if terms["latency"] / b > terms[binds]:
        binds = "latency"
    return Cost(s, device.name, shape, time, terms, s.steps, binds, b, values)


def is_full(k: int, points: int, flat: bool = False) -> bool:
    """Whether a stencil of edge ``k`` (``flat``: one row of them) has no zero among its weights."""
    return points == (k if flat else k * k)


def filled(
    s: StencilSchedule, k: int, shape: tuple[int, int], device: DeviceProfile, itemsize: int = 8,
    full: bool | None = None, flat: bool = False, blocks: int | None = None,
) -> StencilSchedule:  # fmt: skip
    """A ``stream`` schedule with ``rows=auto`` resolved: chunks of rows such that the blocks keep the GPU busy."""
    if s.rows is not None:
        return s
    g = geometry(s, k, itemsize, flat)
    slots = (blocks or blocks_per_sm(s, g, device, full)) * device.sms
    return replace(s, rows=chunk_rows(shape[0], -(-shape[1] // g.cols), slots, g.reach))


def costliest(kinds: Iterable[str]) -> str:
    """The kind that stands for sides of several kinds: the one that costs most."""
    return max(kinds, key=KINDS.index)


@cache
def fused_points(k: int, points: int, fuse: int) -> int:
    """Non-zero weights after fusion: the 5-point star becomes a diamond, anything else is taken as a full box."""
    kk = fused_k(k, fuse)
    if fuse == 1:
        return points
    if points == 2 * k - 1 and k == 3:  # the 5-point star: |dy| + |dx| <= fuse
        return 2 * fuse * (fuse + 1) + 1
    return kk * kk


def blocks_per_sm(s: StencilSchedule, g: Geometry, device: DeviceProfile, full: bool | None = None) -> int:
    """Blocks resident on an SM, at least 1, by threads, registers and shared memory (1 KiB a block is the system's).

    A warp's registers are those of one sub-core, so whole warps fit into each.
    """
    regs = -(-registers(s, g, full) // 8) * 8
    warps = device.sub_cores * (device.regs_sm // device.sub_cores // (regs * 32))
    return max(
        1,
        min(
            device.max_threads_sm // g.threads,
            device.smem_sm // (g.smem_bytes + SYSTEM),
            warps * 32 // g.threads,
            device.max_blocks_sm,
        ),
    )


def rounds(elements: float, in_flight: int) -> float:
    """How often a thread waits for loads: ``in_flight`` at once, those left over one by one (nvcc unrolls so)."""
    return elements // in_flight + elements % in_flight


def l1_left(shared: int, device: DeviceProfile) -> float:
    """Bytes of L1 on an SM whose blocks take so much shared memory."""
    steps = [kib << 10 for kib in CARVE if kib << 10 < device.smem_sm]
    carved = next((size for size in steps if size >= shared), device.smem_sm)
    return device.smem_sm + L1_LEAST - carved


def border(s: StencilSchedule, g: Geometry, shape: tuple[int, int], device: DeviceProfile, b: int) -> float:
    """Share of a block's tiles that touch a border: of the unluckiest block, where blocks stay.

    Those go on by the number of blocks, so they see only every n-th tile of a row, n what both numbers divide by.
    """
    down, across = -(-shape[0] // g.rows), -(-shape[1] // g.cols)
    sides = 2.0 if s.stages == 1 else max(2.0, math.gcd(across, min(b * device.sms, down * across)))
    return min(1.0, sides / across + 2 / down)


def _rim(
    s: StencilSchedule, g: Geometry, shape: tuple[int, int], d: DeviceProfile, boundary: str, radius: int, points: int
) -> dict[str, float]:
    """The rim's launch: blocks, how many an SM has, and clocks of each.  Weights are taken as not symmetric."""
    stream, flat = s.family == "stream", s.family == "stream" and not g.radius_y
    exact = s.fuse == 1 or (boundary == "neumann" and points == 4 * radius + 1)
    if boundary == "periodic" or (exact and not stream):
        return {"rim_blocks": 0.0, "rim_b": 1.0, "rim_cycles": 0.0}
    width = radius * (s.steps if stream or boundary == "frozen" else s.fuse - 1)
    long = [-(-n // RIM_TILE) for n in (shape[1], max(0, shape[0] - 2 * width))]
    edge = RIM_TILE + 2 * radius * s.steps
    area = RIM_ROW + 2 * radius * s.steps if flat else edge * edge
    cells = -(-area // RIM_THREADS)
    resident = max(1, min(d.max_threads_sm // RIM_THREADS, d.smem_sm // (2 * area * 8 + SYSTEM)))
    return {
        "rim_blocks": 2 * -(-width // RIM_ROW) if flat else 2 * sum(long) * -(-width // RIM_TILE),
        "rim_b": resident,
        "rim_cycles": rounds(cells, IN_FLIGHT) * d.lat_dram + s.steps * cells * RIM,
    }


def _values(
    s: StencilSchedule, g: Geometry, points: int, shape: tuple[int, int], d: DeviceProfile, dtype: str, b: int,
    boundary: str, pitch: int, one: tuple[int, int],
) -> dict[str, float]:  # fmt: skip
    """The symbols of the formula and their numbers: grid, schedule, device."""
    item = ITEMSIZE[dtype]
    even = pitch * item % 16 == 0
    stream = s.family == "stream"
    window = g.halo_rows * g.pitch_raw if g.pitch_raw else g.halo_rows * g.halo_cols
    v: dict[str, float] = {
        "ny": shape[0],
        "nx": shape[1],
        "R": g.rows,
        "C": g.cols,
        "W": g.halo_cols if s.family == "stencil2row" and s.stages == 1 else g.pitch_raw or g.halo_cols,
        "k": g.k,
        "p": points,
        "threads": g.threads,
        "b": b,
        "item": item,
        "stages": s.stages,
        "vector": 16 / item if even else 1,
        "half": 1 if even or s.family in ("direct", "stream") else HALF_SECTORS,
        "SMs": d.sms,
        "sub": d.sub_cores,
        "f": d.clock,
        "bw_G": d.bw_global,
        "bw_S": d.smem_bytes_per_clk_sm,
        "bw_L2": d.l2_bytes_per_clk_sm,
        "l1": l1_left(b * (g.smem_bytes + SYSTEM), d),
        "fma_rate": d.f64_fma_per_clk_sm if dtype == "f64" else d.f32_fma_per_clk_sm,
        "t_launch": d.launch_s,
        "lat_dram": d.lat_dram,
        "lat_shared": d.lat_shared,
        "lat_l2": d.lat_l2,
        "lat_barrier": d.lat_barrier,
        "miss": 0.0 if 2 * shape[0] * shape[1] * item <= d.l2_bytes else 1.0,
        "rounds": rounds(window / g.threads, IN_FLIGHT) if s.family != "direct" else 1,
        "border": border(s, g, shape, d, b),
        "edge": EDGE if boundary != "periodic" and not stream else 0.0,
        "reach": g.reach if stream else g.k - 1,
    }
    v |= {"static": STATIC, "l1_hold": L1_HOLD, "block": BLOCK, "ilp": ILP}
    v |= _rim(s, g, shape, d, boundary, *one)
    if stream:
        v |= {"W": s.warps * g.width, "cols": s.cols, "T": s.levels, "rx": g.radius, "warps": s.warps}
        v["vector"] = 16 / item if even and shape[1] * item % 16 == 0 else 1
    if s.family == "tiled":
        first = g.before - g.radius
        v |= {
            "per_x": g.per_x,
            "per_y": g.per_y,
            "span": -(-(first % g.per_x + g.per_x + g.k - 1) // g.per_x) * g.per_x,
        }
    if s.family == "stencil2row":
        f64 = dtype == "f64"
        elements = g.halo_rows * g.halo_cols / g.threads
        v |= {
            "M": g.m,
            "N": 8 * g.n_tiles,
            "D": g.depth,
            "q_mma": sum(n * d.cpi[shape] for shape, n in g.mmas),
            "n_mma": sum(n for _, n in g.mmas),
            "fragments": g.fragments,
            "lat_table": LUT_WAIT,
            "rounds": rounds(elements, IN_FLIGHT_SHARED if s.stages > 1 else IN_FLIGHT),
            "d_load": fragment_degree(g.stride_ab) if f64 else 1.0,
            "d_store": store_degree(g, s.dirty) if f64 and s.transform == "implicit" else 1.0,
            "fill": INSTRUCTIONS["scatter"]
            + INSTRUCTIONS["lut" if s.lut else "computed"]
            + (0.0 if s.dirty else INSTRUCTIONS["predicate"]),
        }
    return v
