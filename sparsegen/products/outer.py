"""Tiles of W for outer products on CUDA cores: values as a block reads them turn by turn, the rows of x they name."""

from __future__ import annotations

from typing import Any

from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import Nm
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.outer import PIECE, share_of, turns_of, windows_of
from sparsegen.ir.types import s32


def _turns(w: Nm, deep: int) -> tuple[int, int]:
    """Windows of a turn, and turns."""
    windows = windows_of(w.m, deep)
    return windows, turns_of(w.shape[1], w.m, windows)


def packed_lists(w: SparseMatrix, rows: int, deep: int) -> Any:
    """The row of x, in the turn's window, of each entry: int32 [tiles, turns, rows / share, entries up to a piece].

    Entries of columns beyond W, and those that fill up, name the turn's first one, which the rows store.
    """
    assert isinstance(w, Nm)
    lib, (high, wide), (windows, turns) = w.library, w.vector, _turns(w, deep)
    share, entries = share_of(high), windows * w.n
    tiles, each = -(-w.shape[0] // rows), rows // share
    with lib.active():
        at = lib.wide(w.arrays["idx"]).reshape(w.groups, w.windows, w.n // wide, 1) * wide + lib.arange(wide)
        at = at.reshape(w.groups, w.windows, w.n) + (lib.arange(w.windows) % windows * w.m).reshape(1, -1, 1)
        out = lib.zeros((w.groups, turns * windows, w.n), "int64") - 1
        out[:, : w.windows] = at
        last = out.reshape(w.groups, turns, entries)[:, -1]
        last[last >= w.shape[1] - (turns - 1) * windows * w.m] = -1
        lists = lib.zeros((w.groups, turns, up(entries, PIECE)), "int64") - 1
        lists[..., :entries] = out.reshape(w.groups, turns, entries)
        lists = lists + (lists < 0) * (lists[..., :1] - lists)
        group = lib.arange(tiles * each) // (high // share)
        lists = lists[group * (group < w.groups)].reshape(tiles, each, turns, -1)
        return lib.cast(lib.packed(lib.transpose(lists, (0, 2, 1, 3))).reshape(-1), s32)


def packed_entries(w: SparseMatrix, rows: int, deep: int) -> Any:
    """The values, entry by entry, each of all rows of a tile: [tiles, turns, entries, rows]; zeros where there are
    none."""
    assert isinstance(w, Nm)
    lib, (high, wide), (windows, turns) = w.library, w.vector, _turns(w, deep)
    tiles, entries, raw = -(-w.shape[0] // rows), windows * w.n, f"int{w.kind.bits}"
    with lib.active():
        values = lib.view(w.arrays["values"], raw).reshape(w.groups, w.windows * (w.n // wide), high, wide)
        values = lib.packed(lib.transpose(values, (1, 3, 0, 2))).reshape(w.windows * w.n, w.groups * high)
        whole, here = lib.zeros((turns * entries, tiles * rows), raw), min(tiles * rows, w.groups * high)
        whole[: w.windows * w.n, :here] = values[:, :here]
        cut = lib.transpose(whole.reshape(turns, entries, tiles, rows), (2, 0, 1, 3))
        return lib.view(lib.packed(cut).reshape(-1), w.kind)
