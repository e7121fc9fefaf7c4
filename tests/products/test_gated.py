"""Gated pairs: both products and the product of them in one launch; what is no pair, and who multiplies by none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.ir.errors import IRError
from sparsegen.ir.module import Module
from sparsegen.ir.op_spmm import Spmm
from sparsegen.ir.verify import verify
from sparsegen.problems.product import SpmmProblem
from tests.nvcc_kit import library
from tests.products_kit import EPILOGUES, ORDERS, called, matrix, operands, pair, weights
from tests.refusals import refusal

LINES = ("auto", "bitmap warps=2x2 rows=2 stages=2 splits=2", "bitmap cols=16 warps=1x4 rows=3 stages=3 splits=1")


@pytest.mark.parametrize(*ORDERS)
@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...], x_order: str, y_order: str) -> None:
    words = dict.fromkeys(operands, True)
    product = sg.spmm(pair(45, 150, "bf16"), n=11, activation=activation, **words)
    called(product, x_order, y_order, LINES[1])


@given(
    m=st.integers(1, 60), k=st.integers(1, 150), n=st.integers(1, 40), line=st.sampled_from(LINES), bias=st.booleans()
)
@settings(max_examples=20)
def test_any_size(m: int, k: int, n: int, line: str, bias: bool) -> None:
    line = line if k > 64 else "auto"
    report = called(sg.spmm(pair(m, k), n=n, bias=bias, activation="silu"), schedule=line).check()
    assert report.ok and not report.notes


def test_one_column_on_the_cuda_cores_and_before_hopper() -> None:
    product = sg.spmm(pair(21, 150), n=1, bias=True, scale=True, activation="gelu")
    called(product, schedule="bitmap mma=none warps=2x2 rows=2 stages=2 splits=2")
    called(product, device="a100")


def test_it_is_the_product_of_two_launches() -> None:
    """The very bits, where each sum is made in the same order: f32 factors that are rounded once."""
    w, v = weights(40, 100, 0.6, seed=1), weights(40, 100, 0.6, seed=2)
    x = np.random.default_rng(0).uniform(-1, 1, (100, 8)).astype("f2")
    line, both = "bitmap warps=1x2 rows=1 stages=2 splits=1", sg.gated(sg.sparse(w), sg.sparse(v))
    k = sg.compile(sg.spmm(both, n=8), device="h200", backend="emulator", schedule=line)
    want = (w.astype("f4") @ x.astype("f4")) * (v.astype("f4") @ x.astype("f4"))
    y = k(x)
    assert y.shape == (40, 8) and np.allclose(y.astype("f4"), want, rtol=2e-3, atol=2e-3)


def test_what_a_kernel_says_of_them(tmp_path: Path) -> None:
    product = sg.spmm(pair(40, 200), n=8, bias=True, activation="silu")
    k = sg.compile(product, device="h200", backend="emulator")
    assert str(product).startswith("silu(W @ x + bias) * (V @ x + bias), W 80x200 f16 of a gated pair of 40 rows each")
    assert k.explain() and k.counts() and k.shape == (80, 200, 8) and "gated=true" in k.ir("op")
    alone = sg.compile(sg.spmm(product.w, n=8), device="h200", backend="emulator", schedule=k.schedule)
    assert 2 * k.counts()["st.global"] == alone.counts()["st.global"]  # of both products that are not multiplied
    x = operands(product)["x"]
    assert np.array_equal(k(x, bias=np.ones((2, 40), "f2")), k(x, bias=[np.ones(40, "f2")] * 2))
    if find_tool("nvcc"):
        library(k.export(tmp_path / "pair.cu"), "sm_90a")


def test_fewer_bytes_of_y_cost_less() -> None:
    one = sg.spmm(pair(4096, 512), n=16)
    facts, alone = SpmmProblem(one).facts, SpmmProblem(replace(one, stack=None)).facts
    assert facts.operands == -2 * 4096 * 16 and replace(facts, operands=0) == alone
    assert SpmmProblem(one).identity() != SpmmProblem(replace(one, stack=None)).identity()


def test_the_pair_is_encoded_once() -> None:
    w, v = sg.sparse(weights(16, 64, 0.5)), sg.sparse(weights(16, 64, 0.5, seed=3))
    assert sg.gated(w, v).w is sg.gated(w, v).w and sg.gated(w, w).w is not sg.gated(w, v).w


W, V = matrix(32, 64), matrix(32, 64)
DESCRIBED: list[tuple[Callable[[], object], tuple[str, ...]]] = [
    (lambda: sg.gated(W, matrix(16, 64)), ("matrix 1 of the pair has 16 rows, matrix 0 32", "as many")),  # here
    (lambda: sg.gated(W, matrix(32, 128)), ("matrix 1 of the product has K 128, matrix 0 64",)),  # here
    (lambda: sg.gated(W, matrix(32, 64, dtype="bf16")), ("has dtype bf16, matrix 0 f16", "all in f16")),  # here
    (lambda: sg.gated(W, None), ("matrix 1: spmm needs a sparse matrix",)),  # type: ignore[arg-type]  # here
    (lambda: sg.gated(matrix(32, 64, 0.95, format="csr"), matrix(32, 64, 0.95, format="csr")), ("gated pair in csr", 'format="bitmap"')),  # here  # noqa: E501
    (lambda: sg.spmm([W, sg.gated(W, V)], n=8), ("matrix 1: a gated pair among other matrices", "of its own")),  # type: ignore[list-item]  # here
]  # fmt: skip


@pytest.mark.parametrize(("attempt", "says"), DESCRIBED)
def test_what_is_no_pair(attempt: Callable[[], object], says: tuple[str, ...]) -> None:
    refusal(__file__, sg.ProductError, attempt, *says)


def test_families_without_pairs_are_refused() -> None:
    product = sg.spmm(sg.gated(W, V), n=8)
    says = ("dense multiplies by one matrix, W is a gated pair of 32 rows each", "take bitmap, or leave")
    attempt = lambda: sg.compile(product, device="h200", backend="emulator", schedule="dense")  # noqa: E731  # here
    refusal(__file__, sg.ScheduleError, attempt, *says)
    assert {c.schedule.family for c in sg.schedules(product, device="h200")} == {"bitmap"}


def test_calls_that_do_not_fit() -> None:
    k = sg.compile(sg.spmm(sg.gated(W, V), n=8, bias=True), device="h200", backend="emulator")
    x = np.zeros((64, 8), "f2")
    for bias, says in (
        (np.zeros(32, "f2"), "bias has shape (32,), it must be (2, 32)"),
        ([np.zeros(32, "f2")], "bias is 1 arrays, there are a gated pair of 32 rows each"),
    ):
        refusal(__file__, sg.ArrayError, lambda: k(x, bias=bias), says)  # noqa: B023  # here


def test_the_op_is_refused_where_nothing_reads_it() -> None:
    op = Spmm("spmm", 32, 64, 8, sg.compile(sg.spmm(W, n=8), device="h200", backend="emulator").problem.kind, 100)
    verify(Module("spmm", (replace(op, gated=True),)))
    with pytest.raises(IRError, match=r"csr holds no 2 matrices"):
        verify(Module("spmm", (replace(op, gated=True, format="csr", entries=9),)))
