"""What the passes make of a problem and a schedule."""

from __future__ import annotations

from dataclasses import dataclass

from sparsegen.ir.module import Module


@dataclass(frozen=True, eq=False)
class Program:
    """One pass over the data: ``steps`` time steps at once, at each of the three levels.

    Two are equal if they are the same object.
    """

    steps: int
    op: Module
    tile: Module
    warp: Module
