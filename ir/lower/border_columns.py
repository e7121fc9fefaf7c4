"""Columns beyond a border, where a lane has adjacent columns of a row in registers: set before others read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..expr import Expr, Value
from ..op import SideSpec
from .context import Context


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
