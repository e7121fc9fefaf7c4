"""A linear stencil as the update that it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.ir.types import DTYPES

BOUNDARIES = [sg.periodic, sg.frozen, sg.neumann, sg.dirichlet(0.5), {0: sg.frozen, 1: sg.periodic}]


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("shape", [(11,), (9, 12), (5, 6, 7)])
def test_both_mean_the_same(shape: tuple[int, ...], boundary: Any) -> None:
    if isinstance(boundary, dict):
        boundary = {axis: boundary[axis % 2] for axis in range(len(shape))}
    rng = np.random.default_rng(len(shape))
    stencil = sg.Stencil.from_weights(rng.random((3,) * len(shape)) - 0.4, boundary)
    update, u = stencil.as_update(), rng.random(shape)
    assert (update.name, update.dtype, update.radius) == (stencil.name, stencil.dtype, stencil.radius)
    want = sg.compile(stencil, shape, steps=3, backend="reference")(u)
    np.testing.assert_allclose(sg.compile(update, shape, steps=3, backend="reference")(u), want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_types_stay(dtype: str) -> None:
    """Both are summed in f32 and rounded once: here the same number of times."""
    stencil, rng = sg.Stencil.from_weights(np.full((3, 3), 0.11), dtype=dtype), np.random.default_rng(0)
    u = rng.random((8, 9)).astype(DTYPES[dtype].numpy())
    a, b = (sg.compile(s, u.shape, 3, backend="reference")(u) for s in (stencil, stencil.as_update()))
    assert a.dtype == b.dtype == u.dtype and np.array_equal(a, b)


def test_what_is_no_update_is_refused() -> None:
    wide = np.zeros((5, 5))
    wide[2, 1:4] = 0.3
    with pytest.raises(sg.StencilError, match="keeps more cells than its weights reach"):
        sg.Stencil.from_weights(wide, sg.frozen).as_update()
    assert sg.Stencil.from_weights(wide).as_update().radius == (0, 1)
