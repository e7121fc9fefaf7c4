"""``k.explain()`` of a sparse product: what was chosen, what it costs and why, and whether dense would be faster."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from sparsegen.explain import nbytes, seconds
from sparsegen.products.cost import ADDED
from sparsegen.products.geometry import geometry
from sparsegen.products.product import Problem
from sparsegen.products.schedule import DENSE

if TYPE_CHECKING:
    from sparsegen.products.compile import SpmmChoice
    from sparsegen.products.kernel import SpmmKernel
    from sparsegen.target import Target

#: Other schedules that are shown, and kinds of reasons for refusing some.
_SHOWN, _REASONS = 4, 3


def explain(kernel: SpmmKernel, choice: SpmmChoice, target: Target) -> str:
    """The text of ``SpmmKernel.explain``."""
    parts = [
        _head(kernel, choice, target), _dense(kernel, choice), _terms(choice), _schedules(choice), _refused(choice),
        _rest(kernel),
    ]  # fmt: skip
    return "\n\n".join("\n".join(part) for part in parts if part)


def _head(kernel: SpmmKernel, choice: SpmmChoice, target: Target) -> list[str]:
    w, cost = kernel.product.w, choice.cost
    lines = [
        str(kernel.product),
        f"device     {target.profile.name} ({target.profile.arch})",
        f"backend    {target.backend}",
        f"format     {w.format}: {nbytes(w.nbytes)}, {w.compression:.2f} times smaller than dense",
        f"schedule   {cost.schedule}",
        f"predicted  {seconds(cost.time)}, {cost.bandwidth / 1e12:.2f} TB/s; bound by {cost.binds}",
    ]
    if target.note:
        lines.insert(1, f"note       {target.note}")
    if cost.schedule != DENSE:
        g = geometry(Problem.of(kernel.product), cost.schedule, target.profile)
        rows, slabs = cost.schedule.warps
        lines.insert(
            -1,
            f"blocks     {g.blocks}: {g.groups} runs of strips x {cost.schedule.splits} splits x {g.tiles} tiles of "
            f"columns; {rows} warps share the rows, {slabs} the slabs; {nbytes(g.shared)} of shared memory",
        )
    return lines


def _dense(kernel: SpmmKernel, choice: SpmmChoice) -> list[str]:
    dense, best = choice.dense, choice.ranking[0] if choice.ranking else None
    text = f"dense      the library's product is predicted to take {seconds(dense.time)}"
    if choice.schedule == DENSE:
        other = f", bitmap {seconds(best.time)}" if best else ", and no bitmap schedule can run here"
        why = "chosen as the faster one" if choice.automatic else "given, not chosen"
        return [f"{text}{other}: dense was {why}", "arrays     torch.mm on torch tensors, matmul of CuPy on its arrays"]
    text += f", this kernel {seconds(choice.cost.time)}"
    if choice.cost.time <= dense.time:
        return [f"{text}: sparse is {dense.time / choice.cost.time:.2f} times faster"]
    return [
        f"{text}: dense is {choice.cost.time / dense.time:.2f} times faster; "
        + (
            "take schedule='dense'"
            if kernel.product.w.auto
            else "take sg.sparse(w, format='auto'), or schedule='dense'"
        )
    ]


def _terms(choice: SpmmChoice) -> list[str]:
    cost, reasons = choice.cost, choice.cost.reasons()
    rows = [
        f"  {name:<10} {seconds(t):>9}{' *' if name == cost.binds else '  '} {reasons[name]}"
        for name, t in sorted(cost.terms.items(), key=lambda item: -item[1])
    ]
    return [f"terms (they overlap, but for {', '.join(ADDED)}; * binds)", *rows]


def _schedules(choice: SpmmChoice) -> list[str]:
    cost = choice.cost
    others = [c for c in choice.ranking if c.schedule != cost.schedule][:_SHOWN]
    rows = [f"  {cost.schedule}: {seconds(cost.time)}; {'chosen' if choice.automatic else 'given, not chosen'}"]
    rows += [f"  {c.schedule}: {c.time / cost.time:.2f}x its time, bound by {c.binds}" for c in others]
    return [f"schedules  of {len(choice.ranking)} legal ones", *rows]


def _refused(choice: SpmmChoice) -> list[str]:
    groups: Counter[str] = Counter()
    example: dict[str, str] = {}
    for r in choice.refused:
        kind = re.sub(r"\d+", "#", r.reason)
        groups[kind] += 1
        example.setdefault(kind, f"{r.schedule}: {r.reason}")
    if not groups:
        return []
    rows = [f"  {count:>4} like {example[kind]}" for kind, count in groups.most_common(_REASONS)]
    return [f"refused: {len(choice.refused)} schedules that cannot run here", *rows]


def _rest(kernel: SpmmKernel) -> list[str]:
    rest = [f"workspace  {nbytes(kernel.workspace_nbytes)}{' (partial sums)' * bool(kernel.workspace_nbytes)}"]
    rest.append("nonfinite  as in a dense product: a NaN or Inf of x reaches its whole column, zeros multiply too")
    if kernel.schedule == DENSE:
        return rest
    if kernel.backend == "cuda":
        rest.append("arrays     device arrays are used where they are; host arrays are copied in and out once a call")
    else:
        rest.append("arrays     host arrays, used where they are")
    return rest
