"""SR-BCRS: what is stored, of any shape, height and integers; what it cannot hold, and wrong arrays, are refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.formats import SrBcrs, library, load
from sparsegen.ir.errors import ArrayError, FormatError

#: dtype -> what holds its elements, the smallest and the largest.
KINDS: dict[str, tuple[Any, int, int]] = {
    "i4": (np.int8, -8, 7), "i8": (np.int8, -128, 127), "i12": (np.int16, -2048, 2047),
    "i16": (np.int16, -32768, 32767), "u4": (np.uint8, 0, 15), "u8": (np.uint8, 0, 255), "u16": (np.uint16, 0, 65535),
}  # fmt: skip


def encoded(w: Any, dtype: str | None = None, **options: int) -> SrBcrs:
    W = sg.sparse(w, "sr_bcrs", dtype=dtype, **options)
    assert isinstance(W, SrBcrs)
    return W


def random(shape: tuple[int, int], kind: str, sparsity: float, seed: int, height: int = 1) -> Any:
    """Numbers of the whole range, its ends among them, in vectors of which so many are zero."""
    dtype, low, high = KINDS[kind]
    rng = np.random.default_rng(seed)
    w = rng.integers(low, high + 1, shape)
    w[rng.random(shape) < 0.1] = low
    w[rng.random(shape) < 0.1] = high
    gone = rng.random((-(-shape[0] // height), shape[1])) < sparsity
    w[gone.repeat(height, 0)[: shape[0]]] = 0
    return w.astype(dtype)


def oracle(w: Any, kind: str, height: int, stride: int) -> dict[str, list[Any]]:
    """The arrays, block by block."""
    ptr, idx, values = [], [], []
    rows = np.pad(w, ((0, -w.shape[0] % height), (0, 0))).reshape(-1, height, w.shape[1])
    for row in rows:
        columns = [c for c in range(w.shape[1]) if row[:, c].any()]
        ptr.append([len(idx), len(idx) + len(columns)])
        for at in range(0, len(columns), stride):
            block = columns[at : at + stride]
            spare = stride - len(block)
            idx += block + [65535] * spare
            for r in range(height):
                values += [int(row[r, c]) for c in block] + [0] * spare
    if KINDS[kind][2] - KINDS[kind][1] == 15:
        values = [low & 15 | (high & 15) << 4 for low, high in zip(values[::2], values[1::2], strict=True)]
    return {"ptr": ptr, "idx": idx, "values": values}


def same(W: SrBcrs, V: SrBcrs) -> None:
    """``W``, brought to the host, is ``V``, made by NumPy."""
    host = W.to_host()
    host.check()
    assert (host.spec, host.nnz, W.nbytes, W.shape, W.dtype) == (V.spec, V.nnz, V.nbytes, V.shape, V.dtype)
    for name, array in V.arrays.items():
        assert host.arrays[name].dtype == array.dtype and np.array_equal(host.arrays[name], array), name


@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 150)),
    height=st.sampled_from([2, 4, 8]),
    stride=st.sampled_from([None, 4, 16]),
    sparsity=st.sampled_from([0.0, 0.5, 0.8, 0.97, 1.0]),
    by_vectors=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
@pytest.mark.parametrize("kind", KINDS)
def test_any_matrix(
    kind: str, shape: tuple[int, int], height: int, stride: int | None, sparsity: float, by_vectors: bool, seed: int
) -> None:
    w = random(shape, kind, sparsity, seed, height if by_vectors else 1)
    W = encoded(w, kind, height=height) if stride is None else encoded(w, kind, height=height, stride=stride)
    stride = stride or (64 if kind in ("i4", "u4") else 32)
    assert (W.height, W.stride, W.strips, W.dtype) == (height, stride, -(-shape[0] // height), kind)
    for name, wanted in oracle(w, kind, height, stride).items():
        assert W.arrays[name].tolist() == wanted, name
    W.check()
    back = W.to_dense()
    assert back.dtype == w.dtype and np.array_equal(back, w)
    held = np.pad(w != 0, [(0, -extent % 16) for extent in shape])
    stats = W.stats()
    assert stats.nnz == W.nnz == np.count_nonzero(w) and np.array_equal(stats.lengths, held.sum(1)[: shape[0]])
    assert stats.vectors == held.reshape(-1, 8, held.shape[1]).any(1).sum()


def test_two_pointers_and_strides_row_by_row() -> None:
    """As in the paper's figure: vectors of two rows, four of them row by row; what fills four up has no column.

    The middle vector row is empty, the last one short.
    """
    w = np.zeros((5, 7), np.int8)
    w[0], w[1], w[4] = [1, 0, 2, 3, 0, 4, 5], [0, 0, 6, 0, 0, 0, 7], [0, 8, 0, 0, 0, 0, 0]
    W = encoded(w, height=2, stride=4)
    assert list(W.arrays) == ["ptr", "idx", "values"]
    assert W.arrays["ptr"].dtype == np.int32 and W.arrays["ptr"].tolist() == [[0, 5], [8, 8], [8, 9]]
    assert W.arrays["idx"].dtype == np.uint16
    assert W.arrays["idx"].view(np.int16).tolist() == [0, 2, 3, 5, 6, -1, -1, -1, 1, -1, -1, -1]
    assert W.arrays["values"].reshape(-1, 2, 4).tolist() == [
        [[1, 2, 3, 4], [0, 6, 0, 0]], [[5, 0, 0, 0], [7, 0, 0, 0]], [[8, 0, 0, 0], [0, 0, 0, 0]]
    ]  # fmt: skip
    fours = encoded(np.minimum(w, 7), "i4", height=2, stride=4)
    assert fours.arrays["values"][:4].tolist() == [0x21, 0x43, 0x60, 0x00]
    assert fours.nbytes == W.nbytes - 12 and fours.compression == 5 * 7 / 2 / fours.nbytes


def test_one_vector_and_none() -> None:
    for kind, (dtype, low, high) in KINDS.items():
        w = np.zeros((1, 1), dtype)
        W = encoded(w, kind)
        assert W.arrays["ptr"].tolist() == [[0, 0]] and not W.arrays["idx"].size and W.compression > 0
        w[0, 0] = low or high
        W = encoded(w, kind)
        W.check()
        assert W.arrays["ptr"].tolist() == [[0, 1]] and W.to_dense()[0, 0] == w[0, 0] and W.nnz == 1


def test_wide_matrices_list_columns_in_32_bits(tmp_path: Path) -> None:
    """From the first on whose last column would be the number that says that there is none."""
    for cols, dtype in ((65535, np.uint16), (65536, np.uint32), (70001, np.uint32)):
        w = np.zeros((9, cols), np.int8)
        w[[0, 8], -1] = 5
        w[3, 7] = -6
        W = encoded(w, height=4, stride=4)
        assert W.arrays["idx"].dtype == dtype
        said = W.arrays["idx"].view(f"i{W.arrays['idx'].itemsize}" if cols > 65535 else "u2").tolist()
        none = -1 if cols > 65535 else 65535
        assert said == [7, cols - 1, none, none, cols - 1, none, none, none]
        W.check()
        W.save(tmp_path / "w")
        back = load(tmp_path / "w")
        assert isinstance(back, SrBcrs) and np.array_equal(back.to_dense(), w)
        same(back, W)


@pytest.mark.parametrize("kind", KINDS)
def test_files_pickles_and_bands(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w = random((150, 333), kind, 0.8, 1)
    W = encoded(w, kind, height=4)
    W.save(tmp_path / "w")
    monkeypatch.setattr(library, "HOST_BAND", 1)
    for other in (load(tmp_path / "w"), pickle.loads(pickle.dumps(W)), encoded(w, kind, height=4)):
        assert isinstance(other, SrBcrs) and np.array_equal(other.to_dense(), w)
        same(other, W)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_and_scipy(kind: str) -> None:
    sp, torch = pytest.importorskip("scipy.sparse"), pytest.importorskip("torch")
    w = random((21, 150), kind, 0.8, 2)
    V = encoded(w, kind, height=4)
    t = torch.from_numpy(w)
    for tensor in (t, torch.from_numpy(w.T.copy()).t()):
        W = encoded(tensor, kind, height=4)
        same(W, V)
        back = W.to_dense()
        assert back.dtype == t.dtype and np.array_equal(back.numpy(), w) and W.stats().nnz == V.nnz
        same(pickle.loads(pickle.dumps(W)), V)
    if kind != "u16":  # which torch has no sparse tensors of
        same(encoded(t.to_sparse_csr(), kind, height=4), V)
    back = V.to_scipy()
    assert back.dtype == w.dtype and np.array_equal(back.toarray(), w)
    for other in (back, back.tocsc(), back.tocoo(), sp.csr_array(w.astype(np.int64))):
        same(encoded(other, kind, height=4), V)


def test_the_dtype_is_that_of_the_array() -> None:
    sp = pytest.importorskip("scipy.sparse")
    for dtype, kind in ((np.int8, "i8"), (np.int16, "i16"), (np.uint8, "u8"), (np.uint16, "u16")):
        w = np.ones((3, 5), dtype)
        assert encoded(w).dtype == encoded(sp.csr_array(w)).dtype == kind


def test_scipy_sums_duplicates_without_wrapping() -> None:
    sp = pytest.importorskip("scipy.sparse")
    twice = np.array([100, 100], np.int8), (np.array([2, 2]), np.array([3, 3]))
    with pytest.raises(ArrayError, match=r"w\[2, 3\] is 200, outside -128\.\.127"):
        encoded(sp.coo_array(twice, shape=(4, 5)))
    assert encoded(sp.coo_array(twice, shape=(4, 5)), "u8").to_dense()[2, 3] == 200


@pytest.mark.parametrize("bits", [4, 8, 12, 16])
def test_the_remedy_for_floats(bits: int) -> None:
    """What is named where floats are refused makes a matrix that is taken, in whole vectors."""
    w = np.random.default_rng(bits).standard_normal((20, 60)).astype(np.float32)
    w[~sg.pattern.vectors(np.abs(w) > 2, height=4)] = 0
    with pytest.raises(ArrayError, match=rf"sg\.quantize\(w, bits={bits}\)"):
        encoded(w, f"i{bits}")
    q = sg.quantize(w, bits=bits).values
    W = encoded(q, f"i{bits}", height=4)
    begins, ends = W.arrays["ptr"].T
    assert np.array_equal(W.to_dense(), q) and (ends - begins).sum() == (w != 0).reshape(5, 4, 60).any(1).sum()


@pytest.mark.parametrize("of", ["numpy", "torch", "torch csr", "scipy"])
@pytest.mark.parametrize("kind", ["i4", "u4", "i12"])
def test_values_outside_the_bits(kind: str, of: str) -> None:
    """The first one is named, in the order of the rows."""
    sp, torch = pytest.importorskip("scipy.sparse"), pytest.importorskip("torch")
    dtype, low, high = KINDS[kind]
    for value in (high + 1, np.iinfo(dtype).max, low - 1 if low else 200):
        w = random((9, 30), kind, 0.5, 3)
        w[7, 2] = w[6, 20] = value
        make: dict[str, Callable[[Any], Any]] = {
            "numpy": np.asfortranarray, "torch": torch.from_numpy, "scipy": sp.csr_array,
            "torch csr": lambda a: torch.from_numpy(a).to_sparse_csr(),
        }  # fmt: skip
        with pytest.raises(ArrayError, match=rf"w\[6, 20\] is {value}, outside {low}\.\.{high}, ") as e:
            encoded(make[of](w), kind)
        assert f"sg.quantize(w, bits={kind[1:]})" in str(e.value) and e.value.loc is not None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: encoded(np.ones((2, 3), np.float32)),
            ["dtype float32", "w.half()", "sg.quantize(w, bits=8)", "q.values"],
        ),
        (lambda: encoded(np.ones((2, 3), np.float16), "i4"), ["dtype float16", "sg.quantize(w, bits=4)"]),
        (lambda: encoded(np.ones((2, 3), np.int64)), ["dtype int64", "w.astype(np.int8)", "w.short()"]),
        (lambda: encoded(np.ones((2, 3), np.int8), "u8"), ["dtype int8", "encoded in u8", "w.byte()"]),
        (lambda: encoded(np.ones((2, 3), np.int8), "f16"), ["dtype int8", "w.astype(np.float16)"]),
        (lambda: encoded(np.ones((2, 3), np.int8), "f32"), ["dtype 'f32'", "'i8' or 'i16'"]),
        (lambda: encoded(np.ones((0, 3), np.int8)), ["(0, 3): no elements"]),
        (lambda: encoded(np.ones((3, 0), np.int8)), ["(3, 0): no elements"]),
        (lambda: encoded(np.ones((2, 3), np.int8), height=3), ["height=3", "2, 4 or 8 rows"]),
        (lambda: encoded(np.ones((2, 3), np.int8), height=True), ["height=True"]),
        (lambda: encoded(np.ones((2, 3), np.int8), height=16), ["height=16", "height=8"]),
        (lambda: encoded(np.ones((2, 3), np.int8), stride=24), ["stride=24", "leave it away"]),
        (lambda: encoded(np.ones((2, 3), np.int8), index=8), ["index=8", "16 bits or 32"]),
        (lambda: encoded(np.ones((2, 3), np.int8), vector=8), ["options {'vector': 8}"]),
        (lambda: sg.sparse(np.ones((2, 3), np.float16), height=8), ["options {'height': 8}"]),
    ],
)
def test_what_is_refused(make: Callable[[], Any], says: list[str]) -> None:
    with pytest.raises(sg.SparsegenError) as e:
        make()
    assert e.value.hint and e.value.loc is not None and all(word in str(e.value) for word in says), str(e.value)


def test_scipy_matrices_that_are_refused() -> None:
    sp = pytest.importorskip("scipy.sparse")
    for w, dtype, says in (
        (np.ones((2, 3)), None, "sg.quantize(w.toarray(), bits=8)"),
        (np.ones((2, 3)), None, "dtype='f16' or dtype='bf16'"),
        (np.ones((2, 3)), "i4", "sg.quantize(w.toarray(), bits=4)"),
        (np.ones((2, 3), bool), "i4", "sg.sparse(w.astype('int64'), dtype='i4')"),
        (np.ones((2, 3), np.uint64), None, "sg.sparse(w.astype('int64'), dtype='i8')"),
        (np.ones((2, 3), np.int64), None, "dtype='i8' or dtype='i16'"),
        (np.ones((2, 3), complex), "i8", "sg.quantize(w.real.toarray(), bits=8)"),
    ):
        with pytest.raises(ArrayError) as e:
            encoded(sp.csr_array(w), dtype)
        assert says in str(e.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a["ptr"].__setitem__((0, 0), 32), "contradicts"),
        (lambda a: a["ptr"].__setitem__((1, 1), a["ptr"][1, 1] - 1), "contradicts"),
        (lambda a: a["ptr"].__setitem__((2, 1), a["ptr"][2, 0] - 1), "contradicts"),
        (lambda a: a["ptr"].__setitem__((0, 1), 1 << 20), "ascend"),
        (lambda a: a["ptr"].__setitem__((3, 1), -1), "idx has shape"),
        (lambda a: a["idx"].__setitem__(0, 0xFFFF), "contradicts"),
        (lambda a: a["idx"].__setitem__(0, 50), "outside 0..49"),
        (lambda a: a["idx"].__setitem__(1, a["idx"][0]), "does not ascend"),
        (lambda a: a["idx"].__setitem__(-1, 3), "contradicts"),
        (lambda a: a["values"].__setitem__(-1, 1), "not 0 where the idx is -1"),
        (lambda a: a["values"].__setitem__([0, -32], [0, 7]), "beyond the matrix"),  # the last vectors' fourth row
        (lambda a: a["values"].__setitem__(0, 2048), "value 0 is none of s12"),
        (lambda a: a.__setitem__("values", a["values"][:-1]), "values has shape"),
        (lambda a: a.__setitem__("ptr", a["ptr"].ravel()), "ptr has shape"),
    ],
)
def test_arrays_that_contradict_themselves(change: Callable[[Any], Any], says: str) -> None:
    """Four vector rows of four rows, the third one empty, the last one of three."""
    w = np.full((15, 50), 7, np.int16)
    w[8:12], w[12:, 10:] = 0, 0
    W = encoded(w, "i12", height=4)
    arrays = {name: array.copy() for name, array in W.arrays.items()}
    SrBcrs(W.spec, W.shape, W.library, arrays, W.nnz).check()
    change(arrays)
    with pytest.raises(FormatError, match=says):
        SrBcrs(W.spec, W.shape, W.library, arrays, W.nnz).check()
