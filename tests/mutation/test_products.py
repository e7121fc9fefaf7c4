"""Each op that orders is needed in products with bitmap tiles as well: the emulator notices when it is deleted."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.emulator import run
from sparsegen.cost.devices import load_profile
from sparsegen.pipelines import lower
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.schedule import SpmmSchedule
from tests.mutation.harness import score, turns
from tests.products_kit import matrix, weights

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
    m, k = SHAPE
    device = dataclasses.replace(load_profile(profile), sms=1)  # all strips for as few blocks as there may be
    dense, w = weights(m, k, 0.6), matrix(m, k)
    program = lower(SpmmProblem(sg.spmm(w, n=n)), SpmmSchedule.parse(line), device, 1, Variant("row", "row", 1))
    (func,), (launch,) = program.warp.funcs, program.warp.launches
    x = np.random.default_rng(1).integers(-4, 5, (k, n)).astype(np.float16)
    arrays = {"in": x, "index": w.arrays["index"], "masks": w.arrays["masks"], "values": w.arrays["values"].view("u4")}

    def make_args() -> dict[str, Any]:
        out: dict[str, Any] = {}
        for role, buffer in zip(launch.args, func.params, strict=True):
            fresh = np.zeros if role == "workspace.counter" else lambda size, dtype: np.full(size, np.nan, dtype)
            a = arrays.get(role)
            out[buffer.name] = fresh(buffer.size, buffer.dtype.numpy()) if a is None else a.reshape(-1).copy()
        return out

    expected = (dense.astype(float) @ x.astype(float)).reshape(-1)
    ring = run(func, make_args())
    assert "mma=none" in line or turns(func, ring) > SpmmSchedule.parse(line).stages  # slots are used again
    killed, survivors = score(func, make_args, {"y": expected}, rtol=2e-3)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed >= 6 and not survivors
