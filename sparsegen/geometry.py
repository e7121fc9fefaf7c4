"""The numbers that a schedule means for a stencil of given edge, and whether a device can run it.

They repeat what the lowering passes do, without them: a test compares the two for random schedules.  ``k`` is always
the edge of *one* time step's stencil (2·radius + 1); ``fused_k`` is that after self-convolution.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
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
#: Rows of a block of ``stream`` where neither the schedule nor a field says how many.
ROWS = 512

#: Products (fragments of accumulators) that a warp may keep: nvcc spills above.
MAX_PRODUCTS = {"mma": 8, "none": 4}


def fused_k(k: int, fuse: int) -> int:
    """Edge of the stencil that does ``fuse`` steps of a k × k stencil at once."""
    return (k - 1) * fuse + 1


def with_steps(schedule: StencilSchedule, steps: int, k: int) -> StencilSchedule:
    """The same schedule for passes of ``steps`` time steps; ScheduleError if it has none (``legal`` comes after that).

    ``stencil2row`` keeps its number of column groups, ``stream`` fuses as many steps as divide ``steps`` and does the
    rest as levels.
    """
    if steps == schedule.steps:
        return schedule
    if schedule.family == "stream":
        fuse = next((f for f in range(schedule.fuse, 0, -1) if steps % f == 0 and steps <= 32 * f), None)
        if fuse is None:
            raise ScheduleError(
                f"{schedule.family} cannot do {steps} steps at once with fuse={schedule.fuse} or less",
                hint="do them in several passes",
            )
        return dataclasses.replace(schedule, fuse=fuse, levels=steps // fuse)
    if schedule.family != "stencil2row" or schedule.tile is None:
        return dataclasses.replace(schedule, fuse=steps)
    rows, cols = schedule.tile
    m = MMA[schedule.mma][0]
    groups = cols // (m * (fused_k(k, schedule.fuse) + 1))
    return dataclasses.replace(schedule, fuse=steps, tile=(rows, groups * m * (fused_k(k, steps) + 1)))


def split(schedule: StencilSchedule, steps: int, k: int) -> list[tuple[StencilSchedule, int]]:
    """The passes of ``steps`` time steps, what does not fill a pass first: schedules, and how many passes of each."""
    passes, rest = divmod(steps, schedule.steps)
    parts: list[tuple[StencilSchedule, int]] = []
    while rest:
        most = next(n for n in range(rest, 0, -1) if schedule.family != "stream" or _divides(schedule.fuse, n))
        parts.append((with_steps(schedule, most, k), 1))
        rest -= most
    return [*parts, (schedule, passes)] if passes else parts


def _divides(fuse: int, steps: int) -> bool:
    return any(steps % f == 0 and steps <= 32 * f for f in range(1, fuse + 1))


def misfit(schedule: StencilSchedule, extents: Sequence[int], shape: Sequence[int]) -> str | None:
    """Why one pass on a stencil of these extents does not fit the shape (it is wrapped or mirrored in one piece)."""
    for axis, (n, extent) in enumerate(zip(shape, extents, strict=True)):
        if schedule.family == "stream":
            if n < (reach := extent // 2 * schedule.steps):
                return f"{schedule.steps} steps a pass reach {reach} cells on axis {axis}, which has {n} cells"
        elif n < (wide := fused_k(extent, schedule.fuse)):
            return f"fuse={schedule.fuse} makes the stencil {wide} cells wide on axis {axis}, which has {n} cells"
    return None


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
    reach: int = 0  #: halo rows of a tile, above and below together
    radius_y: int = 0  #: rows that one level reaches (stream; ``radius`` is for columns)
    width: int = 0  #: columns of a warp's strip, its halo of ``before`` on both sides included (stream)
    words: int = 2  #: 32-bit registers an element
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
def geometry(schedule: StencilSchedule, k: int, itemsize: int = 8, flat: bool = False) -> Geometry:
    """What a (legalised) schedule means for one step's edge ``k``; ``flat``: the weights have one row of ``k``."""
    s = legalise(schedule, k)
    kk = fused_k(k, s.fuse)
    radius = kk // 2
    if s.family == "stream":
        return _stream(s, kk, 0 if flat else radius, itemsize)
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


def _stream(s: StencilSchedule, kk: int, ry: int, itemsize: int) -> Geometry:
    """Strips of 32 * cols columns, a warp each; rows come through the warp's ring, levels stay in registers."""
    piece, width, rows = 16 // itemsize, 32 * s.cols, s.rows or ROWS
    lead = _up(s.levels * (kk // 2), piece)
    step = width - 2 * lead
    if step <= 0 or kk // 2 > s.cols or s.cols % piece:
        raise ScheduleError(
            f"cols={s.cols} columns a lane must be a multiple of {piece} (16 bytes)" if s.cols % piece
            else f"radius {kk // 2} (fuse={s.fuse}) reaches beyond the neighbouring lane, which owns cols={s.cols}"
            if kk // 2 > s.cols
            else f"levels={s.levels} of radius {kk // 2} leave nothing of a strip of {width} columns",
            hint="take more columns a lane, or lower levels or fuse",
        )  # fmt: skip
    slot = width + width // (8 * piece) * piece  # a piece left out after every eight, against bank conflicts
    reach = 2 * s.levels * ry
    return Geometry(
        kk, kk // 2, rows, s.warps * step, rows + reach, s.warps * width, s.threads,
        s.warps * s.stages * slot * itemsize, lead, slot, s.stages, s.cols, reach=reach, radius_y=ry, width=width,
        words=itemsize // 4,
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


def registers(schedule: StencilSchedule, g: Geometry, full: bool | None = None) -> int:
    """Estimated 32-bit registers of a thread (f64): what must be live in the inner loop, plus addresses and indices.

    The kernel is compiled with this bound, so it must not be too low: ptxas would spill.  Fitted to nvcc 13 on sm_90.
    Up to an edge of 5 and 16 outputs a thread, ``tiled`` needs fewer registers than its values, because ptxas loads
    from shared memory again (32 do for all of them); at an edge of 7 it spills instead.
    ``full``: whether no weight is zero (None: not known, the higher of both; only ``stream`` depends on it).
    """
    if schedule.family == "stream":
        box, star = _stream_registers(schedule, g)
        return max(box, star) if full is None else box if full else star
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
    addresses = (28 if schedule.mma == "f64.m16n8k4" else 48) + (24 if g.groups > g.m else 0)
    far = 40 if schedule.transform == "explicit" else 0  # operands from global memory are all loaded early
    return addresses + far + 2 * (g.fragments + acc + a)


def _stream_registers(s: StencilSchedule, g: Geometry) -> tuple[int, int]:
    """Registers of ``stream``: of a full stencil, and of one with zeros.  Within 6 % of nvcc 13 on sm_90 above 100.

    Sums of the unfinished rows, ``words`` each; a star keeps some values longer (ptxas orders its few taps so), a wide
    box more weights.
    """
    row, sums = g.words * s.cols, 2 * s.levels * g.radius_y * g.words * s.cols
    if not g.radius_y:
        flat = 20 + g.words * (s.cols + 2 * g.radius)
        return max(64, flat), max(64, flat)
    extra = g.words * s.cols * (5 * (g.radius - 2)) // 2 * (s.levels if g.radius > 3 else 1) if g.radius > 2 else 0
    box = 24 + 2 * row + extra + sums + 3 * max(0, s.levels - 8) + (8 if s.unroll > 1 else 0)
    longer = 3 * min(row, 8) // 4 if g.words == 2 else 3
    wide = max(3, 3 * s.cols // 4) * g.radius + (24 if g.words == 1 and s.cols > 8 else 0)
    star = 8 + 2 * row + wide + longer * s.levels + sums
    return max(64, box), max(64, star)


def legal(
    schedule: StencilSchedule, k: int, device: DeviceProfile, dtype: str = "f64", full: bool | None = None,
    flat: bool = False,
) -> None:  # fmt: skip
    """Return if the schedule can run a k × k stencil on the device, else raise a ScheduleError with reason and knob.

    ``full``: whether none of its weights is zero (None: not known); ``flat``: it has one row only.
    """
    s = schedule
    if dtype not in ITEMSIZE:
        unknown("stencil dtype", dtype, ITEMSIZE)
    if s.family == "stencil2row" and s.mma != "none" and dtype != "f64":
        raise ScheduleError(
            f"mma={s.mma} multiplies f64, the stencil is {dtype}", hint="set mma=none, or choose tiled or direct"
        )
    g = geometry(s, k, ITEMSIZE[dtype], flat)
    if s.stages > 1 and device.compute_capability < (8, 0):
        raise ScheduleError(
            f"stages={s.stages} copies with cp.async, which needs sm_80; {device.name} is {device.arch}",
            hint="choose direct or tiled" if s.family == "stream" else "set stages=1",
        )
    if s.family == "stencil2row":
        _stencil2row(s, g, device)
    if g.smem_bytes > device.smem_block:
        raise ScheduleError(
            f"{g.smem_bytes} bytes of shared memory a block; {device.name} has {device.smem_block}",
            hint="lower stages, warps or cols"
            if s.family == "stream"
            else "make tile= smaller" + (", or lower stages" if s.stages > 1 else ""),
        )
    regs = registers(s, g, full)
    if regs > MAX_REGISTERS or _up(regs, 8) * g.threads > device.regs_sm:
        raise ScheduleError(
            f"about {regs} registers a thread, {g.threads} threads; {device.name} has {MAX_REGISTERS} a thread and "
            f"{device.regs_sm} an SM",
            hint="lower levels, fuse or cols"
            if s.family == "stream"
            else "lower fuse, make tile= smaller, or change warps",
        )


def _stencil2row(s: StencilSchedule, g: Geometry, device: DeviceProfile) -> None:
    """What only stencil2row asks for: the mma, room for its weights, offsets that fit the table."""
    if s.lut and g.offset_dirty >= LUT_OFFSETS:
        raise ScheduleError(
            f"lut=on: A and B have {g.offset_dirty} elements, the table's offsets end at {LUT_OFFSETS - 1}",
            hint="set lut=off, or make tile= smaller",
        )
    most = MAX_PRODUCTS["none" if s.mma == "none" or s.transform == "explicit" else "mma"]
    if (sums := g.tiles_per_warp * g.n_tiles) > most:
        raise ScheduleError(
            f"a warp keeps {sums} products of a tile in registers; {most} fit with mma={s.mma}",
            hint="make tile= smaller, or raise warps",
        )
    if s.mma == "none":
        return
    if sums < 2:
        raise ScheduleError(
            "a warp with one product loads all its operands at once, and nvcc spills them",
            hint="make tile= larger, or lower warps",
        )
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
