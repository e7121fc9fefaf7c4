"""A scale of one number: for every format, of every library, as the array of it would be; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.calls import product
from tests import nm_kit, vectors_kit
from tests.csr_kit import ragged
from tests.products_kit import matrix

M, K, N = 20, 64, 8
#: A matrix of each format, and the x of a product with it.
MATRICES: dict[str, Any] = {
    "bitmap": lambda: matrix(M, K), "nm": lambda: nm_kit.matrix(M, K, 8, 32, dtype="bf16"),
    "csr": lambda: sg.sparse(ragged(M, K, 8), format="csr", dtype="f32"),
    "sr_bcrs": lambda: vectors_kit.quantized((M, K)),
}  # fmt: skip


def made(format: str, backend: str = "emulator") -> tuple[Any, Any, Any]:
    """A kernel, its x, and the dtype of its scale."""
    w = MATRICES[format]()
    y = {"y_dtype": "f16"} if w.kind.is_int else {}
    k = sg.compile(sg.spmm(w, n=N, scale=True, **y), device="h200", backend=backend)
    x = k.random()["x"]
    return k, x, np.dtype("f4") if w.kind.is_int else x.dtype


@pytest.mark.parametrize("format", MATRICES)
def test_one_number_is_that_of_all_rows(format: str) -> None:
    k, x, dtype = made(format)
    want = k(x, scale=np.full(M, 0.375, dtype))
    out = np.empty_like(want)
    for scale in (0.375, np.float32(0.375), np.array(0.375), np.array([0.375], dtype), np.array([0.375], "f2")):
        assert np.array_equal(k(x, scale=scale), want) and k(x, out, scale=scale) is out
    assert np.array_equal(k(x, scale=2), k(x, scale=np.full(M, 2, dtype)))
    assert k.check(x, scale=0.375).ok and k.bench(x, scale=0.375, repeats=1).times


@pytest.mark.parametrize("format", MATRICES)
def test_of_torch(format: str) -> None:
    """Numbers, arrays of NumPy and tensors beside an x of torch; of the reference too."""
    torch: Any = pytest.importorskip("torch")
    k, x, _ = made(format, "reference")
    want = np.asarray(k(x, scale=0.375)).astype("f4")
    tensor = torch.from_numpy(x.view("i2")).view(torch.bfloat16) if format == "nm" else torch.from_numpy(x)
    for scale in (0.375, np.float32(0.375), torch.tensor(0.375), torch.tensor([0.375], dtype=torch.float64)):
        got = k(tensor, scale=scale)
        assert isinstance(got, torch.Tensor) and np.array_equal(got.float().numpy(), want)


def test_a_quantised_matrix_becomes_numbers_again() -> None:
    """Per tensor the scale is one number, per row an array."""
    w = np.random.default_rng(0).standard_normal((M, K)).astype("f4")
    x = np.random.default_rng(1).integers(-127, 128, (K, N), "i1")
    for rows in (False, True):
        q = sg.quantize(w, rows=rows)
        k = sg.compile(
            sg.spmm(sg.sparse(q.values, format="sr_bcrs", height=8), n=N, y_dtype="f32", scale=True),
            device="a100", backend="emulator",
        )  # fmt: skip
        want = (q.values.astype("f8") * np.reshape(q.scale, (-1, 1))) @ x
        assert np.allclose(k(x, scale=q.scale), want, rtol=1e-6)


def test_an_array_of_all_rows_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up for it."""
    k, x, dtype = made("sr_bcrs")
    monkeypatch.delattr(product, "everywhere")
    assert np.isfinite(k(x, scale=np.full(M, 1e-3, dtype))).all()


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (np.ones(3, "f4"), "scale has shape (3,), it must be (20,)"), (np.ones((1, 1), "f4"), "has shape (1, 1)"),
        (np.ones(M, "f8"), "scale has dtype float64"), (True, "bool is not an array"), ("1", "str is not an array"),
        (np.array([True]), "scale has dtype bool"), ([1.0], "list is not an array"), (1j, "complex is not an array"),
        (1e39, "scale is 1e+39, which float32 does not hold"), (10**400, "int is not an array"),
        (None, "scale is missing"),
    ],
)  # fmt: skip
def test_what_is_no_scale(scale: Any, says: str) -> None:
    k, x, _ = made("sr_bcrs")
    with pytest.raises(sg.ArrayError) as e:
        k(x, scale=scale)
    assert says in str(e.value) and e.value.hint


def test_a_scale_that_is_no_number_reaches_its_row_alone() -> None:
    k, x, _ = made("sr_bcrs")
    scale = np.full(M, 1e-3, "f4")
    scale[5], scale[7] = np.nan, np.inf
    y = k(x, scale=scale)
    assert np.isnan(y[5]).all() and not np.isfinite(y[7]).any() and np.isfinite(np.delete(y, (5, 7), 0)).all()
    assert k.check(x, scale=scale).ok and np.isnan(k(x, scale=np.nan)).all()
