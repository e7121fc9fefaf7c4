"""Batches of products with one pattern: each as it is alone, with the lists of one; what has no batch is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.ir.errors import IRError
from sparsegen.ir.module import Module
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.manager import Manager
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.plan import buffers
from sparsegen.problem import Problem
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.problems.sddmm import SddmmProblem
from sparsegen.products.weights import host_arrays
from sparsegen.run.emulator import CALL_CHECKS, run_module
from sparsegen.schedule import Schedule, SddmmSchedule, SpmmSchedule
from tests.sddmm_kit import mask
from tests.vectors_kit import quantized

#: Products of a batch.
MANY = 3


def run(problem: Problem, schedule: Schedule, given: dict[str, Any], variant: Any = None) -> Any:
    """The results of a batch on the emulator, of arrays by their roles."""
    (op,) = problem.describe(variant).funcs
    batch: Any = replace(op, batch=MANY)
    passes = (*problem.passes(schedule, load_profile("h200"), 1), ToWarp(), Simplify(), Dce())
    made = Manager(passes, verify_each=True).run(Module("batch", (batch,)))
    fields = {
        role: given[role].reshape(-1).view(b.dtype.numpy()) if role in given else np.zeros(b.size, b.dtype.numpy())
        for role, b in buffers(made)
    }
    reports = run_module(made, fields, CALL_CHECKS)
    assert all(report.ok for _, report in reports)
    return fields["out"].reshape(MANY, -1)


@pytest.mark.parametrize("height", [8, 2])
@pytest.mark.parametrize("out", ["bcrs", "sr_bcrs"])
@pytest.mark.parametrize("line", [
    "gather warps=2 most=2 stages=2 overlap=off",
    "strips rows=64 warps=2 groups=2 prefetch=on parts=1 overlap=off",
    "strips rows=64 warps=2 groups=2 prefetch=off parts=1 overlap=off",
])  # fmt: skip
def test_sampled_products(line: str, out: str, height: int) -> None:
    """Rows that no group of 8 divides, and columns that no strip does."""
    rng, kept = np.random.default_rng(3), mask(45, 150, height, 0.7)
    what = sg.sddmm(kept, k=64, height=height, out=out)
    problem, schedule = SddmmProblem(what), SddmmSchedule.parse(line)
    a, b = (rng.integers(-128, 128, (MANY, n, 64)).astype(np.int8) for n in (45, 150))
    lists = host_arrays(what.pattern, schedule.rules.lists(problem.facts, schedule))
    for own, x, y in zip(run(problem, schedule, {"a": a, "b": b, **lists}), a, b, strict=True):
        found = what.matrix(what.pattern.to_host().library, own).to_dense()
        assert np.array_equal(found, np.where(kept, x.astype(int) @ y.astype(int).T, 0))


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("height", [8, 4])
def test_products_with_vectors(height: int, order: str) -> None:
    """One W's values for all here, but each its own scale, bias and residual; rows that no vector divides."""
    rng, w = np.random.default_rng(4), quantized((21, 90), "u8", height=height)
    what = sg.spmm(w, n=64, y_dtype="f32", scale=True, bias=True, residual=True)
    problem, schedule = SpmmProblem(what), SpmmSchedule.parse("vector_block bits=8 wide=32 shuffle=off")
    lists = host_arrays(w, schedule.rules.arrays(schedule))
    x = rng.integers(-128, 128, (MANY, 90, 64)).astype(np.int8)
    of_row = {name: rng.standard_normal((MANY, 21)).astype(np.float32) for name in ("scale", "bias")}
    shape = (MANY, 21, 64) if order == "row" else (MANY, 64, 21)
    residual = rng.standard_normal(shape).astype(np.float32)
    given = {**lists, "values": np.tile(lists["values"], MANY), "in": x, "residual": residual, **of_row}
    made = run(problem, schedule, given, Variant("row", order, 16)).reshape(shape)
    dense = w.to_dense().astype(int)
    for i in range(MANY):
        want = of_row["scale"][i][:, None] * (dense @ x[i].astype(int)) + of_row["bias"][i][:, None]
        want = (want if order == "row" else want.T) + residual[i]
        assert np.allclose(made[i], want, rtol=1e-5, atol=1e-2)


def test_what_has_no_batch_is_refused() -> None:
    w = quantized((16, 64), "i8")
    wide, odd = (SpmmProblem(sg.spmm(w, n=n)) for n in (64, 63))
    with pytest.raises(IRError, match=r"takes a batch of 1, not of 3"):
        run(wide, SpmmSchedule.parse("vector_gather wide=32 warps=1x2 stages=2 cut=7"), {})
    with pytest.raises(IRError, match="rows of a batch of x must be whole pieces"):
        run(odd, SpmmSchedule.parse("vector_block bits=8 wide=32 shuffle=off"), {})
    sampled = SddmmProblem(sg.sddmm(np.ones((8, 16), bool), k=64))
    with pytest.raises(IRError, match="a batch of b must lie along k"):
        columns = sampled.packed._replace(b="row")
        run(sampled, SddmmSchedule.parse("gather warps=2 most=2 stages=2 overlap=off"), {}, columns)
