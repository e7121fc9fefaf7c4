"""Fused weights are T steps exactly, and the rims are as wide as they must be and no wider."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.backends.reference.stencil import run, step
from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir.boundary import Side, Sides
from sparsegen.ir.fuse import Widths, convolve
from sparsegen.ir.fuse import rim_width as widths

Array = npt.NDArray[Any]
RNG = np.random.default_rng(2)


def rim_width(stencil: Stencil, steps: int) -> Widths:
    """(low, high) width of each axis's rim, in cells."""
    sides = tuple(((low.kind, low.value), (high.kind, high.value)) for low, high in stencil.sides)
    return widths(stencil.weights, sides, steps)


def wrong_cells(stencil: Stencil, u: Array, steps: int) -> npt.NDArray[np.bool_]:
    """Where one application of the fused weights, boundary filled once, differs from ``steps`` real steps."""
    once = step(u, convolve(stencil.weights, steps), stencil.sides)
    return np.asarray(once != run(u, stencil.weights, stencil.sides, steps))


def outside_all_rims(shape: tuple[int, ...], stencil: Stencil, steps: int) -> tuple[slice, ...]:
    rims = rim_width(stencil, steps)
    return tuple(slice(low, n - high) for n, (low, high) in zip(shape, rims, strict=True))


KINDS = st.sampled_from([frozen, neumann, dirichlet(0.0), dirichlet(3.0)])
PAIR = st.one_of(st.just((periodic, periodic)), st.tuples(KINDS, KINDS))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Array, Stencil, int]:
    """Whole numbers throughout; some axes of the weights mirrored, some with an empty side."""
    ndim, steps = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    radius = draw(st.lists(st.integers(0, 2 if ndim < 3 else 1), min_size=ndim, max_size=ndim))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    w = rng.integers(-2, 3, [2 * r + 1 for r in radius]).astype(np.float64)
    for axis, r in enumerate(radius):
        shape = draw(st.sampled_from(["general", "general", "mirrored", "one-sided"]))
        if shape == "mirrored":
            w = w + np.flip(w, axis)
        elif shape == "one-sided" and r:
            np.moveaxis(w, axis, 0)[draw(st.sampled_from([0, 2 * r]))] = 0
    w[tuple(radius)] += 11  # never all zero
    sides = tuple(draw(st.lists(PAIR, min_size=ndim, max_size=ndim)))
    field = rng.integers(-9, 10, [2 * r * steps + 1 + draw(st.integers(0, 5)) for r in radius]).astype(np.float64)
    return field, Stencil(w, "f64", sides), steps


@given(cases())
def test_outside_the_rims_one_fused_step_is_exact(case: tuple[Array, Stencil, int]) -> None:
    u, stencil, steps = case
    assert not wrong_cells(stencil, u, steps)[outside_all_rims(u.shape, stencil, steps)].any()


LINE = np.array([3.0, 1.0, 5.0, 2.0, 7.0])
MIRRORED = np.array([3.0, 1.0, 5.0, 1.0, 3.0])
UPWIND = np.array([3.0, 1.0, 5.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("weights", "low", "high", "rim"),
    [
        (LINE, periodic, periodic, (0, 0)),
        (MIRRORED, neumann, neumann, (0, 0)),
        (MIRRORED, neumann, dirichlet(4.0), (0, 4)),
        (LINE, neumann, neumann, (4, 4)),
        (LINE, dirichlet(4.0), frozen, (4, 6)),
        (MIRRORED, frozen, frozen, (6, 6)),
        (UPWIND, dirichlet(4.0), dirichlet(4.0), (4, 0)),
        (UPWIND, neumann, neumann, (4, 0)),
        (UPWIND, frozen, frozen, (6, 6)),
    ],
)
def test_rims_are_no_wider_than_they_must_be(weights: Array, low: Side, high: Side, rim: tuple[int, int]) -> None:
    """Radius 2, three steps: the innermost cell of each rim differs."""
    stencil = Stencil(weights, "f64", ((low, high),))
    assert rim_width(stencil, 3) == (rim,)
    u = RNG.integers(1, 100, 40).astype(np.float64)
    wrong = wrong_cells(stencil, u, 3)
    assert not rim[0] or wrong[rim[0] - 1]
    assert not rim[1] or wrong[40 - rim[1]]
    assert not wrong[rim[0] : 40 - rim[1]].any()


def test_neumann_needs_symmetry_along_its_own_axis_only() -> None:
    """Mirrored along axis 0 but not along 1: neumann at axis 0 has no rim, whatever axis 1 does."""
    w = np.array([[1.0, 2.0, 5.0], [3.0, 1.0, 4.0], [1.0, 2.0, 5.0]])
    u = RNG.integers(1, 100, (20, 20)).astype(np.float64)
    across: Sides = ((neumann, neumann), (periodic, periodic))
    assert rim_width(Stencil(w, "f64", across), 3) == ((0, 0), (0, 0))
    assert not wrong_cells(Stencil(w, "f64", across), u, 3).any()
    along: Sides = ((periodic, periodic), (neumann, neumann))
    assert rim_width(Stencil(w, "f64", along), 3) == ((0, 0), (2, 2))
    assert wrong_cells(Stencil(w, "f64", along), u, 3)[:, [1, -2]].any()


def test_mirrored_through_the_centre_is_not_enough_for_neumann() -> None:
    """w(-d) = w(d), but not mirrored along either axis: both have rims."""
    w = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [2.0, 0.0, 1.0]])
    stencil = Stencil(w, "f64", ((neumann, neumann),) * 2)
    assert rim_width(stencil, 2) == ((1, 1), (1, 1))
    assert wrong_cells(stencil, RNG.integers(1, 100, (9, 9)).astype(np.float64), 2)[0].any()


def test_one_step_has_no_rim() -> None:
    for side in (frozen, neumann, dirichlet(2.0)):
        stencil = Stencil(LINE, "f64", ((side, side),))
        assert rim_width(stencil, 1) == ((0, 0),)
        assert not wrong_cells(stencil, RNG.random(20), 1).any()


@pytest.mark.parametrize("shape", [(5,), (3, 5), (3, 1, 3)])
def test_fusing_is_convolution(shape: tuple[int, ...]) -> None:
    """Against the definition, index by index: (a * b)[k] = sum over i of a[i] b[k - i]."""
    w = RNG.integers(-5, 6, shape).astype(np.float64)
    expected = np.zeros([2 * n - 1 for n in shape])
    for i in np.ndindex(*shape):
        for j in np.ndindex(*shape):
            expected[tuple(np.add(i, j))] += w[i] * w[j]
    np.testing.assert_array_equal(convolve(w, 2), expected)
    np.testing.assert_array_equal(convolve(convolve(w, 2), 2), convolve(w, 4))
    np.testing.assert_array_equal(convolve(w, 1), w)
    assert convolve(w, 1) is not w


def test_heat_2d_fused_planes_are_the_known_diamond() -> None:
    star = np.array([[0.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 0.0]])
    assert [int(np.count_nonzero(row)) for row in convolve(star, 3)] == [1, 3, 5, 7, 5, 3, 1]
    assert convolve(star / 8, 3).sum() == 1.0
