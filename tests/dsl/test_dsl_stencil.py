"""The value object: what it derives from its weights, equality, and rounding to the field's type."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.boundary import dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil, round_to

HEAT = np.array([[0.0, 0.125, 0.0], [0.125, 0.5, 0.125], [0.0, 0.125, 0.0]])


def test_what_the_weights_say() -> None:
    heat = Stencil.from_weights(HEAT, boundary={0: (frozen, neumann), 1: periodic}, name="heat")
    assert (heat.ndim, heat.radius, heat.points, heat.kind, heat.dtype) == (2, (1, 1), 5, "star", "f64")
    assert heat.sides == ((frozen, neumann), (periodic, periodic)) and heat.expr is None
    assert heat.boundary == {0: (frozen, neumann), 1: periodic}
    assert str(heat) == "heat: 5-point star, 3x3, f64, 0: frozen|neumann, 1: periodic"
    assert heat.loc is not None and Path(heat.loc.file) == Path(__file__)


def test_box_star_and_extents() -> None:
    assert Stencil.from_weights(np.ones((3, 3))).kind == "box"
    assert Stencil.from_weights(np.ones(7)).kind == "star"
    assert Stencil.from_weights(np.ones((1, 1, 5))).kind == "star"
    diagonal = np.zeros((3, 3, 3))
    diagonal[1, 0, 0] = 1.0
    assert Stencil.from_weights(diagonal).kind == "box"


def test_reach_leaves_out_zero_sides_and_radius_does_not() -> None:
    upwind = Stencil.from_weights(np.array([[0.0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]))
    assert upwind.radius == (1, 2) and upwind.reach == ((0, 0), (1, 0))
    ahead = Stencil.from_weights(np.array([0.0, 0.0, 1.0]))
    assert ahead.reach == ((0, 1),)


def test_symmetry_is_per_axis_and_exact() -> None:
    w = np.array([[1.0, 2.0, 5.0], [3.0, 1.0, 4.0], [1.0, 2.0, 5.0]])
    assert [Stencil.from_weights(w).is_symmetric(axis) for axis in (0, 1)] == [True, False]
    w[0, 0] = np.nextafter(1.0, 2.0)
    assert not Stencil.from_weights(w).is_symmetric(0)


def test_equality_is_by_content() -> None:
    one = Stencil.from_weights(HEAT, name="a")
    two = Stencil.from_weights(HEAT.tolist(), name="b")
    assert one == two and hash(one) == hash(two) and len({one, two}) == 1
    different = [
        Stencil.from_weights(HEAT * 2),
        Stencil.from_weights(HEAT, boundary=frozen),
        Stencil.from_weights(HEAT.astype(np.float32)),
        Stencil.from_weights(np.pad(HEAT, 1)),
    ]
    assert len({one, *different}) == 5
    assert one != "heat"


def test_weights_are_a_read_only_copy() -> None:
    mine = HEAT.copy()
    stencil = Stencil.from_weights(mine)
    mine[1, 1] = 7.0
    assert stencil.weights[1, 1] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        stencil.weights[1, 1] = 7.0
    assert pickle.loads(pickle.dumps(stencil)) == stencil == copy.deepcopy(stencil)


def test_a_negative_zero_is_a_zero() -> None:
    assert Stencil.from_weights(np.array([-0.0, 1.0, 0.0])) == Stencil.from_weights(np.array([0.0, 1.0, 0.0]))
    assert hash(Stencil.from_weights(np.array([-0.0, 1.0, 0.0]))) == hash(
        Stencil.from_weights(np.array([0.0, 1.0, 0.0]))
    )


def test_the_dtype_is_that_of_the_weights_or_the_one_given() -> None:
    for kind, name in ((np.float64, "f64"), (np.float32, "f32"), (np.float16, "f16")):
        assert Stencil.from_weights(HEAT.astype(kind)).dtype == name
        assert Stencil.from_weights(HEAT, dtype=kind) == Stencil.from_weights(HEAT, dtype=name)
    third = Stencil.from_weights(np.full(3, 1 / 3), dtype="f32")
    assert third.weights.dtype == np.float64 and third.weights[0] == np.float32(1 / 3)


def test_an_fortran_ordered_or_strided_array_is_read_by_index() -> None:
    w = np.arange(1.0, 16.0).reshape(3, 5)
    wide = np.zeros((3, 10))
    wide[:, ::2] = w
    assert Stencil.from_weights(np.asfortranarray(w)) == Stencil.from_weights(w) == Stencil.from_weights(wide[:, ::2])
    assert hash(Stencil.from_weights(np.asfortranarray(w))) == hash(Stencil.from_weights(w))


@given(st.lists(st.floats(-3e38, 3e38) | st.floats(-1e-36, 1e-36), min_size=1, max_size=30))
def test_rounding_to_bf16_is_to_nearest_even(values: list[float]) -> None:
    """Against the rule itself: the neighbours are 16 bits apart in f32, and the nearest, or the even one, wins."""
    for value, rounded in zip(values, round_to(np.array(values), "bf16"), strict=True):
        bits = int(np.abs(np.array(rounded, np.float32)).view(np.uint32))
        if np.isinf(rounded):
            assert abs(value) >= 255.5 * 2.0**120
            continue
        assert bits % 2**16 == 0 and float(np.float32(rounded)) == rounded
        unit = (
            float(np.array(bits + 2**16, np.uint32).view(np.float32)) - abs(rounded) if bits < 0x7F7F0000 else 2.0**120
        )
        below = abs(rounded) - float(np.array(bits - 2**16, np.uint32).view(np.float32)) if bits else unit
        error = abs(value) - abs(rounded)
        even = bits // 2**16 % 2 == 0
        assert -below / 2 <= error <= unit / 2
        assert even or -below / 2 < error < unit / 2


def test_known_roundings() -> None:
    assert round_to(np.array([0.1, 1 / 3, 257.0, 259.0]), "bf16").tolist() == [0.10009765625, 0.333984375, 256.0, 260.0]
    assert round_to(np.array([0.1, 2049.0]), "f16").tolist() == [0.0999755859375, 2048.0]
    assert round_to(np.array([255.0 * 2.0**120]), "bf16").tolist() == [255.0 * 2.0**120]
    assert round_to(np.array([-1e39, 1e39]), "bf16").tolist() == [-np.inf, np.inf]


def test_a_dirichlet_value_fits_the_dtype() -> None:
    assert Stencil.from_weights(HEAT, boundary=dirichlet(1e30), dtype="f32").sides[0][0].value == 1e30


def test_bf16_weights_come_from_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    stencil = Stencil.from_weights(HEAT.astype(ml_dtypes.bfloat16))
    assert stencil.dtype == "bf16" and stencil == Stencil.from_weights(HEAT, dtype="bf16")
