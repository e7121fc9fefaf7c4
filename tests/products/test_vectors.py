"""Products of integers in vectors on the emulator: exact for all types, sizes, orders and epilogues."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.formats.matrix import KINDS
from sparsegen.ir.errors import ArrayError, FormatError, ProductError
from tests.vectors_kit import LINES, exact, integers, pairs, quantized

GATHER = "vector_gather wide=32 warps=2x1 stages=4"


def called(w: Any, x: Any, line: str = "auto", device: str = "h200", **how: Any) -> Any:
    """The result on the emulator, with every checker."""
    n = how.pop("n", x.shape[1])
    extra = {name: how.pop(name) for name in ("scale", "bias", "residual") if name in how}
    flags = dict.fromkeys(extra, True)
    k = sg.compile(sg.spmm(w, n=n, **flags, **how), device=device, backend="emulator", schedule=line)
    report = k.check(x, **extra)
    assert not report.errors, str(report)
    return k(x, **extra)


@pytest.mark.parametrize(
    ("kind", "x_kind"),
    list(product(("i4", "u4", "i8", "u8", "i12", "i16", "u16"), ("i4", "u4", "i8", "u8", "i16", "u16"))),
)
def test_all_types_are_exact(kind: str, x_kind: str) -> None:
    """Sums of 32 bits wrap as on the hardware; of 16 bits times 16 bits they do."""
    w = quantized((19, 70), kind, seed=1, extreme=kind[1:] == "16")
    x = integers(np.random.default_rng(2), x_kind, (70, 33), extreme=x_kind[1:] == "16")
    assert np.array_equal(called(w, x, x_dtype=x_kind), exact(w, x))


@pytest.mark.parametrize(("line", "kinds"), list(product(LINES, (("i8", "i8"), ("i16", "i4"), ("i4", "i16")))))
def test_all_schedules_are_exact(line: str, kinds: tuple[str, str]) -> None:
    w = quantized((70, 300), kinds[0], seed=3)
    x = integers(np.random.default_rng(4), kinds[1], (300, 70))
    assert np.array_equal(called(w, x, line, x_dtype=kinds[1]), exact(w, x))


@pytest.mark.parametrize("device", ["a100", "h200"])
@pytest.mark.parametrize("height", [2, 4, 8])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 9, 1), (8, 32, 16), (37, 101, 17), (16, 400, 40)])
def test_any_size_and_height(shape: tuple[int, int, int], height: int, device: str) -> None:
    m, k, n = shape
    w = quantized((m, k), height=height, kept=0.7, seed=m)
    x = integers(np.random.default_rng(k), "i8", (k, n))
    assert np.array_equal(called(w, x, device=device), exact(w, x))


@pytest.mark.parametrize(
    "line", [GATHER, "vector_gather wide=64 warps=1x1 stages=2 cut=2", "vector_strip wide=32 cut=2"]
)
@pytest.mark.parametrize("kinds", [("i8", "i8"), ("i16", "i16"), ("i4", "u4")])
def test_rows_of_all_lengths(line: str, kinds: tuple[str, str]) -> None:
    """Long rows are cut, and their pieces add up whatever comes last; other rows have no vector."""
    rng = np.random.default_rng(13)
    dense = integers(rng, kinds[0], (40, 400))
    dense[~np.repeat(rng.random((5, 400)) < np.array([0.9, 0.02, 0.5, 0, 0.1])[:, None], 8, axis=0)] = 0
    w = sg.sparse(dense, format="sr_bcrs", height=8, dtype=kinds[0])
    x = integers(rng, kinds[1], (400, 50))
    assert np.array_equal(called(w, x, line, x_dtype=kinds[1]), exact(w, x))


def test_more_columns_than_16_bits_count() -> None:
    """Then no strip fits, columns are listed in 32 bits, and numbers of rows of x are."""
    dense = np.zeros((8, 70000), "i1")
    dense[:, [3, 65535, 65536, 69999]] = [[1], [-2], [3], [-128], [5], [6], [7], [127]]
    w = sg.sparse(dense, format="sr_bcrs", height=8)
    x = integers(np.random.default_rng(14), "i8", (70000, 16))
    k = sg.compile(sg.spmm(w, n=16), device="h200", backend="emulator")
    assert k.schedule.family == "vector_gather" and np.array_equal(k(x), exact(w, x))


@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_no_vector_and_all_of_them(kept: float) -> None:
    w = quantized((24, 80), kept=kept * 100, seed=5, extreme=True)
    assert (w.nnz == 0) == (kept == 0)
    x = integers(np.random.default_rng(6), "i8", (80, 20), extreme=True)
    assert np.array_equal(called(w, x), exact(w, x))


@pytest.mark.parametrize("x_kind", ["i4", "u4"])
@pytest.mark.parametrize("order", ["row", "column"])
def test_two_elements_a_byte(x_kind: str, order: str) -> None:
    w, x = quantized((24, 64), seed=7), integers(np.random.default_rng(8), x_kind, (64, 34))
    packed = np.asarray(pairs(x), order="C" if order == "row" else "F")
    assert np.array_equal(called(w, packed, n=34, x_dtype=x_kind), exact(w, x))


@pytest.mark.parametrize("kinds", [("i8", "i8"), ("i16", "i8"), ("i8", "i4"), ("i16", "i16")])
@pytest.mark.parametrize("orders", [("C", "C"), ("F", "F"), ("F", "C")])
def test_orders_of_x_and_y(orders: tuple[str, str], kinds: tuple[str, str]) -> None:
    w, x = quantized((24, 50), kinds[0], seed=9), integers(np.random.default_rng(10), kinds[1], (50, 24))
    k = sg.compile(sg.spmm(w, n=24, x_dtype=kinds[1]), device="h200", backend="emulator")
    out = np.full((24, 24), -1, "i4", orders[1])
    assert k(np.asarray(x, order=orders[0]), out=out) is out
    assert np.array_equal(out, exact(w, x))


@pytest.mark.parametrize("y", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_epilogues_make_floats(y: str, activation: Any) -> None:
    """Scale and bias are f32; a result is rounded once."""
    rng = np.random.default_rng(11)
    w, x = quantized((21, 64), "i16", seed=12), integers(rng, "i8", (64, 18))
    scale, bias = rng.uniform(1e-6, 2e-6, 21).astype("f4"), rng.uniform(-1, 1, 21).astype("f4")
    residual = rng.uniform(-1, 1, (21, 18)).astype(KINDS[y].numpy())
    given = {"scale": scale, "bias": bias, "residual": residual}
    got = called(w, x, y_dtype=y, activation=activation, **given)
    k = sg.compile(
        sg.spmm(w, n=18, y_dtype=y, activation=activation, scale=True, bias=True, residual=True), backend="reference"
    )
    want = k(x, **given)
    assert got.dtype == want.dtype == KINDS[y].numpy()
    slack = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-20}[y]
    assert np.abs(got.astype("f8") - want.astype("f8")).max() <= slack * (1 + np.abs(want.astype("f8")).max())


def test_floats_of_wide_integers_never_wrap() -> None:
    """Digits combine in f32: a sum beyond 2^31 stays what it is."""
    w = sg.sparse(np.full((8, 64), 32767, "i2"), format="sr_bcrs", height=8)
    x = np.full((64, 16), 32767, "i2")
    got = called(w, x, x_dtype="i16", y_dtype="f32")
    assert np.allclose(got, 64 * 32767.0**2, rtol=1e-6)
    assert (called(w, x, x_dtype="i16") == np.array(64 * 32767**2).astype("i4")).all()


def test_wrong_arguments_have_a_remedy() -> None:
    w = quantized((16, 32))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"x_dtype": "f16"}, "x_dtype='f16'"),
        ({"y_dtype": "i8"}, "y_dtype='i8'"),
        ({"bias": True}, "makes floats of sums"),
    ]
    for how, says in wrong:
        with pytest.raises(ProductError, match=says) as e:
            sg.spmm(w, n=8, **how)
        assert e.value.hint
    with pytest.raises(ProductError, match="x and y are as W is") as e:
        sg.spmm(sg.sparse(np.eye(16, dtype="f2"), format="csr"), n=8, x_dtype="i8")
    assert "quantize" in str(e.value)
    k = sg.compile(sg.spmm(w, n=8), device="h200", backend="emulator")
    with pytest.raises(ArrayError, match="x_dtype='i8'"):
        k(np.zeros((32, 8), "i4"))
    with pytest.raises(FormatError, match="W is i32") as e2:
        sg.compile(sg.spmm(sg.sparse(np.ones((8, 8), "i4"), format="sr_bcrs", height=8, dtype="i32"), n=8))
    assert "quantize" in str(e2.value)
