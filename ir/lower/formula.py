"""A formula in registers: its nodes one after the other, from whatever a read gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import formula as f
from ..expr import Expr, Value, binary
from ..types import DType, sum_type
from .context import Context

#: Gives the number that a read means.
Reader = Callable[[f.Read], Value]


class Formula:
    """Works ``code`` out for cells of ``dtype``, those of 16 bits in f32; results are rounded once.

    Constants are made once, also where many cells use them.
    """

    def __init__(self, cx: Context, code: f.Code, dtype: DType) -> None:
        self.cx, self.code, self.dtype, self.sums = cx, code, dtype, sum_type(dtype)
        self.constants: dict[f.Node, Value] = {}

    def prepare(self) -> None:
        """Makes all constants here, ahead of the loops that use them."""
        for node in self.code:
            if node[0] == "const":
                self._const(node)

    def results(self, places: Sequence[int], read: Reader) -> list[Value]:
        """The numbers at ``places`` of the code, for the cell that ``read`` reads around."""
        values: list[Expr] = []
        for node in self.code:
            values.append(self._node(node, values, read))
        return [self._as(number(values[place]), self.dtype) for place in places]

    def _as(self, value: Value, dtype: DType) -> Value:
        return value if value.dtype is dtype else self.cx.b.convert(value, dtype)

    def _node(self, node: f.Node, values: Sequence[Expr], read: Reader) -> Expr:
        b, op = self.cx.b, str(node[0])
        if op == "read":
            return self._as(read(f.read(node)), self.sums)
        if op == "const":
            return self._const(node)
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
