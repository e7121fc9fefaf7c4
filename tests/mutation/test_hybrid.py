"""Each barrier, wait and group of copies of products with dense tiles and other entries is needed."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from sparsegen.products.hybrid import HybridNumbers
from tests.mixed_kit import line, matrix
from tests.mutation.harness import score
from tests.products_kit import launched

#: Bands of many dense tiles; warps that share rows and columns, and rings of 2 to 4 slots; a long row that is cut.
CASES = [
    (line(stages=2), 16, 40, 300, 0),
    (line(warps="2x2", unroll=1, high=2), 32, 70, 500, 0),
    (line(16, "2x1", 4), 32, 70, 500, 0),
    (line(), 16, 120, 300, 1),
    (line(slices=2), 32, 70, 500, 0),
    (line(slices=4), 32, 70, 500, 0),
    (line(64, "1x4", mma="wgmma"), 32, 70, 500, 0),
    (line(64, "1x4", slices=4, mma="wgmma"), 32, 70, 500, 0),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_that_orders_is_redundant(case: Any) -> None:
    """Groups of copies, of the first turns and of each, the wait for them, the barriers of turns and of the sums."""
    words, tile, m, k, long = case
    product = sg.spmm(matrix(m, k, tile, delta=0.1 if long else 0.02, noise=0.0 if long else 0.06, long=long), n=32)
    assert product.w.tiles > 20 and product.w.rest
    assert bool(HybridNumbers.of(product).counted(1).cuts) == bool(long)
    func, arguments, exact = launched(product, words, ("row", "row", 8))
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-2)
    print(f"{words}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= 5 and not survivors


def test_nothing_is_redundant_where_tiles_fill_up() -> None:
    """Turns without a tile put zeros where others copy rows of x to: barriers order these, too."""
    product = sg.spmm(matrix(70, 500, 32, delta=0.0, noise=0.001, fill=0.9, format="blocked_ell"), n=32)
    assert product.w.filling and not product.w.rest
    words = "cols=32 warps=2x2 stages=3 team=4x2 columns=8 unroll=2 cut=64"
    func, arguments, exact = launched(product, f"blocked_ell {words}", ("row", "row", 8))
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-2)
    assert killed >= 5 and not survivors


def test_teams_wait_for_the_pieces_of_rows_also_without_dense_tiles() -> None:
    product = sg.spmm(matrix(32, 300, 16, delta=1.0, long=1), n=32)
    assert not product.w.tiles and HybridNumbers.of(product).counted(1).cuts
    func, arguments, exact = launched(product, line(stages=2), ("row", "row", 8))
    assert score(func, arguments, {"y": exact}, rtol=1e-2) == (1, [])
