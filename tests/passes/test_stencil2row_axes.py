"""stencil2row on three axes and on one: planes that are products, small ones point by point, runs of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparsegen.backends.emulator import Report
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir import op as o
from sparsegen.ir import tile as t
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.rim import Rim
from sparsegen.ir.kernels.stencil2row import Stencil2Row
from sparsegen.ir.kernels.stencil2row_matrices import Matrices
from sparsegen.ir.module import Module
from sparsegen.ir.node import walk
from sparsegen.ir.numbers.stencil2row import multiplied
from sparsegen.ir.parse import parse_module
from sparsegen.ir.passes import Manager
from sparsegen.ir.passes.barriers import Barriers
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.fuse_time import FuseTime
from sparsegen.ir.passes.pipeline import Pipeline
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.text import print_module
from sparsegen.problems.stencil import StencilProblem
from tests.schedules import emulate, error, expected, kernels, random_field, stencil

BOX = np.random.default_rng(3).uniform(0.1, 1.0, (3, 3, 3))
ROW = np.array([[0.3, -0.1, 0.5, 0.0, 0.2]])
MIXED: BoundarySpec = {0: (frozen, dirichlet(1.5)), 1: (dirichlet(-1.0), neumann), 2: (neumann, frozen)}
M = {"f64.m8n8k4": 8, "f64.m16n8k4": 16, "f64.m16n8k8": 16, "f64.m16n8k16": 16, "fma": 8}


def star(radius: int) -> Any:
    """Weights on the axes through the centre, all of them different."""
    w, c = np.zeros((2 * radius + 1,) * 3), radius
    draw = np.random.default_rng(radius).uniform(0.1, 1.0, (3, 2 * radius + 1))
    w[:, c, c], w[c, :, c], w[c, c, :] = draw
    return w


def tile_level(s: Stencil, shape: tuple[int, ...], steps: int, stages: int = 1, **options: Any) -> Module:
    """The kernel of ``steps`` fused steps; with stages two blocks do all the tiles, so that rings go round."""
    fuse = FuseTime(steps, rim="none" if len(shape) == 3 else "fused")
    kernel = Stencil2Row(stages=stages, blocks=2 if stages > 1 else 0, **options)
    return Manager((fuse, kernel, Rim(), Pipeline(stages), Barriers()), verify_each=True).run(
        StencilProblem(s, shape).describe()
    )


def warp_level(module: Module) -> Module:
    return Manager((ToWarp(), Simplify(), Dce()), verify_each=True).run(module)


def right(s: Stencil, shape: tuple[int, ...], steps: int, stages: int = 1, **options: Any) -> Report:
    """Runs with every checker on, compares with the reference, and gives the main kernel's report."""
    u = random_field(shape, seed=steps)
    module = warp_level(tile_level(s, shape, steps, stages, **options))
    for seed in (0, 1):
        result = emulate(module, u, seed=seed)
        assert not result.errors
        assert error(result.out, expected(s, u, steps)) < 1e-12
    return dict(result.reports)[s.name]


def columns(mma: str, k: int, groups: int = 1) -> int:
    return groups * M[mma] * (k + 1)


# ------------------------------------------------------------------------------------------------ three axes
@pytest.mark.parametrize(("mma", "stages"), [("fma", 1), ("f64.m8n8k4", 2), ("f64.m16n8k4", 1), ("f64.m16n8k16", 3)])
@pytest.mark.parametrize(("weights", "steps"), [(star(1), 1), (star(1), 3), (BOX, 1), (BOX, 2), (star(2), 1)])
def test_planes(mma: str, weights: Any, steps: int, stages: int) -> None:
    k = (len(weights) - 1) * steps + 1
    right(stencil(weights), (7, 9, 90), steps, stages, mma=mma, rows=4, cols=columns(mma, k), warps=2)


@pytest.mark.parametrize("sides", [periodic, frozen, neumann, dirichlet(1.5), MIXED])
@pytest.mark.parametrize(("weights", "stages"), [(star(1), 3), (BOX, 1), (BOX, 2), (star(2), 1)])
def test_borders_of_one_step(sides: BoundarySpec, weights: Any, stages: int) -> None:
    cols = columns("f64.m8n8k4", len(weights))
    right(stencil(weights, sides), (5, 7, 70), 1, stages, rows=4, cols=cols, warps=2, lut=stages == 1)


def test_a_mirror_image_may_be_fused_to_a_mirroring_border() -> None:
    w = np.zeros((3, 3, 3))
    w[:, 1, 1] = w[1, :, 1] = w[1, 1, :] = [1.0, 4.0, 1.0]
    right(stencil(w, neumann), (8, 9, 70), 3, rows=4, cols=64, warps=2)


@pytest.mark.parametrize("sides", [frozen, dirichlet(0.0), {0: neumann, 1: periodic, 2: frozen}])
def test_no_rim_mends_a_fused_border(sides: BoundarySpec) -> None:
    with pytest.raises(ScheduleError, match=r"fuse=2.*no rim"):
        tile_level(stencil(star(1), sides), (8, 9, 70), 2, rows=4, cols=48, warps=2)


def test_planes_that_are_products() -> None:
    """The paper's fused star: only the plane of 25 points is a product; of a box every plane is one."""
    assert multiplied((1, 5, 13, 25, 13, 5, 1), 49) == (False, False, False, True, False, False, False)
    assert multiplied((9, 9, 9), 9) == (True, True, True)
    assert multiplied((1, 1, 9, 1, 1), 25) == (False, False, True, False, False)
    assert multiplied((1, 1), 9) == (True, False)


def products(weights: Any, steps: int, **options: Any) -> tuple[list[t.Product], list[t.Points]]:
    ops = list(walk(tile_level(stencil(weights), (7, 13, 150), steps, **options).funcs))
    return [x for x in ops if isinstance(x, t.Product)], [x for x in ops if isinstance(x, t.Points)]


def test_a_star_is_one_product_and_its_points() -> None:
    mma, points = products(star(1), 3, rows=4, cols=64, warps=2)
    assert [bool(x.new) for x in mma] == [True] and [len(x.taps) for x in points] == [2 * (13 + 5 + 1)]
    mma, points = products(BOX, 2, rows=4, cols=48, warps=2)
    assert [bool(x.new) for x in mma] == [True, *[False] * 4] and not points


@pytest.mark.parametrize(("mma", "stages"), [("f64.m8n8k4", 1), ("f64.m16n8k4", 2)])
def test_counts(mma: str, stages: int) -> None:
    """Every plane of a box is read and multiplied once for each plane of outputs."""
    planes, rows, cols = 4, 8, columns(mma, 3)
    report = right(stencil(BOX), (planes, rows, cols), 1, stages, mma=mma, rows=rows, cols=cols, warps=2)
    assert report.counts[f"mma.{mma}"] == planes * 3 * 6 * rows


def test_points_of_a_pair_are_loaded_once() -> None:
    """Inside, two adjacent outputs take a row's points from 16-byte loads: 17 for 19 points, half of the star's."""
    module = warp_level(tile_level(stencil(star(1)), (16, 16, 192), 3, rows=4, cols=64, warps=2))
    text = print_module(module)
    inside = text[text.index("%inner") :]
    inside = inside[: inside.index("else")]
    loads = [line for line in inside.splitlines() if "warp.ld @u" in line]
    assert len(loads) == 2 * (11 + 5 + 1)


def test_weights_of_many_planes_are_loaded_plane_by_plane() -> None:
    few = list(walk(tile_level(stencil(BOX), (7, 13, 150), 1, rows=4, cols=32, warps=2).funcs))
    many = list(walk(tile_level(stencil(BOX), (7, 13, 150), 3, rows=4, cols=64, warps=2).funcs))
    assert [x.regs.size for x in few if isinstance(x, t.Fragments)] == [3 * 6]
    assert [(x.regs.size, x.first) for x in many if isinstance(x, t.Fragments)] == [(26, 26 * i) for i in range(7)]


def test_rows_are_pitched_across_planes() -> None:
    s, shape, pitch = stencil(BOX, MIXED), (5, 9, 41), (44, 43)
    passes = (Stencil2Row(rows=4, cols=32, warps=2), Pipeline(1), Barriers(), ToWarp(), Simplify(), Dce())
    u = random_field(shape)
    result = emulate(Manager(passes).run(StencilProblem(s, shape).describe(pitch)), u, pitch=pitch)
    assert not result.errors and error(result.out, expected(s, u, 1)) < 1e-12


# ------------------------------------------------------------------------------------------------ explicit, three axes
@pytest.mark.parametrize("mma", M)
@pytest.mark.parametrize(("weights", "steps"), [(star(1), 1), (star(1), 3), (BOX, 1), (BOX, 2), (star(2), 1)])
def test_explicit_planes(mma: str, weights: Any, steps: int) -> None:
    cols = columns(mma, (len(weights) - 1) * steps + 1)
    right(stencil(weights), (7, 9, 90), steps, mma=mma, rows=4, cols=cols, warps=2, explicit=True, lut=steps == 1)


@pytest.mark.parametrize("sides", [periodic, frozen, neumann, dirichlet(1.5), MIXED])
@pytest.mark.parametrize("weights", [star(1), BOX, star(2)])
def test_explicit_borders_of_one_step(sides: BoundarySpec, weights: Any) -> None:
    cols = columns("f64.m8n8k4", len(weights))
    right(stencil(weights, sides), (5, 7, 70), 1, rows=4, cols=cols, warps=2, explicit=True, pad=weights is BOX)


@pytest.mark.parametrize("far", [-1, 1])
def test_explicit_products_of_planes_to_one_side(far: int) -> None:
    """Upwind weights: the first plane that is made is not below the field's first one, or the last not above."""
    w = np.zeros((3, 3, 3))
    w[1], w[1 + far] = BOX[0], BOX[1]
    right(stencil(w, dirichlet(1.5)), (4, 9, 70), 1, rows=4, cols=64, warps=2, explicit=True)


def test_explicit_planes_are_made_once() -> None:
    """Each plane of the field, and one beyond each border, is made once; every plane of outputs reads three of them."""
    planes, rows, cols = 6, 8, columns("f64.m8n8k4", 3)
    module = warp_level(tile_level(stencil(BOX), (planes, rows, cols), 1, rows=rows, cols=cols, warps=2, explicit=True))
    assert [func.grid[0] for func in kernels(module).values()] == [planes + 2, planes]
    reports = dict(emulate(module, random_field((planes, rows, cols))).reports)
    assert reports["stencil"].counts["mma.f64.m8n8k4"] == planes * 3 * 6 * rows


def test_no_rim_mends_an_explicit_fused_border() -> None:
    with pytest.raises(ScheduleError, match=r"fuse=2.*no rim"):
        tile_level(stencil(BOX, frozen), (8, 9, 70), 2, rows=4, cols=48, warps=2, explicit=True)


# ------------------------------------------------------------------------------------------------ one axis
@pytest.mark.parametrize(("mma", "stages"), [(mma, stages) for stages, mma in zip((1, 2, 3, 1, 2), M, strict=True)])
@pytest.mark.parametrize(("edge", "steps"), [(3, 1), (3, 3), (5, 2), (7, 1), (7, 2)])
def test_runs_of_a_row(mma: str, stages: int, edge: int, steps: int) -> None:
    w = np.random.default_rng(edge).uniform(-0.5, 1.0, (1, edge))
    cols = columns(mma, (edge - 1) * steps + 1, 4)
    right(stencil(w), (1, 1501), steps, stages, mma=mma, rows=1, cols=cols, warps=2, lut=stages > 1)


@pytest.mark.parametrize("sides", [frozen, neumann, dirichlet(1.5)])
@pytest.mark.parametrize("steps", [1, 3])
def test_borders_of_a_row(sides: BoundarySpec, steps: int) -> None:
    cols = columns("f64.m8n8k4", 4 * steps + 1, 2)
    right(stencil(ROW, sides), (1, 700), steps, rows=1, cols=cols, warps=2)


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_of_a_field(rows: int) -> None:
    right(stencil(ROW), (3, 401), 1, rows=rows, cols=96, warps=2)


@pytest.mark.parametrize("explicit", [False, True])
def test_counts_of_a_row(explicit: bool) -> None:
    """ConvStencil, section 4.1: the matrices have k columns; 4 mma for 64 outputs at an edge of 7, not 26."""
    w = np.random.default_rng(7).uniform(0.1, 1.0, (1, 7))
    options = {"rows": 1, "cols": 1024, "explicit": explicit, "dirty": not explicit}
    assert right(stencil(w), (1, 2048), 1, **options).counts["mma.f64.m8n8k4"] == 4 * 2048 // 64


@pytest.mark.parametrize(("k", "stride"), [(3, 4), (5, 12), (7, 12), (9, 12)])
def test_rows_of_the_matrices_of_a_row(k: int, stride: int) -> None:
    """n / (k + 1) rows of k columns each; none of their fragments' loads meets a bank conflict."""
    m = Matrices(k, 1, 1, 128 * (k + 1), "f64.m8n8k4", pad=True, dirty=True)
    assert (m.groups, m.stride, m.window) == (128, stride, (1, 128 * (k + 1) + k - 1))
    lanes = [(0, lane // 4, lane % 4) for lane in range(32)]
    assert all(x.conflict_degree(lanes, 8) == 1 for x in m.operands)
    assert not set(m.padding()) & set(np.concatenate([x.tables()[0][x.mask()] for x in m.windows]))


# ------------------------------------------------------------------------------------------------ text
@pytest.mark.parametrize(("weights", "shape"), [(star(1), (7, 13, 150)), (BOX, (7, 13, 150)), (ROW, (1, 700))])
def test_text_round_trip(weights: Any, shape: tuple[int, ...]) -> None:
    steps, cols = (2, 48) if len(shape) == 3 else (1, 96)
    module = tile_level(stencil(weights), shape, steps, stages=2, rows=4 if len(shape) == 3 else 1, cols=cols, warps=2)
    assert parse_module(print_module(module)).funcs == module.funcs
    assert not any(isinstance(op, o.Stencil) for op in module.funcs)
