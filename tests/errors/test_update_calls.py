"""Wrong calls of general updates: what is said, at the user's line, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.refusals import refusal
from tests.updates import gray_scott, made, wave

SHAPE = (8, 9)
WAVE = sg.compile(wave(boundary=sg.periodic), SHAPE, steps=2, device="h200", backend="emulator")
TWO = sg.compile(gray_scott(), SHAPE, device="h200", backend="emulator")
U, V, C, OUT, OLD = (np.zeros(SHAPE) for _ in range(5))


CALLS: list[tuple[Callable[[], object], tuple[str, ...]]] = [
    (lambda: WAVE((U, V)), ("wave: no array for c", "pass u, c")),  # here
    (lambda: WAVE((U, V), C, C), ("wave: 3 arrays for 2 parameters",)),  # here
    (lambda: WAVE((U, V), C, u=U), ("u is given twice",)),  # here
    (lambda: WAVE((U, V), C, k=U), ("k is no parameter of wave", "pass each of u, c once")),  # here
    (lambda: WAVE(U, C), ("u is one array, but 2 are needed", "a tuple of 2 arrays")),  # here
    (lambda: WAVE((U, V, C), C), ("u is 3 arrays, but 2 are needed",)),  # here
    (lambda: WAVE((U, V), (C,)), ("c is a tuple of 1, but one array is needed", "pass the array itself")),  # here
    (lambda: WAVE((U, V[:4]), C), ("u[1] has shape (4, 9), the kernel was compiled for (8, 9)",)),  # here
    (lambda: WAVE((U, V), C.astype("f4")), ("c has dtype float32", "nothing is cast")),  # here
    (lambda: WAVE((U, V), C, out=OUT), ("out of u is one array, but 2 are needed",)),  # here
    (lambda: WAVE((U, V), C, out=(OUT, U)), ("out of u[1] shares memory with u[0]",)),  # here
    (lambda: WAVE((U, V), C, out=(OUT, OUT)), ("out of u[1] shares memory with out of u[0]",)),  # here
    (lambda: WAVE((U, V), C, out=(OUT, C)), ("out of u[1] shares memory with c",)),  # here
    (lambda: WAVE((U, V), [1, 2]), ("c is a list of 2, but one array is needed",)),  # here
    (lambda: WAVE((U, V), "c"), ("an object of type builtins.str is not an array",)),  # here
    (lambda: TWO(U, V, out=OUT), ("out (of u, v) is one array, but 2 are needed",)),  # here
    (lambda: TWO(U, V, out=(OUT, OLD, U)), ("out (of u, v) is 3 arrays, but 2 are needed",)),  # here
    (lambda: TWO(U, V, out=(OUT, V)), ("out of v shares memory with v",)),  # here
    (lambda: WAVE.check((U, V)), ("wave: no array for c",)),  # here
    (lambda: WAVE.bench(U, C), ("u is one array",)),  # here
]


@pytest.mark.parametrize(("attempt", "says"), CALLS)
def test_calls_that_do_not_fit(attempt: Callable[[], object], says: tuple[str, ...]) -> None:
    refusal(__file__, sg.ArrayError, attempt, *says)
    assert not any(a.any() for a in (U, V, C, OUT, OLD))


def test_read_only_results_steps_and_streams() -> None:
    fixed = np.zeros(SHAPE)
    fixed.flags.writeable = False
    refusal(__file__, sg.ArrayError, lambda: TWO(U, V, out=(OUT, fixed)), "out of v is read-only")  # here
    refusal(__file__, sg.StencilError, lambda: TWO(U, V, steps=0), "steps=0: there is nothing to do")  # here
    busy = lambda: TWO(U, V, stream=7)  # noqa: E731  # here
    refusal(__file__, sg.DeviceError, busy, "stream=7, but this kernel runs on the emulator")
    refusal(__file__, sg.IRError, lambda: TWO.ir("ptx"), "unknown level 'ptx'")  # type: ignore[arg-type]  # here


COMPILE: list[tuple[dict[str, Any], type[sg.SparsegenError], tuple[str, ...]]] = [
    ({"shape": (8,)}, sg.StencilError, ("shape 8 has 1 axes, wave has 2",)),
    ({"shape": (8, 2)}, sg.StencilError, ("shape 8x2 has 2 cells on axis 1, but wave is 3 cells wide there",)),
    ({"shape": (2**16, 2**16)}, sg.StencilError, ("indices are 32 bits wide",)),
    ({"shape": (8, 0)}, sg.StencilError, ("shape[1]=0",)),
    ({"steps": 0}, sg.StencilError, ("steps=0: there is nothing to do",)),
    (
        {"schedule": "stencil2row"},
        sg.ScheduleError,
        ("it is no schedule of general updates", "begins a line for stencils", "need a formula that is linear"),
    ),
    ({"schedule": "dirct"}, sg.ScheduleError, ("unknown schedule 'dirct'", "did you mean 'direct'")),
    ({"schedule": ""}, sg.ScheduleError, ("an empty schedule", "start with a family: direct")),
    ({"schedule": "direct fuse=2"}, sg.ScheduleError, ("'fuse=2'", "means nothing to a direct schedule", "block=…")),
    ({"schedule": "direct column=9"}, sg.ScheduleError, ("column=9 is out of range", "from 1 to 8")),
    ({"schedule": "direct column=x"}, sg.ScheduleError, ("'column=x' is not a positive number",)),
    ({"schedule": "direct block=8"}, sg.ScheduleError, ("'block=8' is not a pair of positive numbers",)),
    ({"schedule": "direct block=33x1"}, sg.ScheduleError, ("block=33x1 has 33 threads; a GPU takes whole warps",)),
    ({"schedule": "direct column=2 column=2"}, sg.ScheduleError, ("column is given twice",)),
    (
        {"schedule": sg.StencilSchedule("direct")},
        sg.ScheduleError,
        ("direct block=32x8 fuse=1 is no schedule of general updates",),
    ),
    ({"nonfinite": "some"}, sg.ScheduleError, ("unknown nonfinite 'some'",)),
]


@pytest.mark.parametrize(("options", "kind", "says"), COMPILE)
def test_what_cannot_be_compiled(options: dict[str, Any], kind: type[sg.SparsegenError], says: tuple[str, ...]) -> None:
    given = {"shape": SHAPE, "device": "h200", "backend": "emulator", **options}
    refusal(__file__, kind, lambda: sg.compile(wave(), **given), *says)  # here


def test_a_parameter_called_as_a_keyword_is_refused() -> None:
    with pytest.raises(sg.StencilError, match="a parameter of stencil is called steps"):
        made(lambda u, steps: (u[0], steps[0]))
