"""Copies of boxes of a matrix to shared memory by the copy unit (Hopper's TMA), which swizzles them on the way.

The unit reads how the matrix lies from a tensor map, 128 bytes that the driver makes of an address: a parameter of the
CUDA kernel for each matrix and map that its copies name, made at launch of the address that is bound to the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .checks import Context, check
from .expr import Const, Expr
from .layout import Layout
from .node import Op, attr, buffer, define, operand, walk
from .swizzle import SWIZZLES, atom, swizzled
from .text import attribute, declaration
from .types import Buffer
from .uniform import WARP
from .verify_memory import mbarrier
from .verify_warp import elem_bytes, in_space

#: Bytes of which the unit wants multiples: addresses and rows of a matrix, rows of a box and the columns where they
#: begin (Hopper ends with an illegal instruction for others, which PTX does not say); and places of a box.
PIECE, PLACE = 16, 128
#: Elements of a box along each axis, at most.
MOST: Final = 256


@attribute
@dataclass(frozen=True)
class TensorMap:
    """A matrix of ``rows`` x ``cols`` elements, ``pitch`` from row to row, and the ``box`` (rows, columns) of a copy.

    The box's rows lie one after the other in shared memory as :func:`sparsegen.ir.swizzle.swizzled` has them.
    """

    rows: int
    cols: int
    pitch: int
    box: tuple[int, int]
    swizzle: int = 0

    @property
    def size(self) -> int:
        """Elements of the box."""
        return self.box[0] * self.box[1]

    def layout(self, itemsize: int) -> Layout:
        """(row, column) of the box to the element's place behind the first; ``itemsize``: bytes of an element."""
        return swizzled(self.box[0], self.box[1] * itemsize, self.swizzle, itemsize)

    @property
    def align(self) -> int:
        """Bytes that the place of a box is a multiple of."""
        return max(PLACE, atom(self.swizzle))


@define("warp.tensor_copy")
class TensorCopy(Op):
    """Copies the box whose first element is at (``row``, ``col``) of the matrix ``src`` to ``dst``, asynchronously.

    What of the box lies outside the matrix, before it (coordinates may be negative) or behind, is written as zeros.
    ``col`` is a multiple of 16 bytes.
    One thread issues it; all bytes of the box, the zeros too, count towards the phase of the mbarrier ``bars[bar]``.
    """

    dst: Buffer = buffer(writes=True, reads=False)
    dst_index: Expr = operand()
    src: Buffer = buffer()
    row: Expr = operand()
    col: Expr = operand()
    bars: Buffer = buffer(writes=True)
    bar: Expr = operand()
    map: TensorMap = attr()


def tensor_maps(func: Any) -> tuple[tuple[Buffer, TensorMap], ...]:
    """The matrices that a function copies boxes of, each with a map, in the order of first use."""
    return tuple(dict.fromkeys((op.src, op.map) for op in walk(func.body) if isinstance(op, TensorCopy)))


@check(TensorCopy)
def _tensor_copy(op: TensorCopy, ctx: Context) -> None:
    in_space(ctx, op.src, "global")
    in_space(ctx, op.dst, "shared")
    ctx.need(op.src.dtype is op.dst.dtype, f"copies {op.src.dtype} to {op.dst.dtype}: the types differ")
    size = elem_bytes(ctx, op.dst.dtype)
    _map(ctx, op.map, op.src, size)
    unit = op.map.align
    ctx.need(op.dst.align % unit == 0, f"{declaration(op.dst)} is aligned to less than the {unit} bytes of a box with "
             f"a swizzle of {op.map.swizzle}", f"declare align={unit}")  # fmt: skip
    ctx.integer(op.dst_index, "the index")
    if isinstance(op.dst_index, Const):
        first = op.dst_index.value
        ctx.need(first * size % unit == 0, f"dst_index {first} is byte {first * size}, no multiple of {unit}")
    for e, what in ((op.row, "row"), (op.col, "column")):
        ctx.integer(e, f"the {what}")
        ctx.need(-(2**31) <= e.lo and e.hi < 2**31, f"the {what} {e} is in {e.lo}..{e.hi}: no 32-bit number")
    if isinstance(op.col, Const):
        ctx.need(op.col.value * size % PIECE == 0, f"column {op.col} is byte {op.col.value * size}, no multiple of "
                 f"{PIECE}")  # fmt: skip
    mbarrier(op, ctx, op.bars, op.bar)
    ctx.need(max(ctx.levels.around(op), ctx.levels.expr(op.dst_index)) > WARP,
             "all lanes of a warp would copy to one place", "let one thread copy: put it under %tid == n")  # fmt: skip


def _map(ctx: Context, m: TensorMap, src: Buffer, size: int) -> None:
    """A map that the driver takes, of a matrix that ``src`` holds."""
    ctx.need(min(m.rows, m.cols) >= 1 and max(m.rows, m.cols) < 2**32, f"a matrix of {m.rows} x {m.cols}")
    ctx.need(m.pitch >= m.cols and m.pitch * size % PIECE == 0 and m.pitch * size < 2**40,
             f"rows of {m.cols} x {src.dtype} are {m.pitch} apart, which are {m.pitch * size} bytes",
             f"a pitch of whole rows and of a multiple of {PIECE} bytes")  # fmt: skip
    ctx.need((m.rows - 1) * m.pitch + m.cols <= src.size,
             f"{m.rows} rows {m.pitch} apart: outside {declaration(src)}")  # fmt: skip
    ctx.need(src.align % PIECE == 0, f"{declaration(src)} must be aligned to {PIECE} bytes")
    ctx.need(all(1 <= n <= MOST for n in m.box), f"a box of {m.box[0]} x {m.box[1]} is not in 1..{MOST} each way")
    wide = m.box[1] * size
    ctx.need(wide % PIECE == 0, f"a box's rows have {wide} bytes, no multiple of {PIECE}")
    ctx.one_of(m.swizzle, SWIZZLES, "swizzle")
    ctx.need(m.swizzle in (0, wide), f"a box's rows have {wide} bytes, its swizzle {m.swizzle}",
             "make them as wide as the swizzle (several boxes side by side), or take none")  # fmt: skip
