"""Each barrier, wait, fence and arrival of products that keep 2 of 4 columns is needed, and as strong as it is."""

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

#: One block has all tiles: the ring goes round, and a tile's turns are no multiple of the slots.
ALONE = replace(load_profile("h200"), sms=1, max_blocks_sm=1)
#: Rows of W and columns of x; x in each order, one of two warpgroups.
CASES = [
    ("nm_24 rows=64 cols=16 stages=2", 192, 32, "row"),
    ("nm_24 rows=128 cols=32 stages=3", 384, 32, "column"),
]


def kernel(line: str, m: int, n: int, order: str) -> tuple[Any, Any, Any]:
    """The function, fresh arguments, and y in f64."""
    return launched(sg.spmm(matrix(m, 320, 2, 4), n=n), line, (order, "row", 8), ALONE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_that_orders_is_redundant(case: Any) -> None:
    """Initialisations and their fence, waits, arrivals of copies, the fence before a product and its commit, the
    handing back of slots, and what lets one lane do that for all that have read words of them."""
    func, arguments, exact = kernel(*case)
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-2)
    print(f"{case[0]}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == 15 and not survivors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_is_stronger_than_it_must_be(case: Any) -> None:
    """A product more in flight when its slot is handed back, another phase, an arrival more or that waits for nothing,
    fewer bytes."""
    func, arguments, exact = kernel(*case)
    whole = Case(func, arguments(), {"y": exact}, 1e-2, ("y",))
    assert not symptoms(whole, func)
    tried = [(what, symptoms(whole, less, (0, 1))) for what, less in weaker(func)]
    assert len(tried) == 8 and all(found for _, found in tried), tried
