"""Products that decode W for warpgroups on a Hopper GPU: patterns, sizes, orders, streams and graphs."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from sparsegen.ir.numbers.groups import COLS
from sparsegen.products.nm_entries import packed_entries
from tests.gpu.torch_kit import agrees, agrees_with_epilogues, biased_same_on_streams, ready
from tests.nm_kit import encoded, matrix, packed_alike, pruned

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
LARGE = 1500  # rows: more tiles than an H200 has SMs, where columns are narrow


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(9, 0), at_most=(9, 0))


def compiled(w: Any, n: int, line: str = "", **epilogue: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **epilogue), backend="cuda", schedule=f"nm_decode {line}".strip())


@pytest.mark.parametrize(("pattern", "dtype"), [
    ((4, 32, (1, 1)), "f16"), ((16, 32, (1, 1)), "bf16"), ((3, 10, (2, 1)), "f16"), ((63, 64, (1, 1)), "f16"),
    ((6, 22, (3, 2)), "bf16"), ((8, 16, (4, 4)), "f16"), ((16, 48, (8, 16)), "bf16"),
])  # fmt: skip
def test_patterns(torch: Any, pattern: Any, dtype: str) -> None:
    """The last window, turn and tile are short."""
    for n in (17, 200):
        agrees(torch, compiled(matrix(LARGE, 777, *pattern, dtype=dtype, fill=0.95), n, bias=True))


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("rows", [64, 128])
def test_widths(torch: Any, rows: int, cols: int) -> None:
    """Several tiles a block, slots that go round, and a last block of columns that is short."""
    for stages, teams in ((2, 1), (3, 2), (4, 3)):
        if cols < 128 or teams == 1:
            line = f"rows={rows} cols={cols} stages={stages} teams={teams}"
            agrees(torch, compiled(matrix(LARGE, 1300, 8, 32), 3 * cols - 8, line))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    w = matrix(700, 512, 8, 32)
    agrees_with_epilogues(torch, compiled, w, activation)


@pytest.mark.parametrize("vector", [(1, 1), (4, 4)])
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, vector: tuple[int, int]) -> None:
    """The same bytes as on the host, and the same result; nothing comes back to the host."""
    for dtype in ("f16", "bf16"):
        dense = pruned(300, 500, 8, 32, vector, dtype)
        here, there = encoded(dense, 8, 32, vector, "cuda")
        for rows in (64, 128):
            assert packed_alike(packed_entries, here, there, rows).is_cuda
        line = "rows=64 cols=64 stages=3 teams=2"
        assert torch.equal(*(agrees(torch, compiled(w, 40, line)) for w in (there, here)))


@pytest.mark.parametrize("n", [64, 17])
def test_streams_and_graphs(torch: Any, n: int) -> None:
    """Calls on any streams and captured calls give the same bits; one of them turns x into its stream's workspace."""
    w = sg.sparse(torch.from_numpy(pruned(2048, 2048, 8, 32)).cuda(), format="nm", n=8, m=32)
    biased_same_on_streams(torch, compiled(w, n, bias=True))
