"""How general updates are measured: checked against NumPy on a small grid and against one step a launch, then timed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.bench import floors, onchip, sites
from sparsegen.bench.harness import TOLERANCE, Suite
from sparsegen.bench.lab import SECONDS, DeviceField, Lab, Timing
from sparsegen.bench.stencil_run import Case, Row, Stencils, labels, ready, relative
from sparsegen.dsl.update import Update

if TYPE_CHECKING:
    from sparsegen.kernel import Kernel

#: The grid of the check against NumPy: nothing divides it, and some schedules have several blocks on it.
SMALL = {1: (3001,), 2: (131, 517), 3: (21, 37, 141)}
#: Random numbers of coefficients and signals, and of fields, end here: waves are stable then, and reactions do not run
#: away.
MOST, HIGHEST = 0.1, 0.5


class Updates(Suite[Case, Row]):
    """Updates by schedules, next to one another."""

    row = Row

    def __init__(self, lab: Lab, seed: int = 0, seconds: float = SECONDS) -> None:
        super().__init__(lab, seed, seconds)
        self._rates = dict[Case, float]()

    def build(self, case: Case) -> tuple[Kernel, Kernel, Kernel]:
        """The kernel of a case, that of the same schedule on a small grid, and one step a launch on the whole one."""
        kernel = ready(case.stencil, case.shape, case.schedule, case.steps)
        steps = 2 * getattr(kernel.cost.schedule, "every", kernel.schedule.levels) + 1
        words = {word.name: None for word in kernel.schedule.rules.words if word.auto}
        grid = SMALL[len(case.shape)]
        same = sites.moved(kernel.update, case.shape, grid)
        small = ready(same, grid, str(kernel.schedule.but(**words)), steps)
        return kernel, small, ready(case.stencil, case.shape, "direct", steps)

    def labels(self, case: Case, seed: int = 0) -> dict[str, Any]:
        """What every row says of its case, its target and its floor."""
        floor = floors.best(self.floors, case.floor)
        return labels(relative(case, self._rates), case.schedule, floor)

    def _small(self, kernel: Kernel, seed: int) -> float:
        """How far a kernel's results are from the reference's, on a small grid with random input."""
        import sparsegen as sg

        update, given = kernel.update, random(kernel.update, kernel.shape, kernel.dtype, seed, kernel.steps)
        want = sg.compile(update, kernel.shape, kernel.steps, backend="reference")(**given)
        return max(off(a, b) for a, b in zip(flat(kernel(**given)), flat(want), strict=True))

    def measure(self, case: Case, kernel: tuple[Kernel, Kernel, Kernel], seed: int = 0) -> Row:
        """Check, then time a case."""
        lab, (fast, small, plain) = self.lab, kernel
        update, work = fast.update, math.prod(case.shape) * case.steps / 1e9
        error = self._small(small, seed)
        with arrays(lab, update, fast.shape, fast.dtype, seed, max(fast.steps, plain.steps)) as (given, out, other):
            (first, made), (_, want) = (begun(update, given, to, plain.steps) for to in (out, other))
            fast(**first, out=made, steps=plain.steps)
            plain(**first, out=want)
            error = max(error, apart(lab, made, want, update.dtype))
            given, out = begun(update, given, out, fast.steps)
            calls = onchip.CALLS if fast.schedule.family == "resident" else 1
            timing = Timing.of(lab.times(lambda: fast(**given, out=out), self.seconds, calls=calls))
        uses = fast.resources()
        row: dict[str, Any] = self.labels(case) | {"schedule": str(fast.schedule), "check": plain.steps}
        row |= timing.fields | {"predicted_gs": fast.cost.rate, "bound": fast.cost.binds}
        row |= {"regs": uses.registers, "spills": uses.spills, "smem": uses.shared}
        self._rates[case] = rate = work / timing.median
        met = rate >= row["target"] if row["target"] is not None else case.share is None
        return Row(**row, gs_per_s=rate, error=error, ok=error <= TOLERANCE[update.dtype] and met)

    line = staticmethod(Stencils.line)


@contextmanager
def arrays(
    lab: Lab, update: Update, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int, steps: int = 1
) -> Iterator[tuple[dict[str, Any], Any, Any]]:
    """Random inputs on the device, signals for ``steps`` time steps among them, and two poisoned results in the form
    that a call gives back."""
    with ExitStack() as stack:

        def fields(count: int, shape: tuple[int, ...] = shape) -> tuple[DeviceField, ...]:
            return tuple(stack.enter_context(lab.fields(count, shape, dtype)))

        given = dict[str, Any]()
        for name, values in random(update, shape, dtype, seed, steps).items():
            levels = values if isinstance(values, tuple) else (values,)
            found = fields(len(levels), levels[0].shape)
            for field, level in zip(found, levels, strict=True):
                lab.runtime.to_device(field.pointer, level)
            given[name] = _alone(found)
        results = []
        for _ in range(2):
            made = _alone(tuple(_alone(fields(levels)) for _, levels in update.fields))
            records = tuple(_alone(fields(1, (steps, len(group.points)))) for group in update.receivers)
            results.append((made, *records) if records else made)
            poison(lab, results[-1], update.dtype)
        yield given, results[0], results[1]


def _alone(parts: tuple[Any, ...]) -> Any:
    """The parts, or what they are if there is one."""
    return parts[0] if len(parts) == 1 else parts


def begun(update: Update, given: dict[str, Any], out: Any, steps: int) -> tuple[dict[str, Any], Any]:
    """Inputs and result of a call of so many time steps, which signals and records have a row for each of."""

    def rows(field: DeviceField) -> DeviceField:
        return DeviceField(field.pointer, (steps, *field.shape[1:]), field.dtype)

    first = given | {group.name: rows(given[group.name]) for group in update.sources}
    return first, (out[0], *map(rows, out[1:])) if update.receivers else out


def poison(lab: Lab, out: Any, dtype: str) -> None:
    """Fill all arrays of a result with NaN."""
    for field in flat(out):
        lab.naive.poison(field.pointer, field.count, dtype)


def apart(lab: Lab, out: Any, other: Any, dtype: str) -> float:
    """How far one result on the device is from another: max|a - b| / max|b| of the array that is farthest."""
    pairs = zip(flat(out), flat(other), strict=True)
    return max(lab.naive.error(a.pointer, b.pointer, a.count, dtype) for a, b in pairs)


def random(update: Update, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int, steps: int = 1) -> dict[str, Any]:
    """Random arrays for a call: fields from 0 to 1 (Life's are 0 or 1), coefficients and the signals of ``steps`` time
    steps small."""
    rng = np.random.default_rng(seed)

    def one(coef: bool) -> Any:
        field = rng.random(shape, dtype=np.float32)
        return (np.rint(field) if update.name == "life" else field * (MOST if coef else HIGHEST)).astype(dtype)

    given = {
        p.name: tuple(one(False) for _ in range(p.levels)) if p.levels > 1 else one(p.coef) for p in update.parameters
    }
    signals = {group.name: rng.random((steps, len(group.points))) * MOST for group in update.sources}
    return given | {name: signal.astype(dtype) for name, signal in signals.items()}


def flat(result: Any) -> list[Any]:
    """All arrays of a result."""
    return [a for part in result for a in flat(part)] if isinstance(result, tuple) else [result]


def off(a: Any, b: Any) -> float:
    """max|a - b| / max|b|."""
    return float(np.abs(a - b).max()) / max(float(np.abs(b).max()), 1e-300) if np.isfinite(a).all() else math.inf
