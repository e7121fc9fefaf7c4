"""Compressed sparse rows: what is given comes back, entry by entry, and rows that are none are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.formats import Csr, library, load, sparse
from sparsegen.formats.csr import MOST
from sparsegen.formats.library import NUMPY
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.types import DTYPES, f32
from tests.formats.matrices import bits, weights
from tests.formats.test_formats_file import signed
from tests.refusals import refusal

sp = pytest.importorskip("scipy.sparse")

KINDS = ("f32", "f16", "bf16")


def matrix(shape: tuple[int, int], sparsity: float, kind: str, seed: int = 0) -> Any:
    """Any bits at all; those of f32 are of two halves."""
    if kind != "f32":
        return weights(shape, sparsity, kind, seed)
    both = np.stack([bits(weights(shape, sparsity, "f16", seed + i)) for i in (0, 0)], -1)
    return np.ascontiguousarray(both).view(np.float32)[..., 0]


def same(a: Any, b: Any) -> bool:
    word = f"u{a.dtype.itemsize}"
    return bool(a.dtype == b.dtype and np.array_equal(np.ascontiguousarray(a).view(word), b.view(word)))


@examples(
    shape=st.tuples(st.integers(0, 60), st.integers(0, 90)),
    kind=st.sampled_from(KINDS),
    sparsity=st.sampled_from([0.0, 0.6, 0.97, 1.0]),
    seed=st.integers(0, 1 << 20),
)
def test_dense_there_and_back(shape: tuple[int, int], kind: str, sparsity: float, seed: int) -> None:
    w = matrix(shape, sparsity, kind, seed)
    W = sparse(w, "csr")
    assert isinstance(W, Csr) and (W.shape, W.dtype, W.format) == (shape, kind, "csr")
    assert list(W.arrays) == ["ptr", "idx", "values"]
    assert [a.dtype for a in W.arrays.values()] == [np.int32, np.int32, DTYPES[kind].numpy()]
    assert same(W.to_dense(), w)
    rows, cols = np.nonzero(w.view(f"u{w.dtype.itemsize}"))
    assert W.nnz == rows.size and np.array_equal(W.arrays["idx"], cols)
    assert np.array_equal(np.diff(W.arrays["ptr"]), np.bincount(rows, minlength=shape[0]))
    W.check()
    assert W.spec.nbytes(shape, W.nnz) == W.nbytes and "csr" in repr(W)


def test_many_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    w = weights((200, 333), 0.6)
    whole = sparse(w, "csr")
    monkeypatch.setattr(library, "HOST_BAND", 1)
    pieces = sparse(w, "csr")
    assert all(same(pieces.arrays[n], a) for n, a in whole.arrays.items()) and same(pieces.to_dense(), w)


@pytest.mark.parametrize("kind", KINDS)
def test_scipy(kind: str) -> None:
    """csr, csc, coo, lil and bsr, an explicit zero among them; what is done to the input later changes nothing."""
    w = np.random.default_rng(0).standard_normal((150, 37)).astype(np.float32)
    w[np.random.default_rng(1).random(w.shape) < 0.7] = 0
    w = w.astype(DTYPES[kind].numpy())
    csr = sp.csr_array(w.astype(np.float32))
    csr.data[3] = 0
    w[np.nonzero(w.astype(np.float32))[0][3], csr.indices[3]] = 0
    for given in (csr, csr.tocsc(), csr.tocoo(), csr.tolil(), csr.tobsr((1, 1))):
        W = sparse(given, "csr", dtype=None if kind == "f32" else kind)
        assert W.dtype == kind and W.nnz == np.count_nonzero(w) + 1
        assert np.array_equal(W.to_dense(), w)
        back = W.to_scipy()
        assert back.nnz == W.nnz and back.has_canonical_format and np.array_equal(back.toarray(), w.astype("f4"))
        back.data[:] = 7
        assert np.array_equal(W.to_dense(), w)
    csr.data[:] = 9
    assert np.array_equal(W.to_dense(), w)
    twice = sp.coo_array((np.array([1.5, 2.5], "f4"), (np.array([1, 1]), np.array([2, 2]))), shape=(3, 4))
    assert sparse(twice, "csr").to_dense()[1, 2] == 4
    empty = sparse(sp.csr_array((0, 5), dtype="f4"), "csr")
    assert (empty.shape, empty.nnz, empty.sparsity) == ((0, 5), 0, 1) and empty.to_dense().shape == (0, 5)


def test_more_columns_than_a_dense_matrix_could_have() -> None:
    huge = sp.csr_array((np.ones(3, "f4"), np.array([5, 0, MOST - 1]), np.array([0, 1, 3])), shape=(2, MOST))
    W = sparse(huge, "csr")
    W.check()
    assert W.nnz == 3 and W.stats().lengths.tolist() == [1, 2] and (W.stats().vectors, W.stats().tiles) == (3, 2)


def rows(ptr: list[int], idx: list[int], cols: int = 4, values: int | None = None) -> None:
    """Encode rows as they are said, whatever they are."""
    made = sp.csr_array((len(ptr) - 1, cols), dtype="f4")
    made.indptr, made.indices = np.array(ptr, np.int32), np.array(idx, np.int32)
    made.data = np.ones(len(idx) if values is None else values, np.float32)
    sparse(made, "csr")


@pytest.mark.parametrize(
    ("ptr", "idx", "words"),
    [
        ([0, 2, 3], [2, 1, 0], ["unsorted columns: entry 1 (row 0) has column 1 behind column 2", "sum_duplicates()"]),
        ([0, 1, 3], [2, 1, 1], ["duplicate columns: entry 2 (row 1) has column 1", "sum_duplicates()"]),
        ([0, 1, 2], [2, 4], ["entry 1 (row 1) has column 4, the matrix has 4 columns"]),
        ([0, 0, 1], [-1], ["entry 0 (row 1) has column -1"]),
        ([0, 2, 1, 2], [0, 1], ["row pointers decrease: row 1 begins at 2, the next one at 1"]),
        ([1, 1, 2], [0, 1], ["run from 1 to 2", "from 0 to the 2 entries"]),
        ([0, 1, 1], [0, 1], ["run from 0 to 1", "2 entries"]),
    ],
)
def test_rows_that_are_none(ptr: list[int], idx: list[int], words: list[str]) -> None:
    with pytest.raises(ArrayError) as e:
        rows(ptr, idx)
    assert all(word in str(e.value) for word in [*words, "remedy: ", "test_formats_csr.py"]), str(e.value)


def test_columns_may_descend_from_row_to_row() -> None:
    rows([0, 2, 2, 4], [2, 3, 0, 1])


def test_what_cannot_be_encoded() -> None:
    with pytest.raises(ArrayError, match="2 row pointers, 1 columns and 2 values for 1 rows"):
        rows([0, 2], [1], values=2)
    with pytest.raises(ArrayError, match="float64, which is encoded in f32 or f16 or bf16") as e:
        sparse(sp.csr_array(np.eye(3)), "hybrid")
    assert "dtype='f32'" in str(e.value)
    with pytest.raises(ArrayError, match="dtype int32, weights are encoded in f32 or f16 or bf16 or f64") as e:
        sparse(np.eye(3, dtype=np.int32), "csr")
    assert "astype(np.float64)" in str(e.value)
    with pytest.raises(FormatError, match="elements of dtype 'f64'"):
        sparse(np.eye(3), "hybrid", dtype="f64")
    with pytest.raises(ArrayError, match="dtype int64"):
        sparse(sp.csr_array(np.eye(3, dtype=np.int64)), "csr", dtype="f32")
    with pytest.raises(FormatError, match=f"csr counts up to {MOST}"):
        Csr.of(f32, NUMPY, (2, MOST + 1), np.zeros(3, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


def test_stats() -> None:
    """Against counting in the dense matrix; all formats say the same."""
    w = weights((100, 130), 0.9)
    w[17:40] = 0
    kept = bits(w) != 0
    padded = np.zeros((112, 144), bool)
    padded[:100, :130] = kept
    for format in ("csr", "bitmap", "tca_bme"):
        s = sparse(w, format).stats()
        assert np.array_equal(s.lengths, kept.sum(1)) and s.nnz == kept.sum()
        assert s.vectors == padded.reshape(14, 8, 144).any(1).sum()
        assert s.tiles == padded.reshape(7, 16, 9, 16).any((1, 3)).sum()
        assert s.imbalance == kept.sum(1).max() / kept.sum(1).mean() and s.per_vector == kept.sum() / s.vectors
    W = sparse(w, "csr")
    assert W.stats() is W.stats()
    none = sparse(np.zeros((0, 4), np.float16), "csr").stats()
    assert (none.nnz, none.vectors, none.tiles, none.imbalance, none.per_vector) == (0, 0, 0, 1, 0)


# -------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("kind", KINDS)
def test_files(tmp_path: Path, kind: str) -> None:
    for shape in ((30, 70), (0, 3), (5, 0)):
        W = sparse(matrix(shape, 0.7, kind), "csr")
        W.save(tmp_path / "w")
        V = load(tmp_path / "w")
        assert type(V) is Csr and repr(V) == repr(W) and V.spec == W.spec
        assert all(same(V.arrays[name], array) for name, array in W.arrays.items())


def altered(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert len(old) == len(new) and data.count(old) == 1, (old, data.count(old))
    path.write_bytes(signed(data.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"shape": [3, 9]', b'"shape": [4, 9]'),
        (b'"shape": [3, 9]', b'"shape": [3, 2]'),
        (b'"shape": [3, 9]', b'"shape": [3.,9]'),
        (b'"shape": [3, 9]', b'"shape":[3,9e9]'),
        (b'"nnz": 5', b'"nnz": 4'),
        (b'"nnz": 5', b'"nnz": 6'),
        (b'"nnz": 5', b'"nnz":5.'),
        (b'["<u4", [4]]', b'["<u4", [5]]'),
        (b'["<u4", [4]]', b'["<u2", [8]]'),
        (b'["<u2", [5]]', b'["<u2", [3]]'),
        (b'["<u2", [5]]', b'["<u2",[-1]]'),
        (b'["<u2", [5]]', b'["<u8",9999]'),
        (b'"options": {}', b'"options":[9]'),
        (b'"options": {}', b'"options": 12'),
        (b'"format": "csr"', b'"format": [[9]]'),
        (b'"format": "csr"', b'"format": "cs!"'),
        (b'"dtype": "f16"', b'"dtype": "f32"'),
    ],
)
def test_a_wrong_header_is_not_trusted(tmp_path: Path, old: bytes, new: bytes) -> None:
    w = np.zeros((3, 9), np.float16)
    w[0, 2:4] = w[2, 5:8] = 1
    path = tmp_path / "w"
    sparse(w, "csr").save(path)
    altered(path, old, new)
    with pytest.raises(FormatError, match="is no valid sparse matrix"):
        load(path)


@pytest.mark.parametrize(
    ("name", "at", "value", "says"),
    [
        ("ptr", 0, 1, "does not ascend"),
        ("ptr", 1, 3, "does not ascend"),
        ("ptr", 1, -1, "does not ascend"),
        ("ptr", 3, 4, "idx has shape"),
        ("idx", 1, 9, "outside 0..8"),
        ("idx", 1, -1, "outside 0..8"),
        ("idx", 1, 2, "does not ascend in each fiber"),
    ],
)
def test_wrong_arrays_are_found(tmp_path: Path, name: str, at: int, value: int, says: str) -> None:
    """Rows that would make a kernel read astray, in a file whose checksum is right."""
    w = np.zeros((3, 9), np.float16)
    w[0, 2:4] = w[2, 5:8] = 1
    W = sparse(w, "csr")
    W.save(tmp_path / "w")
    before = W.arrays[name].tobytes()
    W.arrays[name][at] = value
    altered(tmp_path / "w", before, W.arrays[name].tobytes())
    with pytest.raises(FormatError, match=says):
        load(tmp_path / "w")


def test_a_header_too_deep_or_too_large(tmp_path: Path) -> None:
    """Neither the reader's stack nor memory for arrays that the file does not hold is at a stranger's mercy."""
    path = tmp_path / "w"
    sparse(np.ones((1, 1), np.float16), "csr").save(path)
    data = path.read_bytes()
    length = int.from_bytes(data[12:16], "little")
    for header in (b"[" * 200_000, data[24 : 24 + length].replace(b"[1]", b"[%d]" % (1 << 60))):
        made = data[:12] + len(header).to_bytes(4, "little") + bytes(8) + header + data[24 + length :]
        made = made[:16] + len(made).to_bytes(8, "little") + made[24:]
        path.write_bytes(signed(made))
        with pytest.raises(FormatError, match="is no valid sparse matrix"):
            load(path)


# -------------------------------------------------------------------------------------------------------------- torch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torch(kind: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    w = np.random.default_rng(0).standard_normal((50, 37)).astype(np.float32)
    w[np.random.default_rng(1).random(w.shape) < 0.7] = 0
    t = torch.from_numpy(w).to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[kind]).to(device)
    V = sparse(w.astype(DTYPES[kind].numpy()), "csr")
    for from_ in (t, t.to_sparse_csr()):
        W = sparse(from_, "csr")
        W.check()
        assert W.arrays["values"].dtype == t.dtype and W.arrays["idx"].device == t.device
        assert torch.equal(W.to_dense(), t) and W.stats().tiles == V.stats().tiles
        assert np.array_equal(W.stats().lengths, V.stats().lengths) and W.stats().vectors == V.stats().vectors
        assert all(same(W.to_host().arrays[name], array) for name, array in V.arrays.items())
    if kind != "f32":
        assert torch.equal(sparse(t.to_sparse_csr(), "bitmap").to_dense(), t)
        assert np.array_equal(sparse(t).stats().lengths, V.stats().lengths)
    wrong = t.to_sparse_csr()
    wrong.col_indices()[:2] = wrong.col_indices()[:2].flip(0)
    with pytest.raises(ArrayError, match="unsorted columns"):
        sparse(wrong, "csr")


def test_rounding_to_bf16_by_scipy() -> None:
    w = sp.csr_array(np.array([[1 + 2**-9, 0, 3.0]], "f4"))
    assert sparse(w, "csr", dtype="bf16").arrays["values"].tolist() == [1, 3]
    assert sparse(w, "csr", dtype="bf16").arrays["values"].dtype == ml_dtypes.bfloat16


def test_indices_of_64_bits() -> None:
    """They are taken where 32 bits hold them; beyond the shape the entry is named, beyond 32 bits what helps."""
    wide = np.array([0, 3], np.int64)
    a = sp.csr_array((np.ones(2, "f4"), wide, np.array([0, 1, 2], np.int64)), shape=(2, 4))
    assert np.array_equal(sg.sparse(a, "csr").to_dense(), a.toarray())
    a.indices = np.array([0, 2**31 + 3], np.int64)
    for given in (
        lambda: sg.sparse(a, "csr"),  # here
        lambda: sg.sparse(a, "hybrid"),  # here
        lambda: sg.reorder(a),  # here
    ):
        refusal(__file__, ArrayError, given, "entry 1 (row 1) has column 2147483651")
    one = (np.ones(1, "f4"), ([0], [2**31 + 3]))
    broad = sp.coo_array(one, shape=(2, 2**31 + 9))
    for format in ("csr", "hybrid"):
        refusal(__file__, FormatError, lambda f=format: sg.sparse(broad, f), "fewer columns")  # here
