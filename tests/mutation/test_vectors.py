"""Each wait, fence, mbarrier and barrier of products of vectors is needed."""

from __future__ import annotations

from typing import Any

import pytest

import sparsegen as sg
from tests.mutation.harness import score
from tests.vectors_kit import floats, launched, quantized

#: Types of W and x, parts of a strip, the GPU, and how many ops order: by tensor copies an mbarrier and a wait for each
#: part, an arrival, a fence, a barrier, and the wait before the end; by cp.async a group of copies, the wait for it and
#: a barrier.
CASES = [
    ("i8", "i8", 1, "h200", 6), ("i16", "i8", 4, "h200", 12), ("i4", "i4", 2, "h200", 8), ("i8", "i16", 4, "a100", 3)
]  # fmt: skip


def test_pieces_of_rows_add_up_in_any_order() -> None:
    """Those of a row that is cut: besides the waits for parts, what publishes a piece's sums and what reads all."""
    product: Any = sg.spmm(quantized((37, 250), kept=2.0), n=32)
    func, arguments, exact = launched(product, "vector_strip wide=32 lists=6 warps=4 unroll=1 parts=1 cut=2")
    killed, survivors = score(func, arguments, {"y": exact}, rtol=0)
    print(f"{killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == 10 and not survivors


@pytest.mark.parametrize(("kind", "x_kind", "parts", "device", "many"), CASES)
def test_nothing_that_orders_is_redundant(kind: str, x_kind: str, parts: int, device: str, many: int) -> None:
    """Warps begin while later parts are on their way; a warp has more than one task, and a block has none."""
    product: Any = sg.spmm(quantized((37, 250), kind, kept=2.0), n=32, x_dtype=x_kind)
    line = f"vector_strip wide=32 lists=6 warps=1 unroll=2 parts={parts}"
    func, arguments, exact = launched(product, line, device)
    killed, survivors = score(func, arguments, {"y": exact}, rtol=0)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == many and not survivors


@pytest.mark.parametrize(
    ("line", "device", "many"),
    [
        ("vector_strip wide=32 lists=6 warps=1 unroll=2 parts=4", "h200", 12),
        ("vector_strip wide=32 lists=6 warps=4 unroll=1 parts=1 cut=2", "a100", 7),
    ],
)
def test_of_floats_too(line: str, device: str, many: int) -> None:
    product: Any = sg.spmm(floats((37, 250), kept=2.0), n=32)
    func, arguments, exact = launched(product, line, device)
    killed, survivors = score(func, arguments, {"y": exact}, rtol=2**-9)
    print(f"{line}: {killed} of {killed + len(survivors)} noticed" + "".join(f"\n  {s}" for s in survivors))
    assert killed == many and not survivors
