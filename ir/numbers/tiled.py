"""The numbers of ``tiled``: the window of a tile, and how its outputs are shared out among threads."""

from __future__ import annotations

from .arithmetic import PIECE, SECTOR, up


class Tile:
    """The window of ``rows`` x ``cols`` outputs; all in elements."""

    def __init__(self, *, radius: tuple[int, int], nbytes: int, rows: int, cols: int) -> None:
        #: columns fetched left of the tile: the window starts where a piece does; a wide one where a sector does
        self.before = up(radius[1], (SECTOR if radius[1] > 1 else PIECE) // nbytes)
        self.height = rows + 2 * radius[0]  #: rows of the window
        self.width = up(self.before + cols + radius[1], PIECE // nbytes)  #: columns of the window: whole pieces


def threads(rows: int, cols: int, warps: int, nbytes: int) -> tuple[int, int, int] | None:
    """(thread rows, thread columns, adjacent outputs a thread) of a tile: the widest pieces, of four outputs and 16
    bytes at most, that its shape allows; None if it allows none."""
    for per_x in (n for n in (4, 2, 1) if n * nbytes <= PIECE):
        strips, rest = divmod(cols, 32 * per_x)
        if not rest and warps % strips == 0 and rows % (warps // strips) == 0:
            return warps // strips, 32 * strips, per_x
    return None
