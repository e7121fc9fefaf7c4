"""What time fusion makes of a pass: taps, the cells that the main launch stores, and those that are left to a rim."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsegen.cost.counts.base import Pass
from sparsegen.cost.counts.tiles import frozen
from sparsegen.dsl.stencil import Stencil, round_to
from sparsegen.families import family
from sparsegen.ir.fuse import convolve, inner_box, rim_width, strips
from sparsegen.ir.op import Box, Sides
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import DTYPES, DType, sum_type

Offsets = tuple[tuple[int, ...], ...]


def offsets(stencil: Stencil, steps: int) -> Offsets:
    """Where the weights of ``steps`` fused steps are not zero, in row-major order."""
    fused = convolve(stencil.weights, steps)
    middle = [n // 2 for n in fused.shape]
    return tuple(tuple(int(i) - r for i, r in zip(at, middle, strict=True)) for at in np.argwhere(fused != 0.0))


def sides(stencil: Stencil) -> Sides:
    """The boundary as the kernel has it: a number outside is one of the field's type."""

    def number(value: float) -> float:
        return float(round_to(np.array([value]), stencil.dtype)[0])

    return tuple(((a.kind, number(a.value)), (b.kind, number(b.value))) for a, b in stencil.sides)


@dataclass(frozen=True)
class Fused:
    """A pass after time fusion, on packed fields."""

    name: str  #: of the main launch
    shape: tuple[int, ...]
    dtype: DType
    sides: Sides
    radius: tuple[int, ...]  #: of one step
    once: Offsets  #: taps of one step
    taps: Offsets  #: taps of ``fuse`` steps
    steps: int  #: of the whole pass
    box: Box  #: what the main launch stores
    boxes: tuple[Box, ...]  #: what is left to the rim

    @classmethod
    def of(cls, p: Pass) -> Fused:
        """What is wrong after a pass near a border is left to the rim, or all that the border reaches (Family.RIM)."""
        s, stencil, every = p.schedule, p.stencil, sides(p.stencil)
        kind = "none" if p.footprint.axes == 3 else family(s).RIM
        if kind == "all":
            widths = tuple(
                (0, 0) if low[0] == "periodic" else (r * s.steps, r * s.steps)
                for r, (low, _) in zip(stencil.radius, every, strict=True)
            )
        else:
            widths = rim_width(stencil.weights, every, s.fuse if kind == "none" else s.steps)
        return cls(
            symbol(stencil.name), p.shape, DTYPES[stencil.dtype], every, stencil.radius, offsets(stencil, 1),
            offsets(stencil, s.fuse), s.steps, inner_box(p.shape, widths), strips(p.shape, widths),
        )  # fmt: skip

    @property
    def sums(self) -> DType:
        """The type that sums are made in."""
        return sum_type(self.dtype)

    @property
    def narrow(self) -> bool:
        """Whether values are converted to sum them."""
        return self.sums != self.dtype

    @property
    def stored(self) -> bool:
        """Whether there is a main launch at all."""
        return all(low < high for low, high in self.box)

    @property
    def keep(self) -> tuple[tuple[int, int], ...]:
        """Cells at each border that the main launch leaves as they are: frozen sides of a single step."""
        return frozen(self.radius, self.sides) if self.steps == 1 else ((0, 0),) * len(self.shape)
