"""In which order the cells of a thread go through a formula: together, and lanes meet where registers are crowded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest

from sparsegen.cost.devices import load_profile
from sparsegen.dsl.update import Update
from sparsegen.ir import warp as w
from sparsegen.ir.node import walk
from sparsegen.pipelines import lower
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule, read
from tests.updates import made

H200 = load_profile("h200")


def star(radius: int, ndim: int, dtype: str) -> Update:
    """A formula that is no linear stencil, with a sum over a star whose taps have different weights."""

    def star(u: Any) -> Any:
        here = (0,) * ndim
        far = [
            tuple(at * (axis == i) for i in range(ndim))
            for axis in range(ndim)
            for at in range(-radius, radius + 1)
            if at
        ]
        total = sum((0.01 + 0.01 * n) * u[to] for n, to in enumerate(far))
        return total - u[here] * u[here]

    return made(star, dtype=dtype)


def ops(update: Update, shape: tuple[int, ...], line: str) -> Sequence[Any]:
    """The operations of the program of one pass."""
    schedule = read(line, (UpdateSchedule,))
    (func,) = lower(UpdateProblem(update, shape), schedule, H200, schedule.levels).warp.funcs
    return list(walk(func.body))


@pytest.mark.parametrize(("shape", "line", "cells"), [
    ((9, 12, 256), "column levels=1 lines=2 planes=9 warps=4 stages=2", 8),
    ((9, 20, 256), "column levels=2 lines=2 planes=9 warps=8 stages=2", 8),
    ((64, 256), "stream levels=2 cols=4 rows=32 warps=2 stages=4 unroll=1", 4),
    ((64, 256), "tiled levels=2 cols=4 rows=4 planes=1 warps=4", 4),
    ((64, 256), "direct block=32x4 column=2", 2),
])  # fmt: skip
def test_cells_go_through_a_formula_together(shape: tuple[int, ...], line: str, cells: int) -> None:
    """The products of a tap follow one another, those of all cells; ``direct`` makes cells near a border one by one."""
    found = ops(star(1, len(shape), "f32"), shape, line)
    products = [op.a.name for op in found if isinstance(op, w.Fma) and op.a.name.startswith("k")]
    runs = [len(list(run)) for _, run in groupby(products)]
    assert set(runs) == ({cells, 1} if line.startswith("direct") else {cells})


@pytest.mark.parametrize(("radius", "lines", "crowded"), [(4, 4, True), (4, 2, False), (1, 4, False)])
def test_lanes_meet_where_registers_are_crowded(radius: int, lines: int, crowded: bool) -> None:
    """With radius 4 a thread keeps eight planes of each of its rows, 4 registers each."""
    line = f"column levels=1 lines={lines} planes=9 warps=4 stages=2"
    found = ops(star(radius, 3, "f64"), (9, 4 * lines, 128), line)
    assert any(isinstance(op, w.SyncWarp) for op in found) == crowded
