"""Where the elements of a dense operand lie: by rows, by columns, or by rows in panels of columns."""

from __future__ import annotations

from collections.abc import Callable

from ..expr import Expr
from .context import Context


def placed(cx: Context, col: Expr, rows: int, n: int, panel: int, order: str) -> Callable[[Expr], Expr]:
    """Where the element of a row, and of column ``col``, of a matrix [rows, n] lies, from the row.

    ``panel`` adjacent columns lie together, one such matrix [rows, panel] behind the other; 0: all do.
    """
    if order == "column":
        return lambda row: col * rows + row
    if not panel:
        return lambda row: row * n + col
    own = cx.b.let("own", col // panel * (rows * panel) + col % panel)
    return lambda row: row * panel + own
