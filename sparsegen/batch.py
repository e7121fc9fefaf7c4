"""A batch: items that one call works on, each with arrays of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparsegen.ir.errors import StencilError
from sparsegen.sizes import MAX_CELLS

#: Blocks of a launch along the second axis of its grid, which is the items' (CUDA C++ Programming Guide, technical
#: specifications).
MAX_ITEMS = 65535


@dataclass(frozen=True)
class Batch:
    """``items`` of them, the first axis of every array but those of the coefficients and sources ``shared``, which all
    items read.

    StencilError for more items than a launch takes.
    """

    items: int
    shared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.items > MAX_ITEMS:
            raise StencilError(
                f"batch={self.items}: a launch takes {MAX_ITEMS} items",
                hint=f"compile for a batch of {MAX_ITEMS} or fewer, and call the kernel several times",
            )

    def fits(self, shape: tuple[int, ...]) -> None:
        """StencilError where the cells of all items are more than indices reach."""
        cells = math.prod(shape)
        if self.items * cells > MAX_CELLS:
            most = max(1, MAX_CELLS // cells)
            raise StencilError(
                f"a batch of {self.items} x {'x'.join(map(str, shape))} has {self.items * cells} cells; indices are "
                f"32 bits wide, so {MAX_CELLS} is the most",
                hint=f"compile for batch={most}, and call the kernel several times",
            )

    def __str__(self) -> str:
        shared = f", which share {', '.join(self.shared)}" if self.shared else ""
        return f"a batch of {self.items}{shared}"
