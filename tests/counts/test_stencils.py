"""Counts from one tile of each class are those of whole runs, for random cases of every family."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.counts.work import Tiles
from sparsegen.ir import tile
from sparsegen.ir.op import Stencil
from sparsegen.ir.types import Buffer
from sparsegen.pipelines import Program
from sparsegen.plan import launches
from tests.counts.kit import FAMILIES, programs, whole, wrong

HEAT = np.array([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]])


def saved(program: Program) -> bool:
    """Whether fewer tiles than there are stand for all of some launch, at first sight."""
    (op,) = program.op.funcs
    kernels = {f.symbol: f for f in program.tile.funcs if isinstance(f, tile.Func)}
    assert isinstance(op, Stencil)
    for bound in launches(program.warp):
        fields = [p for p, role in bound.roles if role not in program.warp.constants and isinstance(p, Buffer)]
        work = Tiles.of(kernels[bound.func.symbol], op.shape, fields)
        if len(np.unique(work.classes(np.ones(work.axes, dtype=np.int64))[0])) < work.units // 2:
            return True
    return False


@pytest.mark.parametrize(("family", "axes"), FAMILIES)
def test_random_cases(family: str, axes: int) -> None:
    made = dict(islice(programs(family, axes, "counts"), 3))
    assert any(map(saved, made.values()))
    assert not {name: found for name, program in made.items() if (found := wrong(program))}


@pytest.mark.parametrize(("family", "axes"), [("direct", 2), ("stream", 2), ("tiled", 2), ("stencil2row", 2)])
def test_rows_further_apart_than_they_are_long(family: str, axes: int) -> None:
    assert not {name: found for name, program in islice(programs(family, axes, "p", 3), 2) if (found := wrong(program))}


@pytest.mark.parametrize("schedule", ["direct", "stream levels=3", "stencil2row fuse=3", "tiled fuse=2 tile=16x32"])
@pytest.mark.parametrize("axes", [1, 2])
def test_a_call_is_all_its_passes(schedule: str, axes: int) -> None:
    """Of seven steps, between levels with padded rows."""
    weights, shape = (HEAT, (96, 129)) if axes == 2 else (HEAT[1], (2049,))
    if schedule.startswith("tiled") and axes == 1:
        schedule = "tiled fuse=2 tile=1x128 warps=4"
    k = sg.compile(sg.Stencil.from_weights(weights, sg.neumann, "double"), shape, 7, device="h200", backend="emulator",
                   schedule=schedule)  # fmt: skip
    want: list[tuple[str, int, dict[str, int]]] = []
    for program, times in k._plan(7).programs:
        want += [(name, times, {n: c for n, c in found.items() if c}) for name, found in whole(program, {}).items()]
    counts = k.counts()
    assert [(c.kernel, c.times, {n: i for n, i in c.counts.items() if i}) for c in counts.launches] == want
    assert counts.steps == 7 and not counts.sampled
    assert counts["bytes.global.read"] == sum(times * c["bytes.global.read"] for _, times, c in want)


@pytest.mark.parametrize(
    ("weights", "shape", "schedule"),
    [
        (HEAT, (10240, 10240), "stream levels=10 rows=64"),
        (HEAT, (10007, 9999), "tiled stages=3"),
        (np.full((3, 3, 3), 1 / 27), (513, 768, 511), "direct"),
        (np.full(3, 1 / 3), (10**8 + 1,), "toeplitz fuse=8"),
    ],
)
def test_large_fields(weights: Any, shape: tuple[int, ...], schedule: str) -> None:
    """As much is written as there is: of frozen cells too, and once."""
    k = sg.compile(sg.Stencil.from_weights(weights, sg.frozen), shape, 20, device="h200", backend="emulator",
                   schedule=schedule)  # fmt: skip
    passes = sum(times for _, times in k._plan(20).programs)
    assert k.counts()["bytes.global.write"] == 8 * np.prod(shape) * passes
