"""The numbers of an update in ``march``: what a thread keeps in registers while it goes along the slowest axis.

A thread has a few rows of a piece of 16 bytes each.  Of every row that its cells read, its own ones and those above and
below them, it keeps the planes that are read again.  The cells beside its piece come from neighbouring lanes, once for
every plane; the first and the last lane of a warp load those that no lane has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .arithmetic import PIECE
from .layers import Array, Read

#: The first and the last plane of a row, from the one that is made.
Span = tuple[int, int]


class Held:
    """What a thread keeps of an array: ``rows`` from its first one on, with the planes of each; of ``edges``, those of
    which ``reach`` columns beside a piece are read, these columns at both ends.  In elements."""

    def __init__(self, piece: int, reach: int, rows: Mapping[int, Span], edges: Mapping[int, Span]) -> None:
        self.piece, self.reach, self.rows, self.edges = piece, reach, rows, edges
        self._places: dict[tuple[str, int, int], int] = {}
        self.size = 0  #: elements a thread
        for kind, spans, cells in (("piece", rows, piece), ("beside", edges, 2 * reach)):
            for row, (low, high) in spans.items():
                for plane in range(low, high + 1):
                    self._places[kind, row, plane] = self.size
                    self.size += cells
        for row in edges:
            self._places["far", row, 0] = self.size
            self.size += reach

    def at(self, row: int, plane: int) -> int:
        """The place of the first cell of a row's piece."""
        return self._places["piece", row, plane]

    def beside(self, row: int, plane: int) -> int:
        """The place of the cells before a row's piece; those behind it follow."""
        return self._places["beside", row, plane]

    def far(self, row: int) -> int:
        """The place of what the first and the last lane have loaded beside a row's piece of its last plane."""
        return self._places["far", row, 0]

    @property
    def fresh(self) -> int:
        """Elements that are loaded for the next plane while one is made."""
        return len(self.rows) * self.piece + len(self.edges) * self.reach


class March:
    """Threads of ``lines`` rows of a piece each; ``reads`` are those of the formula on three axes."""

    def __init__(self, *, reads: Iterable[Read], nbytes: int, lines: int) -> None:
        self.lines, self.piece = lines, PIECE // nbytes  #: rows and columns of a thread
        arrays: dict[Array, set[tuple[int, int, int]]] = {}
        for name, level, offset in reads:
            arrays.setdefault((name, level), set()).add(offset)
        self.held = {array: self._held(arrays[array]) for array in sorted(arrays)}

    def _held(self, offsets: set[tuple[int, int, int]]) -> Held:
        beside = {o for o in offsets if o[2]}
        return Held(
            self.piece, max((abs(dx) for *_, dx in beside), default=0), self._spans(offsets), self._spans(beside)
        )  # fmt: skip

    def _spans(self, offsets: set[tuple[int, int, int]]) -> dict[int, Span]:
        planes: dict[int, list[int]] = {}
        for dz, dy, _ in offsets:
            for line in range(self.lines):
                planes.setdefault(line + dy, []).append(dz)
        return {row: (min(found), max(found)) for row, found in sorted(planes.items())}

    @property
    def kept(self) -> int:
        """Elements that a thread keeps or is about to, of all arrays."""
        return sum(held.size + held.fresh for held in self.held.values())
