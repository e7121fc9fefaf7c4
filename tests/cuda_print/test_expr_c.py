"""Printed integer expressions mean in C what they mean in the IR, and read well."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparsegen.backends.cuda.expr_c import float_literal, render
from sparsegen.backends.cuda.names import Names
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import PRECEDENCE, Const, Expr, Value, binary, evaluate, maximum, minimum, select, values
from sparsegen.ir.types import bf16, f16, f32, f64, pred, s8, s32, s64, u16, u32, u64

I = Value("i", s32, 0, 1000)  # noqa: E741
J = Value("j", s32, -5, 70000)
BIG = Value("big", s32, 0, 2**31 - 1)
U = Value("u", u32)
L = Value("l", s64, 0, 2**40)
P, Q = I.lt(5), J.eq(I)


@pytest.mark.parametrize(("expr", "want"), [
    ((I + J) * 3 - J, "(i + j) * 3 - j"),
    (I - (J - I), "i - (j - i)"),
    (I + -7, "i - 7"),
    (I // 8 + I % 16, "(i >> 3) + (i & 15)"),
    (I // 7, "i / 7u"),
    (I % 7 * 3 + J, "(int)(i % 7u) * 3 + j"),
    (I // (I + 1), "(unsigned)i / (i + 1)"),
    (BIG * 100, "(long long)big * 100"),
    ((BIG + I) % 1000, "((unsigned)big + i) % 1000"),
    (L // 12, "l / 12ull"),
    (U & 0x11111111, "u & 0x11111111"),
    (((I + 3) & 12) << 2, "((i + 3) & 12) << 2"),
    (minimum(I, J) + maximum(I, 5), "min(i, j) + max(i, 5)"),
    (minimum(U, J + 5), "min(u, (unsigned)(j + 5))"),
    (binary("and", binary("or", P, Q), I.lt(9)), "(i < 5 || j == i) && i < 9"),
    (binary("or", binary("and", P, Q), I.lt(9)), "i < 5 && j == i || i < 9"),
    (select(P, I + 1, J) * 2, "(i < 5 ? i + 1 : j) * 2"),
    (select(P, I, select(Q, J, 3)), "i < 5 ? i : (j == i ? j : 3)"),
    (J.lt(U), "(long long)j < u"),
    (J.eq(-(2**31)), "0"),
])  # fmt: skip
def test_reads_well(expr: Expr, want: str) -> None:
    assert render(expr, str).text == want


def test_what_no_c_type_holds_is_refused() -> None:
    with pytest.raises(IRError, match="fits no C type"):
        render(L * L * L, str)
    with pytest.raises(IRError, match="no integer expression"):
        render(Value("x", f64), str)


LEAVES = [Value("a", s32, 0, 10), Value("b", s32, -50, 3), Value("c", s32, 0, 2**31 - 1), Value("d", s32),
          Value("e", u32), Value("f", u32, 0, 32), Value("g", s64, -(2**40), 2**41), Value("h", u64, 0, 2**50),
          Value("k", pred), Value("m", s8), Value("n", u16), Value("o", u64)]  # fmt: skip
LITERALS = (0, 1, 2, 3, 7, 8, 12, 31, 32, 1024, 10240, -1, -17, 2**31 - 1, 2**31, 2**32 - 1, 2**32, -(2**31), 2**40)


@st.composite
def expressions(draw: st.DrawFn) -> Expr:
    pool: list[Expr] = [draw(st.sampled_from(LEAVES)) for _ in range(3)]
    for _ in range(draw(st.integers(1, 9))):
        op = draw(st.sampled_from([*PRECEDENCE, "min", "max", "select"]))
        pick = st.sampled_from(pool) | st.sampled_from(LITERALS).map(Const)
        x, y = draw(pick), draw(pick)
        if op in ("<<", ">>"):
            y = draw(st.integers(0, 40).map(Const) | st.just(LEAVES[5]))
        try:
            made = select(draw(pick).ne(0), x, y) if op == "select" else binary(op, x, y)
            render(made, str)
        except IRError:
            continue
        pool.append(made)
    return pool[-1]


HOST = """#include <cstdio>
typedef unsigned long long ull;
"""
#: CUDA's overloads of min and max for integers
for _t in ("int", "unsigned", "long long", "ull"):
    HOST += f"static {_t} min({_t} a, {_t} b) {{ return b < a ? b : a; }}\n"
    HOST += f"static {_t} max({_t} a, {_t} b) {{ return a < b ? b : a; }}\n"


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_means_the_same_in_c(tmp_path: Path) -> None:
    """A few hundred random expressions, one program, with the checks for overflow and bad shifts switched on."""
    cases: list[tuple[Expr, dict[str, int]]] = []

    @settings(max_examples=400, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(expressions(), st.data())
    def collect(e: Expr, data: st.DataObject) -> None:
        drawn = []
        for _ in range(3):
            drawn.append(
                {v.name: data.draw(st.sampled_from((v.lo, v.hi)) | st.integers(v.lo, v.hi)) for v in values(e)}
            )
        cases.extend((e, at) for at in drawn)  # all three or, where hypothesis gives up in between, none

    collect()
    params = ", ".join(f"{v.dtype.c} {v.name}" for v in LEAVES)
    lines = [HOST]
    for n, (e, _) in enumerate(cases[::3]):
        lines.append(f"static ull f{n}({params}) {{ return (ull)({render(e, str).text}); }}")
    lines.append("int main() {")
    for n, (_, at) in enumerate(cases):
        args = ", ".join(f"({v.dtype.c}){at.get(v.name, v.lo) % 2**64}ull" for v in LEAVES)
        lines.append(f'  printf("%llu\\n", f{n // 3}({args}));')
    lines.append("  return 0;\n}")
    (tmp_path / "host.cpp").write_text("\n".join(lines))
    flags = [
        "-std=c++17",
        "-w",
        "-O0",
        "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero",
        "-fno-sanitize-recover=all",
    ]
    subprocess.run(["g++", *flags, "-o", "host", "host.cpp"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "host"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for (e, at), got in zip(cases, done.stdout.split(), strict=True):
        assert int(got) == evaluate(e, at) % 2**64, f"{e!r} at {at} printed as {render(e, str).text}"


@given(st.floats())
def test_float_literals_are_exact(x: float) -> None:
    text = float_literal(x, f64)
    if math.isfinite(x):
        assert float(text) == x and math.copysign(1, float(text)) == math.copysign(1, x)
    else:
        assert text.startswith("__longlong_as_double(0x")
    with np.errstate(over="ignore"):
        want = np.float32(x)
    text = float_literal(x, f32)
    assert text.endswith("f") or not np.isfinite(want)
    if np.isfinite(want):
        assert np.float32(float(text[:-1])) == want and ("." in text or "e" in text)


def test_literals_of_small_floats() -> None:
    assert float_literal(1.5, f16) == "__float2half_rn(1.5f)"
    assert float_literal(0.1, bf16) == "__float2bfloat16_rn(0.100097656f)"


def test_names_are_valid_and_distinct() -> None:
    names = Names(frozenset({"mma"}))
    got = [names.declare(k) for k in ("%int", "@int", "%a.b", "%a_b", "%min", "%mma", "%3", "%_x", "%threadIdx")]
    assert got == ["int_", "int__", "a_b", "a_b_", "min_", "mma_", "v3", "v_x", "threadIdx_"]
    names.declare("%x", "v.x")
    assert names.value("x") == "v.x" and names.buffer("int") == "int__"
    assert names.declare("%x") == "x" and names.value("x") == "x"
    with pytest.raises(IRError, match="before it is defined"):
        names.value("nothing")
