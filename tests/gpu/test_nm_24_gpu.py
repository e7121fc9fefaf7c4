"""Products that keep 2 of 4 columns on a Hopper GPU: patterns, widths, orders, streams and graphs."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from sparsegen.ir.numbers.groups import COLS
from sparsegen.products.nm_fours import kept_images, kept_words
from tests.gpu.torch_kit import agrees, agrees_with_epilogues, as_on_the_emulator, biased_same_on_streams, ready
from tests.nm_kit import encoded, matrix, packed_alike, pruned

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
LARGE = 1500  # rows: more tiles than an H200 has SMs, where columns are narrow


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(9, 0), at_most=(9, 0))


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
    agrees_with_epilogues(torch, compiled, w, activation)


def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any) -> None:
    """The same bytes as on the host, and the same result; nothing comes back to the host."""
    for dtype in ("f16", "bf16"):
        dense = pruned(300, 500, 2, 4, (1, 1), dtype, fill=0.9)
        here, there = encoded(dense, 2, 4, device="cuda")
        for pack in (kept_images, kept_words):
            assert packed_alike(pack, here, there, 128).is_cuda
        assert torch.equal(*(agrees(torch, compiled(w, 40, "rows=64 cols=64 stages=3")) for w in (there, here)))


def test_as_on_the_emulator(torch: Any) -> None:
    """Also where a row of x is not finite: what keeps its column is not, or keeps less than two of its four."""
    w = matrix(200, 148, 2, 4, fill=0.8)
    as_on_the_emulator(w, 24, "nm_24 rows=64 cols=16 stages=3")


@pytest.mark.parametrize("n", [64, 17])
def test_streams_and_graphs(torch: Any, n: int) -> None:
    """Calls on any streams and captured calls give the same bits; one of them turns x into its stream's workspace."""
    w = sg.sparse(torch.from_numpy(pruned(2048, 2048, 2, 4)).cuda(), format="nm", n=2, m=4)
    biased_same_on_streams(torch, compiled(w, n, bias=True))
