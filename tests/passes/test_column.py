"""``column``: three axes, several levels, every boundary, on the emulator with all its checkers."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from sparsegen.backends.reference import stencil as reference
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.cost.devices import load_profile
from sparsegen.dsl.stencil import Stencil
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry
from sparsegen.ir import tile_levels as tl
from sparsegen.ir import warp as w
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.node import walk
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.pipelines import lower
from sparsegen.problems.stencil import StencilProblem
from sparsegen.run.emulator import run_pass
from sparsegen.schedule import Schedule

H200 = load_profile("h200")
MIXED = {0: (neumann, dirichlet(1.5)), 1: (frozen, neumann), 2: (dirichlet(-1.0), frozen)}
LAYERED = {0: (frozen, neumann), 1: (dirichlet(0.7), dirichlet(0.3)), 2: (neumann, neumann)}
BOUNDARIES: list[BoundarySpec] = [
    periodic, frozen, neumann, dirichlet(0.5), MIXED, LAYERED, {0: periodic, 1: frozen, 2: periodic},
    {0: neumann, 1: periodic, 2: periodic},
]  # fmt: skip


def stencil(kind: str, radius: int = 1, boundary: BoundarySpec = periodic, dtype: str = "f64") -> Stencil:
    """A lop-sided star or box whose weights sum to 1."""
    weights = np.random.default_rng(radius).uniform(0.3, 1.3, (2 * radius + 1,) * 3)
    if kind == "star":
        offsets = np.indices(weights.shape) - radius
        weights[np.count_nonzero(offsets, axis=0) > 1] = 0.0
    return Stencil.from_weights(weights / weights.sum(), boundary, dtype=dtype)


def run(s: Stencil, line: str, shape: tuple[int, ...], pitch: tuple[int, int] | None = None) -> Any:
    """One pass on the emulator, free of faults, against the reference."""
    schedule = Schedule.parse(line)
    program = lower(StencilProblem(s, shape), schedule, H200, schedule.steps, pitch)
    dtype = {"f64": np.float64, "f32": np.float32}[s.dtype]
    u = np.random.default_rng(7).random(shape).astype(dtype)
    made, reports = run_pass(program, {"in": u}, checks=True)
    out = made["out"]
    assert [str(e) for _, report in reports for e in report.errors] == []
    want = reference.run(u, s.weights, s.sides, schedule.steps)
    assert np.abs(out - want).max() / np.abs(want).max() < {"f64": 1e-13, "f32": 1e-5}[s.dtype]
    return program


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("kind", ["star", "box"])
def test_every_boundary_at_every_level(kind: str, boundary: BoundarySpec) -> None:
    s = stencil(kind, boundary=boundary)
    run(s, "column levels=1 lines=2 warps=4 planes=7 stages=3", (11, 9, 70))
    run(s, "column levels=3 lines=2 warps=6 planes=9 stages=2", (17, 13, 131))


WIDER = [("star", 2), ("star", 3), ("box", 2)]
CROSSED: list[BoundarySpec] = [
    frozen, dirichlet(0.5), {0: periodic, 1: frozen, 2: periodic}, {0: frozen, 1: periodic, 2: dirichlet(0.2)},
    {0: (frozen, dirichlet(1.5)), 1: (frozen, dirichlet(0.3)), 2: (dirichlet(-1.0), frozen)},
]  # fmt: skip


@pytest.mark.parametrize("boundary", CROSSED, ids=str)
@pytest.mark.parametrize(("kind", "radius"), WIDER)
def test_borders_that_wider_stencils_cross(kind: str, radius: int, boundary: BoundarySpec) -> None:
    """What a frozen side keeps passes through all planes that give to it; a level's border is as wide as its reach.

    Two of three schedules and fields in turns: each meets every boundary and every stencil.
    """
    s = stencil(kind, radius, boundary, "f64" if radius < 3 else "f32")
    cases = [
        ("column levels=1 lines=3 warps=4 planes=7 stages=3", (11, 9, 70)),
        ("column levels=2 lines=3 warps=6 planes=9 stages=2", (17, 13, 131)),
        ("column levels=2 lines=3 warps=6 stages=2", (9, 8, 66)),
    ]
    del cases[(WIDER.index((kind, radius)) + CROSSED.index(boundary)) % len(cases)]
    for line, shape in cases:
        run(s, line, shape)


@pytest.mark.parametrize("line", [
    "column levels=2 lines=2 warps=5 stages=2",
    "column levels=2 fuse=2 lines=3 warps=6 stages=3",
    "column levels=1 lines=4 warps=3 planes=5",
])  # fmt: skip
@pytest.mark.parametrize(("kind", "radius"), [("star", 1), ("box", 1), ("star", 2)])
def test_wider_stencils_and_fused_steps(kind: str, radius: int, line: str) -> None:
    if "fuse=2" in line and radius > 1:
        line = line.replace("fuse=2", "fuse=1")
    run(stencil(kind, radius), line, (13, 14, 75))


@pytest.mark.parametrize("boundary", [periodic, frozen, neumann, MIXED], ids=str)
@pytest.mark.parametrize("extents", list(product((1, 3), repeat=3))[1:-1], ids=str)
def test_axes_that_no_tap_crosses(extents: tuple[int, ...], boundary: BoundarySpec) -> None:
    weights = np.random.default_rng(5).uniform(0.3, 1.3, extents)
    s = Stencil.from_weights(weights / weights.sum(), boundary)
    run(s, "column levels=3 lines=2 warps=5 planes=4 stages=2", (7, 9, 70))


@pytest.mark.parametrize("pitch", [(136, 140), (131, 131), (132, 131)])
@pytest.mark.parametrize("boundary", [periodic, MIXED], ids=str)
def test_rows_that_16_bytes_do_not_divide(boundary: BoundarySpec, pitch: tuple[int, int]) -> None:
    run(stencil("star", boundary=boundary), "column levels=2 lines=2 warps=6 planes=9 stages=2", (9, 11, 131), pitch)


def test_single_precision_has_twice_the_columns() -> None:
    program = run(stencil("box", dtype="f32"), "column levels=2 lines=2 warps=6 stages=2", (9, 11, 140))
    (kernel,) = program.warp.funcs
    assert kernel.grid == (2 * 2, 1, 1)  # 11 rows by 8, 140 columns by 120


@pytest.mark.parametrize("kind", ["star", "box"])
@pytest.mark.parametrize("line", ["column levels=3 lines=3 warps=4", "column levels=1 lines=5 warps=3 stages=2"])
def test_geometry_is_the_lowering(kind: str, line: str) -> None:
    s, schedule, shape = stencil(kind), Schedule.parse(f"{line} planes=8"), (20, 21, 150)
    g = geometry(schedule, Footprint.of(s))
    (kernel,) = lower(StencilProblem(s, shape), schedule, H200, schedule.steps).warp.funcs
    assert isinstance(kernel, w.Func)
    assert (kernel.shared_bytes, kernel.threads) == (g.smem_bytes, g.threads)
    assert kernel.grid[0] == -(-20 // g.planes) * -(-21 // g.rows) * -(-150 // g.cols)
    loop = next(op for op in walk(kernel.body) if isinstance(op, w.For) and op.var.name.startswith("turn"))
    assert loop.stop.hi == g.halo_planes


def test_one_barrier_a_plane() -> None:
    for kind in ("star", "box"):
        (kernel,) = lower(
            StencilProblem(stencil(kind), (20, 20, 64)), Schedule.parse("column levels=3 lines=2 warps=6"), H200, 3
        ).warp.funcs
        assert sum(isinstance(op, w.Barrier) for op in walk(kernel)) == 1


def test_the_border_is_a_branch_of_its_own() -> None:
    s = stencil("star", boundary=frozen)
    program = lower(StencilProblem(s, (20, 20, 64)), Schedule.parse("column levels=2 lines=2 warps=6"), H200, 2)
    assert sum(isinstance(op, tl.IfBorder) for op in walk(program.tile.funcs)) == 2  # the block's sides; the ends
    assert parse_module(print_module(program.tile)) == program.tile


@pytest.mark.parametrize(("line", "kind", "radius", "boundary", "what"), [
    ("column levels=4 lines=2 warps=4", "star", 1, periodic, "leave nothing"),
    ("column levels=1 lines=2 warps=8", "star", 3, periodic, "beyond the neighbouring thread"),
    ("column levels=1 lines=2 warps=8", "star", 2, {0: frozen, 1: neumann, 2: frozen}, "mirrored; it can reach one"),
    ("column fuse=2 levels=1 lines=2 warps=8", "box", 1, dirichlet(0.5), "not periodic by fused steps"),
    ("column fuse=2 levels=1 lines=2 warps=8", "box", 1, neumann, "it can reach one"),
])  # fmt: skip
def test_refusals(line: str, kind: str, radius: int, boundary: BoundarySpec, what: str) -> None:
    from sparsegen.geometry import legal

    with pytest.raises(ScheduleError, match=what):
        legal(Schedule.parse(line), Footprint.of(stencil(kind, radius, boundary)), H200)
