"""Products whose lanes have a window each on the GPU: patterns, columns, layouts, orders, streams and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.nvcc import find_nvcc
from sparsegen.ir.errors import ToolchainError
from sparsegen.products.nm import by_windows, packed_offsets, packed_values
from tests.gpu.torch_kit import agrees, same_on_streams
from tests.nm_kit import matrix, pruned

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
PATTERNS = [(8, 32), (16, 32), (2, 4), (3, 10), (48, 64), (33, 64), (1, 2)]


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    made = pytest.importorskip("torch")
    try:
        find_nvcc()
    except ToolchainError as e:
        pytest.skip(str(e))
    return made


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
        k = compiled(matrix(333, 777, 8, 32, dtype=dtype), n, f"cols={cols} warps=4", bias=True, residual=True)
        for orders in (("row", "row"), ("column", "row"), ("row", "column"), ("column", "column")):
            agrees(torch, k, *orders)


def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any) -> None:
    """The same bytes as on the host."""
    dense = pruned(300, 500, 8, 32, (4, 2))
    there, here = (sg.sparse(a, "nm", n=8, m=32, vector=(4, 2)) for a in (torch.from_numpy(dense).cuda(), dense))
    for pack in (packed_values, packed_offsets):
        made = pack(there, by_windows)
        assert made.is_cuda
        assert np.array_equal(made.view(torch.int32).cpu().numpy().view("u4"), pack(here, by_windows).view("u4"))


def test_streams_and_graphs(torch: Any) -> None:
    w = torch.from_numpy(pruned(2048, 2048, 8, 32)).cuda()
    k = compiled(sg.sparse(w, format="nm", n=8, m=32), 1, bias=True)
    of = torch.float16
    same_on_streams(torch, k, torch.rand(2048, 1, device="cuda").to(of), bias=torch.rand(2048, device="cuda").to(of))
