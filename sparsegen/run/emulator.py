"""Running plans on the emulator: same programs, same numbers; says first when a run will take long, shows progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from sparsegen.backends.emulator import ALL, Finding, Report
from sparsegen.backends.emulator import run as emulate
from sparsegen.ir.grid import Grid
from sparsegen.ir.module import Module
from sparsegen.ir.op import Stencil
from sparsegen.ir.op_update import ALL_SCALARS, SCALARS, Update
from sparsegen.ir.types import Buffer
from sparsegen.pipelines import Program
from sparsegen.plan import (
    COUNTER,
    KEPT,
    OUT,
    SCRATCH,
    Plan,
    buffers,
    constant,
    launches,
    rows_of,
    with_rows,
)
from sparsegen.run.estimate import lane_ops
from sparsegen.run.host import Arrays, HostArray, flat, results
from sparsegen.run.slow import say_if_long

#: Seconds between two lines of progress.
PROGRESS_EVERY = 5.0
#: What a warp-level op costs a lane, in seconds: measured on one core of a 2024 server (0.2 to 0.5 ns by op).
SECONDS_A_LANE_OP = 4e-9
#: Checks of an ordinary call: those that keep a faulty program inside its arrays.  ``k.check`` has all of them.
CALL_CHECKS = ("bounds",)
#: What exact counts need.
COUNTING = ("bounds", "conflicts")
#: What lies between the rows of an output before a pass, and after it.
_UNTOUCHED = 77

Progress = Callable[[int, int], None]
Reports = list[tuple[str, Report]]


def run_plan(plan: Plan, given: Arrays, new: Arrays, work: str, cells: int) -> None:
    """All passes of a plan (made for packed arrays) from ``given`` to ``new``; KernelFault for an access out of bounds.

    Arrays that are not packed are copied.  A workspace begins as NaN, so that nobody can take what lies between padded
    rows for data.  ``work`` (of ``cells`` cells) says in a warning what takes long.
    """
    meter = slow_run(plan, given, work, cells)
    with results(new) as made:
        where = {name: flat(a) for name, a in given.items()} | made
        where |= {name: poisoned(space.size, space.dtype, name) for name, space in plan.workspaces.items()}
        for index, (program, arrays) in enumerate(passes(plan, where)):
            if meter is not None:
                meter.begin(index)
            run_module(program.warp, arrays, CALL_CHECKS, meter)


def passes(plan: Plan, where: Arrays) -> Iterator[tuple[Program, dict[str, HostArray]]]:
    """All passes of a plan in order, each with the (flat) arrays of its roles; ``where``: every array by name."""
    done = 0
    for step in plan.run():
        program, arrays = step.program, {role: where[name] for role, name in step.arrays}
        for role, row in rows_of(program).items():
            arrays[role] = arrays[role][plan.before(program, done) * row.size :][: row.param.size]
        yield program, arrays | _scalars(plan, program, done)
        done += program.steps


def pitches(program: Program) -> dict[str, int]:
    """Elements from row to row of each array of a pass over a grid, by role; nothing for other programs."""
    (op,) = program.op.funcs
    return dict(zip(op.roles, op.pitch, strict=True)) if isinstance(op, (Stencil, Update)) else {}


def _with_ghosts(program: Program) -> dict[str, Grid]:
    """The arrays of a pass whose rows have ghosts, by role."""
    (op,) = program.op.funcs
    return {role: grid for role, grid in op.grids.items() if grid.ghosts} if isinstance(op, Update) else {}


def _spare(program: Program) -> set[str]:
    """The roles of arrays of which what lies behind the cells of a row is nobody's."""
    (op,) = program.op.funcs
    return {role for role, spare in zip(op.roles, op.spare, strict=False) if spare} if isinstance(op, Update) else set()


def _around(rows: HostArray, ghosts: int) -> HostArray:
    """Rows with so many of their last cells before the first one, and of the first ones behind the last."""
    return np.pad(rows, ((0, 0), (ghosts, ghosts)), mode="wrap")


def _held(grid: Grid) -> tuple[slice, int, HostArray]:
    """Of a row its cells with their ghosts, how many of these are before the first one, and which elements are none."""
    held, between = slice(grid.lead - grid.ghosts, grid.lead + grid.extent[-1] + grid.ghosts), np.ones(grid.pitch, bool)
    between[held] = False
    return held, grid.ghosts, between


def run_pass(program: Program, given: Arrays, *, checks: bool) -> tuple[dict[str, HostArray], Reports]:
    """One pass on ``given`` (by role): each result, packed, and the report of each launch by its kernel.

    The pass runs on rows as far apart as it was lowered for, with their ghosts.  With ``checks`` every checker is on,
    and a write between the rows of a result (where that is not spare), a ghost that is not as its cell, or an integer
    of the workspace that is not left as zero, is an error as well.
    """
    program = with_rows(program, program.steps)
    apart, timed, fields, made = pitches(program), rows_of(program), dict[str, HostArray](), dict[str, HostArray]()
    ghosts, spare = _with_ghosts(program), _spare(program)
    first = next(given[role] for role in (*apart, *given) if role in given)  # tables, which are flat, come later
    cols = first.shape[-1]
    for role, param in buffers(program.warp):
        pitch = apart.get(role)
        if pitch is None:
            own = given[role][..., : program.steps, :] if role in timed and role in given else given.get(role)
            fields[role] = poisoned(param.size, param.dtype.numpy(), role) if own is None else flat(own)
        else:
            size = given[role].size if role in given else first.size  # what items of a batch share is one item's
            fields[role] = poisoned(size // cols * pitch, first.dtype)
            held, beside, between = _held(ghosts.get(role, Grid((cols,), pitch)))
            rows = fields[role].reshape(-1, pitch)
            if role in given:
                rows[:, held] = _around(given[role].reshape(-1, cols), beside)
            else:
                rows[:, between] = _UNTOUCHED
        if role.startswith(OUT):
            made[role] = fields[role]
    fields |= {role: a for role, a in given.items() if role in (SCALARS, ALL_SCALARS)}
    reports = run_module(program.warp, fields, ALL if checks else COUNTING)

    for role, pitch in apart.items():
        if role in made:
            held, beside, between = _held(ghosts.get(role, Grid((cols,), pitch)))
            rows = made[role].reshape(-1, pitch)
            own = np.ascontiguousarray(rows[:, held][:, beside : beside + cols])
            if checks and role not in spare and not (rows[:, between] == _UNTOUCHED).all():
                what = "elements between the rows of the output are written"
                _found(reports, program, "bounds", role, what, "report it: a store is not clipped")
            if checks and not np.array_equal(rows[:, held], _around(own, beside), equal_nan=True):
                what = "ghosts beside the rows of the output are not as the cells that they stand for"
                _found(reports, program, "ghosts", role, what, "report it: what stores a cell stores its ghosts")
            made[role] = own.reshape(first.shape)
    for role, a in fields.items():
        if checks and role == COUNTER and a.any():
            what = "the counter of arrivals is not zero at the end"
            _found(reports, program, "workspace", role, what, "report it: the next call would go wrong")
    return made, reports


def _found(reports: Reports, program: Program, kind: str, role: str, what: str, remedy: str) -> None:
    reports[-1][1].errors.append(Finding(kind, what, remedy, buffer=role, loc=program.warp.funcs[0].loc))


def _scalars(plan: Plan, program: Program, done: int) -> dict[str, HostArray]:
    """Those of a pass after so many time steps, by their role; all of them where it makes all steps."""
    if plan.scalars is None:
        return {}
    found = plan.numbers(program, done)
    return {ALL_SCALARS: plan.scalars.reshape(-1)} if found is None else {SCALARS: found}


def check(plan: Plan, given: Arrays, wanted: Callable[[int], Arrays]) -> Report:
    """A pass of every program of a plan on ``given`` with all checkers: the sum of the reports.

    An element of a result that is not a number where the reference has one was not written: an error as well.
    ``wanted`` works out the reference's results after so many time steps.
    """
    total = Report()
    # a role that is no array's name is that of the array that is bound to it, in the first pass if not in a later one
    own = {role: given[name] for step in reversed(plan.firsts) for role, name in step.arrays if name in given}
    for step in plan.firsts:
        program, names = step.program, dict(step.arrays)
        mine = {role: given[name] for role, name in step.arrays if name in given}
        made, reports = run_pass(program, {**own, **given, **mine, **_scalars(plan, program, 0)}, checks=True)
        finite = all(np.isfinite(a).all() for a in given.values() if a.dtype.kind not in "iu")
        for role, got in made.items():
            if not finite or not unwritten(got).any():
                continue
            want = wanted(program.steps) if program.steps else {}  # a copy makes no step
            known = [want[name] for name in (role, f"{role}.0", names[role]) if name in want]
            # what lies in a workspace after the first pass has no reference: all of it must be written
            expected = known[0] if known else np.zeros_like(got)
            got = got.reshape(expected.shape)
            missing = unwritten(got) & ~unwritten(expected)
            if got.dtype.kind == "u":  # a byte may be rounded to the one that marks what is not written
                missing &= np.abs(got.astype(int) - expected) > 1
            if missing.any():
                name, where = "the result" if role == OUT else role, np.argwhere(missing)[0].tolist()
                what = f"{int(missing.sum())} elements of {name} are not written or not a number, the first at {where}"
                remedy = "report it: the tiles of this schedule do not cover the result, or read between its rows"
                _found(reports, program, "unwritten", role, what, remedy)
        for _, report in reports:
            total = total + report
    return total


def poisoned(size: int, dtype: Any, role: str = "") -> HostArray:
    """An array that nobody can take for data: NaN, or integers that hardly come about; counters are zero."""
    return np.zeros(size, dtype) if role.startswith((COUNTER, KEPT)) else np.full(size, poison(dtype), dtype)


def poison(dtype: Any) -> Any:
    """What an element is that was not written."""
    kind = np.dtype(dtype)
    return np.iinfo(kind).max // 3 if kind.kind in "iu" else np.nan


def unwritten(a: HostArray) -> HostArray:
    """Which elements look as if they were not written."""
    mark = poison(a.dtype)
    found: HostArray = a == mark if a.dtype.kind in "iu" else np.isnan(a)
    return found


def run_module(
    module: Module, fields: Mapping[str, HostArray], checks: Iterable[str], progress: Progress | None = None
) -> Reports:
    """All launches of a pass between the (flat) arrays of its roles: the report of each, by its kernel's name.

    Workspaces that are not given are made.  KernelFault for what the checks find, unless they are those of ``k.check``
    (``race`` is one).
    """
    space: dict[str, HostArray] = {}
    reports: Reports = []
    for bound in launches(module):
        args: dict[str, Any] = {}
        for param, role in bound.roles:
            if role in fields:
                args[param.name] = _seen_as(param, fields[role])
            elif role.startswith(SCRATCH) and isinstance(param, Buffer):
                if role not in space:
                    space[role] = poisoned(param.size, param.dtype.numpy(), role)
                args[param.name] = _seen_as(param, space[role])
            else:
                data = constant(module, role, param)
                args[param.name] = data if isinstance(param, Buffer) else data[0].item()
        aligned = {p.name: 16 for p, role in bound.roles if role in fields}  # a user's field is no better aligned
        report = emulate(bound.func, args, checks=checks, progress=progress, align=aligned)
        reports.append((bound.func.symbol, report))
        if "race" not in checks:
            report.raise_if_errors()
    return reports


def _seen_as(param: Any, array: HostArray) -> HostArray:
    """The array as a parameter takes it: bytes perhaps as words."""
    dtype = param.dtype.numpy()
    return array if array.dtype == dtype else array.view(dtype)


# ------------------------------------------------------------------------------------------------ how long
def slow_run(plan: Plan, given: Arrays, work: str, cells: int) -> Meter | None:
    """For a run that will take long: a warning that says so, and what will show its progress."""
    work = f"{work}, backend='reference' for the numbers alone, or a GPU"
    return Meter(plan) if say_if_long(estimate(plan, given, cells), "emulator", work) else None


def estimate(plan: Plan, given: Arrays, cells: int) -> float:
    """Seconds that a plan is expected to take on the emulator with the given arrays, within a factor of about three."""
    if cells * max(plan.passes, plan.steps) < 1 << 20:  # far below a minute, whatever the schedule
        return 0.0
    ops = (
        passes * lane_ops(bound, {**given, **program.warp.constants})
        for program, passes in plan.programs
        for bound in launches(program.warp)
    )
    return sum(ops) * SECONDS_A_LANE_OP


class Meter:
    """Lines of progress on stderr, every few seconds."""

    def __init__(self, plan: Plan) -> None:
        self._launches = [len(step.program.warp.launches) for step in plan.run()]
        self._start = self._last = time.monotonic()
        self._before = self._launch = 0
        self._total = sum(self._launches)

    def begin(self, index: int) -> None:
        """Pass ``index`` begins."""
        self._before, self._launch = sum(self._launches[:index]), 0

    def __call__(self, done: int, blocks: int) -> None:
        """``done`` of the blocks of the present launch have run."""
        now = time.monotonic()
        share = (self._before + self._launch + done / blocks) / self._total
        if done == blocks:
            self._launch += 1
        if now - self._last >= PROGRESS_EVERY and share < 1:
            self._last = now
            left = (now - self._start) / share * (1 - share)
            print(f"sparsegen: emulator {share:.0%} done, about {left:.0f} s left", file=sys.stderr, flush=True)
