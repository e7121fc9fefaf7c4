"""Experts: several matrices, or pairs, with columns of their own in one launch; counts and offsets that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.cost.devices import load_profile
from sparsegen.ir.errors import IRError
from sparsegen.ir.module import Module
from sparsegen.ir.numbers.experts import most_tiles
from sparsegen.ir.op_spmm import Spmm
from sparsegen.ir.types import f16
from sparsegen.ir.verify import verify
from sparsegen.plan import buffers
from sparsegen.problems.product import SpmmProblem
from sparsegen.products.product import BitmapNumbers
from sparsegen.run.emulator import CALL_CHECKS, run_module
from tests.nvcc_kit import library
from tests.products_kit import DTYPES, ROUNDING, Array, matrix, pair, wanted, weights
from tests.refusals import refusal

LINES = (
    "auto", "bitmap cols=8 warps=2x2 rows=2 stages=2 splits=1", "bitmap cols=16 warps=1x4 rows=3 stages=3 splits=2",
    "bitmap cols=32 warps=2x1 rows=1 stages=2 splits=1",
)  # fmt: skip


def experts(many: int, m: int, k: int, dtype: str = "f16", gated: bool = False) -> list[Any]:
    """Random experts."""
    encoded = [sg.sparse(weights(m, k, 0.6, dtype, seed)) for seed in range(many * (1 + gated))]
    return [sg.gated(*encoded[2 * e : 2 * e + 2]) for e in range(many)] if gated else encoded


def operands(product: sg.Product, order: str = "row") -> dict[str, Array]:
    """Random arrays of a call in an order, ``out`` NaN, without what says which columns are whose."""
    rng, n, dtype = np.random.default_rng(0), product.n, DTYPES[product.w.dtype]

    def made(rows: int) -> Array:
        a = rng.uniform(-1, 1, (rows, n)).astype(dtype)
        return a if order == "row" else np.asfortranarray(a)

    every = {"x": made(product.w.shape[1]), "out": made(product.rows), "residual": made(product.rows)}
    every["out"][...] = np.nan
    every |= {name: rng.uniform(-1, 1, product.vector).astype(dtype) for name in ("bias", "scale")}
    return {name: a for name, a in every.items() if name in ("x", "out", *product.epilogue.operands)}


def agrees(product: sg.Product, given: dict[str, Array], out: Array, offsets: Sequence[int], one: Any) -> None:
    """AssertionError unless each expert has multiplied its columns, and no others were written."""
    for e, w in enumerate(one):
        first, last = offsets[e : e + 2]
        alone = replace(sg.spmm(w, n=max(1, last - first)), epilogue=product.epilogue)
        own = {name: a[e] if name in ("bias", "scale") else a[:, first:last] for name, a in given.items()}
        if last > first:
            exact, slack = wanted(alone, own)
            off = np.abs(out[:, first:last].astype(float) - exact)
            assert (off <= slack + ROUNDING[product.w.dtype] * 1e-3).all(), f"expert {e}: {off.max()}"
    assert np.isnan(out[:, offsets[len(one)] :].astype(float)).all()


def called(product: sg.Product, one: Any, counts: Sequence[int], order: str, line: str, device: str = "h200") -> Any:
    """The kernel; AssertionError unless calls with counts and with offsets are right, and write the same."""
    kernel = sg.compile(product, device=device, backend="emulator", schedule=line)
    given = operands(product, order)
    offsets = np.cumsum([0, *counts]).astype("i4")
    if sum(counts) == product.n:
        assert kernel(**given, counts=counts) is given["out"]
    else:
        kernel(**given, offsets=offsets)
    agrees(product, given, given["out"], offsets.tolist(), one)
    again = np.full_like(given["out"], np.nan)
    kernel(**{**given, "out": again}, offsets=offsets)
    assert np.array_equal(again, given["out"], equal_nan=True)
    return kernel


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("gated", [False, True])
def test_each_multiplies_its_columns(gated: bool, order: str, line: str) -> None:
    """Rows that fill no strip, experts without columns and with several tiles; columns that are nobody's."""
    one = experts(4, 21, 150, "bf16", gated)
    for n, counts in ((40, [3, 0, 36, 1]), (40, [0, 0, 0, 33]), (8, [8, 0, 0, 0])):
        product = sg.spmm(one, n=n, ragged=True, bias=True, scale=True, residual=True, activation="silu")
        called(product, one, counts, order, line)


@given(
    m=st.integers(1, 40), k=st.integers(1, 140), counts=st.lists(st.integers(0, 20), min_size=1, max_size=6),
    rest=st.integers(0, 3), line=st.sampled_from(LINES[:2]), order=st.sampled_from(["row", "column"]),
)  # fmt: skip
@settings(max_examples=20)
def test_any_counts(m: int, k: int, counts: list[int], rest: int, line: str, order: str) -> None:
    one = experts(len(counts), m, k)
    product = sg.spmm(one, n=max(1, sum(counts) + rest), ragged=True)
    assert called(product, one, counts, order, line).check().ok


def test_more_experts_than_a_warp_has_lanes_and_before_hopper() -> None:
    one = experts(67, 16, 40)
    product = sg.spmm(one, n=90, ragged=True)
    counts = [2 if e % 3 == 2 else e % 2 for e in range(66)] + [0]
    counts[-1] = 90 - sum(counts)
    for device in ("h200", "a100"):
        called(product, one, counts, "column", "bitmap cols=8 warps=1x2 rows=1 stages=2 splits=1", device)


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=9), cols=st.sampled_from([8, 16, 64]))
def test_no_cut_of_the_columns_has_more_tiles(counts: list[int], cols: int) -> None:
    assert sum(-(-c // cols) for c in counts) <= most_tiles(sum(counts), len(counts), cols)


def test_offsets_beyond_x_end_where_it_does() -> None:
    """On a GPU nobody reads them but the kernel."""
    one = experts(3, 16, 64)
    k = sg.compile(sg.spmm(one, n=8, ragged=True), device="h200", backend="emulator", schedule=LINES[1])
    module, made = k._plan(1).main.warp, []
    for offsets in ([0, 4, 4, 8], [-5, 4, 4, 900]):
        fields = {
            role: np.full(p.size, np.nan, p.dtype.numpy()) for role, p in buffers(module) if role in ("in", "out")
        }
        fields["in"][...] = 1
        given = {**fields, "offsets": np.array(offsets, "i4"), **k.weights()}
        assert all(report.ok for _, report in run_module(module, given, CALL_CHECKS))
        made.append(given["out"])
    assert np.array_equal(*made) and not np.isnan(made[0]).any()


def test_what_a_kernel_says_of_them(tmp_path: Path) -> None:
    one = experts(4, 32, 128)
    product = sg.spmm(one, n=16, ragged=True, bias=True)
    k = sg.compile(product, device="h200", backend="emulator")
    assert "W 128x128 f16 of 4 experts, each a matrix of 32 rows" in str(product) and k.shape == (32, 128, 16)
    assert "4 experts, were they spread evenly" in k.explain() and "experts=4" in k.ir("op")
    counts = k.counts()
    assert counts["mma.f16.m16n8k16"] == 4 * 2 * 2 * 4 and not counts.sampled  # experts, strips, slabs, fragments
    assert k(**k.random()).shape == (32, 16) and k.bench(repeats=1) and k.check().ok
    x = np.ones((128, 16), "f2")
    y = k(x, counts=[16, 0, 0, 0], bias=[np.ones(32, "f2")] * 4)
    assert np.allclose(y, one[0].to_dense().astype("f4") @ x.astype("f4") + 1, rtol=2e-3, atol=2e-3)
    if find_tool("nvcc"):
        path = k.export(tmp_path / "experts.cu")
        assert "offsets, 5" in path.read_text() + (tmp_path / "experts.h").read_text()
        library(path, "sm_90a")


def test_costs_are_of_the_mean_expert() -> None:
    device = load_profile("h200")
    few, many = (SpmmProblem(sg.spmm(experts(8, 64, 256), n=n, ragged=True)).facts for n in (2, 64))
    assert (few.busy, many.busy, many.tiles(8), many.tiles(16), few.tiles(8)) == (2, 8, 8, 8, 2)
    assert few.experts == 8 and few.m == 64
    best = [sg.schedules(sg.spmm(experts(8, 64, 256), n=n, ragged=True), device=device)[0] for n in (2, 64)]
    assert best[0].terms["hbm"] < best[1].terms["hbm"] and {c.schedule.cols for c in best} == {8}
    alone = BitmapNumbers.of(sg.spmm(matrix(64, 256), n=8))
    assert (alone.busy, alone.tiles(8)) == (1, 1)


W, V = matrix(32, 64), matrix(32, 64)
DESCRIBED: list[tuple[Callable[[], object], tuple[str, ...]]] = [
    (lambda: sg.spmm([], n=8, ragged=True), ("ragged=True without several matrices", "name the experts")),  # here
    (lambda: sg.spmm(W, n=8, ragged=True), ("ragged=True without several matrices",)),  # here
    (lambda: sg.spmm([W, V], n=8, ragged=1), ("ragged is 1, it must be True or False",)),  # type: ignore[arg-type]  # here
    (lambda: sg.spmm([W, matrix(16, 64)], n=8, ragged=True), ("expert 1 has 16 rows, expert 0 32",)),  # here
    (lambda: sg.spmm([W, matrix(32, 96)], n=8, ragged=True), ("has K 96, matrix 0 64",)),  # here
    (lambda: sg.spmm([W, matrix(32, 64, dtype="bf16")], n=8, ragged=True), ("dtype bf16, matrix 0 f16",)),  # here
    (lambda: sg.spmm([W, pair(32, 64)], n=8, ragged=True), ("matrix 1: a gated pair among other matrices",)),  # here
    (lambda: sg.spmm([matrix(32, 64, 0.95, format="csr")] * 2, n=8, ragged=True), ("experts in csr", "bitmap")),  # here
]


@pytest.mark.parametrize(("attempt", "says"), DESCRIBED)
def test_what_are_no_experts(attempt: Callable[[], object], says: tuple[str, ...]) -> None:
    refusal(__file__, sg.ProductError, attempt, *says)


X = np.zeros((64, 8), "f2")
CALLS: list[tuple[Callable[[Any], object], tuple[str, ...]]] = [
    (lambda k: k(X), ("it is not said which of the 8 columns are whose, of 2 experts", "counts=[...]")),  # here
    (lambda k: k(X, counts=[3, 4]), ("counts sum to 7, x has 8 columns", "n=7")),  # here
    (lambda k: k(X, counts=[8]), ("counts are 1, there are 2 experts",)),  # here
    (lambda k: k(X, counts=[9, -1]), ("counts[1]=-1",)),  # here
    (lambda k: k(X, counts=8), ("counts",)),  # here
    (lambda k: k(X, counts=[4, 4], offsets=np.array([0, 4, 8], "i4")), ("counts and offsets are given",)),  # here
    (lambda k: k(X, offsets=np.array([0, 4, 8])), ("offsets has dtype int64", "int32")),  # here
    (lambda k: k(X, offsets=np.array([0, 8], "i4")), ("offsets has shape (2,), it must be (3,)",)),  # here
    (lambda k: k(X, offsets=np.array([0, 5, 4], "i4")), ("offsets[2] is 4: they rise",)),  # here
    (lambda k: k(X, offsets=np.array([0, 5, 9], "i4")), ("offsets[2] is 9: they rise",)),  # here
    (lambda k: k(np.zeros((64, 9), "f2"), counts=[4, 5]), ("x has shape (64, 9), it must be (64, 8)",)),  # here
]


@pytest.mark.parametrize(("attempt", "says"), CALLS)
def test_calls_that_do_not_fit(attempt: Callable[[Any], object], says: tuple[str, ...]) -> None:
    k = sg.compile(sg.spmm([W, V], n=8, ragged=True), device="h200", backend="emulator")
    refusal(__file__, sg.ArrayError, lambda: attempt(k), *says)


def test_a_schedule_of_one_matrix_is_refused() -> None:
    product, says = sg.spmm([W, V], n=8, ragged=True), "dense multiplies by one matrix, W is 2 experts, each a matrix"
    attempt = lambda: sg.compile(product, device="h200", backend="emulator", schedule="dense")  # noqa: E731  # here
    refusal(__file__, sg.ScheduleError, attempt, says)
    one = sg.spmm([W, V], n=1, ragged=True)
    with pytest.raises(sg.ScheduleError, match="not n=1 of experts"):
        sg.compile(one, device="h200", backend="emulator", schedule="bitmap mma=none")


def test_large_experts_are_not_counted() -> None:
    one = [sg.sparse(np.zeros((4096, 2048), "f2"))] * 3
    k = sg.compile(sg.spmm(one, n=8, ragged=True), device="h200", backend="emulator")
    with pytest.raises(sg.ProductError, match="their blocks are counted one by one"):
        k.counts()


def test_the_op_is_refused_where_nothing_reads_it() -> None:
    op = Spmm("spmm", 32, 64, 8, f16, 100)
    verify(Module("spmm", (replace(op, experts=3, gated=True),)))
    assert replace(op, experts=3, gated=True).strips == 12 and replace(op, experts=3).strips == 6
    for wrong, words in (({"experts": -1}, "-1 experts"), ({"experts": 2, "format": "csr"}, "csr holds no 2 matrices")):
        with pytest.raises(IRError, match=words):
            verify(Module("spmm", (replace(op, **wrong),)))  # type: ignore[arg-type]
