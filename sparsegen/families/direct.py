"""``direct``: one thread an output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.base import FUSE, Geometry, Num, StencilFamily, Work, fused_k
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, pair
from sparsegen.sizes import MAX_FUSE

#: Warp instructions of 32 outputs: a point, a row of points (its address), and what a row of them costs more where a
#: block meets a border.  Counters of 20 generated kernels on one H200 (nvcc 13), within 15 %.
POINT, ROW, EDGE_ROW = 2.4, 7.6, 11.2
#: Clocks that a warp of a block waits for the others before its place is free again; fitted.
WARP = 14.0
#: Independent instructions of a warp that overlap: few, because the sum of a point's products is one chain; fitted.
ILP = 0.65
#: Wavefronts of the L1 that the unaligned loads of a point take over those of aligned ones; the same counters.
UNALIGNED = 1.15


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """A block's outputs are its threads."""
    kk = fused_k(fp.k, s.fuse)
    cols, rows = s.block
    planes = kk if fp.axes == 3 else 1
    halo_rows = rows if fp.flat else rows + kk - 1
    return Geometry(kk, rows, cols, halo_rows, cols + kk - 1, s.threads, halo_planes=planes)


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """All loads of a point at once, until ptxas gives in; no bound.  Of 165 kernels (nvcc 13, sm_90)."""
    a_point, across = 1.85 if fp.itemsize == 8 else 1.0, 6 * (fp.boundary in ("dirichlet", "frozen") and fp.axes == 3)
    return min(110, 14 + int(a_point * fp.fused_points(s.fuse))) + across


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Blocks of a few shapes; for a field of one row they have one row."""
    shapes: tuple[tuple[int, int], ...] = ((32, 4), (32, 8), (32, 16), (64, 4), (64, 8), (128, 2), (128, 4))
    if fp.flat:
        shapes = ((64, 1), (128, 1), (256, 1), (512, 1))
    for fuse in range(1, min(limit, MAX_FUSE) + 1):
        for block in shapes:
            yield StencilSchedule("direct", block=block, fuse=fuse)


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """Its loads are single elements whatever the pitch."""
    return {
        "half": 1,
        "ilp": ILP,
        "edge": 0.0,
        "rounds": 1,
        "planes": g.halo_planes,
        "rows_of_points": sum(span > 0 for span in fp.row_spans(s.fuse)),
    }


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """One thread a point: every weight's value comes through L1, and nothing is kept."""
    use = {
        "fma": out * v.p / v.fma_rate,
        "shared": out * v.word * (UNALIGNED * v.p + 1) / v.bw_S,
        "issue": out / 32 * (POINT * v.p + (ROW + EDGE_ROW * v.touch) * v.rows_of_points + v.cvt * (v.p + 1)) / v.sub,
    }
    near = v.lat_l2 + (v.lat_dram - v.lat_l2) / v.planes  # planes are read again
    wait = near * v.rounds + WARP * v.threads / 32
    return Work((use,), wait, element, through_l1=False)


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """A thread an output."""
    from sparsegen.ir.kernels.direct import Direct

    return Direct(s.block[1], s.block[0])


def contradictions(s: StencilSchedule) -> None:
    """A block has no more threads than a GPU takes."""
    if s.threads > 1024:
        raise ScheduleError(f"{s.threads} threads in a block; a GPU takes 1024", hint="make block= smaller")


FAMILY = register(StencilFamily(
    name="direct",
    words=(Word("block", pair, (32, 8)), FUSE),
    axes=(1, 2, 3), rim="fused", geometry=geometry, registers=registers, space=space, values=values,
    work=work, kernel=kernel, contradictions=contradictions, bytes=True,
))  # fmt: skip
