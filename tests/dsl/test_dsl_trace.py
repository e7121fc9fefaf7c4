"""The decorator: Python functions become weights, exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.dsl.operands import Accessor
from sparsegen.dsl.stencil import Stencil
from sparsegen.dsl.trace import Field, stencil
from tests.work import calls

HERE = Path(__file__)


@stencil(dtype="f64", boundary=periodic)
def heat2d(u: Any) -> Any:
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])


def test_the_contracts_example() -> None:
    w = np.array([[0.0, 0.125, 0.0], [0.125, 0.5, 0.125], [0.0, 0.125, 0.0]])
    assert isinstance(heat2d, Stencil)
    assert heat2d == Stencil.from_weights(w, boundary=periodic)
    assert heat2d.name == "heat2d"
    reads = {text: sympy.Symbol(text) for text in ("u[0, 0]", "u[-1, 0]", "u[1, 0]", "u[0, -1]", "u[0, 1]")}
    centre, *around = reads.values()
    assert sympy.expand(heat2d.expr - (0.5 * centre + 0.125 * sympy.Add(*around))) == 0


def test_the_location_is_the_def_line_below_decorators() -> None:
    assert heat2d.loc is not None and Path(heat2d.loc.file) == HERE
    assert HERE.read_text().splitlines()[heat2d.loc.line - 1].startswith("def heat2d(u")


def test_bare_with_options_and_on_a_lambda() -> None:
    @stencil
    def bare(u: Any) -> Any:
        return u[0]

    @stencil()
    def empty(u: Any) -> Any:
        return u[0]

    assert bare == empty and bare.dtype == "f64" and bare.boundary is periodic
    assert stencil(lambda u: u[1] - u[-1]).name == "stencil"
    named = stencil(dtype="f32", boundary={0: (frozen, neumann), 1: dirichlet(2.0)}, name="edge")(lambda u: u[1, 0])
    assert (named.name, named.dtype) == ("edge", "f32")
    assert named.sides == ((frozen, neumann), (dirichlet(2.0), dirichlet(2.0)))


@given(
    st.lists(
        st.tuples(
            st.tuples(st.integers(-3, 3), st.integers(-3, 3)), st.floats(-1e9, 1e9).filter(lambda c: abs(c) > 1e-9)
        ),
        min_size=1,
        max_size=12,
        unique_by=lambda term: term[0],
    )
)
def test_the_coefficients_arrive_exactly(terms: list[tuple[tuple[int, int], float]]) -> None:
    traced = stencil(lambda u: sum(c * u[dy, dx] for (dy, dx), c in terms))
    radius = traced.radius
    assert radius == tuple(max(abs(offset[axis]) for offset, _ in terms) for axis in (0, 1))
    expected = np.zeros([2 * r + 1 for r in radius])
    for offset, c in terms:
        expected[radius[0] + offset[0], radius[1] + offset[1]] = c
    np.testing.assert_array_equal(traced.weights, expected)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(0.1, 1e9))
def test_float_arithmetic_is_python_s(a: float, b: float, c: float) -> None:
    """a * u + b * u, then divided, rounds as Python rounds it, step by step."""
    expected = (a + b) / c
    traced = stencil(lambda u: (a * u[0] + u[0] * b) / c + 5 * u[1])
    assert traced.weights[traced.radius[0]] == expected


def test_integers_and_fractions_stay_exact_to_the_end() -> None:
    traced = stencil(lambda u: (u[-1] + u[0] + u[1]) / 3 / 7 * 3)
    assert traced.weights.tolist() == [1 / 7] * 3
    assert stencil(lambda u: 10**40 * u[0] / (3 * 10**40)).weights.tolist() == [1 / 3]
    assert stencil(lambda u: Fraction(1, 3) * u[0] - u[0] / 3 + u[1]).points == 1
    assert stencil(lambda u: u[0] * sympy.Rational(1, 3) + sympy.sqrt(2) * u[1]).weights.tolist() == [0, 1 / 3, 2**0.5]


def test_all_linear_operators() -> None:
    traced = stencil(lambda u: -(+u[0] - 2 * u[1]) + (0 - u[-1]) + 0 + (u[2] + u[-2] - 0) * 0.5)
    assert traced.weights.tolist() == [0.5, -1, -1, 2, 0.5]


def test_numpy_scalars_are_numbers_and_their_precision_is_kept() -> None:
    assert stencil(lambda u: np.float32(0.1) * u[0]).weights.tolist() == [float(np.float32(0.1))]
    assert stencil(lambda u: np.array(0.1) * u[0]).weights.tolist() == [0.1]
    assert stencil(lambda u: u[np.int64(1), 0] / np.int32(4)).weights.tolist() == [[0.0], [0.0], [0.25]]


def test_helpers_loops_and_the_enclosing_scope_are_plain_python() -> None:
    alpha, reach = 0.1, 3

    def laplace(u: Accessor) -> Any:
        return sum(u[d, 0, 0] + u[-d, 0, 0] - 2 * u[0, 0, 0] for d in range(1, reach + 1))

    traced = stencil(lambda u: u[0, 0, 0] + alpha * laplace(u))
    assert (traced.ndim, traced.radius, traced.points) == (3, (3, 0, 0), 7)
    assert traced.weights[3, 0, 0] == pytest.approx(1 - 6 * alpha)


def test_cancelled_reads_do_not_widen_the_stencil() -> None:
    assert stencil(lambda u: u[0] + u[5] - u[5] + 0.0 * u[7]).radius == (0,)


def test_the_radius_limit_itself_is_allowed() -> None:
    assert stencil(lambda u: u[-16]).radius == (16,)


def test_a_field_of_one_level_may_be_annotated() -> None:
    def plain(u: Field()) -> Any:  # type: ignore[valid-type]
        return u[0]

    assert stencil(plain).points == 1


def test_an_unknown_annotation_does_not_matter() -> None:
    def odd(u: NotThere) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return u[0]

    assert stencil(odd).points == 1


def test_names_become_identifiers() -> None:
    def wärme(u: Any) -> Any:
        return u[0]

    assert stencil(wärme).name == "w_rme"


def test_sympy_is_imported_by_the_first_trace_only() -> None:
    program = (
        "import sys; from sparsegen.dsl.trace import stencil\n"
        "assert 'sympy' not in sys.modules; stencil(lambda u: u[0]); assert 'sympy' in sys.modules"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": path})


def test_a_trace_is_little_work() -> None:
    def box(u: Any) -> Any:
        return sum(u[dy, dx] * (1 + dy + 0.1 * dx) for dy in range(-3, 4) for dx in range(-3, 4))

    stencil(box)
    assert calls(lambda: stencil(box)) < 50_000  # 25 000; far more if every operation rebuilt the whole expression
