"""The page of any kernel: what its choice, its costs and its kind of problem say of it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sparsegen.cost.devices import DeviceProfile, load_profile, names
from sparsegen.explain import page as p
from sparsegen.explain.attention import AttentionPage
from sparsegen.explain.explanation import Explanation
from sparsegen.explain.kind import Kind
from sparsegen.explain.product import ProductPage
from sparsegen.explain.roofline import Dot, roofs
from sparsegen.explain.sampled import SampledPage
from sparsegen.explain.sections import rated
from sparsegen.explain.stencil import StencilPage
from sparsegen.explain.units import nbytes, plural, seconds, size
from sparsegen.explain.update import UpdatePage

if TYPE_CHECKING:
    from sparsegen.choose import Choice, Rejected
    from sparsegen.cost.cost import Cost
    from sparsegen.kernel import Kernel
    from sparsegen.schedule import Schedule
    from sparsegen.target import Target

_KINDS: Final[dict[str, type[Kind]]] = {
    "stencil": StencilPage, "update": UpdatePage, "spmm": ProductPage, "sddmm": SampledPage,
    "attention": AttentionPage,
}  # fmt: skip
#: Kinds of reason for a refusal that are shown.
_REASONS: Final = 6


def explain(kernel: Kernel, choice: Choice, target: Target, plan: Any) -> Explanation:
    """What ``Kernel.explain`` gives back; ``plan``: of a call, None for a library's product."""
    own = _KINDS[kernel.problem.op](kernel, choice, plan)
    cost, problem, device, line = choice.cost, kernel.problem, target.profile, str(choice.schedule)
    call, unit = own.seconds(cost), cost.law.unit
    best = _best(own)
    standings = tuple(_standing(own, c, call) for c in best)
    others = [c for c in own.ranking if c.schedule not in [one.schedule for one in best]][: own.others]
    dots = {str(c.schedule): _dot(own, c) for c in (*own.ranking, *best)}
    named = {line, *(s.schedule for s in standings)}
    marks = tuple(p.Mark(*dot, name == line) for name, dot in dots.items() if name in named)
    about = str(problem.described)
    if problem.grid is not None:
        items = f"{problem.batch}, each of " if problem.batch else ""
        about += f"; {items}{size(kernel.shape)} cells, {plural(kernel.steps, 'time step')}"
    measured, off = None, ""
    if kernel.measured is not None:
        measured = p.Measurement(kernel.measured, call, call / kernel.measured - 1)
        off = f"{seconds(kernel.measured)}, predicted {seconds(call)} ({100 * measured.off:+.0f} %) a call"
    only = "; costs and explanations only: no code is generated for it" * device.explain_only
    facts = {
        "device": f"{device.name} ({device.arch}){only}", "note": target.note, "backend": target.backend,
        "schedule": line,
        "predicted": f"{seconds(cost.time)} {own.unit}, {rated(cost.rate, unit)}; bound by {cost.binds}",
        "measured": off,
    }  # fmt: skip
    space = f" ({own.workspace})" if own.workspace else ""
    rest = {"workspace": f"{nbytes(kernel.workspace_nbytes)}{space}", "nonfinite": own.nonfinite}
    page = p.Page(
        version=p.VERSION, kind=own.kind, name=problem.name, about=about,
        device=p.Device(device.name, device.arch, device.explain_only), backend=target.backend, schedule=line,
        automatic=choice.automatic, unit=own.unit, rate_unit=unit,
        prediction=p.Prediction(cost.time, cost.steps_per_launch, call, cost.rate, cost.binds), measurement=measured,
        facts=(*(p.Fact(label, text) for label, text in facts.items() if text), *own.facts()),
        terms_of=own.terms_of, terms=_terms(cost), legal=len(own.ranking), families=standings,
        absent=tuple(_absent(own)), others=tuple(_standing(own, c, call) for c in others),
        refused=_refused(own.options.rejected, _REASONS), changes=tuple(_changes(own)), paper=own.paper(best[0]),
        rest=(*(p.Fact(label, text) for label, text in rest.items()), *own.rest()),
        roofline=p.Roofline(own.across, own.up, own.note, tuple(roofs(device, problem.dtype)), marks),
    )  # fmt: skip
    return Explanation(page, tuple(dots.values()))


def _terms(cost: Cost) -> tuple[p.Term, ...]:
    """The terms, largest first; ``share`` is of the predicted time of the launch."""
    rows = sorted(cost.terms.items(), key=lambda item: -item[1])
    return tuple(p.Term(name, t, t / cost.time, name == cost.binds, cost.law.reasons[name]) for name, t in rows)


def _firsts(own: Kind) -> dict[str, Cost]:
    """The best schedule of each family that can do it."""
    groups: dict[str, list[Cost]] = {}
    for c in own.ranking:
        groups.setdefault(c.schedule.family, []).append(c)
    found = {family: own.cheapest(group) for family, group in groups.items()}
    return {family: c for family, c in found.items() if math.isfinite(own.seconds(c))}


def _best(own: Kind) -> list[Cost]:
    """The best schedule of each family, and the one that was given, fastest first."""
    found = [*_firsts(own).values(), *own.beside]
    if not any(c.schedule == own.cost.schedule for c in found):
        found.append(own.cost)
    return sorted(found, key=own.seconds)


def _standing(own: Kind, c: Cost, call: float) -> p.Standing:
    """A schedule beside the chosen one; why it lost: what binds it beside all that the chosen one takes."""
    time, chosen, each = (
        own.seconds(c),
        c.schedule == own.cost.schedule,
        " a step" * (own.kernel.problem.grid is not None),
    )
    verdict = "chosen" if own.choice.automatic else "the one that was given"
    if not chosen:
        verdict = (
            f"{time / call:.2f}x its time, bound by {c.binds}: {seconds(c.terms[c.binds] / c.steps_per_launch)} of "
            f"{seconds(c.time_per_step)}{each}, against {seconds(own.cost.time_per_step)}"
        )
    return p.Standing(c.schedule.family, str(c.schedule), time, time / call, c.rate, c.binds, chosen, verdict)


def _absent(own: Kind) -> Iterator[p.Absent]:
    """The families with no legal schedule: by the most frequent reason, else by what refuses their plain line."""
    known = {*_firsts(own), *(c.schedule.family for c in own.beside)}
    for family in own.families:
        if family not in known:
            groups = _refused((r for r in own.options.rejected if r.schedule.family == family), 1).groups
            yield p.Absent(family, groups[0].reason if groups else own.refusal(family))


def _refused(found: Iterable[Rejected], most: int) -> p.Refused:
    """Refused schedules by kind: reasons that differ in their numbers only are one."""
    groups: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], tuple[str, str]] = {}
    for r in found:
        key = (r.schedule.family, re.sub(r"\d+", "#", r.reason))
        groups[key] += 1
        if key not in example:
            example[key] = str(r.schedule), r.reason
    rows = tuple(p.Refusal(count, key[0], *example[key]) for key, count in groups.most_common(most))
    return p.Refused(sum(groups.values()), len(groups), rows)


def _changes(own: Kind) -> Iterator[p.Change]:
    """All that was tried, whether it changes the choice or not."""
    usual = own.usual()
    assert usual is not None
    there = {d.name: own.elsewhere(d) for d in shipped() if d.name != own.device.name}
    dear = {d.name for d in shipped() if d.explain_only}
    for t in (*own.trials(), *there.values()):
        c = t.cost
        if c is None:
            yield p.Change(t.kind, t.what, None, None, None, None, True, t.note or "no legal schedule")
            continue
        note = ", ".join(filter(None, (t.note, "costs only" if t.kind == "device" and t.what in dear else "")))
        other = _news(c.schedule) != _news(usual.schedule)
        yield p.Change(t.kind, t.what, str(c.schedule), own.seconds(c), c.rate, c.binds, other, note, t.dense)


def _news(s: Schedule) -> tuple[Any, ...]:
    """What makes a choice another one."""
    return s.family, *(getattr(s, word) for word in s.rules.telling)


@cache
def shipped() -> tuple[DeviceProfile, ...]:
    """The shipped profiles."""
    return tuple(map(load_profile, names()))


def _dot(own: Kind, c: Cost) -> Dot:
    flops, moved = own.work(c)
    return Dot(c.schedule.family, str(c.schedule), flops / moved, flops / c.time)
