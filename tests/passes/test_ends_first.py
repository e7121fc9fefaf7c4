"""``ends-first``: the same numbers, the ends done before all else, and counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.distributed.model import ahead
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.node import walk
from sparsegen.ir.passes.ends_first import TOLD, told_by
from sparsegen.ir.tile import ForTiles
from sparsegen.ir.verify import verify
from sparsegen.kernel import Kernel
from sparsegen.pipelines import Program, ends_first
from sparsegen.run.emulator import run_pass


@sg.stencil(dtype="f64", boundary=sg.periodic)
def heat(u: sg.Field) -> sg.Value:
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])


@sg.stencil(dtype="f64", boundary=sg.dirichlet(0.0))
def walled(u: sg.Field) -> sg.Value:
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])


@sg.stencil(dtype="f32", boundary=sg.frozen)
def wave(u: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
    now: Any = u
    around = now[-1, 0] + now[1, 0] + now[0, -1] + now[0, 1]
    return 2 * now[0, 0] - now.prev[0, 0] + c[0, 0] * (around - 4 * now[0, 0])


@sg.stencil(dtype="f64", boundary=sg.dirichlet(0.5))
def heat_3d(u: sg.Field) -> sg.Value:
    near = u[-1, 0, 0] + u[1, 0, 0] + u[0, -1, 0] + u[0, 1, 0] + u[0, 0, -1] + u[0, 0, 1]
    return 0.4 * u[0, 0, 0] + 0.1 * near


@sg.stencil(dtype="f32", boundary=sg.dirichlet(0.0))
def acoustic(u: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
    now: Any = u
    far = (now[-2, 0, 0] + now[2, 0, 0]) + (now[0, -2, 0] + now[0, 2, 0]) + (now[0, 0, -2] + now[0, 0, 2])
    return 2 * now[0, 0, 0] - now.prev[0, 0, 0] + c[0, 0, 0] * (far - 6 * now[0, 0, 0])


#: What is compiled, its shape, its schedule, and the cells that others wait for.
CASES = [
    (heat_3d, (23, 20, 40), "column fuse=1 levels=2 lines=2 planes=6 warps=8 stages=2", 4),
    (heat, (41, 64), "stream fuse=1 levels=2 cols=2 rows=8 warps=2 stages=2 unroll=1", 4),
    (heat, (40, 64), "tiled fuse=1 tile=8x32 warps=4 stages=1", 3),
    (heat, (64, 64), "direct block=32x4 fuse=1", 6),
    (acoustic, (27, 20, 132), "column levels=1 lines=2 planes=9 warps=4 stages=2", 5),
    (wave, (40, 64), "stream levels=2 cols=4 rows=8 warps=2 stages=2 unroll=1", 5),
]


def compiled(what: Any, shape: tuple[int, ...], schedule: str) -> Kernel:
    return sg.compile(what, shape, 2, schedule=schedule, backend="emulator", device="h200")


def program(what: Any, shape: tuple[int, ...], schedule: str) -> Program:
    k = compiled(what, shape, schedule)
    return k._plan(k.schedule.steps).main


def given(of: Program, seed: int = 0) -> dict[str, Any]:
    """Random arrays of a program's inputs, and a counter that begins at 7."""
    r, (op,) = np.random.default_rng(seed), of.op.funcs
    names = [role for role in getattr(op, "roles", ()) if role.startswith("in")] or ["in"]
    fields = {name: r.random(op.shape).astype(op.dtype.numpy()) for name in names}  # type: ignore[attr-defined]
    return {**fields, TOLD: np.full(1, 7, np.uint32)}


@pytest.mark.parametrize(("what", "shape", "schedule", "cells"), CASES)
def test_ends_come_first(what: Any, shape: tuple[int, ...], schedule: str, cells: int) -> None:
    plain = program(what, shape, schedule)
    ordered, count = ends_first(plain, cells, compiled(what, shape, schedule).device)
    arrays = given(plain)
    expected, _ = run_pass(plain, {name: a for name, a in arrays.items() if name != TOLD}, checks=True)
    made, _ = run_pass(ordered, arrays, checks=True)
    assert made.keys() == expected.keys() and all((made[name] == expected[name]).all() for name in made)
    assert arrays[TOLD][0] == 7 + count and told_by(ordered.tile) == count

    (func,) = (f for f in ordered.warp.funcs if isinstance(f, w.Func))
    assert 0 < count < func.grid[0]
    early = replace(ordered, warp=replace(ordered.warp, funcs=(replace(func, grid=(count, 1, 1)),)))
    ends, _ = run_pass(early, given(plain), checks=False)
    for name, a in ends.items():
        for part in (slice(None, cells), slice(-cells, None)):
            assert (a[part] == expected[name][part]).all()
        assert not (a == expected[name]).all()


@pytest.mark.parametrize(("what", "shape", "schedule", "cells"), CASES)
def test_the_model_knows_how_many(what: Any, shape: tuple[int, ...], schedule: str, cells: int) -> None:
    k = compiled(what, shape, schedule)
    _, count = ends_first(program(what, shape, schedule), cells, k.device)
    (loop,) = (op for op in walk(program(what, shape, schedule).tile.funcs) if isinstance(op, ForTiles))
    (low, high), size = loop.boxes[0][0], loop.size[0]
    tiles = -(-(high - low) // size)
    (func,) = (f for f in program(what, shape, schedule).warp.funcs if isinstance(f, w.Func))
    assert ahead(k.cost, cells) == pytest.approx(count / func.grid[0]) and count % (func.grid[0] // tiles) == 0


def test_what_stays_as_it_is() -> None:
    """All tiles lie at the ends; blocks that stay; a rim behind the pass."""
    for what, shape, schedule, cells in (
        (heat_3d, (23, 20, 40), "column fuse=1 levels=2 lines=2 planes=6 warps=8 stages=2", 12),
        (heat, (40, 64), "tiled fuse=1 tile=8x32 warps=4 stages=2", 3),
        (walled, (40, 64), "tiled fuse=2 tile=8x32 warps=4 stages=1", 3),
    ):
        plain = program(what, shape, schedule)
        assert ends_first(plain, cells, compiled(what, shape, schedule).device) == (plain, 0)


def test_a_block_tells_after_its_stores() -> None:
    """All warps meet before one of them counts, behind a fence."""
    ordered, _ = ends_first(program(*CASES[0][:3]), 4, compiled(*CASES[0][:3]).device)
    ops = [op for op in walk(ordered.warp.funcs) if isinstance(op, (w.Barrier, w.Fence))]
    assert isinstance(ops[-1], w.Fence) and ops[-1].scope == "gpu" and isinstance(ops[-2], w.Barrier)


def test_wrong_fields() -> None:
    ordered, _ = ends_first(program(*CASES[0][:3]), 4, compiled(*CASES[0][:3]).device)
    (func,) = ordered.tile.funcs
    for change, says in (({"early": (3, 3)}, "cannot come early"), ({"told": None}, "nobody is told"),
                         ({"stride": 2}, "where each block has one")):  # fmt: skip
        body = tuple(replace(op, **change) if isinstance(op, ForTiles) else op for op in func.body)  # type: ignore[attr-defined,arg-type]
        with pytest.raises(IRError, match=says):
            verify(replace(ordered.tile, funcs=(replace(func, body=body),)))  # type: ignore[call-arg]
