"""Each op that orders is needed in products with bitmap tiles as well: the emulator notices when it is deleted."""

from __future__ import annotations

import dataclasses

import pytest

import sparsegen as sg
from sparsegen.backends.emulator import run
from sparsegen.cost.devices import load_profile
from sparsegen.products.product import Product
from sparsegen.schedule import SpmmSchedule
from tests.mutation.harness import score, turns
from tests.products_kit import launched, matrix, pair

#: Strips that no warps share evenly, rings that go round, columns left over, blocks that share strips.
LINES = [
    ("bitmap mma=f16.m16n8k16 cols=8 warps=2x2 rows=2 stages=2 splits=1", 5),
    ("bitmap mma=f16.m16n8k16 cols=16 warps=1x2 rows=3 stages=3 splits=2", 13),
    ("bitmap mma=f16.m16n8k16 cols=32 warps=2x1 rows=1 stages=2 splits=3", 30),
    ("bitmap mma=none cols=1 warps=2x2 rows=2 stages=2 splits=2", 1),
]
SHAPE = (7 * 16 - 3, 17 * 64 + 5)


@pytest.mark.parametrize("profile", ["h200", "a100"])
@pytest.mark.parametrize(("line", "n"), LINES)
def test_nothing_that_orders_is_redundant(line: str, n: int, profile: str) -> None:
    _all_noticed(sg.spmm(matrix(*SHAPE), n=n), line, profile)


def test_nothing_is_in_gated_pairs() -> None:
    m, k = SHAPE
    _all_noticed(sg.spmm(pair(m // 2, k), n=13, activation="silu"), LINES[1][0], "h200")


def _all_noticed(product: Product, line: str, profile: str) -> None:
    device = dataclasses.replace(load_profile(profile), sms=1)  # all strips for as few blocks as there may be
    func, arguments, expected = launched(product, line, profile=device)
    ring = run(func, arguments())
    assert "mma=none" in line or turns(func, ring) > SpmmSchedule.parse(line).stages  # slots are used again
    killed, survivors = score(func, arguments, {"y": expected}, rtol=2e-3)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= 6 and not survivors
