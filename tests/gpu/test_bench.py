"""The harness on a real GPU: the naive kernel against the reference, and rows that are judged as they must be."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.reference.stencil import run
from sparsegen.bench import generated, report, sites, stencils, suites, update_run, updates
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.lab import Lab, Timing
from sparsegen.bench.magicube import LIBRARIES, VectorCase
from sparsegen.bench.magicube_run import Vectors
from sparsegen.bench.mixture import CLUSTERS, Matrix
from sparsegen.bench.stencil_run import COPIES, Case, Copy, Stencils
from sparsegen.bench.unstructured import AUTO, CUBLAS, CUSPARSE, SparseCase
from sparsegen.bench.unstructured_run import Unstructured
from sparsegen.bench.update_run import Updates

pytestmark = pytest.mark.gpu

#: A floor that must run on the device to print its figure.
HAND = r"""
#include <cstdio>
__global__ void k(double* p) { *p = 42.5; }
int main(int, char** words) {
    double x = 0, *p;
    cudaMalloc(&p, 8);
    k<<<1, 1>>>(p);
    cudaMemcpy(&x, p, 8, cudaMemcpyDeviceToHost);
    printf("BEST x %.1f %s\n", x, words[1]);
}
"""

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((1000,), (3,)), ((777,), (9,)), ((9,), (9,)),
    ((33, 70), (3, 3)), ((64, 21), (7, 5)), ((7, 7), (7, 7)), ((5, 600), (5, 1)),
    ((12, 17, 33), (3, 3, 3)), ((5, 9, 300), (5, 3, 7)), ((9, 9, 9), (9, 9, 9)),
]  # fmt: skip


def boundaries(ndim: int) -> list[Any]:
    """Every kind on all sides, then mixtures of axes and of the two sides of an axis."""
    kinds = [sg.frozen, sg.neumann, sg.dirichlet(-1.0)]
    values = {axis: (sg.dirichlet(2.0 + axis), sg.dirichlet(-3.0 - axis)) for axis in range(ndim)}
    mixed = [
        {axis: (kinds[(axis + turn) % 3], kinds[(axis + turn + 1) % 3]) for axis in range(ndim)} for turn in (0, 1)
    ]
    around = [{a: sg.periodic if a == axis else (sg.neumann, sg.dirichlet(4.0)) for a in range(ndim)}
              for axis in (0, ndim - 1)]  # fmt: skip
    return [sg.periodic, *kinds, sg.dirichlet(1.5), values, *mixed, *around]


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab(seed=1)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("at", range(len(boundaries(1))))
@pytest.mark.parametrize(("shape", "edges"), SHAPES, ids=str)
def test_naive_equals_the_reference(
    lab: Lab, shape: tuple[int, ...], edges: tuple[int, ...], at: int, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    stencil = sg.Stencil.from_weights(rng.standard_normal(edges) / 8, boundaries(len(shape))[at], dtype=dtype)
    kind = np.dtype({"f64": np.float64, "f32": np.float32}[dtype])
    for steps in (1, 4):
        with lab.fields(3, shape, kind) as (u, out, spare):
            lab.fresh(u, dtype)
            lab.naive.run(stencil, shape, steps, u.pointer, out.pointer, spare.pointer)
            before, got = np.empty(shape, kind), np.empty(shape, kind)
            lab.runtime.to_host(before, u.pointer)
            lab.runtime.to_host(got, out.pointer)
        assert 0 <= before.min() and before.max() < 1 and before.std() > 0.05
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
    good = Case("Heat-2D", stencils.stencil("Heat-2D", sg.dirichlet(1.5)), (500, 333), 6, "direct", target=0.001)
    too_much = replace(good, schedule="tiled fuse=2", target=1e9)
    illegal = replace(good, schedule="direct fuse=3", shape=(5, 5))
    rows = Stencils(Lab(), 0.005, cold=True).run([good, too_much, illegal])
    assert len(rows) == 3 and rows[0].ok and not rows[1].ok and rows[2].failed
    first = rows[0]
    assert first.error is not None and first.error < 1e-13 and first.regs and first.spills == 0
    assert first.p10 and first.median_s and first.p90 and first.p10 <= first.median_s <= first.p90
    assert first.gs_per_s == pytest.approx(500 * 333 * 6 / first.median_s / 1e9)
    found = report.result("spine", rows, report.header(0.005, True, 0))
    assert found["device"] and set(found) == set(report.KEYS)
    assert f"direct fuse=3: {rows[2].failed}" in report.text(found) and "dirichlet" in report.markdown(found)


@pytest.mark.parametrize("name", ["Heat-2D", "Box-2D9P", "Box-2D49P"])
@pytest.mark.parametrize("at", range(4))
def test_the_suite_is_right_on_a_small_field(lab: Lab, name: str, at: int) -> None:
    forms = {case.schedule for case in suites.spine() if case.name == name}
    for schedule in sorted(forms):
        k = sg.compile(stencils.stencil(name, suites.BOUNDARIES[at]), (301, 263), 12, backend="cuda", schedule=schedule)
        with lab.fields(2, k.shape, k.dtype) as (u, out):
            assert Stencils(lab).error(k, u, out, 12) <= 1e-12, schedule


def test_the_stencil_suite_is_right_on_small_fields() -> None:
    """Every stencil of it, as it is run there, after 100 steps, with smaller fields; what they reach is not judged."""
    edges = {1: (5003,), 2: (131, 150), 3: (45, 46, 51)}
    kernels = [case for case in stencils.cases() if case.schedule not in COPIES]
    small = {(case.stencil, case.steps, case.schedule): replace(
                case, shape=edges[len(case.shape)], target=None, share=None) for case in kernels}  # fmt: skip
    rows = Stencils(Lab(), 0.001).run(list(small.values()))
    assert len(rows) == len(small) == 8 * 4 + 8 + 8 + 1 + 1
    assert all(row.ok and row.check == 100 for row in rows), [row for row in rows if not row.ok]


def test_updates_with_sites_are_right_on_small_fields() -> None:
    """Every case of part ``sites`` on a smaller field, which is too large for the chip where its own is; what they
    reach is not judged."""
    shapes = {("f64", 2): (1030, 2050), ("f32", 3): (100, 130, 260), ("f32", 2): (500, 700)}

    def small(case: Case) -> Case:
        to = shapes[case.stencil.dtype, len(case.shape)]
        what = sites.moved(case.stencil, case.shape, to)  # type: ignore[arg-type]
        return replace(case, stencil=what, shape=to, share=None)

    rows = Updates(Lab(), 1, 0.001).run([small(case) for case in updates.cases(["sites"])])
    assert len(rows) == 8 and all(row.ok and row.gs_per_s for row in rows), [row for row in rows if not row.ok]
    assert [row.schedule.split()[0] == "resident" for row in rows] == [False] * 6 + [True] * 2


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_copies(lab: Lab, how: str) -> None:
    case = Case("copy", sg.Stencil.from_weights(np.ones((1, 1))), (300, 512), 1, how)
    row = Stencils(lab, 0.001).measure(case, Copy(case, lab))
    assert row.ok and row.error == 0 and row.gs_per_s and row.gs_per_s > 1


@pytest.mark.parametrize("schedule", ["direct", "resident", "auto"])
def test_a_brief_update_in_a_graph(lab: Lab, schedule: str) -> None:
    """Its time is that of a call without the host's, and what the graph leaves is what the call left."""

    @sg.stencil(dtype="f64", boundary=sg.periodic)
    def wave(u: Annotated[sg.Field, sg.Field(levels=2)], c: sg.Coef) -> sg.Value:
        around = u[0, 1] + u[0, -1] + u[1, 0] + u[-1, 0] - 4 * u[0, 0]
        return 2 * u[0, 0] - u.prev[0, 0] + c[0, 0] * around

    shape, steps = (320, 448), 24
    k = sg.compile(wave, shape, steps, backend="cuda", schedule=schedule)
    given = update_run.random(k.update, shape, k.dtype, 5)
    want = update_run.flat(sg.compile(wave, shape, steps, backend="reference")(**given))
    with update_run.arrays(lab, k.update, shape, k.dtype, 5) as (there, out, other):
        call = partial(k, **there, out=out)
        k(**there, out=other)
        replay, many = lab.undisturbed(call)
        assert many > 1
        plain = min(lab.times(call, 0.005, lab.flush)), min(lab.times(call, 0.005))
        graph = Timing.of(lab.times(replay, 0.005, lab.flush), many)
        assert 1e-6 < graph.p10 <= graph.median < 1.5 * min(plain)
        for _ in range(2):
            update_run.poison(lab, out, "f64")
            replay()
            assert update_run.apart(lab, out, other, "f64") == 0
        for field, exact in zip(update_run.flat(out), want, strict=True):
            got = np.empty(shape, k.dtype)
            lab.runtime.to_host(got, field.pointer)
            assert np.abs(got - exact).max() <= 1e-11 * np.abs(exact).max()
        k(**there, out=other)  # and calls go on as before
        assert update_run.apart(lab, other, out, "f64") == 0


def test_a_floor_runs_beside_the_cases(tmp_path: Path) -> None:
    (tmp_path / "hand.cu").write_text(HAND)
    case = Case("Heat-2D", stencils.stencil("Heat-2D"), (96, 96), 2, "direct", floor="hand:x")
    (row,) = Stencils(Lab(), 0.001).run([case], beside=[f"{tmp_path}/hand.cu quick"])
    assert row.ok and (row.floor, row.floor_by) == (42.5, "hand quick")


def test_integers_in_vectors_beside_libraries(lab: Lab) -> None:
    """A row of each kind of suite ``magicube``, small, with the times of every library; goals are not judged."""
    pytest.importorskip("torch")
    small = VectorCase("spmm", "spmm", (512, 768, 64), 0.9)
    cases = [
        small, replace(small, kinds=("i16", "i4"), height=2, sigma=1.0),
        VectorCase("sddmm", "sddmm", (512, 256, 384), 0.9),
        VectorCase("attention", "attention", (512, 512, 64), 0.8),
        VectorCase("attention", "attention", (512, 512, 64), 0.8, quantized=False),
    ]  # fmt: skip
    rows = Vectors(lab, 1, 0.002).run(cases)
    assert all(row.ok and row.regs and row.spills == 0 for row in rows), [
        row.failed or row for row in rows if not row.ok
    ]
    for row in rows:
        wanted = LIBRARIES["attention" if row.part == "attention" else "products"]
        assert row.beside is not None and set(row.beside) == set(wanted)
        assert row.hot_s and row.median_s and 1e-7 < row.hot_s <= row.median_s * 1.5
    found = report.result("magicube", rows, report.header(0.002, False, 1))
    assert "spmm, V=8" in report.text(found)


def test_any_matrix_beside_libraries(lab: Lab) -> None:
    """A product of suite ``unstructured`` in each type, and one of part ``auto`` with every family; goals are not
    judged."""
    pytest.importorskip("torch")
    blocks = partial(generated.clustered, 1024, 1024, group=32, blocks=4, fill=0.6, noise=0.002)
    matrix = Matrix("blocks", CLUSTERS, blocks)
    cases = [SparseCase("clustered", matrix, 64, dtype) for dtype in ("f16", "f32")]
    rows = Unstructured(lab, 1, 0.002).run([*cases, replace(cases[0], part=AUTO)])
    for row in rows:
        assert row.failed is None and row.same and row.error is not None and row.error <= TOLERANCE[row.dtype], row
        assert row.beside is not None and {CUBLAS, CUSPARSE} <= {*row.beside} and row.hot_s and row.hot_s > 1e-7
    assert rows[2].families and {"csr", "hybrid"} <= {rows[2].schedule.split()[0], *rows[2].families}


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
