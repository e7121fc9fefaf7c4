"""``sg.tune`` on a GPU that only counts: what is measured, which is the fastest, what is remembered and for whom."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import target
from sparsegen.compiler import described, schedules
from sparsegen.inspection import Build
from sparsegen.tuning import store
from sparsegen.tuning.problem import facts
from sparsegen.tuning.race import Entry
from sparsegen.tuning.tune import shortlist
from tests.products_kit import matrix
from tests.refusals import refusal
from tests.updates import wave

WEIGHTS = np.random.default_rng(5).random((3, 3)) / 9
SHAPE, STEPS = (64, 96), 7
SMALL: Any = {"top": 4, "repeats": 2}


def box(w: Any = WEIGHTS, **more: Any) -> sg.Stencil:
    return sg.Stencil.from_weights(w, **more)


def only() -> store.Record:
    (record,) = store.records()
    return record


def test_the_fastest_is_kept_and_remembered(gpu: Any) -> None:
    gpu.seconds_of = lambda func: 1e-3 if func.threads == 256 else 5e-3
    k = sg.tune(box(), SHAPE, STEPS, **SMALL)
    record = only()
    assert k.backend == "cuda" and str(k.schedule) == record.schedule and len(record.trials) == 4
    times = {t.schedule: t.measured for t in record.trials}
    assert k.measured == record.measured == times[record.schedule] == min(filter(None, times.values()))
    (predicted,) = (t.predicted for t in record.trials if t.schedule == record.schedule)
    assert record.predicted == predicted == k.problem.seconds(k.cost, STEPS)
    timed, launched = gpu.timed, gpu.launched
    again = sg.tune(box(name="other"), list(SHAPE), STEPS, device="h200", **SMALL)
    assert (gpu.timed, gpu.launched) == (timed, launched)
    assert again.schedule == k.schedule and again.measured == k.measured
    sg.tune(box(), SHAPE, STEPS, top=2)  # fewer were asked for
    assert gpu.timed == timed


def test_measured_anew_when_asked(gpu: Any) -> None:
    first = sg.tune(box(), SHAPE, STEPS, **SMALL)
    slow = str(first.schedule).partition(" ")[0]
    gpu.seconds_of = lambda func: 1e-3 if slow not in func.symbol else 9e-3
    timed = gpu.timed
    second = sg.tune(box(), SHAPE, STEPS, again=True, **SMALL)
    assert gpu.timed > timed and len(list(store.records())) == 1
    timed = gpu.timed
    sg.tune(box(), SHAPE, STEPS, top=5, repeats=1)
    assert gpu.timed > timed and only().top == 5
    assert second.measured is not None and first.measured is not None


def test_turns_alternate_and_the_hopeless_have_one(gpu: Any) -> None:
    costs = iter([0.01, 0.02, 0.012, 0.011])
    price: dict[str, float] = {}
    turns: list[str] = []

    def seconds(func: Any) -> float:
        name = str((func.symbol, func.threads, func.grid, func.shared_bytes))
        turns.append(name)
        return price[name] if name in price else price.setdefault(name, next(costs))

    gpu.seconds_of = seconds
    sg.tune(box(), SHAPE, 1, top=4, repeats=4)
    first, hopeless, third, fourth = price
    warm = [name for name in (first, hopeless, third, fourth) for _ in range(2)]
    forth = [first, third, fourth]
    assert turns == [*warm, first, hopeless, third, fourth, *reversed(forth), *forth, *reversed(forth)]


def test_updates_and_products(gpu: Any) -> None:
    update = wave(boundary=sg.periodic)
    product = sg.spmm(matrix(70, 200), n=12, bias=True)
    for tune, kind in (
        (lambda **more: sg.tune(update, SHAPE, STEPS, **more), sg.UpdateKernel),
        (lambda **more: sg.tune(product, **more), sg.SpmmKernel),
    ):
        k = tune(**SMALL)
        assert isinstance(k, kind) and k.measured and k.backend == "cuda"
        timed = gpu.timed
        assert tune(**SMALL).schedule == k.schedule and gpu.timed == timed
    assert len(list(store.records())) == 2


def test_the_librarys_dense_product_stays_the_models_choice(gpu: Any) -> None:
    w = sg.sparse(np.ones((64, 64), np.float16), format="auto")
    assert str(sg.tune(sg.spmm(w, n=8), **SMALL).schedule) == "dense"
    assert only().schedule.startswith("bitmap")
    gpu.seconds_of = lambda func: 1e-9
    assert str(sg.tune(sg.spmm(w, n=8), again=True, **SMALL).schedule).startswith("bitmap")


def test_a_kernel_remembers_its_own_bench(gpu: Any) -> None:
    k = sg.compile(box(), SHAPE, STEPS, backend="cuda", schedule="direct")
    assert k.measured is None
    assert k.bench(repeats=3, steps=STEPS + 1).median and k.measured is None
    assert k.bench(repeats=3).median == k.measured
    cpu = sg.compile(box(), SHAPE, 1, backend="reference")
    assert cpu.bench(repeats=1).median and cpu.measured is None
    p = sg.compile(sg.spmm(matrix(70, 200), n=4), backend="cuda")
    assert p.bench(repeats=2).median == p.measured == pytest.approx(1e-3)


def test_candidates_share_fields_and_workspace(gpu: Any) -> None:
    nbytes, most = SHAPE[0] * SHAPE[1] * 2, [0]  # of 16 bits none is resident, which has lists of its own
    alloc = gpu.alloc

    def count(n: int) -> int:
        pointer = alloc(n)
        most[0] = max(most[0], gpu.size - gpu.memory()[0])
        return int(pointer)

    gpu.alloc = count
    sg.tune(box(dtype="f16"), SHAPE, 20, top=6, repeats=1)
    assert most[0] < 5 * nbytes


# ------------------------------------------------------------------------------------------------ who is tried
def test_the_shortlist_has_the_best_of_each_family() -> None:
    def entries(*families: str) -> list[Entry]:
        return [Entry(SimpleNamespace(family=f), t) for t, f in enumerate(families)]

    def places(found: list[Entry]) -> list[float]:
        return [e.predicted for e in found]

    some = entries("a", "a", "a", "b", "a", "c", "b")
    assert places(shortlist(some, 4)) == [0, 1, 3, 5]
    assert places(shortlist(some, 2)) == [0, 3]
    assert places(shortlist(some, 99)) == [0, 1, 2, 3, 4, 5, 6]
    problem, _ = described(box(), SHAPE, STEPS, "any")
    ranked = sorted(schedules(box(), SHAPE, STEPS, "h200"), key=lambda c: problem.seconds(c, STEPS))
    assert {c.schedule.family for c in ranked} == {
        e.schedule.family for e in shortlist([Entry(c.schedule, problem.seconds(c, STEPS)) for c in ranked], 12)
    }


def test_a_candidate_that_fails_is_left_out(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    works = Build.compiled

    def compiled(build: Build) -> Any:
        if "stencil2row" in build.source():
            raise sg.ToolchainError("nvcc is out of registers")
        return works(build)

    monkeypatch.setattr(Build, "compiled", compiled)
    k = sg.tune(box(), SHAPE, STEPS, **SMALL)
    failed = [t for t in only().trials if t.failed]
    assert failed and all(t.measured is None and t.failed == "nvcc is out of registers" for t in failed)
    assert str(k.schedule) not in {t.schedule for t in failed}
    calls = iter(range(100))

    def faults(func: Any) -> float:
        if next(calls) == 0:
            raise sg.DeviceError("the first launch of all fails")
        return 1e-3

    gpu.seconds_of = faults
    sg.tune(box(), SHAPE, 1, **SMALL)
    assert [r.trials[0].failed for r in store.records()].count("the first launch of all fails") == 1


def test_if_all_fail_the_first_error_is_raised(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(build: Build) -> Any:
        raise sg.ToolchainError("there is no nvcc", hint="install it")

    monkeypatch.setattr(Build, "compiled", compiled)
    refusal(__file__, sg.ToolchainError, lambda: sg.tune(box(), SHAPE, **SMALL), "there is no nvcc")  # here
    assert not list(store.records())


# ------------------------------------------------------------------------------------------------ what is refused
def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "gpu_info", lambda index=0: sg.DeviceError("no driver"))
    for attempt in (
        lambda: sg.tune(box(), SHAPE),  # here
        lambda: sg.tune(sg.spmm(matrix(64, 64), n=1)),  # here
    ):
        refusal(__file__, sg.DeviceError, attempt, "tuning needs a GPU", "no driver", "schedule='auto'")


def test_another_gpu(gpu: Any) -> None:
    attempt = lambda: sg.tune(box(), SHAPE, device="a100")  # noqa: E731  # here
    refusal(__file__, sg.DeviceError, attempt, "NVIDIA A100", "NVIDIA H200", "device='auto'")


def test_wrong_arguments(gpu: Any) -> None:
    refusal(__file__, sg.ScheduleError, lambda: sg.tune(box(), SHAPE, top=0), "top=0")  # here
    refusal(__file__, sg.ScheduleError, lambda: sg.tune(box(), SHAPE, repeats=-1), "repeats=-1")  # here
    refusal(__file__, sg.StencilError, lambda: sg.tune(box(), (64,)), "1 axes")  # here
    refusal(__file__, sg.StencilError, lambda: sg.tune(box(), SHAPE, 0), "steps=0")  # here
    some: Any = sg.spmm(matrix(64, 64), n=1)
    refusal(__file__, sg.ProductError, lambda: sg.tune(some, SHAPE), "shape=")  # here
    odd: Any = "maybe"
    refusal(__file__, sg.ScheduleError, lambda: sg.tune(box(), SHAPE, nonfinite=odd), "nonfinite")  # here
    assert not gpu.timed


# ------------------------------------------------------------------------------------------------ for whom it holds
def test_what_makes_another_problem(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    info = target.gpu_info()
    assert not isinstance(info, sg.DeviceError)

    def of(what: Any, shape: Any, steps: int, nonfinite: str, gpu: Any) -> Any:
        return facts(*described(what, shape, steps, nonfinite), gpu)

    base = of(box(), SHAPE, STEPS, "any", info)
    w = WEIGHTS.copy()
    w[0, 0] += 2.0**-40
    others = [
        of(box(w), SHAPE, STEPS, "any", info),
        of(box(boundary=sg.frozen), SHAPE, STEPS, "any", info),
        of(box(dtype="f32"), SHAPE, STEPS, "any", info),
        of(box(), (96, 64), STEPS, "any", info),
        of(box(), SHAPE, STEPS + 1, "any", info),
        of(box(), SHAPE, STEPS, "exact", info),
        of(box(), SHAPE, STEPS, "any", replace(info, name="NVIDIA H100")),
        of(box(), SHAPE, STEPS, "any", replace(info, sm_count=66)),
        of(wave(boundary=sg.periodic), SHAPE, STEPS, "any", info),
        of(wave(boundary=sg.frozen), SHAPE, STEPS, "any", info),
    ]
    for n, bias, sparsity in ((4, False, 0.6), (8, False, 0.6), (4, True, 0.6), (4, False, 0.7)):
        others.append(of(sg.spmm(matrix(70, 200, sparsity), n=n, bias=bias), (), 1, "any", info))
    monkeypatch.setattr("sparsegen.tuning.problem.__version__", "99.0")
    others.append(of(box(), SHAPE, STEPS, "any", info))
    keys = [store.path_of(f) for f in (base, *others)]
    assert len(set(keys)) == len(keys)
    monkeypatch.undo()
    same = of(box(name="other"), SHAPE, STEPS, "any", replace(info, index=3, clock_hz=1e9))
    assert same == base and json.loads(json.dumps(base)) == base


def test_a_schedule_that_is_refused_by_now_is_measured_anew(gpu: Any) -> None:
    sg.tune(box(), SHAPE, STEPS, **SMALL)
    for line in ("direct fuse=99", "spiral", "stencil2row mma=f64.m8n8k4 fuse=7 tile=512x512 warps=8"):
        store.remember(replace(only(), schedule=line))
        timed = gpu.timed
        k = sg.tune(box(), SHAPE, STEPS, **SMALL)
        assert gpu.timed > timed and str(k.schedule) == only().schedule != line
