"""Each op that orders is needed where a block's warps share a ring: the emulator notices when it is deleted."""

from __future__ import annotations

import pytest

import sparsegen as sg
from tests.mutation.harness import score
from tests.products_kit import launched, matrix

#: With the ops of each: warps, sets of them, clusters, warpgroups that free their slots at once, and late.
LINES = [
    ("mma=f16.m16n8k16 cols=16 warps=3x1 rows=1 stages=3 splits=1", 16, 13),
    ("mma=f16.m16n8k16 cols=16 warps=2x2 rows=2 stages=4 splits=2", 16, 19),
    ("mma=wgmma cols=16 warps=4x1 rows=1 stages=3 splits=1", 16, 24),
    ("mma=wgmma cols=128 warps=4x1 rows=1 stages=4 splits=2", 128, 29),
]  # fmt: skip


@pytest.mark.parametrize(("line", "n", "many"), LINES)
def test_nothing_that_orders_is_redundant(line: str, n: int, many: int) -> None:
    product = sg.spmm(matrix(70, 800), n=n)
    func, arguments, expected = launched(product, f"bitmap_block {line}", ("row", "row", 8))
    killed, survivors = score(func, arguments, {"y": expected}, rtol=2e-3)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == many and not survivors
