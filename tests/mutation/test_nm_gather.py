"""Each barrier, wait, fence and arrival of products that gather rows of x is needed, and as strong as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.ir.warp import Func
from tests.mutation.harness import score
from tests.nm_kit import matrix
from tests.products_kit import launched, program
from tests.programs.case import Case
from tests.programs.mutants import symptoms, weaker

#: One block has all tiles: rings and lists go round, and a tile's turns are no multiple of the slots.
ALONE = replace(load_profile("h200"), sms=1, max_blocks_sm=1)
#: Rows, kept columns of 32, columns of x; one of two warpgroups, one whose lanes exchange pairs to store.
CASES = [
    ("nm_gather rows=64 cols=16 stages=2", 320, 8, 32),
    ("nm_gather rows=128 cols=16 stages=3", 640, 8, 16),
    ("nm_gather rows=64 cols=32 stages=4", 192, 16, 64),
]


def kernel(line: str, m: int, kept: int, n: int) -> tuple[Any, Any, Any]:
    """The function, fresh arguments, and y in f64."""
    return launched(sg.spmm(matrix(m, 768, kept, 32, (64, 1)), n=n), line, ("row", "row", 8), ALONE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_that_orders_is_redundant(case: Any) -> None:
    """Initialisations and their fence, waits, arrivals of copies, the two fences before a product and its commit, the
    handing back of slots, the barrier of those that copy."""
    func, arguments, exact = kernel(*case)
    killed, survivors = score(func, arguments, {"y": exact}, rtol=1e-2)
    print(f"{case[0]}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == 22 and not survivors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_nothing_is_stronger_than_it_must_be(case: Any) -> None:
    """A product more in flight when its slot is handed back, another phase, an arrival more or that waits for nothing,
    fewer bytes."""
    func, arguments, exact = kernel(*case)
    whole = Case(func, arguments(), {"y": exact}, 1e-2, ("y",))
    assert not symptoms(whole, func)
    tried = [(what, symptoms(whole, less, (0, 1))) for what, less in weaker(func)]
    assert len(tried) == 13 and all(found for _, found in tried), tried


@pytest.mark.parametrize("order", ["row", "column"])
def test_the_kernel_that_turns_x(order: str) -> None:
    """A barrier between writing a tile and reading it, where there is a tile; what it writes besides x is zero."""
    made = program(sg.spmm(matrix(64, 70, 8, 32, (64, 1)), n=37), CASES[0][0], (order, "row", 1))
    func = next(f for f in made.warp.funcs if isinstance(f, Func) and f.symbol.endswith("_turn"))
    x = np.random.default_rng(0).uniform(-1, 1, (70, 37)).astype("f2")
    want = np.zeros((70, 64), "f2")
    want[:, :37] = x

    def arguments() -> dict[str, Any]:
        return {"x": (x if order == "row" else x.T).reshape(-1).copy(), "turned": np.full(70 * 64, np.nan, "f2")}

    assert score(func, arguments, {"turned": want.reshape(-1)}) == (int(order == "column"), [])
