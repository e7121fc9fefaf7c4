"""Products with matrices that keep 2 of 4 columns on sparse tensor cores: right for any size, order, type and schedule;
what is packed; what is refused and said."""

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
from sparsegen.families.spmm.nm_24 import FAMILY
from sparsegen.formats import library
from sparsegen.ir import tile_groups as t
from sparsegen.ir.errors import IRError
from sparsegen.ir.kernels.nm_24 import Nm24
from sparsegen.ir.node import walk
from sparsegen.ir.numbers.groups import COLS
from sparsegen.pipelines import lower
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.products.fours_cost import REASONS, packed
from sparsegen.products.nm_fours import fours, kept_images, kept_words
from tests.nm_drawn import ORDER, products, runs_without_a_fault
from tests.nm_kit import encoded, formulas_hold, listed, matrix, packed_alike, pruned, ran, refused
from tests.products_kit import EPILOGUES, ORDERS, called, launched, program

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
H200 = load_profile("h200")
#: One multiprocessor that runs one block: it has all tiles.
ALONE = replace(H200, sms=1, max_blocks_sm=1)
DTYPES = ("f16", "bf16")
#: n, m and a block of patterns whose aligned fours keep at most 2, whatever is kept.
PATTERNS: list[tuple[int, int, tuple[int, int]]] = [
    (2, 4, (1, 1)), (1, 4, (1, 1)), (1, 2, (1, 1)), (2, 4, (64, 1)), (2, 8, (1, 2)), (1, 3, (7, 1)), (2, 64, (1, 1)),
]  # fmt: skip


def line(rows: int = 64, cols: int = 16, stages: int = 3) -> str:
    return f"nm_24 rows={rows} cols={cols} stages={stages}"


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize(("pattern", "dtype"), list(zip(PATTERNS, itertools.cycle(DTYPES), strict=False)), ids=str)
def test_any_pattern_that_fits(pattern: Any, dtype: str) -> None:
    """Windows that hold less than they may; a last window and a last turn that are short."""
    called(sg.spmm(matrix(200, 210, *pattern, dtype, fill=0.8), n=17, bias=True), schedule=line(128))


@pytest.mark.parametrize("n", [1, 8, 17, 40, 136])
def test_any_number_of_columns(n: int) -> None:
    """Those that no piece of 8 divides and those that no block does; the last block of columns is short."""
    for cols in {16, min(c for c in COLS if c >= n)}:
        called(sg.spmm(matrix(70, 150, 2, 4, (1, 1), DTYPES[n % 2]), n=n), schedule=line(cols=cols))


@pytest.mark.parametrize("m", [1, 63, 64, 65, 257])
def test_any_number_of_rows(m: int) -> None:
    """Less than a tile, a whole one, and one of a single row; one turn, and a last four that is short."""
    for k in (5, 257):
        called(sg.spmm(matrix(m, k, 2, 4), n=24, scale=True), schedule=line(256 if m > 65 else 64))


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """x is taken as it is if its rows, or its columns, are whole pieces; or else turned first."""
    for n, k in ((24, 104), (13, 104), (24, 99)):
        kernel = called(sg.spmm(matrix(130, k, 2, 4, (1, 1), "bf16"), n=n, bias=True), x_order, y_order, line(128))
        whole = (n if x_order == "row" else k) % 8 == 0
        made = kernel._programs.get(1, Variant(x_order, y_order, 8 if whole else 1))
        assert len(made.warp.launches) == (1 if whole else 2)


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    product = sg.spmm(matrix(100, 90, 2, 4), n=40, activation=activation, **dict.fromkeys(operands, True))
    called(product, schedule=line(cols=32))


LINES = st.tuples(st.sampled_from([64, 128, 256]), st.sampled_from([16, 32, 64]), st.integers(2, 5))


@given(products(st.sampled_from(PATTERNS), (300, 200, 80)), LINES, ORDER, ORDER)
def test_any_product_runs_without_a_fault(product: Any, words: Any, x_order: str, y_order: str) -> None:
    """Of any pattern that fits."""
    runs_without_a_fault(product, line(*words), x_order, y_order)


@pytest.mark.parametrize("n", [40, 296])
@pytest.mark.parametrize("stages", [2, 5])
def test_a_block_has_several_tiles(stages: int, n: int) -> None:
    """Its ring goes on from tile to tile: side by side along x, and with many blocks of columns along W."""
    product = sg.spmm(matrix(200, 300, 2, 4), n=n, bias=True)
    for profile in (ALONE, replace(ALONE, sms=7)):
        func, arguments, exact = launched(product, line(64, 32, stages), ("row", "row", 8), profile)
        tile = lower(
            SpmmProblem(product), sg.SpmmSchedule.parse(line(64, 32, stages)), profile, 1, Variant("row", "row", 8)
        ).tile.funcs
        (walk_,) = (op for op in walk(tile) if isinstance(op, t.WalkGroups))
        assert func.grid[0] == walk_.blocks == profile.sms and walk_.fastest == ("cols" if n == 40 else "rows")
        ran(func, arguments, exact, stages)


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("rows", [64, 128])
def test_a_line_is_what_runs(rows: int, cols: int) -> None:
    """Also the widest: 128 sums a thread."""
    kernel = called(sg.spmm(matrix(rows + 8, 70, 2, 4), n=cols + 8), "column", schedule=line(rows, cols, 2))
    assert str(kernel.schedule) == line(rows, cols, 2) and kernel.check().ok


# ------------------------------------------------------------------------------------------------ what is packed
PACKED: list[tuple[int, int, int, int, tuple[int, int]]] = [
    (130, 147, 2, 4, (1, 1)), (200, 64, 1, 4, (1, 1)), (64, 64, 1, 2, (1, 1)), (70, 300, 2, 8, (1, 2)),
    (300, 90, 1, 3, (7, 1)), (1, 5, 2, 4, (1, 1)), (257, 70, 2, 4, (64, 1)),
]  # fmt: skip


@pytest.mark.parametrize("rows", [64, 128, 256])
@pytest.mark.parametrize("case", PACKED, ids=str)
def test_what_threads_find_is_the_matrix(case: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unswizzled byte by byte, and placed as the thread of a row and of 16 columns says: W, each place named once."""
    m, k, *pattern = case
    w = matrix(m, k, *pattern, fill=0.8)
    tiles, turns, parts = -(-m // rows), -(-k // 64), rows // 64
    images, words = kept_images(w, rows), kept_words(w, rows)
    byte = images.view("u1").reshape(tiles, turns, parts, 64 * 64)
    row, element = np.indices((64, 32))
    at = row * 64 + 2 * element
    at ^= (row // 2 % 4) << 4  # the 16-byte pieces of a row of 64 bytes
    kept = np.ascontiguousarray(np.stack([byte[..., at], byte[..., at + 1]], -1)).view("f2")[..., 0]
    given_ = words.view("u4").reshape(tiles, turns, parts, 128)
    found, named = np.zeros((tiles * rows, turns * 64)), np.zeros((tiles * rows, turns * 64), int)
    for row_, element_ in np.ndindex(64, 32):
        half, part, four = element_ // 16, element_ // 8 % 2, element_ // 2 % 4  # product, 16 of its columns, and four
        thread = row_ // 16 * 32 + row_ % 8 * 4 + 2 * half + part
        code = given_[..., thread] >> (row_ // 8 % 2 * 16 + four * 4) & 15
        low, high = code % 4, code // 4
        assert (low < high).all()
        column = 32 * half + 16 * part + 4 * four + (high if element_ % 2 else low)
        for tile, turn, group in np.ndindex(tiles, turns, parts):
            place = tile * rows + group * 64 + row_, turn * 64 + int(column[tile, turn, group])
            found[place] = kept[tile, turn, group, row_, element_]
            named[place] += 1
    assert np.array_equal(found[:m, :k], w.to_dense().astype(float)) and not found[m:].any() and not found[:, k:].any()
    assert named.max() == 1 and (named[:m, :k] >= (w.to_dense() != 0)).all()
    monkeypatch.setattr(library, "HOST_BAND", 1)
    again = matrix(m, k, *pattern, fill=0.8)
    assert np.array_equal(kept_images(again, rows), images) and np.array_equal(kept_words(again, rows), words)


@pytest.mark.parametrize("case", PACKED, ids=str)
def test_torch_packs_the_same(case: Any) -> None:
    m, k, n, width, vector = case
    for dtype in DTYPES:
        w = pruned(m, k, n, width, vector, dtype, fill=0.9)
        numpy, other = encoded(w, n, width, vector)
        for rows in (64, 256):
            for pack in (kept_images, kept_words):
                packed_alike(pack, numpy, other, rows)


def test_bytes_that_the_model_counts_are_those_that_are_packed() -> None:
    for m, k, *pattern in PACKED:
        product = sg.spmm(matrix(m, k, *pattern), n=8)
        for rows in (64, 256):
            made = sum(pack(product.w, rows).nbytes for pack in (kept_images, kept_words))
            assert made == packed(SpmmProblem(product).facts, rows)


def test_a_zero_with_a_sign_and_what_is_not_finite_are_kept() -> None:
    w = np.zeros((64, 64), "f2")
    w[0, :4], w[1, 60:] = (0, np.nan, -0.0, 0), (np.inf, 0, 0, -1)
    kept = kept_images(sg.sparse(w, format="nm", n=2, m=4), 64)
    assert kept[:2].view("u2").tolist() == w[0, 1:3].view("u2").tolist()
    assert np.isinf(kept).sum() == 1 and (kept == -1).sum() == 1


# ------------------------------------------------------------------------------------------------ which fit
def test_which_matrices_fit() -> None:
    """By their pattern, or by what they keep where the pattern does not tell."""
    for pattern in PATTERNS:
        assert fours(matrix(70, 90, *pattern)), pattern
    for n, m in ((2, 5), (3, 8), (8, 32), (16, 32)):
        assert not fours(matrix(70, 90, n, m)), (n, m)
    even = np.tile(np.arange(32) % 4 < 2, (70, 3)).astype("f2")
    w = sg.sparse(even, format="nm", n=16, m=32)
    assert fours(w)
    called(sg.spmm(w, n=17), schedule=line())
    late = even.copy()
    late[69, 92:] = (1, 1, 1, 0)
    late[69, 64] = 0
    assert not fours(sg.sparse(late, format="nm", n=16, m=32))


# ------------------------------------------------------------------------------------------------ NaN and infinities
def test_what_is_not_finite_reaches_no_more_rows_than_is_said() -> None:
    w = matrix(130, 100, 2, 4, fill=0.7)
    kernel = sg.compile(sg.spmm(w, n=16), device="h200", backend="emulator", schedule=line(128))
    assert "rows that keep its column, and rows that keep fewer than 2 of its 4 columns" in str(kernel.explain())
    dense = w.to_dense() != 0
    for column, bad in ((0, np.nan), (63, np.inf), (99, np.nan)):
        x = np.ones((100, 16), "f2")
        x[column, 1] = bad
        y = kernel(x)
        assert np.isfinite(y[:, [0, *range(2, 16)]]).all()
        few = dense[:, column // 4 * 4 :][:, :4].sum(1) < 2
        reached = ~np.isfinite(y[:, 1])
        assert 0 < reached.sum() < 130
        assert (reached >= dense[:, column]).all() and (reached <= (dense[:, column] | few)).all()


# ------------------------------------------------------------------------------------------------ what is said
def test_every_level_can_be_looked_at() -> None:
    product = sg.spmm(matrix(130, 100, 2, 4), n=24, bias=True)
    k = sg.compile(product, device="h200", backend="emulator", schedule=line())
    assert "tile.walk_groups" in k.ir("tile") and "tile.multiply_fours" in k.ir("tile") and 'format="nm"' in k.ir("op")
    assert "warp.wgmma_sp" in k.ir("warp") and str(k.schedule) in k.source()
    assert k.weights().keys() == {"kept", "words"}


def test_explain_speaks_of_tiles() -> None:
    k = sg.compile(sg.spmm(matrix(300, 400, 2, 4), n=13), device="h200", backend="emulator", schedule=line(128))
    told, page = str(k.explain()), k.explain().data
    assert "3 tiles of 128 rows x 16 columns, each 7 x 64 columns of W; blocks an SM: 1;" in told
    assert {term["name"] for term in page["terms"]} == set(REASONS)
    assert {"nm_24", "nm_gather", "nm_lanes"} <= {family["family"] for family in page["families"]}
    assert k.cost.schedule.rules.operations(k.cost) == 2 * 300 * 13 * 200


def test_the_formula_is_what_is_chosen_by() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons."""
    formulas_hold(listed(sg.spmm(matrix(161, 300, 2, 4), n=70), "h200", "nm_24")[::9])


# ------------------------------------------------------------------------------------------------ refusals
def test_what_cannot_run_is_refused_with_a_remedy() -> None:
    w = matrix(130, 100, 2, 4)
    for matrix_, device, words, says, hint in (
        (matrix(64, 64, 2, 4, dtype="f32"), "h200", "nm_24", "multiplies f16 and bf16, not f32", "take nm_lanes"),
        (w, "a100", "nm_24", "by warpgroups, which NVIDIA A100 (sm_80) has not", "or a Hopper device"),
        (matrix(64, 64, 8, 32), "h200", "nm_24", "W (8:32) keeps more than 2 of 4", "prune it as n=2, m=4"),
        (w, "h200", "nm_24 rows=256 cols=256 stages=2", "registers a thread do not fit an SM", "lower stages, cols"),
        (w, "h200", "nm_24 stages=16 cols=128", "do not fit an SM", "lower stages, cols or rows"),
        (w, "h200", "nm_24 stages=1", "stages=1 is out of range", "from 2 to 16"),
        (w, "h200", "nm_24 rows=96", "rows=96: there is no such choice", "64, 128, 256"),
        (w, "h200", "nm_24 cols=8", "cols=8: there is no such choice", "16, 32, 64, 128, 256"),
    ):  # fmt: skip
        refused(sg.spmm(matrix_, n=16), device, words, says, hint)


@pytest.mark.parametrize("far", [{"m": 65665, "k": 65472}, {"k": 65536, "n": 32767}], ids=str)
def test_what_32_bits_do_not_index_is_refused(far: Any) -> None:
    """Tiles are rounded up to whole rows and turns, rows of x to whole pieces: beyond the elements that W or x has."""
    facts = replace(SpmmProblem(sg.spmm(matrix(64, 64, 2, 4), n=16)).facts, **far)
    found = FAMILY.every(facts, H200, {})
    assert not [c for c in found.costs if c.schedule.rows == 128]
    assert any("indices are 32 bits wide" in r.reason and "cut W by rows" in (r.remedy or "") for r in found.rejected)


def test_a_kernel_of_another_type_or_format_is_refused() -> None:
    module = program(sg.spmm(matrix(64, 64, 2, 4, dtype="f32"), n=8), "nm_lanes cols=8 warps=1x4").op
    with pytest.raises(IRError, match="multiplies 16-bit numbers, not f32"):
        Nm24().run(module)
