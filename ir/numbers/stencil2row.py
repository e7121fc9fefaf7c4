"""The numbers of ``stencil2row``: the two matrices of a tile, and the window that they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from .arithmetic import conflict_free, up

#: Most doubles of weights that a lane keeps from tile to tile; those of several planes that are more are loaded anew,
#: plane by plane, and so are all where the points of small planes need the registers.
HELD = 32


def multiplied(points: Sequence[int], places: int) -> tuple[bool, ...]:
    """For each plane of so many non-zero weights, in ``places`` places: whether it is a product on the tensor cores
    (ConvStencil, section 4.2).

    A product costs the same whatever is zero, CUDA cores pay by the point; with half of the places filled both come to
    about the same (at an edge of 7: 52 multiply-adds an output at the rate of m16n8k4, against 25 points).  The first
    of the fullest planes is always a product.
    """
    fullest = list(points).index(max(points))
    return tuple(i == fullest or 2 * n > places for i, n in enumerate(points))


class Matrices:
    """A and B of a tile of ``rows`` x ``cols`` outputs, for planes of ``height`` x ``k`` weights; all in elements.

    ``m``: rows of the mma that holds the sums; ``pad``: rows of A and B that load without bank conflicts.
    """

    def __init__(self, *, k: int, height: int, rows: int, cols: int, m: int, pad: bool) -> None:
        self.group = k + 1  #: columns of a group, whose elements are a row of A and of B
        self.groups = cols // self.group  #: rows of A and of B
        self.products = rows * (self.groups // m)  #: products of a tile
        self.blocks = up(self.group, 8) // 8  #: columns of a product, in blocks of 8
        self.window = rows + height - 1, cols + k - 1  #: rows and columns of a tile's window
        #: elements of a row of A that a product takes; wider mma run over the joint of A and B
        self.depth = up(height * k, 4)
        needed = k * (rows - 1) + self.depth
        self.stride = conflict_free(needed) if pad else needed  #: elements from a row of A to the next
        self.a_size = self.groups * self.stride  #: elements of A; B follows, then the dirty slot
        self.size = up(2 * self.a_size + 1, 2)  #: elements of both and the dirty slot
        self.before = up(k // 2, 2)  #: columns of a raw tile left of the outputs
        self.width = up(self.before + cols + k // 2, 2)  #: columns of a raw tile
