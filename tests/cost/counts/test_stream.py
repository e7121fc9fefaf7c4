"""``stream``: counts by formula equal the emulator's."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sparsegen.boundary import frozen
from sparsegen.cost.counts import launches
from sparsegen.dsl.stencil import Stencil
from sparsegen.schedule import Schedule
from tests.cost.counts.cases import wrong
from tests.cost.counts.kit import H200
from tests.cost.counts.knobs import Knobs, agree

KNOBS: Knobs = {
    "cols": (2, 4, 6, 8, 16), "rows": (None, 1, 7, 32), "fuse": (1, 2, 3), "warps": (1, 2, 3, 8), "stages": (2, 3, 8),
    "unroll": (1, 2),
}  # fmt: skip


@pytest.mark.parametrize(("axes", "sizes"), [(1, [(40, 2000)]), (2, [(9, 40), (9, 150)])])
def test_equal_the_emulators(axes: int, sizes: list[tuple[int, int]]) -> None:
    agree("stream", axes, sizes, "f64 f32 f16 bf16", KNOBS)


def test_one_row_of_weights_on_a_field_of_many_rows() -> None:
    """Such a stencil has one axis, but its fields have rows that start anywhere in a sector."""
    s = Stencil.from_weights(np.array([[0.25, 0.5, 0.25]]), frozen)
    assert not wrong([(s, (5, n), Schedule.parse("stream fuse=2 levels=3 cols=8 rows=2")) for n in (63, 120, 122, 301)])


@pytest.mark.parametrize("shape", [(10240, 10240), (10241, 10239)])
def test_large_fields_take_no_longer(shape: tuple[int, int]) -> None:
    s = Stencil.from_weights(np.full((3, 3), 1 / 9), frozen)
    start = time.perf_counter()
    launches(s, shape, Schedule.parse("stream levels=8 rows=64"), H200)
    assert time.perf_counter() - start < 2
