"""The page of a sparse product's kernel: also whether dense is faster, and what other N and sparsities would choose."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparsegen.explain import Explanation, nbytes, parts, seconds
from sparsegen.explain.page import VERSION, Absent, Fact, Page, Prediction, Standing
from sparsegen.explain.roofline import Dot, roofline, roofs
from sparsegen.products.changes import changes
from sparsegen.products.cost import ADDED
from sparsegen.products.geometry import geometry
from sparsegen.products.product import Problem
from sparsegen.products.schedule import DENSE

if TYPE_CHECKING:
    from sparsegen.products.compile import SpmmChoice
    from sparsegen.products.cost import SpmmCost
    from sparsegen.products.kernel import SpmmKernel
    from sparsegen.target import Target

#: Other schedules that are shown, and kinds of reasons for refusing some.
_SHOWN, _REASONS = 4, 3


def explain(kernel: SpmmKernel, choice: SpmmChoice, target: Target) -> Explanation:
    """What ``SpmmKernel.explain`` gives back."""
    cost, profile, p = choice.cost, target.profile, Problem.of(kernel.product)
    measured = parts.measurement(kernel.measured, cost.time)
    best = choice.ranking[:1]
    families = sorted([*best, choice.dense], key=lambda c: c.time)
    if cost.schedule not in [c.schedule for c in families]:
        families = [cost, *families]
    ranked = {c.schedule: c for c in (*choice.ranking, *families)}
    dots = tuple(_dot(c) for c in ranked.values())
    page = Page(
        version=VERSION, kind="product", name=kernel.product.name, about=str(kernel.product),
        device=parts.device(profile), backend=target.backend, schedule=str(cost.schedule), automatic=choice.automatic,
        unit="a product", rate_unit="TB/s", prediction=Prediction(cost.time, 1, cost.time, _rate(cost), cost.binds),
        measurement=measured,
        facts=(
            *parts.place(target), *_facts(kernel, choice, p), *parts.measured_fact(measured), _dense(kernel, choice)
        ),
        terms_of=f"a product (they overlap, but for {', '.join(t for t in ADDED if t in cost.terms)}; * binds)",
        terms=parts.terms(cost), legal=len(choice.ranking), families=tuple(_standing(c, choice) for c in families),
        absent=() if choice.ranking else (Absent("bitmap", choice.refused[0].reason),),
        others=tuple(_standing(c, choice) for c in choice.ranking[1:] if c.schedule != cost.schedule)[:_SHOWN],
        refused=parts.refused(((r.schedule.family, str(r.schedule), r.reason) for r in choice.refused), _REASONS),
        changes=tuple(changes(kernel.product, choice, profile)), paper=None, rest=tuple(_rest(kernel)),
        roofline=roofline(
            "FLOP (those with zeros included) per byte of DRAM traffic", "FLOP/s, zeros included",
            "a sparse kernel multiplies whole fragments, zeros included, as a dense product does",
            roofs(profile, kernel.product.w.dtype), dots, str(cost.schedule), (str(c.schedule) for c in families),
        ),
    )  # fmt: skip
    return Explanation(page, dots)


def _rate(cost: SpmmCost) -> float:
    """TB/s of W, x and y."""
    return cost.bandwidth / 1e12


def _facts(kernel: SpmmKernel, choice: SpmmChoice, p: Problem) -> Iterator[Fact]:
    w, cost = kernel.product.w, choice.cost
    yield Fact("format", f"{w.format}: {nbytes(w.nbytes)}, {w.compression:.2f} times smaller than dense")
    yield Fact("schedule", str(cost.schedule))
    if cost.schedule != DENSE:
        g = geometry(p, cost.schedule, kernel.device)
        rows, slabs = cost.schedule.warps
        yield Fact(
            "blocks",
            f"{g.blocks}: {g.groups} runs of strips x {cost.schedule.splits} splits x {g.tiles} tiles of columns; "
            f"{rows} warps share the rows, {slabs} the slabs; {nbytes(g.shared)} of shared memory",
        )
    yield Fact("predicted", f"{seconds(cost.time)}, {_rate(cost):.2f} TB/s; bound by {cost.binds}")


def _dense(kernel: SpmmKernel, choice: SpmmChoice) -> Fact:
    dense, best = choice.dense, choice.ranking[0] if choice.ranking else None
    text = f"the library's product is predicted to take {seconds(dense.time)}"
    if choice.schedule == DENSE:
        other = f", bitmap {seconds(best.time)}" if best else ", and no bitmap schedule can run here"
        return Fact("dense", f"{text}{other}: dense was {'chosen as the faster one' if choice.automatic else 'given'}")
    text += f", this kernel {seconds(choice.cost.time)}"
    if choice.cost.time <= dense.time:
        return Fact("dense", f"{text}: sparse is {dense.time / choice.cost.time:.2f} times faster")
    take = "schedule='dense'" if kernel.product.w.auto else "sg.sparse(w, format='auto'), or schedule='dense'"
    return Fact("dense", f"{text}: dense is {choice.cost.time / dense.time:.2f} times faster; take {take}")


def _standing(c: SpmmCost, choice: SpmmChoice) -> Standing:
    ratio, chosen = c.time / choice.cost.time, c.schedule == choice.cost.schedule
    if chosen:
        verdict = "chosen" if choice.automatic else "the one that was given, not chosen"
    else:
        verdict = f"{ratio:.2f}x its time, bound by {c.binds}: {seconds(c.terms[c.binds])}"
        if c.schedule == DENSE and ratio < 1:
            verdict += "; W was encoded for sparse schedules"
    return Standing(
        c.schedule.family, str(c.schedule), c.time, ratio, _rate(c), c.binds, chosen, verdict
    )  # fmt: skip


def _rest(kernel: SpmmKernel) -> Iterator[Fact]:
    space = kernel.workspace_nbytes
    yield Fact("workspace", f"{nbytes(space)}{' (partial sums)' * bool(space)}")
    yield Fact("nonfinite", "as in a dense product: a NaN or Inf of x reaches its whole column, zeros multiply too")
    if kernel.schedule == DENSE:
        yield Fact("arrays", "torch.mm on torch tensors, matmul of CuPy on its arrays")
    else:
        yield parts.arrays(kernel.backend)


def _dot(c: SpmmCost) -> Dot:
    flops = 2.0 * math.prod(c.shape)
    return Dot(c.schedule.family, str(c.schedule), flops / (c.bandwidth * c.time), flops / c.time)
