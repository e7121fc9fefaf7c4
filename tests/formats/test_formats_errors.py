"""What cannot be encoded is refused by name, with the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparsegen.formats import FORMATS, sparse
from sparsegen.formats.library import NUMPY
from sparsegen.ir.errors import ArrayError, FormatError, SparsegenError

W = np.ones((4, 6), np.float16)


@pytest.mark.parametrize(
    ("w", "words"),
    [
        (W.astype("f4"), ["dtype float32", "f16 or bf16", "astype(np.float16)", "nothing is cast"]),
        (W.astype("f8"), ["dtype float64"]),
        (W.astype("i2"), ["dtype int16"]),
        (W.astype("c8"), ["dtype complex64"]),
        (W.astype(">f2"), ["byte order"]),
        (W.ravel(), ["1 axes", "(24,)", "reshape(M, K)"]),
        (W[None], ["3 axes", "(1, 4, 6)"]),
        (W[:0], ["(0, 6)", "at least one row"]),
        (W[:, :0], ["(4, 0)", "one column"]),
        (np.ma.masked_array(W, W > 0), ["masked", "filled(0)"]),
        ([[1.0]], ["list is not an array", "np.asarray"]),
    ],
)
def test_dense(w: Any, words: list[str]) -> None:
    with pytest.raises(ArrayError) as e:
        sparse(w)
    assert all(word in str(e.value) for word in words), str(e.value)


def test_formats_and_dtypes() -> None:
    with pytest.raises(FormatError, match="no sparse format 'bitmpa'") as e:
        sparse(W, "bitmpa")
    known = "bitmap, tca_bme, csr, hybrid, blocked_ell, nm, sr_bcrs, bcrs, or auto"
    assert f"did you mean 'bitmap'? use one of {known}" in str(e.value)
    assert isinstance(e.value, SparsegenError)
    with pytest.raises(FormatError, match=r"options \{'height': 8\}"):
        sparse(W, height=8)
    with pytest.raises(FormatError, match="dtype 'f32'"):
        sparse(W, dtype="f32")
    with pytest.raises(ArrayError, match=r"dtype float16, weights are encoded in bf16"):
        sparse(W, dtype="bf16")
    assert sparse(W, dtype="f16").dtype == "f16"


def test_scipy() -> None:
    sp = pytest.importorskip("scipy.sparse")
    with pytest.raises(ArrayError, match="float64, which is encoded in f16 or bf16") as e:
        sparse(sp.csr_array(W.astype("f8")))
    assert "dtype='f16'" in str(e.value)
    with pytest.raises(ArrayError, match="dtype int64"):
        sparse(sp.csr_array(W.astype("i8")), dtype="f16")
    big = sp.csr_array(np.array([[1e6, np.inf]]))
    with pytest.raises(FormatError, match=r"1000000\.0 is too large for f16"):
        sparse(big, dtype="f16")
    assert np.isinf(sparse(big, dtype="bf16").to_dense().astype("f4")).tolist() == [[False, True]]
    with pytest.raises(ArrayError, match=r"shape \(0, 3\)"):
        sparse(sp.csr_array((0, 3)), dtype="f16")


def test_more_than_the_index_counts() -> None:
    """By fibers that hold so many: pointers count values, those of bitmap tiles halves of them."""
    for format, most in (("tca_bme", (1 << 32) - 8), ("bitmap", (1 << 31) - 4), ("csr", (1 << 31) - 1)):
        ptr = FORMATS[format].spec("f16", {}).sparse.ptr
        assert ptr is not None
        counts = np.zeros((2, ptr.parts), np.int64)
        counts[0, 0] = most
        assert ptr.starts(NUMPY, NUMPY.cast(ptr.of(NUMPY, counts), ptr.dtype), 0, 2)[-1] == most
        counts[1, 0] = 1
        with pytest.raises(FormatError, match=f"the matrix has {most + ptr.align} values; the format counts up to"):
            ptr.of(NUMPY, counts)
