"""What the kernels that leave a border to a rim have in common: fused taps, the box that they store, periodic axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsegen.cost.counts.base import Pass
from sparsegen.ir.fuse import convolve, inner_box
from sparsegen.ir.op import Box


def fused_taps(p: Pass) -> Any:
    """Offsets of the weights that are not zero after time fusion, [taps, axes]."""
    fused = convolve(p.stencil.weights, p.schedule.fuse)
    return np.argwhere(fused != 0.0) - np.array(fused_radius(p))


def fused_radius(p: Pass) -> tuple[int, ...]:
    """How far one level reaches on each axis."""
    return tuple(r * p.schedule.fuse for r in p.stencil.radius)


def periodic_axes(p: Pass) -> tuple[bool, ...]:
    """Whether cells outside are wrapped, axis by axis."""
    return tuple(low.kind == "periodic" for low, _ in p.stencil.sides)


def away_from_border(p: Pass) -> Box | None:
    """The cells that no value from outside reaches in a pass, unless it is periodic there; None: there are none."""
    widths = [0 if wraps else r * p.schedule.steps
              for r, wraps in zip(p.stencil.radius, periodic_axes(p), strict=True)]  # fmt: skip
    box = inner_box(p.shape, tuple((n, n) for n in widths))
    return box if all(low < high for low, high in box) else None
