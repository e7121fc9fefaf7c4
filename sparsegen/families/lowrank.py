"""``lowrank`` (LoRAStencil): weights as few products of a column and a row, each multiplied from both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparsegen.families.base import (
    COPY_WAVES,
    Geometry,
    Num,
    Work,
    check_mma,
    fused_k,
    keep,
    mma_values,
    narrowing,
    up,
)
from sparsegen.families.stencil2row import conflict_free
from sparsegen.footprint import MAX_RANK, Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import MMA, StencilSchedule

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

RIM, AXES = "fused", (2,)
filled = keep
#: Elements of a memory sector, which windows start at (ir/passes/lowrank.py).
SECTOR = 4
#: Registers for addresses and what is under way, by mma shape; more for each further term, whose products overlap, for
#: a ring, and for each slice of the window beyond so many.  Fitted to nvcc 13 on sm_90 so that nothing spills.
REGISTERS = {"f64.m8n8k4": 36, "f64.m16n8k4": 36, "f64.m16n8k8": 60, "f64.m16n8k16": 84}
TERM, RING, DEEP, FAR = 26, 30, 10, 10
#: Time of the memory for blocks that stay, over that for blocks of one tile; fitted (tests/cost/measured.py).
STATIC = 1.18
#: Independent instructions of a warp that overlap: few, the second product waits for the first; fitted.
ILP = 1.45
#: Clocks that a copy of a single element makes a thread wait; fitted.
NARROW = 155.0
#: Warp instructions of an mma, 32 copies, 64 outputs, and what 32 copies cost more in a tile that meets a border.
#: Counters of 15 generated kernels on one H200 (nvcc 13), within 12 %.
MULTIPLY, COPY, STORE, EDGE = 2.0, 20.0, 15.7, 73.0


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """The tile's window in shared memory; a warp makes M rows of ``tiles_per_warp`` column blocks of 8."""
    assert s.tile is not None
    if s.fuse > len(fp.ranks):
        had = f", of fuse={len(fp.ranks)} rank {fp.ranks[-1]}" if fp.ranks else ""
        raise ScheduleError(
            f"the weights of fuse={s.fuse} have a rank above {MAX_RANK}{had}: lowrank is for products of 1-D stencils "
            "and little more",
            hint="lower fuse" if fp.ranks else "choose another family",
        )
    (rows, cols), kk, rank = s.tile, fused_k(fp.k, s.fuse), fp.ranks[s.fuse - 1]
    m, _, k_f, _ = MMA[s.mma]
    radius, blocks = kk // 2, cols // 8 * (rows // m) // s.warps
    before = up(radius, SECTOR)
    width = up(before + cols + radius, 2)
    pitch = conflict_free(width)
    across = up(8 + kk - 1, 4) // 4  # slices of the second product
    window = blocks + up(kk - 1, 8) // 8  # column blocks of a warp's window
    mmas: dict[str, int] = {}
    for slices, times in ((depth(s, kk), window), (2, across // 2 * blocks), (1, across % 2 * blocks)):
        for shape, n in narrowing(s.mma, slices):
            mmas[shape] = mmas.get(shape, 0) + s.warps * rank * times * n
    return Geometry(
        kk, radius, rows, cols, rows + kk - 1, cols + kk - 1, s.threads,
        s.stages * (rows + kk - 1) * pitch * fp.itemsize, before, pitch, s.stages, m=m, k_f=k_f,
        products=blocks * s.warps, tiles_per_warp=blocks, fragments=2 * rank * across, width=width,
        mmas=tuple((shape, n) for shape, n in mmas.items() if n),
    )  # fmt: skip


def depth(s: StencilSchedule, k: int) -> int:
    """Slices of four rows of the first product."""
    return up(MMA[s.mma][0] + k - 1, 4) // 4


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """Factors, sums, a column block of the window, and what the terms have under way."""
    sums, slices = g.tiles_per_warp * g.m // 4, depth(s, g.k)
    more = TERM * (fp.ranks[s.fuse - 1] - 1) + (RING if s.stages > 1 else 0) + FAR * max(0, slices - DEEP)
    return REGISTERS[s.mma] + more + 2 * (g.fragments + sums + slices)


used = registers


def check(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile) -> None:
    """The mma."""
    if s.mma not in REGISTERS or fp.dtype != "f64":
        raise ScheduleError(
            f"lowrank multiplies f64 on tensor cores, not {fp.dtype} with mma={s.mma}",
            hint=f"choose among: {', '.join(REGISTERS)}" if fp.dtype == "f64" else "choose tiled, stream or direct",
        )
    check_mma(s, g, REGISTERS, device, "choose tiled or direct")


#: Strips of a tile, column blocks of a warp, and warps that share a strip.
SHAPES = ((4, 8, 1), (4, 4, 2), (4, 4, 1))


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """One tile a block, a narrow mma: rings, larger tiles and wider mma gained nothing (tests/cost/measured.py)."""
    for fuse in range(1, min(limit, len(fp.ranks)) + 1):
        for mma in ("f64.m8n8k4", "f64.m16n8k4"):
            for strips, blocks, parts in SHAPES:
                tile = (strips * MMA[mma][0], 8 * blocks * parts)
                yield StencilSchedule("lowrank", mma=mma, fuse=fuse, tile=tile, warps=strips * parts)


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """Products and their cycles."""
    window = g.tiles_per_warp + up(g.k - 1, 8) // 8
    return {
        "W": g.width,
        **mma_values(g, device),
        "fragments": g.fragments,
        "warps": s.warps,
        "narrow": 0.0 if even else NARROW,
        "static": STATIC,
        "ilp": ILP,
        "operand": 32 * window * depth(s, g.k),
    }


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A warp reads its window once; what the first product gives stays in registers for the second.

    Copies are asynchronous, so they are no phase of their own: a block waits for the memory, not for its instructions.
    """
    stays = s.stages > 1
    table = v.fragments * v.threads
    read = v.warps * v.operand
    use = {
        "tensor": v.q_mma / v.sub,
        "shared": (COPY_WAVES * element + read + out + (0 if stays else table)) * v.item / v.bw_S,
        "issue": (v.n_mma * MULTIPLY + element / v.vector / 32 * (COPY + EDGE * v.touch) + out / 64 * STORE) / v.sub,
    }
    narrow = v.narrow * element / v.threads
    wait = narrow if stays else narrow + v.lat_l2  # DRAM's latency is in the time that a block waits for the memory
    setup = v.lat_dram + table * v.item / v.bw_L2 if stays else 0
    return Work((use,), wait + v.lat_barrier + v.lat_shared, element, setup=setup, through_l1=False)
