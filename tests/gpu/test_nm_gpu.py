"""Products with N:M matrices on the GPU: patterns, sizes, orders, epilogues, matrices of torch, streams and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.products.nm import packed_offsets, packed_values
from tests.gpu.torch_kit import agrees, agrees_by, as_on_the_emulator, biased_same_on_streams, kind
from tests.nm_kit import encoded, matrix, packed_alike, pruned

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
PATTERNS: list[tuple[int, int, tuple[int, int]]] = [
    (8, 32, (1, 1)), (16, 32, (1, 1)), (2, 4, (1, 1)), (3, 10, (1, 1)), (1, 3, (1, 1)), (33, 64, (1, 1)),
    (48, 64, (1, 1)), (8, 32, (64, 1)), (8, 16, (4, 4)),
]  # fmt: skip
LINES = ["nm_lanes", "nm_lanes cols=1 warps=1x16", "nm_lanes cols=2 warps=4x4", "nm_lanes cols=4 warps=3x2"]


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_patterns(torch: Any, pattern: Any, dtype: str) -> None:
    """The last window and group are short, tiles and chunks are left over; whole windows."""
    for m, columns, n in ((1003, 777, 1), (1003, 777, 5), (512, 1920, 8)):
        w = matrix(m, columns, *pattern, dtype=dtype, fill=0.95)
        k = sg.compile(sg.spmm(w, n=n, bias=True), backend="cuda", schedule="nm_lanes")
        agrees(torch, k)
        assert k.resources().spills == 0


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("n", [1, 2, 4, 7, 8, 40])
def test_columns(torch: Any, n: int, line: str) -> None:
    for dtype in ("f16", "f32"):
        agrees(torch, sg.compile(sg.spmm(matrix(700, 1300, 8, 32, dtype=dtype), n=n), backend="cuda", schedule=line))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    product = sg.spmm(matrix(700, 512, 8, 32), 8, bias=True, scale=True, residual=True, activation=activation)
    k = sg.compile(product, backend="cuda", schedule="nm_lanes")
    agrees_by(torch, k)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_matrix_of_torch_is_encoded_and_packed_where_it_is(torch: Any, pattern: Any) -> None:
    """The same words as on the host, and the same result; nothing comes back to the host."""
    n, m, vector = pattern
    for dtype in ("f16", "f32"):
        dense = pruned(300, 500, n, m, vector, dtype)
        here, there = encoded(dense, n, m, vector, "cuda")
        for pack in (packed_values, packed_offsets):
            assert packed_alike(pack, here, there).is_cuda
        k = sg.compile(sg.spmm(there, n=3), backend="cuda", schedule="nm_lanes")
        assert torch.equal(
            agrees(torch, k), agrees(torch, sg.compile(sg.spmm(here, n=3), backend="cuda", schedule="nm_lanes"))
        )


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_bitmap_tiles_are_encoded_where_it_is(torch: Any, dtype: str) -> None:
    """On the stream of the first call, whichever later ones are on; the same result as of tiles of the host."""
    dense = torch.from_numpy(pruned(2048, 2047, 8, 32).astype("f4")).cuda().to(kind(torch, dtype))
    w = sg.sparse(dense, format="auto", n=8, m=32)
    k = sg.compile(sg.spmm(w, n=16, bias=True), backend="cuda", schedule="bitmap")
    biased_same_on_streams(torch, k)
    there = sg.compile(sg.spmm(sg.sparse(dense), n=16, bias=True), backend="cuda", schedule=str(k.schedule))
    assert torch.equal(agrees(torch, k), agrees(torch, there))


def test_arrays_of_the_host(torch: Any) -> None:
    w, x = matrix(300, 200, 3, 10, dtype="f32"), np.random.default_rng(0).uniform(-1, 1, (200, 4)).astype("f4")
    k = sg.compile(sg.spmm(w, n=4), backend="cuda", schedule="nm_lanes")
    assert np.allclose(k(x), w.to_dense() @ x, rtol=1e-5, atol=1e-5)


def test_as_on_the_emulator(torch: Any) -> None:
    """A NaN of x reaches the same elements."""
    w = matrix(70, 147, 33, 64, dtype="f32", fill=0.7)
    as_on_the_emulator(w, 2, "nm_lanes cols=2 warps=1x4")


def test_streams_and_graphs(torch: Any) -> None:
    """A kernel has no workspace: calls on any streams and captured calls give the same bits."""
    w = sg.sparse(torch.from_numpy(pruned(2048, 2048, 8, 32)).cuda(), format="nm", n=8, m=32)
    biased_same_on_streams(torch, sg.compile(sg.spmm(w, n=2, bias=True), backend="cuda", schedule="nm_lanes"))
