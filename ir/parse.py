"""Reads ``.sgir`` text: the exact inverse of :mod:`sparsegen.ir.text`, from the same declarations.

``parse_op(print_op(x)) == x`` for every op.  Expressions are built as they are written, without simplification.
Names resolve by scope: what a function declares, its built-ins, results of earlier ops, loop variables.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from .errors import IRError, Loc
from .expr import PRECEDENCE, Bin, Const, Expr, Select, Value, _range
from .field_types import wrong
from .layout import Layout
from .lexer import Lexer, Token
from .module import Launch, Module
from .node import OPS, Op, fields, results
from .registry import load_all
from .table_text import listed, unpacked
from .text import ATTRIBUTES, default_of
from .types import DTYPES, ELEMENTS, Buffer

R = TypeVar("R")
Scope = dict[str, "Value | Buffer"]  # keys carry their sigil: %i, @u
_SPACES: Final = ("global", "shared", "reg", "param")
_WORDS: Final[dict[str, Any]] = {"none": None, "true": True, "false": False, "inf": math.inf, "nan": math.nan}


class Parser(Lexer):
    """A recursive-descent parser over one text; ``scope`` maps names with their sigil to what they stand for."""

    def __init__(self, text: str, file: str | None = None, scope: Iterable[Value | Buffer] = ()) -> None:
        super().__init__(text, file)
        load_all()
        self.scope: Scope = {str(x) if isinstance(x, Buffer) else f"%{x.name}": x for x in scope}
        self.bare = False  # inside layout<...>: dimensions are written without their sigil

    # -------------------------------------------------------------------------------------------- expressions
    def expr(self, least: int = 0) -> Expr:
        """An expression whose operators bind at least as tightly as ``least``."""
        left = self.primary()
        while (op := self.now.text) in PRECEDENCE and self.now.kind in ("punct", "name") and PRECEDENCE[op] >= least:
            at = self.now.at
            self.i += 1
            left = self.bin(op, left, self.expr(PRECEDENCE[op] + 1), at)
        return left

    def bin(self, op: str, a: Expr, b: Expr, at: int) -> Expr:
        """The plain node; refuses what :func:`sparsegen.ir.expr.binary` refuses."""
        if op in ("//", "%") and (a.lo < 0 or b.lo <= 0):
            raise self.error(f"{a} {op} {b}: the left side may be {a.lo}, the right side {b.lo}", at,
                             "division needs a left side >= 0 and a right side > 0")  # fmt: skip
        try:
            return Bin(op, a, b, *_range(op, a, b))
        except IRError as e:
            raise self.error(e.message, at) from None

    def primary(self) -> Expr:
        t = self.now
        if t.kind == "int" or self.peek("-"):
            return Const(self.integer())
        if self.accept("("):
            inner = self.expr()
            self.expect(")")
            return inner
        if t.kind == "value":
            return self.value()
        if t.kind == "name" and t.text in ("min", "max", "select"):
            self.i += 1
            self.expect("(")
            args = self.many(")", self.expr)
            want = 3 if t.text == "select" else 2
            if len(args) != want:
                raise self.error(f"{t.text} takes {want} arguments, got {len(args)}", t.at)
            return Select(*args) if want == 3 else self.bin(t.text, args[0], args[1], t.at)
        if self.bare and t.kind == "name":
            return self.value()
        raise self.error(f"expected an expression, found {self.found()}")

    def value(self) -> Value:
        key = self.now.text if self.now.kind == "value" else f"%{self.now.text}"
        got = self.scope.get(key)
        if not isinstance(got, Value):
            raise self.error(f"{key} is not defined here; in scope: {self._names('%')}")
        self.i += 1
        return got

    def _names(self, sigil: str) -> str:
        return ", ".join(n for n in self.scope if n[0] == sigil) or "nothing"

    # -------------------------------------------------------------------------------------------- declarations
    def declared(self) -> Value | Buffer:
        """``%i: s32[0,9]`` or ``@A: shared f64[2152] align=16``; brings the name into scope."""
        new = self.declaration()
        self.scope[str(new) if isinstance(new, Buffer) else f"%{new.name}"] = new
        return new

    def declaration(self) -> Value | Buffer:
        name = self.now.text
        if self.now.kind not in ("value", "buffer"):
            raise self.error(f"expected a declaration (%name: type or @name: space type[size]), found {self.found()}")
        self.i += 1
        self.expect(":")
        return self._buffer(name[1:]) if name[0] == "@" else self._value(name[1:])

    def _value(self, name: str) -> Value:
        dtype = self.dtype()
        if not self.accept("["):
            return Value(name, dtype)
        lo = self.integer("the smallest value")
        self.expect(",")
        hi = self.integer("the largest value")
        self.expect("]")
        return Value(name, dtype, lo, hi)

    def _buffer(self, name: str) -> Buffer:
        if self.now.text not in _SPACES:
            raise self.error(f"expected a memory space ({', '.join(_SPACES)}), found {self.found()}")
        space: Any = self.take("name", "a memory space")
        dtype = self.dtype()
        self.expect("[")
        size = self.integer("the number of elements")
        self.expect("]")
        align = 16
        if self.accept("align"):
            self.expect("=")
            align = self.integer("the alignment in bytes")
        return Buffer(name, dtype, size, space, align)

    def dtype(self) -> Any:
        if self.now.kind != "name" or self.now.text not in DTYPES:
            raise self.error(f"expected a type ({', '.join(DTYPES)}), found {self.found()}")
        self.i += 1
        return DTYPES[self.tokens[self.i - 1].text]

    # -------------------------------------------------------------------------------------------- fields
    def field(self, kind: str) -> Any:
        """One field's value of the given kind."""
        if kind == "attr":
            return self.attribute()
        if self.accept("none"):
            return None
        parts: dict[str, Callable[[], Any]] = {"operand": self.expr, "buffer": self.buffer}
        one = parts.get(kind, self.declared)
        return self.many("]", one) if self.accept("[") else one()

    def buffer(self) -> Buffer:
        name = self.now.text
        if self.now.kind != "buffer":
            raise self.error(f"expected a buffer (@name), found {self.found()}")
        got = self.scope.get(name)
        if not isinstance(got, Buffer):
            raise self.error(f"{name} is not declared here; in scope: {self._names('@')}")
        self.i += 1
        return got

    def attribute(self) -> Any:
        t = self.now
        if t.kind == "str":
            return self.string()
        if t.kind == "float":
            self.i += 1
            return float(t.text)
        if self.accept("["):
            return self.many("]", self.attribute)
        if t.kind == "value":
            return self.expr()
        if t.kind == "name":
            if t.text == "layout":
                return self.layout()
            self.i += 1
            if t.text in _WORDS:
                return _WORDS[t.text]
            if t.text in ELEMENTS:
                return ELEMENTS[t.text]
            if t.text in ATTRIBUTES:
                return self._object(ATTRIBUTES[t.text], t)
            self.i -= 1
        elif self.accept("-"):
            if self.now.kind == "float" or self.accept("inf"):
                return -(self.attribute() if self.now.kind == "float" else math.inf)
            return -int(self.take("int", "a number"))
        elif t.kind == "int":
            return self.integer()
        raise self.error(f"expected a number, string, type, [list], layout or none/true/false, found {self.found()}")

    def _object(self, cls: type[Any], t: Token) -> Any:
        def one() -> tuple[str, Any]:
            key = self.take("name", "a field's name")
            self.expect("=")
            return key, self.attribute()

        self.expect("(")
        try:
            return cls(**dict(self.many(")", one)))
        except TypeError as e:
            raise self.error(f"{t.text}: {e}", t.at) from None

    def layout(self) -> Layout:
        """``layout<[g<8, q<266] -> g * 268 + q where ...>``."""
        start = self.now.at
        self.expect("layout")
        self.expect("<")
        self.expect("[")

        def dim() -> tuple[str, int]:
            name = self.take("name", "a dimension's name")
            self.expect("<")
            return name, self.integer("an extent")

        dims = self.many("]", dim)
        self.expect("->")
        outer, inner = self.scope, Scope()
        inner.update({f"%{d}": Value(d, lo=0, hi=n - 1) for d, n in dims})
        self.scope, self.bare = inner, True
        index = self.many("]", self.expr) if self.accept("[") else (self.expr(),)
        where = self.expr() if self.accept("where") else Const(1)
        self.scope, self.bare = outer, False
        self.expect(">")
        try:
            return Layout(tuple(d for d, _ in dims), tuple(n for _, n in dims), index, where)
        except IRError as e:
            raise self.error(e.message, start) from None

    # -------------------------------------------------------------------------------------------- ops
    def op(self) -> Op:
        """One op with its regions; its results are in scope afterwards."""
        start = self.now.at
        defined: list[Value] = []
        while self.now.kind == "value":
            one = self.declaration()
            assert isinstance(one, Value)
            defined.append(one)
            if not self.accept(","):
                self.expect("=")
        name = self.now.text
        cls = OPS.get(name)
        if self.now.kind != "name" or cls is None:
            level = name.partition(".")[0]
            known = [n for n in OPS if n.startswith(level + ".")] or sorted({n.partition(".")[0] + ".…" for n in OPS})
            raise self.error(f"expected an op, found {self.found()}", hint=f"one of {', '.join(known)}")
        self.i += 1
        region_names = [(n, f) for n, kind, f in fields(cls) if kind == "region"]
        outer = self.scope
        if region_names:  # what an op with regions declares stays inside
            self.scope = dict(outer)
        given = self._fields(cls)
        loc: Loc = self._loc() or self.loc(start)
        given["loc"] = loc
        if defined and not any(kind == "result" for _, kind, _ in fields(cls)):
            raise self.error(f"{name} has no results", start)
        given |= {n: tuple(defined) for n, kind, _ in fields(cls) if kind == "result"}
        for n, what in wrong(cls, given):
            raise self.error(f"{name}: {what}, not {_shown(given[n])}", start, "the fields are declared with the op")
        local = self.scope
        if region_names and hasattr(cls, "builtins"):
            empty: dict[str, Any] = {n: () for n, _ in region_names}
            probe = cls(**given | empty)
            built_in: dict[str, Value] = getattr(probe, "builtins")()  # noqa: B009 - not every op has it
            local = local | {f"%{n}": v for n, v in built_in.items()}
        for i, (n, f) in enumerate(region_names):
            if i == 0 or self.accept(n):
                given[n] = self.region(local)
            elif default_of(f) is dataclasses.MISSING:
                raise self.error(f"expected '{n} {{' (a region of {name}), found {self.found()}")
        out = cls(**given)
        self.scope = outer
        self.scope.update({f"%{v.name}": v for v in results(out)})
        return out

    def _fields(self, cls: type[Op]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        keyed: dict[str, str] = {}
        for n, kind, f in fields(cls):
            if kind in ("result", "region"):
                continue
            if f.kw_only or default_of(f) is not dataclasses.MISSING:
                keyed[n] = kind
                continue
            if given and not self.accept(","):
                raise self.error(f"expected ', ' and the {kind} {n!r} of {cls.name}, found {self.found()}")
            given[n] = self.field(kind)
        while self.now.kind == "name" and self.tokens[self.i + 1].text == "=":
            key = self.now.text
            if key not in keyed or key in given:
                raise self.error(f"{cls.name} has no field {key!r} to set here", hint=f"one of {', '.join(keyed)}")
            self.i += 2
            given[key] = self.field(keyed[key])
        for n, kind, f in fields(cls):
            if n in keyed and n not in given and default_of(f) is dataclasses.MISSING:
                raise self.error(f"expected {n}=, the {kind} {n!r} of {cls.name}, found {self.found()}")
        return given

    def _loc(self) -> Loc | None:
        if not (self.peek("loc") and self.tokens[self.i + 1].text == "("):
            return None
        self.i += 2
        file = self.string("the file")
        self.expect(":")
        line = self.integer("the line")
        col = self.integer("the column") if self.accept(":") else 0
        self.expect(")")
        return Loc(file, line, col)

    def region(self, scope: Scope) -> tuple[Op, ...]:
        """Ops in braces, with names of their own."""
        outer, self.scope = self.scope, dict(scope)
        self.expect("{")
        out = []
        while not self.accept("}"):
            if self.now.kind == "end":
                raise self.error("expected '}', found end of text")
            out.append(self.op())
        self.scope = outer
        return tuple(out)

    def module(self) -> Module:
        self.expect("module")
        name = self.string("the module's name in double quotes")
        funcs: list[Op] = []
        runs: list[Launch] = []
        tables: dict[str, Any] = {}
        while self.now.kind != "end":
            if self.accept("launch"):
                symbol = self.string("the function's symbol in double quotes")
                self.expect("[")
                runs.append(Launch(symbol, self.many("]", lambda: self.string("a role in double quotes"))))
            elif self.accept("constant"):
                self.table(tables)
            else:
                self.scope = {}
                funcs.append(self.op())
        return Module(name, tuple(funcs), tuple(runs), tables)

    def table(self, known: dict[str, Any]) -> None:
        """``"lut" u32[2, 3] [0, 1, ...]``, or ``zlib`` and lines of compressed data."""
        start = self.now.at
        name = self.string("the constant's name in double quotes")
        if name in known:
            raise self.error(f"constant {name!r} is given a second time", start)
        dtype = self.dtype()
        self.expect("[")
        shape = self.many("]", lambda: int(self.take("int", "an extent")))
        try:
            if self.accept("zlib"):
                self.expect("[")
                known[name] = unpacked(self.many("]", lambda: self.string("data in double quotes")), dtype, shape)
            else:
                self.expect("[")
                known[name] = listed(self.many("]", self.attribute), dtype, shape)
        except IRError as e:
            raise e if e.loc else self.error(e.message, start, e.hint) from None

    def whole(self, part: Callable[[], R]) -> R:
        out = part()
        if self.now.kind != "end":
            raise self.error(f"expected end of text, found {self.found()}")
        return out


def _shown(value: Any) -> str:
    """A field's value, as far as a message needs it."""
    text = str([*map(str, value)]) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def parse_op(text: str, *, scope: Iterable[Value | Buffer] = (), file: str | None = None) -> Op:
    """The op that prints as ``text``; ``scope`` holds the values and buffers that it uses from outside."""
    p = Parser(text, file, scope)
    return p.whole(p.op)


def parse_module(text: str, *, file: str | None = None) -> Module:
    """The module that prints as ``text``."""
    p = Parser(text, file)
    return p.whole(p.module)


def parse_expr(text: str, *, scope: Iterable[Value | Buffer] = ()) -> Expr:
    """The expression that prints as ``text``, not simplified."""
    p = Parser(text, None, scope)
    return p.whole(p.expr)


def parse_layout(text: str) -> Layout:
    """The layout that prints as ``text``."""
    p = Parser(text)
    return p.whole(p.layout)


__all__ = ["Parser", "parse_expr", "parse_layout", "parse_module", "parse_op"]
