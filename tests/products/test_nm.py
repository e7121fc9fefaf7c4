"""Products with N:M matrices by ``nm_lanes``: right for any pattern, size, order and schedule; packing; refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.backends.emulator import Report, run
from sparsegen.backends.emulator.report import Conflict
from sparsegen.formats import library
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.node import Op, rewrite, walk
from sparsegen.ir.warp import Ld
from sparsegen.products.nm import packed_offsets, packed_values
from sparsegen.products.nm_cost import REASONS
from tests.nm_drawn import ORDER, patterns, products, runs_without_a_fault
from tests.nm_kit import encoded, formulas_hold, listed, matrix, packed_alike, pruned, refused, unpacked
from tests.products_kit import ORDERS, called, launched

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
DTYPES = ("f16", "bf16", "f32")
#: n of m and the rows and columns of a block: odd ones, more of a window than a chunk holds (33: an odd number of
#: them), windows of more than 32, vectors and blocks.
PATTERNS: list[tuple[int, int, tuple[int, int]]] = [
    (1, 3, (1, 1)), (3, 10, (1, 1)), (2, 4, (1, 1)), (16, 32, (1, 1)), (1, 33, (1, 1)), (33, 64, (1, 1)),
    (48, 64, (1, 1)), (8, 32, (32, 1)), (4, 32, (5, 1)), (8, 16, (4, 4)), (6, 9, (7, 3)),
]  # fmt: skip
LANES: dict[str, Any] = {"schedule": "nm_lanes"}
KINDS = list(zip(PATTERNS, itertools.cycle(DTYPES), strict=False))


@pytest.mark.parametrize(("pattern", "dtype"), KINDS, ids=str)
def test_any_pattern(pattern: Any, dtype: str) -> None:
    """The last window and the last group are short; some windows hold less than they may."""
    w = matrix(45, 147, *pattern, dtype=dtype, fill=0.9)
    called(sg.spmm(w, n=1), **LANES)
    called(sg.spmm(w, n=3 + pattern[0] % 2, bias=True), **LANES)


@pytest.mark.parametrize("m", [1, 31, 64, 65])
def test_any_number_of_rows(m: int) -> None:
    """Of a part of a window, and of more chunks than warps."""
    for k in (5, 600):
        called(sg.spmm(matrix(m, k, 8, 32, dtype="f32"), n=2), **LANES)


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    """Where loads of x take several elements, within windows, and where they cannot."""
    for (k, n), width, dtype in (((96, 4), 32, "bf16"), ((50, 5), 12, "f32")):
        called(sg.spmm(matrix(40, k, 4, width, dtype=dtype), n=n, residual=True), x_order, y_order, **LANES)


@pytest.mark.parametrize(("activation", "operands"), [
    (None, ()), ("relu", ("bias",)), ("gelu", ("scale", "bias", "residual")), ("silu", ("residual",)),
    (None, ("scale", "residual")), ("relu", ("scale",)),
])  # fmt: skip
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    called(sg.spmm(matrix(33, 64, 8, 32), n=4, activation=activation, **dict.fromkeys(operands, True)), **LANES)


@pytest.mark.parametrize("warps", ["1x1", "3x2", "2x8", "7x1", "1x16"])
def test_a_line_is_what_runs(warps: str) -> None:
    for cols in ((1, 4), (2, 8))[warps[0] == "1"]:
        line = f"nm_lanes cols={cols} warps={warps}"
        kernel = called(sg.spmm(matrix(70, 200, 5, 16, dtype=DTYPES[cols % 3]), n=7, bias=True), schedule=line)
        assert str(kernel.schedule) == line


LINES = st.builds(
    "nm_lanes cols={} warps={}x{}".format, st.sampled_from([1, 2, 4, 8]), st.integers(1, 4), st.integers(1, 4)
)


@given(products(patterns(range(1, 10), (1, 1, 2, 4)), (70, 130, 20), DTYPES), LINES, ORDER, ORDER)
def test_any_product_runs_without_a_fault(product: Any, words: str, x_order: str, y_order: str) -> None:
    runs_without_a_fault(product, words, x_order, y_order)


# ------------------------------------------------------------------------------------------------ what is packed
@pytest.mark.parametrize(("pattern", "dtype"), [*KINDS, ((16, 32, (1, 1)), "f32"), ((33, 64, (1, 1)), "f32")], ids=str)
def test_lanes_find_what_is_stored(pattern: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row has its elements, and looks at no column that it does not store; in any number of pieces."""
    w = matrix(70, 147, *pattern, dtype=dtype, fill=0.9)
    values, offsets = packed_values(w), packed_offsets(w)
    dense, found = unpacked(w, values, offsets)
    stored = kept(w)
    assert np.array_equal(dense, w.to_dense()) and not (found & ~stored).any() and found.sum() == stored.sum()
    monkeypatch.setattr(library, "HOST_BAND", 1)
    again = matrix(70, 147, *pattern, dtype=dtype, fill=0.9)
    assert np.array_equal(packed_values(again), values) and np.array_equal(packed_offsets(again), offsets)


def kept(w: Any) -> Any:
    """Which elements of a matrix are stored, be they zero."""
    (m, k), (r, c) = w.shape, w.vector
    positions = w.arrays["idx"].reshape(w.groups, w.windows, w.n // c)
    found = np.zeros((w.groups, w.windows, w.m // c), bool)
    np.put_along_axis(found, positions.astype(int), True, 2)
    return found.repeat(c, 2).reshape(w.groups, -1).repeat(r, 0)[:m, :k]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_torch_packs_the_same(pattern: Any) -> None:
    n, m, vector = pattern
    for dtype in ("f16", "f32"):
        w = pruned(70, 147, *pattern, dtype=dtype, fill=0.9)
        numpy, other = encoded(w, n, m, vector)
        for pack in (packed_values, packed_offsets):
            packed_alike(pack, numpy, other)


def test_bytes_that_the_model_counts_are_those_that_are_packed() -> None:
    for (n, m, vector), dtype in KINDS:
        w = matrix(70, 147, n, m, vector, dtype)
        product = sg.spmm(w, n=3)
        assert sum(pack(w).nbytes for pack in (packed_values, packed_offsets)) == facts(product).packed


def facts(product: Any) -> Any:
    """The numbers of a product that its costs know."""
    return sg.schedules(product, device="h200")[0].facts


# ------------------------------------------------------------------------------------------------ NaN and infinities
@pytest.mark.parametrize("pattern", [(3, 10, (1, 1)), (33, 64, (1, 1)), (8, 32, (5, 1)), (8, 16, (4, 4))], ids=str)
def test_a_row_that_is_not_finite_reaches_the_rows_that_store_its_column(pattern: Any) -> None:
    """Stored zeros among them (NaN then); no other row, though all share x, chunks and the last window."""
    w = matrix(40, 147, *pattern, dtype="f32", fill=0.7)
    kernel = sg.compile(sg.spmm(w, n=3), device="h200", backend="emulator", **LANES)
    assert "the rows that store its column, if only as a zero" in str(kernel.explain())
    for column, bad in ((0, np.nan), (63, np.inf), (64, np.nan), (146, np.inf)):
        x = np.ones((147, 3), "f4")
        x[column, 1] = bad
        y = kernel(x)
        assert np.isfinite(y[:, [0, 2]]).all()
        assert np.array_equal(~np.isfinite(y[:, 1]), kept(w)[:, column])


# ------------------------------------------------------------------------------------------------ bank conflicts
def entries(report: Report) -> list[Conflict]:
    """What reads of x and of sums have shown."""
    return [c for c in report.conflicts if c.op.startswith("warp.ld @xs")]


def test_reads_of_x_have_no_conflict_in_windows_of_up_to_32() -> None:
    """The degree that is declared, for every window; what random rows show is never more, and as much where m > 32."""
    for width in range(2, 65):
        tried, declared = width % 5 in (0, 2), 1 if width <= 32 else 2
        w = matrix(32, 2 * width, 1 if tried else min(17, width - 1), width, dtype="f32")
        func, arguments, _ = launched(sg.spmm(w, n=1), "nm_lanes cols=1 warps=1x1")
        assert max(op.degree for op in walk(func.body) if isinstance(op, Ld)) == declared
        if tried:
            report = run(func, arguments())
            assert not report.notes and max(c.degree for c in entries(report)) == declared


@pytest.mark.parametrize("apart", [2, 3, 4, 8])
def test_the_emulator_sees_a_layout_with_conflicts(apart: int) -> None:
    """Words of x further apart than one: the same sums, and as many conflicts as the step has factors of two."""
    product = sg.spmm(matrix(32, 161, 12, 32, dtype="f32"), n=1)  # an odd number of rows of x: single words are stored
    func, arguments, exact = launched(product, "nm_lanes cols=1 warps=1x2", ("row", "row", 1))
    (xs,) = func.shared
    spread = replace(xs, size=xs.size * apart)

    def rule(op: Op) -> Op:
        return replace(op, buf=spread, index=op.index * apart) if getattr(op, "buf", None) == xs else op  # type: ignore[attr-defined,call-arg]

    args = arguments()
    report = run(replace(func, shared=(spread,), body=rewrite(func.body, rule)), args)
    assert report.ok and np.abs(args["y"] - exact).max() < 1e-5
    worst = max(c.degree for c in entries(report))
    assert (worst > 1) == bool(report.notes) == (apart != 3) and worst <= apart
    assert apart == 3 or "above the declared 1" in report.notes[0].message


# ------------------------------------------------------------------------------------------------ what is said
def test_every_level_can_be_looked_at() -> None:
    k = sg.compile(sg.spmm(matrix(61, 53, 8, 32), n=3, bias=True), device="h200", backend="emulator", **LANES)
    assert (
        'format="nm"' in k.ir("op") and "pattern=[8, 32, 1, 1]" in k.ir("op") and "tile.multiply_chunk" in k.ir("tile")
    )
    assert "warp.fma" in k.ir("warp") and str(k.schedule) in k.source()
    assert k.weights().keys() == {"values", "offsets"}


def test_explain_speaks_of_rows_and_windows() -> None:
    k = sg.compile(sg.spmm(matrix(161, 53, 8, 32), n=8), device="h200", backend="emulator", **LANES)
    told, page = str(k.explain()), k.explain().data
    tiles, parts = k.schedule.warps
    assert f"{32 * tiles} rows of W x {k.schedule.cols} columns of x each; {parts} warps share 32 rows" in told
    assert {term["name"] for term in page["terms"]} == set(REASONS)
    assert page["legal"] == len(listed(k.product, "h200", "nm_lanes"))
    assert {change["kind"] for change in page["changes"]} == {"columns", "device"}
    families = [family["schedule"].split()[0] for family in page["families"]]
    assert families.count("nm_lanes") >= 1
    assert set(families) <= {"nm_lanes", "nm_windows", "nm_gather", "nm_decode", "nm_strips", "nm_24", "dense"}
    assert k.cost.schedule.rules.operations(k.cost) == 2 * 161 * 2 * 8 * 8  # two windows, of which 8 columns are kept


def test_other_gpus_may_have_no_schedule() -> None:
    """Shared memory of 100 KiB does not hold 40,000 words."""
    long = sg.sparse(np.zeros((40, 40000), "f4"), format="nm", n=8, m=32)
    page = sg.compile(sg.spmm(long, n=1), device="h200", backend="emulator").explain().data
    found = {c["what"]: c["schedule"] for c in page["changes"] if c["kind"] == "device"}
    assert found["NVIDIA GeForce RTX 4090"] is None and found["NVIDIA A100"].startswith("nm_lanes")


def test_the_formula_is_what_is_chosen_by() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons."""
    formulas_hold(list(sg.schedules(sg.spmm(matrix(161, 53, 48, 64), n=5), device="h200"))[::5])


# ------------------------------------------------------------------------------------------------ refusals
def test_what_cannot_be_is_refused() -> None:
    product = sg.spmm(matrix(40, 70, 8, 32, dtype="f32"), n=8)
    for line, says, hint in (
        ("nm_lanes warps=2x32", "warps=2x32 are 2048 threads", "as in warps=1x16"),
        ("nm_lanes cols=3", "cols=3: there is no such choice", "1, 2, 4, 8"),
        ("nm_lanes cols=8 warps=1x32", "registers a thread; 1024 threads leave 64", "lower cols or warps"),
        ("nm_lanes stages=2", "'stages=2' means nothing", "cols, warps"),
        ("bitmap", "bitmap is a schedule for bitmap, W is in nm", "sg.sparse(w, format='bitmap')"),
    ):
        refused(product, "h200", line, says, hint)
    other = sg.spmm(sg.sparse(np.eye(64, dtype="f2"), format="bitmap"), n=8)
    with pytest.raises(ScheduleError, match="nm_lanes is a schedule for nm, W is in bitmap"):
        sg.compile(other, device="h200", schedule="nm_lanes")


def test_rows_that_do_not_fit_shared_memory() -> None:
    """The model takes fewer columns where they fit; where none does, and where they are asked for, it is said."""
    long, longer = (sg.spmm(sg.sparse(np.zeros((40, k), "f4"), format="nm", n=8, m=32), n=8) for k in (30000, 70000))
    assert sg.compile(long, device="h200", backend="emulator", **LANES).schedule.cols == 1
    for product, line, says, hint in (
        (long, "nm_lanes cols=8", "bytes of shared memory for 30080 rows of x and cols=8", "lower cols"),
        (longer, "nm_lanes", "no nm_lanes schedule can run the product: 280064 bytes", r"matrices of fewer columns"),
    ):
        assert "a block has 232448" in refused(product, "h200", line, says, hint)
