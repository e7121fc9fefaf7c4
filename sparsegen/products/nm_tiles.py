"""Tiles of W for products that gather rows of x: which columns a tile keeps, and its values as warpgroups read them.

A tile is so many rows of W, whatever their pattern: it lists the columns that any of them keeps.  Where all rows of a
tile share their pattern, these are the n of every m.
"""

from __future__ import annotations

from typing import Any

from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import Nm
from sparsegen.ir.numbers.groups import ROWS, STEP
from sparsegen.ir.swizzle import swizzled
from sparsegen.ir.types import u16


def steps_of(w: SparseMatrix, rows: int) -> int:
    """Turns of 64 columns that the tile of ``rows`` rows with the most columns takes."""
    assert isinstance(w, Nm)
    if w.vector[0] % rows == 0:  # a short last window may keep fewer columns, never more
        return -(-w.windows * w.n // STEP)
    return int(w.once(("columns", rows), lambda: int(present(w, rows).sum(-1).max()) + STEP - 1)) // STEP


def present(w: Nm, rows: int) -> Any:
    """Which columns each tile of ``rows`` rows keeps: bool [tiles, columns of whole windows]."""
    lib, (high, wide) = w.library, w.vector
    with lib.active():
        idx = lib.wide(w.arrays["idx"]).reshape(w.groups, w.windows, w.n // wide, 1) * wide + lib.arange(wide)
        at = (idx + (lib.arange(w.windows) * w.m).reshape(1, w.windows, 1, 1)).reshape(w.groups, w.windows * w.n)
        tiles = -(-w.shape[0] // rows)
        found = lib.zeros((tiles, w.windows * w.m), "bool")
        first, last = (lib.arange(w.groups) * high // rows, ((lib.arange(w.groups) + 1) * high - 1) // rows)
        for more in range((high - 1) // rows + 2):
            tile = first + more
            some = (tile <= last) & (tile < tiles)
            found[tile[some].reshape(-1, 1), at[some]] = True
        found[:, w.shape[1] :] = False
        return found


def listed(w: SparseMatrix, rows: int) -> tuple[Any, Any]:
    """The columns of each tile, ascending, int64 [tiles, turns x 64], and how many it has; the last one fills it up."""
    assert isinstance(w, Nm)
    lib, size = w.library, steps_of(w, rows) * STEP
    found = present(w, rows)
    counts = found.sum(-1)
    order = lib.cumsum(found, axis=1) - 1  # of each column that is kept, its place
    out = lib.zeros((found.shape[0], size), "int64")
    tile = lib.fibers(lib.xp.concatenate([lib.zeros((1,), "int64"), lib.cumsum(counts)]), int(counts.sum()))
    columns = lib.columns(found)
    out[tile, lib.pick(order, found)] = columns
    filled = lib.arange(size).reshape(1, size) >= counts.reshape(-1, 1)
    last = out[lib.arange(out.shape[0]), (counts - 1) * (counts > 0)].reshape(-1, 1)
    return out + filled * (last - out), counts


def row_lists(w: SparseMatrix, rows: int) -> Any:
    """The rows of x that each tile names, 16 bits each, turn by turn."""
    with w.library.active():
        return w.library.cast(listed(w, rows)[0].reshape(-1), u16)


def tile_images(w: SparseMatrix, rows: int) -> Any:
    """The values of each tile, turn by turn, 64 rows x 64 columns at a time, swizzled; zeros where a row has none."""
    assert isinstance(w, Nm)
    lib, raw = w.library, f"int{w.kind.bits}"
    with lib.active():
        columns, counts = listed(w, rows)
        tiles, size = columns.shape
        dense = lib.zeros((tiles * rows, w.shape[1]), raw)
        dense[: w.shape[0]] = lib.view(w.to_dense(), raw)
        dense = dense.reshape(tiles, rows, w.shape[1])
        there = (lib.arange(size).reshape(1, size) < counts.reshape(-1, 1)).reshape(tiles, 1, size)
        place = lib.constant(swizzled(ROWS, 2 * STEP, 2 * STEP).inverse_table().reshape(-1))
        step, pieces = max(1, lib.band // (rows * size)), []
        for at in range(0, tiles, step):
            some = slice(at, min(at + step, tiles))
            here = some.stop - some.start
            tile, row = lib.arange(here).reshape(-1, 1, 1), lib.arange(rows).reshape(1, -1, 1)
            values = dense[some][tile, row, columns[some].reshape(here, 1, size)]
            values = values * lib.view(there[some], "int8")
            cut = values.reshape(here, rows // ROWS, ROWS, size // STEP, STEP)
            cut = lib.packed(lib.transpose(cut, (0, 3, 1, 2, 4))).reshape(-1, ROWS * STEP)
            pieces.append(cut[:, place].reshape(-1))
        return lib.view(lib.xp.concatenate(pieces), w.kind)
