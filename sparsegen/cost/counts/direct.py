"""``direct``: each lane loads the neighbours of its cell; those near a border work out where they are."""

from __future__ import annotations

from functools import cache

import numpy as np

from sparsegen.cost.counts import rim
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.cells import Grid, Lines, Places, Warps, store
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import ONE_CELL, Choices, Ints, mapped, starts


def launches(p: Pass) -> tuple[Launch, ...]:
    """The sums of all cells that fused weights are right for, and the rim."""
    f, (cols, rows) = Fused.of(p), p.schedule.block
    return (*([Launch(f.name, _counts(f, rows, cols))] if f.stored else []), *rim.launches(p))


def _counts(f: Fused, rows: int, cols: int) -> dict[str, int]:
    tally, warps = Tally(), Warps.of(rows, cols)
    size = (1,) * (len(f.shape) - 2) + (rows, cols)
    reach = [(min(axis), max(axis)) for axis in zip(*f.taps, strict=True)]
    inner = [(-low, n - high) for (low, high), n in zip(reach, f.shape, strict=True)]
    grid = Grid.of(f, size, inner)
    tally.issue("ld.param", len(f.taps) * sum(len(w.row) for w in warps) * grid.tiles)
    straight, across = 0, 0
    for w in warps:
        one, other = _loads(tally, grid, w, inner)
        straight, across = straight + one, across + other
    tally.issue(f"mul.{f.sums}", straight + across)
    tally.issue(f"fma.{f.sums}", (len(f.taps) - 1) * (straight + across))
    if f.narrow:
        tally.issue(f"cvt.{f.sums}.{f.dtype}", len(f.taps) * (straight + across))
    tally.issue(f"select.{f.dtype}", sum(_choices(f, size, tap) for tap in f.taps) * across)
    store(tally, grid, warps, (1, 1))
    return tally.result()


def _choices(f: Fused, size: tuple[int, ...], tap: tuple[int, ...]) -> int:
    """``select`` of a mapped read of one neighbour."""
    whole = tuple((0, n) for n in f.shape)
    spans = [(low + o, high + m - 1 + o) for (low, high), m, o in zip(starts((whole,), size), size, tap, strict=True)]
    return Choices.of(tuple(zip(spans, f.shape, f.sides, strict=True))).read


def _loads(tally: Tally, grid: Grid, w: Warps, inner: list[tuple[int, int]]) -> tuple[int, int]:
    """The loads of warps in the same columns; how many have lanes that read straight, and how many others."""
    f, nbytes, x = grid.f, grid.f.dtype.nbytes, grid.axes[-1]
    col = x.first[:, None] + w.col
    in_row = (col >= inner[-1][0]) & (col < inner[-1][1])

    @cache
    def lines(*tap: int) -> Lines:
        return _rows(grid, w, inner, tap)

    @cache
    def cols(over: int) -> Ints:
        return mapped(col + over, f.shape[-1], f.sides[-1])

    straight = across = 0  # the same for every neighbour
    for *down, over in f.taps:
        found = lines(*down)
        at, times = found.meet(x, cols(over))
        near = ((found.flags > 0)[:, None] & in_row & w.on).reshape(-1, 32)
        far = np.broadcast_to(w.on, near.shape) & ~near
        straight = tally.request("ld.global", at * nbytes, nbytes, near, times)
        across = tally.request("ld.global", at * nbytes, nbytes, far, times)
    return straight, across


def _rows(grid: Grid, w: Warps, inner: list[tuple[int, int]], tap: tuple[int, ...]) -> Lines:
    """The rows that a neighbour is read from, flagged where the cell's own rows are not near a border."""
    places: list[Places] = []
    for axis, (k, n, (low, high)) in enumerate(zip(grid.axes[:-1], grid.f.shape, inner, strict=False)):
        cells, times = k.cells(w.row if axis == len(grid.axes) - 2 else ONE_CELL)
        near = ((cells >= low) & (cells < high)).astype(np.int64)
        places.append(Places(mapped(cells + tap[axis], n, grid.f.sides[axis]), near, times))
    return Lines.of(places, grid.f.shape, grid.f.dtype.nbytes)
