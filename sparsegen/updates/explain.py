"""``k.explain()`` of a general update: what was chosen, what it costs and why, and why no other family can do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparsegen.explain import nbytes, seconds
from sparsegen.updates.schedule import WHY

if TYPE_CHECKING:
    from sparsegen.target import Target
    from sparsegen.updates.compile import UpdateChoice
    from sparsegen.updates.kernel import UpdateKernel
    from sparsegen.updates.plan import UpdatePlan

#: Other schedules that are shown.
_SHOWN = 4


def explain(kernel: UpdateKernel, choice: UpdateChoice, target: Target, plan: UpdatePlan) -> str:
    """The text of ``UpdateKernel.explain``."""
    cost, steps = kernel.cost, kernel.steps
    size = "x".join(map(str, kernel.shape))
    head = [
        f"{kernel.update}; {size} cells, {steps} time step{'s' * (steps > 1)}",
        *([f"note       {target.note}"] if target.note else []),
        f"device     {target.profile.name} ({target.profile.arch})",
        f"backend    {target.backend}",
        f"schedule   {kernel.schedule}",
        f"predicted  {seconds(cost.time)} a step, {cost.rate:.1f} GS/s; bound by {cost.binds}",
    ]
    if plan.passes > 1:
        copies = f", and {len(plan.copies)} copies of input levels" * bool(plan.copies)
        head.append(f"launches   {plan.count}{copies}; {seconds(plan.passes * cost.time)} in all")
    reasons = cost.reasons()
    terms = [
        f"  {name:<10} {seconds(t):>9}{' *' if name == cost.binds else '  '} {reasons[name]}"
        for name, t in sorted(cost.terms.items(), key=lambda item: -item[1])
    ]
    others = [c for c in choice.ranking if c.schedule != cost.schedule][:_SHOWN]
    rows = [f"  {kernel.schedule}: {cost.rate:.1f} GS/s; {'chosen' if choice.automatic else 'given, not chosen'}"]
    rows += [f"  {c.schedule}: {c.rate:.1f} GS/s; {c.time / cost.time:.2f}x its time" for c in others]
    v = cost.values
    families = [
        f"families   {WHY}",
        f"formula    {v['flops']:.0f} floating-point instructions and {v['loads']:.3g} loads a cell, "
        f"{v['reads']:.0f} arrays read and {v['writes']:.0f} written a step",
    ]
    rest = [f"workspace  {nbytes(plan.workspace_nbytes)}{' (one more array for each field)' * bool(plan.workspaces)}"]
    rest.append("nonfinite  a NaN or Inf reaches only the cells whose formula takes it")
    if kernel.backend == "cuda":
        rest.append("arrays     device arrays are used where they are; host arrays are copied in and out once a call")
    else:
        rest.append("arrays     host arrays, used where they are")
    parts = [head, families, ["terms of one step (they overlap; * binds)", *terms], ["schedules", *rows], rest]
    return "\n\n".join("\n".join(part) for part in parts)
