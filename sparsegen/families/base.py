"""What a family of stencil schedules is, and what its functions speak in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sparsegen.cost.devices import DeviceProfile
from sparsegen.footprint import Footprint
from sparsegen.registry import families
from sparsegen.schedule import Schedule, StencilSchedule, Vocabulary, Word, integer
from sparsegen.sizes import MAX_FUSE

if TYPE_CHECKING:
    from sparsegen.ir.passes.manager import Pass

Num = Any  #: a float, or a sympy expression

#: A thread's register limit on every GPU since sm_35 (CUDA C++ Programming Guide, compute capabilities).
MAX_REGISTERS = 255
#: Bytes that divide the address of every buffer in shared memory.
ALIGN = 128
#: Loads of a synchronous copy under way a thread: four a turn of the loop (ir/lower/copy.py), which nvcc unrolls.
IN_FLIGHT = 8
#: Cells of a rim's tile where fields have one row, and its threads: one for each cell, halo included, up to 96 a side.
RIM_ROW, RIM_ROW_THREADS = 64, 256
#: Wavefronts of the load/store path for 128 bytes on their way from global to shared memory: in, and out again.
#: (Hardware counters of generated kernels; a load from shared memory takes one.)
COPY_WAVES = 2.0


@dataclass(frozen=True)
class Geometry:
    """The numbers that a schedule means for a stencil of given edge; in elements unless named bytes."""

    k: int  #: edge of the fused stencil
    rows: int  #: outputs of a block's tile
    cols: int
    halo_rows: int  #: rows + k - 1
    halo_cols: int
    threads: int
    smem_bytes: int = 0  #: shared memory of a block
    before: int = 0  #: columns fetched left of the tile: the radius, and what aligns the window to 16 bytes
    pitch_raw: int = 0  #: columns of a raw tile in shared memory, and its row pitch
    per_x: int = 1  #: adjacent outputs of a thread (tiled)
    per_y: int = 1  #: its rows of outputs
    m: int = 0  #: rows of an mma (stencil2row only, as all below)
    k_f: int = 0  #: K of the widest mma
    groups: int = 0  #: rows of A and of B: groups of k + 1 columns
    n_tiles: int = 0  #: ceil((k + 1) / 8)
    depth: int = 0  #: points of a plane rounded up to 4: columns that a product takes from A, and from B
    stride_ab: int = 0  #: row stride of A and B
    offset_dirty: int = 0  #: the spare slot, there with or without dirty bits
    tiles_per_warp: int = 0  #: products of one warp
    fragments: int = 0  #: weights that a lane holds
    width: int = 0  #: columns of a warp's strip, its halo of ``before`` on both sides included (stream)
    words: int = 2  #: 32-bit registers an element
    planes: int = 1  #: outputs of a block's tile along the slowest of three axes
    halo_planes: int = 1  #: planes that it reads (stencil2row: those that are products)
    points: int = 0  #: points of other planes, on the CUDA cores
    #: (mma shape, how many a tile), widest first; nothing with mma=none
    mmas: tuple[tuple[str, int], ...] = ()

    @property
    def radius(self) -> int:
        """Cells that the fused stencil reaches."""
        return self.k // 2

    @property
    def reach(self) -> int:
        """Halo rows of a tile, above and below together."""
        return self.halo_rows - self.rows


@dataclass(frozen=True)
class Work:
    """What a block does for one tile: cycles of each unit of the SM, phase by phase (barriers between the phases)."""

    phases: tuple[dict[str, Num], ...]
    latency: Num
    fetched: Num  #: elements read from global memory
    read: Num = 1  #: the same a grid point, halo left out
    setup: Num = 0  #: cycles before a block's first tile
    table: Num = 0  #: bytes that each block of an SM then gets from L2 besides
    turns: Num = 1  #: fetches of a tile, one after the other
    paced: Num = 0  #: cycles of its turns, where a block that does not stay loads what the next turn reads in each
    share: Num = 1  #: of the blocks of an SM, how many hide what one of them does not keep busy
    through_l1: bool = True  #: whether loads wait in L1 for their lines
    waits: bool = True  #: whether a block waits for what it reads, beyond the latency that is counted
    queues: Num = 0  #: 1 if its loads come first and then, after a barrier, the rest; less if these blur
    made: Num = 0  #: elements a grid point that a launch of its own makes of the field first


@dataclass(frozen=True, eq=False)
class StencilFamily(Vocabulary):
    """A family of stencil schedules: its words, and the functions that say what they mean."""

    name: str
    words: tuple[Word, ...]
    #: Axes of the fields that it takes; a field of one row has one.
    axes: tuple[int, ...]
    #: What of a border that is not periodic a pass leaves to a rim: what time fusion gets wrong (``fused``), all that
    #: a border reaches (``all``), or nothing (``none``).
    rim: str
    #: The numbers of a (legalised) schedule; ScheduleError if it has none.
    geometry: Callable[[StencilSchedule, Footprint], Geometry]
    #: Estimated 32-bit registers of a thread: what must be live in the inner loop, plus addresses and indices.  The
    #: kernel is compiled with this bound, so it must not be too low: ptxas would spill.
    registers: Callable[[StencilSchedule, Geometry, Footprint], int]
    #: The schedules to try, legal or not, of at most so many time steps a pass.
    space: Callable[[Footprint, int], Iterator[StencilSchedule]]
    #: Symbols of the formula that only this family has; the last argument: rows start at 16-byte boundaries.
    values: Callable[[StencilSchedule, Geometry, Footprint, DeviceProfile, bool], dict[str, float]]
    #: What a block does for a tile of outputs: the schedule, the formula's symbols, the elements read and written.
    work: Callable[[StencilSchedule, Any, Num, Num], Work]
    #: The pass that makes the kernel, of so many blocks that stay (0: one for each tile), so many an SM.
    kernel: Callable[[StencilSchedule, Geometry, int, int], Pass]
    #: ScheduleError for what only this family asks of a stencil and a device.
    check: Callable[[StencilSchedule, Geometry, Footprint, DeviceProfile], None] | None = None
    #: Whether a tile that is not fetched ahead comes by asynchronous copies as well, all under way together.
    together: Callable[[StencilSchedule, Geometry, DeviceProfile], bool] | None = None
    #: The schedule with what is ``auto`` chosen for a grid on a GPU that runs so many blocks at a time.
    filled: Callable[[StencilSchedule, Footprint, tuple[int, ...], int], StencilSchedule] | None = None
    #: The registers that nvcc is expected to use, where the estimate is an upper bound only.
    used: Callable[[StencilSchedule, Geometry, Footprint], float] | None = None
    #: ScheduleError where words contradict each other.
    contradictions: Callable[[StencilSchedule], None] | None = None
    #: Whether a pass for the steps that are left over has no more levels than the schedule.
    levels_bound: bool = False
    #: Whether a block has whole rows of the field, of ``cols`` cells at most.
    whole_rows: bool = False
    #: Whether fields may be of bytes, which are rounded after each step: so of one step a pass.
    bytes: bool = False
    op: str = "stencil"
    telling: ClassVar[tuple[str, ...]] = ("steps", "mma")

    @property
    def most_steps(self) -> int:
        """Time steps of its longest pass."""
        return math.prod(self.by_name[word].high or 1 for word in ("fuse", "levels") if self.has(word))

    def takes(self, fp: Footprint) -> bool:
        """Whether it has schedules for fields of so many axes, and of their type."""
        return fp.axes in self.axes and (self.bytes or fp.dtype != "u8")

    def consistent(self, s: Schedule) -> None:
        """ScheduleError where words contradict each other."""
        if self.contradictions:
            self.contradictions(cast("StencilSchedule", s))

    def passes(self, s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, per_sm: int) -> list[Pass]:
        """The passes from the op level to the tile level, for a device on which an SM has so many blocks."""
        from sparsegen.ir.kernels.rim import Rim  # costs are worked out without the levels below
        from sparsegen.ir.passes.barriers import Barriers
        from sparsegen.ir.passes.fuse_time import FuseTime
        from sparsegen.ir.passes.pipeline import Pipeline

        rim = "none" if self.rim == "fused" and fp.axes == 3 else self.rim  # rims are strips of a plane
        kernel = self.kernel(s, g, max(1, int(per_sm * device.own_sms)) if s.stages > 1 else 0, per_sm)
        passes: list[Pass] = [FuseTime(s.fuse, s.levels, rim=rim), kernel]
        if self.rim != "none":
            passes.append(Rim(1, RIM_ROW, RIM_ROW_THREADS) if fp.flat and rim == "all" else Rim())
        if not s.levelled:
            passes.append(Pipeline(s.stages, asynchronous=bool(self.together and self.together(s, g, device))))
        return [*passes, Barriers()]


def named(name: str) -> StencilFamily:
    """A family of stencil schedules by its name."""
    return cast("StencilFamily", families("stencil")[name])


def family(schedule: StencilSchedule) -> StencilFamily:
    """The family of a schedule."""
    return cast("StencilFamily", schedule.rules)


def takers(axes: int) -> str:
    """The families for fields of so many axes, for messages."""
    return ", ".join(name for name in families("stencil") if axes in named(name).axes)


# ------------------------------------------------------------------------------------------------ words
def number(name: str, default: int, low: int, high: int) -> Word:
    """A word whose value is a number of a range."""
    return Word(name, integer, default, low, high)


#: Words that several families have with the same range.
FUSE, WARPS, STAGES = number("fuse", 1, 1, MAX_FUSE), number("warps", 8, 1, 32), number("stages", 1, 1, 4)


def fused_k(k: int, fuse: int) -> int:
    """Edge of the stencil that does ``fuse`` steps of one of edge ``k`` at once."""
    return (k - 1) * fuse + 1


def rounds(elements: float, in_flight: int = IN_FLIGHT) -> float:
    """How often a thread waits for loads, of which so many are under way at once."""
    return math.ceil(elements / in_flight)
