"""Random stencils on three axes, shapes, boundaries, pitches: no fault on the emulator, the reference's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, note
from hypothesis import strategies as st

from sparsegen.backends.reference import stencil as reference
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.geometry import check
from sparsegen.ir.boundary import Side
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.types import DTYPES
from sparsegen.pipelines import lower
from sparsegen.problems.stencil import StencilProblem
from sparsegen.run.emulator import run_pass
from sparsegen.schedule import Schedule
from tests.schedules import TOLERANCE, device, stencil

SIDES = [frozen, neumann, dirichlet(0.0), dirichlet(1.5), dirichlet(-0.75)]


def boundary(draw: st.DrawFn) -> BoundarySpec:
    """One kind for all sides, or each side its own."""
    if draw(st.booleans()):
        return draw(st.sampled_from([periodic, frozen, neumann, dirichlet(2.0)]))

    def pair() -> Side | tuple[Side, Side]:
        return (
            periodic if draw(st.integers(0, 2)) == 0 else (draw(st.sampled_from(SIDES)), draw(st.sampled_from(SIDES)))
        )

    return {axis: pair() for axis in range(3)}


def weights(draw: st.DrawFn) -> Any:
    """Boxes and stars, some lop-sided: with no tap on one side of an axis, or with holes."""
    radius = draw(st.sampled_from([1, 1, 1, 2]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    extents = (2 * radius + 1,) * 3 if draw(st.booleans()) else tuple(draw(st.sampled_from([1, 3])) for _ in range(3))
    w = rng.uniform(-0.2, 1.0, extents)
    if draw(st.booleans()):
        middle = np.array(extents).reshape(3, 1, 1, 1) // 2
        w[np.count_nonzero(np.indices(extents) - middle, axis=0) > 1] = 0.0
    kind = draw(st.sampled_from(["any", "any", "thin", "holes"]))
    if kind == "thin":
        w[extents[0] // 2 + 1 :] = 0.0
    elif kind == "holes":
        w *= rng.random(w.shape) < 0.6
    w[tuple(n // 2 for n in extents)] = 0.7
    return w


@st.composite
def columns(draw: st.DrawFn, family: str) -> tuple[Stencil, tuple[int, ...], str, tuple[int, int]]:
    """A stencil, a shape, a schedule of a family that may run it, and the pitches of the rows."""
    dtype = draw(st.sampled_from(["f64", "f64", "f32", *(["f16", "bf16"] if family == "layers" else [])]))
    s = stencil(weights(draw), boundary(draw), dtype)
    line = f"{family} lines={draw(st.integers(1, 4))} planes={draw(st.sampled_from(['auto', 3, 7]))}"
    if family == "march":
        line += f" block={draw(st.sampled_from(['32x1', '32x3', '64x1', '64x2']))}"
    elif family == "slab":
        threads = draw(st.sampled_from([32, 64, 96]))
        warps = threads // 32 * draw(st.integers(1, 3))
        line += f" cols={threads * 16 // DTYPES[dtype].nbytes} warps={warps} stages={draw(st.integers(2, 4))}"
    else:
        line += f" warps={draw(st.integers(2, 8))} stages={draw(st.integers(2, 4))}"
    if family == "column":
        line += f" levels={draw(st.integers(1, 4))} fuse={draw(st.sampled_from([1, 1, 2]))}"
    shape = tuple(draw(st.integers(5, top)) for top in (14, 20, 140))
    pad = draw(st.sampled_from([(0, 0), (1, 0), (0, 3), (2, 4)]))
    return s, shape, line, (shape[2] + pad[0], shape[2] + pad[1])


@given(st.sampled_from(["column", "layers", "march", "slab"]).flatmap(columns))
def test_columns(case: tuple[Stencil, tuple[int, ...], str, tuple[int, int]]) -> None:
    s, shape, line, pitch = case
    try:
        schedule = check(s, shape, Schedule.parse(line), device())
    except ScheduleError:
        assume(False)
        return
    note(f"{s}\n{shape} {line} {pitch}")
    u = np.random.default_rng(1).random(shape).astype(DTYPES[s.dtype].numpy())
    program = lower(StencilProblem(s, shape), schedule, device(), schedule.steps, pitch)
    made, reports = run_pass(program, {"in": u}, checks=True)
    out = made["out"]
    assert [str(e) for _, report in reports for e in report.errors] == []
    want = reference.run(u, s.weights, s.sides, schedule.steps)
    assert np.abs(out - want).max() <= TOLERANCE[s.dtype] * np.abs(want).max()
