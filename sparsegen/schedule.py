"""Schedules: every choice that turns a stencil into a kernel, as a value and as one line of text.

``str(s)`` prints the line, ``Schedule.parse(line)`` gives the same value back; nothing is hidden in between.
What a schedule means for a stencil and a device, in numbers, is in :mod:`sparsegen.geometry`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from sparsegen.ir.errors import ScheduleError

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
    "stream": ("fuse", "levels", "cols", "rows", "warps", "stages", "unroll"),
    "patches": ("mma", "fuse", "levels", "strips", "rows", "warps", "stages"),
    "column": ("fuse", "levels", "lines", "planes", "warps", "stages"),
    "toeplitz": ("mma", "fuse", "products", "warps", "stages"),
    "lowrank": ("mma", "fuse", "tile", "warps", "stages"),
}
#: What a family's plain line has, where that is not the same for all: of every family, and of one.
OWN: dict[str, dict[str, Any]] = {
    "": {"warps": 8, "stages": 1, "mma": "f64.m8n8k4", "fuse": 1, "levels": 4},
    "tiled": {"tile": (32, 64)},
    "stream": {"warps": 2, "stages": 8},
    "patches": {"mma": "f64.m16n8k16", "fuse": 2, "levels": 3, "warps": 4, "stages": 6},
    "column": {"levels": 4, "lines": 3, "warps": 12, "stages": 4},
    "toeplitz": {"warps": 1, "stages": 2},
    "lowrank": {"mma": "f64.m16n8k4", "tile": (64, 64), "warps": 4},
}
#: (lowest, highest) of a number, where a family has its own range.
RANGES: dict[str, dict[str, tuple[int, int]]] = {
    "": {"fuse": (1, 3), "stages": (1, 4), "warps": (1, 32), "levels": (1, 32), "unroll": (1, 2)},
    "stream": {"fuse": (1, 8), "stages": (2, 8), "warps": (1, 8)},
    "patches": {"levels": (1, 8), "stages": (2, 8), "warps": (1, 8), "strips": (1, 4)},
    "column": {"lines": (1, 8), "stages": (2, 8), "levels": (1, 8)},
    "toeplitz": {"fuse": (1, 64), "stages": (2, 4), "warps": (1, 8)},
    "lowrank": {"fuse": (1, 12)},
}
#: Most time steps that one application of fused weights stands for, where a family has no limit of its own.
MAX_FUSE = RANGES[""]["fuse"][1]
#: Columns that a lane of a streaming warp may own: whole 16-byte pieces, and few enough for its registers.
LANE_COLUMNS = (2, 4, 6, 8, 16)
#: Windows of a run of ``toeplitz``: runs of whole 128 bytes, whose sums fit a lane's registers.  Sixteen took 533 us
#: for 32 steps on one H200 where eight take 441.
PRODUCTS = (4, 8)
TRANSFORMS = ("implicit", "explicit")
ITEMSIZE = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'? `` for the closest known word, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}? " if close else ""


def unknown(what: str, word: str, known: Iterable[str]) -> NoReturn:
    """Raises the ScheduleError for a word that is not among ``known``."""
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
            unknown("schedule", family, FAMILIES)
        for word in words[1:]:
            key, eq, value = word.partition("=")
            if key not in _READERS:
                unknown("word in schedule", word, (f"{f}=…" for f in FAMILIES[family]))
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


def _rows(word: str, value: str) -> int | None:
    return None if value == "auto" else _integer(word, value)


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
    "rows": _rows,
    "planes": _rows,
    **dict.fromkeys(("warps", "stages", "fuse", "levels", "cols", "unroll", "lines", "products", "strips"), _integer),
    **dict.fromkeys(("lut", "dirty", "pad"), _switch),
}


@dataclass(frozen=True)
class StencilSchedule(Schedule):
    """How a stencil becomes a kernel.  A field outside its family's line (see FAMILIES) must keep its default."""

    family: str
    #: direct: threads of a block, along a row (contiguous) x down the columns, as CUDA counts them.
    block: tuple[int, int] = (32, 8)
    #: outputs of a block, rows x columns (on one axis 1 x columns); None (``auto``, stencil2row only) is resolved by
    #: ``legalise``.
    tile: tuple[int, int] | None = None
    warps: int = 0  #: 0: as many as the family's plain line has (OWN)
    #: tiled: tiles in the cp.async ring, 1 = plain loads.  lowrank: the same, 1 = cp.async, waited for at once.
    #: stencil2row: 1 = from global memory into A and B directly, n = n - 1 raw tiles ahead.
    #: stream: rows in a warp's cp.async ring.  patches: pairs of rows there.  column: planes in a block's.  toeplitz:
    #: tiles in a block's.  0: as the family's plain line.
    stages: int = 0
    mma: str = ""  #: "": that of the family's plain line
    #: time steps made one by self-convolution of the weights; 0: as the family's plain line.  The steps of a pass (of
    #: its levels too) are summed in f32 where fields have 16 bits, and rounded once.
    fuse: int = 0
    #: offsets of a tile's elements from a table made on the host, or computed by each thread.
    lut: bool = True
    #: elements that A or B has no place for go to one spare slot, or are predicated away.
    dirty: bool = True
    #: row stride of A and B free of bank conflicts, or as short as it can be.
    pad: bool = True
    #: A and B made in shared memory (implicit), or first in global memory by a launch of its own (explicit: ablation).
    transform: str = "implicit"
    #: stream, patches, column: applications (of ``fuse`` steps each) of one pass, their unfinished sums in registers;
    #: 0: as the family's plain line.
    levels: int = 0
    #: stream: adjacent columns of a lane; a warp streams a strip of 32 times that.
    cols: int = 4
    #: stream, patches: outputs of a block down the columns; None (``auto``) is chosen for the field, so that the GPU is
    #: full.
    rows: int | None = None
    #: stream: rows done in one turn of the loop.
    unroll: int = 1
    #: patches: fragments of M patches side by side in a warp's strip; a patch is 4 columns wide.
    strips: int = 2
    #: column: rows of a thread, whose columns are 16 bytes; a block has ``warps`` times as many.
    lines: int = 2
    #: column: outputs of a block along the slowest axis; None (``auto``) is chosen for the field.
    planes: int | None = None
    #: toeplitz: adjacent windows of 8 outputs in a run; a fragment row is a run.
    products: int = 4

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            unknown("schedule", self.family, FAMILIES)
        own, foreign, ranges = _words(self.family)
        for name, value in own.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        for name, value in foreign.items():
            if getattr(self, name) != value:
                raise ScheduleError(
                    f"{name}={_show(getattr(self, name))} means nothing to a {self.family} schedule",
                    hint=f"drop it, or choose among: {', '.join(FAMILIES[self.family])}",
                )
        if self.mma not in MMA:
            unknown("mma shape", self.mma, MMA)
        if self.transform not in TRANSFORMS:
            unknown("transform", self.transform, TRANSFORMS)
        for name, (low, top) in ranges.items():
            if not low <= getattr(self, name) <= top:
                raise ScheduleError(
                    f"{name}={getattr(self, name)} is out of range", hint=f"{name} goes from {low} to {top}"
                )
        self._consistent()

    def _consistent(self) -> None:
        if self.threads > 1024:
            raise ScheduleError(f"{self.threads} threads in a block; a GPU takes 1024", hint="make block= smaller")
        if self.cols not in LANE_COLUMNS:
            raise ScheduleError(
                f"cols={self.cols}: a lane cannot own so many columns",
                hint=f"choose among: {', '.join(map(str, LANE_COLUMNS))}",
            )
        if self.products not in PRODUCTS:
            raise ScheduleError(
                f"products={self.products}: no run of toeplitz has so many windows",
                hint=f"choose among: {', '.join(map(str, PRODUCTS))}",
            )
        for name, count in (("rows", self.rows), ("planes", self.planes)):
            if count is not None and count < 1:
                raise ScheduleError(f"{name}={count} is empty", hint=f"write a number from 1 up, or {name}=auto")
        if self.family == "stencil2row" and self.transform == "explicit" and self.stages > 1:
            raise ScheduleError(
                f"transform=explicit contradicts stages={self.stages}", hint="set stages=1, or transform=implicit"
            )
        if self.tile is None:
            return
        rows, cols = self.tile
        if rows < 1 or cols < 1:
            raise ScheduleError(f"tile={rows}x{cols} is empty", hint="write two positive sizes, such as tile=32x64")
        if self.family == "lowrank":
            strips, m = rows // MMA[self.mma][0], MMA[self.mma][0]
            if rows % m or self.warps % strips or cols * strips % (8 * self.warps):
                raise ScheduleError(
                    f"tile={rows}x{cols} does not make strips of {m} rows and whole blocks of 8 columns for warps="
                    f"{self.warps}",
                    hint=f"rows in multiples of {m}, warps a multiple of rows/{m}, and columns a multiple of "
                    f"8·warps·{m}/rows, as in tile=64x64 warps=4",
                )
        if self.family == "tiled":
            strips = cols // 32
            if cols % 32 or self.warps % strips or rows % (self.warps // strips):
                raise ScheduleError(
                    f"tile={rows}x{cols} cannot be shared out among warps={self.warps}",
                    hint="columns in multiples of 32, warps a multiple of columns/32, and rows a multiple of "
                    "warps/(columns/32), as in tile=32x64 warps=8",
                )

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """(lowest, highest) of the numbers of this family's line."""
        return RANGES[""] | RANGES.get(self.family, {})

    @property
    def levelled(self) -> bool:
        """Whether levels of ``fuse`` steps each follow one another in a pass."""
        return "levels" in FAMILIES[self.family]

    @property
    def most_levels(self) -> int:
        """Levels of a pass that does what is left over: a narrower sum of ``patches`` does not make room for more."""
        return self.levels if self.family == "patches" else self.ranges["levels"][1]

    @property
    def steps(self) -> int:
        """Time steps of one pass."""
        return self.fuse * self.levels if self.levelled else self.fuse

    @property
    def widens(self) -> bool:
        """Whether a NaN or Inf may reach a cell that the stencil's own weights do not connect it to.

        Products of matrices multiply whole rows of the window, zeros included, and 0 · NaN is NaN; all other families
        multiply by the non-zero weights only.
        """
        return "mma" in FAMILIES[self.family]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] if self.family == "direct" else 32 * self.warps

    def __str__(self) -> str:
        return " ".join([self.family, *(f"{f}={_show(getattr(self, f))}" for f in FAMILIES[self.family])])


@cache
def _words(family: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, tuple[int, int]]]:
    """A family's own defaults, those of the words that mean nothing to it, and the ranges of its numbers."""
    words, own = FAMILIES[family], OWN[""] | OWN.get(family, {})
    foreign = {f.name: own.get(f.name, f.default) for f in dataclasses.fields(StencilSchedule)[1:]}
    ranges = RANGES[""] | RANGES.get(family, {})
    return (
        own, {name: value for name, value in foreign.items() if name not in words},
        {name: limits for name, limits in ranges.items() if name in words},
    )  # fmt: skip


def _show(value: object) -> str:
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


#: The plain line of each family, for messages and for docs.
DEFAULTS: dict[str, str] = {family: str(StencilSchedule(family)) for family in FAMILIES}
