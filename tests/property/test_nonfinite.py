"""How far a NaN or an infinity spreads: exactly as far as the stencil for ``direct`` and ``tiled``, a stated bit
farther for ``stencil2row``; and what lies beside a field in memory never gets in.

The bound of ``stencil2row``, for a (fused) stencil of edge k = 2 R + 1.  An output belongs to a group of k + 1 columns
that starts at column X, a multiple of k + 1.  Its products read, weight zero or not:

- the rows r - R .. r + R of the columns X - R .. X - R + 2 k - 1: the windows of all outputs of the group;
- because k² is padded to a multiple of 4, three elements of the row r + R + 1 in both halves of these columns, unless
  r is the last row of its tile (zeros follow there).

So a cell (y, x) that is not finite reaches rows y - R - 1 .. y + R of those (at most two) groups that start in
x + R - 2 k + 1 .. x + R; columns x + R - 2 k + 1 .. x + R + k at the outside.  Cells that a dirichlet side stands for
are never read, and those beyond a frozen side read the border's.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir.boundary import Side
from sparsegen.pipelines import Program
from sparsegen.schedule import StencilSchedule
from tests.schedules import (
    TOLERANCE,
    Field,
    device,
    emulate,
    expected,
    faults,
    lowered,
    random_field,
    schedule,
    stencil,
)

Mask = npt.NDArray[np.bool_]
SHAPE = (37, 91)
BOUNDARIES: dict[str, BoundarySpec] = {
    "periodic": periodic,
    "frozen": frozen,
    "neumann": neumann,
    "dirichlet": dirichlet(1.5),
    "mixed": {0: (frozen, dirichlet(2.0)), 1: (neumann, dirichlet(-1.0))},
}
EXACT = [
    "direct block=32x4",
    "direct block=32x4 fuse=2",
    "tiled tile=8x32 warps=2 stages=1",
    "tiled tile=8x32 warps=2 stages=3",
    "tiled tile=8x64 warps=4 stages=2 fuse=3",
]
WIDER = [
    "stencil2row mma=f64.m8n8k4 tile=8x32 warps=2 stages=1",
    "stencil2row mma=f64.m8n8k4 tile=8x32 warps=2 stages=3 lut=off dirty=off",
    "stencil2row mma=f64.m16n8k4 tile=8x64 warps=2 stages=2 pad=off",
    "stencil2row mma=f64.m16n8k16 tile=8x64 warps=2 stages=2",
    "stencil2row mma=none tile=8x32 warps=2 stages=1 lut=off",
    "stencil2row mma=f64.m8n8k4 tile=8x32 warps=2 transform=explicit dirty=off",
]
CELLS = st.tuples(st.integers(0, SHAPE[0] - 1), st.integers(0, SHAPE[1] - 1))
STAR = np.array([[0.0, 0.2, 0.0], [0.1, 0.3, 0.25], [0.0, 0.15, 0.0]])
BOX = np.random.default_rng(5).uniform(0.1, 1.0, (3, 3))
WEIGHTS = {"star": STAR, "box": BOX}


@cache
def made(line: str, weights: str, boundary: str) -> tuple[Stencil, Program]:
    """A stencil and its program, which is lowered once for all cells."""
    s = stencil(WEIGHTS[weights], BOUNDARIES[boundary])
    return s, lowered(s, SHAPE, line, profile=device(blocks=2))


def run(line: str, weights: str, boundary: str, cell: tuple[int, int], bad: float) -> tuple[Field, Field]:
    """The emulator's and the reference's fields, from one with a bad cell; neither checker nor padding complains."""
    s, program = made(line, weights, boundary)
    u = random_field(SHAPE)
    u[cell] = bad
    result = emulate(program, u)
    assert not result.errors
    return result.out, expected(s, u, program.steps)


def the_rest_agrees(got: Field, want: Field) -> None:
    both = np.isfinite(got) & np.isfinite(want)
    assert np.abs(got[both] - want[both]).max() <= TOLERANCE["f64"] * np.abs(want[both]).max()


@pytest.mark.parametrize("line", EXACT)
@given(st.sampled_from(sorted(BOUNDARIES)), st.sampled_from(sorted(WEIGHTS)), CELLS, st.sampled_from([np.nan, np.inf]))
def test_exactly_as_far_as_the_stencil(
    line: str, boundary: str, weights: str, cell: tuple[int, int], bad: float
) -> None:
    got, want = run(line, weights, boundary, cell, bad)
    assert np.array_equal(np.isfinite(got), np.isfinite(want))
    the_rest_agrees(got, want)


def read(i: npt.NDArray[np.int64], n: int, low: Side, high: Side) -> tuple[npt.NDArray[np.int64], Mask]:
    """The cell that index ``i`` reads, and whether it is read at all."""
    below = {"periodic": i + n, "neumann": -1 - i}.get(low.kind, np.zeros_like(i))
    above = {"periodic": i - n, "neumann": 2 * n - 1 - i}.get(high.kind, np.full_like(i, n - 1))
    cell = np.clip(np.where(i < 0, below, np.where(i >= n, above, i)), 0, n - 1)
    real = ~((i < 0) & (low.kind == "dirichlet")) & ~((i >= n) & (high.kind == "dirichlet"))
    return cell, real


def reach(bad: Mask, value: StencilSchedule, k: int, boundary: str) -> Mask:
    """The outputs that the bound above lets a bad cell reach."""
    sides = stencil(BOX, BOUNDARIES[boundary]).sides
    assert value.tile is not None
    radius, (ny, nx) = k // 2, bad.shape
    out = np.zeros_like(bad)
    r, c = np.indices(bad.shape)
    start = c // (k + 1) * (k + 1) - radius
    last = r % value.tile[0] == value.tile[0] - 1
    for dy in range(k + 1):
        y, y_real = read(r - radius + dy, ny, *sides[0])
        for dx in range(2 * k):
            x, x_real = read(start + dx, nx, *sides[1])
            extra = dy == k
            out |= bad[y, x] & y_real & x_real & (~last & (dx % k < 3) if extra else True)
    for axis, (low, high) in enumerate(sides):  # a frozen side keeps its cells
        at = (r, c)[axis]
        for side, kept in ((low, at < radius), (high, at >= bad.shape[axis] - radius)):
            if side.kind == "frozen":
                out = np.where(kept, bad, out)
    return out


@pytest.mark.parametrize("line", WIDER)
@given(st.sampled_from(sorted(BOUNDARIES)), st.sampled_from(sorted(WEIGHTS)), CELLS, st.sampled_from([np.nan, np.inf]))
@example("periodic", "star", (15, 40), np.nan)
def test_as_far_as_stated(line: str, boundary: str, weights: str, cell: tuple[int, int], bad: float) -> None:
    got, want = run(line, weights, boundary, cell, bad)
    where = np.zeros(SHAPE, dtype=bool)
    where[cell] = True
    value = schedule(line)
    spread = ~np.isfinite(got)
    assert np.array_equal(spread, reach(where, value, 3, boundary)), "the stated bound is exact"
    assert not (~np.isfinite(want) & ~spread).any(), "no cell that the stencil reaches is missed"
    the_rest_agrees(got, want)


@pytest.mark.parametrize("mma", ["f64.m8n8k4", "f64.m16n8k8"])
@given(CELLS)
def test_fused_as_far_as_stated(mma: str, cell: tuple[int, int]) -> None:
    """Two steps at once: edge 5, groups of 6 columns; and the outer limits of the bound as plain numbers."""
    k, radius = 5, 2
    line = f"stencil2row mma={mma} fuse=2 tile=8x{(16 if 'm16' in mma else 8) * (k + 1)} warps=2 stages=2"
    got, want = run(line, "star", "periodic", cell, np.nan)
    where = np.zeros(SHAPE, dtype=bool)
    where[cell] = True
    spread = ~np.isfinite(got)
    assert np.array_equal(spread, reach(where, schedule(line), k, "periodic"))
    assert not (~np.isfinite(want) & ~spread).any()
    inner = all(2 * k < i < n - 2 * k for i, n in zip(cell, SHAPE, strict=True))
    if inner:
        (y, x), (rows, cols) = cell, np.nonzero(spread)
        assert y - radius - 1 <= rows.min() and rows.max() <= y + radius
        assert x + radius - 2 * k + 1 <= cols.min() and cols.max() <= x + radius + k
        assert len(np.unique(cols // (k + 1))) <= 2


@pytest.mark.parametrize("boundary", sorted(BOUNDARIES))
@pytest.mark.parametrize("line", EXACT + WIDER)
def test_what_lies_beside_the_field_stays_outside(line: str, boundary: str) -> None:
    """Rows are padded with NaN, and NaN stands before and after the field: the result is finite, its padding kept."""
    s = stencil(BOX, BOUNDARIES[boundary])
    u = random_field(SHAPE)
    for pitch in ((SHAPE[1] + 1, SHAPE[1] + 5), (SHAPE[1] + 5, SHAPE[1])):  # even and odd: both widths of access
        program = lowered(s, SHAPE, line, profile=device(blocks=2), pitch=pitch)
        result = emulate(program, u, pitch=pitch)
        assert np.isfinite(result.out).all()
        assert not faults(program, s, u, result)
