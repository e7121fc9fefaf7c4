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
from sparsegen.ir.expr import Const, Expr, Value, binary
from sparsegen.ir.node import Op
from sparsegen.ir.types import Buffer, DType, s32, u32

from . import ptx_ops as ptx
from .expr_c import (
    CAST,
    INT,
    PRIMARY,
    TERNARY,
    ULONG,
    UNSIGNED,
    CText,
    Names,
    float_literal,
    join,
    literal,
    register_type,
    render,
)

_HINTS: Final = {"cg": ("__ldcg", "__stcg"), "cs": ("__ldcs", "__stcs"), "nc": ("__ldg", "")}
_C_OPS: Final = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^", "shl": "<<",
                 "shr": ">>"}  # fmt: skip
_C_COMPARE: Final = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_SPLIT: Final = ("reg", "param")  # adjacent elements are registers or constants, not one access to memory
_INCLUDES: Final = {"f16": "cuda_fp16.h", "bf16": "cuda_bf16.h"}


class Printer:
    """Prints one function; ``helpers``, ``templates`` and ``includes`` are what its text needs around it."""

    def __init__(self, func: w.Func) -> None:
        self.func = func
        self.names = Names(ptx.RESERVED | {func.symbol})
        self.helpers: dict[str, ptx.Helper] = {}
        self.templates: set[str] = set()
        self.includes: set[str] = set()
        self.lines: list[str] = []
        self.written = {b.name for op in node.walk(func.body) for b in node.buffers(op, writes=True)}
        self.read = {b.name for op in node.walk(func.body) for b in node.buffers(op, writes=False)}
        self._depth = 1
        self._loc: Loc | None = None
        self._frames: list[type[Op]] = []

    def block(self, ops: Iterable[Op]) -> None:
        """Every op of a region, in order."""
        for op in ops:
            self._place(op)
            _PRINT[type(op)](self, op)

    def _place(self, op: Op) -> None:
        """Says which line of the user's program comes next, where that changes: at loops, branches and outermost."""
        if op.loc is None or op.loc == self._loc or not (self._depth == 1 or isinstance(op, (w.For, w.Loop, w.If))):
            return
        self._loc = op.loc
        self.line(f"// {PurePath(op.loc.file.replace(chr(92), '/')).name}:{op.loc.line}")

    # -------------------------------------------------------------------------------------------- pieces of text
    def line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    def nest(self, head: str, ops: Sequence[Op], kind: type[Op]) -> None:
        """A braced region; the closing brace is left to the caller."""
        self.line(head)
        self._depth += 1
        self._frames.append(kind)
        self.block(ops)
        self._frames.pop()
        self._depth -= 1

    def breaks(self) -> bool:
        """Whether C's ``break`` leaves the innermost loop of the IR here."""
        return next((k for k in reversed(self._frames) if k is not w.If), None) is w.Loop

    def ctype(self, dtype: DType) -> str:
        """The C type, with its header noted."""
        if dtype.name in _INCLUDES:
            self.includes.add(_INCLUDES[dtype.name])
        return dtype.c

    def call(self, helper: ptx.Helper, *args: str, template: str = "") -> str:
        """A call of a helper, which is then printed before the kernel."""
        self.helpers[helper.name] = helper
        if "Regs<" in helper.text:
            self.templates.add(ptx.REGS)
        return f"{helper.name}{template}({', '.join(args)})"

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
    p.nest(f"for ({op.var.dtype.c} {name} = {start}; {below}; {step}) {{", op.body, w.For)
    p.line("}")


def _loop(p: Printer, op: w.Loop) -> None:
    p.nest("while (true) {", op.body, w.Loop)
    p.line("}")


def _break_if(p: Printer, op: w.BreakIf) -> None:
    if not p.breaks():
        raise IRError("break_if stands outside a loop, or in a for inside it", loc=op.loc)
    p.line(f"if ({p.expr(op.cond)}) break;")


def _if(p: Printer, op: w.If) -> None:
    p.nest(f"if ({p.expr(op.cond)}) {{", op.then, w.If)
    if op.orelse:
        p.nest("} else {", op.orelse, w.If)
    p.line("}")


# ------------------------------------------------------------------------------------------------ scalars
def _unary(p: Printer, op: w.Unary) -> None:
    a, dtype = p.atom(op.a)
    p.define(op.out[0], ptx.unary(op.op, a, dtype))


def _binary(p: Printer, op: w.Binary) -> None:
    out = op.out[0]
    t = out.dtype
    if op.op in ("min", "max") and t.kind != "pred":
        a, b = p.value(op.a, t), p.value(op.b, t)
        p.define(out, f"{ptx.float_call(op.op, t) if t.kind == 'float' else op.op}({a}, {b})")
        return
    if op.op not in _C_OPS or (t.kind == "float" and _C_OPS[op.op] not in "+-*/"):
        raise IRError(f"binary {op.op} of type {t}", loc=op.loc)
    x, y = p.typed(op.a, t), p.typed(op.b, t)
    if t.kind == "int" and op.op in ("add", "sub", "mul", "shl"):  # signed overflow wraps here, and is undefined in C
        wide = ULONG if t.bits == 64 else UNSIGNED
        x = render(op.a, p.names.value, wide)
        y = y if op.op == "shl" else render(op.b, p.names.value, wide)
    elif t.name == "u16" and op.op == "mul":  # promoted to int it would overflow
        x = render(op.a, p.names.value, UNSIGNED)
    p.define(out, join(_C_OPS[op.op], x, y, t.c).text)


def _fma(p: Printer, op: w.Fma) -> None:
    t = op.out[0].dtype
    a, b, c = (p.value(e, t) for e in (op.a, op.b, op.c))
    p.define(op.out[0], f"{ptx.float_call('fma', t)}({a}, {b}, {c})")


def _compare(p: Printer, op: w.Compare) -> None:
    assert isinstance(op.a, Value)
    a, b = (p.typed(e, op.a.dtype) for e in (op.a, op.b))
    p.define(op.out[0], join(_C_COMPARE[op.op], a, b, "bool").text)


def _select(p: Printer, op: w.SelectValue) -> None:
    t = op.out[0].dtype
    a, b = (p.typed(e, t).within(TERNARY + 1) for e in (op.a, op.b))
    p.define(op.out[0], f"{p.condition(op.cond)} ? {a} : {b}")


def _convert(p: Printer, op: w.Convert) -> None:
    a, dtype = p.atom(op.a)
    text = ptx.convert(a, dtype, op.out[0].dtype)
    if ptx.TO_TF32.name in text:
        p.call(ptx.TO_TF32)
    p.define(op.out[0], text)


def _bitcast(p: Printer, op: w.Bitcast) -> None:
    a, dtype = p.atom(op.a)
    p.define(op.out[0], ptx.bitcast(a, dtype, op.out[0].dtype))


def _pack(p: Printer, op: w.Pack) -> None:
    lo, hi = (ptx.to_bits(*p.atom(e)) for e in (op.a, op.b))
    p.define(op.out[0], p.call(ptx.PACK, lo, hi))


def _prmt(p: Printer, op: w.Prmt) -> None:
    p.define(op.out[0], p.call(ptx.PRMT, p.expr(op.a), p.expr(op.b), p.expr(op.sel)))


def _funnel(p: Printer, op: w.Funnel) -> None:
    p.define(op.out[0], f"__funnelshift_r({p.expr(op.lo)}, {p.expr(op.hi)}, {p.expr(op.shift)})")


def _dp4a(p: Printer, op: w.Dp4a) -> None:
    a, b, c = (p.value(e, op.out[0].dtype) for e in (op.a, op.b, op.c))
    p.define(op.out[0], f"__dp4a({a}, {b}, {c})")


def _shfl(p: Printer, op: w.Shfl) -> None:
    mode = "" if op.mode == "idx" else f"_{op.mode}"
    p.define(op.out[0], f"__shfl{mode}_sync(0xffffffffu, {p.value(op.a, op.out[0].dtype)}, {p.expr(op.by)})")


def _mma(p: Printer, op: w.Mma) -> None:
    sig = w.signature(op.shape)
    args = [p.value(e, t) for es, (t, _) in ((op.a, sig.a), (op.b, sig.b), (op.c, sig.c)) for e in es]
    dtype, n = sig.c
    p.define_all(op.out, f"Regs<{dtype.c}, {n}>", p.call(ptx.mma(op.shape), *args), [f"{{}}.v[{i}]" for i in range(n)])


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


def _cp_async(p: Printer, op: w.CpAsync) -> None:
    guard = "" if op.where is None else f"if ({p.expr(op.where)}) "
    copy = ptx.cp_async(op.count * op.dst.dtype.nbytes)
    p.line(f"{guard}{p.call(copy, p.address(op.dst, op.dst_index), p.address(op.src, op.src_index))};")


def _bulk_copy(p: Printer, op: w.BulkCopy) -> None:
    nbytes = p.expr(op.count * op.dst.dtype.nbytes)
    p.line(p.call(ptx.BULK_COPY, p.address(op.dst, op.dst_index), p.address(op.src, op.src_index), nbytes,
                  p.address(op.bars, op.bar)) + ";")  # fmt: skip


def _ldmatrix(p: Printer, op: w.LdMatrix) -> None:
    n = len(op.out)
    text = p.call(ptx.ldmatrix(n, op.trans), p.address(op.buf, op.index))
    p.define_all(op.out, f"Regs<unsigned, {n}>", text, [f"{{}}.v[{i}]" for i in range(n)])


def _atomic(p: Printer, op: w.Atom | w.Red) -> str:
    value = p.typed(op.val, op.buf.dtype).within(PRIMARY)
    return ptx.atomic(op.op, op.buf.dtype, p.address(op.buf, op.index), value)


def _atom(p: Printer, op: w.Atom) -> None:
    p.define(op.out[0], _atomic(p, op))


def _red(p: Printer, op: w.Red) -> None:
    p.line(f"{_atomic(p, op)};")


# ------------------------------------------------------------------------------------------------ order
def _cp_wait(p: Printer, op: w.CpWait) -> None:
    p.line(f"{p.call(ptx.CP_WAIT, template=f'<{op.pending}>')};")


def _barrier(p: Printer, op: w.Barrier) -> None:
    if op.id == 0 and op.count in (0, p.func.threads):
        p.line("__syncthreads();")
    else:
        p.line(f"{p.call(ptx.BAR_SYNC, template=f'<{op.id}, {op.count or p.func.threads}>')};")


def _fence(p: Printer, op: w.Fence) -> None:
    fences = {"async": ptx.FENCE_ASYNC, "mbar_init": ptx.FENCE_MBAR_INIT}
    if op.scope != "gpu" and op.scope not in fences:
        raise IRError(f"fence of scope {op.scope!r}", loc=op.loc, hint="gpu, async or mbar_init")
    p.line("__threadfence();" if op.scope == "gpu" else f"{p.call(fences[op.scope])};")


def _mbar_init(p: Printer, op: w.MbarInit) -> None:
    p.line(f"{p.call(ptx.MBAR_INIT, p.address(op.bars, op.index), str(op.count))};")


def _mbar_arrive(p: Printer, op: w.MbarArrive) -> None:
    bar = p.address(op.bars, op.index)
    p.line(
        (p.call(ptx.MBAR_ARRIVE, bar) if op.expect is None else p.call(ptx.MBAR_EXPECT, bar, p.expr(op.expect))) + ";"
    )


def _mbar_try_wait(p: Printer, op: w.MbarTryWait) -> None:
    p.define(op.out[0], p.call(ptx.MBAR_TRY_WAIT, p.address(op.bars, op.index), p.expr(op.parity)))


_PRINT: Final[dict[type[Op], Callable[[Printer, Any], None]]] = {
    w.For: _for, w.Loop: _loop, w.BreakIf: _break_if, w.If: _if,
    w.Let: lambda p, op: p.define(op.out[0], p.expr(op.expr)),
    w.ConstFloat: lambda p, op: p.define(op.out[0], p.literal(op.value, op.out[0].dtype)),
    w.Unary: _unary, w.Binary: _binary, w.Fma: _fma, w.Compare: _compare, w.SelectValue: _select, w.Convert: _convert,
    w.Bitcast: _bitcast, w.Pack: _pack, w.Prmt: _prmt, w.Funnel: _funnel, w.Dp4a: _dp4a, w.Shfl: _shfl,
    w.Ballot: lambda p, op: p.define(op.out[0], f"__ballot_sync(0xffffffffu, {p.expr(op.cond)})"),
    w.Clock: lambda p, op: p.define(op.out[0], p.call(ptx.CLOCK)), w.Mma: _mma, w.Alloc: _alloc, w.Ld: _ld,
    w.St: _st, w.CpAsync: _cp_async, w.LdMatrix: _ldmatrix,
    w.BulkCopy: _bulk_copy, w.Atom: _atom, w.Red: _red, w.CpWait: _cp_wait,
    w.CpCommit: lambda p, op: p.line(f"{p.call(ptx.CP_COMMIT)};"), w.Barrier: _barrier, w.Fence: _fence,
    w.SyncWarp: lambda p, op: p.line("__syncwarp();"), w.MbarInit: _mbar_init, w.MbarArrive: _mbar_arrive,
    w.MbarTryWait: _mbar_try_wait,
}  # fmt: skip
PRINTED: Final = frozenset(_PRINT)
