"""Fields of one and of three axes on the GPU: every family for them, every boundary, sizes that divide nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.schedules import KINDS

RNG = np.random.default_rng(11)
ROW = {"three": RNG.random(3) + 0.2, "five": RNG.random(5) + 0.2}
STAR = np.where(np.count_nonzero(np.indices((3, 3, 3)) - 1, axis=0) > 1, 0.0, RNG.random((3, 3, 3)) + 0.2)
CUBE = RNG.random((3, 3, 3)) + 0.2
MIXED = {0: (sg.neumann, sg.dirichlet(1.5)), 1: (sg.frozen, sg.neumann), 2: (sg.dirichlet(-1.0), sg.frozen)}


def agrees(weights: Any, shape: tuple[int, ...], line: str, boundary: Any, steps: int, dtype: str = "f64") -> None:
    """A call on the GPU gives the reference's numbers, and nothing spills but a few words of a window of registers."""
    st = sg.Stencil.from_weights(weights / weights.sum(), boundary=boundary, dtype=dtype)
    u = RNG.random(shape).astype(np.float64 if dtype == "f64" else np.float32)
    k = sg.compile(st, shape, steps=steps, backend="cuda", schedule=line)
    want = sg.compile(st, shape, steps=steps, backend="reference")(u)
    assert np.abs(k(u) - want).max() / np.abs(want).max() <= (1e-12 if dtype == "f64" else 1e-5)
    # nvcc takes all 255 registers for the largest windows, and may put a few words aside
    assert k.resources().spills <= (128 if k.schedule.family == "resident" else 0)


@pytest.mark.parametrize("sides", KINDS)
@pytest.mark.parametrize("line", ["auto", "direct", "tiled stages=2", "stream fuse=2 levels=4 cols=8 stages=2",
                                  "toeplitz fuse=16", "toeplitz fuse=9 warps=2"])  # fmt: skip
@pytest.mark.parametrize("name", ROW)
def test_one_axis(name: str, line: str, sides: str) -> None:
    for cells in (4096, 10007):
        agrees(ROW[name], (cells,), line, KINDS[sides], 37)


@pytest.mark.parametrize("sides", [*KINDS, "mixed"])
@pytest.mark.parametrize("line", ["auto", "direct block=64x4", "column levels=1 lines=4 warps=8",
                                  "column levels=2 lines=2 warps=10",
                                  "column levels=3 lines=2 warps=8 planes=17", "march lines=1",
                                  "march block=64x2 lines=2", "slab cols=192 lines=2 warps=6",
                                  "slab cols=256 lines=4 warps=4 planes=9 stages=2"])  # fmt: skip
@pytest.mark.parametrize("weights", [STAR, CUBE], ids=["star", "cube"])
def test_three_axes(weights: Any, line: str, sides: str) -> None:
    for shape in ((40, 48, 128), (37, 41, 131)):
        agrees(weights, shape, line, KINDS.get(sides, MIXED), 7)


@pytest.mark.parametrize("line", ["column levels=2 lines=2 warps=12", "direct", "march block=32x4 planes=9",
                                  "slab cols=256 lines=3 warps=4"])  # fmt: skip
def test_single_precision(line: str) -> None:
    agrees(CUBE, (37, 41, 131), line, sg.periodic, 5, "f32")


def test_planes_must_follow_one_another() -> None:
    torch = pytest.importorskip("torch")
    st = sg.Stencil.from_weights(STAR / STAR.sum())
    k = sg.compile(st, (16, 16, 32), steps=2, backend="cuda")
    wide = torch.rand((16, 20, 32), dtype=torch.float64, device="cuda")
    with pytest.raises(sg.ArrayError, match="planes must follow one another"):
        k(wide[:, :16])
    padded = torch.rand((16, 16, 40), dtype=torch.float64, device="cuda")[:, :, :32]
    want = sg.compile(st, (16, 16, 32), steps=2, backend="reference")(padded.cpu().numpy())
    assert float(np.abs(k(padded).cpu().numpy() - want).max()) <= 1e-12
