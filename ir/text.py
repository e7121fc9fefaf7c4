"""Prints programs of every level as ``.sgir`` text; :mod:`sparsegen.ir.parse` reads it back unchanged.

The form follows from the op's declaration, field by field::

    %a: f64, %b: f64 = warp.ld @u, %i * 2 where=%i < 10 cache="cg"
    warp.for %i: s32[0,9], 0, 10, 1 unroll=0 {
      ...
    }

Results with their types (integers with their range, where it is tighter than the type's), the op, its fields without a
default in order (as ``key=value`` if the op is declared ``kw_only``), ``key=value`` for each other field that differs
from its default, regions in braces (the first one bare, the others after their name).  Tuples are in square brackets.
``#`` starts a comment.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import Loc
from .expr import Expr, Value
from .layout import Layout
from .module import Module
from .node import Op, fields
from .table_text import SHORT, packed, scalar_type
from .types import Buffer, DType

WIDTH = 116
ATTRIBUTES: dict[str, type[Any]] = {}
T = TypeVar("T", bound=type[Any])


def attribute(cls: T) -> T:
    """Class decorator: a frozen dataclass that may stand in an ``attr`` field, as ``Name(field=value, ...)``."""
    if not hasattr(cls, "__dataclass_fields__"):
        raise TypeError(f"@attribute is for dataclasses: {cls.__name__} is none")
    ATTRIBUTES[cls.__name__] = cls
    return cls


def print_value(v: Any) -> str:
    """An attribute's value: a number, string, truth value, type, layout, ``@attribute`` object or tuple of these."""
    if v is None or isinstance(v, bool):
        return {None: "none", True: "true", False: "false"}[v]
    if isinstance(v, int):
        return str(v)
    if isinstance(v, float):
        return repr(v) if math.isfinite(v) else ("nan" if math.isnan(v) else "inf" if v > 0 else "-inf")
    if isinstance(v, str):
        return json.dumps(v, ensure_ascii=False)
    if isinstance(v, (DType, Layout)):
        return str(v)
    if isinstance(v, Expr):
        return str(v)
    if isinstance(v, tuple):
        return f"[{', '.join(map(print_value, v))}]"
    if ATTRIBUTES.get(type(v).__name__) is type(v):
        given = (f"{f.name}={print_value(getattr(v, f.name))}" for f in dataclasses.fields(v)
                 if f.init and getattr(v, f.name) != f.default)  # fmt: skip
        return f"{type(v).__name__}({', '.join(given)})"
    raise TypeError(f"an attribute cannot hold {v!r}: decorate its class with sparsegen.ir.text.attribute")


def declaration(x: Value | Buffer) -> str:
    """``%i: s32[0,9]`` of a value, ``@A: shared f64[2152] align=16`` of a buffer."""
    if isinstance(x, Buffer):
        return f"@{x.name}: {x.space} {x.dtype}[{x.size}] align={x.align}"
    whole = (0, 0) if x.dtype.kind == "float" else x.dtype.range
    return f"%{x.name}: {x.dtype}" + ("" if (x.lo, x.hi) == whole else f"[{x.lo},{x.hi}]")


def print_loc(loc: Loc) -> str:
    """``loc("file":line)``, with ``:column`` where it is not zero."""
    file = json.dumps(loc.file, ensure_ascii=not loc.file.isprintable())
    return f"loc({file}:{loc.line}{f':{loc.col}' if loc.col else ''})"


def _one_or_more(show: Callable[[Any], str]) -> Callable[[Any], str]:
    """Prints a field that holds one thing, a tuple of them, or None."""
    return lambda v: "none" if v is None else f"[{', '.join(map(show, v))}]" if isinstance(v, tuple) else show(v)


_PRINT: dict[str, Callable[[Any], str]] = {
    "operand": _one_or_more(str), "buffer": _one_or_more(str), "declare": _one_or_more(declaration),
    "bind": _one_or_more(declaration), "attr": print_value,
}  # fmt: skip


def default_of(f: dataclasses.Field[Any]) -> Any:
    """The field's default, or ``MISSING``."""
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default


def _same(a: Any, b: Any) -> bool:
    """Equal and of one type: ``1`` is not ``True`` and not ``1.0``, ``-0.0`` is not ``0.0``."""
    return type(a) is type(b) and a == b and (not isinstance(a, float) or repr(a) == repr(b))


def head(op: Op, *, locs: bool = False, width: int | None = None) -> str:
    """The op without its regions; lists longer than ``width`` are broken, an item a line."""
    defined = [declaration(x) for n, kind, _ in fields(op) if kind == "result" for x in getattr(op, n)]
    positional: list[tuple[str, str, Any]] = []
    keyed: list[tuple[str, str, Any]] = []
    for name, kind, f in fields(op):
        if kind in ("result", "region"):
            continue
        value = getattr(op, name)
        default = default_of(f)
        declared = value if kind == "declare" and isinstance(value, tuple) else ()
        if default is dataclasses.MISSING and not f.kw_only:
            positional.append(("", _PRINT[kind](value), declared))
        elif not _same(value, default):
            keyed.append((f"{name}=", _PRINT[kind](value), declared))
    tail = [print_loc(op.loc)] if locs and op.loc is not None else []
    start = (f"{', '.join(defined)} = " if defined else "") + op.name

    def line(*, broken: bool) -> str:
        def item(key: str, text: str, declared: tuple[Value | Buffer, ...]) -> str:
            if not (broken and declared):
                return key + text
            return f"{key}[\n" + "".join(f"  {declaration(x)},\n" for x in declared) + "]"

        first = f"{start} {', '.join(item(*x) for x in positional)}".rstrip()
        return " ".join([first, *(item(*x) for x in keyed), *tail])

    whole = line(broken=False)
    return whole if width is None or len(whole) <= width else line(broken=True)


def _lines(op: Op, indent: str, locs: bool) -> list[str]:
    first, *more = head(op, locs=locs, width=WIDTH - len(indent)).split("\n")
    out = [indent + first, *(indent + m for m in more)]
    bare = True
    for name, kind, f in fields(op):
        if kind != "region":
            continue
        ops = getattr(op, name)
        if bare or ops != default_of(f):
            out[-1] += " {" if bare else f" {name} {{"
            for inner in ops:
                out += _lines(inner, indent + "  ", locs)
            out.append(indent + "}")
        bare = False
    return out


def print_op(op: Op, *, locs: bool = False) -> str:
    """The op and its regions; ``locs`` adds each op's source line."""
    return "\n".join(_lines(op, "", locs))


def print_table(name: str, array: Any) -> str:
    """A constant table: its name, type and shape, and the numbers (of a long one compressed)."""
    start = f"constant {print_value(name)} {scalar_type(array)}[{', '.join(map(str, array.shape))}]"
    if array.size <= SHORT:
        return f"{start} {print_value(tuple(array.reshape(-1).tolist()))}"
    return "\n".join([f"{start} zlib [", *(f'  "{line}",' for line in packed(array)), "]"])


def print_module(module: Module, *, locs: bool = False, tables: bool = True) -> str:
    """The whole module; without ``tables`` the constants show as comments: name, type and shape."""
    out = [f"module {print_value(module.name)}"]
    if not tables:
        out += [f"# constant {name}: {a.dtype}[{'x'.join(map(str, a.shape))}]" for name, a in module.constants.items()]
    out += [print_op(f, locs=locs) for f in module.funcs]
    out += [f"launch {print_value(run.symbol)} {print_value(run.args)}" for run in module.launches]
    if tables:
        out += [print_table(name, array) for name, array in module.constants.items()]
    return "\n".join(out) + "\n"
