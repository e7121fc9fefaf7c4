"""``vector_block``: a product with vectors of integers as Magicube has it (SC'22, section 4.2, algorithm 1).

A block has a vector row of W, V rows, and a part of the columns of x; its warps share what a step brings.  Vectors come
as SR-BCRS lists them, a stride at a time, so that lanes load W's operand without a gap; rows of x come through
registers to padded shared memory, and each lane turns its own words.  ``vector_gather`` is the same product with what
later GPUs have: asynchronous copies, ``ldmatrix``, and a warp of its own for each part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .. import op_spmm as o
from .. import tile as t
from .. import tile_strided as td
from .. import tile_strips as ts
from ..errors import IRError
from ..expr import Value
from ..module import Module
from ..numbers.strided import Planes, stride, tile_words
from ..passes.manager import register
from ..types import Buffer, DType, s32, u16, u32
from .common import each
from .groups import Pieces, by_pieces
from .product import epilogue, launched, parameters


@register("vector_block")
@dataclass(frozen=True)
class VectorBlock:
    """Blocks of a vector row by ``wide`` bytes of x's rows, a warp for each 32.

    ``steps``: how many of a stride of vectors all vector rows have; ``prefetch``: rows of x of the next step come while
    this one is multiplied; ``pad``: without bank conflicts; ``shuffle``: columns lie in the order that turns digits of
    4 bits at once; ``stack``: digits of W share an mma.  Roles of the launch: ``in``, ``out``, W's arrays (``ptr``,
    ``idx``, ``values``) and those of the epilogue.  An x by columns, or one whose rows are no whole pieces, is first
    written row by row into ``ws.turned``.
    """

    wide: int = 64
    steps: int = 1
    prefetch: bool = True
    pad: bool = True
    shuffle: bool = False
    stack: bool = False

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=o.VECTORS, batched=True)

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if not op.w_digits:
            raise IRError("integers are multiplied digit by digit", hint="run the pass decompose first")
        if not op.integers:
            raise IRError(
                f"vector_block multiplies integers, not {op.dtype}", hint="take vector_strip or vector_gather"
            )
        made = Planes(op.w_digits, op.x_digits, op.height, self.stack)
        rows, tiles = -(-op.m // op.height), -(-op.row_bytes // self.wide)
        arrays: dict[str, tuple[DType, int]] = {
            "ptr": (s32, 2 * rows), "idx": (index_type(op.k), self.steps * stride(made.bits)),
            "values": (u32, op.batch * self.steps * made.words),
        }  # fmt: skip
        module, params, x = by_pieces(module, op, parameters(op, arrays, 0, 0), ("row",))
        words = replace(x.buffer, dtype=u32, size=x.buffer.nbytes // 4)
        params = {role: words if b is x.buffer else b for role, b in params.items()}
        body = self._block(op, params, x._replace(buffer=words, n=x.n * x.buffer.dtype.nbytes // 4), made, rows * tiles)
        return launched(module, op, params, body, op.batch * rows * tiles, self.wide // 32)

    def _block(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, made: Planes, blocks: int) -> ts.EachBlock:
        """A vector row and a part of the columns; ``blocks`` of a product."""
        wide, size, threads = self.wide, stride(made.bits), self.wide
        rows = -(-op.m // op.height)
        tile = Buffer("x_tile", u32, tile_words(wide, made.bits, self.pad), "shared", 16)
        numbers, words = Buffer("numbers", s32, 2 * size, "shared"), Buffer("words", u32, 2 * made.words, "shared")
        regs = Buffer("x_next", u32, size * wide // 4 // threads, "reg")
        acc = Buffer("acc", s32, made.size, "reg")
        block = Value("block", s32, 0, op.batch * blocks - 1)
        at, slot = Value("at", s32, 0, self.steps - 1), Value("slot", s32, 0, 1)
        row, part, which = block % rows, block // rows % (blocks // rows), block // blocks
        digits: dict[str, Any] = {
            "w_digits": op.w_digits, "x_digits": op.x_digits, "height": op.height, "stack": self.stack
        }  # fmt: skip
        listed = td.ListStep(
            numbers=numbers, words=words, idx=params["idx"], values=params["values"], at=at, slot=slot, which=which
        )  # fmt: skip
        fetch = td.FetchStep(
            regs=regs, src=x.buffer, numbers=numbers, slot=slot, column=part * (wide // 4), wide=wide, k=op.k, n=x.n,
            which=which,
        )  # fmt: skip
        keep = td.KeepStep(x=tile, regs=regs, wide=wide, bits=made.bits, pad=self.pad)
        multiply = td.MultiplyStep(
            acc=acc, x=tile, words=words, slot=slot, wide=wide, pad=self.pad, shuffle=self.shuffle, **digits
        )  # fmt: skip
        walk = td.WalkStrides(
            ptr=params["ptr"], row=row, at=at, slot=slot, stride=size, prefetch=self.prefetch, list=(listed,),
            fetch=(fetch,), keep=(keep,), body=(multiply,),
        )  # fmt: skip
        store = td.StorePlanes(
            acc=acc, row=row, column=part * (wide // 4 * made.columns), vec=together(op, made), which=which,
            **digits, **epilogue(op, params),
        )  # fmt: skip
        allocs = tuple(t.Alloc(buf=buf) for buf in (tile, numbers, words, regs))
        return ts.EachBlock(block=block, body=(*allocs, t.Alloc(buf=acc, zeroed=True), walk, store))


def index_type(k: int) -> DType:
    """The type that columns are listed in, of which the largest number fills up."""
    return u16 if k < u16.range[1] + 1 else u32


def together(op: o.Spmm, made: Planes) -> int:
    """Adjacent elements of y that a lane stores at once."""
    along = op.n if op.y_order == "row" else 1
    return next(v for v in (4, 2, 1) if made.columns % v == 0 and along % v == 0)
