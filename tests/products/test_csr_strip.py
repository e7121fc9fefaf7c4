"""Products with rows of entries against strips of x that stay: right for any size, order, type, schedule and GPU; what
is packed, what a NaN does, what is said and refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.csr_strip import FAMILY
from sparsegen.ir.numbers.resident import padded_rows
from sparsegen.problems.product import SpmmProblem
from sparsegen.products import csr_strip_cost
from sparsegen.products.csr_strip import cuts, filled, places, records, values
from sparsegen.products.ragged import Ragged
from tests.csr_kit import NUMPY, ragged
from tests.nm_kit import formulas_hold, listed, refused
from tests.products_kit import EPILOGUES, ORDERS, called, operands, turned_first

DEVICES = ("h200", "a100", "rtx4090")
DTYPES = ("f32", "f16", "bf16")
#: Each width of a strip's row; teams of a group and of several; rows of one team, and lists that have none left.
LINES = (
    "csr_strip wide=32 lists=1 warps=1 groups=4 unroll=2", "csr_strip wide=64 lists=2 warps=2 groups=1 unroll=4",
    "csr_strip wide=64 lists=9 warps=4 groups=8 unroll=1", "csr_strip wide=128 lists=3 warps=4 groups=2 unroll=8",
)  # fmt: skip


def matrix(m: int, k: int, mean: float = 6, dtype: str = "f32", seed: int = 0, full: int = 1) -> Any:
    return sg.sparse(ragged(m, k, mean, seed, full).toarray().astype(NUMPY[dtype]), format="csr")


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_that_nothing_divides(dtype: str, line: str) -> None:
    for n, device in zip((40, 70, 13), DEVICES, strict=True):
        kernel = called(sg.spmm(matrix(61, 53, dtype=dtype), n=n, bias=True), schedule=line, device=device)
        assert "tile.gather_resident" in kernel.ir("tile")


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 130])
def test_any_number_of_columns(n: int) -> None:
    for line in LINES:
        called(sg.spmm(matrix(33, 70, dtype=DTYPES[n % 3]), n=n, residual=True), schedule=line)


@pytest.mark.parametrize("w", [
    np.zeros((5, 7)), np.ones((1, 1)), np.ones((40, 33)), np.eye(9, 5)[::-1], np.tri(1, 300, 299), np.ones((300, 1)),
], ids=["none", "one", "all", "diagonal", "a row", "a column"])  # fmt: skip
def test_matrices_with_no_entries_one_and_all(w: Any) -> None:
    for line in LINES:
        called(sg.spmm(sg.sparse(w.astype("f4"), format="csr"), n=9, bias=True), schedule=line)


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """An x by columns, or of rows that are no whole pieces, is written row by row first: that is a launch more."""
    for n, dtype in ((24, "f16"), (13, "f32")):
        turned_first(sg.spmm(matrix(80, 100, dtype=dtype), n=n, scale=True), LINES[1], (x_order, y_order), n == 24)


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    called(sg.spmm(matrix(60, 50), n=20, activation=activation, **dict.fromkeys(operands, True)), schedule=LINES[3])


@st.composite
def lines(draw: st.DrawFn) -> str:
    wide = draw(st.sampled_from((32, 64, 128)))
    groups = draw(st.sampled_from([g for g in (1, 2, 4, 8, 16) if g * wide <= 512]))
    return (
        f"csr_strip wide={wide} lists={draw(st.integers(1, 5))} warps={draw(st.integers(1, 5))} groups={groups} "
        f"unroll={draw(st.sampled_from((1, 2, 4, 8)))}"
    )


@given(
    st.integers(1, 90), st.integers(1, 120), st.integers(1, 80), st.sampled_from((0.5, 3, 12)), st.integers(0, 2),
    st.sampled_from(DTYPES), lines(), st.sampled_from(("row", "column")), st.sampled_from(("row", "column")),
    st.sampled_from(DEVICES),
)  # fmt: skip
def test_any_product_runs_without_a_fault(
    m: int, k: int, n: int, mean: float, full: int, dtype: str, line: str, x: str, y: str, device: str
) -> None:
    """Right, with nothing that a checker finds: no race, and no bank conflict beyond those that are declared."""
    product = sg.spmm(matrix(m, k, mean, dtype, m, min(full, m)), n=n, residual=n % 2 == 0)
    report = called(product, x, y, line, device).check()
    assert report.ok and not report.notes, f"{product} {line}: {report}"


def test_sums_are_made_in_one_order() -> None:
    kernel = called(sg.spmm(matrix(60, 200, 20), n=16), schedule=LINES[3])
    x = operands(kernel.product)["x"]
    assert np.array_equal(kernel(x), kernel(x))


def test_an_infinity_stays_in_its_row() -> None:
    """What fills a row up does not multiply, and an entry's own infinity is none by something else."""
    w = np.array([[1.0, 0, 2], [0, np.inf, 0], [3, 0, 0], [0, 0, np.nan], [0, 4, 0], [0, 0, 0]], "f4")
    for device in ("h200", "a100"):
        for line in LINES:
            kernel = sg.compile(
                sg.spmm(sg.sparse(w, format="csr"), n=4), device=device, backend="emulator", schedule=line
            )
            x = np.ones((3, 4), "f4")
            x[1] = np.inf
            got = kernel(x)
            assert [bool(np.isfinite(row).all()) for row in got] == [True, False, True, False, False, True]
            assert np.isinf(got[[1, 4]]).all() and np.isnan(got[3]).all()
            x[1], x[2] = 1, np.nan
            assert [bool(np.isfinite(row).all()) for row in kernel(x)] == [False, False, True, False, True, True]


# ------------------------------------------------------------------------------------------------ what is packed
@pytest.mark.parametrize("wide", [32, 64, 128])
@pytest.mark.parametrize("unroll", [1, 4, 8])
def test_a_matrix_comes_out_of_what_is_packed(wide: int, unroll: int) -> None:
    """Rows of whole turns, dealt to teams; places of the rows of x in the strip, or of the zeros."""
    W, teams, lists = matrix(70, 90, dtype="f16"), 5, 3
    at, w, dealt = places(W, wide, unroll), values(W, unroll), records(W, unroll, 1, lists, teams)
    assert at.size == w.size == max(4, filled(Ragged.of(sg.spmm(W, n=8)), unroll))
    row_of, zeros = {k * wide // 16: k for k in range(90)}, padded_rows(90) * wide // 16
    found, seen, of_slot = np.zeros((70, 90), "f2"), [], slots_of_rows(cuts(W, unroll, 1, lists, teams), 70)
    for part, (number, begin, end, _) in [(at, each) for at in range(lists) for each in dealt[at].reshape(-1, 4)]:
        if number != 70:
            row = number if number < 70 else of_slot[part, number - 71]
            seen.append(row)
            assert begin % unroll == end % unroll == 0
            real = at[begin:end] != zeros
            assert not w[begin:end][~real].any() and (end == begin or real[end - begin - unroll])
            found[row, [row_of[p] for p in at[begin:end][real].tolist()]] = w[begin:end][real]
    assert np.array_equal(found, W.to_dense()) and set(seen) == set(range(70))
    lengths = dealt[..., 2] - dealt[..., 1]
    assert (np.diff(lengths, axis=1) <= 0).all()
    assert np.ptp(lengths.sum(axis=1)) <= lengths.max()


def test_torch_packs_the_same() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        w = torch.from_numpy(ragged(60, 70, 5).toarray()).to(dtype)
        W: Any = sg.sparse(w, format="csr")
        bits = np.int32 if dtype is torch.float32 else np.int16
        assert np.array_equal(np.asarray(places(W, 64, 4)), places(W.to_host(), 64, 4))
        here = values(W, 4).view({np.int32: torch.int32, np.int16: torch.int16}[bits]).numpy()
        assert np.array_equal(here, values(W.to_host(), 4).view(bits))


@pytest.mark.parametrize("line", LINES)
def test_the_numbers_of_the_busiest_team_are_those_of_the_records(line: str) -> None:
    W, s = matrix(700, 300, 20), sg.SpmmSchedule.parse(line)
    p = Ragged.of(sg.spmm(W, n=32))
    g = csr_strip_cost.shape_of(p, s, load_profile("h200"))
    dealt = records(W, s.unroll, s.groups, s.lists, g.teams)
    turns = -(-(dealt[..., 2] - dealt[..., 1]) // (s.unroll * s.groups))
    assert dealt.shape == (s.lists, g.length, g.teams, 4)
    assert turns.sum() == g.turns and g.last <= turns.sum(axis=1).max() <= g.last + 2


def slots_of_rows(ends: Any, m: int) -> dict[tuple[int, int], int]:
    """The row that each slot of each list is of."""
    return {
        (part, slot): int(row)
        for part, records in enumerate(ends)
        for row, first, upto, _ in records
        if row < m
        for slot in range(first, upto)
    }


def with_a_long_row(entries: int) -> Any:
    """512 rows of 10 to 60 entries and one of so many."""
    lengths = np.random.default_rng(4).integers(10, 60, 512)
    lengths[7] = entries
    idx = np.concatenate(
        [np.sort(np.random.default_rng(i).choice(300, n, replace=False)) for i, n in enumerate(lengths)]
    )
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    return sg.sparse(scipy.sparse.csr_array((np.ones(len(idx), "f4"), idx, ptr), shape=(512, 300)), format="csr")


@pytest.mark.parametrize("entries", [160, 290])
def test_long_rows_hold_nobody_up(entries: int) -> None:
    """Who has a row that is as long as what others have in all has nothing else; a longer one is cut."""
    W, s = with_a_long_row(entries), sg.SpmmSchedule.parse("csr_strip wide=128 lists=4 warps=8 groups=1 unroll=8")
    g = csr_strip_cost.shape_of(Ragged.of(sg.spmm(W, n=32)), s, load_profile("h200"))
    dealt, ends = records(W, 8, 1, 4, g.teams), cuts(W, 8, 1, 4, g.teams)
    seen = set(dealt[..., 0][dealt[..., 0] < 512].tolist()) | set(slots_of_rows(ends, 512).values())
    assert seen == set(range(512)) and bool(g.slots) == (entries == 290)
    turns = (-(-(dealt[..., 2] - dealt[..., 1]) // 8)).sum(axis=1)
    even = g.turns / turns.size
    assert turns.max() <= 1.2 * even and g.last == pytest.approx(turns.max(), abs=3)
    if g.slots:
        (of, number), (row, first, upto, _) = np.argwhere(ends[..., 0] < 512)[0], ends[ends[..., 0] < 512][0]
        pieces = sorted(dealt[of][dealt[of, ..., 0] > 512].tolist(), key=lambda piece: piece[1])
        assert row == 7 and number == 0 and np.count_nonzero(ends[..., 0] < 512) == 1
        assert [place for place, *_ in pieces] == list(range(513 + first, 513 + upto)) and len(pieces) == 2
        assert [begin for _, begin, *_ in pieces[1:]] == [end for _, _, end, _ in pieces[:-1]]
    else:
        assert dealt.shape == (4, g.length, g.teams, 4) and ends.size == 0 and not dealt[..., 3].any()
    kernel = called(sg.spmm(W, n=32), schedule=str(s))
    x = operands(kernel.product)["x"]
    np.testing.assert_allclose(kernel(x), W.to_dense() @ x, rtol=1e-4, atol=1e-4)
    assert ("tile.add_rows" in kernel.ir("tile")) == bool(g.slots)


@pytest.mark.parametrize(
    ("dtype", "line", "loads"),
    [("f32", "wide=128 unroll=8", 2 + 2), ("f32", "wide=128 unroll=4", 2 + 2),
     ("f16", "wide=128 unroll=8", 2 + 2), ("f32", "wide=64 unroll=8", 2 + 4)],
)  # fmt: skip
def test_first_entries_are_on_their_way_while_the_strip_comes(dtype: str, line: str, loads: int) -> None:
    """Two records, then a turn of places and values, of four entries at most a load; lanes of several pieces have few
    entries each.  Only then a team waits."""
    W = matrix(130, 100, dtype=dtype)
    line = f"csr_strip {line} lists=1 warps=1 groups=1"
    kernel = sg.compile(sg.spmm(W, n=64), device="h200", backend="emulator", schedule=line)
    before = kernel.source().split("mbar_try_wait(&")[0]
    assert before.count("__ldg(") == loads


# ------------------------------------------------------------------------------------------------ what is said
def test_every_level_can_be_looked_at() -> None:
    k = sg.compile(sg.spmm(matrix(130, 100), n=24, bias=True), backend="emulator", device="h200", schedule=LINES[3])
    for op in ("each_block", "fill_resident", "walk_rows", "walk_on", "await_resident", "load_entries",
               "gather_resident", "multiply_rows", "join_pieces", "sum_segments", "store_row"):  # fmt: skip
        assert f"tile.{op}" in k.ir("tile")
    assert 'format="csr"' in k.ir("op") and str(k.schedule) in k.source()
    assert k.weights().keys() == {"places", "values", "records", "cuts"}


def test_explain_speaks_of_strips() -> None:
    W = matrix(130, 100)
    k = sg.compile(sg.spmm(W, n=40), device="h200", backend="emulator", schedule=LINES[1])
    told, page = str(k.explain()), k.explain().data
    assert "6: 3 strips of 64 bytes of x's rows x 2 lists of rows; 16 teams of 4 lanes" in told
    assert "a NaN or Inf of x reaches the rows that have an entry for it" in told
    assert {term["name"] for term in page["terms"]} == set(csr_strip_cost.REASONS)
    assert k.cost.schedule.rules.operations(k.cost) == 2 * W.arrays["idx"].size * 40


def test_the_formula_is_what_is_chosen_by() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons."""
    for dtype, n in (("f32", 70), ("f16", 256)):
        formulas_hold(listed(sg.spmm(matrix(300, 161, dtype=dtype), n=n), "h200", "csr_strip")[::29])


def test_more_to_do_takes_longer() -> None:
    device, s = load_profile("h200"), sg.SpmmSchedule.parse("csr_strip wide=64 lists=8 warps=16 groups=1 unroll=4")

    def time(n: int = 512, **how: Any) -> float:
        p = Ragged.of(sg.spmm(matrix(2048, 512, **{"mean": 40, "full": 0, **how}), n=n))
        return FAMILY.cost(p, s, device, FAMILY.shape(p, s, device)).time

    assert time(mean=200) > 1.1 * time() and time(n=2048) > 2 * time() and time(full=300) > 1.05 * time()


@pytest.mark.parametrize(
    ("m", "k", "entries", "family"),
    [(1000, 2048, 205, "csr_strip"), (2048, 512, 4, "csr"), (2048, 60000, 51, "csr")],
)
def test_it_is_chosen_where_it_was_faster(m: int, k: int, entries: int, family: str) -> None:
    """Rows of hundreds of entries; for shorter ones `csr` was, and for many columns of W no strip fits."""
    w = scipy.sparse.random_array((m, k), density=entries / k, format="csr", dtype="f4", rng=np.random.default_rng(0))
    n = 512
    kernel = sg.compile(sg.spmm(sg.sparse(w, format="csr"), n=n), device="h200", backend="emulator")
    assert kernel.schedule.family == family


# ------------------------------------------------------------------------------------------------ refusals
def test_what_cannot_run_is_refused_with_a_remedy() -> None:
    W = matrix(130, 100)
    for matrix_, device, words, says, hint in (
        (W, "v100", "csr_strip", "copies by cp.async, which NVIDIA V100", "take csr"),
        (matrix(10, 8000), "h200", "csr_strip", "a strip of 8000 rows of 32 bytes", "or take csr"),
        (W, "h200", "csr_strip wide=128 groups=8", "groups=8 of 8 lanes", "lower groups or wide"),
        (W, "h200", "csr_strip wide=48", "wide=48: there is no such choice", "32"),
        (W, "h200", "csr_strip wide=32 warps=33", "warps=33 is out of range", "from 1 to 32"),
    ):  # fmt: skip
        refused(sg.spmm(matrix_, n=16), device, words, says, hint)


def test_what_32_bits_do_not_index_is_refused() -> None:
    facts = replace(SpmmProblem(sg.spmm(matrix(64, 64), n=16)).facts, k=6000, n=1 << 20)
    found = FAMILY.every(facts, load_profile("h200"), {"wide": 32})
    assert not found.costs and any("indices are 32 bits wide" in r.reason for r in found.rejected)
