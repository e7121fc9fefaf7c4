"""What a schedule family is: the functions that each module of this package has, and what they speak in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.schedule import MMA, StencilSchedule

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

Num = Any  #: a float, or a sympy expression

#: A thread's register limit on every GPU since sm_35 (CUDA C++ Programming Guide, compute capabilities).
MAX_REGISTERS = 255
#: Bytes that divide the address of every buffer in shared memory.
ALIGN = 128
#: Loads of a synchronous copy under way a thread: four a turn of the loop (ir/lower/copy.py), which nvcc unrolls.
IN_FLIGHT = 8
#: Wavefronts of the load/store path for 128 bytes on their way from global to shared memory: in, and out again.
#: (Hardware counters of generated kernels; a load from shared memory takes one.)
COPY_WAVES = 2.0


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
    depth: int = 0  #: points of a plane rounded up to 4: columns that a product takes from A, and from B
    stride_ab: int = 0  #: row stride of A and B
    offset_b: int = 0  #: A starts at 0
    offset_dirty: int = 0  #: the spare slot, there with or without dirty bits
    products: int = 0  #: m × (k + 1) products of a tile
    tiles_per_warp: int = 0  #: products of one warp
    fragments: int = 0  #: weights that a lane holds
    radius_y: int = 0  #: rows that one level reaches (stream; ``radius`` is for columns)
    width: int = 0  #: columns of a warp's strip, its halo of ``before`` on both sides included (stream)
    words: int = 2  #: 32-bit registers an element
    planes: int = 1  #: outputs of a block's tile along the slowest of three axes
    halo_planes: int = 1  #: planes that it reads (stencil2row: those that are products)
    points: int = 0  #: points of other planes, on the CUDA cores
    #: (mma shape, how many a tile), widest first; nothing with mma=none
    mmas: tuple[tuple[str, int], ...] = ()

    @property
    def reach(self) -> int:
        """Halo rows of a tile, above and below together."""
        return self.halo_rows - self.rows

    @property
    def mma_per_tile(self) -> dict[str, int]:
        """mma instructions of a block's tile, by shape."""
        return dict(self.mmas)


@dataclass(frozen=True)
class Work:
    """What a block does for one tile: cycles of each unit of the SM, phase by phase (barriers between the phases)."""

    phases: tuple[dict[str, Num], ...]
    latency: Num
    fetched: Num  #: elements read from global memory
    read: Num = 1  #: the same a grid point, halo left out
    setup: Num = 0  #: cycles before a block's first tile
    turns: Num = 1  #: fetches of a tile, one after the other
    share: Num = 1  #: of the blocks of an SM, how many hide what one of them does not keep busy
    through_l1: bool = True  #: whether loads wait in L1 for their lines
    waits: bool = True  #: whether a block waits for what it reads, beyond the latency that is counted
    queues: Num = 0  #: 1 if its loads come first and then, after a barrier, the rest; less if these blur


class Family(Protocol):
    """The interface of a family's module."""

    #: What of a border that is not periodic a pass leaves to a rim: what time fusion gets wrong (``fused``), all that
    #: a border reaches (``all``), or nothing (``none``).
    RIM: str
    #: Axes of the fields that it takes.
    AXES: tuple[int, ...]

    def geometry(self, s: StencilSchedule, fp: Footprint) -> Geometry:
        """The numbers of a (legalised) schedule; ScheduleError if it has none."""
        ...

    def registers(self, s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
        """Estimated 32-bit registers of a thread; the kernel is compiled with that bound, so never too low."""
        ...

    def used(self, s: StencilSchedule, g: Geometry, fp: Footprint) -> float:
        """The registers that nvcc uses in the middle; those estimated where it is not known."""
        ...

    def check(self, s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile) -> None:
        """ScheduleError for what only this family asks of a stencil and a device."""
        ...

    def filled(self, s: StencilSchedule, fp: Footprint, shape: tuple[int, ...], slots: int) -> StencilSchedule:
        """The schedule with what is ``auto`` chosen for a grid on a GPU that runs ``slots`` blocks at a time."""
        ...

    def space(self, fp: Footprint, limit: int) -> Iterator[StencilSchedule]:
        """The schedules to try, legal or not, of at most ``limit`` time steps a pass."""
        ...

    def values(
        self, s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool
    ) -> dict[str, float]:
        """Symbols of the formula that only this family has; ``even``: rows start at 16-byte boundaries."""
        ...

    def work(self, s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
        """What a block does for a tile of ``out`` outputs and ``element`` inputs, in the formula's symbols ``v``."""
        ...


def up(n: int, to: int) -> int:
    """``n`` rounded up to a multiple."""
    return -(-n // to) * to


def fused_k(k: int, fuse: int) -> int:
    """Edge of the stencil that does ``fuse`` steps of one of edge ``k`` at once."""
    return (k - 1) * fuse + 1


def keep(s: StencilSchedule, fp: Footprint, shape: tuple[int, ...], slots: int) -> StencilSchedule:
    """``filled`` of a family whose lines leave nothing to choose."""
    return s


def check_mma(s: StencilSchedule, g: Geometry, shapes: Iterable[str], device: DeviceProfile, otherwise: str) -> None:
    """ScheduleError if the device has no such mma, or its profile no cycles for one of those that a tile takes.

    ``shapes``: those of the family, the first that fits is proposed; ``otherwise``: what is proposed if none does.
    """
    need = MMA[s.mma][3]
    if device.compute_capability < need:
        fits = [shape for shape in shapes if MMA[shape][3] <= device.compute_capability]
        raise ScheduleError(
            f"mma={s.mma} needs sm_{need[0]}{need[1]}; {device.name} is {device.arch}",
            hint=f"set mma={fits[0]}" if fits else otherwise,
        )
    for shape in g.mma_per_tile:
        if shape not in device.cpi:
            raise ScheduleError(
                f"mma={s.mma}: the profile of {device.name} has no cycles for {shape}",
                hint="add it to the profile's [cpi]",
            )


def mma_values(g: Geometry, device: DeviceProfile) -> dict[str, float]:
    """``q_mma`` and ``n_mma``: cycles of a tile's mma, and how many they are."""
    return {"q_mma": sum(n * device.cpi[shape] for shape, n in g.mmas), "n_mma": sum(n for _, n in g.mmas)}


def rounds(elements: float, in_flight: int = IN_FLIGHT) -> float:
    """How often a thread waits for loads, of which so many are under way at once."""
    return math.ceil(elements / in_flight)


def narrowing(mma: str, slices: int) -> list[tuple[str, int]]:
    """How many mma of which shape run over ``slices`` slices of four: as many as fit of ``mma``, the rest narrower."""
    m, _, k_f, _ = MMA[mma]
    out = []
    for name, (rows, _, k, _) in sorted(MMA.items(), key=lambda item: -item[1][2]):
        if name != "none" and rows == m and k <= k_f and slices >= k // 4:
            out.append((name, slices // (k // 4)))
            slices %= k // 4
    return out
