"""Tuning on the GPU: the fastest of what the model proposes, measured once, no slower than the model's choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.tuning import race, store
from tests.products_kit import agrees, matrix, operands
from tests.updates import wave

HEAT = np.array([[0, 0.125, 0], [0.125, 0.5, 0.125], [0, 0.125, 0]])


@pytest.fixture
def races(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many candidates each measurement has timed so far."""
    monkeypatch.setenv("SPARSEGEN_CACHE_DIR", str(tmp_path))
    found: list[int] = []
    real = race.race

    def counted(entries: Any, rounds: int) -> None:
        found.append(len(entries))
        real(entries, rounds)

    monkeypatch.setattr("sparsegen.tuning.tune.race", counted)
    return found


def test_a_stencil(races: list[int]) -> None:
    st, shape, steps = sg.Stencil.from_weights(HEAT, boundary=sg.periodic), (2048, 2048), 24
    first = sg.tune(st, shape, steps, top=6)
    second = sg.tune(st, shape, steps, top=6)
    assert races == [6] and second.schedule == first.schedule and second.measured == first.measured
    (record,) = store.records()
    assert not any(t.failed for t in record.trials), record.trials
    auto = sg.compile(st, shape, steps)
    assert first.measured is not None and first.measured <= 1.1 * auto.bench().median
    # the fastest of single calls, each of a few launches, against the median of many in a row
    assert 0.7 <= min(second.bench(repeats=30).times) / first.measured <= 1.6
    u = np.random.default_rng(0).random(shape)
    want = auto(u)
    assert abs(first(u) - want).max() <= 1e-11 * abs(want).max()


def test_an_update(races: list[int]) -> None:
    first, second = (sg.tune(wave(boundary=sg.periodic), (1024, 1024), 12, top=4) for _ in range(2))
    assert races == [4] and second.schedule == first.schedule and first.measured


def test_a_product(races: list[int]) -> None:
    product = sg.spmm(matrix(2048, 2048), n=16, bias=True)
    first, second = (sg.tune(product, top=5) for _ in range(2))
    assert races == [5] and second.schedule == first.schedule and first.measured
    (record,) = store.records()
    assert not any(t.failed for t in record.trials), record.trials
    given = operands(product)
    agrees(second(given["x"], bias=given["bias"]), product, given)
