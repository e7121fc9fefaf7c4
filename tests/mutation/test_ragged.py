"""Each op that orders is needed in csr products with rows that are cut: the emulator notices when it is deleted."""

from __future__ import annotations

import pytest

from tests.csr_kit import Case, ragged
from tests.mutation.harness import score

CASES = [
    Case(ragged(40, 120, 8, full=3), 16, "f32", {"across": 4, "vec": 4, "unroll": 4, "warps": 2}, 9),
    Case(ragged(40, 120, 8, full=3), 32, "f16", {"across": 4, "parts": 4, "vec": 8, "unroll": 4, "warps": 4}, 9),
    Case(ragged(40, 120, 8, full=5), 256, "f16", {"across": 16, "parts": 2, "vec": 8, "unroll": 2, "warps": 1}, 16),
    Case(ragged(40, 120, 8, full=3), 8, "f64", {"across": 4, "vec": 2, "unroll": 4, "warps": 2}, 9),
    Case(ragged(60, 120, 8, full=3), 1, "f32", {"across": 1, "parts": 8, "vec": 1, "unroll": 2, "warps": 2}, 25),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.dtype}-n{c.n}")
def test_nothing_that_orders_is_redundant(case: Case) -> None:
    given = case.given()
    exact, _ = case.wanted(given)
    killed, survivors = score(case.func, lambda: case.arguments(given), {"y": exact.reshape(-1)}, rtol=2e-3)
    print(f"{killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == (4 if case.kernel.across > 1 else 3) and not survivors
