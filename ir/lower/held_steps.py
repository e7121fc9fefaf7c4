"""``tile.held_steps``: time steps of windows in registers, rows of other warps through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from .. import formula as f
from .. import tile_held as t
from ..expr import FALSE, Expr, Value, all_of, any_of, maximum, minimum
from .context import Context, rule
from .formula import Formula

Array = tuple[str, int]
#: A thread's rows of an array: so many below its first one.
Lines = dict[tuple[Array, int], list[Value]]


@rule(t.HeldSteps)
def held_steps(cx: Context, op: t.HeldSteps) -> None:
    steps = _Steps(cx, op)
    # after as many steps as there are levels each level is in the same registers again
    turns = lcm(*(levels for _, levels in op.fields))
    with cx.b.for_("step", 0, cx.resolve(op.left), unroll=turns) as step:
        steps.one(step)


class _Beside:
    """A row of a thread's columns, and of those beside them, which neighbouring lanes have; past an end of the field
    what the array's sides say."""

    def __init__(self, of: _Steps, array: Array, own: Sequence[Value], constant: Expr) -> None:
        self.of, self.array, self.own, self.constant = of, array, own, constant
        self.found: dict[int, Value] = {}

    def cell(self, c: int) -> Value:
        """The value in column ``c`` of the thread's."""
        cols = len(self.own)
        if 0 <= c < cols:
            return self.own[c]
        if c not in self.found:
            high = c >= cols
            mode, at = ("down", c - cols) if high else ("up", c + cols)
            value = self.of.cx.b.shfl(mode, self.own[at], 1, hint="x")
            outside = c - cols if high else -1 - c  # cells past the end
            self.found[c] = self._ended(value, outside, high)
        return self.found[c]

    def _ended(self, value: Value, outside: int, high: bool) -> Value:
        b, (kind, constant) = self.of.cx.b, self.of.side(self.array, 1)[high]
        if kind == "periodic":
            return value
        if kind == "dirichlet":
            image = b.const(value.dtype, constant, hint="outside")
        else:
            inside = outside if kind == "neumann" else 0
            image = self.own[len(self.own) - 1 - inside if high else inside]
        end = self.of.ends[1][high]
        # a row that is constant itself has the constant of its own side
        return b.select(b.let("end", all_of(end, self.constant.eq(0))) if self.constant != FALSE else end, image, value)


class _Steps:
    """One step of a thread: rows that need none of other warps, a meeting, and those that do."""

    def __init__(self, cx: Context, op: t.HeldSteps) -> None:
        self.cx, self.op = cx, op
        b, warps = cx.b, cx.func.threads // 32
        self.cols = op.held[0].size // op.rows
        self.pitch = 32 * self.cols
        self.sides = dict(zip((*(name for name, _ in op.fields), ""), op.sides, strict=True))
        (y, x), (ny, nx) = map(cx.resolve, op.first), op.extent
        #: Whether the thread is at the low and the high end of the field, along rows and columns.
        self.ends = (
            (b.name(all_of(cx.warp.eq(0), y.eq(0)), "top"),
             b.name(all_of(cx.warp.eq(warps - 1), y.eq(ny - warps * op.rows)), "bottom")),
            (b.name(all_of(cx.lane.eq(0), x.eq(0)), "left"),
             b.name(all_of(cx.lane.eq(31), x.eq(nx - self.pitch)), "right")),
        )  # fmt: skip
        self.formula = Formula(cx, op.code, op.edges.dtype)
        self.formula.prepare()

    def side(self, array: Array, axis: int) -> tuple[tuple[str, float], tuple[str, float]]:
        """The low and the high side of an array's field."""
        return self.sides[array[0] if array[0] in self.sides else ""][axis]

    def one(self, step: Expr) -> None:
        """All rows of the thread, where they still count after this step."""
        b, op, far = self.cx.b, self.op, self.op.far
        old = {
            (array, k): [b.ld(regs, k * self.cols + c, hint="u") for c in range(self.cols)]
            for array, regs in zip(op.arrays, op.held, strict=True) for k in range(op.rows)
        }  # fmt: skip
        first = b.let("first", self._edge(step % 2, self.cx.warp, 0, 0))
        for array in op.passed:
            for k in range(far):
                self._show(first, array, 0, k, old[array, k])
                self._show(first, array, 1, k, old[array, op.rows - far + k])
        counts = self._counts(step)
        inner = range(far, op.rows - far)
        with b.if_(counts):
            self._rows(inner, old)
        if op.passed:
            b.barrier()
        with b.if_(counts):
            self._rows([k for k in range(op.rows) if k not in inner], old | self._others(step, old))

    def _counts(self, step: Expr) -> Expr:
        """Whether rows of the warp are needed after this step: own ones, and what later steps spoil around them."""
        rest = (self.cx.resolve(self.op.left) - 1 - step) * self.op.reach[0]
        row = self.cx.warp * self.op.rows
        low, high = (self.cx.resolve(of[0]) for of in (self.op.low, self.op.high))
        return self.cx.b.let("counts", all_of((row + self.op.rows).gt(low - rest), row.lt(high + rest)))

    # ---------------------------------------------------------------------------------------------- rows of other warps
    def _edge(self, parity: Expr, warp: Expr, last: int, k: int) -> Expr:
        """Where the row ``k`` of a warp's first, or of its last, begins; of the first array."""
        rows, warps = 2 * len(self.op.passed) * self.op.far, self.cx.func.threads // 32
        return ((parity * warps + warp) * rows + last * self.op.far + k) * self.pitch

    def _at(self, first: Expr, array: Array, last: int, k: int, c: int) -> Expr:
        number = self.op.passed.index(array) * 2 * self.op.far + last * self.op.far + k
        return first + (number * self.pitch + c * 32) + self.cx.lane

    def _show(self, first: Expr, array: Array, last: int, k: int, row: Sequence[Value]) -> None:
        for c, value in enumerate(row):
            self.cx.b.st(self.op.edges, self._at(first, array, last, k, c), value)

    def _others(self, step: Expr, old: Lines) -> Lines:
        """The rows above a thread's first and below its last, and what stands for them where the field ends."""
        b, op, warps = self.cx.b, self.op, self.cx.func.threads // 32
        found: Lines = {}
        above = b.let("above", self._edge(step % 2, maximum(self.cx.warp - 1, 0), 0, 0))
        below = b.let("below", self._edge(step % 2, minimum(self.cx.warp + 1, warps - 1), 0, 0))
        for array in op.passed:
            for k in range(op.far):
                for high, first in ((0, above), (1, below)):
                    outside = k if high else op.far - 1 - k  # rows past the end
                    row = [b.ld(op.edges, self._at(first, array, 1 - high, k, c), hint="y") for c in range(self.cols)]
                    at = op.rows + k if high else k - op.far
                    found[array, at] = self._ended(array, row, outside, high, old)
        return found

    def _ended(self, array: Array, row: list[Value], outside: int, high: int, old: Lines) -> list[Value]:
        b, (kind, constant) = self.cx.b, self.side(array, 0)[high]
        if kind == "periodic":
            return row
        if kind == "dirichlet":
            image = [b.const(row[0].dtype, constant, hint="outside")] * self.cols
        else:
            inside = outside if kind == "neumann" else 0
            image = old[array, self.op.rows - 1 - inside if high else inside]
        return [b.select(self.ends[0][high], there, value) for there, value in zip(image, row, strict=True)]

    # ---------------------------------------------------------------------------------------------- the formula
    def _rows(self, rows: Sequence[int], old: Lines) -> None:
        """The new values of some rows; older levels move on."""
        b, op, found = self.cx.b, self.op, dict[tuple[Array, int], _Beside]()

        def read(k: int, c: int, what: f.Read) -> Value:
            name, level, (dy, dx) = what
            key = (name, level), k + dy
            if key not in found:
                found[key] = _Beside(self, key[0], old[key], self._constant(*key))
            return found[key].cell(c + dx)

        for k in rows:
            made = [
                self.formula.results(op.results, lambda what, k=k, c=c: read(k, c, what))  # type: ignore[misc]
                for c in range(self.cols)
            ]
            for i, (name, levels) in enumerate(op.fields):
                new = self._kept(name, k, [cell[i] for cell in made], old[(name, 0), k])
                for level in range(levels):
                    values = old[(name, level - 1), k] if level else new
                    regs = op.held[op.arrays.index((name, level))]
                    for c, value in enumerate(values):
                        b.st(regs, k * self.cols + c, value)

    def _constant(self, array: Array, k: int) -> Expr:
        """Whether a row lies past an end of the field where all cells hold a constant."""
        if 0 <= k < self.op.rows:
            return FALSE
        high = k >= self.op.rows
        return self.ends[0][high] if self.side(array, 0)[high][0] == "dirichlet" else FALSE

    def _kept(self, name: str, k: int, new: list[Value], old: Sequence[Value]) -> list[Value]:
        """What frozen sides keep."""
        b, op, (rows, cols) = self.cx.b, self.op, self.op.keep
        near = [
            self.ends[0][high] for high, (kind, _) in enumerate(self.side((name, 0), 0))
            if kind == "frozen" and (k >= op.rows - rows if high else k < rows)
        ]  # fmt: skip
        out = []
        for c, (value, was) in enumerate(zip(new, old, strict=True)):
            beside = [
                self.ends[1][high] for high, (kind, _) in enumerate(self.side((name, 0), 1))
                if kind == "frozen" and (c >= self.cols - cols if high else c < cols)
            ]  # fmt: skip
            stays = any_of(*near, *beside) if near or beside else None
            out.append(value if stays is None else b.select(b.let("stays", stays), was, value))
        return out
