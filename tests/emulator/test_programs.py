"""The programs of tests/programs on the emulator: no errors, the right result, no bank conflicts, in many orders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsegen.backends import emulator
from sparsegen.ir import warp as w
from sparsegen.ir.fragments import SHAPES
from sparsegen.ir.node import walk
from sparsegen.ir.parse import parse_op
from sparsegen.ir.text import print_op
from sparsegen.ir.verify import verify
from tests.programs import fragments, heat2d_stream, ring_reduce
from tests.programs.case import Case
from tests.programs.run import FUNCS, SMALL, on_emulator

ROOT = Path(__file__).resolve().parent.parent.parent
H200_SHARED = 227 * 1024


@pytest.mark.parametrize("name", FUNCS)
def test_verified_and_read_back(name: str) -> None:
    func = FUNCS[name]()
    verify(func, shared_limit=H200_SHARED)
    assert parse_op(print_op(func)) == func


@pytest.mark.parametrize("batch", [None, 1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("name", SMALL)
def test_right_without_errors(name: str, seed: int, batch: int | None) -> None:
    case = SMALL[name](seed)
    case.sizes()
    args = case.fresh()
    report = emulator.run(case.func, args, seed=seed, batch=batch, uninit=case.poison)
    assert report.ok, report
    assert report.degree == 1, report.conflicts
    assert not case.wrong(args)


SEEDS = st.integers(0, 9)


@settings(max_examples=12)
@given(ny=st.integers(1, 40), nx=st.integers(1, 300), warps=st.integers(1, 4), rows=st.integers(1, 20), seed=SEEDS)
def test_heat2d_stream_of_any_size(ny: int, nx: int, warps: int, rows: int, seed: int) -> None:
    case = heat2d_stream.case(heat2d_stream.Heat(ny, nx, warps, rows), seed)
    verify(case.func)
    assert not case.wrong(on_emulator(case, seed=seed))


@settings(max_examples=12)
@given(m=st.integers(1, 40), quads=st.integers(1, 400), warps=st.integers(1, 3), splits=st.integers(1, 5), seed=SEEDS)
def test_ring_reduce_of_any_size(m: int, quads: int, warps: int, splits: int, seed: int) -> None:
    chunks = -(-4 * quads // ring_reduce.CHUNK)
    case = ring_reduce.case(ring_reduce.Product(m, 4 * quads, warps, min(splits, chunks)), seed)
    verify(case.func)
    assert not case.wrong(on_emulator(case, seed=seed, launches=2))


def test_the_counter_is_ready_for_the_next_launch() -> None:
    case = ring_reduce.case(ring_reduce.SIZES["ragged"])
    assert not case.wrong(on_emulator(case, seed=1, launches=3))


def test_the_last_arriver_sums_in_a_fixed_order() -> None:
    """Random reals: the bits would differ if the order of the partial sums did."""
    case = ring_reduce.real_case(ring_reduce.SIZES["ragged"])
    first = on_emulator(case)
    assert not case.wrong(first)
    for seed in range(1, 8):
        assert np.array_equal(on_emulator(case, seed=seed, batch=seed % 3 or None)["y"], first["y"])


def test_counts_follow_from_the_sizes() -> None:
    size = heat2d_stream.SIZES["odd"]
    case = heat2d_stream.case(size)
    counts = emulator.run(case.func, case.fresh()).counts
    warps = size.strips * size.grid[1]
    rows = size.strips * (size.ny + 2 * heat2d_stream.T * size.grid[1])  # that warps go through
    assert counts["shfl"] == 2 * heat2d_stream.T * rows
    assert counts["fma.f64"] == 4 * heat2d_stream.T * heat2d_stream.C * rows
    assert counts["sync"] == rows + size.strips * size.ny
    assert counts["cp_commit"] == rows + (heat2d_stream.STAGES - 1) * warps
    for shape in SHAPES:
        one = fragments.case(shape)
        assert emulator.run(one.func, one.fresh()).counts[f"mma.{shape}"] == 1


def test_warps_of_a_block_meet_only_where_they_must() -> None:
    def barriers(case: Case) -> list[tuple[int, int]]:
        return [(op.id, op.count) for op in walk(case.func.body) if isinstance(op, w.Barrier)]

    assert barriers(heat2d_stream.case(heat2d_stream.SIZES["even"])) == []
    assert barriers(ring_reduce.case(ring_reduce.SIZES["even"])) == [(0, 0), (1, 64), (1, 64)]


@pytest.mark.parametrize("name", ["heat2d_stream.odd", "ring_reduce.ragged"])
def test_the_script_runs_one_program_once(name: str) -> None:
    command = [sys.executable, "-m", "tests.programs.run", name, "--emulator"]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, f"{name}: ok\n"), done.stderr


def test_the_docs_show_the_fragments_as_they_are() -> None:
    command = [sys.executable, str(ROOT / ".ci" / "fragment_tables.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
