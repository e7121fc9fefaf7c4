"""Products of f32 by outer products on the GPU: vectors, tiles, sizes, orders, streams and graphs."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from sparsegen.products.outer import packed_entries, packed_lists
from tests.gpu.torch_kit import agrees, agrees_by, biased_same_on_streams, ready
from tests.nm_kit import encoded, matrix, packed_alike, pruned

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready()


def compiled(w: Any, n: int, line: str = "", **epilogue: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **epilogue), backend="cuda", schedule=f"nm_outer {line}".strip())


@pytest.mark.parametrize("vector", [8, 16, 24, 32, 64])
def test_vectors(torch: Any, vector: int) -> None:
    """The last window, turn and tile are short; columns that no piece of 4 divides."""
    for n in (8, 17, 300):
        agrees(torch, compiled(matrix(700, 777, 8, 32, (vector, 1), "f32", fill=0.95), n, bias=True))


TILES = [(256, 128, 16), (128, 128, 8), (256, 64, 8), (64, 32, 4), (32, 256, 16), (128, 256, 16)]


@pytest.mark.parametrize("tile", TILES)
def test_tiles(torch: Any, tile: tuple[int, int, int]) -> None:
    """Entries that fill no piece of a list among them; rings that go round."""
    rows, cols, each = tile
    for deep, stages, (n, m) in ((32, 3, (8, 32)), (32, 4, (3, 10))):
        line = f"rows={rows} cols={cols} each={each} deep={deep} stages={stages}"
        agrees(torch, compiled(matrix(600, 1300, n, m, (32, 1), "f32"), 3 * cols - 8, line))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    for m, n in ((700, 136), (333, 17)):
        w = matrix(m, 512, 8, 32, (32, 1), "f32")
        agrees_by(torch, compiled(w, n, bias=True, scale=True, residual=True, activation=activation))


@pytest.mark.parametrize("vector", [(32, 1), (8, 2)])
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, vector: tuple[int, int]) -> None:
    """The same bytes as on the host, and the same result; nothing comes back to the host."""
    dense = pruned(300, 500, 8, 32, vector, "f32")
    here, there = encoded(dense, 8, 32, vector, "cuda")
    for pack in (packed_entries, packed_lists):
        assert packed_alike(pack, here, there, 64, 64).is_cuda
    line = "rows=64 cols=64 each=8 deep=64 stages=3"
    assert torch.equal(*(agrees(torch, compiled(w, 40, line)) for w in (there, here)))


@pytest.mark.parametrize("n", [64, 17])
def test_streams_and_graphs(torch: Any, n: int) -> None:
    """Calls on any streams and captured calls give the same bits; one of them turns x into its stream's workspace."""
    w = torch.from_numpy(pruned(2048, 2048, 8, 32, (32, 1), "f32")).cuda()
    biased_same_on_streams(torch, compiled(sg.sparse(w, format="nm", n=8, m=32, vector=32), n, bias=True))
