"""Each op that orders is needed in products with bitmap tiles as well: the emulator notices when it is deleted."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.emulator import run
from sparsegen.cost.devices import load_profile
from sparsegen.plan import launches
from sparsegen.products.product import Product
from sparsegen.schedule import SpmmSchedule
from tests.mutation.harness import score, turns
from tests.products_kit import launched, matrix, pair, weights

#: Strips that no warps share evenly, rings that go round, columns left over, blocks that share strips.
LINES = [
    ("bitmap mma=f16.m16n8k16 cols=8 warps=2x2 rows=2 stages=2 splits=1", 5, "f16"),
    ("bitmap mma=f16.m16n8k16 cols=16 warps=1x2 rows=3 stages=3 splits=2", 13, "f16"),
    ("bitmap mma=f16.m16n8k16 cols=32 warps=2x1 rows=1 stages=2 splits=3", 30, "f16"),
    ("bitmap mma=none cols=1 warps=2x2 rows=2 stages=2 splits=2", 1, "f16"),
    ("bitmap mma=f16.m16n8k16 cols=8 warps=2x2 rows=2 stages=2 splits=2", 5, "i8"),
]
SHAPE = (7 * 16 - 3, 17 * 64 + 5)


@pytest.mark.parametrize("profile", ["h200", "a100"])
@pytest.mark.parametrize(("line", "n", "dtype"), LINES)
def test_nothing_that_orders_is_redundant(line: str, n: int, dtype: str, profile: str) -> None:
    _all_noticed(sg.spmm(matrix(*SHAPE, dtype=dtype), n=n), line, profile)


def test_nothing_is_in_gated_pairs() -> None:
    m, k = SHAPE
    _all_noticed(sg.spmm(pair(m // 2, k), n=13, activation="silu"), LINES[1][0], "h200")


def test_nothing_is_in_experts() -> None:
    """Of which one has no columns, one several tiles; blocks without a tile leave."""
    k = sg.compile(
        sg.spmm([sg.sparse(weights(37, SHAPE[1], 0.6, seed=seed)) for seed in range(3)], n=24, ragged=True),
        device=dataclasses.replace(load_profile("h200"), sms=1), backend="emulator",
        schedule="bitmap cols=8 warps=2x2 rows=2 stages=2 splits=2",
    )  # fmt: skip
    given, (bound,) = k.random(), launches(k._plan(1).main.warp)
    given["offsets"] = np.array([0, 5, 5, 24], "i4")
    want = k(**given).astype(float).reshape(-1)
    arrays = {"in": given["x"], "offsets": given["offsets"], **k.weights()}

    def arguments() -> dict[str, Any]:
        made = {}
        for param, role in bound.roles:
            empty = np.full(param.size, np.nan if param.dtype.kind == "float" else 0, param.dtype.numpy())
            made[param.name] = arrays.get(role, empty).reshape(-1).copy()
        return made

    killed, survivors = score(bound.func, arguments, {"y": want}, rtol=2e-3)
    assert killed >= 8 and not survivors, "\n".join(map(str, survivors))


def _all_noticed(product: Product, line: str, profile: str) -> None:
    device = dataclasses.replace(load_profile(profile), sms=1)  # all strips for as few blocks as there may be
    func, arguments, expected = launched(product, line, profile=device)
    ring = run(func, arguments())
    assert "mma=none" in line or turns(func, ring) > SpmmSchedule.parse(line).stages  # slots are used again
    killed, survivors = score(func, arguments, {"y": expected}, rtol=2e-3)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= 6 and not survivors
