"""``schedule="auto"`` leaves candidates out by bounds: it chooses what the full ranking would, with little work."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench.regret import StencilProblem, stencil_problems
from sparsegen.cost import total
from sparsegen.cost.choice import Floors, choose
from sparsegen.cost.devices import load_profile
from sparsegen.cost.search import most_steps, ranked
from sparsegen.cost.stencil import cost, points
from sparsegen.cost.total import cheapest, total_time
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry
from sparsegen.ir.errors import ScheduleError
from sparsegen.problems.stencil import grid
from tests.work import calls

H200 = load_profile("h200")
PROBLEMS = stencil_problems(5, 40)


@pytest.mark.parametrize("p", PROBLEMS, ids=[p.name for p in PROBLEMS])
def test_the_choice_is_that_of_the_full_ranking(p: StencilProblem) -> None:
    at = int(p.name[1:])
    device, exact = load_profile(("h200", "a100", "h100")[at % 3]), at % 4 == 0
    stencil, shape = p.stencil.gridded, grid(p.shape)
    costs = ranked(stencil, shape, min(p.steps, most_steps()), device, exact).costs
    limit = min(p.steps, most_steps())
    chosen = choose(Footprint.of(stencil), device, shape, stencil.weights.shape, p.steps, limit, exact)
    assert chosen == cheapest(costs, p.steps)


@pytest.mark.parametrize("p", PROBLEMS[:12], ids=[p.name for p in PROBLEMS[:12]])
def test_no_bound_is_above_the_model(p: StencilProblem) -> None:
    shape = grid(p.shape)
    fp = Footprint.of(p.stencil.gridded)
    floors = Floors(fp, shape, H200)
    for c in ranked(p.stencil.gridded, shape, min(p.steps, most_steps()), H200, False).costs:
        bounds = floors.memory, floors.multiply(c.schedule), floors.tensor(c.schedule, geometry(c.schedule, fp))
        assert max(bounds) <= c.time, (bounds, str(c.schedule))


def _random(k: int, axes: int) -> sg.Stencil:
    return sg.Stencil.from_weights(np.random.default_rng(k + axes).random((k,) * axes))


HEAT = sg.Stencil.from_weights(np.array([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]]))
LARGE = {
    "Heat-2D": (HEAT, (10240, 10240)),
    "3x3": (_random(3, 2), (10240, 10240)),
    "7x7": (_random(7, 2), (10240, 10240)),
    "3x3x3": (_random(3, 3), (768, 768, 768)),
    "3 of a row": (_random(3, 1), (10**8,)),
    "odd rows": (HEAT, (10007, 9999)),
    "odd planes": (_random(3, 3), (767, 769, 771)),
}


@pytest.mark.parametrize("steps", [3, 100])
@pytest.mark.parametrize("name", LARGE)
def test_choosing_is_little_work(name: str, steps: int) -> None:
    """At most 360 000 calls today; the ranking of all candidates for 100 steps takes 600 000 to 840 000."""
    stencil, shape = LARGE[name]
    choose(Footprint(3), H200, (512, 512), (3, 3), 2, 2, False)  # what is imported late
    fp = Footprint.of(stencil.gridded)
    for known in (geometry, points, total._rest_time, total._padded_time):
        known.cache_clear()
    assert calls(lambda: choose(fp, H200, grid(shape), stencil.gridded.weights.shape, steps, steps, False)) < 450_000


def test_explain_ranks_all_that_the_choice_left_out() -> None:
    k = sg.compile(HEAT, (2048, 2048), steps=40, device="h200", backend="emulator")
    data = k.explain().data
    assert data["legal"] == len(sg.schedules(HEAT, (2048, 2048), steps=40, device="h200")) > 2000


@pytest.mark.parametrize("steps, dense, padded", [(4, 2, 0), (6, 2, 1), (20, 2, 8), (21, 1, 9), (5, 1, 1), (7, 1, 2)])
def test_passes_between_padded_rows_are_priced_so(steps: int, dense: int, padded: int) -> None:
    """Of rows that 16 bytes do not divide, from three passes on; a rest comes first, so it sees the user's array."""
    fp, shape = Footprint.of(HEAT.gridded), (4001, 4001)
    s = sg.Schedule.parse("tiled tile=32x64 warps=8 fuse=2")
    c, between = cost(fp, shape, s, H200), cost(fp, shape, s, H200, pitch=4016)
    assert between.time < c.time
    rest = total_time(c, 1) if steps % 2 else 0.0
    assert total_time(c, steps) == pytest.approx(dense * c.time + padded * between.time + rest, rel=1e-12)


def test_a_schedule_without_a_pass_for_the_rest_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    stencil, never = sg.Stencil.from_weights(np.full((3, 3), 0.1)), float("inf")
    monkeypatch.setattr(total, "_rest_time", lambda *_: never)
    k = sg.compile(stencil, (512, 512), steps=7, device="h200", backend="emulator")
    assert total_time(k.cost, 7) < never and 7 % k.schedule.steps == 0
    monkeypatch.setattr("sparsegen.cost.choice.total_time", lambda *_: never)
    stencil = sg.Stencil.from_weights(np.full((3, 3), 0.1), dtype="f16")  # which no schedule of an update does
    with pytest.raises(ScheduleError, match="has a pass for the steps that are left over") as e:
        sg.compile(stencil, (512, 512), steps=11, device="h200", backend="emulator")
    assert e.value.hint
