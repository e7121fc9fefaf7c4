"""Products of strips on a GPU from Ampere on: vectors, sizes, orders, matrices of torch, streams and graphs."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from sparsegen.products.nm_strips import Strips, strip_places, strip_values, window_rows
from tests.gpu.torch_kit import agrees, agrees_with_epilogues, as_on_the_emulator, biased_same_on_streams, ready
from tests.nm_kit import encoded, matrix, packed_alike, pruned

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
LARGE = 1500  # rows: more tiles than a GPU has SMs, where columns are narrow


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def compiled(w: Any, n: int, line: str = "", **epilogue: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **epilogue), backend="cuda", schedule=f"nm_strips {line}".strip())


@pytest.mark.parametrize("vector", [16, 32, 64, 48, 8, 1])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_vectors(torch: Any, vector: int, dtype: str) -> None:
    """The last window and tile are short; rows of a strip that do not share their columns."""
    for n in (8, 17, 200):
        agrees(torch, compiled(matrix(LARGE, 777, 8, 32, (vector, 1), dtype, fill=0.95), n, bias=True))


@pytest.mark.parametrize("warps", ["1x1", "4x1", "4x2", "8x1"])
@pytest.mark.parametrize("strip", [16, 32, 64])
def test_warps(torch: Any, strip: int, warps: str) -> None:
    """Several tiles a block, slots that go round, and a last block of columns that is short."""
    for cols, kept, stages in ((32, 16, 2), (64, 32, 3)):
        line = f"strip={strip} warps={warps} cols={cols} kept={kept} stages={stages}"
        agrees(torch, compiled(matrix(LARGE, 1300, 16, 32, (64, 1)), 3 * cols - 8, line))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    w = matrix(700, 512, 8, 32, (32, 1))
    agrees_with_epilogues(torch, compiled, w, activation)


@pytest.mark.parametrize("vector", [(32, 1), (16, 2), (1, 1)])
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, vector: tuple[int, int]) -> None:
    """The same bytes as on the host, and the same result; nothing comes back to the host."""
    for dtype in ("f16", "bf16"):
        dense = pruned(300, 500, 8, 32, vector, dtype)
        here, there = encoded(dense, 8, 32, vector, "cuda")
        cut = Strips(32, 4, 32)
        for pack in (strip_values, strip_places, window_rows):
            assert packed_alike(pack, here, there, cut).is_cuda
        line = "strip=32 warps=4x1 cols=64 kept=32 stages=3"
        assert torch.equal(*(agrees(torch, compiled(w, 40, line)) for w in (there, here)))


def test_as_on_the_emulator(torch: Any) -> None:
    """Also where a row of x is not finite: what shares its strips is not, nothing else."""
    w = matrix(200, 147, 4, 16, (32, 1), fill=0.8)
    as_on_the_emulator(w, 24, "nm_strips strip=32 warps=2x1 cols=16 kept=16 stages=3")


@pytest.mark.parametrize("n", [64, 17])
def test_streams_and_graphs(torch: Any, n: int) -> None:
    """Calls on any streams and captured calls give the same bits; one of them turns x into its stream's workspace."""
    w = sg.sparse(torch.from_numpy(pruned(2048, 2048, 8, 32, (32, 1))).cuda(), format="nm", n=8, m=32, vector=32)
    biased_same_on_streams(torch, compiled(w, n, bias=True))
