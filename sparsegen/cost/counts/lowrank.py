"""``lowrank``: windows by cp.async into shared memory, two products a term from there, results to global memory."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from sparsegen.cost.counts.access import Counts, in_shared, times
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.border import sides_of
from sparsegen.cost.counts.stored import Pairs, stored, stored_box
from sparsegen.cost.counts.weights import fragments
from sparsegen.cost.counts.fetched import Window, fetches
from sparsegen.families.base import narrowing, up
from sparsegen.families.lowrank import SECTOR
from sparsegen.families.stencil2row import conflict_free
from sparsegen.ir.tile_lowrank import slices

G, T = np.arange(32) // 4, np.arange(32) % 4  #: a lane's group of four, and its place in it


def launches(p: Pass) -> tuple[Launch, ...]:
    """The kernel of the inside."""
    box = stored_box(p)
    if box is None:
        return ()
    s, g, item = p.schedule, p.geometry, p.footprint.itemsize
    ry, rx = (r * s.fuse for r in p.stencil.radius)
    before = up(rx, SECTOR)
    height, width = g.rows + 2 * ry, up(before + g.cols + rx, 2)
    tiles = prod(-(-n // of) for n, of in zip(p.shape, (g.rows, g.cols), strict=True))
    blocks = tiles if s.stages == 1 else min(tiles, p.resident * p.device.sms)
    rank = p.footprint.ranks[s.fuse - 1]
    out = times(fragments(p, rank * (slices(2 * ry) + slices(2 * rx))), blocks)
    window = Window(p.shape, (g.rows, g.cols), (ry, before), (height, width), sides_of(p.stencil), "f64", item)
    row, col = np.indices((height, width))
    vector = 2 if p.shape[-1] % 2 == 0 else 1
    out.update(window.copied((row * conflict_free(width) + col).ravel(), vector, fetches(tiles, blocks, s.stages - 1)))
    out.update(times(_sandwich(p, ry, rx, conflict_free(width), rank), s.warps * tiles))
    out.update(stored(p, box, (g.rows, g.cols), _pairs(p), vector))
    turns = s.warps * tiles
    out["barrier"] += turns
    out["cp_wait"] += turns
    out["cp_commit"] += turns + (s.stages - 1) * s.warps * blocks
    return (Launch(p.stencil.name, out),)


def _sandwich(p: Pass, ry: int, rx: int, pitch: int, rank: int) -> Counts:
    """A warp's products: each column block of its window is read once, and goes to the outputs that it reaches."""
    g, mma = p.geometry, p.schedule.mma
    deep, wide = slices(2 * ry) + 2 * (g.m // 8 - 1), slices(2 * rx)  # slices of the first product, of the second
    blocks = g.tiles_per_warp + up(2 * rx, 8) // 8
    # rows and columns of which only zeros are multiplied are read from a place near by, as ir/lower/lowrank.py says
    slice_, block = (i.reshape(-1, 1) for i in np.indices((deep, blocks)))
    row = np.minimum(4 * slice_ + T, g.m + 2 * ry - 1)
    col = 8 * block + (G // 2 ^ G % 2 * 6)
    beyond = col - (8 * g.tiles_per_warp + 2 * rx - 1)
    out = in_shared("ld.shared", row * pitch + col - np.maximum(beyond + 3, 0) // 4 * 4, p.footprint.itemsize)
    for steps, n in ((deep, blocks), (2, wide // 2 * g.tiles_per_warp), (1, wide % 2 * g.tiles_per_warp)):
        for shape, count in narrowing(mma, steps):
            out[f"mma.{shape}"] += rank * n * count
    return out


def _pairs(p: Pass) -> Pairs:
    """The pairs of outputs of a tile's lanes: 8 rows by 8 columns a request."""
    g, warps = p.geometry, p.schedule.warps
    strips = g.rows // g.m
    warp, block, half = (i.reshape(-1, 1) for i in np.indices((warps, g.tiles_per_warp, g.m // 8)))
    rows = warp % strips * g.m + 8 * half + G
    cols = warp // strips * (8 * g.tiles_per_warp) + 8 * block + 2 * T
    return Pairs(rows + 0 * cols, cols + 0 * rows, np.ones(rows.shape, dtype=bool), half.ravel())
