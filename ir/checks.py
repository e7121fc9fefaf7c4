"""What each op's own rules need: how they are registered, and what they may ask.

An op of any level gets a rule with ``@check(tile.Copy)`` above ``def rule(op, ctx)``, in the file of the op or, for the
warp level, in :mod:`sparsegen.ir.verify_warp` and :mod:`sparsegen.ir.verify_memory`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from . import expr as ex
from .errors import IRError
from .expr import Const, Expr, Select, Value
from .node import Op
from .text import declaration, head
from .types import Buffer, DType
from .uniform import Levels
from .warp import For, If

C = TypeVar("C", bound=Callable[..., None])
CHECKS: dict[type[Op], list[Callable[[Any, Context], None]]] = {}


def check(*classes: type[Op]) -> Callable[[C], C]:
    """Decorator: run ``rule(op, context)`` on every op of these classes; it calls ``context.fail`` to refuse."""

    def add(rule: C) -> C:
        for cls in classes:
            CHECKS.setdefault(cls, []).append(rule)
        return rule

    return add


@dataclass
class Context:
    """What a rule may ask: the enclosing ops, what they declare, and how uniform control and values are."""

    func: Op
    shared_limit: int | None = None
    path: tuple[tuple[Op, str], ...] = ()  # (enclosing op, its region), outermost first
    op: Op | None = None
    defined: dict[Value, Op | None] = field(default_factory=dict)  # None: a parameter or built-in
    levels: Levels = field(default_factory=Levels)
    written: frozenset[Buffer] = frozenset()

    def fail(self, message: str, hint: str | None = None, op: Op | None = None) -> None:
        """Refuses the program because of the current op."""
        at = op or self.op or self.func
        raise IRError(f"{at.name}: {message}\n  in: {head(at)}", loc=at.loc, hint=hint)

    def need(self, ok: bool, message: str, hint: str | None = None) -> None:
        """Refuses the program unless ``ok``."""
        if not ok:
            self.fail(message, hint)

    @property
    def parent(self) -> Op:
        return self.path[-1][0]

    @property
    def conditional(self) -> bool:
        """Whether something around the op may keep it from running at all: an ``if`` or a loop without iterations."""

        def may_skip(o: Op) -> bool:
            return isinstance(o, If) or (isinstance(o, For) and o.start.hi >= o.stop.lo)

        return any(may_skip(o) for o, _ in self.path)

    @property
    def threads(self) -> int:
        return int(getattr(self.func, "threads", 0))

    def warps(self) -> int:
        """Warps of a block; refuses a block whose last one is not full."""
        self.need(self.threads % 32 == 0, f"needs full warps, but a block has {self.threads} threads")
        return self.threads // 32

    # ------------------------------------------------------------------------------------------------ types
    def typed(self, e: Expr, want: DType, what: str) -> None:
        """The operand holds ``want``: a value of that type, or an integer (or predicate) expression for such a type."""
        if isinstance(e, Value):
            self.need(e.dtype is want, f"{what} must be {want}, but {declaration(e)}", "convert it with warp.cvt")
        elif want.kind == "pred":
            self.need(is_condition(e), f"{what} must be a predicate, but is the number {e}", "compare it with 0")
        else:
            self.need(want.is_int, f"{what} must be a {want} value, but is the integer expression {e}",
                      "use warp.const for a literal, or a value from warp.cvt")  # fmt: skip

    def integer(self, e: Expr | None, what: str) -> None:
        """The operand is an integer expression."""
        if isinstance(e, Value):
            self.need(e.dtype.is_int, f"{what} must be an integer, but {declaration(e)}")

    def condition(self, e: Expr | None, what: str) -> None:
        """The operand is a predicate (or absent)."""
        if e is not None:
            got = declaration(e) if isinstance(e, Value) else f"it is the number {e}"
            self.need(is_condition(e), f"{what} must be a predicate, but {got}", "compare it with 0")

    def one_of(self, got: object, names: tuple[object, ...], what: str) -> None:
        """An attribute is one of some names."""
        self.need(got in names, f"{what} {got!r} is unknown", f"one of {', '.join(map(repr, names))}")

    def inside(self, buf: Buffer, index: Expr, count: int, where: Expr | None) -> None:
        """Elements ``index .. index+count-1`` are not certainly outside the buffer; vectors are not certainly askew."""
        self.integer(index, "the index")
        if count > 1 and buf.space not in ("reg", "param") and isinstance(index, Const) and index.value % count:
            self.fail(f"index {index} is not a multiple of the {count} elements accessed at once")
        if where is not None or self.conditional:
            return
        if index.lo + count > buf.size or index.hi < 0:
            self.fail(f"index {index} is {_span(index)}: outside {declaration(buf)}"
                      + (f" ({count} elements)" if count > 1 else ""), "guard the access with where=")  # fmt: skip


def _span(e: Expr) -> str:
    return str(e.lo) if e.lo == e.hi else f"in {e.lo}..{e.hi}"


def is_condition(e: Expr) -> bool:
    """Whether the expression is a predicate, a choice between two predicates included."""
    return ex.is_pred(e) or (isinstance(e, Select) and is_condition(e.a) and is_condition(e.b))
