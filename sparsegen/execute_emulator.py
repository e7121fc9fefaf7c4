"""Running passes on the emulator: same program, same numbers; says first when a run will take long, shows progress."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.execute import SOURCE, TARGET, WORKSPACE, HostField, Plan, constant, launches, pitches
from sparsegen.ir import warp
from sparsegen.ir.types import Buffer

if TYPE_CHECKING:
    from sparsegen.backends.emulator.report import Report
    from sparsegen.ir.module import Module
    from sparsegen.pipelines import Program
    from sparsegen.updates.plan import UpdatePlan

#: A run that is expected to last longer (seconds) says so first.
LONG = 60.0
#: Seconds between two lines of progress.
PROGRESS_EVERY = 5.0
#: What a warp-level op costs a lane, in seconds: measured on one core of a 2024 server (0.2 to 0.5 ns by op).
SECONDS_A_LANE_OP = 4e-9
#: Checks of an ordinary call: those that keep a faulty program inside its arrays.  ``k.check`` has all of them.
CALL_CHECKS = ("bounds",)

Progress = Callable[[int, int], None]


class SlowRunWarning(RuntimeWarning):
    """The emulator will be busy for more than a minute."""


def run_emulator(plan: Plan, u: HostField, out: HostField) -> None:
    """All passes of a plan (made for packed arrays) from ``u`` to ``out``; KernelFault for an access out of bounds.

    Arrays with padded rows are copied.  A workspace begins as NaN, so that nobody can take what lies between padded
    rows for data.
    """
    meter = slow_run(plan, u.shape)
    packed = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    fields = {TARGET: packed.reshape(-1)}
    for role, nbytes in plan.workspaces.items():
        if not role.startswith(WORKSPACE):  # those live as long as a pass
            fields[role] = _poisoned(nbytes // out.itemsize, out.dtype)
    done, source = 0, np.ascontiguousarray(u).reshape(-1)
    for program, passes in plan.parts:
        for _ in range(passes):
            target = fields[plan.target(done)]
            if meter is not None:
                meter.begin(done)
            run_module(program.warp, {SOURCE: source, TARGET: target}, CALL_CHECKS, meter)
            source, done = target, done + 1
    if packed is not out:
        out[...] = packed


def run_pass(program: Program, u: HostField, *, checks: bool) -> tuple[HostField, list[tuple[str, Report]]]:
    """One pass on ``u``: the new field (packed), and the report of each launch by its kernel's name.

    The pass runs on rows as far apart as it was lowered for.  With ``checks`` every checker is on, and a cell of the
    result that no launch wrote, or a write between its rows, is an error as well.
    """
    from sparsegen.backends.emulator import ALL, Finding

    rows, cols = u.size // u.shape[-1], u.shape[-1]
    apart, apart_out = pitches(program)
    source = _poisoned(rows * apart, u.dtype)
    source.reshape(rows, apart)[:, :cols] = u.reshape(rows, cols)
    target = _poisoned(rows * apart_out, u.dtype)
    between = target.reshape(rows, apart_out)[:, cols:]
    between[...] = _UNTOUCHED
    reports = run_module(program.warp, {SOURCE: source, TARGET: target}, ALL if checks else COUNTING)
    out = np.ascontiguousarray(target.reshape(rows, apart_out)[:, :cols]).reshape(u.shape)

    def found(kind: str, message: str, remedy: str) -> None:
        loc = program.warp.funcs[0].loc
        reports[-1][1].errors.append(Finding(kind, message, remedy, buffer="out", loc=loc))

    if checks and np.isfinite(u).all() and (missing := int(np.isnan(out).sum())):
        where = [int(i) for i in np.argwhere(np.isnan(out))[0]]
        found(
            "unwritten",
            f"{missing} cells of the result are not written or not a number, the first at {where}",
            "report it: the tiles of this schedule do not cover the field, or read between its rows",
        )
    if checks and not (between == _UNTOUCHED).all():
        found("bounds", "elements between the rows of the output are written", "report it: a store is not clipped")
    return out, reports


#: What lies between the rows of an output before a pass, and after it.
_UNTOUCHED = -77.0


def _poisoned(cells: int, dtype: Any) -> HostField:
    return np.full(cells, np.nan, dtype)


#: What exact counts need.
COUNTING = ("bounds", "conflicts")


def run_module(
    module: Module, fields: Mapping[str, HostField], checks: Iterable[str], progress: Progress | None = None
) -> list[tuple[str, Report]]:
    """All launches of a pass between the (flat) fields of its roles: the report of each, by its kernel's name.

    KernelFault for what the checks find, unless they are those of ``k.check`` (``race`` is one).
    """
    from sparsegen.backends.emulator import run

    space: dict[str, HostField] = {}
    reports = []
    for bound in launches(module):
        args: dict[str, Any] = {}
        for param, role in bound.roles:
            args[param.name] = _argument(module, param, role, fields, space)
        aligned = {p.name: 16 for p, role in bound.roles if role in fields}  # a user's field is no better aligned
        report = run(bound.func, args, checks=checks, progress=progress, align=aligned)
        reports.append((bound.func.symbol, report))
        if "race" not in checks:
            report.raise_if_errors()
    return reports


def _argument(
    module: Module, param: Any, role: str, fields: Mapping[str, HostField], space: dict[str, HostField]
) -> Any:
    if role in fields:
        return fields[role]
    if role.startswith(WORKSPACE) and isinstance(param, Buffer):
        if role not in space:
            dtype = param.dtype.numpy()
            space[role] = np.full(param.size, np.nan if param.dtype.kind == "float" else 0, dtype)
        return space[role]
    data = constant(module, role, param)
    return data if isinstance(param, Buffer) else data[0].item()


# ------------------------------------------------------------------------------------------------ how long
def lane_ops(func: warp.Func) -> float:
    """Roughly how many warp-level ops all lanes of a launch run: loops with constant bounds are multiplied out."""

    def cost(ops: tuple[Any, ...]) -> float:
        total = 0.0
        for op in ops:
            if isinstance(op, warp.For):
                trips = max(1, -(-(op.stop.hi - op.start.lo) // max(1, op.step.lo)))
                total += trips * cost(op.body)
            elif isinstance(op, warp.If):
                total += cost(op.then) + cost(op.orelse) / 2
            elif isinstance(op, warp.Loop):
                total += cost(op.body)
            else:
                total += 1.0
        return total

    blocks = func.grid[0] * func.grid[1] * func.grid[2]
    return cost(func.body) * blocks * func.threads


def slow_run(plan: Plan | UpdatePlan, shape: tuple[int, ...]) -> Meter | None:
    """For a run that will take long: a warning that says so, and what will show its progress."""
    expected = estimate(plan, int(np.prod(shape)))
    if expected <= LONG:
        return None
    _warn(shape, plan, expected)
    return Meter(plan)


def estimate(plan: Plan | UpdatePlan, cells: int) -> float:
    """Seconds that a plan is expected to take on the emulator, within a factor of about three."""
    if cells * plan.passes < 1 << 20:  # far below a minute, whatever the schedule
        return 0.0
    seconds = 0.0
    for program, passes in plan.parts:
        seconds += passes * sum(lane_ops(b.func) for b in launches(program.warp)) * SECONDS_A_LANE_OP
    return seconds


def _warn(shape: tuple[int, ...], plan: Plan | UpdatePlan, expected: float) -> None:
    size = "x".join(map(str, shape))
    took = f"{expected / 60:.0f} minutes" if expected < 5400 else f"{expected / 3600:.1f} hours"
    warnings.warn(
        f"the emulator will take about {took} for {plan.passes} passes over {size} cells; faster: a smaller shape or "
        "fewer steps, backend='reference' for the numbers alone, or a GPU",
        SlowRunWarning,
        stacklevel=6,
    )


class Meter:
    """Lines of progress on stderr, every few seconds."""

    def __init__(self, plan: Plan | UpdatePlan) -> None:
        self._launches = [len(p.warp.launches) for p, n in plan.parts for _ in range(n)]
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


__all__ = ["SlowRunWarning", "estimate", "lane_ops", "run_emulator", "run_module", "run_pass"]
