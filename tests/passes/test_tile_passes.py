"""Passes on the tile level and around it: rings, barriers, time fusion, rims; and what must hold for every kernel.

``tile_programs/*.sgir`` are as in ``test_programs.py``: the passes, a module, ``# =====``, the module that comes out.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen.pipelines  # noqa: F401  (registers the passes)
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, periodic
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir import op as o
from sparsegen.ir import tile as t
from sparsegen.ir.fuse import inner_box, rim_width, strips
from sparsegen.ir.module import Module
from sparsegen.ir.node import Op, walk
from sparsegen.ir.parse import parse_module
from sparsegen.ir.passes import Manager, parse_pipeline
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.text import print_module
from sparsegen.pipelines import Program
from sparsegen.problems.stencil import StencilProblem
from tests.schedules import device, emulate, faults, kernels, lowered, nodes, random_field, rewritten, stencil
from tests.work import calls

FILES = sorted((Path(__file__).parent / "tile_programs").glob("*.sgir"))
SHAPE = (37, 91)
BOX = np.random.default_rng(3).uniform(0.1, 1.0, (3, 3))
STAR = np.array([[0.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 0.0]])
MIXED: BoundarySpec = {0: (frozen, dirichlet(1.5)), 1: (dirichlet(-1.0), frozen)}
LINES = [
    "direct block=32x4 fuse=2",
    *(f"tiled tile=8x32 warps=2 stages={n}" for n in (1, 2, 3, 4)),
    "tiled tile=8x32 warps=2 stages=2 fuse=3",
    *(f"stencil2row mma=f64.m8n8k4 tile=8x32 warps=2 stages={n}" for n in (1, 2, 3, 4)),
    "stencil2row mma=f64.m16n8k16 tile=8x64 warps=2 stages=3 lut=off dirty=off",
    "stencil2row mma=none tile=8x48 warps=2 stages=2 fuse=2",
    "stencil2row mma=f64.m8n8k4 tile=8x32 warps=2 transform=explicit dirty=off",
    "stream levels=2 warps=2 rows=12 stages=4",
]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_program(path: Path) -> None:
    before, _, after = path.read_text(encoding="utf-8").partition("# =====\n")
    passes = parse_pipeline(before.splitlines()[0].removeprefix("# passes: "))
    got = print_module(Manager(passes, verify_each=True).run(parse_module(before, file=str(path))))
    if os.environ.get("SPARSEGEN_UPDATE"):
        path.write_text(f"{before}# =====\n{got}", encoding="utf-8")
    assert got == after


def made(line: str, boundary: BoundarySpec = MIXED, shape: tuple[int, int] = SHAPE) -> tuple[Stencil, Program]:
    s = stencil(BOX, boundary)
    return s, lowered(s, shape, line, profile=device(blocks=1))


def find(program: Program, kind: type[Any]) -> list[Any]:
    return [op for op in walk(program.tile.funcs) if isinstance(op, kind)]


# ------------------------------------------------------------------------------------------------ pipeline
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("line", ["tiled tile=8x32 warps=2", "stencil2row tile=8x32 warps=2"])
def test_rings(line: str, stages: int) -> None:
    """Computing readers need one slot more than copying ones, which let go of the tile at once."""
    _, program = made(f"{line} stages={stages}")
    (fetch,), (wait,) = find(program, t.Prefetch), find(program, t.Wait)
    slots = {a.buf.name: a.slots for a in find(program, t.Alloc)}
    assert fetch.distance == stages - 1 and wait.pending == stages - 2
    assert slots["raw"] == (stages if "tiled" in line else stages - 1)
    (loop,) = find(program, t.ForTiles)
    order = [op.name.removeprefix("tile.") for op in loop.body]
    if "tiled" in line:
        assert order == ["wait", "meet", "prefetch", "points", "store"]
    else:
        assert order == ["wait", "meet", "copy", "meet", "prefetch", "product", "store"]


@pytest.mark.parametrize("line", ["tiled tile=8x32 warps=2", "stencil2row tile=8x32 warps=2"])
def test_a_ring_with_a_slot_less_is_caught(line: str) -> None:
    """The slots are as few as can be: one less, and a fetch overwrites what is still read."""
    s, program = made(f"{line} stages=3", periodic)
    (alloc,) = (a for a in find(program, t.Alloc) if a.slots > 1)
    (loop,) = find(program, t.ForTiles)
    slots = alloc.slots - 1
    small, turn = dataclasses.replace(alloc.buf, size=alloc.buf.size // alloc.slots * slots), loop.turn % slots

    def rule(op: Op) -> Op:
        changed: dict[str, Any] = {}
        for name in ("buf", "src", "dst"):
            if getattr(op, name, None) == alloc.buf:
                changed[name] = small
        if isinstance(op, t.Alloc) and changed:
            changed["slots"] = slots
        for name in ("slot", "src_slot"):
            if changed and getattr(op, name, None) == loop.turn % alloc.slots:
                changed[name] = turn
        return dataclasses.replace(op, **changed) if changed else op

    module = Manager((ToWarp(), Simplify(), Dce())).run(rewritten(program.tile, rule))
    u = random_field(SHAPE)
    changed = dataclasses.replace(program, warp=module)
    assert not faults(program, s, u, emulate(program, u))
    assert any(faults(changed, s, u, emulate(changed, u, seed=seed)) for seed in (0, 1, 2))


# ------------------------------------------------------------------------------------------------ barriers
@pytest.mark.parametrize("line", LINES)
def test_every_inserted_barrier_is_needed(line: str) -> None:
    s, program = made(line)
    u = random_field(SHAPE)
    count = len(find(program, t.Meet))
    for n in range(count):
        seen = iter(range(count))
        tile = rewritten(program.tile, lambda op: None if isinstance(op, t.Meet) and next(seen) == n else op)  # noqa: B023
        less = dataclasses.replace(program, warp=Manager((ToWarp(), Simplify(), Dce())).run(tile))
        assert any(faults(less, s, u, emulate(less, u, seed=seed)) for seed in (0, 1)), f"barrier {n} of {count}"


# ------------------------------------------------------------------------------------------------ time fusion
SIDES = st.sampled_from([("frozen", 0.0), ("neumann", 0.0), ("dirichlet", 1.0)])


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(*[st.tuples(st.integers(0, 30), st.integers(0, 30))] * 2),
)
def test_strips_and_inside_cover_each_cell_once(shape: tuple[int, int], rims: Any) -> None:
    times = np.zeros(shape, dtype=int)
    inside = inner_box(shape, rims)
    boxes = [*strips(shape, rims), *([inside] if all(a < b for a, b in inside) else [])]
    for (y0, y1), (x0, x1) in boxes:
        assert y0 < y1 and x0 < x1
        times[y0:y1, x0:x1] += 1
    assert (times == 1).all()


@given(st.tuples(st.tuples(SIDES, SIDES), st.tuples(SIDES, SIDES)), st.integers(2, 3))
def test_symmetric_neumann_and_periodic_need_no_rim(sides: Any, steps: int) -> None:
    rims = rim_width(STAR, sides, steps)
    for pair, widths in zip(sides, rims, strict=True):
        for (kind, _), width in zip(pair, widths, strict=True):
            assert width == {"neumann": 0, "frozen": steps, "dirichlet": steps - 1}[kind]
    lopsided = STAR + np.array([[0.0, 0.5, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    none = rim_width(lopsided, ((("neumann", 0.0),) * 2, (("periodic", 0.0),) * 2), steps)
    assert none == ((steps - 1, steps - 1), (0, 0))


@pytest.mark.parametrize("steps", [2, 3])
def test_fused_taps_are_the_weights_convolved(steps: int) -> None:
    fused = Manager(parse_pipeline(f"fuse-time{{steps={steps}}}")).run(StencilProblem(stencil(STAR), SHAPE).describe())
    (op,) = fused.funcs
    assert isinstance(op, o.Stencil) and op.radius == (steps, steps) and op.steps == steps
    got = np.zeros((2 * steps + 1,) * 2)
    for (dy, dx), weight in op.taps:
        got[dy + steps, dx + steps] = weight
    power = np.fft.fft2(np.pad(STAR / 8.0, ((0, 13), (0, 13)))) ** steps
    want = np.fft.ifft2(power).real[: 2 * steps + 1, : 2 * steps + 1]
    assert np.abs(got - want).max() < 1e-15
    assert len(op.taps) == 2 * steps * (steps + 1) + 1, "a star's powers are diamonds: no zero taps"


def test_the_smallest_field_is_rim_but_for_one_cell() -> None:
    s, program = made("tiled tile=8x32 warps=2 fuse=3", frozen, (7, 7))
    inside, rim = Manager(parse_pipeline("fuse-time{steps=3}")).run(program.op).funcs
    assert isinstance(inside, o.Stencil) and inside.box == ((3, 4), (3, 4))
    assert isinstance(rim, o.Rim) and sum((y1 - y0) * (x1 - x0) for (y0, y1), (x0, x1) in rim.boxes) == 48
    u = random_field((7, 7))
    assert not faults(program, s, u, emulate(program, u))


# ------------------------------------------------------------------------------------------------ every kernel
@pytest.mark.parametrize("line", LINES)
def test_simplify_and_dce_keep_results(line: str) -> None:
    """The same bits with and without them, and running them again changes nothing."""
    _, program = made(line)
    plain = Manager((ToWarp(),)).run(program.tile)
    u = random_field(SHAPE)
    bare, clean = emulate(plain, u), emulate(program, u)
    assert not bare.errors and np.array_equal(bare.out, clean.out)
    for p in (Simplify(), Dce()):
        assert p.run(program.warp) == program.warp
    assert sum(1 for _ in walk(program.warp.funcs)) <= sum(1 for _ in walk(plain.funcs))


@pytest.mark.parametrize("line", LINES)
def test_text_round_trip_at_all_levels(line: str) -> None:
    _, program = made(line)
    for module in (program.op, program.tile, program.warp):
        back: Module = parse_module(print_module(module))
        assert back == module and print_module(back) == print_module(module)


BUDGET = [
    "direct block=32x8 fuse=3",
    "tiled tile=32x64 warps=8 stages=3 fuse=3",
    "tiled tile=64x128 warps=8 stages=2 fuse=2",
    "stencil2row mma=f64.m8n8k4 fuse=3 stages=2",
    "stencil2row mma=f64.m16n8k4 fuse=3 stages=2 lut=off dirty=off",
    "stencil2row mma=f64.m16n8k16 fuse=3 stages=4",
    "stencil2row mma=none fuse=3 transform=explicit dirty=off",
]


@pytest.mark.parametrize("k", [3, 7])
@pytest.mark.parametrize("line", BUDGET)
def test_budgets(line: str, k: int) -> None:
    """At most 5000 nodes a warp kernel (ops; expressions stay within reason too), and 0.2 s of calls to lower it."""
    line = line if k == 3 else line.replace("fuse=3", "fuse=1").replace("fuse=2", "fuse=1")
    s = stencil(np.random.default_rng(k).uniform(0.1, 1.0, (k, k)), MIXED)
    programs = []
    assert calls(lambda: programs.append(lowered(s, (10007, 9999), line))) < 1_200_000
    (program,) = programs
    for symbol, func in kernels(program.warp).items():
        ops = sum(1 for _ in walk(func))
        assert ops <= 5000, f"{symbol}: {ops} ops"
        assert sum(1 for _ in nodes(func)) <= 40_000, symbol
