"""``march`` works out any update of one step: several arrays and levels, coefficients, every border, any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.update import Update
from sparsegen.families.update import direct
from sparsegen.ir.kernels.march import March
from tests.updates import made


def waves(boundary: BoundarySpec) -> Update:
    """Two levels and a coefficient, a corner of two planes, and columns to one side only."""

    def waves(u: sg.Field(levels=2), v: sg.Field, c: sg.Coef) -> Any:  # type: ignore[valid-type]
        now: Any = u
        around = now[-1, 0, 0] + now[1, 0, 0] + now[0, -1, 0] + now[0, 1, 0] + now[0, 0, -1] + now[0, 0, 1]
        new = 2 * now[0, 0, 0] - now.prev[0, 0, 0] + c[0, 0, 0] * (around - 6 * now[0, 0, 0])
        other = v[0, 0, 0] + 0.25 * v[1, 1, -1] - 0.5 * v[-2, 0, 1] * c[0, 0, 1]  # type: ignore[index]
        return new, other

    return made(waves, boundary=boundary)


@pytest.mark.parametrize("shape", [(9, 13, 64), (7, 11, 70), (5, 10, 77)])
@pytest.mark.parametrize("boundary", [periodic, frozen, neumann, dirichlet(0.5)], ids=str)
def test_any_update_is_that_of_direct(
    boundary: BoundarySpec, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    u = tuple(rng.random(shape) for _ in range(2))
    v, c = rng.random(shape), rng.random(shape) * 0.1
    results = []
    for lines in (0, 1, 3):
        if lines:
            passes: Any = lambda *_, lines=lines: [March(2, 32, lines, 4, min_blocks=1)]  # noqa: E731
            monkeypatch.setattr(direct.Pointwise, "passes", passes)
        k: Any = sg.compile(waves(boundary), shape, 1, schedule="direct", device="h200", backend="emulator")
        assert not lines or "tile.march" in str(k.ir("tile"))
        results.append(k(u, v, c))
    for other in results[1:]:
        for new, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(new, want)
