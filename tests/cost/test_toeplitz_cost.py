"""``toeplitz``: its cost near the measured, its rim beside it, and what auto makes of a number of steps."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost import total
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import load_profile
from sparsegen.cost.search import ranked
from sparsegen.cost.stencil import cost, evaluate
from sparsegen.cost.total import cheapest, total_time
from sparsegen.families import toeplitz
from sparsegen.geometry import geometry, split
from sparsegen.ir.errors import ScheduleError
from sparsegen.pipelines import lower
from sparsegen.problems.stencil import StencilProblem
from sparsegen.schedule import Schedule, StencilSchedule
from tests.cost.measured import ROW_STENCILS, ROWS, Row
from tests.cost.random_kernels import stencils

H200, CELLS = load_profile("h200"), 102_400_000
HEAT = np.array([0.25, 0.5, 0.25])


def at(p: Row) -> Cost:
    """The model's cost of a measured launch, with the blocks that it had."""
    fp, s = ROW_STENCILS[p.stencil], Schedule.parse(p.schedule)
    return evaluate(fp, (1, CELLS), s, H200, geometry(s, fp), blocks=p.blocks)


def errors() -> list[float]:
    return [abs(at(p).time * 1e6 / p.microseconds - 1) for p in ROWS]


def test_near_the_measured() -> None:
    assert len(errors()) >= 25 and np.median(errors()) <= 0.08 and max(errors()) <= 0.12


def test_only_warps_of_a_sub_core_hide_what_its_tensor_core_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of an SM's warps the random kernels are predicted too cheap."""
    found = [k for k in stencils() if k.family == "toeplitz"]

    def far() -> float:
        total._rest_time.cache_clear()
        return float(np.mean([abs(k.error()) for k in found]))

    before, work = far(), toeplitz.work
    monkeypatch.setitem(toeplitz.FAMILY.__dict__, "work", lambda *args: dataclasses.replace(work(*args), share=1))
    assert far() > before
    total._rest_time.cache_clear()


def test_the_memory_binds_up_to_48_steps_and_the_tensor_cores_are_as_busy_with_64() -> None:
    """Measured: 441, 458 and 521 us."""
    line = "toeplitz mma=f64.m16n8k8 fuse={} products=8"
    found = [cost(ROW_STENCILS["heat1"], (1, CELLS), Schedule.parse(line.format(n)), H200) for n in (32, 48, 64)]
    assert [c.binds for c in found[:2]] == ["hbm", "hbm"]
    assert found[2].terms["tensor"] == pytest.approx(found[2].terms["hbm"], rel=0.05)
    assert found[0].time == pytest.approx(found[1].time, rel=0.01)
    assert found[2].time > 1.1 * found[1].time


@pytest.mark.parametrize("cells", [CELLS, CELLS + 1])
def test_an_odd_row_costs_the_same(cells: int) -> None:
    s, fp = Schedule.parse("toeplitz fuse=16"), ROW_STENCILS["heat1"]
    c = cost(fp, (1, cells), s, H200)
    assert "pitch" not in c.terms and c.time == pytest.approx(cost(fp, (1, CELLS), s, H200).time, rel=1e-4)


@pytest.mark.parametrize("steps", [64, 96, 100, 107])
def test_auto(steps: int) -> None:
    """As many steps a pass as the memory hides, the rest in a pass nearly as long."""
    k = sg.compile(sg.Stencil.from_weights(HEAT), (CELLS,), steps=steps, device="h200", backend="emulator")
    passes = split(k.schedule, steps, 3)
    assert k.schedule.family == "toeplitz" and 48 <= k.schedule.fuse <= 64 and all(s.steps >= 40 for s, _ in passes)
    assert sum(s.steps * n for s, n in passes) == steps
    assert total_time(k.cost, steps) <= 0.53e-3 * -(-steps // 64)  # 64 steps measured: 521 us


def test_a_rest_is_counted_as_what_it_takes() -> None:
    fp = ROW_STENCILS["heat1"]
    c = cost(fp, (1, CELLS), Schedule.parse("toeplitz mma=f64.m16n8k8 fuse=64 products=8"), H200)
    rest = cost(fp, (1, CELLS), c.schedule.but(fuse=32), H200)
    assert total_time(c, 160) == pytest.approx(2 * c.time + rest.time) and rest.time < c.time
    assert total_time(c, 128) == 2 * c.time


def test_the_cheapest_is_the_first_of_the_least() -> None:
    costs = ranked(sg.Stencil.from_weights(HEAT).gridded, (1, 1 << 20), 10, H200, False).costs
    assert len(costs) > 100
    for steps in (10, 23):
        assert cheapest(costs, steps) == min(costs, key=lambda c: total_time(c, steps))


def test_the_rim_of_a_row_is_small_beside_a_pass() -> None:
    """85 % of the periodic speed at the least; every step of the rim's blocks is one cell a thread."""
    s = StencilSchedule("toeplitz", mma="f64.m16n8k8", fuse=56, products=8)
    fp = ROW_STENCILS["heat1"]
    inside, bordered = (
        cost(dataclasses.replace(fp, boundary=kind), (1, CELLS), s, H200) for kind in ("periodic", "frozen")
    )
    assert bordered.time < inside.time / 0.9 and 5e-6 < bordered.terms["rim"] < 30e-6
    assert (bordered.values["rim_blocks"], bordered.values["rim_b"]) == (2, 8)
    program = lower(StencilProblem(sg.Stencil.from_weights(HEAT[None], sg.frozen), (1, CELLS)), s, H200, 56)
    rim = program.warp.funcs[1]
    assert rim.grid == (2, 1, 1) and rim.threads == 256 >= 64 + 2 * 56 - 2


@pytest.mark.parametrize("shape", [(1, 10_000_003), (1, CELLS)])
def test_formula_is_the_number(shape: tuple[int, int]) -> None:
    fp = dataclasses.replace(ROW_STENCILS["row5"], boundary="frozen")
    c = cost(fp, shape, Schedule.parse("toeplitz mma=f64.m16n8k4 fuse=12 products=8 warps=2 stages=3"), H200)
    assert float(c.formula.xreplace(c.substitution())) == pytest.approx(c.time, rel=1e-12)
    assert {"tensor", "rim", "static"} <= set(c.terms) == set(c.reasons())


def test_steps_without_a_schedule_cost_all_the_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no pass can do the rest, whatever the way, the schedule is not chosen."""

    def refuse(*_: object) -> None:
        raise ScheduleError("no such pass", hint="none")

    c = cost(ROW_STENCILS["heat1"], (1, 4096), Schedule.parse("toeplitz fuse=16"), H200)
    total._rest_time.cache_clear()
    monkeypatch.setattr(total, "split", refuse)
    one = cost(c.facts, c.shape, Schedule.parse("toeplitz"), H200)
    assert total_time(c, 17) == pytest.approx(c.time + one.time)
    total._rest_time.cache_clear()
    monkeypatch.setattr(total, "with_steps", refuse)
    assert total_time(c, 17) == float("inf")
    total._rest_time.cache_clear()
