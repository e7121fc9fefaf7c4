"""``patches``: temporal blocking on tensor cores; a warp walks down a strip with its levels, two rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sparsegen.cost.devices import DeviceProfile
from sparsegen.families.base import COPY_WAVES, MAX_REGISTERS, Geometry, Num, StencilFamily, Work, fused_k, number
from sparsegen.families.mma import check_mma, mma_values, mma_word, narrowing
from sparsegen.families.stream import ROWS, filled
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.patches import PATCH, Groups
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, integer
from sparsegen.sizes import MAX_FUSE, MMA

#: How far a level reaches at most.
FARTHEST = 3
#: Fragments of unfinished sums that only just fit.
CROWDED = 12
#: The mma that are used: the narrowest, which every GPU with f64 tensor cores has, and the widest.
SHAPES = ("f64.m8n8k4", "f64.m16n8k16")
#: Time of the memory for blocks that stay, over that of free ones; fitted on one H200 (tests/cost/measured.py).  Less
#: than elsewhere (STATIC in cost/terms.py), perhaps because results leave straight from registers.
STATIC = 1.13
#: Warp instructions of a pair of rows, an mma, 32 copies, and 32 outputs; what levels pass on takes one each.  Counters
#: of 15 generated kernels on one H200 (nvcc 13), within 7 %.
TURN, MULTIPLY, COPY, STORE = 76.0, 3.3, 1.2, 3.9


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """Strips of ``strips`` x M patches, a warp each; pairs of rows come through its ring, sums stay in registers."""
    kk = fused_k(fp.k, s.fuse)
    r, levels, rows = kk // 2, s.levels, s.rows or ROWS
    m, _, k_f, _ = MMA[s.mma]
    n = Groups(radius=(r, r), levels=levels, m=m, strips=s.strips, rows=rows, warps=s.warps, stages=s.stages)
    if n.step <= 0:
        raise ScheduleError(
            f"levels={levels} of radius {r} leave nothing of a strip of {n.columns} columns",
            hint="take fewer levels, a lower fuse, or more strips",
        )
    smem = (n.ring + n.between) * fp.itemsize
    slices, sums = n.window.slices, s.warps * n.turns * levels * s.strips * n.touched
    return Geometry(
        kk, *n.tile, rows + PATCH[0] * n.delay, s.warps * n.width, s.threads, smem, n.lead, n.pitch, m=m, k_f=k_f,
        depth=4 * slices, fragments=n.fragments, width=n.width,
        mmas=tuple((name, count * sums) for name, count in narrowing(s.mma, slices)),
    )  # fmt: skip


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """Weights, operands, and the sums of the unfinished rows.

    The least with which none of 334 kernels spilled (nvcc 13, sm_80 and sm_90), 11 more in the mean (m8n8k4: 18).
    Where an mma is a whole sum its operands stay in place; a sum of several keeps copies, as many as there is room for.
    """
    strips, levels, r = int(s.strips), int(s.levels), g.radius
    slices, touched = g.depth // 4, r + 1
    if g.m == 8:
        return 20 + 4 * levels + 2 * g.fragments + strips * (4 * levels * r + slices + 6)
    if g.depth == g.k_f:
        return 31 + 33 * strips + levels * (14 + 10 * strips)
    if strips <= 2 and strips * levels * r == CROWDED:
        return MAX_REGISTERS
    return 4 + 4 * levels + 4 * g.fragments + 2 * strips * (1 + 3 * (slices + levels * touched))


def check(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile) -> None:
    """The mma, how far a level reaches, and whole patches."""
    check_mma(s, g, fp, device, SHAPES, "choose stream, tiled or direct")
    if not 1 <= g.radius <= FARTHEST:
        raise ScheduleError(
            f"a level of fuse={s.fuse} steps of radius {fp.radius} reaches {g.radius} cells; patches of "
            f"{PATCH[0]}x{PATCH[1]} outputs take 1 to {FARTHEST}",
            hint="lower fuse" if 1 <= fp.radius <= FARTHEST else "choose stream or stencil2row",
        )
    if s.rows is not None and s.rows % PATCH[0]:
        raise ScheduleError(
            f"rows={s.rows}: a patch is {PATCH[0]} rows high", hint=f"make it a multiple of {PATCH[0]}, or rows=auto"
        )


def space(fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
    """Both mma; fusions and levels whose reach a patch takes, strips as wide as registers allow and narrower."""
    for mma, widths in zip(SHAPES, ((2, 4), (1, 2, 3)), strict=True):
        for fuse in range(1, FARTHEST // max(1, fp.radius) + 1):
            for levels in range(1, min(limit // fuse, 5) + 1):
                for strips in widths:
                    yield StencilSchedule("patches", mma=mma, fuse=fuse, levels=levels, strips=strips)


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """Strips, levels and the mma's cycles; its results are stored as single elements, a warp's side by side."""
    return {
        "half": 1,
        "static": STATIC,
        "W": g.halo_cols,
        "T": s.levels,
        "M": g.m,
        "D": g.depth,
        "strips": s.strips,
        "warps": s.warps,
        **mma_values(g, device),
        "fragments": g.fragments,
    }


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """Two rows at a time go through all levels; what a level has made waits in shared memory for the next turn."""
    turns = (v.R + v.reach) / PATCH[0]
    moved = turns * v.warps * v.strips * v.M * v.T * (v.D + 8)  # windows that levels read, outputs that they pass on
    use = {
        "tensor": v.q_mma / v.sub,
        "shared": (moved + COPY_WAVES * element) * v.item / v.bw_S,
        "issue": (moved / 32 + v.n_mma * MULTIPLY + element / v.vector / 32 * COPY + turns * v.warps * TURN
                  + out / 32 * STORE) / v.sub,
    }  # fmt: skip
    setup = v.lat_dram + v.fragments * v.threads * v.item / v.bw_L2
    wait = turns * v.lat_shared + v.lat_dram
    return Work((use,), wait, element, (v.R + v.reach) / v.R, setup, turns)


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """A strip a warp; what a border reaches is left to a rim."""
    from sparsegen.ir.kernels.patches import Patches

    return Patches(s.mma, s.strips, g.rows, s.warps, s.stages, per_sm)


FAMILY = register(StencilFamily(
    name="patches",
    words=(
        mma_word("f64.m16n8k16"), number("fuse", 2, 1, MAX_FUSE), number("levels", 3, 1, 8), number("strips", 2, 1, 4),
        Word("rows", integer, auto=True), number("warps", 4, 1, 8), number("stages", 6, 2, 8),
    ),
    axes=(2,), rim="all", geometry=geometry, registers=registers, check=check, space=space, values=values,
    work=work, kernel=kernel, filled=partial(filled, unit=PATCH[0]),
    levels_bound=True,  # a narrower sum does not make room for more
))  # fmt: skip
