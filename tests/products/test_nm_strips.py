"""Products with N:M matrices whose strips find their rows of x in a shared tile: right for any size, order, type,
schedule and GPU; what is packed; what is refused and said."""

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
from sparsegen.families.spmm.nm_strips import FAMILY
from sparsegen.formats import library
from sparsegen.ir.errors import IRError, ScheduleError
from sparsegen.ir.kernels.nm_strips import NmStrips
from sparsegen.ir.layout import bank_degree
from sparsegen.ir.numbers.strips import STRIPS
from sparsegen.problems.product import SpmmProblem
from sparsegen.products.nm_strips import Strips, strip_places, strip_values, window_rows
from sparsegen.products.strips_cost import REASONS, packed
from sparsegen.schedule import SpmmSchedule
from tests.nm_drawn import ORDER, patterns, products
from tests.nm_kit import encoded, formulas_hold, listed, matrix, packed_alike, pruned, ran, refused
from tests.products_kit import EPILOGUES, ORDERS, called, launched, turned_first

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
DEVICES = ("h200", "a100", "rtx4090")
DTYPES = ("f16", "bf16")
#: Rows of a vector: of a strip, of two and of four, of a half and of a quarter, of one and a half, of one row.
VECTORS = (32, 64, 128, 16, 8, 48, 24, 1)


def line(strip: int = 32, warps: str = "2x1", cols: int = 16, kept: int = 16, stages: int = 3) -> str:
    return f"nm_strips strip={strip} warps={warps} cols={cols} kept={kept} stages={stages}"


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize(("vector", "dtype"), list(zip(VECTORS, itertools.cycle(DTYPES), strict=False)))
def test_any_vector(vector: int, dtype: str) -> None:
    """Rows of a strip that do not share their columns keep those of all; some windows hold less than they may."""
    w = matrix(150, 210, 4, 16, (vector, 1), dtype, fill=0.8)
    for strip, device in zip(STRIPS, DEVICES, strict=True):
        called(sg.spmm(w, n=17, bias=True), schedule=line(strip), device=device)


@pytest.mark.parametrize("n", [1, 8, 17, 40, 136])
def test_any_number_of_columns(n: int) -> None:
    """Those that no piece of 8 divides and those that no block does; the last block of columns is short."""
    for words in (line(), line(16, "2x2", 64), line(32, "4x1", 128, 32)):
        called(sg.spmm(matrix(70, 150, 8, 32, (32, 1), DTYPES[n % 2]), n=n), schedule=words)


@pytest.mark.parametrize("m", [1, 31, 32, 33, 65])
def test_any_number_of_rows(m: int) -> None:
    """Less than a strip, whole ones, and one of a single row; one turn, and a last window that is short."""
    for k in (5, 257):
        called(sg.spmm(matrix(m, k, 8, 32, (32, 1)), n=24, scale=True), schedule=line())


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """An x by columns, or of rows that are no whole pieces, is turned first: its workspace has whole pieces."""
    for n, dtype in ((24, "bf16"), (13, "f16")):
        product = sg.spmm(matrix(130, 100, 8, 32, (32, 1), dtype), n=n, bias=True)
        turned_first(product, line(), (x_order, y_order), n == 24)


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    """Of strips of four fragments, and of warps side by side, which store other columns."""
    product = sg.spmm(matrix(100, 90, 8, 32, (64, 1)), n=40, activation=activation, **dict.fromkeys(operands, True))
    called(product, schedule=line(64, "1x2", 64))


@st.composite
def lines(draw: st.DrawFn) -> str:
    warps = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (2, 2), (1, 4)]))
    cols = draw(st.sampled_from([c for c in (16, 32, 64) if c % (16 * warps[1]) == 0]))
    return line(draw(st.sampled_from(STRIPS)), "x".join(map(str, warps)), cols, 16, draw(st.integers(2, 5)))


@given(
    products(patterns((1, 2, 16, 24, 32, 48, 64, 65), (1, 1, 2, 4)), (150, 200, 80)), lines(), ORDER, ORDER,
    st.sampled_from(DEVICES),
)  # fmt: skip
def test_any_product_runs_without_a_fault(product: Any, words: str, x_order: str, y_order: str, device: str) -> None:
    """Right, with nothing that a checker finds: no race, and no bank conflict beyond those that are declared."""
    try:
        kernel = called(product, x_order, y_order, words, device)
    except ScheduleError as e:
        # of few warps a thread would copy too many, and a small GPU has not the shared memory of large slots
        assert "pieces of" in str(e) or "of shared memory" in str(e)
        return
    report = kernel.check()
    assert report.ok and not report.notes, f"{product} {words}: {report}"


@pytest.mark.parametrize("n", [40, 136])
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_a_block_has_several_tiles(stages: int, n: int) -> None:
    """Its ring goes on from tile to tile, in blocks that have a tile less than others too."""
    product = sg.spmm(matrix(200, 300, 8, 32, (32, 1)), n=n, bias=True)
    for sms in (1, 2, 7):
        profile = replace(load_profile("a100"), sms=sms, max_blocks_sm=1)
        func, arguments, exact = launched(product, line(32, "2x1", 16, 32, stages), ("row", "row", 8), profile)
        assert func.grid[0] == sms
        ran(func, arguments, exact, stages)


# ------------------------------------------------------------------------------------------------ what is packed
#: Sizes, n of m, and rows and columns of a block: vectors that cross strips, blocks of columns, short last windows.
PACKED: list[tuple[int, int, int, int, tuple[int, int]]] = [
    (130, 147, 8, 32, (64, 1)), (200, 147, 3, 10, (96, 1)), (64, 64, 16, 32, (16, 1)), (70, 147, 2, 4, (1, 1)),
    (129, 300, 8, 16, (32, 4)), (150, 90, 6, 9, (7, 3)), (1, 5, 1, 3, (1, 1)), (257, 70, 63, 64, (192, 1)),
]  # fmt: skip
CUTS = (Strips(16, 2, 16), Strips(32, 4, 32), Strips(64, 1, 64))


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("case", PACKED, ids=str)
def test_strips_find_what_is_stored(case: Any, cut: Strips, monkeypatch: pytest.MonkeyPatch) -> None:
    """W itself comes out of the fragments of an mma, the places of their columns, and the rows of x that lie there."""
    m, k, n, width, vector = case
    w = matrix(*case, fill=0.8)
    values, places, rows = (pack(w, cut) for pack in (strip_values, strip_places, window_rows))
    turn = cut.turn(w)
    assert turn.windows * (n if vector[0] % cut.strip == 0 else 1) <= max(cut.kept, width) and turn.rows % 8 == 0
    tiles, deep, high = -(-m // (cut.strip * cut.down)), turn.depth // 16, cut.strip // 16
    found = np.zeros((tiles * cut.down * cut.strip, k), "f4")
    shape = (tiles, -1, cut.down)
    fragments = values.view("f2").reshape(*shape, deep, high, 32, 8)
    places, lists = places.reshape(*shape, turn.depth), rows.reshape(tiles, -1, turn.rows)
    lane, element = np.indices((32, 8))
    # of PTX's fragment A of m16n8k16: rows lane / 4 and 8 more, columns 2 * (lane mod 4), the next, and 8 more
    row, column = lane // 4 + element // 2 % 2 * 8, lane % 4 * 2 + element % 2 + element // 4 * 8
    for tile, number, strip, j, i in np.ndindex(fragments.shape[:5]):
        named = lists[tile, number, places[tile, number, strip, j * 16 + column]]
        assert (named < k).all()  # of what fills it up, too: a row that is not there would be read
        first = (tile * cut.down + strip) * cut.strip + i * 16
        np.add.at(found, (first + row, named), fragments[tile, number, strip, j, i].astype("f4"))
    assert np.array_equal(found[:m], w.to_dense().astype("f4")) and not found[m:].any()
    assert (lists // (turn.windows * width) == np.arange(lists.shape[1])[:, None]).all()  # of the turn's own windows
    monkeypatch.setattr(library, "HOST_BAND", 1)
    again = matrix(*case, fill=0.8)
    for pack, made in ((strip_values, values), (strip_places, places), (window_rows, rows)):
        assert np.array_equal(pack(again, cut), made.reshape(-1))


@pytest.mark.parametrize("case", PACKED, ids=str)
def test_torch_packs_the_same(case: Any) -> None:
    m, k, n, width, vector = case
    for dtype in DTYPES:
        w = pruned(m, k, n, width, vector, dtype, fill=0.9)
        numpy, other = encoded(w, n, width, vector)
        for cut, pack in itertools.product(CUTS, (strip_values, strip_places, window_rows)):
            packed_alike(pack, numpy, other, cut)


def test_bytes_that_the_model_counts_are_those_that_are_packed() -> None:
    for m, k, *pattern in PACKED[::2]:
        product = sg.spmm(matrix(m, k, *pattern), n=8)
        for cut in CUTS:
            made = sum(pack(product.w, cut).nbytes for pack in (strip_values, strip_places, window_rows))
            schedule = SpmmSchedule.parse(line(cut.strip, f"{cut.down}x1", 16, cut.kept))
            assert made == packed(SpmmProblem(product).facts, schedule)


@pytest.mark.parametrize(("kept", "cut", "most"), [
    (8, Strips(32, 8, 32), 1.25), (16, Strips(32, 8, 32), 1.35), (4, Strips(32, 8, 16), 1.3),
    (8, Strips(64, 4, 32), 1.25), (8, Strips(16, 16, 32), 1.45),
])  # fmt: skip
def test_eight_rows_that_are_read_at_once_lie_in_different_banks(kept: int, cut: Strips, most: float) -> None:
    """Or nearly: as columns lie in W they would take 1.7 to 2.3 passes."""
    w = matrix(cut.strip * cut.down, 512, kept, 32, (cut.strip, 1))
    places = strip_places(w, cut).reshape(-1, 8)
    degrees = [bank_degree([row * 64 + (row % 8) * 8 for row in eight.tolist()], 2, 8) for eight in places]
    assert np.mean(degrees) <= most and max(degrees) <= 4


# ------------------------------------------------------------------------------------------------ NaN and infinities
def test_a_row_that_is_not_finite_reaches_the_strips_that_keep_its_column() -> None:
    w = matrix(150, 100, 4, 16, (32, 1))
    kernel = sg.compile(sg.spmm(w, n=16), device="a100", backend="emulator", schedule=line())
    assert "reaches all rows of the strips that keep its column" in str(kernel.explain())
    idx = np.asarray(w.arrays["idx"]).reshape(-1, 7, 4)
    for column, bad in ((0, np.nan), (63, np.inf), (99, np.nan)):
        x = np.ones((100, 16), "f2")
        x[column, 1] = bad
        y = kernel(x)
        assert np.isfinite(y[:, [0, *range(2, 16)]]).all()
        reached = [strip for strip, own in enumerate(idx) if column % 16 in own[column // 16]]
        assert (~np.isfinite(y[:, 1]) == np.isin(np.arange(150) // 32, reached)).all()


# ------------------------------------------------------------------------------------------------ what is said
def test_every_level_can_be_looked_at() -> None:
    product = sg.spmm(matrix(130, 100, 8, 32, (32, 1)), n=24, bias=True)
    k = sg.compile(product, device="a100", backend="emulator", schedule=line())
    assert "tile.walk" in k.ir("tile") and "tile.multiply_strips" in k.ir("tile") and 'format="nm"' in k.ir("op")
    assert "warp.ldmatrix" in k.ir("warp") and "warp.mma" in k.ir("warp") and str(k.schedule) in k.source()
    assert k.weights().keys() == {"values", "places", "rows"}


def test_explain_speaks_of_tiles() -> None:
    product = sg.spmm(matrix(300, 400, 8, 32, (32, 1)), n=13)
    k = sg.compile(product, device="a100", backend="emulator", schedule=line())
    told, page = str(k.explain()), k.explain().data
    assert "5 tiles of 64 rows x 16 columns, each 7 turns of 16 kept columns of 64; blocks an SM: 1;" in told
    assert "(x, row by row and of whole pieces)" in told
    assert {term["name"] for term in page["terms"]} == set(REASONS)
    assert k.cost.schedule.rules.operations(k.cost) == 2 * 300 * 13 * 13 * 8  # 13 windows, of which 8 columns are kept


def test_the_formula_is_what_is_chosen_by() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons."""
    product = sg.spmm(matrix(161, 300, 16, 32, (64, 1)), n=70)
    formulas_hold(listed(product, "h200", "nm_strips")[::97])


# ------------------------------------------------------------------------------------------------ refusals
def test_what_cannot_run_is_refused_with_a_remedy() -> None:
    w, own = matrix(130, 100, 8, 32, (32, 1)), matrix(130, 100, 8, 32)
    wide = matrix(64, 65600, 1, 64, (64, 1))
    for matrix_, device, words, says, hint in (
        (matrix(64, 64, 8, 32, dtype="f32"), "h200", "nm_strips", "multiplies f16 and bf16, not f32", "take nm_lanes"),
        (w, "v100", "nm_strips", "which NVIDIA V100 (sm_70) has not", "a GPU from Ampere on"),
        (wide, "h200", "nm_strips", "W has 65600 columns; lists of 16 bits name 65536", "cut W by columns"),
        (w, "a100", line(32, "8x1", 128, 32, 5), "186880 bytes of shared memory", "lower stages, cols or kept"),
        (w, "h200", line(64, "4x1", 128), "a thread has 256 sums, 128 at most", "take more warps"),
        (own, "h200", line(16, "1x1", 128, 64), "copies pieces of 32 rows of x a turn, 16 at most", "lower cols"),
        (w, "h200", "nm_strips warps=16x4", "2048 threads", "32 warps in all"),
        (w, "h200", "nm_strips warps=1x4 cols=32", "no whole fragments of 16 columns for each of 4", "raise cols"),
        (w, "h200", "nm_strips stages=1", "stages=1 is out of range", "from 2 to 16"),
        (w, "h200", "nm_strips strip=24", "strip=24: there is no such choice", "16, 32, 64"),
    ):  # fmt: skip
        refused(sg.spmm(matrix_, n=16), device, words, says, hint)


def test_what_is_listed_can_run_there() -> None:
    """From Ampere on those that fit an SM, of f32 none."""
    w = matrix(130, 100, 8, 32, (32, 1))

    def many(w: Any, device: str) -> int:
        return len(listed(sg.spmm(w, n=300), device, "nm_strips"))

    assert not many(matrix(130, 100, 8, 32, (32, 1), "f32"), "h200")
    assert 50 < many(w, "rtx4090") < many(w, "a100") < many(w, "h200")


@pytest.mark.parametrize("far", [{"m": 65665, "k": 65536}, {"k": 65536, "n": 32767}], ids=str)
def test_what_32_bits_do_not_index_is_refused(far: Any) -> None:
    """Strips are rounded up to whole tiles and turns, rows of x to whole pieces."""
    facts = replace(SpmmProblem(sg.spmm(matrix(64, 64, 63, 64, (64, 1)), n=16)).facts, **far)
    found = FAMILY.every(facts, load_profile("h200"), {})
    assert not found.costs and any(
        "indices are 32 bits wide" in r.reason and "cut W by rows" in (r.remedy or "") for r in found.rejected
    )


def test_the_pass_refuses_another_type() -> None:
    module = SpmmProblem(sg.spmm(matrix(64, 64, 8, 32, dtype="f32"), n=16)).describe()
    with pytest.raises(IRError, match="16-bit numbers, not f32"):
        NmStrips().run(module)
