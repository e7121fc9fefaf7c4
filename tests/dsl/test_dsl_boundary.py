"""Boundaries as values, as text, and resolved per axis and side."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.boundary import collapse, dirichlet, frozen, neumann, periodic, resolve
from sparsegen.ir.boundary import Side, Sides, describe
from sparsegen.ir.errors import BoundaryError

VALUES = st.floats(allow_nan=False, allow_infinity=False)
KINDS = st.one_of(st.sampled_from([frozen, neumann]), st.builds(dirichlet, VALUES))
SIDES = st.lists(st.one_of(st.just((periodic, periodic)), st.tuples(KINDS, KINDS)), min_size=1, max_size=3).map(tuple)


@given(SIDES)
def test_a_side_reads_back_from_its_text(sides: Sides) -> None:
    for side in (side for pair in sides for side in pair):
        assert Side.parse(str(side)) == side
        assert pickle.loads(pickle.dumps(side)) == side


@given(SIDES)
def test_the_shortest_spec_means_the_same(sides: Sides) -> None:
    assert resolve(collapse(sides), len(sides)) == sides


@pytest.mark.parametrize(
    "text", ["", "mirror", "dirichlet", "dirichlet()", "dirichlet(a)", "dirichlet(nan)", "frozen(1)"]
)
def test_no_other_text_is_a_side(text: str) -> None:
    with pytest.raises(BoundaryError):
        Side.parse(text)


def test_values_compare_and_print() -> None:
    assert dirichlet(1) == dirichlet(1.0) and hash(dirichlet(1)) == hash(dirichlet(1.0))
    assert dirichlet(0.0) != neumann and dirichlet(0.0) != dirichlet(1.0)
    assert repr(dirichlet(-0.0)) == "dirichlet(0.0)"
    assert [str(one) for one in (periodic, frozen, neumann, dirichlet(0.5))] == [
        "periodic",
        "frozen",
        "neumann",
        "dirichlet(0.5)",
    ]


def test_specs_resolve_to_low_and_high() -> None:
    assert resolve(neumann, 3) == ((neumann, neumann),) * 3
    mixed = resolve({1: periodic, 0: (frozen, neumann)}, 2)
    assert mixed == ((frozen, neumann), (periodic, periodic))
    assert describe(mixed) == "0: frozen|neumann, 1: periodic"
    assert describe(resolve(dirichlet(2), 2)) == "dirichlet(2.0)"
    assert collapse(resolve({0: periodic, 1: (periodic, periodic)}, 2)) is periodic


@pytest.mark.parametrize("arguments", [("mirror", 0.0), ("frozen", 1.0), ("dirichlet", float("inf"))])
def test_a_side_is_valid_or_not_made(arguments: tuple[str, float]) -> None:
    with pytest.raises(BoundaryError):
        Side(*arguments)
