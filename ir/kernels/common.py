"""What the op-to-tile passes share: names of parameters, tap tables, the loop over tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np

from .. import op as o
from .. import tile as t
from ..errors import IRError
from ..expr import Expr, Value
from ..layout import Layout, layout
from ..module import Launch, Module
from ..node import Op
from ..spread import Spread
from ..types import Buffer, s32, sum_type

Kernel = o.Stencil | o.Rim
K = TypeVar("K", o.Stencil, o.Rim)
#: Parameters that are fields of the pass, and their roles in its launches.
FIELDS = {"u": "in", "out": "out"}


def field(op: Kernel, name: str) -> Buffer:
    """A field of the stencil, ``u`` or ``out``, as a kernel parameter."""
    return Buffer(name, op.dtype, prod(op.shape[:-1]) * op.pitch[name == "out"], "global")


def weights(op: Kernel) -> tuple[Buffer, Any]:
    """The taps' weights as a parameter in the constant bank, of the type that sums are made in, and their values."""
    dtype = sum_type(op.dtype)
    values = np.array([w for _, w in op.taps], dtype=dtype.numpy())
    return Buffer("w", dtype, len(op.taps), "param"), values


def keep(op: o.Stencil) -> tuple[tuple[int, int], ...]:
    """How many cells from each border the kernel must leave as they are (frozen sides)."""
    return tuple(
        (r if low[0] == "frozen" else 0, r if high[0] == "frozen" else 0)
        for r, (low, high) in zip(op.radius, op.sides, strict=True)
    ) if op.steps == 1 else ((0, 0),) * len(op.shape)  # fmt: skip


def tiles(boxes: tuple[o.Box, ...], size: tuple[int, ...], stride: int, body: Any, loc: Any = None) -> t.ForTiles:
    """A loop over tiles; ``body(loop)`` gives its ops from the loop's values."""
    axes = o.AXES[-len(size) :]
    tops = [max(box[axis][1] for box in boxes) for axis in range(len(size))]
    count = tile_count(boxes, size)
    at = tuple(Value(name, s32, 0, top - 1) for name, top in zip(axes, tops, strict=True))
    end = tuple(Value(f"{name}_end", s32, 0, top) for name, top in zip(axes, tops, strict=True))
    number, turn = Value("number", s32, 0, count - 1), Value("turn", s32, 0, max(0, count - 1))
    loop = t.ForTiles(
        at=at, end=end, number=number, turn=turn, boxes=boxes, size=size, stride=stride, body=(), loc=loc,
    )  # fmt: skip
    return replace(loop, body=tuple(body(loop)))


def tile_count(boxes: tuple[o.Box, ...], size: tuple[int, ...]) -> int:
    """How many tiles cover the boxes."""
    return sum(prod(o.tile_counts(box, size)) for box in boxes)


def each(module: Module, kind: type[K], kernel: Callable[[Module, K], Module], axes: tuple[int, ...] = (2,)) -> Module:
    """The module after ``kernel`` has replaced every op of a kind; IRError for fields of other numbers of axes."""
    for op in module.funcs:
        if isinstance(op, kind):
            if len(op.shape) not in axes:
                takes = f"{op.name}: this kernel takes fields of {' or '.join(map(str, axes))} axes"
                hint = "take another family; a row is a field [1, n]"
                raise IRError(f"{takes}, not of {len(op.shape)}", loc=op.loc, hint=hint)
            module = kernel(module, op)
    return module


def vector(pitch: int, most: int) -> int:
    """Elements that one global access may move: more than one only if every row starts at a 16-byte boundary."""
    return most if pitch % most == 0 else 1


def flat(buf: Buffer) -> Layout:
    """Element i of a shared buffer is element i of its slot."""
    return layout({"i": buf.size}, lambda i: i)


def store(
    op: o.Stencil, loop: t.ForTiles, acc: Buffer, spread: Spread, vector: int, *, x: Expr | None = None,
    keeps: tuple[tuple[int, int], ...] | None = None,
) -> t.Store:  # fmt: skip
    """Stores a tile's sums to ``out``; ``x``: its first column, unless the loop's; ``keeps``: see :func:`keep`."""
    return t.Store(
        dst=field(op, "out"), acc=acc, src=field(op, "u"), y=loop.y, x=loop.x if x is None else x, spread=spread,
        pitch=op.pitch[1], box=op.box, extent=op.shape, keep=keep(op) if keeps is None else keeps,
        src_pitch=op.pitch[0], vector=vector, lead=loop.at[:-2], loc=op.loc,
    )  # fmt: skip


def whole(op: o.Stencil) -> tuple[o.Box]:
    """The box that tiles cover: from the first cell on, so that they start aligned; ``op.box`` says what they store."""
    return (tuple((0, n) for n in op.shape),)


def over_tiles(
    module: Module, op: K, size: tuple[int, ...], body: Callable[[t.ForTiles], list[Op]], *,
    params: tuple[Buffer, ...], constants: dict[str, Any], threads: int, before: tuple[Op, ...] = (), stay: int = 0,
    min_blocks: int = 1, symbol: str = "", keep_op: bool = False, boxes: tuple[o.Box, ...] = (),
) -> Module:  # fmt: skip
    """The module with an op replaced by a kernel over tiles of ``boxes``: unless given, a rim's or a whole field.

    ``before`` is done once a block.  With ``stay`` so many blocks take one tile after the other, else each has one.
    ``symbol`` and ``keep_op`` are for a kernel that runs before the op's own.
    """
    boxes = boxes or (whole(op) if isinstance(op, o.Stencil) else op.boxes)
    count = tile_count(boxes, size)
    blocks = min(stay, count) or count
    func = t.Func(
        symbol=symbol or op.symbol, params=params, blocks=blocks, threads=threads,
        body=(*before, tiles(boxes, size, blocks if stay else 0, body, op.loc)), min_blocks=min_blocks, loc=op.loc,
    )  # fmt: skip
    return replace_kernel(module, op, func, constants, keep_op=keep_op)


def replace_kernel(module: Module, old: Op, new: t.Func, constants: dict[str, Any], *, keep_op: bool = False) -> Module:
    """The module with one op replaced by its kernel (or the kernel put before it), and the kernel's launch.

    A launch's roles: ``in`` (the parameter ``u``) and ``out``; ``ws.NAME`` for workspaces; ``SYMBOL.NAME`` for the
    kernel's constants.
    """
    tables = {f"{new.symbol}.{name}": value for name, value in constants.items()}

    def role(name: str) -> str:
        return f"{new.symbol}.{name}" if name in constants else FIELDS.get(name, f"ws.{name}")

    args = tuple(role(p.name) for p in new.params)
    with_op = (new, old) if keep_op else (new,)
    funcs = tuple(x for f in module.funcs for x in (with_op if f is old else (f,)))
    return Module(module.name, funcs, (*module.launches, Launch(new.symbol, args)), {**module.constants, **tables})
