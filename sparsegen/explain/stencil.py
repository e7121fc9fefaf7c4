"""What the page of a stencil's kernel says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sparsegen.cost.search import most_steps, rank, space
from sparsegen.cost.total import cheapest
from sparsegen.explain.kind import Kind, Trial
from sparsegen.explain.page import Fact, Paper
from sparsegen.explain.paper import paper
from sparsegen.explain.units import plural, seconds
from sparsegen.footprint import MAX_RANK, Footprint
from sparsegen.geometry import legal, legalise, misfit
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.fuse import convolve
from sparsegen.ir.separable import separate
from sparsegen.problems.stencil import StencilProblem, grid, own_and_others
from sparsegen.registry import families
from sparsegen.schedule import StencilSchedule
from sparsegen.sizes import MAX_FUSE, ROW, VECTOR

if TYPE_CHECKING:
    from sparsegen.choose import Choice
    from sparsegen.cost.cost import Cost
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.kernel import Kernel

#: Figures of a device whose doubling is tried: key of the profile -> what it is in words.
_LEVERS = {
    "hbm_copy_gbs": "DRAM bandwidth",
    "l2_bytes_per_clk_sm": "bandwidth between an SM and L2",
    "smem_bytes_per_clk_sm": "bandwidth of shared memory and L1",
    "f64_fma_per_clk_sm": "FP64 FMA rate",
    "f32_fma_per_clk_sm": "FP32 FMA rate",
}
#: Schedules of stencil2row, of each fusion and mma shape, that are ranked anew for a changed device.
_POOL = 24


class StencilPage(Kind):
    """Useful operations are those of one step's weights, however many a schedule does for them."""

    kind = "stencil"
    terms_of = "one pass (they overlap; * binds)"
    across, up = "useful FLOP per byte of DRAM traffic", "useful FLOP/s"
    others = 0

    def __init__(self, kernel: Kernel, choice: Choice, plan: Any) -> None:
        super().__init__(kernel, choice, plan)
        problem = kernel.problem
        assert isinstance(problem, StencilProblem)
        self.problem, self.footprint, self.steps = problem, problem.footprint, kernel.steps
        self.unit = f"a pass of {plural(self.cost.steps_per_launch, 'step')}"
        self.workspace = "the second field of the time loop" if "field" in plan.workspaces else ""
        self.families = own_and_others()
        self.nonfinite = (
            "a NaN or Inf may spread farther than the stencil, within the tile that reads it"
            if kernel.schedule.widens
            else "a NaN or Inf reaches only the cells that the weights connect it to"
        )
        note = "fused weights do several steps with fewer operations than counted here, so they may pass a compute roof"
        if not self.cost.values["miss"]:
            note = f"both time levels stay in L2: the bytes are those of one pass through it; {note}"
        self.note = note

    def cheapest(self, costs: Sequence[Cost]) -> Cost:
        return _soonest(self.problem, costs, self.steps)

    def refusal(self, family: str) -> str:
        fp = self.footprint
        if family not in families(self.problem.op):
            return "no update does the same: fields of 16 bits, or a frozen side that keeps more than weights reach"
        try:
            legal(legalise(StencilSchedule(family), fp.k, fp.axes), fp, self.device)
        except ScheduleError as error:
            return error.message
        return f"none of its schedules does {plural(self.steps, 'step')} a call"

    def facts(self) -> Iterator[Fact]:
        """What a family's line leaves open, in numbers."""
        s, v = self.cost.schedule, self.cost.values
        if s.family in ("stream", "patches"):
            yield Fact(
                "strips",
                f"{v['C'] / v['warps']:.0f} of {v['W'] / v['warps']:.0f} columns a warp, {v['R']:.0f} rows down; "
                f"{self.cost.blocks_per_sm} blocks of {v['warps']:.0f} warps an SM",
            )
        if s.family == "lowrank":
            terms = separate(convolve(self.kernel.stencil.weights, s.fuse), MAX_RANK)
            residual = f"residual {terms.residual:.1e} of the weights"
            yield Fact("rank", f"{terms.rank} (a column times a row each); {residual}")
        plan = self.plan
        if len(plan.programs) > 1 or plan.passes > 1:
            passes = " + ".join(f"{n} of {plural(program.steps, 'step')}" for program, n in plan.programs)
            rows = ", most of them between padded rows, where one takes another time" if plan.padded else ""
            yield Fact("passes", f"{passes}; {seconds(self.seconds(self.cost))} in all{rows}")

    def rest(self) -> Iterator[Fact]:
        yield from super().rest()
        if padded := self.plan.padded:
            yield Fact(
                "pitch",
                f"levels between passes lie in two fields of the workspace, rows {padded} elements apart (a multiple "
                f"of {ROW} bytes): rows of {self.kernel.shape[-1]} are not a multiple of {VECTOR} bytes",
            )

    def work(self, cost: Cost) -> tuple[float, float]:
        """Where nothing leaves L2 the bytes are those of reading and writing the grid once."""
        cells, fp = cost.cells, self.footprint
        traffic = sum(cost.terms.get(name, 0.0) for name in ("hbm", "pitch", "transform")) * self.device.bw_global
        return 2.0 * fp.most_points * cells * cost.steps_per_launch, traffic or 2.0 * cells * fp.itemsize

    def paper(self, best: Cost) -> Paper | None:
        return paper(self.kernel, best)

    def trials(self) -> Iterator[Trial]:
        """Also twice each figure of the device, and more steps a call."""
        for what, device in _figures(self.device):
            yield Trial("figure", f"twice the {what}", self.best(device, self.kernel.shape))
        yield from super().trials()
        if self.steps < MAX_FUSE:
            yield Trial("steps", f"more than {plural(self.steps, 'step')} a call", None, "time steps can be fused")

    def best(self, device: DeviceProfile, shape: tuple[int, ...]) -> Cost | None:
        """Of the pool, where the device has the same limits; of fewer schedules, where it is another one."""
        schedules = self._pool() if device.name == self.device.name else list(self._legal_there(device))
        if not schedules:
            return None
        share = device.share(self.problem.items)
        found = rank(self.footprint, share, grid(shape), schedules=schedules)
        return self.problem.at(shape).sooner(cheapest(found.costs, self.steps), share, self.steps)

    def _pool(self) -> list[StencilSchedule]:
        """The chosen schedule, and of stencil2row, which has thousands, the best of each fusion and mma shape."""
        count: Counter[tuple[str, int, str]] = Counter()
        pool = [self.cost.schedule]
        for c in self.ranking:
            s = c.schedule
            if s.op != self.problem.op:
                continue
            count[s.family, s.steps, s.mma] += 1
            few = s.family != "stencil2row" or count[s.family, s.steps, s.mma] <= _POOL
            if few and s != self.cost.schedule:
                pool.append(s)
        return pool

    def _legal_there(self, device: DeviceProfile) -> Iterator[StencilSchedule]:
        fp, exact, extents = self.footprint, self.choice.request.exact, self.problem.stencil.weights.shape
        for s in _few(fp, min(self.steps, most_steps())):
            if (exact and s.widens) or misfit(s, extents, self.problem.grid):
                continue
            try:
                legal(s, fp, device)
            except ScheduleError:
                continue
            yield s


def _soonest(problem: StencilProblem, costs: Sequence[Cost], steps: int) -> Cost:
    """Of the costs of a family, cheapest first, that of the shortest call."""
    if costs[0].schedule.op == problem.op:
        return cheapest(costs, steps)
    return min(costs, key=lambda c: problem.seconds(c, steps))


def _figures(profile: DeviceProfile) -> Iterator[tuple[str, DeviceProfile]]:
    for key, what in _LEVERS.items():
        yield what, replace(profile, **{key: 2 * getattr(profile, key)})
    if any(name.startswith("f64") for name in profile.cpi):
        faster = tuple((name, c / 2 if name.startswith("f64") else c) for name, c in profile.cpi_table)
        yield "rate of FP64 mma", replace(profile, cpi_table=faster)


@lru_cache(maxsize=64)
def _few(fp: Footprint, limit: int) -> tuple[StencilSchedule, ...]:
    """The search's space without what is hardly ever the best: tables, predicated stores, deep rings of stencil2row."""
    return tuple(s for s in space(fp, limit) if s.family != "stencil2row" or (s.dirty and not s.lut and s.stages <= 2))
