"""The integer expressions: simplification keeps the value and the range, and sympy agrees."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsegen.ir import expr as ex
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Bin, Const, Expr, Select, Value
from sparsegen.ir.layout import evaluate_arrays
from sparsegen.ir.types import f64, s32
from tests.ir.programs import NAMES, expressions, predicate, seeds


def environment(seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    return {v.name: rng.choice((v.lo, v.hi, rng.randint(v.lo, v.hi))) for v in NAMES}


PLAIN = {"+": "+", "-": "-", "*": "*", "//": "//", "%": "%", "&": "&", "|": "|", "^": "^", ">>": ">>", "<<": "<<",
         "<": "<", "<=": "<=", "==": "==", "!=": "!=", "and": "and", "or": "or"}  # fmt: skip


def raw(rng: random.Random, depth: int) -> tuple[Expr, str]:
    """A random expression through the simplifier, and the same as Python source without it."""
    if depth == 0 or rng.random() < 0.15:
        leaf = rng.choice((*NAMES, *NAMES, Const(rng.randint(-9, 40))))
        return leaf, f"({leaf.value})" if isinstance(leaf, Const) else str(leaf).strip("%")
    if rng.random() < 0.1:
        (a, x), (b, y), (c, z), (d, t) = (raw(rng, depth - 1) for _ in range(4))
        return ex.select(a.lt(b), c, d), f"({z} if {x} < {y} else {t})"
    for _ in range(30):
        (a, x), (b, y) = raw(rng, depth - 1), raw(rng, depth - 1)
        op = rng.choice((*PLAIN, "min", "max"))
        if op in ("and", "or"):
            op2 = rng.choice(("<", "<=", "==", "!="))
            return ex.binary(op, ex.binary(op2, a, b), a.le(b)), f"int(({x} {op2} {y}) {op} ({x} <= {y}))"
        if op in ("<<", ">>") and (b.lo < 0 or b.hi > 12):
            continue
        try:
            e = ex.binary(op, a, b)
        except IRError:
            continue
        return e, f"{op}({x}, {y})" if op in ("min", "max") else f"int({x} {PLAIN[op]} {y})"
    return Const(0), "0"


@settings(max_examples=600, deadline=None)
@given(seeds, st.lists(seeds, min_size=4, max_size=4))
def test_simplifier_agrees_with_plain_evaluation(seed: int, points: list[int]) -> None:
    e, source = raw(random.Random(seed), 4)
    for p in points:
        env = environment(p)
        want = eval(source, {"min": min, "max": max, "int": int}, env)
        assert ex.evaluate(e, env) == want, f"{source} became {e}"
        for x in ex.walk(e):
            assert x.lo <= ex.evaluate(x, env) <= x.hi or in_dead_branch(e, x), f"range of {x}"


def in_dead_branch(e: Expr, x: Expr) -> bool:
    """Ranges hold for values that exist; inside a choice not taken they need not be looked at."""
    return any(isinstance(s, Select) and any(y is x for y in ex.walk(s)) for s in ex.walk(e))


@settings(max_examples=200, deadline=None)
@given(seeds, seeds)
def test_predicates_are_zero_or_one(seed: int, point: int) -> None:
    p = predicate(random.Random(seed), 4)
    assert ex.is_pred(p) and ex.evaluate(p, environment(point)) in (0, 1)


@settings(max_examples=200, deadline=None)
@given(expressions(), st.lists(seeds, min_size=3, max_size=3))
def test_arrays_and_substitution_agree(e: Expr, points: list[int]) -> None:
    envs = [environment(p) for p in points]
    want = [ex.evaluate(e, env) for env in envs]
    got = evaluate_arrays(e, {n: np.array([env[n] for env in envs]) for n in envs[0]})
    assert np.broadcast_to(got, 3).tolist() == want
    for env, n in zip(envs, want, strict=True):
        assert ex.substitute(e, {v: Const(env[v.name]) for v in NAMES}) == Const(n)


def to_sympy(e: Expr) -> Any:
    """One way: what sympy thinks the expression is (no bit operations)."""
    import sympy as sp

    if isinstance(e, Const):
        return sp.Integer(e.value)
    if isinstance(e, Value):
        return sp.Symbol(e.name, integer=True)
    if isinstance(e, Select):
        return sp.Piecewise((to_sympy(e.a), truth(e.c)), (to_sympy(e.b), True))
    assert isinstance(e, Bin)
    if e.op in ("and", "or"):
        return (sp.And if e.op == "and" else sp.Or)(truth(e.a), truth(e.b))
    a, b = number(e.a), number(e.b)
    compare = {"<": sp.Lt, "<=": sp.Le, "==": sp.Eq, "!=": sp.Ne}
    if e.op in compare:
        return compare[e.op](a, b)
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: sp.floor(a / b),
            "%": lambda: sp.Mod(a, b), "min": lambda: sp.Min(a, b), "max": lambda: sp.Max(a, b),
            "<<": lambda: a * 2**b, ">>": lambda: sp.floor(a / 2**b)}[e.op]()  # fmt: skip


def number(e: Expr) -> Any:
    import sympy as sp

    s = to_sympy(e)
    return sp.Piecewise((1, s), (0, True)) if is_logic(e) else s


def truth(e: Expr) -> Any:
    import sympy as sp

    s = to_sympy(e)
    return s if is_logic(e) else sp.Ne(s, 0)


def is_logic(e: Expr) -> bool:
    return isinstance(e, Bin) and e.op in ex.LOGIC


@settings(max_examples=100, deadline=None)
@given(expressions(3), seeds)
def test_simplifier_agrees_with_sympy(e: Expr, point: int) -> None:
    if any(isinstance(x, Bin) and x.op in ("&", "|", "^") for x in ex.walk(e)):
        return
    import sympy as sp

    env = environment(point)
    assert int(to_sympy(e).subs({sp.Symbol(n, integer=True): v for n, v in env.items()})) == ex.evaluate(e, env)


def test_floats_and_wild_shifts_are_no_integer_expressions() -> None:
    x, a = Value("x", f64), NAMES[0]
    wrongs: list[Callable[[], Expr]] = [lambda: x + 1, lambda: ex.select(a.lt(3), x, x), lambda: a.lt(x)]
    for wrong in wrongs:
        with pytest.raises(IRError, match="cannot read"):
            wrong()
    with pytest.raises(IRError, match="the shift may be"):
        a << Value("n", s32, 0, 2**31 - 1)
