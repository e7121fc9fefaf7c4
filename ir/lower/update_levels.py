"""``tile.update_levels``: time steps of a row of every field, from rows in registers and rows that wait in rings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from .. import formula as f
from .. import tile_update as t
from ..expr import FALSE, Expr, Value, any_of, maximum
from ..op import Sides
from ..types import Buffer
from .border_columns import Columns, Image, images
from .context import Context, rule
from .fetch import own_degree, warp_slot
from .formula import Formula


@rule(t.UpdateLevels)
def update_levels(cx: Context, op: t.UpdateLevels) -> None:
    _Levels(cx, op).run()


class _Row:
    """A lane's columns of a row, and those beside them, which the neighbouring lanes have.

    ``images``: (column, the one that is read instead, where that is so) of reads beyond a border.
    """

    def __init__(self, cx: Context, own: Sequence[Value], images: Sequence[tuple[int, int, Expr]] = ()) -> None:
        self.cx, self.own, self.images = cx, list(own), images
        self.shuffled: dict[int, Value] = {}
        self.beside: dict[int, Value] = {}

    def cell(self, c: int, dx: int = 0) -> Value:
        """The value ``dx`` columns beside column ``c`` of the lane's."""
        if not dx:
            return self.own[c]
        at = c + dx
        if at not in self.beside:
            value = self._column(at)
            for column, source, where in self.images:
                if column == at:
                    value = self.cx.b.select(where, self._column(source), value)
            self.beside[at] = value
        return self.beside[at]

    def _column(self, c: int) -> Value:
        """What some lane has in column ``c`` of this one's."""
        count = len(self.own)
        if 0 <= c < count:
            return self.own[c]
        if c not in self.shuffled:
            mode, at = ("up", c + count) if c < 0 else ("down", c - count)
            self.shuffled[c] = self.cx.b.shfl(mode, self.own[at], 1, hint="x")
        return self.shuffled[c]


class _Levels:
    """A turn of a warp."""

    def __init__(self, cx: Context, op: t.UpdateLevels) -> None:
        self.cx, self.op, self.n = cx, op, op.numbers
        self.per_lane, self.turn = op.news[0].size, cx.resolve(op.turn)
        y, x = map(cx.resolve, op.at)
        self.newest = y - self.n.above + self.turn  # the row that level 0 takes in
        self.first = x + cx.warp * self.n.step - self.n.lead + cx.lane * self.per_lane  # the lane's first column
        self.rings = dict(zip(self.n.waiting, op.rings, strict=True))
        self.names = [name for name, _ in op.fields]
        self.sides: dict[str, Sides] = dict(zip((*self.names, ""), op.sides, strict=False))
        #: Whether the lane's first column is this one: those of lanes near a border.
        self.firsts: dict[int, Expr] = {}
        #: Rows on their way to later levels: (field, steps, lag) -> registers, the one that has come farthest last.
        self.saved: dict[tuple[str, int, int], Buffer] = {}
        self.formula = Formula(cx, op.code, op.news[0].dtype, op.scalars)

    def run(self) -> None:
        cx, op = self.cx, self.op
        self.formula.prepare()
        if op.sides:
            self._name_firsts()
        for name in self.names:
            for steps, lag in self.n.saved(name):
                self._begin(name, steps, lag)
        with cx.b.for_("level", 0, op.count, unroll=0) as level:
            self._level(level)
        olds = iter(op.olds)
        for name, back in self.n.outputs:
            if back:
                self._put(next(olds), 0, self._get(self.saved[name, back, back * self.n.ry], back - 1))

    # ---------------------------------------------------------------------------------------- registers and rings
    def _get(self, rows: Buffer, row: Expr | int) -> list[Value]:
        return [self.cx.b.ld(rows, row * self.per_lane + c, hint="u") for c in range(self.per_lane)]

    def _put(self, rows: Buffer, row: Expr | int, values: Sequence[Value]) -> None:
        for c, value in enumerate(values):
            self.cx.b.st(rows, row * self.per_lane + c, value)

    def _begin(self, name: str, steps: int, lag: int) -> None:
        """Registers for rows that are read so many steps later; the first steps read older levels of the input."""
        cx, dy = self.cx, (steps + 1) * self.n.ry - lag
        self.saved[name, steps, lag] = rows = cx.b.alloc("saved", self.op.news[0].dtype, steps * self.per_lane)
        read = any(r[:2] == (name, steps) and r[2][0] == dy for r in self.n.reads)
        for older in range(1, steps + 1):
            if read and steps - older < self.op.count:
                self._put(rows, older - 1, self._waiting((name, older), steps - older, dy))
            else:
                self._put(rows, older - 1, [cx.zero(rows.dtype)] * self.per_lane)

    def _waiting(self, source: tuple[str, int], level: Expr | int, dy: int) -> list[Value]:
        """The lane's columns of a row that waits, for the step of a level: cells outside are set."""
        cx, b, ring = self.cx, self.cx.b, self.rings[source]
        waiting, wide = self.n.waiting[source], 16 // ring.dtype.nbytes
        waited = level * self.n.ry + (waiting.ahead + self.n.ry - dy)
        # rows of turns before the first one are not there, and nothing that counts is made of them
        turn = maximum(self.turn - waited, 0) if waiting.longest else self.turn
        size = ring.size // (cx.func.threads // 32) // waiting.slots
        here = b.let("here", warp_slot(cx, size, waiting.slots, turn))
        degree, values = own_degree(self.op.layout, ring.dtype.nbytes, wide, self.per_lane), list[Value]()
        for c in range(0, self.per_lane, wide):
            at = here + self.op.layout(cx.lane * self.per_lane + c)
            values += b.ldv(ring, at, wide, hint="w", degree=degree)
        name = source[0] if source[0] in self.names else ""
        if any(dx for n, older, (_, dx) in self.n.reads if n == source[0] and bool(older) == bool(name)):
            self._set_columns(values, name)
        if name and dy:
            self._set_rows(values, name, self.newest - (level + 1) * self.n.ry + dy)
        return values

    # ---------------------------------------------------------------------------------------- a level
    def _level(self, level: Expr) -> None:
        op, n = self.op, self.n
        depths = {name: n.depth(name) for name in self.names}
        kept = dict(zip(self.names, op.kept, strict=True))
        row = self.cx.b.let("row", self.newest - level * n.ry) if op.sides else self.newest
        known: dict[tuple[str, int, int], _Row] = {}
        for name, new in zip(self.names, op.news, strict=True):
            own = self._get(new, 0)
            self._set_columns(own, name)
            self._image_rows(own, name, row, kept[name], level * depths[name], depths[name])
            self._set_rows(own, name, row)
            known[name, 0, n.ry] = self._row(name, own)

        def lagging(name: str, lag: int) -> _Row:
            """A field's row of this level, so many rows above the newest."""
            key = (name, 0, n.ry - lag)
            if key not in known:
                known[key] = self._row(name, self._get(kept[name], level * depths[name] + (lag - 1)))
            return known[key]

        def found(name: str, older: int, dy: int) -> _Row:
            if name in kept and not older:
                return lagging(name, n.lag(0, dy))
            if (name, older, dy) not in known:
                own = (
                    self._get(self.saved[name, older, n.lag(older, dy)], older - 1) if name in kept
                    else self._waiting((name, 0), level, dy)
                )  # fmt: skip
                known[name, older, dy] = self._row(name if name in kept else "", own)
            return known[name, older, dy]

        def read(what: f.Read, c: int) -> Value:
            name, older, (dy, dx) = what
            return found(name, older, dy).cell(c, dx)

        made = self.formula.results(op.results, [partial(read, c=c) for c in range(self.per_lane)], level)
        after: list[tuple[Buffer, Expr | int, list[Value]]] = []
        for i, (name, new) in enumerate(zip(self.names, op.news, strict=True)):
            after.append((new, 0, self._keep([cell[i] for cell in made], name, row - n.ry, lagging(name, n.ry).own)))
            rows = [lagging(name, lag).own for lag in range(depths[name])]
            after += [(kept[name], level * depths[name] + lag, own) for lag, own in enumerate(rows)]
            for steps, lag in n.saved(name):
                buf = self.saved[name, steps, lag]
                after += [(buf, p, self._get(buf, p - 1)) for p in range(1, steps)]
                after.append((buf, 0, lagging(name, lag).own))
        for buf, at, values in after:
            self._put(buf, at, values)

    # ---------------------------------------------------------------------------------------- the border
    def _name_firsts(self) -> None:
        """Names whether the lane's first column is one of those from which a border is in reach."""
        nx, reach = self.op.grid.extent[1], self._reach
        near = {column - self._place(column) for column in (*range(-reach, reach), *range(nx - reach, nx + reach))}
        near |= {image.first for name in self.sides for image in self._images(name)}
        self.firsts = {first: self.cx.b.let("at", self.first.eq(first)) for first in sorted(near)}

    @property
    def _reach(self) -> int:
        """Columns from a border that are anything special."""
        return max(self.n.rx, self.n.beside)

    def _at(self, column: int) -> Expr:
        """Whether the lane has this column near a border, at the only place where it can be."""
        return self.firsts[column - self._place(column)]

    def _place(self, column: int) -> int:
        """Which of a lane's columns a column of the field is, in whatever lane: strips begin at multiples of them."""
        return (column + self.n.lead) % self.per_lane

    def _side(self, name: str, axis: int) -> tuple[tuple[str, float], tuple[str, float]]:
        return self.sides[name][axis] if name in self.sides else (("periodic", 0.0), ("periodic", 0.0))

    def _matters(self, axis: int, high: int) -> bool:
        """Whether anything that counts is made of cells outside: not where every field keeps those that would read."""
        kinds = {self._side(name, axis)[high][0] for name in self.names}
        return kinds not in ({"frozen"}, {"periodic"})

    def _beyond(self, name: str) -> dict[int, tuple[str, float]]:
        """The sides of columns outside that anything that counts is made of."""
        # coefficients may be read farther away than a frozen side keeps fields
        return {
            high: side for high, side in enumerate(self._side(name, 1))
            if side[0] != "periodic" and (self._matters(1, high) or (not name and self.n.beside > self.n.rx))
        }  # fmt: skip

    def _images(self, name: str) -> Iterator[Image]:
        """Reads of a field's columns outside where others stand for them."""
        kinds = {high: kind for high, (kind, _) in self._beyond(name).items() if kind != "dirichlet"}
        return images(self.op.grid.extent[1], self.per_lane, self._place, kinds, self._reach)

    def _row(self, name: str, own: Sequence[Value]) -> _Row:
        """A row of a field, or of a coefficient (no name), to read."""
        found = ((column, source, self.firsts[first]) for column, source, first in self._images(name))
        return _Row(self.cx, own, [image for image in found if image[2] != FALSE] if self.op.sides else ())

    def _set_columns(self, own: list[Value], name: str) -> None:
        """Sets the columns outside that hold a constant."""
        constants = {high: side for high, side in self._beyond(name).items() if side[0] == "dirichlet"}
        nx, reach = self.op.grid.extent[1], self._reach
        near = {
            column: self._at(column)
            for high in constants
            for column in (range(nx, nx + reach) if high else range(-reach, 0))
        }
        Columns(self.cx, nx, self.per_lane, self._place, near).set(own, constants, reach)

    def _set_rows(self, own: list[Value], name: str, row: Expr) -> None:
        """A row beyond a side that holds a constant is full of it."""
        b, ny = self.cx.b, self.op.grid.extent[0]
        for high, (kind, constant) in enumerate(self._side(name, 0) if self.op.rows else ()):
            if kind == "dirichlet":
                out = b.let("out", row.ge(ny) if high else row.lt(0))
                value = b.const(own[0].dtype, constant, hint="outside")
                own[:] = [b.select(out, value, old) for old in own]

    def _image_rows(self, own: list[Value], name: str, row: Expr, kept: Buffer, first: Expr, depth: int) -> None:
        """Rows inside stand also for those beyond a side: as far inside (neumann), or that at the edge (frozen)."""
        if not self.op.rows:
            return
        b, ny = self.cx.b, self.op.grid.extent[0]
        low, high = (kind for kind, _ in self._side(name, 0))
        low, high = (kind if self._matters(0, at) else "" for at, kind in enumerate((low, high)))
        for j in range(self.n.ry):
            inside = j if low == "neumann" else 0
            if low in ("neumann", "frozen") and inside + j < depth:
                here, at = b.let("edge", row.eq(inside)), first + (inside + j)
                above = self._get(kept, at)
                self._put(kept, at, [b.select(here, v, old) for v, old in zip(own, above, strict=True)])
            inside = j if high == "neumann" else 0
            if high in ("neumann", "frozen") and inside + j < depth:
                beyond = b.let("beyond", row.eq(ny + j))
                image = self._get(kept, first + (inside + j))
                own[:] = [b.select(beyond, v, old) for v, old in zip(image, own, strict=True)]

    def _keep(self, values: list[Value], name: str, row: Expr, old: Sequence[Value]) -> list[Value]:
        """What a frozen side keeps: a radius of rows and columns."""
        b, (ny, nx), ry, out = self.cx.b, self.op.grid.extent, self.n.ry, list(values)
        ends = (row.lt(ry), row.ge(ny - ry))
        near = [end for end, (kind, _) in zip(ends, self._side(name, 0), strict=True) if kind == "frozen" and ry]
        if near and self.op.rows:
            stays = b.let("kept", any_of(*near))
            out = [b.select(stays, was, value) for was, value in zip(old, out, strict=True)]
        for at_end, (kind, _) in enumerate(self._side(name, 1)):
            for j in range(self.n.rx if kind == "frozen" else 0):
                column = nx - 1 - j if at_end else j
                c = self._place(column)
                out[c] = b.select(self._at(column), old[c], out[c])
        return out
