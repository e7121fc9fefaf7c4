"""Batches of x for one sparse matrix: [batch, K, n], in one launch, as they lie; what is no such batch is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.backends.reference import spmm as reference
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ArrayError, IRError, ProductError
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.ir.verify import verify
from tests.csr_kit import NUMPY, ragged
from tests.products_kit import EPILOGUES, ROUNDING

#: How the matrices of a batch lie: the axes of a packed array, and where they go in [batch, rows, n].
LIES = {"panels": (0, 1, 2), "rows": (1, 0, 2), "columns": (0, 2, 1)}
LINES = (
    "csr team=4x2 columns=4 unroll=2 cut=9 warps=2", "csr_strip wide=64 lists=2 warps=2 groups=2 unroll=2",
    "hybrid high=1 cols=32 warps=1x2 stages=2 unroll=2",
)  # fmt: skip


def matrix(dtype: str, format: str = "csr", m: int = 61, k: int = 53) -> SparseMatrix:
    """Rows of all lengths, with a corner that is dense."""
    dense = ragged(m, k, 6, full=2).toarray()
    dense[: m // 2, : k // 2] = np.random.default_rng(1).uniform(-1, 1, (m // 2, k // 2))
    return sg.sparse(dense.astype(NUMPY[dtype]), format=format, **({"tile": 16} if format == "hybrid" else {}))


def lying(a: Any, how: str) -> Any:
    """The same batch, whose matrices lie so."""
    return np.ascontiguousarray(a.transpose(LIES[how])).transpose(np.argsort(LIES[how]))


def called(product: sg.Product, x_lies: str, y_lies: str, line: str, device: str = "h200") -> Any:
    """The kernel; AssertionError unless all products of a call are right."""
    kernel = sg.compile(product, device=device, backend="emulator", schedule=line)
    (m, k), dtype, rng = product.w.shape, NUMPY[product.w.dtype], np.random.default_rng(2)
    x, out, residual = (
        lying(rng.uniform(-1, 1, product.stacked(rows)).astype(dtype), how)
        for rows, how in ((k, x_lies), (m, y_lies), (m, y_lies))
    )
    every = {"residual": residual, **{name: rng.uniform(-1, 1, m).astype(dtype) for name in ("bias", "scale")}}
    operands = {name: every[name] for name in product.epilogue.operands}
    out[...] = np.nan
    assert kernel(x, out=out, **operands) is out
    dense = product.w.to_dense().astype(float)
    activation = product.epilogue.activation or "none"
    unit = ROUNDING["f64" if product.w.dtype == "f64" else "f32"]
    for i in range(product.batch):
        own = {name: a[i] if name == "residual" else a for name, a in operands.items()}
        want = reference.run(dense, x[i], activation=activation, sums=np.float64, **own)
        slack = ROUNDING[product.w.dtype] * np.abs(want) * 1.01 + unit * (k + 24) * (2 + np.abs(dense) @ np.abs(x[i]))
        assert (np.abs(out[i].astype(float) - want) <= slack).all()
    return kernel


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("y_lies", LIES)
@pytest.mark.parametrize("x_lies", LIES)
def test_as_matrices_lie(x_lies: str, y_lies: str, line: str) -> None:
    """Columns that nothing divides, and whole pieces; rows that are cut."""
    format = line.split()[0] if line.startswith("hybrid") else "csr"
    for n, dtype in ((5, "f16"), (8, "bf16" if format == "hybrid" else "f64")):
        called(sg.spmm(matrix(dtype, format), n=n, batch=3, bias=True, residual=True), x_lies, y_lies, line)


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    product = sg.spmm(matrix("f32"), n=4, batch=3, activation=activation, **dict.fromkeys(operands, True))
    for device in ("h200", "a100"):
        for line in LINES[:2]:
            called(product, "panels", "panels", line, device)


@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.sampled_from(list(LIES)),
    st.sampled_from(list(LIES)), st.sampled_from(("f32", "f16", "f64")), st.sampled_from(LINES[:2]),
)  # fmt: skip
def test_any_batch(m: int, k: int, n: int, batch: int, x: str, y: str, dtype: str, line: str) -> None:
    report = called(sg.spmm(matrix(dtype, m=m, k=k), n=n, batch=batch), x, y, line).check()
    assert report.ok and not report.notes


def test_one_launch_and_nothing_copied() -> None:
    """A batch as users have it: rows of x are gathered out of all matrices at once, and y is as x lies."""
    kernel = called(sg.spmm(matrix("f32"), n=8, batch=4), "panels", "panels", "csr")
    program = kernel._programs.get(1, kernel._calls.packed)
    assert len(program.warp.launches) == 1 and program.op.funcs[0].x_panel == 8
    assert "a batch of 4" in str(kernel.product) and "packed by matrices" in kernel.source()
    x = np.random.default_rng(0).uniform(-1, 1, (4, 53, 8)).astype("f4")
    for how in LIES:
        y = kernel(lying(x, how))
        assert y.shape == (4, 61, 8) and np.allclose(y, kernel.product.w.to_dense() @ x, atol=1e-4)
    assert y.swapaxes(1, 2).flags.c_contiguous  # the last one came by columns
    assert not kernel.check().errors and kernel.explain() and kernel.counts()


def test_auto_weighs_formats_that_take_batches() -> None:
    w = sg.sparse(ragged(200, 200, 3).astype("f4"), format="auto", dtype="f16")
    found = {c.schedule.family for c in sg.schedules(sg.spmm(w, n=8, batch=2), device="h200")}
    assert {"csr", "csr_strip", "dense"} <= found <= {"csr", "csr_strip", "hybrid", "dense"}


@pytest.mark.parametrize(("x", "words"), [
    (np.zeros((53, 16), "f4"), ["shape (53, 16), it must be (2, 53, 8)", "x is [batch, K, n]"]),
    (np.zeros((2, 8, 53), "f4"), ["shape (2, 8, 53)", "n=8 and batch=2"]),
    (np.zeros((3, 53, 8), "f4"), ["shape (3, 53, 8)"]),
    (np.zeros((2, 53, 16), "f4")[:, :, ::2], ["matrices, or rows or columns must follow one another", "copy it"]),
    (np.zeros((4, 53, 8), "f4")[::2], ["matrices, or rows or columns must follow", "ascontiguousarray"]),
    (np.zeros((2, 53, 8)), ["dtype float64, W is f32"]),
])  # fmt: skip
def test_what_is_no_batch(x: Any, words: list[str]) -> None:
    kernel = sg.compile(sg.spmm(matrix("f32"), n=8, batch=2), device="h200", backend="emulator", schedule=LINES[0])
    with pytest.raises(ArrayError) as e:
        kernel(x)
    assert all(word in str(e.value) for word in words), str(e.value)


def test_what_has_no_batch() -> None:
    with pytest.raises(ProductError, match="batch=0: there is nothing to do"):
        sg.spmm(matrix("f32"), n=8, batch=0)
    with pytest.raises(ProductError, match=r"W is in bitmap(?s:.*)csr or hybrid") as e:
        sg.spmm(sg.sparse(np.eye(64, dtype="f2")), n=8, batch=2)
    assert "[K, 16]" in str(e.value)
    alone = sg.compile(sg.spmm(matrix("f32"), n=8), device="h200", backend="emulator")
    with pytest.raises(ArrayError, match=r"compile sg.spmm\(W, n=8, batch=2\)"):
        alone(np.zeros((2, 53, 8), "f4"))
    kernel = sg.compile(sg.spmm(matrix("f32"), n=8, batch=2, residual=True), device="h200", backend="emulator")
    zeros = np.zeros((2, 61, 8), "f4")
    with pytest.raises(ArrayError, match="residual is packed by matrices, out by columns"):
        kernel(np.zeros((2, 53, 8), "f4"), residual=zeros, out=lying(zeros, "columns"))


def test_panels_that_are_none_are_refused() -> None:
    """At each level."""
    kernel = sg.compile(sg.spmm(matrix("f32"), n=8, batch=2), device="h200", backend="emulator", schedule=LINES[0])
    program = kernel._programs.get(1, kernel._calls.packed)
    for module, words in (
        (program.op, "panels of 5 columns, of 16 by rows"),
        (program.tile, "no panels of 5|at once of 5"),
    ):
        text = print_module(module)
        assert parse_module(text) == module
        for name in ("x_panel=8", "y_panel=8", "panel=8"):
            if f" {name}" in text:
                with pytest.raises(IRError, match=words):
                    verify(parse_module(text.replace(f" {name}", f" {name[:-1]}5")))
