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


@pytest.mark.parametrize("device", ["h200", "a100"])
def test_pieces_of_rows_wait_for_one_another(device: str) -> None:
    """Besides the strip's waits the meeting after which rows that are cut are added up."""
    product = sg.spmm(sg.sparse(ragged(20, 90, 4, full=2).toarray().astype("f4"), format="csr"), n=16)
    line = "csr_strip wide=64 lists=2 warps=2 groups=1 unroll=4"
    func, arguments, exact = launched(product, line, ("row", "row", 4), load_profile(device))
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-4)
    print(f"{killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= 3 and not survivors
    assert any(buf.name == "cut" for buf in func.shared)
