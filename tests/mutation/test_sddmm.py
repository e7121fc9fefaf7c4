"""Each wait, barrier and group of copies of sampled products is needed."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.backends.emulator import run
from tests.mutation.harness import mutants, score
from tests.sddmm_kit import case, launched

#: Rows of the task after or of this one, strips by boxes or by threads, and rows of a that are no whole chunks.
CASES = [
    ("strips rows=32 warps=2 groups=1 prefetch=on", 128, "h200", 10),
    ("strips rows=32 warps=2 groups=1 prefetch=off", 128, "h200", 9),
    ("strips rows=64 warps=2 groups=1 prefetch=on", 48, "a100", 7),
    ("gather warps=2 most=4 stages=2", 128, "h200", 3),
    ("gather warps=1 most=4 stages=3", 48, "a100", 3),
]


@pytest.mark.parametrize(("line", "k", "device", "count"), CASES, ids=[f"{c[0]} {c[2]}" for c in CASES])
def test_nothing_that_orders_is_redundant(line: str, k: int, device: str, count: int) -> None:
    func, arguments, exact = launched(case(67, 80, k, 8, 0.5), line, device)
    killed, survivors = score(func, arguments, {"c": exact}, rtol=0)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    # without the wait before the end: below
    assert killed == count and len(survivors) == (line.startswith("strips") and device == "h200")


def test_a_block_without_tasks_waits_for_its_strip() -> None:
    """Else it would end while copies write its memory."""
    func, arguments, exact = launched(case(67, 80, 128, 8, 0.5), "strips rows=32 warps=2 groups=10 prefetch=on", "h200")
    given = arguments()
    assert run(func, given).ok and np.array_equal(given["c"], exact)
    *_, without = mutants(func)
    assert without.op == "wait for an mbarrier" and run(without.func, arguments()).kinds() == {"async"}
