"""``direct``: one thread an output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparsegen.families.base import Geometry, Num, Work, fused_k, keep
from sparsegen.footprint import Footprint
from sparsegen.schedule import MAX_FUSE, StencilSchedule

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

RIM, AXES = "fused", (1, 2, 3)
#: Warp instructions a point: its index and bounds.
POINT = 12.0
filled = keep


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """A block's outputs are its threads."""
    kk = fused_k(fp.k, s.fuse)
    cols, rows = s.block
    planes = kk if fp.axes == 3 else 1
    return Geometry(kk, kk // 2, rows, cols, rows + kk - 1, cols + kk - 1, s.threads, halo_planes=planes)


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """All loads of a point at once, until ptxas gives in; compiled without a bound."""
    return min(104, 12 + 2 * g.k * g.k)


def check(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile) -> None:
    """Any stencil on any device."""


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Blocks of a few shapes."""
    for fuse in range(1, min(limit, MAX_FUSE) + 1):
        for block in ((32, 4), (32, 8), (32, 16), (64, 4), (64, 8), (128, 2), (128, 4)):
            yield StencilSchedule("direct", block=block, fuse=fuse)


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """Its loads are single elements whatever the pitch."""
    return {"half": 1, "rounds": 1}


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """One thread a point: every weight's value comes through L1, and nothing is kept."""
    use = {
        "fma": out * v.p / v.fma_rate,
        "shared": out * v.word * (v.p + 1) / v.bw_S,
        "issue": out / 32 * (2 * v.p + POINT + v.cvt * (v.p + 1)) / v.sub,
    }
    return Work((use,), v.lat_dram * v.rounds + v.block, element, through_l1=False)
