"""``lowrank``: factors of weights, the kernel against the reference, its counts and its bank conflicts."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.backends.emulator import Report
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir import tile as t
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.fuse import convolve
from sparsegen.ir.kernels.lowrank import COLUMNS, LowRank
from sparsegen.ir.kernels.rim import Rim
from sparsegen.ir.module import Module
from sparsegen.ir.node import walk
from sparsegen.ir.parse import parse_module
from sparsegen.ir.passes import Manager
from sparsegen.ir.passes.barriers import Barriers
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.fuse_time import FuseTime
from sparsegen.ir.passes.pipeline import Pipeline
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.separable import ROUNDING, separate
from sparsegen.ir.text import print_module
from sparsegen.problems.stencil import StencilProblem
from tests.schedules import TOLERANCE, emulate, error, expected, random_field, stencil

MIXED: BoundarySpec = {0: (frozen, dirichlet(1.5)), 1: (neumann, frozen)}
BOUNDARIES: list[BoundarySpec] = [periodic, frozen, neumann, dirichlet(1.5), MIXED]
STAR = np.array([[0.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 0.0]])


def of_rank(rank: int, rows: int, cols: int, seed: int = 0) -> Any:
    """A sum of ``rank`` random products."""
    r = np.random.default_rng(seed)
    return sum(np.outer(r.uniform(0.1, 1.0, rows), r.uniform(-0.4, 1.0, cols)) for _ in range(rank))


def tiles(s: Stencil, shape: tuple[int, int], line: LowRank, fuse: int = 1, stages: int = 1) -> Module:
    passes = (FuseTime(fuse), line, Rim(), Pipeline(stages, asynchronous=True), Barriers())
    return Manager(passes, verify_each=True).run(StencilProblem(s, shape).describe())


def run(s: Stencil, shape: tuple[int, int], line: LowRank, fuse: int = 1, stages: int = 1, seed: int = 0) -> Report:
    """The report of a pass, which must have no fault and give the reference's numbers."""
    module = Manager((ToWarp(), Simplify(), Dce()), verify_each=True).run(tiles(s, shape, line, fuse, stages))
    u = random_field(shape, seed=seed)
    result = emulate(module, u, seed=seed)
    assert not result.errors
    assert error(result.out, expected(s, u, fuse)) < TOLERANCE["f64"]
    return result.report


# ------------------------------------------------------------------------------------------------ factors
@pytest.mark.parametrize(("rank", "k"), [(r, k) for r, k in product((1, 2, 3, 5), (3, 5, 7)) if r <= k])
def test_the_rank_is_found(rank: int, k: int) -> None:
    w = of_rank(rank, k, k)
    terms = separate(w)
    assert terms.rank == rank and terms.residual <= ROUNDING
    off = np.abs(terms.a.T @ terms.b - w).sum() / np.abs(w).sum()
    assert off == pytest.approx(terms.residual, rel=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_fused_steps_of_products_stay_products(steps: int) -> None:
    assert separate(convolve(of_rank(1, 3, 3), steps)).rank == 1
    assert separate(convolve(STAR, steps)).rank == steps + 1  # 1, f, ..., f^steps in both directions


def test_higher_ranks_are_refused_with_the_residual() -> None:
    s = stencil(of_rank(5, 5, 5))
    with pytest.raises(ScheduleError, match=r"rank 5: 2 terms leave a residual of \d\.\de-0\d"):
        tiles(s, (40, 70), LowRank(32, 32, warps=2, terms=2))
    with pytest.raises(ScheduleError, match=r"of 3 fused steps have rank 4"):
        tiles(stencil(STAR), (40, 70), LowRank(32, 32, warps=2, terms=3), fuse=3)


@pytest.mark.parametrize(
    "line",
    [LowRank(24, 64, warps=4), LowRank(32, 32, warps=3), LowRank(32, 36, warps=2), LowRank(16, 24, warps=2)],
)
def test_tiles_that_warps_cannot_share_are_refused(line: LowRank) -> None:
    with pytest.raises(ScheduleError, match="does not make strips of 16 rows and whole blocks"):
        tiles(stencil(of_rank(1, 3, 3)), (40, 70), line)


# ------------------------------------------------------------------------------------------------ kernels
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=["periodic", "frozen", "neumann", "dirichlet", "mixed"])
@pytest.mark.parametrize(("rank", "k"), list(product((1, 2, 3), (3, 5, 7))))
def test_against_the_reference(rank: int, k: int, boundary: BoundarySpec) -> None:
    """Odd sizes, of which no tile is whole at the end; a ring of two stages whose block takes several tiles."""
    s = stencil(of_rank(rank, k, k), boundary)
    run(s, (45, 83), LowRank(32, 32, warps=4, blocks=1), stages=2)


@pytest.mark.parametrize("mma", ["f64.m8n8k4", "f64.m16n8k4", "f64.m16n8k8", "f64.m16n8k16"])
@pytest.mark.parametrize("fuse", [1, 2, 3])
def test_every_shape_and_fusion(mma: str, fuse: int) -> None:
    run(stencil(of_rank(2, 3, 3), MIXED), (45, 83), LowRank(32, 32, mma, warps=4, terms=7, blocks=2), fuse, stages=3)


@given(
    extents=st.tuples(*[st.sampled_from([1, 3, 5, 7, 9, 13])] * 2).filter(lambda e: max(e) > 1),
    shape=st.tuples(st.integers(13, 90), st.integers(13, 90)),
    line=st.sampled_from([LowRank(16, 32, warps=2), LowRank(32, 64, warps=4), LowRank(48, 16, warps=3)]),
    rank=st.integers(1, 2),
    boundary=st.sampled_from(BOUNDARIES),
    stages=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_any_extents(
    extents: tuple[int, int], shape: tuple[int, int], line: LowRank, rank: int, boundary: BoundarySpec, stages: int,
    seed: int,
) -> None:  # fmt: skip
    """Reaches that differ by axis, of one row or column too."""
    resident = dataclasses.replace(line, blocks=2 if stages > 1 or seed % 2 else 0)
    run(stencil(of_rank(rank, *extents, seed), boundary), shape, resident, stages=stages, seed=seed)


@pytest.mark.parametrize("k", [3, 5, 7, 9, 13, 17])
@pytest.mark.parametrize("mma", ["f64.m8n8k4", "f64.m16n8k4"])
def test_operands_are_read_without_conflicts(k: int, mma: str) -> None:
    report = run(stencil(of_rank(1, k, k)), (32, 64), LowRank(32, 64, mma, warps=4))
    loads = [c for c in report.conflicts if "warp.ld @raw" in c.op]
    assert loads and all(c.degree == c.declared == 1 for c in loads)


@pytest.mark.parametrize(("rank", "k"), list(product((1, 2), (3, 5, 7, 9))))
def test_mma_of_a_tile(rank: int, k: int) -> None:
    """A slice of four rows for each column block of the window, and one of four columns for each block of outputs."""
    report = run(stencil(of_rank(rank, k, k)), (64, 64), LowRank(64, 64, warps=4))
    left = -(-(16 + k - 1) // 4) * -(-(64 + k - 1) // 8)
    right = -(-(8 + k - 1) // 4) * 8
    assert report.counts["mma.f64.m16n8k4"] == 4 * rank * (left + right)
    assert report.counts["bytes.shared.read"] == 4 * 256 * left  # once for all terms; nothing else goes through memory


def test_the_order_of_columns() -> None:
    """A lane's two elements of an accumulator row are a slice of K each; four neighbours are four columns mod 4."""
    order = COLUMNS.tables()[0]
    assert sorted(order[0::2]) == [0, 1, 2, 3] and sorted(order[1::2]) == [4, 5, 6, 7]
    assert sorted(order[:4] % 4) == sorted(order[4:] % 4) == [0, 1, 2, 3]


def test_the_text_of_the_tile_level() -> None:
    module = tiles(stencil(of_rank(2, 5, 5), MIXED), (45, 83), LowRank(32, 32, warps=4, blocks=1), stages=2)
    again = parse_module(print_module(module))
    assert (again.funcs, again.launches) == (module.funcs, module.launches)
    (loop,) = (op for op in walk(again.funcs) if isinstance(op, t.ForTiles))
    assert [op.name for op in loop.body] == [
        "tile.wait", "tile.meet", "tile.prefetch", "tile.sandwich", "tile.store",
    ]  # fmt: skip
