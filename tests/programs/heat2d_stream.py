"""A five-point stencil, two time steps in registers, streaming down y: one warp owns a strip of columns.

A warp holds 128 columns, four a lane.  Rows of the field arrive through a ring of its own in shared memory, filled by
``cp_async`` three rows ahead.  Each time level keeps partial sums of the two rows that are not complete yet, so a row
that comes in at level 0 completes the row above it at level 1, which completes the one above that at level 2.  Columns
beyond a lane's own come from its neighbours by ``shfl``; the outermost two columns of a strip become wrong that way and
are not stored (strips overlap).  No barrier of the block: warps meet nobody but themselves.  Periodic in y and x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Expr, Value, all_of, minimum
from sparsegen.ir.types import Buffer, f64

from .case import Array, Case

T = 2  # time steps a launch
C = 4  # columns a lane
COLUMNS = 32 * C  # of a strip
HALO = T  # columns at each end of a strip that are wrong after T steps (kept even, so that pairs stay pairs)
STAGES = 4  # rows in the ring
#: The ring keeps a row as 16-byte chunks with a gap after every eighth: eight lanes that read chunks 0, 2, .. 14 touch
#: all banks once.
ROW = 2 * (COLUMNS // 2 + COLUMNS // 16)

CENTRE, NORTH, WEST, EAST, SOUTH = range(5)


@dataclass(frozen=True)
class Heat:
    """Sizes: the field, the warps of a block, and the rows that a block streams through."""

    ny: int
    nx: int
    warps: int = 4
    rows: int = 16

    @property
    def strips(self) -> int:
        return -(-self.nx // (COLUMNS - 2 * HALO))

    @property
    def grid(self) -> tuple[int, int, int]:
        return -(-self.strips // self.warps), -(-self.ny // self.rows), 1


def chunk(q: Expr) -> Expr:
    """The element of a ring's row at which 16-byte chunk ``q`` starts."""
    return (q + q // 8) * 2


def build(size: Heat) -> w.Func:
    """The kernel: ``out`` is ``u`` two steps later; ``weights`` holds centre, north, west, east, south."""
    ny, nx = size.ny, size.nx
    u = Buffer("u", f64, ny * nx, "global")
    out = Buffer("out", f64, ny * nx, "global")
    weights = Buffer("weights", f64, 5, "param")
    ring = Buffer("ring", f64, size.warps * STAGES * ROW, "shared")
    empty = w.Func("heat2d_stream", (u, out, weights), (ring,), size.grid, 32 * size.warps, ())
    at = empty.builtins()
    b = Builder()
    b.reserve(*at, "u", "out", "weights", "ring")

    strip = b.let("strip", at["bx"] * size.warps + at["warp"])
    with b.if_(strip.lt(size.strips)):
        _strip(b, size, u, out, weights, ring, strip, at["lane"], at["warp"], at["by"])
    return w.Func(empty.symbol, empty.params, empty.shared, empty.grid, empty.threads, b.ops())


def _strip(
    b: Builder, size: Heat, u: Buffer, out: Buffer, weights: Buffer, ring: Buffer, strip: Expr, lane: Expr, warp: Expr,
    by: Expr,
) -> None:  # fmt: skip
    ny, nx = size.ny, size.nx
    width = 2 if nx % 2 == 0 else 1  # elements at once: rows of odd length start at odd multiples of 8 bytes
    x0 = b.let("x0", strip * (COLUMNS - 2 * HALO) - HALO)
    y0 = b.let("y0", by * size.rows)
    y1 = b.let("y1", minimum(y0 + size.rows, ny))
    trips = b.let("trips", y1 - y0 + 2 * T)
    mine = b.let("mine", warp * (STAGES * ROW))
    wrap_x, wrap_y = -(-HALO // nx) * nx, -(-T // ny) * ny - T

    # In a row of the ring a lane copies, and later writes out, columns of the strip beside those of its neighbours; it
    # owns chunks 2 * lane and 2 * lane + 1.
    columns = [b.let("column", (lane + 32 * j) * width) for j in range(C // width)]
    sources = [b.let("source", (x0 + column + wrap_x) % nx) for column in columns]
    places = [b.let("place", chunk(column // 2) + column % 2) for column in columns]
    owned = [b.let("owned", chunk(lane * 2 + j)) for j in (0, 1)]

    def slot(i: Expr) -> Expr:
        return b.let("slot", mine + i % STAGES * ROW)

    def issue(i: Expr, where: Expr | None = None) -> None:
        """Starts the copy of row ``i`` of this block (counted from its first), and closes the lane's group."""
        row, to = b.let("row", (y0 + i + wrap_y) % ny * nx), slot(i)
        for place, source in zip(places, sources, strict=True):
            b.cp_async(ring, to + place, u, row + source, width, where)
        b.commit()

    x = b.alloc("x", f64, C + 2)  # the row at the present level, with one neighbour on each side
    o = b.alloc("o", f64, C)  # the row above it, complete: the next level's row
    acc = b.alloc("acc", f64, T * 2 * C)  # [level, row above or this one, column]: sums that lack the rows below
    zero = b.const(f64, 0.0)
    with b.for_("k", 0, T * 2 * C, unroll=0) as k:
        b.st(acc, k, zero)
    wt = [b.ld(weights, k, hint="w") for k in range(5)]
    with b.for_("i", 0, STAGES - 1, unroll=0) as i:
        issue(i)

    with b.for_("i", 0, trips) as i:
        b.wait(STAGES - 2)
        b.sync()  # every lane's part of row i is here, and nobody reads what the next copy overwrites
        here = slot(i)
        for j in (0, 1):
            pair = b.ldv(ring, here + owned[j], 2)
            b.st(x, 1 + 2 * j, pair[0])
            b.st(x, 2 + 2 * j, pair[1])
        ahead = b.let("ahead", i + (STAGES - 1))
        issue(ahead, ahead.lt(trips))
        with b.for_("t", 0, T, unroll=0) as t:
            _level(b, x, o, acc, wt, t)
        with b.if_(i.ge(2 * T)):  # the first rows feed sums only; now o is row i - T, two steps on
            for j in (0, 1):
                b.st(ring, here + owned[j], *b.ldv(o, 2 * j, 2))
            b.sync()
            to = b.let("to", (y0 + i - 2 * T) * nx)
            for place, column in zip(places, columns, strict=True):
                at = b.let("at", x0 + column)
                with b.if_(all_of(column.ge(HALO), column.lt(COLUMNS - HALO), at.lt(nx))):
                    b.st(out, to + at, *b.ldv(ring, here + place, width))


def _level(b: Builder, x: Buffer, o: Buffer, acc: Buffer, wt: list[Value], t: Expr) -> None:
    """One row at level ``t`` (in ``x``): completes the row above it (to ``o`` and ``x``), and starts the row below."""
    b.st(x, 0, b.shfl("up", b.ld(x, C), 1))
    b.st(x, C + 1, b.shfl("down", b.ld(x, 1), 1))
    with b.for_("c", 0, C, unroll=0) as c:
        left, here, right = (b.ld(x, c + d) for d in range(3))
        above, this = t * (2 * C) + c, t * (2 * C) + C + c
        b.st(o, c, b.fma(wt[SOUTH], here, b.ld(acc, above)))
        b.st(acc, above, b.fma(wt[EAST], right, b.fma(wt[CENTRE], here, b.fma(wt[WEST], left, b.ld(acc, this)))))
        b.st(acc, this, b.binary("mul", wt[NORTH], here))
    with b.for_("c", 0, C, unroll=0) as c:
        b.st(x, c + 1, b.ld(o, c))


def reference(u: Array, weights: Array) -> Array:
    """Two steps, in NumPy."""
    for _ in range(T):
        u = (weights[CENTRE] * u + weights[NORTH] * np.roll(u, 1, 0) + weights[SOUTH] * np.roll(u, -1, 0)
             + weights[WEST] * np.roll(u, 1, 1) + weights[EAST] * np.roll(u, -1, 1))  # fmt: skip
    return u


def case(size: Heat, seed: int = 0) -> Case:
    """The kernel with a random field and random weights."""
    rng = np.random.default_rng(seed)
    u, weights = rng.standard_normal((size.ny, size.nx)), rng.uniform(-0.5, 0.5, 5)
    args = {"u": u, "out": np.full_like(u, np.nan), "weights": weights}
    return Case(build(size), args, {"out": reference(u, weights)}, 1e-14, ("out",))


#: Small ones (seconds on the emulator): sizes that divide into strips and blocks, and sizes that do not; odd rows.
SIZES = {
    "even": Heat(32, 248, warps=2),
    "odd": Heat(19, 131, warps=2, rows=7),
    "ragged": Heat(21, 250, warps=3, rows=8),
    "tiny": Heat(1, 1, warps=1),
    "narrow": Heat(5, 2, warps=1, rows=3),
}
LARGE = {"large": Heat(1024, 4960, rows=64), "large_odd": Heat(1021, 4957, rows=64)}
