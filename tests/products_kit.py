"""What the tests of sparse products share: random matrices, calls, and what a result may differ by."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import sparsegen as sg
from sparsegen.backends.reference import spmm as reference
from sparsegen.formats import SparseMatrix
from sparsegen.products.product import Product

Array = npt.NDArray[Any]
DTYPES: dict[str, Any] = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
#: Half a unit in the last place of a result, and the same once more for sums in another order.
ROUNDING = {"f16": 2**-11, "bf16": 2**-8}


def weights(m: int, k: int, sparsity: float, dtype: str = "f16", seed: int = 0) -> Array:
    """Random weights about 0, of which ``sparsity`` are zero."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((m, k)).astype(DTYPES[dtype])
    w[rng.random((m, k)) < sparsity] = 0
    return w


def matrix(m: int, k: int, sparsity: float = 0.6, dtype: str = "f16", format: str = "bitmap") -> SparseMatrix:
    """The same, encoded."""
    return sg.sparse(weights(m, k, sparsity, dtype), format=format)


def operands(product: Product, x_order: str = "row", y_order: str = "row", seed: int = 1) -> dict[str, Array]:
    """Random arrays of a call by name, in these orders; ``out`` is NaN."""
    rng = np.random.default_rng(seed)
    (m, k), n, dtype = product.w.shape, product.n, DTYPES[product.w.dtype]

    def made(rows: int, cols: int, order: str) -> Array:
        a = rng.uniform(-1, 1, (rows, cols)).astype(dtype)
        return a if order == "row" else np.ascontiguousarray(a.T).T

    shapes = {"x": made(k, n, x_order), "out": made(m, n, y_order)}
    shapes["out"][...] = np.nan
    vectors = {name: rng.uniform(-1, 1, m).astype(dtype) for name in ("bias", "scale")}
    everything = {**shapes, **vectors, "residual": made(m, n, y_order)}
    return {name: a for name, a in everything.items() if name in ("x", "out", *product.epilogue.operands)}


def wanted(product: Product, given: dict[str, Array]) -> tuple[Array, Array]:
    """The result in f64 of the rounded operands, and how far a right one may be from it, element by element."""
    dense = product.w.to_dense()
    extra = {name: given[name] for name in product.epilogue.operands}
    activation = product.epilogue.activation or "none"
    exact = reference.run(dense, given["x"], activation=activation, sums=np.float64, **extra)
    terms = np.abs(dense).astype(float) @ np.abs(given["x"]).astype(float)
    if "scale" in extra:
        terms = terms * np.abs(extra["scale"].astype(float))[:, None]
    slope = 1.2  # no activation is steeper
    sums = slope * terms * 2.0**-24 * (dense.shape[1] + 8) + 2.0**-20 * (1 + np.abs(exact))
    return exact, ROUNDING[product.w.dtype] * np.abs(exact) * 1.01 + sums


def agrees(got: Array, product: Product, given: dict[str, Array]) -> None:
    """AssertionError for a result that rounding does not explain."""
    exact, slack = wanted(product, given)
    assert got.shape == exact.shape and got.dtype == DTYPES[product.w.dtype]
    off = np.abs(got.astype(float) - exact)
    worst = np.unravel_index(int(np.argmax(off - slack)), off.shape)
    assert (off <= slack).all(), f"element {worst}: {got[worst]}, not {exact[worst]}"
