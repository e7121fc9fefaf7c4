"""``parse(print(x)) == x``: expressions, layouts, programs, every op class, modules; the parser's messages."""

from __future__ import annotations

import dataclasses
import math
import types
import typing

import pytest
from hypothesis import given, settings

from sparsegen.ir import expr as ex
from sparsegen.ir import op, tile, warp  # noqa: F401 - they register their ops
from sparsegen.ir.errors import IRError, Loc
from sparsegen.ir.expr import Bin, Const, Expr, Select, Value
from sparsegen.ir.layout import Layout, layout, row_major, stencil2row_b
from sparsegen.ir.module import Launch, Module
from sparsegen.ir.node import OPS, fields, walk
from sparsegen.ir.parse import parse_expr, parse_module, parse_op
from sparsegen.ir.text import attribute, default_of, print_module, print_op
from sparsegen.ir.types import Buffer, DType, f64, pred, s32, u8
from tests.ir.programs import NAMES, expressions, functions, module


def ranges(e: Expr) -> list[tuple[int, int]]:
    return [(x.lo, x.hi) for x in ex.walk(e)]


@given(expressions(5))
def test_expression_round_trip(e: Expr) -> None:
    again = parse_expr(str(e), scope=NAMES)
    assert again == e and ranges(again) == ranges(e)


def test_parser_does_not_simplify() -> None:
    a = NAMES[0]
    raw = Bin("+", Bin("*", a, Const(1), 0, 7), Const(0), 0, 7)
    assert parse_expr("%a * 1 + 0", scope=NAMES) == raw
    assert parse_expr("select(%a < 3, -1, min(%a, -2))", scope=NAMES) == Select(
        Bin("<", a, Const(3), 0, 1), Const(-1), Bin("min", a, Const(-2), -2, -2))  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(functions())
def test_random_program_round_trip(f: warp.Func) -> None:
    text = print_op(f)
    again = parse_op(text)
    assert again == f and print_op(again) == text
    m = module(f)
    assert parse_module(print_module(m)) == m


@settings(max_examples=10, deadline=None)
@given(functions())
def test_locations_round_trip(f: warp.Func) -> None:
    again = parse_op(print_op(f, locs=True))
    assert [o.loc for o in walk(again.body)] == [o.loc for o in walk(f.body)]  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ every op class
G, H = Buffer("g", f64, 64, "global"), Buffer("h", u8, 9, "shared", 1)
IX, J, P = Value("i", s32, 0, 9), Value("j", f64), Value("p", pred)


def example(hint: object, kind: str, serial: list[int]) -> object:
    """A value for a field, from its kind and its annotation."""
    serial[0] += 1
    args = list(typing.get_args(hint))
    if kind == "bind" and type(None) in args:
        hint = Value
    if kind in ("result", "bind") or (kind == "declare" and hint is Value):
        new = Value(f"r{serial[0]}", s32, -3, serial[0])
        return (new, Value(f"s{serial[0]}", f64))[: 1 if Ellipsis not in args else 2] if hint is not Value else new
    if kind == "declare":
        new_buf = Buffer(f"b{serial[0]}", f64, 8, "reg", 8)
        return (new_buf,) if typing.get_origin(hint) is tuple else new_buf
    if kind == "operand":
        return (IX + 1, J) if typing.get_origin(hint) is tuple else ex.minimum(IX * 3, 7) + serial[0]
    if kind == "buffer" and typing.get_origin(hint) is tuple:
        return (G, H)
    if kind == "buffer":
        return G if serial[0] % 2 else H
    if type(None) in args:
        return example(next(a for a in args if a is not type(None)), kind, serial)
    if isinstance(hint, types.UnionType):
        return example(args[serial[0] % len(args)], kind, serial)
    if typing.get_origin(hint) is tuple:
        inner = [args[0]] * 2 if Ellipsis in args else args
        return tuple(example(a, kind, serial) for a in inner)
    if dataclasses.is_dataclass(hint) and hint not in (DType, Layout):
        own = typing.get_type_hints(hint)
        return hint(*(example(own[f.name], kind, serial) for f in dataclasses.fields(hint)))  # type: ignore[operator]
    simple = {int: serial[0], float: -0.5 / serial[0], str: 'a "b" \\ # \n é', bool: True, DType: u8,
              Layout: row_major((3, 5), 7)}  # fmt: skip
    return simple[hint]  # type: ignore[index]


@pytest.mark.parametrize("full", [False, True], ids=["defaults", "all-fields"])
@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op_round_trips(name: str, full: bool) -> None:
    cls = OPS[name]
    hints = typing.get_type_hints(cls)
    serial = [0]
    given: dict[str, object] = {}
    for n, kind, f in fields(cls):
        if full or default_of(f) is dataclasses.MISSING:
            given[n] = (warp.CpWait(1), warp.SyncWarp()) if kind == "region" else example(hints[n], kind, serial)
    o = cls(**given)  # type: ignore[arg-type]
    assert parse_op(print_op(o), scope=(G, H, IX, J, P)) == o


@attribute
@dataclasses.dataclass(frozen=True)
class Shade:
    """An attribute that only this test knows."""

    depth: int
    names: tuple[str, ...] = ()


def test_attribute_values() -> None:
    def again(v: object) -> object:
        from sparsegen.ir.parse import Parser
        from sparsegen.ir.text import print_value

        p = Parser(print_value(v))
        return p.whole(p.attribute)

    layouts = (
        stencil2row_b(7, 8, 38),
        layout({"r": 8, "c": 64}, lambda r, c: r * 64 + (c ^ r)),
        row_major((8, 266), 268) @ stencil2row_b(7, 8, 38),
    )
    for v in (0, -7, 1.0, -0.0, 1e-300, math.inf, -math.inf, True, None, "", 'x"\\\n\t#', u8, (), (1, (2.5, ("a",))),
              *layouts, Shade(3), Shade(-1, ("a", "b"))):  # fmt: skip
        got = again(v)
        assert got == v and repr(got) == repr(v) and type(got) is type(v)
    assert math.isnan(again(math.nan))  # type: ignore[arg-type]


def test_module_text() -> None:
    import numpy as np

    body = (warp.Barrier(), warp.If(P, (warp.SyncWarp(),), ()))
    f = warp.Func("k", (G, P), (), (1, 1, 1), 32, body)
    m = Module("heat", (f,), (Launch("k", ("in", "flag")),), {"lut": np.zeros((2, 3), np.int32)})
    assert (
        print_module(m)
        == """module "heat"
warp.func "k", [@g: global f64[64] align=16, %p: pred], [], [1, 1, 1], 32 {
  warp.barrier
  warp.if %p {
    warp.sync
  }
}
launch "k" ["in", "flag"]
constant "lut" s32[2, 3] [0, 0, 0, 0, 0, 0]
"""
    )
    assert parse_module(print_module(m)) == m
    assert print_module(m, tables=False).startswith('module "heat"\n# constant lut: int32[2x3]\nwarp.func "k"')


def test_parsed_ops_point_at_their_text() -> None:
    f = parse_op('warp.func "k", [], [], [1, 1, 1], 32 {\n  warp.barrier\n  warp.sync loc("u.py":7:2)\n}')
    first, second = f.body  # type: ignore[attr-defined]
    assert (first.loc.line, first.loc.col) == (2, 2) and "warp.barrier" in first.loc.excerpt()
    assert second.loc == Loc("u.py", 7, 2)


@pytest.mark.parametrize(("text", "line", "col", "said"), [
    ("warp.barier", 1, 0, "expected an op, found 'warp.barier'"),
    ("warp.st @nope, 0, [%j]", 1, 8, "@nope is not declared here; in scope: @g"),
    ("warp.st @g, %q, [%j]", 1, 12, "%q is not defined here; in scope: %i, %j"),
    ("warp.st @g,\n  %i +, [%j]", 2, 6, "expected an expression, found ','"),
    ("%a: f63 = warp.const 1.0", 1, 4, "expected a type"),
    ("%a: f64 = warp.const 1.0 hue=3", 1, 25, "warp.const has no field 'hue'"),
    ("%a: f64 warp.const 1.0", 1, 8, "expected '=', found 'warp.const'"),
    ("warp.wait 1", 1, 0, "expected an op"),
    ("warp.cp_wait", 1, 12, "expected a number"),
    ("warp.if %i > 3 {\n}", 1, 11, "expected '{', found '>'"),
    ("warp.loop {\n warp.barrier\n", 3, 0, "expected '}', found end of text"),
    ("warp.barrier }", 1, 13, "expected end of text, found '}'"),
    ("%a: s32 = warp.let (%i - 20) // 3", 1, 29, "the left side may be -20"),
    ("%a: s32 = warp.let min(%i)", 1, 19, "min takes 2 arguments, got 1"),
    ("%a: s32 = warp.let ?", 1, 19, "cannot read '?' here"),
    ("%a: s32 = warp.barrier", 1, 0, "warp.barrier has no results"),
    ("warp.alloc @r: heap f64[3]", 1, 15, "expected a memory space"),
    ("warp.alloc %i", 1, 13, "expected ':'"),
])  # fmt: skip
def test_parser_errors_point_and_name_what_was_expected(text: str, line: int, col: int, said: str) -> None:
    with pytest.raises(IRError) as e:
        parse_op(text, scope=(G, IX, J))
    assert said in e.value.message
    assert e.value.loc is not None and (e.value.loc.line, e.value.loc.col) == (line, col)
    if line <= text.count("\n"):
        assert "^" in str(e.value)
