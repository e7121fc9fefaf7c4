"""Products that gather rows of x for warpgroups on a Hopper GPU: vectors, sizes, orders, streams and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.ir.errors import ToolchainError
from sparsegen.ir.numbers.groups import COLS
from sparsegen.products.nm_tiles import row_lists, steps_of, tile_images
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
    return sg.compile(sg.spmm(w, n=n, **epilogue), backend="cuda", schedule=f"nm_gather {line}".strip())


@pytest.mark.parametrize("vector", [64, 128, 96, 32, 1])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_vectors(torch: Any, vector: int, dtype: str) -> None:
    """The last window and tile are short; rows of a tile that do not share their columns."""
    for n in (8, 17, 200):
        agrees(torch, compiled(matrix(LARGE, 777, 8, 32, (vector, 1), dtype, fill=0.95), n, bias=True))


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("rows", [64, 128])
def test_widths(torch: Any, rows: int, cols: int) -> None:
    """Several tiles a block, slots that go round, and a last block of columns that is short."""
    for stages in (2, 3):
        k = compiled(matrix(LARGE, 1300, 16, 32, (128, 1)), 3 * cols - 8, f"rows={rows} cols={cols} stages={stages}")
        agrees(torch, k)


def test_gelu_of_the_widest_tile(torch: Any) -> None:
    """Warps that copy give registers to those that multiply."""
    k = compiled(matrix(LARGE, 1300, 8, 32, (128, 1)), 1000, "rows=128 cols=256 stages=3", bias=True, activation="gelu")
    assert "setmaxnreg" in k.source()
    agrees(torch, k)


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    w = matrix(700, 512, 8, 32, (64, 1))
    for n, residual in ((136, True), (136, False), (17, True)):
        k = compiled(w, n, bias=True, scale=True, residual=residual, activation=activation)
        for orders in (("row", "row"), ("column", "row"), ("row", "column"), ("column", "column")):
            agrees(torch, k, *orders)


@pytest.mark.parametrize("vector", [(64, 1), (128, 2), (1, 1)])
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, vector: tuple[int, int]) -> None:
    """The same bytes as on the host, and the same result; nothing comes back to the host."""
    for dtype in ("f16", "bf16"):
        dense = pruned(300, 500, 8, 32, vector, dtype)
        tensor = torch.from_numpy(dense.astype("f4")).to(kind(torch, dtype)).cuda()
        there = sg.sparse(tensor, format="nm", n=8, m=32, vector=vector)
        here = sg.sparse(dense, format="nm", n=8, m=32, vector=vector)
        for rows in (64, 128):
            assert steps_of(there, rows) == steps_of(here, rows)
            for pack in (row_lists, tile_images):
                made = pack(there, rows)
                assert made.is_cuda
                words = made.view(torch.int16).cpu().numpy()
                assert np.array_equal(words.view("u2"), pack(here, rows).view("u2"))
        assert torch.equal(*(agrees(torch, compiled(w, 40, "rows=64 cols=64 stages=3")) for w in (there, here)))


def test_as_on_the_emulator(torch: Any) -> None:
    """Also where a row of x is not finite: what shares its tiles is not, nothing else."""
    w = matrix(200, 147, 4, 16, (64, 1), fill=0.8)
    x = np.random.default_rng(0).uniform(-1, 1, (147, 24)).astype("f2")
    x[70, 0], x[146, 1] = np.nan, np.inf
    want, got = (
        sg.compile(sg.spmm(w, n=24), device=device, backend=backend, schedule="nm_gather rows=64 cols=16 stages=3")(x)
        for device, backend in (("h200", "emulator"), ("auto", "cuda"))
    )
    assert np.allclose(got.astype("f4"), want.astype("f4"), rtol=2e-3, atol=2e-3, equal_nan=True)


@pytest.mark.parametrize("n", [64, 17])
def test_streams_and_graphs(torch: Any, n: int) -> None:
    """Calls on any streams and captured calls give the same bits; one of them turns x into its stream's workspace."""
    of = torch.float16
    w = sg.sparse(torch.from_numpy(pruned(2048, 2048, 8, 32, (64, 1))).cuda(), format="nm", n=8, m=32, vector=64)
    k = compiled(w, n, bias=True)
    x, bias = torch.rand(2048, n, device="cuda").to(of), torch.rand(2048, device="cuda").to(of)
    same_on_streams(torch, k, x, bias=bias)
