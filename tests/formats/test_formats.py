"""Encoding and decoding: every bit comes back, and what is stored is what the format's description says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.formats import Bitmap, SparseMatrix, library, sparse
from sparsegen.formats.bitmap import MASK, ORDER, TILE
from sparsegen.formats.tca_bme import BIT, GROUP
from sparsegen.ir.errors import FormatError
from tests.formats import slow
from tests.formats.matrices import FORMATS, KINDS, SPECIAL, bits, matrices, weights

SHAPES = [(1, 1), (1, 7), (9, 1), (16, 64), (17, 65), (64, 64), (65, 64), (64, 128), (100, 130)]


def decoded(W: SparseMatrix) -> Any:
    """The bits by the slow decoder."""
    return getattr(slow, W.format)(W.shape, **W.arrays)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_slow_decoder(format: str, shape: tuple[int, int], kind: str) -> None:
    for sparsity in (0.0, 0.6, 1.0):
        w = weights(shape, sparsity, kind)
        W = sparse(w, format)
        assert np.array_equal(decoded(W), bits(w))
        assert (W.shape, W.dtype, W.format) == (shape, kind, format)


@given(w=matrices(), format=st.sampled_from(FORMATS))
def test_round_trip(w: Any, format: str) -> None:
    W = sparse(w, format)
    back = W.to_dense()
    assert isinstance(back, np.ndarray) and back.dtype == w.dtype and np.array_equal(bits(back), bits(w))
    W.check()
    nnz = int(np.count_nonzero(bits(w)))
    assert W.nnz == nnz and W.sparsity == 1 - nnz / w.size
    assert W.nbytes == sum(a.nbytes for a in W.arrays.values()) and W.compression == 2 * w.size / W.nbytes


@given(w=matrices(40, 140))
def test_slow_decoder_on_any_matrix(w: Any) -> None:
    for format in FORMATS:
        assert np.array_equal(decoded(sparse(w, format)), bits(w))


@pytest.mark.parametrize("format", FORMATS)
def test_many_bands(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a matrix becomes does not depend on how many pieces it is encoded in."""
    w = weights((200, 333), 0.6)
    whole = sparse(w, format)
    monkeypatch.setattr(library, "HOST_BAND", 1)
    pieces = sparse(w, format)
    for name, array in whole.arrays.items():
        assert np.array_equal(pieces.arrays[name], array)
    assert np.array_equal(bits(pieces.to_dense()), bits(w))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", FORMATS)
def test_special_numbers(format: str, kind: str) -> None:
    w = weights((20, 70), 1.0, kind)
    w.view(np.uint16)[3, 5:13] = SPECIAL[kind]
    W = sparse(w, format)
    assert W.nnz == 8 and np.array_equal(bits(W.to_dense()), bits(w))


@pytest.mark.parametrize("format", FORMATS)
def test_any_strides(format: str) -> None:
    """Transposed, reversed, with a pitch, read-only: the same matrix as its packed copy."""
    wide = weights((150, 300), 0.5)
    frozen = wide[:40, 3:90]
    frozen.flags.writeable = False
    for w in (wide.T, wide[::-1, ::-2], frozen):
        got, want = sparse(w, format), sparse(np.ascontiguousarray(w), format)
        assert all(np.array_equal(got.arrays[name], a) for name, a in want.arrays.items())


def test_dtypes_stored() -> None:
    W = sparse(weights((33, 70), 0.5))
    assert isinstance(W, Bitmap) and (W.masks.dtype, W.values.dtype, W.index.dtype) == ("u4", "u8", "u4")
    assert list(W.arrays) == ["index", "masks", "values"]
    V = sparse(weights((33, 70), 0.5), "tca_bme")
    assert [(name, array.dtype) for name, array in V.arrays.items()] == [
        ("offsets", "u4"), ("bitmaps", "u8"), ("values", "u2")
    ]  # fmt: skip


@given(w=matrices(200, 150), rows=st.integers(1, 20))
def test_widest(w: Any, rows: int) -> None:
    W = sparse(w)
    assert isinstance(W, Bitmap)
    slabs, strips, _ = W.masks.shape
    held = np.diff(W.index[:, 0].astype(int) // 8).reshape(slabs, strips)
    runs = [held[s, r : r + rows].sum() for s in range(slabs) for r in range(strips)]
    assert W.widest(rows) == max(runs)


def test_widest_needs_a_strip() -> None:
    W = sparse(weights((16, 64), 0.5))
    assert isinstance(W, Bitmap)
    with pytest.raises(ValueError, match="at least one strip, not 0"):
        W.widest(0)


@given(w=matrices())
def test_bytes_of_the_paper(w: Any) -> None:
    """The formula, and what is stored: each group is filled up to 16 bytes."""
    W = sparse(w, "tca_bme")
    m, k = (-(-n // 64) * 64 for n in w.shape)
    formula = 4 * (m * k // 4096 + 1) + 8 * (m * k // 64) + 2 * W.nnz
    padded = np.zeros((m, k), np.uint16)
    padded[: w.shape[0], : w.shape[1]] = bits(w)
    held = (padded.reshape(m // 64, 64, k // 64, 64) != 0).sum((1, 3))
    assert W.nbytes == formula + 2 * int((-held % 8).sum())


@given(w=matrices())
def test_bytes_of_ours(w: Any) -> None:
    W = sparse(w)
    tiles = -(-w.shape[0] // 16) * -(-w.shape[1] // 64)
    assert isinstance(W, Bitmap) and W.nbytes == tiles * (128 + 16) + 16 + W.values.nbytes
    assert 0 <= W.values.nbytes - 32 - 2 * W.nnz <= 6 * tiles


# ------------------------------------------------------------------------------------------------------------ layouts


def test_the_tile_as_a_layout() -> None:
    """The kernels' map and the encoder's order are one."""
    assert TILE.injective() and TILE.shape() == (4, 32, 8)
    order = ORDER @ TILE
    assert order.injective() and order.size() == 1024
    row, col = np.divmod(TILE.inverse_table(), 64)
    lane, f, j = 13, 2, 3
    assert [(row[f, lane, e], col[f, lane, e]) for e in (j, 4 + j)] == [(3, 39), (11, 39)]


def test_mask_bits_as_a_layout() -> None:
    """Every element has a bit of its own; a fragment's are one bit of each nibble."""
    assert MASK.injective() and MASK.size() == 32
    for f, row in enumerate(MASK.tables()[0]):
        assert sum(1 << int(b) for b in row) == 0x11111111 << f
    w = np.zeros((16, 64), np.float16)
    for row, col in ((0, 0), (11, 39), (15, 63), (8, 17)):
        w[:] = 0
        w[row, col] = 1
        f, lane, e = (int(table[row, col]) for table in TILE.tables())
        W = sparse(w)
        assert isinstance(W, Bitmap) and W.masks[0, 0, lane] == 1 << int(MASK.tables()[0][f, e])


def test_the_papers_order_as_a_layout() -> None:
    assert GROUP.injective() and GROUP.size() == 4096
    table = GROUP.tables()[0]
    assert np.array_equal(table[:8, :8], BIT.tables()[0])
    corners = [table[r, c] for r, c in ((8, 0), (0, 8), (8, 8), (0, 16), (16, 0))]
    assert corners == [64, 128, 192, 256, 1024]


# ---------------------------------------------------------------------------------------------------------- elsewhere


def test_repr() -> None:
    w = np.zeros((32, 64), np.float16)
    w[0, :32] = 1
    assert repr(sparse(w)) == "<sparse bitmap 32x64 f16, 98.44 % zeros, 400 bytes (10.2 times smaller than dense)>"


def test_to_host_is_itself_on_the_host() -> None:
    W = sparse(weights((5, 5), 0.5))
    assert W.to_host() is W


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_scipy(format: str, kind: str) -> None:
    """There and back; explicit entries, -0.0 too, and duplicates are what scipy says they are."""
    sp = pytest.importorskip("scipy.sparse")
    w = np.random.default_rng(0).standard_normal((2500, 37)).astype(np.float32)
    w[np.random.default_rng(1).random(w.shape) < 0.7] = 0
    w = w.astype(np.float16 if kind == "f16" else ml_dtypes.bfloat16)
    w[2, 3] = -0.0
    W = sparse(w, format)
    csr = W.to_scipy()
    assert csr.dtype == np.float32 and csr.format == "csr" and csr.shape == w.shape and csr.nnz == W.nnz
    assert np.array_equal(csr.toarray(), w.astype(np.float32)) and csr.has_canonical_format
    for matrix in (csr, csr.tocsc(), sp.coo_matrix(csr)):
        back = sparse(matrix, format, dtype=kind)
        assert back.dtype == kind and np.array_equal(bits(back.to_dense()), bits(w))
    twice = sp.coo_array((np.array([1.5, 2.5]), (np.array([1, 1]), np.array([2, 2]))), shape=(3, 4))
    assert sparse(twice, format, dtype=kind).to_dense()[1, 2] == 4 and twice.nnz == 2
    rows = sp.csr_array((np.array([1.5, 2.5]), np.array([2, 2]), np.array([0, 0, 2, 2])), shape=(3, 4))
    assert sparse(rows, format, dtype=kind).to_dense()[1, 2] == 4 and rows.nnz == 2  # and the input is untouched


@pytest.mark.parametrize("format", FORMATS)
def test_contradictions_are_found(format: str) -> None:
    """``check`` refuses arrays that would make a kernel read astray: one bit of any array that places values."""
    W = sparse(weights((70, 130), 0.5), format)
    for name in W.arrays:
        if name != "values":
            flat = W.arrays[name].reshape(-1)
            for at in (0, flat.size // 2, flat.size - 1):
                flat[at] ^= 1
                with pytest.raises(FormatError, match=r"contradict|values has shape|keep"):
                    W.check()
                flat[at] ^= 1
    W.check()
    W.arrays["values"] = W.arrays["values"][:-1]
    with pytest.raises(FormatError, match="values has shape"):
        W.check()
