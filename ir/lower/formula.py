"""A formula in registers: its nodes one after the other, from whatever a read gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from .. import formula as f
from ..expr import Expr, Value, binary
from ..types import Buffer, DType, cell_type
from .context import Context

#: Gives the number that a read means.
Reader = Callable[[f.Read], Value]
#: Operations of all cells after which lanes meet where registers are crowded.
MEET: Final = 24


class Formula:
    """Works ``code`` out for cells of ``dtype``, those of 16 bits and of bytes in f32; results are rounded once.

    Constants are made once, also where many cells use them, and so is what has one value for all cells of a time step,
    as scalars have: ``scalars`` has those of each step, one step after the other.
    """

    def __init__(self, cx: Context, code: f.Code, dtype: DType, scalars: Buffer | None = None) -> None:
        self.cx, self.code, self.dtype, self.sums = cx, code, dtype, cell_type(dtype)
        self.scalars, self.names = scalars, f.scalars(code)
        self.constants: dict[f.Node, Value] = {}
        self.uniform = f.uniform(code)
        self.known: dict[tuple[int, Expr | int], Expr] = {}

    def prepare(self) -> None:
        """Makes all constants here, ahead of the loops that use them."""
        for node in self.code:
            if node[0] == "const":
                self._const(node)

    def ahead(self, step: Expr | int) -> None:
        """Works out here what all cells have in common in this step, ahead of all that they wait for."""
        values: dict[int, Expr] = {}
        for place in sorted(self.uniform):
            values[place] = self._common(place, values, step)

    def results(
        self, places: Sequence[int], reads: Sequence[Reader], step: Expr | int = 0, *, crowded: bool = False
    ) -> list[list[Value]]:
        """The numbers at ``places`` of the code, for each cell that one of ``reads`` reads around, in this step.

        Each node is worked out for all cells before the next one, so that a sum that waits for its last term leaves
        the others to go on, and what was loaded for all cells is soon done with.  nvcc may put them in another order.
        Where registers are ``crowded`` it tends to work out one cell after the other, so lanes meet in between.
        """
        cells: list[dict[int, Expr]] = [{} for _ in reads]
        made = 0
        for place, node in enumerate(self.code):
            if place in self.uniform:
                common = self._common(place, cells[0], step)
                for values in cells:
                    values[place] = common
            elif node[0] == "read":
                for read, values in zip(reads, cells, strict=True):
                    values[place] = self.cx.convert(read(f.read(node)), self.sums)
            else:
                if crowded and made >= MEET:
                    self.cx.b.sync()
                    made = 0
                for values in cells:
                    values[place] = self._node(node, values)
                made += len(cells)
        return [[self.cx.to_cell(number(values[place]), self.dtype) for place in places] for values in cells]

    def _common(self, place: int, values: Mapping[int, Expr], step: Expr | int) -> Expr:
        """What has one value for all cells of a step, made where it is first needed."""
        node = self.code[place]
        if node[0] == "const":
            return self._const(node)
        if (place, step) not in self.known:
            scalar = node[0] == "scalar"
            self.known[place, step] = self._scalar(node, step) if scalar else self._node(node, values)
        return self.known[place, step]

    def _node(self, node: f.Node, values: Mapping[int, Expr]) -> Expr:
        b, op = self.cx.b, str(node[0])
        if op in f.LOGIC:
            conds = [values[a] for a in f.operands(node)]
            return b.let("p", conds[0].eq(0) if op == "not" else binary(op, *conds))
        if op == "where":
            cond, yes, no = (values[a] for a in f.operands(node))
            return b.select(cond, number(yes), number(no))
        first, *rest = (number(values[a]) for a in f.operands(node))
        if op == "fma":
            return b.fma(first, rest[0], rest[1])
        if op in f.UNARY:
            return b.unary(op, first)
        if (by := f.divisor(self.code, node)) is not None:
            return b.quotient(first, by)
        return b.compare(op, first, rest[0]) if op in f.COMPARE else b.binary(op, first, rest[0])

    def _scalar(self, node: f.Node, step: Expr | int) -> Value:
        assert self.scalars is not None  # the verifier has seen to it
        place = step * len(self.names) + self.names.index(str(node[1]))
        cache = "nc" if self.scalars.space == "global" else ""
        return self.cx.b.ld(self.scalars, place, cache=cache, hint=str(node[1]))

    def _const(self, node: f.Node) -> Value:
        value = node[1]
        assert isinstance(value, float)
        if node not in self.constants:
            self.constants[node] = self.cx.b.const(self.sums, value, hint="k")
        return self.constants[node]


def number(value: Expr) -> Value:
    """A node's value, which is no condition."""
    assert isinstance(value, Value)
    return value
