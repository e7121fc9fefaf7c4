"""Wrong products of quantised matrices and wrong calls of them: what is said, at the user's line, with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.refusals import refusal
from tests.vectors_kit import kernel, quantized

M, K, N = 24, 40, 6
FLOATS = np.ones((M, K), np.float32)
WHOLE = np.ones((M, K), np.int8)
W, W16 = quantized((M, K)), quantized((M, K), "i16")
X = np.ones((K, N), np.int8)

MADE: list[tuple[type[sg.SparsegenError], Callable[[], object], tuple[str, ...]]] = [
    (sg.ArrayError, lambda: sg.sparse(FLOATS, format="sr_bcrs"), ("w has dtype float32", "sg.quantize(w")),  # here
    (sg.FormatError, lambda: sg.sparse(WHOLE, format="sr_bcrs", height=3), ("height=3", "2, 4 or 8")),  # here
    (sg.ArrayError, lambda: sg.sparse(9 * WHOLE, format="sr_bcrs", dtype="i4"), ("is 9, outside -8..7",)),  # here
    (sg.ArrayError, lambda: sg.sparse(-WHOLE, format="sr_bcrs", dtype="u8"), ("encoded in u8", "w.byte()")),  # here
    (sg.FormatError, lambda: sg.quantize(FLOATS, bits=6), ("bits=6", "4, 8, 12 or 16")),  # here
    (sg.FormatError, lambda: sg.quantize(FLOATS, zero_point=3), ("zero_point=3", "symmetric only")),  # here
    (sg.ArrayError, lambda: sg.quantize(FLOATS * np.nan), ("is nan, which no integer stands for",)),  # here
    (sg.ArrayError, lambda: sg.quantize(FLOATS * np.inf), ("is inf, which no integer stands for",)),  # here
    (sg.ProductError, lambda: sg.spmm(W, n=N, x_dtype="i12"), ("x_dtype='i12'", "there are: i8,")),  # here
    (sg.ProductError, lambda: sg.spmm(W, n=N, x_dtype="int8"), ("x_dtype='int8'",)),  # here
    (sg.ProductError, lambda: sg.spmm(W, n=N, y_dtype="f64"), ("y_dtype='f64'", "i32, f32, f16, bf16")),  # here
    (sg.ProductError, lambda: sg.spmm(W, n=N, scale=True), ("makes floats of sums, y is i32", "y_dtype='f32'")),  # here
    (sg.ProductError, lambda: sg.spmm(W, n=N, activation="relu"), ("relu(W @ x) makes floats of sums",)),  # here
]


@pytest.mark.parametrize(("kind", "attempt", "says"), MADE)
def test_what_cannot_be_made(
    kind: type[sg.SparsegenError], attempt: Callable[[], object], says: tuple[str, ...]
) -> None:
    refusal(__file__, kind, attempt, *says)


CALLS: list[tuple[dict[str, Any], Callable[[Any], object], tuple[str, ...]]] = [
    ({}, lambda k: k(X.astype("f4")), ("x has dtype float32, the product has x_dtype='i8'", "nothing is cast")),  # here
    ({}, lambda k: k(X.view("u1")), ("x has dtype uint8, the product has x_dtype='i8'",)),  # here
    ({}, lambda k: k(X[:, :4]), ("x has shape (40, 4), it must be (40, 6)", "compile sg.spmm(W, n=4)")),  # here
    ({}, lambda k: k(X.T.copy()), ("x has shape (6, 40)", "pass x.T")),  # here
    ({}, lambda k: k(X, out=np.zeros((M, N), "i8")), ("out has dtype int8, the product has y_dtype='i32'",)),  # here
    ({}, lambda k: k(X, scale=1.0), ("scale is given, but the product was described without",)),  # here
    ({"x_dtype": "i4"}, lambda k: k(X[:, :3].view("u1")[:30]), ("x has shape (30, 3), it must be (40, 3)",)),  # here
    ({"x_dtype": "i4"}, lambda k: k(X.view("u1")), ("x has shape (40, 6), it must be (40, 3)",)),  # here
    ({"x_dtype": "u16"}, lambda k: k(X), ("x has dtype int8, the product has x_dtype='u16'",)),  # here
]


@pytest.mark.parametrize(("how", "attempt", "says"), CALLS)
def test_calls_that_do_not_fit(how: Any, attempt: Callable[[Any], object], says: tuple[str, ...]) -> None:
    k = kernel(sg.spmm(W, n=N, **how))
    refusal(__file__, sg.ArrayError, lambda: attempt(k), *says)


def test_what_the_epilogue_is_given() -> None:
    k = kernel(sg.spmm(W16, n=N, y_dtype="f16", scale=True, bias=True, residual=True))
    given = {"scale": np.ones(M, "f4"), "bias": np.ones(M, "f4"), "residual": np.ones((M, N), "f2")}

    def refused(*says: str, **other: Any) -> None:
        refusal(__file__, sg.ArrayError, lambda: k(X, **{**given, **other}), *says)  # here

    refused("scale has dtype float16", "convert it to float32, as y is worked out in f32", scale=np.ones(M, "f2"))
    refused("bias has shape (6,), it must be (24,)", bias=np.ones(N, "f4"))
    refused("residual has dtype float32, the product has y_dtype='f16'", residual=np.ones((M, N), "f4"))
    refused("scale is missing", scale=None)
