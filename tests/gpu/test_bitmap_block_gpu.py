"""Bitmap tiles whose warps share a ring, on a real GPU: all words, sizes, orders, epilogues, and always the same."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from tests.gpu.test_products_gpu import call
from tests.products.test_bitmap_block import LINES, line
from tests.products_kit import agrees, matrix, operands


@pytest.mark.parametrize("words", LINES)
@pytest.mark.parametrize("n", [1, 8, 17, 64, 200])
def test_sizes_and_orders(n: int, words: str) -> None:
    for shape, dtype, sparsity in (((2048, 1024), "f16", 0.6), ((1003, 777), "bf16", 0.3), ((70, 648), "f16", 0.95)):
        product = sg.spmm(matrix(*shape, sparsity, dtype), n=n, bias=True)
        k = sg.compile(product, backend="cuda", schedule=line(words, dtype))
        for x_order, y_order in (("row", "row"), ("column", "column"), ("column", "row")):
            given = operands(product, x_order, y_order)
            call(k, given, out=given["out"])
            agrees(given["out"], product, given)
        assert k.resources().spills == 0


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("words", [LINES[0], LINES[2], LINES[6]])
def test_epilogues(words: str, activation: Any) -> None:
    product = sg.spmm(matrix(300, 500), n=16, bias=True, scale=True, residual=True, activation=activation)
    k = sg.compile(product, backend="cuda", schedule=line(words))
    for orders in (("row", "row"), ("column", "row"), ("row", "column")):
        given = operands(product, *orders)
        call(k, given, out=given["out"])
        agrees(given["out"], product, given)


def always_right(product: Any, schedule: str, *orders: str) -> None:
    """A call is right, and 200 more of the same give the same bits."""
    k = sg.compile(product, backend="cuda", schedule=schedule)
    given = operands(product, *orders)
    call(k, given, out=given["out"])
    agrees(given["out"], product, given)
    first = given["out"].copy()
    for _ in range(200):
        call(k, given, out=given["out"])
        assert (given["out"] == first).all()


@pytest.mark.parametrize("words", LINES)
def test_many_calls_give_the_same(words: str) -> None:
    """A slot that is filled too early shows in few calls of many."""
    always_right(sg.spmm(matrix(2384, 5120, 0.6), n=64), line(words), "column", "column")


@pytest.mark.parametrize("cols", [32, 64])
def test_a_slot_is_filled_again_only_when_loads_have_landed(cols: int) -> None:
    """Of these warps a third of the calls were wrong on an H200, before a fence came between loads and copies."""
    words = line(f"cols={cols} warps=5x3 rows=1 stages=12 splits=1", "bf16")
    always_right(sg.spmm(matrix(2390, 5132, 0.5, "bf16"), n=152), words, "column", "row")
