"""``stream``: its geometry is the lowering's, its registers are nvcc's, its cost near the measured; auto finds it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import numpy as np
import pytest

from sparsegen.boundary import BoundarySpec, frozen, periodic
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import load_profile
from sparsegen.cost.search import rank
from sparsegen.cost.stencil import blocks_per_sm, cost, filled
from sparsegen.dsl.stencil import Stencil
from sparsegen.families.stream import LANE_COLUMNS, chunk_rows
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal, misfit, split, with_steps
from sparsegen.ir import warp as w
from sparsegen.ir.errors import ScheduleError
from sparsegen.pipelines import Program, lower
from sparsegen.problems.stencil import StencilProblem
from sparsegen.schedule import Schedule, StencilSchedule
from sparsegen.sizes import ITEMSIZE
from tests.cost.measured import STENCILS, STREAMS, Stream
from tests.cost.test_geometry import best_of_families
from tests.nvcc_kit import needs_nvcc, used

H200, SHAPE = load_profile("h200"), (10240, 10240)


def stencil(kind: str, r: int, dtype: str = "f64", boundary: BoundarySpec = periodic) -> Stencil:
    """A star, a box or a row of radius ``r``."""
    weights = np.random.default_rng(r).uniform(0.1, 1.0, (2 * r + 1, 2 * r + 1))
    if kind == "star":
        axes = np.arange(2 * r + 1) == r
        weights *= axes[:, None] | axes
    weights = weights[:1] if kind == "row" else weights
    return Stencil.from_weights(weights, boundary, dtype=dtype)


def footprint(kind: str, r: int, dtype: str = "f64") -> Footprint:
    """What ``stencil`` of the same arguments has."""
    k = 2 * r + 1
    return Footprint(k, {"star": 4 * r + 1, "box": k * k, "row": k}[kind], dtype, axes=1 if kind == "row" else 2)


def kernel(program: Program) -> w.Func:
    func = program.warp.funcs[0]
    assert isinstance(func, w.Func)
    return func


def legal_streams(kind: str, r: int, dtype: str) -> Iterator[tuple[StencilSchedule, int]]:
    """Of every width and fusion the schedules with the most levels that so many blocks an SM allow; and the blocks."""
    fp = footprint(kind, r, dtype)
    for cols in LANE_COLUMNS:
        for fuse in (1, 2, 4, 8) if fp.flat else (1, 2):
            before: tuple[StencilSchedule, int] | None = None
            for levels in range(1, 33):
                s = StencilSchedule("stream", fuse=fuse, levels=levels, cols=cols)
                try:
                    legal(s, fp, H200)
                except ScheduleError:
                    break
                blocks = blocks_per_sm(s, geometry(s, fp), H200, fp)
                if before and before[1] != blocks:
                    yield before
                before = s, blocks
            if before:
                yield before


KINDS = [("star", 1), ("box", 1), ("star", 2), ("box", 2), ("star", 3), ("box", 3), ("row", 1), ("row", 3)]


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_geometry_is_the_lowering(dtype: str) -> None:
    draw, shape = random.Random(dtype), (257, 1300)
    for kind, r in KINDS:
        fp = footprint(kind, r, dtype)
        for s, _ in draw.sample(list(legal_streams(kind, r, dtype)), 2):
            s = s.but(stages=draw.choice([2, 3, 8]), warps=draw.choice([1, 2, 4]))
            size = (1, 20011) if fp.flat else shape
            g = geometry(filled(s, fp, size, H200), fp)
            program = lower(StencilProblem(stencil(kind, r, dtype), size), s, H200, s.steps)
            func = kernel(program)
            assert program.steps == s.steps == s.fuse * s.levels
            assert (func.shared_bytes, func.threads) == (g.smem_bytes, g.threads), str(s)
            assert func.grid == (-(-size[0] // g.rows) * -(-size[1] // g.cols), 1, 1), str(s)
            assert func.min_blocks == blocks_per_sm(s, g, H200, fp), str(s)
            assert g.cols == s.warps * (32 * s.cols - 2 * g.before)
            assert g.halo_rows == g.rows + 2 * s.levels * (0 if fp.flat else g.radius)


@needs_nvcc
def test_legal_streams_do_not_spill() -> None:
    """A sample of those on the edge of what is legal, or of what so many blocks an SM allow; and registers as said."""
    kinds = [(kind, r, dtype) for dtype in ITEMSIZE for kind, r in KINDS]
    found = [(*kind, s, b) for kind in kinds for s, b in legal_streams(*kind)]
    sample = random.Random(3).sample(found, 14)
    sample += [(kind, 1, "f64", s, b) for kind in ("star", "box") for s, b in legal_streams(kind, 1, "f64")
               if (s.cols, s.fuse) == (4, 1)]  # fmt: skip

    def made(kind: str, r: int, dtype: str, s: StencilSchedule) -> w.Func:
        size = (1, 200_001) if kind == "row" else (2000, 2002)
        return kernel(lower(StencilProblem(stencil(kind, r, dtype), size), s, H200, s.steps))

    found_used = used([made(*item[:4]) for item in sample], "sm_90a")
    for (kind, r, dtype, s, blocks), taken in zip(sample, found_used, strict=True):
        assert not taken.spill_stores and not taken.stack, f"{kind} {r} {dtype} {s}"
        fits = 4 * (16384 // (32 * (-(-taken.registers // 8) * 8))) // s.warps
        assert fits >= blocks, f"{kind} {r} {dtype} {s}: {taken.registers} registers, {blocks} blocks"


@pytest.mark.parametrize(
    ("kind", "r", "levels", "measured"),
    [("star", 1, 4, 112), ("star", 1, 6, 156), ("star", 1, 8, 200), ("star", 1, 10, 244), ("box", 1, 6, 140),
     ("box", 1, 8, 168), ("star", 3, 3, 192), ("star", 3, 4, 248), ("box", 3, 1, 110), ("box", 3, 2, 160)],
)  # fmt: skip
def test_registers(kind: str, r: int, levels: int, measured: int) -> None:
    s, fp = Schedule.parse(f"stream levels={levels}"), footprint(kind, r)
    assert s.rules.registers(s, geometry(s, fp), fp) == pytest.approx(measured, rel=0.08)
    legal(s, fp, H200)


@pytest.mark.parametrize(
    ("text", "k", "device", "dtype", "words"),
    [
        ("stream levels=11", 3, "h200", "f64", ["registers", "255", "lower levels"]),
        ("stream fuse=4 levels=1", 5, "h200", "f64", ["radius 8", "fuse=4", "cols=4"]),
        ("stream cols=2 levels=32", 3, "h200", "f64", ["levels=32", "strip of 64 columns"]),
        ("stream cols=6", 3, "h200", "f32", ["cols=6", "multiple of 4", "16 bytes"]),
        ("stream", 3, "v100", "f64", ["cp.async", "sm_70", "choose direct or tiled"]),
        ("stream cols=16 warps=8 levels=1", 3, "h200", "f64", ["bytes of shared memory", "stages, warps or cols"]),
    ],
)
def test_illegal(text: str, k: int, device: str, dtype: str, words: list[str]) -> None:
    with pytest.raises(ScheduleError) as e:
        legal(Schedule.parse(text), Footprint(k, dtype=dtype), load_profile(device))
    for word in words:
        assert word in str(e.value)


def test_what_fits_a_shape() -> None:
    s = Schedule.parse("stream levels=10")
    assert misfit(s, (3, 3), (10, 10)) is None
    assert "10 steps a pass reach 10 cells on axis 1, which has 9" in str(misfit(s, (3, 3), (10, 9)))
    assert misfit(s, (1, 3), (1, 4000)) is None
    assert "7 cells wide on axis 0" in str(misfit(Schedule.parse("tiled fuse=3"), (3, 3), (6, 9)))


def test_steps_of_a_rest() -> None:
    s = Schedule.parse("stream levels=10")
    assert [(p.levels, p.fuse, n) for p, n in split(s, 107, 3)] == [(7, 1, 1), (10, 1, 10)]
    assert split(s, 100, 3) == [(s, 10)] and with_steps(s, 10, 3) is s
    wide = Schedule.parse("stream fuse=8 levels=16 cols=16")
    assert [(p.fuse, p.levels) for p, _ in split(wide, 100, 3)] == [(5, 20)]
    rest = split(wide, 127, 3)  # a prime above 32: in two passes
    assert sum(p.steps * n for p, n in rest) == 127 and len(rest) == 2
    with pytest.raises(ScheduleError, match="cannot do 127 steps at once"):
        with_steps(wide, 127, 3)
    two = Schedule.parse("stencil2row fuse=3 tile=32x128")
    assert with_steps(two, 1, 3).tile == (32, 64) and [p.fuse for p, _ in split(two, 5, 3)] == [2, 3]


def test_chunks_fill_the_gpu() -> None:
    assert chunk_rows(10240, 48, 528, 20) == 931  # 11 chunks of 48 blocks are one wave of 528
    assert chunk_rows(1, 1000, 528, 0) == 1
    for ny, across, slots, reach in ((777, 3, 528, 12), (10240, 100, 528, 20), (40, 1, 528, 20), (5, 7, 1, 8)):
        rows = chunk_rows(ny, across, slots, reach)
        assert 1 <= rows <= ny
        one = -(-across // slots) * (ny + reach)
        assert -(-across * -(-ny // rows) // slots) * (rows + reach) <= one


def at(p: Stream, name: str = "h200") -> Cost:
    fp, s = dataclasses.replace(STENCILS[p.stencil], boundary=p.boundary), Schedule.parse(f"stream levels={p.levels}")
    return cost(fp, p.shape, s, load_profile(name), p.pitch)


def test_near_the_measured() -> None:
    errors = [abs(at(p).time * 1e6 / p.microseconds - 1) for p in STREAMS]
    assert len(errors) >= 15 and np.median(errors) <= 0.04 and max(errors) <= 0.11


def test_surprises() -> None:
    """What the measurements say of levels: the most that registers hold for a star, six to eight for a box."""

    def best(name: str) -> int:
        same = [p for p in STREAMS if (p.stencil, p.shape, p.boundary) == (name, SHAPE, "periodic")]
        return min(same, key=lambda p: at(p).time_per_step).levels

    assert best("heat") == 10 and best("box9") in (6, 7, 8) and best("star13") in (3, 4) and best("box49") == 2


@pytest.mark.parametrize("shape", [(10007, 9999), (300, 1031), (1, 100003)])
def test_formula_is_the_number(shape: tuple[int, int]) -> None:
    flat = shape[0] == 1
    s = Schedule.parse("stream fuse=2 levels=3 cols=8" if flat else "stream levels=6")
    fp = dataclasses.replace(footprint("row" if flat else "star", 1), boundary="frozen")
    c = cost(fp, shape, s, H200)
    assert float(c.formula.xreplace(c.substitution())) == pytest.approx(c.time, rel=1e-12)
    assert c.steps_per_launch == 6 and {"fma", "rim", "issue"} <= set(c.terms) == set(c.reasons())


@pytest.mark.parametrize(("name", "low", "high"), [("heat", 9, 10), ("box9", 6, 8), ("star13", 3, 4)])
def test_auto(name: str, low: int, high: int) -> None:
    best = rank(STENCILS[name], H200, SHAPE, limit=1000).costs[0].schedule
    assert best.family == "stream" and best.fuse == 1 and low <= best.levels <= high


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7])
def test_auto_takes_no_more_steps_than_there_are(steps: int) -> None:
    ranking = rank(STENCILS["heat"], H200, SHAPE, limit=steps)
    assert max(c.steps_per_launch for c in ranking.costs) == steps
    if steps > 3:  # patches may come as near as the model can tell
        stream = best_of_families(ranking)["stream"]
        assert stream.schedule == Schedule.parse(f"stream levels={steps}")
        assert stream.time_per_step <= 1.02 * ranking.costs[0].time_per_step


def test_auto_in_one_row() -> None:
    found = best_of_families(rank(footprint("row", 1), H200, (1, 102_400_000), limit=1000))["stream"]
    assert found.schedule.fuse > 1 and found.steps_per_launch >= 16
    row = StencilProblem(stencil("row", 1, boundary={0: periodic, 1: frozen}), (1, 9000))
    frozen_rim = lower(row, found.schedule, H200, found.steps_per_launch)
    assert len(frozen_rim.warp.launches) == 2
