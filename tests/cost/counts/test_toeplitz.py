"""``toeplitz``: counts by formula equal the emulator's."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sparsegen.boundary import neumann, periodic
from sparsegen.cost.counts import launches
from sparsegen.dsl.stencil import Stencil
from sparsegen.schedule import Schedule
from tests.cost.counts.cases import wrong
from tests.cost.counts.kit import H200
from tests.cost.counts.knobs import Knobs, agree

KNOBS: Knobs = {
    "fuse": (1, 3, 7, 19), "products": (4, 8), "warps": (1, 2, 3, 8), "stages": (2, 3, 4),
}  # fmt: skip


def test_equal_the_emulators() -> None:
    agree("toeplitz", 1, [(60, 5000)], "f64", KNOBS)


@pytest.mark.parametrize("boundary", [periodic, neumann], ids=str)
def test_one_row_of_weights_on_a_field_of_many_rows(boundary: object) -> None:
    """Rows of odd length: pairs of columns are copied and stored one by one."""
    s = Stencil.from_weights(np.array([[0.25, 0.5, 0.25]]), boundary)  # type: ignore[arg-type]
    assert not wrong([(s, (5, n), Schedule.parse("toeplitz fuse=5 mma=f64.m16n8k4")) for n in (63, 512, 600, 1301)])


@pytest.mark.parametrize("cells", [10**8, 10**8 + 1])
def test_large_fields_take_no_longer(cells: int) -> None:
    s = Stencil.from_weights(np.full(3, 1 / 3), neumann).gridded
    start = time.perf_counter()
    launches(s, (1, cells), Schedule.parse("toeplitz fuse=8"), H200)
    assert time.perf_counter() - start < 2
