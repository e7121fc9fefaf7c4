"""A family that is registered from outside the tree is a candidate like any other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.families import direct
from sparsegen.footprint import Footprint
from sparsegen.registry import families, register
from sparsegen.schedule import StencilSchedule, Word, pair

HEAT = sg.Stencil.from_weights(np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8)


@pytest.fixture(autouse=True)
def family() -> Iterator[None]:
    """A family ``mine``: a thread an output, as ``direct``, in blocks of one shape."""

    def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
        yield StencilSchedule("mine", fuse=1)

    fuse = direct.FAMILY.by_name["fuse"]
    register(dataclasses.replace(direct.FAMILY, name="mine", words=(Word("block", pair, (32, 4)), fuse), space=space))
    yield
    del families("stencil")["mine"]  # type: ignore[attr-defined]


def test_it_compiles_and_runs() -> None:
    k = sg.compile(HEAT, (40, 50), 2, device="h200", backend="emulator", schedule="mine block=64x2")
    u = np.random.default_rng(0).random((40, 50))
    want = sg.compile(HEAT, (40, 50), 2, backend="reference", device="h200")(u)
    assert str(k.schedule) == "mine block=64x2 fuse=1" and np.allclose(k(u), want, atol=1e-14)
    assert k.check().ok and "mine" in k.explain()


def test_it_is_listed_and_its_words_are_checked() -> None:
    assert any(c.schedule.family == "mine" for c in sg.schedules(HEAT, (40, 50), device="h200"))
    with pytest.raises(sg.ScheduleError, match="'tile=32x32' means nothing to a mine schedule"):
        sg.compile(HEAT, (40, 50), device="h200", schedule="mine tile=32x32")
