"""Each barrier, wait, fence and arrival of products that decode W for warpgroups is needed, and as strong as it is."""

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

#: One block has all tiles: rings go round, and a tile's turns are no multiple of the slots.
ALONE = replace(load_profile("h200"), sms=1, max_blocks_sm=1)
#: Rows, columns, kept columns of 32, columns of x, and a block; two lanes that share a row, and one a row.
CASES: list[Any] = [
    ("nm_decode rows=64 cols=16 stages=2 teams=1", 128, 640, 8, 16, (1, 1)),
    ("nm_decode rows=128 cols=16 stages=3 teams=2", 300, 448, 8, 16, (4, 4)),
]


def kernel(line: str, m: int, k: int, kept: int, n: int, vector: tuple[int, int]) -> tuple[Any, Any, Any]:
    """The function, fresh arguments, and y in f64."""
    return launched(sg.spmm(matrix(m, k, kept, 32, vector), n=n), line, ("row", "row", 8), ALONE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_that_orders_is_redundant(case: Any) -> None:
    """Initialisations and their fence, waits, arrivals, the fences before a product, the handing back of slots, the
    barrier of those that copy, the warp's between zeros and values, and before its arrival."""
    func, arguments, exact = kernel(*case)
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-2)
    print(f"{case[0]}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= 20 and not survivors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_is_stronger_than_it_must_be(case: Any) -> None:
    """A product more in flight when its slot is handed back, another phase, fewer bytes."""
    func, arguments, exact = kernel(*case)
    whole = Case(func, arguments(), {"y": exact}, 1e-2, ("y",))
    assert not symptoms(whole, func)
    tried = [(what, symptoms(whole, less, (0, 1))) for what, less in weaker(func)]
    print(len(tried))
    assert len(tried) >= 10 and all(found for _, found in tried), tried
