"""Every op on values, against plain Python integers and exact arithmetic, lane by lane."""

from __future__ import annotations

import math
import operator
import struct
from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, glob, kernel
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.ir import warp as w
from sparsegen.ir.expr import binary as expr_binary
from sparsegen.ir.expr import select
from sparsegen.ir.types import DTYPES, DType, bf16, f16, f32, f64, pred, s32, u16, u32, u64

U32 = st.integers(0, 2**32 - 1)
S32 = st.integers(-(2**31), 2**31 - 1)
LANES32 = st.lists(U32, min_size=32, max_size=32)


def signed(x: int, bits: int = 32) -> int:
    x %= 1 << bits
    return x - (1 << bits) if x >> (bits - 1) else x


def lanes(make: Any, ins: dict[str, Any], out: Any, out_type: Any = u32) -> np.ndarray:
    """Runs ``out[lane] = make(builder, loaded values)`` on one warp."""
    bufs = {n: glob(n, DTYPES[t], 32) for n, (t, _) in ins.items()}
    o = glob("out", out_type, 32)

    def body(b: Any, v: Any) -> None:
        b.st(o, v.lane, make(b, *[b.ld(x, v.lane) for x in bufs.values()]))

    args, _ = clean(kernel(body, (*bufs.values(), o)),
                    {n: np.array(x, DTYPES[t].numpy()) for n, (t, x) in ins.items()})  # fmt: skip
    assert out is None or args["out"].tolist() == out
    return args["out"]


INT_OPS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}  # fmt: skip


@pytest.mark.parametrize("op", INT_OPS)
@given(a=LANES32, b=LANES32)
def test_integer_ops_wrap(op: str, a: list[int], b: list[int]) -> None:
    lanes(lambda bl, x, y: bl.binary(op, x, y), {"a": ("u32", a), "b": ("u32", b)},
          [INT_OPS[op](x, y) % 2**32 for x, y in zip(a, b, strict=True)])  # fmt: skip
    sa, sb = [signed(x) for x in a], [signed(x) for x in b]
    lanes(lambda bl, x, y: bl.binary(op, x, y), {"a": ("s32", sa), "b": ("s32", sb)},
          [signed(INT_OPS[op](x, y)) for x, y in zip(sa, sb, strict=True)], s32)  # fmt: skip


@pytest.mark.parametrize("bits", [32, 64])
@given(data=st.data())
def test_shifts(bits: int, data: st.DataObject) -> None:
    a = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=32, max_size=32))
    n = data.draw(st.lists(st.integers(0, 70), min_size=32, max_size=32))
    t, name = (u32, "u32") if bits == 32 else (u64, "u64")
    lanes(lambda bl, x, y: bl.binary("shl", x, y, t), {"a": (name, a), "n": ("u32", n)},
          [(x << k) % 2**bits if k < bits else 0 for x, k in zip(a, n, strict=True)], t)  # fmt: skip
    lanes(lambda bl, x, y: bl.binary("shr", x, y, t), {"a": (name, a), "n": ("u32", n)},
          [x >> k for x, k in zip(a, n, strict=True)], t)  # fmt: skip
    sa = [signed(x, bits) for x in a]
    st_, sname = (s32, "s32") if bits == 32 else (DTYPES["s64"], "s64")
    lanes(lambda bl, x, y: bl.binary("shr", x, y, st_), {"a": (sname, sa), "n": ("u32", n)},
          [x >> k for x, k in zip(sa, n, strict=True)], st_)  # fmt: skip


@given(a=st.lists(st.integers(0, 2**64 - 1), min_size=32, max_size=32))
def test_64_bit_arithmetic_wraps(a: list[int]) -> None:
    lanes(lambda bl, x: bl.binary("mul", x, x), {"a": ("u64", a)}, [x * x % 2**64 for x in a], u64)
    lanes(lambda bl, x: bl.binary("add", x, x), {"a": ("u64", a)}, [x * 2 % 2**64 for x in a], u64)
    div = [x // (y or 1) if y else 2**64 - 1 for x, y in zip(a, a[::-1], strict=True)]
    lanes(lambda bl, x, y: bl.binary("div", x, y), {"a": ("u64", a), "b": ("u64", a[::-1])}, div, u64)


@given(a=st.lists(S32, min_size=32, max_size=32), b=st.lists(S32.filter(bool), min_size=32, max_size=32))
def test_integer_division_truncates(a: list[int], b: list[int]) -> None:
    want = [
        signed(int(math.copysign(1, x) * math.copysign(1, y)) * (abs(x) // abs(y))) for x, y in zip(a, b, strict=True)
    ]
    lanes(lambda bl, x, y: bl.binary("div", x, y), {"a": ("s32", a), "b": ("s32", b)}, want, s32)


@given(a=LANES32)
def test_unary_of_words(a: list[int]) -> None:
    one = {"a": ("u32", a)}
    lanes(lambda b, x: b.unary("popc", x), one, [x.bit_count() for x in a])
    lanes(lambda b, x: b.unary("clz", x), one, [32 - x.bit_length() for x in a])
    lanes(lambda b, x: b.unary("brev", x), one, [int(f"{x:032b}"[::-1], 2) for x in a])
    lanes(lambda b, x: b.unary("not", x), one, [x ^ (2**32 - 1) for x in a])
    lanes(lambda b, x: b.unary("neg", x), one, [-x % 2**32 for x in a])
    sa = [signed(x) for x in a]
    lanes(lambda b, x: b.unary("popc", x), {"a": ("s32", sa)}, [x.bit_count() for x in a])
    lanes(lambda b, x: b.unary("abs", x), {"a": ("s32", sa)}, [signed(abs(x)) for x in sa], s32)


@given(a=st.lists(st.integers(0, 2**64 - 1), min_size=32, max_size=32))
def test_unary_of_double_words(a: list[int]) -> None:
    def popc(b: Any, x: Any) -> Any:
        out = b.fresh("v", u32, 0, 64)
        b.emit(w.Unary((out,), "popc", x))
        return out

    lanes(popc, {"a": ("u64", a)}, [x.bit_count() for x in a])
    lanes(lambda b, x: b.unary("clz", x), {"a": ("u64", a)}, [64 - x.bit_length() for x in a], u64)
    lanes(lambda b, x: b.unary("not", x), {"a": ("u64", a)}, [x ^ (2**64 - 1) for x in a], u64)


@given(a=LANES32, b=LANES32, s=LANES32)
def test_prmt_funnel_dp4a(a: list[int], b: list[int], s: list[int]) -> None:
    def prmt(x: int, y: int, sel: int) -> int:
        both, out = (y << 32) | x, 0
        for k in range(4):
            n = sel >> (4 * k) & 15
            byte = both >> (8 * (n & 7)) & 255
            out |= ((255 if byte & 128 else 0) if n & 8 else byte) << (8 * k)
        return out

    def dot(x: int, y: int, z: int, sign: bool) -> int:
        for k in range(0, 32, 8):
            p, q = x >> k & 255, y >> k & 255
            z += signed(p, 8) * signed(q, 8) if sign else p * q
        return z

    ins = {"a": ("u32", a), "b": ("u32", b), "s": ("u32", s)}

    def emit(op: Any) -> Any:
        def make(bl: Any, x: Any, y: Any, z: Any) -> Any:
            out = bl.fresh("v", u32)
            bl.emit(op((out,), x, y, z))
            return out

        return make

    rows = list(zip(a, b, s, strict=True))
    lanes(emit(w.Prmt), ins, [prmt(*r) for r in rows])
    lanes(emit(w.Funnel), ins, [(((y << 32) | x) >> (z & 31)) & 0xFFFFFFFF for x, y, z in rows])
    lanes(emit(w.Dp4a), ins, [dot(x, y, z, False) % 2**32 for x, y, z in rows])

    def signed_dot(bl: Any, x: Any, y: Any, z: Any) -> Any:
        out = bl.fresh("v", s32)
        bl.emit(w.Dp4a((out,), *(bl.bitcast(v, s32) for v in (x, y, z))))
        return out

    lanes(signed_dot, ins, [signed(dot(x, y, signed(z), True)) for x, y, z in rows], s32)


def test_prmt_with_a_constant_selector() -> None:
    def make(b: Any, x: Any) -> Any:
        out = b.fresh("v", u32)
        b.emit(w.Prmt((out,), x, x, expr_binary("+", 0x0123, 0)))
        return out

    lanes(make, {"a": ("u32", [0x11223344] * 32)}, [0x44332211] * 32)


@given(a=LANES32, by=st.integers(0, 31), each=st.lists(st.integers(0, 31), min_size=32, max_size=32))
def test_shuffles(a: list[int], by: int, each: list[int]) -> None:
    one = {"a": ("u32", a)}
    lanes(lambda b, x: b.shfl("idx", x, by), one, [a[by]] * 32)
    lanes(lambda b, x: b.shfl("up", x, by), one, [a[i - by] if i >= by else a[i] for i in range(32)])
    lanes(lambda b, x: b.shfl("scan", x, by), one, [(a[i] + (a[i - by] if i >= by else 0)) % 2**32 for i in range(32)])
    lanes(lambda b, x: b.shfl("down", x, by), one, [a[i + by] if i + by < 32 else a[i] for i in range(32)])
    lanes(lambda b, x: b.shfl("xor", x, by), one, [a[i ^ by] for i in range(32)])
    lanes(lambda b, x, y: b.shfl("idx", x, y), {"a": ("u32", a), "y": ("u32", each)}, [a[k] for k in each])


@given(a=LANES32)
def test_ballot(a: list[int]) -> None:
    def make(b: Any, x: Any) -> Any:
        out = b.fresh("v", u32)
        b.emit(w.Ballot((out,), (x & 1).eq(1)))
        return out

    lanes(make, {"a": ("u32", a)}, [sum((x & 1) << i for i, x in enumerate(a))] * 32)


def test_each_read_of_the_clock_is_later() -> None:
    found = glob("o", u64, 32)

    def body(b: Any, v: Any) -> None:
        first, second, third = (b.clock() for _ in range(3))
        b.st(found, v.tid, b.binary("add", b.binary("sub", second, first), b.binary("sub", third, second)))

    out, report = clean(kernel(body, (found,)))
    assert (out["o"] == 2).all() and report.counts["clock"] == 3


HALVES = st.lists(st.integers(0, 2**16 - 1), min_size=32, max_size=32)


@given(a=HALVES, b=HALVES)
def test_pack_and_bitcast_keep_the_bits(a: list[int], b: list[int]) -> None:
    def make(bl: Any, x: Any, y: Any) -> Any:
        out = bl.fresh("v", u32)
        bl.emit(w.Pack((out,), bl.bitcast(x, f16), y))
        return out

    want = [x | y << 16 for x, y in zip(a, b, strict=True)]
    lanes(make, {"a": ("u16", a), "b": ("u16", b)}, want)
    lanes(lambda bl, x: bl.bitcast(bl.bitcast(x, bf16), u16), {"a": ("u16", a)}, a, u16)


@given(x=st.lists(st.floats(allow_nan=False), min_size=32, max_size=32))
def test_bitcast_of_doubles(x: list[float]) -> None:
    lanes(
        lambda b, v: b.bitcast(v, u64),
        {"x": ("f64", x)},
        [struct.unpack("<Q", struct.pack("<d", v))[0] for v in x],
        u64,
    )


F64 = st.lists(st.floats(-1e100, 1e100), min_size=32, max_size=32)


@given(x=F64, y=F64, z=F64)
def test_double_arithmetic(x: list[float], y: list[float], z: list[float]) -> None:
    two = {"x": ("f64", x), "y": ("f64", y)}
    pairs = list(zip(x, y, strict=True))
    lanes(lambda b, p, q: b.binary("add", p, q), two, [p + q for p, q in pairs], f64)
    lanes(lambda b, p, q: b.binary("sub", p, q), two, [p - q for p, q in pairs], f64)
    lanes(lambda b, p, q: b.binary("mul", p, q), two, [p * q for p, q in pairs], f64)
    lanes(lambda b, p, q: b.binary("min", p, q), two, [min(p, q) for p, q in pairs], f64)
    lanes(lambda b, p, q: b.binary("max", p, q), two, [max(p, q) for p, q in pairs], f64)
    lanes(lambda b, p, q, r: b.fma(p, q, r), {**two, "z": ("f64", z)},
          [p * q + r for (p, q), r in zip(pairs, z, strict=True)], f64)  # fmt: skip
    lanes(lambda b, p: b.unary("neg", p), {"x": ("f64", x)}, [-p for p in x], f64)
    lanes(lambda b, p: b.unary("sqrt", b.unary("abs", p)), {"x": ("f64", x)}, [math.sqrt(abs(p)) for p in x], f64)


def test_division_by_zero_follows_ieee() -> None:
    out = lanes(lambda b, p: b.binary("div", b.const(f64, 1.0), p), {"x": ("f64", [0.0] * 16 + [-0.0] * 16)}, None, f64)
    assert out.tolist() == [math.inf] * 16 + [-math.inf] * 16


def test_single_precision_stays_single() -> None:
    x = np.linspace(0.1, 3.3, 32, dtype=np.float32)
    out = lanes(lambda b, p: b.binary("mul", p, b.binary("add", p, p)), {"x": ("f32", x)}, None, f32)
    assert (out == x * (x + x)).all()


@pytest.mark.parametrize("dtype", [f16, f32], ids=lambda d: d.name)
def test_a_fused_multiply_add_rounds_once(dtype: DType) -> None:
    """An odd integer whose sums are integers, and a product just below a half, which would round to the half."""
    digits = {f16: 11, f32: 24}[dtype]
    e, odd = 2.0 ** -((digits + 2) // 2), 1.5 * 2.0 ** (digits - 1) + 1
    x = np.full(32, 1 + e, dtype.numpy())

    def one(b: Any, p: Any) -> Any:
        return b.fma(p, b.const(dtype, 0.5 - e / 2), b.const(dtype, odd))

    def two(b: Any, p: Any) -> Any:
        return b.binary("add", b.binary("mul", p, b.const(dtype, 0.5 - e / 2)), b.const(dtype, odd))

    assert (lanes(one, {"x": (dtype.name, x)}, None, dtype) == odd).all()
    assert (lanes(two, {"x": (dtype.name, x)}, None, dtype) == odd + 1).all()


@given(x=st.lists(st.floats(-1e12, 1e12), min_size=32, max_size=32))
def test_conversions(x: list[float]) -> None:
    lanes(lambda b, v: b.convert(v, s32), {"x": ("f64", x)}, [max(-(2**31), min(2**31 - 1, int(v))) for v in x], s32)
    lanes(lambda b, v: b.convert(v, u32), {"x": ("f64", x)}, [max(0, min(2**32 - 1, int(v))) for v in x], u32)
    lanes(lambda b, v: b.convert(b.convert(v, f16), f32), {"x": ("f64", x)},
          np.array(x).astype(np.float16).astype(np.float32).tolist(), f32)  # fmt: skip
    ints = [int(v) % 2**32 for v in x]
    lanes(lambda b, v: b.convert(v, f32), {"i": ("u32", ints)}, np.array(ints).astype(np.float32).tolist(), f32)
    lanes(lambda b, v: b.convert(b.convert(v, u16), u32), {"i": ("u32", ints)}, [i & 0xFFFF for i in ints])
    lanes(lambda b, v: b.convert(v, s32), {"i": ("u32", ints)}, [signed(i) for i in ints], s32)


def test_nan_becomes_zero_and_infinity_the_limit() -> None:
    x = [math.nan, math.inf, -math.inf] + [0.0] * 29
    lanes(lambda b, v: b.convert(v, s32), {"x": ("f64", x)}, [0, 2**31 - 1, -(2**31)] + [0] * 29, s32)


@given(a=LANES32)
def test_index_expressions_are_exact(a: list[int]) -> None:
    """Every operator of the expression language, against Python integers."""

    def make(b: Any, v: Any) -> Any:
        x = b.let("x", v % 1000)
        y = b.let("y", (x * 7 + 3) // 10 % 64)
        p = b.let("p", x.lt(500))
        e = (
            select(p, x + y, (x ^ y) | 1)
            + expr_binary("min", x, 9) * 100
            + expr_binary("max", y, 5)
            + (x >> 2)
            + (y << 3)
        )
        return b.binary("add", b.let("e", e - 2 + (x & 12) + select(expr_binary("or", p, y.eq(3)), 1, 0)), 0, u32)

    def plain(v: int) -> int:
        x = v % 1000
        y = (x * 7 + 3) // 10 % 64
        p = x < 500
        e = (x + y if p else (x ^ y) | 1) + min(x, 9) * 100 + max(y, 5) + (x >> 2) + (y << 3)
        return e - 2 + (x & 12) + (1 if p or y == 3 else 0)

    lanes(make, {"a": ("u32", a)}, [plain(v) for v in a])


def test_select_takes_floats_by_predicate() -> None:
    x = np.arange(32.0)

    def make(b: Any, v: Any) -> Any:
        p = b.binary("max", v, b.const(f64, 0.0))
        q = b.fresh("q", pred)
        b.emit(w.Convert((q,), b.binary("sub", p, b.const(f64, 5.0))))
        return b.select(q, v, b.const(f64, -1.0))

    lanes(make, {"x": ("f64", x)}, [-1.0 if v == 5 else v for v in x], f64)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("op", ["lt", "le", "eq", "ne"])
def test_comparisons_of_floats(op: str, dtype: str) -> None:
    a = [0.0, -0.0, 1.0, 2.0, math.inf, -math.inf, math.nan, 0.5] * 4
    b = [0.0] * 8 + [1.0] * 8 + [math.inf] * 8 + [math.nan] * 8
    holds = {"lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne}[op]

    def make(bl: Any, x: Any, y: Any) -> Any:
        return bl.select(bl.compare(op, x, y), bl.const(f64, 1.0), bl.const(f64, 0.0))

    lanes(make, {"a": (dtype, a), "b": (dtype, b)}, [float(holds(x, y)) for x, y in zip(a, b, strict=True)], f64)
