"""``batch``: a program of one item becomes that of many, which one launch works on side by side.

The items are the second axis of a launch's grid, so every block does for its item what it did before.  An array that
belongs to an item has as many times the cells, one item behind the other; tables of constants, parameters passed by
value and roles that are named as shared stay as they are.

Of an array with a row for each time step an item has the rows of all steps of a call, more than a pass makes.  So the
distance of two items there is a number that a launch is given, ``apart.ROLE``; the constant of that name is that where
one pass makes all steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import gcd
from typing import Any, Final, NamedTuple

import numpy as np

from .. import warp as w
from ..errors import IRError
from ..expr import Expr, Value
from ..module import Launch, Module
from ..node import Op, fields, of_kind, rewrite, walk
from ..op_sites import TIMED, apart
from ..types import Buffer, s32
from .manager import register

#: The field of an op that holds a buffer -> the one that holds the index of its first element.
_INDEX: Final = {"buf": "index", "src": "src_index", "dst": "dst_index"}
#: Bytes of the narrowest asynchronous copy.
_LEAST_COPY: Final = 4
#: Where the elements end that indices reach.
_REACH: Final = s32.range[1]
#: What an array in global memory is to the items.
_ARRAY, _ROWS, _SHARED = "an item's array", "an item's rows", "shared"


@register("batch")
@dataclass(frozen=True)
class Batch:
    """``items`` of them; ``shared``: roles of arrays that all items read, with spaces between them."""

    items: int = 1
    shared: str = ""

    def run(self, module: Module) -> Module:
        shared, constants = {*self.shared.split(), *module.constants}, dict(module.constants)
        funcs, rows = list[Op](), dict[str, list[tuple[int, Buffer]]]()
        for func in module.funcs:
            if isinstance(func, w.Func):
                kinds = _kinds(func, module, shared)
                rows[func.symbol] = [(func.params.index(b), b) for b, kind in kinds.items() if kind == _ROWS]
                func = self._func(func, kinds)
            funcs.append(func)
        launches = list[Launch]()
        for run in module.launches:
            spaces = {apart(run.args[at]): p.size for at, p in rows.get(run.symbol, ())}
            constants |= {role: np.array([size], np.int32) for role, size in spaces.items()}
            launches.append(Launch(run.symbol, (*run.args, *spaces)))
        return Module(module.name, tuple(funcs), tuple(launches), constants)

    def _func(self, func: w.Func, kinds: dict[Buffer, str]) -> w.Func:
        if func.grid[1:] != (1, 1):
            raise IRError(f"{func.symbol} has a grid of {func.grid}: its blocks are of items already", loc=func.loc,
                          hint="run batch once, on a program of one item")  # fmt: skip
        item, names = Value("by", s32, 0, self.items - 1), _free(func)
        own = {b: dataclasses.replace(b, size=b.size * self.items) for b, kind in kinds.items() if kind != _SHARED}
        sizes = sorted({b.size for b in own if kinds[b] == _ARRAY})
        begins = {size: Value(next(names), s32, 0, size * (self.items - 1)) for size in sizes}
        lets = [w.Let((at,), item * size, loc=func.loc) for size, at in begins.items()]
        places = {b: _Place(own[b], begins[b.size], b.size) for b in own if kinds[b] == _ARRAY}
        spaces = list[Value]()
        for b in own:
            if kinds[b] == _ROWS:
                most = (_REACH - b.size) // self.items
                spaces.append(Value(next(names), s32, 1, most))
                begin = Value(next(names), s32, 0, most * (self.items - 1))
                lets.append(w.Let((begin,), item * spaces[-1], loc=func.loc))
                places[b] = _Place(own[b], begin, 1)
        body = rewrite(func.body, lambda op: _moved(op, places))
        params = tuple(own.get(p, p) if isinstance(p, Buffer) else p for p in func.params)
        return dataclasses.replace(func, params=(*params, *spaces), grid=(func.grid[0], self.items, 1),
                                   body=(*lets, *body))  # fmt: skip


class _Place(NamedTuple):
    """Where a block's item is: in which array, from which element on, and what that is a multiple of."""

    array: Buffer
    begin: Value
    multiple: int


def _kinds(func: w.Func, module: Module, shared: set[str]) -> dict[Buffer, str]:
    """What each array in global memory is to the items, in every launch of the function."""
    runs = [run.args for run in module.launches if run.symbol == func.symbol]
    found = dict[Buffer, str]()
    for at, p in enumerate(func.params):
        if not isinstance(p, Buffer) or p.space != "global":
            continue
        kinds = {_SHARED if args[at] in shared else _ROWS if args[at].startswith(TIMED) else _ARRAY for args in runs}
        if len(kinds) > 1:
            one, other = sorted(kinds)[:2]
            raise IRError(f"@{p.name} of {func.symbol} is {one} in one launch and {other} in another", loc=func.loc,
                          hint="give each launch a function of its own")  # fmt: skip
        if kinds:
            found[p] = kinds.pop()
    return found


def _free(func: w.Func) -> Iterator[str]:
    """Names that the function does not have yet."""
    taken = {x.name for op in walk(func) for kind in ("result", "bind", "declare") for x in of_kind(op, kind)}
    names = (f"item_{i}" if i else "item" for i in count())
    return (name for name in names if name not in taken)


def _moved(op: Op, places: dict[Buffer, _Place]) -> Op | tuple[Op, ...]:
    """The op on the arrays of all items, at the block's item; several where an item does not begin at a multiple of
    what the op moves at once."""
    changed: dict[str, Any] = {}
    for name, kind, _ in fields(op):
        buf = getattr(op, name)
        if kind != "buffer" or buf not in places:
            continue
        index: Expr | None = getattr(op, _INDEX.get(name, ""), None)
        if index is None:
            raise IRError(f"{op.name} has no index of @{buf.name} that an item's could be added to", loc=op.loc,
                          hint="take a schedule that loads, stores or copies it by index")  # fmt: skip
        place, width = places[buf], _width(op)
        changed |= {name: place.array, _INDEX[name]: index + place.begin}
        if (fits := gcd(place.multiple, width)) < width:
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
