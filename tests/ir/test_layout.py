"""Layouts: maps, composition, inverses, bank conflicts, and ConvStencil's two matrices."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Const, Value
from sparsegen.ir.layout import (
    Layout,
    bank_degree,
    layout,
    row_major,
    stencil2row_a,
    stencil2row_b,
    stencil2row_columns,
)
from sparsegen.ir.parse import parse_layout


def swizzle(rows: int, cols: int, chunk: int) -> Layout:
    """Row-major, the chunks of row r exchanged by an exclusive or with r."""
    return layout({"r": rows, "c": cols}, lambda r, c: r * cols + ((c // chunk) ^ r) * chunk + c % chunk)


@pytest.mark.parametrize("k", [3, 5, 7])
@pytest.mark.parametrize(("groups", "rows"), [(1, 1), (2, 5), (8, 38)])
def test_stencil2row_is_exactly_the_papers(k: int, groups: int, rows: int) -> None:
    n = stencil2row_columns(k, groups)
    assert n == groups * (k + 1) + k - 1
    u = np.arange(rows * n).reshape(rows, n)
    for f, shift in ((stencil2row_a(k, groups, rows), 0), (stencil2row_b(k, groups, rows), k)):
        assert f.injective() and f.shape() == (groups, k * rows) and f.size() == groups * k * rows
        got = u.ravel()[f.inverse_table()]
        for g in range(groups):
            for x in range(rows):
                for j in range(k):
                    assert got[g, k * x + j] == u[x, g * (k + 1) + shift + j]
    a, b = stencil2row_a(k, groups, rows), stencil2row_b(k, groups, rows)
    y = np.arange(n)
    assert (a.mask()[0] == ((y <= n - k - 1) & (y % (k + 1) != k))).all()
    assert (b.mask()[0] == ((y >= k) & (y % (k + 1) != k - 1))).all()
    assert (b.tables()[0][0][k:] == (y[k:] - k) // (k + 1)).all()


def test_stencil2row_into_padded_storage() -> None:
    tile = row_major((8, 266), 268) @ stencil2row_a(7, 8, 38)
    assert tile.size() == 7 * 268 + 266 and tile.injective()
    assert tile(3, 9) == Const(1 * 268 + 3 * 7 + 1)
    assert tile.defined(3, 7) == Const(0) and tile.defined(3, 8) == Const(1)


def fragment(stride: int) -> int:
    """The conflict degree of an 8x4 f64 fragment's load from rows ``stride`` doubles apart."""
    return row_major((8, 4), max(stride, 4)).conflict_degree([(lane // 4, lane % 4) for lane in range(32)], 8)


def test_conflict_free_row_strides_of_8x4_f64_fragments() -> None:
    free = {s for s in range(4, 300) if fragment(s) == 1}
    assert free == {s for s in range(4, 300) if s % 16 in (4, 12)}
    assert fragment(266) == 2 and fragment(268) == 1 and fragment(98) > 1 and fragment(100) == 1
    assert fragment(7) == 2 and fragment(9) == 2 and fragment(12) == 1


def test_bank_rules() -> None:
    assert bank_degree(range(32), 4) == 1
    assert bank_degree([0] * 32, 4) == 1  # a broadcast
    assert bank_degree(range(0, 64, 2), 4) == 2
    assert bank_degree(range(0, 32 * 32, 32), 4) == 32
    assert bank_degree(range(32), 8) == 1  # in halves
    assert bank_degree(range(0, 64, 2), 8, 2) == 1  # in quarters
    assert bank_degree(range(0, 32 * 32, 32), 8, 2) == 8
    assert bank_degree([0, *[None] * 30, 32], 4) == 2
    assert bank_degree(range(32), 2) == 1
    with pytest.raises(IRError, match="not 32"):
        bank_degree(range(32), 8, 4)


def test_swizzle_needs_no_padding() -> None:
    f = swizzle(8, 64, 8)
    assert f.injective() and f.size() == 512
    assert f.conflict_degree([(lane % 8, 8 * (lane // 8)) for lane in range(32)], 2, 8) == 1
    assert row_major((8, 64)).conflict_degree([(lane % 8, 8 * (lane // 8)) for lane in range(32)], 2, 8) == 8


def test_composition_and_inverse() -> None:
    transpose = layout({"i": 3, "j": 5}, lambda i, j: (j, i))
    both = row_major((5, 3), 4) @ transpose
    assert [both(i, j) for i in range(3) for j in range(5)] == [Const(4 * j + i) for i in range(3) for j in range(5)]
    inverse = both.inverse_table()
    assert inverse[4 * 2 + 1] == 1 * 5 + 2 and inverse[3] == -1
    with pytest.raises(IRError, match="takes 2"):
        row_major((3, 5)) @ row_major((3, 5))
    with pytest.raises(IRError, match=r"gives r in 0..4"):
        row_major((4, 3)) @ transpose
    folded = layout({"i": 8}, lambda i: i % 4)
    assert not folded.injective() and folded.size() == 4
    with pytest.raises(IRError, match="no inverse"):
        folded.inverse_table()


def test_three_dimensions() -> None:
    f = row_major((2, 3, 4), 6)
    assert f(1, 2, 3) == Const((1 * 3 + 2) * 6 + 3) and f.size() == 34


def test_expression_indices_and_ranges() -> None:
    f, i = row_major((8, 266), 268), Value("i", lo=0, hi=7)
    assert str(f(i, 2)) == "%i * 268 + 2"
    with pytest.raises(IRError, match=r"index 8 of dimension r is outside 0..7"):
        f(8, 0)
    with pytest.raises(IRError, match="takes 2 indices, got 1"):
        f(1)
    with pytest.raises(IRError, match="2 storage dimensions"):
        stencil2row_a(3, 2, 2)(0, 0)


def test_text_both_ways() -> None:
    f = layout({"g": 8, "q": 266}, lambda g, q: g * 268 + q, lambda g, q: q.lt(260))
    assert str(f) == "layout<[g<8, q<266] -> g * 268 + q where q < 260>"
    assert parse_layout(str(f)) == f
    assert str(row_major((8, 266), 268)) == "layout<[r<8, c<266] -> r * 268 + c>"
    for g in (stencil2row_a(5, 3, 4), swizzle(4, 32, 2), row_major((7,))):
        assert parse_layout(str(g)) == g
    with pytest.raises(IRError, match=r"%z is not defined|z is not defined"):
        parse_layout("layout<[g<8] -> z>")
    with pytest.raises(IRError, match="positive extent"):
        parse_layout("layout<[g<0] -> g>")


def test_wrong_layouts() -> None:
    with pytest.raises(IRError, match="one extent for each"):
        Layout(("a",), (1, 2), (Const(0),))
    with pytest.raises(IRError, match="reads %b"):
        Layout(("a",), (4,), (Value("b"),))
    with pytest.raises(IRError, match="needs a name"):
        layout({"min": 3}, lambda m: m)
    with pytest.raises(IRError, match="do not fit a stride of 3"):
        row_major((2, 4), 3)


def test_picture() -> None:
    assert layout({"r": 2, "c": 3}, lambda r, c: r * 4 + c, lambda r, c: (r + c).ne(3)).picture() == (
        "layout<[r<2, c<3] -> r * 4 + c where r + c != 3>\n0 1 2\n4 5 ."
    )
    assert "…" in row_major((40, 40)).picture(4)


def test_a_layout_is_of_a_tile() -> None:
    huge = layout({"r": 1 << 31, "c": 28}, lambda r, c: r * 28 + c)
    for attempt in (huge.size, huge.injective, huge.tables, huge.mask):
        with pytest.raises(IRError, match="a layout of 60129542144 points"):
            attempt()
    with pytest.raises(IRError, match="a layout with the number"):
        layout({"r": 4}, lambda r: r * 10**20).tables()
