"""Products with N:M matrices of f32 as outer products of lanes: right for any size, order and schedule; what is packed;
what is refused and said."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.nm_outer import FAMILY
from sparsegen.formats.nm import Nm
from sparsegen.ir.errors import IRError
from sparsegen.ir.kernels.nm_outer import NmOuter
from sparsegen.ir.layout import bank_degree
from sparsegen.ir.numbers.outer import share_of
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.products.outer import packed_entries, packed_lists
from sparsegen.products.outer_cost import REASONS, packed, shape_of
from sparsegen.schedule import SpmmSchedule
from tests.nm_drawn import ORDER, patterns, products, runs_without_a_fault
from tests.nm_kit import encoded, formulas_hold, listed, matrix, packed_alike, pruned, refused
from tests.products_kit import EPILOGUES, ORDERS, called

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
H200 = load_profile("h200")
#: Rows of a vector: lists of 8, 16 and 32 rows; one that no tile is a multiple of.
VECTORS = (8, 16, 24, 32, 40, 64)


def line(rows: int = 32, cols: int = 32, each: int = 4, deep: int = 32, stages: int = 3) -> str:
    return f"nm_outer rows={rows} cols={cols} each={each} deep={deep} stages={stages}"


def f32(m: int, k: int, n: int, width: int, vector: Any = (32, 1), **how: Any) -> Nm:
    return matrix(m, k, n, width, vector, "f32", **how)


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize("vector", VECTORS)
def test_any_vector(vector: int) -> None:
    """Some windows hold less than they may, the last one is short, so is the last tile."""
    called(sg.spmm(f32(75, 90, 4, 16, (vector, 1), fill=0.8), n=20, bias=True), schedule=line(64))


@pytest.mark.parametrize(
    ("n", "width", "k"), [(8, 32, 70), (1, 3, 50), (3, 10, 61), (33, 64, 130), (63, 64, 20), (2, 4, 3)]
)
def test_any_pattern(n: int, width: int, k: int) -> None:
    """Entries of a turn that fill up a piece of the list and others; windows of a turn that k does not have."""
    for deep in (32, 64):
        called(sg.spmm(f32(40, k, n, width), n=16), schedule=line(deep=deep, stages=3))


@pytest.mark.parametrize("n", [1, 4, 17, 36, 72])
def test_any_number_of_columns(n: int) -> None:
    """Those that no piece of 4 divides and those that no tile does."""
    for cols in (32, 64):
        called(sg.spmm(f32(40, 50, 8, 32), n=n), schedule=line(cols=cols))


@pytest.mark.parametrize("m", [1, 7, 8, 31, 33, 65])
def test_any_number_of_rows(m: int) -> None:
    called(sg.spmm(f32(m, 70, 8, 32), n=24, scale=True), schedule=line())


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """An x by columns, or of rows that are no whole pieces, is turned first: its workspace has whole pieces."""
    for m, n in ((64, 24), (37, 13)):
        kernel = called(sg.spmm(f32(m, 70, 8, 32), n=n, bias=True), x_order, y_order, line())
        whole = n == 24 and x_order == "row"
        assert kernel.workspace_nbytes == (0 if n == 24 else -(-70 * 16 * 4 // 256) * 256)
        program = kernel._programs.get(1, Variant(x_order, y_order, 4 if whole else 1))
        assert len(program.warp.launches) == (1 if whole else 2)


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    for order, n in (("row", 32), ("column", 32), ("row", 17)):
        product = sg.spmm(f32(44, 90, 8, 32), n=n, activation=activation, **dict.fromkeys(operands, True))
        called(product, "row", order, line())


LINES = st.tuples(
    st.sampled_from([32, 64]), st.sampled_from([(32, 4), (64, 4), (64, 8), (128, 16)]), st.sampled_from([32, 64]),
    st.integers(3, 4),
)  # fmt: skip


@given(products(patterns((8, 16, 24, 32, 64), (1, 1, 2, 4)), (100, 150, 80), ("f32",)), LINES, ORDER, ORDER)
def test_any_product_runs_without_a_fault(product: Any, words: Any, x_order: str, y_order: str) -> None:
    """Of any vector of eights."""
    rows, (cols, each), deep, stages = words
    runs_without_a_fault(product, line(rows, cols, each, deep, stages), x_order, y_order)


@pytest.mark.parametrize("each", [4, 8, 16])
def test_a_line_is_what_runs(each: int) -> None:
    """The largest tile that fits, of every lane's width: its threads, its shared memory, its declared degrees."""
    words = line(64, 128, each, 64, 3)
    kernel = called(sg.spmm(f32(70, 150, 16, 32), n=140), schedule=words)
    (func,) = kernel._programs.get(1, Variant("row", "row", 4)).warp.funcs
    g = shape_of(SpmmProblem(kernel.product).facts, kernel.schedule, H200)
    assert str(kernel.schedule) == words and kernel.check().ok
    assert (func.threads, func.shared_bytes) == (g.threads, g.shared)


def test_rows_of_lanes_with_lists_of_their_own_meet_in_no_bank() -> None:
    """A quarter of a warp reads 128 adjacent bytes of one row of x, whichever that is: the declared degree is 1."""
    for rows in itertools.permutations((0, 3, 5, 7)):
        assert bank_degree([rows[lane // 8] * 64 + lane % 8 * 4 for lane in range(32)], 4, 4) == 1


# ------------------------------------------------------------------------------------------------ what is packed
#: Sizes, n of m, and rows and columns of a block.
PACKED: list[tuple[int, int, int, int, tuple[int, int]]] = [
    (130, 147, 8, 32, (32, 1)), (70, 90, 6, 9, (8, 3)), (40, 5, 1, 3, (16, 1)), (100, 300, 8, 16, (24, 4)),
    (33, 33, 20, 32, (64, 1)),
]  # fmt: skip


@pytest.mark.parametrize("deep", [32, 64])
@pytest.mark.parametrize("case", PACKED, ids=str)
def test_tiles_hold_what_is_stored(case: Any, deep: int) -> None:
    """Values at the columns that lists name are the matrix; what fills up is zero, and names a column that is kept."""
    m, k, n, width, vector = case
    w, rows = f32(m, k, n, width, vector, fill=0.8), 64
    windows, share = max(1, deep // width), share_of(vector[0])
    turns, entries = -(-k // (width * windows)), windows * n
    tiles = -(-m // rows)
    values = packed_entries(w, rows, deep).reshape(tiles, turns, entries, rows)
    lists = packed_lists(w, rows, deep).reshape(tiles, turns, rows // share, -1)
    assert lists.dtype == np.int32 and lists.shape[-1] == -(-entries // 4) * 4
    dense, stored = np.zeros((tiles * rows, turns * windows * width), "f4"), w.to_dense()
    for tile, turn, entry, row in np.ndindex(values.shape):
        column = turn * windows * width + lists[tile, turn, row // share, entry]
        dense[tile * rows + row, column] += values[tile, turn, entry, row]
    assert np.array_equal(dense[:m, :k], stored) and not dense[m:].any() and not dense[:, k:].any()
    top = np.minimum(windows * width, k - np.arange(turns) * windows * width)
    assert (lists >= 0).all() and (lists < top[None, :, None, None]).all()


@pytest.mark.parametrize("case", PACKED, ids=str)
def test_torch_packs_the_same(case: Any) -> None:
    m, k, n, width, vector = case
    w = pruned(m, k, n, width, vector, "f32", fill=0.9)
    numpy, other = encoded(w, n, width, vector)
    for pack, rows in itertools.product((packed_entries, packed_lists), (32, 128)):
        packed_alike(pack, numpy, other, rows, 32)


def test_bytes_that_the_model_counts_are_those_that_are_packed() -> None:
    for (m, k, *pattern), rows, deep in itertools.product(PACKED, (32, 128), (32, 64)):
        product = sg.spmm(f32(m, k, *pattern), n=8)
        made = sum(pack(product.w, rows, deep).nbytes for pack in (packed_entries, packed_lists))
        assert made == packed(SpmmProblem(product).facts, SpmmSchedule.parse(line(rows, deep=deep)))


# ------------------------------------------------------------------------------------------------ NaN and infinities
def test_a_row_that_is_not_finite_reaches_the_rows_that_store_its_column() -> None:
    """Also where windows of a turn, or columns of the last window, do not exist."""
    w = f32(70, 85, 4, 16, (16, 1))
    kernel = sg.compile(sg.spmm(w, n=8), device="h200", backend="emulator", schedule=line(64, deep=64))
    assert "reaches the rows that store its column" in str(kernel.explain())
    idx = np.asarray(w.arrays["idx"]).reshape(w.groups, w.windows, 4) + 16 * np.arange(w.windows)[:, None]
    for column, bad in ((0, np.nan), (80, np.inf), (84, np.nan)):
        x = np.ones((85, 8), "f4")
        x[column, 1] = bad
        y = kernel(x)
        assert np.isfinite(y[:, [0, *range(2, 8)]]).all()
        stores = np.isin(np.arange(70) // 16, np.flatnonzero((idx == column).any((1, 2))))
        assert (~np.isfinite(y[:, 1]) == stores).all()


# ------------------------------------------------------------------------------------------------ what is said
def test_every_level_can_be_looked_at() -> None:
    product = sg.spmm(f32(70, 100, 8, 32), n=24, bias=True)
    k = sg.compile(product, device="h200", backend="emulator", schedule=line())
    assert "tile.multiply_outer" in k.ir("tile") and "tile.walk_apart" in k.ir("tile") and 'format="nm"' in k.ir("op")
    assert "warp.cp_arrive" in k.ir("warp") and "warp.fma" in k.ir("warp") and str(k.schedule) in k.source()
    assert k.weights().keys() == {"values", "lists"}


def test_explain_speaks_of_tiles() -> None:
    k = sg.compile(sg.spmm(f32(100, 400, 8, 32), n=13), device="h200", backend="emulator", schedule=line(64))
    told, page = str(k.explain()), k.explain().data
    assert "2 tiles of 64 rows x 32 columns, 8 x 4 a lane, each 13 x 8 kept columns; blocks an SM: 1;" in told
    assert {term["name"] for term in page["terms"]} == set(REASONS)
    assert {"nm_outer", "nm_lanes"} <= {family["family"] for family in page["families"]}
    assert k.cost.schedule.rules.operations(k.cost) == 2 * 100 * 13 * 13 * 8  # 13 windows, of which 8 columns are kept


def test_the_formula_is_what_is_chosen_by() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons."""
    costs = listed(sg.spmm(f32(161, 300, 16, 32), n=70), "a100", "nm_outer")
    assert len(costs) > 50
    formulas_hold(costs[::19])


# ------------------------------------------------------------------------------------------------ refusals
def test_what_cannot_run_is_refused_with_a_remedy() -> None:
    w = f32(130, 100, 8, 32)
    for matrix_, words, says, hint in (
        (matrix(64, 64, 8, 32, (32, 1)), "nm_outer", "multiplies f32, not f16", "take nm_gather or nm_lanes"),
        (
            f32(64, 64, 8, 32, (4, 1)),
            "nm_outer",
            "8 rows that share their columns; W's vectors have 4",
            "take nm_lanes",
        ),
        (w, line(256, 128, 16, 128, 4), "do not fit an SM", "lower stages, deep, cols or rows"),
        (w, line(cols=32, each=8), "a warp has 64 columns, which do not divide", "a multiple of 8 times each"),
        (w, line(256, 256, 4), "take 2048 threads", "raise each, or lower rows or cols"),
        (w, line(stages=2), "stages=2 is out of range", "from 3 to 8"),
        (w, line(rows=96), "rows=96: there is no such choice", "32, 64, 128, 256"),
        (w, "nm_outer warps=4", "'warps=4' means nothing", "rows, cols, each, deep, stages"),
    ):
        refused(sg.spmm(matrix_, n=16), "h200", words, says, hint)


@pytest.mark.parametrize("far", [{"m": 60000, "k": 60000}, {"k": 65536, "n": 32767}], ids=str)
def test_what_32_bits_do_not_index_is_refused(far: Any) -> None:
    """Tiles are rounded up to whole rows and turns, rows of x to whole pieces: beyond the elements that W or x has."""
    facts = replace(SpmmProblem(sg.spmm(f32(64, 64, 62, 64), n=16)).facts, **far)
    found = FAMILY.every(facts, H200, {})
    assert not [c for c in found.costs if c.schedule.rows == 256]
    assert any("indices are 32 bits wide" in r.reason and "cut W by rows" in (r.remedy or "") for r in found.rejected)


def test_the_pass_refuses_what_the_family_does() -> None:
    for w, says in (
        (f32(64, 64, 8, 32, (4, 1)), "8 rows that share"),
        (matrix(64, 64, 8, 32, (8, 1)), "numbers of f32"),
    ):
        with pytest.raises(IRError, match=says):
            NmOuter().run(SpmmProblem(sg.spmm(w, n=16)).describe())
