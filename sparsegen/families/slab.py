"""``slab``: one time step a pass on three axes; a block walks down the field plane by plane with whole rows of it.

Rows come by bulk copies, and a plane goes into the sums of those around it: for boxes, of which ``march`` would keep
more planes than a thread has registers for (``ir/kernels/slab.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.families.base import Geometry, Num, StencilFamily, Work, number
from sparsegen.families.march import even_planes
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.slab import Slab
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, integer

#: Planes of a block, where the field has enough of them.
PLANES = 12
#: Bytes of an mbarrier.
BAR = 8
#: 32-bit registers of a thread besides its sums; for each word of its cells, those of the plane that is begun and of a
#: row; and what a wide stencil takes more, of which nvcc holds many rows at a time.
BESIDE, BEGUN, WIDE = 24, 1.5, 3.0
#: Where radius and rows of a thread are together more than the first, nvcc loads all that the rows of a wide box read
#: before it sums them: the second are the registers of each row more at radius 2, which grow as the fourth power of the
#: box's edge (those of radius 3 spill).
FEW, LOADED = 5, 28.0
#: Registers besides where a border is met, for each kind.
BORDER = {"periodic": 0, "neumann": 0, "dirichlet": 16, "frozen": 16}
#: Planes after which blocks have drifted so far apart that half of the rows they have in common are read again (of
#: kernels on one H200); how much longer the memory takes where rows are copied cell by cell, and warp instructions of
#: 32 such copies.
DRIFT, ODD, SINGLE = 50.0, 1.15, 48.0


def numbers(s: StencilSchedule, fp: Footprint) -> Slab:
    """What a block keeps of the field, in elements."""
    return Slab(
        radius=(fp.radius, fp.radius, fp.radius), nbytes=fp.itemsize, lines=s.lines, cols=s.cols, warps=s.warps,
        planes=s.planes or PLANES, stages=s.stages,
    )  # fmt: skip


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """Whole rows, and those above and below them; the ring and its mbarriers."""
    n = numbers(s, fp)
    if not n.legal(s.cols, s.warps):
        raise ScheduleError(
            f"cols={s.cols}: rows of {n.across} threads, 16 bytes each, do not make up {s.warps} warps",
            hint=f"make cols a multiple of {32 * n.piece}, and warps one of cols / {32 * n.piece}",
        )
    return Geometry(
        fp.k, n.tile[1], s.cols, n.rows, s.cols, s.threads, n.ring * fp.itemsize + s.stages * BAR, per_x=n.piece,
        per_y=s.lines, words=max(1, fp.itemsize // 4), planes=n.tile[0], halo_planes=n.turns,
    )  # fmt: skip


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """Sums of the unfinished planes and of the one that is begun, a row of cells, and those that a frozen side keeps.

    Of 1070 kernels (nvcc 13, sm_90; boxes and stars of radius 1 to 4) 82 % within 15 %, none takes more than 1.3 times
    as many, and none spills.
    """
    cells, box = s.lines * g.per_x * g.words, g.radius > 1 and not fp.star
    each = 2 * g.radius + BEGUN + (WIDE if box or g.radius > 3 else 0)
    each += g.radius + 1 if fp.boundary == "frozen" else 0
    more = LOADED * (g.k / 5) ** 4 * max(0, s.lines + g.radius - FEW) if box else 0
    return int(BESIDE + BORDER[fp.boundary] + cells * each + more)


def check(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile) -> None:
    """Bulk copies, and sums of the type of the cells."""
    if device.compute_capability < HOPPER:
        raise ScheduleError(f"{s.family} needs bulk copies (sm_90); {device.name} is {device.arch}",
                            hint="choose march or column")  # fmt: skip
    if fp.itemsize < 4:
        raise ScheduleError(f"{s.family} keeps sums of 4 bytes or more, the stencil is {fp.dtype}",
                            hint="choose direct")  # fmt: skip


def filled(s: StencilSchedule, fp: Footprint, shape: tuple[int, ...], slots: int) -> StencilSchedule:
    """``planes=auto``: chunks of planes, as equal as can be, fewer where the blocks would not keep the GPU busy."""
    if s.planes is not None:
        return s
    return s.but(planes=even_planes(shape, geometry(s, fp), slots, PLANES))


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Rows of a few lengths, in blocks of a few heights; of 16 bits none."""
    if fp.itemsize < 4:
        return
    piece = 16 // fp.itemsize
    for across in (2, 4, 6, 8, 12, 16):  # warps
        for lines, down in ((4, 1), (6, 1), (8, 1), (3, 2), (4, 2), (2, 4), (4, 4)):
            for stages in (3, 4):
                if across * down <= 32:
                    yield StencilSchedule(
                        "slab", lines=lines, cols=32 * across * piece, warps=across * down, stages=stages
                    )


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """What a thread reads of a plane, and what copies cost where 16 bytes do not divide the rows."""
    return {
        "half": 1, "ilp": 1.0, "static": 1.0 if even else ODD, "single": 0.0 if even else SINGLE, "waits": 0.0,
        "warps": s.warps, "lines": s.lines, "rx": g.radius, "piece": g.per_x,
    }  # fmt: skip


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A plane a turn: rows come in by themselves, each cell is read once for all sums of its column."""
    turns, cells = v.P + v.reach_z, v.R * v.C
    rows = (v.lines + v.reach) / v.lines  # that a thread reads, for each of its own
    read = rows * (1 + 4 * v.rx / v.piece)
    use = {
        "fma": turns * cells * v.p / v.fma_rate,
        "shared": turns * cells * (1 + read) * v.item / v.bw_S,
        "issue": turns * cells / 32 * (v.p + 4 * read / v.piece + v.single * (1 + v.reach / v.R)) / v.sub,
    }
    again = v.reach / v.R * v.P / (v.P + DRIFT)
    return Work((use,), turns * v.lat_barrier + v.lat_dram, turns * (v.R + v.reach) * v.C, 1 + again, turns=turns)


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """Whole rows a block."""
    from sparsegen.ir.kernels.slab import Slab as Kernel

    return Kernel(s.lines, s.cols, s.warps, g.planes, s.stages, per_sm)


FAMILY = register(StencilFamily(
    name="slab",
    words=(
        number("lines", 4, 1, 8), number("cols", 768, 64, 4096), Word("planes", integer, auto=True),
        number("warps", 24, 1, 32), number("stages", 3, 2, 8),
    ),
    axes=(3,), rim="none", geometry=geometry, registers=registers, check=check, space=space, values=values,
    work=work, kernel=kernel, filled=filled, whole_rows=True,
))  # fmt: skip
