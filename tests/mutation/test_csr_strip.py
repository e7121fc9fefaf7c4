"""Each barrier and wait of products against strips of x that stay is needed."""

from __future__ import annotations

import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from tests.csr_kit import ragged
from tests.mutation.harness import score
from tests.products_kit import launched


@pytest.mark.parametrize("device", ["h200", "a100"])
def test_nothing_that_orders_is_redundant(device: str) -> None:
    """The strip's mbarrier, or its copies, and the meeting after them; lanes that add up have no order but shuffles."""
    product = sg.spmm(sg.sparse(ragged(60, 90, 8, full=2).toarray().astype("f4"), format="csr"), n=16)
    line = "csr_strip wide=64 lists=1 warps=2 groups=2 unroll=4"
    func, arguments, exact = launched(product, line, ("row", "row", 4), load_profile(device))
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-4)
    print(f"{killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= 2 and not survivors
