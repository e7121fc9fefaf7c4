"""csr products from op to warp level, run lane by lane with every checker: right for any shape, in a fixed order."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.ir.errors import IRError
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.ir.types import DTYPES, widths
from sparsegen.ir.verify import verify
from tests.csr_kit import Case, ragged
from tests.products_kit import ORDERS

CASES = [
    Case(ragged(61, 53, 4, full=1), 128, "f16", {"across": 16, "vec": 8, "unroll": 8, "warps": 2}, 20),
    Case(ragged(61, 53, 4, full=3), 128, "f16", {"across": 16, "parts": 2, "vec": 8, "unroll": 4, "warps": 2}, 7),
    Case(ragged(61, 53, 4, full=1), 128, "f32", {"across": 32, "vec": 4, "unroll": 4, "warps": 1}),
    Case(ragged(61, 53, 4, full=1), 512, "f32", {"across": 16, "blocks": 2, "vec": 4, "unroll": 4, "warps": 2}, 16),
    Case(ragged(50, 70, 9, full=2), 13, "f16", {"across": 8, "blocks": 2, "vec": 1, "unroll": 2, "warps": 2}, 16),
    Case(ragged(90, 70, 9, full=2), 1, "f32", {"across": 1, "parts": 8, "vec": 1, "unroll": 4, "warps": 4}, 32),
    Case(ragged(90, 70, 9, full=2), 1, "bf16", {"across": 1, "parts": 32, "vec": 1, "unroll": 1, "warps": 1}, 16),
    Case(ragged(61, 53, 4, full=3), 12, "f64", {"across": 2, "parts": 4, "blocks": 2, "vec": 2, "unroll": 8}, 7),
    Case(ragged(61, 53, 4, full=1), 1, "f64", {"across": 1, "parts": 8, "vec": 1, "unroll": 4, "warps": 1}, 32),
    Case(ragged(50, 70, 9, full=2), 30, "bf16", {"across": 8, "parts": 2, "vec": 2, "unroll": 4, "warps": 1}, 16),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.dtype}-n{c.n}")
def test_products_are_right_in_any_order_of_warps(case: Case) -> None:
    for seed in range(3):
        case.check(seed)


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_x_and_y(x_order: str, y_order: str) -> None:
    options = {"across": 8, "blocks": 2, "vec": 1 if x_order == "column" else 2, "unroll": 4, "warps": 1}
    Case(ragged(40, 33, 6, full=1), 24, "f16", options, 9, x_order, y_order, ("residual",)).check()


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize("operands", [(), ("bias",), ("scale", "bias", "residual")])
def test_epilogues(activation: str, operands: tuple[str, ...]) -> None:
    """Of rows that are cut as well, and of rows without entries."""
    Case(
        ragged(40, 33, 3, full=2), 8, "f32", {"across": 2, "parts": 2, "vec": 4, "unroll": 4, "warps": 1}, 10,
        operands=operands, activation=activation,
    ).check()  # fmt: skip


def test_matrices_without_entries_and_without_rows_to_spare() -> None:
    options = {"across": 1, "vec": 8, "unroll": 4, "warps": 1}
    Case(scipy.sparse.csr_matrix((5, 7)), 8, "f16", options, operands=("bias",)).check()
    Case(scipy.sparse.csr_matrix(np.ones((1, 1))), 8, "f16", options).check()


def test_an_infinity_stays_in_its_row() -> None:
    """An entry that is not there does not multiply, whatever lies beside it in memory."""
    matrix = scipy.sparse.csr_matrix(np.array([[1.0, 0, 2], [0, np.inf, 0], [3, 0, 0], [0, 0, np.nan], [0, 4, 0]]))
    case = Case(matrix, 4, "f32", {"across": 1, "parts": 2, "vec": 4, "unroll": 4, "warps": 1})
    given = case.given()
    given["in"][1] = np.inf
    got, _ = case.run(given)
    assert [bool(np.isfinite(row).all()) for row in got] == [True, False, True, False, False]
    assert np.isinf(got[[1, 4]]).all() and np.isnan(got[3]).all()


def test_sums_do_not_depend_on_who_comes_last() -> None:
    case = Case(ragged(30, 200, 20, full=3), 16, "f32", {"across": 4, "vec": 4, "unroll": 4, "warps": 2}, 11)
    given = case.given()
    first, _ = case.run(given, 0)
    assert all(np.array_equal(first, case.run(given, seed)[0]) for seed in range(1, 6))


@st.composite
def products(draw: st.DrawFn) -> Case:
    """Any shape, type, order and team."""
    dtype, n = draw(st.sampled_from(["f16", "bf16", "f32", "f64"])), draw(st.integers(1, 70))
    x_order = draw(st.sampled_from(["row", "row", "column"]))
    vec = draw(st.sampled_from([v for v in widths(DTYPES[dtype]) if n % v == 0 and (v == 1 or x_order == "row")]))
    across = draw(st.sampled_from([1, 2, 4, 8, 16, 32]))
    parts = draw(st.sampled_from([p for p in (1, 2, 4, 8, 16, 32) if p * across <= 32]))
    blocks, unroll, warps = (draw(st.sampled_from(values)) for values in ((1, 2), (1, 2, 4, 8), (1, 2, 4)))
    options = {"across": across, "parts": parts, "vec": vec, "blocks": blocks, "unroll": unroll, "warps": warps}
    matrix = ragged(draw(st.integers(1, 60)), draw(st.integers(1, 60)), draw(st.sampled_from([0.5, 3, 12])),
                    seed=draw(st.integers(0, 9)), full=draw(st.integers(0, 1)))  # fmt: skip
    operands = draw(st.sampled_from([(), ("bias",), ("scale", "residual")]))
    return Case(matrix, n, dtype, options, draw(st.sampled_from([3, 16, 1 << 20])), x_order,
                draw(st.sampled_from(["row", "column"])), operands)  # fmt: skip


@given(products(), st.integers(0, 3))
def test_any_product(case: Case, seed: int) -> None:
    case.check(seed)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_text_says_all(level: int) -> None:
    module = CASES[1].lowered()[level]
    assert parse_module(print_module(module)) == module


def test_what_does_not_fit_is_refused() -> None:
    matrix = ragged(20, 20, 4)
    wide = print_module(Case(matrix, 8, "f64", {"across": 2, "vec": 2, "unroll": 4, "warps": 1}).lowered()[1])
    narrow = wide.replace("@acc: reg f64", "@acc: reg f32").replace("@weights: reg f64", "@weights: reg f32")
    assert narrow != wide
    with pytest.raises(IRError, match="the epilogue of f64 works in f64, not f32"):
        verify(parse_module(narrow))
    with pytest.raises(IRError, match="team of 12"):
        Case(matrix, 8, "f16", {"across": 12, "vec": 1, "unroll": 4, "warps": 3}).lowered()
    with pytest.raises(IRError, match="6 entries a turn are no multiple of 4"):
        Case(matrix, 8, "f16", {"across": 2, "vec": 4, "unroll": 6, "warps": 1}).lowered()
