"""Sparse matrices of scipy that contradict themselves, ones that no memory holds dense, and pickles."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegen as sg
from tests.products_kit import matrix


def changed(kind: str, **arrays: Any) -> Any:
    """A matrix 4 x 5 of ones on its diagonal, with other arrays put in behind scipy's back."""
    w: Any = sp.csr_array(np.eye(4, 5, dtype=np.float32)).asformat(kind)
    for name, array in arrays.items():
        setattr(w, name, array)
    return w


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "column out of range": (lambda: changed("csr", indices=np.array([0, 1, 2, 5])), "has column 5"),
    "negative column": (lambda: changed("csr", indices=np.array([0, 1, -2, 3])), "has column -2"),
    "pointers decrease": (lambda: changed("csr", indptr=np.array([0, 3, 2, 4, 4])), "row pointers decrease"),
    "pointers of other rows": (lambda: changed("csr", indptr=np.array([0, 4])), "row pointers"),
    "pointers beyond": (lambda: changed("csc", indptr=np.array([0, 1, 2, 3, 4, 99])), "row pointers run from 0 to 99"),
    "row out of range": (lambda: changed("csc", indices=np.array([0, 1, 2, 4])), "has column 4, the matrix has 4"),
    "floats": (lambda: changed("csr", indices=np.arange(4.0)), "w.indices is no array of integers"),
    "a list": (lambda: changed("csr", indptr=[0, 1, 2, 3, 4]), "w.indptr is no array"),
    "coordinates": (lambda: changed("coo", row=np.array([0, 1, 2, 4], np.int32)), "w.row does not name one of 4"),
    "diagonals": (lambda: changed("dia", offsets=np.arange(3)), "offsets"),
    "lists": (lambda: changed("lil", _shape=(9, 5)), "lists for"),
    "keys": (lambda: changed("dok", _shape=(2, 5)), "scipy cannot convert|w.row does not name"),
    "blocks": (lambda: changed("bsr", indices=np.array([0, 1, 2, 99], np.int32)), "has column 99"),
    "shape": (lambda: changed("csr", _shape=(-1, 5)), "shape"),
}  # fmt: skip


@pytest.mark.parametrize("format", ["csr", "bitmap", "nm"])
@pytest.mark.parametrize("what", WRONG)
def test_scipy_that_contradicts_itself(what: str, format: str) -> None:
    make, says = WRONG[what]
    with pytest.raises(sg.SparsegenError, match=says) as caught:
        sg.sparse(make(), format, dtype="f16")
    assert caught.value.hint and caught.value.loc is not None and caught.value.loc.file == __file__


def test_unsorted_rows_are_summed_up_where_they_are_converted() -> None:
    w = changed("csr", indices=np.array([1, 0, 3, 3], np.int32), indptr=np.array([0, 2, 4, 4, 4], np.int32))
    W = sg.sparse(w, dtype="f16")
    assert np.array_equal(W.to_dense()[:2], [[1, 1, 0, 0, 0], [0, 0, 0, 2, 0]])
    with pytest.raises(sg.ArrayError, match=r"unsorted columns(.|\n)*sum_duplicates"):
        sg.sparse(w, "csr", dtype="f16")


def test_larger_than_memory_dense() -> None:
    """10^7 x 10^7 with three elements: csr holds it; nothing tries to make it dense."""
    n = 10**7
    w = sp.coo_array((np.ones(3, np.float32), ([0, 5, n - 1], [1, n - 1, 0])), shape=(n, n))
    W = sg.sparse(w, "csr", dtype="f16")
    assert W.nnz == 3 and W.stats().nnz == 3
    for attempt in (lambda: sg.sparse(w, dtype="f16"), lambda: sg.sparse(w, "nm", dtype="f16"), W.to_dense):
        with pytest.raises(sg.FormatError, match=r"200000000000000 bytes dense(.|\n)*csr"):
            attempt()


@pytest.mark.parametrize("format", ["bitmap", "tca_bme", "csr"])
def test_pickles(format: str) -> None:
    W = sg.sparse(matrix(40, 70).to_dense(), format)
    W.auto = True
    for other in (pickle.loads(pickle.dumps(W)), copy.deepcopy(W), copy.copy(W)):
        assert type(other) is type(W) and other.auto and other.library is W.library
        assert np.array_equal(other.to_dense(), W.to_dense()) and other.stats().nnz == W.nnz
        assert list(other.arrays) == list(W.arrays)


def test_pickles_of_torch() -> None:
    torch: Any = pytest.importorskip("torch")
    W = sg.sparse(torch.from_numpy(matrix(40, 70).to_dense()))
    other = pickle.loads(pickle.dumps(W))
    assert other.library.name == "torch" and torch.equal(other.to_dense(), W.to_dense())
