"""``column``: temporal blocking on three axes; a block keeps a column of the field and walks down it plane by plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.base import COPY_WAVES, FUSE, Geometry, Num, StencilFamily, Work, fused_k, number
from sparsegen.families.stream import chunk_planes
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.column import Planes
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, integer

#: Planes of a block where neither the schedule nor a field says how many.
PLANES = 64
#: Registers of a border's work for each word of a thread's cells, of stars and of all others, by kind of boundary.
BORDER = {"periodic": (0.0, 0.0), "dirichlet": (1.0, 1.5), "frozen": (1.7, 3.5), "neumann": (2.8, 6.5)}
#: The same for each word but eight of its cells at all levels, of wide boxes, by the words of an element: what a border
#: chooses waits for many taps.  So that of 30 kernels none spills.
WIDE = 4.0, 11.0
#: Warp instructions of a plane (index, the ring's slot, wait and commit, the barrier, guards), of a line of it, and of
#: a line at a level.  Counters of 45 generated kernels on one H200 (nvcc 13), within 6 %.
TURN, LINE, LEVEL = 68.0, 5.0, 4.6
#: Warp instructions of a border's masks for a cell at a level, of windows that meet one, and what a mirrored border's
#: values take more; fitted.
MASK, MIRROR = 5.6, 3.4
#: Where 16 bytes do not divide the rows: wavefronts for 128 bytes of results that cross the lanes through shared
#: memory, in and out again; and warp instructions that copying and storing a cell alone takes more (SASS of two
#: kernels, nvcc 13: 37 more for 4 cells, 116 for 12).
THROUGH, SINGLE = 2.0, 9.4
#: Time of the memory for these blocks over that of free ones, with rows that 16 bytes divide and others; independent
#: instructions of a warp that overlap.  Fitted.
STATIC, STATIC_ODD, ILP = 1.05, 1.09, 2.1
#: Latencies of shared memory that a plane takes one after the other, and what each level with a border's masks adds;
#: fitted.
CHAIN, CHAIN_MASK = 11.3, 1.1


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """A window of ``warps`` x ``lines`` rows and 32 lanes of 16 bytes; the halo of all levels lies inside it."""
    kk = fused_k(fp.k, s.fuse)
    r = kk // 2
    n = Planes(
        radius=(r, r, r), levels=s.levels, nbytes=fp.itemsize, lines=s.lines, planes=s.planes or PLANES, warps=s.warps,
        stages=s.stages, chained=chained(s, fp),
    )  # fmt: skip
    if min(n.step) <= 0 or r > min(s.lines, n.piece):
        raise ScheduleError(
            f"levels={s.levels} of radius {r} leave nothing of {n.size[0]} rows and {n.size[1]} columns"
            if min(n.step) <= 0
            else f"radius {r} (fuse={s.fuse}) reaches beyond the neighbouring thread, which owns lines={s.lines} rows "
            f"and {n.piece} columns",
            hint="lower levels or fuse, or raise warps or lines; direct takes any radius",
        )
    return Geometry(
        kk, *n.step, *n.size, s.threads, (n.ring + n.edges) * fp.itemsize, n.lead[1], per_x=n.piece, per_y=s.lines,
        width=n.size[1], words=fp.itemsize // 4, planes=n.tile[0], halo_planes=n.turns,
    )  # fmt: skip


def chained(s: StencilSchedule, fp: Footprint) -> bool:
    """Whether a level's plane is complete without its neighbours, so that the next level takes it at once: a star."""
    return fp.star and s.fuse == 1


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """Each level's sums and the plane it takes in.  Above the values that nvcc 13 gives on sm_90 by up to 16."""
    cells, star = s.lines * g.per_x * g.words, chained(s, fp)
    held = cells * s.levels * (2 * g.radius + 1) + (0 if star else cells)
    spare = max(18, 52 - held // 4) if star else max(28, 52 - held // 6)
    wide = fp.boundary != "periodic" and g.radius > 1 and not star
    chosen = WIDE[g.words - 1] * max(0, cells * s.levels - 8) if wide else 0.0
    return int(held + spare + cells * BORDER[fp.boundary][not star] + chosen)


def check(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile) -> None:
    """A border that is not periodic holds at every level of one step, a mirrored one for a reach of one cell; its masks
    have 31 bits."""
    if s.lines * g.per_x > 31:
        raise ScheduleError(
            f"lines={s.lines} of {g.per_x} columns are {s.lines * g.per_x} cells a thread; 31 fit", hint="lower lines"
        )
    if fp.itemsize < 4:
        raise ScheduleError(
            f"{s.family} keeps the planes of all levels as they are stored, the stencil is {fp.dtype} and sums in f32",
            hint="choose direct",
        )
    if fp.boundary != "periodic" and g.radius > 1 and (fp.reflected or s.fuse > 1):
        raise ScheduleError(
            f"{s.family} reaches {g.radius} cells across a border that is "
            + ("mirrored; it can reach one" if fp.reflected else "not periodic by fused steps"),
            hint="set fuse=1" if s.fuse > 1 and (fp.radius == 1 or not fp.reflected) else "choose direct",
        )


def filled(s: StencilSchedule, fp: Footprint, shape: tuple[int, ...], slots: int) -> StencilSchedule:
    """``planes=auto``: chunks of planes such that the blocks keep the GPU busy."""
    return s if s.planes is not None else s.but(planes=chunk_planes(shape, geometry(s, fp), slots))


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Every number of levels, with threads of a few shapes."""
    for levels in range(1, min(limit, 6) + 1):
        for lines, warps in ((1, 16), (2, 12), (2, 16), (3, 12), (3, 16), (4, 8), (4, 12), (5, 8), (6, 8)):
            yield StencilSchedule("column", levels=levels, lines=lines, warps=warps)


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """Its windows and levels; pairs of cells are stored whole but at an odd end of a row."""
    return {
        "half": 1,
        "through": 0.0 if even else THROUGH,
        "single": 0.0 if even else SINGLE,
        "static": STATIC if even else STATIC_ODD,
        "ilp": ILP,
        "waits": 0.0,  # the sums of a thread's cells do not wait for each other
        "W": g.width,
        "T": s.levels,
        "lines": s.lines,
        "cols": g.per_x,
        "warps": s.warps,
        "k": fp.k,
        "chain": CHAIN + s.levels * CHAIN_MASK * (fp.boundary != "periodic"),
        "masks": {"periodic": 0.0, "neumann": MASK + MIRROR}.get(fp.boundary, MASK),
    }


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A thread does its lines of a plane at all levels; edge rows cross the block through shared memory."""
    turns = v.P + v.reach_z
    planes = v.warps * turns  # of a warp
    cells = v.lines * v.cols
    edge = 4 * v.T * (v.k // 2 if isinstance(v.k, int) else (v.k - 1) / 2) * v.cols  # elements sent and received
    instructions = (
        TURN + v.lines * LINE + cells * v.single + v.T * (v.lines * LEVEL + cells * (v.p + v.masks * v.touch))
    )
    use = {
        "fma": planes * 32 * v.T * cells * v.p / v.fma_rate,
        "shared": planes * 32 * ((COPY_WAVES + 1 + v.through) * cells + edge + 2 * v.T * v.lines) * v.item / v.bw_S,
        "issue": planes * instructions / v.sub,
    }
    wait = turns * (v.lat_barrier + v.chain * v.lat_shared) + v.lat_dram
    return Work((use,), wait, element, element / out, turns=turns)


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """A column a block, which holds every border at every level."""
    from sparsegen.ir.kernels.column import Column

    return Column(s.lines, g.planes, s.warps, s.stages, per_sm)


FAMILY = register(StencilFamily(
    name="column",
    words=(
        FUSE, number("levels", 4, 1, 8), number("lines", 3, 1, 8), Word("planes", integer, auto=True),
        number("warps", 12, 1, 32), number("stages", 4, 2, 8),
    ),
    axes=(3,), rim="none", geometry=geometry, registers=registers, check=check, space=space, values=values,
    work=work, kernel=kernel, filled=filled,
))  # fmt: skip
