"""Files: what was saved comes back; anything else is refused with the reason."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsegen.formats import load, sparse
from sparsegen.ir.errors import FormatError
from tests.formats.matrices import FORMATS, KINDS, bits, weights


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", FORMATS)
def test_round_trip(tmp_path: Path, format: str, kind: str) -> None:
    w = weights((70, 200), 0.6, kind)
    W = sparse(w, format)
    for path in (tmp_path / "w.sgw", str(tmp_path / "w.sgw")):  # the second replaces the first
        W.save(path)
        V = load(path)
        assert type(V) is type(W) and repr(V) == repr(W) and V.nnz == W.nnz
        for name, array in W.arrays.items():
            assert V.arrays[name].dtype == array.dtype and np.array_equal(V.arrays[name], array)
        assert np.array_equal(bits(V.to_dense()), bits(w))
    assert os.listdir(tmp_path) == ["w.sgw"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.sgw"
    sparse(weights((3, 5), 0.5)).save(path)
    return path


def test_every_flipped_byte_is_found(small: Path) -> None:
    data, rng = small.read_bytes(), random.Random(0)
    for at in range(len(data)):
        small.write_bytes(data[:at] + bytes([data[at] ^ rng.randint(1, 255)]) + data[at + 1 :])
        with pytest.raises(FormatError, match=r"altered|truncated|not a sparse matrix|file version"):
            load(small)


def test_every_truncation_is_found(small: Path) -> None:
    data = small.read_bytes()
    for length in range(len(data)):
        small.write_bytes(data[:length])
        with pytest.raises(FormatError, match="truncated" if length else "not a sparse matrix"):
            load(small)
    small.write_bytes(data + b"\0")
    with pytest.raises(FormatError, match="altered"):
        load(small)


def signed(data: bytes) -> bytes:
    """The file with a right checksum: what someone else's program may write."""
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


def test_a_newer_version_and_a_foreign_file(small: Path) -> None:
    data = small.read_bytes()
    small.write_bytes(signed(data[:8] + (3).to_bytes(4, "little") + data[12:]))
    with pytest.raises(FormatError, match="file version 3, this sparsegen reads up to 2") as e:
        load(small)
    assert "update" in str(e.value)
    for other in (data[:8] + bytes(4) + data[12:], data[:-32] + bytes(8 + 32)):  # version 0; more than it says
        small.write_bytes(signed(other))
        with pytest.raises(FormatError, match="altered"):
            load(small)
    np.save(small.with_suffix(".npy"), np.ones(3))
    with pytest.raises(FormatError, match="is not a sparse matrix of sparsegen"):
        load(small.with_suffix(".npy"))
    with pytest.raises(FormatError, match="cannot be read: No such file"):
        load(small.with_name("none"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"bitmap"', b'"bitmop"'),
        (b'"f16"', b'"f32"'),
        (b"[3, 5]", b"[3,-5]"),
        (b"[3, 5]", b"[3,95]"),
        (b"[1, 1, 32]", b"[1, 32, 1]"),
        (b"[1, 1, 32]", b"[1, 9, 32]"),
        (b'"<u8"', b'"<i8"'),
        (b'"<u8"', b'"|O8"'),
        (b'"nnz": ', b'"nnz":9'),
        (b"{", b"["),
    ],
)
def test_a_wrong_header_with_a_right_checksum(small: Path, old: bytes, new: bytes) -> None:
    """A header that was made by someone else is not trusted either."""
    data = small.read_bytes()
    assert len(old) == len(new) and old in data
    small.write_bytes(signed(data.replace(old, new, 1)))
    with pytest.raises(FormatError, match="is no valid sparse matrix"):
        load(small)


def test_wrong_arrays_with_a_right_checksum(small: Path) -> None:
    """An index that would make a kernel read astray."""
    data, index = small.read_bytes(), sparse(weights((3, 5), 0.5)).arrays["index"].tobytes()
    assert data.count(index) == 1
    small.write_bytes(signed(data.replace(index, bytes(4) + b"\1" + index[5:])))
    with pytest.raises(FormatError, match="the index contradicts the masks"):
        load(small)


def test_a_write_that_fails_leaves_the_old_file(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = small.read_bytes()

    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FormatError, match=r"cannot write .*: No space"):
        sparse(weights((50, 50), 0.1)).save(small)
    assert small.read_bytes() == before and os.listdir(small.parent) == [small.name]


@pytest.mark.parametrize(
    ("lane", "bit", "place"), [(0, 0, None), (1, 20, None), (0, 24, [0, 2])], ids=["row 8", "column 5", "inside"]
)
def test_masks_that_keep_what_is_no_element(small: Path, lane: int, bit: int, place: list[int] | None) -> None:
    """A bit of a row or column that the matrix has not: to_dense would leave it out, and a kernel multiply by it."""
    w = sparse(np.array([[1, 0, 0, 0, 0], [0] * 5, [0] * 5], "f2"))
    w.save(small)
    data, masks = small.read_bytes(), w.arrays["masks"].tobytes()
    moved = np.zeros_like(w.arrays["masks"])
    moved[0, 0, lane] = 1 << bit
    assert data.count(masks) == 1
    small.write_bytes(signed(data.replace(masks, moved.tobytes())))
    if place:
        assert np.argwhere(load(small).to_dense()).tolist() == [place]
        return
    with pytest.raises(FormatError, match="hold elements beyond the matrix 3x5"):
        load(small)
