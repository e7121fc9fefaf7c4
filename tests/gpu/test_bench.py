"""The harness on a real GPU: the naive kernel against the reference, and rows that are judged as they must be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.reference.stencil import run
from sparsegen.bench import harness, report, suites
from sparsegen.bench.harness import Case, Lab

pytestmark = pytest.mark.gpu

BOUNDARIES: list[Any] = [
    sg.periodic,
    sg.frozen,
    sg.neumann,
    sg.dirichlet(1.5),
    {0: (sg.dirichlet(2.0), sg.dirichlet(-3.0)), 1: (sg.dirichlet(0.5), sg.dirichlet(7.0))},
    {0: (sg.frozen, sg.neumann), 1: (sg.dirichlet(1.0), sg.frozen)},
    {0: sg.periodic, 1: (sg.neumann, sg.dirichlet(-1.0))},
]


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab(seed=1)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize(("shape", "edges"), [((33, 70), (3, 3)), ((64, 21), (7, 5)), ((7, 7), (7, 7))])
def test_naive_equals_the_reference(
    lab: Lab, dtype: str, boundary: Any, shape: tuple[int, int], edges: tuple[int, int]
) -> None:
    rng = np.random.default_rng(0)
    stencil = sg.Stencil.from_weights(rng.standard_normal(edges) / 8, boundary, dtype=dtype)
    kind = np.dtype({"f64": np.float64, "f32": np.float32}[dtype])
    for steps in (1, 4):
        with lab.fields(3, shape, kind) as (u, out, spare):
            lab.fresh(u, dtype)
            lab.naive.run(stencil, shape, steps, u.pointer, out.pointer, spare.pointer)
            before, got = np.empty(shape, kind), np.empty(shape, kind)
            lab.runtime.to_host(before, u.pointer)
            lab.runtime.to_host(got, out.pointer)
        assert 0 <= before.min() and before.max() < 1 and before.std() > 0.2
        want = run(before, stencil.weights, stencil.sides, steps)
        assert np.abs(got - want).max() <= (1e-13 if dtype == "f64" else 1e-5) * np.abs(want).max()


def test_error_sees_a_wrong_element_and_a_nan(lab: Lab) -> None:
    with lab.fields(2, (50, 70), np.dtype(np.float64)) as (a, b):
        x = np.random.default_rng(0).random((50, 70))
        for change, least in ((0.0, 0.0), (0.5, 0.4), (np.nan, np.inf)):
            y = x.copy()
            y[49, 69] += change
            lab.runtime.to_device(a.pointer, y)
            lab.runtime.to_device(b.pointer, x)
            error = lab.naive.error(a.pointer, b.pointer, a.count, "f64")
            assert least <= error and (change != 0.0 or error == 0.0)


def test_rows() -> None:
    good = Case("Heat-2D", suites.stencil("Heat-2D", 1), (500, 333), 6, "direct", target=0.001)
    too_much = replace(good, schedule="tiled fuse=2", target=1e9)
    illegal = replace(good, schedule="direct fuse=3", shape=(5, 5))
    again = replace(good, target=None)
    rows = harness.run([good, too_much, illegal, again], seconds=0.005, cold=True)
    assert len(rows) == 3 and rows[0].ok and not rows[1].ok and rows[2].failed
    first = rows[0]
    assert first.error is not None and first.error < 1e-13 and first.regs and first.spills == 0
    assert first.p10 and first.median_s and first.p90 and first.p10 <= first.median_s <= first.p90
    assert first.gs_per_s == pytest.approx(500 * 333 * 6 / first.median_s / 1e9)
    found = report.result("spine", rows, 0.005, True, 0)
    assert found["device"] and set(found) == set(report.KEYS)
    assert "FAILED" in report.text(found) and "dirichlet" in report.markdown(found)


@pytest.mark.parametrize("name", ["Heat-2D", "Box-2D9P", "Box-2D49P"])
@pytest.mark.parametrize("at", range(4))
def test_the_suite_is_right_on_a_small_field(lab: Lab, name: str, at: int) -> None:
    forms = {case.schedule for case in suites.spine() if case.name == name}
    for schedule in sorted(forms):
        k = sg.compile(suites.stencil(name, at), (301, 263), 12, backend="cuda", schedule=schedule)
        with lab.fields(2, k.shape, k.dtype) as (u, out):
            assert lab.error(k, u, out) <= 1e-12, schedule


def test_overhead() -> None:
    for library in ("torch", "cupy"):
        try:
            __import__(library)
            break
        except ImportError:
            continue
    else:
        pytest.skip("neither torch nor CuPy")
    row = suites.overhead()
    assert row.failed is None and row.error is not None and row.error <= 1e-12
    assert row.median_s is not None and row.median_s <= suites.OVERHEAD_LIMIT, f"{row.median_s * 1e6:.1f} us"
