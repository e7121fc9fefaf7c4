"""Random stencils on random fields: every schedule on the emulator, checkers on, gives the reference's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.geometry import check
from sparsegen.run import emulator
from sparsegen.run.emulator import run_pass

H200 = load_profile("h200")
LINES = [
    "direct block={bx}x{by}",
    "tiled tile={rows}x32 warps={warps} stages={stages}",
    "tiled tile={rows}x64 warps={warps} stages={stages}",
    "stencil2row mma={mma} stages={stages} lut={lut} dirty={dirty} pad={pad}",
    "stencil2row mma={mma} transform=explicit lut={lut} dirty={dirty}",
]
SWITCH = st.sampled_from(["on", "off"])
MMA = st.sampled_from(["f64.m8n8k4", "f64.m16n8k4", "f64.m16n8k8", "f64.m16n8k16", "none"])
SIDE = st.sampled_from(["neumann", "frozen", "dirichlet"])


@st.composite
def schedule(draw: Any) -> str:
    line = draw(st.sampled_from(LINES)).format(
        bx=draw(st.sampled_from([32, 64])),
        by=draw(st.sampled_from([1, 3, 8])),
        rows=draw(st.sampled_from([8, 16, 32])),
        warps=draw(st.sampled_from([2, 4, 8])),
        stages=draw(st.integers(1, 4)),
        mma=draw(MMA),
        lut=draw(SWITCH),
        dirty=draw(SWITCH),
        pad=draw(SWITCH),
    )
    return f"{line} fuse={draw(st.integers(1, 3))}"


def side(draw: Any) -> Any:
    kind = draw(SIDE)
    return sg.dirichlet(draw(st.sampled_from([0.0, -1.5, 0.25]))) if kind == "dirichlet" else getattr(sg, kind)


@st.composite
def stencil(draw: Any) -> sg.Stencil:
    extents = draw(st.sampled_from([(3, 3), (3, 3), (5, 5), (1, 3), (3, 1), (5, 3), (7, 7), (1, 1)]))
    numbers = st.sampled_from([0.0, 0.0, 1.0, -0.5, 0.25, 0.1])
    w = np.array(draw(st.lists(numbers, min_size=extents[0] * extents[1], max_size=extents[0] * extents[1])))
    assume(w.any())
    boundary = {axis: sg.periodic if draw(st.booleans()) else (side(draw), side(draw)) for axis in range(2)}
    return sg.Stencil.from_weights((w / np.abs(w).sum()).reshape(extents), boundary=boundary)


@given(stencil(), st.integers(1, 70), st.integers(1, 70), st.integers(1, 5), schedule(), st.integers(0, 99))
def test_emulator_equals_reference(s: sg.Stencil, rows: int, cols: int, steps: int, line: str, seed: int) -> None:
    shape = (rows, cols)
    value = sg.Schedule.parse(line)
    assume(value.fuse <= steps and all(n >= e for n, e in zip(shape, s.weights.shape, strict=True)))
    try:
        check(s, shape, value, H200)
    except sg.ScheduleError:
        assume(False)
    note(f"{s} {s.weights.tolist()} edge {max(s.weights.shape)}")
    kernel = sg.compile(s, shape, steps=steps, device="h200", backend="emulator", schedule=value)
    u = np.random.default_rng(seed).random(shape) - 0.5
    want = sg.compile(s, shape, steps=steps, backend="reference", device="h200", schedule=value)(u)
    got = kernel(u)
    scale = max(np.abs(want).max(), np.abs(u).max())
    assert np.abs(got - want).max() <= 1e-12 * scale
    kernel.check(u).raise_if_errors()


@given(stencil(), st.integers(7, 50), st.integers(7, 50), st.integers(1, 4), st.data(), schedule())
def test_any_pitch(s: sg.Stencil, rows: int, cols: int, steps: int, data: Any, line: str) -> None:
    """Rows of input and output any distance apart: NaN between them is never used, and nothing is written there."""
    value = sg.Schedule.parse(line)
    assume(value.fuse <= steps)
    try:
        check(s, (rows, cols), value, H200)
        kernel = sg.compile(s, (rows, cols), steps=steps, device="h200", backend="emulator", schedule=value)
    except sg.ScheduleError:
        assume(False)
        return
    pitch = (cols + data.draw(st.integers(0, 40)), cols + data.draw(st.integers(0, 40)))
    u = np.random.default_rng(rows).random((rows, cols)) - 0.5
    plan = kernel._plan(steps, pitch)
    emulator.check(plan, {"in": u}, lambda done: kernel._calls.reference({"in": u}, done)).raise_if_errors()
    field = u
    for program, n in plan.programs:
        for _ in range(n):
            made, _reports = run_pass(program, {"in": field}, checks=False)
            field = made["out"]
    want = sg.compile(s, (rows, cols), steps=steps, backend="reference", device="h200", schedule=value)(u)
    assert np.abs(field - want).max() <= 1e-12 * max(np.abs(want).max(), np.abs(u).max())


@given(stencil(), st.integers(16, 70), st.integers(16, 70), st.integers(1, 4), st.integers(0, 99))
def test_the_operator_is_linear(s: sg.Stencil, rows: int, cols: int, steps: int, seed: int) -> None:
    """k(a u + b v) = a k(u) + b k(v), where no boundary adds a constant: needs no second implementation."""
    assume(all(x.value == 0.0 for pair in s.sides for x in pair))
    kernel = sg.compile(s, (rows, cols), steps=steps, device="h200", backend="emulator")
    u, v = np.random.default_rng(seed).random((2, rows, cols)) - 0.5
    assert np.abs(kernel(2.0 * u - 0.5 * v) - (2.0 * kernel(u) - 0.5 * kernel(v))).max() < 1e-13


@given(st.integers(8, 40), st.integers(8, 40), st.integers(0, 30), st.integers(0, 30), st.integers(1, 4))
def test_a_periodic_field_may_be_shifted_first(rows: int, cols: int, dy: int, dx: int, steps: int) -> None:
    w = np.array([[0.1, 0.0, 0.2], [0.3, -0.1, 0.0], [0.0, 0.4, 0.1]])
    kernel = sg.compile(sg.Stencil.from_weights(w), (rows, cols), steps=steps, device="h200", backend="emulator")
    u = np.random.default_rng(rows).random((rows, cols))
    moved = np.roll(u, (dy, dx), (0, 1))
    assert np.abs(kernel(moved) - np.roll(kernel(u), (dy, dx), (0, 1))).max() < 1e-14
