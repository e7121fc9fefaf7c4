"""Closures of the ops that compute on lanes' values: no memory, no order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsegen.ir import warp as w
from sparsegen.ir.expr import Expr, Value
from sparsegen.ir.node import Op
from sparsegen.ir.types import DType, e4m3, f16, f32, pred, u16, u32
from sparsegen.ir.warp_matrix import MovMatrix
from sparsegen.ir.warp_pairs import AddF16x2, WidenE4m3
from sparsegen.ir.warp_quotient import Quotient
from sparsegen.ir.warp_tagged import Trap

from .values import LANES, Fn, bits, choose, from_bits, held, load, number, operand, predicate, wrap

if TYPE_CHECKING:
    from .compile import Scope
    from .group import Group

Step = Callable[["Group"], None]
_HAS_COUNT = hasattr(np, "bitwise_count")


def dtype_of(e: Expr, default: DType = u32) -> DType:
    return e.dtype if isinstance(e, Value) else default


# ------------------------------------------------------------------------------------------------ integer functions
def popc(x: Any) -> Any:
    """Set bits of a non-negative number."""
    if _HAS_COUNT:
        return np.bitwise_count(x).astype(np.int64) if isinstance(x, np.ndarray) else int(x).bit_count()
    u = np.ascontiguousarray(np.asarray(x).astype(np.uint64))
    b = np.unpackbits(u.reshape(*u.shape, 1).view(np.uint8), axis=-1)
    return b.sum(-1, dtype=np.int64)


def clz(x: Any, width: int) -> Any:
    """Leading zeros of a ``width``-bit number."""
    u = np.asarray(x).astype(np.uint64)
    hi, lo = (u >> np.uint64(32)).astype(np.float64), (u & np.uint64(0xFFFFFFFF)).astype(np.float64)
    length = np.where(hi > 0, 32 + np.frexp(hi)[1], np.frexp(lo)[1])
    return width - length.astype(np.int64)


def brev(x: Any, width: int) -> Any:
    """The bits in reverse order."""
    u = np.asarray(x).astype(np.uint64)
    out = np.zeros_like(u)
    for k in range(width):
        out |= ((u >> np.uint64(k)) & np.uint64(1)) << np.uint64(width - 1 - k)
    return out if width == 64 else out.astype(np.int64)


def prmt(a: Any, b: Any, sel: Any) -> Any:
    """PTX prmt.b32 of numbers held as int64."""
    both = [(a >> (8 * k)) & 255 for k in range(4)] + [(b >> (8 * k)) & 255 for k in range(4)]
    out: Any = 0
    for k in range(4):
        nib = (sel >> (4 * k)) & 15
        if isinstance(nib, np.ndarray) and nib.size > 1:
            word = np.where(nib & 4, b, a)
            byte = (word >> (8 * (nib & 3))) & 255
            byte = np.where(nib & 8, np.where(byte & 128, 255, 0), byte)
        else:
            i = int(np.asarray(nib).reshape(-1)[0])
            byte = both[i & 7]
            if i & 8:
                byte = ((byte >> 7) & 1) * 255
        out = out | (byte << (8 * k))
    return out


def to_int(x: Any, dtype: DType) -> Any:
    """A float converted to an integer type: truncated, clamped, NaN is 0."""
    lo, hi = dtype.range
    v = np.trunc(np.nan_to_num(np.asarray(x, dtype=np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    if dtype.bits == 64:
        top = 2.0**63 if dtype.kind == "int" else 2.0**64
        big = v >= top
        out = np.where(big, 0, np.maximum(v, float(lo))).astype(np.int64 if dtype.kind == "int" else np.uint64)
        return np.where(big, np.array(hi, dtype=out.dtype), out)
    return np.clip(v, lo, hi).astype(np.int64)


# ------------------------------------------------------------------------------------------------ operators
def _int_div(a: Any, b: Any) -> Any:
    zero = np.asarray(b) == 0
    safe = np.where(zero, 1, b)
    q = np.abs(a) // np.abs(safe)
    return np.where(zero, -1, np.where((np.asarray(a) < 0) != (safe < 0), -q, q))


_ANY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}  # fmt: skip
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    **_ANY, "div": lambda a, b: a / b, "min": np.fmin, "max": np.fmax, "pow": np.power,
}  # fmt: skip
_INT: dict[str, Callable[[Any, Any], Any]] = {
    **_ANY, "div": _int_div, "min": np.minimum, "max": np.maximum,
    "shl": lambda a, b: np.where(np.asarray(b) > 31, 0, a << (np.asarray(b) & 31)),
    "shr": lambda a, b: a >> np.minimum(b, 63),
}  # fmt: skip


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


def _div64(a: Any, b: Any) -> Any:
    return np.where(b == 0, ~np.zeros_like(b), a // np.where(b == 0, 1, b)) if a.dtype == np.uint64 else _int_div(a, b)


def _shift64(op: str, a: Any, b: Any) -> Any:
    n = np.asarray(b).astype(np.uint64)
    far, n = n > 63, np.minimum(n, np.uint64(63))
    if a.dtype == np.uint64:
        return np.where(far, np.uint64(0), a << n if op == "shl" else a >> n)
    m = n.astype(np.int64)
    return np.where(far, 0, a << m) if op == "shl" else a >> m


def _binary(op: w.Binary, dtype: DType) -> Callable[[Any, Any], Any]:
    """The function of a ``warp.binary`` in a type."""
    if dtype.kind == "float":
        f = _FLOAT[op.op]
        if dtype.bits == 16 or dtype.name == "f32":
            npt = dtype.numpy()
            return lambda a, b: _as(f(a, b), npt)
        return f
    if dtype.kind == "pred":
        return lambda a, b: np.asarray(_INT[op.op](a, b)).astype(bool)
    if dtype.bits == 64:
        npt = held(dtype)
        if op.op in ("shl", "shr"):
            return lambda a, b: _shift64(op.op, np.asarray(a).astype(npt), b)
        g = _div64 if op.op == "div" else _INT[op.op]
        return lambda a, b: g(np.asarray(a).astype(npt), np.asarray(b).astype(npt))
    h = _INT[op.op]
    if op.op in ("and", "or", "xor", "min", "max", "shr"):
        return h
    return lambda a, b: wrap(h(a, b), dtype)


def _as(x: Any, npt: Any) -> Any:
    return x if x.dtype == npt else x.astype(npt)


def _unary(op: w.Unary) -> Callable[[Any], Any]:
    d = dtype_of(op.a)
    table: dict[str, Callable[[Any], Any]]
    if d.kind == "float":
        table = {"neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "exp2": exp2,
                 "sin": np.sin, "cos": np.cos, "tanh": np.tanh}  # fmt: skip
    elif d.kind == "pred":
        table = {"not": lambda a: not a if isinstance(a, bool) else ~a}
    else:
        table = {
            "neg": lambda a: wrap(0 - a, d), "abs": lambda a: wrap(np.abs(a), d),
            "not": lambda a: ~a if d.name == "u64" else wrap(-1 - a, d),
            "popc": lambda a: popc(bits(a, d)), "clz": lambda a: clz(bits(a, d), d.bits),
            "brev": lambda a: wrap(brev(bits(a, d), d.bits), d),
        }  # fmt: skip
    return table[op.op]


def exp2(a: Any) -> Any:
    """2 to the power of f32 numbers; results that are not normal numbers are 0."""
    x = np.exp2(np.asarray(a).astype(np.float32))
    return np.where(x < np.finfo(np.float32).tiny, np.float32(0), x)


def to_tf32(a: Any) -> Any:
    """The f32 nearest to a, rounded to ten bits of mantissa, ties away from zero (PTX ``cvt.rna.tf32.f32``)."""
    x = np.ascontiguousarray(np.asarray(a).astype(np.float32))
    rounded = (x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def convert(src: DType, dst: DType) -> Callable[[Any], Any]:
    """The conversion of a value between types."""
    if dst.kind == "pred":
        return lambda a: np.asarray(a) != 0
    if dst.name == "tf32":
        return to_tf32
    if dst.kind == "float":
        npt = dst.numpy()
        return lambda a: np.asarray(a).astype(npt)
    if src.kind == "float":
        return lambda a: to_int(a, dst)
    if src.name == "u64":
        return lambda a: load(np.asarray(a).astype(dst.numpy()), dst)
    if dst.name == "u64":
        return lambda a: np.asarray(a).astype(np.int64).astype(np.uint64)
    return lambda a: wrap(a * 1, dst)


def _fma(d: DType) -> Callable[[Any, Any, Any], Any]:
    """Worked out in the next wider type, which holds the product exactly: almost always the one rounding of a GPU.

    f64 has no wider type, and rounds the product too.
    """
    if d.kind != "float":
        return lambda a, b, c: wrap(a * b + c, d)
    if d.bits == 64:
        return lambda a, b, c: a * b + c
    npt, wide = d.numpy(), np.float32 if d.bits == 16 else np.float64
    return lambda a, b, c: (np.asarray(a).astype(wide) * b + c).astype(npt)


def _funnel(low: Any, high: Any, shift: Any) -> Any:
    k = shift & 31
    return (low >> k) | ((high << (32 - k)) & 0xFFFFFFFF)


def _f16_bits(x: Any) -> Any:
    """The bits of f16 numbers, of any NaN those of PTX's."""
    return np.where(np.isnan(x), 0x7FFF, bits(x, f16))


@cache
def _f16_of_e4m3() -> Any:
    """The bits of the f16 of each e4m3, int64 [256]."""
    return _f16_bits(np.arange(256, dtype=np.uint8).view(e4m3.numpy()).astype(np.float16))


def _widen_e4m3(pair: Any) -> Any:
    table = _f16_of_e4m3()
    return table[pair & 255] | (table[pair >> 8 & 255] << 16)


def _add_f16x2(a: Any, b: Any) -> Any:
    low, high = (_f16_bits(from_bits(a >> at & 0xFFFF, f16) + from_bits(b >> at & 0xFFFF, f16)) for at in (0, 16))
    return low | (high << 16)


def _dp4a(d: DType, signed: bool) -> Callable[[Any, Any, Any], Any]:
    def dp4a(a: Any, b: Any, c: Any) -> Any:
        for k in range(0, 32, 8):
            p, q = (a >> k) & 255, (b >> k) & 255
            c = c + (((p ^ 128) - 128) * ((q ^ 128) - 128) if signed else p * q)
        return wrap(c, d)

    return dp4a


# ------------------------------------------------------------------------------------------------ closures
def _bitcast(src: DType, dst: DType) -> Callable[[Any], Any]:
    return lambda a: from_bits(bits(a, src), dst)


def _pack(low: DType, high: DType) -> Callable[[Any, Any], Any]:
    return lambda a, b: bits(a, low) | (bits(b, high) << 16)


def _typed(dtype: DType | None, *operands: Expr) -> list[tuple[Expr, DType | None]]:
    return [(x, dtype) for x in operands]


#: Of each op that works on lanes' values alone: its function, and its operands with the type that they are taken in
#: (None: the 32 bits of whatever it is).
_LANEWISE: dict[type[Op], Callable[[Any, DType], tuple[Callable[..., Any], list[tuple[Expr, DType | None]]]]] = {
    w.Unary: lambda op, out: (_unary(op), _typed(dtype_of(op.a), op.a)),
    w.Binary: lambda op, out: (_binary(op, out), _typed(out, op.a, op.b)),
    w.Fma: lambda op, out: (_fma(out), _typed(out, op.a, op.b, op.c)),
    Quotient: lambda op, out: (lambda a: a / out.numpy().type(op.by), _typed(out, op.a)),
    w.Compare: lambda op, out: (_COMPARE[op.op], _typed(dtype_of(op.a), op.a, op.b)),
    w.SelectValue: lambda op, out: (choose, _typed(pred, op.cond) + _typed(out, op.a, op.b)),
    w.Convert: lambda op, out: (convert(dtype_of(op.a), out), _typed(dtype_of(op.a), op.a)),
    w.Bitcast: lambda op, out: (_bitcast(dtype_of(op.a), out), _typed(dtype_of(op.a), op.a)),
    w.Pack: lambda op, out: (_pack(*(dtype_of(x, u16) for x in (op.a, op.b))),
                             [(x, dtype_of(x, u16)) for x in (op.a, op.b)]),
    w.Prmt: lambda op, out: (prmt, _typed(None, op.a, op.b, op.sel)),
    w.Funnel: lambda op, out: (_funnel, _typed(None, op.lo, op.hi, op.shift)),
    WidenE4m3: lambda op, out: (_widen_e4m3, _typed(u16, op.a)),
    AddF16x2: lambda op, out: (_add_f16x2, _typed(u32, op.a, op.b)),
    w.Dp4a: lambda op, out: (_dp4a(out, dtype_of(op.a).kind == "int"), _typed(None, op.a, op.b) + _typed(out, op.c)),
}  # fmt: skip


def lanewise(op: Any, sc: Scope) -> Step:
    """The closure of an op that sets its result to a function of one to three operands."""
    f, operands = _LANEWISE[type(op)](op, op.out[0].dtype)
    a, *others = [_word(x, sc) if d is None else operand(x, d, sc.slots) for x, d in operands]
    if not others:
        return sc.put(op.out[0], lambda e: f(a(e)), op=op)
    b, *third = others
    if not third:
        return sc.put(op.out[0], lambda e: f(a(e), b(e)), op=op)
    (c,) = third
    return sc.put(op.out[0], lambda e: f(a(e), b(e), c(e)), op=op)


def _word(x: Expr, sc: Scope) -> Fn:
    """A 32-bit operand as its bits."""
    d = dtype_of(x)
    f = operand(x, d, sc.slots)
    return f if d.kind == "uint" else lambda e: f(e) & 0xFFFFFFFF if d.is_int else bits(f(e), f32)


def let(op: w.Let, sc: Scope) -> Step:
    out = op.out[0]
    f = operand(op.expr, out.dtype, sc.slots) if out.dtype.kind == "pred" else number(op.expr, sc.slots)
    return sc.put(out, f, check=out.lo > op.expr.lo or out.hi < op.expr.hi, op=op)


def const(op: w.ConstFloat, sc: Scope) -> Step:
    d = op.out[0].dtype
    c = d.numpy().type(op.value) if d.kind == "float" else int(op.value)
    return sc.put(op.out[0], lambda e: c)


def clock(op: w.Clock, sc: Scope) -> Step:
    """How many times the launch has read a clock before: later reads give more, as they do on hardware."""
    slot = sc.define(op.out[0])

    def clock(g: Group) -> None:
        g.env[slot] = np.uint64(g.m.run.clock_reads)
        g.m.run.clock_reads += 1

    return clock


def trap(op: Trap, sc: Scope) -> Step:
    where, info = predicate(op.where, sc.slots), sc.info(op)

    def trap(g: Group) -> None:
        bad = g.full() & where(g.env)
        if bad.any():
            g.m.find("trap", info, "the launch ends here as failed", "look for what was waited for, or asked, in vain",
                     bad=bad, row=g.rows[:, None], lane=LANES)  # fmt: skip
            g.m.abort()

    return trap


def ballot(op: w.Ballot, sc: Scope) -> Step:
    cond, info, slot = predicate(op.cond, sc.slots), sc.info(op), sc.define(op.out[0])

    def ballot(g: Group) -> None:
        g.m.collective(g, info)
        c = np.broadcast_to(np.asarray(cond(g.env)), (g.n, 32))
        if g.mask is not None:
            c = c & g.mask
        g.env[slot] = (c.astype(np.int64) << LANES).sum(1, keepdims=True)

    return ballot


def movmatrix(op: MovMatrix, sc: Scope) -> Step:
    a, info, slot = operand(op.a, dtype_of(op.a), sc.slots), sc.info(op), sc.define(op.out[0])

    def movmatrix(g: Group) -> None:
        g.m.collective(g, info)
        words = np.broadcast_to(np.asarray(a(g.env), np.uint32), (g.n, 32))
        rows = np.ascontiguousarray(words).view(np.uint16).reshape(g.n, 8, 8)  # of each lane the low half is first
        g.env[slot] = np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(g.n, 64).view(np.uint32)

    return movmatrix


def shfl(op: w.Shfl, sc: Scope) -> Step:
    a, by, info = operand(op.a, dtype_of(op.a), sc.slots), number(op.by, sc.slots), sc.info(op)
    slot, mode, lane = sc.define(op.out[0]), op.mode, np.arange(32)
    check = sc.promise(op.out[0], info)

    def source(b: Any) -> Any:
        s = b & 31 if mode == "idx" else lane - b if mode == "up" else lane + b if mode == "down" else lane ^ b
        return np.where((s < 0) | (s > 31), lane, s)

    def shfl(g: Group) -> None:
        g.m.collective(g, info)
        v, b = a(g.env), by(g.env)
        if mode == "scan":
            own = np.broadcast_to(np.asarray(v, np.uint32), (g.n, 32))
            from_ = lane - np.broadcast_to(np.asarray(b), (g.n, 32))
            more = np.take_along_axis(own, np.maximum(from_, 0), axis=1)
            g.env[slot] = own + np.where(from_ >= 0, more, np.uint32(0))
            return
        if isinstance(v, np.ndarray) and v.ndim == 2 and v.shape[1] == 32:
            s = source(b)
            if np.ndim(b) == 0 or s.ndim < 2 or (s.shape[0] == 1 and v.shape[0] > 1):
                s = np.broadcast_to(s.reshape(-1), 32)
                v = v.take(s, axis=1)
            else:
                s = np.broadcast_to(s, (g.n, 32))
                v = np.take_along_axis(np.broadcast_to(v, (g.n, 32)), s, axis=1)
        g.env[slot] = v
        if check:
            check(g, v)

    return shfl
