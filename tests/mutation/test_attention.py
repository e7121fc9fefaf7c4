"""Each barrier, fence, mbarrier and wait of sparse attention is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.emulator import run
from tests.attention_kit import exact, inputs, launched, mask
from tests.mutation.harness import score

#: Parts of the keys, the GPU, and how many ops order: by tensor copies a fence, an mbarrier, an arrival and a wait each
#: of k and v, and a barrier; by cp.async a group of copies, the wait for it and a barrier.
CASES = [(1, "h200", 9), (2, "h200", 9), (1, "a100", 3)]


@pytest.mark.parametrize(("parts", "device", "many"), CASES)
def test_nothing_that_orders_is_redundant(parts: int, device: str, many: int) -> None:
    what = sg.attention(mask(40, 100), heads=1, d=32, quantized=True)
    func, arguments = launched(what, f"fused parts={parts} groups=1 warps=2 keys=32", device=device)
    given = arguments()
    run(func, given)
    wanted: Any = {name: given[name].astype(float) for name in ("partial", "stats")} if parts > 1 else {
        "out": exact(what, inputs(what)).reshape(-1)
    }  # fmt: skip
    killed, survivors = score(func, arguments, wanted, rtol=0.2)
    print(f"{killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == many and not survivors


def test_quantising_needs_the_barrier_between_warps_and_blocks() -> None:
    """A barrier an array of the kernel that finds the largest elements; the other's warps share nothing."""
    what = sg.attention(mask(40, 100), heads=1, d=32)
    for number, many in ((0, 3), (1, 0)):
        func, arguments = launched(what, "fused parts=1 groups=1 warps=2 keys=32", number)
        first = arguments()
        given = {name: np.ones_like(a) if name == "tops" and number else a for name, a in first.items()}
        run(func, first := {name: a.copy() for name, a in given.items()})
        wanted = {name: a for name, a in first.items() if name.endswith(("tops", "made", "scale"))}
        killed, survivors = score(func, lambda given=given: {n: a.copy() for n, a in given.items()}, wanted, rtol=1e-3)
        assert killed == many and not survivors, survivors


def test_the_kernel_that_joins_parts_needs_no_order() -> None:
    """Its warps share nothing; that the parts have been left is the launches' order."""
    what = sg.attention(mask(40, 100), heads=1, d=32, quantized=True)
    func, arguments = launched(what, "fused parts=2 groups=1 warps=2 keys=32", 1)
    given = arguments()
    killed, survivors = score(func, lambda: {n: a.copy() for n, a in given.items()}, {}, rtol=0.2)
    assert not killed and not survivors
