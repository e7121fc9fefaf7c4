"""SpInfer's own product on a real GPU: all words, sizes, orders and epilogues; how fast it is is not judged."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from tests.gpu.test_products_gpu import call
from tests.products_kit import agrees, matrix, operands

LINES = (
    "smbd cols=16 splits=1", "smbd cols=8 warps=1 splits=3", "smbd cols=32 warps=2 buffers=1 splits=2",
    "smbd cols=64 groups=1 splits=1", "smbd cols=16 buffers=1 groups=1 splits=4", "smbd cols=32 two_phase=off",
    "smbd cols=16 ldmatrix=off warps=2 splits=1", "smbd cols=8 two_phase=off ldmatrix=off buffers=1 splits=2",
)  # fmt: skip


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("n", [1, 8, 17, 64, 200])
def test_sizes_and_orders(n: int, line: str) -> None:
    for shape, dtype, sparsity in (((512, 1024), "f16", 0.6), ((1003, 777), "bf16", 0.3), ((70, 328), "f16", 0.95)):
        product = sg.spmm(matrix(*shape, sparsity, dtype, format="tca_bme"), n=n, bias=True)
        k = sg.compile(product, backend="cuda", schedule=line)
        for x_order, y_order in (("row", "row"), ("column", "column"), ("column", "row")):
            for _ in range(2):  # counters of splits are zero again
                given = operands(product, x_order, y_order)
                call(k, given, out=given["out"])
                agrees(given["out"], product, given)
        assert k.resources().spills == 0


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("splits", [1, 3])
def test_epilogues(splits: int, activation: Any) -> None:
    w = matrix(300, 500, format="tca_bme")
    product = sg.spmm(w, n=16, bias=True, scale=True, residual=True, activation=activation)
    k = sg.compile(product, backend="cuda", schedule=f"smbd cols=16 splits={splits}")
    for orders in (("row", "row"), ("column", "row"), ("row", "column")):
        given = operands(product, *orders)
        call(k, given, out=given["out"])
        agrees(given["out"], product, given)
