"""The legal schedules of a stencil on a device, and their order by predicted time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.stencil import Cost, evaluate, is_full
from sparsegen.geometry import fused_k, geometry, legal, misfit
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


#: Levels and fusions of stream that are tried where the weights have one row only: nothing of a level stays there.
FLAT_LEVELS, FLAT_FUSES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32), (1, 2, 4, 8)


def streams(k: int, limit: int, flat: bool = False) -> Iterator[StencilSchedule]:
    """The stream schedules that are tried, of at most ``limit`` steps a pass."""
    if flat:
        for cols, fuse, levels, warps in ((c, f, n, w) for c in (8, 16) for f in FLAT_FUSES for n in FLAT_LEVELS
                                          for w in (2, 4)):  # fmt: skip
            if fuse * levels <= limit and fuse * (k // 2) <= cols:
                yield StencilSchedule("stream", fuse=fuse, levels=levels, cols=cols, warps=warps, stages=2)
        return
    for fuse in (1, 2):  # a 2-D stencil that is fused has more points than levels of it one after the other
        for levels in range(1, min(limit // fuse, 16) + 1):
            for stages in (8, 4):
                yield StencilSchedule("stream", fuse=fuse, levels=levels, stages=stages)


def space(
    k: int, fuses: Sequence[int] = (1, 2, 3), ablation: bool = False, limit: int | None = None, flat: bool = False
) -> Iterator[StencilSchedule]:
    """Every schedule that is tried, legal or not; with ``ablation`` also pad=off and transform=explicit.

    ``limit``: most time steps of a pass (the most of ``fuses`` if not given); ``flat``: the weights have one row.
    """
    yield from streams(k, limit or max(fuses), flat)
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
    limit: int | None = None,
    points: int | None = None,
    flat: bool = False,
) -> Iterator[StencilSchedule]:
    """Every legal schedule for a stencil of edge ``k``; what is not legal goes into ``rejected`` with its reason.

    A grid smaller than what a pass reaches cannot be wrapped or mirrored in one piece, so such a fusion is refused.
    ``points``: its non-zero weights, if known; the rest as in ``space``.
    """
    full = None if points is None else is_full(k, points, flat)
    for s in space(k, fuses, ablation, limit, flat):
        try:
            if reason := misfit(s, (1 if flat else k, k), shape):
                raise ScheduleError(reason, hint="lower fuse or levels")
            legal(s, k, device, dtype, full, flat)
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
    limit: int | None = None,
    flat: bool = False,
) -> Ranking:
    """All candidates (or the given legal schedules) by predicted time a step, then by what would bind next."""
    rejected: list[Rejected] = []
    ranked: list[tuple[float, float, int, Cost]] = []
    if schedules is None:
        schedules = candidates(k, dtype, device, shape, fuses, rejected, ablation, limit, points, flat)
    for s in schedules:
        g = geometry(s, k, ITEMSIZE[dtype], flat)
        c = evaluate(k, points, shape, s, device, dtype, g, boundary, flat=flat)
        near = c.terms["l2"] + c.terms["exposed"]  # what would bind next
        ranked.append((round(c.time_per_step, 12), near, len(ranked), c))
    return Ranking(tuple(r[3] for r in sorted(ranked, key=lambda r: r[:3])), tuple(rejected))
