"""The emulator is a back end and has a budget: ten steps of 512 x 512 cells with every checker on."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegen as sg
from tests.work import calls

#: Calls, each of which works on many warps at once: half a second.  One for each warp and op would be a thousand times.
BUDGET = 200_000
LINES = [
    "direct",
    "tiled stages=1",
    "tiled stages=2 fuse=3",
    "stencil2row mma=f64.m8n8k4 fuse=3 stages=2 lut=off",
    "stencil2row mma=f64.m8n8k4 fuse=1 stages=1",
    "stencil2row mma=f64.m16n8k4 fuse=2 stages=2",
    "stencil2row mma=none stages=1",
    "stream levels=5",
]


@pytest.mark.parametrize("line", LINES)
def test_ten_steps_with_every_checker(line: str) -> None:
    heat = sg.Stencil.from_weights(np.array([[0.0, 0.125, 0.0], [0.125, 0.5, 0.125], [0.0, 0.125, 0.0]]))
    k = sg.compile(heat, (512, 512), steps=10, device="h200", backend="emulator", schedule=line)
    u = np.random.default_rng(0).random((512, 512))
    reports = []
    assert calls(lambda: reports.append(k.check(u))) < BUDGET
    assert reports[0].ok, reports[0].errors
