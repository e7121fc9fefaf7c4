"""Each op that orders is needed in SpInfer's own product as well: the emulator notices when it is deleted."""

from __future__ import annotations

import pytest

import sparsegen as sg
from tests.mutation.harness import score
from tests.products_kit import launched, matrix

#: With the ops of each: two groups of copies and one, two slots and one, blocks that share a row of group tiles.
LINES = [
    ("smbd cols=16 splits=1", 12), ("smbd cols=16 splits=1 groups=1", 6), ("smbd cols=8 splits=1 buffers=1", 7),
    ("smbd cols=32 warps=2 splits=1 buffers=1 groups=1", 4), ("smbd cols=8 warps=2 splits=2", 16),
]  # fmt: skip


@pytest.mark.parametrize(("line", "many"), LINES)
def test_nothing_that_orders_is_redundant(line: str, many: int) -> None:
    product = sg.spmm(matrix(70, 400, format="tca_bme"), n=16)
    func, arguments, expected = launched(product, line, ("row", "row", 8))
    killed, survivors = score(func, arguments, {"y": expected}, rtol=2e-3)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == many and not survivors
