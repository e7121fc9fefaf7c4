"""Sparse products from the user's side, on the emulator and the reference: results, orders, epilogues, inspection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.products.geometry import COLUMNS
from sparsegen.products.product import Product
from sparsegen.run.emulator import run_module
from tests.products_kit import DTYPES, agrees, matrix, operands, weights

EPILOGUES: list[dict[str, Any]] = [
    {}, {"bias": True}, {"scale": True, "activation": "relu"}, {"bias": True, "scale": True, "activation": "gelu"},
    {"residual": True, "activation": "silu"}, {"bias": True, "scale": True, "residual": True, "activation": "silu"},
]  # fmt: skip


def call(k: Any, given_: dict[str, Any], **more: Any) -> Any:
    named = {name: a for name, a in given_.items() if name not in ("x", "out")}
    return k(given_["x"], **named, **more)


def compiled(product: Product, schedule: str = "auto", backend: str = "emulator") -> Any:
    return sg.compile(product, device="h200", backend=backend, schedule=schedule)


@given(
    m=st.integers(1, 90), k=st.integers(1, 200), n=st.integers(1, 20), sparsity=st.sampled_from([0, 0.3, 0.6, 0.95, 1]),
    dtype=st.sampled_from(["f16", "bf16"]), orders=st.tuples(*[st.sampled_from(["row", "column"])] * 2),
    epilogue=st.sampled_from(EPILOGUES), data=st.data(),
)  # fmt: skip
@settings(max_examples=25)
def test_random_products_agree(
    m: int, k: int, n: int, sparsity: float, dtype: str, orders: tuple[str, str], epilogue: dict[str, Any], data: Any
) -> None:
    product = sg.spmm(matrix(m, k, sparsity, dtype), n=n, **epilogue)
    warps = data.draw(st.sampled_from(["1x1", "1x4", "2x2", "3x1", "4x2"]))
    splits = data.draw(st.integers(1, min(3, -(-k // 64))))
    rows, stages = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 4))
    line = f"bitmap warps={warps} rows={rows} stages={stages} splits={splits}"
    given_ = operands(product, *orders)
    for backend in ("reference", "emulator"):
        kernel = compiled(product, line, backend)
        out = given_["out"].copy(order="K")
        assert call(kernel, given_, out=out) is out
        agrees(out, product, given_)
        again = np.full_like(out, np.nan)
        call(kernel, given_, out=again)
        assert np.array_equal(out.view(np.int16), again.view(np.int16)), "two runs give other bits"


@pytest.mark.parametrize("n", [1, 8, 12, 33, 64])
@pytest.mark.parametrize("line", ["auto", "bitmap splits=3", "bitmap cols=8 warps=4x4"])
def test_sizes_and_tiles_of_columns(n: int, line: str) -> None:
    product = sg.spmm(matrix(75, 333), n=n, bias=True)
    given_ = operands(product)
    agrees(call(compiled(product, line), given_), product, given_)


def test_one_column_on_the_cuda_cores() -> None:
    for dtype in ("f16", "bf16"):
        product = sg.spmm(matrix(100, 300, dtype=dtype), n=1, scale=True, activation="gelu")
        given_ = operands(product)
        for line in ("bitmap mma=none", "bitmap mma=none warps=2x3 rows=2 splits=2"):
            k = compiled(product, line)
            assert k.schedule.cols == 1
            agrees(call(k, given_), product, given_)


@pytest.mark.parametrize("shape", [(1, 1), (1, 200), (200, 1), (16, 64), (17, 65)])
@pytest.mark.parametrize("sparsity", [0.0, 1.0])
def test_tiny_dense_and_empty_matrices(shape: tuple[int, int], sparsity: float) -> None:
    product = sg.spmm(matrix(*shape, sparsity), n=3, bias=True)
    k, given_ = compiled(product), operands(product)
    agrees(call(k, given_), product, given_)
    assert not k.check().errors


def test_a_matrix_with_empty_rows_and_columns() -> None:
    w = weights(64, 192, 0.5)
    w[16:32] = 0
    w[5] = 0
    w[:, 64:128] = 0
    product = sg.spmm(sg.sparse(w), n=8)
    given_ = operands(product)
    got = call(compiled(product), given_)
    agrees(got, product, given_)
    assert not got[16:32].any() and not got[5].any()


def test_what_is_not_finite_spreads_as_in_a_dense_product() -> None:
    w = weights(40, 100, 0.5)
    w[3, 7], w[9, 20], w[12, 64] = np.nan, np.inf, -0.0
    product = sg.spmm(sg.sparse(w), n=8)
    given_ = operands(product)
    got, want = (call(compiled(product, backend=b), given_) for b in ("emulator", "reference"))
    assert np.isnan(got[3]).all() and np.isinf(got[9]).all()
    assert np.array_equal(np.isnan(got), np.isnan(want)) and np.array_equal(np.isinf(got), np.isinf(want))
    given_["x"][50, 2] = np.nan
    got = call(compiled(product), given_)
    assert np.isnan(got[:, 2]).all() and np.isnan(got).sum() == 40 + 7


def test_results_take_the_order_of_x() -> None:
    product = sg.spmm(matrix(40, 70), n=6)
    k = compiled(product)
    by_rows, by_columns = (call(k, operands(product, order)) for order in ("row", "column"))
    assert by_rows.flags.c_contiguous and by_columns.flags.f_contiguous and not by_columns.flags.c_contiguous
    assert np.array_equal(by_rows, by_columns)
    out = np.empty((6, 40), np.float16).T
    assert k(operands(product)["x"], out) is out and np.array_equal(out, by_rows)


def test_inputs_are_never_written() -> None:
    product = sg.spmm(matrix(40, 70), n=6, bias=True, scale=True, residual=True, activation="relu")
    given_ = operands(product)
    before = {name: a.copy() for name, a in given_.items() if name != "out"}
    for backend in ("reference", "emulator"):
        call(compiled(product, backend=backend), given_)
        assert all(np.array_equal(given_[name], a) for name, a in before.items())


LINES = [
    "bitmap warps=2x2 rows=2 stages=2 splits=1", "bitmap warps=1x4 rows=1 stages=3 splits=2",
    "bitmap cols=16 warps=4x2 rows=3 stages=4 splits=3", "bitmap warps=2x4 rows=2 stages=2 splits=1",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_no_checker_finds_anything(line: str, dtype: str) -> None:
    for n, orders in ((11, ("row", "row")), (16, ("column", "row"))):
        product = sg.spmm(matrix(150, 260, dtype=dtype), n=n, bias=True, residual=True, activation="silu")
        k = compiled(product, line)
        report = k.check(operands(product, *orders)["x"])
        assert not report.errors and not report.notes, report


def test_the_check_finds_what_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that stays NaN where the reference has a number."""
    k = compiled(sg.spmm(matrix(40, 70), n=8))

    def half(module: Any, fields: Any, *rest: Any) -> Any:
        reports = run_module(module, fields, *rest)
        fields["out"][5:7] = np.nan
        return reports

    monkeypatch.setattr("sparsegen.run.emulator.run_module", half)
    (found,) = k.check().errors
    assert found.kind == "unwritten" and "2 elements of the result" in str(found) and "[0, 5]" in str(found)


def test_looking_at_a_kernel(tmp_path: Path) -> None:
    line = "bitmap mma=f16.m16n8k16 cols=16 warps=2x4 rows=2 stages=2 splits=2"
    product = sg.spmm(matrix(100, 300), n=16, bias=True, activation="relu")
    k = compiled(product, line)
    assert repr(k) == f"<SpmmKernel 100x300x16 f16 on emulator: {line}>"
    assert str(product) == f"relu(W @ x + bias), W 100x300 f16, {product.w.sparsity:.1%} zeros, n=16"
    assert "op.spmm" in k.ir("op") and "tile.walk_slabs" in k.ir("tile") and "warp.mma" in k.ir()
    assert "spmm" in k.source() and "x is packed by rows" in k.source()
    text = k.explain()
    for part in (line, "bound by", "dense", "hbm", "workspace", "NVIDIA H200", "given, not chosen"):
        assert part in text
    ideal = 100 * 16 / (100 * (1 - product.w.sparsity) + 16)
    assert f"M N / (M (1 - s) + N) = {ideal:.1f}, dense M N / (M + N) = {100 * 16 / 116:.1f}" in text
    path = k.export(tmp_path / "spmm.cu")
    arguments = "const void* in, const void* bias, void* out, const unsigned* index, const unsigned* masks"
    assert f'extern "C" int spmm_run({arguments}' in path.read_text()
    assert list(k.weights()) == ["index", "masks", "values"] and k.weights()["index"].dtype == np.uint32
    with pytest.raises(sg.ArrayError, match="cannot write"):
        k.export(tmp_path / "no" / "spmm.cu")


def test_the_workspace_of_splits() -> None:
    product = sg.spmm(matrix(100, 300), n=16)
    assert compiled(product, "bitmap splits=1").workspace_nbytes == 0
    k = compiled(product, "bitmap cols=16 warps=2x2 rows=2 splits=3")
    v = k.cost.values
    assert k.workspace_nbytes == v["G"] * (3 * 2 * v["sums"] * 128 + 4)


def test_bench_on_the_host() -> None:
    product = sg.spmm(matrix(40, 70), n=8, residual=True)
    for backend in ("reference", "emulator"):
        result = compiled(product, backend=backend).bench(repeats=2)
        assert len(result.times) == 2 and "wall time of the host" in str(result) and result.fraction is None
        assert result.nbytes == product.w.nbytes + 2 * 8 * 110


def test_matrices_of_tensors_on_the_host() -> None:
    torch = pytest.importorskip("torch")
    w = weights(40, 70, 0.6)
    product = sg.spmm(sg.sparse(torch.from_numpy(w)), n=5)
    x = torch.ones((70, 5), dtype=torch.float16)
    y = compiled(product)(x)
    assert type(y) is torch.Tensor and y.dtype == torch.float16
    want = compiled(sg.spmm(sg.sparse(w), n=5))(x.numpy())
    assert np.array_equal(y.numpy(), want)
    linear = compiled(product)(torch.ones((5, 70), dtype=torch.float16).t())
    assert linear.stride() == (1, 40) and np.array_equal(linear.numpy(), want)


def test_random_arrays_have_the_product_s_shapes() -> None:
    product = sg.spmm(matrix(40, 70, dtype="bf16"), n=5, bias=True, residual=True)
    made = compiled(product)._calls.random()
    assert {name: a.shape for name, a in made.items()} == {
        "in": (70, 5), "bias": (40,), "residual": (40, 5),
    }  # fmt: skip
    assert all(a.dtype == DTYPES["bf16"] for a in made.values())


@pytest.mark.parametrize("cols", COLUMNS)
@pytest.mark.parametrize("k", [64, 70])
def test_one_column_of_many(cols: int, k: int) -> None:
    """The other columns of a fragment are not read from x."""
    product = sg.spmm(matrix(40, k), n=1)
    kernel = sg.compile(product, device="h200", backend="emulator", schedule=f"bitmap cols={cols}")
    arrays = operands(product)
    agrees(kernel(arrays["x"]), product, arrays)
    assert not kernel.check(arrays["x"]).errors


def test_a_result_takes_the_order_of_the_residual() -> None:
    product = sg.spmm(matrix(15, 1), n=4, residual=True)
    kernel = sg.compile(product, device="h200", backend="emulator")
    arrays = operands(product, "column", "column")
    agrees(kernel(arrays["x"], residual=arrays["residual"]), product, arrays)


@pytest.mark.parametrize(
    "line", ["bitmap cols=8 warps=1x2 rows=2 stages=3 splits=2", "bitmap cols=16 stages=2", "auto"]
)
@pytest.mark.parametrize("n", [1, 7])
def test_without_bulk_copies(line: str, n: int) -> None:
    """The ring of a GPU before sm_90, filled by all lanes: turns that stages do not divide, strips left over."""
    product = sg.spmm(matrix(100, 9 * 64 + 3), n=n, bias=True)
    kernel = sg.compile(product, device="a100", backend="emulator", schedule=line)
    arrays = operands(product)
    agrees(call(kernel, arrays), product, arrays)
    report = kernel.check(arrays["x"])
    assert not report.errors and not report.notes
