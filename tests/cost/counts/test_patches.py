"""``patches``: counts by formula equal the emulator's."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sparsegen.boundary import frozen
from sparsegen.cost.counts import launches
from sparsegen.dsl.stencil import Stencil
from sparsegen.schedule import Schedule
from tests.cost.counts.kit import H200
from tests.cost.counts.knobs import Knobs, agree

KNOBS: Knobs = {
    "rows": (None, 2, 10, 34), "levels": (1, 2, 4), "strips": (1, 2, 3, 4), "warps": (1, 2, 3, 8), "stages": (2, 3, 8),
}  # fmt: skip


def test_equal_the_emulators() -> None:
    agree("patches", 2, [(9, 40), (9, 150)], "f64", KNOBS)


@pytest.mark.parametrize("shape", [(10240, 10240), (10241, 10239)])
def test_large_fields_take_no_longer(shape: tuple[int, int]) -> None:
    s = Stencil.from_weights(np.full((3, 3), 1 / 9), frozen)
    start = time.perf_counter()
    launches(s, shape, Schedule.parse("patches rows=64"), H200)
    assert time.perf_counter() - start < 2
