"""Passes between rows that have ghosts of the cells across a border: the reference agrees, and no ghost is stale."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.dsl.update import Update
from sparsegen.families.update.base import family
from sparsegen.ir.errors import IRError
from sparsegen.ir.kernels.column_update import ColumnUpdate
from sparsegen.ir.node import rewrite
from sparsegen.ir.passes.manager import Manager
from sparsegen.ir.warp import St
from sparsegen.pipelines import Program
from sparsegen.problems.update import Layouts, UpdateProblem
from sparsegen.run.emulator import run_pass
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE
from tests.api.test_api_updates import flat
from tests.property.test_update_layers import star
from tests.updates import H200, TOLERANCE, arrays, error, heat, wave


def kernel(update: Update, shape: tuple[int, ...], steps: int, line: UpdateSchedule | str) -> Any:
    return sg.compile(update, shape, steps, device="h200", backend="emulator", schedule=str(line))


def between(k: Any, steps: int) -> Program:
    """The program of most passes."""
    program: Program = k._plan(steps).main
    return program


def ghosts(program: Program) -> tuple[int, ...]:
    found: tuple[int, ...] = program.op.funcs[0].ghosts  # type: ignore[attr-defined]
    return found


def agree(update: Update, shape: tuple[int, ...], steps: int, line: UpdateSchedule | str) -> None:
    """Every program of a call passes all checks, ghosts among them, and the call makes what the reference does."""
    k, found = kernel(update, shape, steps, line), arrays(update, shape, 3)
    found |= {name: (found[name] * 0.2).astype(found[name].dtype) for name in update.coefs}  # so that no case grows
    assert any(ghosts(between(k, steps)))
    report = k.check(**found)
    assert not report.errors, [str(e) for e in report.errors]
    want = sg.compile(update, shape, steps, backend="reference")(**found)
    for a, b in zip(flat(k(**found)), flat(want), strict=True):
        assert error(a, b) <= steps * TOLERANCE[update.dtype]


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize(
    ("make", "shape", "steps", "line"),
    [
        (heat, (9, 11, 77), 5, "column lines=1 planes=5 warps=2"),
        (lambda **how: star(4, **how), (9, 11, 141), 5, "column lines=2 planes=5 warps=2 stages=2"),
        (lambda **how: star(1, **how), (9, 11, 267), 8, "column levels=2 lines=2 planes=5 warps=4 stages=2"),
    ],
)
def test_named_cases(make: Any, shape: tuple[int, ...], steps: int, line: str, dtype: str) -> None:
    agree(make(boundary=sg.periodic, dtype=dtype), shape, steps, line)


@given(levels=st.integers(1, 4), seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(["f64", "f32"]))
def test_random_rows(levels: int, seed: int, dtype: str) -> None:
    """Windows that reach over both ends of a row, columns that end anywhere."""
    draw, update = random.Random(seed), heat(boundary=sg.periodic, dtype=dtype)
    shape = (draw.randint(9, 20), draw.randint(9, 20), draw.randint(17, 300))
    line = UpdateSchedule("column", levels=levels, lines=2, planes=draw.choice((3, 8)), warps=3 + levels, stages=2)
    steps = 4 * levels + draw.randrange(levels)
    assume(shape[-1] * ITEMSIZE[update.dtype] % 16 and family(line).misfit(update, shape, line, H200) is None)
    assume(any(ghosts(between(kernel(update, shape, steps, line), steps))))
    note(f"{update} on {shape}, {steps} steps: {line}")
    agree(update, shape, steps, line)


#: A schedule of few cells.
LINE = "column lines=1 planes=5 warps=2"


@pytest.mark.parametrize(
    ("boundary", "shape", "why"),
    [
        (sg.frozen, (9, 11, 75), "rows that do not wrap"),
        ({0: sg.periodic, 1: sg.periodic, 2: sg.neumann}, (9, 11, 75), "rows that do not wrap"),
        (sg.periodic, (9, 11, 76), "rows of whole pieces"),
        (sg.periodic, (9, 11, 3), "rows that are shorter than two ends of ghosts"),
    ],
)
def test_rows_without_ghosts(boundary: Any, shape: tuple[int, ...], why: str) -> None:
    assert ghosts(between(kernel(heat(boundary=boundary), shape, 9, LINE), 9)) == (), why


def test_stream_finds_cells_across_a_border_itself() -> None:
    assert ghosts(between(kernel(wave(boundary=sg.periodic), (21, 75), 9, "stream levels=2 cols=4"), 9)) == ()


def test_sites_write_cells_without_ghosts() -> None:
    update = heat(boundary=sg.periodic).with_sites(shot=sg.Source([[3.5, 4.25, 2.0]]))
    assert ghosts(between(kernel(update, (9, 11, 75), 9, LINE), 9)) == ()


def test_a_store_without_its_ghosts_is_found() -> None:
    """Single stores are those of a row's ends: the second of each pair is the ghost's."""
    k = kernel(heat(boundary=sg.periodic), (9, 11, 75), 9, LINE)
    program, found = between(k, 9), arrays(k.problem.what, (9, 11, 75), 3)
    given_ = {"in.u.0": found["u"], "in.k.0": found["k"]}
    _, reports = run_pass(program, given_, checks=True)
    assert not reports[0][1].errors

    def without(op: Any) -> Any:
        stale = isinstance(op, St) and op.where is not None and str(op.where).startswith("%again")
        return replace(op, where=op.where & 0) if stale else op

    (func,) = program.warp.funcs
    assert rewrite(func.body, without) != func.body  # type: ignore[attr-defined]
    broken = replace(program, warp=replace(program.warp, funcs=(replace(func, body=rewrite(func.body, without)),)))  # type: ignore[attr-defined]
    _, reports = run_pass(broken, given_, checks=True)
    assert "ghosts" in {e.kind for e in reports[0][1].errors}


def test_ghosts_of_other_arrays_are_refused() -> None:
    problem = UpdateProblem(heat(boundary=sg.periodic), (9, 12, 71))
    with pytest.raises(IRError, match="ghosts of 2 of 3 arrays"):
        lowered(problem, Layouts((96,) * 3, (4, 4)))
    with pytest.raises(IRError, match="2 columns around a tile, where rows have 1 ghosts"):
        lowered(problem, Layouts((96,) * 3, (1, 1, 1)))


def lowered(problem: UpdateProblem, layouts: Layouts) -> Any:
    return Manager((ColumnUpdate(),), verify_each=True).run(problem.describe(layouts))


def test_a_call_leaves_what_it_is_given() -> None:
    """Neither the arrays of the user nor elements between their rows are written."""
    update, shape = heat(boundary=sg.periodic, dtype="f32"), (9, 11, 77)
    k, wide = kernel(update, shape, 5, LINE), np.full((2, 9, 11, 90), 7, "f4")
    found = arrays(update, shape, 3)
    wide[0, ..., 3:80] = found["u"]
    before, out = wide[0].copy(), wide[1, ..., 3:80]
    k(**{**found, "u": wide[0, ..., 3:80]}, out=out)
    assert np.array_equal(wide[0], before) and np.array_equal(out, k(**found))
    assert (wide[1, ..., :3] == 7).all() and (wide[1, ..., 80:] == 7).all()


@pytest.mark.parametrize(("dtype", "piece"), [("f64", 2), ("f32", 4), ("f16", 8)])
@pytest.mark.parametrize("line", ["column lines=2 planes=4 warps=2", "column levels=2 lines=2 planes=4 warps=4"])
def test_requests_of_unaligned_rows_touch_each_sector_once(line: str, dtype: str, piece: int) -> None:
    """32 adjacent cells lie in one sector more than they fill, and in one more where they wrap; cells of which lanes
    have 16 bytes each would lie in 17."""
    update, shape = heat(boundary=sg.periodic, dtype=dtype), (9, 12, 32 * piece + 1)
    k, found = kernel(update, shape, 2, line), arrays(update, shape, 3)
    program = k._plan(2).programs[0][0]
    given_ = {"in.u.0": found["u"], **{f"in.{name}.0": found[name] for name in update.coefs}}
    _, reports = run_pass(program, given_, checks=False)
    traffic = reports[0][1].traffic
    assert {t.op.split()[0] for t in traffic} >= {"warp.st"}
    assert max(t.per_request for t in traffic) <= ITEMSIZE[dtype] + 2
