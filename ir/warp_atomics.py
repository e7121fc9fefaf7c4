"""Atomics on global or shared memory, with the old value and without."""

from __future__ import annotations

from .expr import Expr, Value
from .node import Op, attr, buffer, define, operand, result
from .types import Buffer


@define("warp.atom")
class Atom(Op):
    """Atomic ``add``, ``max``, ``min``, ``exch``, ``inc`` on global or shared memory; gives the old value."""

    out: tuple[Value] = result()
    op: str = attr()
    buf: Buffer = buffer(writes=True)
    index: Expr = operand()
    val: Expr = operand()


@define("warp.red")
class Red(Op):
    """Atomic ``add`` without a result."""

    op: str = attr()
    buf: Buffer = buffer(writes=True)
    index: Expr = operand()
    val: Expr = operand()
