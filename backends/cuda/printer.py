"""The warp level as CUDA C++, op by op: each prints as at most one PTX instruction or one C expression.

A value is a ``const`` variable, a register array an array, a loop a loop.  Values that one instruction defines together
(a vector load, an mma) are the members of one variable: ``v.x``, ``d.v[0]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any, Final

from sparsegen.ir import node
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError, Loc
from sparsegen.ir.expr import Bin, Const, Expr, Value, binary
from sparsegen.ir.fragments import signature
from sparsegen.ir.node import Op
from sparsegen.ir.tensor_copy import tensor_maps
from sparsegen.ir.types import Buffer, DType, f32, s32, u32
from sparsegen.ir.warp_atomics import Atom, Red
from sparsegen.ir.warp_matrix import MmaSp, MovMatrix
from sparsegen.ir.warp_pairs import AddF16x2, WidenE4m3
from sparsegen.ir.warp_quotient import Quotient
from sparsegen.ir.warp_tagged import LdTagged

from . import ptx_ops as ptx
from .arch import needed_arch
from .expr_c import (
    CAST,
    INT,
    PRIMARY,
    TERNARY,
    ULONG,
    UNSIGNED,
    CText,
    float_literal,
    join,
    literal,
    register_type,
    render,
)
from .names import Names, comment
from .printer_async import STATEMENTS, try_wait
from .ptx_helper import Helper
from .ptx_tagged import LD_TAGGED, LD_TAGGED_WHERE

_HINTS: Final = {"cg": ("__ldcg", "__stcg"), "cs": ("__ldcs", "__stcs"), "nc": ("__ldg", "")}
_C_OPS: Final = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^", "shl": "<<",
                 "shr": ">>"}  # fmt: skip
_SHFL: Final = {"idx": "__shfl_sync", "up": "__shfl_up_sync", "down": "__shfl_down_sync", "xor": "__shfl_xor_sync"}
_C_COMPARE: Final = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_SPLIT: Final = ("reg", "param")  # adjacent elements are registers or constants, not one access to memory
INCLUDES: Final = {"f16": "cuda_fp16.h", "bf16": "cuda_bf16.h"}


class Printer:
    """Prints one function; ``helpers``, ``templates`` and ``includes`` are what its text needs around it."""

    def __init__(self, func: w.Func) -> None:
        self.func = func
        self.names = Names(ptx.RESERVED | {func.symbol})
        self.helpers: dict[str, Helper] = {}
        self.templates: set[str] = set()
        self.includes: set[str] = set()
        self.maps = {key: f"{key[0].name} map{i}" for i, key in enumerate(tensor_maps(func))}
        self.lines: list[str] = []
        self.written = {b.name for op in node.walk(func.body) for b in node.buffers(op, writes=True)}
        self.read = {b.name for op in node.walk(func.body) for b in node.buffers(op, writes=False)}
        self.hopper = needed_arch((func,)).startswith("sm_90")
        self._depth = 1
        self._loc: Loc | None = None

    def block(self, ops: Iterable[Op]) -> None:
        """Every op of a region, in order."""
        for op in ops:
            self._place(op)
            self.print(op)

    def print(self, op: Op) -> None:
        """One op, with its regions."""
        if (value := _VALUES.get(type(op))) is not None:
            self.define(op.out[0], value(self, op))  # type: ignore[attr-defined]
        elif (statement := _STATEMENTS.get(type(op))) is not None:
            self.line(f"{statement(self, op)};")
        else:
            _OTHERS[type(op)](self, op)

    def _place(self, op: Op) -> None:
        """Says which line of the user's program comes next, where that changes: at loops, branches and outermost."""
        if op.loc is None or op.loc == self._loc or not (self._depth == 1 or isinstance(op, (w.For, w.Loop, w.If))):
            return
        self._loc = op.loc
        self.line(f"// {comment(PurePath(op.loc.file.replace(chr(92), '/')).name)}:{op.loc.line}")

    # -------------------------------------------------------------------------------------------- pieces of text
    def line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    def nest(self, head: str, ops: Sequence[Op]) -> None:
        """A braced region; the closing brace is left to the caller."""
        self.line(head)
        self._depth += 1
        self.block(ops)
        self._depth -= 1

    def ctype(self, dtype: DType) -> str:
        """The C type, with its header noted."""
        if dtype.name in INCLUDES:
            self.includes.add(INCLUDES[dtype.name])
        return dtype.c

    def call(self, helper: Helper, *args: str, template: str = "") -> str:
        """A call of a helper, which is then printed before the kernel."""
        self.helpers[helper.name] = helper
        if "Regs<" in helper.text:
            self.templates.add(ptx.REGS)
        return f"{helper.name}{template}({', '.join(args)})"

    def apply(self, function: str, dtype: DType, *operands: Expr) -> str:
        """A C function of operands of one type."""
        return f"{function}({', '.join(self.value(e, dtype) for e in operands)})"

    def expr(self, e: Expr) -> str:
        """An integer expression or predicate."""
        return render(e, self.names.value).text

    def condition(self, e: Expr) -> str:
        """A predicate as the left side of ``?:``."""
        return render(e, self.names.value).within(TERNARY + 1)

    def typed(self, e: Expr, dtype: DType) -> CText:
        """An operand of an op that works in ``dtype``, converted to it in C's sense (integers after promotion)."""
        self.ctype(dtype)
        if dtype.kind != "float":
            return render(e, self.names.value, None if dtype.kind == "pred" else register_type(dtype))
        if isinstance(e, Value) and e.dtype.kind == "float":
            return CText(self.names.value(e.name), PRIMARY, dtype.c)
        if isinstance(e, Const):
            return CText(float_literal(e.value, dtype), PRIMARY if e.value >= 0 else CAST, dtype.c)
        raise IRError(f"{e!r} stands where a value of type {dtype} is needed", hint="convert it first")

    def value(self, e: Expr, dtype: DType) -> str:
        return self.typed(e, dtype).text

    def atom(self, e: Expr) -> tuple[str, DType]:
        """An operand as a name, a call or in brackets, and its type."""
        dtype = e.dtype if isinstance(e, Value) else u32 if e.lo >= 0 and e.hi >= 2**31 else s32
        return self.typed(e, dtype).within(PRIMARY), dtype

    def literal(self, x: float, dtype: DType) -> str:
        self.ctype(dtype)
        return float_literal(x, dtype) if dtype.kind == "float" else literal(int(x), register_type(dtype)).text

    def element(self, buf: Buffer, index: Expr) -> str:
        """``buf[index]``."""
        member = ".v" if buf.space == "param" else ""
        return f"{self.names.buffer(buf.name)}{member}[{self.expr(index)}]"

    def address(self, buf: Buffer, index: Expr) -> str:
        """``&buf[index]``."""
        return f"&{self.element(buf, index)}"

    def offset(self, buf: Buffer, index: Expr) -> str:
        """``&buf[index]``, with a constant of the index added to the pointer.

        nvcc folds it into the instruction there; of a sum of ints it no longer knows that it does not overflow once it
        has put its terms in another order, and works out an address of 64 bits for each.
        """
        if isinstance(index, Bin) and index.op == "+" and isinstance(index.b, Const):
            return f"{self.address(buf, index.a)} + {index.b.value}"
        return self.address(buf, index)

    def define(self, out: Value, text: str) -> None:
        """The statement that defines a value."""
        self.line(f"const {self.ctype(out.dtype)} {self.names.declare('%' + out.name)} = {text};")

    def define_all(self, out: Sequence[Value], ctype: str, text: str, members: Sequence[str]) -> None:
        """One variable of several members, each of which is a value; ``members`` have a {} for the variable."""
        name = self.names.declare("%" + out[0].name)
        self.line(f"const {ctype} {name} = {text};")
        for v, m in zip(out, members, strict=True):
            self.names.declare("%" + v.name, m.format(name))


# ------------------------------------------------------------------------------------------------ control
def _for(p: Printer, op: w.For) -> None:
    start, name = p.expr(op.start), p.names.declare("%" + op.var.name)
    if op.unroll is not None:
        p.line("#pragma unroll" + (f" {op.unroll}" if op.unroll else ""))
    step = f"++{name}" if op.step == Const(1) else f"{name} += {p.expr(op.step)}"
    below = join("<", CText(name, PRIMARY, INT), render(op.stop, p.names.value), INT).text
    p.nest(f"for ({op.var.dtype.c} {name} = {start}; {below}; {step}) {{", op.body)
    p.line("}")


def _loop(p: Printer, op: w.Loop) -> None:
    p.nest("while (true) {", op.body)
    p.line("}")


def _break_if(p: Printer, op: w.BreakIf) -> None:
    p.line(f"if ({p.expr(op.cond)}) break;")


def _if(p: Printer, op: w.If) -> None:
    p.nest(f"if ({p.expr(op.cond)}) {{", op.then)
    if op.orelse:
        p.nest("} else {", op.orelse)
    p.line("}")


# ------------------------------------------------------------------------------------------------ scalars
def _binary(p: Printer, op: w.Binary) -> str:
    t = op.out[0].dtype
    if op.op in ("min", "max", "pow") and t.kind != "pred":
        return p.apply(ptx.float_call(op.op, t) if t.kind == "float" else op.op, t, op.a, op.b)
    x, y = p.typed(op.a, t), p.typed(op.b, t)
    if t.kind == "int" and op.op in ("add", "sub", "mul", "shl"):  # signed overflow wraps here, and is undefined in C
        wide = ULONG if t.bits == 64 else UNSIGNED
        x = render(op.a, p.names.value, wide)
        y = y if op.op == "shl" else render(op.b, p.names.value, wide)
    elif t.name == "u16" and op.op == "mul":  # promoted to int it would overflow
        x = render(op.a, p.names.value, UNSIGNED)
    return join(_C_OPS[op.op], x, y, t.c).text


def _compare(p: Printer, op: w.Compare) -> str:
    assert isinstance(op.a, Value)
    a, b = (p.typed(e, op.a.dtype) for e in (op.a, op.b))
    return join(_C_COMPARE[op.op], a, b, "bool").text


def _select(p: Printer, op: w.SelectValue) -> str:
    a, b = (p.typed(e, op.out[0].dtype).within(TERNARY + 1) for e in (op.a, op.b))
    return f"{p.condition(op.cond)} ? {a} : {b}"


def _unary(p: Printer, op: w.Unary) -> str:
    return p.call(ptx.EXP2, p.value(op.a, f32)) if op.op == "exp2" else ptx.unary(op.op, *p.atom(op.a))


def _shfl(p: Printer, op: w.Shfl) -> str:
    if op.mode == "scan":
        return p.call(ptx.SCAN, p.expr(op.a), p.expr(op.by))
    return f"{_SHFL[op.mode]}(0xffffffffu, {p.value(op.a, op.out[0].dtype)}, {p.expr(op.by)})"


def _convert(p: Printer, op: w.Convert) -> str:
    text = ptx.convert(*p.atom(op.a), op.out[0].dtype)
    if ptx.TO_TF32.name in text:
        p.call(ptx.TO_TF32)
    return text


def _mma(p: Printer, op: w.Mma) -> None:
    sig = signature(op.shape)
    args = [p.value(e, t) for es, (t, _) in ((op.a, sig.a), (op.b, sig.b), (op.c, sig.c)) for e in es]
    dtype, n = sig.c
    template = ""
    if isinstance(op, MmaSp):
        args, template = [*args, p.value(op.meta, u32)], f"<{op.selector}>"
    text = p.call(ptx.mma(op.shape), *args, template=template)
    p.define_all(op.out, f"Regs<{dtype.c}, {n}>", text, [f"{{}}.v[{i}]" for i in range(n)])


# ------------------------------------------------------------------------------------------------ memory
def _alloc(p: Printer, op: w.Alloc) -> None:
    p.line(f"{p.ctype(op.buf.dtype)} {p.names.declare('@' + op.buf.name)}[{op.buf.size}];")


def _ld(p: Printer, op: w.Ld) -> None:
    n, buf = len(op.out), op.buf
    guard = "" if op.where is None else f"{p.condition(op.where)} ? "
    other = p.literal(op.other, buf.dtype)
    if buf.space in _SPLIT or n == 1:
        texts = []
        for i in range(n):
            at = p.element(buf, binary("+", op.index, i))
            at = f"{_HINTS[op.cache][0]}(&{at})" if op.cache and buf.space not in _SPLIT else at
            texts.append(f"{guard}{at} : {other}" if guard else at)
        names = [p.names.declare("%" + v.name) for v in op.out]
        p.line(
            f"const {p.ctype(buf.dtype)} " + ", ".join(f"{a} = {t}" for a, t in zip(names, texts, strict=True)) + ";"
        )
        return
    vector = ptx.vector_type(buf.dtype, n)
    at = f"reinterpret_cast<const {vector}*>(&{p.element(buf, op.index)})"
    at = f"{_HINTS[op.cache][0]}({at})" if op.cache else f"*{at}"
    if guard:
        at = f"{guard}{at} : {ptx.vector(buf.dtype, [other] * n)}"
    p.define_all(op.out, vector, at, ptx.members(buf.dtype, n))


def _st(p: Printer, op: w.St) -> None:
    n, buf = len(op.vals), op.buf
    guard = "" if op.where is None else f"if ({p.expr(op.where)}) "
    vals = [p.value(e, buf.dtype) for e in op.vals]
    if buf.space in _SPLIT or n == 1:
        if op.cache and buf.space not in _SPLIT:
            p.line(f"{guard}{_HINTS[op.cache][1]}(&{p.element(buf, op.index)}, {vals[0]});")
            return
        p.line(guard + ", ".join(f"{p.element(buf, binary('+', op.index, i))} = {x}" for i, x in enumerate(vals)) + ";")
        return
    if n == 8:
        vals = [p.typed(e, buf.dtype).within(PRIMARY) for e in op.vals]
    made = ptx.vector(buf.dtype, vals)
    at = f"reinterpret_cast<{ptx.vector_type(buf.dtype, n)}*>(&{p.element(buf, op.index)})"
    p.line(f"{guard}{_HINTS[op.cache][1]}({at}, {made});" if op.cache else f"{guard}*{at} = {made};")


def _ldmatrix(p: Printer, op: w.LdMatrix) -> None:
    n = len(op.out)
    text = p.call(ptx.ldmatrix(n, op.trans), p.address(op.buf, op.index))
    p.define_all(op.out, f"Regs<unsigned, {n}>", text, [f"{{}}.v[{i}]" for i in range(n)])


def _ld_tagged(p: Printer, op: LdTagged) -> None:
    dtype, count = op.buf.dtype, len(op.out)
    at, key = p.address(op.buf, op.index), (dtype.bits, count, op.scope)
    if op.where is None or op.other is None:
        text = p.call(LD_TAGGED[key], at)
    else:
        text = p.call(LD_TAGGED_WHERE[key], at, p.expr(op.where), p.value(op.other, dtype))
    p.define_all(op.out, f"Regs<{dtype.c}, {count}>", text, [f"{{}}.v[{i}]" for i in range(count)])


def _atomic(p: Printer, op: Atom | Red) -> str:
    value = p.typed(op.val, op.buf.dtype).within(PRIMARY)
    return ptx.atomic(op.op, op.buf.dtype, p.address(op.buf, op.index), value)


#: Ops that define one value: its expression.
_VALUES: Final[dict[type[Op], Callable[[Printer, Any], str]]] = {
    w.Let: lambda p, op: p.expr(op.expr),
    w.ConstFloat: lambda p, op: p.literal(op.value, op.out[0].dtype),
    w.Unary: lambda p, op: _unary(p, op),
    w.Binary: _binary,
    w.Fma: lambda p, op: p.apply(ptx.float_call("fma", op.out[0].dtype), op.out[0].dtype, op.a, op.b, op.c),
    Quotient: lambda p, op: p.call(
        ptx.QUOTIENT[op.out[0].dtype.name], p.value(op.a, op.out[0].dtype), p.literal(op.by, op.out[0].dtype)
    ),
    w.Compare: _compare,
    w.SelectValue: _select,
    w.Convert: _convert,
    w.Bitcast: lambda p, op: ptx.bitcast(*p.atom(op.a), op.out[0].dtype),
    w.Pack: lambda p, op: p.call(ptx.PACK, *(ptx.to_bits(*p.atom(e)) for e in (op.a, op.b))),
    w.Prmt: lambda p, op: p.call(ptx.PRMT, p.expr(op.a), p.expr(op.b), p.expr(op.sel)),
    WidenE4m3: lambda p, op: p.call(ptx.WIDEN_E4M3, p.expr(op.a)),
    AddF16x2: lambda p, op: p.call(ptx.ADD_F16X2, p.expr(op.a), p.expr(op.b)),
    MovMatrix: lambda p, op: p.call(ptx.MOVMATRIX, p.expr(op.a)),
    w.Funnel: lambda p, op: f"__funnelshift_r({p.expr(op.lo)}, {p.expr(op.hi)}, {p.expr(op.shift)})",
    w.Dp4a: lambda p, op: p.apply("__dp4a", op.out[0].dtype, op.a, op.b, op.c),
    w.Shfl: _shfl,
    w.Ballot: lambda p, op: f"__ballot_sync(0xffffffffu, {p.expr(op.cond)})",
    w.Clock: lambda p, op: p.call(ptx.CLOCK),
    Atom: _atomic,
    w.MbarTryWait: try_wait,
}
#: Ops that define nothing and print as one statement: its text.
_STATEMENTS: Final[dict[type[Op], Callable[[Printer, Any], str]]] = {
    Red: _atomic,
    **STATEMENTS,
}
_OTHERS: Final[dict[type[Op], Callable[[Printer, Any], None]]] = {
    w.For: _for, w.Loop: _loop, w.BreakIf: _break_if, w.If: _if, w.Mma: _mma, MmaSp: _mma, w.Alloc: _alloc, w.Ld: _ld,
    w.St: _st, w.LdMatrix: _ldmatrix, LdTagged: _ld_tagged,
}  # fmt: skip
PRINTED: Final = frozenset({*_VALUES, *_STATEMENTS, *_OTHERS})
