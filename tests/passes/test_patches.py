"""The patches pass: the reference's numbers, no conflicts, no block barrier, every cell of a group once a level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparsegen.backends.emulator import Report
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir import tile as t
from sparsegen.ir import tile_products as p
from sparsegen.ir import tile_walk as tw
from sparsegen.ir import warp as w
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.expr import as_expr, evaluate
from sparsegen.ir.kernels.patches import Patches
from sparsegen.ir.kernels.rim import Rim
from sparsegen.ir.module import Module
from sparsegen.ir.node import Op, walk
from sparsegen.ir.numbers.patches import PATCH, Groups, Window
from sparsegen.ir.parse import parse_module
from sparsegen.ir.passes import Manager
from sparsegen.ir.passes.barriers import Barriers
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.fuse_time import FuseTime
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.text import print_module
from sparsegen.problems.stencil import StencilProblem
from tests.schedules import device, emulate, error, expected, faults, kernels, lowered, random_field, stencil

SHAPES = ["f64.m8n8k4", "f64.m16n8k4", "f64.m16n8k8", "f64.m16n8k16"]


def box(radius: int, sides: BoundarySpec = periodic) -> Stencil:
    """Random weights of both signs, none of them zero."""
    edge = 2 * radius + 1
    return stencil(np.random.default_rng(radius).uniform(-0.3, 1.0, (edge, edge)), sides)


def tile_level(s: Stencil, shape: tuple[int, int], fuse: int, levels: int, **options: Any) -> Module:
    passes = (FuseTime(fuse, levels, rim="all"), Patches(**options), Rim(), Barriers())
    return Manager(passes, verify_each=True).run(StencilProblem(s, shape).describe())


def warp_level(module: Module) -> Module:
    return Manager((ToWarp(), Simplify(), Dce()), verify_each=True).run(module)


def right(s: Stencil, shape: tuple[int, int], fuse: int, levels: int, **options: Any) -> Report:
    """Runs with every checker on, compares with the reference, and gives the main kernel's report."""
    u = random_field(shape, seed=levels)
    module, want = warp_level(tile_level(s, shape, fuse, levels, **options)), expected(s, u, fuse * levels)
    for seed in (0, 1):
        result = emulate(module, u, seed=seed)
        assert not result.errors
        assert error(result.out, want) < 1e-13
    return dict(result.reports)[s.name]


@pytest.mark.parametrize("mma", SHAPES)
@pytest.mark.parametrize(
    ("radius", "fuse", "levels"), [(1, 1, 1), (1, 1, 4), (1, 2, 3), (1, 3, 2), (2, 1, 2), (3, 1, 2)]
)
def test_numbers(mma: str, radius: int, fuse: int, levels: int) -> None:
    report = right(box(radius), (61, 203), fuse, levels, mma=mma, rows=24, warps=2, stages=3)
    assert report.degree == 1
    assert report.counts.get("barrier", 0) == 0


@pytest.mark.parametrize("blocks", range(3))
@pytest.mark.parametrize("shape", range(3))
def test_sizes(shape: int, blocks: int) -> None:
    """Every field with every block, and each of both with every number of strips."""
    sizes, strips = [(64, 256), (31, 131), (7, 6)], 1 + (shape + blocks) % 3
    warps, stages, rows = [(1, 2, 62), (3, 4, 16), (4, 6, 2)][blocks]
    right(box(1), sizes[shape], 2, 3, strips=strips, warps=warps, stages=stages, rows=rows)


@pytest.mark.parametrize("sides", [frozen, neumann, dirichlet(1.5), {0: periodic, 1: (neumann, dirichlet(-1.0))},
                                   {0: (frozen, dirichlet(2.0)), 1: periodic}])  # fmt: skip
@pytest.mark.parametrize(("radius", "fuse", "levels"), [(1, 1, 1), (1, 2, 2), (2, 1, 3)])
def test_borders_are_the_rims(sides: BoundarySpec, radius: int, fuse: int, levels: int) -> None:
    right(box(radius, sides), (67, 202), fuse, levels, rows=32, warps=2)


@pytest.mark.parametrize("extents", [(5, 1), (3, 5), (5, 3)])
def test_weights_that_are_not_square(extents: tuple[int, int]) -> None:
    right(stencil(np.random.default_rng(1).random(extents)), (40, 150), 1, 3, rows=20, warps=1)


def test_counts() -> None:
    """An mma for every slice, touched group and level of a turn; an element of a window is read once a level."""
    radius, levels, strips, rows = 2, 3, 2, 40
    n = Groups(radius=(radius, radius), levels=levels, m=16, strips=strips, rows=rows, warps=1, stages=2)
    report = right(box(1), (2 * rows, n.step), 2, levels, strips=strips, warps=1, rows=rows)
    turns = 2 * (rows // 2 + radius * levels + levels - 1)  # of both blocks
    slices, touched = 2 + radius, radius + 1
    assert report.counts["mma.f64.m16n8k16"] == turns * levels * strips * touched * slices // 4
    assert report.counts["ld.shared"] == turns * levels * strips * slices * 2
    assert report.counts["st.global"] == 2 * rows // 2 * strips * 4


@pytest.mark.parametrize("radius", [1, 2, 3])
def test_a_window_has_every_cell_once(radius: int) -> None:
    window = Window(PATCH[1] + 2 * radius)
    cells = [tuple(evaluate(e, {}) for e in window.cell(k)) for k in map(as_expr, range(4 * window.slices))]
    assert sorted(cells) == [(r, c) for r in range(PATCH[0]) for c in range(window.columns)]


@pytest.mark.parametrize("radius", [1, 2, 3])
@pytest.mark.parametrize("mma", ["f64.m8n8k4", "f64.m16n8k16"])
def test_rows_of_a_group_stand_apart(radius: int, mma: str) -> None:
    """Reading and passing on are free of conflicts whatever the width; rows as close as they can be are not."""
    for levels in (1, 2, 3):
        module = tile_level(box(radius), (64, 256), 1, levels, mma=mma, rows=32, warps=1)
        lanes = [(0, lane // 4, lane % 4) for lane in range(32)]
        for op in walk(module.funcs):
            if isinstance(op, p.ReadGroup):
                slices = op.a.extents[2] // 4
                degrees = [op.a.conflict_degree([(s, m, 4 * i + k) for s, m, k in lanes], 8) for i in range(slices)]
                assert max(degrees) == 1
            elif isinstance(op, p.PassGroup):
                halves = [[(s, m, 2 * k + odd) for s, m, k in lanes] for odd in (0, 1)]
                assert [op.c.conflict_degree(half, 8) for half in halves] == [1, 1]
    n = Groups(radius=(radius, radius), levels=1, m=16, strips=2, rows=32, warps=1, stages=2)
    assert (n.width, n.pitch) == {1: (132, 134), 2: (132, 132), 3: (136, 138)}[radius]


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
def test_meets(levels: int) -> None:
    """The warp meets once a turn for what arrives, and before it overwrites a group that is still read."""
    module = warp_level(tile_level(box(1), (64, 256), 1, levels, rows=32, warps=1))
    (func,) = (f for f in module.funcs if isinstance(f, w.Func))
    syncs = [op for op in walk(func.body) if isinstance(op, w.SyncWarp)]
    assert len(syncs) == 1 + levels // 2
    assert not [op for op in walk(func.body) if isinstance(op, w.Barrier)]


def test_text_round_trip() -> None:
    module = tile_level(box(1, frozen), (64, 300), 2, 3)
    kinds: set[type[Op]] = {type(op) for op in walk(module.funcs)}
    assert {tw.Walk, tw.Fetch, p.ReadGroup, p.AddGroup, p.PassGroup, p.StoreGroup, t.Meet} <= kinds
    assert parse_module(print_module(module)).funcs == module.funcs


def test_the_schedules_line() -> None:
    """The same through the schedule: chunks of rows for the field, whole patches."""
    s, u = box(1, {0: periodic, 1: frozen}), random_field((63, 301))
    program = lowered(s, u.shape, "patches fuse=2 levels=2 warps=2", profile=device(blocks=2))
    (fetch,) = (op for op in walk(program.tile.funcs) if isinstance(op, tw.Fetch))
    assert not faults(program, s, u, emulate(program, u))
    assert kernels(program.warp)["stencil"].grid[0] >= 2 and fetch.above == 2 * 2


@pytest.mark.parametrize(
    ("s", "options", "words"),
    [
        (box(1), {"rows": 31}, "rows=31"),
        (stencil(np.ones((3, 3)), dtype="f32"), {}, "f32"),
        (box(3), {"strips": 1, "mma": "f64.m8n8k4", "levels": 7}, "levels=7 of radius 3 leave nothing"),
    ],
)
def test_refusals(s: Stencil, options: dict[str, Any], words: str) -> None:
    levels = options.pop("levels", 1)
    with pytest.raises(ScheduleError, match=words):
        tile_level(s, (64, 64), 1, levels, **options)
