"""``resident``, a family of updates, does the steps of linear stencils too: what a user sees of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.problems.stencil import StencilProblem

HEAT = sg.Stencil.from_weights(np.array([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]]), name="heat")
SHAPE, LINE = (24, 40), "resident tiles=2x1 cols=2 rows=4 planes=1 warps=5 every=3"


def kernel(stencil: sg.Stencil = HEAT, schedule: Any = LINE, **more: Any) -> sg.Kernel:
    given: dict[str, Any] = {"shape": SHAPE, "steps": 7, "device": "h200", "backend": "emulator", **more}
    return sg.compile(stencil, schedule=schedule, **given)


def test_auto_takes_it_for_many_steps_of_a_small_field_only() -> None:
    def family(n: int, steps: int, **more: Any) -> str:
        return str(kernel(schedule="auto", shape=(n, n), steps=steps, **more).schedule.family)

    assert family(256, 1000) == "resident"
    assert family(256, 1) != "resident" and family(8192, 1000) != "resident"
    fields16 = sg.Stencil.from_weights(np.full((3, 3), 0.125), dtype="f16")  # an update would round them at every step
    assert kernel(fields16, "auto", shape=(256, 256), steps=1000).schedule.family != "resident"


@pytest.mark.parametrize("boundary", [sg.periodic, sg.frozen, sg.neumann, sg.dirichlet(0.5)], ids=str)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_it_is_called_as_any_stencil_is(boundary: Any, dtype: str) -> None:
    stencil = sg.Stencil.from_weights(HEAT.weights, boundary, dtype=dtype)
    line = LINE if boundary is sg.periodic else "resident tiles=1x2 cols=1 rows=4 planes=1 warps=6 every=2"
    k, u = kernel(stencil, line), np.random.default_rng(1).random(SHAPE).astype(stencil.weights.dtype)
    u = u.astype({"f64": np.float64, "f32": np.float32}[dtype])
    want = sg.compile(stencil, SHAPE, 7, backend="reference")(u)
    out = np.empty_like(u)
    assert k(u, out) is out and k.stencil is stencil
    np.testing.assert_allclose(out, want, rtol=1e-12 if dtype == "f64" else 1e-5)
    padded = np.zeros((SHAPE[0], 48), u.dtype)[:, : SHAPE[1]]
    padded[...] = u
    np.testing.assert_array_equal(k(u=padded, steps=7), out)
    np.testing.assert_allclose(k(u, steps=2), sg.compile(stencil, SHAPE, 2, backend="reference")(u), rtol=1e-5)


def test_what_is_said_of_it() -> None:
    k = kernel()
    assert repr(k) == f"<Kernel heat 24x40 steps=7 on emulator: {LINE}>"
    page = str(k.explain())
    assert page.startswith("heat: 5-point star") and "stencil2row" in page and "general update" not in page
    assert not k.check().errors
    assert {"in", "out"} <= {role for _, role in k._plan(7).parts[0].cycle[0].arrays}
    assert any(c.schedule.family == "resident" for c in sg.schedules(HEAT, (256, 256), 1000, device="h200"))
    assert k.bench(repeats=1).model == pytest.approx(k.cost.time)


def test_schedules_of_updates_are_taken_where_the_update_is_the_same() -> None:
    u = np.random.default_rng(2).random(SHAPE)
    want = sg.compile(HEAT, SHAPE, 7, backend="reference")(u)
    k = kernel(schedule=sg.UpdateSchedule("stream", levels=2, cols=2, warps=2))
    np.testing.assert_allclose(k(u), want, rtol=1e-12)
    wide = np.zeros((5, 5))
    wide[2, 1:4] = 0.3
    narrow = sg.Stencil.from_weights(np.full((3, 3), 0.125), dtype="bf16")
    for stencil in (narrow, sg.Stencil.from_weights(wide, sg.frozen)):
        assert StencilProblem(stencil, SHAPE).update is None
        with pytest.raises(sg.ScheduleError, match="resident does steps of updates") as e:
            kernel(stencil)
        assert "as_update" in str(e.value)
    with pytest.raises(sg.ScheduleError, match="is no schedule of stencils"):
        kernel(schedule=sg.SpmmSchedule("bitmap"))
