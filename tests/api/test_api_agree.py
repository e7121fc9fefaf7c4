"""Every schedule gives the reference's numbers on every back end: families, boundaries, fusion, rests, odd sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.schedules import KINDS, MIXED

rng = np.random.default_rng(11)
STAR = np.array([[0.0, 0.125, 0.0], [0.125, 0.5, 0.125], [0.0, 0.125, 0.0]])
BOX = rng.random((3, 3)) - 0.3
BOX49 = rng.random((7, 7)) / 24 - 0.01
LOPSIDED = np.array([[0.0, 0.25, 0.0], [0.0, 0.5, 0.25], [0.0, 0.0, 0.0]])

LINES = [
    "direct",
    "direct block=64x4",
    "tiled",
    "tiled stages=2",
    "tiled tile=16x32 warps=4 stages=3",
    "stencil2row",
    "stencil2row stages=2",
    "stencil2row lut=off dirty=off",
    "stencil2row mma=none",
    "stencil2row mma=f64.m16n8k4 stages=2",
    "stencil2row mma=f64.m16n8k8",
    "stencil2row mma=f64.m16n8k16",
    "stencil2row transform=explicit",
    "patches fuse=1 levels=1",
]
SIDES = {**KINDS, "mixed": MIXED, "axes": {0: sg.periodic, 1: (sg.neumann, sg.frozen)}}
Agree = Callable[..., Any]


@pytest.mark.parametrize("line", LINES)
def test_each_schedule(agree: Agree, line: str) -> None:
    agree(sg.Stencil.from_weights(BOX), (33, 65), 1, line)


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("line", ["direct", "tiled stages=2", "stencil2row"])
def test_each_boundary(agree: Agree, line: str, sides: str) -> None:
    agree(sg.Stencil.from_weights(LOPSIDED, boundary=SIDES[sides]), (17, 40), 2, line)


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("line", ["direct fuse=3", "tiled fuse=2", "tiled stages=2 fuse=3", "stencil2row fuse=3",
                                  "patches", "patches fuse=1 levels=3 strips=1"])  # fmt: skip
def test_fusion_keeps_the_boundary_at_every_step(agree: Agree, line: str, sides: str) -> None:
    agree(sg.Stencil.from_weights(STAR, boundary=SIDES[sides]), (40, 36), 7, line)


@pytest.mark.parametrize("shape", [(3, 3), (3, 100), (100, 3), (31, 33), (64, 64), (7, 129)])
def test_sizes(agree: Agree, shape: tuple[int, int]) -> None:
    for line in ("direct", "tiled stages=2", "stencil2row"):
        agree(sg.Stencil.from_weights(BOX, boundary=sg.dirichlet(0.5)), shape, 1, line)


def test_wide_stencil(agree: Agree) -> None:
    for line in ("direct", "tiled", "stencil2row stages=2"):
        agree(sg.Stencil.from_weights(BOX49), (40, 72), 1, line)


def test_weights_that_are_not_square(agree: Agree) -> None:
    for w in (rng.random((1, 5)), rng.random((5, 1)), rng.random((3, 5))):
        for line in ("direct", "tiled", "stencil2row"):
            agree(sg.Stencil.from_weights(w / w.sum(), boundary=sg.neumann), (24, 30), 2, line)


@pytest.mark.parametrize("line", ["direct", "tiled fuse=2 stages=2", "stencil2row mma=none"])
def test_single_precision(agree: Agree, line: str) -> None:
    agree(sg.Stencil.from_weights(BOX.astype("f4"), boundary=sg.frozen), (33, 40), 4, line)


def test_the_chosen_schedule(agree: Agree) -> None:
    agree(sg.Stencil.from_weights(STAR), (64, 64), 10)


def test_a_field_that_fits_no_fusion(agree: Agree) -> None:
    agree(sg.Stencil.from_weights(STAR), (4, 64), 3)
