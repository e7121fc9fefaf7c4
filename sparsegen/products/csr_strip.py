"""What the family ``csr_strip`` makes of a matrix: rows of whole turns, where in a strip of x each entry's row lies,
and which rows each team of lanes has.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.kernels.csr import ALIGN
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.resident import PIECE, cut_rows, padded_rows
from sparsegen.ir.tile_tasks import RECORD
from sparsegen.ir.types import DTYPES, s32
from sparsegen.products.ragged import Ragged
from sparsegen.products.tasks import (
    Loads,
    Pieces,
    Records,
    deal,
    deal_lists,
    loads_of,
    pieces_of_lists,
    slots_of,
)

#: Rows of a team up to which who has a long one can have fewer.
FEW: Final = 16
#: Turns that a row takes besides its own: its sums, the store.
OF_ROW: Final = 1.2
#: Turns of a piece at least, and by how many a row must be longer than a piece: to meet and add up takes as long.
LEAST, WORTH = 2, 2


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


class Cut(NamedTuple):
    """Rows of more than ``most`` turns are cut into pieces of at most so many; a list has ``slots`` pieces at most."""

    most: int
    slots: int


def cut_of(loads: Loads, lists: int, teams: int) -> Cut | None:
    """How rows are cut, of which ``loads`` says how many have so many turns; None if none is worth it.

    A team with a row longer than what it has in the mean makes all others wait: such a row is cut so that its pieces
    even out.  Below that dealing does as well, and each piece takes the time of a row.
    """
    even = math.ceil(sum(turns * rows for turns, rows in loads) / (lists * teams))
    most = max(even, LEAST)
    return Cut(most, slots_of(loads, most, lists)) if loads[-1][0] > most + WORTH else None


def dealt(w: SparseMatrix, unroll: int, groups: int, lists: int, teams: int) -> tuple[Records, Records]:
    """Records [lists, length, teams, 4] of the rows of ``teams`` teams of ``lists`` blocks, each team's longest first,
    and those of the rows that are cut, [lists, rows, 4]; worked out once.

    Of pieces the row is one more than M and their slot; a row that is cut has its first slot and the one after its last
    in place of entries.  Records of row M only fill up, and the last word is 0.
    """

    def made() -> tuple[Records, Records]:
        first, unit = starts(w, unroll), unroll * groups
        begin, end = first[:-1], first[1:]
        turns = -(-(end - begin) // unit)
        cut = cut_of(loads_of(turns), lists, teams) if len(turns) else None
        if cut is None:
            more = spare(float(turns.max(initial=0)), float(turns.sum()), len(turns), lists * teams)
            words = np.zeros(len(turns), np.int64)
            rows = deal(begin, end, words, lists, teams, spare=more, of_row=OF_ROW * unit)
            return rows, np.zeros((lists, 0, RECORD), np.int32)
        found = pieces_of_lists(np.zeros_like(turns), turns, cut.most, lists, cut.slots, OF_ROW)
        number, each, *_ = found.cuts.T
        piece = np.arange(len(found.row)) - np.repeat(np.cumsum(each) - each, each)
        place = np.where(each[found.row] > 1, number[found.row] + piece + 1, 0)  # 0 of a row that is not cut
        return _records(found, begin, end, unit, place, lists, teams), _cuts(found, lists, cut_rows(cut.slots, teams))

    return w.once(("strip rows", unroll, groups, lists, teams), made)


def _records(
    found: Pieces, begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64], unit: int, place: npt.NDArray[np.int64],
    lists: int, teams: int,
) -> Records:  # fmt: skip
    """The records of rows and pieces, whose turns of ``unit`` entries become entries."""
    made = deal_lists(found, place, lists, teams, OF_ROW)
    row = made[..., 0]
    there = row < len(begin)
    own = np.where(there, row, 0)
    last = np.minimum(begin[own] + made[..., 2] * np.int64(unit), end[own])
    made[..., 1] = np.where(there, begin[own] + made[..., 1] * np.int64(unit), 0)
    made[..., 2] = np.where(there, last, 0)
    made[..., 0] = np.where(made[..., 3] > 0, len(begin) + made[..., 3], row)
    made[..., 3] = 0
    return made


def _cuts(found: Pieces, lists: int, rows: int) -> Records:
    """The records of the rows that are cut, list by list."""
    assert found.list is not None
    first, each, *_ = found.cuts.T
    row = np.flatnonzero(each > 1)
    of = found.list[np.searchsorted(found.row, row)]
    order = np.argsort(of, kind="stable")
    row, of = row[order], of[order]
    made = np.zeros((lists, rows, RECORD), np.int32)
    made[..., 0] = len(each)
    at = np.arange(len(row)) - np.searchsorted(of, of)
    made[of, at, :3] = np.stack([row, first[row], first[row] + each[row]], axis=1)
    return made


def records(w: SparseMatrix, unroll: int, groups: int, lists: int, teams: int) -> Records:
    """The records of rows, and of pieces."""
    return dealt(w, unroll, groups, lists, teams)[0]


def cuts(w: SparseMatrix, unroll: int, groups: int, lists: int, teams: int) -> Records:
    """The records of the rows that are cut."""
    return dealt(w, unroll, groups, lists, teams)[1]


def _spread(w: SparseMatrix, array: Any, unroll: int, rest: int) -> Any:
    """An element of each entry, and ``rest`` where rows are filled up; no less than a load takes."""
    lib = w.library
    ptr, first = np.asarray(lib.to_host(w.arrays["ptr"], s32), dtype=np.int64), starts(w, unroll)
    to = np.arange(ptr[-1]) + np.repeat(first[:-1] - ptr[:-1], np.diff(ptr))
    made = lib.zeros((max(int(first[-1]), ALIGN),), str(array.dtype).rpartition(".")[2]) + rest
    made[lib.constant(to)] = array
    return made
