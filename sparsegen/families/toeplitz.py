"""``toeplitz``: one row as a product with a banded Toeplitz matrix on tensor cores, many steps fused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.base import COPY_WAVES, Geometry, Num, StencilFamily, Work, fused_k, number
from sparsegen.families.mma import check_mma, mma_values, mma_word
from sparsegen.footprint import Footprint
from sparsegen.ir.numbers.toeplitz import SEGMENT, Runs
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, integer
from sparsegen.sizes import MMA

#: Windows of a run: runs of whole 128 bytes, whose sums fit a lane's registers.  Sixteen took 533 us for 32 steps on
#: one H200 where eight take 441.
PRODUCTS = (4, 8)
#: Most time steps that are fused.
MOST_FUSED = 64
#: Time of the memory for blocks that stay, over that for blocks of one tile each (tests/cost/measured.py).
STATIC = 1.08
#: Independent instructions of a warp that overlap: few, a run's products wait for each other; fitted.
ILP = 1.2
#: Clocks that the warps of a block wait for each other, tile by tile; fitted.
SKEW = 200.0
#: Warp instructions of 32 elements read, an mma, 64 outputs, and a warp's tile.  Counters of 25 generated kernels on
#: one H200 (nvcc 13), within 10 %.
READ, MULTIPLY, STORE, TILE = 2.5, 1.3, 9.5, 77.0
#: By mma shape: registers for addresses and operand A; above how many products of a run each costs how many more; and
#: the least with few and with more products (nvcc loads ahead, and spills below).  Fitted to nvcc 13 on sm_90.
REGISTERS = {
    "f64.m8n8k4": (40, 16, 0, 0, 0),
    "f64.m16n8k4": (64, 4, 6, 100, 130),
    "f64.m16n8k8": (85, 8, 3, 0, 0),
}


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """Runs of ``products`` windows, one run a fragment row; ``n_tiles`` groups of 8 columns make a window."""
    kk = fused_k(fp.k, s.fuse)
    m, _, k_f, _ = MMA[s.mma]
    n = Runs(radius=kk // 2, m=m, products=s.products, warps=s.warps)
    return Geometry(
        kk, 1, n.cols, 1, n.width, s.threads, s.stages * n.slot * fp.itemsize, n.lead, n.width, m=m, n_tiles=n.bands,
        tiles_per_warp=s.products, fragments=2 * n.bands,
        mmas=((s.mma, s.warps * s.products * n.bands * SEGMENT // k_f),),
    )  # fmt: skip


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """Weights, the unfinished sums, and what is loaded ahead."""
    base, few, more, least, least_many = REGISTERS[s.mma]
    sums = g.m // 2 * min(s.products, g.n_tiles)
    need = base + 2 * g.fragments + sums + more * max(0, s.products - few)
    return int(max(need, least_many if s.products > few else least))


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Every mma shape; fusions whose windows are whole groups of 8 columns."""
    for mma in REGISTERS:
        for fuse in range(1, min(limit, MOST_FUSED) + 1):
            if fp.radius * fuse % 4 and fuse < limit:
                continue
            for products, warps, stages in ((p, w, n) for p in (4, 8) for w in (1, 4) for n in (2, 3)):
                yield StencilSchedule(
                    "toeplitz", mma=mma, fuse=fuse, products=products, warps=warps, stages=stages
                )  # fmt: skip


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """Products and their cycles; a field of one row starts at a 16-byte boundary whatever its length."""
    return {
        "static": STATIC,
        "ilp": ILP,
        "together": device.lat_barrier + SKEW if s.warps > 1 else 0.0,
        "half": 1,
        "vector": 16 / fp.itemsize,
        "M": g.m,
        "warps": s.warps,
        **mma_values(g, device),
        "fragments": g.fragments,
    }


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A run's columns are read once each, and added to all the windows that they lie in.

    A warp's mma go to the tensor core of its sub-core, and what they leave idle only warps of that sub-core can use.
    """
    runs = out + v.warps * v.M * (v.W - v.C)  # each run has the halo of the window
    table = v.fragments * v.threads * v.item
    use = {
        "tensor": v.q_mma / v.sub,
        "shared": (runs + COPY_WAVES * element) * v.item / v.bw_S,
        "issue": (runs / 32 * READ + v.n_mma * MULTIPLY + out / 64 * STORE + v.warps * TILE) / v.sub,
    }
    share = min(1, s.warps / v.sub)
    return Work((use,), v.together + v.lat_shared, element, setup=v.lat_dram, table=table, share=share)


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """Runs of windows; what a border reaches is left to a rim."""
    from sparsegen.ir.kernels.toeplitz import Toeplitz

    return Toeplitz(s.mma, s.products, s.warps, stay, per_sm)


FAMILY = register(StencilFamily(
    name="toeplitz",
    words=(
        mma_word("f64.m8n8k4"), number("fuse", 1, 1, MOST_FUSED), Word("products", integer, 4, choices=PRODUCTS),
        number("warps", 1, 1, 8), number("stages", 2, 2, 4),
    ),
    axes=(1,), rim="all", geometry=geometry, registers=registers, space=space, values=values, work=work,
    kernel=kernel, check=partial(check_mma, shapes=REGISTERS, otherwise="choose stream or direct"),
))  # fmt: skip
