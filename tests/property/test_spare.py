"""Passes between rows with room behind them that is nobody's: whole pieces are stored there, and only there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.bench.updates import gray_scott
from sparsegen.bench.updates import wave as waving
from sparsegen.families.update.base import family
from sparsegen.ir.errors import IRError
from sparsegen.ir.kernels.stream_update import StreamUpdate
from sparsegen.ir.node import walk
from sparsegen.ir.passes.manager import Manager
from sparsegen.ir.warp import St
from sparsegen.pipelines import Program
from sparsegen.problems.update import Layouts, UpdateProblem
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE
from tests.api.test_api_updates import flat
from tests.property.test_ghosts import between, kernel
from tests.updates import H200, TOLERANCE, arrays, error, made, wave

LINE = "stream levels=2 cols={cols} rows=16 warps=2"


def spare(program: Program) -> tuple[bool, ...]:
    found: tuple[bool, ...] = program.op.funcs[0].spare  # type: ignore[attr-defined]
    return found


def stores(program: Program) -> set[int]:
    """How many cells each store to memory has."""
    (func,) = program.warp.funcs
    return {len(op.vals) for op in walk(func) if isinstance(op, St) and op.buf.space == "global"}


def agree(update: Any, shape: tuple[int, ...], steps: int, line: UpdateSchedule | str) -> Any:
    """All passes pass all checks, and the call makes what the reference does."""
    k, found = kernel(update, shape, steps, line), arrays(update, shape, 3)
    found |= {name: (found[name] * 0.2).astype(found[name].dtype) for name in update.coefs}  # so that no case grows
    report = k.check(**found)
    assert not report.errors, [str(e) for e in report.errors]
    want = sg.compile(update, shape, steps, backend="reference")(**found)
    for a, b in zip(flat(k(**found)), flat(want), strict=True):
        assert error(a, b) <= steps * TOLERANCE[update.dtype]
    return k


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("boundary", [sg.periodic, sg.frozen, sg.neumann], ids=str)
@pytest.mark.parametrize("formula", [gray_scott, waving])
def test_named_cases(formula: Any, boundary: Any, dtype: str) -> None:
    k = agree(made(formula, boundary=boundary, dtype=dtype), (37, 269), 9, LINE.format(cols=8 if dtype == "f16" else 4))
    program, last = between(k, 9), k._plan(9).parts[-1].cycle[-1].program
    assert any(spare(program)) and 1 not in stores(program)
    assert 1 in stores(last), "the arrays of a call have no room behind their rows"


@given(levels=st.integers(1, 4), columns=st.integers(33, 400), boundary=st.sampled_from([sg.periodic, sg.neumann]))
def test_random_rows(levels: int, columns: int, boundary: Any) -> None:
    update, shape, steps = wave(boundary=boundary), (23, columns), 4 * levels + 1
    line = UpdateSchedule("stream", levels=levels, cols=4, rows=16, warps=2)
    assume(columns * ITEMSIZE[update.dtype] % 16 and family(line).misfit(update, shape, line, H200) is None)
    note(f"{update} on {shape}, {steps} steps: {line}")
    assert any(spare(between(agree(update, shape, steps, line), steps)))


def test_what_is_spare_of_other_arrays_is_refused() -> None:
    problem = UpdateProblem(made(gray_scott, boundary=sg.periodic), (11, 71))
    with pytest.raises(IRError, match="what is spare of 1 of 4 arrays"):
        Manager((StreamUpdate(),), verify_each=True).run(problem.describe(Layouts((96,) * 4, spare=(True,))))
