"""Products with csr matrices as users call them: right for any order and any schedule, on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sparsegen as sg
from sparsegen.ir.errors import FormatError, ScheduleError
from sparsegen.products.ragged import segments_of
from tests.csr_kit import ragged
from tests.products_kit import ORDERS, called

DEVICE = "h200"


def matrix(m: int, k: int, mean: float, dtype: str, full: int = 1) -> Any:
    """A matrix with rows of all lengths, ``full`` of them without zeros."""
    return sg.sparse(ragged(m, k, mean, full=full), format="csr", dtype=dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("n", [1, 24, 128])
def test_products_are_right(dtype: str, n: int) -> None:
    """An epilogue with everything, or with nothing."""
    w = matrix(40, 33, 6, dtype)
    called(sg.spmm(w, n=n))
    called(sg.spmm(w, n=n, bias=True, scale=True, residual=True, activation="relu"))


@pytest.mark.parametrize("line", ["csr", "csr_strip", "auto"])
def test_f64_keeps_all_bits(line: str) -> None:
    """SciPy's own type stays what it is: 2^-40 survives beside 1, in W, x, the sums, the bias and y."""
    rows = scipy.sparse.csr_array(np.array([[1 + 2.0**-40, 0, -1.0], [0, 0, 0], [0, 2.0**-1000, 0]]))
    w = sg.sparse(rows, format="auto")
    assert (w.format, w.dtype) == ("csr", "f64") and (w.to_scipy() != rows).nnz == 0 and w.to_scipy().dtype == "f8"
    k = sg.compile(sg.spmm(w, n=1, bias=True), device=DEVICE, backend="emulator", schedule=line)
    y = k(np.ones((3, 1)), bias=np.array([0.0, 2.0**-60, 0.0]))
    assert y.dtype == "f8" and y[:, 0].tolist() == [2.0**-40, 2.0**-60, 2.0**-1000]
    assert sg.sparse(rows.toarray(), format="auto").dtype == "f64"
    assert sg.sparse(rows, format="csr", dtype="f32").dtype == "f32"


def test_f64_has_the_library_beside_it_and_few_units_cost() -> None:
    """A GPU with two units of f64 an SM takes longer for the same product, and so does the library's there."""
    product = sg.spmm(sg.sparse(ragged(500, 500, 200), format="auto"), n=512)
    times = {
        name: {c.schedule.family: c.time for c in reversed(sg.schedules(product, device=name))}
        for name in ("h100", "rtx4090")
    }
    assert times["h100"].keys() == {"csr", "csr_strip", "dense"}
    assert all(times["rtx4090"][family] > 2 * times["h100"][family] for family in times["rtx4090"])


@pytest.mark.parametrize(*ORDERS)
def test_orders_of_the_arrays(x_order: str, y_order: str) -> None:
    called(sg.spmm(matrix(40, 33, 6, "f16"), n=24, residual=True), x_order, y_order)


@pytest.mark.parametrize("line", [
    "csr team=2x4 columns=4 unroll=4 cut=8 warps=2", "csr team=1x1 columns=16 unroll=1 cut=5 warps=1",
    "csr team=32x1 columns=1 unroll=16 cut=100 warps=1", "csr cut=4",
])  # fmt: skip
def test_a_line_is_what_runs(line: str) -> None:
    """Words that it leaves out are chosen."""
    words = dict(word.split("=") for word in line.split()[1:])
    chosen = str(called(sg.spmm(matrix(20, 30, 6, "f32"), n=24), schedule=line).schedule)
    assert words.items() <= dict(word.split("=") for word in chosen.split()[1:]).items()


def test_explicit_zeros_and_rows_without_entries() -> None:
    w = scipy.sparse.csr_array((np.zeros(1, "f4"), np.array([2]), np.array([0, 0, 1, 1])), shape=(3, 4))
    called(sg.spmm(sg.sparse(w, format="csr"), n=4, bias=True))
    called(sg.spmm(sg.sparse(scipy.sparse.csr_array((5, 7), dtype="f4"), format="csr"), n=4))


def test_every_level_can_be_looked_at() -> None:
    k = sg.compile(sg.spmm(matrix(20, 30, 6, "f32"), n=8, bias=True), device=DEVICE, backend="emulator")
    assert 'format="csr"' in k.ir("op") and "tile.gather" in k.ir("tile") and "warp.fma" in k.ir("warp")
    assert str(k.schedule) in k.source()
    assert not k.check().errors
    assert k.counts()["bytes.global.write"] >= 20 * 8 * 4


def test_segments_are_worked_out_once() -> None:
    """For the program, for the arrays of all its calls, and for other kernels with the same teams."""
    w = matrix(20, 30, 6, "f32")
    assert segments_of(w, 7, 4, 16) is segments_of(w, 7, 4, 16)
    assert segments_of(w, 7, 4, 16).cuts


def test_what_cannot_be_is_refused() -> None:
    product = sg.spmm(matrix(20, 30, 6, "f32"), n=8)
    with pytest.raises(ScheduleError, match="do not divide a warp"):
        sg.compile(product, device=DEVICE, schedule="csr team=3x4")
    with pytest.raises(ScheduleError, match="a schedule for bitmap, W is in csr"):
        sg.compile(product, device=DEVICE, schedule="bitmap")
    with pytest.raises(ScheduleError, match="registers a thread"):
        sg.compile(product, device=DEVICE, schedule="csr team=1x1 columns=32 unroll=16 cut=9 warps=4")
    with pytest.raises(ScheduleError, match="cols"):
        sg.compile(product, device=DEVICE, schedule="csr cols=8")
    empty = sg.sparse(scipy.sparse.csr_array((0, 7), dtype="f4"), format="csr")
    with pytest.raises(FormatError, match="nothing to multiply"):
        sg.compile(sg.spmm(empty, n=8), device=DEVICE)


def test_explain_speaks_of_rows_and_entries() -> None:
    k = sg.compile(sg.spmm(matrix(61, 53, 6, "f32"), n=8), device=DEVICE, backend="emulator")
    told, page = str(k.explain()), k.explain().data
    assert f"schedule   {k.schedule}" in told and "pieces of rows" in told and "what is not stored" in told
    listed = sg.schedules(k.product, device=DEVICE)  # with the library's product, which only auto may take
    assert page["legal"] == len([c for c in listed if not c.schedule.rules.library])
    assert {change["kind"] for change in page["changes"]} == {"columns", "device"}
    assert {family["schedule"].split()[0] for family in page["families"]} == {"csr", "csr_strip", "dense"}


def test_the_formula_is_what_is_chosen_by() -> None:
    """Worked out with sympy it gives the time, and its terms have reasons."""
    cost = sg.schedules(sg.spmm(matrix(61, 53, 6, "f16"), n=24), device=DEVICE)[3]
    assert float(cost.formula.xreplace(cost.substitution())) == pytest.approx(cost.time, rel=1e-9)
    assert cost.reasons().keys() == cost.terms.keys()
