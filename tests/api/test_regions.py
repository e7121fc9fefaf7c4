"""Layers that absorb: what of a wave comes back, and where they are."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest

import sparsegen as sg


@sg.stencil(boundary=sg.dirichlet(0.0))
def wave(u: Annotated[sg.Field, sg.Field(levels=2, spacing=(1.0,), dt=0.5)], d: sg.Coef) -> sg.Value:
    return sg.solve(sg.Eq(u.dt2 + d[0] * u.dtc, u.laplace), u.next)


def comes_back(width: int, reflection: float) -> float:
    """The share of a wave some 25 cells long that comes back from both edges."""
    at = (np.arange(800) - 400) / 6
    pulse = (1 - 2 * at**2) * np.exp(-(at**2))
    k = sg.compile(wave, (800,), 1400, backend="reference")
    kept, _ = k(u=(pulse, pulse), d=np.zeros(800))
    left, _ = k(u=(pulse, pulse), d=sg.sponge((800,), width, 1.0, reflection=reflection))
    return float(np.abs(left).max() / np.abs(kept).max())


def test_waves_run_out() -> None:
    shares = [comes_back(width, 1e-3) for width in (20, 40, 80)]
    assert shares[0] < 0.1 and shares[1] < 0.02 and shares[2] < 0.005
    assert comes_back(80, 0.1) == pytest.approx(0.1, rel=0.5)  # what the edge behind it throws back


def test_where_the_layers_are() -> None:
    d = sg.sponge((40, 30), 8, 2.0, sides={0: (False, True)})
    assert not d[:32].any() and (np.diff(d[32:, 3]) > 0).all() and (d == d[:, :1]).all()
    whole = sg.sponge((40, 30), 8, 2.0)
    assert np.array_equal(whole, whole[::-1, ::-1]) and not whole[8:-8, 8:-8].any()
    assert whole.max() < -3 * 2.0 * np.log(1e-3) / 8 and whole[0, 15] == whole[0, 0]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"width": 21}, "layers of 21 cells do not fit axis 0 of 40"),
        ({"width": 0}, "width=0"),
        ({"speed": 0.0}, "speed=0.0"),
        ({"reflection": 1.5}, "reflection=1.5"),
        ({"sides": {2: (True, True)}}, "a layer on axis 2 of 2"),
    ],
)
def test_layers_that_cannot_be(given: dict[str, Any], what: str) -> None:
    with pytest.raises(sg.StencilError, match=what) as said:
        sg.sponge((40, 50), **{"width": 4, "speed": 1.0, **given})
    assert said.value.hint and said.value.loc
