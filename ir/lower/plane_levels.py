"""``tile.plane_levels``: time steps of a plane by partial sums, with or without a border that holds at each of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import tile_levels as p
from ..expr import FALSE, TRUE, Expr, ExprLike, Value, all_of, any_of, maximum, minimum
from ..types import Buffer
from .context import Context


def plane_levels(cx: Context, op: p.PlaneLevels) -> None:
    """All levels of one plane; see :class:`sparsegen.ir.tile_levels.PlaneLevels`."""
    (_chained if op.lag == op.radius[0] else _lagged)(cx, op)


def _chained(cx: Context, op: p.PlaneLevels) -> None:
    """What completes a plane lies in its own place: complete all levels first, then give to the unfinished ones."""
    b, n = cx.b, op.values.size
    slot = cx.resolve(op.turn) % 2 * op.count
    with b.for_("level", 0, op.count, unroll=0) as level:
        plane = _Plane(cx, op, level, op.values, 0)
        plane.send(slot + level)
        for i, value in enumerate(plane.own):
            b.st(op.planes, level * n + i, value)
        plane.add([(offset, w) for offset, w in plane.taps if offset[0] == op.radius[0]])
        plane.finish(op.values, 0)
    b.barrier()
    with b.for_("level", 0, op.count, unroll=0) as level:
        plane = _Plane(cx, op, level, op.planes, level * n, known=True)
        plane.receive(slot + level)
        plane.image_before()
        plane.add([(offset, w) for offset, w in plane.taps if offset[0] < op.radius[0]])
        plane.keep()
        plane.image_behind()


def _lagged(cx: Context, op: p.PlaneLevels) -> None:
    """A level takes what the one before completed a turn ago, the last level first."""
    b, n = cx.b, op.values.size
    slot = cx.resolve(op.turn) % 2 * op.count
    for i in range(n):
        b.st(op.planes, i, b.ld(op.values, i, hint="u"))
    with b.for_("level", 0, op.count, unroll=0) as level:
        plane = _Plane(cx, op, level, op.planes, level * n)
        plane.send(slot + level)
        for i, value in enumerate(plane.own if op.grid.sides else ()):
            b.st(op.planes, level * n + i, value)
    b.barrier()
    with b.for_("down", 0, op.count, unroll=0) as down:
        deepest = op.count - 1 - down
        plane = _Plane(cx, op, deepest, op.planes, deepest * n, known=True)
        plane.receive(slot + deepest)
        plane.image_before()
        plane.add(plane.taps)
        plane.finish(op.planes, (deepest + 1) * n)
        plane.keep()
        plane.image_behind()
    for i in range(n):
        b.st(op.values, i, b.ld(op.planes, op.count * n + i, hint="o"))


@dataclass
class _Plane:
    """This thread's part of a level's plane: its cells, its neighbours', and the sums that it gives to."""

    cx: Context
    op: p.PlaneLevels
    level: Expr
    source: Buffer
    base: ExprLike
    known: bool = False  # whether cells outside have been set
    sums: dict[tuple[int, int, int], Value] = field(default_factory=dict)  # (k planes to completion, line, column)
    shuffled: dict[tuple[int, int], Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        b, op = self.cx.b, self.op
        self.lines, self.per_lane = op.lines, op.values.size // op.lines
        self.rz, self.ry, self.rx = op.radius
        self.taps = [(offset, b.ld(op.weights, i, hint="w")) for i, (offset, _) in enumerate(op.taps)]
        z, y, x = map(self.cx.resolve, op.at)
        self.z = b.let("lz", z + self.cx.resolve(op.turn) - op.above - self.level * op.lag) if op.grid.sides else z
        self.y = y - op.lead[0] + self.cx.warp * op.lines
        self.x = x - op.lead[1] + self.cx.lane * self.per_lane
        if not self.known and self._kind(0, 1) == "neumann":  # its image has been added already: give nothing
            with b.if_(self.z.ge(op.grid.extent[0])):
                for i in range(op.values.size):
                    b.st(self.source, self.base + i, self._zero())
        self.own = [self._inside(i) for i in range(op.values.size)]
        self.rows: dict[int, list[Value]] = {
            line: self.own[line * self.per_lane : (line + 1) * self.per_lane] for line in range(self.lines)
        }

    # ---------------------------------------------------------------------------------- the border, at every level
    def _inside(self, i: int) -> Value:
        """A cell's value; outside across a dirichlet side its constant.  The slowest axis wins."""
        b, op = self.cx.b, self.op
        value = b.ld(self.source, self.base + i, hint="u")
        if self.known:
            return value
        at = (self.z, self.y + i // self.per_lane, self.x + i % self.per_lane)
        constants = {v for pair in op.grid.sides for kind, v in pair if kind == "dirichlet"}
        if not constants:
            return value
        if len(constants) > 1:
            return self._by_axis(value, at)
        out = [self._bit(op.outside, i)]
        for far, (kind, _) in zip((self.z.lt(0), self.z.ge(op.grid.extent[0])), op.grid.sides[0], strict=True):
            out += [far] if kind == "dirichlet" else []
        return b.select(
            b.let("out", all_of(any_of(*out), self._counts())),
            b.const(value.dtype, constants.pop(), hint="outside"),
            value,
        )

    def _counts(self) -> Expr:
        """False for a plane behind a mirrored side, which gives nothing (see ``image_behind``)."""
        return self.z.lt(self.op.grid.extent[0]) if self._kind(0, 1) == "neumann" else TRUE

    def _bit(self, mask: Expr, i: int) -> Expr:
        return ((self.cx.resolve(mask) >> i) & 1).ne(0)

    def _by_axis(self, value: Value, at: tuple[Expr, ...]) -> Value:
        """A cell's value where sides hold different constants: the slowest axis decides last, so it wins."""
        b, op = self.cx.b, self.op
        for axis in reversed(range(len(op.grid.sides))):
            for (kind, constant), out in zip(
                op.grid.sides[axis], (at[axis].lt(0), at[axis].ge(op.grid.extent[axis])), strict=True
            ):
                if kind == "dirichlet":
                    value = b.select(
                        b.let("out", all_of(out, self._counts())), b.const(value.dtype, constant, hint="outside"), value
                    )
        return value

    def _kind(self, axis: int, high: int) -> str:
        return self.op.grid.sides[axis][high][0] if self.op.grid.sides else ""

    def _kept(self, i: int, z: Expr) -> Expr:
        """Whether a frozen side keeps cell ``i`` of plane ``z``."""
        out = [z.lt(self.rz)] if self._kind(0, 0) == "frozen" else []
        out += [z.ge(self.op.grid.extent[0] - self.rz)] if self._kind(0, 1) == "frozen" else []
        if "frozen" in {self._kind(axis, high) for axis in (1, 2) for high in (0, 1)}:
            out.append(self._bit(self.op.kept, i))
        return any_of(*out)

    # ---------------------------------------------------------------------------------- neighbours
    def _edge(self, warp: Expr, side: int, row: int, slot: Expr) -> Expr:
        """Element of ``edges`` where a warp's ``row``-th row at its low (0) or high (1) side begins, for this lane."""
        warps, width = self.cx.func.threads // 32, 32 * self.per_lane
        return (((slot * warps + warp) * 2 + side) * self.ry + row) * width + self.cx.lane * self.per_lane

    def send(self, slot: Expr) -> None:
        """Writes the warp's outermost rows for its neighbours."""
        wide = 16 // self.op.values.dtype.nbytes
        for side in (0, 1):
            for row in range(self.ry):
                line = row if side == 0 else self.lines - self.ry + row
                at = self.cx.b.let("edge", self._edge(self.cx.warp, side, row, slot))
                for c in range(0, self.per_lane, wide):
                    self.cx.b.st(self.op.edges, at + c, *self.rows[line][c : c + wide])

    def receive(self, slot: Expr) -> None:
        """Reads the rows beyond the warp's; the first and the last warp, which have none there, get their own."""
        b, warps, wide = self.cx.b, self.cx.func.threads // 32, 16 // self.op.values.dtype.nbytes
        for side, neighbour in ((1, maximum(self.cx.warp - 1, 0)), (0, minimum(self.cx.warp + 1, warps - 1))):
            for row in range(self.ry):
                at = b.let("edge", self._edge(neighbour, side, row, slot))
                values: list[Value] = []
                for c in range(0, self.per_lane, wide):
                    values += b.ldv(self.op.edges, at + c, wide, hint="e")
                self.rows[row - self.ry if side else self.lines + row] = values

    def _cell(self, line: int, c: int) -> Value:
        """The value in column ``c`` of a row, from a neighbouring lane where the thread does not own it."""
        if 0 <= c < self.per_lane:
            return self.rows[line][c]
        if (line, c) not in self.shuffled:
            mode, at = ("up", c + self.per_lane) if c < 0 else ("down", c - self.per_lane)
            self.shuffled[line, c] = self.cx.b.shfl(mode, self.rows[line][at], 1, hint="x")
        return self.shuffled[line, c]

    def _near(self, line: int, c: int, dy: int, dx: int) -> Value:
        """The neighbour of a cell; across a neumann side the edge cell itself."""
        b = self.cx.b

        def across(row: int) -> Value:
            value = self._cell(row, c + dx)
            border = self.op.grid.extent[2] - 1 if dx > 0 else 0
            # windows start at a multiple of a lane's columns: the border can be in one of them only
            if dx and self._kind(2, dx > 0) == "neumann" and border % self.per_lane == c:
                return b.select(b.let("edge_x", (self.x + c).eq(border)), self._cell(row, c), value)
            return value

        value = across(line + dy)
        if dy and self._kind(1, dy > 0) == "neumann":
            edge = (self.y + line).eq(self.op.grid.extent[1] - 1 if dy > 0 else 0)
            return b.select(b.let("edge_y", edge), across(line), value)
        return value

    # ---------------------------------------------------------------------------------- sums
    def _sum(self, k: int, i: int) -> Expr:
        return (self.level * (2 * self.rz) + k) * self.op.values.size + i

    def add(self, taps: list[tuple[tuple[int, ...], Value]]) -> None:
        """Gives the plane's cells to the sums of the planes that they touch, row by row of the window."""
        b = self.cx.b
        for j in range(-self.ry, self.lines + self.ry):
            for line in range(max(0, j - self.ry), min(self.lines, j + self.ry + 1)):
                for (dz, dy, dx), w in taps:
                    if line + dy != j:
                        continue
                    for c in range(self.per_lane):
                        u, key = self._near(line, c, dy, dx), (self.rz - dz, line, c)
                        if key not in self.sums and key[0] < 2 * self.rz:
                            self.sums[key] = b.ld(self.op.sums, self._sum(key[0], line * self.per_lane + c), hint="s")
                        old = self.sums.get(key)
                        self.sums[key] = self.cx.plus(old, w, u)

    def _given(self, k: int, line: int, c: int) -> Value:
        """The sum of the plane that is ``k`` planes from completion, with what earlier planes gave."""
        if (k, line, c) in self.sums:
            return self.sums[k, line, c]
        i = line * self.per_lane + c
        return self.cx.b.ld(self.op.sums, self._sum(k, i), hint="s") if k < 2 * self.rz else self._zero()

    def _zero(self) -> Value:
        return self.cx.b.const(self.op.values.dtype, 0.0, hint="zero")

    def keep(self) -> None:
        """Stores the sums of unfinished planes, each one plane nearer to completion."""
        b = self.cx.b
        if not self.rz:  # a plane is complete at once
            return
        for i in range(self.op.values.size):
            values = {k: self._given(k, *divmod(i, self.per_lane)) for k in range(1, 2 * self.rz + 1)}
            for k in range(1, self.rz + 1):  # of planes that have passed, their own values stay
                kept = self._kept(i, self.z - (self.rz - k))
                if kept != FALSE:
                    own = self.own[i] if k == self.rz else b.ld(self.op.sums, self._sum(k, i), hint="s")
                    values[k] = b.select(b.let("kept", kept), own, values[k])
            for k, value in values.items():
                b.st(self.op.sums, self._sum(k - 1, i), value)

    def finish(self, into: Buffer, base: ExprLike) -> None:
        """Stores the plane that is complete now."""
        b = self.cx.b
        for i in range(self.op.values.size):
            value, kept = self._given(0, *divmod(i, self.per_lane)), self._kept(i, self.z - self.rz)
            if kept != FALSE:
                old = b.ld(self.op.sums, self._sum(0, i), hint="s") if self.rz else self.own[i]
                value = b.select(b.let("kept", kept), old, value)
            b.st(into, base + i, value)

    # ---------------------------------------------------------------------------------- mirrored along the slowest axis
    def _image(self, i: int, dz: int, value: Value | None) -> Value | None:
        """``value`` and what the plane's image beyond a side gives to the plane itself (radius 1)."""
        line, c = divmod(i, self.per_lane)
        for offset, w in self.taps:
            if offset[0] == dz:
                u = self._near(line, c, *offset[1:])
                value = self.cx.plus(value, w, u)
        return value

    def image_before(self) -> None:
        """The first plane: its image stands for the plane before it."""
        if self._kind(0, 0) != "neumann":
            return
        self._share(-1)
        with self.cx.b.if_(self.z.eq(0)):
            for i in range(self.op.values.size):
                self.cx.b.st(self.op.sums, self._sum(1, i), self._image(i, -1, None) or self._zero())

    def image_behind(self) -> None:
        """The last plane: its image stands for the plane behind it; so that one gives nothing."""
        if self._kind(0, 1) != "neumann":
            return
        b = self.cx.b
        self._share(1)
        with b.if_(self.z.eq(self.op.grid.extent[0] - 1)):
            for i in range(self.op.values.size):
                old = b.ld(self.op.sums, self._sum(0, i), hint="s")
                new, kept = self._image(i, 1, old) or old, self._kept(i, self.z)
                b.st(self.op.sums, self._sum(0, i), new if kept == FALSE else b.select(b.let("kept", kept), old, new))

    def _share(self, dz: int) -> None:
        """Asks neighbouring lanes before the branch: all that the image needs, so that no shuffle is left inside."""
        for line in range(self.lines):
            for c in range(self.per_lane):
                for offset, _ in self.taps:
                    if offset[0] == dz:
                        self._near(line, c, *offset[1:])
