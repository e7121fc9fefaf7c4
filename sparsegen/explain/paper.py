"""ConvStencil's own alternatives on a device, and where and why their order there is not the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from sparsegen.cost.cost import Cost
from sparsegen.cost.stencil import cost
from sparsegen.explain.page import Alternative, Paper
from sparsegen.explain.roofline import fastest_mma, fma_rate, mma_rate
from sparsegen.explain.units import plural, seconds
from sparsegen.families.base import fused_k
from sparsegen.footprint import Footprint
from sparsegen.geometry import misfit
from sparsegen.ir.errors import ScheduleError
from sparsegen.problems.stencil import grid
from sparsegen.schedule import StencilSchedule
from sparsegen.sizes import MAX_FUSE

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.kernel import Kernel

#: The paper's mma, and the edge that it fuses stencils up to.
MMA, EDGE = "f64.m8n8k4", 7
#: The forms of its ablation: one buffer, eight warps, and each form with one thing more.  Offsets are computed in all
#: of them: the lookup table is no step of the ablation, and slower on what was measured (docs/explain.md).
FORMS = (
    ("explicit stencil2row, CUDA cores", "mma=none pad=off dirty=off transform=explicit"),
    ("implicit stencil2row", "mma=none pad=off dirty=off"),
    ("tensor cores", f"mma={MMA} pad=off dirty=off"),
    ("padding", f"mma={MMA} pad=on dirty=off"),
    ("dirty bits", f"mma={MMA} pad=on dirty=on"),
)
#: A rate that is less than this many times another is no faster.
_FASTER = 1.1


def forms(fp: Footprint, device: DeviceProfile, shape: tuple[int, ...], fuse: int) -> list[Cost | ScheduleError]:
    """The paper's forms in its order, ``fuse`` steps made one, with their costs or what refuses them."""
    found: list[Cost | ScheduleError] = []
    for _, words in FORMS:
        try:
            found.append(cost(fp, shape, _line(words, fuse), device))
        except ScheduleError as error:
            found.append(error)
    return found


def _line(words: str, fuse: int) -> StencilSchedule:
    return StencilSchedule.parse(f"stencil2row warps=8 stages=1 lut=off fuse={fuse} {words}")


def fusion(fp: Footprint, device: DeviceProfile, shape: tuple[int, ...], steps: int) -> int | None:
    """As many steps as make the edge EDGE at most, where the full form is legal; None if it never is."""
    extents = (1, fp.k) if fp.flat else (fp.k,) * fp.axes
    for fuse in range(min(MAX_FUSE, steps), 0, -1):
        s = _line(FORMS[-1][1], fuse)
        if fused_k(fp.k, fuse) > EDGE or misfit(s, extents, shape):
            continue
        try:
            cost(fp, shape, s, device)
        except ScheduleError:
            continue
        return fuse
    return None


def paper(kernel: Kernel, best: Cost) -> Paper | None:
    """The section of a kernel's page; None for other types, and devices without f64 tensor cores."""
    from sparsegen.bench.ablation import CASES, GAINS

    fp, shape = Footprint.of(kernel.stencil.gridded), grid(kernel.shape)
    device = kernel.device.share(kernel.problem.items)
    if fp.dtype != "f64" or MMA not in device.cpi:
        return None
    fuse = fusion(fp, device, shape, kernel.steps)
    if fuse is None:
        return None
    costs = forms(fp, device, shape, fuse)
    published = GAINS[fp.axes]
    rows: list[Alternative] = []
    for at, ((name, words), c) in enumerate(zip(FORMS, costs, strict=True)):
        line = str(_line(words, fuse))
        gain = published[at - 1] if at else None
        if isinstance(c, ScheduleError):
            rows.append(Alternative(name, line, None, None, gain, "", c.message))
            continue
        before = costs[at - 1] if at else None
        own = c.rate / before.rate - 1 if isinstance(before, Cost) else None
        rows.append(Alternative(name, str(c.schedule), c.rate, own, gain, c.binds))
    legal = [(row, c) for row, c in zip(rows, costs, strict=True) if isinstance(c, Cost)]
    remarks = list(_order(legal, device))
    ordered = not remarks
    if ordered:
        remarks.append("the order is the paper's: each form is faster than the one before it")
    if slow := _slow_mma(device):
        remarks.append(slow)
    remarks += _beaten(legal, best)
    return Paper(CASES[fp.axes], fuse, fused_k(fp.k, fuse), tuple(rows), ordered, tuple(remarks))


def _order(legal: Sequence[tuple[Alternative, Cost]], device: DeviceProfile) -> Iterator[str]:
    """A line for each form that is no faster than the one before it."""
    for (_, a), (row, b) in pairwise(legal):
        if b.rate > a.rate:
            continue
        name, change = row.name, b.rate / a.rate - 1
        more = {term: t - a.terms.get(term, 0.0) for term, t in b.terms.items()}
        most = max(more, key=more.__getitem__)
        why = f"both are bound by {a.binds}, {seconds(a.terms[a.binds])} a pass, which it does not touch"
        if a.binds != b.binds or more[most] > 1e-3 * a.time:
            why = f"{most} grows from {seconds(a.terms.get(most, 0.0))} to {seconds(b.terms[most])} a pass"
        yield (
            f"not the paper's order: on the {device.name} {name} gains nothing ({100 * change:+.1f} %, in the paper "
            f"{100 * (row.paper or 0):+.0f} %): {why}"
        )


def _slow_mma(device: DeviceProfile) -> str | None:
    """Where the paper's mma gains nothing over the CUDA cores, or another one is faster."""
    own, cores, best = mma_rate(device, MMA), fma_rate(device, "f64"), fastest_mma(device, "f64")
    told: list[str] = []
    if own < _FASTER * cores:
        told.append(f"no faster than FP64 FMA on the CUDA cores ({cores / 1e12:.0f})")
    if best and mma_rate(device, best) > _FASTER * own:
        told.append(f"{own / mma_rate(device, best):.2f} of the rate of {best} ({mma_rate(device, best) / 1e12:.0f})")
    return f"{MMA} does {own / 1e12:.0f} TFLOP/s on the {device.name}: {', and '.join(told)}" if told else None


def _beaten(legal: Sequence[tuple[Alternative, Cost]], winner: Cost) -> Iterator[str]:
    """Whether another schedule beats all of the paper's forms, and by what."""
    if not legal:
        return
    row, own = max(legal, key=lambda item: item[1].rate)
    if winner.rate <= own.rate:
        return
    name, steps = row.name, winner.steps_per_launch
    told = f"{winner.schedule.family} beats them all, {winner.rate:.0f} GS/s against {own.rate:.0f}: "
    if steps > own.steps_per_launch:
        told += (
            f"it reads and writes DRAM once for {plural(steps, 'step')} ({seconds(winner.terms['hbm'])}, "
            f"{seconds(winner.terms['hbm'] / steps)} a step) where theirs does so for "
            f"{plural(own.steps_per_launch, 'step')} ({seconds(own.terms['hbm'] / own.steps_per_launch)} a step); "
        )
    yield told + (
        f"bound by {winner.binds}, {seconds(winner.terms[winner.binds] / steps)} a step; the paper's best ({name}) by "
        f"{own.binds}, {seconds(own.terms[own.binds] / own.steps_per_launch)} a step"
    )
