"""What the lowering rules share: the builder, the launch's built-in values, and what tile values stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from .. import tile as t
from .. import warp as w
from ..builder import Builder
from ..errors import IRError
from ..expr import FALSE, TRUE, Const, Expr, ExprLike, Value, as_expr, substitute
from ..fragments import SHAPES
from ..node import Op
from ..types import Buffer, DType, f32, s32, u8, u16, u32

Rule = Callable[["Context", Any], None]
PhasedRule = Callable[["Context", Any], Callable[[], None]]
F = TypeVar("F", bound=Callable[..., Any])
#: Added to an f32 below 2^22 it rounds that to an integer: the last place is then 1.
WHOLE: Final = float(3 << 22)
RULES: dict[type[Op], Rule] = {}
PHASED: dict[type[Op], PhasedRule] = {}


def rule(op: type[Op], rules: dict[type[Op], Any] = RULES) -> Callable[[F], F]:
    """Registers the lowering of a tile op."""

    def register(f: F) -> F:
        rules[op] = f
        return f

    return register


def phased(op: type[Op]) -> Callable[[F], F]:
    """Registers the lowering of a tile op of a ring: at once what no turn changes; called, a turn."""
    return rule(op, PHASED)


class Context:
    """State of one kernel's lowering."""

    def __init__(self, func: t.Func) -> None:
        self.func = func
        self.b = Builder(func.loc)
        self.shared: list[Buffer] = []
        self.slots: dict[Buffer, int] = {}
        self.scratch: list[tuple[str, int, int]] = []
        self.env: dict[Value, Expr] = {}
        self.tid = Value("tid", s32, 0, func.threads - 1)
        self.lane = Value("lane", s32, 0, 31)
        self.warp = Value("warp", s32, 0, (func.threads - 1) // 32)
        self.bx = Value("bx", s32, 0, func.blocks - 1)
        self.rank = Value("rank", s32, 0, func.cluster - 1)
        self.b.reserve("tid", "lane", "warp", "bx", "by", "bz", "rank", *(p.name for p in func.params))

    def resolve(self, e: Expr) -> Expr:
        """A tile expression in terms of warp values."""
        return substitute(e, self.env)

    def slot_base(self, buf: Buffer, slot: Expr) -> Expr:
        """First element of a slot of a tile's ring."""
        return self.resolve(slot) * (buf.size // self.slots.get(buf, 1))

    def all(self, ops: tuple[Op, ...]) -> None:
        """Lowers ops, one after the other."""
        for op in ops:
            self.lower(op)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What tile values stand for inside is forgotten after it."""
        saved = dict(self.env)
        yield
        self.env = saved

    def alloc(self, regs: Buffer | None) -> None:
        """A register array of each lane, if there is one to make."""
        if regs is not None:
            self.b.emit(w.Alloc(regs))

    def zero(self, dtype: DType) -> Value:
        """Zero as a value."""
        b = self.b
        return b.convert(b.name(as_expr(0), "zero"), dtype) if dtype.is_int else b.const(dtype, 0.0, hint="zero")

    def clear(self, regs: Buffer) -> Value:
        """Writes zero to a register array, and gives it."""
        b, zero = self.b, self.zero(regs.dtype)
        with b.for_("z", 0, regs.size, unroll=0) as z:
            b.st(regs, z, zero)
        return zero

    def plus(self, total: Value | None, weight: Value, x: Value) -> Value:
        """A sum and one more product; the first product begins it."""
        b = self.b
        return b.binary("mul", weight, x, hint="s") if total is None else b.fma(weight, x, total, hint="s")

    def multiply(
        self, shape: str, a: Sequence[Value], b: Sequence[Value], sums: Buffer, at: ExprLike, to: ExprLike | None = None
    ) -> None:
        """One mma: the accumulator at ``at`` of ``sums`` and a product go to ``to`` (``at`` unless it moves)."""
        c = [self.b.ld(sums, at + e, hint="c") for e in range(len(SHAPES[shape].c.elements))]
        for e, d in enumerate(self.b.mma(shape, a, b, c)):
            self.b.st(sums, (at if to is None else to) + e, d)

    def convert(self, v: Value, dtype: DType) -> Value:
        """The value in a type: itself, if it has that type."""
        return v if v.dtype == dtype else self.b.convert(v, dtype, hint=dtype.name)

    def to_cell(self, v: Value, dtype: DType) -> Value:
        """A result in the type of a field's cells: of bytes rounded to nearest even and kept within 0 and 255 (a NaN
        becomes 0)."""
        if dtype is not u8 or v.dtype is not f32:
            return self.convert(v, dtype)
        b = self.b
        low, high, far = (b.const(f32, x, hint="k") for x in (0.0, 255.0, WHOLE))
        within = b.binary("min", b.binary("max", v, low), high)
        return b.convert(b.bitcast(b.binary("add", within, far), u32), u8)  # its bits end with the integer's

    def literal(self, dtype: DType, value: float, hint: str) -> Value:
        """A number of the type of a field's cells."""
        if dtype.kind == "float":
            return self.b.const(dtype, value, hint=hint)
        return self.b.convert(self.b.name(as_expr(int(value)), hint), dtype)

    def halves(self, pair: Value, dtype: DType) -> tuple[Value, ...]:
        """The two 16-bit floats of a word, the low half first, in f32."""
        b = self.b
        words = (b.binary("and", pair, 0xFFFF), b.binary("shr", pair, 16))
        return tuple(b.convert(b.bitcast(b.convert(v, u16), dtype), f32) for v in words)

    def coordinates(self) -> tuple[Expr, Expr]:
        """(g, t): the lane's group of four and its place in it, as the fragment tables name them."""
        return self.b.let("g", self.lane // 4), self.b.let("t", self.lane % 4)

    def me(self) -> Value:
        """The number of the warp: the same in all lanes, and from a shuffle nvcc knows it."""
        return self.b.shfl("idx", self.warp, 0, hint="me")

    def place(self, threads: tuple[int, int]) -> tuple[Expr, Expr]:
        """Row and column of this thread among ``threads[0]`` x ``threads[1]``."""
        if threads[1] == 32:
            return self.warp, self.lane
        return self.b.let("ty", self.tid // threads[1]), self.b.let("tx", self.tid % threads[1])

    def branch(self, cond: Expr, then: Callable[[], None], orelse: Callable[[], None]) -> None:
        """``if``/``else``, or only the side that a constant condition takes."""
        if isinstance(cond, Const):
            (then if cond.value else orelse)()
            return
        with self.b.if_(cond):
            then()
        with self.b.else_():
            orelse()

    def guard(self, cond: Expr, then: Callable[[], None]) -> None:
        """``if`` without ``else``; no branch where the condition is constant."""
        if cond == TRUE:
            then()
        elif cond != FALSE:
            with self.b.if_(cond):
                then()

    def phase(self, op: Op) -> Callable[[], None]:
        """Lowers what no turn of a walk changes of one of its ops; called, it lowers the rest."""
        if type(op) not in PHASED:
            raise IRError(f"no lowering rule for {op.name} in a ring", loc=op.loc)
        return PHASED[type(op)](self, op)

    def lower(self, op: Op) -> None:
        """Lowers one tile op by its rule."""
        if type(op) not in RULES:
            raise IRError(f"no lowering rule for {op.name}", loc=op.loc)
        saved, self.b.loc = self.b.loc, op.loc or self.b.loc
        RULES[type(op)](self, op)
        self.b.loc = saved
