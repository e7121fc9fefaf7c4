"""Products that gather rows of x for warpgroups on a Hopper GPU: vectors, sizes, orders, streams and graphs."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from sparsegen.ir.numbers.groups import COLS
from sparsegen.products.nm_tiles import row_lists, steps_of, tile_images
from tests.gpu.torch_kit import agrees, agrees_with_epilogues, as_on_the_emulator, biased_same_on_streams, ready
from tests.nm_kit import encoded, matrix, packed_alike, pruned

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
LARGE = 1500  # rows: more tiles than an H200 has SMs, where columns are narrow


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(9, 0), at_most=(9, 0))


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
    agrees_with_epilogues(torch, compiled, w, activation)


@pytest.mark.parametrize("vector", [(64, 1), (128, 2), (1, 1)])
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, vector: tuple[int, int]) -> None:
    """The same bytes as on the host, and the same result; nothing comes back to the host."""
    for dtype in ("f16", "bf16"):
        dense = pruned(300, 500, 8, 32, vector, dtype)
        here, there = encoded(dense, 8, 32, vector, "cuda")
        for rows in (64, 128):
            assert steps_of(there, rows) == steps_of(here, rows)
            for pack in (row_lists, tile_images):
                assert packed_alike(pack, here, there, rows).is_cuda
        assert torch.equal(*(agrees(torch, compiled(w, 40, "rows=64 cols=64 stages=3")) for w in (there, here)))


def test_as_on_the_emulator(torch: Any) -> None:
    """Also where a row of x is not finite: what shares its tiles is not, nothing else."""
    w = matrix(200, 147, 4, 16, (64, 1), fill=0.8)
    as_on_the_emulator(w, 24, "nm_gather rows=64 cols=16 stages=3")


@pytest.mark.parametrize("n", [64, 17])
def test_streams_and_graphs(torch: Any, n: int) -> None:
    """Calls on any streams and captured calls give the same bits; one of them turns x into its stream's workspace."""
    w = sg.sparse(torch.from_numpy(pruned(2048, 2048, 8, 32, (64, 1))).cuda(), format="nm", n=8, m=32, vector=64)
    biased_same_on_streams(torch, compiled(w, n, bias=True))
