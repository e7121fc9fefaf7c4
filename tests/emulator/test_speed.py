"""The emulator is a back end and has a budget: ten steps of 512 x 512 cells, every checker on, in ten seconds."""

from __future__ import annotations

import time

import numpy as np
import pytest

import sparsegen as sg

BUDGET = 10.0  # seconds, on two cores
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
    start = time.perf_counter()
    report = k.check(u)
    took = time.perf_counter() - start
    assert report.ok, report.errors
    assert took < BUDGET, f"{line}: {took:.1f} s"
