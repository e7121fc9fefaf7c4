"""Random products with N:M matrices, and what must hold of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.products.product import Product
from tests.nm_kit import matrix
from tests.products_kit import called

#: Orders of x and of y.
ORDER = st.sampled_from(["row", "column"])
#: The share of windows that keep anything.
FILLS = st.sampled_from([0.0, 0.5, 1.0])


@st.composite
def patterns(draw: st.DrawFn, rows: Sequence[int], wide: Sequence[int]) -> Any:
    """n, the width of a window and the block (r, c), r of ``rows`` and c of ``wide``; windows of up to 64."""
    r, c = draw(st.sampled_from(rows)), draw(st.sampled_from(wide))
    width = draw(st.integers(2, 64 // c))
    return draw(st.integers(1, width - 1)) * c, width * c, (r, c)


@st.composite
def products(
    draw: st.DrawFn, pattern: st.SearchStrategy[Any], most: tuple[int, int, int] = (200, 200, 80),
    dtypes: Sequence[str] = ("f16", "bf16"),
) -> Product:  # fmt: skip
    """Any pattern, size (``most`` rows, columns of W and of x), type and epilogue."""
    m, k, n = (draw(st.integers(1, top)) for top in most)
    dtype, seed = draw(st.sampled_from(dtypes)), draw(st.integers(0, 9))
    w = matrix(m, k, *draw(pattern), dtype, seed=seed, fill=draw(FILLS))
    return sg.spmm(w, n=n, **{name: draw(st.booleans()) for name in ("bias", "scale", "residual")})


def runs_without_a_fault(product: Product, words: str, x_order: str, y_order: str) -> None:
    """Right, with nothing that a checker finds: no race, and no bank conflict beyond those that are declared."""
    report = called(product, x_order, y_order, words).check()
    assert report.ok and not report.notes, f"{product} {words}: {report}"
