"""Strips of W for products whose warps share a tile of x: values in mma fragments, and where their rows of x lie.

A tile is ``rows`` rows of W, cut into strips.  A turn of a tile is some whole windows; the rows of x that any of its
strips keeps there get places in a tile of shared memory.  Eight of them are read at a time, and those in rows that are
equal mod 8 lie in the same banks, so each column is given the bank in which its strips have the fewest others; then the
columns of a strip are taken in an order in which eight that follow one another lie in different banks, if they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import Nm
from sparsegen.ir.numbers.strips import BANKS, DEPTH, KEPT, STRIPS, TILES, Turn, turn_of, windows_of
from sparsegen.ir.types import s64, u16, u32
from sparsegen.products.nm_tiles import present

#: Vectors of a tile whose columns are counted.
MANY: Final = 16


class Strips(NamedTuple):
    """How W is cut: rows of a strip, strips of a tile, columns that a strip keeps in a turn, or fewer."""

    strip: int
    down: int
    kept: int

    def turn(self, w: Nm) -> Turn:
        """The turn of a matrix."""
        return turn_of((w.n, w.m, *w.vector), *self, unions(w))


class _Tiles(NamedTuple):
    """Some tiles from number ``first`` on: which ``columns`` of each turn a strip keeps, bool [tiles, turns, strips,
    columns], and where in shared memory each column's row of x lies, [tiles, turns, columns]: of those kept by any."""

    first: int
    kept: Any
    place: Any


def strip_values(w: SparseMatrix, cut: Strips) -> Any:
    """Words of the values: of each tile, turn, strip, 16 columns and 16 rows of it, four of each lane of an mma."""
    assert isinstance(w, Nm)
    lib, raw, turn, made = w.library, f"int{w.kind.bits}", cut.turn(w), []
    deep, high = turn.depth // DEPTH, cut.strip // DEPTH
    with lib.active():
        bits = lib.view(w.to_dense(), raw)
        for some in _tiles(w, cut):
            tiles, turns, strips, columns = some.kept.shape
            dense = lib.zeros((tiles * strips * cut.strip, turns * columns), raw)
            rows = bits[some.first * strips * cut.strip :][: dense.shape[0]]
            dense[: rows.shape[0], : rows.shape[1]] = rows
            dense = lib.transpose(dense.reshape(tiles, strips, cut.strip, turns, columns), (0, 3, 1, 4, 2))
            order, there = _order(lib, some, turn.depth)
            tile, number, strip = (
                lib.arange(n).reshape(*(n if i == axis else 1 for i in range(4)))
                for axis, n in enumerate((tiles, turns, strips))
            )
            values = dense[tile, number, strip, order] * lib.view(there, "int8").reshape(*there.shape, 1)
            # k of a fragment is (half, lane mod 4, which of two), a row (half, lane div 4): halves make registers
            values = values.reshape(tiles, turns, strips, deep, 2, 4, 2, high, 2, 8)
            made.append(lib.packed(lib.transpose(values, (0, 1, 2, 3, 7, 9, 5, 4, 8, 6))).reshape(-1))
        return lib.view(lib.xp.concatenate(made), u32)


def strip_places(w: SparseMatrix, cut: Strips) -> Any:
    """Of each tile, turn and strip, where the rows of x of its columns lie, 16 bits each."""
    assert isinstance(w, Nm)
    lib, depth, made = w.library, cut.turn(w).depth, []
    with lib.active():
        for some in _tiles(w, cut):
            order, _ = _order(lib, some, depth)
            tiles, turns = some.place.shape[:2]
            tile, number = lib.arange(tiles).reshape(-1, 1, 1, 1), lib.arange(turns).reshape(1, -1, 1, 1)
            made.append(lib.cast(some.place[tile, number, order].reshape(-1), u16))
        return lib.xp.concatenate(made)


def window_rows(w: SparseMatrix, cut: Strips) -> Any:
    """Of each tile and turn, which row of x lies in each place, 16 bits each; where no strip has one, any."""
    assert isinstance(w, Nm)
    lib, room, made = w.library, cut.turn(w).rows, []
    with lib.active():
        for some in _tiles(w, cut):
            tiles, turns, columns = some.place.shape
            any_strip = some.kept.sum(2) > 0
            begin = lib.arange(tiles * turns).reshape(tiles, turns, 1) * room
            column = lib.zeros(any_strip.shape, "int64") + lib.arange(turns * columns).reshape(1, turns, columns)
            first = lib.order(lib.cast(~any_strip, s64))[..., :1] + lib.arange(turns).reshape(1, turns, 1) * columns
            rows = (first + lib.zeros((tiles, turns, room), "int64")).reshape(-1)
            rows[lib.pick(begin + some.place, any_strip)] = lib.pick(column, any_strip)
            made.append(lib.cast(rows, u16))
        return lib.xp.concatenate(made)


def unions(w: Nm) -> dict[tuple[int, int], int]:
    """The most columns that tiles of so many rows keep in turns of so many windows, for the cuts that are tried.

    Not of tiles of many vectors, which keep nearly all columns of a window between them.
    """

    def count() -> dict[tuple[int, int], int]:
        found, pattern = {}, (w.n, w.m, *w.vector)
        windows = {windows_of(pattern, strip, kept) for strip in STRIPS for kept in KEPT}
        for rows in (rows for rows in TILES if w.vector[0] % rows and rows <= MANY * w.vector[0]):
            each = present(w, rows)
            for number in windows:
                turns = -(-w.windows // number)
                some = w.library.zeros((each.shape[0], turns * number * w.m), "bool")
                some[:, : each.shape[1]] = each
                found[rows, number] = max(1, int(some.reshape(-1, number * w.m).sum(-1).max()))
        return found

    with w.library.active():
        return w.once("nm_strips unions", count)


def _tiles(w: Nm, cut: Strips) -> Iterator[_Tiles]:
    """All tiles, some at a time."""
    lib, turn = w.library, cut.turn(w)
    columns, turns = turn.windows * w.m, -(-w.windows // turn.windows)
    each = present(w, cut.strip)
    count = -(-w.shape[0] // (cut.strip * cut.down))
    step = max(1, lib.band // (cut.strip * cut.down * turns * columns))
    for first in range(0, count, step):
        tiles = min(step, count - first)
        kept = lib.zeros((tiles * cut.down, turns * columns), "bool")
        some = each[first * cut.down :][: kept.shape[0]]
        kept[: some.shape[0], : some.shape[1]] = some
        kept = lib.packed(lib.transpose(kept.reshape(tiles, cut.down, turns, columns), (0, 2, 1, 3)))
        yield _Tiles(first, kept, _placed(lib, kept, turn.rows // BANKS))


def _placed(lib: Library, kept: Any, room: int) -> Any:
    """Where each column's row of x lies: of the banks that have ``room``, in the one where its strips have fewest."""
    tiles, turns, strips, columns = kept.shape
    place = lib.zeros((tiles, turns, columns), "int64")
    met = lib.zeros((tiles, turns, strips, BANKS), "int64")  # columns of a strip in each bank
    used = lib.zeros((tiles, turns, BANKS), "int64")
    heavy = 4 * columns  # more than ``used`` can be
    for column in range(columns):
        own = lib.cast(kept[..., column], s64).reshape(tiles, turns, strips, 1)
        cost = (met * met * own).sum(2) * heavy + used + (used >= room) * (heavy * heavy * columns * strips)
        bank = lib.order(cost)[..., :1]
        here = (lib.arange(BANKS).reshape(1, 1, BANKS) == bank) & (own.sum(2) > 0)
        place[..., column] = ((bank + used * BANKS) * here).sum(-1)
        used += lib.cast(here, s64)
        met += here.reshape(tiles, turns, 1, BANKS) * own
    return place


def _order(lib: Library, some: _Tiles, depth: int) -> tuple[Any, Any]:
    """The columns of each strip as they are multiplied, [tiles, turns, strips, depth], and which are its own.

    The first of each bank, then the second, and so on; what fills it up is the last one again, or of a strip that
    keeps nothing a column of another.
    """
    tiles, turns, strips, columns = some.kept.shape
    bank = (some.place % BANKS).reshape(tiles, turns, 1, columns)
    key = lib.zeros((tiles, turns, strips, max(columns, depth)), "int64") + BANKS * columns
    inner = key[..., :columns]
    for b in range(BANKS):
        here = some.kept & (bank == b)
        inner += here * ((lib.cumsum(here, axis=-1) - 1) * BANKS + b - BANKS * columns)
    order, counts = lib.order(key)[..., :depth], some.kept.sum(-1).reshape(tiles, turns, strips, 1)
    there = lib.arange(depth).reshape(1, 1, 1, depth) < counts
    least = lib.order(key.reshape(tiles, turns, -1))[..., :1] % key.shape[-1]  # a column that some strip keeps
    tile, turn, strip = (
        lib.arange(n).reshape(*(n if i == axis else 1 for i in range(4)))
        for axis, n in enumerate((tiles, turns, strips))
    )
    last = order[tile, turn, strip, (counts - 1) * (counts > 0)]
    last = last + (least.reshape(tiles, turns, 1, 1) - last) * (counts == 0)
    return order * there + last * (lib.arange(depth).reshape(1, 1, 1, depth) >= counts), there
