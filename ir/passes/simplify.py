"""Simplifies warp-level programs: expressions anew, constants and copies through, decided branches and loops away."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .. import warp as w
from ..expr import Const, Expr, Value, substitute
from ..module import Module
from ..node import Op, fields, map_exprs
from .manager import register

#: Ops whose operands must stay named values.
NAMED = (w.Shfl, w.Bitcast, w.Pack)


@register("simplify")
@dataclass(frozen=True)
class Simplify:
    """``let`` of a constant or of another value is carried to its uses (``dce`` then drops it)."""

    def run(self, module: Module) -> Module:
        return dataclasses.replace(module, funcs=tuple(_region((f,), {})[0] for f in module.funcs))


def _region(ops: tuple[Op, ...], known: dict[Value, Expr]) -> tuple[Op, ...]:
    out: list[Op] = []
    for op in ops:
        out += _op(op, known)
    return tuple(out)


def _op(op: Op, known: dict[Value, Expr]) -> tuple[Op, ...]:
    def simpler(e: Expr) -> Expr:
        new = substitute(e, known)
        return e if isinstance(op, NAMED) and isinstance(e, Value) and not isinstance(new, Value) else new

    op = map_exprs(op, simpler)
    if isinstance(op, (w.Ld, w.St, w.CpAsync)) and isinstance(op.where, Const):
        if op.where.value:
            op = dataclasses.replace(op, where=None)
        elif not isinstance(op, w.Ld):
            return ()
    if isinstance(op, w.Let):
        _learn(op, known)
    if isinstance(op, w.If) and isinstance(op.cond, Const):
        return _region(op.then if op.cond.value else op.orelse, known)
    if isinstance(op, w.For):
        if op.start.lo >= op.stop.hi:
            return ()
        if op.start.hi < op.stop.lo and op.stop.hi <= op.start.lo + op.step.lo:
            return _op(w.Let((op.var,), op.start, loc=op.loc), known) + _region(op.body, known)
    inner: dict[str, Any] = {n: _region(getattr(op, n), known) for n, kind, _ in fields(op) if kind == "region"}
    return (dataclasses.replace(op, **inner) if inner else op,)


def _learn(op: w.Let, known: dict[Value, Expr]) -> None:
    out, e = op.out[0], op.expr
    if isinstance(e, Const) or (isinstance(e, Value) and e.dtype is out.dtype):
        known[out] = e
