"""Fusion of time steps that overflows or loses precision: refused with the number, and never chosen."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.footprint import Footprint
from sparsegen.geometry import legal
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.fuse import convolve, loss
from sparsegen.ir.types import f64
from sparsegen.schedule import Schedule


@pytest.mark.parametrize(
    ("weights", "dtype", "fusable", "says"),
    [
        ([0.9, 1.0, -0.9], np.float64, 30, ["weights of both signs cancel", "from 31 steps on", "1.2e-12", "1e-12 is"]),
        ([1e10, 1.0, 1.0], np.float64, 30, ["from 31 steps on the fused weights overflow f64", "scale the weights"]),
        ([1e200, 1.0, 1.0], np.float64, 1, ["from 2 steps on", "set fuse=1,"]),
        ([1e20, 1.0, 1.0], np.float32, 1, ["overflow f32"]),
        ([1e-200, 1e-200, 1e-200], np.float64, 1, ["vanish in it", "scale the weights"]),
        ([1e-25, 1e-25, 1e-25], np.float32, 1, ["vanish in it"]),
        ([0.25, 0.5, 0.25], np.float64, 64, []),
    ],
)
def test_fusion_that_overflows_or_loses_precision(weights: Any, dtype: Any, fusable: int, says: list[str]) -> None:
    """Named with the number where the schedule is given, avoided where it is chosen; the numbers are then right."""
    stencil = sg.Stencil.from_weights(np.array(weights, dtype))
    fp = Footprint.of(stencil.gridded)
    assert fp.fusable == fusable
    family = "toeplitz" if dtype is np.float64 else "stream levels=8"
    legal(Schedule.parse(f"{family} fuse={min(fusable, 8)}"), fp, load_profile("h200"))
    if says:
        with pytest.raises(ScheduleError) as e:
            sg.compile(stencil, (4096,), steps=64, device="h200", schedule=f"{family} fuse={min(fusable + 1, 64)}")
        assert all(part in str(e.value) for part in [*says, f"set fuse={fusable}"]), str(e.value)
    k = sg.compile(stencil, (1 << 22,), steps=64, device="h200", backend="emulator")
    assert k.schedule.fuse <= fusable and all(c.schedule.fuse <= fusable for c in sg.schedules(stencil, (4096,), 64))


@pytest.mark.parametrize("seed", range(5))
def test_fused_weights_are_as_right_as_said(seed: int) -> None:
    """The loss is a bound of what exact arithmetic finds, and never shrinks."""
    w = np.random.default_rng(seed).uniform(-1, 1, 5)
    losses = [loss(w[None], n, f64) for n in range(1, 20)]
    assert losses == sorted(losses) and losses[0] == pytest.approx(2.0**-53)
    exact = [Fraction(1)]
    for n in range(1, 13):
        exact = [sum((Fraction(x) * exact[i - j] for j, x in enumerate(w) if 0 <= i - j < len(exact)), Fraction(0))
                 for i in range(len(exact) + 4)]  # fmt: skip
        wrong = sum(abs(Fraction(a) - b) for a, b in zip(convolve(w[None], n)[0], exact, strict=True))
        assert wrong / sum(map(abs, exact)) <= 4 * n * Fraction(losses[n - 1])
