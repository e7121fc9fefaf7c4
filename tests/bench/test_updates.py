"""Suite ``updates``: its cases, what they are compared with, and the tables that its results make."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench import floors, tables, update_run, updates
from sparsegen.bench.stencil_run import Case, Row, labels, relative


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Case]]:
    return {part: updates.cases([part]) for part in updates.PARTS}


def test_what_a_case_is_compared_with_stands_before_it(cases: dict[str, list[Case]]) -> None:
    assert set(updates.PARTS) <= {*tables.PARTS["updates"]} and ("updates", "targets") in floors.OWN
    for part in cases.values():
        for at, case in enumerate(part):
            assert case.share is None or all(other in part[:at] for other in case.share.of)
    targets = {case.name: case for case in cases["targets"]}
    assert targets["wave"].target == 635 and targets["acoustic, order 8"].floor == "so8_wave f32"
    share = targets["shallow water"].share
    assert share and share.fraction == updates.LEVELS and share.of[0].schedule != "auto"
    single = sg.UpdateSchedule.parse(share.of[0].schedule)
    assert single.levels == 1


def test_the_tables(cases: dict[str, list[Case]]) -> None:
    rows, rates = list[Row](), dict[Case, float]()
    for part in cases.values():
        for case in part:
            rates[case] = rate = (case.target or 100.0) * (2.0 if case.schedule == "auto" else 1.0)
            now = relative(case, rates)
            took = math.prod(case.shape) * case.steps / rate / 1e9
            row = Row(**labels(now, case.schedule), median_s=took, p10=took, p90=took, gs_per_s=rate, error=0.0)
            rows.append(replace(row, ok=now.target is None or rate >= now.target))
    found = {"rows": [row.as_json() for row in rows], "parts": {}}
    for part, own in cases.items():
        body = tables.VIEWS["updates"][part](found)  # type: ignore[arg-type]
        assert [line[0] for line in body[1:]] == [case.name for case in own]
    text = str(tables.VIEWS["updates"]["targets"](found))  # type: ignore[arg-type]
    assert "2.5 of a step a pass" in text and "200 ✗" in text


def test_inputs_are_those_of_the_formula() -> None:
    wave, life = updates.update("wave"), updates.update("Life")
    given = update_run.random(wave, (9, 12), np.dtype(np.float64), 3)
    assert len(given["u"]) == 2 and given["c"].max() <= update_run.MOST < given["u"][0].max() <= update_run.HIGHEST
    cells = update_run.random(life, (9, 12), np.dtype(np.float32), 3)["u"]
    assert {*cells.flat} == {0.0, 1.0} and cells.dtype == np.float32


@pytest.mark.parametrize("form", [form for form in updates.FORMS if len(form.shape) == 2], ids=lambda form: form.name)
def test_formulas_keep_their_numbers(form: updates.Form) -> None:
    """No system runs away from random numbers in the steps of a call: its figures would be of infinities."""
    what = updates.update(form.name)
    given = update_run.random(what, (40, 44), np.dtype({"f64": np.float64, "f32": np.float32}[form.dtype]), 1)
    made = sg.compile(what, (40, 44), updates.STEPS[2], backend="reference")(**given)
    assert all(np.isfinite(a).all() and np.abs(a).max() < 100 for a in update_run.flat(made))


def test_arrays_of_zeros_are_alike() -> None:
    """The least divisor is none in f32."""
    zeros = np.zeros(3, np.float32)
    assert update_run.off(zeros, zeros) == 0 and update_run.off(zeros + 1, zeros) > 1 / update_run.HIGHEST
    assert update_run.off(np.full(3, np.nan, np.float32), zeros) == math.inf
