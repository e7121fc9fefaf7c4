"""Each op that orders is needed, in every family of schedules: the emulator notices when it is deleted or weakened.

The fields are small and one block does all the tiles, so that rings go round and shared tiles are used again: where
a block has about one tile, a commit or a wait of its later turns orders nothing, and nothing could notice.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir import warp as w
from sparsegen.ir.boundary import Side
from sparsegen.ir.module import Module
from sparsegen.ir.node import Op, buffers, walk
from sparsegen.pipelines import Program
from tests.mutation.harness import mutants, turns, weaker
from tests.schedules import (
    Field,
    device,
    emulate,
    faults,
    kernels,
    lowered,
    random_field,
    rewritten,
    schedule,
    stencil,
    with_kernel,
)

SHAPE = (37, 91)
WEIGHTS = np.random.default_rng(3).uniform(0.1, 1.0, (3, 3))
BOUNDARIES: dict[str, BoundarySpec] = {
    "periodic": periodic,
    "mixed": {0: (frozen, dirichlet(1.5)), 1: (dirichlet(-1.0), frozen)},
}
LINES = [
    "direct block=32x4",
    "direct block=32x4 fuse=2",
    *(f"tiled tile=8x32 warps=2 stages={n}" for n in (1, 2, 3, 4)),
    "tiled tile=8x32 warps=2 stages=3 fuse=2",
    "tiled tile=8x32 warps=2 stages=1 fuse=3",
    *(f"stencil2row mma=f64.m8n8k4 tile=8x32 warps=2 stages={n}" for n in (1, 2, 3, 4)),
    *(f"stencil2row mma=f64.m16n8k{k} tile=8x64 warps=2 stages=2 lut=off dirty=off" for k in (4, 8, 16)),
    "stencil2row mma=none tile=8x32 warps=2 stages=2 lut=off",
    "stencil2row mma=f64.m8n8k4 tile=8x48 warps=2 stages=3 fuse=2 dirty=off",
    "stencil2row mma=f64.m8n8k4 tile=8x32 warps=2 transform=explicit dirty=off",
    *(f"stream levels=2 warps=2 rows=12 stages={n}" for n in (2, 4)),
    "stream levels=1 fuse=2 cols=6 warps=1 rows=40 stages=3",
    *(f"patches levels={n} strips=1 rows=12 warps=2 stages={n}" for n in (2, 3, 4)),
    "patches mma=f64.m8n8k4 levels=1 rows=20 warps=1 stages=2",
    *(f"toeplitz mma=f64.m16n8k4 fuse=3 products=4 stages={n}" for n in (2, 3)),
    "toeplitz mma=f64.m16n8k8 fuse=8 products=4 warps=2 stages=2",
    *(f"column levels=2 lines=2 warps=3 planes=17 stages={n}" for n in (2, 3)),
    *(f"layers lines=1 warps=7 planes=17 stages={n}" for n in (2, 3)),
    "march block=32x7 lines=1 planes=17",
    *(f"slab lines=1 cols=192 warps=6 planes=17 stages={n}" for n in (2, 3)),
    *(f"lowrank tile=16x32 warps=2 stages={n}" for n in (1, 2, 3, 4)),
    "lowrank mma=f64.m8n8k4 fuse=3 tile=16x32 warps=2",
]
#: Families that take fields of one row: the weights' first row, on a row of so many cells.
ROWS_ONLY, ROW = ("toeplitz",), (1, 2777)
#: Families that take three axes: a box of weights, on a field with tiles and turns away from every border.
SPACE_ONLY, SPACE = ("column", "layers", "march", "slab"), (17, 7, 131)
#: Rows of whole pieces, which come by bulk copies.
EVEN = (17, 7, 128)
CUBE = np.random.default_rng(4).uniform(0.1, 1.0, (3, 3, 3))
#: What is asked of weights of a low rank.
PRODUCT = np.outer(WEIGHTS[0], WEIGHTS[1])
#: (line, boundary) -> what survives, with the reason beside it.  Empty: nothing that the compiler emits is redundant.
SURVIVORS: dict[tuple[str, str], set[str]] = {}
SEEDS = (0, 1)


def made(line: str, boundary: str) -> tuple[Stencil, Program, Field]:
    weights, shape, sides = WEIGHTS, SHAPE, BOUNDARIES[boundary]
    if line.startswith(ROWS_ONLY):
        weights, shape = WEIGHTS[:1], ROW
    elif line.startswith(SPACE_ONLY):
        weights, shape = CUBE, EVEN if line.startswith("slab") else SPACE
        sides = sides if isinstance(sides, Side) else {**sides, 2: (neumann, frozen)}
    elif line.startswith("lowrank"):
        weights = PRODUCT
    s = stencil(weights, sides)
    return s, lowered(s, shape, line, profile=device(blocks=1)), random_field(shape)


def noticed(s: Stencil, program: Program, module: Module, u: Field, degrees: dict[str, int]) -> bool:
    """Whether a run of the changed module shows an error, a wrong field, or more conflicts than before."""
    changed = dataclasses.replace(program, warp=module)
    for seed in SEEDS:
        result = emulate(changed, u, seed=seed, first=True)
        if (
            result.errors
            or faults(changed, s, u, result)
            or any(r.degree > degrees[symbol] for symbol, r in result.reports)
        ):
            return True
    return False


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("line", LINES)
def test_nothing_that_orders_is_redundant(line: str, boundary: str) -> None:
    s, program, u = made(line, boundary)
    degrees: dict[str, int] = {}
    for seed in SEEDS:
        result = emulate(program, u, seed=seed)
        assert not faults(program, s, u, result)
        degrees = {symbol: r.degree for symbol, r in result.reports}
    tried = [
        (f"{f.symbol} {what}", func)
        for f in kernels(program.warp).values()
        for what, func in [*((str(m), m.func) for m in mutants(f)), *weaker(f)]
    ]
    left = {what for what, func in tried if not noticed(s, program, with_kernel(program.warp, func), u, degrees)}
    print(f"{line}, {boundary}: {len(tried) - len(left)} of {len(tried)} noticed" + "".join(f"\n  {x}" for x in left))
    assert left == SURVIVORS.get((line, boundary), set())


@pytest.mark.parametrize("line", [line for line in LINES if re.search("stages=[2-9]", line)])
def test_rings_go_round(line: str) -> None:
    """Each slot of a ring is used again, so that every commit and wait orders something: more turns than stages."""
    _, program, u = made(line, "periodic")
    funcs = kernels(program.warp)
    reports = emulate(program, u, checks=()).reports
    ahead = [turns(funcs[symbol], r) for symbol, r in reports if {"cp_wait", "mbar_arrive"} & set(r.counts)]
    assert ahead and min(ahead) > schedule(line).stages


@pytest.mark.parametrize("line", LINES)
def test_every_family_orders_what_it_shares(line: str) -> None:
    """How many barriers, waits and commits each schedule has; a new one must be added here, and so be thought about."""
    _, program, _ = made(line, "periodic")
    stages = int(line.partition("stages=")[2][:1] or 1)
    counts = [0, 0, 0]
    for f in kernels(program.warp).values():
        for op in walk(f.body):
            for i, kind in enumerate((w.Barrier, w.CpWait, w.CpCommit)):
                counts[i] += isinstance(op, kind)
    if line.startswith(("direct", "march")) or "explicit" in line:
        assert counts == [0, 0, 0]
    elif line.startswith("slab"):  # when mbarriers are there, and when a slot has been read
        assert counts == [2, 0, 0]
    elif stages == 1:  # a tile of its own: lowrank, and tiled with a wide halo, copy it asynchronously all the same
        together = line.startswith("lowrank") or "fuse=3" in line
        assert counts == ([1, 1, 1] if together else [1, 0, 0])
    else:  # a commit in the loop and one for each stage ahead; a warp that streams needs no block barrier
        assert counts == [{"stencil2row": 2, "stream": 0, "patches": 0}.get(line.split()[0], 1), 1, stages]


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("stencil2row")])
def test_padding_must_be_zeroed(line: str) -> None:
    """Without the zeros a product reads elements that nothing has written."""
    s, program, u = made(line, "periodic")

    def rule(op: Op) -> Op | None:
        zeroes = isinstance(op, w.For) and any(b.name == "pads" for x in op.body for b in buffers(x, writes=False))
        return None if zeroes else op

    changed = dataclasses.replace(program, warp=rewritten(program.warp, rule))
    assert changed.warp != program.warp
    result = emulate(changed, u)
    if "explicit" in line:  # the workspace holds NaN, which only the numbers show
        assert faults(changed, s, u, result)
    else:
        assert result.report.kinds() == {"uninit"}


@pytest.mark.parametrize("k", [3, 5, 7])
@pytest.mark.parametrize("mma", ["f64.m8n8k4", "f64.m16n8k4", "f64.m16n8k8", "f64.m16n8k16"])
def test_padding_keeps_fragment_loads_free_of_conflicts(mma: str, k: int) -> None:
    s = stencil(np.random.default_rng(k).uniform(0.1, 1.0, (k, k)))
    tile = f"8x{(16 if 'm16' in mma else 8) * (k + 1)}"

    def degree(pad: str) -> int:
        program = lowered(s, SHAPE, f"stencil2row mma={mma} tile={tile} warps=2 pad={pad}")
        report = emulate(program, random_field(SHAPE)).report
        return max(c.degree for c in report.conflicts if c.buffer == "ab" and c.op.startswith("warp.ld"))

    assert degree("on") == 1 < degree("off")
