"""Products of floats in vectors on the emulator: against f64 for both types, all sizes, orders and epilogues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.families.spmm.dense import DENSE
from sparsegen.formats.matrix import KINDS
from sparsegen.ir.errors import ArrayError, FormatError, ProductError, ScheduleError
from tests.vectors_kit import LINES, floats, kernel

#: Rounding of a result, and of an operand of its epilogue, relative.
ROUNDING = {"f16": 2.0**-10, "bf16": 2.0**-7}
pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")


def drawn(kind: str, *shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(KINDS[kind].numpy())


def wide(a: Any) -> Any:
    return a.astype("f8")


def close(got: Any, want: Any, kind: str) -> None:
    assert got.dtype == KINDS[kind].numpy() and got.shape == want.shape
    slack = ROUNDING[kind] * np.abs(want) + 1e-5 * (1 + np.abs(want).max(initial=0))
    assert (np.abs(wide(got) - want) <= slack).all()


def checked(w: Any, x: Any, line: str = "auto", device: str = "h200") -> Any:
    """The kernel, after a run with every checker whose result is near that of f64."""
    k = kernel(sg.spmm(w, n=x.shape[1]), line, device)
    report = k.check(x)
    assert not report.errors, str(report)
    close(k(x), wide(w.to_dense()) @ wide(x), w.dtype)
    return k


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_all_schedules(kind: str, line: str) -> None:
    checked(floats((70, 300), kind, seed=3), drawn(kind, 300, 70), line)


@pytest.mark.parametrize("device", ["a100", "h200"])
@pytest.mark.parametrize("height", [2, 4, 8])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 9, 1), (8, 32, 16), (37, 101, 17), (16, 400, 40)])
def test_any_size_and_height(shape: tuple[int, int, int], height: int, device: str) -> None:
    m, k, n = shape
    checked(floats((m, k), height=height, kept=0.7, seed=m), drawn("f16", k, n), device=device)


@pytest.mark.parametrize("format", ["sr_bcrs", "bcrs"])
@pytest.mark.parametrize("kept", [0.0, 0.05, 100.0])
def test_no_vector_few_and_all_of_them(kept: float, format: str) -> None:
    w = floats((40, 90), kept=kept, format=format)
    assert (w.nnz == 0) == (kept == 0) and w.format == format
    checked(w, drawn("f16", 90, 24))


@pytest.mark.parametrize("line", ["vector_gather wide=64 warps=1x1 stages=2 cut=2", "vector_strip wide=32 cut=2"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_rows_of_all_lengths(line: str, kind: str) -> None:
    """Long rows are cut, and their pieces add up in one order; other rows have no vector."""
    dense = drawn(kind, 40, 400)
    share = np.array([0.9, 0.02, 0.5, 0, 0.1])[:, None]
    dense[~np.repeat(np.random.default_rng(13).random((5, 400)) < share, 8, axis=0)] = 0
    checked(sg.sparse(dense, format="sr_bcrs", height=8), drawn(kind, 400, 50), line)


def test_more_columns_than_16_bits_count() -> None:
    dense = np.zeros((8, 70000), "f2")
    dense[:, [3, 65535, 65536, 69999]] = [[1], [-2], [3], [0.5], [5], [6], [7], [8]]
    k = checked(sg.sparse(dense, format="sr_bcrs", height=8), drawn("f16", 70000, 16))
    assert k.schedule.family == "vector_gather"


@pytest.mark.parametrize("n", [17, 18, 64])
@pytest.mark.parametrize("orders", [("C", "C"), ("F", "F"), ("F", "C"), ("C", "F")])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_orders_and_epilogues(orders: tuple[str, str], n: int, activation: Any) -> None:
    """Sums are rounded once, with and without a residual."""
    w, x = floats((37, 90), kept=0.6), np.asarray(drawn("f16", 90, n), order=orders[0])
    given = {"scale": drawn("f16", 37), "bias": drawn("f16", 37, seed=2)}
    want = wide(given["scale"])[:, None] * (wide(w.to_dense()) @ wide(x)) + wide(given["bias"])[:, None]
    z = want
    if activation == "relu":
        want = np.maximum(z, 0)
    elif activation == "gelu":
        want = z / 2 * (1 + np.tanh(0.7978845608028654 * (z + 0.044715 * z**3)))
    elif activation == "silu":
        want = z / (1 + np.exp(-z))
    for residual in (False, True):
        if residual:
            given["residual"] = np.asarray(drawn("f16", 37, n, seed=3), order=orders[1])
            want = want + wide(given["residual"])
        k = kernel(sg.spmm(w, n=n, activation=activation, **dict.fromkeys(given, True)))
        out = np.full((37, n), np.nan, "f2", orders[1])
        report = k.check(x, out, **given)
        assert not report.errors, str(report)
        assert k(x, out=out, **given) is out
        close(out, want, "f16")


@pytest.mark.parametrize("line", ["vector_strip", "vector_gather"])
@pytest.mark.parametrize("kept", [0.4, 0.7, 2.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_only_rows_that_read_it(bad: float, kept: float, line: str) -> None:
    """What fills steps up reads rows of x that the same 8 rows of W read in any case; others are never multiplied."""
    w, x = floats((64, 45), kept=kept, seed=4), drawn("f16", 45, 9)
    x[[0, 7, 20], [1, 3, 8]] = bad
    dense, wrong = w.to_dense(), ~np.isfinite(x)
    read = (dense.reshape(8, 8, 45) != 0).any(1)
    reached = (read.astype(int) @ wrong.astype(int) > 0).repeat(8, 0)
    y = kernel(sg.spmm(w, n=9), line)(x)
    assert reached.any() and not reached.all() and np.array_equal(~np.isfinite(y), reached)
    close(np.where(reached, 0, y).astype("f2"), np.where(reached, 0, wide(dense) @ np.where(wrong, 0, wide(x))), "f16")


def test_negative_zeros_and_the_largest_numbers() -> None:
    """-0.0 is kept as an element; a sum beyond the type's range becomes an infinity."""
    dense = np.zeros((16, 40), "f2")
    dense[3, 5], dense[9] = -0.0, 60000
    w = sg.sparse(dense, format="sr_bcrs", height=8)
    assert w.nnz == 41 and np.array_equal(w.to_dense().view("u2"), dense.view("u2"))
    y = kernel(sg.spmm(w, n=8))(np.ones((40, 8), "f2"))
    assert (y[9] == np.inf).all() and (np.delete(y, 9, axis=0) == 0).all()


def test_a_product_may_take_the_dense_matrix() -> None:
    """Where W was made with format="auto", and the model has it as the faster one."""
    dense = drawn("f16", 1024, 1024)
    w = sg.sparse(dense, format="auto", height=8)
    assert w.format == "sr_bcrs" and kernel(sg.spmm(w, n=512)).schedule == DENSE
    dense[~sg.pattern.vectors(drawn("f16", 1024, 1024) > 0.999, 8)] = 0
    few = sg.sparse(dense, format="auto", height=8)
    assert kernel(sg.spmm(few, n=512)).schedule.family in ("vector_strip", "vector_gather")


@pytest.mark.parametrize("format", ["sr_bcrs", "bcrs"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_what_is_stored_comes_back(kind: str, format: str, tmp_path: Path) -> None:
    """From files, and of scipy's rows, whose values are rounded, too; blocks have as many vectors as an mma takes."""
    w = floats((37, 50), kind, 4, seed=7, format=format)
    dense = w.to_dense()
    w.save(tmp_path / "w")
    again = sg.load(tmp_path / "w")
    assert np.array_equal(again.to_dense().view("u2"), dense.view("u2")) and again.dtype == w.dtype == kind
    other = sg.sparse(w.to_scipy(), format=format, dtype=kind, height=4)
    assert np.array_equal(other.to_dense().view("u2"), dense.view("u2"))
    assert ("stride", 16) in w.spec.options or format == "bcrs"


def test_both_formats_make_the_same_program() -> None:
    told = [kernel(sg.spmm(floats((64, 90), format=f), n=24)).ir("warp") for f in ("sr_bcrs", "bcrs")]
    assert told[0] == told[1] and "f16.m16n8k16" in told[0]


def test_what_is_refused() -> None:
    w = floats((16, 32))
    with pytest.raises(ArrayError, match="w has dtype float32") as e:
        sg.sparse(np.ones((8, 8), "f4"), format="bcrs")
    assert "w.half()" in str(e.value.hint)
    with pytest.raises(ProductError, match="x and y are as W is"):
        sg.spmm(w, n=8, x_dtype="i8")
    with pytest.raises(ScheduleError, match="vector_block multiplies integers, W is f16") as refused:
        kernel(sg.spmm(w, n=8), "vector_block")
    assert refused.value.hint
    with pytest.raises(ScheduleError, match=r"mma.m16n8k16, which NVIDIA V100"):
        kernel(sg.spmm(w, n=8), device="v100")
    with pytest.raises(FormatError, match="height=16"):
        sg.sparse(np.ones((8, 8), "f2"), format="sr_bcrs", height=16)
    with pytest.raises(ArrayError, match="W is f16"):
        kernel(sg.spmm(w, n=8))(np.zeros((32, 8), "f4"))
