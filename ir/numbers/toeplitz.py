"""The numbers of ``toeplitz``: runs of windows, and the tile that they slide over."""

from __future__ import annotations

from typing import Final

from .arithmetic import up

#: Outputs of a product in a run; and elements left out after each run: runs are then 4 or 12 mod 16 doubles apart, and
#: 8 x 4 fragments meet no conflict.
SEGMENT: Final = 8
PAD: Final = 4


class Runs:
    """``warps`` x ``m`` runs of ``products`` windows, of fused radius ``radius``; all in elements."""

    def __init__(self, *, radius: int, m: int, products: int, warps: int) -> None:
        self.run = SEGMENT * products  #: outputs of a run
        self.lead = up(radius, 2)  #: columns before the tile
        self.bands = up(self.lead + SEGMENT + radius, SEGMENT) // SEGMENT  #: groups of eight columns that make a window
        self.count = warps * m  #: runs of a tile
        self.reach = self.run + SEGMENT * (self.bands - 1)  #: columns of a run's windows
        self.cols = self.count * self.run  #: outputs of a tile
        self.width = self.cols + SEGMENT * (self.bands - 1)  #: columns of the tile's window
        self.slot = up(self.width + (self.width - 1) // self.run * PAD, 2)  #: elements of it in shared memory
