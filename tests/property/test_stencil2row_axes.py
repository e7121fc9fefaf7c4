"""Random stencils of three axes and of one with random schedules of stencil2row: no fault, the reference's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.geometry import check
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import Schedule
from sparsegen.sizes import MMA
from tests.property.agreement import agrees
from tests.schedules import device, stencil

SWITCH = st.sampled_from(["on", "off"])
SIDE = st.sampled_from([frozen, neumann, dirichlet(0.0), dirichlet(1.5), dirichlet(-0.75)])


@st.composite
def cubes(draw: st.DrawFn) -> tuple[Any, bool]:
    """Weights of three axes, and whether they are their own mirror image along each."""
    draws = np.random.default_rng(draw(st.integers(0, 999)))
    kind = draw(st.sampled_from(["star", "far star", "box", "holes", "mirror", "one plane", "long"]))
    extents = {"far star": (5, 5, 5), "one plane": (1, 3, 3), "long": (5, 1, 3)}.get(kind, (3, 3, 3))
    w = draws.uniform(0.1, 1.0, extents)
    if kind in ("star", "far star", "mirror"):
        c = extents[0] // 2
        off = np.abs(np.indices(extents) - c).astype(bool).sum(axis=0)
        w = np.where(off <= 1, 0.5 if kind == "mirror" else w, 0.0)
    elif kind == "holes":
        w = np.where(draws.random(extents) < 0.4, w, 0.0)
        w[1, 1, 1] = -0.5
    return w, kind == "mirror"


@st.composite
def sides(draw: st.DrawFn, axes: int, every: BoundarySpec | None) -> BoundarySpec:
    """Any boundary; with ``every`` that one or a periodic one."""
    if every is not None:
        return draw(st.sampled_from([periodic, every]))
    return {axis: periodic if draw(st.integers(0, 2)) == 0 else (draw(SIDE), draw(SIDE)) for axis in range(axes)}


@st.composite
def cases(draw: st.DrawFn, axes: int) -> tuple[Any, ...]:
    if axes == 3:
        w, mirrored = draw(cubes())
        fuse = draw(st.sampled_from([1, 2, 1, 2, 3])) if max(w.shape) == 3 else 1
        s = stencil(w, draw(sides(3, None if fuse == 1 else neumann if mirrored else periodic)))
        most = (4, 8, 70) if fuse < 3 else (1, 2, 40)  # seven planes of products for each plane take seconds
        tiles = [(4, 2), (8, 8), (6, 3), (4, 4)]
    else:
        w = np.random.default_rng(draw(st.integers(0, 999))).uniform(
            -0.2, 1.0, (1, draw(st.sampled_from([1, 3, 5, 7])))
        )
        fuse = draw(st.integers(1, 3))
        s = stencil(w, draw(sides(2, None)))
        most, tiles = (0, 900), [(1, 2), (1, 4), (2, 2)]
    line = f"stencil2row mma={draw(st.sampled_from(sorted(MMA)))} fuse={fuse} stages={draw(st.integers(1, 3))}"
    line += "".join(f" {name}={draw(SWITCH)}" for name in ("lut", "dirty", "pad"))
    rows, warps = draw(st.sampled_from(tiles))
    edge = (max(w.shape) - 1) * fuse + 1
    unit = MMA[Schedule.parse(line).mma][0] * (edge + 1)
    # of three axes two units at the most in 128 columns: no field is wider, and the emulator works on all of them
    cols = unit * (draw(st.integers(1, 1 if unit > 64 else 2)) if axes == 3 else draw(st.integers(1, 2)) * warps)
    shape = tuple((n - 1) * fuse + 1 + draw(st.integers(0, more)) for n, more in zip(w.shape, most, strict=True))
    pad = draw(st.sampled_from([(0, 0), (1, 0), (0, 3), (2, 4)]))
    blocks = draw(st.sampled_from([None, 1, 2]))
    try:
        value = check(s, shape, Schedule.parse(f"{line} tile={rows}x{cols} warps={warps}"), device("h200", blocks))
    except ScheduleError:
        assume(False)
        raise
    return s, shape, value, (shape[-1] + pad[0], shape[-1] + pad[1]), blocks, draw(st.integers(0, 99))


@given(cases(3))
def test_three_axes(case: tuple[Any, ...]) -> None:
    agrees(case)


@settings(max_examples=max(6, settings().max_examples // 2))
@given(cases(1))
def test_one_axis(case: tuple[Any, ...]) -> None:
    agrees(case)
