"""Products with dense tiles and other entries: right for any size, order, type, schedule and GPU, in one launch; what
is packed, what a NaN does, what is said and refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.bench.generated import clustered
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.hybrid import FAMILY
from sparsegen.ir.errors import FormatError, IRError, ScheduleError
from sparsegen.ir.kernels.hybrid import Hybrid
from sparsegen.ir.numbers.mixed import PLACES, TILES
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.products import hybrid_cost
from sparsegen.products.hybrid import HEIGHTS, HybridNumbers, columns, images, pieces, records, rounded, spans, tiles
from tests.mixed_kit import line, matrix, values
from tests.nm_kit import formulas_hold, listed, refused
from tests.products_kit import EPILOGUES, ORDERS, called, operands, turned_first
from tests.reordering.matrices import dense

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
DEVICES = ("h200", "a100", "rtx4090")
DTYPES = ("f16", "bf16")
#: What schedules of any words are refused for.
REFUSED = ("do not share", "no warps that", "sums, 64 at most", "of shared memory", "on their way", "rows, 128 at most")


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tile", TILES)
def test_any_tile(tile: int, dtype: str) -> None:
    """Sizes that nothing divides; dense tiles and other entries; warps that share rows, columns and both; bands of one
    tile, of two and of four, some of which are missing."""
    W = matrix(150, 203, tile, dtype)
    assert W.tiles > 3 and W.rest > 100
    for device, high, warps in zip(DEVICES, (1, 2, 128 // max(tile, 32)), ("1x2", "2x1", "4x2"), strict=True):
        called(sg.spmm(W, n=40, bias=True), schedule=line(warps=warps, high=high), device=device)


@pytest.mark.parametrize(("tile", "slices"), [(16, 4), (32, 2), (32, 8), (64, 2), (64, 4)])
def test_slices_share_k(tile: int, slices: int) -> None:
    """Parts of turns, or whole ones: as right as one set of warps, and the same bits every time; more teams for other
    entries, also for pieces of rows, and where no tile is dense."""
    for i, long in enumerate((0, 1)):
        W = matrix(150, 203, tile, DTYPES[i], delta=0.3 if i == 0 else 0.1, long=long)
        assert W.tiles > 3 and W.rest > 100
        for warps, cols, high in (("1x2", 32, 1), ("2x1", 64, 1), ("2x2", 32, 2))[: 3 - slices // 8]:
            high *= 1 + (tile == 16)
            kernel = called(sg.spmm(W, n=40), schedule=line(cols, warps, 3, 1, high, slices))
            x, report = operands(kernel.product)["x"], kernel.check()
            assert np.array_equal(kernel(x), kernel(x)) and report.ok and not report.notes
            assert f"slices={slices}" in kernel.ir("tile")
    called(sg.spmm(matrix(70, 203, tile, delta=1.0), n=40), schedule=line(slices=slices))


@pytest.mark.parametrize("n", [1, 2, 8, 17, 40, 136])
def test_any_number_of_columns(n: int) -> None:
    """Those that no piece of 8 divides and those that no block does; teams whose groups share a row's entries."""
    W = matrix(70, 150, 32, DTYPES[n % 2])
    for words in (line(), line(16, "2x1"), line(64, "2x4", unroll=4, high=2), line(128, "1x8", 2, 1)):
        called(sg.spmm(W, n=n), schedule=words)


@pytest.mark.parametrize("m", [1, 15, 16, 17, 65])
def test_any_number_of_rows(m: int) -> None:
    """Less than a band, whole ones, one of a single row; x of fewer rows than a tile has."""
    for k, high in ((5, 1), (97, 1), (97, 4)):
        called(sg.spmm(matrix(m, k, 16, noise=0.1), n=24, scale=True), schedule=line(high=high))


@pytest.mark.parametrize(("delta", "noise", "fill"), [
    (1.0, 0.05, 0.5), (0.0, 0.0, 0.5), (0.3, 0.0, 0.6), (0.3, 0.0, 0.0),
])  # fmt: skip
def test_either_part_may_be_empty(delta: float, noise: float, fill: float) -> None:
    """No dense tile; nothing else; rows and bands without entries; nothing at all."""
    W = matrix(90, 100, 32, delta=delta, noise=noise, fill=fill)
    assert delta != 1.0 or not W.tiles
    assert delta != 0.0 or not W.rest
    for n, high in ((9, 1), (24, 2)):
        kernel = called(sg.spmm(W, n=n, bias=True), schedule=line(high=high))
        assert ("tile.walk " in kernel.ir("tile")) == bool(W.tiles)
        assert ("tile.gather" in kernel.ir("tile")) == bool(W.rest)


def test_more_dense_tiles_than_lanes_look_up_at_once() -> None:
    W = matrix(30, 1300, 16, delta=0.0, noise=0.3)
    assert W.spec.blocks.rows == 16 and int(np.diff(W.arrays["ptr"]).max()) > 64
    called(sg.spmm(W, n=17), schedule=line(stages=5))


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """An x by columns, or of rows that are no whole pieces, is written row by row first: that is a launch more."""
    for n, dtype in ((24, "bf16"), (13, "f16")):
        turned_first(sg.spmm(matrix(80, 100, 32, dtype), n=n, bias=True), line(), (x_order, y_order), n == 24)


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    """Rows of y, and so scale, bias and residual, are those of W as it was given, whatever the order inside."""
    W = matrix(100, 90, 32)
    assert not np.array_equal(W.order, np.arange(100))
    called(sg.spmm(W, n=40, activation=activation, **dict.fromkeys(operands, True)), schedule=line(64, "2x2"))


@st.composite
def lines(draw: st.DrawFn) -> str:
    warps = draw(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 2)]))
    cols = draw(st.sampled_from([c for c in (16, 32, 64, 128) if c % (16 * warps[1]) == 0]))
    how = draw(st.integers(2, 5)), draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((1, 1, 2, 4)))
    return line(cols, "x".join(map(str, warps)), *how, slices=draw(st.sampled_from((1, 1, 2, 4))))


@given(
    st.integers(1, 150), st.integers(1, 200), st.integers(1, 80), st.sampled_from(TILES), st.sampled_from(DTYPES),
    st.sampled_from((0.0, 0.2, 0.5)), st.sampled_from((0.0, 0.02, 0.2)), lines(), st.sampled_from(("row", "column")),
    st.sampled_from(("row", "column")), st.sampled_from(DEVICES),
)  # fmt: skip
def test_any_product_runs_without_a_fault(
    m: int, k: int, n: int, tile: int, dtype: str, delta: float, noise: float, words: str, x: str, y: str, device: str
) -> None:
    """Right, with nothing that a checker finds: no race, and no bank conflict beyond those that are declared."""
    product = sg.spmm(matrix(m, k, tile, dtype, delta, noise=noise, seed=m), n=n, residual=n % 2 == 0)
    try:
        kernel = called(product, x, y, words, device)
    except ScheduleError as e:
        assert any(part in str(e) for part in REFUSED)
        return
    report = kernel.check()
    assert report.ok and not report.notes, f"{product} {words}: {report}"


def test_a_matrix_of_clusters_with_noise_is_multiplied_in_one_launch() -> None:
    """Both parts have entries; tensor cores and CUDA cores both work, and nothing is added by atomics."""
    mask = dense(clustered(256, 256, group=32, blocks=2, fill=0.8, noise=0.01))
    w = np.where(mask != 0, np.random.default_rng(0).uniform(-1, 1, mask.shape), 0).astype("f2")
    W: Any = sg.sparse(w, format="hybrid", tile=32)
    assert W.tiles >= 16 and W.rest > 256
    kernel = called(sg.spmm(W, n=64), schedule=line(64, "1x4"))
    counts = kernel.counts()
    assert len(kernel._programs.get(1, Variant("row", "row", 8)).warp.launches) == 1
    assert counts["mma.f16.m16n8k16"] == W.tiles * 4 * 8 and counts["fma.f32"] >= W.rest * 64 / 32
    assert not any(name.startswith(("atom", "red")) for name in counts)
    given = operands(kernel.product)
    first = kernel(given["x"])
    assert np.array_equal(first, kernel(given["x"]))


# ------------------------------------------------------------------------------------------------ what is packed
@pytest.mark.parametrize("high", HEIGHTS)
@pytest.mark.parametrize("tile", TILES)
def test_a_matrix_comes_out_of_what_is_packed(tile: int, high: int) -> None:
    """Dense tiles out of the fragments of an mma, other entries by the records of rows; bands by what they read."""
    w = values(150, 203, tile)
    W: Any = sg.sparse(w, format="hybrid", tile=tile)
    found, rows, bands, across = np.zeros((150, 256)), records(W, high), spans(W, high), columns(W, high)
    parts = pieces(W, high)
    deep = tile // 16
    fragments = tiles(W, high).view("f2").reshape(-1, deep, deep * high, 32, 8)
    lane, element = np.indices((32, 8))
    # of PTX's fragment A of m16n8k16: rows lane / 4 and 8 more, columns 2 * (lane mod 4), the next, and 8 more
    row, column = lane // 4 + element // 2 % 2 * 8, lane % 4 * 2 + element % 2 + element // 4 * 8
    reads = []
    for (begin, end), of_band, cut in zip(bands, rows, parts, strict=True):
        assert sorted((of_band[:, 3] % PLACES).tolist()) == list(range(tile * high))
        lengths = of_band[:, 2] - of_band[:, 1]
        assert (np.diff(lengths) <= 0).all()
        reads.append((end - begin) * tile + lengths.sum() + (cut[:, 2] - cut[:, 1]).sum())
        of = np.full(tile * high, 150)
        of[of_band[:, 3] % PLACES] = of_band[:, 0]
        for number in range(begin, end):
            assert fragments[number].any()
            for j, i in np.ndindex(deep, deep * high):
                real = of[i * 16 + row] < 150
                at = across[number] * tile + j * 16 + column
                found[of[i * 16 + row][real], at[real]] += fragments[number, j, i][real]
        for one, first, last, _ in [*of_band[of_band[:, 0] < 150], *cut[cut[:, 0] < 150]]:
            found[one, W.arrays["rest_idx"][first:last]] += W.arrays["rest_values"][first:last]
    assert np.array_equal(found[:, :203], w.astype(float)) and not found[:, 203:].any()
    assert (np.diff(reads) <= 0).all() and W.tiles and W.rest


def test_torch_packs_the_same() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        w = torch.from_numpy(values(150, 203, dtype="f32")).to(dtype)
        W: Any = sg.sparse(w, format="hybrid", tile=32)
        for pack in (spans, records, pieces, columns, tiles, rounded if dtype is torch.float32 else images):
            of_torch, of_numpy = pack(W, 2), np.asarray(pack(W.to_host(), 2))
            words = np.asarray(of_torch.view(torch.int32) if isinstance(of_torch, torch.Tensor) else of_torch)
            assert np.array_equal(words.view(np.int32), of_numpy.view(np.int32))


def test_numbers_are_those_of_the_matrix() -> None:
    W = matrix(150, 203, 16)
    p = HybridNumbers.of(sg.spmm(W, n=8))
    assert (p.dense, p.entries, p.bands(1), p.bands(4), p.tile) == (W.tiles, W.rest, 10, 3, 16)
    assert p.most == np.diff(W.arrays["rest_ptr"]).max()
    for high in HEIGHTS:
        c, ptr = p.counted(high), W.arrays["ptr"]
        starts = [ptr[min(10, first)] for first in range(0, 10 + high, high)]
        turns = [len(set(W.arrays["idx"][a:b].tolist())) for a, b in pairwise(starts)]
        assert (c.turns, c.longest) == (sum(turns), max(turns)) and c.busiest >= c.mean
        assert c.mean * p.bands(high) == pytest.approx(16 * c.turns + p.entries)
    assert p.counted(1).turns == W.tiles


# ------------------------------------------------------------------------------------------------ NaN and infinities
@pytest.mark.parametrize("high", [1, 2])
def test_a_row_that_is_not_finite_reaches_entries_and_dense_tiles(high: int) -> None:
    """All rows of bands with a dense tile in its column, others if they have an entry there: zeros multiply too."""
    W = matrix(200, 150, 32)
    kernel = sg.compile(sg.spmm(W, n=16), device="a100", backend="emulator", schedule=line(high=high))
    assert "all rows of each band with a dense tile in its column" in str(kernel.explain())
    entry = W.to_dense() != 0
    band, ptr = np.empty(200, int), W.arrays["ptr"]
    band[W.order] = np.arange(200) // (32 * high)
    starts = [ptr[min(7, first)] for first in range(0, 7 + high, high)]
    seen = set()
    for column, bad in ((0, np.nan), (63, np.inf), (149, np.nan)):
        x = np.ones((150, 16), "f2")
        x[column, 1] = bad
        y = kernel(x)
        assert np.isfinite(y[:, [0, *range(2, 16)]]).all()
        tiled = np.array([column // 32 in W.arrays["idx"][a:b] for a, b in pairwise(starts)])[band]
        assert (~np.isfinite(y[:, 1]) == (tiled | entry[:, column])).all()
        seen |= set(zip(tiled.tolist(), entry[:, column].tolist(), strict=True))
    assert len(seen) == 4  # zeros of a tile, its entries, others, and neither


# ------------------------------------------------------------------------------------------------ what is said
def test_every_level_can_be_looked_at() -> None:
    k = sg.compile(sg.spmm(matrix(130, 100), n=24, bias=True), device="a100", backend="emulator", schedule=line())
    for op in ("share_bands", "walk", "copy_band", "multiply_band", "put_sums", "each_row", "gather", "store_row"):
        assert f"tile.{op}" in k.ir("tile")
    assert 'format="hybrid"' in k.ir("op") and "warp.ldmatrix" in k.ir("warp") and "warp.mma" in k.ir("warp")
    assert str(k.schedule) in k.source()
    assert k.weights().keys() == {"spans", "records", "pieces", "columns", "tiles", "idx", "values"}


def test_explain_speaks_of_bands() -> None:
    W = matrix(130, 100)
    k = sg.compile(sg.spmm(W, n=40), device="a100", backend="emulator", schedule=line())
    told, page = str(k.explain()), k.explain().data
    assert f"10: 5 bands of 32 rows x 2 tiles of columns; {W.tiles} dense tiles in {W.tiles} turns" in told
    assert f"and {W.rest} other entries" in told and "by teams of 4 lanes; blocks an SM: 1;" in told
    assert {term["name"] for term in page["terms"]} == set(hybrid_cost.REASONS)
    assert k.cost.schedule.rules.operations(k.cost) == 2 * (W.tiles * 1024 + W.rest) * 40


def test_the_formula_is_what_is_chosen_by() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons; parts that are empty cost nothing."""
    for how in ({}, {"delta": 1.0}, {"delta": 0.0}):
        formulas_hold(listed(sg.spmm(matrix(161, 300, **how), n=70), "h200", "hybrid")[::37])


def test_more_to_do_takes_longer() -> None:
    """More dense tiles, more other entries, and a band that has most of them."""
    p = HybridNumbers.of(sg.spmm(matrix(2048, 2048, noise=0.001), n=128))
    device, s = load_profile("h200"), sg.SpmmSchedule.parse(line(128, "1x4", 4, 4))

    def time(**how: Any) -> float:
        facts = replace(p, **how)
        return FAMILY.cost(facts, s, device, FAMILY.shape(facts, s, device)).time

    one, *others = p.counts
    for more in (
        one._replace(turns=60 * one.turns),
        one._replace(longest=400),
        one._replace(busiest=100 * one.busiest),
        one._replace(whole=2000),
        one._replace(cuts=16, piece=2000),
    ):
        assert time(counts=(more, *others)) > 1.5 * time()
    for how in ({"entries": 100 * p.entries}, {"n": 4096}):
        assert time(**how) > 1.5 * time()


# ------------------------------------------------------------------------------------------------ refusals
def test_what_cannot_run_is_refused_with_a_remedy() -> None:
    W = matrix(130, 100)
    odd = sg.sparse(values(130, 100), format="hybrid", tile=24)
    for matrix_, device, words, says, hint in (
        (W, "v100", "hybrid", "NVIDIA V100 (sm_70) has neither", "a GPU from Ampere on"),
        (odd, "h200", "hybrid", "dense tiles of 24 x 24, which no mma fills", "tile=16 or 32 or 64"),
        (W, "h200", line(32, "4x1"), "warps=4x1 do not share 32 rows", "fewer warps share the rows, or raise high"),
        (W, "h200", line(128, "1x8", slices=8), "warps=1x8 slices=8: no warps", "32 in all, slices too"),
        (matrix(130, 100, 16), "h200", line(64, "1x4", slices=8), "warps=1x4 slices=8 do not share 16", "lower slices"),
        (W, "h200", "hybrid slices=3", "slices=3: there is no such choice", "1, 2, 4, 8"),
        (W, "h200", line(256, "1x1"), "a thread has 256 sums, 64 at most", "take more warps"),
        (W, "rtx4090", line(256, "1x8", 6), "bytes of shared memory", "lower stages or cols"),
        (W, "h200", "hybrid warps=16x1", "warps=16x1: no warps that share", "32 in all"),
        (matrix(130, 100, 64), "h200", line(high=4), "high=4: bands of 256 rows, 128 at most", "lower high"),
        (W, "h200", "hybrid high=3", "high=3: there is no such choice", "1, 2, 4"),
        (W, "h200", "hybrid warps=1x3", "warps=1x3: no warps that share", "a power of two"),
        (W, "h200", "hybrid warps=1x4 cols=32", "no whole fragments of 16 columns for each of 4", "raise cols"),
        (W, "h200", "hybrid stages=1", "stages=1 is out of range", "from 2 to 16"),
        (W, "h200", "csr", "csr is a schedule for csr, W is in hybrid", "format='csr'"),
    ):  # fmt: skip
        refused(sg.spmm(matrix_, n=16), device, words, says, hint)


def test_what_is_listed_can_run_there() -> None:
    W = matrix(130, 100)
    found = {device: len(listed(sg.spmm(W, n=300), device, "hybrid")) for device in DEVICES}
    assert 50 < found["rtx4090"] <= found["a100"] <= found["h200"]


def test_slices_are_listed_where_blocks_are_few() -> None:
    """A block takes more warps where there is nothing else that hides what it waits for."""
    few, many = (
        {c.schedule.slices for c in listed(sg.spmm(matrix(m, 100, 64), n=n), "h200", "hybrid")}
        for m, n in ((130, 64), (9000, 2048))
    )
    assert few == {1, 2, 4, 8} and many == {1}


def test_what_32_bits_do_not_index_is_refused() -> None:
    facts = replace(SpmmProblem(sg.spmm(matrix(64, 64), n=16)).facts, k=65536, n=32767)
    found = FAMILY.every(facts, load_profile("h200"), {})
    assert not found.costs and any("indices are 32 bits wide" in r.reason for r in found.rejected)


def test_a_matrix_too_large_for_indices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsegen.products.hybrid.MAX_CELLS", 1000)
    with pytest.raises(FormatError, match="indices are 32 bits wide, so 1000 is the most"):
        HybridNumbers.of(sg.spmm(matrix(64, 64), n=16))


def test_the_pass_refuses_warps_that_do_not_share_a_band() -> None:
    module = SpmmProblem(sg.spmm(matrix(64, 64), n=16)).describe()
    wrong = {"tile": 24}, {"cols": 7}, {"down": 4}, {"across": 3}, {"rows": 48}, {"slices": 16}
    for how in (*wrong, {"mma": "wgmma", "across": 2}):
        with pytest.raises(IRError, match="do not share a band"):
            Hybrid(**how).run(module)
