"""Products with 8-bit elements in bitmap tiles and an x of f16: every code, sizes, scales, refusals, files, costs."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.formats.bitmap import SLACK, bitmap
from sparsegen.formats.encode import LargerWarning
from sparsegen.ir.errors import ArrayError, FormatError, ProductError, ScheduleError, SparsegenError
from sparsegen.ir.types import DType, e4m3, e5m2, f16, f32, s8
from sparsegen.products.product import BitmapNumbers
from sparsegen.schedule import SpmmSchedule
from tests.products_kit import DTYPES, EPILOGUES, called, matrix, operands, weights

KINDS = ("i8", "e4m3", "e5m2")
ONE = "bitmap mma=none cols=1 warps=2x2 rows=2 stages=2 splits=2"
LINES = [
    ("bitmap cols=8 warps=2x2 rows=2 stages=2 splits=1", 5),
    ("bitmap cols=16 warps=1x2 rows=3 stages=3 splits=2", 13),
    ("bitmap cols=32 warps=2x1 rows=1 stages=2 splits=3", 30),
    (ONE, 1),
]


def scaled(m: int, k: int, kind: str = "i8") -> Any:
    """A random matrix with a scale a row."""
    scale = np.random.default_rng(3).uniform(0.001, 2, m).astype(np.float32)
    return sg.sparse(weights(m, k, 0.6, kind), scale=scale)


# ------------------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize("line", [LINES[0][0], ONE])
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_is_multiplied_exactly(kind: str, line: str) -> None:
    """Each in a row of its own, in a column of each place of a fragment; a NaN stays one, and so does an infinity."""
    codes = np.arange(256, dtype=np.uint8)
    w = np.zeros((256, 128), np.uint8)
    w[codes, codes * 37 % 128] = codes
    n = 1 if "none" in line else 8
    y = sg.compile(sg.spmm(sg.sparse(w.view(DTYPES[kind])), n=n), backend="emulator", device="h200", schedule=line)(
        np.ones((128, n), np.float16)
    )
    expected = codes.view(DTYPES[kind]).astype(np.float16)
    np.testing.assert_array_equal(y, np.repeat(expected[:, None], n, 1))
    assert np.isnan(expected).sum() == {"i8": 0, "e4m3": 2, "e5m2": 6}[kind]


@pytest.mark.parametrize(("line", "n"), LINES)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_sizes(kind: str, line: str, n: int) -> None:
    m, k = 7 * 16 - 3, 17 * 64 + 5
    for orders in (("row", "row"), ("column", "column"), ("row", "column")):
        called(sg.spmm(matrix(m, k, dtype=kind), n=n), *orders, line)
    called(sg.spmm(scaled(m, k, kind), n=n, bias=True), schedule=line)


@pytest.mark.parametrize(*EPILOGUES)
@pytest.mark.parametrize("own", [False, True])
def test_epilogues(activation: Any, operands: tuple[str, ...], own: bool) -> None:
    """Scale and bias in f32, the scale of the call or W's own."""
    flags = {name: True for name in operands if not (own and name == "scale")}
    w = scaled(53, 140) if own else matrix(53, 140, dtype="i8")
    product: Any = sg.spmm(w, n=9, activation=activation, **flags)
    assert product.types == (f16, f16, f32) and product.scaled == ("scale" in operands or own)
    called(product)


@pytest.mark.parametrize("share", [0.0, 0.03, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_all_zeros_few_and_none(kind: str, share: float) -> None:
    w = weights(40, 150, 0.0, kind)
    w[np.random.default_rng(1).random(w.shape) >= share] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargerWarning)
        called(sg.spmm(sg.sparse(w), n=3))


@pytest.mark.parametrize("kind", ["i8", "e5m2"])
def test_before_hopper(kind: str) -> None:
    called(sg.spmm(scaled(100, 300, kind), n=12), device="a100")


def test_e4m3_needs_the_conversion_of_sm_89() -> None:
    k = called(sg.spmm(matrix(40, 150, dtype="e4m3"), n=3), device="rtx4090")
    assert "sm_89" in k.source() and "cvt.rn.f16x2.e4m3x2" in k.source()
    with pytest.raises(ScheduleError, match=r"sm_89 brought; .* sm_80") as e:
        sg.compile(sg.spmm(matrix(40, 150, dtype="e4m3"), n=3), device="a100", backend="emulator")
    assert e.value.hint is not None and "e5m2" in e.value.hint


# ------------------------------------------------------------------------------------------------------- the matrix
@pytest.mark.parametrize("kind", KINDS)
def test_the_matrix_comes_back_bit_for_bit(kind: str, tmp_path: Path) -> None:
    raw = np.random.default_rng(5).integers(0, 256, (61, 203)).astype(np.uint8)
    raw[np.random.default_rng(6).random(raw.shape) < 0.6] = 0
    scale = np.random.default_rng(7).uniform(0.5, 2, 61).astype(np.float32)
    w = sg.sparse(raw.view(DTYPES[kind]), scale=scale)
    w.save(tmp_path / "w.sgw")
    for one in (w, sg.load(tmp_path / "w.sgw"), pickle.loads(pickle.dumps(w)), w.to_host()):
        one.check()
        assert one.dtype == kind and one.nnz == (raw != 0).sum() and np.array_equal(one.scale, scale)
        assert one.to_dense().dtype == DTYPES[kind] and np.array_equal(one.to_dense().view(np.uint8), raw)
    assert "a scale a row" in repr(w) and kind in repr(w)
    if kind != "i8":  # bits in uint8 are taken where the type is named
        bits = sg.sparse(raw, dtype=kind)
        assert bits.dtype == kind and np.array_equal(bits.to_dense().view(np.uint8), raw)
    plain = sg.sparse(raw.view(DTYPES[kind]))
    assert plain.scale is None and w.nbytes == plain.nbytes + 4 * 61
    plain.save(tmp_path / "plain.sgw")
    assert sg.load(tmp_path / "plain.sgw").scale is None


def test_a_tile_holds_an_element_a_byte() -> None:
    """As the format says: a mask's ones in its order, from a new chunk on, integers with 128 added."""
    w = np.zeros((16, 64), np.int8)
    w[0, :3], w[8, 1], w[3, 40] = (-128, 5, 127), -1, 7  # lane 0: row 0, then row 8; fragment 2 later
    one = sg.sparse(w)
    values = one.arrays["values"].view(np.uint8)
    assert values[:5].tolist() == [0, 133, 255, 127, 135] and (values[5:8] == 128).all() and not values[8:].any()
    assert values.size == 8 * (1 + SLACK)
    assert one.arrays["index"].tolist() == [[0, 4, 4, 5], [8, 8, 8, 8]]


def test_one_number_is_the_scale_of_all_rows() -> None:
    q = sg.quantize(weights(20, 70, 0.6, "f32"))
    for number in (q.scale, float(q.scale), np.full(1, q.scale)):
        assert (sg.sparse(q.values, scale=number).scale == np.full(20, q.scale)).all()


def test_the_scale_is_a_copy() -> None:
    scale = np.ones(20, np.float32)
    w = sg.sparse(weights(20, 70, 0.6, "i8"), scale=scale)
    scale[...] = np.nan
    assert (w.scale == 1).all()


# ------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("bad", [0.0, -0.5, np.nan, np.inf])
def test_a_scale_that_is_not_positive_is_refused(bad: float) -> None:
    scale = np.ones(20, np.float32)
    scale[7] = bad
    for given in (scale, bad):
        with pytest.raises(ArrayError, match=r"the scale of row [07] is .*: it must be positive and finite") as e:
            sg.sparse(weights(20, 70, 0.6, "i8"), scale=given)
        assert e.value.loc is not None and "sg.quantize(w, rows=True)" in str(e.value)


W = weights(20, 70, 0.6, "i8")
REFUSED: list[tuple[Any, type[SparsegenError], list[str]]] = [
    (lambda: sg.sparse(W, scale=np.ones(20)), ArrayError, ["dtype float64", "scale.astype(np.float32)"]),
    (lambda: sg.sparse(W, scale=np.ones(19, np.float32)), ArrayError, ["shape (19,)", "20 rows", "(20,)"]),
    (lambda: sg.sparse(W.astype(np.float16), scale=1.0), FormatError, ["8-bit elements", "f16", "k(x, scale=...)"]),
    (lambda: sg.sparse(W, "sr_bcrs", scale=1.0), FormatError, ["sr_bcrs", "k(x, scale=...)"]),
    (lambda: sg.spmm(sg.sparse(W, scale=1.0), n=3, scale=True), ProductError, ["scale of its own", "leave it away"]),
    (lambda: sg.spmm(sg.sparse(W), n=3, x_dtype="i8"), ProductError, ["x_dtype='i8'", "f16", "format='sr_bcrs'"]),
    (lambda: sg.spmm(sg.sparse(W), n=3, y_dtype="f32"), ProductError, ["y_dtype='f32'", "leave it away"]),
    (lambda: compiled("bitmap mma=bf16.m16n8k16"), ScheduleError, ["s8 weights", "f16.m16n8k16"]),
    (lambda: compiled("dense"), ScheduleError, ["no library multiplies W of i8", "convert W to f16"]),
    (lambda: compiled()(np.ones((70, 3), np.float32)), ArrayError, ["x has dtype float32", "convert it to float16"]),
]  # fmt: skip


def compiled(line: str = "auto") -> Any:
    return sg.compile(sg.spmm(sg.sparse(W), n=3), device="h200", backend="emulator", schedule=line)


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED, ids=lambda x: "" if callable(x) else None)
def test_what_does_not_go_together_is_refused(call: Any, kind: type[SparsegenError], words: list[str]) -> None:
    with pytest.raises(kind) as e:
        call()
    assert all(word in str(e.value) for word in words) and e.value.hint


def test_a_file_with_another_scale_is_refused(tmp_path: Path) -> None:
    w = sg.sparse(W, scale=1.0)
    for scale in (np.zeros(20, np.float32), np.ones(19, np.float32)):
        w.scale = scale
        w.save(tmp_path / "w.sgw")
        with pytest.raises(FormatError, match="no valid sparse matrix"):
            sg.load(tmp_path / "w.sgw")


# ------------------------------------------------------------------------------------------------------- what it costs
def numbers(kind: DType, n: int, share: float = 0.4) -> BitmapNumbers:
    """Those of 28672 x 8192 elements, as many kept in each tile."""
    m, k = 28672, 8192
    chunks = -(-round(1024 * share) * kind.nbytes // 8)
    tiles, widest = m * k // 1024, tuple((chunks + 4) * rows for rows in range(1, 17))
    nbytes = bitmap(kind).room((m, k), tiles * chunks * 8 // kind.nbytes)
    return BitmapNumbers(m, k, n, kind.name, nbytes, tiles * chunks + SLACK, widest, 0)


@pytest.mark.parametrize("n", [1, 8, 16])
def test_half_the_bytes_and_the_time_that_the_model_expects(n: int) -> None:
    device = load_profile("h200")
    family = SpmmSchedule("bitmap").rules
    best = {kind: family.every(numbers(kind, n), device, {}).best for kind in (f16, s8, e4m3, e5m2)}
    assert 0.55 < numbers(s8, n).nbytes / numbers(f16, n).nbytes < 0.6
    assert best[f16].time / best[s8].time > 1.15
    assert best[e5m2].time <= best[e4m3].time <= best[s8].time  # by the instructions that widen them


def test_costs_count_the_instructions_of_each_type() -> None:
    """Per fragment, as the emulator counts those that nvcc keeps: loads, spreads, and what widens."""
    found = {}
    for kind in ("f16", *KINDS):
        product = sg.spmm(matrix(512, 256, 0.6, kind), n=8)
        device = dataclasses.replace(load_profile("h200"), sms=4)
        k: Any = sg.compile(
            product, device=device, backend="emulator", schedule="bitmap cols=8 warps=4x2 rows=2 splits=1"
        )
        found[kind] = {name: count / (512 * 256 / 256) for name, count in k.counts().items()}
    x = 1  # permutes of x
    assert [found[kind]["prmt"] - x for kind in ("f16", *KINDS)] == [8, 7, 3, 7]
    assert [found[kind]["funnel"] for kind in ("f16", *KINDS)] == [4, 2, 2, 2]
    assert found["i8"]["add_f16x2"] == found["e4m3"]["widen_e4m3"] == 4
    assert found["i8"]["wavefronts.shared"] < 0.6 * found["f16"]["wavefronts.shared"]


def test_explain_says_what_it_is() -> None:
    """The scale of W's own, which is no array of the call; figures of SpInfer for what is multiplied, f16."""
    w = scaled(300, 200)
    k: Any = sg.compile(sg.spmm(w, n=8), device="h200", backend="emulator")
    said = str(k.explain())
    assert "scale * (W @ x), W 300x200 i8, x f16, y f16" in said and "dense      the library" not in said
    read = BitmapNumbers.of(sg.spmm(w, n=8)).nbytes
    assert f"CR = {2 * 300 * 200 / read:.2f} against f16" in said
    assert set(operands(sg.spmm(w, n=8))) == {"x", "out"}
