"""``stencil2row``: fill A and B, multiply, store; explicitly, the fill is a launch of its own."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import numpy as np

from sparsegen.cost.counts.access import Counts, times
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.stencil2row_fill import Fill
from sparsegen.cost.counts.stencil2row_points import added
from sparsegen.cost.counts.stencil2row_use import multiplied, pairs
from sparsegen.cost.counts.stored import stored, stored_box
from sparsegen.cost.counts.weights import fragments
from sparsegen.ir.fuse import convolve
from sparsegen.ir.heavy import HELD, heavy


def launches(p: Pass) -> tuple[Launch, ...]:
    """The fill, if it is explicit, and the products."""
    box = stored_box(p)
    if box is None:
        return ()
    fill, (planes, points) = Fill(p), planes_of(p)
    s, g, name = p.schedule, p.geometry, p.stencil.name
    explicit = s.transform == "explicit"
    out: Counts = Counter()
    own = 2 * g.depth // 4 * g.n_tiles  # registers of a plane's weights
    if s.mma != "none":
        held = not len(points) and (len(planes) == 1 or len(planes) * own <= HELD)
        out.update(times(fragments(p, own * len(planes)), fill.blocks if held else fill.tiles))
    for plane in planes:
        out.update(multiplied(p, fill.tiles, fill.slots))
        if not explicit:
            out.update(fill.filled(plane))
        if s.stages > 1:
            out.update(fill.raw(plane))
    if len(points):
        out.update(added(p, fill.size, points))
    wide = 2 if prod(p.shape[:-1]) == 1 or p.shape[-1] % 2 == 0 else 1
    out.update(stored(p, box, fill.size, pairs(p), wide))
    if explicit:
        first = Launch(f"{name}_stencil2row", fill.padding() + fill.filled(()))
        return first, Launch(name, out)
    out.update(times(fill.padding(), fill.blocks))
    turns = s.warps * fill.tiles
    out["barrier"] += (2 * len(planes) - (s.stages == 1)) * turns
    if s.stages > 1:
        out["cp_wait"] += turns
        out["cp_commit"] += turns + (s.stages - 1) * s.warps * fill.blocks
    return (Launch(name, out),)


def planes_of(p: Pass) -> tuple[list[tuple[int, ...]], Any]:
    """Planes of the fused weights that are products, by how far they are away; offsets of all points of others."""
    fused = convolve(p.stencil.weights, p.schedule.fuse)
    taps = np.argwhere(fused != 0.0) - np.array(fused.shape) // 2
    away, points = np.unique(taps[:, :-2], axis=0, return_counts=True)
    if taps.shape[1] == 2:
        return [()], taps[:0]
    large = heavy([int(n) for n in points], p.geometry.k**2)
    products = [tuple(int(i) for i in at) for at, is_large in zip(away, large, strict=True) if is_large]
    return products, taps[[tuple(tap[:-2]) not in products for tap in taps]]
