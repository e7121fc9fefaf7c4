"""Batches and bytes on the GPU: each item bit for bit as by itself, in every family; rows of the suite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench import batches
from sparsegen.bench.lab import Lab
from tests.api.test_batches import CASES, ITEMS, alike, averages, wave

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("shape", "line"), CASES, ids=lambda x: str(x).replace(" ", ""))
def test_a_stencils_items_are_those_of_single_calls(shape: tuple[int, ...], line: str) -> None:
    what = averages(len(shape), sg.dirichlet(1.5))
    k = sg.compile(what, shape, steps=6, batch=ITEMS, schedule=line, backend="cuda")
    one = sg.compile(what, shape, steps=6, schedule=k.schedule, backend="cuda")
    u = np.random.default_rng(1).random((ITEMS, *shape))
    for _ in range(2):  # what resident schedules keep from call to call is each item's own
        made = k(u)
        assert all(alike(made, one(item), i) for i, item in enumerate(u))


@pytest.mark.parametrize("line", ["auto", "direct column=2", "stream levels=2 cols=2", "tiled levels=2 rows=2"])
@pytest.mark.parametrize("shared", ["c", ()], ids=["shared", "own"])
def test_an_updates_items(line: str, shared: str) -> None:
    shape, rng = (220, 341), np.random.default_rng(2)
    k = sg.compile(wave, shape, steps=9, batch=ITEMS, shared=shared, schedule=line, backend="cuda")
    one = sg.compile(wave, shape, steps=9, schedule=k.schedule, backend="cuda")
    u = tuple(rng.random((ITEMS, *shape)) for _ in range(2))
    c = rng.random(shape if shared else (ITEMS, *shape)) * 0.2
    made = k(u, c, gain=0.5)
    for i in range(ITEMS):
        assert alike(made, one(tuple(level[i] for level in u), c if shared else c[i], gain=0.5), i)


def test_many_passes_in_a_graph() -> None:
    what, shape = averages(2), (96, 128)
    k = sg.compile(what, shape, steps=200, batch=5, schedule="direct", backend="cuda")
    u = np.random.default_rng(3).random((5, *shape))
    want = sg.compile(what, shape, steps=200, batch=5, backend="reference")(u)
    np.testing.assert_allclose(k(u), want, rtol=1e-12)


@pytest.mark.parametrize("boundary", [sg.periodic, sg.neumann, sg.dirichlet(17), sg.frozen], ids=str)
def test_bytes(boundary: Any) -> None:
    sharp = sg.Stencil.from_weights(
        [[0.0, -1.0, 0.0], [-1.0, 5.0, -1.0], [0.0, -1.0, 0.0]], boundary=boundary, dtype="uint8"
    )
    u = np.random.default_rng(4).integers(0, 256, (ITEMS, 101, 203), np.uint8)
    made = sg.compile(sharp, u.shape[1:], steps=3, batch=ITEMS, backend="cuda")(u)
    assert np.array_equal(made, sg.compile(sharp, u.shape[1:], steps=3, batch=ITEMS, backend="reference")(u))


def test_the_suites_rows_are_right() -> None:
    suite = batches.Batches(Lab(), seconds=0.02)
    rows = suite.run(batches.cases())
    assert not [row.failed for row in rows if row.failed]
    assert all(row.error is not None and row.error <= batches._TOLERANCE[row.dtype] for row in rows)
