"""What copies read of rows: places for lanes past their ends, and rings that begin where sectors of memory do."""

from __future__ import annotations

from collections import Counter

import pytest

from sparsegen.cost import layer_levels, update_column
from sparsegen.ir.boundary_map import elsewhere
from sparsegen.ir.expr import as_expr
from sparsegen.ir.numbers.arithmetic import SECTOR
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE
from tests.updates import heat


@pytest.mark.parametrize("end", [1, 3, 7, 30, 64, 390])
@pytest.mark.parametrize("vector", [1, 2, 4, 8])
def test_lanes_past_the_end_read_few_cells_that_are_there(end: int, vector: int) -> None:
    """A row that is shorter than a piece has room for one, as rows that are read in pieces are whole pieces apart."""
    places = [end + (-end) % vector + vector * lane for lane in range(32)]
    found = [elsewhere(as_expr(place), end, vector) for place in places]
    assert all(at.lo == at.hi and at.lo % vector == 0 and 0 <= at.lo <= max(0, end - vector) for at in found)
    few = 8 if vector == 1 else 4
    if end >= few * vector:
        assert set(Counter(at.lo for at in found).values()) == {32 // few}


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_rings_begin_where_sectors_do(dtype: str, levels: int) -> None:
    """Tiles begin at whole sectors, and rows of a window so many columns before."""
    update, cells = heat(dtype=dtype), SECTOR // ITEMSIZE[dtype]
    s = UpdateSchedule("column", levels=levels, lines=2, planes=8, warps=4, stages=3)
    if levels == 1:
        n = update_column.numbers(update, s, s.planes)
        rings = {(n.skew(array), ring.halo[1], n.window(array)[1]) for array, ring in n.rings.items()}
    else:
        many = layer_levels.numbers(update, s, s.planes)
        rings = {(many.skew, many.lead[1], many.window[1])}
    assert rings and all((skew + before) % cells == 0 == width % cells for skew, before, width in rings)
