"""Products in Blocked-ELL and compressed rows: right for any size, order, type, schedule and GPU, in two launches; what
is packed, what a NaN does, what is said and refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.blocked_ell import FAMILY
from sparsegen.ir.errors import FormatError, ScheduleError
from sparsegen.ir.numbers.mixed import TILES
from sparsegen.problems.product import SpmmProblem, Variant
from sparsegen.products import blocked_ell_cost
from sparsegen.products.blocked_ell import BlockedEllNumbers, columns, records, rest_of, segments, spans, tiles
from tests import mixed_kit
from tests.nm_kit import formulas_hold, listed, refused
from tests.products_kit import EPILOGUES, ORDERS, called, operands, program

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
DEVICES = ("h200", "a100", "rtx4090")
DTYPES = ("f16", "bf16")
#: What schedules of any words are refused for.
REFUSED = ("do not share", "sums, 64 at most", "of shared memory", "registers a thread")


def matrix(*shape: Any, **how: Any) -> Any:
    return mixed_kit.matrix(*shape, format="blocked_ell", **how)


def line(
    cols: int = 32, warps: str = "1x2", stages: int = 3, team: str = "4x2", each: int = 8, unroll: int = 2,
    cut: int = 64,
) -> str:  # fmt: skip
    return f"blocked_ell cols={cols} warps={warps} stages={stages} team={team} columns={each} unroll={unroll} cut={cut}"


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tile", TILES)
def test_any_tile(tile: int, dtype: str) -> None:
    """Sizes that nothing divides; block rows of other numbers of tiles; warps that share rows, columns and both."""
    W = matrix(150, 203, tile, dtype, delta=0.4)
    assert W.tiles > 2 and W.rest > 100 and W.filling
    for device, warps in zip(DEVICES, ("1x2", "1x1", "2x2" if tile > 16 else "1x2"), strict=True):
        called(sg.spmm(W, n=40, bias=True), schedule=line(warps=warps), device=device)


@pytest.mark.parametrize("n", [1, 2, 8, 17, 40, 136])
def test_any_number_of_columns(n: int) -> None:
    """Those that no piece of 8 divides and those that no block does; rows that are cut, and left whole."""
    W = matrix(70, 150, 32, DTYPES[n % 2], long=1)
    for words in (line(), line(16, "2x1", cut=4), line(64, "2x4", team="2x4", each=1), line(128, "1x8", 2, cut=16)):
        called(sg.spmm(W, n=n), schedule=words)


@pytest.mark.parametrize("m", [1, 15, 16, 17, 65])
def test_any_number_of_rows(m: int) -> None:
    for k in (5, 97):
        called(sg.spmm(matrix(m, k, 16, noise=0.1), n=24, scale=True), schedule=line())


@pytest.mark.parametrize(
    ("how", "kernels"),
    [
        ({"delta": 1.0}, ["spmm"]), ({"delta": 0.0, "noise": 0.0}, ["spmm"]), ({"fill": 0.0, "noise": 0.0}, ["spmm"]),
        ({}, ["spmm_tiles", "spmm_rest"]),
    ],
)  # fmt: skip
def test_either_part_may_be_empty(how: Any, kernels: list[str]) -> None:
    """No dense tile; nothing else; nothing at all: then it is one launch, with the epilogue."""
    W = matrix(90, 104, 32, **how)
    for n, words in ((16, line()), (24, "auto")):
        kernel = called(sg.spmm(W, n=n, bias=True, activation="relu"), schedule=words)
        assert [launch.kernel for launch in kernel.counts().launches] == kernels
        assert bool(W.tiles) == ("tile.walk " in kernel.ir("tile")) and kernel.workspace_nbytes >= 0
        assert (kernel.workspace_nbytes > 0) == (len(kernels) == 2)


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """An x by columns, or of rows that are no whole pieces, is written row by row first: that is a launch more."""
    for n, dtype in ((24, "bf16"), (13, "f16")):
        kernel = called(sg.spmm(matrix(80, 100, 32, dtype), n=n, bias=True), x_order, y_order, line())
        whole = n == 24 and x_order == "row"
        made = kernel._programs.get(1, Variant(x_order, y_order, 8 if whole else 1))
        assert len(made.warp.launches) == (2 if whole else 3)


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    """They are applied once, to the sums of both; rows are those of W as it was given."""
    W = matrix(100, 90, 32)
    assert not np.array_equal(W.order, np.arange(100))
    called(sg.spmm(W, n=40, activation=activation, **dict.fromkeys(operands, True)), schedule=line(64, "2x2"))


@st.composite
def lines(draw: st.DrawFn) -> str:
    warps = draw(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 1), (2, 2)]))
    cols = draw(st.sampled_from([c for c in (16, 32, 64, 128) if c % (16 * warps[1]) == 0]))
    team = draw(st.sampled_from(("1x1", "4x2", "8x4", "2x16", "16x1")))
    rest = draw(st.sampled_from((1, 2, 8))), draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((2, 16, 99)))
    return line(cols, "x".join(map(str, warps)), draw(st.integers(2, 5)), team, *rest)


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


def test_two_launches_where_hybrid_has_one() -> None:
    """Tensor cores work in the first and CUDA cores in the second; hybrid has both in its one.  No atomics."""
    how: dict[str, Any] = {"delta": 0.3, "noise": 0.03}
    W, V = matrix(150, 208, 32, **how), mixed_kit.matrix(150, 208, 32, **how)
    assert W.filling and W.tiles == V.tiles and W.rest == V.rest > 100
    kernel = called(sg.spmm(W, n=64), schedule=line(64, "1x4"))
    first, second = kernel.counts().launches
    assert (first.kernel, second.kernel) == ("spmm_tiles", "spmm_rest")
    # a tile of 32 x 32 by 64 columns is 2 x 2 x 8 mma, be it one that fills a block row up
    assert first.counts["mma.f16.m16n8k16"] == (W.tiles + W.filling) * 2 * 2 * 8
    assert second.counts["fma.f32"] >= W.rest * 64 / 32
    assert not any(n.startswith("fma") for n in first.counts) and not any(n.startswith("mma") for n in second.counts)
    both = called(sg.spmm(V, n=64), schedule=mixed_kit.line(64, "1x4")).counts()
    (only,) = both.launches
    assert only.counts["mma.f16.m16n8k16"] == V.tiles * 2 * 2 * 8 and only.counts["fma.f32"] >= V.rest * 64 / 32
    assert not any(name.startswith(("atom", "red")) for name in kernel.counts())
    assert kernel.counts()["bytes.global.write"] == (4 + 2) * 150 * 64  # sums in f32, then y
    given = operands(kernel.product)
    assert np.array_equal(kernel(given["x"]), kernel(given["x"]))


def test_sums_are_rounded_once() -> None:
    """To f32 between the launches: entries that cancel what tiles leave give what they give exactly."""
    w = np.zeros((16, 48), np.float16)
    w[:, :16], w[:, 40] = 1, -1
    W: Any = sg.sparse(w, format="blocked_ell", tile=16, delta=0.5)
    assert (W.tiles, W.rest) == (1, 16)
    x = np.full((48, 8), 129, np.float16)
    x[0], x[40] = 130, 2064  # 16 rows sum up to 2065, which f16 has not: it has 2064 and 2066
    assert (sg.compile(sg.spmm(W, n=8), device="h200", backend="emulator")(x) == 1).all()


# ------------------------------------------------------------------------------------------------ what is packed
@pytest.mark.parametrize("tile", TILES)
def test_a_matrix_comes_out_of_what_is_packed(tile: int) -> None:
    """Tiles out of the fragments of an mma and other entries by their segments, in the rows that W was given with."""
    w = mixed_kit.values(150, 203, tile)
    W: Any = sg.sparse(w, format="blocked_ell", tile=tile, delta=0.4)
    strips, width = W.arrays["idx"].shape
    found, across, deep = np.zeros((151, 203 + 2 * tile)), columns(W), tile // 16
    assert np.array_equal(spans(W).reshape(-1), np.arange(strips).repeat(2) * width + np.tile([0, width], strips))
    assert W.tiles and W.filling == (across == -(-203 // tile)).sum() > 0
    fragments = tiles(W).view("f2").reshape(strips, width, deep, deep, 32, 8)
    lane, element = np.indices((32, 8))
    # of PTX's fragment A of m16n8k16: rows lane / 4 and 8 more, columns 2 * (lane mod 4), the next, and 8 more
    row, column = lane // 4 + element // 2 % 2 * 8, lane % 4 * 2 + element % 2 + element // 4 * 8
    rows = records(W)
    assert not rows[..., 1:3].any() and np.array_equal(rows[..., 3], np.tile(np.arange(tile), (strips, 1)))
    for strip, turn, j, i in np.ndindex(strips, width, deep, deep):
        at = across[strip * width + turn] * tile + j * 16 + column
        found[rows[strip, i * 16 + row, 0], at] += fragments[strip, turn, j, i]
    for one, first, last, _ in segments(W, 20, 4, 16):
        found[one, W.arrays["rest_idx"][first:last]] += W.arrays["rest_values"][first:last]
    assert np.array_equal(found[:150, :203], w.astype(float)) and not found[150:].any() and not found[:, 203:].any()
    assert sorted(set(rows[..., 0].ravel().tolist())) == list(range(150 + (150 % tile > 0)))


def test_torch_packs_the_same() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float16, torch.bfloat16):
        w = torch.from_numpy(mixed_kit.values(150, 203).astype("f4")).to(dtype)
        W: Any = sg.sparse(w, format="blocked_ell", tile=32, delta=0.4)
        for pack in (spans, records, columns, tiles):
            made = [pack(one) for one in (W, W.to_host())]
            assert np.array_equal(*(np.asarray(a).view(np.int32) for a in made))


def test_numbers_are_those_of_the_matrix() -> None:
    W = matrix(150, 203, 16, delta=0.4)
    p = BlockedEllNumbers.of(sg.spmm(W, n=8, bias=True))
    assert (p.strips, p.width) == W.arrays["idx"].shape and p.filling == W.filling > 0 and p.entries == W.rest
    assert p.tiles is not None and p.rest is not None and p.two
    assert p.tiles.counted(1).turns == W.tiles + W.filling and p.tiles.nbytes + p.rest.nbytes == W.nbytes == p.nbytes
    assert p.tiles.operands == 2 * 150 * 8 and p.rest.operands == 2 * 150 + 4 * 150 * 8
    assert sum(rows for _, rows in p.rest.lengths) == 150 and rest_of(W) is rest_of(W)


# ------------------------------------------------------------------------------------------------ NaN and infinities
def test_a_row_that_is_not_finite_reaches_entries_and_dense_tiles() -> None:
    """All rows of block rows with a dense tile in its column, others if they have an entry there; tiles that fill up
    read nothing."""
    W = matrix(200, 150, 32, delta=0.45)
    assert W.filling
    kernel = sg.compile(sg.spmm(W, n=16), device="a100", backend="emulator", schedule=line())
    assert "all rows of each block row with a dense tile in its column" in str(kernel.explain())
    entry, band = W.to_dense() != 0, np.empty(200, int)
    band[W.order] = np.arange(200) // 32
    seen = set()
    for column, bad in ((0, np.nan), (63, np.inf), (149, np.nan)):
        x = np.ones((150, 16), "f2")
        x[column, 1] = bad
        y = kernel(x)
        assert np.isfinite(y[:, [0, *range(2, 16)]]).all()
        tiled = (W.arrays["idx"] == column // 32).any(1)[band]
        assert (~np.isfinite(y[:, 1]) == (tiled | entry[:, column])).all()
        seen |= set(zip(tiled.tolist(), entry[:, column].tolist(), strict=True))
    assert len(seen) == 4  # zeros of a tile, its entries, others, and neither


# ------------------------------------------------------------------------------------------------ what is said
def test_every_level_can_be_looked_at() -> None:
    k = sg.compile(sg.spmm(matrix(130, 100), n=24, bias=True), device="a100", backend="emulator", schedule=line())
    for op in ("share_bands", "copy_band", "multiply_band", "share_segments", "gather", "store_row"):
        assert f"tile.{op}" in k.ir("tile")
    assert 'format="blocked_ell"' in k.ir("op") and "warp.mma" in k.ir("warp") and "onto=@begun" in k.ir("tile")
    assert str(k.schedule) in k.source() and k.source().count("__global__") == 2
    assert k.weights().keys() == {"spans", "records", "columns", "tiles", "idx", "values", "segments"}


def test_explain_speaks_of_both_launches() -> None:
    W = matrix(130, 100, delta=0.4)
    k = sg.compile(sg.spmm(W, n=40), device="a100", backend="emulator", schedule=line())
    told, (strips, width) = str(k.explain()), W.arrays["idx"].shape
    assert f"{strips} block rows of {width} tiles, {W.filling} of them zeros that fill up; tiles: " in told
    assert "; rest: " in told and "sums of dense tiles" in told
    assert {term["name"] for term in k.explain().data["terms"]} == set(blocked_ell_cost.REASONS)
    assert k.cost.schedule.rules.operations(k.cost) == 2 * (strips * width * 1024 + W.rest) * 40


def test_the_cost_is_that_of_both_launches() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons; a part that is empty costs nothing."""
    for how, terms in (({}, {"tiles", "rest"}), ({"delta": 1.0}, {"rest"}), ({"delta": 0.0, "noise": 0.0}, {"tiles"})):
        costs = listed(sg.spmm(matrix(161, 300, **how), n=70), "h200", "blocked_ell")[::37]
        formulas_hold(costs)
        assert all(c.terms.keys() - {"next", "launch"} == terms for c in costs)
        assert all(c.time == pytest.approx(sum(c.terms.values())) for c in costs)
        assert all((c.terms["next"] > 0) == (len(terms) == 2) for c in costs)


def test_what_fills_up_costs_time() -> None:
    """One block row full of dense tiles makes all others as long; hybrid has only the tiles that are there."""
    w = np.kron(np.eye(64), np.ones((32, 32))).astype(np.float16)
    w[:32] = 1

    def time(format: str) -> float:
        W = sg.sparse(w, format=format, tile=32, method="none")
        return sg.compile(sg.spmm(W, 512), device="h200", backend="emulator").cost.time

    assert time("blocked_ell") > 1.7 * time("hybrid")


def test_more_to_do_takes_longer() -> None:
    """More tiles a block row, and more other entries."""
    p = BlockedEllNumbers.of(sg.spmm(matrix(2048, 2048, noise=0.001), n=128))
    device = load_profile("h200")
    best = FAMILY.every(p, device, {}).costs[0].time
    assert FAMILY.every(replace(p, width=20 * p.width), device, {}).costs[0].time > 1.5 * best
    longer = tuple((50 * length, rows) for length, rows in p.lengths)
    assert FAMILY.every(replace(p, entries=50 * p.entries, lengths=longer), device, {}).costs[0].time > 1.5 * best


def test_every_word_changes_a_program() -> None:
    product, plain = sg.spmm(matrix(300, 300, 32, long=1), n=64), line(32, "1x2")

    def text(words: str) -> str:
        return str([str(f) for f in program(product, words, ("row", "row", 8)).warp.funcs])

    for words in (line(64, "1x2"), line(32, "2x1"), line(stages=4), line(team="8x2"), line(each=4), line(unroll=4),
                  line(cut=32)):  # fmt: skip
        assert text(words) != text(plain), words


@pytest.mark.parametrize("words", ["blocked_ell warps=1x8", "blocked_ell cols=16", "blocked_ell team=2x2 cut=7"])
def test_what_a_line_leaves_out_is_chosen(words: str) -> None:
    """Also where one of the kernels is not there."""
    for how in ({}, {"delta": 1.0}, {"delta": 0.0, "noise": 0.0}):
        kernel = called(sg.spmm(matrix(70, 104, 32, **how), n=200), schedule=words)
        assert set(words.split()) <= set(str(kernel.schedule).split()) and kernel.schedule.complete


# ------------------------------------------------------------------------------------------------ refusals
def test_what_cannot_run_is_refused_with_a_remedy() -> None:
    W = matrix(130, 100)
    odd = sg.sparse(mixed_kit.values(130, 100), format="blocked_ell", tile=24)
    for matrix_, device, words, says, hint in (
        (W, "v100", "blocked_ell", "NVIDIA V100 (sm_70) has neither", "a GPU from Ampere on"),
        (W, "v100", line(), "NVIDIA V100 (sm_70) has neither", "a GPU from Ampere on"),
        (odd, "h200", "blocked_ell", "dense tiles of 24 x 24, which no mma fills", "tile=16 or 32 or 64"),
        (W, "h200", line(32, "4x1"), "warps=4x1 do not share 32 rows", "fewer warps share the rows"),
        (W, "h200", line(256, "1x1"), "a thread has 256 sums, 64 at most", "take more warps"),
        (W, "h200", line(each=32, unroll=16), "registers a thread", "lower columns, unroll or warps"),
        (W, "h200", "blocked_ell warps=1x3", "warps=1x3: no warps that share", "a power of two"),
        (W, "h200", "blocked_ell team=3x5", "which do not divide a warp", "team=16x1"),
        (W, "h200", "blocked_ell stages=1", "stages=1 is out of range", "from 2 to 16"),
        (W, "h200", "blocked_ell high=2", "means nothing to a blocked_ell schedule", "choose among"),
        (W, "h200", "hybrid", "hybrid is a schedule for hybrid, W is in blocked_ell", "format='hybrid'"),
        (mixed_kit.matrix(130, 100), "h200", "blocked_ell", "blocked_ell is a schedule for blocked_ell", "blocked_ell"),
    ):  # fmt: skip
        refused(sg.spmm(matrix_, n=16), device, words, says, hint)


def test_a_matrix_too_large_for_indices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsegen.products.blocked_ell.MAX_CELLS", 1000)
    with pytest.raises(FormatError, match="indices are 32 bits wide, so 1000 is the most") as e:
        BlockedEllNumbers.of(sg.spmm(matrix(64, 64), n=16))
    assert "raise delta" in (e.value.hint or "")


def test_what_is_chosen_by_itself() -> None:
    """The family, of its own format alone; the dense product is there where it is named."""
    product = sg.spmm(matrix(64, 64), 16)
    assert {c.schedule.family for c in sg.schedules(product, device="h200")} == {"blocked_ell", "dense"}
    assert sg.compile(product, device="h200", backend="emulator").schedule.family == "blocked_ell"
    assert SpmmProblem(product).others == ()
