"""General updates on the host: the emulator and the reference, checks and exact counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.execute import HostField
from sparsegen.updates.pipelines import describe
from sparsegen.updates.plan import Step, UpdatePlan, identity, inputs, outputs

if TYPE_CHECKING:
    from sparsegen.backends.emulator.report import Report
    from sparsegen.counting import Counts
    from sparsegen.dsl.update import Update
    from sparsegen.updates.schedule import UpdateSchedule

Arrays = Mapping[str, HostField]


def run_emulator(plan: UpdatePlan, given: Arrays, results: Arrays) -> None:
    """All launches of a plan (made for packed arrays); KernelFault for an access out of bounds.

    ``given`` and ``results`` by the names of :mod:`sparsegen.updates.plan`; those with padded rows are copied.  A
    workspace begins as NaN.
    """
    from sparsegen.execute_emulator import CALL_CHECKS, run_module, slow_run

    first = next(iter(results.values()))
    meter = slow_run(plan, first.shape)
    packed = {n: a if a.flags.c_contiguous else np.empty(a.shape, a.dtype) for n, a in results.items()}
    where = {n: np.ascontiguousarray(a).reshape(-1) for n, a in given.items()}
    where |= {n: a.reshape(-1) for n, a in packed.items()}
    where |= {n: np.full(size // first.itemsize, np.nan, first.dtype) for n, size in plan.workspaces.items()}
    for index, step in enumerate(plan.run()):
        if meter is not None:
            meter.begin(index)
        run_module(step.program.warp, _bound(step, where), CALL_CHECKS, meter)
    for name, a in results.items():
        if packed[name] is not a:
            a[...] = packed[name]


def _bound(step: Step, where: Arrays) -> dict[str, HostField]:
    return {role: where[array] for role, array in step.arrays}


def run_reference(update: Update, given: Arrays, results: Arrays, steps: int) -> None:
    """The steps in plain NumPy, into ``results``."""
    from sparsegen.backends.reference.update import run
    from sparsegen.ir.op_update import Update as Op

    (op,) = describe(update, next(iter(results.values())).shape).funcs
    assert isinstance(op, Op)
    fields = {name: tuple(given[f"in.{name}.{k}"] for k in range(levels)) for name, levels in update.fields}
    new = run(op, fields, {name: given[f"in.{name}.0"] for name in update.coefs}, steps)
    for name, levels in new.items():
        for k, level in enumerate(levels):
            results[f"out.{name}.{k}"][...] = level


def check(update: Update, plan: UpdatePlan, given: Arrays) -> Report:
    """The first launch of a plan (made for packed arrays) with all checkers; all steps run the same program.

    A cell of a result that is not a number where the reference has one was not written: an error as well.
    """
    from sparsegen.backends.emulator import ALL, Finding
    from sparsegen.execute_emulator import run_module

    step, some = plan.at(1), next(iter(given.values()))
    where = {n: np.ascontiguousarray(a).reshape(-1) for n, a in given.items()}
    new = {array: np.full(some.shape, np.nan, some.dtype) for role, array in step.arrays if role.startswith("out.")}
    where |= {n: a.reshape(-1) for n, a in new.items()}
    ((_, report),) = run_module(step.program.warp, _bound(step, where), ALL)
    want = {name: np.empty(some.shape, some.dtype) for name in outputs(update)}
    run_reference(update, given, want, 1)
    for role, array in step.arrays:
        if role.startswith("out."):
            missing = np.isnan(new[array]) & ~np.isnan(want[f"{role}.0"])
            if missing.any():
                where_ = [int(i) for i in np.argwhere(missing)[0]]
                message = f"{int(missing.sum())} cells of {role} are not written or not a number, the first at {where_}"
                loc = step.program.warp.funcs[0].loc
                remedy = "report it: the tiles of this schedule do not cover the field"
                report.errors.append(Finding("unwritten", message, remedy, buffer=role, loc=loc))
    return report


def counts(update: Update, plan: UpdatePlan, shape: tuple[int, ...], dtype: Any, schedule: UpdateSchedule) -> Counts:
    """Exact counts of every launch of a plan between packed arrays, from the emulator or, if large, by formula."""
    from sparsegen.counting import Counts, LaunchCounts, emulated
    from sparsegen.execute_emulator import COUNTING, run_module

    if not emulated(math.prod(shape)):
        from sparsegen.updates.counts import launch

        copies = {id(s.program) for s in plan.copies}
        made = ((launch(identity(update) if id(p) in copies else update, shape, schedule), n) for p, n in plan.parts)
        return Counts(tuple(LaunchCounts(one.kernel, n, dict(one.counts)) for one, n in made), plan.count)
    seen: dict[int, Step] = {id(s.program): s for s in (*plan.head, *plan.cycle, *plan.copies)}
    found: list[LaunchCounts] = []
    for program, times in plan.parts:
        roles = [role for role, _ in seen[id(program)].arrays]
        fields = {role: np.zeros(shape, dtype).reshape(-1) for role in roles}
        for name, report in run_module(program.warp, fields, COUNTING):
            found.append(LaunchCounts(name, times, dict(report.counts)))
    return Counts(tuple(found), plan.count)


def random_arrays(update: Update, shape: tuple[int, ...], dtype: Any, seed: int = 0) -> dict[str, HostField]:
    """Every input, random numbers from 0 to 1."""
    rng = np.random.default_rng(seed)
    return {name: rng.random(shape).astype(dtype) for name in inputs(update)}
