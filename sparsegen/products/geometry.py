"""What a schedule means for a product in numbers, which schedules are legal, and which are tried."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.op_spmm import SLAB, STRIP
from sparsegen.products.product import MAX_ROWS, Problem
from sparsegen.products.schedule import COLUMNS, MMA, SpmmSchedule

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

#: Bytes of a tile's index entry and masks; of one value chunk; what a slot's values are rounded up to.
TILE_BYTES, CHUNK, ALIGN = 16 + 128, 8, (512, 16)
#: Chunks that a copy may bring besides the tiles' own: it begins at an even one, ends at one, and a lane reads past.
SPARE: Final = 3
#: Registers of a thread besides sums and x: the least that nvcc 13.0 made do with on sm_90a without spills, or little
#: more (it takes up to 15 more where they are free).
OTHER_REGISTERS: Final = 44
MAX_REGISTERS: Final = 255
#: Asynchronous copies and the mma need this compute capability; bulk copies into shared memory this one.
NEEDS: Final = (8, 0)
BULK: Final = (9, 0)
#: What the search tries: warps along the rows, and along the slabs; strips of a warp; stages; splits.
ROW_WARPS, SLAB_WARPS, MOST_WARPS = tuple(range(1, 9)), (*range(1, 9), 10, 12, 16), (4, 28)
ROWS, STAGES, SPLITS = tuple(range(1, MAX_ROWS + 1)), (2, 3, 4), (1, 2, 3, 4, 6, 8, 16)


class Geometry(NamedTuple):
    """The numbers of a complete bitmap schedule; a tuple, because tens of thousands are made for a choice.

    ``groups``: runs of strips; ``tiles``: of columns of x; ``chunks``: of values that a slot has room for;
    ``shared``: bytes a block; ``registers``: a thread, an estimate; ``resident``: blocks an SM at a time.
    """

    strips: int
    slabs: int
    tiles: int
    groups: int
    blocks: int
    chunks: int
    sums: int  #: that a lane holds
    strips_warp: int  #: strips of the busiest warp
    slabs_warp: int  #: slabs that it walks
    shared: int
    registers: int
    resident: int


def geometry(p: Problem, s: SpmmSchedule, device: DeviceProfile) -> Geometry:
    """The numbers of a complete schedule, legal or not."""
    row_warps, slab_warps = s.warps
    strips, slabs, tiles = -(-p.m // STRIP), -(-p.k // SLAB), -(-p.n // s.cols)
    least = -(-strips // (row_warps * s.rows))
    apiece = s.splits * tiles  # blocks of a run of strips
    waves = -(-least * apiece // device.sms)
    groups = min(strips, max(least, waves * device.sms // apiece))
    each = 2 if s.mma == "none" else s.cols // 2  # sums of a lane, a strip
    warps = row_warps * slab_warps
    values = CHUNK * (p.widest[s.rows - 1] + SPARE)
    coarse, fine = (-(-values // n) * n for n in ALIGN)  # coarsely, matrices of one shape share a kernel
    slots = warps * s.stages
    room = coarse if slots * (s.rows * TILE_BYTES + coarse + 8) <= device.smem_block else fine
    shared = (
        max(slots * (s.rows * TILE_BYTES + room), warps * s.rows * each * 128)
        + 8 * slots * (device.compute_capability >= BULK)  # barriers
        + 4 * (s.splits > 1)
    )
    registers = s.rows * each + (16 if s.mma == "none" else s.cols) + OTHER_REGISTERS
    blocks = groups * apiece
    resident = min(
        device.smem_sm // (shared + 1024),  # the driver keeps 1 KiB of each block's for itself
        device.regs_sm // (-(-registers // 8) * 8 * _whole(s, device)),
        device.max_threads_sm // s.threads,
        device.max_blocks_sm,
        -(-blocks // device.sms),
    )
    block, part = -(-strips // groups), -(-slabs // s.splits)  # of the busiest block
    return Geometry(
        strips, slabs, tiles, groups, blocks, room // CHUNK, s.rows * each, -(-block // row_warps),
        -(-part // slab_warps), shared, registers, max(1, resident),
    )  # fmt: skip


def _whole(s: SpmmSchedule, device: DeviceProfile) -> int:
    """Threads of a block as far as registers are concerned: as if each sub-core had as many of its warps."""
    each = 32 * device.sub_cores
    return -(-s.threads // each) * each


def legal(p: Problem, s: SpmmSchedule, device: DeviceProfile) -> Geometry:
    """The numbers of a complete schedule; ScheduleError if it cannot run the product on the device."""
    if device.compute_capability < NEEDS:
        raise ScheduleError(
            f"bitmap schedules copy asynchronously, which needs sm_{NEEDS[0]}{NEEDS[1]}; "
            f"{device.name} is {device.arch}",
            hint="choose such a device, or schedule='dense' on torch or CuPy arrays",
        )
    if MMA[s.mma] not in ("", p.dtype):
        raise ScheduleError(
            f"mma={s.mma} does not multiply {p.dtype} weights", hint=f"set mma={p.dtype}.m16n8k16, or leave it out"
        )
    if s.mma == "none" and p.n != 1:
        raise ScheduleError(
            f"mma=none cols=1 is for a single column, not n={p.n}", hint=f"set mma={p.dtype}.m16n8k16, or cols=8"
        )
    g = geometry(p, s, device)
    if s.splits > g.slabs:
        raise ScheduleError(
            f"splits={s.splits}, but W has {g.slabs} slab{'s' * (g.slabs > 1)} of {SLAB} columns",
            hint=f"lower splits to {g.slabs} or less",
        )
    most = min(MAX_REGISTERS, device.regs_sm // _whole(s, device) // 8 * 8)
    if g.registers > most:
        raise ScheduleError(
            f"{g.registers} registers a thread; {s.threads} threads leave {most}", hint="lower rows, cols or warps"
        )
    if g.shared > device.smem_block:
        raise ScheduleError(
            f"{g.shared} bytes of shared memory a block; {device.name} has {device.smem_block}",
            hint="lower rows, stages or warps",
        )
    return g


def space(p: Problem, wanted: SpmmSchedule) -> Iterator[SpmmSchedule]:
    """Every complete bitmap schedule that is tried, legal or not, with the words that ``wanted`` has."""
    cores = wanted.cols == 1 or (p.n == 1 and not wanted.cols)  # whether one column on the CUDA cores is tried
    shapes = [f"{p.dtype}.m16n8k16"] * (wanted.cols != 1) + ["none"] * cores
    enough = next((c for c in COLUMNS if c >= p.n), COLUMNS[-1])
    cols = [wanted.cols] if wanted.cols else [c for c in COLUMNS if c <= enough]
    warps = [(r, c) for r, c in combinations(ROW_WARPS, SLAB_WARPS) if MOST_WARPS[0] <= r * c <= MOST_WARPS[1]]
    if wanted.warps != (0, 0):
        warps = [wanted.warps]
    rows = [wanted.rows] if wanted.rows else ROWS
    stages = [wanted.stages] if wanted.stages else STAGES
    slabs = -(-p.k // SLAB)
    splits = [wanted.splits] if wanted.splits else [n for n in SPLITS if n <= slabs]
    for shape in [wanted.mma] if wanted.mma else shapes:
        for rest in combinations([1] if shape == "none" else cols, warps, rows, stages, splits):
            yield SpmmSchedule("bitmap", shape, *rest)
