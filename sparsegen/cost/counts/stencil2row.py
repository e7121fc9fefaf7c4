"""``stencil2row``: fill A and B, multiply, store; explicitly, the fill is a launch of its own."""

from __future__ import annotations

from collections import Counter

from sparsegen.cost.counts import rim
from sparsegen.cost.counts.base import Launch, Pass
from sparsegen.cost.counts.fused import Fused, Offsets
from sparsegen.cost.counts.stencil2row_fill import Fill, Plane, pair
from sparsegen.cost.counts.stencil2row_points import Points
from sparsegen.cost.counts.stencil2row_use import multiply, pairs
from sparsegen.cost.counts.stored import store
from sparsegen.cost.counts.tally import Tally
from sparsegen.cost.counts.weights import load_fragments
from sparsegen.ir.heavy import HELD, heavy


def launches(p: Pass) -> tuple[Launch, ...]:
    """The fill, if it is explicit, the products, and the rim."""
    f = Fused.of(p)
    return (*(_inside(p, f) if f.stored else ()), *rim.launches(p))


def _inside(p: Pass, f: Fused) -> tuple[Launch, ...]:
    """All but the rim."""
    fill, (planes, points), tally = Fill(p, f), _planes(p, f), Tally()
    s, cells = p.schedule, pairs(p)
    _weights(tally, p, fill, len(planes), bool(points))
    for plane in planes:
        multiply(tally, p, fill.tiles, fill.slots)
        if not fill.explicit:
            fill.fill(tally, plane)
        if s.stages > 1:
            fill.fetch(tally, plane)
    if points:
        Points(p, f, fill.size, points, cells, pair(f)).add(tally)
    store(tally, f, fill.size, cells, pair(f))
    if fill.explicit:
        first = Tally()
        fill.pad(first)
        fill.fill(first, ())
        return Launch(f"{f.name}_stencil2row", first.result()), Launch(f.name, tally.result())
    fill.pad(tally)
    turns = s.warps * fill.tiles
    # before each fill of A and B and after it; a block of one tile has nothing to wait for before the first
    tally.issue("barrier", (2 * len(planes) - (s.stages == 1)) * turns)
    if s.stages > 1:
        tally.issue("cp_wait", turns)
        tally.issue("cp_commit", turns + (s.stages - 1) * s.warps * fill.blocks)
    return (Launch(f.name, tally.result()),)


def _weights(tally: Tally, p: Pass, fill: Fill, planes: int, points: bool) -> None:
    """Fragments of weights: once a block where registers hold all of them, else anew for every tile."""
    own = 2 * p.geometry.depth // 4 * p.geometry.n_tiles
    held = not points and (planes == 1 or planes * own <= HELD)
    if p.schedule.mma != "none":
        n = planes * own * p.schedule.warps * (fill.blocks if held else fill.tiles)
        load_fragments(tally, n, p.footprint.itemsize)


def _planes(p: Pass, f: Fused) -> tuple[list[Plane], Offsets]:
    """Planes of the fused weights that are products, by how far they are away; the points of all others."""
    of = Counter(tap[:-2] for tap in f.taps)
    large = heavy(list(of.values()), p.geometry.k ** (1 if p.footprint.flat else 2))
    products = [plane for plane, is_large in zip(of, large, strict=True) if is_large]
    return products, tuple(tap for tap in f.taps if tap[:-2] not in products)
