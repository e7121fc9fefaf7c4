"""``sg.tune``: schedules that the model has as the cheapest, measured side by side on the GPU; the fastest is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsegen.arguments import positive
from sparsegen.callsite import located, user_loc
from sparsegen.compiler import NonFinite, compile, described
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import Update
from sparsegen.ir.errors import ScheduleError
from sparsegen.kernel import Kernel
from sparsegen.products.product import Product
from sparsegen.products.sddmm import Sampled
from sparsegen.target import measurable, resolve
from sparsegen.tuning import store
from sparsegen.tuning.problem import Facts, facts
from sparsegen.tuning.race import Entry, build, race
from sparsegen.tuning.store import Record, Trial

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

#: The kernel with a schedule: a line, or a schedule itself.
Make = Callable[[Any], Kernel]


def tune(
    stencil: Stencil | Update | Product | Sampled,
    shape: Sequence[int] = (),
    steps: int = 1,
    device: str | Path | DeviceProfile = "auto",
    nonfinite: NonFinite = "any",
    *,
    batch: int | None = None,
    shared: str | Sequence[str] = (),
    top: int = 12,
    repeats: int = 9,
    again: bool = False,
) -> Kernel:
    """The kernel whose schedule is the fastest on this machine's GPU; arguments as of :func:`sparsegen.compile`.

    The ``top`` schedules that the model has as the cheapest, the best of each family among them if they fit, are
    compiled at the same time and called in turn, ``repeats`` rounds on random numbers; the least median wins.  It is
    remembered in the cache's folder, for this problem, GPU and version of sparsegen: the next call measures nothing
    unless it asks for more candidates, or for everything anew (``again=True``).  The kernel's ``measured`` is the time.

    A candidate that fails is left out; if all do, the first one's error is raised.  DeviceError without a GPU; other
    errors as in ``compile``.
    """
    with located(user_loc()):
        count, rounds = positive(top, "top", ScheduleError), positive(repeats, "repeats", ScheduleError)
        gpu = measurable(device)

        def make(schedule: Any) -> Kernel:
            return compile(stencil, shape, steps, device, "cuda", schedule, nonfinite, batch, shared)

        problem, request = described(stencil, shape, steps, nonfinite, batch=batch, shared=shared)
        costs = problem.options(None, resolve(device).profile, request).costs
        mine = [Entry(c.schedule, problem.seconds(c, request.steps)) for c in costs if not c.schedule.rules.library]
        entries = sorted(mine, key=lambda entry: entry.predicted)
        if not entries:
            return make("auto")  # says why there is none
        known = facts(problem, request, gpu)
        record = None if again else store.recall(known)
        kernel = None if record is None or record.top < min(count, len(entries)) else _as_before(record, make)
        if kernel is None:
            chosen = shortlist(entries, count)
            build(chosen, make)
            race(chosen, rounds)
            record = _record(known, count, chosen)
            store.remember(record)
            kernel = _made(record, make)
        library = min((c for c in costs if c.schedule.rules.library), key=lambda c: c.time, default=None)
        if library is not None and kernel.measured is not None and library.time < kernel.measured:
            return make(library.schedule)
        return kernel


def shortlist(entries: Sequence[Entry], most: int) -> list[Entry]:
    """The cheapest of candidates in order, ``most`` of them, with the cheapest of each family if they fit."""
    best: dict[str, Entry] = {}
    for entry in entries:
        best.setdefault(entry.schedule.family, entry)
    chosen = {id(entry) for entry in [*best.values()][:most]}
    for entry in entries:
        if len(chosen) == most:
            break
        chosen.add(id(entry))
    return [entry for entry in entries if id(entry) in chosen]


def _record(problem: Facts, top: int, entries: Sequence[Entry]) -> Record:
    """What came out of the race; the first error if nobody finished."""
    finished = [entry for entry in entries if entry.measured is not None]
    if not finished:
        raise next(entry.error for entry in entries if entry.error is not None)
    best = min(finished, key=lambda entry: entry.measured or 0.0)
    trials = tuple(
        Trial(str(e.schedule), e.predicted, e.measured, e.spread, None if e.error is None else e.error.message)
        for e in entries
    )
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Record(problem, str(best.schedule), best.measured or 0.0, best.predicted, date, top, trials)


def _made(record: Record, make: Make) -> Kernel:
    kernel = make(record.schedule)
    kernel.measured = record.measured
    return kernel


def _as_before(record: Record, make: Make) -> Kernel | None:
    """The kernel that was the fastest; None where its schedule is refused by now."""
    try:
        return _made(record, make)
    except ScheduleError:
        return None
