"""``lowrank`` (LoRAStencil): weights as few products of a column and a row, each multiplied from both sides."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.base import COPY_WAVES, STAGES, Geometry, Num, StencilFamily, Work, fused_k, number
from sparsegen.families.mma import check_mma, mma_values, mma_word, narrowing
from sparsegen.footprint import MAX_RANK, Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.lowrank import Blocks
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, pair
from sparsegen.sizes import MMA

#: Registers for addresses and what is under way, by mma shape; more for each further term, whose products overlap, for
#: a ring, and for each slice of the window beyond so many.  Fitted to nvcc 13 on sm_90 so that nothing spills.
REGISTERS = {"f64.m8n8k4": 36, "f64.m16n8k4": 36, "f64.m16n8k8": 60, "f64.m16n8k16": 84}
TERM, RING, DEEP, FAR = 26, 30, 10, 10
#: Time of the memory for blocks that stay, over that for blocks of one tile; fitted (tests/cost/measured.py).
STATIC = 1.18
#: Independent instructions of a warp that overlap: few, the second product waits for the first; fitted, with those of
#: small fields whose blocks are alone on their SMs (tests/cost/test_drawn_updates.py).
ILP = 1.27
#: Warps' worth of latency of an instruction besides: none, copies are asynchronous and ILP has the products (the same
#: fit, of ILP, NARROW and this one, finds 0 where other families have 1.1).
WAITS = 0.0
#: Clocks that a copy of a single element makes a thread wait; fitted.
NARROW = 155.0
#: Warp instructions of an mma, 32 copies, 64 outputs, and what 32 copies cost more in a tile that meets a border.
#: Counters of 15 generated kernels on one H200 (nvcc 13), within 12 %.
MULTIPLY, COPY, STORE, EDGE = 2.0, 20.0, 15.7, 73.0


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """The tile's window in shared memory; a warp makes M rows of ``tiles_per_warp`` column blocks of 8."""
    if s.fuse > len(fp.ranks):
        had = f", of fuse={len(fp.ranks)} rank {fp.ranks[-1]}" if fp.ranks else ""
        raise ScheduleError(
            f"the weights of fuse={s.fuse} have a rank above {MAX_RANK}{had}: lowrank is for products of 1-D stencils "
            "and little more",
            hint="lower fuse" if fp.ranks else "choose another family",
        )
    (rows, cols), kk, rank = s.tile, fused_k(fp.k, s.fuse), fp.ranks[s.fuse - 1]
    n = numbers(s, kk)
    mmas: dict[str, int] = {}
    for slices, times in ((n.depth, n.window), (2, n.across // 2 * n.blocks), (1, n.across % 2 * n.blocks)):
        for shape, count in narrowing(s.mma, slices):
            mmas[shape] = mmas.get(shape, 0) + s.warps * rank * times * count
    return Geometry(
        kk, rows, cols, rows + kk - 1, cols + kk - 1, s.threads, s.stages * n.size * fp.itemsize, n.before, n.pitch,
        m=MMA[s.mma][0], tiles_per_warp=n.blocks, fragments=2 * rank * n.across, width=n.width,
        mmas=tuple((shape, count) for shape, count in mmas.items() if count),
    )  # fmt: skip


def numbers(s: StencilSchedule, k: int) -> Blocks:
    """The tile's numbers, for weights of edge ``k``."""
    assert s.tile is not None
    return Blocks(radius=(k // 2, k // 2), rows=s.tile[0], cols=s.tile[1], m=MMA[s.mma][0], warps=s.warps)


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """Factors, sums, a column block of the window, and what the terms have under way."""
    sums, slices = g.tiles_per_warp * g.m // 4, numbers(s, g.k).depth
    more = TERM * (fp.ranks[s.fuse - 1] - 1) + (RING if s.stages > 1 else 0) + FAR * max(0, slices - DEEP)
    return REGISTERS[s.mma] + more + 2 * (g.fragments + sums + slices)


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
        "waits": WAITS,
        "operand": 32 * window * numbers(s, g.k).depth,
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


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """A tile in shared memory a block."""
    from sparsegen.ir.kernels.lowrank import LowRank

    return LowRank(s.tile[0], s.tile[1], s.mma, s.warps, MAX_RANK, stay, per_sm)


def contradictions(s: StencilSchedule) -> None:
    """The tile makes strips of whole fragments, each for as many warps."""
    (rows, cols), m = s.tile, MMA[s.mma][0]
    strips = rows // m
    if not strips or rows % m or s.warps % strips or cols * strips % (8 * s.warps):
        raise ScheduleError(
            f"tile={rows}x{cols} does not make strips of {m} rows and whole blocks of 8 columns for warps={s.warps}",
            hint=f"rows in multiples of {m}, warps a multiple of rows/{m}, and columns a multiple of "
            f"8·warps·{m}/rows, as in tile=64x64 warps=4",
        )


FAMILY = register(StencilFamily(
    name="lowrank",
    words=(
        mma_word("f64.m16n8k4"), number("fuse", 1, 1, 12), Word("tile", pair, (64, 64)), number("warps", 4, 1, 32),
        STAGES,
    ),
    axes=(2,), rim="fused", geometry=geometry, registers=registers, space=space, values=values, work=work,
    kernel=kernel, check=partial(check_mma, shapes=REGISTERS, otherwise="choose tiled or direct"),
    together=lambda s, g, device: True, contradictions=contradictions,
))  # fmt: skip
