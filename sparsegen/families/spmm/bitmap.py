"""``bitmap`` (SpInfer): bitmap tiles spread into mma fragments, a ring of slabs for each warp.

The numbers of a schedule are in :mod:`sparsegen.products.geometry`, its cost in :mod:`sparsegen.products.cost`; both
are worked out for one schedule or for arrays of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparsegen.choose import Options, Rejected
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.families.spmm import ProductFamily
from sparsegen.formats.bitmap import tiled
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.bitmap import Bitmap
from sparsegen.ir.passes.manager import Pass
from sparsegen.ir.passes.pipeline import Pipeline
from sparsegen.products.cost import cost, times
from sparsegen.products.geometry import COLUMNS, MMA, Geometry, Schedules, geometry, illegal, legal, refusal, space
from sparsegen.products.product import MAX_ROWS, BitmapNumbers
from sparsegen.products.weights import Prepared
from sparsegen.registry import register
from sparsegen.schedule import Schedule, SpmmSchedule, Word, integer, pair, text

if TYPE_CHECKING:
    from sparsegen.problems.product import SpmmProblem

MAX_WARPS = 32
#: From so many columns on, fewer warps of an SM were slower than the model says (117 us for 107): not tried by itself.
WIDE, FEW = 32, 12
#: Digits of seconds by which times are compared: what differs by less is alike.
DIGITS = 9


class BitmapOptions(Options):
    """All schedules of a product on a device with some words given; what is asked for is worked out then.

    Runs of strips are spread over whole waves of SMs, so many values of ``rows`` give a warp the same strips: of those
    only the least is kept, unless the line names it.
    """

    def __init__(self, p: BitmapNumbers, wanted: Mapping[str, Any], device: DeviceProfile) -> None:
        self.problem, self.device = p, device
        #: Of each shape of mma: its schedules, whether each is refused, and whether it is kept.
        self._found: list[tuple[Schedules, Any, Any]] = []
        #: Seconds of those that are kept.
        self._times: list[Any] = []
        for s in space(p, wanted):
            g = geometry(p, s, device)
            refused = illegal(p, s, device, g)
            kept = ~refused
            if "rows" not in wanted:
                kept &= s.rows == g.strips_warp
            if "warps" not in wanted:
                kept &= ~doubtful(s, g)
            self._found.append((s, refused, kept))
            self._times.append(times(p, s, device, g)[kept])

    @cached_property
    def best(self) -> Cost | None:
        """The first of ``costs``, without the others; None if there are none."""
        least = min((t.min() for t in self._times if t.size), default=0.0)
        near: list[Cost] = []
        for (s, _, kept), t in zip(self._found, self._times, strict=True):
            near += self._costs(s, kept.nonzero()[0][t <= least + 2 * 10.0**-DIGITS])
        return min(near, key=order, default=None)

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """The cost of each that is kept, cheapest first; of equally cheap ones the plainest come first."""
        return tuple(sorted((c for s, _, kept in self._found for c in self._costs(s, kept)), key=order))

    @cached_property
    def rejected(self) -> tuple[Rejected, ...]:
        """Those that are not legal, each with its reason."""
        return tuple(
            Rejected(s, error.message, error.hint)
            for many, refused, _ in self._found
            for s in many.pick(refused)
            if (error := refusal(self.problem, s, self.device))
        )

    def _costs(self, s: Schedules, at: Any) -> Iterator[Cost]:
        return (cost(self.problem, one, self.device) for one in s.pick(at))


def order(c: Cost) -> tuple[float, int, int, float]:
    """What costs are sorted by: seconds, then how plain the schedule is, then the work of all units."""
    return round(c.time, DIGITS), c.schedule.stages, c.schedule.splits, sum(c.terms.values())


def doubtful(s: SpmmSchedule | Schedules, g: Geometry) -> Any:
    """Whether a schedule has so few warps an SM for its columns that the model's time is not to be trusted."""
    return (s.cols >= WIDE) & (g.resident * s.warps[0] * s.warps[1] < FEW)


class BitmapFamily(ProductFamily):
    """``cols``: columns of x that a block works on; ``warps``: those that share its rows x those that share the slabs
    of 64 columns of W; ``rows``: strips of 16 rows of one warp at most; ``stages``: slabs in each warp's own ring;
    ``splits``: blocks that share a row range, each with a part of the slabs."""

    name = "bitmap"
    telling = ("cols", "mma")
    formats = ("bitmap",)
    also = frozenset(("gated", "ragged"))
    words = (
        Word("mma", text, choices=tuple(MMA)), Word("cols", integer), Word("warps", pair),
        Word("rows", integer, None, 1, MAX_ROWS), Word("stages", integer, None, 2, 8),
        Word("splits", integer, None, 1, 64),
    )  # fmt: skip

    def consistent(self, s: Schedule) -> None:
        """The columns fit the mma, and the warps a block."""
        fits = (1,) if s.mma == "none" else COLUMNS if s.mma else (1, *COLUMNS)
        if s.cols is not None and s.cols not in fits:
            raise ScheduleError(
                f"cols={s.cols}{f' with mma={s.mma}' * bool(s.mma)}: a block has 1 column on the CUDA cores (mma=none) "
                "or whole fragments of 8",
                hint=f"choose among: {', '.join(map(str, fits))}",
            )
        if s.warps is not None and (min(s.warps) < 1 or s.threads > 32 * MAX_WARPS):
            raise ScheduleError(
                f"warps={s.warps[0]}x{s.warps[1]} are {s.threads} threads",
                hint=f"rows x slabs, at least one of each and {MAX_WARPS} in all, as in warps=2x8",
            )

    def price(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> Cost:
        """The cost of a complete schedule; ScheduleError if it cannot run the product on the device."""
        legal(problem.facts, schedule, device)  # type: ignore[arg-type]
        return cost(problem.facts, schedule, device)  # type: ignore[arg-type]

    def every(self, facts: Any, device: DeviceProfile, given: Mapping[str, Any]) -> BitmapOptions:
        return BitmapOptions(facts, given, device)

    def blocks(self, facts: Any, schedule: Schedule, device: DeviceProfile) -> str:
        """Runs of strips, splits and tiles of columns."""
        g = geometry(facts, schedule, device)  # type: ignore[arg-type]
        rows, slabs = schedule.warps
        of = f" of {facts.experts} experts, were they spread evenly" if facts.experts else ""
        return (
            f"{g.blocks}: {g.groups} runs of strips x {schedule.splits} splits x {g.tiles} tiles of columns{of}; "
            f"{rows} warps share the rows, {slabs} the slabs; {g.shared / 1024:.3g} KiB of shared memory"
        )

    def arrays(self, schedule: Schedule) -> dict[str, Prepared]:
        """The arrays of bitmap tiles, as 32-bit words."""

        def tiles(name: str) -> Prepared:
            about = f"W.arrays[{name!r}] as 32-bit words, of W in the format bitmap"
            return Prepared(("bitmap", name), lambda w: tiled(w).arrays[name], about, words=True)

        return {name: tiles(name) for name in ("index", "masks", "values")}

    def read(self, facts: Any, schedule: Schedule) -> dict[str, Prepared]:
        """Also the scale of a matrix that has one of its own."""
        found = self.arrays(schedule)
        return found | {"scale": Prepared(("scale",), lambda w: w.scale, "W.scale")} if facts.scaled else found

    def passes(self, problem: SpmmProblem, schedule: Schedule, device: DeviceProfile) -> list[Pass]:
        """The kernel, and its ring."""
        s, g = schedule, geometry(problem.facts, schedule, device)  # type: ignore[arg-type]
        bulk = device.compute_capability >= HOPPER
        across, down = s.warps
        kernel = Bitmap(s.mma, s.cols, across, down, s.rows, g.groups, s.splits, g.chunks, bulk, g.resident)
        return [kernel, Pipeline(s.stages)]


FAMILY = register(BitmapFamily())
