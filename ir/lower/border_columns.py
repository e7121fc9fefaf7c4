"""Columns beyond a border, where a lane has adjacent columns of a row in registers: set before others read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..expr import Expr, Value
from ..op import SideSpec
from .context import Context


class Image(NamedTuple):
    """A read of a lane that lies outside: its columns are counted from the lane's first, neighbours' beside them.

    In the lane whose first column is ``first`` what lies at ``source`` stands for ``column``.
    """

    column: int
    source: int
    first: int


def images(
    extent: int, per_lane: int, place: Callable[[int], int], sides: Mapping[int, str], reach: int
) -> Iterator[Image]:
    """The reads of lanes that have a column inside within ``reach`` of one beyond the low side (0) or the high one (1),
    of those whose kind is given: mirrored (``neumann``), or the edge cell (``frozen``).

    Nobody writes such cells: an image is a choice where it is read, of what that lane has at hand.
    """
    for high, kind in sides.items():
        away = -1 if high else 1  # towards the inside
        for j in range(reach):
            outside = extent + j if high else -1 - j
            inside = (j if kind == "neumann" else 0) + j + 1  # columns from there to what stands for it
            for column in range(place(outside) - per_lane, per_lane + reach, per_lane):
                edge = column + away * (j + 1)  # the last column inside
                if -reach <= column and (edge >= 0 if high else edge < per_lane):
                    yield Image(column, column + away * inside, outside - column)


@dataclass(frozen=True)
class Columns:
    """Where a border lies in lanes' columns: rows begin such that a column is at one ``place`` in whatever lane.

    ``near`` says of a column close to a border whether the lane's column at its place is that one.
    """

    cx: Context
    extent: int
    per_lane: int
    place: Callable[[int], int]
    near: Mapping[int, Expr]

    def set(self, own: list[Value], sides: Mapping[int, SideSpec], reach: int) -> None:
        """Sets the ``reach`` columns beyond the low side (0) and the high one (1), those of them that are given: a
        constant, or what lies inside, in a lane that is a constant distance away."""
        b, nx, before = self.cx.b, self.extent, list(own)
        for high, (kind, constant) in sides.items():
            for j in range(reach):
                column = nx + j if high else -1 - j
                inside = 0 if kind == "frozen" else j
                source = nx - 1 - inside if high else inside
                c, of = self.place(column), self.place(source)
                away = (source - column + c - of) // self.per_lane
                if kind == "dirichlet":
                    value = b.const(own[c].dtype, constant, hint="outside")
                else:
                    value = b.shfl("down" if away > 0 else "up", before[of], abs(away)) if away else before[of]
                own[c] = b.select(self.near[column], value, own[c])
