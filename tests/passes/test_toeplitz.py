"""The toeplitz pass: the reference's numbers, no conflicts, and every element of a run read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparsegen.backends.emulator import Report
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir import tile as t
from sparsegen.ir import tile_products as tt
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.kernels.rim import Rim
from sparsegen.ir.kernels.toeplitz import Toeplitz, band, fragments
from sparsegen.ir.module import Module
from sparsegen.ir.node import walk
from sparsegen.ir.parse import parse_layout, parse_module
from sparsegen.ir.passes import Manager
from sparsegen.ir.passes.barriers import Barriers
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.fuse_time import FuseTime
from sparsegen.ir.passes.pipeline import Pipeline
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.text import print_module
from sparsegen.problems.stencil import StencilProblem
from tests.schedules import emulate, error, expected, random_field, stencil

HEAT = np.array([[0.25, 0.5, 0.25]])
LOPSIDED = np.array([[0.3, -0.1, 0.5, 0.0, 0.2]])


def tile_level(s: Stencil, shape: tuple[int, int], steps: int, stages: int = 2, **options: Any) -> Module:
    """The kernels of ``steps`` fused steps; one block does all the tiles, so that rings go round."""
    toeplitz = Toeplitz(blocks=1 if stages > 1 else 0, **options)
    passes = (FuseTime(steps, rim="all"), toeplitz, Rim(1, 256), Pipeline(stages), Barriers())
    return Manager(passes, verify_each=True).run(StencilProblem(s, shape).describe())


def warp_level(module: Module) -> Module:
    return Manager((ToWarp(), Simplify(), Dce()), verify_each=True).run(module)


def right(s: Stencil, shape: tuple[int, int], steps: int, stages: int = 2, **options: Any) -> Report:
    """Runs with every checker on, compares with the reference, and gives the main kernel's report."""
    u = random_field(shape, seed=steps)
    for seed in (0, 1):
        result = emulate(warp_level(tile_level(s, shape, steps, stages, **options)), u, seed=seed)
        assert not result.errors
        assert error(result.out, expected(s, u, steps)) < 1e-13
    return dict(result.reports)[s.name]


@pytest.mark.parametrize("mma", ["f64.m8n8k4", "f64.m16n8k4", "f64.m16n8k8"])
@pytest.mark.parametrize(
    ("steps", "products", "warps", "stages"), [(1, 1, 1, 2), (5, 6, 2, 3), (16, 4, 1, 2), (9, 8, 1, 1)]
)
@pytest.mark.parametrize("cells", [257, 1500])
def test_numbers(mma: str, steps: int, products: int, warps: int, stages: int, cells: int) -> None:
    options = {"mma": mma, "products": products, "warps": warps}
    report = right(stencil(LOPSIDED), (1, cells), steps, stages, **options)
    # the 16 columns that a quarter of a warp copies lie in one run if runs are multiples of 16
    assert report.degree == (2 if products % 2 else 1)


@pytest.mark.parametrize("sides", [frozen, neumann, dirichlet(1.5), {0: periodic, 1: (neumann, dirichlet(-1.0))}])
@pytest.mark.parametrize("steps", [1, 12])
def test_borders_are_the_rims(sides: BoundarySpec, steps: int) -> None:
    right(stencil(HEAT, sides), (1, 700), steps, products=2)


def test_rows_of_a_field_are_rows() -> None:
    right(stencil(LOPSIDED), (3, 401), 4, products=2)


def test_a_row_as_short_as_the_window_reaches() -> None:
    right(stencil(HEAT), (1, 32), 32)


@pytest.mark.parametrize("mma", ["f64.m8n8k4", "f64.m16n8k4", "f64.m16n8k8"])
def test_counts(mma: str) -> None:
    """As many mma as the band has rows; an element of a run is read once, however many windows it lies in."""
    rows, k, products, steps = int(mma[5:].partition("n")[0]), int(mma[-1]), 8, 16
    bands = (2 * steps + 8) // 8
    tiles = 3
    report = right(stencil(HEAT), (1, tiles * rows * 8 * products), steps, mma=mma, products=products)
    assert report.counts[f"mma.{mma}"] == tiles * products * bands * 8 // k
    assert report.counts["ld.shared"] == tiles * (products + bands - 1) * 2 * rows // 8
    assert report.counts["st.global"] == tiles * products * rows // 8  # 16 bytes a lane


def test_the_band_is_the_stencil() -> None:
    """Columns of a window times the band are the outputs; the table holds each weight where a lane wants it."""
    module = Manager((FuseTime(3, rim="all"),)).run(StencilProblem(stencil(LOPSIDED), (1, 100)).describe())
    (op,) = module.funcs
    matrix = band(op, 6, 3)  # type: ignore[arg-type]
    u = random_field((1, 100))
    want = expected(stencil(LOPSIDED), u, 3)
    assert np.allclose(u[0, 20 - 6 : 20 - 6 + 24] @ matrix, want[0, 20:28], rtol=0, atol=1e-15)
    table = fragments(matrix).reshape(-1, 32)
    assert all(table[s, lane] == matrix[4 * s + lane % 4, lane // 4] for s in range(6) for lane in range(32))


def test_text_round_trip() -> None:
    module = tile_level(stencil(HEAT, frozen), (1, 3000), 8)
    assert any(isinstance(op, tt.Slide) for op in walk(module.funcs))
    assert parse_module(print_module(module)).funcs == module.funcs


def test_runs_stand_apart() -> None:
    """Without the padding between runs the loads of a fragment meet in the same banks."""
    module = tile_level(stencil(HEAT), (1, 3000), 8)
    (slide,) = (op for op in walk(module.funcs) if isinstance(op, tt.Slide))
    (copy,) = (op for op in walk(module.funcs) if isinstance(op, t.Copy))
    lanes = [(lane // 4, lane % 4) for lane in range(32)]
    assert slide.layout.conflict_degree(lanes, 8) == 1
    assert copy.maps[0].injective()
    assert max(slide.layout.tables()[0].ravel()) < slide.src.size // 2
    assert parse_layout("layout<[m<16, c<88] -> m * 64 + c>").conflict_degree(lanes, 8) == 4


@pytest.mark.parametrize(
    ("weights", "options"),
    [(np.ones((3, 3)), {}), (HEAT, {"mma": "f64.m16n8k16"}), (HEAT, {"mma": "f16.m16n8k8"})],
    ids=["two axes", "too deep", "other type"],
)
def test_refusals(weights: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError, match="toeplitz with"):
        tile_level(stencil(weights), (64, 64), 1, **options)


def test_fusion_that_loses_precision_is_refused() -> None:
    """Central differences of advection: the signs of 2.8^T cancel down to about 2.06^T."""
    advection = Stencil.from_weights(np.array([[0.9, 1.0, -0.9]]))
    shape = (1, 300)
    with pytest.raises(ScheduleError, match=r"fuse=64: weights of both signs cancel.* off by about [1-9]e-0") as e:
        tile_level(advection, shape, 64)
    assert "fewer steps" in str(e.value)
    u = random_field(shape)
    result = emulate(warp_level(tile_level(advection, shape, 16)), u)
    assert error(result.out, expected(advection, u, 16)) < 1e-12
