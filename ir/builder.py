"""Builds warp-level regions in program order: ``b.ld(...)`` emits an op and gives back its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import warp as w
from . import warp_atomics as wa
from . import warp_group as wg
from . import warp_launch as wl
from . import warp_matrix as wm
from . import warp_pairs as wp
from . import warp_quotient as wq
from . import warp_tagged as wt
from .errors import IRError, Loc
from .expr import Expr, ExprLike, Value, as_expr
from .node import Op
from .swizzle import Tile
from .types import Buffer, DType, f32, pred, s32, u32, u64

#: Ops that a function may have: ten times those of the largest kernels, far more than nvcc takes.
MOST_OPS = 500_000


class Builder:
    """Collects ops into nested regions; names are made unique, ops get the current source line ``loc``."""

    def __init__(self, loc: Loc | None = None) -> None:
        self.loc = loc
        self._stack: list[list[Op]] = [[]]
        self._used: dict[str, int] = {}
        self._emitted = 0

    # -------------------------------------------------------------------------------------------- machinery
    def ops(self) -> tuple[Op, ...]:
        """Everything emitted at the outermost level."""
        assert len(self._stack) == 1, "a region is still open"
        return tuple(self._stack[0])

    def emit(self, op: Op) -> Op:
        """Appends an op as it is; IRError where what is unrolled has no end."""
        self._emitted += 1
        if self._emitted > MOST_OPS:
            raise IRError(f"the function has more than {MOST_OPS} ops", loc=self.loc,
                          hint="a count of turns, rows or slots that are unrolled is too large")  # fmt: skip
        self._stack[-1].append(op)
        return op

    def fresh(self, hint: str, dtype: DType = s32, lo: int | None = None, hi: int | None = None) -> Value:
        """A new value with a name that nothing else in this builder has."""
        n = self._used.get(hint, 0)
        self._used[hint] = n + 1
        return Value(hint if n == 0 else f"{hint}_{n}", dtype, lo, hi)

    def reserve(self, *names: str) -> None:
        """Keeps names (parameters, built-ins) from being given to new values."""
        for n in names:
            self._used[n] = max(1, self._used.get(n, 0))

    @contextmanager
    def region(self) -> Iterator[list[Op]]:
        """Collects what is emitted inside; the caller puts the list into an op afterwards."""
        self._stack.append([])
        ops = self._stack[-1]
        try:
            yield ops
        finally:
            self._stack.pop()

    # -------------------------------------------------------------------------------------------- control
    @contextmanager
    def for_(
        self, hint: str, start: ExprLike, stop: ExprLike, step: ExprLike = 1, unroll: w.Unroll = None
    ) -> Iterator[Value]:
        """A counted loop; the loop variable's range follows from the bounds' ranges."""
        a, z, s = as_expr(start), as_expr(stop), as_expr(step)
        var = self.fresh(hint, s32, a.lo, max(a.lo, z.hi - 1))
        with self.region() as body:
            yield var
        self.emit(w.For(var, a, z, s, tuple(body), unroll, loc=self.loc))

    @contextmanager
    def loop(self) -> Iterator[None]:
        """An endless loop; leave it with :meth:`break_if`."""
        with self.region() as body:
            yield
        self.emit(w.Loop(tuple(body), loc=self.loc))

    def break_if(self, cond: Expr) -> None:
        self.emit(w.BreakIf(cond, loc=self.loc))

    @contextmanager
    def if_(self, cond: Expr) -> Iterator[None]:
        """A conditional region; :meth:`else_` right after it adds the other branch."""
        with self.region() as body:
            yield
        self.emit(w.If(cond, tuple(body), loc=self.loc))

    @contextmanager
    def else_(self) -> Iterator[None]:
        last = self._stack[-1].pop()
        assert isinstance(last, w.If) and not last.orelse, "else_ must follow if_"
        with self.region() as body:
            yield
        self.emit(w.If(last.cond, last.then, tuple(body), loc=last.loc))

    # -------------------------------------------------------------------------------------------- scalars
    def _made(self, op: Callable[..., Op], out: Value, *given: Any) -> Value:
        """The one result of an op that is emitted here."""
        self.emit(op((out,), *given, loc=self.loc))
        return out

    def let(self, hint: str, expr: ExprLike, lo: int | None = None, hi: int | None = None) -> Expr:
        """Names an expression; constants and plain values stay what they are.

        ``lo`` and ``hi`` promise bounds that the range analysis cannot see (a loop's guard, say).
        """
        e = as_expr(expr)
        if not hasattr(e, "op") and not hasattr(e, "c"):
            return e
        is_cond = e.lo >= 0 and e.hi <= 1 and getattr(e, "op", "") in ("<", "<=", "==", "!=", "and", "or")
        out = self.fresh(
            hint, pred if is_cond else s32, e.lo if lo is None else max(lo, e.lo), e.hi if hi is None else min(hi, e.hi)
        )
        self.emit(w.Let((out,), e, loc=self.loc))
        return out

    def name(self, expr: Expr, hint: str) -> Value:
        """The expression as a value, named if it is not one."""
        v = self.let(hint, expr)
        if isinstance(v, Value):
            return v
        return self._made(w.Let, self.fresh(hint, s32, v.lo, v.hi), v)

    def const(self, dtype: DType, value: float, hint: str = "c") -> Value:
        return self._made(w.ConstFloat, self.fresh(hint, dtype), float(value))

    def unary(self, op: str, a: Value, hint: str = "v") -> Value:
        out = self.fresh(hint, u32, 0, a.dtype.bits) if op == "popc" else self.fresh(hint, a.dtype)
        return self._made(w.Unary, out, op, a)

    def binary(self, op: str, a: ExprLike, b: ExprLike, dtype: DType | None = None, hint: str = "v") -> Value:
        """``a op b``, wrapping in ``dtype`` (the type of ``a`` where it is a value)."""
        x, y = as_expr(a), as_expr(b)
        t = dtype or next(e.dtype for e in (x, y) if isinstance(e, Value))
        return self._made(w.Binary, self.fresh(hint, t), op, x, y)

    def quotient(self, a: Value, by: float, hint: str = "v") -> Value:
        """``a / by`` without a branch; ``by`` is rounded to its type."""
        return self._made(wq.Quotient, self.fresh(hint, a.dtype), a, float(a.dtype.numpy().type(by)))

    def fma(self, a: Value, b: Value, c: Value, hint: str = "v") -> Value:
        return self._made(w.Fma, self.fresh(hint, c.dtype), a, b, c)

    def compare(self, op: str, a: Value, b: Value, hint: str = "p") -> Value:
        """``a op b`` of two floating-point values: ``lt le eq ne``."""
        return self._made(w.Compare, self.fresh(hint, pred), op, a, b)

    def select(self, cond: Expr, a: Value, b: Value, hint: str = "v") -> Value:
        return self._made(w.SelectValue, self.fresh(hint, a.dtype), cond, a, b)

    def convert(self, a: Value, dtype: DType, hint: str = "v") -> Value:
        return self._made(w.Convert, self.fresh(hint, dtype), a)

    def bitcast(self, a: Value, dtype: DType, hint: str = "v") -> Value:
        return self._made(w.Bitcast, self.fresh(hint, dtype), a)

    def pack(self, low: Value, high: Value, hint: str = "v") -> Value:
        return self._made(w.Pack, self.fresh(hint, u32), low, high)

    def prmt(self, a: ExprLike, b: ExprLike, sel: ExprLike, hint: str = "v") -> Value:
        return self._made(w.Prmt, self.fresh(hint, u32), as_expr(a), as_expr(b), as_expr(sel))

    def widen_e4m3(self, a: Value, hint: str = "v") -> Value:
        """Two f16 of the two e4m3 in a u16."""
        return self._made(wp.WidenE4m3, self.fresh(hint, u32), a)

    def add_f16x2(self, a: Value, b: ExprLike, hint: str = "v") -> Value:
        return self._made(wp.AddF16x2, self.fresh(hint, u32), a, as_expr(b))

    def funnel(self, lo: Value, hi: Value, shift: Expr, hint: str = "v") -> Value:
        return self._made(w.Funnel, self.fresh(hint, u32), lo, hi, shift)

    def shfl(self, mode: str, a: Value, by: ExprLike, hint: str = "v") -> Value:
        out = self.fresh(hint, a.dtype, a.lo, a.hi) if a.dtype.is_int else self.fresh(hint, a.dtype)
        return self._made(w.Shfl, out, mode, a, as_expr(by))

    def launch_next(self) -> None:
        """The next launch may begin."""
        self.emit(wl.LaunchNext(loc=self.loc))

    def launch_wait(self) -> None:
        """Waits for the launches before."""
        self.emit(wl.LaunchWait(loc=self.loc))

    def movmatrix(self, a: Value, hint: str = "v") -> Value:
        return self._made(wm.MovMatrix, self.fresh(hint, u32), a)

    def clock(self, hint: str = "clock") -> Value:
        """The multiprocessor's count of cycles."""
        return self._made(w.Clock, self.fresh(hint, u64))

    # -------------------------------------------------------------------------------------------- memory
    def alloc(self, hint: str, dtype: DType, size: int) -> Buffer:
        """A register array of each lane."""
        buf = Buffer(self.fresh(hint).name, dtype, size, "reg")
        self.emit(w.Alloc(buf, loc=self.loc))
        return buf

    def ldv(
        self,
        buf: Buffer,
        index: ExprLike,
        width: int,
        *,
        where: Expr | None = None,
        other: float = 0.0,
        cache: str = "",
        hint: str = "v",
        lo: int | None = None,
        hi: int | None = None,
        degree: int = 1,
    ) -> tuple[Value, ...]:
        """Loads ``width`` adjacent elements; ``lo``/``hi`` promise the range of loaded integers."""
        out = tuple(self.fresh(hint, buf.dtype, lo, hi) for _ in range(width))
        self.emit(w.Ld(out, buf, as_expr(index), where, other, cache, degree, loc=self.loc))
        return out

    def ld(self, buf: Buffer, index: ExprLike, **how: Any) -> Value:
        """Loads one element; ``how`` as for :meth:`ldv`."""
        return self.ldv(buf, index, 1, **how)[0]

    def st(
        self, buf: Buffer, index: ExprLike, *vals: Expr, where: Expr | None = None, cache: str = "", degree: int = 1
    ) -> None:
        """Stores adjacent elements."""
        self.emit(w.St(buf, as_expr(index), vals, where, cache, degree, loc=self.loc))

    def ld_tagged(
        self, buf: Buffer, index: ExprLike, where: Expr | None = None, other: Value | None = None, scope: str = "gpu",
        values: int = 1,
    ) -> tuple[Value, ...]:  # fmt: skip
        """Values and their tag, in one access; zeros and the tag ``other`` where ``where`` is false."""
        out = *(self.fresh("cell", buf.dtype) for _ in range(values)), self.fresh("tag", buf.dtype)
        self.emit(wt.LdTagged(out, buf, as_expr(index), where, other, scope, loc=self.loc))
        return out

    def st_tagged(self, buf: Buffer, index: ExprLike, vals: Sequence[Value], tag: Value, scope: str = "gpu") -> None:
        """Stores values and their tag in one access."""
        self.emit(wt.StTagged(buf, as_expr(index), tuple(vals), tag, scope, loc=self.loc))

    def trap(self, where: Expr) -> None:
        """Ends the launch as failed, where the condition holds."""
        self.emit(wt.Trap(where, loc=self.loc))

    def cp_async(
        self, dst: Buffer, dst_index: ExprLike, src: Buffer, src_index: ExprLike, count: int, where: Expr | None = None
    ) -> None:
        self.emit(w.CpAsync(dst, as_expr(dst_index), src, as_expr(src_index), count, where, loc=self.loc))

    def commit(self) -> None:
        self.emit(w.CpCommit(loc=self.loc))

    def wait(self, pending: int) -> None:
        self.emit(w.CpWait(pending, loc=self.loc))

    def barrier(self, id: int = 0, count: int = 0) -> None:
        self.emit(w.Barrier(id, count, loc=self.loc))

    def sync(self) -> None:
        self.emit(w.SyncWarp(loc=self.loc))

    def fence(self, scope: str) -> None:
        self.emit(w.Fence(scope, loc=self.loc))

    def mma(
        self, shape: str, a: Sequence[Value], b: Sequence[Value], c: Sequence[Value], hint: str = "d"
    ) -> tuple[Value, ...]:
        """The registers of ``a * b + c``."""
        dtype = c[0].dtype if c else f32
        out = tuple(self.fresh(hint, dtype) for _ in c)
        self.emit(w.Mma(out, shape, tuple(a), tuple(b), tuple(c), loc=self.loc))
        return out

    def mma_sp(
        self, shape: str, a: Sequence[Value], b: Sequence[Value], c: Sequence[Value], meta: Value, selector: int,
        hint: str = "d",
    ) -> tuple[Value, ...]:  # fmt: skip
        """The registers of ``a * b + c`` of an a that keeps 2 of every 4 columns."""
        out = tuple(self.fresh(hint, f32) for _ in c)
        self.emit(wm.MmaSp(out, shape, tuple(a), tuple(b), tuple(c), meta, selector, loc=self.loc))
        return out

    def wgmma(
        self, acc: Buffer, a: Buffer, a_index: ExprLike, b: Buffer, b_index: ExprLike, *,
        cols: int, a_tile: Tile, b_tile: Tile, a_major: str, b_major: str,
    ) -> None:  # fmt: skip
        """``acc += a * b``, asynchronously; of the tiles :class:`sparsegen.ir.warp_group.Wgmma` tells."""
        places = acc, a, as_expr(a_index), b, as_expr(b_index)
        self.emit(wg.Wgmma(*places, cols, a_tile, b_tile, a_major, b_major, loc=self.loc))

    def wgmma_sp(
        self, acc: Buffer, a: Buffer, a_index: ExprLike, b: Buffer, b_index: ExprLike, meta: Buffer, *,
        cols: int, a_tile: Tile, b_tile: Tile, a_major: str, b_major: str, selector: int,
    ) -> None:  # fmt: skip
        """``acc += a * b`` of an a that keeps 2 of every 4 k; see :class:`sparsegen.ir.warp_group.WgmmaSp`."""
        places = acc, a, as_expr(a_index), b, as_expr(b_index)
        self.emit(wg.WgmmaSp(*places, cols, a_tile, b_tile, a_major, b_major, meta, selector, loc=self.loc))

    def wgmma_rs(
        self, acc: Buffer, a: Buffer, b: Buffer, b_index: ExprLike, *, cols: int, b_tile: Tile, b_major: str
    ) -> None:
        """``acc += a * b`` of an a in registers; see :class:`sparsegen.ir.warp_group.WgmmaRs`."""
        self.emit(wg.WgmmaRs(acc, a, b, as_expr(b_index), cols, b_tile, b_major, loc=self.loc))

    def wgmma_fence(self) -> None:
        self.emit(wg.WgmmaFence(loc=self.loc))

    def wgmma_commit(self) -> None:
        self.emit(wg.WgmmaCommit(loc=self.loc))

    def wgmma_wait(self, pending: int) -> None:
        self.emit(wg.WgmmaWait(pending, loc=self.loc))

    def atom(self, op: str, buf: Buffer, index: ExprLike, val: ExprLike, hint: str = "old") -> Value:
        return self._made(wa.Atom, self.fresh(hint, buf.dtype), op, buf, as_expr(index), as_expr(val))

    def red(self, op: str, buf: Buffer, index: ExprLike, val: Value) -> None:
        self.emit(wa.Red(op, buf, as_expr(index), val, loc=self.loc))

    def mbar_try_wait(self, bars: Buffer, index: ExprLike, parity: ExprLike, cluster: bool = False) -> Value:
        return self._made(w.MbarTryWait, self.fresh("done", pred), bars, as_expr(index), as_expr(parity), cluster)

    def mbar_wait(self, bars: Buffer, index: ExprLike, parity: ExprLike, cluster: bool = False) -> None:
        """Spins until the phase of this parity has completed."""
        with self.loop():
            self.break_if(self.mbar_try_wait(bars, index, parity, cluster))
