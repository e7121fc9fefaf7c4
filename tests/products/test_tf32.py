"""Products of f32 with dense tiles in tf32: within 1e-3, rounded to nearest; what else there is stays exact f32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.reference import spmm as reference
from sparsegen.ir.errors import IRError, ProductError
from sparsegen.ir.numbers.mixed import TILES
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.ir.verify import verify
from tests.mixed_kit import line, matrix
from tests.products_kit import EPILOGUES, ORDERS, operands

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
#: What rounding both factors of a product to 10 bits of mantissa may change it by, and of a norm by all of them.
ONE, ALL = 2.0**-10, 1e-3


def called(product: sg.Product, schedule: str = "auto", device: str = "h200", orders: Any = ("row", "row")) -> Any:
    """The kernel; AssertionError unless it is as right as tf32 can be, with nothing that a checker finds."""
    kernel = sg.compile(product, device=device, backend="emulator", schedule=schedule)
    given = operands(product, *orders)
    named = {name: a for name, a in given.items() if name not in ("x", "out")}
    assert kernel(given["x"], out=given["out"], **named) is given["out"]
    dense, activation = product.w.to_dense().astype(float), product.epilogue.activation or "none"
    want = reference.run(dense, given["x"], activation=activation, sums=np.float64, **named)
    terms = np.abs(dense) @ np.abs(given["x"].astype(float))
    off = np.abs(given["out"] - want)
    assert (off <= 1.2 * (ONE + 2.0**-20) * (terms + 2.0**-9)).all()  # no activation is steeper than 1.2
    assert np.linalg.norm(off) <= ALL * np.linalg.norm(want)
    report = kernel.check()
    assert report.ok and not report.notes
    return kernel


@pytest.mark.parametrize("tile", TILES)
def test_any_tile(tile: int) -> None:
    """Sizes that nothing divides; warps that share rows, columns and both; rows of x of 64 and of 128 bytes."""
    W = matrix(150, 203, tile, "f32")
    for device, high, cols, warps in zip(
        ("h200", "a100", "rtx4090"), (1, 2, 1), (128, 16, 32), ("1x4", "2x1", "1x2"), strict=True
    ):
        for n in (1, 17, 40):
            kernel = called(sg.spmm(W, n=n, precision="tf32"), line(cols, warps, 2, 1, high), device)
            assert "mma.tf32.m16n8k8" in kernel.counts() and "in tf32" in str(kernel.product)


@pytest.mark.parametrize(*EPILOGUES)
@pytest.mark.parametrize(*ORDERS)
def test_orders_and_epilogues(x_order: str, y_order: str, activation: Any, operands: tuple[str, ...]) -> None:
    how = {**dict.fromkeys(operands, True), "activation": activation}
    called(sg.spmm(matrix(70, 90, 32, "f32"), n=24, precision="tf32", **how), line(), orders=(x_order, y_order))


def test_what_is_chosen_runs() -> None:
    product = sg.spmm(matrix(130, 100, 32, "f32"), n=48, precision="tf32")
    called(product)
    cost = sg.schedules(product, device="h200")[0]
    assert float(cost.formula.xreplace(cost.substitution())) == pytest.approx(cost.time, rel=1e-9)


def test_numbers_are_rounded_to_nearest() -> None:
    """W's beforehand, x's by the kernel, ties away from zero; an infinity and a NaN stay what they are."""
    w = np.zeros((32, 32), "f4")
    w[:16, :16] = np.eye(16) * np.float32(1 + 2.0**-11)
    w[:16, :16] += np.float32(2.0**-40)  # so that the tile is dense
    x = np.ones((32, 8), "f4")
    x[1, :], x[2, :], x[3, 0] = 1 + 2.0**-11, -1 - 2.0**-12, np.inf
    W = sg.sparse(w, format="hybrid", tile=16, method="none")
    assert W.tiles == 1
    kernel = sg.compile(sg.spmm(W, n=8, precision="tf32"), device="h200", backend="emulator", schedule=line())
    y = kernel(x)[:16].astype(float)
    up = 1 + 2.0**-10
    assert np.allclose(y[[0, 1, 2], 1], [up, up * up, -up], rtol=0, atol=2.0**-22)
    assert np.isinf(y[:, 0]).all() and np.isfinite(y[:, 1:]).all()


def test_other_entries_are_exact_f32() -> None:
    w = np.where(np.random.default_rng(0).random((64, 64)) < 0.03, np.float32(1 + 2.0**-20), np.float32(0))
    W = sg.sparse(w, format="hybrid", tile=16)
    assert not W.tiles
    kernel = sg.compile(sg.spmm(W, n=16, precision="tf32"), device="h200", backend="emulator")
    x = np.random.default_rng(1).uniform(-1, 1, (64, 16)).astype("f4")
    assert np.allclose(kernel(x), w.astype(float) @ x, rtol=0, atol=1e-6)


def test_batches() -> None:
    W = matrix(70, 90, 32, "f32")
    kernel = sg.compile(sg.spmm(W, n=12, batch=3, precision="tf32"), device="h200", backend="emulator", schedule=line())
    x = np.random.default_rng(1).uniform(-1, 1, (3, 90, 12)).astype("f4")
    want = W.to_dense().astype(float) @ x
    assert np.linalg.norm(kernel(x) - want) <= ALL * np.linalg.norm(want)


def test_what_has_no_tf32() -> None:
    W = matrix(64, 64, 32, "f32")
    wrong: Any = "fp8"
    for w, precision in ((W, wrong), (matrix(64, 64), "tf32"), (W.rows(), "tf32")):
        with pytest.raises(ProductError, match=r'precision=(?s:.*)"tf32" is for f32 and format="hybrid"'):
            sg.spmm(w, n=8, precision=precision)


@pytest.mark.parametrize(("old", "new", "words"), [
    ('shape="tf32.m16n8k8"', 'shape="f16.m16n8k16"', "f16.m16n8k16 is no mma of 8 tf32"),
    ('shape="tf32.m16n8k8"', 'shape="tf32.m16n8k4"', "tf32.m16n8k4 is no mma of 8 tf32"),
    ("@w_ring: shared f32", "@w_ring: shared u32", "is f32|has f32, not u32"),
])  # fmt: skip
def test_a_wrong_program_is_refused(old: str, new: str, words: str) -> None:
    product = sg.spmm(matrix(64, 64, 32, "f32"), n=8, precision="tf32")
    kernel = sg.compile(product, device="h200", backend="emulator", schedule=line())
    program = kernel._programs.get(1, kernel._calls.packed)
    text = print_module(program.tile)
    assert parse_module(text) == program.tile and parse_module(print_module(program.op)) == program.op and old in text
    with pytest.raises(IRError, match=words):
        verify(parse_module(text.replace(old, new)))
    with pytest.raises(IRError, match="multiplies no f32 in tf32"):
        verify(parse_module(print_module(program.op).replace('format="hybrid"', 'format="csr"')))
