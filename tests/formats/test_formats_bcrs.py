"""BCRS: the elements of a vector are adjacent, nothing fills up; and int32 sums, which keep their pattern, in both."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.formats import Bcrs, SrBcrs, load
from sparsegen.ir.errors import FormatError
from tests.formats.test_formats_sr_bcrs import KINDS, random


def oracle(w: Any, height: int) -> dict[str, list[int]]:
    """The arrays, vector by vector."""
    ptr, idx, values = [0], list[int](), list[int]()
    for row in np.pad(w, ((0, -w.shape[0] % height), (0, 0))).reshape(-1, height, w.shape[1]):
        for column in np.flatnonzero(row.any(0)):
            idx.append(int(column))
            values += row[:, column].tolist()
        ptr.append(len(idx))
    return {"ptr": ptr, "idx": idx, "values": values}


@pytest.mark.parametrize("height", (2, 4, 8))
@pytest.mark.parametrize(("shape", "sparsity"), [((24, 40), 0.6), ((13, 7), 0.3), ((5, 300), 0.95), ((9, 4), 1.0)])
def test_stored_arrays_and_back(shape: tuple[int, int], sparsity: float, height: int, tmp_path: Path) -> None:
    w = random(shape, "i16", sparsity, height, height)
    W = sg.sparse(w, "bcrs", height=height)
    assert isinstance(W, Bcrs) and (W.height, W.strips) == (height, -(-shape[0] // height))
    assert {name: a.tolist() for name, a in W.arrays.items()} == oracle(w, height)
    assert np.array_equal(W.to_dense(), w) and W.nnz == np.count_nonzero(w)
    W.check()
    W.save(tmp_path / "w")
    for again in (pickle.loads(pickle.dumps(W)), load(tmp_path / "w")):
        assert isinstance(again, Bcrs) and np.array_equal(again.to_dense(), w)


@pytest.mark.parametrize("kind", KINDS)
def test_every_integer(kind: str) -> None:
    w = random((21, 33), kind, 0.5, 3, 4)
    assert np.array_equal(sg.sparse(w, "bcrs", dtype=kind, height=4).to_dense(), w)


def test_wide_matrices_get_wide_columns() -> None:
    w = np.zeros((8, 70_000), np.int8)
    w[0, 65_535] = w[3, 69_999] = 1
    W = sg.sparse(w, "bcrs")
    assert W.arrays["idx"].dtype == np.uint32 and W.arrays["idx"].tolist() == [65_535, 69_999]


def test_sums_keep_their_pattern() -> None:
    """int32, of which a vector may hold zeros: they stay entries of the matrix for scipy."""
    w = np.zeros((11, 6), np.int32)
    w[0:2, 1], w[9, 4], w[10, 0] = (1, -(2**31)), 2**31 - 1, 5
    for name in ("bcrs", "sr_bcrs"):
        W: Any = sg.sparse(w, name, height=4)
        assert isinstance(W, (Bcrs, SrBcrs)) and W.dtype == "i32" and W.values.dtype == np.int32
        W.check()
        rows = W.to_scipy()
        assert np.array_equal(rows.toarray(), w) and rows.dtype == np.int32
        assert np.diff(rows.indptr).tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2]
        assert rows.indices.tolist() == [1, 1, 1, 1, 0, 4, 0, 4, 0, 4]


def test_other_numbers_are_refused() -> None:
    with pytest.raises(FormatError, match="vectors have 2, 4 or 8 rows"):
        sg.sparse(np.ones((4, 4), np.int8), "bcrs", height=3)
    with pytest.raises(FormatError, match="16 bits or 32"):
        sg.sparse(np.ones((4, 4), np.int8), "bcrs", index=8)
