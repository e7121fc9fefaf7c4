"""The numbers that a schedule means for a stencil, and whether a device can run it.

They repeat what the lowering passes do, without them: a test compares the two for random schedules.  What a family
means is in its module of :mod:`sparsegen.families`; here is what all have in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from sparsegen.cost.devices import AMPERE
from sparsegen.families.base import MAX_REGISTERS, Geometry, family, fused_k, takers
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.types import DTYPES, cell_type
from sparsegen.schedule import StencilSchedule, unknown
from sparsegen.sizes import ITEMSIZE, MMA

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.dsl.stencil import Stencil


def with_steps(schedule: StencilSchedule, steps: int, k: int) -> StencilSchedule:
    """The same schedule for passes of ``steps`` time steps; ScheduleError if it has none (``legal`` comes after that).

    ``stencil2row`` keeps its number of column groups; where levels follow one another, as many steps are fused as
    divide ``steps``, and the rest are levels.
    """
    if steps == schedule.steps:
        return schedule
    if schedule.levelled:
        fuse = next(_divisors(schedule, steps), None)
        if fuse is None:
            raise ScheduleError(
                f"{schedule.family} cannot do {steps} steps at once with fuse={schedule.fuse} or less",
                hint="do them in several passes",
            )
        return schedule.but(fuse=fuse, levels=steps // fuse)
    if schedule.family != "stencil2row" or schedule.tile is None:
        return schedule.but(fuse=steps)
    rows, cols = schedule.tile
    m = MMA[schedule.mma][0]
    groups = cols // (m * (fused_k(k, schedule.fuse) + 1))
    return schedule.but(fuse=steps, tile=(rows, groups * m * (fused_k(k, steps) + 1)))


def split(schedule: StencilSchedule, steps: int, k: int) -> list[tuple[StencilSchedule, int]]:
    """The passes of ``steps`` time steps, what does not fill a pass first: schedules, and how many passes of each."""
    passes, rest = divmod(steps, schedule.steps)
    parts: list[tuple[StencilSchedule, int]] = []
    while rest:
        most = next(n for n in range(rest, 0, -1) if not schedule.levelled or any(_divisors(schedule, n)))
        parts.append((with_steps(schedule, most, k), 1))
        rest -= most
    return [*parts, (schedule, passes)] if passes else parts


def _divisors(schedule: StencilSchedule, steps: int) -> Iterator[int]:
    """How many steps a level may fuse, the most first, so that whole levels do ``steps``."""
    own = family(schedule)
    most = schedule.levels if own.levels_bound else own.by_name["levels"].high or 1
    for fuse in range(schedule.fuse, 0, -1):
        if steps % fuse == 0 and steps <= most * fuse:
            yield fuse


def too_long(schedule: StencilSchedule, shape: Sequence[int]) -> bool:
    """Whether rows are longer than those of a family whose blocks have whole ones."""
    return family(schedule).whole_rows and shape[-1] > schedule.cols


def misfit(schedule: StencilSchedule, extents: Sequence[int], shape: Sequence[int]) -> str | None:
    """Why one pass on a stencil of these extents does not fit the shape (it is wrapped or mirrored in one piece)."""
    for axis, (n, extent) in enumerate(zip(shape, extents, strict=True)):
        if schedule.levelled:
            if n < (reach := extent // 2 * schedule.steps):
                return f"{schedule.steps} steps a pass reach {reach} cells on axis {axis}, which has {n} cells"
        elif n < (wide := fused_k(extent, schedule.fuse)):
            return f"fuse={schedule.fuse} makes the stencil {wide} cells wide on axis {axis}, which has {n} cells"
    if too_long(schedule, shape):
        return f"cols={schedule.cols}: a block has whole rows, and these have {shape[-1]} cells"
    return None


def legalise(schedule: StencilSchedule, k: int, axes: int = 2) -> StencilSchedule:
    """The schedule with its tile resolved for a stencil of edge k; ScheduleError if a given tile does not fit it."""
    if k < 1 or k % 2 == 0:
        raise ScheduleError(
            f"a stencil of edge {k}: the edge must be odd", hint="pad the weights with zeros to an odd size"
        )
    if schedule.family != "stencil2row":
        return schedule
    m, kk = MMA[schedule.mma][0], fused_k(k, schedule.fuse)
    unit = m * (kk + 1)
    if schedule.tile is None:
        tile = (1, 2 * schedule.warps * unit) if axes == 1 else (32, unit)  # 1024 outputs of a row: the paper's
        schedule = schedule.but(tile=tile)
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


@lru_cache(maxsize=1 << 14)
def geometry(schedule: StencilSchedule, fp: Footprint) -> Geometry:
    """What a schedule means for a stencil."""
    s = legalise(schedule, fp.k, fp.axes)
    return family(s).geometry(s, fp)


def _too_fused(fuse: int, fp: Footprint) -> ScheduleError:
    from sparsegen.ir.fuse import LOSS

    sums, over = cell_type(DTYPES[fp.dtype]).name, fp.lost == math.inf
    first = f"from {fp.fusable + 1} steps on the fused"
    what = (
        f"{first} weights overflow {sums}, or vanish in it"
        if over
        else f"weights of both signs cancel; {first} ones would be off by {fp.lost:.1e} of their size or more, "
        f"{LOSS[sums]:g} is allowed"
    )
    knob = f"set fuse={fp.fusable}" + (" or less" if fp.fusable > 1 else "")
    return ScheduleError(f"fuse={fuse}: {what}", hint=knob + (", or scale the weights" if over else ""))


def _width(s: StencilSchedule) -> str:
    """The word of a family's line that says how much of a row or plane a warp has."""
    return next((word for word in ("cols", "lines", "strips", "products") if s.rules.has(word)), "block")


def legal(schedule: StencilSchedule, fp: Footprint, device: DeviceProfile) -> None:
    """Return if the schedule can run the stencil on the device, else raise a ScheduleError with reason and knob."""
    s = schedule
    if fp.dtype not in ITEMSIZE:
        unknown("stencil dtype", fp.dtype, ITEMSIZE)
    own = family(s)
    if fp.axes not in own.axes:
        raise ScheduleError(
            f"{s.family} takes fields of {' or '.join(map(str, own.axes))} axes, the stencil has {fp.axes}"
            + (" (one row of weights works on each row alone)" if fp.flat else ""),
            hint=f"choose {takers(fp.axes)}",
        )
    if (
        fp.axes == 3
        and own.rim == "fused"
        and s.fuse > 1
        and not (fp.boundary == "periodic" or (fp.boundary == "neumann" and fp.mirrored))
    ):
        raise ScheduleError(
            f"fuse={s.fuse}: near a {fp.boundary} border fused steps are wrong, and on three axes no rim mends them",
            hint="set fuse=1, or choose column",
        )
    if s.fuse > fp.fusable:
        raise _too_fused(s.fuse, fp)
    if fp.dtype == "u8" and (not own.bytes or s.steps > 1):
        raise ScheduleError(
            f"{s.family} {f'does {s.steps} steps a pass and ' * (s.steps > 1)}does not round to bytes after each step",
            hint="choose direct, with fuse=1",
        )
    g = geometry(s, fp)
    if s.stages > 1 and device.compute_capability < AMPERE:
        raise ScheduleError(
            f"stages={s.stages} copies with cp.async, which needs sm_80; {device.name} is {device.arch}",
            hint="choose direct or tiled" if s.rules.by_name["stages"].low > 1 else "set stages=1",
        )
    if own.check:
        own.check(s, g, fp, device)
    if g.smem_bytes > device.smem_block:
        raise ScheduleError(
            f"{g.smem_bytes} bytes of shared memory a block; {device.name} has {device.smem_block}",
            hint="make tile= smaller" + (", or lower stages" if s.stages > 1 else "")
            if s.tile
            else f"lower stages, warps or {_width(s)}",
        )
    regs = own.registers(s, g, fp)
    if regs > MAX_REGISTERS or up(regs, 8) * up(g.threads, 32 * device.sub_cores) > device.regs_sm:
        raise ScheduleError(
            f"about {regs} registers a thread, {g.threads} threads; {device.name} has {MAX_REGISTERS} a thread and "
            f"{device.regs_sm} an SM",
            hint="lower fuse, make tile= smaller, or change warps" if s.tile else f"lower levels, fuse or {_width(s)}",
        )


def check(
    stencil: Stencil, shape: tuple[int, ...], schedule: StencilSchedule, profile: DeviceProfile
) -> StencilSchedule:
    """The schedule with its tile resolved; ScheduleError if it cannot run this stencil and shape on the device."""
    fp = Footprint.of(stencil)
    chosen = legalise(schedule, fp.k, fp.axes)
    if reason := misfit(chosen, stencil.weights.shape, shape):
        raise ScheduleError(reason, hint="raise cols, or choose another family" if too_long(chosen, shape)
                            else "lower fuse (or levels), or compile for a larger shape")  # fmt: skip
    legal(chosen, fp, profile)
    return chosen
