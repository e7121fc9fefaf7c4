"""Products of f32 with dense tiles in two parts of tf32 each: as right as f32 is, which tf32 alone is not; what is not
finite, what is packed, what is expected of them, and where ``format="auto"`` takes them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.hybrid import FAMILY
from sparsegen.ir.numbers.mixed import TILES
from sparsegen.products.hybrid import HybridNumbers
from sparsegen.products.hybrid_cost import EACH, SPLIT
from tests.mixed_kit import line, matrix, values
from tests.nm_kit import formulas_hold, listed
from tests.products_kit import EPILOGUES, ORDERS, called, operands

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
#: Of a norm: what rounding to f32 may change, and what rounding to tf32 surely does.
F32, TF32 = 1e-6, 5e-5


def off(kernel: Any, x: Any) -> float:
    """How far the result is from that in f64, of norms."""
    want = kernel.product.w.to_dense().astype(float) @ x.astype(float)
    return float(np.linalg.norm(kernel(x) - want) / np.linalg.norm(want))


def compiled(product: sg.Product, schedule: str = "auto") -> Any:
    return sg.compile(product, device="h200", backend="emulator", schedule=schedule)


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize("tile", TILES)
def test_any_tile(tile: int) -> None:
    """Sizes that nothing divides; warps that share rows, columns and both; rows of x of 64 and of 128 bytes."""
    W = matrix(150, 203, tile, "f32")
    assert W.tiles and W.rest
    for device, high, cols, warps in zip(
        ("h200", "a100", "rtx4090"), (1, 2, 1), (128, 16, 32), ("1x4", "2x1", "1x2"), strict=True
    ):
        words = line(cols, warps, 2, 1, high)
        for n in (17, 40):
            kernel = called(sg.spmm(W, n=n), schedule=words, device=device)
            assert off(kernel, operands(kernel.product)["x"]) < F32
        rounded, report = compiled(sg.spmm(W, n=40, precision="tf32"), words), kernel.check()
        assert off(rounded, operands(rounded.product)["x"]) > TF32 and report.ok and not report.notes
        every, one = (k.counts()["mma.tf32.m16n8k8"] for k in (kernel, rounded))
        assert every == EACH * one


@pytest.mark.parametrize("slices", [2, 8])
def test_slices_share_k(slices: int) -> None:
    """Sums of each slice are of as few products as those of a turn are, and added in f32."""
    for tile in TILES:
        W = matrix(150, 203, tile, "f32")
        words = line(32, "2x1" if tile > 16 else "1x2", 2, 1, slices=slices)
        for precision, least, most in ((None, 0, F32), ("tf32", TF32, 1e-3)):
            kernel = (
                called(sg.spmm(W, n=40), schedule=words)
                if precision is None
                else compiled(sg.spmm(W, n=40, precision=precision), words)
            )
            assert least <= off(kernel, operands(kernel.product)["x"]) < most
            report = kernel.check()
            assert report.ok and not report.notes


@pytest.mark.parametrize(*EPILOGUES)
@pytest.mark.parametrize(*ORDERS)
def test_orders_and_epilogues(x_order: str, y_order: str, activation: Any, operands: tuple[str, ...]) -> None:
    how = {**dict.fromkeys(operands, True), "activation": activation}
    called(sg.spmm(matrix(70, 90, 32, "f32"), n=24, **how), x_order, y_order, line())


def test_long_rows_and_batches() -> None:
    """Rows that are cut, beside dense tiles, and matrices one behind the other."""
    W = matrix(64, 300, 32, "f32", long=1)
    kernel = called(sg.spmm(W, n=24), schedule=line())
    assert "tile.put_row" in kernel.ir("tile")
    many = compiled(sg.spmm(W, n=12, batch=3), line())
    x = np.random.default_rng(1).uniform(-1, 1, (3, 300, 12)).astype("f4")
    want = W.to_dense().astype(float) @ x
    assert np.linalg.norm(many(x) - want) <= F32 * np.linalg.norm(want)


def test_numbers_of_any_size() -> None:
    """Parts of numbers that are far apart, or nearly the largest there are, are right to f32's bits as well."""
    rng = np.random.default_rng(3)

    def wide(*shape: int) -> Any:
        return (rng.uniform(1, 2, shape) * 2.0 ** rng.integers(-30, 30, shape)).astype("f4")

    w = np.zeros((32, 64), "f4")
    w[:, :32], w[:16, 32:] = np.eye(32) * wide(32, 32), np.eye(16, 32) * 3e38
    W: Any = sg.sparse(w, format="hybrid", tile=16, method="none", delta=0.0)
    assert W.tiles == 3 and not W.rest
    x = wide(64, 8)
    x[32:] *= 1e-20
    assert np.allclose(compiled(sg.spmm(W, n=8), line())(x), w.astype(float) @ x, rtol=2.0**-21, atol=0)


# ------------------------------------------------------------------------------------------------ NaN and infinities
def test_what_is_not_finite_makes_nan_in_bands_with_a_dense_tile() -> None:
    """An infinity too, as it leaves nothing that could be added; other columns and bands are as they would be."""
    W = matrix(200, 150, 32, "f32")
    kernel = compiled(sg.spmm(W, n=16), line())
    assert "an Inf in a dense tile or beside one makes NaN" in str(kernel.explain())
    entry, band, ptr = W.to_dense() != 0, np.empty(200, int), W.arrays["ptr"]
    band[W.order] = np.arange(200) // 32
    ones = np.ones((150, 16), "f4")
    plain = kernel(ones)
    for column, bits in ((0, 0x7FFFFFFF), (63, 0x7F800000), (149, 0xFF800000), (100, 0x7F800001), (20, 0xFFFFFFFF)):
        x = ones.copy()
        x.view("u4")[column, 1] = bits
        y = kernel(x)
        tiled = np.array([column // 32 in W.arrays["idx"][a:b] for a, b in pairwise(ptr)])[band]
        assert tiled.any() and not tiled.all()
        assert np.isnan(y[tiled, 1]).all() and (~np.isfinite(y[:, 1]) == (tiled | entry[:, column])).all()
        others = [0, *range(2, 16)]
        assert np.array_equal(y[:, others], plain[:, others])


def test_values_of_w_that_are_not_finite() -> None:
    w = np.full((32, 32), 0.5, "f4")
    w[3, 5], w[4, 6] = np.inf, np.nan
    W: Any = sg.sparse(w, format="hybrid", tile=16, method="none")
    assert W.tiles == 4
    y = compiled(sg.spmm(W, n=8), line())(np.ones((32, 8), "f4"))
    assert np.isnan(y[[3, 4]]).all() and (np.delete(y, [3, 4], 0) == 16).all()


# ------------------------------------------------------------------------------------------------ what is packed
def test_tiles_are_rounded_for_tf32_alone() -> None:
    """Both kernels of a matrix have their own, whichever comes first."""
    w = values(130, 100, dtype="f32")
    for precisions in ((None, "tf32"), ("tf32", None)):
        W: Any = sg.sparse(w, format="hybrid", tile=32)
        x = np.random.default_rng(1).uniform(-1, 1, (100, 8)).astype("f4")
        made: dict[Any, Any] = {p: compiled(sg.spmm(W, n=8, precision=p), line()) for p in precisions}
        assert off(made[None], x) < F32 and off(made["tf32"], x) > TF32
        bits = {p: k.weights()["tiles"] & 0x1FFF for p, k in made.items()}
        assert bits[None].any() and not bits["tf32"].any()


# ------------------------------------------------------------------------------------------------ what is expected
def test_splitting_costs_mma_and_instructions() -> None:
    product = sg.spmm(matrix(2048, 2048, dtype="f32", noise=0.001), n=128)
    facts, s, device = HybridNumbers.of(product), sg.SpmmSchedule.parse(line(128, "1x4", 4, 4)), load_profile("h200")

    def cost(facts: HybridNumbers) -> Any:
        return FAMILY.cost(facts, s, device, FAMILY.shape(facts, s, device))

    exact, rounded = (cost(replace(facts, precision=precision)) for precision in ("", "tf32"))
    assert exact.terms["tensor"] == pytest.approx(EACH * rounded.terms["tensor"])
    assert exact.terms["parts"] > rounded.terms["parts"] == 0 and exact.time > rounded.time
    assert (exact.values["split"], rounded.values["split"]) == (SPLIT, 0)
    assert all(exact.terms[name] == rounded.terms[name] for name in ("l2", "shared", "hbm", "issue", "turns", "chain"))
    table = tuple((shape, cycles * (1 + (shape == "tf32.m16n8k8"))) for shape, cycles in device.cpi_table)
    slower = replace(device, cpi_table=table)
    again = FAMILY.cost(facts, s, slower, FAMILY.shape(facts, s, slower))
    assert again.terms["tensor"] == pytest.approx(2 * exact.terms["tensor"])


def test_the_formula_is_what_is_chosen_by() -> None:
    formulas_hold(listed(sg.spmm(matrix(161, 300, dtype="f32"), n=70), "h200", "hybrid")[::37])


def test_what_is_listed_is_what_f16_and_tf32_have() -> None:
    """But for what shared memory has no room for."""
    lines = {
        dtype: {str(c.schedule) for c in listed(sg.spmm(matrix(130, 100, dtype=dtype), n=300), "h200", "hybrid")}
        for dtype in ("f16", "f32")
    }
    assert len(lines["f32"]) > 50 and lines["f32"] <= lines["f16"]


# ------------------------------------------------------------------------------------------------ the IR
@pytest.mark.parametrize("precision", [None, "tf32"])
def test_the_tile_level_says_whether_numbers_are_split(precision: Any) -> None:
    kernel = compiled(sg.spmm(matrix(64, 64, 32, "f32"), n=8, precision=precision), line())
    text = kernel.ir("tile")
    assert 'shape="tf32.m16n8k8"' in text and ("split=true" in text) == (precision is None)
    assert ("cvt.rna" in kernel.source()) == (precision is not None)
