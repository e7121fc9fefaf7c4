"""Each barrier, wait and group of copies of products of strips is needed, and as strong as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from tests.mutation.harness import score
from tests.nm_kit import matrix
from tests.products_kit import launched
from tests.programs.case import Case
from tests.programs.mutants import symptoms, weaker

#: Two blocks have all tiles, one of them one more than the other: the ring goes on from tile to tile.
FEW = replace(load_profile("h200"), sms=2, max_blocks_sm=1)
#: Rows, kept columns of 32, columns of x; turns of one mma and of two, warps side by side, and rings of 2 to 4 slots.
CASES = [
    ("nm_strips strip=16 warps=2x1 cols=16 kept=16 stages=2", 96, 8, 16),
    ("nm_strips strip=32 warps=2x2 cols=32 kept=32 stages=3", 192, 16, 32),
    ("nm_strips strip=32 warps=2x1 cols=16 kept=16 stages=4", 192, 4, 16),
]


def kernel(line: str, m: int, kept: int, n: int) -> tuple[Any, Any, Any]:
    """The function, fresh arguments, and y in f64."""
    return launched(sg.spmm(matrix(m, 600, kept, 32, (16, 1)), n=n), line, ("row", "row", 8), FEW)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_that_orders_is_redundant(case: Any) -> None:
    """Groups of copies, of the first turns and of each (of early and of late warps), the wait for them, the barrier."""
    func, arguments, exact = kernel(*case)
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-2)
    print(f"{case[0]}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == int(case[0][-1]) + 3 and not survivors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_is_stronger_than_it_must_be(case: Any) -> None:
    """A group more in flight when a turn is multiplied."""
    func, arguments, exact = kernel(*case)
    whole = Case(func, arguments(), {"y": exact}, 1e-2, ("y",))
    assert not symptoms(whole, func)
    tried = [(what, symptoms(whole, less, (0, 1))) for what, less in weaker(func)]
    assert len(tried) == 1 and all(found for _, found in tried), tried
