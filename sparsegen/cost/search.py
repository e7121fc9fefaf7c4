"""The legal schedules of a stencil on a device, and their order by predicted time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.stencil import Cost, evaluate
from sparsegen.geometry import fused_k, geometry, legal
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import ITEMSIZE, MMA, StencilSchedule


@dataclass(frozen=True)
class Rejected:
    """A schedule that cannot run there, and why."""

    schedule: StencilSchedule
    reason: str


@dataclass(frozen=True)
class Ranking:
    """All legal schedules, cheapest a time step first, and the others with their reasons."""

    costs: tuple[Cost, ...]
    rejected: tuple[Rejected, ...]

    def best_of_families(self) -> dict[str, Cost]:
        """The cheapest schedule of each family."""
        best: dict[str, Cost] = {}
        for c in self.costs:
            best.setdefault(c.schedule.family, c)
        return best


def space(k: int, fuses: Sequence[int] = (1, 2, 3), ablation: bool = False) -> Iterator[StencilSchedule]:
    """Every schedule that is tried, legal or not; with ``ablation`` also pad=off and transform=explicit."""
    for fuse in fuses:
        for block in ((32, 4), (32, 8), (32, 16), (64, 4), (64, 8), (128, 2), (128, 4)):
            yield StencilSchedule("direct", block=block, fuse=fuse)
        for rows, cols, warps in ((r, c, w) for r in (8, 16, 32, 64) for c in (32, 64, 128) for w in (4, 8, 16)):
            if warps % (cols // 32) == 0 and rows % (warps // (cols // 32)) == 0:
                for stages in (1, 2, 3, 4):
                    yield StencilSchedule("tiled", tile=(rows, cols), warps=warps, stages=stages, fuse=fuse)
        kk = fused_k(k, fuse)
        for mma, (m, _, _, _) in MMA.items():
            for rows, groups, warps in ((r, n, w) for r in (16, 32, 64) for n in (1, 2) for w in (4, 8, 16)):
                if rows * groups % warps:
                    continue
                for stages, lut, dirty in (
                    (s, x, y) for s in (1, 2, 3, 4) for x in (True, False) for y in (True, False)
                ):
                    for pad in (True, False) if ablation else (True,):
                        for transform in ("implicit", "explicit") if ablation and stages == 1 else ("implicit",):
                            yield StencilSchedule(
                                "stencil2row",
                                tile=(rows, groups * m * (kk + 1)),
                                warps=warps,
                                stages=stages,
                                mma=mma,
                                fuse=fuse,
                                lut=lut,
                                dirty=dirty,
                                pad=pad,
                                transform=transform,
                            )


def candidates(
    k: int,
    dtype: str,
    device: DeviceProfile,
    shape: tuple[int, int],
    fuses: Sequence[int] = (1, 2, 3),
    rejected: list[Rejected] | None = None,
    ablation: bool = False,
) -> Iterator[StencilSchedule]:
    """Every legal schedule for a stencil of edge ``k``; what is not legal goes into ``rejected`` with its reason.

    A grid smaller than the fused stencil cannot be wrapped or mirrored in one piece, so such a fusion is refused.
    """
    for s in space(k, fuses, ablation):
        kk = fused_k(k, s.fuse)
        try:
            if min(shape) < kk:
                raise ScheduleError(
                    f"fuse={s.fuse} makes a stencil of edge {kk}, the grid is {shape[0]}x{shape[1]}", hint="lower fuse"
                )
            legal(s, k, device, dtype)
        except ScheduleError as e:
            if rejected is not None:
                rejected.append(Rejected(s, e.message))
            continue
        yield s


def rank(
    k: int,
    points: int,
    dtype: str,
    device: DeviceProfile,
    shape: tuple[int, int],
    fuses: Sequence[int] = (1, 2, 3),
    schedules: Iterable[StencilSchedule] | None = None,
    ablation: bool = False,
    boundary: str = "periodic",
) -> Ranking:
    """All candidates (or the given legal schedules) by predicted time a step, then by what would bind next."""
    rejected: list[Rejected] = []
    ranked: list[tuple[float, float, int, Cost]] = []
    for s in candidates(k, dtype, device, shape, fuses, rejected, ablation) if schedules is None else schedules:
        g = geometry(s, k, ITEMSIZE[dtype])
        c = evaluate(k, points, shape, s, device, dtype, g, boundary)
        near = c.terms["l2"] + c.terms["exposed"]  # what would bind next
        ranked.append((round(c.time_per_step, 12), near, len(ranked), c))
    return Ranking(tuple(r[3] for r in sorted(ranked, key=lambda r: r[:3])), tuple(rejected))
