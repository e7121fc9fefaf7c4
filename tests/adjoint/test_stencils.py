"""Adjoints of linear stencils: ``<k(x), y> = <x, k.adjoint()(y)>`` with every boundary."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.update import Update

Array = npt.NDArray[Any]
H200: Any = {"device": "h200", "backend": "reference", "schedule": "direct"}
ENDS = (sg.frozen, sg.neumann, sg.dirichlet(0.0))
#: A boundary whose adjoint needs every kind of table.
MIXED = {0: (sg.frozen, sg.neumann), 1: (sg.neumann, sg.frozen)}
SKEW = np.random.default_rng(0).standard_normal((3, 5)) / 4


@st.composite
def cases(draw: Any) -> tuple[Stencil, tuple[int, ...], int, int]:
    """A stencil of any weights and boundaries, a shape that is not much larger, steps, a seed."""
    extents = draw(st.lists(st.sampled_from((1, 3, 5)), min_size=1, max_size=3).filter(lambda e: prod(e) > 1))
    weights = draw(st.lists(st.integers(-4, 4), min_size=prod(extents), max_size=prod(extents)).filter(any))
    w = np.array(weights, float).reshape(extents) / 8
    if draw(st.booleans()):
        w = (w + np.flip(w)) / 2
    if not w.any():
        w[(0,) * w.ndim] = 1.0
    end = st.sampled_from(ENDS)
    sides = {axis: draw(st.one_of(st.just(sg.periodic), st.tuples(end, end))) for axis in range(len(extents))}
    shape = tuple(extent + draw(st.integers(0, 4)) for extent in extents)
    return sg.Stencil.from_weights(w, sides), shape, draw(st.integers(1, 6)), draw(st.integers(0, 99))


@given(cases())
def test_the_dot_products_agree(case: tuple[Stencil, tuple[int, ...], int, int]) -> None:
    stencil, shape, steps, seed = case
    k = sg.compile(stencil, shape, steps=steps, **H200)
    adjoint = k.adjoint("direct")
    note(f"{stencil} {stencil.weights.tolist()}\n{adjoint}")
    x, y = np.random.default_rng(seed).standard_normal((2, *shape))
    forward, back = k(x), adjoint(y)
    size = np.linalg.norm(forward) * np.linalg.norm(y) + np.linalg.norm(x) * np.linalg.norm(back)
    assert abs(np.vdot(forward, y) - np.vdot(x, back)) <= 1e-12 * max(size, 1.0)


def matrix(k: sg.Kernel) -> Array:
    """The linear part of a kernel as a matrix: a column a cell."""
    cells = np.eye(prod(k.shape)).reshape(-1, *k.shape)
    rest = k(np.zeros(k.shape))
    return np.stack([(k(cell) - rest).ravel() for cell in cells], axis=1)


@pytest.mark.parametrize("boundary", [*ENDS, sg.dirichlet(3.0), sg.periodic, MIXED])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_matrix_is_transposed(boundary: Any, steps: int) -> None:
    """Also of an affine step, of which the linear part counts."""
    k = sg.compile(sg.Stencil.from_weights(SKEW, boundary), (4, 6), steps=steps, **H200)
    found, want = matrix(k.adjoint()), matrix(k).T
    assert np.abs(found - want).max() < 1e-14 * 10**steps and np.abs(want - want.T).max() > 0.1
    assert (k.adjoint()(np.zeros((4, 6))) == 0).all()


@pytest.mark.parametrize(
    ("weights", "boundary", "tables"),
    [
        (SKEW, sg.periodic, None),
        (SKEW, {0: (sg.dirichlet(1.0), sg.dirichlet(2.0)), 1: sg.dirichlet(0.0)}, None),
        (SKEW + np.flip(SKEW, 0), {0: sg.neumann, 1: sg.periodic}, None),
        (SKEW, {0: sg.neumann, 1: sg.periodic}, 1),
        (SKEW, {0: sg.frozen, 1: sg.periodic}, 1),
        (SKEW, MIXED, 3),
    ],
)
def test_what_an_adjoint_is(weights: Array, boundary: Any, tables: int | None) -> None:
    """A stencil, with all schedules of those, where borders need no more than flipped weights."""
    k = sg.compile(sg.Stencil.from_weights(weights, boundary, name="drift"), (40, 60), **H200)
    adjoint = k.adjoint("direct")
    if tables is None:
        assert isinstance(adjoint.stencil, Stencil) and np.array_equal(adjoint.stencil.weights, np.flip(weights))
        assert adjoint.adjoint("direct").stencil.weights.tolist() == k.stencil.weights.tolist()
    else:
        assert isinstance(adjoint.update, Update) and len(adjoint.weights()) == tables
        told = str(adjoint.explain())
        assert "the transposed step of drift" in told and f"reads {tables} array{'s' * (tables > 1)} more" in told
    assert adjoint.problem.name == "drift_adjoint" and adjoint.steps == k.steps


@pytest.mark.parametrize("schedule", ["auto", "direct", "tiled", "stream levels=2 cols=2", "resident"])
def test_every_schedule_on_the_emulator(schedule: str) -> None:
    """Also rows that lie apart, other steps, all checkers, and counts."""
    shape = (40, 100) if schedule != "tiled" else (40, 70)
    stencil = sg.Stencil.from_weights(SKEW[:, 1:4], MIXED)
    adjoint = sg.compile(stencil, shape, steps=3, device="h200", backend="emulator").adjoint(schedule)
    want = sg.compile(stencil, shape, steps=3, **H200).adjoint("direct")
    y = np.random.default_rng(1).standard_normal(shape)
    apart = np.zeros((shape[0], shape[1] + 4))[:, : shape[1]]
    apart[...] = y
    assert np.abs(adjoint(y) - want(y)).max() < 1e-12 and np.array_equal(adjoint(apart), adjoint(y))
    assert np.abs(adjoint(y, steps=2) - want(y, np.empty(shape), 2)).max() < 1e-12
    adjoint.check().raise_if_errors()
    assert len(adjoint.counts()) > 5


@pytest.mark.parametrize("boundary", [sg.dirichlet(0.0), sg.neumann, sg.frozen])
@pytest.mark.parametrize("steps", [1, 5])
def test_a_stencil_on_the_emulator(boundary: Any, steps: int) -> None:
    w = np.array([[0, 0.25, 0], [0.125, 0.25, 0.125], [0, 0.25, 0]])
    k = sg.compile(sg.Stencil.from_weights(w, boundary), (24, 40), steps=steps, device="h200", backend="emulator")
    x, y = np.random.default_rng(steps).standard_normal((2, 24, 40))
    assert abs(np.vdot(k(x), y) - np.vdot(x, k.adjoint()(y))) < 1e-11


def test_of_a_stencil_in_a_schedule_of_updates() -> None:
    """And what was asked of the kernel's schedule is asked of the adjoint's."""
    stencil = sg.Stencil.from_weights(SKEW, sg.periodic)
    k = sg.compile(stencil, (64, 128), steps=3, device="h200", backend="reference", schedule="resident")
    assert isinstance(k.adjoint().stencil, Stencil) and k.adjoint("resident").schedule.family == "resident"
    exact = sg.compile(stencil, (64, 128), nonfinite="exact", **H200)
    with pytest.raises(sg.ScheduleError, match="may spread a NaN"):
        exact.adjoint("stencil2row")


@pytest.mark.parametrize(("dtype", "off"), [("f32", 1e-5), ("f16", 2e-2), ("bf16", 1e-1)])
def test_narrow_types(dtype: str, off: float) -> None:
    k = sg.compile(sg.Stencil.from_weights(SKEW, MIXED, dtype=dtype), (9, 11), steps=3, **H200)
    x, y = np.random.default_rng(2).standard_normal((2, 9, 11)).astype(k.dtype)
    back = k.adjoint()(y)
    assert back.dtype == k.dtype
    pair = [np.vdot(a.astype(float), b.astype(float)) for a, b in ((k(x), y), (x, back))]
    assert abs(pair[0] - pair[1]) < off * np.linalg.norm(x.astype(float)) * np.linalg.norm(y.astype(float))


def test_an_export_says_what_the_arrays_are(tmp_path: Path) -> None:
    adjoint = sg.compile(sg.Stencil.from_weights(SKEW, MIXED), (9, 35), **H200).adjoint()
    adjoint.export(tmp_path / "back.cu")
    head = (tmp_path / "back.h").read_text()
    assert "0 in frozen cells and 1 in all others" in head and "how near cells are to the mirrors of axis 0" in head
    free = adjoint.weights()["in.free.0"].reshape(9, 35)
    assert not free[0].any() and not free[:, -2:].any() and free[1:, :-2].all()


def test_what_has_no_adjoint() -> None:
    adjoint = sg.compile(sg.Stencil.from_weights(SKEW, MIXED), (9, 35), **H200).adjoint()
    with pytest.raises(sg.StencilError, match="is an adjoint already") as said:
        adjoint.adjoint()
    assert said.value.loc and said.value.loc.file == __file__
    product = sg.compile(sg.spmm(sg.sparse(np.eye(32, dtype="f2"), "bitmap"), n=8), device="h200", backend="reference")
    with pytest.raises(sg.ProductError, match="no adjoint"):
        product.adjoint()
    with pytest.raises(sg.ScheduleError):
        sg.compile(sg.Stencil.from_weights(SKEW, sg.frozen), (9, 35), **H200).adjoint("stencil2row")
