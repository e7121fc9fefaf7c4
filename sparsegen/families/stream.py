"""``stream``: temporal blocking in registers; a warp walks down a strip with all its time levels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.terms import ILP
from sparsegen.families.base import Geometry, Num, StencilFamily, Work, fused_k, number
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.stream import Strips
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, integer

#: Columns that a lane may own: whole 16-byte pieces, and few enough for its registers.
LANE_COLUMNS = (2, 4, 6, 8, 16)
#: Rows of a block where neither the schedule nor a field says how many.
ROWS = 512
#: Warp instructions of a row (its index, the ring's slot, wait and commit, two syncs, two guards), of a piece that is
#: copied, of 16 bytes of a lane's columns on their way in and out, and of a word from a neighbouring lane.
#: Counters of 35 generated kernels on one H200 (nvcc 13), within 4 %.
TURN, PIECE, OWN, SHUFFLE = 34.6, 3.4, 10.5, 0.76


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """Strips of 32 * cols columns, a warp each; rows come through the warp's ring, levels stay in registers."""
    kk, itemsize = fused_k(fp.k, s.fuse), fp.itemsize
    rows, ry = s.rows or ROWS, 0 if fp.flat else kk // 2
    n = Strips(
        radius=(ry, kk // 2), levels=s.levels, nbytes=itemsize, per_lane=s.cols, rows=rows, warps=s.warps,
        stages=s.stages,
    )  # fmt: skip
    if n.step <= 0 or kk // 2 > s.cols or s.cols % n.piece:
        raise ScheduleError(
            f"cols={s.cols} columns a lane must be a multiple of {n.piece} (16 bytes)" if s.cols % n.piece
            else f"radius {kk // 2} (fuse={s.fuse}) reaches beyond the neighbouring lane, which owns cols={s.cols}"
            if kk // 2 > s.cols
            else f"levels={s.levels} of radius {kk // 2} leave nothing of a strip of {n.width} columns",
            hint=f"set cols={up(s.cols, n.piece)}" if s.cols % n.piece
            else "take more columns a lane, or lower levels or fuse",
        )  # fmt: skip
    return Geometry(
        kk, *n.tile, n.turns, s.warps * n.width, s.threads, n.ring * itemsize, n.lead, n.slot, s.cols, width=n.width,
        words=max(1, itemsize // 4),
    )  # fmt: skip


def chunk_rows(ny: int, across: int, slots: int, reach: int) -> int:
    """Rows of a block of ``stream`` that keep ``slots`` blocks at a time busiest: fewest waves x rows with their halo.

    ``across``: blocks side by side; ``reach``: halo rows of a block.  Of equally good heights the largest.
    """
    best, least = ny, float("inf")
    for chunks in range(1, min(512, ny // max(1, 2 * reach) + 1) + 1):
        rows = -(-ny // chunks)
        waves = -(-across * -(-ny // rows) // slots)
        if waves * (rows + reach) < least * 0.999:
            best, least = rows, waves * (rows + reach)
    return best


def chunk_planes(shape: tuple[int, ...], g: Geometry, slots: int) -> int:
    """Planes of a block that walks down a column of tiles, chosen as :func:`chunk_rows` chooses rows."""
    across = -(-shape[1] // g.rows) * -(-shape[2] // g.cols)
    return chunk_rows(shape[0], across, slots, g.halo_planes - g.planes)


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """Sums of the unfinished rows, ``words`` each.  Within 6 % of nvcc 13 on sm_90 above 100.

    A star keeps some values longer (ptxas orders its few taps so), a wide box more weights; where it is not known
    which of the two it is, the higher.
    """
    row, sums = g.words * s.cols, 2 * s.levels * g.radius * g.words * s.cols
    if fp.flat or not g.radius:
        return max(64, 20 + g.words * (int(s.cols) + 2 * g.radius))
    extra = g.words * s.cols * (5 * (g.radius - 2)) // 2 * (s.levels if g.radius > 3 else 1) if g.radius > 2 else 0
    box = 24 + 2 * row + extra + sums + 3 * max(0, s.levels - 8) + (8 if s.unroll > 1 else 0)
    longer = 3 * min(row, 8) // 4 if g.words == 2 else 3
    wide = max(3, 3 * s.cols // 4) * g.radius + (24 if g.words == 1 and s.cols > 8 else 0)
    star = 8 + 2 * row + wide + longer * s.levels + sums
    return int(max(64, max(box, star) if fp.full is None else box if fp.full else star))


def filled(s: StencilSchedule, fp: Footprint, shape: tuple[int, ...], slots: int, unit: int = 1) -> StencilSchedule:
    """``rows=auto``: chunks of whole ``unit`` rows such that the blocks keep the GPU busy."""
    if s.rows is not None:
        return s
    g = s.rules.geometry(s, fp)
    return s.but(rows=up(chunk_rows(shape[-2], -(-shape[-1] // g.cols), slots, g.reach), unit))


#: Levels and fusions of stream that are tried where the weights have one row only: nothing of a level stays there.
FLAT_LEVELS, FLAT_FUSES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32), (1, 2, 4, 8)


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Every number of levels; of one row also fusions, and widths where elements are short."""
    if fp.flat:
        for cols, fuse, levels, warps in ((c, f, n, w) for c in (8, 16) for f in FLAT_FUSES for n in FLAT_LEVELS
                                          for w in (2, 4)):  # fmt: skip
            if fuse * levels <= limit and fuse * fp.radius <= cols:
                yield StencilSchedule("stream", fuse=fuse, levels=levels, cols=cols, warps=warps, stages=2)
        return
    piece = 16 // fp.itemsize
    for fuse in (1, 2):  # a 2-D stencil that is fused has more points than levels of it one after the other
        for levels in range(1, min(limit // fuse, 16) + 1):
            for cols, stages in ((c, n) for c in sorted({max(4, piece), 2 * max(2, piece)}) for n in (8, 4)):
                yield StencilSchedule("stream", fuse=fuse, levels=levels, cols=cols, stages=stages)


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """Strips and levels; results are stored through the ring, unless a lane's columns are one piece of 16 bytes."""
    through = 2 if even and s.cols * fp.itemsize == 16 else 4
    # single-precision columns of a lane are worked on side by side: 49 points, 2 levels, 8 for 4: 414 for 465 us
    side = {"ilp": ILP * s.cols / 4} if fp.itemsize == 4 and not fp.flat else {}
    # "waits": the sums of a lane's columns do not wait for each other
    return side | {"half": 1, "waits": 0.0, "W": s.warps * g.width, "cols": s.cols, "T": s.levels, "rx": g.radius,
            "warps": s.warps, "through": through}  # fmt: skip


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A warp walks down a strip: each row goes through all levels, which live in registers, and then leaves."""
    rows = v.R + v.reach
    lanes = v.warps * rows  # rows of a warp in a tile
    shuffled = 2 * v.rx * v.T  # elements that come from each neighbouring lane
    pieces = v.cols / v.vector
    own = v.cols * v.item / 16  # a lane's own columns, 16 bytes at a time
    instructions = (
        v.T * (v.cols * v.p + SHUFFLE * 2 * v.rx * v.word / 4) + TURN + pieces * PIECE + own * OWN + v.cvt * 2 * v.cols
    )
    use = {
        "fma": lanes * 32 * v.T * v.cols * v.p / v.fma_rate,
        "shared": lanes * 32 * (v.through * v.cols * v.item + shuffled * v.word) / v.bw_S,
        "issue": lanes * instructions / v.sub,
    }
    row = v.through / 2 * v.lat_shared + v.plain * v.lat_dram  # it is read; results cross the lanes on their way out
    wait = rows * row + v.lat_dram
    return Work((use,), wait, element, rows / v.R, turns=rows)


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """A strip a warp; what a border reaches is left to a rim."""
    from sparsegen.ir.kernels.stream import Stream

    return Stream(s.cols, g.rows, s.warps, s.stages, s.unroll, per_sm)


FAMILY = register(StencilFamily(
    name="stream",
    words=(
        number("fuse", 1, 1, 8), number("levels", 4, 1, 32), Word("cols", integer, 4, choices=LANE_COLUMNS),
        Word("rows", integer, auto=True), number("warps", 2, 1, 8), number("stages", 8, 2, 8),
        number("unroll", 1, 1, 2),
    ),
    axes=(1, 2), rim="all", geometry=geometry, registers=registers, space=space, values=values,
    work=work, kernel=kernel, filled=filled,
))  # fmt: skip
