"""Each barrier and wait of products by outer products is needed: the emulator notices when one is deleted or weaker."""

from __future__ import annotations

import pytest

import sparsegen as sg
from tests.mutation.harness import score
from tests.nm_kit import matrix
from tests.products_kit import launched
from tests.programs.case import Case
from tests.programs.mutants import symptoms, weaker

#: Rings of two slots and of more, turns that are no multiple of them, entries that fill no piece of a list.
CASES = [
    ("nm_outer rows=32 cols=64 each=4 deep=32 stages=3", (8, 32), 300, 8),
    ("nm_outer rows=64 cols=64 each=8 deep=32 stages=4", (3, 10), 310, 32),
    ("nm_outer rows=64 cols=128 each=16 deep=64 stages=5", (32, 64), 600, 16),
]


@pytest.mark.parametrize(("line", "pattern", "k", "vector"), CASES)
def test_nothing_that_orders_is_redundant_or_too_strong(
    line: str, pattern: tuple[int, int], k: int, vector: int
) -> None:
    """Initialisations, arrivals of copies and the waits for them, the handing back of slots and the waits for that."""
    product = sg.spmm(matrix(60, k, *pattern, (vector, 1), "f32"), n=72)
    func, arguments, exact = launched(product, line, ("row", "row", 4))
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-4)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= 9 and not survivors
    tried = [(what, symptoms(Case(func, arguments(), {"y": exact}, 1e-4, ("y",)), less, (0, 1)))
             for what, less in weaker(func)]  # fmt: skip
    assert tried and all(found for _, found in tried), tried
