"""Refuses wrong programs: names and scopes for every level from the declarations, and each op's own rules.

The rules of single ops are registered by :func:`sparsegen.ir.checks.check`.  Diagnostics name the op as text and point
at the line that it came from.
"""

from __future__ import annotations

from typing import Any, Final

from . import expr as ex
from . import tile_rules, verify_cluster, verify_group, verify_memory, verify_warp
from .checks import CHECKS, Context, is_condition
from .errors import IRError
from .expr import Bin, Expr, Select, Value
from .field_types import wrong
from .module import Module
from .node import Op, buffers, fields, walk
from .text import declaration, head
from .types import Buffer
from .uniform import Levels
from .verify_launch import check_launches

#: The files whose import registers the rules of the warp level and of the tile ops that many kernels use; all others
#: stand beside their ops.
RULES: Final = (tile_rules, verify_cluster, verify_group, verify_memory, verify_warp)


class _Scopes:
    """Walks one function: every name is defined once, before its use, and used as it was declared."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.ever: dict[str, Op] = {}

    def define(self, x: Value | Buffer, op: Op, scope: dict[str, Value | Buffer]) -> None:
        name = f"@{x.name}" if isinstance(x, Buffer) else f"%{x.name}"
        if name in self.ever:
            self.ctx.fail(f"{name} is defined a second time; first by: {head(self.ever[name])}",
                          "names are unique in a function", op)  # fmt: skip
        self.ever[name] = op
        scope[name] = x
        if isinstance(x, Buffer):
            self.ctx.need(x.size > 0, f"{declaration(x)} has no elements")
            self.ctx.need(x.align > 0 and x.align & (x.align - 1) == 0, f"{declaration(x)}: no power of two")
        else:
            self.ctx.need(x.lo <= x.hi, f"{declaration(x)} has an empty range")
            self.ctx.defined[x] = op

    def use(self, name: str, x: Value | Buffer, op: Op, scope: dict[str, Value | Buffer]) -> None:
        known = scope.get(name)
        if known is None:
            if name in self.ever:
                self.ctx.fail(f"{name} is used outside the region that defines it: {head(self.ever[name])}", op=op)
            self.ctx.fail(f"{name} is not defined", op=op)
        elif known != x:
            self.ctx.fail(f"{name} is used as {declaration(x)}, but declared as {declaration(known)}", op=op)

    def expression(self, e: Expr, op: Op, scope: dict[str, Value | Buffer]) -> None:
        for x in ex.walk(e):
            if isinstance(x, Value):
                self.use(f"%{x.name}", x, op, scope)
                if x is not e and x.dtype.kind == "float":
                    self.ctx.fail(f"integer expression {e} reads the {x.dtype} value %{x.name}", op=op)
            elif isinstance(x, Bin) and x.op in ("//", "%") and (x.a.lo < 0 or x.b.lo <= 0):
                self.ctx.fail(f"{x}: the left side may be {x.a.lo}, the right side {x.b.lo}", op=op)
            elif isinstance(x, Select) and not is_condition(x.c):
                self.ctx.fail(f"the condition of {x} is no predicate", op=op)

    def visit(self, op: Op, scope: dict[str, Value | Buffer], path: tuple[tuple[Op, str], ...]) -> None:
        ctx = self.ctx
        ctx.op, ctx.path = op, path
        for _, what in wrong(type(op), vars(op)):
            ctx.fail(what, "the fields are declared with the op")
        shape = fields(op)
        nested = any(kind == "region" for _, kind, _ in shape)
        inner = dict(scope) if nested else scope
        for name, kind, _ in shape:  # what the op brings in comes first: its own fields may use it
            if kind in ("declare", "bind"):
                for x in _flat(getattr(op, name)):
                    self.define(x, op, inner)
        for name, kind, _ in shape:
            for x in _flat(getattr(op, name)) if kind in ("operand", "buffer") else ():
                if kind == "buffer":
                    ctx.need(isinstance(x, Buffer), f"{name} must be a buffer, not {x!r}")
                    self.use(f"@{x.name}", x, op, inner)
                else:
                    ctx.need(isinstance(x, Expr), f"{name} must be an expression, not {x!r}")
                    self.expression(x, op, scope)
        for x in (x for name, kind, _ in shape if kind == "result" for x in getattr(op, name)):
            ctx.need(isinstance(x, Value), f"result {x!r} is no value")
            self.define(x, op, scope)
        if nested and hasattr(op, "builtins"):
            built_in: dict[str, Value] = getattr(op, "builtins")()  # noqa: B009 - not every op has it
            for n, v in built_in.items():
                if f"%{n}" in self.ever:
                    ctx.fail(f"%{n} is the name of a built-in value")
                self.ever[f"%{n}"] = op
                inner[f"%{n}"] = v
                ctx.defined[v] = None
        for name, _, f in shape:
            if names := f.metadata.get("one_of"):
                ctx.one_of(getattr(op, name), names, name)
            if (least := f.metadata.get("least")) is not None and any(n < least for n in _flat(getattr(op, name))):
                ctx.fail(f"{name} is {getattr(op, name)}, but {least} at least")
        for rule in CHECKS.get(type(op), ()):
            rule(op, ctx)
        for name, kind, _ in shape:
            if kind == "region":
                local = dict(inner)
                for o in getattr(op, name):
                    if not isinstance(o, Op):
                        ctx.fail(f"region {name} holds {o!r}, which is no op", op=op)
                    self.visit(o, local, (*path, (op, name)))


def _flat(v: Any) -> tuple[Any, ...]:
    return () if v is None else v if isinstance(v, tuple) else (v,)


def _function(func: Op, shared_limit: int | None) -> None:
    written = frozenset(b for op in walk(func) for b in buffers(op, writes=True))
    ctx = Context(func, shared_limit, written=written, levels=Levels.of(func))
    _Scopes(ctx).visit(func, {}, ())


def verify(program: Module | Op, *, shared_limit: int | None = None) -> None:
    """Raises :class:`IRError` for the first thing that is wrong; ``shared_limit`` is in bytes a block."""
    if isinstance(program, Op):
        return _function(program, shared_limit)
    symbols: dict[str, Op] = {}
    for f in program.funcs:
        _function(f, shared_limit)
        symbol = str(getattr(f, "symbol", ""))
        if symbol and symbol in symbols:
            raise IRError(f"module {program.name!r} has two functions {symbol!r}", loc=f.loc)
        symbols[symbol] = f
    for run in program.launches:
        if run.symbol not in symbols:
            raise IRError(f"a launch of {run.symbol!r}, which module {program.name!r} has not",
                          hint=f"functions: {', '.join(symbols) or 'none'}")  # fmt: skip
        params = _flat(getattr(symbols[run.symbol], "params", None))
        if params and len(params) != len(run.args):
            names = ", ".join(p.name for p in params)
            raise IRError(f"launch of {run.symbol!r} binds {len(run.args)} arguments to its {len(params)} parameters",
                          loc=symbols[run.symbol].loc, hint=f"one role for each of {names}")  # fmt: skip
    check_launches(program)
