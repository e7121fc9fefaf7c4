"""The rim, of what fused steps get wrong and of all that a border reaches: counts by formula equal the emulator's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from sparsegen.boundary import frozen
from sparsegen.cost.counts import Pass, rim
from sparsegen.dsl.stencil import Stencil
from sparsegen.execute import SOURCE, TARGET
from sparsegen.execute_emulator import COUNTING, run_module
from sparsegen.ir.types import DTYPES
from sparsegen.pipelines import lower
from sparsegen.schedule import Schedule, StencilSchedule
from tests.cost.counts.borders import closed
from tests.cost.counts.kit import H200, draws

SIZES = {1: [(60, 700)], 2: [(24, 80), (24, 80)]}


def emulated(s: Stencil, shape: tuple[int, ...], schedule: StencilSchedule) -> list[tuple[str, Mapping[str, int]]]:
    """(kernel, counts) of the rim's launch, by the emulator, without the main one."""
    program = lower(s, shape, schedule, H200, schedule.steps)
    names = {launch.symbol for launch in program.warp.launches if launch.symbol.endswith("_rim")}
    module = replace(
        program.warp,
        funcs=tuple(f for f in program.warp.funcs if f.symbol in names),
        launches=tuple(launch for launch in program.warp.launches if launch.symbol in names),
    )
    fields = {role: np.zeros(shape, DTYPES[s.dtype].numpy()).reshape(-1) for role in (SOURCE, TARGET)}
    return [(name, report.counts) for name, report in run_module(module, fields, COUNTING)]


def different(s: Stencil, shape: tuple[int, ...], schedule: StencilSchedule) -> list[str] | None:
    """What the formula counts otherwise; None if the pass has no rim."""
    want = emulated(s, shape, schedule)
    got = rim.launches(Pass.of(s, shape, schedule, H200))
    if [launch.kernel for launch in got] != [name for name, _ in want]:
        return [f"launches {got}, the emulator has {[name for name, _ in want]}"]
    return [
        f"{name}: formula {launch.counts.get(name, 0)}, emulator {theirs.get(name, 0)}"
        for launch, (_, theirs) in zip(got, want, strict=True)
        for name in sorted({*launch.counts, *theirs})
        if launch.counts.get(name, 0) != theirs.get(name, 0)
    ] if got else None  # fmt: skip


@pytest.mark.parametrize(
    ("family", "axes", "rims"),
    [("direct", 1, 12), ("direct", 2, 12), ("stream", 1, 10), ("stream", 2, 10), ("patches", 2, 4), ("toeplitz", 1, 4)],
)
def test_random_cases(family: str, axes: int, rims: int) -> None:
    found = 0
    dtypes = "f64" if family in ("patches", "toeplitz") else "f64 f32 f16 bf16"
    for s, shape, schedule in draws(
        family, axes, 3 * rims, SIZES[axes], dtypes=dtypes, boundaries=closed(axes), radii=(1, 1, 2)
    ):
        wrong = different(s, shape, schedule)
        assert not wrong, (s, shape, schedule, wrong)
        found += wrong is not None
        if found == rims:
            return
    pytest.fail(f"only {found} of the passes have a rim")


def test_a_large_field_takes_no_time() -> None:
    s = Stencil.from_weights(np.full((3, 3), 1 / 9), frozen, dtype="f64")
    p = Pass.of(s, (10240, 10237), Schedule.parse("stream fuse=2 levels=4 cols=2"), H200)
    begin = time.perf_counter()
    (launch,) = rim.launches(p)
    assert time.perf_counter() - begin < 1
    assert launch.counts["bytes.global.write"] == 8 * (10240 * 10237 - (10240 - 16) * (10237 - 16))
