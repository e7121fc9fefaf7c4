"""What kernels of integers share whose inputs are floats: two kernels before their own that quantise these."""

from __future__ import annotations

from typing import Any

from .. import tile as t
from .. import tile_quantise as tq
from ..module import Module
from ..node import Op
from ..types import Buffer, f32, s32, u32
from .common import replace_kernel

#: Warps of a block.
WARPS = 16
#: Pieces of an array that a thread loads before it knows the scale: all of them, of a million elements.
HELD = 4


def quantised(module: Module, op: Any, sizes: dict[str, int], most: int, *, overlap: bool) -> Module:
    """The module with kernels before ``op`` that write ``ws.NAME`` and ``ws.NAME_scale`` of each array ``in.NAME``.

    ``sizes``: elements, f16, of each.  Integers up to ``most`` lie four to a word; scales are one f32, the last of them
    NaN if any array has an infinity or NaN.  ``overlap``: launches overlap (Hopper).
    """
    given = {name: Buffer(name, u32, size // 2, "global") for name, size in sizes.items()}
    made = {name: Buffer(f"{name}_made", s32, size // 4, "global") for name, size in sizes.items()}
    scales = {name: Buffer(f"{name}_scale", f32, 1, "global") for name in sizes}
    tops, over = Buffer("tops", f32, len(sizes) * tq.MOST_BLOCKS, "global"), Buffer("over", u32, WARPS, "shared")
    held = Buffer("held", u32, HELD * tq.PIECE // 2, "reg")
    largest: list[Op] = []
    fetch: list[Op] = []
    quantise: list[Op] = []
    for number, name in enumerate(sizes):
        of: dict[str, Any] = {"src": given[name], "number": number, "of": tq.MOST_BLOCKS}
        how: dict[str, Any] = {**of, "tops": tops}
        largest.append(tq.FindLargest(over=over, **how))
        fetch.append(tq.FetchPieces(held=held, **of))
        others = tuple(range(number)) if number == len(sizes) - 1 else ()
        quantise.append(tq.Quantise(dst=made[name], held=held, scale=scales[name], most=most, watched=others, **how))
    after, before = ((t.Overlap(launch=which),) if overlap else () for which in ("next", "last"))
    inputs = {f"in.{name}": buf for name, buf in given.items()} | {"ws.tops": tops}
    results = {f"ws.{name}": buf for name, buf in made.items()}
    results |= {f"ws.{name}_scale": buf for name, buf in scales.items()}
    for symbol, params, body in (
        ("largest", inputs, (*after, t.Alloc(buf=over), *largest)),
        ("quantise", inputs | results, (*after, t.Alloc(buf=held), *fetch, *before, *quantise)),
    ):
        func = t.Func(
            symbol=f"{op.symbol}_{symbol}", params=tuple(params.values()), blocks=len(sizes) * tq.MOST_BLOCKS,
            threads=32 * WARPS, body=body,
        )  # fmt: skip
        module = replace_kernel(module, op, func, params, keep_op=True)
    return module
