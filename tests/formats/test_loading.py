"""Files of public collections: what is read, and which line or entry of a wrong one is named."""

from __future__ import annotations

import bz2
import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.ir.errors import FormatError
from tests.refusals import refusal

sp = pytest.importorskip("scipy.sparse")
pytest.importorskip("scipy.io")

SMTX = "3, 4, 5\n0 2 2 5\n3 0 1 2 3\n"
MTX = "%%MatrixMarket matrix coordinate real general\n% a comment\n3 4 3\n1 4 2.5\n3 1 -1\n2 2 0\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "w"
    path.write_text(text)
    return path


# ---------------------------------------------------------------------------------------------------------------- smtx
def test_a_pattern_is_read(tmp_path: Path) -> None:
    a = sg.load_smtx(written(tmp_path, SMTX))
    assert isinstance(a, sp.csr_array) and a.dtype == np.float32 and a.has_sorted_indices
    assert a.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]]
    assert np.array_equal(sg.sparse(a, "csr").to_dense(), a.toarray())


@given(mask=st.tuples(st.integers(1, 9), st.integers(1, 9), st.randoms(use_true_random=False)))
def test_any_pattern_is_read(mask: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    rows, cols, draw = mask
    w = np.array([[draw.random() < 0.4 for _ in range(cols)] for _ in range(rows)])
    row, col = w.nonzero()
    lines = (
        f"{rows}, {cols}, {len(row)}",
        *(" ".join(map(str, n)) for n in (np.searchsorted(row, range(rows + 1)), col)),
    )
    path = written(tmp_path_factory.mktemp("smtx"), "\n".join(lines) + "\n")
    assert np.array_equal(sg.load_smtx(path).toarray() != 0, w)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cut off: it has 0 lines"),
        ("3, 4, 5\n0 2 2 5\n", "cut off: it has 2 lines"),
        ("3, 4\n0 2 2 5\n3 0 1 2 3\n", "line 1: '3, 4' is not rows, columns, entries"),
        ("3, -4, 5\n0 2 2 5\n3 0 1 2 3\n", "line 1: '3, -4, 5'"),
        ("3, 4, x5\n0 2 2 5\n3 0 1 2 3\n", "line 1: word 2 is 'x5'"),
        ("3, 4, 5\n0 2 2 5\n3 0 1.5 2 3\n", "line 3: word 2 is '1.5'"),
        ("3, 4, 5\n0 2 2 5\n3 0 99999999999999999999 2 3\n", "line 3: word 2 is '99999999999999999999'"),
        ("3, 4, 5\n0 2 2 5\n3 0 1 2\n", "line 3 has 4 numbers, not 5: is it cut off?"),
        ("3, 4, 5\n0 2 2\n3 0 1 2 3\n", "line 2 has 3 numbers, not 4"),
        ("3, 4, 5\n0 3 2 5\n3 0 1 2 3\n", "row 1 begins at 3, the next one at 2"),
        ("3, 4, 5\n0 2 2 4\n3 0 1 2 3\n", "it runs from 0 to 4"),
        ("3, 4, 5\n0 2 2 5\n3 0 1 4 3\n", "entry 3 (row 2) has column 4, there are 4"),
        ("3, 4, 5\n0 2 2 5\n3 0 1 -1 3\n", "entry 3 (row 2) has column -1"),
        ("3, 4, 5\n0 2 2 5\n3 0 1 3 1\n", "entry 4 has row 2, column 1, as an earlier one has"),
        ("3, 4294967296, 5\n0 2 2 5\n3 0 1 2 3\n", "4294967296 columns"),
        ("3, 4, 5\n0 2 2 5\n3 0 1 \0 3\n", "line 3: word 3"),
    ],
)
def test_a_wrong_pattern_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    refusal(__file__, FormatError, lambda: sg.load_smtx(path), str(path), says)  # here


# ----------------------------------------------------------------------------------------------------------------- mtx
def test_a_market_file_is_read(tmp_path: Path) -> None:
    a = sg.load_mtx(written(tmp_path, MTX))
    assert isinstance(a, sp.csr_array) and a.dtype == np.float32 and a.nnz == 3  # the explicit zero stays
    assert a.toarray().tolist() == [[0, 0, 0, 2.5], [0, 0, 0, 0], [-1, 0, 0, 0]]
    assert sg.load_mtx(tmp_path / "w", np.float64).dtype == np.float64
    for field, value, one in (("pattern", "", 1), ("integer", " 7", 7)):
        text = f"%%MatrixMarket matrix coordinate {field} symmetric\n3 3 2\n2 1{value}\n3 3{value}\n"
        assert sg.load_mtx(written(tmp_path, text)).toarray().tolist() == [[0, one, 0], [one, 0, 0], [0, 0, one]]
    dense = "%%MatrixMarket matrix array real general\n2 2\n1\n0\n3\nnan\n"
    assert np.array_equal(sg.load_mtx(written(tmp_path, dense)).toarray(), [[1, 3], [0, np.nan]], equal_nan=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello\n", "is no Matrix Market file"),
        (MTX.replace("3 1 -1", "4 1 -1"), "Line 5"),
        (MTX.replace("3 1 -1", "3 1 one"), "Line 5"),
        (MTX.replace("3 1 -1", "3 x -1"), "Line 5"),
        (MTX.replace("2 2 0\n", ""), "Truncated file"),
        (MTX.replace("2 2 0", "1 4 0"), "two entries for row 1, column 4"),
        (MTX.replace("2.5", "1e39"), "row 1, column 4 is 1e+39, which float32 does not hold"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n", "complex values"),
        (MTX.replace("3 4 3", "3 4294967296 3"), "4294967296 columns"),
    ],
)
def test_a_wrong_market_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    refusal(__file__, FormatError, lambda: sg.load_mtx(path), str(path), says)  # here


def test_duplicates_on_request(tmp_path: Path) -> None:
    path = written(tmp_path, MTX.replace("3 4 3", "3 4 4") + "1 4 0.5\n")
    assert sg.load_mtx(path, duplicates="sum").toarray()[0].tolist() == [0, 0, 0, 3]
    kept = sg.load_mtx(path, duplicates="first")
    assert kept.toarray()[0].tolist() == [0, 0, 0, 2.5] and kept.nnz == 3
    refusal(__file__, FormatError, lambda: sg.load_mtx(path), "row 1, column 4")  # here
    refusal(__file__, FormatError, lambda: sg.load_mtx(path, duplicates="last"), "unknown duplicates 'last'")  # here


def test_other_files_and_dtypes(tmp_path: Path) -> None:
    path = written(tmp_path, MTX)
    for load in (sg.load_smtx, sg.load_mtx):
        refusal(__file__, FormatError, lambda load=load: load(tmp_path / "none"), "cannot be read")  # here
        refusal(__file__, FormatError, lambda load=load: load(3), "names no file")  # here
    refusal(__file__, FormatError, lambda: sg.load_mtx(path, "words"), "no dtype of real numbers")  # here
    refusal(__file__, FormatError, lambda: sg.load_mtx(path, np.int32), "2.5, which int32 does not hold")  # here


# --------------------------------------------------------------------------------------------------------- cut anywhere
def cuts(folder: Path, text: str, read: Any, suffix: str = "", pack: Any = bytes) -> dict[int, Any]:
    """What becomes of a file that is cut after so many characters: a matrix, or what is said."""
    found = {}
    for at in range(len(text)):
        path = folder / f"w{suffix}"
        path.write_bytes(pack(text[:at].encode()))
        try:
            found[at] = read(path)
        except FormatError as e:
            assert e.hint and str(path) in e.message
            found[at] = e.message
    return found


def test_patterns_that_are_cut_off(tmp_path: Path) -> None:
    found = cuts(tmp_path, SMTX, sg.load_smtx)
    assert [at for at, each in found.items() if not isinstance(each, str)] == [len(SMTX) - 1]  # but for the last end


@pytest.mark.parametrize("head", ["real general", "real symmetric", "integer general", "pattern general"])
@pytest.mark.parametrize("packed", ["", ".gz", ".bz2"])
def test_matrices_that_are_cut_off(head: str, packed: str, tmp_path: Path) -> None:
    """SciPy's reader itself crashes on some of them, with all of Python: where a number ends in "e", or a space."""
    value = {"real": " 2.5e-01", "integer": " 25"}.get(head.split()[0], "")
    text = f"%%MatrixMarket matrix coordinate {head}\n% a comment\n3 3 2\n2 1{value}\n3 2{value} \n"
    pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(packed, bytes)
    found = cuts(tmp_path, text, sg.load_mtx, packed, pack)
    for at, each in found.items():
        *before, last = text[:at].split("\n")
        words = [word for word in last.split() if re.fullmatch(r"\d+(\.\d*)?(e-\d+)?", word)]
        if len(before) == 4 and words == last.split() and len(words) == (3 if value else 2):
            assert each.nnz == (4 if "symmetric" in head else 2)
        else:
            assert isinstance(each, str)
            assert ("line 5" in each) == (words != last.split()) or len(before) < 4


def test_files_whose_last_line_has_no_end(tmp_path: Path) -> None:
    for end in ("", " ", "  \t"):
        assert sg.load_mtx(written(tmp_path, MTX.rstrip() + end)).toarray()[2, 0] == -1
    for end in ("e", "e-", "x", " x", "E+"):
        path = written(tmp_path, MTX.rstrip() + end)
        refusal(__file__, FormatError, lambda p=path: sg.load_mtx(p), "line 6", "is it cut off?")  # here
    path = tmp_path / "w.mtx.gz"
    path.write_bytes(gzip.compress(MTX.encode())[:-9])
    refusal(__file__, FormatError, lambda: sg.load_mtx(path), "w.mtx.gz")  # here
