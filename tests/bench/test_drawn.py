"""Random updates of suite ``regret``: their ranges, and how candidates are checked, on a stand-in for a GPU."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench import drawn, regret, regret_run, regret_tables, report, update_run
from sparsegen.bench.drawn import UpdateProblem
from sparsegen.bench.lab import Lab
from sparsegen.bench.regret import CHOSEN, StencilProblem
from tests.bench.test_regret import HEAD
from tests.harness_kit import Gpu, view
from tests.updates import made


@pytest.mark.parametrize("part", regret.UPDATES)
def test_problems_are_in_their_ranges(part: str) -> None:
    """As they are drawn at first: those that are drawn anew come of the same function."""
    draws = [random.Random(f"{part} {seed}") for seed in range(8)]
    found = [drawn.problem(draw, part, f"{part[0]}{i + 1}") for draw in draws for i in range(30)]
    assert [p.name for p in found[:30]] == [f"{part[0]}{i + 1}" for i in range(30)]
    for p in found:
        axes, (low, high) = len(p.shape), drawn.CELLS[part]
        thin, wide = (edge ** (axes * (axes > 1)) for edge in drawn.STRETCH)
        assert low * thin * 0.8 <= math.prod(p.shape) <= max(32**axes, high * wide * 1.1)
        assert drawn.STEPS[part][0] <= p.steps <= drawn.STEPS[part][1]
    linear = sum(isinstance(p, StencilProblem) for p in found) / len(found)
    assert linear == 0 if part == "updates" else 0.4 < linear < 0.6
    updates = [p.update for p in found if isinstance(p, UpdateProblem)]
    assert {u.dtype for u in updates} == {"f64", "f32"} and {u.ndim for u in updates} == {1, 2, 3}
    assert {tuple(n for _, n in u.fields) for u in updates} == {*drawn.LEVELS}
    assert {len(u.coefs) for u in updates} == {0, 1} and {max(u.radius) for u in updates} == {1, 2, 3, 4}


def test_a_seed_gives_the_same_problems_each_time() -> None:
    one, again, other = (drawn.problems("updates", seed, 12) for seed in (5, 5, 6))
    assert one == again and drawn.problems("updates", 5, 4) == one[:4]
    assert not {p.shape for p in one} & {p.shape for p in other}


@pytest.mark.parametrize(("part", "seed", "name"), [("small", 130668316, "s3"), ("updates", 167004603, "u29")])
def test_a_formula_that_runs_away_is_drawn_anew(part: str, seed: int, name: str) -> None:
    """Always as the same other one, and those behind it are what they are without that."""
    count = int(name[1:]) + 2
    draw = random.Random(f"{part} {seed}")
    first = [drawn.problem(draw, part, f"{part[0]}{i + 1}") for i in range(count)]
    found, again = (drawn.problems(part, seed, count) for _ in range(2))
    assert [p.name for p, q in zip(first, found, strict=True) if (p.shape, p.steps) != (q.shape, q.steps)] == [name]
    assert [(p.name, p.shape, p.steps) for p in found] == [(p.name, p.shape, p.steps) for p in again]
    away, other = (next(p for p in each if p.name == name) for each in (first, found))
    assert isinstance(away, UpdateProblem) and not drawn.bounded(away, seed)
    assert isinstance(other, StencilProblem) or drawn.bounded(other, seed)


def test_numbers_that_overflow_are_seen() -> None:
    """Of every level and field, in the type of the update, at the last step."""

    def away(u: sg.Field(levels=2), v: sg.Field) -> Any:  # type: ignore[valid-type]
        now: Any = u
        return now[0, 0], 4.0 + v[0, 0] * v[0, 1]  # squared in each step: some 4^(2^steps)

    for dtype, most in (("f64", 9), ("f32", 6)):
        problems = [UpdateProblem("u1", "", made(away, dtype=dtype), (20, 5000), steps) for steps in (most, most + 1)]
        assert [drawn.bounded(p, 1) for p in problems] == [True, False]


@pytest.mark.parametrize("seed", range(3))
def test_formulas_keep_their_numbers(seed: int) -> None:
    """Until they are compared: with infinities any schedule would be right."""
    for p in drawn.problems("updates", seed, 10):
        shape = tuple(max(n, 12 if p.update.ndim == 3 else 20) for n in p.update.extents)
        assert isinstance(p, UpdateProblem)
        given = update_run.random(p.update, shape, np.dtype({"f64": "f8", "f32": "f4"}[p.update.dtype]), seed)
        new = sg.compile(p.update, shape, regret_run.CHECKED, backend="reference")(**given)
        assert all(np.isfinite(a).all() and np.abs(a).max() < 100 for a in update_run.flat(new))


@pytest.mark.parametrize(("steps", "levels", "expected"), [(30, 8, 30), (50, 7, 50), (51, 1, 50), (1000, 8, 56)])
def test_steps_that_are_compared_leave_the_same_rest(steps: int, levels: int, expected: int) -> None:
    found = regret_run.checked(steps, levels)
    assert found == expected and (steps - found) % levels == 0


class Kernel:
    """An update by the reference, right or with one cell left out."""

    def __init__(self, p: UpdateProblem, schedule: str, wrong: bool) -> None:
        self.problem, self.wrong, self.asked = p, wrong, list[int]()
        self.schedule, self.dtype = sg.UpdateSchedule.parse(schedule), np.dtype(np.float64)

    def resources(self) -> Any:
        return SimpleNamespace(registers=40, spills=0, shared=1024)

    def __call__(self, out: Any, steps: int | None = None, **given: Any) -> None:
        p, arrays = self.problem, {}
        for name, levels in given.items():
            each = levels if isinstance(levels, tuple) else (levels,)
            found = tuple(view(a.pointer, a.count).reshape(p.shape) for a in each)
            arrays[name] = found if len(found) > 1 else found[0]
        self.asked.append(steps or p.steps)
        new = sg.compile(p.update, p.shape, steps or p.steps, backend="reference")(**arrays)
        for field, a in zip(update_run.flat(out), update_run.flat(new), strict=True):
            view(field.pointer, field.count - self.wrong)[:] = a.ravel()[: field.count - self.wrong]


def test_candidates_are_compared_with_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: Lab) -> None:
        self.runtime = self.naive = Gpu()  # type: ignore[assignment]
        self._seed, self._cold = 3, None

    def wave(u: sg.Field(levels=2), v: sg.Field) -> Any:  # type: ignore[valid-type]
        now: Any = u
        return 1.5 * now[0, 0] - 0.5 * now.prev[0, 0], v[0, 0] + 0.1 * now[0, 1] * v[1, 0]

    monkeypatch.setattr(Lab, "__init__", start)
    p = UpdateProblem("u1", "a wave", made(wave), (9, 34), 90)
    lab = Lab()
    study: Any = regret_run.Updates("small", lab, 3, 0.001)
    points = study.candidates(p, random.Random(1))[:3]
    assert points[0].picked == CHOSEN and (points[0].part, points[0].stencil) == ("small", "a wave")
    plain = Kernel(p, "direct", False)
    monkeypatch.setattr(study, "plain", SimpleNamespace(get=lambda _: plain))
    kernels = [Kernel(p, points[0].schedule, False), Kernel(p, points[1].schedule, True), RuntimeError("no nvcc")]
    found = regret_run.measured(study, p, points, kernels, 0.001)
    assert [q.ok for q in found] == [True, False, False] and found[2].failed == "RuntimeError: no nvcc"
    assert found[0].error == 0 and found[1].error == math.inf and found[0].measured_s
    assert kernels[0].asked[0] == plain.asked[0] <= regret_run.CHECKED  # type: ignore[attr-defined]
    assert kernels[0].asked[1:] == [90] * (len(kernels[0].asked) - 1)  # type: ignore[attr-defined]
    result = report.result("regret", found, HEAD)
    assert "a wave" in regret_tables.VIEWS["small"](result)[1]
    assert regret_tables.VIEWS["fields"](result)[0][2:] == ["all (1 problems)", "small (1 problems)"]


def test_of_a_round_that_the_host_disturbed_the_quietest_of_a_few_is_kept():
    rounds = iter([[1.0, 1.0, 4.0], [1.0, 2.0, 2.0], [1.0, 1.1, 1.1], [9.0]])
    assert regret_run.quietest(lambda: next(rounds)) == [1.0, 1.1, 1.1]
    assert next(rounds) == [9.0]  # and nothing is measured once it is quiet


def test_a_round_that_stays_noisy_is_taken_again_a_few_times_only():
    rounds = iter([[1.0, 9.0], [1.0, 3.0], *[[1.0, 5.0]] * 9])
    assert regret_run.quietest(lambda: next(rounds)) == [1.0, 3.0]
    assert len(list(rounds)) == 10 - regret_run.AGAIN
