"""The rules of the warp level: functions, control, scalars; :mod:`sparsegen.ir.verify_memory` has the others."""

from __future__ import annotations

import re
from typing import Any, Final

from . import warp as w
from .checks import Context, check
from .expr import Expr, Value
from .node import Op
from .numbers.quotients import simple
from .text import declaration
from .types import Buffer, DType, f32, f64, pred, u16, u32, u64
from .uniform import NAMES, WARP, breaks
from .warp_matrix import MovMatrix
from .warp_pairs import AddF16x2, WidenE4m3
from .warp_quotient import Quotient

#: Of f32 and f64.
FUNCTIONS: Final = ("exp", "log", "sin", "cos", "tanh")
UNARY: Final = ("neg", "abs", "sqrt", "exp2", *FUNCTIONS, "not", "popc", "clz", "brev")
ARITHMETIC: Final = ("add", "sub", "mul", "div", "min", "max", "pow")
BITS: Final = ("and", "or", "xor", "shl", "shr")
COMPARE: Final = ("lt", "le", "eq", "ne")


def _value(ctx: Context, e: Expr, what: str) -> Value:
    if not isinstance(e, Value):
        ctx.fail(f"{what} must be a named value, not the expression {e}", "name it with warp.let")
    assert isinstance(e, Value)
    return e


def in_space(ctx: Context, buf: Buffer, *spaces: str) -> None:
    ctx.need(buf.space in spaces, f"{declaration(buf)} must be in {' or '.join(spaces)} memory")


def gives(op: Any, ctx: Context, dtype: DType) -> None:
    """The op's result is of this type."""
    what = "a predicate" if dtype is pred else dtype
    ctx.need(op.out[0].dtype is dtype, f"gives {what}, not {op.out[0].dtype}")


def elem_bytes(ctx: Context, dtype: DType) -> int:
    ctx.need(dtype.bits % 8 == 0, f"{dtype} is packed and has no elements in memory", "use words of u32")
    return dtype.nbytes


def converged(op: Op, ctx: Context, allowed: int, who: str) -> None:
    got = ctx.levels.around(op)
    ctx.need(got <= allowed, f"{who} must reach it together, but the control flow around it is {NAMES[got]}",
             "move it out of the divergent if or loop, or make the condition uniform")  # fmt: skip


# ------------------------------------------------------------------------------------------------------- function
@check(w.Func)
def _func(op: w.Func, ctx: Context) -> None:
    ctx.need(bool(re.fullmatch(r"[A-Za-z_]\w*", op.symbol)), f"symbol {op.symbol!r} is no C identifier")
    ctx.need(len(op.grid) == 3, f"grid {op.grid} must have three extents")
    for n, most in zip(op.grid, (2**31 - 1, 65535, 65535), strict=True):
        ctx.need(1 <= n <= most, f"grid {op.grid}: {n} is not in 1..{most}")
    ctx.need(1 <= op.threads <= 1024, f"{op.threads} threads a block are not in 1..1024")
    ctx.need(op.min_blocks >= 1, f"min_blocks {op.min_blocks} must be at least 1")
    in_params = 0
    for p in op.params:
        if isinstance(p, Buffer):
            in_space(ctx, p, "global", "param")
            in_params += p.nbytes if p.space == "param" else 8
        else:
            in_params += 8
    ctx.need(in_params <= 32764, f"{in_params} bytes of parameters exceed the 32764 of a launch",
             "put the table in global memory")  # fmt: skip
    for b in op.shared:
        in_space(ctx, b, "shared")
        elem_bytes(ctx, b.dtype)
        ctx.need(b.align % b.dtype.nbytes == 0, f"{declaration(b)} is aligned to less than its elements")
    if ctx.shared_limit is not None:
        ctx.need(op.shared_bytes <= ctx.shared_limit,
                 f"{op.shared_bytes} bytes of shared memory exceed the {ctx.shared_limit} of a block",
                 "use a smaller tile or fewer stages")  # fmt: skip
    sizes = {b.name: b.size for b in op.shared}
    for name, first, last in op.scratch:
        ctx.need(name in sizes, f"scratch @{name} is no shared buffer of the function")
        ctx.need(0 <= first <= last < sizes[name], f"scratch cells {first}..{last} are outside @{name}")


# ------------------------------------------------------------------------------------------------------- control
@check(w.For)
def _for(op: w.For, ctx: Context) -> None:
    for e, what in ((op.start, "start"), (op.stop, "stop"), (op.step, "step")):
        ctx.integer(e, what)
    ctx.need(op.step.lo > 0, f"step {op.step} may be {op.step.lo}, but must be positive")
    ctx.need(op.var.dtype.is_int, f"the loop variable is {declaration(op.var)}, but must be an integer")
    last = op.stop.hi - 1
    if op.start.lo == op.start.hi and op.step.lo == op.step.hi:
        last = op.start.lo + (last - op.start.lo) // op.step.lo * op.step.lo
    if last >= op.start.lo:
        ctx.need(op.var.lo <= op.start.lo and op.var.hi >= min(last, op.var.dtype.range[1]),
                 f"{declaration(op.var)} runs over {op.start.lo}..{last}: its range is too narrow")  # fmt: skip
    ctx.need(op.unroll is None or op.unroll >= 0, f"unroll {op.unroll} must be none, 0 (fully) or a factor")


@check(w.Loop)
def _loop(op: w.Loop, ctx: Context) -> None:
    ctx.need(bool(breaks(op)), "never ends", "leave it with warp.break_if")


@check(w.If, w.BreakIf)
def _condition(op: w.If | w.BreakIf, ctx: Context) -> None:
    ctx.condition(op.cond, "the condition")


@check(w.BreakIf)
def _break_if(op: w.BreakIf, ctx: Context) -> None:
    for outer, _ in reversed(ctx.path):
        if isinstance(outer, w.Loop):
            return
        ctx.need(not isinstance(outer, w.For), "stands in a warp.for: only the innermost warp.loop can be left")
    ctx.fail("stands outside of any warp.loop")


# ------------------------------------------------------------------------------------------------------- scalars
@check(w.Let)
def _let(op: w.Let, ctx: Context) -> None:
    out = op.out[0]
    ctx.need(out.dtype.is_int or out.dtype is pred, f"{declaration(out)} must be an integer or a predicate")
    if out.dtype is pred:
        ctx.condition(op.expr, "the expression")
    ctx.integer(op.expr, "the expression") if out.dtype.is_int else None
    ctx.need(op.expr.lo <= out.hi and op.expr.hi >= out.lo,
             f"{declaration(out)} cannot hold {op.expr}, which is in {op.expr.lo}..{op.expr.hi}")  # fmt: skip


@check(w.ConstFloat)
def _const(op: w.ConstFloat, ctx: Context) -> None:
    ctx.need(op.out[0].dtype.kind == "float", f"{declaration(op.out[0])} must be floating point")


@check(w.Unary)
def _unary(op: w.Unary, ctx: Context) -> None:
    ctx.one_of(op.op, UNARY, "unary operation")
    out, a = op.out[0], op.a
    if op.op in ("popc", "clz", "brev", "not") and isinstance(a, Value):
        fits = a.dtype.is_int or (op.op == "not" and a.dtype is pred)
        ctx.need(fits, f"{op.op} needs an integer, but {declaration(a)}")
    if op.op == "popc":
        ctx.need(out.dtype is u32, f"popc gives u32, not {out.dtype}")
    elif op.op == "clz":
        ctx.need(out.dtype.is_int, f"clz gives an integer, not {out.dtype}")
    else:
        ctx.typed(a, out.dtype, "the operand")
    if op.op == "sqrt":
        ctx.need(out.dtype.kind == "float", f"sqrt needs a floating-point value, not {out.dtype}")
    if op.op in FUNCTIONS:
        _wide(ctx, op.op, out.dtype)
    if op.op == "exp2":
        ctx.need(out.dtype is f32, f"exp2 is the approximation of f32, there is none of {out.dtype}")


def _wide(ctx: Context, op: str, dtype: DType) -> None:
    ctx.need(dtype in (f32, f64), f"{op} is a function of f32 and f64, there is none of {dtype}", "convert it first")


@check(w.Binary)
def _binary(op: w.Binary, ctx: Context) -> None:
    ctx.one_of(op.op, ARITHMETIC + BITS, "binary operation")
    t = op.out[0].dtype
    ctx.typed(op.a, t, "the left side")
    if op.op in ("shl", "shr"):
        ctx.integer(op.b, "the shift")
    else:
        ctx.typed(op.b, t, "the right side")
    if op.op == "pow":
        _wide(ctx, op.op, t)
    if op.op in BITS:
        ctx.need(t.kind != "float", f"{op.op} needs integers, not {t}")


@check(w.Fma, w.Dp4a)
def _fma(op: w.Fma | w.Dp4a, ctx: Context) -> None:
    t = op.out[0].dtype
    ctx.need(isinstance(op, w.Fma) or t.name in ("u32", "s32"), f"sums in u32 or s32, not {t}")
    for e, what in ((op.a, "a"), (op.b, "b"), (op.c, "c")):
        ctx.typed(e, t, what)


@check(Quotient)
def _quotient(op: Quotient, ctx: Context) -> None:
    t = op.out[0].dtype
    ctx.need(t.name in ("f32", "f64"), f"quotients in f32 or f64, not {t}")
    ctx.typed(op.a, t, "the dividend")
    ctx.need(simple(op.by), f"the divisor {op.by!r} is too small or too large", "use a binary div")
    ctx.need(float(t.numpy().type(op.by)) == op.by, f"the divisor {op.by!r} is no number of {t}", "round it first")


@check(w.Compare)
def _compare(op: w.Compare, ctx: Context) -> None:
    ctx.one_of(op.op, COMPARE, "comparison")
    gives(op, ctx, pred)
    a = _value(ctx, op.a, "the left side")
    ctx.need(a.dtype.kind == "float", f"compares floating-point values, but {declaration(a)}",
             "compare integers in an expression")  # fmt: skip
    ctx.typed(op.b, a.dtype, "the right side")


@check(w.SelectValue)
def _select(op: w.SelectValue, ctx: Context) -> None:
    ctx.condition(op.cond, "the condition")
    ctx.typed(op.a, op.out[0].dtype, "the first choice")
    ctx.typed(op.b, op.out[0].dtype, "the second choice")


@check(w.Convert)
def _convert(op: w.Convert, ctx: Context) -> None:
    ctx.need(op.out[0].dtype is not pred, "gives a number, not a predicate", "compare it with 0")


@check(w.Bitcast)
def _bitcast(op: w.Bitcast, ctx: Context) -> None:
    a = _value(ctx, op.a, "the operand")
    ctx.need(a.dtype.bits == op.out[0].dtype.bits, f"{declaration(a)} and {declaration(op.out[0])} differ in width")


@check(w.Pack)
def _pack(op: w.Pack, ctx: Context) -> None:
    gives(op, ctx, u32)
    for e in (op.a, op.b):
        v = _value(ctx, e, "a half")
        ctx.need(v.dtype.bits == 16, f"a half must have 16 bits, but {declaration(v)}")


@check(w.Prmt, w.Funnel)
def _bytes_of_words(op: w.Prmt | w.Funnel, ctx: Context) -> None:
    gives(op, ctx, u32)
    first, second, third = (op.a, op.b, op.sel) if isinstance(op, w.Prmt) else (op.lo, op.hi, op.shift)
    ctx.typed(first, u32, "the first word")
    ctx.typed(second, u32, "the second word")
    ctx.integer(third, "the last operand")


@check(WidenE4m3)
def _widen(op: WidenE4m3, ctx: Context) -> None:
    gives(op, ctx, u32)
    ctx.typed(_value(ctx, op.a, "the pair"), u16, "the pair")


@check(AddF16x2)
def _add_pairs(op: AddF16x2, ctx: Context) -> None:
    gives(op, ctx, u32)
    ctx.typed(op.a, u32, "the left side")
    ctx.typed(op.b, u32, "the right side")


@check(w.Shfl)
def _shfl(op: w.Shfl, ctx: Context) -> None:
    ctx.one_of(op.mode, ("idx", "up", "down", "xor", "scan"), "mode")
    a = _value(ctx, op.a, "what is shuffled")
    ctx.need(op.mode != "scan" or a.dtype is u32, f"a scan adds u32, but {declaration(a)}")
    ctx.need(a.dtype is op.out[0].dtype, f"{declaration(a)} and {declaration(op.out[0])} differ in type")
    ctx.integer(op.by, "the distance")
    whole_warp(op, ctx)


@check(MovMatrix)
def _movmatrix(op: MovMatrix, ctx: Context) -> None:
    ctx.typed(op.a, u32, "the matrix")
    gives(op, ctx, u32)
    whole_warp(op, ctx)


@check(w.Ballot)
def _ballot(op: w.Ballot, ctx: Context) -> None:
    ctx.condition(op.cond, "the condition")
    gives(op, ctx, u32)
    whole_warp(op, ctx)


@check(w.Clock)
def _clock(op: w.Clock, ctx: Context) -> None:
    gives(op, ctx, u64)


def whole_warp(op: Op, ctx: Context) -> None:
    ctx.warps()  # refuses a block whose last one is not full
    converged(op, ctx, WARP, "all lanes of a warp")
