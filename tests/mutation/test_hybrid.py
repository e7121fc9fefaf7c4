"""Each barrier, wait and group of copies of products with dense tiles and other entries is needed."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from tests.mixed_kit import matrix
from tests.mutation.harness import score
from tests.products_kit import launched

#: Bands of many dense tiles; warps that share rows and columns, and rings of 2 to 4 slots.
CASES = [
    ("hybrid high=1 cols=32 warps=1x2 stages=2 unroll=2", 16, 40, 300),
    ("hybrid high=2 cols=32 warps=2x2 stages=3 unroll=1", 32, 70, 500),
    ("hybrid high=1 cols=16 warps=2x1 stages=4 unroll=2", 32, 70, 500),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_that_orders_is_redundant(case: Any) -> None:
    """Groups of copies, of the first turns and of each, the wait for them, the barriers of turns and of the sums."""
    line, tile, m, k = case
    product = sg.spmm(matrix(m, k, tile, delta=0.02, noise=0.06), n=32)
    assert product.w.tiles > 20 and product.w.rest
    func, arguments, exact = launched(product, line, ("row", "row", 8))
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-2)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= 5 and not survivors
