"""The page of a sparse product's kernel: also whether dense is faster, and what other N and sparsities would choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sparsegen.choose import Choice
from sparsegen.explain import parts
from sparsegen.explain.explanation import Explanation
from sparsegen.explain.page import VERSION, Absent, Fact, Page, Prediction, Standing
from sparsegen.explain.roofline import Dot, roofline, roofs
from sparsegen.explain.units import nbytes, seconds
from sparsegen.families.dense import DENSE
from sparsegen.families.products import ProductFamily
from sparsegen.options import Request
from sparsegen.problems.product import SpmmProblem, readers
from sparsegen.products.changes import changes

if TYPE_CHECKING:
    from sparsegen.cost.cost import Cost
    from sparsegen.kernel import Kernel
    from sparsegen.target import Target

#: Other schedules that are shown, and kinds of reasons for refusing some.
_SHOWN, _REASONS = 4, 3


def explain(kernel: Kernel, choice: Choice, target: Target, plan: object) -> Explanation:
    """What ``Kernel.explain`` gives back."""
    cost, profile, problem = choice.cost, target.profile, kernel.problem
    assert isinstance(problem, SpmmProblem)
    p, (own, *_) = problem.facts, readers(problem.format)  # a library comes last
    measured = parts.measurement(kernel.measured, cost.time)
    options = choice.options
    if cost.schedule.rules.library:  # it stands beside those that read the format
        options = problem.options(None, profile, Request(every=True))
    ranking = [c for c in options.costs if not c.schedule.rules.library]
    dense = next((f.every(p, profile).best for f in readers(problem.format) if f.library), None)
    first: list[Cost] = ranking[:1] + ([dense] if dense else [])
    families = sorted(first, key=lambda c: c.time)
    if cost.schedule not in [c.schedule for c in families]:
        families = [cost, *families]
    ranked = {c.schedule: c for c in (*ranking, *families)}
    dots = tuple(_dot(c) for c in ranked.values())
    added = ", ".join(t for t in cost.terms if t in cost.law.beside)
    rejected = options.rejected
    page = Page(
        version=VERSION, kind="product", name=kernel.product.name, about=str(kernel.product),
        device=parts.device(profile), backend=target.backend, schedule=str(cost.schedule), automatic=choice.automatic,
        unit="a product", rate_unit="TB/s", prediction=Prediction(cost.time, 1, cost.time, cost.rate, cost.binds),
        measurement=measured,
        facts=(
            *parts.place(target), *_facts(kernel, choice, p), *parts.measured_fact(measured),
            *([_dense(kernel, choice, dense, ranking)] if dense else []),
        ),
        terms_of=f"a product (they overlap, but for {added}; * binds)",
        terms=parts.terms(cost), legal=len(ranking), families=tuple(_standing(c, choice) for c in families),
        absent=() if ranking else (Absent(kernel.problem.format, rejected[0].reason),),
        others=tuple(_standing(c, choice) for c in ranking[1:] if c.schedule != cost.schedule)[:_SHOWN],
        refused=parts.refused(((r.schedule.family, str(r.schedule), r.reason) for r in rejected), _REASONS),
        changes=tuple(changes(problem, choice, profile)), paper=None, rest=tuple(_rest(kernel, own)),
        roofline=roofline(
            f"FLOP ({own.counted}) per byte of DRAM traffic", f"FLOP/s, {own.counted.removeprefix('those with ')}",
            own.because, roofs(profile, kernel.product.w.dtype), dots, str(cost.schedule),
            (str(c.schedule) for c in families),
        ),
    )  # fmt: skip
    return Explanation(page, dots)


def _facts(kernel: Kernel, choice: Choice, p: Any) -> Iterator[Fact]:
    w, cost = kernel.product.w, choice.cost
    yield Fact("format", f"{w.format}: {nbytes(w.nbytes)}, {w.compression:.2f} times smaller than dense")
    yield Fact("schedule", str(cost.schedule))
    if blocks := cost.schedule.rules.blocks(p, cost.schedule, kernel.device):
        yield Fact("blocks", blocks)
    yield Fact("predicted", f"{seconds(cost.time)}, {cost.rate:.2f} TB/s; bound by {cost.binds}")


def _dense(kernel: Kernel, choice: Choice, dense: Cost, ranking: Sequence[Cost]) -> Fact:
    best = ranking[0] if ranking else None
    text = f"the library's product is predicted to take {seconds(dense.time)}"
    if choice.schedule == DENSE:
        other = f", bitmap {seconds(best.time)}" if best else ", and no bitmap schedule can run here"
        return Fact("dense", f"{text}{other}: dense was {'chosen as the faster one' if choice.automatic else 'given'}")
    text += f", this kernel {seconds(choice.cost.time)}"
    if choice.cost.time <= dense.time:
        return Fact("dense", f"{text}: sparse is {dense.time / choice.cost.time:.2f} times faster")
    take = "schedule='dense'" if kernel.product.w.auto else "sg.sparse(w, format='auto'), or schedule='dense'"
    return Fact("dense", f"{text}: dense is {choice.cost.time / dense.time:.2f} times faster; take {take}")


def _standing(c: Cost, choice: Choice) -> Standing:
    ratio, chosen = c.time / choice.cost.time, c.schedule == choice.cost.schedule
    if chosen:
        verdict = "chosen" if choice.automatic else "the one that was given, not chosen"
    else:
        verdict = f"{ratio:.2f}x its time, bound by {c.binds}: {seconds(c.terms[c.binds])}"
        if c.schedule == DENSE and ratio < 1:
            verdict += "; W was encoded for sparse schedules"
    return Standing(
        c.schedule.family, str(c.schedule), c.time, ratio, c.rate, c.binds, chosen, verdict
    )  # fmt: skip


def _rest(kernel: Kernel, own: ProductFamily) -> Iterator[Fact]:
    space = kernel.workspace_nbytes
    yield Fact("workspace", f"{nbytes(space)}{' (partial sums)' * bool(space)}")
    yield Fact("nonfinite", own.nonfinite)
    if kernel.schedule.rules.library:
        yield Fact("arrays", "torch.mm on torch tensors, matmul of CuPy on its arrays")
    else:
        yield parts.arrays(kernel.backend)


def _dot(c: Cost) -> Dot:
    flops = c.schedule.rules.operations(c)
    return Dot(c.schedule.family, str(c.schedule), flops / (c.bandwidth * c.time), flops / c.time)
