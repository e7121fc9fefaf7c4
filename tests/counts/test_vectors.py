"""Counts of products of vectors: those of whole runs; and what types and words of schedules change."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from sparsegen.products.vectors import VectorNumbers
from tests.counts.kit import wrong
from tests.vectors_kit import floats, kernel, quantized


@pytest.mark.parametrize("device", ["h200", "a100"])
@pytest.mark.parametrize(
    ("kind", "x_kind", "n", "line"),
    [
        ("i8", "i8", 70, "vector_strip wide=64 lists=1 warps=3 unroll=2 parts=3"),
        ("i16", "i4", 64, "vector_strip wide=32 lists=2 warps=2 unroll=1 parts=1"),
        ("i4", "u16", 33, "vector_strip wide=128 lists=3 warps=1 unroll=4 parts=4"),
    ],
)
def test_as_a_whole_run(kind: str, x_kind: str, n: int, line: str, device: str) -> None:
    """With and without a launch before that writes x row by row."""
    k = kernel(sg.spmm(quantized((53, 150), kind), n=n, x_dtype=x_kind), line, device)
    made = k._plan(0).main
    assert not wrong(made, k.weights()) and len(made.warp.launches) == 1 + (n in (33, 70))


@pytest.mark.parametrize(
    ("kind", "x_kind", "mma"),
    [
        ("i8", "i8", {"s8": 2}), ("u8", "i8", {"s8.u8": 2}), ("i4", "i8", {"s8": 2}), ("i8", "i4", {"s8": 4}),
        ("i16", "i8", {"s8": 2, "s8.u8": 2}), ("i8", "i16", {"s8": 1, "u8.s8": 1}),
        ("i16", "i16", {"s8": 1, "u8": 1, "s8.u8": 1, "u8.s8": 1}),
    ],
)  # fmt: skip
def test_what_a_step_takes(kind: str, x_kind: str, mma: dict[str, int]) -> None:
    """Of 32 bytes of a row of x: two reads of 16 rows by 16 bytes, four permutes each, which transpose, and the mma of
    each pair of digits of x and W."""
    bits = int(x_kind[1:])
    product: Any = sg.spmm(quantized((64, 320), kind, seed=1), n=2 * 32 * 8 // bits, x_dtype=x_kind)
    counts = kernel(product, "vector_strip wide=32 lists=2 warps=2 unroll=2 parts=4").counts()
    steps = 2 * VectorNumbers.of(product).steps  # of two strips
    found = {name: n for name, n in counts.items() if name.startswith("mma.")}
    assert found == {f"mma.{types}.m16n8k32": n * steps for types, n in mma.items()}
    assert (counts["ldmatrix"], counts["prmt"]) == (2 * steps, 8 * steps)


@pytest.mark.parametrize("device", ["h200", "a100"])
@pytest.mark.parametrize(
    "line", ["vector_strip wide=64 lists=1 warps=3 unroll=2 parts=3", "vector_strip wide=32 cut=2"]
)
@pytest.mark.parametrize("n", [33, 64])
def test_floats_as_a_whole_run(n: int, line: str, device: str) -> None:
    k = kernel(sg.spmm(floats((53, 150), "bf16"), n=n, residual=True), line, device)
    made = k._plan(0).main
    assert not wrong(made, k.weights()) and len(made.warp.launches) == 1 + (n == 33)


def test_what_a_step_of_floats_takes() -> None:
    """Of 32 bytes of a row of x: two reads of 16 rows by 16 bytes, and two mma, as nothing is made of what is read.

    Two sums of 16 bits of a column become two of a row by one transposition.
    """
    product: Any = sg.spmm(floats((64, 320), seed=1), n=32)
    counts = kernel(product, "vector_strip wide=32 lists=2 warps=2 unroll=2 parts=4").counts()
    numbers = VectorNumbers.of(product)
    steps, strips = numbers.steps, 2
    assert counts["mma.f16.m16n8k16"] == counts["ldmatrix"] == 2 * strips * steps and "prmt" not in counts
    assert counts["movmatrix"] == 2 * strips * numbers.rows
