"""Products whose lanes have a window each on the GPU: patterns, columns, layouts, orders, streams and graphs."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from sparsegen.products.nm import by_windows, packed_offsets, packed_values
from tests.gpu.torch_kit import agrees, agrees_by, biased_same_on_streams, ready
from tests.nm_kit import encoded, matrix, packed_alike, pruned

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
PATTERNS = [(8, 32), (16, 32), (2, 4), (3, 10), (48, 64), (33, 64), (1, 2)]


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready()


def compiled(w: Any, n: int, line: str = "", **epilogue: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **epilogue), backend="cuda", schedule=f"nm_windows {line}".strip())


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(torch: Any, pattern: tuple[int, int], dtype: str) -> None:
    w = matrix(700, 1300, *pattern, dtype=dtype, fill=0.95)
    for layout in ("offsets", "windows"):
        agrees(torch, compiled(w, 1, f"layout={layout}", bias=True))


@pytest.mark.parametrize("cols", [1, 2, 4, 8])
def test_columns_and_orders(torch: Any, cols: int) -> None:
    for dtype, n in (("f16", cols), ("f32", 11)):
        w = matrix(333, 777, 8, 32, dtype=dtype)
        agrees_by(torch, compiled(w, n, f"cols={cols} warps=4", bias=True, residual=True))


def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any) -> None:
    """The same bytes as on the host."""
    dense = pruned(300, 500, 8, 32, (4, 2))
    here, there = encoded(dense, 8, 32, (4, 2), "cuda")
    for pack in (packed_values, packed_offsets):
        assert packed_alike(pack, here, there, by_windows).is_cuda


def test_streams_and_graphs(torch: Any) -> None:
    w = torch.from_numpy(pruned(2048, 2048, 8, 32)).cuda()
    biased_same_on_streams(torch, compiled(sg.sparse(w, format="nm", n=8, m=32), 1, bias=True))
