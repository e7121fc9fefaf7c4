"""The border of ``tile.update_layers`` at the steps between: what lies outside a plane is set before others read it.

Columns are set in registers, from other lanes.  A row beyond a side that mirrors is written by the thread that has the
row inside, to the place in the ring where the next step reads it.  A plane that is the image of another is written when
that one is made: below the first plane into slots of turns before, behind the last one in turns after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import tile_layer_levels as t
from ..boundary_map import PERIODIC
from ..expr import TRUE, Expr, Value, all_of, any_of
from ..numbers.layer_levels import LayerLevels
from ..numbers.layers import Array
from ..op import SideSpec
from ..types import Buffer
from .border_columns import Columns
from .context import Context

#: A thread's rows of a plane, its piece of each.
Lines = Sequence[Sequence[Value]]
#: Sides beyond which images of what lies inside stand.
_IMAGES = "neumann", "frozen"


class Border:
    """What the sides of all fields ask for, in a body with or without them; and planes in rings."""

    def __init__(
        self, cx: Context, op: t.UpdateLayers, n: LayerLevels, kept: Mapping[Array, Buffer],
        rings: Mapping[Array, Buffer], row: Expr,
    ) -> None:  # fmt: skip
        self.cx, self.op, self.n, self.kept, self.rings, self.row = cx, op, n, kept, rings, row
        self.turn, self.extent = cx.resolve(op.turn), op.grids[0].extent
        self.sides = dict(zip((name for name, _ in op.fields), op.sides, strict=bool(op.sides)))
        #: Whether planes beyond the slowest axis are others than those that a step would make.
        self.ends = any(self._side(name, 0, 0)[0] != "periodic" for name in self.sides)
        self.slots: dict[tuple[Array, int], Expr] = {}

    def _side(self, name: str, axis: int, high: int) -> SideSpec:
        """The side of a field; an axis along which no step reads has none."""
        return (self.sides[name][axis] if name in self.sides and self.n.radius[axis] else PERIODIC)[high]

    def rows(self, name: str) -> bool:
        """Whether rows beyond a side of the field are images, which only the ring holds."""
        return any(self._side(name, 1, high)[0] in _IMAGES for high in (0, 1))

    def slot(self, source: Array, back: int) -> Expr:
        """The first element of the slot of the plane that came or was made so many turns ago."""
        came = source in self.n.came
        ring = (self.n.came if came else self.n.made)[source]
        at = (self.turn + (ring.slots - back)) % ring.slots * self.n.slot(ring)
        return self.cx.b.let("here", at + self.n.skew if came else at)

    # ---------------------------------------------------------------------------------------- columns and rows
    def set(self, name: str, row: Expr, col: Expr, values: Sequence[Value]) -> Sequence[Value]:
        """A lane's piece of a row with its cells outside set; of two sides that hold constants the rows' counts."""
        own, (_, ny, nx), piece, reach = list(values), self.extent, self.n.piece, self.n.radius[2]
        sides = {
            high: self._side(name, 2, high) for high in (0, 1)
            if {self._side(other, 2, high)[0] for other in self.sides} not in ({"frozen"}, {"periodic"})
        }  # fmt: skip
        near = {
            column: self.cx.b.let("at", (col + column % piece).eq(column))
            for high in sides for column in (range(nx, nx + reach) if high else range(-reach, 0))
        }  # fmt: skip
        Columns(self.cx, nx, piece, lambda column: column % piece, near).set(own, sides if self.sides else {}, reach)
        for high, out in enumerate((row.lt(0), row.ge(ny))):
            self._constant(own, self._side(name, 1, high), out)
        return own

    def _constant(self, own: list[Value], side: SideSpec, out: Expr) -> None:
        """Cells are the constant of a side where they lie beyond it."""
        if side[0] == "dirichlet":
            beyond, value = self.cx.b.let("out", out), self.cx.b.const(own[0].dtype, side[1], hint="outside")
            own[:] = [self.cx.b.select(beyond, value, old) for old in own]

    def write(self, source: Array, back: int, lines: Lines) -> None:
        """Writes a plane into the slot of so many turns ago, where other threads read it, with the images of rows."""
        if source not in self.n.made:
            return
        b, (rows, width), reach, ny = self.cx.b, self.n.window, self.n.radius[1], self.extent[1]
        ring, here = self.rings[source], self.slot(source, back)
        y = self.cx.resolve(self.op.at[1]) - self.n.lead[0]
        for line, values in enumerate(lines):
            at = self.row + line
            row, place = y + at, here + at * width + self.cx.lane * self.n.piece
            images: list[tuple[Expr, int]] = []  # where a row has one, and how many rows further down it lies
            mine: Expr = TRUE
            for high in (0, 1):
                kind, away = self._side(source[0], 1, high)[0], 1 if high else -1
                if kind not in _IMAGES:
                    continue
                outside = (row.lt(ny), row.ge(ny + reach)) if high else (row.ge(0), row.lt(-reach))
                mine = all_of(mine, any_of(*outside))
                for j in range(reach):
                    inside = j if kind == "neumann" else 0
                    down = away * (j + inside + 1)
                    within = (at + down).lt(rows) if high else (at + down).ge(0)
                    images.append((all_of(row.eq(ny - 1 - inside if high else inside), within), down))
            b.st(ring, place, *values, where=None if mine == TRUE else b.let("mine", mine))
            for where, down in images:
                b.st(ring, place + down * width, *values, where=b.let("image", where))

    # ---------------------------------------------------------------------------------------- planes
    def _lines(self, source: Array, back: int) -> Lines:
        """A thread's cells of a plane that it keeps."""
        size = self.op.lines * self.n.piece
        cells = [self.cx.b.ld(self.kept[source], back * size + i, hint="u") for i in range(size)]
        return [cells[i : i + self.n.piece] for i in range(0, size, self.n.piece)]

    def _put(self, source: Array, back: int, lines: Lines) -> None:
        """Makes a plane that of so many turns ago, in registers and in the ring, where these still hold it."""
        if back <= self.n.kept[source]:
            for i, value in enumerate(value for line in lines for value in line):
                self.cx.b.st(self.kept[source], back * self.op.lines * self.n.piece + i, value)
        if source in self.n.made and back < self.n.made[source].slots:
            self.write(source, back, lines)

    def images(self, step: int, plane: Expr) -> None:
        """What stands below the first plane, once the plane that it is an image of is made."""
        for name in self.sides:
            kind = self._side(name, 0, 0)[0]
            for j in range(self.n.above if kind in _IMAGES else 0):
                inside = j if kind == "neumann" else 0
                with self.cx.b.if_(plane.eq(inside)):
                    self._put((name, step), j + inside + 1, self._lines((name, step), 0))

    def beyond(self, step: int, plane: Expr) -> None:
        """A plane outside: a constant, or behind the last one an image of what is kept."""
        b, nz = self.cx.b, self.extent[0]
        for name in self.sides:
            source = name, step
            for high, out in enumerate((plane.lt(0), plane.ge(nz))):
                kind, constant = self._side(name, 0, high)
                if kind == "dirichlet":
                    with b.if_(out):
                        value = b.const(self.kept[source].dtype, constant, hint="outside")
                        self._put(source, 0, [[value] * self.n.piece] * self.op.lines)
                for j in range(self.n.below if high and kind in _IMAGES else 0):
                    inside = j if kind == "neumann" else 0
                    with b.if_(plane.eq(nz + j)):
                        self._put(source, 0, self._lines(source, j + inside + 1))
