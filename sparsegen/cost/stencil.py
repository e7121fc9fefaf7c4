"""What a stencil schedule costs on a device: named terms, one formula, evaluated in plain floats or shown by sympy.

What is counted, what is read and what is fitted: mma, FMA, bytes, bank conflicts, rounds of loads, border tiles and
the rim's blocks are counted from the schedule; rates, bandwidths and latencies come from the profile.  The warp
instructions and wavefronts of :mod:`sparsegen.families` are regressions on the hardware counters of 310 generated
kernels (ncu, one H200, nvcc 13).  The figures at the end of :mod:`sparsegen.cost.terms` and those that a family calls
fitted are fitted to the times of 6500 kernels, most of random problems (tests/cost/data;
tests/cost/test_random_kernels.py holds what is left over, family by family, and that each figure earns its place).  No
figure belongs to a single schedule, but STATIC stands for a loss whose cause no counter has shown yet, and L1_HOLD is
longer than any latency.

The estimate of registers bounds the blocks of an SM, so that what is chosen here does not spill; spills of other
schedules are not modelled.  Of boundaries the model knows one kind.  Neither the emulator nor the warp level is
imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from sparsegen.cost import terms
from sparsegen.cost.cost import Cost, Law, steps_rate
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import occupancy
from sparsegen.families.base import MAX_REGISTERS, RIM_ROW, RIM_ROW_THREADS, Geometry, family, rounds
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal, legalise
from sparsegen.schedule import StencilSchedule

#: Shared memory that the system takes of each block, and what it leaves to L1 however much blocks take.
SYSTEM, L1_LEAST = 1024, 28 << 10
#: Sizes that an SM's shared memory can be set to, KiB (CUDA C++ Programming Guide, compute capabilities).
CARVE = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)


def cost(
    fp: Footprint, shape: tuple[int, ...], schedule: StencilSchedule, device: DeviceProfile, pitch: int | None = None,
    blocks: int | None = None,
) -> Cost:  # fmt: skip
    """Cost of one launch on a grid of ``shape`` (rows and columns, planes before them); ScheduleError if not legal.

    ``pitch``: elements from row to row, the grid's columns if not given.  ``blocks``: how many an SM has, where it is
    known.
    """
    schedule = legalise(schedule, fp.k, fp.axes)
    legal(schedule, fp, device)
    return evaluate(fp, shape, schedule, device, geometry(schedule, fp), pitch, blocks)


def evaluate(
    fp: Footprint, shape: tuple[int, ...], s: StencilSchedule, device: DeviceProfile, g: Geometry,
    pitch: int | None = None, blocks: int | None = None,
) -> Cost:  # fmt: skip
    """``cost`` for a schedule known to be legal, with its geometry at hand (what is ``auto`` is resolved)."""
    # blocks that stay are as many as surely fit; others come as long as there is room
    held = family(s).registers(s, g, fp) if s.stages > 1 else (family(s).used or family(s).registers)(s, g, fp)
    b = blocks or blocks_per_sm(s, g, device, fp, held)
    if family(s).filled:
        g = geometry(filled(s, fp, shape, device, b), fp)
    values = _values(s, g, fp, shape, device, b, pitch or shape[-1])
    return LAW.evaluate(s, values, device, shape, fp, s.steps)


def _waiting(found: Mapping[str, float], values: Mapping[str, float]) -> str | None:
    """``latency`` where a block's share of it is longer than any other term."""
    others = (seconds for name, seconds in found.items() if name not in LAW.beside)
    return "latency" if found["latency"] / values["b"] > max(others) else None


LAW = Law(terms.equations, terms.SYMBOLS, terms.REASONS, frozenset(("exposed", "latency")), steps_rate, binds=_waiting)


def filled(
    s: StencilSchedule, fp: Footprint, shape: tuple[int, ...], device: DeviceProfile, blocks: int | None = None
) -> StencilSchedule:
    """A schedule with what is ``auto`` resolved for a grid, so that the blocks keep the GPU busy."""
    fill, b = family(s).filled, blocks or blocks_per_sm(s, geometry(s, fp), device, fp)
    return fill(s, fp, shape, max(1, int(b * device.own_sms))) if fill else s


def blocks_per_sm(s: StencilSchedule, g: Geometry, device: DeviceProfile, fp: Footprint, held: float = 0) -> int:
    """Blocks resident on an SM, at least 1, by threads, registers and shared memory (1 KiB a block is the system's).

    A warp's registers are those of one sub-core, so whole warps fit into each.  ``held``: registers of a thread, the
    estimate if not given.
    """
    regs = int(held or family(s).registers(s, g, fp))
    return max(1, occupancy(min(regs, MAX_REGISTERS), g.smem_bytes, g.threads, device).blocks)


def l1_left(shared: int, device: DeviceProfile) -> float:
    """Bytes of L1 on an SM whose blocks take so much shared memory."""
    steps = [kib << 10 for kib in CARVE if kib << 10 < device.smem_sm]
    carved = next((size for size in steps if size >= shared), device.smem_sm)
    return device.smem_sm + L1_LEAST - carved


def fma_rate(fp: Footprint, device: DeviceProfile) -> float:
    """Multiply-adds of the CUDA cores, a clock and SM; 16-bit fields are summed in f32."""
    return device.f64_fma_per_clk_sm if fp.dtype == "f64" else device.f32_fma_per_clk_sm


def misses(shape: tuple[int, ...], fp: Footprint, d: DeviceProfile) -> float:
    """Share of what both time levels have to move that L2 does not keep from pass to pass."""
    return d.missed(2 * math.prod(shape) * fp.itemsize)


@cache
def points(fp: Footprint, fuse: int) -> int:
    """Non-zero weights after fusion."""
    return fp.fused_points(fuse)


def border(s: StencilSchedule, g: Geometry, shape: tuple[int, ...], device: DeviceProfile, b: int) -> float:
    """Share of a block's tiles that touch a border: of the unluckiest block, where blocks stay.

    Those go on by the number of blocks, so they see only every n-th tile of a row, n what both numbers divide by.
    """
    down, across = -(-shape[-2] // g.rows), -(-shape[-1] // g.cols)
    sides = 2.0 if s.stages == 1 else max(2.0, math.gcd(across, min(max(1, int(b * device.own_sms)), down * across)))
    return min(1.0, sides / across + 2 / down)


def touch(g: Geometry, shape: tuple[int, ...]) -> float:
    """Share of the tiles that meet a border (periodic ones too: indices are mapped there)."""
    counts = (-(-n // size) for n, size in zip(shape[-2:], (g.rows, g.cols), strict=True) if n > 1)
    inside = math.prod(max(0, n - 2) / n for n in counts)
    return 1.0 - inside * (max(0, shape[0] - 2) / shape[0] if len(shape) == 3 and g.planes == 1 else 1.0)


@cache
def windows(columns: int, rows: int, down: int, across: int, steps: int) -> tuple[int, ...]:
    """Cells of a rim's window before each of its steps and after them: it shrinks by the radius, ``down`` and
    ``across``, at each, to ``rows`` (0: it is one row) of ``columns``."""
    left = range(steps, -1, -1)
    return tuple((columns + 2 * across * n) * max(1, rows + 2 * down * n) for n in left)


def _rim(s: StencilSchedule, g: Geometry, shape: tuple[int, ...], d: DeviceProfile, fp: Footprint) -> dict[str, float]:
    """The rim's launch: blocks, how many an SM has, and clocks of each."""
    kind, radius, rim = fp.boundary, fp.radius, family(s).rim
    exact = s.fuse == 1 or fp.axes == 3 or (kind == "neumann" and fp.points == 4 * radius + 1)
    if kind == "periodic" or rim == "none" or (exact and rim != "all"):
        return {"rim_blocks": 0.0, "rim_b": 1.0, "rim_cycles": 0.0}
    width = radius * (s.steps if rim == "all" or kind == "frozen" else s.fuse - 1)
    ny, nx = shape[-2:]
    if fp.flat and rim == "all":
        edge, tall, threads, blocks = RIM_ROW, 0, RIM_ROW_THREADS, 2 * ny * -(-width // RIM_ROW)
    else:
        edge, tall, threads = terms.RIM_TILE, terms.RIM_TILE, terms.RIM_THREADS
        long = [1] if fp.flat else [-(-n // edge) for n in (nx, max(0, ny - 2 * width))]
        blocks = 2 * sum(long) * -(-width // edge)
    areas = windows(edge, tall, 0 if fp.flat else radius, radius, s.steps)
    cells = [-(-area // threads) for area in areas]
    return {
        "rim_blocks": blocks,
        "rim_b": max(1, min(d.max_threads_sm // threads, d.smem_sm // (2 * areas[0] * fp.itemsize + SYSTEM))),
        "rim_cycles": rounds(cells[0]) * d.lat_dram + sum(cells[1:]) * (terms.RIM + terms.TAP * points(fp, 1)),
    }


def _values(
    s: StencilSchedule, g: Geometry, fp: Footprint, shape: tuple[int, ...], d: DeviceProfile, b: int, pitch: int
) -> dict[str, float]:
    """The symbols of the formula and their numbers: grid, schedule, device."""
    item = fp.itemsize
    even = pitch * item % 16 == 0
    # streamed rows whose extent 16 bytes do not divide: patches and 16-bit fields copy single elements
    pairs = even and (not s.levelled or shape[-1] * item % 16 == 0 or (s.family != "patches" and item >= 4))
    window = g.halo_rows * (g.pitch_raw or g.halo_cols)
    v: dict[str, float] = {
        "ny": shape[-2],
        "nx": shape[-1],
        "R": g.rows,
        "C": g.cols,
        "W": g.pitch_raw or g.halo_cols,
        "k": g.k,
        "p": points(fp, s.fuse),
        "threads": g.threads,
        "b": b,
        "item": item,
        "stages": s.stages,
        "vector": 16 / item if pairs else 1,
        "word": max(item, 4),  # a warp's access to 32 narrow elements takes what one to 32 words takes
        "cvt": 1 if item < 4 else 0,  # sums are made in f32
        "plain": 1 if item < 4 and not pairs else 0,  # single elements are too narrow for cp.async
        "half": 1 if even else terms.HALF_SECTORS,
        "SMs": d.own_sms,
        "sub": d.sub_cores,
        "f": d.clock,
        "bw_G": terms.REACH * d.bw_global,
        "bw_S": d.smem_bytes_per_clk_sm,
        "bw_L2": d.l2_bytes_per_clk_sm,
        "l1": l1_left(b * (g.smem_bytes + SYSTEM), d),
        "fma_rate": fma_rate(fp, d),
        "t_launch": terms.STARTING * d.launch_s,
        **{name: getattr(d, name) for name in ("lat_dram", "lat_shared", "lat_l1", "lat_l2", "lat_barrier")},
        "miss": misses(shape, fp, d),
        "rounds": rounds(window / g.threads),
        "border": border(s, g, shape, d, b),
        "touch": touch(g, shape),
        "edge": terms.EDGE if fp.boundary != "periodic" and family(s).rim == "fused" else 0.0,
        "reach": g.reach,
        "static": terms.STATIC,
        "l1_hold": 0.0 if fp.flat else terms.L1_HOLD,
        "apart": terms.APART,
        "ilp": terms.ILP,
        "waits": terms.WAITS,
    }
    v |= _rim(s, g, shape, d, fp)
    if len(shape) == 3:
        v |= {"nz": shape[0], "P": g.planes, "reach_z": g.halo_planes - g.planes}
    return v | family(s).values(s, g, fp, d, even)
