"""The reference against the definition: one loop over cells and weights, on whole numbers, so that equal is equal."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.backends.reference.stencil import run, step
from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.ir.boundary import Side, Sides
from sparsegen.ir.errors import ArrayError

Array = npt.NDArray[Any]


def outside(u: Array, cell: tuple[int, ...], sides: Sides) -> float:
    """The value at any index, by the contract's words: the lowest dirichlet axis that the index leaves decides."""
    inner = []
    for n, i, (low, high) in zip(u.shape, cell, sides, strict=True):
        side = low if i < 0 else high
        if 0 <= i < n:
            inner.append(i)
        elif side.kind == "dirichlet":
            return side.value
        elif side.kind == "periodic":
            inner.append(i % n)
        elif side.kind == "neumann":
            inner.append(-1 - i if i < 0 else 2 * n - 1 - i)
        else:
            return float("nan")  # frozen: nobody may read this
    return float(u[tuple(inner)])


def naive(u: Array, w: Array, sides: Sides) -> Array:
    """One time step, cell by cell."""
    radius = [extent // 2 for extent in w.shape]
    out = np.empty_like(u)
    for cell in np.ndindex(*u.shape):
        keeps = any(
            (low.kind == "frozen" and i < r) or (high.kind == "frozen" and i >= n - r)
            for i, n, r, (low, high) in zip(cell, u.shape, radius, sides, strict=True)
        )
        if keeps:
            out[cell] = u[cell]
            continue
        out[cell] = sum(
            w[d] * outside(u, tuple(i + k - r for i, k, r in zip(cell, d, radius, strict=True)), sides)
            for d in np.ndindex(*w.shape)
            if w[d] != 0
        )
    return out


KINDS = st.sampled_from([frozen, neumann, dirichlet(0.0), dirichlet(3.0), dirichlet(-2.0)])
PAIR = st.one_of(st.just((periodic, periodic)), st.tuples(KINDS, KINDS))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Array, Array, Sides]:
    """A tiny field of whole numbers, whole weights, and any mixture of boundaries."""
    ndim = draw(st.integers(1, 3))
    radius = draw(st.lists(st.integers(0, 3 - ndim // 2), min_size=ndim, max_size=ndim))
    shape = [2 * r + 1 + draw(st.integers(0, 3)) for r in radius]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    u = rng.integers(-9, 10, shape).astype(np.float64)
    w = rng.integers(-3, 4, [2 * r + 1 for r in radius]).astype(np.float64)
    return u, w, tuple(draw(st.lists(PAIR, min_size=ndim, max_size=ndim)))


@given(cases())
def test_one_step_is_the_definition(case: tuple[Array, Array, Sides]) -> None:
    u, w, sides = case
    before = u.copy()
    np.testing.assert_array_equal(step(u, w, sides), naive(u, w, sides))
    np.testing.assert_array_equal(u, before)


@given(cases(), st.integers(1, 3))
def test_the_boundary_holds_at_every_step(case: tuple[Array, Array, Sides], steps: int) -> None:
    u, w, sides = case
    expected = u
    for _ in range(steps):
        expected = naive(expected, w, sides)
    np.testing.assert_array_equal(run(u, w, sides, steps), expected)


@pytest.mark.parametrize("pair", list(itertools.product([frozen, neumann, dirichlet(3.0)], repeat=2)), ids=str)
def test_each_mixture_of_two_sides_in_one_axis(pair: tuple[Side, Side]) -> None:
    u, w = np.array([5.0, -2.0, 7.0, 1.0, 4.0, 9.0]), np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    np.testing.assert_array_equal(step(u, w, (pair,)), naive(u, w, (pair,)))


def test_the_values_by_hand() -> None:
    u, w = np.array([1.0, 2.0, 4.0]), np.array([10.0, 0.0, 1.0])  # out[i] = 10 u[i-1] + u[i+1]: correlation
    both = {side: step(u, w, ((side, side),)).tolist() for side in (periodic, neumann, dirichlet(7.0), frozen)}
    assert both == {
        periodic: [42.0, 14.0, 21.0],
        neumann: [12.0, 14.0, 24.0],
        dirichlet(7.0): [72.0, 14.0, 27.0],
        frozen: [1.0, 14.0, 4.0],
    }


def test_two_cells_beyond_a_neumann_face_read_the_second() -> None:
    w = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    assert step(np.arange(5.0), w, ((neumann, neumann),)).tolist() == [1.0, 0.0, 0.0, 1.0, 2.0]


def test_the_lowest_dirichlet_axis_holds_the_corner() -> None:
    w = np.zeros((3, 3))
    w[0, 0] = 1.0
    out = step(np.zeros((3, 3)), w, ((dirichlet(1.0), dirichlet(1.0)), (dirichlet(2.0), dirichlet(2.0))))
    assert out[0].tolist() == [1.0, 1.0, 1.0] and out[1:, 0].tolist() == [2.0, 2.0]


def test_a_zero_weight_does_not_spread_a_nan() -> None:
    u = np.ones((5, 5))
    u[2, 2] = np.nan
    star = np.array([[0.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    wrong = np.isnan(step(u, star, ((periodic, periodic),) * 2))
    assert int(wrong.sum()) == 5 and not wrong[1, 1]


def test_types_stay_and_narrow_fields_sum_in_f32() -> None:
    w, sides = np.full(3, 1.0), ((periodic, periodic),)
    big = np.array([2048.0, 1.0, 1.0, 0.0])
    half = step(big.astype(np.float16), w, sides)
    assert half.dtype == np.float16
    assert half[1] == 2050.0  # 2048 + 1 + 1: summed in f16, each 1 would be lost to rounding
    assert step(big.astype(np.float16), w, sides, accumulate=np.float16)[1] == 2048.0
    single = np.array([2.0**24, 1.0, 1.0, 0.0], np.float32)
    assert step(single, w, sides).dtype == np.float32
    assert step(single, w, sides)[1] == 2.0**24
    assert step(single, w, sides, accumulate=np.float64)[1] == 2.0**24 + 2


def test_bf16_fields_stay_bf16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    out = run(np.array([256.0, 1.0, 1.0, 0.0]).astype(ml_dtypes.bfloat16), np.ones(3), ((periodic, periodic),), 1)
    assert out.dtype == ml_dtypes.bfloat16 and float(out[1]) == 258.0


@pytest.mark.parametrize(
    ("u", "steps", "says"),
    [
        (np.zeros((4, 5)), 1, r"shape \(4, 5\) is smaller than the stencil's \(5, 5\)"),
        (np.zeros(9), 1, "1 axes of field, 2 of weights, 2 of boundary"),
        (np.zeros((9, 9), np.int64), 1, "dtype int64"),
        (np.zeros((9, 9)), 0, "0 time steps"),
    ],
)
def test_what_is_refused(u: Array, steps: int, says: str) -> None:
    with pytest.raises(ArrayError, match=says):
        run(u, np.ones((5, 5)), ((periodic, periodic),) * 2, steps)
