"""Products against strips of x that stay, on a GPU from Ampere on: sizes, orders, torch, streams, graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from tests.csr_kit import NUMPY, ragged
from tests.gpu.torch_kit import agrees, agrees_with_epilogues, as_on_the_emulator, biased_same_on_streams, ready

pytestmark = pytest.mark.gpu
#: Each width of a strip's row, teams of one group and of several, rows of W of one block and of many.
LINES = [
    "", "wide=32 lists=60 warps=8 groups=4 unroll=2", "wide=64 lists=9 warps=16 groups=1 unroll=8",
    "wide=64 lists=200 warps=4 groups=8 unroll=4", "wide=128 lists=33 warps=16 groups=1 unroll=4",
    "wide=128 lists=1 warps=32 groups=2 unroll=4",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def matrix(m: int, k: int, dtype: str = "f32", mean: float = 20, full: int = 2) -> Any:
    return sg.sparse(ragged(m, k, mean, full=full).toarray().astype(NUMPY[dtype]), format="csr")


def compiled(w: Any, n: int, line: str = "", **epilogue: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **epilogue), backend="cuda", schedule=f"csr_strip {line}".strip())


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_sizes(torch: Any, dtype: str, line: str) -> None:
    """Nothing that anything divides; columns from one on; no spills."""
    for m, k in ((1501, 777), (2048, 512)):
        w = matrix(m, k, dtype)
        for n in (1, 8, 17, 128, 200, 512):
            kernel = compiled(w, n, line, bias=True)
            agrees(torch, kernel)
            assert kernel.resources().spills == 0


@pytest.mark.parametrize("k", [1, 31, 1700, 3400, 6800])
def test_strips_from_one_row_to_all_that_fit(torch: Any, k: int) -> None:
    wide = 128 if k <= 1700 else 64 if k <= 3400 else 32
    agrees(torch, compiled(matrix(400, k, mean=min(k, 30)), 100, f"wide={wide} groups=1"))


@pytest.mark.parametrize("w", [np.zeros((50, 70)), np.ones((1, 1)), np.ones((400, 330))], ids=["none", "one", "all"])
def test_matrices_with_no_entries_one_and_all(torch: Any, w: Any) -> None:
    for n in (9, 64):
        agrees(torch, compiled(sg.sparse(w.astype("f4"), format="csr"), n, bias=True))


def test_what_is_not_finite_stays_in_its_rows(torch: Any) -> None:
    w = matrix(900, 500)
    x = torch.ones((500, 64), device="cuda")
    x[77, 3], x[400, 5] = float("nan"), float("inf")
    has = torch.from_numpy(w.to_dense() != 0).cuda()
    for line in LINES:
        y = compiled(w, 64, line)(x)
        assert torch.equal(torch.isfinite(y[:, 3]), ~has[:, 77]) and torch.equal(torch.isinf(y[:, 5]), has[:, 400])
        assert torch.isfinite(y[:, [0, 1, 2, 4, *range(6, 64)]]).all()


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    agrees_with_epilogues(torch, compiled, matrix(700, 512, "f16"), activation)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, dtype: str) -> None:
    """The same result as of one that is packed on the host."""
    w = torch.from_numpy(ragged(300, 500, 20).toarray()).to(getattr(torch, dtype))
    line = "wide=64 lists=4 warps=8 groups=2 unroll=4"
    assert torch.equal(*(agrees(torch, compiled(sg.sparse(a, format="csr"), 40, line)) for a in (w, w.cuda())))


def test_as_on_the_emulator() -> None:
    as_on_the_emulator(matrix(200, 300), 24, "csr_strip wide=64 lists=2 warps=4 groups=2 unroll=4")


def test_streams_and_graphs(torch: Any) -> None:
    biased_same_on_streams(torch, compiled(matrix(1500, 512), 64, bias=True))
