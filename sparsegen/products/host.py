"""Sparse products on the host: the emulator and the reference, checks and exact counts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.execute import HostField, Plan, launches
from sparsegen.ir.symbols import symbol
from sparsegen.products.pipelines import COUNTER, IN, OUT, SLOTS, Variant
from sparsegen.products.product import Problem, Product
from sparsegen.products.weights import host_arrays

if TYPE_CHECKING:
    from sparsegen.backends.emulator.report import Report
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.counting import Counts
    from sparsegen.pipelines import Program
    from sparsegen.products.schedule import SpmmSchedule

#: Operands of a call by their roles: ``in``, ``out``, and those of the epilogue.
Arrays = Mapping[str, HostField]


def flat(a: HostField) -> HostField:
    """The elements of a packed array in the order in which they lie in memory, not copied."""
    return (a if a.flags.c_contiguous else a.T).reshape(-1)


def workspace(program: Program) -> dict[str, tuple[Any, int]]:
    """dtype and elements of each array of the workspace, by its role."""
    (bound,) = launches(program.warp)
    return {role: (p.dtype.numpy(), p.size) for p, role in bound.roles if role in (SLOTS, COUNTER)}  # type: ignore[union-attr]


def _bound(product: Product, program: Program, arrays: Arrays) -> dict[str, HostField]:
    where = {role: flat(a) for role, a in arrays.items()} | host_arrays(product.w)
    for role, (dtype, size) in workspace(program).items():
        where[role] = np.full(size, np.nan if role == SLOTS else 0, dtype)
    return where


def run_emulator(product: Product, program: Program, arrays: Arrays) -> None:
    """The launch, into ``arrays["out"]``; KernelFault for an access out of bounds."""
    from sparsegen.execute_emulator import CALL_CHECKS, LONG, SECONDS_A_LANE_OP, Meter, SlowRunWarning, lane_ops
    from sparsegen.execute_emulator import run_module as run

    (bound,) = launches(program.warp)
    expected = lane_ops(bound.func) * SECONDS_A_LANE_OP
    if expected > LONG:
        m, k = product.w.shape
        warnings.warn(
            f"the emulator will take about {expected / 60:.0f} minutes for a product of {m}x{k}x{product.n}; faster: "
            "a smaller one, backend='reference' for the numbers alone, or a GPU",
            SlowRunWarning,
            stacklevel=5,
        )
    meter = Meter(Plan(((program, 1),))) if expected > LONG else None
    run(program.warp, _bound(product, program, arrays), CALL_CHECKS, meter)


def reference(product: Product, arrays: Arrays) -> HostField:
    """The product in plain NumPy, summed in f32, of W's dtype."""
    from sparsegen.backends.reference.spmm import run

    epilogue = product.epilogue
    extra = {name: arrays[name] for name in epilogue.operands}
    dense = product.w.to_host().to_dense()
    with np.errstate(over="ignore"):  # a sum beyond the type's range becomes an infinity, on a GPU too
        return run(dense, arrays[IN], activation=epilogue.activation or "none", **extra).astype(dense.dtype)


def check(product: Product, program: Program, arrays: Arrays) -> Report:
    """The launch with all checkers.

    An element of the result that is not a number where the reference has one was not written: an error as well; so is
    a counter of the workspace that is not as it was before.
    """
    from sparsegen.backends.emulator import ALL, Finding
    from sparsegen.execute_emulator import run_module

    where = _bound(product, program, arrays)
    ((_, report),) = run_module(program.warp, where, ALL)
    loc = program.warp.funcs[0].loc
    missing = np.isnan(arrays[OUT]) & ~np.isnan(reference(product, arrays))
    if missing.any():
        at = [int(i) for i in np.argwhere(missing)[0]]
        message = f"{int(missing.sum())} elements of the result are not written or not a number, the first at {at}"
        remedy = "report it: the blocks of this schedule do not cover y"
        report.errors.append(Finding("unwritten", message, remedy, buffer=OUT, loc=loc))
    if COUNTER in where and where[COUNTER].any():
        message, remedy = "the counter of arrivals is not zero at the end", "report it: the next call would go wrong"
        report.errors.append(Finding("workspace", message, remedy, buffer=COUNTER, loc=loc))
    return report


def counts(product: Product, program: Program, arrays: Arrays) -> Counts:
    """Exact counts of the launch, from the emulator."""
    from sparsegen.counting import Counts, LaunchCounts
    from sparsegen.execute_emulator import COUNTING, run_module

    found = run_module(program.warp, _bound(product, program, arrays), COUNTING)
    return Counts(tuple(LaunchCounts(name, 1, dict(report.counts)) for name, report in found), 0)


def expected(product: Product, schedule: SpmmSchedule, device: DeviceProfile, variant: Variant) -> Counts:
    """Counts of the launch by formula; what the places of the zeros decide is their mean, rounded."""
    from sparsegen.counting import Counts, LaunchCounts
    from sparsegen.products.counts import Orders, counts

    found = counts(Problem.of(product), product.epilogue, schedule, device, Orders(*variant))
    return Counts((LaunchCounts(symbol(product.name), 1, {name: round(n) for name, n in found.items()}),), 0)


def random_arrays(product: Product, seed: int = 0) -> dict[str, HostField]:
    """Every operand, random numbers from -1 to 1 in rows, and a result of NaN."""
    rng = np.random.default_rng(seed)
    (m, k), dtype = product.w.shape, product.w.kind.numpy()
    shapes: dict[str, tuple[int, ...]] = {IN: (k, product.n), "bias": (m,), "scale": (m,), "residual": (m, product.n)}
    names = (IN, *product.epilogue.operands)
    made = {name: rng.uniform(-1, 1, shapes[name]).astype(dtype) for name in names}
    return {**made, OUT: np.full((m, product.n), np.nan, dtype)}
