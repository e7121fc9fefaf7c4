"""Sampled products on the emulator: exact for all patterns, sizes, dtypes and orders; and what a call gives back."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sparsegen as sg
from sparsegen.formats import Bcrs, SrBcrs
from sparsegen.formats.library import NUMPY
from sparsegen.ir.numbers.gathered import MOST
from sparsegen.ir.numbers.sampled import PHASE, STRIPS, no_vector
from sparsegen.products import sampled_lists
from sparsegen.products.sddmm import SddmmNumbers
from tests.sddmm_kit import Case, agrees, called, case, mask

LINES = [
    "strips rows=32 warps=2 groups=1 prefetch=off", "strips rows=64 warps=4 groups=3 prefetch=on",
    "strips rows=64 warps=1 groups=2 prefetch=off", "strips rows=32 warps=3 groups=5 prefetch=on",
    "gather warps=2 most=2 stages=2", "gather warps=3 most=4 stages=3", "gather warps=1 most=1 stages=4",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("height", (8, 4, 2))
@pytest.mark.parametrize("dtype", ("i8", "i4", "i16"))
def test_exact(dtype: str, height: int, line: str) -> None:
    """Sizes that nothing divides, and such as all divide; a GPU that copies by threads."""
    for m, n, k in ((61, 83, 38), (64, 128, 128), (9, 33, 258)):
        for device in ("h200", "a100"):
            called(case(m, n, k, height, 0.7, dtype), line, device)


@pytest.mark.parametrize("out", ("bcrs", "sr_bcrs"))
@pytest.mark.parametrize("dtype", ("i8", "i4", "i16"))
def test_orders_of_arrays_and_of_the_result(dtype: str, out: str) -> None:
    for orders in ("CC", "CF", "FC", "FF"):
        for k in (48, 128):
            called(case(37, 50, k, 8, 0.6, dtype, orders=orders, out=out), "strips" if k == 48 else "gather")
    if dtype == "i4":
        called(case(37, 50, 64, 4, 0.6, dtype, packed=False, out=out))


def test_deep_products_are_added_up() -> None:
    """More than a task's rows of a that registers hold: several launches."""
    for (dtype, k), family in product((("i8", 2100), ("i16", 1100), ("i4", 3000)), ("strips", "gather")):
        kernel = called(case(16, 40, k, 8, 0.5, dtype), family)
        assert len([f for f in kernel._plan(0).main.warp.funcs if "turn" not in f.symbol]) == 3


def test_extreme_patterns() -> None:
    """Everything, one vector, empty rows and strips, one column, columns that all lie in one bank."""
    full = np.ones((40, 70), bool)
    one, few, bank = np.zeros_like(full), np.zeros_like(full), np.zeros_like(full)
    one[8:16, 69], few[16:24, :3], bank[:, ::8] = True, True, True
    for pattern in (full, one, few, bank, full[:, :1], full[:3]):
        made = case(*pattern.shape, 32)
        for family in ("strips", "gather"):
            called(Case(pattern, sg.sddmm(pattern, k=32), made.a, made.b, made.given), family)


def test_sums_wrap() -> None:
    """Sums of the largest products of 16 bits, modulo 2^32, and of 8 and 4 bits, as they are."""
    for dtype, low in (("i16", -32768), ("i8", -128), ("i4", -8)):
        made = case(16, 32, 64, 8, 0.3, dtype)
        made.a[...] = made.b[...] = low
        held = (sg.pack4(made.a), sg.pack4(np.ascontiguousarray(made.b.T)).T) if dtype == "i4" else (made.a, made.b)
        called(Case(made.mask, made.product, made.a, made.b, dict(zip("ab", held, strict=True))))


def test_all_that_keeps_a_pattern() -> None:
    """A mask, matrices of scipy and of ours: the same vectors, of the most rows that they have."""
    kept = mask(43, 60, 4, 0.6)
    rng = np.random.default_rng(0)
    w = np.where(kept, rng.integers(1, 100, kept.shape), 0).astype(np.int8)
    given: list[Any] = [kept, scipy.sparse.csr_array(w), scipy.sparse.coo_matrix(w), scipy.sparse.csc_array(w)]
    given += [sg.sparse(w, "sr_bcrs", height=4), sg.sparse(w, "bcrs", height=4), sg.sparse(w.astype("f4"), "csr")]
    first = sg.sddmm(kept, k=16).pattern
    assert first.height == 4 and np.array_equal(first.to_dense(), kept)
    for pattern in given:
        made = sg.sddmm(pattern, k=16).pattern
        assert isinstance(made, Bcrs) and made.height == 4 and made.nnz == kept.sum()
        assert all(np.array_equal(made.arrays[name], a) for name, a in first.arrays.items())
    assert sg.sddmm(kept, k=16, height=2).pattern.height == 2
    zeros = scipy.sparse.csr_array((np.zeros(2, np.int8), ([0, 1], [3, 3])), shape=(2, 5))
    assert sg.sddmm(zeros, k=16).pattern.nnz == 2  # explicit zeros are kept


def test_results_can_be_written_again() -> None:
    made = case(40, 60, 64, out="sr_bcrs")
    kernel = sg.compile(made.product, device="h200", backend="emulator")
    first = kernel(**made.given)
    assert isinstance(first, SrBcrs) and first.stride == 32 and first.values.dtype == np.int32
    first.values[...] = 7
    assert kernel(made.given["a"], made.given["b"], out=first) is first
    agrees(first, made)
    own = sg.sddmm(sg.sparse(made.mask.astype(np.int8), "sr_bcrs", stride=16), k=64, out="sr_bcrs")
    assert sg.compile(own, device="h200", backend="emulator")(**made.given).stride == 16


def test_reference_and_random_arrays() -> None:
    for dtype in ("i8", "i4", "i16"):
        product = case(40, 60, 64, dtype=dtype, out="sr_bcrs").product
        kernels = [sg.compile(product, device="h200", backend=backend) for backend in ("reference", "emulator")]
        values = [kernel(**kernels[0].random(3)).values for kernel in kernels]
        assert np.array_equal(*values) and values[0].any()


def test_looking_at_a_kernel(tmp_path: Any) -> None:
    kernel = called(case(40, 60, 50), "strips rows=64")
    assert not kernel.check().errors and "<SddmmKernel 40x50x60 i8 on emulator: strips rows=64" in repr(kernel)
    page = kernel.explain()
    assert "chosen" in page and "8 x 1" in page and page.data["kind"] == "product"
    kernel.export(tmp_path / "c.cu")
    header = (tmp_path / "c.h").read_text()
    assert "const signed char* a" in header and "int* out" in header and "const int* tasks" in header
    assert set(kernel.weights()) == {"tasks", "entries", "starts"}
    assert kernel.bench(repeats=2).bandwidth > 0 and kernel.workspace_nbytes > 0
    assert {c.schedule.family for c in sg.schedules(kernel.product, device="h200")} == {"strips", "gather"}


@pytest.mark.parametrize("height", (8, 4, 2))
@pytest.mark.parametrize("rows", STRIPS)
def test_phases_have_few_of_a_bank(rows: int, height: int) -> None:
    """Of each phase's columns few are alike modulo 8, and every vector is in one entry."""
    m = 64
    w = sg.sddmm(mask(m, 300, height, 0.6), k=16, height=height).pattern
    entries = sampled_lists.entries(w, rows)
    assert entries.dtype == (np.uint16 if height == 8 or rows * 8 // height <= 256 else np.uint32)
    phases = entries.astype(np.int64).reshape(-1, PHASE)
    numbers = SddmmNumbers.of(sg.sddmm(w, k=16))
    assert phases.size == 16 * numbers.tiles[STRIPS.index(rows)]
    tasks = sampled_lists.tasks(w, rows, 1, 1).reshape(-1, 4)
    counts = {begin: end - begin for row, begin, end, _ in tasks if row < m // 8}
    begins = sorted(counts)
    here = np.array([counts[begins[np.searchsorted(begins, at, "right") - 1]] for at in range(0, phases.size, PHASE)])
    none = no_vector(rows, height, here)[:, None] if height == 8 else no_vector(rows, height, 0)
    assert (phases // rows < none).sum() == numbers.vectors
    worst = [np.bincount(np.unique(phase % rows) % PHASE).max() for phase in phases]
    assert np.mean(worst) < 1.45


@pytest.mark.parametrize("height", (8, 4, 2))
def test_gathered_tasks_are_even(height: int) -> None:
    """Each vector once, in whole tiles; tasks of no more than so many tiles, of a group as even as can be."""
    w = sg.sddmm(mask(70, 300, height, 0.5), k=16, height=height).pattern
    places, columns = sampled_lists.places(w, 0), sampled_lists.columns(w)
    real = places < w.arrays["idx"].size
    assert np.array_equal(places[real], np.arange(w.arrays["idx"].size))
    assert np.array_equal(columns[real] % (1 << 28), w.arrays["idx"])
    records = sampled_lists.runs(w, 3, 4).reshape(-1, 4)
    row, begin, end, _ = records[records[:, 0] < 9].T
    assert (end - begin <= 48).all() and (begin % 16 == 0).all()
    assert sorted(np.concatenate([np.arange(b, e) for b, e in zip(begin, end, strict=True)])) == [*np.flatnonzero(real)]
    assert len(row) == SddmmNumbers.of(sg.sddmm(w, k=16)).runs[MOST.index(3)]


def test_tasks_are_shared_out() -> None:
    w = sg.sddmm(mask(200, 130, 8, 0.5), k=16).pattern
    records = sampled_lists.tasks(w, 64, 3, 4).reshape(3, 3, -1, 4, 4)
    real = records[records[..., 0] < 25]
    assert (real[:, 2] - real[:, 1]).sum() == w.arrays["idx"].size
    assert np.array_equal(records[:, :, :-1, :, 3], records[:, :, 1:, :, 0])
    assert w.library is NUMPY
