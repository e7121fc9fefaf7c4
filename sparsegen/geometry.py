"""The numbers that a schedule means for a stencil of given edge, and whether a device can run it.

They repeat what the lowering passes do, without them: a test compares the two for random schedules.  ``k`` is always
the edge of *one* time step's stencil (2·radius + 1); ``fused_k`` is that after self-convolution.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import ITEMSIZE, MMA, StencilSchedule, unknown

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

#: Most doubles of weights that a lane may hold: half of the 255 registers a thread can have (two registers a double).
MAX_FRAGMENT_DOUBLES = 64
#: A thread's register limit on every GPU since sm_35 (CUDA C++ Programming Guide, compute capabilities).
MAX_REGISTERS = 255
#: A lookup table packs two offsets of 16 bits in a word.
LUT_OFFSETS = 1 << 16
#: Bytes that divide the address of every buffer in shared memory.
ALIGN = 128

#: Products (fragments of accumulators) that a warp may keep: nvcc spills above.
MAX_PRODUCTS = {"mma": 8, "none": 4}


def fused_k(k: int, fuse: int) -> int:
    """Edge of the stencil that does ``fuse`` steps of a k × k stencil at once."""
    return (k - 1) * fuse + 1


def legalise(schedule: StencilSchedule, k: int) -> StencilSchedule:
    """The schedule with its tile resolved for a k × k stencil; ScheduleError if a given tile does not fit it."""
    if k < 1 or k % 2 == 0:
        raise ScheduleError(
            f"a stencil of edge {k}: the edge must be odd", hint="pad the weights with zeros to an odd size"
        )
    if schedule.family != "stencil2row":
        return schedule
    m, kk = MMA[schedule.mma][0], fused_k(k, schedule.fuse)
    unit = m * (kk + 1)
    if schedule.tile is None:
        schedule = dataclasses.replace(schedule, tile=(32, unit))
    assert schedule.tile is not None
    rows, cols = schedule.tile
    if cols % unit:
        raise ScheduleError(
            f"tile={rows}x{cols}: {cols} columns are no multiple of {m}·({kk}+1) = {unit}",
            hint=f"an edge of {kk} (fuse={schedule.fuse}) with mma={schedule.mma} needs tile={rows}x{unit}, "
            f"tile={rows}x{2 * unit}, … or tile=auto",
        )
    if rows * (cols // unit) % schedule.warps:
        raise ScheduleError(
            f"tile={rows}x{cols} gives {rows * (cols // unit)} products of {m} x {kk + 1} outputs, which warps="
            f"{schedule.warps} do not divide",
            hint=f"make the rows a multiple of {schedule.warps}, or change warps",
        )
    return schedule


@dataclass(frozen=True)
class Geometry:
    """The numbers that a schedule means for a stencil of given edge; in elements unless named bytes."""

    k: int  #: edge of the fused stencil
    radius: int
    rows: int  #: outputs of a block's tile
    cols: int
    halo_rows: int  #: rows + k - 1
    halo_cols: int
    threads: int
    smem_bytes: int = 0  #: shared memory of a block
    before: int = 0  #: columns fetched left of the tile: the radius, and what aligns the window to 16 bytes
    pitch_raw: int = 0  #: columns of a raw tile in shared memory, and its row pitch
    raw_tiles: int = 0  #: raw tiles in shared memory
    per_x: int = 1  #: adjacent outputs of a thread (tiled)
    per_y: int = 1  #: its rows of outputs
    m: int = 0  #: rows of an mma (stencil2row only, as all below)
    k_f: int = 0  #: K of the widest mma
    groups: int = 0  #: rows of A and of B: groups of k + 1 columns
    n_tiles: int = 0  #: ceil((k + 1) / 8)
    depth: int = 0  #: k * k rounded up to 4: columns that a product takes from A, and from B
    stride_ab: int = 0  #: row stride of A and B
    offset_b: int = 0  #: A starts at 0
    offset_dirty: int = 0  #: the spare slot, there with or without dirty bits
    products: int = 0  #: m × (k + 1) products of a tile
    tiles_per_warp: int = 0  #: products of one warp
    fragments: int = 0  #: weights that a lane holds
    #: (mma shape, how many a tile), widest first; nothing with mma=none
    mmas: tuple[tuple[str, int], ...] = ()

    @property
    def mma_per_tile(self) -> dict[str, int]:
        """mma instructions of a block's tile, by shape."""
        return dict(self.mmas)


def conflict_free(needed: int) -> int:
    """Smallest row stride ≥ needed (in doubles) that is ≡ 4 or 12 (mod 16): no conflicts in 8 × 4 f64 fragments."""
    return needed + (4 - needed) % 8


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def narrowing(mma: str, slices: int) -> list[tuple[str, int]]:
    """How many mma of which shape run over ``slices`` slices of four: as many as fit of ``mma``, the rest narrower."""
    m, _, k_f, _ = MMA[mma]
    out = []
    for name, (rows, _, k, _) in sorted(MMA.items(), key=lambda item: -item[1][2]):
        if name != "none" and rows == m and k <= k_f and slices >= k // 4:
            out.append((name, slices // (k // 4)))
            slices %= k // 4
    return out


@lru_cache(maxsize=1 << 14)
def geometry(schedule: StencilSchedule, k: int, itemsize: int = 8) -> Geometry:
    """What a (legalised) schedule means for one step's edge ``k``."""
    s = legalise(schedule, k)
    kk = fused_k(k, s.fuse)
    radius = kk // 2
    if s.family == "direct":
        cols, rows = s.block
        return Geometry(kk, radius, rows, cols, rows + kk - 1, cols + kk - 1, s.threads)
    assert s.tile is not None
    rows, cols = s.tile
    hr, hc = rows + kk - 1, cols + kk - 1
    if s.family == "tiled":
        quantum = 16 // itemsize
        before = _up(radius, quantum)
        pitch = _up(before + cols + radius, quantum)
        ty, _, per_x = _threads(s, rows, cols, itemsize)
        return Geometry(
            kk, radius, rows, cols, hr, hc, s.threads, s.stages * hr * pitch * itemsize, before, pitch, s.stages,
            per_x, rows // ty,
        )  # fmt: skip
    m, _, k_f, _ = MMA[s.mma]
    groups = cols // (kk + 1)
    n_tiles, depth = _up(kk + 1, 8) // 8, _up(kk * kk, 4)
    needed = kk * (rows - 1) + depth  # the last product reads this far; >= kk * hr
    stride = conflict_free(needed) if s.pad else needed
    slices, products = 2 * depth // 4, rows * groups // m
    before, raw_tiles = _up(radius, 2), s.stages - 1
    pitch = _up(before + cols + radius, 2)
    smem = _up(2 * groups * stride + 1, 2) * itemsize
    if raw_tiles:
        smem = _up(smem, ALIGN) + raw_tiles * hr * pitch * itemsize
    mmas = [] if s.mma == "none" else [(name, n * n_tiles * products) for name, n in narrowing(s.mma, slices)]
    return Geometry(
        kk, radius, rows, cols, hr, hc, s.threads, 0 if s.transform == "explicit" else smem, before, pitch, raw_tiles,
        m=m, k_f=k_f, groups=groups, n_tiles=n_tiles, depth=depth, stride_ab=stride, offset_b=groups * stride,
        offset_dirty=2 * groups * stride, products=products, tiles_per_warp=products // s.warps,
        fragments=0 if s.mma == "none" else slices * n_tiles, mmas=tuple(mmas),
    )  # fmt: skip


def _threads(s: StencilSchedule, rows: int, cols: int, itemsize: int) -> tuple[int, int, int]:
    """(thread rows, thread columns, adjacent outputs a thread) of ``tiled``: in 16-byte pieces where it can."""
    for per_x in (16 // itemsize, 8 // itemsize, 1):
        strips, rest = divmod(cols, 32 * per_x)
        if not rest and s.warps % strips == 0 and rows % (s.warps // strips) == 0:
            return s.warps // strips, 32 * strips, per_x
    raise ScheduleError(f"tile={rows}x{cols} cannot be shared out among warps={s.warps}")  # refused when it was made


def shared_bytes(schedule: StencilSchedule, k: int, itemsize: int = 8) -> int:
    """Shared memory of a block, in bytes."""
    return geometry(schedule, k, itemsize).smem_bytes


def registers(schedule: StencilSchedule, g: Geometry) -> int:
    """Estimated 32-bit registers of a thread (f64): what must be live in the inner loop, plus addresses and indices.

    The kernel is compiled with this bound, so it must not be too low: ptxas would spill.  Fitted to nvcc 13 on sm_90.
    Up to an edge of 5 and 16 outputs a thread, ``tiled`` needs fewer registers than its values, because ptxas loads
    from shared memory again (32 do for all of them); at an edge of 7 it spills instead.
    """
    if schedule.family == "direct":  # all loads of a point at once, until ptxas gives in; compiled without a bound
        return min(104, 12 + 2 * g.k * g.k)
    if schedule.family == "tiled":  # a column of accumulators, and the values loaded for it
        column = g.rows * g.cols // g.threads
        few = 24 + column + (8 if column > 8 else 0)
        return few if g.k <= 5 and column <= 16 else (32 if column <= 8 else 48) + 4 * column + 3 * (g.k - 1)
    if schedule.mma == "none":  # a lane holds two outputs of each block of 8 columns of its rows
        return 48 + 2 * (g.k + 1) + 4 * g.tiles_per_warp * g.n_tiles
    acc = g.tiles_per_warp * g.n_tiles * g.m // 4  # all of them live over the whole sum
    a = min(g.tiles_per_warp, 4) * g.m * g.k_f // 32  # A fragments in flight
    return (28 if schedule.mma == "f64.m16n8k4" else 48) + 2 * (g.fragments + acc + a)


def legal(schedule: StencilSchedule, k: int, device: DeviceProfile, dtype: str = "f64") -> None:
    """Return if the schedule can run a k × k stencil on the device, else raise a ScheduleError with reason and knob."""
    s = schedule
    if dtype not in ITEMSIZE:
        unknown("stencil dtype", dtype, ITEMSIZE)
    if s.family == "stencil2row" and s.mma != "none" and dtype != "f64":
        raise ScheduleError(
            f"mma={s.mma} multiplies f64, the stencil is {dtype}", hint="set mma=none, or choose tiled or direct"
        )
    g = geometry(s, k, ITEMSIZE[dtype])
    if s.stages > 1 and device.compute_capability < (8, 0):
        raise ScheduleError(
            f"stages={s.stages} copies with cp.async, which needs sm_80; {device.name} is {device.arch}",
            hint="set stages=1",
        )
    if s.family == "stencil2row":
        _stencil2row(s, g, device)
    if g.smem_bytes > device.smem_block:
        raise ScheduleError(
            f"{g.smem_bytes} bytes of shared memory a block; {device.name} has {device.smem_block}",
            hint="make tile= smaller" + (", or lower stages" if s.stages > 1 else ""),
        )
    regs = registers(s, g)
    if regs > MAX_REGISTERS or _up(regs, 8) * g.threads > device.regs_sm:
        raise ScheduleError(
            f"about {regs} registers a thread, {g.threads} threads; {device.name} has {MAX_REGISTERS} a thread and "
            f"{device.regs_sm} an SM",
            hint="lower fuse, make tile= smaller, or change warps",
        )


def _stencil2row(s: StencilSchedule, g: Geometry, device: DeviceProfile) -> None:
    """What only stencil2row asks for: the mma, room for its weights, offsets that fit the table."""
    if s.lut and g.offset_dirty >= LUT_OFFSETS:
        raise ScheduleError(
            f"lut=on: A and B have {g.offset_dirty} elements, the table's offsets end at {LUT_OFFSETS - 1}",
            hint="set lut=off, or make tile= smaller",
        )
    most = MAX_PRODUCTS["none" if s.mma == "none" else "mma"]
    if (sums := g.tiles_per_warp * g.n_tiles) > most:
        raise ScheduleError(
            f"a warp keeps {sums} products of a tile in registers; {most} fit with mma={s.mma}",
            hint="make tile= smaller, or raise warps",
        )
    if s.mma == "none":
        return
    need = MMA[s.mma][3]
    if device.compute_capability < need:
        fits = [m for m, f in MMA.items() if f[3] <= device.compute_capability]
        raise ScheduleError(
            f"mma={s.mma} needs sm_{need[0]}{need[1]}; {device.name} is {device.arch}", hint=f"set mma={fits[0]}"
        )
    for shape in g.mma_per_tile:
        if shape not in device.cpi:
            raise ScheduleError(
                f"mma={s.mma}: the profile of {device.name} has no cycles for {shape}",
                hint="add it to the profile's [cpi]",
            )
    if g.fragments > MAX_FRAGMENT_DOUBLES:
        raise ScheduleError(
            f"an edge of {g.k} (fuse={s.fuse}) keeps {g.fragments} doubles of weights in each lane's registers; "
            f"{MAX_FRAGMENT_DOUBLES} fit",
            hint="lower fuse, or choose tiled or direct",
        )
