"""What ``schedule="auto"`` takes: ``cheapest`` of the full ranking, without the cost of what cannot be the cheapest."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.search import order
from sparsegen.cost.stencil import evaluate, fma_rate, misses, points
from sparsegen.cost.terms import REACH, STARTING
from sparsegen.cost.total import QUEUED, cheapest, total_time, whole_time
from sparsegen.families.base import Geometry, family, named
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal, misfit
from sparsegen.ir.errors import ScheduleError
from sparsegen.registry import families
from sparsegen.schedule import StencilSchedule

#: What a bound leaves to the rounding of floats.
SLACK = 1 - 1e-9


class Floors:
    """Least seconds of a pass, by the figures alone: what no schedule can avoid.  Never above the model's time."""

    def __init__(self, fp: Footprint, shape: tuple[int, ...], device: DeviceProfile) -> None:
        self.fp, self.shape, self.device = fp, shape, device
        self._cells = math.prod(shape)
        moved = 2 * self._cells * fp.itemsize * misses(shape, fp, device)
        #: Of any pass: its start, after others, and the grid read and written once.
        self._start = SLACK * (1 - QUEUED) * STARTING * device.launch_s
        self.memory = self._start + SLACK * moved / (REACH * device.bw_global)

    def multiply(self, s: StencilSchedule) -> float:
        """The launch and the multiply-adds of the weights that are not zero, on the CUDA cores of a full GPU."""
        fp, d = self.fp, self.device
        if s.rules.has("mma") and s.mma != "none":
            return 0.0
        work = self._cells * points(fp, s.fuse) * s.levels
        return self._start + SLACK * work / (fma_rate(fp, d) * d.own_sms * d.clock)

    def tensor(self, s: StencilSchedule, g: Geometry) -> float:
        """The launch and the mma of all tiles; nothing where the tile is chosen for the field, or mma has no cycles."""
        d = self.device
        if family(s).filled or any(shape not in d.cpi for shape, _ in g.mmas):
            return 0.0
        sizes = zip(self.shape[-2:], (g.rows, g.cols), strict=True)
        tiles = math.prod(-(-n // size) for n, size in sizes) * math.prod(self.shape[:-2])
        cycles = sum(n * d.cpi[shape] for shape, n in g.mmas) / d.sub_cores
        return self._start + SLACK * tiles * cycles / (d.own_sms * d.clock)


def choose(
    fp: Footprint, device: DeviceProfile, shape: tuple[int, ...], extents: tuple[int, ...], steps: int, limit: int,
    exact: bool,
) -> Cost | None:  # fmt: skip
    """The legal schedule that does ``steps`` time steps soonest; None if no legal schedule can do them.

    ``extents``: of the stencil, which a pass of at most ``limit`` steps must fit into ``shape``; ``exact``: without
    schedules that spread a NaN.  A candidate whose least time is above the best one so far is left out, most of them
    before their geometry is worked out; families that do many steps a pass come first.
    """
    floors, least = Floors(fp, shape, device), math.inf
    kept: list[tuple[tuple[float, float], tuple[int, int], Cost]] = []
    for place, s in _space(fp, limit):
        whole, rest = divmod(steps, s.steps)
        tail = floors.memory if rest else 0.0
        if whole * floors.memory + tail > least or (exact and s.widens):
            continue
        if whole * floors.multiply(s) + tail > least or misfit(s, extents, shape):
            continue
        try:
            g = geometry(s, fp)
            if whole * floors.tensor(s, g) + tail > least:
                continue
            legal(s, fp, device)
        except ScheduleError:
            continue
        c = evaluate(fp, shape, s, device, g)
        if whole_time(c, steps) + tail > least:
            continue
        time = total_time(c, steps)
        if time < math.inf:
            kept.append((order(c), place, c))
            least = min(least, time)
    return cheapest([c for _, _, c in sorted(kept, key=lambda k: k[:2])], steps) if kept else None


def _space(fp: Footprint, limit: int) -> Iterator[tuple[tuple[int, int], StencilSchedule]]:
    """The candidates, those families first that do the most steps a pass; with their places in ``search.space``."""
    places = {name: at for at, name in enumerate(families("stencil")) if named(name).takes(fp)}
    for name in sorted(places, key=lambda name: named(name).most_steps, reverse=True):
        for n, s in enumerate(named(name).space(fp, limit)):
            yield (places[name], n), s
