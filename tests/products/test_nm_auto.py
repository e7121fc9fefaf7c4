"""Which schedule a product with an N:M matrix takes by itself: lanes, tensor cores, or the dense matrix."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.products.cost import dense_cost
from sparsegen.products.nm import NmNumbers
from tests.nm_kit import matrix


def pruned(m: int, k: int, kept: int, vector: int, dtype: str = "f2") -> np.ndarray:
    """A matrix of ones in which every window keeps its first columns."""
    keep = np.arange(k) % 32 < kept
    return np.broadcast_to(keep, (m, k)).astype(dtype)


@pytest.mark.parametrize(
    ("n", "device", "family"),
    [(1, "h200", "nm_lanes"), (256, "h200", "nm_gather"), (16, "h200", "nm_gather"), (256, "a100", "nm_strips")],
)
def test_few_columns_take_lanes_and_many_tensor_cores(n: int, device: str, family: str) -> None:
    w = sg.sparse(pruned(1024, 2048, 8, 64), format="nm", n=8, m=32, vector=64)
    assert sg.compile(sg.spmm(w, n=n), device=device, backend="emulator").schedule.family == family


@pytest.mark.parametrize(
    ("n", "device", "family"), [(1, "h200", "nm_lanes"), (512, "h200", "nm_24"), (4096, "h200", "nm_24")]
)
def test_two_of_four_take_sparse_tensor_cores(n: int, device: str, family: str) -> None:
    w = matrix(2048, 2048, 2, 4)
    assert sg.compile(sg.spmm(w, n=n), device=device, backend="emulator").schedule.family == family


def test_auto_takes_the_dense_matrix_where_nothing_is_gained() -> None:
    """Rows with patterns of their own, and many columns: a tile of them keeps nearly all columns."""
    keep = np.random.default_rng(0).permuted(np.broadcast_to(np.arange(32) < 16, (2048, 64, 32)), axis=-1)
    w = keep.reshape(2048, 2048).astype("f2")
    said = sg.sparse(w, format="auto", n=16, m=32)
    assert said.format == "nm" and said.auto
    assert sg.compile(sg.spmm(said, n=4096), device="h200", backend="emulator").schedule.family == "dense"
    assert sg.compile(sg.spmm(said, n=1), device="h200", backend="emulator").schedule.family == "nm_lanes"
    asked = sg.sparse(w, format="nm", n=16, m=32)
    assert sg.compile(sg.spmm(asked, n=4096), device="h200", backend="emulator").schedule.family != "dense"


def test_in_f32_the_dense_product_is_priced_on_cuda_cores() -> None:
    """Where cuBLAS took 74 us with the memory cold (8192 x 8192, one column)."""
    p = NmNumbers(8192, 8192, 1, "f32", (8, 32, 1, 1), 0, 0, (128, 128))
    assert dense_cost(p, load_profile("h200")).time * 1e6 == pytest.approx(74, rel=0.2)
