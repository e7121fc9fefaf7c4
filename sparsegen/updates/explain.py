"""The page of a general update's kernel: also why no other family can do it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from sparsegen.explain import parts
from sparsegen.explain.explanation import Explanation
from sparsegen.explain.page import VERSION, Change, Fact, Page, Prediction, Refused, Standing
from sparsegen.explain.roofline import Dot, roofline, roofs
from sparsegen.explain.units import nbytes, plural, seconds, size
from sparsegen.options import Request
from sparsegen.problems.update import UpdateProblem
from sparsegen.rows import MAX_CELLS
from sparsegen.schedule import WHY_UPDATES

if TYPE_CHECKING:
    from sparsegen.choose import Choice
    from sparsegen.cost.cost import Cost
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.kernel import Kernel
    from sparsegen.plan import Plan
    from sparsegen.target import Target

#: Other schedules that are shown, and growths of an edge of the grid that are tried.
_SHOWN, _GROWTHS = 4, (2, 4, 16)


def explain(kernel: Kernel, choice: Choice, target: Target, plan: Plan) -> Explanation:
    """What ``Kernel.explain`` gives back."""
    cost, profile, passes = kernel.cost, target.profile, plan.passes
    measured = parts.measurement(kernel.measured, passes * cost.time)
    costs = choice.options.costs
    ranked = costs if any(c.schedule == cost.schedule for c in costs) else (cost, *costs)
    dots = tuple(_dot(c) for c in ranked)
    others = [c for c in costs if c.schedule != cost.schedule][:_SHOWN]
    page = Page(
        version=VERSION, kind="update", name=kernel.update.name,
        about=f"{kernel.update}; {size(kernel.shape)} cells, {plural(kernel.steps, 'time step')}",
        device=parts.device(profile), backend=target.backend, schedule=str(kernel.schedule),
        automatic=choice.automatic, unit="a step", rate_unit="GS/s",
        prediction=Prediction(cost.time, 1, passes * cost.time, cost.rate, cost.binds), measurement=measured,
        facts=(*parts.place(target), *_facts(kernel, cost, plan), *parts.measured_fact(measured), *_formula(cost)),
        terms_of="one step (they overlap; * binds)", terms=parts.terms(cost), legal=len(choice.options.costs),
        families=(_standing(cost, kernel, choice.automatic, passes),), absent=(),
        others=tuple(_standing(c, kernel, choice.automatic, passes) for c in others), refused=Refused(0, 0, ()),
        changes=tuple(_changes(kernel, passes)), paper=None, rest=tuple(_rest(kernel, plan)),
        roofline=roofline(
            "FLOP of the formula per byte of DRAM traffic", "FLOP/s of the formula", _note(cost),
            roofs(profile, kernel.update.dtype), dots, str(cost.schedule), (),
        ),
    )  # fmt: skip
    return Explanation(page, dots)


def _facts(kernel: Kernel, cost: Cost, plan: Plan) -> Iterator[Fact]:
    yield Fact("schedule", str(kernel.schedule))
    yield Fact("predicted", f"{seconds(cost.time)} a step, {cost.rate:.1f} GS/s; bound by {cost.binds}")
    if plan.passes > 1:
        copies = f", and {(plan.passes - plan.steps)} copies of input levels" * (plan.passes > plan.steps)
        yield Fact("launches", f"{plan.steps}{copies}; {seconds(plan.passes * cost.time)} in all")


def _formula(cost: Cost) -> Iterator[Fact]:
    v = cost.values
    yield Fact("families", WHY_UPDATES)
    yield Fact(
        "formula",
        f"{v['flops']:.0f} floating-point instructions and {v['loads']:.3g} loads a cell, "
        f"{v['reads']:.0f} arrays read and {v['writes']:.0f} written a step",
    )


def _standing(c: Cost, kernel: Kernel, automatic: bool, passes: int) -> Standing:
    ratio, chosen = c.time / kernel.cost.time, c.schedule == kernel.schedule
    if chosen:
        verdict = "chosen" if automatic else "the one that was given, not chosen"
    else:
        verdict = f"{ratio:.2f}x its time, bound by {c.binds}: {seconds(c.terms[c.binds])} a step"
    return Standing(
        c.schedule.family, str(c.schedule), passes * c.time, ratio, c.rate, c.binds, chosen, verdict
    )  # fmt: skip


def _changes(kernel: Kernel, passes: int) -> Iterator[Change]:
    def tried(kind: Literal["grid", "device"], what: str, c: Cost, note: str = "") -> Change:
        return Change(
            kind, what, str(c.schedule), passes * c.time, c.rate, c.binds, c.schedule != usual, note
        )  # fmt: skip

    def best(shape: tuple[int, ...], device: DeviceProfile) -> Cost:
        found = UpdateProblem(kernel.update, shape).options(None, device, Request()).best
        assert found is not None
        return found

    usual = best(kernel.shape, kernel.device).schedule
    for growth in _GROWTHS:
        larger = tuple(n * growth for n in kernel.shape)
        if math.prod(larger) <= MAX_CELLS:
            yield tried("grid", f"a grid of {size(larger)}", best(larger, kernel.device))
    for there in parts.other_profiles(kernel.device).values():
        note = "costs only" if there.explain_only else ""
        yield tried("device", there.name, best(kernel.shape, there), note)


def _rest(kernel: Kernel, plan: Plan) -> Iterator[Fact]:
    more = " (one more array for each field)" * bool(plan.workspaces)
    yield Fact("workspace", f"{nbytes(plan.workspace_nbytes)}{more}")
    yield Fact("nonfinite", "a NaN or Inf reaches only the cells whose formula takes it")
    yield parts.arrays(kernel.backend)


def _dot(c: Cost) -> Dot:
    """The formula's instructions, each as the two operations that a compute roof counts for one."""
    v = c.values
    work = 2 * v["N"] * v["flops"]
    return Dot(
        c.schedule.family, str(c.schedule), work / (v["N"] * v["s"] * (v["reads"] + v["writes"])), work / c.time
    )  # fmt: skip


def _note(cost: Cost) -> str:
    note = "each floating-point instruction counts as two operations, as a multiply-add does"
    return note if cost.values["dram"] else f"all arrays stay in L2: the bytes are those of a step through it; {note}"
