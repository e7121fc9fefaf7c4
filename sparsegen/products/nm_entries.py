"""What is kept of W, packed for products that decode its tiles in shared memory: values, and their places in a row.

A tile is 64 or 128 rows of W, whatever their pattern, and a turn 64 of its columns.  Of a turn each of 128 lanes has a
row of the tile (or every second run of it, where two lanes share a row): ``runs`` of ``run`` adjacent columns, by what
the pattern can keep.  A row that keeps fewer has others too, whose values are zero; no column twice.
"""

from __future__ import annotations

from typing import Any

from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import Nm
from sparsegen.ir.numbers.decode import WARPS, Entries, entries, sharers
from sparsegen.ir.numbers.groups import COPIERS, PIECE, ROWS, STEP
from sparsegen.ir.numbers.nm import groups
from sparsegen.ir.types import u32


def entries_of(w: SparseMatrix, rows: int) -> Entries:
    """What a lane has of a turn of tiles of ``rows`` rows."""
    assert isinstance(w, Nm)
    return entries(w.n, w.m, w.vector[1], rows // ROWS)


def packed_entries(w: SparseMatrix, rows: int) -> Any:
    """Words of each tile, turn by turn, warp by warp: in groups of 4, 2 and 1 words, each of 32 lanes side by side.

    A lane's words are its values, two a word, and then the places of their first elements, a byte each: the column in
    the turn, as the swizzle exchanges the 16-byte pieces of the row.
    """
    lib, e, raw = w.library, entries_of(w, rows), f"int{w.kind.bits}"
    (m, k), many = w.shape, sharers(rows // ROWS)
    steps, tiles = -(-k // STEP), -(-m // rows)
    with lib.active():
        dense = lib.view(w.to_dense(), raw)
        band, pieces = max(1, lib.band // (rows * steps * STEP)), []
        for first in range(0, tiles, band):
            here = min(band, tiles - first)
            some, given = lib.zeros((here * rows, steps * STEP), raw), dense[first * rows : (first + here) * rows]
            some[: given.shape[0], :k] = given
            turns = lib.transpose(some.reshape(here, rows, steps, STEP // e.run, e.run), (0, 2, 1, 3, 4))
            words = _words(lib, lib.packed(turns).reshape(here * steps, rows, STEP // e.run, e.run), e, many)
            pieces.append(lib.cast(words, u32))
        return lib.xp.concatenate(pieces)


def _words(lib: Library, runs: Any, e: Entries, many: int) -> Any:
    """The words of turns, int64, one after another: of the bits of their ``runs`` [turns, rows, runs of a row, run]."""
    turns, rows = runs.shape[:2]
    empty = lib.view((runs == 0).all(-1), "int8")
    order = lib.order(empty)[..., : e.runs * many]  # those that hold anything, ascending, and then others
    order = _spread(lib, order, e, many)
    turn, row = lib.arange(turns).reshape(-1, 1, 1), lib.arange(rows).reshape(1, -1, 1)
    values = lib.wide(lib.packed(runs[turn, row, order])).reshape(turns, COPIERS, e.runs * e.run)
    places = ((order * e.run) ^ (row % 8 * PIECE)).reshape(turns, COPIERS, e.runs)
    words = lib.xp.concatenate((_joined(lib, values, 16), _joined(lib, places, 8)), -1)
    first, sides = 0, []
    for size in groups(e.words):
        sides.append(words[..., first : first + size].reshape(turns, WARPS, 32 * size))
        first += size
    return lib.xp.concatenate(sides, -1).reshape(-1)


def _spread(lib: Library, order: Any, e: Entries, many: int) -> Any:
    """Each row's runs in an order in which the lanes that store at once meet in few banks.

    Row by row, and of a row store by store: of the runs that are left the one whose bank has the fewest stores yet.
    """
    turns, rows = order.shape[:2]
    wide = max(2, e.run)
    banks = STEP // wide  # a pass takes so many lanes, each a bank's width
    high = banks // many
    order = order.reshape(turns * rows // high, high, e.runs * many)
    row = lib.arange(rows).reshape(-1, high, 1) % 8 * PIECE
    bank = ((order * e.run).reshape(turns, rows // high, high, -1) ^ row).reshape(order.shape) // wide
    count = lib.zeros((order.shape[0], e.runs * banks), "int64")
    out, here = lib.zeros(order.shape, "int64"), lib.arange(order.shape[0])
    for r in range(high):
        left = lib.zeros((order.shape[0], e.runs * many), "int64")  # or a number that no count reaches
        for i in range(e.runs * many):
            of = i % e.runs * banks + bank[:, r]
            best = lib.xp.argmin(count[here.reshape(-1, 1), of] + left, -1)
            left[here, best] = STEP
            count[here, of[here, best]] += 1
            out[:, r, i] = order[here, r, best]
    return out.reshape(turns, rows, -1)


def _joined(lib: Library, parts: Any, bits: int) -> Any:
    """Numbers of so many bits along the last axis as words of 32 bits, the first in the lowest bits."""
    each = 32 // bits
    whole = lib.zeros((*parts.shape[:2], -(-parts.shape[2] // each) * each), "int64")
    whole[..., : parts.shape[2]] = parts
    return sum(whole[..., i::each] << bits * i for i in range(each))
