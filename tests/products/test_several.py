"""Several matrices that multiply one x: one launch, a result of each, in any format; what does not go together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.stack import stacked
from tests.products_kit import agrees, operands, weights
from tests.refusals import refusal

K, N = 200, 6
ROWS = (48, 16, 5)
DENSE = [weights(m, K, 0.6, seed=m) for m in ROWS]
PARTS = [sg.sparse(w) for w in DENSE]
X = np.random.default_rng(0).uniform(-1, 1, (K, N)).astype("f2")
FORMATS: dict[str, dict[str, Any]] = {
    "bitmap": {}, "csr": {}, "nm": {"n": 2, "m": 4}, "sr_bcrs": {"height": 8}, "tca_bme": {}, "hybrid": {},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rows", [(16, 48, 5), (5, 32, 16), (40,)])
def test_stacked_as_if_encoded_together(rows: tuple[int, ...], format: str) -> None:
    words = FORMATS[format]
    dense = [weights(m, K, 0.6, seed=i) for i, m in enumerate(rows)]
    dense = [sg.prune(w, "nm", **words) for w in dense] if format == "nm" else dense
    made, want = stacked([sg.sparse(w, format=format, **words) for w in dense]), np.concatenate(dense)
    whole = sg.sparse(want, format=format, **words)
    made.check()
    assert made.nnz == whole.nnz and np.array_equal(made.to_dense(), want)
    for name, array in whole.arrays.items():
        assert np.array_equal(made.arrays[name].view("u1"), array.view("u1")), name


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("line", ["auto", "bitmap warps=2x2 rows=2 stages=2 splits=2"])
@pytest.mark.parametrize("backend", ["emulator", "reference"])
def test_a_result_of_each(backend: str, line: str, order: str) -> None:
    product = sg.spmm(PARTS, n=N, bias=True, scale=True, residual=True, activation="silu")
    k = sg.compile(product, device="h200", backend=backend, schedule=line)
    given = operands(product, order, order)
    x, out, residual, vectors = given["x"], given["out"], given["residual"], ("bias", "scale")
    parts = k(x, out=out, residual=residual, **{name: given[name] for name in vectors})
    agrees(out, product, given)
    assert [part.shape for part in parts] == [(m, N) for m in ROWS] and np.array_equal(np.concatenate(parts), out)
    assert all(part.base is not None and np.shares_memory(part, out) for part in parts)
    at = np.cumsum(ROWS)[:-1]
    again = k(x, residual=residual, **{name: np.split(given[name], at) for name in vectors})
    assert np.array_equal(np.concatenate(again), out)


def test_what_a_kernel_says_of_them(tmp_path: Path) -> None:
    k = sg.compile(sg.spmm(PARTS, n=N), device="h200", backend="emulator")
    assert "of 3 matrices of 48, 16, 5 rows" in str(k.product) and k.shape == (69, K, N)
    assert k.check(X).ok and k.explain() and k.counts() and k.bench(X, repeats=1)
    assert "69x200" in k.export(tmp_path / "three.cu").read_text()


def test_the_stack_is_made_once() -> None:
    made = sg.spmm(PARTS, n=N).w
    assert sg.spmm(PARTS, n=8).w is made and sg.spmm(PARTS[:2], n=8).w is not made


def _sparse(m: int, k: int, dtype: str = "f16", **how: Any) -> SparseMatrix:
    return sg.sparse(weights(m, k, 0.9, dtype), **how)


DESCRIBED: list[tuple[Callable[[], object], tuple[str, ...]]] = [
    (lambda: sg.spmm([], n=8), ("a product of no matrices", "name at least one")),  # here
    (lambda: sg.spmm([PARTS[0], DENSE[1]], n=8), ("matrix 1: spmm needs a sparse matrix", "sg.sparse(w)")),  # type: ignore[list-item]  # here
    (lambda: sg.spmm([PARTS[0], _sparse(16, 100)], n=8), ("matrix 1 of the product has K 100, matrix 0 200",)),  # here
    (lambda: sg.spmm([PARTS[0], _sparse(16, K, "bf16")], n=8), ("has dtype bf16, matrix 0 f16", "all in f16")),  # here
    (lambda: sg.spmm([PARTS[0], _sparse(16, K, format="csr")], n=8), ("has format csr, matrix 0 bitmap",)),  # here
]


@pytest.mark.parametrize(("attempt", "says"), DESCRIBED)
def test_matrices_that_do_not_go_together(attempt: Callable[[], object], says: tuple[str, ...]) -> None:
    refusal(__file__, sg.ProductError, attempt, *says)


B = [np.zeros(m, "f2") for m in ROWS]
CALLS: list[tuple[Callable[[Any], object], tuple[str, ...]]] = [
    (lambda k: k(X, bias=B[:2]), ("bias is 2 arrays, there are 3 matrices", "give an array for each")),  # here
    (lambda k: k(X, bias=[B[0], B[0], B[2]]), ("bias[1] has shape (48,) on the host, matrix 1 has 16 rows",)),  # here
    (lambda k: k(X, bias=B, out=np.zeros((48, N), "f2")), ("out has shape (48, 6), it must be (69, 6)",)),  # here
]


@pytest.mark.parametrize(("attempt", "says"), CALLS)
def test_calls_that_do_not_fit(attempt: Callable[[Any], object], says: tuple[str, ...]) -> None:
    k = sg.compile(sg.spmm(PARTS, n=N, bias=True), device="h200", backend="emulator")
    refusal(__file__, sg.ArrayError, lambda: attempt(k), *says)
