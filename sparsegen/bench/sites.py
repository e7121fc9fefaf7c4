"""Part ``sites`` of suite ``updates``: what sources and receivers cost, beside the same update without any.

A source near the middle emits at every time step.  Receivers lie between cells: on lines in a field of two axes, in a
plane below the top of one of three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import sparsegen as sg
from sparsegen.bench.stencil_run import Case, Share
from sparsegen.dsl.update import Update

#: Cells from the first one of the first axis to the first line or plane of receivers.
DEPTH: Final = 4.5
#: Where the source is, of the way from the first cell of each axis to the last.
MIDDLE: Final = 0.503
#: Share of the rate without sites: of fields in memory, of those that stay on chip.
LARGE, ON_CHIP = 0.9, 0.6


def receivers(shape: Sequence[int], counts: Sequence[int]) -> npt.NDArray[np.float64]:
    """Points [product of ``counts``, axes] in a field of ``shape``: so many along each axis, at equal distances.

    Along the first axis they start at DEPTH, along the others half a distance from the first cell.
    """
    depths = DEPTH + np.arange(counts[0]) * shape[0] / counts[0]
    others = [(np.arange(count) + 0.5) * (n - 1) / count for n, count in zip(shape[1:], counts[1:], strict=True)]
    return np.stack(np.meshgrid(depths, *others, indexing="ij"), -1).reshape(-1, len(shape))


def surveyed(plain: Case, counts: Sequence[int], least: float) -> Case:
    """A case with one source, and receivers that must leave this share of its rate; ``counts``: of them along each
    axis."""
    assert isinstance(plain.stencil, Update)
    heard = receivers(plain.shape, counts)
    source: Any = [[MIDDLE * (n - 1) for n in plain.shape]]
    update = plain.stencil.with_sites(shot=sg.Source(source), heard=sg.Receiver(heard))
    name = f"{plain.name}, {len(heard):,} receivers"
    return replace(plain, name=name, stencil=update, share=Share(least, "without", (plain,)))


def moved(update: Update, shape: Sequence[int], to: Sequence[int]) -> Update:
    """The update for a field of another shape: each site is as far along each axis, of the way from its first cell to
    its last."""
    ratio = (np.array(to) - 1) / (np.array(shape) - 1)
    return replace(update, sites=tuple(replace(group, points=group.points * ratio) for group in update.sites))
