"""Cells that the threads of a block have, and their way to global memory.

An address is a row's plus a column's.  Where a row begins matters only up to whole sectors, so rows of all tiles that
look the same to a warp are merged; each look of rows then meets each look of columns once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.requests import SECTOR, Mask
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import ONE_CELL, Ints, Kinds, Range, kinds, unit

#: Flags of a cell: the launch stores it; no frozen border keeps its value.
STORED, FREE = 1, 2


@dataclass(frozen=True)
class Warps:
    """Warps of a block whose lanes stand in the same columns; ``row``: [warps, 32] or, of one row each, [warps, 1]."""

    row: Ints
    col: Ints  #: [32]
    on: Mask  #: [32]: the block has a thread there

    @classmethod
    def of(cls, rows: int, cols: int) -> tuple[Warps, ...]:
        """All warps of a block of ``rows`` x ``cols`` threads, numbered along the rows."""
        tid = np.arange(-(-rows * cols // 32) * 32).reshape(-1, 32)
        row, col, on = tid // cols, tid % cols, tid < rows * cols
        _, which = np.unique(np.concatenate([col, on], axis=1), axis=0, return_inverse=True)
        out: list[Warps] = []
        for group in range(int(which.max()) + 1):
            mine = np.flatnonzero(which.reshape(-1) == group)
            single = cols % 32 == 0
            out.append(cls(row[mine, :1] if single else row[mine], col[mine[0]], on[mine[0]]))
        return tuple(out)


@dataclass(frozen=True)
class Places:
    """Where the lanes of warps are on one axis [warps, lanes], and how often each occurs.

    ``lanes`` is 1 where all are at one place.  ``flags`` (bits) are true of a cell that has them on every axis.
    """

    at: Ints
    flags: Any
    times: Ints


@dataclass(frozen=True)
class Lines:
    """Looks of warps' rows: where their lanes' rows begin [looks, lanes], their flags, and how often it occurs."""

    at: Ints
    flags: Ints
    times: Ints

    @classmethod
    def of(cls, places: Sequence[Places], shape: tuple[int, ...], itemsize: int) -> Lines:
        """The different rows of a packed field of ``shape``, of places on all its axes but the last; flags 0 to 3."""
        at: Ints = np.zeros((1, 1), dtype=np.int64)
        flags: Any = np.full((1, 1), 3)
        times: Ints = np.ones(1, dtype=np.int64)
        for place, n in zip(places, shape, strict=False):
            at = (at[:, None] * n + place.at).reshape(-1, place.at.shape[1])
            flags = (flags[:, None] & place.flags).reshape(at.shape)
            times = np.outer(times, place.times).reshape(-1)
        at, whole = at * shape[-1], SECTOR // itemsize
        code = (at - at.min(axis=1, keepdims=True) // whole * whole) * 4 + flags
        if code.shape[1] == 1:  # many times faster than by whole rows
            looks, which = np.unique(code[:, 0], return_inverse=True)
            looks = looks[:, None]
        else:
            looks, which = np.unique(code, axis=0, return_inverse=True)
        found = np.zeros(len(looks), dtype=np.int64)
        np.add.at(found, which.reshape(-1), times)
        return cls(looks // 4, looks % 4, found)

    def meet(self, x: Kinds, col: Ints) -> tuple[Ints, Ints]:
        """Elements of requests in these rows and columns [kinds of x, 32], as [requests, 32], and how often each is."""
        return (self.at[:, None] + col).reshape(-1, 32), np.outer(self.times, x.times).reshape(-1)


@dataclass(frozen=True)
class Grid:
    """Tiles of ``size`` that cover a packed field: their kinds on each axis."""

    f: Fused
    size: tuple[int, ...]
    axes: tuple[Kinds, ...]

    @classmethod
    def of(cls, f: Fused, size: tuple[int, ...], plain: Sequence[Range]) -> Grid:
        """``plain``: cells of each axis whose tiles read nothing outside the field."""
        axes: list[Kinds] = []
        for axis, n in enumerate(f.shape):
            (low, high), box, (before, after) = plain[axis], f.box[axis], f.keep[axis]
            inside = max(low, before, box[0]), min(high, n - after, box[1])
            stride = prod(f.shape[axis + 1 :])
            axes.append(kinds((0, n), size[axis], inside, unit(stride, f.dtype.nbytes)))
        return cls(f, size, tuple(axes))

    @property
    def tiles(self) -> int:
        """All tiles."""
        return prod(int(axis.times.sum()) for axis in self.axes)

    @property
    def border(self) -> int:
        """Tiles with cells that a frozen border keeps."""
        inside = 1
        for k, n, m, (low, high) in zip(self.axes, self.f.shape, self.size, self.f.keep, strict=True):
            away = ((k.first >= low) | (low == 0)) & ((k.first + m <= n - high) | (high == 0))
            inside *= int(k.times[away].sum())
        return self.tiles - inside

    def flags(self, axis: int, i: Ints) -> Any:
        """STORED and FREE of cells."""
        (low, high), (before, after), n = self.f.box[axis], self.f.keep[axis], self.f.shape[axis]
        return STORED * ((i >= low) & (i < high)) + FREE * ((i >= before) & (i < n - after))


def store(tally: Tally, grid: Grid, warps: tuple[Warps, ...], per: tuple[int, int]) -> None:
    """Stores the sums of threads that have ``per`` rows and adjacent columns each; kept cells take their old value."""
    f, (per_y, per_x), nbytes = grid.f, per, grid.f.dtype.nbytes
    values = sum(len(w.row) for w in warps) * per_y * per_x
    border = grid.border
    if f.narrow:
        tally.issue(f"cvt.{f.dtype}.{f.sums}", values * grid.tiles)
    tally.issue(f"select.{f.dtype}", values * border)
    together = per_x > 1 and f.shape[-1] % per_x == 0
    for w in warps:
        lines = _rows(grid, w, per_y)
        x = grid.axes[-1]
        col = x.first[:, None] + w.col * per_x
        element, times = lines.meet(x, col)
        at = element * nbytes
        inside: list[Mask] = []
        for j in range(per_x):
            flags = (lines.flags[:, None] & grid.flags(len(grid.axes) - 1, col + j)).reshape(-1, 32)
            inside.append((flags & STORED > 0) & np.tile(w.on, (len(flags), 1)))
            if border:
                old = inside[j] & (flags & FREE == 0)
                tally.request("ld.global", at + j * nbytes, nbytes, old, times)
        if together:
            whole = np.logical_and.reduce(inside)
            tally.request("st.global", at, per_x * nbytes, whole, times)
            inside = [mask & ~whole for mask in inside]
        for j, mask in enumerate(inside):
            if mask.any():
                tally.request("st.global", at + j * nbytes, nbytes, mask, times)


def _rows(grid: Grid, w: Warps, per_y: int) -> Lines:
    """The rows of all tiles that warps store."""
    mine = (w.row[:, None] * per_y + np.arange(per_y)[:, None]).reshape(-1, w.row.shape[1])
    places: list[Places] = []
    for axis, k in enumerate(grid.axes[:-1]):
        cells, times = k.cells(mine if axis == len(grid.axes) - 2 else ONE_CELL)
        places.append(Places(cells, grid.flags(axis, cells), times))
    return Lines.of(places, grid.f.shape, grid.f.dtype.nbytes)
