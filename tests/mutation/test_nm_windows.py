"""The barrier of products whose lanes have a window each is needed: after x has been staged."""

from __future__ import annotations

import pytest

import sparsegen as sg
from tests.mutation.harness import score
from tests.nm_kit import matrix
from tests.products_kit import launched

CASES = [
    ("nm_windows cols=1 warps=4", 1, (8, 32), "f16"), ("nm_windows cols=4 warps=8", 6, (3, 10), "f32"),
    ("nm_windows cols=2 warps=4 layout=windows", 2, (48, 64), "bf16"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "n", "pattern", "dtype"), CASES)
def test_nothing_that_orders_is_redundant(line: str, n: int, pattern: tuple[int, int], dtype: str) -> None:
    func, arguments, exact = launched(sg.spmm(matrix(75, 700, *pattern, dtype=dtype), n=n), line)
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-2)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == 1 and not survivors
