"""Suite ``batches``: images and an ensemble, eight of them in one call beside one of them.

A batch must not be much slower, cell for cell, than a call for one of its items: one image in f32 stays in L2 from call
to call, and eight do not.  Results of the first and of the last item are compared with those of NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import sparsegen as sg
from sparsegen.bench.harness import TOLERANCE, Suite
from sparsegen.bench.lab import SECONDS, DeviceField, Lab, Timing
from sparsegen.bench.stencil_run import Case, Row, Share, Stencils, labels, ready, relative
from sparsegen.bench.update_run import flat, random
from sparsegen.bench.updates import update
from sparsegen.boundary import neumann
from sparsegen.dsl.update import Update

if TYPE_CHECKING:
    from sparsegen.kernel import Kernel

#: Items of a batch; pixels of an image; cells of a member of an ensemble, and its time steps.
ITEMS, IMAGE, MEMBER, STEPS = 8, (1080, 1920), (512, 512), 24
#: Share of the rate of one item that a batch must reach.
LEAST: Final = 0.75
#: Reads that empty L2 before a timed call: together they take longer than the host needs for a call.
READS: Final = 6
#: max|a - b| / max|b| that counts as right: a byte may be rounded to its neighbour.
_TOLERANCE: Final = {**TOLERANCE, "u8": 1 / 255}


def box(dtype: str) -> sg.Stencil:
    """The mean of a pixel and its neighbours."""
    return sg.Stencil.from_weights(np.full((3, 3), 1 / 9), boundary=neumann, name="box", dtype=dtype)


def cases(quick: bool = False) -> list[Case]:
    """One item, then eight, of blurs in two types and of a wave; ``quick``: of the blur of bytes alone."""
    found = list[Case]()
    forms: list[tuple[str, Any, tuple[int, ...], int]] = [
        ("box blur", box("u8"), IMAGE, 1), ("box blur", box("f32"), IMAGE, 1), ("wave", update("wave"), MEMBER, STEPS),
    ]  # fmt: skip
    for name, what, shape, steps in forms[: 1 if quick else None]:
        one = Case(f"{name}, one", what, shape, steps, "auto", batch=1)
        share = Share(LEAST, "one", (one,))
        found += [one, replace(one, name=f"{name}, {ITEMS}", batch=ITEMS, share=share)]
    return found


class Batches(Suite[Case, Row]):
    """Batches by the cost model's schedules, next to one another."""

    row = Row

    def __init__(self, lab: Lab, seed: int = 0, seconds: float = SECONDS) -> None:
        super().__init__(lab, seed, seconds)
        self._rates = dict[Case, float]()

    def build(self, case: Case) -> Kernel:
        """The kernel of a case, compiled."""
        return ready(case.stencil, case.shape, case.schedule, case.steps, batch=case.batch)

    def labels(self, case: Case, seed: int = 0) -> dict[str, Any]:
        """What every row says of its case, and of its target."""
        return labels(relative(case, self._rates), case.schedule)

    def measure(self, case: Case, kernel: Kernel, seed: int = 0) -> Row:
        """Check, then time a case."""
        given = inputs(kernel, seed)
        work, error = math.prod(kernel.problem.stacked) * case.steps / 1e9, apart(kernel, given)
        timing = Timing.of(self._times(kernel, given))
        uses = kernel.resources()
        row: dict[str, Any] = self.labels(case) | {"schedule": str(kernel.schedule)} | timing.fields
        row |= {"predicted_gs": kernel.cost.rate, "bound": kernel.cost.binds}
        row |= {"regs": uses.registers, "spills": uses.spills, "smem": uses.shared}
        self._rates[case] = rate = work / timing.median
        met = row["target"] is None or rate >= row["target"]
        return Row(**row, gs_per_s=rate, error=error, ok=error <= _TOLERANCE[case.stencil.dtype] and met)

    def _times(self, kernel: Kernel, given: dict[str, Any]) -> list[float]:
        """Device seconds of calls on arrays that lie there."""
        lab, outputs = self.lab, kernel._calls.outputs
        with lab.fields(len(flat(tuple(given.values()))) + len(outputs), kernel.problem.stacked, kernel.dtype) as every:
            left = iter(every)

            def on_device(values: Any) -> Any:
                if isinstance(values, tuple):
                    return tuple(on_device(level) for level in values)
                lab.runtime.to_device((field := next(left)).pointer, values)
                return field

            there = {name: on_device(values) for name, values in given.items()}
            out = on_results(kernel, left)

            def before() -> None:
                """Reads that take longer than the host needs for a call, and one that fills L2 as in a loop."""
                for _ in range(READS):
                    lab.flush()
                kernel(**there, out=out)

            return lab.times(lambda: kernel(**there, out=out), self.seconds, before)

    line = staticmethod(Stencils.line)


def on_results(kernel: Kernel, fields: Iterator[DeviceField]) -> Any:
    """The next fields as a result in the form that a call gives back: of one field."""
    (levels,) = kernel._calls.fields.values()  # type: ignore[attr-defined]
    made = tuple(next(fields) for _ in levels)
    return made if len(levels) > 1 else made[0]


def inputs(kernel: Kernel, seed: int) -> dict[str, Any]:
    """Random host arrays for a call: of an update such that it does not grow."""
    if isinstance(kernel.problem.what, Update) and isinstance(kernel.update, Update):
        return random(kernel.update, kernel.problem.stacked, kernel.dtype, seed)
    return kernel.random(seed)


def apart(kernel: Kernel, given: dict[str, Any]) -> float:
    """How far the first and the last item of a result are from NumPy's: max|a - b| / max|b|."""
    plain, worst = sg.compile(kernel.stencil, kernel.shape, kernel.steps, backend="reference"), 0.0
    made = flat((kernel(**given),))
    for item in {0, kernel.problem.items - 1}:
        own = {name: _item(values, item) for name, values in given.items()}
        for a, b in zip(made, flat((plain(**own),)), strict=True):
            off = np.abs(a[item].astype(np.float64) - b.astype(np.float64)).max()
            worst = max(worst, float(off) / max(float(np.abs(b).max()), 1e-300))
    return worst


def _item(values: Any, item: int) -> Any:
    """An item's part of what a parameter is given."""
    return tuple(level[item] for level in values) if isinstance(values, tuple) else values[item]
