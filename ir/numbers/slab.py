"""The numbers of ``slab``: a block's whole rows of a field on three axes, and its ring of planes."""

from __future__ import annotations

from .arithmetic import PIECE


class Slab:
    """``across`` x ``down`` threads, each with a piece of 16 bytes of ``lines`` adjacent rows; ``planes`` outputs deep.

    ``radius`` is the stencil's, axis by axis; ``stages`` planes are under way.  All in elements.
    """

    def __init__(
        self, *, radius: tuple[int, int, int], nbytes: int, lines: int, cols: int, warps: int, planes: int, stages: int
    ) -> None:
        rz, ry, _ = radius
        self.piece = PIECE // nbytes  #: columns of a thread
        self.across = cols // self.piece  #: threads side by side
        self.down = 32 * warps // self.across if self.across else 0  #: and one below the other
        self.tile = planes, self.down * lines, cols  #: outputs of a block
        self.rows = self.tile[1] + 2 * ry  #: rows of a plane in the ring
        self.slot = self.rows * cols
        self.ring = stages * self.slot
        self.delay = 2 * rz  #: turns before a block's first plane is complete
        self.turns = planes + self.delay  #: planes that come in
        self.cells = lines * self.piece  #: cells of a thread

    def legal(self, cols: int, warps: int) -> bool:
        """Whether rows of threads are whole warps, and the block has whole rows of them."""
        return cols % (32 * self.piece) == 0 and self.down * self.across == 32 * warps > 0
