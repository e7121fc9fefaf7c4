"""The reference of general updates against a loop over cells, and against what is known of the equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.backends.reference import stencil as linear
from sparsegen.backends.reference.boundary import pad
from sparsegen.backends.reference.update import run
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir.errors import ArrayError
from sparsegen.problems.update import UpdateProblem
from tests.updates import Array, arrays, burgers, gray_scott, life, made, op_of, wave

PAIR = st.sampled_from(
    [(("periodic", 0.0),) * 2]
    + [
        (a, b)
        for a in (("neumann", 0.0), ("frozen", 0.0), ("dirichlet", 2.0))
        for b in (("neumann", 0.0), ("dirichlet", -3.0))
    ]
)


def cell(u: Array, at: tuple[int, ...], sides: Any) -> float:
    """The value at any index, by the contract's words: the lowest dirichlet axis that the index leaves decides."""
    inner = []
    for n, i, (low, high) in zip(u.shape, at, sides, strict=True):
        kind, value = low if i < 0 else high
        if not 0 <= i < n and kind == "dirichlet":
            return float(value)
        mirrored = -1 - i if i < 0 else 2 * n - 1 - i
        edge = 0 if i < 0 else n - 1
        inner.append(i if 0 <= i < n else {"periodic": i % n, "neumann": mirrored, "frozen": edge}[kind])
    return float(u[tuple(inner)])


@given(
    shape=st.lists(st.integers(3, 6), min_size=1, max_size=3),
    data=st.data(),
)
def test_padded_fields(shape: list[int], data: st.DataObject) -> None:
    sides = tuple(data.draw(PAIR) for _ in shape)
    radius = tuple(data.draw(st.integers(0, 3)) for _ in shape)
    u = np.random.default_rng(0).random(shape)
    got = pad(u, radius, sides)
    for at in np.ndindex(*got.shape):
        assert got[at] == cell(u, tuple(i - r for i, r in zip(at, radius, strict=True)), sides)


@pytest.mark.parametrize("boundary", [sg.periodic, sg.frozen, sg.neumann, sg.dirichlet(1.5)], ids=str)
def test_a_linear_formula_means_the_same_as_the_stencil(boundary: Any) -> None:
    def both(u: Any) -> Any:
        return 0.5 * u[0, 0] + 0.25 * u[-1, 2] - 0.125 * u[1, 0]

    stencil = sg.stencil(boundary=boundary)(both)
    assert isinstance(stencil, Stencil)
    update = made(lambda u, v: (both(u), both(v)), boundary=boundary)
    given = arrays(update, (9, 8))
    got = run(op_of(update, (9, 8)), {n: (a,) for n, a in given.items()}, {}, 3)
    for name, start in given.items():
        np.testing.assert_allclose(got[name][0], linear.run(start, stencil.weights, stencil.sides, 3), atol=1e-15)


def test_levels_shift_every_step() -> None:
    def fibonacci(u: sg.Field(levels=2)) -> Any:  # type: ignore[valid-type]
        return u[0] + u.prev[0]

    got = run(op_of(made(fibonacci), (3,)), {"u": (np.ones(3), np.zeros(3))}, {}, 6)["u"]
    assert [a[0] for a in got] == [13.0, 8.0]


def test_fields_are_updated_at_once() -> None:
    swap = made(lambda u, v: (v[0], u[0]))
    got = run(op_of(swap, (2,)), {"u": (np.zeros(2),), "v": (np.ones(2),)}, {}, 3)
    assert (got["u"][0] == 1).all() and (got["v"][0] == 0).all()


def test_a_standing_wave_has_its_period() -> None:
    n, c2 = 64, 0.25
    x = np.arange(n) * 2 * np.pi / n
    omega = 2 * np.arcsin(np.sqrt(c2) * np.sin(np.pi / n))  # of the discrete equation, exactly
    u = np.broadcast_to(np.cos(x), (4, n))
    levels = run(
        op_of(wave(boundary=sg.periodic), (4, n)), {"u": (u, np.cos(omega) * u)}, {"c": np.full((4, n), c2)}, 50
    )["u"]
    np.testing.assert_allclose(levels[0], np.cos(50 * omega) * u, atol=1e-12)


def test_a_blinker_blinks() -> None:
    cells = np.zeros((5, 5))
    cells[2, 1:4] = 1
    op = op_of(life(boundary=sg.dirichlet(0.0)), (5, 5))
    assert np.array_equal(run(op, {"u": (cells,)}, {}, 1)["u"][0], cells.T)
    assert np.array_equal(run(op, {"u": (cells,)}, {}, 2)["u"][0], cells)


def test_gray_scott_rests_where_nothing_is() -> None:
    rest = run(op_of(gray_scott(), (6, 6)), {"u": (np.ones((6, 6)),), "v": (np.zeros((6, 6)),)}, {}, 5)
    assert (rest["u"][0] == 1).all() and (rest["v"][0] == 0).all()


def test_frozen_cells_keep_their_values_and_the_type_stays() -> None:
    update = burgers(boundary=sg.frozen, dtype="f32")
    start = arrays(update, (20,))["u"]
    end = run(op_of(update, (20,)), {"u": (start,)}, {}, 4)["u"][0]
    assert end.dtype == np.float32 and (end[0], end[-1]) == (start[0], start[-1])
    assert (end[1:-1] != start[1:-1]).all()


def test_no_steps_are_refused() -> None:
    (op,) = UpdateProblem(life(), (4, 4)).describe().funcs
    with pytest.raises(ArrayError, match="0 time steps"):
        run(op, {"u": (np.zeros((4, 4)),)}, {}, 0)  # type: ignore[arg-type]
