"""What a schedule means for a product in numbers, which schedules are legal, and which are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sparsegen.cost.arithmetic import ARRAYS, NUMBERS
from sparsegen.cost.devices import AMPERE, HOPPER, DeviceProfile
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.bitmap import CHUNK, INDEX, MASKS, lane_sums
from sparsegen.ir.numbers.experts import TASK
from sparsegen.ir.op_spmm import SLAB, STRIP
from sparsegen.products.product import MAX_ROWS, BitmapNumbers
from sparsegen.schedule import SpmmSchedule

#: Bytes of a tile's index entry and masks; what a slot's values are rounded up to.
TILE_BYTES, ALIGN = 4 * (INDEX + MASKS), (512, 16)
#: Chunks that a copy may bring besides the tiles' own: it begins at an even one, ends at one, and a lane reads past.
SPARE: Final = 3
#: Registers of a thread besides sums and x: the least that nvcc 13.0 made do with on sm_90a without spills, or little
#: more (it takes up to 15 more where they are free).
OTHER_REGISTERS: Final = 44
MAX_REGISTERS: Final = 255
#: The conversion of e4m3 to f16 needs this compute capability.
WIDENS: Final = (8, 9)
#: mma shape -> the type of weights that it multiplies; ``none``: multiply-adds on the CUDA cores, one column.
MMA: Final[dict[str, str]] = {"f16.m16n8k16": "f16", "bf16.m16n8k16": "bf16", "none": ""}
#: Columns of x that a block works on with an mma.
COLUMNS: Final = (8, 16, 32, 64)
#: What the search tries: warps along the rows, and along the slabs; strips of a warp; stages; splits.
ROW_WARPS, SLAB_WARPS, MOST_WARPS = tuple(range(1, 9)), (*range(1, 9), 10, 12, 16), (4, 28)
ROWS, STAGES, SPLITS = tuple(range(1, MAX_ROWS + 1)), (2, 3, 4), (1, 2, 3, 4, 6, 8, 16)


class Schedules(NamedTuple):
    """Many complete bitmap schedules with one shape of mma: each of the other words is an array of all their values."""

    mma: str
    cols: Any
    warps: tuple[Any, Any]
    rows: Any
    stages: Any
    splits: Any
    family: str = "bitmap"

    @property
    def threads(self) -> Any:
        """Threads of each one's blocks."""
        return 32 * self.warps[0] * self.warps[1]

    def pick(self, at: Any) -> Iterator[SpmmSchedule]:
        """Those at some places, one by one."""
        words = (self.cols, *self.warps, self.rows, self.stages, self.splits)
        for cols, r, c, *rest in zip(*(word[at].tolist() for word in words), strict=True):
            yield SpmmSchedule("bitmap", self.mma, cols, (r, c), *rest)


class Geometry(NamedTuple):
    """The numbers of a complete bitmap schedule, or arrays of those of many.

    ``groups``: runs of strips (of an expert's); ``tiles``: of columns of x, were they spread evenly over experts;
    ``chunks``: of values that a slot has room for; ``shared``: bytes a block; ``registers``: a thread, an estimate;
    ``resident``: blocks an SM at a time.
    """

    strips: int
    slabs: int
    tiles: int
    groups: int
    blocks: int
    chunks: int
    sums: int  #: that a lane holds
    strips_warp: int  #: strips of the busiest warp
    shared: int
    registers: int
    resident: int


def geometry(p: BitmapNumbers, s: SpmmSchedule | Schedules, device: DeviceProfile) -> Geometry:
    """The numbers of a complete schedule, or of many, legal or not."""
    a = ARRAYS if isinstance(s, Schedules) else NUMBERS
    runs: Any = np.array(p.widest) if isinstance(s, Schedules) else p.widest
    widest = runs[s.rows - 1]  # chunks of the widest run of a warp's strips
    row_warps, slab_warps = s.warps
    strips, slabs, tiles = -(-p.m // STRIP), -(-p.k // SLAB), p.tiles(s.cols)
    least = -(-strips // (row_warps * s.rows))
    apiece = s.splits * tiles  # blocks of a run of strips
    waves = -(-least * apiece // device.sms)
    groups = a.min(strips, a.max(least, waves * device.sms // apiece))
    each = lane_sums(s.mma == "none", s.cols)
    warps = row_warps * slab_warps
    values = CHUNK * (widest + SPARE)
    coarse, fine = (-(-values // n) * n for n in ALIGN)  # coarsely, matrices of one shape share a kernel
    slots = warps * s.stages
    room = fine + (coarse - fine) * (slots * (s.rows * TILE_BYTES + coarse + 8) <= device.smem_block)
    shared = (
        a.max(slots * (s.rows * TILE_BYTES + room), warps * s.rows * each * 128)
        + 8 * slots * (device.compute_capability >= HOPPER)  # barriers
        + 4 * (s.splits > 1)
        + 4 * TASK * (p.experts > 0)
    )
    registers = s.rows * each + (16 if s.mma == "none" else s.cols) + OTHER_REGISTERS
    blocks = groups * apiece
    resident = a.min(
        device.smem_sm // (shared + 1024),  # the driver keeps 1 KiB of each block's for itself
        device.regs_sm // (-(-registers // 8) * 8 * _whole(s, device)),
        device.max_threads_sm // s.threads,
        device.max_blocks_sm,
        -(-blocks // device.sms),
    )
    block = -(-strips // groups)  # strips of the busiest block
    return Geometry(
        strips, slabs, tiles, groups, blocks, room // CHUNK, s.rows * each, -(-block // row_warps), shared, registers,
        a.max(1, resident),
    )  # fmt: skip


def _whole(s: SpmmSchedule | Schedules, device: DeviceProfile) -> Any:
    """Threads of a block as far as registers are concerned: as if each sub-core had as many of its warps."""
    each = 32 * device.sub_cores
    return -(-s.threads // each) * each


def legal(p: BitmapNumbers, s: SpmmSchedule, device: DeviceProfile) -> Geometry:
    """The numbers of a complete schedule; ScheduleError if it cannot run the product on the device."""
    if error := refusal(p, s, device):
        raise error
    return geometry(p, s, device)


def refusal(p: BitmapNumbers, s: SpmmSchedule, device: DeviceProfile) -> ScheduleError | None:
    """Why a complete schedule cannot run the product on the device; None if it can."""
    rules = _rules(p, s, device, geometry(p, s, device))
    return next((error() for broken, error in rules if broken), None)


def illegal(p: BitmapNumbers, s: Schedules, device: DeviceProfile, g: Geometry) -> Any:
    """Which of many schedules have a ``refusal``, an array; ``g``: their numbers."""
    found = np.zeros(s.rows.shape, bool)
    for broken, _ in _rules(p, s, device, g):
        found |= broken
    return found


def _rules(
    p: BitmapNumbers, s: SpmmSchedule | Schedules, device: DeviceProfile, g: Geometry
) -> Iterator[tuple[Any, Callable[[], ScheduleError]]]:
    """What a schedule must not do, and what is told if it does: the first that applies."""
    yield (
        device.compute_capability < AMPERE,
        lambda: ScheduleError(
            f"bitmap schedules copy asynchronously, which needs sm_80; {device.name} is {device.arch}",
            hint="choose such a device, or schedule='dense' on torch or CuPy arrays",
        ),
    )
    yield (
        MMA[s.mma] not in ("", p.multiplied),
        lambda: ScheduleError(
            f"mma={s.mma} does not multiply {p.dtype} weights",
            hint=f"set mma={p.multiplied}.m16n8k16, or leave it out",
        ),
    )
    yield (
        p.dtype == "e4m3" and device.compute_capability < WIDENS,
        lambda: ScheduleError(
            f"e4m3 weights are widened by an instruction that sm_{WIDENS[0]}{WIDENS[1]} brought; {device.name} is "
            f"{device.arch}",
            hint="round them to e5m2, or take integers: sg.quantize(w, rows=True)",
        ),
    )
    yield (
        s.mma == "none" and (p.n != 1 or p.experts > 0),
        lambda: ScheduleError(
            f"mma=none cols=1 is for a single column, not n={p.n}{' of experts' * (p.experts > 0)}",
            hint=f"set mma={p.multiplied}.m16n8k16, or cols=8",
        ),
    )
    yield (
        s.splits > g.slabs,
        lambda: ScheduleError(
            f"splits={s.splits}, but W has {g.slabs} slab{'s' * (g.slabs > 1)} of {SLAB} columns",
            hint=f"lower splits to {g.slabs} or less",
        ),
    )
    left = device.regs_sm // _whole(s, device) // 8 * 8  # registers of a thread
    yield (
        (g.registers > MAX_REGISTERS) | (g.registers > left),
        lambda: ScheduleError(
            f"{g.registers} registers a thread; {s.threads} threads leave {min(MAX_REGISTERS, left)}",
            hint="lower rows, cols or warps",
        ),
    )
    yield (
        g.shared > device.smem_block,
        lambda: ScheduleError(
            f"{g.shared} bytes of shared memory a block; {device.name} has {device.smem_block}",
            hint="lower rows, stages or warps",
        ),
    )


def space(p: BitmapNumbers, wanted: Mapping[str, Any]) -> Iterator[Schedules]:
    """Every complete bitmap schedule that is tried, legal or not, with the words that are wanted."""
    cols = wanted.get("cols")
    cores = cols == 1 or (p.n == 1 and not cols and not p.experts)  # whether one column on the CUDA cores is tried
    shapes = [f"{p.multiplied}.m16n8k16"] * (cols != 1) + ["none"] * cores
    enough = next((c for c in COLUMNS if c * p.busy >= p.n), COLUMNS[-1])
    columns = [cols] if cols else [c for c in COLUMNS if c <= enough]
    warps = [(r, c) for r in ROW_WARPS for c in SLAB_WARPS if MOST_WARPS[0] <= r * c <= MOST_WARPS[1]]
    slabs = -(-p.k // SLAB)
    tried: dict[str, Sequence[Any]] = {
        "warps": warps, "rows": ROWS, "stages": STAGES, "splits": [n for n in SPLITS if n <= slabs]
    }  # fmt: skip
    tried |= {name: [wanted[name]] for name in tried if name in wanted}
    warps, rows, stages, splits = tried.values()  # type: ignore[assignment]
    for mma in [wanted["mma"]] if "mma" in wanted else shapes:
        words = [1] if mma == "none" else columns, range(len(warps)), rows, stages, splits
        across, form, *rest = (grid.ravel() for grid in np.meshgrid(*words, indexing="ij"))
        per_row, per_slab = np.array(warps)[form].T
        yield Schedules(mma, across, (per_row, per_slab), rest[0], rest[1], rest[2])
