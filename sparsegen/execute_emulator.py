"""Running passes on the emulator: same program, same numbers; says first when a run will take long, shows progress."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.execute import (
    SOURCES,
    TARGET,
    WORKSPACE,
    Bound,
    HostField,
    Plan,
    buffer_of,
    constant,
    launches,
)
from sparsegen.ir import warp
from sparsegen.ir.types import Buffer

if TYPE_CHECKING:
    from sparsegen.backends.emulator.report import Report
    from sparsegen.ir.module import Module
    from sparsegen.pipelines import Program

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
    """All passes of a plan from ``u`` to ``out`` (packed host arrays); KernelFault for an access out of bounds."""
    expected = estimate(plan, u.size)
    meter = None
    if expected > LONG:
        _warn(u.shape, plan, expected)
        meter = _Meter(plan)
    space: dict[str, HostField] = {}
    for role, nbytes in plan.workspaces.items():
        space[role] = np.zeros(-(-nbytes // out.itemsize), out.dtype)
    fields = {"out": out.reshape(-1), "field": space.get("field")}
    total, done, source = plan.passes, 0, u.reshape(-1)
    for program, passes in plan.parts:
        for _ in range(passes):
            target = fields[buffer_of(total, done)]
            assert target is not None
            if meter is not None:
                meter.begin(done)
            _pass(program.warp, source, target, CALL_CHECKS, meter)
            source, done = target, done + 1


def run_pass(program: Program, u: HostField, *, checks: bool) -> tuple[HostField, list[tuple[str, Report]]]:
    """One pass on ``u``: the new field, and the report of each launch by its kernel's name.

    With ``checks`` every checker is on, and a cell of the result that no launch wrote is an error as well.
    """
    from sparsegen.backends.emulator import ALL, Finding

    out = np.full(u.shape, np.nan, u.dtype)
    reports = _pass(program.warp, np.ascontiguousarray(u).reshape(-1), out.reshape(-1), ALL if checks else _COUNTING)
    if checks and np.isfinite(u).all() and (missing := int(np.isnan(out).sum())):
        where = tuple(int(i) for i in np.argwhere(np.isnan(out))[0])
        reports[-1][1].errors.append(
            Finding(
                "unwritten",
                f"{missing} cells of the result are not written or not a number, the first at {list(where)}",
                "report it: the tiles of this schedule do not cover the field",
                buffer="out",
                loc=program.warp.funcs[0].loc,
            )
        )
    return out, reports


_COUNTING = ("bounds", "conflicts")


def _pass(
    module: Module, source: HostField, target: HostField, checks: Iterable[str], progress: Progress | None = None
) -> list[tuple[str, Report]]:
    from sparsegen.backends.emulator import run

    space: dict[str, HostField] = {}
    reports = []
    for bound in launches(module):
        args: dict[str, Any] = {}
        for param, role in bound.roles:
            args[param.name] = _argument(module, param, role, source, target, space)
        report = run(bound.func, args, checks=checks, progress=progress, align=_aligned(bound))
        reports.append((bound.func.symbol, report))
        if "race" not in checks:
            report.raise_if_errors()
    return reports


def _argument(
    module: Module, param: Any, role: str, source: HostField, target: HostField, space: dict[str, HostField]
) -> Any:
    if role in SOURCES:
        return source
    if role == TARGET:
        return target
    if role.startswith(WORKSPACE) and isinstance(param, Buffer):
        if role not in space:
            dtype = param.dtype.numpy()
            space[role] = np.full(param.size, np.nan if param.dtype.kind == "float" else 0, dtype)
        return space[role]
    data = constant(module, role, param)
    return data if isinstance(param, Buffer) else data[0].item()


def _aligned(bound: Bound) -> dict[str, int]:
    """A user's field is only as aligned as its widest access; everything else comes from an allocator."""
    return {p.name: 16 for p, role in bound.roles if role in SOURCES or role == TARGET}


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


def estimate(plan: Plan, cells: int) -> float:
    """Seconds that a plan is expected to take on the emulator, within a factor of about three."""
    if cells * plan.passes < 1 << 20:  # far below a minute, whatever the schedule
        return 0.0
    seconds = 0.0
    for program, passes in plan.parts:
        seconds += passes * sum(lane_ops(b.func) for b in launches(program.warp)) * SECONDS_A_LANE_OP
    return seconds


def _warn(shape: tuple[int, ...], plan: Plan, expected: float) -> None:
    size = "x".join(map(str, shape))
    took = f"{expected / 60:.0f} minutes" if expected < 5400 else f"{expected / 3600:.1f} hours"
    warnings.warn(
        f"the emulator will take about {took} for {plan.passes} passes over {size} cells; faster: a smaller shape or "
        "fewer steps, backend='reference' for the numbers alone, or a GPU",
        SlowRunWarning,
        stacklevel=5,
    )


class _Meter:
    """Lines of progress on stderr, every few seconds."""

    def __init__(self, plan: Plan) -> None:
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


__all__ = ["SlowRunWarning", "estimate", "lane_ops", "run_emulator", "run_pass"]
