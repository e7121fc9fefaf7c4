"""Products with N:M matrices by ``nm_windows``: right for any pattern, size, order and schedule; packing; no conflict
for any M; refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.backends.emulator import run
from sparsegen.formats import library
from sparsegen.ir.lower.windows import most_met
from sparsegen.ir.numbers.nm import LANES, chunks
from sparsegen.problems.product import SpmmProblem
from sparsegen.products.nm import by_windows, packed_offsets, packed_values
from sparsegen.products.windows_cost import REASONS, packed
from tests.nm_drawn import ORDER, patterns, products, runs_without_a_fault
from tests.nm_kit import encoded, matrix, packed_alike, pruned, ran, refused
from tests.products_kit import EPILOGUES, ORDERS, called, launched

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
DTYPES = ("f16", "bf16", "f32")
#: n of m and the rows and columns of a block: several rows of a group, one of which parts are taken, blocks.
PATTERNS: list[tuple[int, int, tuple[int, int]]] = [
    (1, 3, (1, 1)), (3, 10, (1, 1)), (2, 4, (1, 1)), (16, 32, (1, 1)), (33, 64, (1, 1)), (48, 64, (1, 1)),
    (8, 32, (32, 1)), (8, 16, (4, 4)), (6, 9, (7, 3)),
]  # fmt: skip
KINDS = list(zip(PATTERNS, itertools.cycle(DTYPES), strict=False))


def line(cols: int = 1, warps: int = 4, layout: str = "offsets") -> str:
    return f"nm_windows cols={cols} warps={warps} layout={layout}"


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize(("pattern", "dtype"), KINDS, ids=str)
def test_any_pattern(pattern: Any, dtype: str) -> None:
    """The last window and the last group are short; some windows hold less than they may."""
    w = matrix(45, 147, *pattern, dtype=dtype, fill=0.9)
    called(sg.spmm(w, n=1), schedule=line())
    called(sg.spmm(w, n=3 + pattern[0] % 2, bias=True), schedule=line(2, layout="windows"))


@pytest.mark.parametrize("m", [1, 15, 33])
def test_any_number_of_rows(m: int) -> None:
    """Of a part of a window, and of more windows than lanes."""
    for k in (5, 1100):
        called(sg.spmm(matrix(m, k, 8, 32, dtype="f32"), n=2), schedule=line(2))


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """Where loads of x take several elements, within windows, and where they cannot."""
    for (k, n), width, dtype in (((96, 4), 32, "bf16"), ((50, 5), 12, "f32")):
        called(sg.spmm(matrix(40, k, 4, width, dtype=dtype), n=n, residual=True), x_order, y_order, line(4))


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    product = sg.spmm(matrix(33, 64, 8, 32), n=4, activation=activation, **dict.fromkeys(operands, True))
    called(product, schedule=line(4))


LINES = st.builds(line, st.sampled_from([1, 2, 4]), st.sampled_from([4, 8]), st.sampled_from(["offsets", "windows"]))


@given(products(patterns(range(1, 10), (1, 1, 2, 4)), (70, 130, 20), DTYPES), LINES, ORDER, ORDER)
def test_any_product_runs_without_a_fault(product: Any, words: str, x_order: str, y_order: str) -> None:
    runs_without_a_fault(product, words, x_order, y_order)


# ------------------------------------------------------------------------------------------------ conflicts
@pytest.mark.parametrize("width", [*range(2, 65, 3), 32, 64])
def test_no_conflict_for_any_window(width: int) -> None:
    """Every access to shared memory takes as few wavefronts as there can be, whatever rows keep; one and more columns.

    It is so by construction: word (o * B + b) * pitch + w of window w, pitch a multiple of 32, is in bank w mod 32, the
    lane's own; here the emulator counts it.
    """
    for cols, dtype in ((1, "f32"), (4, "f16")):
        product = sg.spmm(matrix(20, 40 * width, max(1, width // 3), width, dtype=dtype, seed=width), n=cols)
        func, arguments, exact = launched(product, line(cols))
        assert ran(func, arguments, exact).counts["conflicts.shared"] == 0


def test_x_as_it_is_has_conflicts() -> None:
    """The layout that the paper's is compared with: places a window apart meet in few banks, as many as is declared."""
    assert [most_met(m, m) for m in (4, 8, 10, 32, 64)] == [4, 8, 10, 32, 32] and most_met(33, 33) == 32
    product = sg.spmm(matrix(40, 1024, 8, 32, dtype="f32"), n=1)
    met = []
    for layout in ("offsets", "windows"):
        func, arguments, _ = launched(product, line(layout=layout))
        met.append(run(func, arguments(), uninit=("y",)).counts["conflicts.shared"])
    assert met[0] == 0 and met[1] > 2 * 40 * 8  # more than two for each read of a warp


# ------------------------------------------------------------------------------------------------ what is packed
@pytest.mark.parametrize(("pattern", "dtype"), KINDS, ids=str)
def test_lanes_find_what_is_stored(pattern: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lane w of a chunk has window w of the group's rows, entry by entry; in any number of pieces."""
    w = matrix(70, 347, *pattern, dtype=dtype, fill=0.9)
    values, offsets = packed_values(w, by_windows), packed_offsets(w, by_windows)
    c, (m, k), item = chunks(w.n, w.m, w.kind.nbytes), w.shape, w.kind.nbytes
    groups, count = -(-m // c.windows), -(-w.windows // LANES) * c.parts
    stored = values.reshape(groups * count, c.stored * item // 16, LANES, 4).transpose(0, 2, 1, 3)
    stored = np.ascontiguousarray(stored.reshape(groups, count, LANES, -1)).view(w.kind.numpy())
    places = np.zeros((groups, count, LANES, c.words), "u8")
    first, flat = 0, offsets.reshape(groups, count, -1)
    for size in (4,) * (c.words // 4) + (2,) * (c.words % 4 // 2) + (1,) * (c.words % 2):
        places[..., first : first + size] = flat[..., LANES * first :][..., : LANES * size].reshape(
            groups, count, LANES, size
        )
        first += size
    dense = np.zeros((groups * c.windows, count // c.parts * LANES * w.m), w.kind.numpy())
    for entry in range(c.entries):
        word, shift = divmod(entry * c.bits, 32)
        both = places[..., word] | places[..., min(word + 1, c.words - 1)] << 32
        offset = (both >> shift & (1 << c.bits) - 1).astype(int)
        group, chunk, lane = np.indices(offset.shape)
        row = group * c.windows + (entry // w.n if c.parts == 1 else 0)
        dense[row, (chunk // c.parts * LANES + lane) * w.m + offset] += stored[..., entry]
    assert np.array_equal(dense[:m, :k], w.to_dense()) and not dense[m:].any() and not dense[:, k:].any()
    monkeypatch.setattr(library, "HOST_BAND", 1)
    again = matrix(70, 347, *pattern, dtype=dtype, fill=0.9)
    assert np.array_equal(packed_values(again, by_windows), values)
    assert np.array_equal(packed_offsets(again, by_windows), offsets)
    assert values.nbytes + offsets.nbytes == packed(SpmmProblem(sg.spmm(w, n=1)).facts)


@pytest.mark.parametrize("pattern", [(8, 32, (4, 2)), (33, 64, (1, 1))], ids=str)
def test_torch_packs_the_same(pattern: Any) -> None:
    n, m, vector = pattern
    w = pruned(70, 347, n, m, vector, "f32")
    numpy, other = encoded(w, n, m, vector)
    for pack in (packed_values, packed_offsets):
        packed_alike(pack, numpy, other, by_windows)


# ------------------------------------------------------------------------------------------------ what is said
def test_a_row_that_is_not_finite_reaches_the_rows_that_store_its_column() -> None:
    w = matrix(40, 85, 4, 16)
    kernel = sg.compile(sg.spmm(w, n=1), device="h200", backend="emulator", schedule=line())
    stored = np.zeros((40, 96), bool)
    idx = np.asarray(w.arrays["idx"]).reshape(40, 6, 4) + 16 * np.arange(6)[:, None]
    stored[np.arange(40)[:, None, None], idx] = True
    for column, bad in ((0, np.nan), (84, np.inf)):
        x = np.ones((85, 1), "f2")
        x[column] = bad
        assert (np.isfinite(kernel(x)[:, 0]) == ~stored[:, column]).all()


def test_every_level_and_explain() -> None:
    product = sg.spmm(matrix(161, 1053, 8, 32), n=4)
    k = sg.compile(product, device="h200", backend="emulator", schedule=line(2, 8))
    assert {"tile.multiply_windows", "tile.stage_offsets"} <= set(k.ir("tile").split()) and "warp.shfl" in k.ir("warp")
    told, page = str(k.explain()), k.explain().data
    assert "32 rows of W x 2 columns of x each, 4 rows a warp; 8 KiB of shared memory, by offsets" in told
    assert {term["name"] for term in page["terms"]} == set(REASONS) and k.weights().keys() == {"values", "offsets"}
    assert float(k.cost.formula.xreplace(k.cost.substitution())) == pytest.approx(k.cost.time, rel=1e-9)


def test_what_cannot_be_is_refused() -> None:
    product = sg.spmm(matrix(40, 70, 1, 32, dtype="f32"), n=8)
    long = sg.spmm(sg.sparse(np.zeros((4, 70000), "f4"), format="nm", n=8, m=32), n=8)
    for asked, words, says, hint in (
        (product, line(8, 32), "registers a thread; 1024 threads leave 64", "lower cols or warps"),
        (long, line(8), "2208 windows of x and cols=8", "lower cols"),
        (long, line(), "a block has 232448", "matrices of fewer columns"),
        (product, line(3), "cols=3: there is no such choice", "1, 2, 4, 8"),
        (product, line(layout="rows"), "unknown layout 'rows'", "offsets, windows"),
    ):
        refused(asked, "h200", words, says, hint)
