"""The predicted time of sparse products: its formula, the measured dense times, the choice of dense."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench import packed
from sparsegen.bench.notes import uniform
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.bitmap import BitmapOptions, order
from sparsegen.families.spmm.bitmap_block import FAMILY as BLOCK
from sparsegen.families.spmm.dense import DENSE
from sparsegen.products.cost import (
    ADDED,
    FRAGMENT,
    REASONS,
    SCAN,
    SYMBOLS,
    WAVEFRONTS,
    cost,
    dense_cost,
    times,
)
from sparsegen.products.geometry import geometry, illegal, legal, refusal, space
from sparsegen.products.product import BitmapNumbers
from sparsegen.schedule import SpmmSchedule
from tests.cost.measured_products import TIMES, Timed
from tests.products_kit import matrix
from tests.work import calls

H200, ROOT = load_profile("h200"), Path(__file__).parents[2]
LINES = [
    "bitmap mma=f16.m16n8k16 cols=16 warps=2x8 rows=7 stages=2 splits=1",
    "bitmap mma=f16.m16n8k16 cols=8 warps=4x4 rows=2 stages=3 splits=3",
    "bitmap mma=f16.m16n8k16 cols=32 warps=1x4 rows=1 stages=6 splits=2",
    "bitmap mma=none cols=1 warps=4x4 rows=2 stages=3 splits=1",
]


def problem(m: int, k: int, n: int, sparsity: float = 0.6) -> BitmapNumbers:
    """A matrix with a uniform mask, without the matrix."""
    return uniform(m, k, n, sparsity)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("shape", [(28672, 8192), (4096, 4096), (100, 300)])
def test_the_formula_is_the_time(line: str, shape: tuple[int, int]) -> None:
    s = SpmmSchedule.parse(line)
    p = problem(*shape, n=1 if s.mma == "none" else 20)
    for c in (cost(p, s, H200), dense_cost(p, H200)):
        assert float(c.formula.xreplace(c.substitution())) == pytest.approx(c.time, rel=1e-12)
        assert {str(x) for x in c.formula.free_symbols} <= set(SYMBOLS)
        assert c.reasons() == {name: REASONS[name] for name in c.terms}
        assert c.terms[c.binds] == max(t for name, t in c.terms.items() if name not in ADDED)
        assert c.bandwidth * c.time == pytest.approx(
            (2 * p.m * p.k if c.schedule == DENSE else p.nbytes) + 2 * (p.m + p.k) * p.n
        )


def predicted(t: Timed) -> float:
    """Microseconds by the model."""
    return cost(problem(t.m, t.k, t.n, t.sparsity), SpmmSchedule.parse(t.schedule), H200).time * 1e6


def errors(times: list[Timed]) -> list[float]:
    return [abs(predicted(t) / t.microseconds - 1) for t in times]


def test_near_the_measured() -> None:
    every = errors(TIMES)
    assert len(every) >= 120 and np.median(every) <= 0.05 and np.quantile(every, 0.9) <= 0.15


def test_the_model_picks_among_the_measured() -> None:
    """Of what was measured, the model's best is the fastest or near it."""
    problems = defaultdict[tuple[float, ...], list[Timed]](list)
    for t in TIMES:
        problems[t.m, t.k, t.n, t.sparsity].append(t)
    regret = [
        min(same, key=predicted).microseconds / min(t.microseconds for t in same)
        for same in problems.values() if len(same) > 2
    ]  # fmt: skip
    assert len(regret) >= 9 and np.median(regret) == 1 and max(regret) <= 1.2


@pytest.mark.parametrize(
    ("m", "k", "measured"), [(28672, 8192, 126.9), (21504, 7168, 86.8), (8192, 8192, 44.6), (4096, 4096, 18)]
)
def test_the_dense_product_takes_what_cublas_took(m: int, k: int, measured: float) -> None:
    """16 columns, cold L2, on one H200 (the kernel notes)."""
    assert dense_cost(problem(m, k, 16), H200).time * 1e6 == pytest.approx(measured, rel=0.1)


def test_more_zeros_cost_less_and_the_matrix_is_read_once() -> None:
    times = [BitmapOptions(problem(28672, 8192, 16, s), {}, H200).costs[0] for s in (0.5, 0.6, 0.7)]
    assert times[0].time > times[1].time > times[2].time
    for c, s in zip(times, (0.5, 0.6, 0.7), strict=True):
        p = problem(28672, 8192, 16, s)
        assert c.terms["hbm"] == pytest.approx((p.nbytes + 2 * 16 * (p.m + p.k)) / (H200.hbm_read_gbs * 1e9))


def test_dense_wins_with_few_zeros_or_many_columns() -> None:
    for p, dense in (
        (problem(28672, 8192, 16, 0.7), False),
        (problem(28672, 8192, 16, 0.0), True),
        (problem(5120, 13824, 16, 0.0), True),
        (problem(8192, 8192, 512, 0.6), True),
    ):
        best = BitmapOptions(p, {}, H200).costs[0]
        assert (dense_cost(p, H200).time < best.time) == dense


@pytest.mark.parametrize(("m", "k", "n", "zeros"), [(28672, 8192, 64, 0.6), (1000, 2048, 256, 0.9)])
def test_wide_products_are_the_library_s(m: int, k: int, n: int, zeros: float) -> None:
    """Where torch.matmul took 124 and 9.1 us; what a call of it cost besides was its long way: run/fast.py."""
    p = problem(m, k, n, zeros)
    best = BitmapOptions(p, {}, H200).best
    assert best is not None and dense_cost(p, H200).time < 0.85 * best.time


def test_auto_takes_the_faster_of_what_was_measured() -> None:
    """Bitmap's time over the library's, by the model, says which one is less; where it errs, it costs little."""
    found = [
        (tuple(row["shape"]), row["sparsity"], row["median_s"], min(t["memset"] for t in row["cublas"].values()))
        for row in json.loads((ROOT / "docs/bench/bitmap.json").read_text())["rows"] if row.get("cublas")
    ]  # fmt: skip
    timed = list(csv.DictReader(io.StringIO(packed.read(ROOT / "tests/cost/data/products.csv.xz"))))
    for dense in (row for row in timed if row["schedule"] == "dense"):
        same = [float(r["microseconds"]) for r in timed
                if r["schedule"] != "dense" and (r["seed"], r["case"]) == (dense["seed"], dense["case"])]  # fmt: skip
        shape = int(dense["m"]), int(dense["k"]), int(dense["n"])
        found.append((shape, float(dense["sparsity"]), min(same), float(dense["microseconds"])))
    lost = []
    for shape, zeros, ours, library in found:
        p = problem(*shape, zeros)
        best = min(c.time for c in (BitmapOptions(p, {}, H200).best, BLOCK.every(p, H200, {}).best) if c)
        taken = library if dense_cost(p, H200).time < best else ours
        lost.append(taken / min(ours, library))
    assert len(lost) >= 35 and max(lost) <= 1.06


@pytest.mark.parametrize("n", [1, 3, 16, 70])
@pytest.mark.parametrize("shape", [(28672, 8192), (4096, 4096), (17, 65), (1, 1), (1, 9000), (9000, 1)])
def test_every_matrix_has_legal_schedules(shape: tuple[int, int], n: int) -> None:
    p = problem(*shape, n)
    ranking = BitmapOptions(p, {}, H200)
    times = [round(c.time, 9) for c in ranking.costs]  # what differs by less is ordered by the other units' work
    assert times and times == sorted(times)
    for c in ranking.costs[:50]:
        g, s = legal(p, c.schedule, H200), c.schedule
        assert s.complete and g.blocks == g.groups * s.splits * g.tiles
        assert g.strips_warp <= s.rows  # no warp has more strips than its slots have room for
        assert g.groups <= g.strips and s.splits <= g.slabs
        assert g.shared <= H200.smem_block and g.registers * s.threads <= H200.regs_sm
        assert g.chunks * 8 >= 8 * p.widest[s.rows - 1]


@pytest.mark.parametrize("n", [1, 16, 64])
def test_choosing_is_little_work(n: int) -> None:
    """A few array operations for all schedules, and the formula in floats for the handful that are nearly the best."""
    p = problem(28672, 8192, n)
    options = BitmapOptions(p, {}, H200)
    assert len(options.costs) + len(options.rejected) > 27_000
    assert calls(lambda: BitmapOptions(p, {}, H200).best) < 2000


RANDOM = np.random.default_rng(11)
PROBLEMS = [
    (dataclasses.replace(problem(*map(int, 2 ** RANDOM.uniform(0, 15, 2)), n, s), dtype=dtype), device)
    for s, n, dtype, device in zip(
        RANDOM.uniform(0.02, 0.98, 24), [1, 2, 8, 16, 30, 33, 64, 500] * 3, ["f16", "bf16"] * 12,
        ["h200", "rtx4090", "a100", "h100", "rtx3080", "v100"] * 4, strict=True,
    )
]  # fmt: skip
WANTED = ["bitmap", "bitmap warps=2x8", "bitmap cols=16 splits=5", "bitmap mma=none rows=3", "bitmap stages=6 rows=16"]


@pytest.mark.parametrize(("p", "device"), PROBLEMS)
def test_many_schedules_are_judged_as_each_is_alone(p: BitmapNumbers, device: str) -> None:
    d = load_profile(device)
    for wanted in map(SpmmSchedule.parse, WANTED):
        for many in space(p, wanted.given):
            g = geometry(p, many, d)
            refused, seconds = illegal(p, many, d, g), times(p, many, d, g)
            for at in range(0, many.rows.size, 1 + many.rows.size // 100):
                (s,) = many.pick([at])
                assert bool(refusal(p, s, d)) == refused[at]
                assert geometry(p, s, d) == tuple(np.broadcast_to(x, refused.shape)[at] for x in g)
                assert cost(p, s, d).time == pytest.approx(seconds[at], rel=1e-13)


@pytest.mark.parametrize(("p", "device"), PROBLEMS)
def test_the_best_is_the_first_of_the_ranking(p: BitmapNumbers, device: str) -> None:
    for wanted in map(SpmmSchedule.parse, WANTED):
        options = BitmapOptions(p, wanted.given, load_profile(device))
        assert options.best == next(iter(options.costs), None)
        assert [order(c) for c in options.costs] == sorted(order(c) for c in options.costs)


def test_rows_are_spread_over_whole_waves() -> None:
    p = problem(28672, 8192, 16)
    s = SpmmSchedule.parse("bitmap mma=f16.m16n8k16 cols=16 warps=2x8 rows=7 stages=2 splits=1")
    g = geometry(p, s, H200)
    assert (g.strips, g.slabs, g.groups, g.blocks, g.strips_warp) == (1792, 128, 132, 132, 7)
    six = geometry(p, s.but(rows=6), H200)
    assert six.groups == 2 * 132 and six.strips_warp == 4  # 150 at least: a second wave, and then all of it
    split = geometry(p, s.but(splits=2), H200)
    assert split.groups == 132 and split.blocks == 264


def test_a_device_without_asynchronous_copies_has_dense_only() -> None:
    assert BitmapOptions(problem(512, 512, 8), {}, load_profile("a100")).costs
    assert not BitmapOptions(problem(512, 512, 8), {}, load_profile("v100")).costs
    with pytest.raises(sg.ScheduleError, match="copy asynchronously, which needs sm_80"):
        sg.compile(sg.spmm(matrix(64, 64), n=8), device="v100", backend="emulator")
    automatic = sg.spmm(matrix(64, 64, format="auto"), n=8)
    assert sg.compile(automatic, device="v100", backend="emulator").schedule == DENSE
    # found by the search for every matrix: schedules are listed with dense among them
    assert [c.schedule for c in sg.schedules(automatic, device="v100")] == [DENSE]


@pytest.mark.parametrize(
    ("line", "n"), [(f"bitmap {rest}", n) for rest, n in (
        ("cols=8 warps=1x4 rows=1 stages=2 splits=1", 8), ("cols=16 warps=2x2 rows=2 stages=3 splits=2", 16),
        ("cols=8 warps=2x4 rows=3 stages=2 splits=1", 24), ("mma=none warps=1x4 rows=1 stages=2 splits=1", 1),
    )],
)  # fmt: skip
def test_the_decode_is_counted_as_the_emulator_runs_it(line: str, n: int) -> None:
    """Where every warp has all its strips: as many of them as there are in the blocks of whole waves."""
    s = SpmmSchedule.parse(line)
    strips = 132 * s.warps[0] * s.rows
    product = sg.spmm(matrix(16 * strips, 64 * 4, 0.6), n=n)
    k = sg.compile(product, device="h200", backend="emulator", schedule=line)
    g, counts = geometry(BitmapNumbers.of(product), k.schedule, H200), k.counts()
    assert g.strips_warp == s.rows and g.strips == g.groups * s.warps[0] * s.rows
    fragments = 4 * g.strips * g.slabs * g.tiles
    assert counts["popc"] == 2 * fragments
    if k.schedule.mma == "none":
        assert counts["fma.f32"] == 8 * fragments and not any(name.startswith("mma") for name in counts)
    else:
        assert counts["mma.f16.m16n8k16"] == k.schedule.cols // 8 * fragments
    packs = 0 if s.mma == "none" else s.cols * g.groups * g.tiles * s.warps[0] * g.slabs  # of x, each turn
    assert (counts["prmt"], counts["funnel"], counts["dp4a"]) == (8 * fragments + packs, 4 * fragments, fragments)
    sums = g.blocks * s.warps[0] * s.warps[1] * g.sums  # wavefronts of the slab warps' sums, in and out
    assert counts["wavefronts.shared"] - 2 * sums == pytest.approx(WAVEFRONTS / 4 * fragments, rel=0.05)
    decoding = {
        "add.u32", "and.u32", "dp4a", "funnel", "ld.shared", "mul.u32", "popc", "prmt", "select.u32", "shfl", "shl.u32",
        "shr.u32", "sub.u32",
    }  # fmt: skip
    halves = 8 * fragments if s.mma == "none" else 0  # of values that nvcc takes as they are
    found = sum(counts.get(name, 0) for name in decoding) - sums - packs - halves
    assert found == pytest.approx((FRAGMENT + SCAN / 4) * fragments, rel=0.3)
