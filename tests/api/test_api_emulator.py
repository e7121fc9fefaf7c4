"""The emulator as a back end: how long it expects to take, what it says then, and that it shows progress."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench.graphs import power_law
from sparsegen.plan import launches
from sparsegen.run import emulator, slow
from sparsegen.run.emulator import estimate
from sparsegen.run.estimate import lane_ops
from sparsegen.run.slow import SlowRunWarning

heat = sg.Stencil.from_weights(np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8.0, name="heat")


def kernel(line: str, shape: tuple[int, int] = (1024, 1024), steps: int = 6) -> sg.Kernel:
    return sg.compile(heat, shape, steps=steps, device="h200", backend="emulator", schedule=line)


@pytest.mark.parametrize("line", ["direct", "tiled stages=2 fuse=3", "stencil2row stages=2"])
def test_the_estimate_is_near_the_truth(line: str) -> None:
    k = kernel(line)
    u = np.zeros((1024, 1024))
    k(u, steps=3)  # warm
    start = time.process_time()  # of this process alone
    k(u)
    took = time.process_time() - start
    assert took / 20 < estimate(k._plan(6), {}, u.size) < 20 * took  # machines differ


def test_the_estimate_grows_with_the_work() -> None:
    small, large = kernel("tiled"), kernel("tiled", shape=(4096, 4096), steps=60)
    ratio = estimate(large._plan(60), {}, 1 << 24) / estimate(small._plan(6), {}, 1 << 20)
    assert 100 < ratio < 250  # 16 times the cells, 10 times the steps
    assert estimate(kernel("direct", shape=(64, 64))._plan(1), {}, 64 * 64) == 0.0
    assert estimate(kernel("direct", shape=(10240, 10240), steps=100)._plan(100), {}, 10240**2) > 600


def test_a_long_run_says_so_first_and_shows_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the limits turned down; the message names the estimate and what would be faster, at the user's line."""
    monkeypatch.setattr(slow, "LONG", 0.01)
    monkeypatch.setattr(emulator, "PROGRESS_EVERY", 0.0)
    k = kernel("direct", shape=(512, 512), steps=4)
    with pytest.warns(SlowRunWarning, match=r"4 passes over 512x512 cells; faster: a smaller shape") as caught:
        k(np.zeros((512, 512)))
    assert caught[0].filename == __file__ and "backend='reference'" in str(caught[0].message)
    lines = capsys.readouterr().err.splitlines()
    shares = [int(line.split("emulator ")[1].split("%")[0]) for line in lines]
    assert len(lines) >= 3 and shares == sorted(shares) and 0 < shares[0] <= shares[-1] <= 100


def test_a_short_run_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel("direct", shape=(64, 64))(np.zeros((64, 64)))
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------------------------------------------------ products
MASK = np.random.default_rng(0).random((512, 512)) < 0.01
MASK[7], MASK[100:104] = True, np.random.default_rng(1).random((4, 512)) < 0.5
READ = [("bitmap", "bitmap"), ("csr", "csr"), ("csr", "csr_strip"), ("hybrid", "hybrid"), ("sr_bcrs", "vector_gather")]
READ += [("sr_bcrs", "vector_strip"), ("bcrs", "vector_strip"), ("nm", "nm_strips"), ("", "gather"), ("", "strips")]
READ += [("", "fused"), ("", "unfused"), ("blocked_ell", "blocked_ell")]


def uneven(format: str, line: str) -> sg.Kernel:
    """A kernel of a matrix one row of which is full and most of which have five entries."""
    if line in ("fused", "unfused"):
        return sg.compile(sg.attention(MASK.repeat(2, 0)[:512], 1, 32), backend="emulator", schedule=line)
    if not format:
        return sg.compile(sg.sddmm(sg.pattern.vectors(MASK, height=8), 64), backend="emulator", schedule=line)
    w = MASK.astype(np.float16)
    W = sg.sparse(sg.prune(w, n=2, m=4) if format == "nm" else w, format)
    return sg.compile(sg.spmm(W, 64), backend="emulator", schedule=line)


def expected(k: sg.Kernel) -> float:
    return estimate(k._plan(1), k._calls.fixed_host(k.schedule), 1 << 30)


@pytest.mark.parametrize(("format", "line"), READ)
def test_the_estimate_of_loops_over_tables_is_near_the_truth(format: str, line: str) -> None:
    k = uneven(format, line)
    given = k.random()
    k(**given)  # warm
    start = time.process_time()
    k(**given)
    took = time.process_time() - start
    assert took / 30 < expected(k) < 15 * took  # machines differ


def test_one_long_row_does_not_stand_for_all() -> None:
    """Nor does it where a table is looked up in registers (hybrid), nor may the bounds of loops alone decide."""
    for format, line in READ[1:4]:
        k = uneven(format, line)
        (bound,) = launches(k._plan(1).main.warp)
        tables = k._calls.fixed_host(k.schedule)
        known = lane_ops(bound, tables)
        assert known < lane_ops(bound, {}) / 10
        full = {name: np.ascontiguousarray(a) for name, a in tables.items()}
        assert lane_ops(bound, full) == known  # the same lanes are drawn each time
    flat, rows = np.zeros((512, 512), np.float16), np.arange(512)
    for entry in range(13):
        flat[rows, (rows * 7 + entry * 37) % 512] = 1
    even = sg.compile(
        sg.spmm(sg.sparse(flat, "csr"), 64), backend="emulator", schedule=str(uneven("csr", "csr").schedule)
    )
    assert 1 / 3 < expected(uneven("csr", "csr")) / expected(even) < 3  # as many entries, otherwise spread


def test_a_graph_needs_no_warning() -> None:
    """Of as many nodes as cora, and with as long a row: a second, not weeks."""
    graph = power_law(2708)
    entries = np.ones(len(graph.idx), np.float32)
    scipy = pytest.importorskip("scipy.sparse")
    W = sg.sparse(scipy.csr_array((entries, graph.idx, graph.ptr), shape=(2708, 2708)), "csr")
    k = sg.compile(sg.spmm(W, 512), backend="emulator")
    assert 0.01 < estimate(k._plan(1), k._calls.fixed_host(k.schedule), 2708 * 512) < 30
