"""Products with N:M matrices whose tiles are decoded for warpgroups: right for any pattern, size, order, type and
schedule; what is packed; what is refused and said."""

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
from sparsegen.families.spmm.nm_decode import FAMILY
from sparsegen.formats import library
from sparsegen.ir.errors import IRError
from sparsegen.ir.kernels.nm_decode import NmDecode
from sparsegen.ir.numbers.decode import most_kept, sharers
from sparsegen.ir.numbers.groups import COLS
from sparsegen.ir.numbers.nm import groups
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.products.decode_cost import REASONS, packed
from sparsegen.products.nm_entries import entries_of, packed_entries
from tests.nm_drawn import ORDER, patterns, products, runs_without_a_fault
from tests.nm_kit import encoded, formulas_hold, listed, matrix, packed_alike, pruned, ran, refused
from tests.products_kit import ORDERS, called, launched

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
H200 = load_profile("h200")
#: One multiprocessor that runs one block: it has all tiles.
ALONE = replace(H200, sms=1, max_blocks_sm=1)
DTYPES = ("f16", "bf16")
#: n of m, and a block: windows that divide a turn, that do not, one that is a turn, that cross turns; runs of 1 to 8.
PATTERNS: list[tuple[int, int, tuple[int, int]]] = [
    (4, 32, (1, 1)), (16, 32, (1, 1)), (2, 4, (1, 1)), (3, 10, (1, 1)), (1, 3, (5, 1)), (63, 64, (1, 1)),
    (49, 50, (1, 1)), (4, 32, (4, 4)), (8, 16, (4, 4)), (6, 22, (3, 2)), (6, 15, (2, 3)), (8, 24, (16, 8)),
    (16, 48, (8, 16)), (12, 36, (130, 12)),
]  # fmt: skip


def line(rows: int = 64, cols: int = 16, stages: int = 3, teams: int = 1) -> str:
    return f"nm_decode rows={rows} cols={cols} stages={stages} teams={teams}"


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize(("pattern", "dtype"), list(zip(PATTERNS, itertools.cycle(DTYPES), strict=False)), ids=str)
def test_any_pattern(pattern: Any, dtype: str) -> None:
    """Some windows hold less than they may."""
    w = matrix(140, 210, *pattern, dtype=dtype, fill=0.8)
    for rows in (64, 128):
        called(sg.spmm(w, n=17, bias=True), schedule=line(rows))


@pytest.mark.parametrize("n", [1, 8, 17, 40, 136])
def test_any_number_of_columns(n: int) -> None:
    """Those that no piece of 8 divides and those that no block does; the last block of columns is short."""
    for cols in {16, min(c for c in COLS if c >= n)}:
        called(sg.spmm(matrix(70, 150, 8, 32, dtype=DTYPES[n % 2]), n=n), schedule=line(cols=cols))


@pytest.mark.parametrize("m", [1, 63, 64, 65, 129])
def test_any_number_of_rows(m: int) -> None:
    """Less than a tile, a whole one, and one of a single row; one turn, and a last turn that is short."""
    for k in (5, 257):
        called(sg.spmm(matrix(m, k, 8, 32), n=24, scale=True), schedule=line(rows=64 if m < 65 else 128))


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """An x by columns is read as it is; only one of rows, or columns, that are no whole pieces is turned before."""
    for n, k, dtype in ((24, 104, "bf16"), (13, 104, "f16"), (24, 101, "f16")):
        kernel = called(sg.spmm(matrix(130, k, 8, 32, dtype=dtype), n=n, bias=True), x_order, y_order, line(128))
        whole = (n if x_order == "row" else k) % 8 == 0
        program = kernel._programs.get(1, Variant(x_order, y_order, 8 if whole else 1))
        assert len(program.warp.launches) == (1 if whole else 2)


@pytest.mark.parametrize(("activation", "operands"), [
    ("relu", ("bias",)), ("gelu", ("scale", "bias", "residual")), (None, ("scale", "residual")),
])  # fmt: skip
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    product = sg.spmm(matrix(100, 90, 8, 32), n=40, activation=activation, **dict.fromkeys(operands, True))
    called(product, schedule=line(cols=32))


LINES = st.tuples(st.sampled_from([64, 128]), st.sampled_from([16, 32, 64]), st.integers(2, 5), st.integers(1, 2))


@given(products(patterns((1, 2, 4, 7, 64), (1, 1, 2, 3, 4, 8))), LINES, ORDER, ORDER)
def test_any_product_runs_without_a_fault(product: Any, words: Any, x_order: str, y_order: str) -> None:
    runs_without_a_fault(product, line(*words), x_order, y_order)


@pytest.mark.parametrize(("stages", "teams", "order"), [
    (2, 1, "row"), (3, 1, "column"), (5, 2, "row"), (3, 3, "row"), (4, 4, "column"),
])  # fmt: skip
def test_a_block_has_several_tiles(stages: int, teams: int, order: str) -> None:
    """The rings of tiles and of packed words go on from tile to tile; turns of a tile are no multiple of their slots,
    nor of the teams."""
    product = sg.spmm(matrix(130, 648, 8, 32), n=40, bias=True)
    for profile in (ALONE, replace(ALONE, sms=4)):
        func, arguments, exact = launched(product, line(64, 32, stages, teams), (order, "row", 8), profile)
        assert func.grid[0] == profile.sms
        ran(func, arguments, exact, stages)


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("rows", [64, 128])
def test_a_line_is_what_runs(rows: int, cols: int) -> None:
    """Also the widest: 128 sums a thread."""
    kernel = called(sg.spmm(matrix(rows + 8, 70, 8, 32), n=cols + 8), schedule=line(rows, cols, 2))
    assert str(kernel.schedule) == line(rows, cols, 2) and kernel.check().ok


# ------------------------------------------------------------------------------------------------ what is packed
def decoded(w: Any, rows: int, words: Any) -> Any:
    """The matrix that copying lanes make of packed words, [tiles, rows of a tile, columns of whole turns].

    Of each turn 128 lanes; a lane's words are its values and the bytes of its places; no place comes twice.
    """
    e, many = entries_of(w, rows), sharers(rows // 64)
    tiles, steps = -(-w.shape[0] // rows), -(-w.shape[1] // 64)
    warps, first, parts = np.asarray(words).view("u4").reshape(tiles * steps * 4, -1), 0, []
    for size in groups(e.words):
        parts.append(warps[:, first * 32 : (first + size) * 32].reshape(-1, 128, size))
        first += size
    lanes = np.concatenate(parts, -1)
    values = np.ascontiguousarray(lanes[..., : e.values]).view(w.kind.numpy())[..., : e.runs * e.run]
    places = np.ascontiguousarray(lanes[..., e.values :]).view("u1")[..., : e.runs]
    out = np.zeros((tiles, steps, rows, 64), w.kind.numpy())
    seen = np.zeros(out.shape, bool)
    for turn, lane, i, j in np.ndindex(*places.shape, e.run):
        row = lane // many
        at = turn // steps, turn % steps, row, (places[turn, lane, i] ^ row % 8 * 8) + j
        assert not seen[at]
        seen[at], out[at] = True, values[turn, lane, i * e.run + j]
    return out.transpose(0, 2, 1, 3).reshape(tiles * rows, steps * 64)


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_lanes_find_what_is_stored(pattern: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each element once, and zeros beyond the matrix; in any number of pieces."""
    w = matrix(150, 147, *pattern, fill=0.8)
    words = packed_entries(w, rows)
    found = decoded(w, rows, words)
    assert np.array_equal(found[:150, :147], w.to_dense()) and not found[150:].any() and not found[:, 147:].any()
    monkeypatch.setattr(library, "HOST_BAND", 1)
    assert np.array_equal(packed_entries(matrix(150, 147, *pattern, fill=0.8), rows), words)


def test_what_is_no_number_is_kept_bit_for_bit() -> None:
    w = pruned(64, 128, 4, 32)
    for at, bad in enumerate((np.nan, -np.inf, -0.0, 6e-8)):
        w[at, np.flatnonzero(w[at])[at]] = bad
    found = decoded(s := sg.sparse(w, format="nm", n=4, m=32), 64, packed_entries(s, 64))
    assert np.array_equal(found.view("u2"), w.view("u2"))


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_torch_packs_the_same(pattern: Any) -> None:
    n, m, vector = pattern
    for dtype in DTYPES:
        w = pruned(150, 147, *pattern, dtype=dtype, fill=0.9)
        numpy, other = encoded(w, n, m, vector)
        for rows in (64, 128):
            packed_alike(packed_entries, numpy, other, rows)


def test_runs_are_spread_over_banks() -> None:
    """A store of 32 rows meets in fewer than half the banks that it would by ascending columns."""
    w = matrix(256, 512, 8, 32)
    e = entries_of(w, 128)
    words = packed_entries(w, 128).reshape(-1, e.turn // 4)
    lanes = np.concatenate([words[:, i * 128 : i * 128 + 128].reshape(-1, 128, 4) for i in range(3)], -1)
    banks = np.ascontiguousarray(lanes[..., e.values :]).view("u1").reshape(-1, 32, e.runs) // 2
    degree = np.mean([np.bincount(step, minlength=32).max() for turn in banks for step in turn.T])
    columns = np.sort(np.ascontiguousarray(lanes[..., e.values :]).view("u1") ^ np.arange(128)[:, None] % 8 * 8, -1)
    plain = (columns ^ np.arange(128)[:, None] % 8 * 8).reshape(-1, 32, e.runs) // 2
    assert degree < 2.3 < 3.2 < np.mean([np.bincount(step, minlength=32).max() for turn in plain for step in turn.T])


def test_bytes_that_the_model_counts_are_those_that_are_packed() -> None:
    for pattern in PATTERNS:
        product = sg.spmm(matrix(150, 147, *pattern), n=8)
        for rows in (64, 128):
            assert packed_entries(product.w, rows).nbytes == packed(SpmmProblem(product).facts, rows)


def test_the_most_that_64_columns_keep() -> None:
    for n, m in ((4, 32), (2, 4), (3, 10), (49, 50), (63, 64), (40, 43), (1, 64)):
        kept = [[min(n, len([c for c in range(w * m, w * m + m) if 64 * t <= c < 64 * t + 64])) for w in range(999)]
                for t in range(m)]  # fmt: skip
        assert most_kept(n, m) == max(map(sum, kept))


# ------------------------------------------------------------------------------------------------ NaN and infinities
def test_a_row_that_is_not_finite_reaches_all_rows() -> None:
    """Those of its own column of x, and no other."""
    kernel = sg.compile(sg.spmm(matrix(70, 100, 4, 16), n=16), device="h200", backend="emulator", schedule=line())
    assert "reaches all rows, as in the dense product" in str(kernel.explain())
    for row, bad in ((0, np.nan), (99, np.inf)):
        x = np.ones((100, 16), "f2")
        x[row, 1] = bad
        y = kernel(x)
        assert np.isfinite(y[:, [0, *range(2, 16)]]).all() and not np.isfinite(y[:, 1]).any()


# ------------------------------------------------------------------------------------------------ what is said
def test_every_level_can_be_looked_at() -> None:
    product = sg.spmm(matrix(130, 100, 8, 32), n=24, bias=True)
    k = sg.compile(product, device="h200", backend="emulator", schedule=line())
    assert "tile.decode_tile" in k.ir("tile") and "tile.copy_rows" in k.ir("tile") and 'format="nm"' in k.ir("op")
    assert "warp.tensor_copy" in k.ir("warp") and "warp.wgmma" in k.ir("warp") and str(k.schedule) in k.source()
    assert k.weights().keys() == {"entries"}


def test_explain_speaks_of_tiles() -> None:
    k = sg.compile(sg.spmm(matrix(300, 400, 8, 32), n=13), device="h200", backend="emulator", schedule=line(128))
    told, page = str(k.explain()), k.explain().data
    assert "3 tiles of 128 rows x 16 columns, each 7 x 64 columns of W; blocks an SM: 1;" in told
    assert "(x, row by row and of whole pieces)" in told
    assert {term["name"] for term in page["terms"]} == set(REASONS)
    assert {"nm_decode", "nm_lanes"} <= {family["family"] for family in page["families"]}
    assert k.cost.schedule.rules.operations(k.cost) == 2 * 300 * 13 * 13 * 8  # 13 windows, of which 8 columns are kept


def test_the_formula_is_what_is_chosen_by() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons."""
    formulas_hold(FAMILY.every(SpmmProblem(sg.spmm(matrix(161, 300, 16, 32), n=70)).facts, H200, {}).costs[::5])


# ------------------------------------------------------------------------------------------------ refusals
def test_what_cannot_run_is_refused_with_a_remedy() -> None:
    w = matrix(130, 100, 8, 32)
    for matrix_, device, words, says, hint in (
        (matrix(64, 64, 8, 32, dtype="f32"), "h200", "nm_decode", "multiplies f16 and bf16, not f32", "take nm_lanes"),
        (w, "a100", "nm_decode", "by warpgroups, which NVIDIA A100 (sm_80) has not", "or a Hopper device"),
        (w, "h200", "nm_decode rows=128 cols=256 stages=6", "bytes of shared memory", "lower stages, cols or rows"),
        (w, "h200", "nm_decode stages=1", "stages=1 is out of range", "from 2 to 16"),
        (w, "h200", "nm_decode rows=96", "rows=96: there is no such choice", "64, 128"),
        (w, "h200", "nm_decode cols=8", "cols=8: there is no such choice", "16, 32, 64, 128, 256"),
        (w, "h200", "nm_decode warps=4", "'warps=4' means nothing", "rows, cols, stages, teams"),
        (w, "h200", "nm_decode stages=2 teams=3", "teams=3 fill stages=2 slots", "raise stages, or lower teams"),
        (w, "h200", "nm_decode teams=5", "teams=5 is out of range", "from 1 to 4"),
    ):  # fmt: skip
        refused(sg.spmm(matrix_, n=16), device, words, says, hint)


def test_what_is_listed_can_run_there() -> None:
    """On GPUs before Hopper none, of f32 none; on an H200 those that fit an SM."""
    w = matrix(130, 100, 8, 32)

    def many(w: Any, device: str) -> int:
        return len(listed(sg.spmm(w, n=300), device, "nm_decode"))

    assert not many(w, "a100") and not many(w, "rtx4090")
    assert not many(matrix(130, 100, 8, 32, dtype="f32"), "h200") and 60 < many(w, "h200") < 121


@pytest.mark.parametrize("far", [{"m": 1, "k": 1 << 25, "pattern": (63, 64, 1, 1)}, {"k": 65536, "n": 32767}], ids=str)
def test_what_32_bits_do_not_index_is_refused(far: Any) -> None:
    """Packed words are those of whole tiles, rows of x are rounded up to whole pieces."""
    facts = replace(SpmmProblem(sg.spmm(matrix(64, 64, 8, 32), n=16)).facts, **far)
    found = FAMILY.every(facts, H200, {})
    some = [r for r in found.rejected if "indices are 32 bits wide" in r.reason]
    assert some and all("cut W by rows" in (r.remedy or "") for r in some)


def test_the_pass_refuses_another_type() -> None:
    module = SpmmProblem(sg.spmm(matrix(64, 64, 8, 32, dtype="f32"), n=16)).describe()
    with pytest.raises(IRError, match="16-bit numbers, not f32"):
        NmDecode().run(module)
