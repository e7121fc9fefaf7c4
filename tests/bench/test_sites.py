"""Part ``sites`` of suite ``updates``: where its sources and receivers are, and that records are judged, on a stand-in
for a GPU."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench import sites, update_run, updates
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.lab import Lab
from sparsegen.bench.stencil_run import Case
from sparsegen.dsl.update import Update
from tests.harness_kit import Gpu, view

WITH = [case for case in updates.cases(["sites"]) if case.share]


def update(case: Case) -> Update:
    assert isinstance(case.stencil, Update)
    return case.stencil


@pytest.mark.parametrize("case", WITH, ids=lambda case: case.name)
def test_sites_lie_between_cells_and_in_the_small_field_too(case: Case) -> None:
    (plain,) = case.share.of if case.share else ()
    assert plain.stencil == replace(update(case), sites=()) and plain.share is None
    assert (plain.shape, plain.steps) == (case.shape, case.steps)
    small = update_run.SMALL[len(case.shape)]
    for group in update(case).sites:
        assert (group.points % 1 > 0).all() and len(np.unique(group.points, axis=0)) == len(group.points)
        assert (group.points > 0).all() and (group.points < np.array(case.shape) - 1).all()
    for group, there in zip(update(case).sites, sites.moved(update(case), case.shape, small).sites, strict=True):
        assert np.allclose(there.points / (np.array(small) - 1), group.points / (np.array(case.shape) - 1))
    kernel = sg.compile(sites.moved(update(case), case.shape, small), small, 2, backend="reference")
    assert kernel.random()["shot"].shape == (2, 1)


def test_as_many_as_are_said() -> None:
    found = [(case.name, *(len(group.points) for group in update(case).sites)) for case in WITH]
    assert found == [
        ("acoustic, order 8, 1,024 receivers", 1, 1024), ("acoustic, order 8, 65,536 receivers", 1, 65536),
        ("wave, 1,000 receivers", 1, 1000), ("wave, 8,000 receivers", 1, 8000), ("wave, 200 receivers", 1, 200),
    ]  # fmt: skip
    assert {row for row, _ in sites.receivers((8192, 8192), (4, 2000))} == {4.5, 2052.5, 4100.5, 6148.5}
    assert (sites.receivers((512, 512, 512), (1, 32, 32))[:, 0] == sites.DEPTH).all()


def test_the_small_field_stays_on_chip() -> None:
    """Which ``auto`` takes for it with its sites, too: elsewhere a pass makes the windows around them again."""
    small = updates.cases(["sites"])[-2:]
    assert [case.schedule for case in small] == ["resident"] * 2
    for schedule in ("resident", "auto"):
        kernel = sg.compile(small[1].stencil, small[1].shape, small[1].steps, "h200", "emulator", schedule)
        assert kernel.schedule.family == "resident"


@pytest.mark.parametrize("case", WITH[::2], ids=lambda case: case.name)
def test_its_schedules_are_right_on_the_small_field(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def ready(what: Any, shape: tuple[int, ...], schedule: str, steps: int) -> Any:
        return sg.compile(what, shape, steps, "h200", "emulator", schedule)

    monkeypatch.setattr(Lab, "__init__", lambda _: None)
    monkeypatch.setattr(update_run, "ready", ready)
    bench = update_run.Updates(Lab())
    fast, small, direct = bench.build(case)
    assert fast.schedule.family == small.schedule.family and fast.update == direct.update
    assert bench._small(small, 1) <= TOLERANCE[fast.update.dtype]


class Compiled:
    """An update with sites by the reference on arrays of the stand-in; perhaps its last record is off."""

    def __init__(self, case: Case, family: str, steps: int, off: float = 0.0) -> None:
        self.update, self.shape, self.steps, self.off = update(case), case.shape, steps, off
        self.dtype = np.dtype(np.float64)
        self.schedule, self.cost = SimpleNamespace(family=family), SimpleNamespace(rate=1.0, binds="hbm")
        self.asked = list[int]()

    def resources(self) -> Any:
        return SimpleNamespace(registers=40, spills=0, shared=1024)

    def __call__(self, out: Any, steps: int | None = None, **given: Any) -> None:
        self.asked.append(steps or self.steps)

        def there(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(there, value))
            return view(value.pointer, value.count).reshape(value.shape)

        made = sg.compile(self.update, self.shape, self.asked[-1], backend="reference")(
            **{name: there(value) for name, value in given.items()}
        )
        made[-1][-1, -1] += self.off
        for field, a in zip(update_run.flat(out), update_run.flat(made), strict=True):
            assert field.shape == a.shape
            view(field.pointer, field.count)[:] = a.ravel()


@pytest.mark.parametrize(("off", "ok"), [(0.0, True), (1e-9, False)])
def test_records_are_compared_and_signals_are_those_of_the_call(
    off: float, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu()

    def start(self: Lab) -> None:
        self.runtime = self.naive = gpu  # type: ignore[assignment]

    monkeypatch.setattr(Lab, "__init__", start)
    plain = Case("wave", updates.update("wave"), (20, 36), 9, "auto", part="sites")
    case = replace(sites.surveyed(plain, (2, 5), 0.9), share=None)
    fast, direct = Compiled(case, "stream", 9, off), Compiled(case, "direct", 5)
    small: Any = sg.compile(case.stencil, case.shape, 5, backend="reference")
    kernels: Any = (fast, small, direct)
    row = update_run.Updates(Lab(), 3, 0.004).measure(case, kernels, 3)
    assert row.ok == ok and row.error is not None and (row.error <= TOLERANCE["f64"]) == ok
    assert fast.asked[:2] == [5, 9] and direct.asked == [5] and row.check == 5 and not gpu.held


@pytest.mark.parametrize("case", WITH, ids=lambda case: case.name)
def test_numbers_stay_finite_with_sources(case: Case) -> None:
    """Signals do not make a field run away in the steps of a call."""
    small = (12, 14, 40)[-len(case.shape) :]
    what = sites.moved(update(case), case.shape, small)
    given = update_run.random(what, small, np.dtype({"f64": "f8", "f32": "f4"}[what.dtype]), 1, case.steps)
    made = sg.compile(what, small, case.steps, backend="reference")(**given)
    assert given["shot"].shape == (case.steps, 1) and given["shot"].max() <= update_run.MOST
    assert all(np.isfinite(a).all() and np.abs(a).max() < 100 for a in update_run.flat(made))
