"""f16 and bf16 fields of every rank through ``sg.compile``: summed in f32, rounded once a pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.ir.boundary import Side
from sparsegen.ir.types import DTYPES
from tests.schedules import TOLERANCE, Field, error, expected, random_field, stencil

HALF = st.sampled_from(["f16", "bf16"])
#: Lines for fields of each rank; those of several steps a pass last.
LINES = {
    1: ["direct", "tiled tile=4x64 warps=2", "stream cols=8 levels=1", "auto", "stream cols=16 levels=3 fuse=2"],
    2: ["direct", "tiled stages=2", "stream cols=8 levels=1", "auto", "tiled fuse=2", "stream cols=8 levels=3"],
    3: ["direct block=32x4", "auto"],
}


@st.composite
def boundaries(draw: st.DrawFn, axes: int) -> BoundarySpec:
    sides: st.SearchStrategy[Side] = st.sampled_from([frozen, neumann, dirichlet(0.5), dirichlet(-1.25)])
    return {axis: periodic if draw(st.booleans()) else (draw(sides), draw(sides)) for axis in range(axes)}


def by_pass(k: sg.Kernel, u: Field) -> Field:
    """The reference's field, rounded after each pass of the kernel."""
    for program, passes in k._plan(k.steps).programs:
        for _ in range(passes):
            u = expected(k.stencil, u, program.steps)
    return u


@given(st.data(), HALF, st.sampled_from(sorted(LINES)), st.integers(1, 7), st.integers(0, 99))
def test_every_rank(data: st.DataObject, dtype: str, axes: int, steps: int, seed: int) -> None:
    extents = tuple(data.draw(st.sampled_from([1, 3, 3, 5] if axes > 1 else [3, 5])) for _ in range(axes))
    w = np.random.default_rng(seed).uniform(0.1, 1.0, extents)
    s = stencil(w, data.draw(boundaries(axes)), dtype)
    most = {1: 3000, 2: 90, 3: 20}[axes]
    shape = tuple(data.draw(st.integers(n * 6, max(n * 6, most))) for n in extents)
    line = data.draw(st.sampled_from(LINES[axes]))
    if line != "auto":
        steps = max(steps, sg.Schedule.parse(line).steps)
    note(f"{s} on {shape}, {steps} steps, {line}")
    k = sg.compile(s, shape, steps=steps, device="h200", backend="emulator", schedule=line)
    u = random_field(shape, dtype, seed)  # type: ignore[arg-type]
    got, want = k(u), by_pass(k, u)
    assert got.dtype == k.dtype == DTYPES[dtype].numpy()
    if k.schedule.steps == 1:
        assert np.array_equal(got, want)
        assert np.array_equal(got, sg.compile(s, shape, steps=steps, backend="reference", schedule=line)(u))
    assert error(got.astype("f4"), want.astype("f4")) <= TOLERANCE[dtype] * k._plan(steps).passes
    k.check(u).raise_if_errors()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_several_steps_a_pass_are_nearer_to_the_exact_result(dtype: str) -> None:
    """What the schedule leaves out are roundings."""
    s, shape = stencil(np.ones((3, 3)), dirichlet(0.5), dtype), (64, 96)
    u = random_field(shape, dtype, 1)
    exact = expected(s, u, 12).astype("f8")

    def off(line: str) -> float:
        k = sg.compile(s, shape, steps=12, device="h200", backend="emulator", schedule=line)
        return float(np.abs(k(u).astype("f8") - exact).mean())

    assert off("stream cols=8 levels=12") <= off("tiled fuse=3") < off("tiled")


@pytest.mark.parametrize("line", ["direct", "tiled fuse=3 stages=2", "stream cols=8 levels=3"])
def test_what_lies_outside_is_a_number_of_the_field(line: str) -> None:
    """dirichlet(0.1) is 0.1 in f16 in every kernel of a pass, the rim's as well."""
    w, shape = np.ones((3, 3)), (48, 80)
    u = random_field(shape, "f16", 2)

    def run(value: float) -> Any:
        s = stencil(w, dirichlet(value), "f16")
        return sg.compile(s, shape, steps=3, device="h200", backend="emulator", schedule=line)(u)

    assert np.array_equal(run(0.1), run(float(np.float16(0.1))))
