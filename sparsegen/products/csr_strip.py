"""What the family ``csr_strip`` makes of a matrix: rows of whole turns, where in a strip of x each entry's row lies,
and which rows each team of lanes has.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.kernels.csr import ALIGN
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.resident import PIECE, padded_rows
from sparsegen.ir.types import DTYPES, s32
from sparsegen.products.ragged import Ragged
from sparsegen.products.tasks import Records, deal

#: Rows of a team up to which who has a long one can have fewer.
FEW: Final = 16
#: Turns that a row takes besides its own: its sums, the store.
OF_ROW: Final = 1.2


def filled(p: Ragged, unroll: int) -> int:
    """Entries of all rows, each filled up to a multiple of ``unroll``."""
    return sum(up(length, unroll) * rows for length, rows in p.lengths)


def starts(w: SparseMatrix, unroll: int) -> npt.NDArray[np.int64]:
    """The first entry of each row that is filled up, and the one after the last row's, on the host."""
    lengths = np.diff(np.asarray(w.library.to_host(w.arrays["ptr"], s32), dtype=np.int64))
    return np.concatenate([[0], np.cumsum(-(-lengths // unroll) * unroll)])


def places(w: SparseMatrix, wide: int, unroll: int) -> Any:
    """Where in a strip, with rows of ``wide`` bytes, each entry's row of x begins: in pieces of 16 bytes.

    What fills up has the row of zeros behind the strip: there no NaN or Inf of x is.
    """
    across = wide // PIECE
    with w.library.active():
        found = w.library.cast(w.arrays["idx"], s32) * across
        return _spread(w, found, unroll, padded_rows(w.shape[1]) * across)


def values(w: SparseMatrix, unroll: int) -> Any:
    """The entries' values, and zeros that fill up."""
    kind = DTYPES[w.dtype]
    with w.library.active():
        bits = w.library.view(w.arrays["values"], f"int{kind.bits}")
        return w.library.view(_spread(w, bits, unroll, 0), kind)


def spare(longest: float, turns: float, rows: int, slots: int) -> int:
    """Records that each of ``slots`` teams has beyond the mean: one where some row's turns are more than half of a
    team's, so that who has it can have fewer rows; none where teams have so many rows that these even out."""
    return 1 * (2 * longest * slots > turns and rows <= FEW * slots)


def records(w: SparseMatrix, unroll: int, groups: int, lists: int, teams: int) -> Records:
    """Records [lists, length, teams, 4] of the rows of ``teams`` teams of ``lists`` blocks, each team's longest first;
    the last word is 0.  Those of row M only fill up."""
    first = starts(w, unroll)
    turns = -(-np.diff(first) // (unroll * groups))
    more = spare(float(turns.max(initial=0)), float(turns.sum()), len(turns), lists * teams)
    words = np.zeros(len(turns), np.int64)
    return deal(first[:-1], first[1:], words, lists, teams, spare=more, of_row=OF_ROW * unroll * groups)


def _spread(w: SparseMatrix, array: Any, unroll: int, rest: int) -> Any:
    """An element of each entry, and ``rest`` where rows are filled up; no less than a load takes."""
    lib = w.library
    ptr, first = np.asarray(lib.to_host(w.arrays["ptr"], s32), dtype=np.int64), starts(w, unroll)
    to = np.arange(ptr[-1]) + np.repeat(first[:-1] - ptr[:-1], np.diff(ptr))
    made = lib.zeros((max(int(first[-1]), ALIGN),), str(array.dtype).rpartition(".")[2]) + rest
    made[lib.constant(to)] = array
    return made
