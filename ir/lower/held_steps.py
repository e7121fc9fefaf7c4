"""``tile.held_steps``: time steps of windows in registers, rows of other warps through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import lcm

from .. import formula as f
from .. import tile_held as t
from ..expr import FALSE, TRUE, Expr, Value, all_of, any_of, maximum, minimum
from ..node import Op
from .context import Context, rule
from .formula import Formula

Array = tuple[str, int]
#: A line of columns of a thread: an array, and the plane and the row among the thread's.
Place = tuple[Array, int, int]


@rule(t.HeldSteps)
def held_steps(cx: Context, op: t.HeldSteps) -> None:
    steps = _Steps(cx, op)
    # after as many steps as there are levels each level is in the same registers again
    turns = lcm(*(levels for _, levels in op.fields))
    with cx.b.for_("step", 0, cx.resolve(op.left), unroll=turns) as step:
        steps.one(step)


class _Line:
    """A thread's columns of a row, and those beside them, which neighbouring lanes have; past an end of the field what
    the array's sides say.  ``constant``: where all cells of the row are one, whatever lies beside them."""

    def __init__(self, of: _Steps, array: Array, own: Sequence[Value], constant: Expr = FALSE) -> None:
        self.of, self.array, self.own, self.constant = of, array, own, constant
        self.found: dict[int, Value] = {}

    def cell(self, c: int) -> Value:
        """The value in column ``c`` of the thread's."""
        cols = len(self.own)
        if 0 <= c < cols or self.constant == TRUE:
            return self.own[c % cols]
        if c not in self.found:
            high = c >= cols
            own = self.own[c - cols if high else c + cols]
            self.found[c] = self._ended(self._beside(own, high), c - cols if high else -1 - c, high)
        return self.found[c]

    def _beside(self, own: Value, high: bool) -> Value:
        """What the next lane has where this one has ``own``."""
        b = self.of.cx.b
        if self.of.op.closed[2]:
            return b.shfl("idx", own, (self.of.cx.lane + (1 if high else 31)) % 32, hint="x")
        return b.shfl("down" if high else "up", own, 1, hint="x")

    def _ended(self, value: Value, outside: int, high: bool) -> Value:
        """``outside``: cells past the end that the cell lies."""
        b, (kind, constant) = self.of.cx.b, self.of.side(self.array, 2)[high]
        if kind == "periodic":
            return value
        if kind == "dirichlet":
            image = b.const(value.dtype, constant, hint="outside")
        else:
            inside = outside if kind == "neumann" else 0
            image = self.own[len(self.own) - 1 - inside if high else inside]
        end = self.of.ends[2][high]
        # a row that is constant itself has the constant of its own side
        return b.select(b.let("end", all_of(end, self.constant.eq(0))) if self.constant != FALSE else end, image, value)


class _Steps:
    """One step of a thread: it shows its outer rows, meets the other warps, and makes its rows."""

    def __init__(self, cx: Context, op: t.HeldSteps) -> None:
        self.cx, self.op = cx, op
        b, warps = cx.b, cx.func.threads // 32
        self.planes, self.rows, self.cols = op.share
        self.pitch = 32 * self.cols
        self.sides = dict(zip((*(name for name, _ in op.fields), ""), op.sides, strict=True))
        (z, y, x), (nz, ny, nx) = map(cx.resolve, op.first), op.extent
        #: Whether the thread is at the low and the high end of the field, along each axis.
        self.ends = (
            (b.name(z.eq(0), "front"), b.name(z.eq(nz - self.planes), "back")),
            (b.name(all_of(cx.warp.eq(0), y.eq(0)), "top"),
             b.name(all_of(cx.warp.eq(warps - 1), y.eq(ny - warps * self.rows)), "bottom")),
            (b.name(all_of(cx.lane.eq(0), x.eq(0)), "left"),
             b.name(all_of(cx.lane.eq(31), x.eq(nx - self.pitch)), "right")),
        )  # fmt: skip
        self.formula = Formula(cx, op.code, op.held[0].dtype, op.scalars)
        self.formula.prepare()

    def side(self, array: Array, axis: int) -> tuple[tuple[str, float], tuple[str, float]]:
        """The low and the high side of an array's field."""
        return self.sides[array[0] if array[0] in self.sides else ""][axis]

    def one(self, step: Expr) -> None:
        """All rows of the thread, where they still count after this step."""
        b, op, far = self.cx.b, self.op, self.op.far
        self.number = self.cx.resolve(op.done) + step
        self._around(op.before)
        old = {
            (array, p, k): [b.ld(regs, self._register(p, k) + c, hint="u") for c in range(self.cols)]
            for array, regs in zip(op.arrays, op.held, strict=True)
            for p, k in product(range(self.planes), range(self.rows))
        }  # fmt: skip
        if op.scalars is not None:
            self.formula.ahead(self.number)
        half = self.number % 2
        first = b.let("first", self._edge(half, self.cx.warp))
        for array in op.passed:
            for p, k in product(self._read(array), range(far)):
                self._show(first, array, 0, p, k, old[array, p, k])
                self._show(first, array, 1, p, k, old[array, p, self.rows - far + k])
        counts = self._counts(step)
        # rows that need no other warp's could be made before the warps meet; measured, that takes 6 to 26 % longer
        if op.passed:
            b.barrier()
        with b.if_(counts):
            self._lines(_Lines(self, old, half))
        self._around(op.after)

    def _around(self, ops: tuple[Op, ...]) -> None:
        """What runs before a step, or after it."""
        if ops and self.op.number is not None:
            with self.cx.scope():
                self.cx.env[self.op.number] = self.cx.b.let("number", self.number, hi=self.op.number.hi)
                self.cx.all(ops)

    def _register(self, p: int, k: int) -> int:
        return (p * self.rows + k) * self.cols

    def _read(self, array: Array) -> list[int]:
        """Planes of which rows of other warps are read."""
        low, high = self.op.made
        if high - low == self.planes:
            return list(range(self.planes))
        far = {offset[0] for name, level, offset in f.reads(self.op.code) if (name, level) == array and offset[1]}
        return [p for p in range(self.planes) if any(low <= p - dz < high for dz in far)]

    def _counts(self, step: Expr) -> Expr:
        """Whether rows of the warp are needed after this step: own ones, and what later steps spoil around them."""
        rest = (self.cx.resolve(self.op.left) - 1 - step) * self.op.reach[1]
        row = self.cx.warp * self.rows
        low, high = (self.cx.resolve(of[1]) for of in (self.op.low, self.op.high))
        return self.cx.b.let("counts", all_of((row + self.rows).gt(low - rest), row.lt(high + rest)))

    # ---------------------------------------------------------------------------------------------- rows of other warps
    def _edge(self, parity: Expr, warp: Expr) -> Expr:
        """Where the rows begin that a warp shows."""
        shown = 2 * len(self.op.passed) * self.planes * self.op.far
        return (parity * (self.cx.func.threads // 32) + warp) * (shown * self.pitch)

    def _at(self, first: Expr, array: Array, last: int, p: int, k: int, c: int) -> Expr:
        """Where column ``c`` is of the row ``k`` of a warp's first, or of its last ones."""
        number = ((self.op.passed.index(array) * 2 + last) * self.planes + p) * self.op.far + k
        return first + (number * self.pitch + c * 32) + self.cx.lane

    def _show(self, first: Expr, array: Array, last: int, p: int, k: int, row: Sequence[Value]) -> None:
        assert self.op.edges is not None  # as rows are read
        for c, value in enumerate(row):
            self.cx.b.st(self.op.edges, self._at(first, array, last, p, k, c), value)

    def neighbours(self, half: Expr) -> tuple[Expr, Expr]:
        """Where the rows begin that the warps above and below show."""
        warps, b = self.cx.func.threads // 32, self.cx.b
        above, below = maximum(self.cx.warp - 1, 0), minimum(self.cx.warp + 1, warps - 1)
        if self.op.closed[1]:
            above, below = (self.cx.warp + (warps - 1)) % warps, (self.cx.warp + 1) % warps
        return b.let("above", self._edge(half, above)), b.let("below", self._edge(half, below))

    def shown(self, first: Expr, array: Array, p: int, k: int) -> list[Value]:
        """A row that another warp shows: the ``k``-th past this one's last, or before its first where k < 0."""
        high = k >= self.rows
        number = k - self.rows if high else self.op.far + k
        assert self.op.edges is not None  # as rows are read
        return [
            self.cx.b.ld(self.op.edges, self._at(first, array, 1 - high, p, number, c), hint="y")
            for c in range(self.cols)
        ]

    # ---------------------------------------------------------------------------------------------- the formula
    def _lines(self, lines: _Lines) -> None:
        """The new values of all rows of all planes; older levels move on."""
        b, op = self.cx.b, self.op
        for p, k in product(range(*op.made), range(self.rows)):
            reads = [partial(lines.read, (p, k, c)) for c in range(self.cols)]
            made = self.formula.results(op.results, reads, self.number)
            for i, (name, levels) in enumerate(op.fields):
                new = self._kept(name, p, k, [cell[i] for cell in made], lines.old[(name, 0), p, k])
                for level in range(levels):
                    values = lines.old[(name, level - 1), p, k] if level else new
                    regs = op.held[op.arrays.index((name, level))]
                    for c, value in enumerate(values):
                        b.st(regs, self._register(p, k) + c, value)

    def _kept(self, name: str, p: int, k: int, new: list[Value], old: Sequence[Value]) -> list[Value]:
        """What frozen sides keep."""
        b, out = self.cx.b, []
        for c, (value, was) in enumerate(zip(new, old, strict=True)):
            near = [
                self.ends[axis][high]
                for axis, (at, keep) in enumerate(zip((p, k, c), self.op.keep, strict=True))
                for high, (kind, _) in enumerate(self.side((name, 0), axis))
                if kind == "frozen" and (at >= self.op.share[axis] - keep if high else at < keep)
            ]
            out.append(b.select(b.let("stays", any_of(*near)), was, value) if near else value)
        return out


class _Lines:
    """The old values around a thread's cells; those past its first and last row are shown in ``half`` of the edges."""

    def __init__(self, of: _Steps, old: dict[Place, list[Value]], half: Expr) -> None:
        self.of, self.old = of, old
        self.around = of.neighbours(half) if of.op.passed else None
        self.found: dict[Place, _Line] = {}

    def read(self, at: tuple[int, int, int], what: f.Read) -> Value:
        """What a read means of the cell in these plane, row and column of the thread's."""
        name, level, (dz, dy, dx) = what
        place = (name, level), at[0] + dz, at[1] + dy
        if place not in self.found:
            self.found[place] = self._line(*place)
        return self.found[place].cell(at[2] + dx)

    def _line(self, array: Array, p: int, k: int) -> _Line:
        """Of sides that a line lies past on two axes that of the slower one wins."""
        of, planes = self.of, self.of.planes
        if not 0 <= p < planes:
            # the ends of a window that are none of the field are spoiled: any value will do
            high = p >= planes
            kind, constant = of.side(array, 0)[high]
            if kind == "dirichlet":
                value = of.cx.b.const(of.op.held[0].dtype, constant, hint="outside")
                return _Line(of, array, [value] * of.cols, TRUE)
            mirrored = 2 * planes - 1 - p if high else -1 - p
            edge = planes - 1 if high else 0
            p = p % planes if kind == "periodic" else mirrored if kind == "neumann" else edge
        if 0 <= k < of.rows:
            return _Line(of, array, self.old[array, p, k])
        return self._past(array, p, k)

    def _past(self, array: Array, p: int, k: int) -> _Line:
        """A row of another warp's, or what stands for it where the field ends."""
        of, high = self.of, k >= self.of.rows
        assert self.around is not None  # who reads other rows has them shown
        row = of.shown(self.around[high], array, p, k)
        kind, constant = of.side(array, 1)[high]
        if kind == "periodic":
            return _Line(of, array, row)
        if kind == "dirichlet":
            image = [of.cx.b.const(row[0].dtype, constant, hint="outside")] * of.cols
        else:
            mirrored = 2 * of.rows - 1 - k if high else -1 - k
            edge = of.rows - 1 if high else 0
            image = self.old[array, p, mirrored if kind == "neumann" else edge]
        end = of.ends[1][high]
        row = [of.cx.b.select(end, there, value) for there, value in zip(image, row, strict=True)]
        return _Line(of, array, row, end if kind == "dirichlet" else FALSE)
