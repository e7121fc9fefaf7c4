"""Products with csr matrices on the GPU: sizes, orders, epilogues, cut rows, streams, and cuSPARSE's results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sparsegen as sg
from tests.gpu.torch_kit import agrees, same_on_streams

NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
LINES = [
    "auto", "csr cut=16", "csr team=8x4 columns=8 unroll=4 cut=32 warps=2", "csr team=1x32 columns=1 unroll=2",
    "csr team=32x1 columns=16 unroll=2 cut=9 warps=8",
]  # fmt: skip


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def weights(m: int, k: int, mean: float, full: int) -> Any:
    """Rows of random lengths, some without entries, ``full`` of them without zeros."""
    rng = np.random.default_rng(0)
    share = np.minimum(1, mean / 2 * rng.pareto(1.5, m) / k)
    share[rng.permutation(m)[:full]] = 1
    return np.where(rng.random((m, k)) < share[:, None], rng.uniform(-1, 1, (m, k)), 0.0)


def matrix(m: int, k: int, mean: float, dtype: str, full: int = 2) -> Any:
    return sg.sparse(weights(m, k, mean, full).astype(NUMPY[dtype]), format="csr")


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("n", [1, 7, 32, 128, 200])
def test_sizes(torch: Any, n: int, line: str) -> None:
    for dtype in ("f16", "bf16", "f32", "f64"):
        k = sg.compile(sg.spmm(matrix(1500, 1300, 9, dtype), n=n, bias=True), backend="cuda", schedule=line)
        agrees(torch, k)
        assert k.resources().spills == 0


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    w = matrix(700, 500, 6, "f16")
    k = sg.compile(sg.spmm(w, 24, bias=True, scale=True, residual=True, activation=activation), backend="cuda")
    for orders in (("row", "row"), ("column", "row"), ("row", "column"), ("column", "column")):
        agrees(torch, k, *orders)


def test_a_matrix_of_torch_is_used_where_it_is(torch: Any) -> None:
    """With a number of entries that is a multiple of a load's, and with others; cuSPARSE says the same."""
    for rows in (64, 65, 66, 67):
        found = torch.from_numpy(weights(rows, 90, 7, 1).astype("f4")).cuda().to_sparse_csr()
        k = sg.compile(sg.spmm(sg.sparse(found, format="csr"), n=64), backend="cuda")
        x = torch.rand(90, 64, device="cuda")
        assert torch.allclose(k(x), found @ x, rtol=1e-5, atol=1e-5)


def test_arrays_of_the_host(torch: Any) -> None:
    w = matrix(300, 200, 6, "f32")
    k, x = sg.compile(sg.spmm(w, n=16), backend="cuda"), np.random.default_rng(0).uniform(-1, 1, (200, 16)).astype("f4")
    assert np.allclose(k(x), w.to_dense() @ x, rtol=1e-5, atol=1e-5)


def test_streams_and_graphs(torch: Any) -> None:
    """Rows that are cut have counters: each stream and each captured call has its own, and leaves them at zero."""
    w = matrix(2000, 2000, 9, "f32", full=4)
    k = sg.compile(sg.spmm(w, n=32), backend="cuda", schedule="csr cut=32")
    x = torch.rand(2000, 32, device="cuda")
    same_on_streams(torch, k, x)


@pytest.mark.parametrize("line", ["csr", "csr_strip"])
@pytest.mark.parametrize("how", ["panels", "rows", "columns"])
def test_batches_as_they_lie(torch: Any, how: str, line: str) -> None:
    """[batch, K, n] as torch makes it, and as views of [K, batch, n] and [batch, n, K]."""
    w = matrix(700, 500, 9, "f32")
    kernel = sg.compile(sg.spmm(w, n=24, batch=5, bias=True), backend="cuda", schedule=line)
    x, bias = torch.rand((5, 500, 24), device="cuda"), torch.rand(700, device="cuda")
    if how == "rows":
        x = x.permute(1, 0, 2).contiguous().permute(1, 0, 2)
    elif how == "columns":
        x = x.swapaxes(1, 2).contiguous().swapaxes(1, 2)
    dense = torch.from_numpy(w.to_dense()).cuda().double()
    want = dense @ x.double() + bias.double()[:, None]
    y = kernel(x, bias=bias)
    assert y.shape == (5, 700, 24) and torch.allclose(y.double(), want, atol=1e-4)
