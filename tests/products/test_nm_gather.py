"""Products with N:M matrices whose rows of x are gathered for warpgroups: right for any size, order, type and schedule;
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
from sparsegen.families.spmm.nm_gather import FAMILY
from sparsegen.formats import library
from sparsegen.formats.nm import Nm
from sparsegen.ir import tile_groups as t
from sparsegen.ir.errors import IRError
from sparsegen.ir.kernels.nm_gather import NmGather
from sparsegen.ir.node import walk
from sparsegen.ir.numbers.groups import COLS
from sparsegen.pipelines import lower
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.products.gather_cost import REASONS, packed
from sparsegen.products.nm_tiles import row_lists, steps_of, tile_images
from sparsegen.schedule import SpmmSchedule
from tests.nm_drawn import ORDER, patterns, products, runs_without_a_fault
from tests.nm_kit import encoded, formulas_hold, listed, matrix, packed_alike, pruned, ran, refused
from tests.products_kit import ORDERS, agrees, called, launched, operands

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
H200 = load_profile("h200")
#: One multiprocessor that runs one block: it has all tiles.
ALONE = replace(H200, sms=1, max_blocks_sm=1)
DTYPES = ("f16", "bf16")
#: Rows of a vector: of a tile, of a half of it, of one and a half, of two and of no whole tile at all.
VECTORS = (64, 128, 96, 32, 40, 1, 192)


def line(rows: int = 64, cols: int = 16, stages: int = 3) -> str:
    return f"nm_gather rows={rows} cols={cols} stages={stages}"


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize(("vector", "dtype"), list(zip(VECTORS, itertools.cycle(DTYPES), strict=False)))
def test_any_vector(vector: int, dtype: str) -> None:
    """Rows of a tile that do not share their columns keep those of all; some windows hold less than they may."""
    w = matrix(200, 210, 4, 16, (vector, 1), dtype, fill=0.8)
    for rows in (64, 128):
        called(sg.spmm(w, n=17, bias=True), schedule=line(rows))


@pytest.mark.parametrize("n", [1, 8, 17, 40, 136])
def test_any_number_of_columns(n: int) -> None:
    """Those that no piece of 8 divides and those that no block does; the last block of columns is short."""
    for cols in {16, min(c for c in COLS if c >= n)}:
        called(sg.spmm(matrix(70, 150, 8, 32, (64, 1), DTYPES[n % 2]), n=n), schedule=line(cols=cols))


@pytest.mark.parametrize("m", [1, 63, 64, 65, 129])
def test_any_number_of_rows(m: int) -> None:
    """Less than a tile, a whole one, and one of a single row; one turn, and a last window that is short."""
    for k in (5, 257):
        called(sg.spmm(matrix(m, k, 8, 32, (64, 1)), n=24, scale=True), schedule=line(rows=64 if m < 65 else 128))


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """An x by columns, or of rows that are no whole pieces, is turned first: its workspace has whole pieces."""
    for n, dtype in ((24, "bf16"), (13, "f16")):
        kernel = called(sg.spmm(matrix(130, 100, 8, 32, (64, 1), dtype), n=n, bias=True), x_order, y_order, line(128))
        assert kernel.workspace_nbytes == (0 if n == 24 else -(-100 * 16 * 2 // 256) * 256)
        whole = n == 24 and x_order == "row"
        program = kernel._programs.get(1, Variant(x_order, y_order, 8 if whole else 1))
        assert len(program.warp.launches) == (1 if whole else 2)


@pytest.mark.parametrize(("m", "n", "anew"), [(704, 24, False), (705, 24, True), (705, 16, False), (705, 64, False)])
def test_rows_that_straddle_lines_are_written_anew(m: int, n: int, anew: bool) -> None:
    """Where they are gathered twelve times or more; the model knows."""
    kernel = called(sg.spmm(matrix(m, 64, 32, 64, (64, 1)), n=n), schedule=line(cols=16))
    program = kernel._programs.get(1, Variant("row", "row", 8))
    assert len(program.warp.launches) == 1 + anew == 1 + (kernel.cost.terms["turn"] > 0)
    assert bool(kernel.workspace_nbytes) == anew and kernel.check().ok


@pytest.mark.parametrize(("activation", "operands"), [
    (None, ()), ("relu", ("bias",)), ("gelu", ("scale", "bias", "residual")), ("silu", ("residual",)),
    (None, ("scale", "residual")), ("relu", ("scale",)),
])  # fmt: skip
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    """Lanes exchange pairs of sums for 16 bytes of a row; with a residual, which is added before rounding, none do."""
    product = sg.spmm(matrix(100, 90, 8, 32, (64, 1)), n=40, activation=activation, **dict.fromkeys(operands, True))
    kernel = called(product, schedule=line(cols=32))
    (store,) = [
        op for op in walk(kernel._programs.get(1, Variant("row", "row", 8)).tile.funcs) if isinstance(op, t.StoreTile)
    ]
    assert store.vec == (2 if "residual" in operands else 8)


@pytest.mark.parametrize(("m", "vec"), [(72, 8), (66, 2), (65, 1)])
@pytest.mark.parametrize("k", [72, 136])
def test_a_linear_layer_has_x_and_y_by_columns(m: int, vec: int, k: int) -> None:
    """x is turned by whole pieces; 8x8 matrices of sums are transposed, so that adjacent rows of y go at once."""
    kernel = called(sg.spmm(matrix(m, k, 8, 32, (64, 1)), n=41, bias=True), "column", "column", line(128, 32))
    ops = list(walk(kernel._programs.get(1, Variant("column", "column", 8)).tile.funcs))
    assert [op.vec for op in ops if isinstance(op, t.StoreTile)] == [vec]
    assert any(isinstance(op, t.TurnPieces) for op in ops) and kernel.check().ok


LINES = st.tuples(st.sampled_from([64, 128]), st.sampled_from([16, 32, 64]), st.integers(2, 5))


@given(products(patterns((1, 2, 32, 48, 64, 65, 96, 128), (1, 1, 2, 4))), LINES, ORDER, ORDER)
def test_any_product_runs_without_a_fault(product: Any, words: Any, x_order: str, y_order: str) -> None:
    runs_without_a_fault(product, line(*words), x_order, y_order)


@pytest.mark.parametrize("n", [40, 296])
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_a_block_has_several_tiles(stages: int, n: int) -> None:
    """Its rings and lists go on from tile to tile: side by side along x, and with many blocks of columns along W."""
    product = sg.spmm(matrix(200, 300, 8, 32, (64, 1)), n=n, bias=True)
    for profile in (ALONE, replace(ALONE, sms=2), replace(ALONE, sms=7)):
        func, arguments, exact = launched(product, line(64, 32, stages), ("row", "row", 8), profile)
        (walk_,) = (op for op in walk(_tile(product, line(64, 32, stages), profile)) if isinstance(op, t.WalkGroups))
        assert func.grid[0] == walk_.blocks == profile.sms and walk_.fastest == ("cols" if n == 40 else "rows")
        ran(func, arguments, exact, stages)


@pytest.mark.parametrize("stages", [2, 3, 8])
def test_tiles_of_w_come_before_a_turned_x(stages: int) -> None:
    """For the slots' first turns, of which there may be fewer than slots; not for those of a block's next tiles."""
    product = sg.spmm(matrix(200, 300, 8, 32, (64, 1)), n=41, bias=True)
    kernel = sg.compile(product, device=ALONE, backend="emulator", schedule=line(64, 16, stages))
    given = operands(product)
    kernel(**given)
    agrees(given["out"], product, given)
    report = kernel.check()
    assert report.ok and not report.notes, str(report)


def _tile(product: Any, words: str, profile: Any) -> Any:
    schedule = SpmmSchedule.parse(words)
    return lower(SpmmProblem(product), schedule, profile, 1, Variant("row", "row", 8)).tile.funcs


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("rows", [64, 128])
def test_a_line_is_what_runs(rows: int, cols: int) -> None:
    """Also the widest: 128 sums a thread."""
    kernel = called(sg.spmm(matrix(rows + 8, 70, 8, 32, (rows, 1)), n=cols + 8), schedule=line(rows, cols, 2))
    assert str(kernel.schedule) == line(rows, cols, 2) and kernel.check().ok


def test_gelu_of_the_widest_tile_takes_registers_of_those_that_copy() -> None:
    product = sg.spmm(matrix(136, 200, 8, 32, (128, 1)), n=264, bias=True, activation="gelu")
    kernel = called(product, schedule=line(128, 256, 2))
    assert kernel.ir("warp").count("warp.set_registers") == 2 and kernel.check().ok
    assert "setmaxnreg_inc<232>();" in kernel.source() and "setmaxnreg_dec<40>();" in kernel.source()
    assert "set_registers" not in called(product, schedule=line(128, 128, 2)).ir("warp")


# ------------------------------------------------------------------------------------------------ what is packed
#: Sizes, n of m, and rows and columns of a block: vectors that cross tiles, blocks of columns, short last windows.
PACKED: list[tuple[int, int, int, int, tuple[int, int]]] = [
    (130, 147, 8, 32, (64, 1)), (200, 147, 3, 10, (96, 1)), (64, 64, 16, 32, (128, 1)), (70, 147, 2, 4, (1, 1)),
    (129, 300, 8, 16, (32, 4)), (300, 90, 6, 9, (7, 3)), (1, 5, 1, 3, (1, 1)), (257, 70, 63, 64, (192, 1)),
]  # fmt: skip


def kept(w: Nm, rows: int) -> list[list[int]]:
    """The columns that any row of each tile stores, from the definition of the format."""
    (m, k), (r, c), found = w.shape, w.vector, []
    idx = np.asarray(w.arrays["idx"]).reshape(w.groups, w.windows, w.n // c)
    for begin in range(0, m, rows):
        own = {
            window * w.m + int(block) * c + e
            for group in {row // r for row in range(begin, min(begin + rows, m))}
            for window in range(w.windows) for block in idx[group, window] for e in range(c)
        }  # fmt: skip
        found.append(sorted(column for column in own if column < k))
    return found


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("case", PACKED, ids=str)
def test_tiles_hold_what_is_stored(case: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tile lists the columns that its rows store; its images, unswizzled byte by byte, are W's values there."""
    m, k, *pattern = case
    w = matrix(m, k, *pattern, fill=0.8)
    columns = kept(w, rows)
    steps = -(-max(map(len, columns)) // 64)
    assert steps_of(w, rows) <= steps + (w.vector[0] % rows == 0 and k % w.m > 0) and steps_of(w, rows) >= steps
    lists, images = row_lists(w, rows), tile_images(w, rows)
    size = 64 * steps_of(w, rows)
    for tile, own in enumerate(columns):
        listed = lists.view("u2")[tile * size :][:size]
        assert listed[: len(own)].tolist() == own and (listed[len(own) :] == (own or [0])[-1]).all()
    dense = np.zeros((len(columns) * rows, k), "f2")
    dense[:m] = w.to_dense()
    found = np.zeros((len(columns) * rows, size), "f2")
    byte = images.view("u1").reshape(len(columns), size // 64, rows // 64, 64 * 128)
    row, column = np.indices((64, 64))
    at = row * 128 + 2 * column
    at ^= (row % 8) << 4  # the 16-byte pieces of a row of 128 bytes
    for tile, step, part in np.ndindex(byte.shape[:3]):
        tile_rows = slice(tile * rows + part * 64, tile * rows + part * 64 + 64)
        pairs = np.stack([byte[tile, step, part][at], byte[tile, step, part][at + 1]], -1)
        found[tile_rows, step * 64 : step * 64 + 64] = np.ascontiguousarray(pairs).view("f2")[..., 0]
    for tile, own in enumerate(columns):
        here = slice(tile * rows, tile * rows + rows)
        assert np.array_equal(found[here, : len(own)], dense[here][:, own]) and not found[here, len(own) :].any()
    monkeypatch.setattr(library, "HOST_BAND", 1)
    again = matrix(m, k, *pattern, fill=0.8)
    assert np.array_equal(tile_images(again, rows), images) and np.array_equal(row_lists(again, rows), lists)


@pytest.mark.parametrize("case", PACKED, ids=str)
def test_torch_packs_the_same(case: Any) -> None:
    m, k, n, width, vector = case
    for dtype in DTYPES:
        w = pruned(m, k, n, width, vector, dtype, fill=0.9)
        numpy, other = encoded(w, n, width, vector)
        for rows in (64, 128):
            assert steps_of(numpy, rows) == steps_of(other, rows)
            for pack in (row_lists, tile_images):
                packed_alike(pack, numpy, other, rows)


def test_bytes_that_the_model_counts_are_those_that_are_packed() -> None:
    for m, k, *pattern in PACKED:
        product = sg.spmm(matrix(m, k, *pattern), n=8)
        for rows in (64, 128):
            made = sum(pack(product.w, rows).nbytes for pack in (row_lists, tile_images))
            assert made == packed(SpmmProblem(product).facts, rows)


# ------------------------------------------------------------------------------------------------ NaN and infinities
def test_a_row_that_is_not_finite_reaches_the_tiles_that_list_its_column() -> None:
    w = matrix(200, 100, 4, 16, (64, 1))
    kernel = sg.compile(sg.spmm(w, n=16), device="h200", backend="emulator", schedule=line(128))
    assert "reaches all rows of the tiles that list its column" in str(kernel.explain())
    tiles = kept(w, 128)
    for column, bad in ((0, np.nan), (63, np.inf), (99, np.nan), (tiles[0][-1], np.inf)):
        x = np.ones((100, 16), "f2")
        x[column, 1] = bad
        y = kernel(x)
        assert np.isfinite(y[:, [0, *range(2, 16)]]).all()
        reached = [tile for tile, own in enumerate(tiles) if column in own]
        assert (~np.isfinite(y[:, 1]) == np.isin(np.arange(200) // 128, reached)).all()


# ------------------------------------------------------------------------------------------------ what is said
def test_every_level_can_be_looked_at() -> None:
    product = sg.spmm(matrix(130, 100, 8, 32, (64, 1)), n=24, bias=True)
    k = sg.compile(product, device="h200", backend="emulator", schedule=line())
    assert "tile.walk_groups" in k.ir("tile") and "tile.gather_rows" in k.ir("tile") and 'format="nm"' in k.ir("op")
    assert "warp.cp_arrive" in k.ir("warp") and "warp.wgmma" in k.ir("warp") and str(k.schedule) in k.source()
    assert k.weights().keys() == {"tiles", "rows"}


def test_explain_speaks_of_tiles() -> None:
    product = sg.spmm(matrix(300, 400, 8, 32, (64, 1)), n=13)
    k = sg.compile(product, device="h200", backend="emulator", schedule=line(128))
    told, page = str(k.explain()), k.explain().data
    assert "3 tiles of 128 rows x 16 columns, each 3 x 64 kept columns; blocks an SM: 1;" in told
    assert "(x, row by row and of whole pieces)" in told
    assert {term["name"] for term in page["terms"]} == set(REASONS)
    assert {"nm_gather", "nm_lanes"} <= {family["family"] for family in page["families"]}
    reasons = {absent["family"]: absent["reason"] for absent in page["absent"]}
    assert reasons["nm_outer"] == "nm_outer multiplies f32, not f16"
    assert reasons["nm_24"].startswith("W (8:32) keeps more than 2 of 4 aligned columns")
    assert k.cost.schedule.rules.operations(k.cost) == 2 * 300 * 13 * 13 * 8  # 13 windows, of which 8 columns are kept


def test_explain_says_why_a_family_that_was_not_asked_for_has_none() -> None:
    product = sg.spmm(matrix(64, 100, 8, 32, (64, 1)), n=4)
    page = sg.compile(product, device="a100", backend="emulator", schedule="nm_lanes").explain().data
    reasons = {absent["family"]: absent["reason"] for absent in page["absent"]}
    assert all("which NVIDIA A100 (sm_80) has not" in reasons[family] for family in ("nm_gather", "nm_24"))


def test_the_formula_is_what_is_chosen_by() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons."""
    product = sg.spmm(matrix(161, 300, 16, 32, (64, 1)), n=70)
    formulas_hold(listed(product, "h200", "nm_gather")[::9])


# ------------------------------------------------------------------------------------------------ refusals
def test_what_cannot_run_is_refused_with_a_remedy() -> None:
    w = matrix(130, 100, 8, 32, (64, 1))
    wide = matrix(64, 65600, 1, 64, (64, 1))
    for matrix_, device, words, says, hint in (
        (matrix(64, 64, 8, 32, dtype="f32"), "h200", "nm_gather", "multiplies f16 and bf16, not f32", "take nm_lanes"),
        (w, "a100", "nm_gather", "by warpgroups, which NVIDIA A100 (sm_80) has not", "or a Hopper device"),
        (wide, "h200", "nm_gather", "W has 65600 columns; lists of 16 bits name 65536", "cut W by columns"),
        (w, "h200", "nm_gather rows=128 cols=256 stages=6", "295280 bytes of shared memory", "lower stages, cols"),
        (w, "h200", "nm_gather stages=16 cols=128", "do not fit an SM", "lower stages, cols or rows"),
        (w, "h200", "nm_gather stages=1", "stages=1 is out of range", "from 2 to 16"),
        (w, "h200", "nm_gather rows=96", "rows=96: there is no such choice", "64, 128"),
        (w, "h200", "nm_gather cols=8", "cols=8: there is no such choice", "16, 32, 64, 128, 256"),
        (w, "h200", "nm_gather warps=4", "'warps=4' means nothing", "rows, cols, stages"),
    ):  # fmt: skip
        refused(sg.spmm(matrix_, n=16), device, words, says, hint)


def test_what_is_listed_can_run_there() -> None:
    """On GPUs before Hopper none, of f32 none; on an H200 those that fit an SM."""
    w = matrix(130, 100, 8, 32, (64, 1))

    def many(w: Any, device: str) -> int:
        return len(listed(sg.spmm(w, n=300), device, "nm_gather"))

    assert not many(w, "a100") and not many(w, "rtx4090")
    assert not many(matrix(130, 100, 8, 32, (64, 1), "f32"), "h200")
    assert 30 < many(w, "h200") < 50


@pytest.mark.parametrize("far", [{"m": 65665, "k": 32703, "turns": (511, 511)}, {"k": 65536, "n": 32767}], ids=str)
def test_what_32_bits_do_not_index_is_refused(far: Any) -> None:
    """Tiles are rounded up to whole rows and turns, rows of x to whole pieces: beyond the elements that W or x has."""
    facts = replace(SpmmProblem(sg.spmm(matrix(64, 64, 8, 32, (64, 1)), n=16)).facts, **far)
    found = FAMILY.every(facts, H200, {})
    assert not [c for c in found.costs if c.schedule.rows == 128]
    assert all(
        "indices are 32 bits wide" in r.reason and "cut W by rows" in (r.remedy or "") for r in found.rejected[-5:]
    )


def test_the_pass_refuses_another_type() -> None:
    module = SpmmProblem(sg.spmm(matrix(64, 64, 8, 32, dtype="f32"), n=16)).describe()
    with pytest.raises(IRError, match="16-bit numbers, not f32"):
        NmGather().run(module)
