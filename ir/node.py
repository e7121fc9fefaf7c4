"""One node machinery for all three vocabularies.

An op is a frozen dataclass that declares each of its fields once, by kind: results, operands, buffers, attributes,
regions.  The printer, the parser, the verifier, substitution and walking follow from the declaration, so a new op is
a dataclass and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .errors import Loc
from .expr import Expr, Value
from .types import Buffer

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # only type checkers need it; Python has it from 3.11

    def dataclass_transform(**_: Any) -> Any:
        return lambda f: f


# The kinds of field: what it holds, and so how it is printed, parsed, renamed and verified.
def result() -> Any:
    """Field: the values that the op defines (``tuple[Value, ...]``)."""
    return field(metadata={"kind": "result"})


def operand(**kw: Any) -> Any:
    """Field: an expression or value that the op reads (``Expr``), a tuple of them, or None."""
    return field(metadata={"kind": "operand"}, **kw)


def buffer(*, writes: bool = False, reads: bool = True, **kw: Any) -> Any:
    """Field: a declared buffer that the op uses, or None; ``reads`` and ``writes`` feed the hazard analysis."""
    return field(metadata={"kind": "buffer", "writes": writes, "reads": reads}, **kw)


def declare(**kw: Any) -> Any:
    """Field: a buffer, or a tuple of buffers and values, that the op brings into scope."""
    return field(metadata={"kind": "declare"}, **kw)


def bind(**kw: Any) -> Any:
    """Field: a value that is defined inside the op's regions only (a loop variable), a tuple of them, or None."""
    return field(metadata={"kind": "bind"}, **kw)


def attr(*, one_of: tuple[object, ...] = (), least: int | None = None, **kw: Any) -> Any:
    """Field: plain data: int, float, str, bool, None, a scalar type, a layout, or nested tuples of these.

    ``one_of``: all that it may be.  ``least``: the least that a number, or each of a tuple of numbers, may be; rules
    and the numbers of an op divide by such a field without asking.
    """
    return field(metadata={"kind": "attr", "one_of": one_of, "least": least}, **kw)


def region(**kw: Any) -> Any:
    """Field: a nested list of ops (``tuple[Op, ...]``)."""
    return field(metadata={"kind": "region"}, **kw)


@dataclass(frozen=True)
class Op:
    """Base of all ops.  ``loc`` is the user's line; it takes no part in equality and hash."""

    name: ClassVar[str] = ""
    loc: Loc | None = field(default=None, compare=False, kw_only=True, repr=False)


OPS: dict[str, type[Op]] = {}
T = TypeVar("T", bound=type[Op])


@dataclass_transform(
    frozen_default=True, field_specifiers=(result, operand, buffer, declare, bind, attr, region, field)
)
def define(name: str, *, kw_only: bool = False) -> Callable[[T], T]:
    """Class decorator: freeze the dataclass and register it under ``level.op``.

    ``kw_only``: its fields are given, and printed, by name.
    """

    def make(cls: T) -> T:
        frozen = dataclass(frozen=True, kw_only=kw_only)(cls)
        frozen.name = name
        known = OPS.setdefault(name, frozen)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(
                f"{name} is {known.__module__}.{known.__qualname__} already: call {cls.__qualname__} otherwise"
            )
        OPS[name] = frozen
        return frozen  # type: ignore[return-value]

    return make


@dataclass_transform(
    frozen_default=True, kw_only_default=True,
    field_specifiers=(result, operand, buffer, declare, bind, attr, region, field),
)  # fmt: skip
def base(cls: T) -> T:
    """Class decorator of what several ops are derived from: it has their common fields, and is no op itself."""
    return dataclass(frozen=True, kw_only=True)(cls)  # type: ignore[return-value]


_FIELDS: dict[type[Op], tuple[tuple[str, str, dataclasses.Field[Any]], ...]] = {}


def fields(op: Op | type[Op]) -> tuple[tuple[str, str, dataclasses.Field[Any]], ...]:
    """``(field name, kind, dataclass field)`` of every declared field, in order."""
    cls = op if isinstance(op, type) else type(op)
    if cls not in _FIELDS:
        _FIELDS[cls] = tuple((f.name, f.metadata["kind"], f) for f in dataclasses.fields(cls) if "kind" in f.metadata)
    return _FIELDS[cls]


def of_kind(op: Op, kind: str) -> Iterator[Any]:
    """The op's field values of one kind, tuples flattened, None left out."""
    for name, k, _ in fields(op):
        if k == kind:
            v = getattr(op, name)
            if kind != "region" and isinstance(v, tuple):
                yield from v
            elif v is not None:
                yield v


def results(op: Op) -> tuple[Value, ...]:
    """The values that the op defines."""
    return tuple(of_kind(op, "result"))


def operands(op: Op) -> tuple[Expr, ...]:
    """The expressions that the op reads, regions not included."""
    return tuple(of_kind(op, "operand"))


def buffers(op: Op, *, writes: bool) -> tuple[Buffer, ...]:
    """The buffers that the op itself writes (or reads), regions not included."""
    want = "writes" if writes else "reads"
    out: list[Buffer] = []
    for name, kind, f in fields(op):
        if kind == "buffer" and f.metadata[want]:
            v = getattr(op, name)
            out += [v] if isinstance(v, Buffer) else list(v or ())
    return tuple(out)


def regions(op: Op) -> tuple[tuple[Op, ...], ...]:
    """The nested regions of the op."""
    return tuple(of_kind(op, "region"))


def walk(ops: tuple[Op, ...] | Op) -> Iterator[Op]:
    """Every op, outer before inner, in program order."""
    for op in (ops,) if isinstance(ops, Op) else ops:
        yield op
        for r in regions(op):
            yield from walk(r)


Rewrite = Callable[[Op], "Op | tuple[Op, ...] | None"]


def rewrite(ops: tuple[Op, ...], rule: Rewrite) -> tuple[Op, ...]:
    """Apply ``rule`` to every op, inner regions first; it returns the op's replacement, several, or None for none."""
    out: list[Op] = []
    for op in ops:
        changed: dict[str, Any] = {n: rewrite(getattr(op, n), rule) for n, kind, _ in fields(op) if kind == "region"}
        new = rule(dataclasses.replace(op, **changed) if changed else op)
        out += [new] if isinstance(new, Op) else list(new or ())
    return tuple(out)


def located(op: Op, loc: Loc | None) -> Op:
    """The op, and all in it, from this line of the user's where they name none."""
    (out,) = rewrite((op,), lambda inner: inner if inner.loc else dataclasses.replace(inner, loc=loc))
    return out


def with_buffers(op: Op, to: Mapping[Buffer, Buffer]) -> Op:
    """The op with some buffers in place of others; what it holds stays."""
    changed: dict[str, Any] = {}
    for name, kind, _ in fields(op):
        b = getattr(op, name)
        if kind in ("buffer", "declare") and b is not None:
            changed[name] = to.get(b, b) if isinstance(b, Buffer) else tuple(to.get(x, x) for x in b)
    return dataclasses.replace(op, **changed) if changed else op


def map_exprs(op: Op, f: Callable[[Expr], Expr]) -> Op:
    """The op with ``f`` applied to each operand (regions are left alone)."""
    changed: dict[str, Any] = {}
    for name, kind, _ in fields(op):
        v = getattr(op, name)
        if kind == "operand" and v is not None:
            changed[name] = tuple(f(x) for x in v) if isinstance(v, tuple) else f(v)
    return dataclasses.replace(op, **changed) if changed else op
