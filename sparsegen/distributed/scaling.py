"""Many GPUs by the same model: the best mesh and schedule of a form for each number of them, and the tables of it.

``python -m sparsegen.distributed.scaling`` prints the tables of ``docs/scaling.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sparsegen.choose import Request
from sparsegen.compiler import problem_of
from sparsegen.cost.devices import DeviceProfile, load_profile
from sparsegen.distributed.model import Exchange, predicted, split
from sparsegen.explain.units import seconds
from sparsegen.families.update.base import family
from sparsegen.ir.errors import ArrayError, ScheduleError, StencilError
from sparsegen.problem import Problem
from sparsegen.schedule import Schedule

#: Time steps of a run: no pass is longer.
_STEPS: Final = 100
#: Numbers of GPUs in the tables; how much longer than the suite's their fixed domains are on each axis.
_COUNTS: Final = (64, 256, 1024, 4096)
_LARGER: Final = 4
#: Share of its GPUs' speed below which a form is said not to scale any more.
ENOUGH: Final = 0.8


@dataclass(frozen=True)
class Planned:
    """A form on so many GPUs: its domain, the schedule of a pass and what one is predicted to take."""

    grid: tuple[int, ...]
    schedule: Schedule
    exchange: Exchange


def simulate(what: Any, block: Sequence[int], gpus: int, device: DeviceProfile, *, grow: bool = True) -> Planned:
    """What ``gpus`` GPUs are predicted to do for a stencil or an update.

    ``block``: the cells of each GPU's share if the domain grows with their number; else the whole domain's.  The
    domain is split along one axis, or two as evenly as their number allows.  ArrayError if no mesh fits.
    """
    found = list[Planned]()
    for mesh in _meshes(gpus, len(block)):
        ranks = (*mesh, *(1,) * (len(block) - len(mesh)))
        grid = tuple(n * r if grow else n for n, r in zip(block, ranks, strict=True))
        share = tuple(n // r for n, r in zip(grid, ranks, strict=True))
        with suppress(StencilError):  # a share that is thinner than the stencil is wide
            found += _plans(what, grid, share, mesh, device)
    if not found:
        raise ArrayError(
            f"no mesh of {gpus} GPUs fits {'x'.join(map(str, block))} cells", hint="take fewer, or a larger domain"
        )
    return min(found, key=lambda plan: plan.exchange.time / plan.exchange.steps)


def _plans(
    what: Any, grid: tuple[int, ...], share: tuple[int, ...], mesh: tuple[int, ...], device: DeviceProfile
) -> Iterator[Planned]:
    """One for each number of steps a pass, in one piece and in two."""
    whole, schedules = problem_of(what, share).at(grid), _schedules(what, share, device)
    for schedule, _ in schedules:
        try:
            one = split(whole, mesh, schedule)
            for turns in (1, 2) if one.halves() else (1,):
                yield Planned(grid, schedule, predicted(whole, device, one.in_turns(turns), schedule, share))
        except (ArrayError, ScheduleError):  # blocks too thin for so many steps
            continue


@cache
def _schedules(what: Any, share: tuple[int, ...], device: DeviceProfile) -> list[tuple[Schedule, float]]:
    """The cheapest schedule of each number of steps a pass on one GPU's share, and its seconds a time step."""
    problem: Problem = problem_of(what, share)
    found = dict[int, tuple[Schedule, float]]()
    for cost in problem.options(None, device, Request(_STEPS)).costs:
        s = cost.schedule
        if s.op != "update" or not family(s).whole:
            free = s.but(**{word.name: None for word in s.rules.words if word.auto})
            found.setdefault(cost.steps_per_launch, (free, cost.time_per_step))
    return list(found.values())


def _meshes(gpus: int, axes: int) -> list[tuple[int, ...]]:
    """One axis, and the two that are most alike with the longer one first."""
    narrow = next(n for n in range(int(gpus**0.5), 0, -1) if gpus % n == 0)
    return [(gpus,), *([(gpus // narrow, narrow)] if axes > 1 and narrow > 1 else [])]


def _alone(what: Any, share: tuple[int, ...], device: DeviceProfile) -> float:
    """Seconds a time step of one GPU for its share."""
    return min(cost for _, cost in _schedules(what, share, device))


def tables(device: str = "h100") -> str:
    """The tables of ``docs/scaling.md`` in Markdown, and of each form where it stops scaling."""
    from sparsegen.bench.distributed import FORMS

    profile = load_profile(device)
    blocks = list[str]()
    for form in FORMS:
        share = (form.shape[0] // 2, *form.shape[1:])
        one = _alone(form.what, share, profile) / math.prod(share)
        for grow, size in ((True, share), (False, tuple(_LARGER * n for n in form.shape))):
            blocks.append(_table(form.name, form.what, size, one, profile, grow=grow))
    return "\n\n".join(blocks)


def _table(name: str, what: Any, size: tuple[int, ...], one: float, device: DeviceProfile, *, grow: bool) -> str:
    """A line for each number of GPUs; ``one``: seconds a cell and time step of one GPU with much to do."""
    lines, last = list[str](), 0
    for count in _COUNTS:
        plan = simulate(what, size, count, device, grow=grow)
        ex, step = plan.exchange, plan.exchange.time / plan.exchange.steps
        efficiency = one * math.prod(plan.grid) / count / step
        last = count if efficiency >= ENOUGH else last
        lines.append(
            f"| {count} | {'x'.join(map(str, ex.mesh))} | {seconds(step)} | {efficiency:.0%} | {ex.sent / 1e6:.2f} | "
            f"{ex.hidden:.0%} | `{plan.schedule}` |"
        )
    if last == _COUNTS[-1]:
        end = f"No number of GPUs that was tried is too many: all have {ENOUGH:.0%} or more."
    elif last:
        end = f"**It scales up to {last} GPUs** of the numbers tried; with more the efficiency is below {ENOUGH:.0%}."
    else:
        end = f"**It does not scale**: the efficiency is below {ENOUGH:.0%} from {_COUNTS[0]} GPUs on."
    return "\n".join([
        f"### {name}, {'×'.join(map(str, size))} cells {'a GPU' if grow else 'in all'}", "",
        "| GPUs | mesh | a time step | efficiency | MB a pass a GPU | hidden | schedule |",
        "| ---: | --- | ---: | ---: | ---: | ---: | --- |", *lines, "", end,
    ])  # fmt: skip


if __name__ == "__main__":
    print(tables())
