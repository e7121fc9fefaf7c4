"""Formats from outside the tree: encoding, decoding, checks, sizes, files and figures derive from their axes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.formats import FORMATS, SparseMatrix, library, load, register, sparse
from sparsegen.formats.axes import Compressed, Dense, Pointers, Stored
from sparsegen.formats.blocks import Blocked, digits
from sparsegen.formats.format import Format, filling
from sparsegen.formats.sr_bcrs import sr_bcrs
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.layout import layout, row_major
from sparsegen.ir.types import DTYPES, f16, s32
from tests.formats import foreign

KINDS = ("f32", "f16", "bf16", "i16", "i12", "i8", "i4", "u8", "u4")
CASES: dict[str, dict[str, int]] = {
    "fixed": {"n": 2, "m": 4, "vector": 4},
    "sr_bcrs": {"height": 8, "stride": 16},
    "blocks": {"rows": 4, "cols": 8},
    "padded": {"rows": 4, "cols": 8},
    "swizzled": {},
    "vector_mask": {},
}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The foreign formats, and SR-BCRS of any dtype, for one test."""
    before = dict(FORMATS)
    for name in CASES:
        register(name, sr_bcrs if name == "sr_bcrs" else getattr(foreign, name), KINDS)
    yield
    FORMATS.clear()
    FORMATS.update(before)


def numbers(shape: tuple[int, int], kind: str, sparsity: float, seed: int = 0) -> Any:
    """Random elements of a dtype of ours, any bits of their width but those of zero."""
    rng = np.random.default_rng(seed)
    if kind in ("i4", "u4", "i12"):
        low, high, dtype = {"i4": (-8, 8, "i1"), "u4": (0, 16, "u1"), "i12": (-2048, 2048, "i2")}[kind]
        made: Any = rng.integers(low, high, shape).astype(dtype)
    else:
        kept = DTYPES[kind.replace("i", "s") if kind[0] == "i" else kind]
        made = rng.integers(1, 1 << kept.bits, shape).astype(f"u{kept.nbytes}").view(kept.numpy())
    made[rng.random(shape) < sparsity] = 0
    return made


@pytest.mark.parametrize("name", [*CASES, "bitmap", "tca_bme", "nm", "csr"])
def test_a_matrix_of_zeros(name: str) -> None:
    """Made without a dense one: the arrays that encoding zeros gives."""
    for shape in ((1, 1), (40, 70), (16, 64)):
        encoded = sparse(np.zeros(shape, np.float16), name, **CASES.get(name, {}))
        made = encoded.spec.zeros(library.NUMPY, shape)
        assert list(made) == list(encoded.arrays)
        for key, array in encoded.arrays.items():
            assert made[key].dtype == array.dtype and np.array_equal(made[key], array), key


def pruned(w: Any, n: int, m: int, vector: int) -> Any:
    """The first n of every m columns that a group of rows has elements in."""
    for top in range(0, w.shape[0], vector):
        for left in range(0, w.shape[1], m):
            block = w[top : top + vector, left : left + m]
            used = np.flatnonzero((as_bits(block) != 0).any(0))
            block[:, used[n:]] = 0
    return w


def as_bits(w: Any) -> Any:
    return np.ascontiguousarray(w).view(f"u{w.dtype.itemsize}")


@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 90)),
    sparsity=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    seed=st.integers(0, 1 << 20),
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", CASES)
def test_round_trip(format: str, kind: str, shape: tuple[int, int], sparsity: float, seed: int) -> None:
    w = numbers(shape, kind, sparsity, seed)
    if format == "fixed":
        w = pruned(w, **CASES["fixed"])
    W = sparse(w, format, dtype=kind, **CASES[format])
    back = W.to_dense()
    assert back.dtype == w.dtype and np.array_equal(as_bits(back), as_bits(w))
    W.check()
    assert (W.dtype, W.format, W.nnz) == (kind, format, np.count_nonzero(as_bits(w)))
    stats = W.stats()
    assert stats.nnz == W.nnz and np.array_equal(stats.lengths, (as_bits(w) != 0).sum(1))


@pytest.mark.parametrize("format", CASES)
def test_many_bands_and_files(format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    w = pruned(numbers((150, 333), "i16", 0.8), **CASES["fixed"])
    whole = sparse(w, format, **CASES[format])
    monkeypatch.setattr(library, "HOST_BAND", 1)
    pieces = sparse(w, format, **CASES[format])
    pieces.save(tmp_path / "w")
    for other in (pieces, load(tmp_path / "w")):
        assert other.spec == whole.spec and list(other.arrays) == list(whole.arrays)
        assert all(np.array_equal(other.arrays[name], array) for name, array in whole.arrays.items())
        assert np.array_equal(other.to_dense(), w)


def test_what_fixed_stores() -> None:
    """Two rows share their two columns of four; a window with one element stores the first free column too."""
    w = np.array([[0, 1, 0, 2, 0, 0, 0, 0, 5], [0, 0, 0, 3, 0, 0, 4, 0, 0]], np.int8)
    W = sparse(w, "fixed", n=2, m=4, vector=2)
    assert W.arrays["kept"].tolist() == [1, 3, 0, 2, 0, 1]
    assert W.arrays["values"].reshape(-1, 2).tolist() == [[1, 0], [2, 3], [0, 0], [0, 4], [5, 0], [0, 0]]
    with pytest.raises(FormatError, match=r"3 of the 4 positions of fiber 1 have elements; the format keeps 2") as e:
        sparse(np.array([[0, 1, 0, 2, 1, 0, 1, 1]], np.int8), "fixed", n=2, m=4)
    assert "prune the matrix to 2 of every 4 first" in str(e.value)


def test_what_padded_stores() -> None:
    """As many blocks of each block row as the fullest has; what fills the others up are -1 and zeros."""
    w = np.array([[0, 0, 0, 1, 0], [2, 0, 0, 0, 0], [0] * 5, [0] * 5, [0, 0, 3, 0, 0]], np.int8)
    W = sparse(w, "padded", rows=2, cols=2)
    assert W.arrays["idx"].tolist() == [[0, 1], [-1, -1], [1, -1]] and W.nnz == 3
    assert W.arrays["values"].reshape(3, 2, 4).tolist() == [
        [[0, 0, 2, 0], [0, 1, 0, 0]], [[0] * 4, [0] * 4], [[3, 0, 0, 0], [0] * 4],
    ]  # fmt: skip
    for at, value, says in (
        ((0, 0), -1, "behind what fills"), ((0, 1), 0, "does not ascend"), ((2, 1), 3, "outside 0..2"),
        ((0, 1), -1, "fills every fiber up"), ((2, 0), -1, "not 0 where"),
    ):  # fmt: skip
        broken = {name: a.copy() for name, a in W.arrays.items()}
        broken["idx"][at] = value
        with pytest.raises(FormatError, match=says):
            SparseMatrix(W.spec, W.shape, W.library, broken, W.nnz).check()


def test_four_bits_lie_two_to_a_byte() -> None:
    W = sparse(np.array([[1, -2, 0], [7, 0, -8]], np.int8), "blocks", dtype="i4", rows=1, cols=1)
    assert W.arrays["idx"].tolist() == [0, 1, 0, 1] and W.arrays["values"].tolist() == [0x71, 0x8E]
    with pytest.raises(ArrayError, match=r"outside -8\.\.7"):
        sparse(np.array([[8]], np.int8), "fixed", dtype="i4", n=1, m=1)


@pytest.mark.parametrize("format", ["bitmap", "tca_bme", "csr", "fixed", "blocks"])
def test_bytes_by_formula(format: str) -> None:
    """Of random matrices, from the entries alone: exact where nothing is filled up, else within chance."""
    w = pruned(numbers((512, 640), "f16", 0.7, 3), **CASES["fixed"])
    W = sparse(w, format, **CASES.get(format, {}))
    shown = W.arrays["values"].size / W.spec.inner if format in ("fixed", "blocks") else W.nnz
    assert W.spec.nbytes(W.shape, shown) == pytest.approx(W.nbytes, rel=2e-3 if "b" in format[:6] else 1e-12)


def test_filling() -> None:
    """The mean of what is missing to the next multiple, against counting."""
    counts = np.random.default_rng(0).binomial(100, 0.03, 200_000)
    assert filling(100, 0.03, 8) == pytest.approx((-counts % 8).mean(), abs=0.02)
    assert filling(100, 0.0, 8) == pytest.approx(0)


def test_positions_that_the_list_cannot_hold() -> None:
    for shape, format in (((1, (1 << 16) - 1), "sr_bcrs"), ((1, 1 << 8), "fixed")):
        options = {"height": 2, "stride": 4} if format == "sr_bcrs" else {"n": 1, "m": shape[1]}
        w = np.zeros(shape, np.int8)
        w[0, -1] = 3
        assert np.array_equal(sparse(w, format, **options).to_dense(), w)
        if format == "fixed":
            options["m"] += 1
        with pytest.raises(FormatError, match=f"has {shape[1] + 1} positions along slab; .* up to {shape[1] - 1}"):
            sparse(np.pad(w, ((0, 0), (0, 1))), format, **options)


def test_digits_of_layouts() -> None:
    """An order of bits is read as digits, and one row by row; any other order is not."""
    assert digits(row_major((4, 8))) == ((8, 4), (1, 8))
    assert digits(layout({"r": 4, "c": 8}, lambda r, c: c * 4 + r)) == ((1, 8), (8, 4))
    assert digits(layout({"r": 2, "c": 8}, lambda r, c: c // 4 * 8 + r * 4 + c % 4)) == ((4, 2), (8, 2), (1, 4))
    assert digits(row_major((1, 1))) == ()
    assert digits(row_major((3, 5))) == ((5, 3), (1, 5)) and digits(row_major((6, 1))) == ((1, 6),)
    by_columns = layout({"r": 3, "c": 5}, lambda r, c: c * 3 + r)
    assert digits(foreign.xor_swizzle(8, 8, 1)) is None and digits(by_columns) is None


def test_declarations_that_make_no_sense() -> None:
    columns = Compressed("slab", Stored("idx", s32), Pointers("ptr", s32))
    for axes in (
        (Dense("strip"), Dense("slab"), Dense("element")),
        (Dense("strip"), columns, columns),
        (Dense("slab"), columns, Dense("element")),
        (Dense("strip"), Dense("element"), columns),
    ):
        with pytest.raises(FormatError, match="has axes") as e:
            Format("odd", f16, Blocked.plain(1, 1), axes)
        assert "then element" in str(e.value)
    for order in (row_major((4, 4)), layout({"r": 2, "c": 2}, lambda r, c: r * 4 + c)):
        with pytest.raises(FormatError, match="no order of the elements of a block 2x2"):
            Blocked(2, 2, order)


@pytest.mark.parametrize("format", CASES)
def test_contradictions_are_found(format: str) -> None:
    w = pruned(numbers((40, 70), "i8", 0.5), **CASES["fixed"])
    W = sparse(w, format, **CASES[format])
    changes: dict[str, Any] = {
        "no pointer but ascends": lambda a: a["ptr"].__setitem__(1, a["ptr"][2] + 64),
        "ends elsewhere": lambda a: a["ptr"].__setitem__(-1, a["ptr"][-1] + 64),
        "out of range": lambda a: a[W.spec.sparse.own.name].__setitem__(0, 250),
        "fewer values": lambda a: a.__setitem__("values", a["values"][:-1]),
        "another dtype": lambda a: a.__setitem__("values", a["values"].astype("f4")),
    }
    for what, change in changes.items():
        broken = SparseMatrix(W.spec, W.shape, W.library, {n: a.copy() for n, a in W.arrays.items()}, W.nnz)
        if "ptr" in broken.arrays or ("pointer" not in what and "ends" not in what):
            change(broken.arrays)
            with pytest.raises(FormatError):
                broken.check()
    with pytest.raises(FormatError, match=r"keep|hold"):
        SparseMatrix(W.spec, W.shape, W.library, W.arrays, W.nnz - 1).check()
