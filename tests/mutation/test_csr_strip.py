"""Each barrier and wait of products against strips of x that stay is needed."""

from __future__ import annotations

import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from tests.csr_kit import ragged
from tests.mutation.harness import score
from tests.products_kit import launched

#: Rows, entries of a row in the mean, the schedule, how many ops order at least, and whether rows are cut.
CASES = [
    (60, 8, "csr_strip wide=64 lists=1 warps=2 groups=2 unroll=4", 2, False),
    (20, 4, "csr_strip wide=64 lists=2 warps=2 groups=1 unroll=4", 3, True),
]


@pytest.mark.parametrize("device", ["h200", "a100"])
@pytest.mark.parametrize(("rows", "mean", "line", "least", "cut"), CASES)
def test_nothing_that_orders_is_redundant(rows: int, mean: int, line: str, least: int, cut: bool, device: str) -> None:
    """The strip's mbarrier, or its copies, and the meeting after them, and that after which pieces of rows are added
    up; lanes that add up have no order but shuffles."""
    product = sg.spmm(sg.sparse(ragged(rows, 90, mean, full=2).toarray().astype("f4"), format="csr"), n=16)
    func, arguments, exact = launched(product, line, ("row", "row", 4), load_profile(device))
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-4)
    print(f"{killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= least and not survivors
    assert any(buf.name == "cut" for buf in func.shared) == cut
