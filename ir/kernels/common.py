"""What the op-to-tile passes share: names of parameters, tap tables, the loop over tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np

from .. import op as o
from .. import tile as t
from ..errors import IRError
from ..expr import Expr, Value
from ..grid import Grid, keep
from ..module import Launch, Module
from ..node import Op, located
from ..spread import Spread
from ..types import Buffer, DType, cell_type, s32

Kernel = o.Stencil | o.Rim
K = TypeVar("K", bound=Op)
S = TypeVar("S", o.Stencil, o.Rim)
#: Gives the ops of a loop over tiles from the loop's values.
Body = Callable[[t.ForTiles], Sequence[Op]]
#: Parameters that are fields of the pass, and their roles in its launches.
FIELDS = {"u": "in", "out": "out"}


def grid(op: Kernel, name: str = "u") -> Grid:
    """The cells of a field of the stencil, ``u`` or ``out`` (of which nothing outside is read)."""
    return Grid(op.shape, op.pitch[0], op.sides) if name == "u" else Grid(op.shape, op.pitch[1])


def field(op: Kernel, name: str) -> Buffer:
    """A field of the stencil, ``u`` or ``out``, as a kernel parameter."""
    return Buffer(name, op.dtype, grid(op, name).size, "global")


def weights(op: Kernel) -> tuple[Buffer, Any]:
    """The taps' weights as a parameter in the constant bank, of the type that sums are made in, and their values."""
    dtype = cell_type(op.dtype)
    values = np.array([w for _, w in op.taps], dtype=dtype.numpy())
    return Buffer("w", dtype, len(op.taps), "param"), values


def tiles(boxes: tuple[o.Box, ...], size: tuple[int, ...], stride: int, body: Body) -> t.ForTiles:
    """A loop over tiles; ``body(loop)`` gives its ops from the loop's values."""
    axes = o.AXES[-len(size) :]
    tops = [max(box[axis][1] for box in boxes) for axis in range(len(size))]
    count = tile_count(boxes, size)
    at = tuple(Value(name, s32, 0, top - 1) for name, top in zip(axes, tops, strict=True))
    end = tuple(Value(f"{name}_end", s32, 0, top) for name, top in zip(axes, tops, strict=True))
    number, turn = Value("number", s32, 0, count - 1), Value("turn", s32, 0, max(0, count - 1))
    loop = t.ForTiles(at=at, end=end, number=number, turn=turn, boxes=boxes, size=size, stride=stride, body=())
    return replace(loop, body=tuple(body(loop)))


def tile_count(boxes: tuple[o.Box, ...], size: tuple[int, ...]) -> int:
    """How many tiles cover the boxes."""
    return sum(prod(o.tile_counts(box, size)) for box in boxes)


def each(
    module: Module, kind: type[K], kernel: Callable[[Module, K], Module], *, axes: tuple[int, ...] = (),
    dtypes: tuple[DType, ...] = (), formats: tuple[str, ...] = (), batched: bool = False, several: bool = False,
) -> Module:  # fmt: skip
    """The module after ``kernel`` has replaced every op of a kind.

    IRError for fields of other numbers of axes, of other types, and for matrices of other formats, where these are
    said; for a batch of products unless ``batched``; for products of several matrices in one unless ``several``.  Of
    products with matrices of several formats those of other ones are left to another pass.
    """
    every = [op for op in module.funcs if isinstance(op, kind)]
    for op in [op for op in every if getattr(op, "format", None) in formats] or every:
        for what, known, got in (
            ("fields of {} axes", axes, len(getattr(op, "shape", ()))),
            ("numbers of {}", dtypes, getattr(op, "dtype", None)),
            ("matrices of {}", formats, getattr(op, "format", None)),
            ("a batch of {}", () if batched else (1,), getattr(op, "batch", 1)),
            ("a product of {}", () if several else (1,), getattr(op, "matrices", 1)),
        ):
            if known and got not in known:
                takes = what.format(" or ".join(map(str, known)))
                raise IRError(f"{op.name}: this kernel takes {takes}, not of {got}", loc=op.loc,
                              hint="take another family; a row is a field [1, n]")  # fmt: skip
        module = kernel(module, op)
    return module


def vector(pitch: int, most: int) -> int:
    """Elements that one global access may move: more than one only if every row starts at a 16-byte boundary."""
    return most if pitch % most == 0 else 1


def shifted(at: Sequence[Expr], *by: int) -> tuple[Expr, ...]:
    """The cell so many cells further on along the last axes."""
    return (*at[: -len(by)], *(i + n for i, n in zip(at[-len(by) :], by, strict=True)))


def store(
    op: o.Stencil, at: tuple[Expr, ...], acc: Buffer, spread: Spread, vector: int,
    keeps: tuple[tuple[int, int], ...] | None = None,
) -> t.Store:  # fmt: skip
    """Stores the sums of the tile at ``at`` to ``out``; ``keeps``: see :func:`keep`."""
    return t.Store(
        dst=field(op, "out"), acc=acc, src=field(op, "u"), at=at, spread=spread, grid=grid(op, "out"), box=op.box,
        keep=keep(op.radius, op.sides, op.steps) if keeps is None else keeps, src_pitch=op.pitch[0], vector=vector,
    )  # fmt: skip


def whole(op: o.Stencil) -> tuple[o.Box]:
    """The box that tiles cover: from the first cell on, so that they start aligned; ``op.box`` says what they store."""
    return (tuple((0, n) for n in op.shape),)


def over_tiles(
    module: Module, op: S, size: tuple[int, ...], body: Body, *, params: tuple[Buffer, ...],
    constants: dict[str, Any], threads: int, before: tuple[Op, ...] = (), stay: int = 0, min_blocks: int = 1,
    symbol: str = "", keep_op: bool = False, boxes: tuple[o.Box, ...] = (),
) -> Module:  # fmt: skip
    """The module with an op replaced by a kernel over tiles of ``boxes``: unless given, a rim's or a whole field.

    ``before`` is done once a block.  With ``stay`` so many blocks take one tile after the other, else each has one.
    ``symbol`` and ``keep_op`` are for a kernel that runs before the op's own.  The launch's roles: ``in`` (the
    parameter ``u``) and ``out``; ``ws.NAME`` for workspaces; ``SYMBOL.NAME`` for the kernel's constants.
    """
    boxes = boxes or (whole(op) if isinstance(op, o.Stencil) else op.boxes)
    count = tile_count(boxes, size)
    blocks, symbol = min(stay, count) or count, symbol or op.symbol
    loop = tiles(boxes, size, blocks if stay else 0, body)
    func = t.Func(
        symbol=symbol, params=params, blocks=blocks, threads=threads, body=(*before, loop), min_blocks=min_blocks
    )
    names = {name: f"{symbol}.{name}" for name in constants} | FIELDS
    roles = [names.get(p.name, f"ws.{p.name}") for p in params]
    tables = {f"{symbol}.{name}": value for name, value in constants.items()}
    return replace_kernel(module, op, func, roles, tables, keep_op=keep_op)


def replace_kernel(
    module: Module, old: Op, new: t.Func, roles: Iterable[str], tables: dict[str, Any] | None = None, *,
    keep_op: bool = False,
) -> Module:  # fmt: skip
    """The module with one op replaced by its kernel (or the kernel put before it), and the kernel's launch: before
    those of kernels that stand behind it.

    The kernel's ops come from the line that the op comes from, the launch's roles have the names that it ``binds``.
    """
    with_op = (located(new, old.loc), *((old,) if keep_op else ()))
    at = module.funcs.index(old)
    behind = {getattr(f, "symbol", "") for f in module.funcs[at + 1 :]}
    names = dict(getattr(old, "binds", ()))
    launch = Launch(new.symbol, tuple(names.get(role, role) for role in roles))
    before = next((i for i, other in enumerate(module.launches) if other.symbol in behind), len(module.launches))
    launches = (*module.launches[:before], launch, *module.launches[before:])
    funcs = (*module.funcs[:at], *with_op, *module.funcs[at + 1 :])
    return Module(module.name, funcs, launches, {**module.constants, **(tables or {})})
