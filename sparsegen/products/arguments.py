"""The arrays of a call of a product: which are taken, and the order of their elements."""

from __future__ import annotations

from typing import Any

from sparsegen.arrays import ArrayLayout, ArrayView, Expect, c_strides
from sparsegen.ir.errors import ArrayError
from sparsegen.products.pipelines import Variant
from sparsegen.products.product import Product

#: Elements that one load may take.
_VECTORS = (8, 4, 2)


def orders(layout: ArrayLayout) -> tuple[str, ...]:
    """The orders that a packed matrix has, ``row`` and ``column``; both where one of its extents is 1."""
    (rows, cols), (down, across), size = layout.shape, layout.strides, layout.dtype.itemsize
    row = (rows == 1 or down == cols * size) and (cols == 1 or across == size)
    column = (cols == 1 or across == rows * size) and (rows == 1 or down == size)
    return tuple(name for name, holds in (("row", row), ("column", column)) if holds)


def order(layout: ArrayLayout) -> str:
    """The order that a matrix is taken to have: of a single column that of columns, of a single row that of rows."""
    found = orders(layout)
    return found[-1 if layout.shape[1] == 1 else 0]


def variant(x: ArrayView, out: ArrayView, *, anywhere: bool = False) -> Variant:
    """What the code depends on; ``anywhere``: x will be copied to an aligned address."""
    how = order(x.layout)
    run = x.layout.shape[1 if how == "row" else 0]
    at = 0 if anywhere else x.pointer // x.layout.dtype.itemsize
    return Variant(how, order(out.layout), next((v for v in _VECTORS if run % v == 0 and at % v == 0), 1))


def packed(product: Product, dtype: Any) -> Variant:
    """The variant of aligned arrays that are packed by rows."""
    m, k = product.w.shape

    def view(rows: int) -> ArrayView:
        shape = (rows, product.n)
        return ArrayView(0, ArrayLayout("numpy", shape, c_strides(shape, dtype.itemsize), dtype, "host", None), None)

    return variant(view(k), view(m))


class Operand(Expect):
    """An array of a call: of W's dtype and of the product's shape, packed, on the side where the back end works."""

    __slots__ = ("_backend", "_product")

    def __init__(self, name: str, product: Product, dtype: Any, backend: str) -> None:
        m, k = product.w.shape
        matrix = {"x": (k, product.n), "out": (m, product.n), "residual": (m, product.n)}
        super().__init__(name, matrix.get(name, (m,)), dtype, writable=name == "out")
        self._product, self._backend = product, backend

    def _check(self, layout: ArrayLayout) -> None:
        name = self.name
        if layout.problem is not None:
            raise ArrayError(f"{name} is {layout.problem[0]}", hint=layout.problem[1])
        if layout.dtype != self.dtype:
            raise ArrayError(
                f"{name} has dtype {layout.dtype}, W is {self._product.w.dtype}",
                hint=f"convert it to {self.dtype}; nothing is cast",
            )
        if layout.shape != self.shape:
            raise ArrayError(f"{name} has shape {layout.shape}, it must be {self.shape}", hint=self._remedy(layout))
        if not (orders(layout) if len(self.shape) == 2 else layout.contiguous):
            what = "rows or columns must follow one another" if len(self.shape) == 2 else "it must be packed"
            raise ArrayError(
                f"{name} has strides {layout.strides} (bytes): {what} without gaps",
                hint="copy it: np.ascontiguousarray(a), or a.contiguous() in torch",
            )
        if self.writable and layout.readonly:
            raise ArrayError(f"{name} is read-only", hint="pass an array that can be written, such as a.copy()")
        if layout.device_kind != "host" and self._backend != "cuda":
            raise ArrayError(
                f"{name} is on {layout.where()}, but this kernel runs on the {self._backend}",
                hint="compile with backend='cuda', or copy the array to the host",
            )

    def _remedy(self, layout: ArrayLayout) -> str:
        shape = layout.shape
        if len(self.shape) == 2 and len(shape) == 1 and shape[0] == self.shape[0] and self.shape[1] == 1:
            return "pass a matrix of one column: a[:, None]"
        if shape == self.shape[::-1]:
            return f"pass {self.name}.T: x is [K, n], y is [M, n]"
        if self.name == "x" and len(shape) == 2 and shape[0] == self.shape[0]:
            return f"compile sg.spmm(W, n={shape[1]})"
        m, k = self._product.w.shape
        return f"W is [{m}, {k}] and n={self._product.n}: x is [K, n], y and residual are [M, n], bias and scale [M]"
