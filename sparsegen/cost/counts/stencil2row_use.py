"""What ``stencil2row`` does with A and B: products of all planes, and where their accumulators' cells lie."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sparsegen.cost.counts.access import Counts, Ints, in_global, in_shared, times
from sparsegen.cost.counts.base import Pass
from sparsegen.cost.counts.stored import Pairs
from sparsegen.families.base import narrowing

G, T = np.arange(32) // 4, np.arange(32) % 4  #: a lane's group of four, and its place in it


def pairs(p: Pass) -> Pairs:
    """The pairs of outputs of a tile's lanes: every row of a request is one row of outputs."""
    g = p.geometry
    product, block, half = (
        i.reshape(-1, 1) for i in np.indices((g.products, g.n_tiles, g.m // 8)).astype(np.int64)
    )
    group = product // g.rows * g.m + 8 * half + G
    in_group = 8 * block + 2 * T + 0 * half
    ops = (block * (g.m // 8) + half).ravel()
    return Pairs(product % g.rows + 0 * group, group * (g.k + 1) + in_group, in_group <= g.k, ops)


def multiplied(p: Pass, tiles: int, slots: Ints) -> Counts:
    """The products of a plane, of all tiles; ``slots``: where their A and B begin, if they are in global memory."""
    g, s, item = p.geometry, p.schedule, p.footprint.itemsize
    on_tensor_cores = s.mma != "none"
    steps = np.arange(g.depth // 4 if on_tensor_cores else g.depth) * (4 if on_tensor_cores else 1)
    lanes = G * g.stride_ab + (T if on_tensor_cores else 0)
    halves = 8 * np.arange(g.m // 8) * g.stride_ab
    loads = 2 * g.products * len(steps) * len(halves)
    out: Counts = Counter()
    if s.transform == "implicit":
        out.update(times(in_shared("ld.shared", lanes[None], item), loads * tiles))
    else:
        i = np.arange(g.products)
        first = i // g.rows * g.m * g.stride_ab + i % g.rows * g.k
        at = (np.array([0, g.offset_b])[:, None] + first).ravel()
        at = (at[:, None] + steps).ravel()
        at = (at[:, None] + halves).ravel()
        out.update(in_global("ld.global", at[:, None] + lanes, item, slots))
    if on_tensor_cores:
        for shape, n in narrowing(s.mma, 2 * g.depth // 4):
            out[f"mma.{shape}"] += n * g.products * g.n_tiles * tiles
        return out
    weights = 2 * g.products * g.depth * g.n_tiles * tiles  # loads of two of 8 adjacent weights a lane
    out[f"fma.{p.stencil.dtype}"] += 2 * weights
    out["ld.global"] += weights
    out["bytes.global.read"] += 32 * 2 * item * weights
    out["sectors.global.read"] += 8 * item // 32 * weights
    return out
