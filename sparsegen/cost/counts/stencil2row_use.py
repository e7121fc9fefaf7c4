"""What ``stencil2row`` does with A and B: products of all planes, and where their accumulators' cells lie."""

from __future__ import annotations

import numpy as np

from sparsegen.cost.counts.base import Pass
from sparsegen.cost.counts.elements import aligned, request
from sparsegen.cost.counts.stored import Pairs
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.tiles import Ints
from sparsegen.families.base import narrowing

G, T = np.arange(32) // 4, np.arange(32) % 4  #: a lane's group of four, and its place in it


def pairs(p: Pass) -> Pairs:
    """The pairs of outputs of a tile's lanes: every request is for one row."""
    g = p.geometry
    product, block, half = (i.reshape(-1, 1) for i in np.indices((g.products, g.n_tiles, g.m // 8)))
    group = product // g.rows * g.m + 8 * half + G
    column = np.broadcast_to(8 * block + 2 * T, group.shape)  # in its group
    row = np.broadcast_to(product % g.rows, group.shape)
    return Pairs(row, group * (g.k + 1) + column, column <= g.k, (block * (g.m // 8) + half).ravel())


def multiply(tally: Tally, p: Pass, tiles: int, slots: Ints) -> None:
    """The products of a plane, of all tiles; ``slots``: where their A and B begin, if they are in global memory."""
    g, mma, item = p.geometry, p.schedule.mma, p.footprint.itemsize
    if mma == "none":  # a lane has an element of A for each of its rows
        step, lanes = 1, G * g.stride_ab
    else:
        step, lanes = 4, G * g.stride_ab + T
    depth, rows = np.arange(0, g.depth, step), np.arange(0, g.m, 8) * g.stride_ab
    if p.schedule.transform == "implicit":
        loads = 2 * g.products * len(depth) * len(rows)
        tally.request("ld.shared", lanes[None] * item, item, None, loads * tiles)
    else:
        i = np.arange(g.products)
        first = i // g.rows * g.m * g.stride_ab + i % g.rows * g.k
        at = np.add.outer(np.add.outer(np.add.outer(np.array([0, g.offset_b]), first), depth), rows)
        request(tally, "ld.global", at.reshape(-1, 1) + lanes, item, slots)
    for shape, n in narrowing(mma, 2 * g.depth // 4) if mma != "none" else ():
        tally.issue(f"mma.{shape}", n * g.products * g.n_tiles * tiles)
    if mma == "none":  # a pair of weights for each block of columns, and two sums
        n = 2 * g.products * g.depth * g.n_tiles * tiles
        request(tally, "ld.global", 2 * T[None], item, aligned(item, n), None, 2)
        tally.issue(f"fma.{p.footprint.dtype}", 2 * n)
