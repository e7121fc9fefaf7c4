"""``counts()`` of kernels: by formula above the emulator's limit, with the numbers that the emulator has below it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import counting
from sparsegen.counting import Counts
from tests.products_kit import matrix

HEAT = np.array([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]])


def by_formula(k: Any, monkeypatch: pytest.MonkeyPatch) -> Counts:
    with monkeypatch.context() as patch:
        patch.setattr(counting, "MAX_CELLS", 0)
        counts: Counts = k.counts()
    return counts


def plain(counts: Counts) -> list[tuple[str, int, dict[str, int]]]:
    """Without the conflicts of which there are none."""
    return [(c.kernel, c.times, {name: n for name, n in c.counts.items() if n}) for c in counts.launches]


@pytest.mark.parametrize("schedule", ["direct", "stream levels=3", "stencil2row fuse=3", "tiled fuse=2 tile=16x32"])
@pytest.mark.parametrize("axes", [1, 2])
def test_a_stencils_are_the_emulators(schedule: str, axes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, shape = (HEAT, (96, 128)) if axes == 2 else (HEAT[1], (2048,))
    if schedule.startswith("tiled") and axes == 1:
        schedule = "tiled fuse=2 tile=1x128 warps=4"
    s = sg.Stencil.from_weights(weights, boundary=sg.neumann, name="double")
    k = sg.compile(s, shape, 7, device="h200", backend="emulator", schedule=schedule)
    assert plain(by_formula(k, monkeypatch)) == plain(k.counts()) and by_formula(k, monkeypatch).steps == 7


@pytest.mark.parametrize("steps", [1, 5])
def test_an_updates_are_the_emulators(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    @sg.stencil
    def wave(u: sg.Field(levels=2), c: sg.Coef()) -> Any:  # type: ignore[valid-type]
        return 2 * u[0, 0] - u.prev[0, 0] + c[0, 0] * (u[0, 1] + u[0, -1] - 2 * u[0, 0])

    k = sg.compile(wave, (48, 100), steps, device="h200", backend="emulator")
    assert plain(by_formula(k, monkeypatch)) == plain(k.counts())


def test_a_products_are_nearly_the_emulators(monkeypatch: pytest.MonkeyPatch) -> None:
    k = sg.compile(sg.spmm(matrix(512, 512, 0.6), n=16), device="h200", backend="emulator")
    formula, emulator = by_formula(k, monkeypatch), k.counts()
    assert [c.kernel for c in formula.launches] == [c.kernel for c in emulator.launches]
    for name, n in emulator.items():
        if name == "conflicts.shared":  # few, and of these zeros only: within the wavefronts that follow
            continue
        assert formula.get(name, 0) == pytest.approx(n, rel=0.05), name


def test_large_ones_are_counted_in_seconds() -> None:
    s = sg.Stencil.from_weights(HEAT)
    k = sg.compile(s, (10240, 10240), 100, device="h200", backend="emulator")
    w = sg.compile(sg.spmm(matrix(8192, 4096, 0.99), n=8), device="h200", backend="emulator")
    start = time.process_time()
    counts = k.counts()
    assert counts.steps == 100 and counts["bytes.global.read"] > 8 * 10240**2 * len(counts.launches)
    assert w.counts()["bytes.bulk"] > 0
    assert time.process_time() - start < 10
