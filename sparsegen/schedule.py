"""Schedules: every choice that turns a stencil into a kernel, as a value and as one line of text.

``str(s)`` prints the line, ``Schedule.parse(line)`` gives the same value back; nothing is hidden in between.
``k`` is always the edge of *one* time step's stencil (2·radius + 1); ``fused_k`` is that after self-convolution.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from sparsegen.ir.errors import ScheduleError

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

#: mma shape -> (M, N, K, lowest compute capability); ``none`` multiplies the same matrices on the CUDA cores.
MMA: dict[str, tuple[int, int, int, tuple[int, int]]] = {
    "f64.m8n8k4": (8, 8, 4, (8, 0)),
    "f64.m16n8k4": (16, 8, 4, (9, 0)),
    "f64.m16n8k8": (16, 8, 8, (9, 0)),
    "f64.m16n8k16": (16, 8, 16, (9, 0)),
    "none": (8, 8, 4, (0, 0)),
}
#: family -> the fields that mean something to it, in the order in which they are printed.
FAMILIES: dict[str, tuple[str, ...]] = {
    "direct": ("block", "fuse"),
    "tiled": ("fuse", "tile", "warps", "stages"),
    "stencil2row": ("mma", "fuse", "tile", "warps", "stages", "lut", "dirty", "pad", "transform"),
}
TRANSFORMS = ("implicit", "explicit")
ITEMSIZE = {"f64": 8, "f32": 4}
#: Most doubles of weights that a lane may hold: half of the 255 registers a thread can have (two registers a double).
MAX_FRAGMENT_DOUBLES = 64
#: A thread's register limit on every GPU since sm_35 (CUDA C++ Programming Guide, compute capabilities).
MAX_REGISTERS = 255


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'? `` for the closest known word, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}? " if close else ""


def _unknown(what: str, word: str, known: Iterable[str]) -> NoReturn:
    known = list(known)
    raise ScheduleError(f"unknown {what} {word!r}", hint=f"{nearest(word, known)}there are: {', '.join(known)}")


class Schedule:
    """Base of all schedules; ``Schedule.parse`` reads the line of any of them."""

    @staticmethod
    def parse(text: str) -> StencilSchedule:
        """The schedule that a line such as ``stencil2row mma=f64.m8n8k4 fuse=3 tile=32x64 stages=2`` describes.

        Fields left out take the family's defaults.  Anything unknown, repeated or contradictory is a ScheduleError.
        """
        words = text.split()
        if not words:
            raise ScheduleError("an empty schedule", hint=f"start with a family: {', '.join(FAMILIES)}")
        family, given = words[0], dict[str, Any]()
        if family not in FAMILIES:
            _unknown("schedule", family, FAMILIES)
        for word in words[1:]:
            key, eq, value = word.partition("=")
            if key not in _READERS:
                _unknown("word in schedule", word, (f"{f}=…" for f in FAMILIES[family]))
            if not eq or not value:
                raise ScheduleError(f"{word!r} has no value", hint=f"write {key}=…, for example in {DEFAULTS[family]}")
            if key in given:
                raise ScheduleError(f"{word!r}: {key} is given twice", hint="keep one of them")
            if key not in FAMILIES[family]:
                raise ScheduleError(
                    f"{word!r} means nothing to a {family} schedule",
                    hint=f"drop it, or choose among: {', '.join(FAMILIES[family])}",
                )
            given[key] = _READERS[key](word, value)
        return StencilSchedule(family, **given)


def _pair(word: str, value: str) -> tuple[int, int]:
    m = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", value)
    if not m:
        raise ScheduleError(f"{word!r} is not a pair of positive sizes", hint="write two numbers, such as 32x64")
    return int(m[1]), int(m[2])


def _tile(word: str, value: str) -> tuple[int, int] | None:
    return None if value == "auto" else _pair(word, value)


def _integer(word: str, value: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,5}", value):
        raise ScheduleError(f"{word!r} is not a positive number", hint="write a number from 1 up")
    return int(value)


def _switch(word: str, value: str) -> bool:
    if value not in ("on", "off"):
        raise ScheduleError(f"{word!r} is neither on nor off", hint="write on or off")
    return value == "on"


def _name(word: str, value: str) -> str:
    return value  # checked where the schedule is made


_READERS: dict[str, Callable[[str, str], object]] = {
    "block": _pair,
    "tile": _tile,
    "mma": _name,
    "transform": _name,
    **dict.fromkeys(("warps", "stages", "fuse"), _integer),
    **dict.fromkeys(("lut", "dirty", "pad"), _switch),
}


@dataclass(frozen=True)
class StencilSchedule(Schedule):
    """How a 2-D stencil becomes a kernel.  A field outside its family's line (see FAMILIES) must keep its default."""

    family: str
    #: direct: threads of a block, along a row (contiguous) x down the columns, as CUDA counts them.
    block: tuple[int, int] = (32, 8)
    #: outputs of a block, rows x columns; None (``auto``, stencil2row only) is resolved by ``legalise``.
    tile: tuple[int, int] | None = None
    warps: int = 8
    #: tiled: tiles in the cp.async ring, 1 = plain loads.
    #: stencil2row: 1 = from global memory into A and B directly, n = n - 1 raw tiles ahead.
    stages: int = 1
    mma: str = "f64.m8n8k4"
    #: time steps made one by self-convolution of the weights.
    fuse: int = 1
    #: offsets of a tile's elements from a table made on the host, or computed by each thread.
    lut: bool = True
    #: elements that A or B has no place for go to one spare slot, or are predicated away.
    dirty: bool = True
    #: row stride of A and B free of bank conflicts, or as short as it can be.
    pad: bool = True
    #: A and B made in shared memory (implicit), or first in global memory by a launch of its own (explicit: ablation).
    transform: str = "implicit"

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            _unknown("schedule", self.family, FAMILIES)
        fields = FAMILIES[self.family]
        if self.family == "tiled" and self.tile is None:
            object.__setattr__(self, "tile", (32, 64))
        for f in dataclasses.fields(self)[1:]:
            if f.name not in fields and getattr(self, f.name) != f.default:
                raise ScheduleError(
                    f"{f.name}={_show(getattr(self, f.name))} means nothing to a {self.family} schedule",
                    hint=f"drop it, or choose among: {', '.join(fields)}",
                )
        if self.mma not in MMA:
            _unknown("mma shape", self.mma, MMA)
        if self.transform not in TRANSFORMS:
            _unknown("transform", self.transform, TRANSFORMS)
        for name, value, top in (("fuse", self.fuse, 3), ("stages", self.stages, 4), ("warps", self.warps, 32)):
            if not 1 <= value <= top:
                raise ScheduleError(f"{name}={value} is out of range", hint=f"{name} goes from 1 to {top}")
        self._consistent()

    def _consistent(self) -> None:
        if self.threads > 1024:
            raise ScheduleError(f"{self.threads} threads in a block; a GPU takes 1024", hint="make block= smaller")
        if self.family == "stencil2row" and self.transform == "explicit" and self.stages > 1:
            raise ScheduleError(
                f"transform=explicit contradicts stages={self.stages}", hint="set stages=1, or transform=implicit"
            )
        if self.tile is None:
            return
        rows, cols = self.tile
        if rows < 1 or cols < 1:
            raise ScheduleError(f"tile={rows}x{cols} is empty", hint="write two positive sizes, such as tile=32x64")
        if self.family == "tiled":
            strips = cols // 32
            if cols % 32 or self.warps % strips or rows % (self.warps // strips):
                raise ScheduleError(
                    f"tile={rows}x{cols} cannot be shared out among warps={self.warps}",
                    hint="columns in multiples of 32, warps a multiple of columns/32, and rows a multiple of "
                    "warps/(columns/32), as in tile=32x64 warps=8",
                )

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] if self.family == "direct" else 32 * self.warps

    def __str__(self) -> str:
        return " ".join([self.family, *(f"{f}={_show(getattr(self, f))}" for f in FAMILIES[self.family])])


def _show(value: object) -> str:
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


#: The plain line of each family, for messages and for docs.
DEFAULTS: dict[str, str] = {family: str(StencilSchedule(family)) for family in FAMILIES}


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
    rows: int  #: outputs of a block
    cols: int
    halo_rows: int  #: rows + k - 1
    halo_cols: int
    threads: int
    left: int  #: extra columns left of the halo, so that 16-byte copies are aligned
    pitch_raw: int  #: row pitch of a raw tile in shared memory
    raw_tiles: int  #: raw tiles in shared memory
    offset_raw: int  #: of the first raw tile; the next is halo_rows * pitch_raw further
    m: int = 0  #: rows of an mma (stencil2row only, as all below)
    k_f: int = 0  #: K of an mma
    groups: int = 0  #: G, rows of A and of B: groups of k + 1 columns
    m_tiles: int = 0  #: groups / m
    n_tiles: int = 0  #: ceil((k + 1) / 8)
    k_pad: int = 0  #: k * k rounded up to k_f
    k_slices: int = 0  #: k_pad / k_f, for A and again for B
    stride_ab: int = 0  #: row stride of A and B
    slots: int = 0  #: spare slots for dirty elements
    offset_b: int = 0  #: A starts at 0
    offset_dirty: int = 0
    tiles_per_warp: int = 0  #: m × (k + 1) products of one warp
    mma_per_tile: int = 0  #: mma instructions of a block's tile (0 with mma=none)
    fragments: int = 0  #: weights that a lane holds
    smem_bytes: int = 0


def conflict_free(needed: int) -> int:
    """Smallest row stride ≥ needed (in doubles) that is ≡ 4 or 12 (mod 16): no conflicts in 8 × 4 f64 fragments."""
    return needed + (4 - needed) % 8


def geometry(schedule: StencilSchedule, k: int, itemsize: int = 8) -> Geometry:
    """What a (legalised) schedule means for one step's edge ``k``; the lowering passes are given these numbers."""
    s = legalise(schedule, k)
    kk = fused_k(k, s.fuse)
    radius = kk // 2
    if s.family == "direct":
        cols, rows = s.block
        return Geometry(kk, radius, rows, cols, rows + kk - 1, cols + kk - 1, s.threads, 0, 0, 0, 0)
    assert s.tile is not None
    rows, cols = s.tile
    hr, hc = rows + kk - 1, cols + kk - 1
    quantum = 16 // itemsize
    left = -radius % quantum  # a tile starts at a column that 16 bytes divide; its halo need not
    pitch = -(-(hc + left) // quantum) * quantum
    if s.family == "tiled":
        smem = s.stages * hr * pitch * itemsize
        return Geometry(kk, radius, rows, cols, hr, hc, s.threads, left, pitch, s.stages, 0, smem_bytes=smem)
    m, n, k_f, _ = MMA[s.mma]
    groups = cols // (kk + 1)
    m_tiles, n_tiles = groups // m, -(-(kk + 1) // n)
    k_slices = -(-kk * kk // k_f)
    k_pad = k_slices * k_f
    needed = kk * (rows - 1) + k_pad  # the last product's padded K reads this far; ≥ kk * hr
    stride = conflict_free(needed) if s.pad else needed
    slots, raw_tiles = int(s.dirty), s.stages - 1
    offset_dirty = 2 * groups * stride
    offset_raw = -(-(offset_dirty + slots) // quantum) * quantum
    products = rows * m_tiles
    mmas = 0 if s.mma == "none" else 2 * k_slices * n_tiles * products
    return Geometry(
        kk, radius, rows, cols, hr, hc, s.threads, left, pitch, raw_tiles, offset_raw,
        m=m, k_f=k_f, groups=groups, m_tiles=m_tiles, n_tiles=n_tiles, k_pad=k_pad, k_slices=k_slices,
        stride_ab=stride, slots=slots, offset_b=groups * stride, offset_dirty=offset_dirty,
        tiles_per_warp=products // s.warps, mma_per_tile=mmas,
        fragments=0 if s.mma == "none" else 2 * (k_pad // 4) * n_tiles,
        smem_bytes=(offset_raw + raw_tiles * hr * pitch) * itemsize,
    )  # fmt: skip


def shared_bytes(schedule: StencilSchedule, k: int, itemsize: int = 8) -> int:
    """Shared memory of a block, in bytes."""
    return geometry(schedule, k, itemsize).smem_bytes


def registers(schedule: StencilSchedule, g: Geometry) -> int:
    """Estimated 32-bit registers of a thread (f64): what must be live in the inner loop, plus addresses and indices.

    The 24 to 40 for addresses are fitted to ptxas on sm_90 (m16n8k4: two blocks an SM; k8, k16: 158 registers, one).
    """
    if schedule.family == "direct":
        return 26 + 2 * g.k
    if schedule.family == "tiled":  # a column of accumulators, and the values loaded for it
        column = g.rows * g.cols // g.threads
        return 24 + 2 * column + 2 * (column + g.k - 1)
    acc = min(g.tiles_per_warp, 4) * g.n_tiles * g.m // 4
    if schedule.mma == "none":  # a thread holds one row of k + 1 outputs; weights are constant operands
        return 40 + 2 * (g.k + 1)
    a = min(g.tiles_per_warp, 4) * g.m * g.k_f // 32  # A fragments in flight
    return 28 + 2 * (g.fragments + acc + a)


def legal(schedule: StencilSchedule, k: int, device: DeviceProfile, dtype: str = "f64") -> None:
    """Return if the schedule can run a k × k stencil on the device, else raise a ScheduleError with reason and knob."""
    s = schedule
    if dtype not in ITEMSIZE:
        _unknown("stencil dtype", dtype, ITEMSIZE)
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
    if s.family == "stencil2row" and s.mma != "none":
        need = MMA[s.mma][3]
        if device.compute_capability < need:
            fits = [m for m, f in MMA.items() if f[3] <= device.compute_capability]
            raise ScheduleError(
                f"mma={s.mma} needs sm_{need[0]}{need[1]}; {device.name} is {device.arch}", hint=f"set mma={fits[0]}"
            )
        if s.mma not in device.cpi:
            raise ScheduleError(
                f"mma={s.mma}: the profile of {device.name} has no cycles for it", hint="add it to the profile's [cpi]"
            )
        if g.fragments > MAX_FRAGMENT_DOUBLES:
            raise ScheduleError(
                f"an edge of {g.k} (fuse={s.fuse}) keeps {g.fragments} doubles of weights in each lane's registers; "
                f"{MAX_FRAGMENT_DOUBLES} fit",
                hint="lower fuse, or choose tiled or direct",
            )
    if g.smem_bytes > device.smem_block:
        raise ScheduleError(
            f"{g.smem_bytes} bytes of shared memory a block; {device.name} has {device.smem_block}",
            hint="make tile= smaller" + (", or lower stages" if s.stages > 1 else ""),
        )
    regs = registers(s, g)
    if regs > MAX_REGISTERS or regs * g.threads > device.regs_sm:
        raise ScheduleError(
            f"about {regs} registers a thread, {g.threads} threads; {device.name} has {MAX_REGISTERS} a thread and "
            f"{device.regs_sm} an SM",
            hint="lower fuse, make tile= smaller, or change warps",
        )
