"""Products that keep 2 of 4 columns on a Hopper GPU: patterns, widths, orders, streams and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.ir.errors import ToolchainError
from sparsegen.ir.numbers.groups import COLS
from sparsegen.products.nm_fours import kept_images, kept_words
from sparsegen.target import open_gpu
from tests.gpu.torch_kit import agrees, kind, same_on_streams
from tests.nm_kit import matrix, pruned

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
LARGE = 1500  # rows: more tiles than an H200 has SMs, where columns are narrow


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    made = pytest.importorskip("torch")
    try:
        find_nvcc()
    except ToolchainError as e:
        pytest.skip(str(e))
    info = open_gpu(0).info()
    if info.capability != (9, 0):
        pytest.skip(f"the {info.name} has no wgmma")
    return made


def compiled(w: Any, n: int, line: str = "", **epilogue: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **epilogue), backend="cuda", schedule=f"nm_24 {line}".strip())


@pytest.mark.parametrize("pattern", [(2, 4), (1, 4), (1, 2), (2, 8)])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_patterns(torch: Any, pattern: tuple[int, int], dtype: str) -> None:
    """The last four, turn and tile are short."""
    for n in (8, 17, 200):
        agrees(torch, compiled(matrix(LARGE, 777, *pattern, (1, 1), dtype, fill=0.95), n, bias=True))


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("rows", [64, 128, 256])
def test_widths(torch: Any, rows: int, cols: int) -> None:
    """Several tiles a block, slots that go round, warpgroups side by side, a last block of columns that is short."""
    for stages in (2, 3):
        if rows * cols <= 1 << 15:
            w = matrix(LARGE, 1304, 2, 4)
            k = compiled(w, 3 * cols - 8, f"rows={rows} cols={cols} stages={stages}")
            agrees(torch, k)
            agrees(torch, k, "column")


def test_many_turns_of_warpgroups_side_by_side(torch: Any) -> None:
    """Enough of them for products to wait for one another while the next words are loaded."""
    for line in ("rows=128 cols=256 stages=4", "rows=256 cols=128 stages=4", "rows=128 cols=64 stages=6"):
        agrees(torch, compiled(matrix(2048, 4096, 2, 4), 1024, line))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    w = matrix(700, 512, 2, 4)
    for n, residual in ((136, True), (136, False), (17, True)):
        k = compiled(w, n, bias=True, scale=True, residual=residual, activation=activation)
        for orders in (("row", "row"), ("column", "row"), ("row", "column"), ("column", "column")):
            agrees(torch, k, *orders)


def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any) -> None:
    """The same bytes as on the host, and the same result; nothing comes back to the host."""
    for dtype in ("f16", "bf16"):
        dense = pruned(300, 500, 2, 4, (1, 1), dtype, fill=0.9)
        tensor = torch.from_numpy(dense.astype("f4")).to(kind(torch, dtype)).cuda()
        there, here = sg.sparse(tensor, format="nm", n=2, m=4), sg.sparse(dense, format="nm", n=2, m=4)
        for pack in (kept_images, kept_words):
            made = pack(there, 128)
            assert made.is_cuda
            assert np.array_equal(made.view(torch.int16).cpu().numpy().view("u2"), pack(here, 128).view("u2"))
        assert torch.equal(*(agrees(torch, compiled(w, 40, "rows=64 cols=64 stages=3")) for w in (there, here)))


def test_as_on_the_emulator(torch: Any) -> None:
    """Also where a row of x is not finite: what keeps its column is not, or keeps less than two of its four."""
    w = matrix(200, 148, 2, 4, fill=0.8)
    x = np.random.default_rng(0).uniform(-1, 1, (148, 24)).astype("f2")
    x[70, 0], x[146, 1] = np.nan, np.inf
    want, got = (
        sg.compile(sg.spmm(w, n=24), device=device, backend=backend, schedule="nm_24 rows=64 cols=16 stages=3")(x)
        for device, backend in (("h200", "emulator"), ("auto", "cuda"))
    )
    assert np.allclose(got.astype("f4"), want.astype("f4"), rtol=2e-3, atol=2e-3, equal_nan=True)


@pytest.mark.parametrize("n", [64, 17])
def test_streams_and_graphs(torch: Any, n: int) -> None:
    """Calls on any streams and captured calls give the same bits; one of them turns x into its stream's workspace."""
    of = torch.float16
    w = sg.sparse(torch.from_numpy(pruned(2048, 2048, 2, 4)).cuda(), format="nm", n=2, m=4)
    k = compiled(w, n, bias=True)
    x, bias = torch.rand(2048, n, device="cuda").to(of), torch.rand(2048, device="cuda").to(of)
    same_on_streams(torch, k, x, bias=bias)
