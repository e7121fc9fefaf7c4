"""Counts of SpInfer's own product: those of whole runs."""

from __future__ import annotations

import pytest

import sparsegen as sg
from tests.counts.kit import wrong
from tests.products_kit import matrix


@pytest.mark.parametrize("device", ["h200", "a100"])
@pytest.mark.parametrize(
    ("n", "line"),
    [
        (24, "smbd cols=16 splits=1"), (17, "smbd cols=8 warps=2 splits=2 buffers=1"),
        (40, "smbd cols=32 warps=2 splits=3 groups=1 two_phase=off ldmatrix=off"),
    ],
)  # fmt: skip
def test_as_a_whole_run(n: int, line: str, device: str) -> None:
    """With and without a launch before that writes x row by row."""
    product = sg.spmm(matrix(150, 330, format="tca_bme"), n=n, bias=True)
    k = sg.compile(product, device=device, backend="emulator", schedule=line)
    made = k._plan(0).main
    assert not wrong(made, k.weights()) and len(made.warp.launches) == 1 + (n == 17)
