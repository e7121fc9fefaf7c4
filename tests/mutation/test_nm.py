"""Each barrier of products with N:M matrices is needed: the emulator notices when it is deleted."""

from __future__ import annotations

import pytest

import sparsegen as sg
from tests.mutation.harness import score
from tests.nm_kit import matrix
from tests.products_kit import launched

#: x of more words than the sums of a block and of fewer, chunks that warps do not share evenly, tiles left over.
CASES = [
    ("nm_lanes cols=1 warps=1x4", 1, (8, 32), 600, "f16"),
    ("nm_lanes cols=4 warps=2x2", 6, (3, 10), 110, "f32"),
    ("nm_lanes cols=8 warps=1x2", 8, (48, 64), 100, "bf16"),
    ("nm_lanes cols=2 warps=3x1", 2, (2, 4), 70, "f16"),
]


@pytest.mark.parametrize(("line", "n", "pattern", "k", "dtype"), CASES)
def test_nothing_that_orders_is_redundant(line: str, n: int, pattern: tuple[int, int], k: int, dtype: str) -> None:
    """After x has been staged, before the sums take its place, and, if warps share a tile, before they are added up."""
    product = sg.spmm(matrix(75, k, *pattern, dtype=dtype), n=n)
    func, arguments, exact = launched(product, line)
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-2)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == (2 if line.endswith("x1") else 3) and not survivors
