"""The page of a stencil's kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sparsegen.choose import Choice
from sparsegen.cost.total import cheapest, total_time
from sparsegen.explain import parts
from sparsegen.explain.changes import changes
from sparsegen.explain.explanation import Explanation
from sparsegen.explain.page import VERSION, Absent, Fact, Page, Prediction, Standing
from sparsegen.explain.paper import paper
from sparsegen.explain.roofline import Dot, roofline, roofs
from sparsegen.explain.units import nbytes, plural, seconds, size
from sparsegen.footprint import MAX_RANK, Footprint
from sparsegen.geometry import legal, legalise
from sparsegen.ir.boundary import describe
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.fuse import convolve
from sparsegen.ir.separable import separate
from sparsegen.options import Options
from sparsegen.registry import families
from sparsegen.rows import ROW, VECTOR
from sparsegen.schedule import StencilSchedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparsegen.cost.cost import Cost
    from sparsegen.kernel import Kernel
    from sparsegen.plan import Plan
    from sparsegen.target import Target


def explain(kernel: Kernel, choice: Choice, target: Target, plan: Plan) -> Explanation:
    """What ``Kernel.explain`` gives back."""
    cost, steps, profile = kernel.cost, kernel.steps, target.profile
    ranking = choice.options
    call = total_time(cost, steps)
    measured = parts.measurement(kernel.measured, call)
    families, known = _families(ranking, cost, steps, choice.automatic)
    dots = tuple(_dot(c) for c in ranking.costs)
    if not any(dot.schedule == str(cost.schedule) for dot in dots):
        dots = (*dots, _dot(cost))
    page = Page(
        version=VERSION, kind="stencil", name=kernel.stencil.name, about=_about(kernel),
        device=parts.device(profile), backend=target.backend, schedule=str(kernel.schedule),
        automatic=choice.automatic, unit=f"a pass of {plural(cost.steps_per_launch, 'step')}", rate_unit="GS/s",
        prediction=Prediction(cost.time, cost.steps_per_launch, call, cost.rate, cost.binds), measurement=measured,
        facts=(
            *parts.place(target), Fact("schedule", str(kernel.schedule)), *_details(kernel, cost),
            *_predicted(kernel, cost, plan), *parts.measured_fact(measured),
        ),
        terms_of="one pass (they overlap; * binds)", terms=parts.terms(cost),
        legal=len(ranking.costs), families=families, absent=tuple(_absent(kernel, ranking, known)), others=(),
        refused=parts.refused((r.schedule.family, str(r.schedule), r.reason) for r in ranking.rejected),
        changes=changes(kernel, choice),
        paper=paper(kernel, families[0] if families else None),
        rest=tuple(_rest(kernel, plan)),
        roofline=roofline(
            "useful FLOP per byte of DRAM traffic", "useful FLOP/s", _note(cost), roofs(profile, kernel.stencil.dtype),
            dots, str(cost.schedule), (s.schedule for s in families),
        ),
    )  # fmt: skip
    return Explanation(page, dots)


def _about(kernel: Kernel) -> str:
    st = kernel.stencil
    return (
        f"{st.name}: {st.points}-point {st.kind}, {size(st.weights.shape)}, {st.dtype}, {describe(st.sides)}; "
        f"{size(kernel.shape)} cells, {plural(kernel.steps, 'time step')}"
    )


def _details(kernel: Kernel, cost: Cost) -> Iterator[Fact]:
    """What a family's line leaves open, in numbers."""
    family, v = kernel.schedule.family, cost.values
    if family in ("stream", "patches"):
        yield Fact(
            "strips",
            f"{v['C'] / v['warps']:.0f} of {v['W'] / v['warps']:.0f} columns a warp, {v['R']:.0f} rows down; "
            f"{cost.blocks_per_sm} blocks of {v['warps']:.0f} warps an SM",
        )
    if family == "lowrank":
        terms = separate(convolve(kernel.stencil.weights, kernel.schedule.fuse), MAX_RANK)
        yield Fact("rank", f"{terms.rank} (a column times a row each); residual {terms.residual:.1e} of the weights")


def _predicted(kernel: Kernel, cost: Cost, plan: Plan) -> Iterator[Fact]:
    yield Fact(
        "predicted",
        f"{seconds(cost.time)} a pass of {plural(cost.steps_per_launch, 'step')}, {cost.rate:.1f} GS/s; "
        f"bound by {cost.binds}",
    )
    if len(plan.programs) > 1 or plan.passes > 1:
        passes = " + ".join(f"{n} of {plural(program.steps, 'step')}" for program, n in plan.programs)
        rows = ", most of them between padded rows, where one takes another time" if plan.padded else ""
        yield Fact("passes", f"{passes}; {seconds(total_time(cost, kernel.steps))} in all{rows}")


def _families(ranking: Options, cost: Cost, steps: int, automatic: bool) -> tuple[tuple[Standing, ...], set[str]]:
    """The best schedule of each family for so many steps, fastest first, and the families that have one."""
    mine = total_time(cost, steps)
    groups: dict[str, list[Cost]] = {}
    for c in ranking.costs:
        groups.setdefault(c.schedule.family, []).append(c)
    firsts = {family: cheapest(group, steps) for family, group in groups.items()}
    found = {family: c for family, c in firsts.items() if math.isfinite(total_time(c, steps))}
    shown = list(found.values())
    if not any(c.schedule == cost.schedule for c in shown):  # given, and not the best of its family
        shown.append(cost)
    best = sorted(shown, key=lambda c: total_time(c, steps))
    rows: list[Standing] = []
    for c in best:
        time = total_time(c, steps)
        chosen = c.schedule == cost.schedule
        verdict = ("chosen" if automatic else "the one that was given") if chosen else _verdict(c, cost, time / mine)
        rows.append(
            Standing(c.schedule.family, str(c.schedule), time, time / mine, c.rate, c.binds, chosen, verdict)
        )  # fmt: skip
    return tuple(rows), set(found)


def _verdict(c: Cost, chosen: Cost, ratio: float) -> str:
    """Why a schedule lost: what binds it, a time step, beside all that the chosen one takes."""
    alone = c.terms[c.binds] / c.steps_per_launch
    return (
        f"{ratio:.2f}x its time, bound by {c.binds}: {seconds(alone)} of {seconds(c.time_per_step)} a step, "
        f"against {seconds(chosen.time_per_step)}"
    )


def _absent(kernel: Kernel, ranking: Options, known: set[str]) -> Iterator[Absent]:
    """The families with no legal schedule: by the most frequent reason, else by what refuses their plain line."""
    for family in families("stencil"):
        if family in known:
            continue
        own = parts.refused(
            ((family, str(r.schedule), r.reason) for r in ranking.rejected if r.schedule.family == family), 1
        )
        yield Absent(family, own.groups[0].reason if own.groups else _plain_refusal(kernel, family))


def _plain_refusal(kernel: Kernel, family: str) -> str:
    fp = Footprint.of(kernel.stencil.gridded)
    try:
        legal(legalise(StencilSchedule(family), fp.k, fp.axes), fp, kernel.device)
    except ScheduleError as error:
        return error.message
    return f"none of its schedules does {plural(kernel.steps, 'step')} a call"


def _rest(kernel: Kernel, plan: Plan) -> Iterator[Fact]:
    space = plan.workspace_nbytes
    yield Fact("workspace", f"{nbytes(space)}{' (the second field of the time loop)' * ('field' in plan.workspaces)}")
    yield Fact(
        "nonfinite",
        "a NaN or Inf may spread farther than the stencil, within the tile that reads it"
        if kernel.schedule.widens
        else "a NaN or Inf reaches only the cells that the weights connect it to",
    )
    yield parts.arrays(kernel.backend)
    if plan.padded:
        yield Fact(
            "pitch",
            f"levels between passes lie in two fields of the workspace, rows {plan.padded} elements apart (a multiple "
            f"of {ROW} bytes): rows of {kernel.shape[-1]} are not a multiple of {VECTOR} bytes",
        )


# ------------------------------------------------------------------------------------------------------- the picture
def _dot(c: Cost) -> Dot:
    """Useful operations are those of one step's weights, however many a schedule does for them."""
    useful = 2.0 * c.footprint.most_points * math.prod(c.shape) * c.steps_per_launch
    traffic = sum(c.terms.get(name, 0.0) for name in ("hbm", "pitch", "transform")) * c.profile.bw_global
    return Dot(c.schedule.family, str(c.schedule), useful / (traffic or _least(c)), useful / c.time)


def _least(c: Cost) -> float:
    """Bytes of reading and writing the grid once."""
    return 2.0 * math.prod(c.shape) * int(c.footprint.itemsize)


def _note(cost: Cost) -> str:
    note = "fused weights do several steps with fewer operations than counted here, so they may pass a compute roof"
    if not cost.values["miss"]:
        note = "both time levels stay in L2: the bytes are those of one pass through it; " + note
    return note
