"""N:M patterns: what is stored, of any shape and pattern; what breaks one, and files that do, are refused."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.formats import Nm, file, library, load, sparse
from sparsegen.formats.encode import LargerWarning
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.types import DTYPES
from sparsegen.pruning import prune

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")


def as_bits(w: Any) -> Any:
    return np.ascontiguousarray(w).view(f"u{w.dtype.itemsize}")


def random(shape: tuple[int, int], kind: str, n: int, m: int, vector: tuple[int, int], seed: int) -> Any:
    """Any bits at all in up to n / c random blocks of each window of each group."""
    rng = np.random.default_rng(seed)
    dtype, (r, c) = DTYPES[kind], vector
    w = rng.integers(1, 1 << dtype.bits, shape).astype(f"u{dtype.nbytes}")
    w[rng.random(shape) < 0.2] = 0
    for top in range(0, shape[0], r):
        for left in range(0, shape[1], m):
            kept = rng.permutation(m // c)[: rng.integers(0, n // c + 1)]
            inside = np.arange(min(m, shape[1] - left)) // c
            w[top : top + r, left : left + m][:, ~np.isin(inside, kept)] = 0
    return w.view(dtype.numpy())


def oracle(w: Any, n: int, m: int, vector: tuple[int, int]) -> tuple[list[int], list[Any]]:
    """idx and values, window by window."""
    r, c = vector
    idx, values, bits = [], [], as_bits(w)
    for top in range(0, w.shape[0], r):
        for left in range(0, w.shape[1], m):
            window = np.zeros((r, m), bits.dtype)
            piece = bits[top : top + r, left : min(left + m, w.shape[1])]
            window[: piece.shape[0], : piece.shape[1]] = piece
            blocks = window.reshape(r, m // c, c).transpose(1, 0, 2)
            held = [j for j in range(m // c) if blocks[j].any()]
            free = [j for j in range(m // c) if not blocks[j].any()]
            at = sorted(held + free[: n // c - len(held)])
            idx += at
            values += blocks[at].ravel().tolist()
    return idx, values


@st.composite
def patterns(draw: st.DrawFn) -> tuple[int, int, tuple[int, int]]:
    c = draw(st.sampled_from([1, 1, 2, 3, 4, 8]))
    wide = draw(st.integers(2, 64 // c))
    rows = draw(st.integers(1, 9) | st.just(64))
    return c * draw(st.integers(1, wide - 1)), c * wide, (rows, c)


@given(
    pattern=patterns(),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 150)),
    kind=st.sampled_from(["f32", "f16", "bf16"]),
    seed=st.integers(0, 1 << 20),
)
def test_any_pattern(pattern: Any, shape: tuple[int, int], kind: str, seed: int) -> None:
    n, m, vector = pattern
    w = random(shape, kind, n, m, vector, seed)
    W = sparse(w, "nm", n=n, m=m, vector=vector)
    assert isinstance(W, Nm) and (W.n, W.m, W.vector, W.dtype) == (n, m, vector, kind)
    assert (W.groups, W.windows) == (-(-shape[0] // vector[0]), -(-shape[1] // m))
    idx, values = oracle(w, n, m, vector)
    assert W.arrays["idx"].dtype == np.uint8 and W.arrays["idx"].tolist() == idx
    assert as_bits(W.arrays["values"]).tolist() == values
    W.check()
    back = W.to_dense()
    assert back.dtype == w.dtype and np.array_equal(as_bits(back), as_bits(w))
    stats = W.stats()
    assert stats.nnz == W.nnz == np.count_nonzero(as_bits(w))
    held = np.pad(as_bits(w) != 0, [(0, -extent % 16) for extent in shape])
    assert np.array_equal(stats.lengths, held.sum(1)[: shape[0]])
    assert stats.vectors == held.reshape(-1, 8, held.shape[1]).any(1).sum()
    assert stats.tiles == held.reshape(held.shape[0] // 16, 16, -1, 16).any((1, 3)).sum()
    assert W.spec.nbytes(W.shape, 0) == W.nbytes


@pytest.mark.parametrize("vector", [1, 4, (4, 4), [2, 4], np.int64(3)])
def test_files_and_pickles(vector: Any, tmp_path: Path) -> None:
    rc = tuple(vector) if isinstance(vector, (tuple, list)) else (int(vector), 1)
    w = random((30, 70), "f32", 4, 8, rc, 1)
    W = sparse(w, "nm", n=4, m=np.int32(8), vector=vector)
    W.save(tmp_path / "w")
    for other in (load(tmp_path / "w"), pickle.loads(pickle.dumps(W)), sparse(w, "nm", n=4, m=8, vector=rc)):
        assert isinstance(other, Nm) and other.spec == W.spec and hash(other.spec) == hash(W.spec)
        assert (other.vector, other.nnz) == (rc, W.nnz)
        assert all(np.array_equal(as_bits(other.arrays[name]), as_bits(W.arrays[name])) for name in W.arrays)


def test_the_default_is_2_of_4() -> None:
    W = sparse(np.array([[0, 1, 0, 2, 3]], np.float16), "nm")
    assert isinstance(W, Nm) and (W.n, W.m, W.vector) == (2, 4, (1, 1))
    assert W.arrays["idx"].tolist() == [1, 3, 0, 1]  # column 5 is beyond K: the short window has but one


@pytest.mark.parametrize("band", [1, library.HOST_BAND])
@pytest.mark.parametrize(
    ("vector", "where", "hint"),
    [
        (1, r"row 17, window 3 \(columns 24..29\): 3 columns hold elements, 2:8 keeps 2", "n=2, m=8)"),
        (8, r"rows 16..23 \(group 2\), window 3 \(columns 24..29\): 3 columns hold", "n=2, m=8, vector=8)"),
        ((8, 2), r"rows 16..23 \(group 2\), window 3 .*: 2 blocks of 2 columns hold elements, 2:8 keeps 1", "(8, 2))"),
    ],
)
def test_a_broken_pattern(vector: Any, where: str, hint: str, band: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first place is named, in whatever pieces the matrix is encoded."""
    monkeypatch.setattr(library, "HOST_BAND", band)
    w = np.zeros((40, 30), np.float16)
    w[17, [25, 26, 29]] = 1, np.nan, -np.inf
    w[30] = 1
    if isinstance(vector, tuple):
        w[17, 29] = 0
    with pytest.raises(FormatError, match=where) as e:
        sparse(w, "nm", n=2, m=8, vector=vector)
    assert e.value.hint == f'prune it first: sg.prune(w, "nm", {hint}'.replace(" (8, 2))", " n=2, m=8, vector=(8, 2))")
    assert e.value.loc is not None and e.value.loc.file == __file__


def test_zeros_with_a_sign_are_elements() -> None:
    """As a product with a mask leaves them: the remedy says how they become zeros."""
    w = -np.ones((1, 4), np.float16) * np.array([1, 0, 0, 1], np.float16)
    with pytest.raises(FormatError, match="4 columns hold elements") as e:
        sparse(w, "nm")
    assert e.value.hint and e.value.hint.endswith("; -0.0 is an element too, which w + 0 makes 0")
    assert sparse(w + 0, "nm").nnz == 2 and sparse(w, "nm", n=4, m=5).nnz == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 4, "m": 4}, ["n=4 of every m=4", "1 <= n < m <= 64"]),
        ({"n": 5, "m": 4}, ["n=5"]),
        ({"n": 0, "m": 4}, ["n=0"]),
        ({"n": -1, "m": 4}, ["n=-1"]),
        ({"n": 2, "m": 65}, ["m=65"]),
        ({"n": 2.0, "m": 4}, ["n=2.0"]),
        ({"n": True, "m": 4}, ["n=True"]),
        ({"n": 1, "m": "4"}, ["m='4'"]),
        ({"n": None, "m": 4}, ["n=None"]),
        ({"vector": 0}, ["vector=0", "vector=64", "vector=(4, 4)"]),
        ({"vector": True}, ["vector=True"]),
        ({"vector": 1.5}, ["vector=1.5"]),
        ({"vector": 1025}, ["1 to 1024"]),
        ({"vector": (4, 0)}, ["vector=(4, 0)"]),
        ({"vector": (4,)}, ["vector=(4,)"]),
        ({"vector": [1, 2, 3]}, ["vector=[1, 2, 3]"]),
        ({"n": 2, "m": 8, "vector": (4, 4)}, ["blocks 4x4", "n=2 and m=8", "multiples of 4"]),
        ({"n": 4, "m": 10, "vector": (4, 4)}, ["n=4 and m=10"]),
        ({"k": 3}, ["options {'k': 3}", "leave them away"]),
    ],
)
def test_patterns_that_are_none(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(FormatError) as e:
        sparse(np.zeros((4, 8), np.float16), "nm", **options)
    assert e.value.hint and all(word in str(e.value) for word in words), str(e.value)


def test_matrices_that_are_none() -> None:
    with pytest.raises(ArrayError, match="dtype int8, weights are encoded in f32 or f16 or bf16") as e:
        sparse(np.zeros((4, 8), np.int8), "nm")
    assert "w.astype(np.float16)" in str(e.value)
    for shape in ((0, 4), (4, 0)):
        with pytest.raises(ArrayError, match="no elements"):
            sparse(np.zeros(shape, np.float32), "nm")


def test_larger_than_dense_is_said() -> None:
    w = np.zeros((8, 64), np.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparse(w, "nm", n=8, m=32)
        sparse(w, "nm", n=2, m=4)
    with pytest.warns(LargerWarning, match=r"saves memory never with \{'n': 3, 'm': 4"):
        sparse(w, "nm", n=3, m=4)


def test_scipy_and_torch() -> None:
    sp, torch = pytest.importorskip("scipy.sparse"), pytest.importorskip("torch")
    w = random((20, 50), "f32", 2, 8, (4, 1), 2)
    w[~np.isfinite(w)] = 1
    W = sparse(w, "nm", n=2, m=8, vector=4)
    back = W.to_scipy()
    assert back.nnz == W.nnz and np.array_equal(back.toarray(), w)
    for other in (sp.coo_array(w), back.tocsc(), torch.from_numpy(w).to_sparse_csr(), torch.from_numpy(w.T.copy()).t()):
        V = sparse(other, "nm", n=2, m=8, vector=4)
        V.check()
        for name, dtype in (("idx", np.uint8), ("values", np.float32)):
            assert np.array_equal(np.asarray(V.arrays[name]).view(dtype), W.arrays[name]), name
    half = sparse(sp.coo_array(w / 1e38), "nm", dtype="f16", n=2, m=8, vector=4)
    assert half.dtype == "f16" and isinstance(half, Nm)
    with pytest.raises(FormatError, match="row 0, window 0"):
        sparse(sp.coo_array(np.ones((3, 4), np.float32)), "nm")


@pytest.mark.filterwarnings("ignore:The PyTorch API of SparseSemiStructuredTensor")
def test_semi_structured_tensors_of_torch() -> None:
    """Made as torch makes them on a GPU, which it refuses to do elsewhere."""
    torch = pytest.importorskip("torch")
    conversions = pytest.importorskip("torch.sparse._semi_structured_conversions")
    w = random((64, 64), "f16", 2, 4, (1, 1), 3)
    w[~np.isfinite(w)] = 1
    t = torch.from_numpy(w + np.float16(0))  # of -0.0 torch makes 0
    packed, meta = conversions.sparse_semi_structured_from_dense_cutlass(t)
    made = torch.sparse.SparseSemiStructuredTensorCUTLASS(t.shape, packed, meta, None, None, None)
    W = sparse(made, "nm")
    assert isinstance(W, Nm) and torch.equal(W.to_dense(), t) and W.arrays["values"].shape[0] == 64 * 32
    with pytest.raises(FormatError, match=r"semi-structured tensor of <sparse nm 64x64(.|\n)*CUDA") as e:
        W.to_torch_semi_structured()
    assert "multiples of 64" in str(e.value)
    for V in (sparse(w, "nm"), sparse(t, "nm", n=4, m=8), sparse(t.float(), "nm")):
        with pytest.raises(FormatError, match=r"no semi-structured tensor for .:. of") as e:
            V.to_torch_semi_structured()
        assert "w.half().cuda()" in str(e.value)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The PyTorch API of SparseSemiStructuredTensor")
def test_semi_structured_tensors_there_and_back() -> None:
    torch = pytest.importorskip("torch")
    w = prune(torch.randn(128, 256).half()).cuda()
    W = sparse(w, "nm")
    t = W.to_torch_semi_structured()
    assert isinstance(t, torch.sparse.SparseSemiStructuredTensor)
    assert torch.equal(sparse(t, "nm").to_dense(), w)
    with pytest.raises(FormatError, match="torch makes no semi-structured tensor"):
        sparse(w[:5], "nm").to_torch_semi_structured()


CHANGES: dict[str, Any] = {
    "a position beyond the window": (lambda a: a["idx"].__setitem__(0, 4), "outside 0..3"),
    "a position twice": (lambda a: a["idx"].__setitem__(1, a["idx"][0]), "does not ascend"),
    "descending": (lambda a: a["idx"].__setitem__(slice(0, 2), a["idx"][1::-1].copy()), "does not ascend"),
    "beyond K": (lambda a: a["idx"].__setitem__(slice(-2, None), [1, 3]), "beyond the matrix"),
    "a value beyond K": (lambda a: a["values"].__setitem__(-2, 1), "beyond the matrix"),
    "a value beyond M": (lambda a: a["values"].__setitem__(-3, 1), "beyond the matrix"),
    "fewer positions": (lambda a: a.__setitem__("idx", a["idx"][:-1]), "idx has shape"),
    "fewer values": (lambda a: a.__setitem__("values", a["values"][:-2]), "values has shape"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_arrays_that_contradict_themselves(what: str, tmp_path: Path) -> None:
    """In a file, which anyone may write: the 5 rows are 3 groups, the last window has one column of K = 9."""
    change, says = CHANGES[what]
    w = random((5, 9), "f16", 2, 4, (2, 1), 5)
    w[:, -1] = 1
    W = sparse(w, "nm", n=2, m=4, vector=2)
    broken = Nm(W.spec, W.shape, W.library, {name: array.copy() for name, array in W.arrays.items()}, W.nnz)
    change(broken.arrays)
    broken.nnz += "a value" in what
    broken.save(tmp_path / "w")
    with pytest.raises(FormatError, match=says) as e:
        load(tmp_path / "w")
    assert e.value.hint


@pytest.mark.parametrize("options", [{"n": 4, "m": 4}, {"vector": [10**9, 1]}, {"vector": "4"}, {"q": 1}, {}])
def test_headers_with_other_options(options: dict[str, Any], tmp_path: Path) -> None:
    W = sparse(random((8, 16), "f16", 4, 8, (2, 1), 5), "nm", n=4, m=8, vector=2)
    said = {"format": "nm", "options": options, "shape": W.shape, "dtype": "f16", "nnz": W.nnz, "auto": False}
    file.write(tmp_path / "w", said, W.arrays)
    with pytest.raises(FormatError, match="is no valid sparse matrix"):
        load(tmp_path / "w")
