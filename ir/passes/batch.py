"""``batch``: a program of one item becomes that of many, which one launch works on side by side.

The items are the second axis of a launch's grid, so every block does for its item what it did before.  An array that
belongs to an item has as many times the cells, one item behind the other; tables of constants, parameters passed by
value and roles that are named as shared stay as they are.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from math import gcd
from typing import Any, Final

from .. import warp as w
from ..errors import IRError
from ..expr import Expr, Value
from ..module import Module
from ..node import Op, fields, of_kind, rewrite, walk
from ..types import Buffer, s32
from .manager import register

#: The field of an op that holds a buffer -> the one that holds the index of its first element.
_INDEX: Final = {"buf": "index", "src": "src_index", "dst": "dst_index"}
#: Bytes of the narrowest asynchronous copy.
_LEAST_COPY: Final = 4


@register("batch")
@dataclass(frozen=True)
class Batch:
    """``items`` of them; ``shared``: roles of arrays that all items read, with spaces between them."""

    items: int = 1
    shared: str = ""

    def run(self, module: Module) -> Module:
        shared = {*self.shared.split(), *module.constants}
        return dataclasses.replace(
            module, funcs=tuple(self._func(f, module, shared) if isinstance(f, w.Func) else f for f in module.funcs)
        )

    def _func(self, func: w.Func, module: Module, shared: set[str]) -> w.Func:
        if func.grid[1:] != (1, 1):
            raise IRError(f"{func.symbol} has a grid of {func.grid}: its blocks are of items already", loc=func.loc,
                          hint="run batch once, on a program of one item")  # fmt: skip
        own = _own(func, module, shared)
        larger = {b: dataclasses.replace(b, size=b.size * self.items) for b in own}
        item = Value("by", s32, 0, self.items - 1)
        places = {size: Value(name, s32, 0, size * (self.items - 1))
                  for size, name in _named({b.size for b in own}, func).items()}  # fmt: skip
        body = rewrite(func.body, lambda op: _moved(op, larger, places))
        lets = (w.Let((at,), item * size, loc=func.loc) for size, at in places.items())
        params = tuple(larger.get(p, p) if isinstance(p, Buffer) else p for p in func.params)
        return dataclasses.replace(func, params=params, grid=(func.grid[0], self.items, 1), body=(*lets, *body))


def _own(func: w.Func, module: Module, shared: set[str]) -> tuple[Buffer, ...]:
    """The arrays in global memory that belong to an item, in every launch of the function."""
    runs = [run.args for run in module.launches if run.symbol == func.symbol]
    own: list[Buffer] = []
    for at, p in enumerate(func.params):
        if not isinstance(p, Buffer) or p.space != "global":
            continue
        kinds = {args[at] in shared for args in runs}
        if len(kinds) > 1:
            raise IRError(f"@{p.name} of {func.symbol} is an item's array in one launch and shared in another",
                          loc=func.loc, hint="give each launch a function of its own")  # fmt: skip
        own += [p] if kinds == {False} else []
    return tuple(own)


def _named(sizes: set[int], func: w.Func) -> dict[int, str]:
    """A new name for where an item begins in arrays of each size."""
    taken = {x.name for op in walk(func) for kind in ("result", "bind", "declare") for x in of_kind(op, kind)}
    free = (name for i in range(len(sizes) + len(taken)) if (name := f"item_{i}" if i else "item") not in taken)
    return dict(zip(sorted(sizes), free, strict=False))


def _moved(op: Op, larger: dict[Buffer, Buffer], places: dict[int, Value]) -> Op | tuple[Op, ...]:
    """The op on the arrays of all items, at the block's item; several where an item does not begin at a multiple of
    what the op moves at once."""
    changed: dict[str, Any] = {}
    for name, kind, _ in fields(op):
        buf = getattr(op, name)
        if kind != "buffer" or buf not in larger:
            continue
        index: Expr | None = getattr(op, _INDEX.get(name, ""), None)
        if index is None:
            raise IRError(f"{op.name} has no index of @{buf.name} that an item's could be added to", loc=op.loc,
                          hint="take a schedule that loads, stores or copies it by index")  # fmt: skip
        changed |= {name: larger[buf], _INDEX[name]: index + places[buf.size]}
        width = _width(op)
        if (fits := gcd(buf.size, width)) < width:
            return _narrowed(dataclasses.replace(op, **changed), width, fits)
    return dataclasses.replace(op, **changed) if changed else op


def _width(op: Op) -> int:
    """How many adjacent elements an op moves at once."""
    if isinstance(op, w.Ld):
        return len(op.out)
    return len(op.vals) if isinstance(op, w.St) else op.count if isinstance(op, w.CpAsync) else 1


def _narrowed(op: Op, width: int, each: int) -> tuple[Op, ...]:
    """The same in accesses to ``each`` elements."""
    parts: list[Op] = []
    for at in range(0, width, each):
        if isinstance(op, w.Ld):
            parts.append(dataclasses.replace(op, out=op.out[at : at + each], index=op.index + at))
        elif isinstance(op, w.St):
            parts.append(dataclasses.replace(op, vals=op.vals[at : at + each], index=op.index + at))
        elif isinstance(op, w.CpAsync):
            if each * op.src.dtype.nbytes < _LEAST_COPY:
                raise IRError(f"items of @{op.src.name} begin at single elements of {op.src.dtype}, which no "
                              "asynchronous copy moves", loc=op.loc, hint="take direct")  # fmt: skip
            parts.append(dataclasses.replace(
                op, count=each, dst_index=op.dst_index + at, src_index=op.src_index + at
            ))  # fmt: skip
    return tuple(parts)
