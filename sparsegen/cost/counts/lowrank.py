"""``lowrank``: windows by cp.async into shared memory, two products a term from there, results to global memory."""

from __future__ import annotations

from math import prod

import numpy as np

from sparsegen.cost.counts import rim
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.fetched import Fetched, fetches
from sparsegen.cost.counts.fused import Fused
from sparsegen.cost.counts.stored import Pairs, store
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.weights import load_fragments
from sparsegen.families.base import narrowing, up
from sparsegen.families.lowrank import SECTOR
from sparsegen.families.stencil2row import conflict_free
from sparsegen.ir.tile_lowrank import slices

G, T = np.arange(32) // 4, np.arange(32) % 4  #: a lane's group of four, and its place in it


def launches(p: Pass) -> tuple[Launch, ...]:
    """The products, and the rim."""
    f = Fused.of(p)
    return (*((_inside(p, f),) if f.stored else ()), *rim.launches(p))


def _inside(p: Pass, f: Fused) -> Launch:
    """All but the rim."""
    s, g, tally = p.schedule, p.geometry, Tally()
    size, (ry, rx) = (g.rows, g.cols), (r * s.fuse for r in f.radius)
    tiles = prod(-(-n // of) for n, of in zip(p.shape, size, strict=True))
    blocks = tiles if s.stages == 1 else min(tiles, p.resident * p.device.sms)
    rank, vector = p.footprint.ranks[s.fuse - 1], 2 if p.shape[-1] % 2 == 0 else 1
    load_fragments(tally, rank * (slices(2 * ry) + slices(2 * rx)) * s.warps * blocks, f.dtype.nbytes)
    before = up(rx, SECTOR)
    wide = g.rows + 2 * ry, up(before + g.cols + rx, 2)
    row, col = np.indices(wide)
    pitch = conflict_free(wide[1])
    Fetched(f, size, (ry, before), wide).copy(
        tally, (row * pitch + col).ravel(), vector, fetches(tiles, blocks, s.stages - 1)
    )
    _multiply(tally, p, (ry, rx), pitch, rank, s.warps * tiles)
    store(tally, f, size, _pairs(p), vector)
    turns = s.warps * tiles
    tally.issue("barrier", turns)
    tally.issue("cp_wait", turns)
    tally.issue("cp_commit", turns + (s.stages - 1) * s.warps * blocks)
    return Launch(f.name, tally.result())


def _multiply(tally: Tally, p: Pass, radius: tuple[int, int], pitch: int, rank: int, warps: int) -> None:
    """Products of so many warps: a column block of the window is read once, and goes to the outputs that it reaches."""
    g, (ry, rx), item = p.geometry, radius, p.footprint.itemsize
    deep, across = slices(2 * ry) + 2 * (g.m // 8 - 1), slices(2 * rx)  # slices of the first product, of the second
    blocks = g.tiles_per_warp + up(2 * rx, 8) // 8
    slice_, block = (i.reshape(-1, 1) for i in np.indices((deep, blocks)))
    row = np.minimum(4 * slice_ + T, g.m + 2 * ry - 1)  # beyond its window a warp reads a place near by, for zeros
    col = 8 * block + (G // 2 ^ G % 2 * 6)  # the order that makes the first product's sums operands of the second
    beyond = np.maximum(col - (8 * g.tiles_per_warp + 2 * rx - 1) + 3, 0) // 4 * 4
    tally.request("ld.shared", (row * pitch + col - beyond) * item, item, None, warps)
    for steps, n in ((deep, blocks), (2, across // 2 * g.tiles_per_warp), (1, across % 2 * g.tiles_per_warp)):
        for shape, count in narrowing(p.schedule.mma, steps):
            tally.issue(f"mma.{shape}", rank * n * count * warps)


def _pairs(p: Pass) -> Pairs:
    """The pairs of outputs of a tile's lanes: 8 rows by 8 columns a request."""
    g, strips = p.geometry, p.geometry.rows // p.geometry.m
    warp, block, half = (i.reshape(-1, 1) for i in np.indices((p.schedule.warps, g.tiles_per_warp, g.m // 8)))
    rows = warp % strips * g.m + 8 * half + G
    cols = warp // strips * (8 * g.tiles_per_warp) + 8 * block + 2 * T
    return Pairs(rows, cols, np.ones(rows.shape, dtype=bool), half.ravel())
