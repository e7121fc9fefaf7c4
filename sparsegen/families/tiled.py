"""``tiled``: a tile in shared memory, sums on the CUDA cores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sparsegen.cost.devices import AMPERE, DeviceProfile
from sparsegen.families.base import (
    COPY_WAVES,
    FUSE,
    MAX_REGISTERS,
    STAGES,
    WARPS,
    Geometry,
    Num,
    StencilFamily,
    Work,
    fused_k,
)
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.tiled import Tile, threads
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, pair
from sparsegen.sizes import MAX_FUSE

#: How much of the queueing of blocks is left where all copies of a tile are under way together; fitted.
TOGETHER = 0.25
#: Warp instructions: of 32 copies, a load from shared memory, a warp's tile, and of 32 elements of a tile that meets a
#: border.  Counters of 45 generated kernels on one H200 (nvcc 13), within 6 %.
COPY, LOAD, TILE, EDGE = 10.8, 1.63, 88.0, 21.5


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """The tile's window in shared memory, its rows at multiples of 16 bytes; wide ones begin at a sector (32 bytes)."""
    rows, cols = s.tile
    kk = fused_k(fp.k, s.fuse)
    radius = kk // 2
    n = Tile(radius=(0 if fp.flat else radius, radius), nbytes=fp.itemsize, rows=rows, cols=cols)
    shape = threads(rows, cols, s.warps, fp.itemsize)
    assert shape  # others are refused when the schedule is made
    ty, _, per_x = shape
    return Geometry(
        kk, rows, cols, n.height, cols + kk - 1, s.threads, s.stages * n.height * n.width * fp.itemsize, n.before,
        n.width, per_x, rows // ty,
    )  # fmt: skip


def together(s: StencilSchedule, g: Geometry, device: DeviceProfile) -> bool:
    """Whether a tile that is not fetched ahead comes by asynchronous copies, all under way together.

    Wide halos gain by it (49 points: 490 against 700 us on the H200), a halo of one cell does not (448 against 414).
    """
    return s.stages == 1 and g.radius > 1 and device.compute_capability >= AMPERE


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """A column of accumulators, and the values loaded for it.

    Up to an edge of 5 and 16 outputs a thread it needs fewer registers than its values, because ptxas loads from shared
    memory again (32 do for all of them); at an edge of 7 it spills instead.  Fitted to nvcc 13 on sm_90.
    """
    column = g.rows * g.cols // g.threads
    few = 24 + column + (8 if column > 8 else 0)
    return few if g.k <= 5 and column <= 16 else (32 if column <= 8 else 48) + 4 * column + 3 * (g.k - 1)


def used(s: StencilSchedule, g: Geometry, fp: Footprint) -> float:
    """Its registers where they are tight, else fewer, but all there are for a long column of doubles under a wide box.

    Of 150 kernels with stages=1 (nvcc 13, sm_90) within 35 %.
    """
    column, points, double = g.rows * g.cols // g.threads, fp.fused_points(s.fuse), fp.itemsize == 8
    if g.k <= 5 and column <= 16:
        return registers(s, g, fp)
    if double and column >= 32 and points >= 49:
        return MAX_REGISTERS
    return 16 + (5.4 if double else 2.0) * math.sqrt(column) * math.pow(points, 0.3)


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Tiles of a few shapes, with and without a ring; of a field of one row they have one row."""
    shapes = [(r, c, w) for r in (8, 16, 32, 64) for c in (32, 64, 128) for w in (4, 8, 16)]
    if fp.flat:
        shapes = [(1, 32 * w, w) for w in (2, 4, 8, 16)]
    for fuse in range(1, min(limit, MAX_FUSE) + 1):
        for rows, cols, warps in shapes:
            if warps % (cols // 32) == 0 and rows % (warps // (cols // 32)) == 0:
                for stages in (1, 2, 3, 4):
                    yield StencilSchedule("tiled", tile=(rows, cols), warps=warps, stages=stages, fuse=fuse)


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """What a thread does."""
    return {
        "together": float(together(s, g, device)),
        **({"static": 1.0} if fp.flat else {}),  # rows of a grid of one row do not jump about in memory
        "per_x": g.per_x,
        "per_y": g.per_y,
        "pieces": pieces(g, fp.row_spans(s.fuse)),
    }


def pieces(g: Geometry, spans: tuple[int, ...]) -> int:
    """Loads of ``per_x`` elements that a thread makes from shared memory: of each row that its outputs need, once."""
    first, total = g.before - g.radius, 0
    for row in range(g.per_y + len(spans) - 1):
        wide = max(spans[max(0, row - g.per_y + 1) : row + 1], default=0)  # of its outputs' rows
        if wide:
            start = (first + (g.k - wide) // 2) % g.per_x
            total += -(-(start + g.per_x + wide - 1) // g.per_x)
    return total


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A tile in shared memory; a thread owns per_y rows of per_x outputs and reads each row's segment once."""
    stays = s.stages > 1
    copies = element / v.vector if stays or v.together else element
    fill = {
        "shared": COPY_WAVES * element * v.item / v.bw_S,
        "issue": (copies * COPY + element * EDGE * v.touch) / 32 / v.sub,
    }
    loads = v.threads * v.pieces
    use = {
        "fma": out * v.p / v.fma_rate,
        "shared": (loads * v.per_x + out) * v.item / v.bw_S,
        "issue": (out * v.p + loads * LOAD + v.threads * TILE + v.cvt * (loads * v.per_x + out)) / 32 / v.sub,
    }
    # copies under way together are one wait
    wait = v.plain * v.lat_dram * v.rounds if stays else v.lat_l2 * (1 if v.together else v.rounds)
    near = 2 * v.lat_barrier + v.lat_shared
    return Work(
        (fill, use), wait + near, element, through_l1=not v.together, waits=not v.together,
        queues=0 if stays else TOGETHER if v.together else 1,
    )  # fmt: skip


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """A tile in shared memory a block."""
    from sparsegen.ir.kernels.tiled import Tiled

    return Tiled(s.tile[0], s.tile[1], s.warps, stay, per_sm)


def contradictions(s: StencilSchedule) -> None:
    """The tile can be shared out among the warps."""
    rows, cols = s.tile
    strips = cols // 32
    if cols % 32 or s.warps % strips or rows % (s.warps // strips):
        raise ScheduleError(
            f"tile={rows}x{cols} cannot be shared out among warps={s.warps}",
            hint="columns in multiples of 32, warps a multiple of columns/32, and rows a multiple of "
            "warps/(columns/32), as in tile=32x64 warps=8",
        )


FAMILY = register(StencilFamily(
    name="tiled",
    words=(FUSE, Word("tile", pair, (32, 64)), WARPS, STAGES),
    axes=(1, 2), rim="fused", geometry=geometry, registers=registers, space=space, values=values,
    work=work, kernel=kernel, used=used, together=together, contradictions=contradictions,
))  # fmt: skip
