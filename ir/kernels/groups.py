"""What kernels of warpgroups share: x by whole pieces of 16 bytes, and how wide their stores are."""

from __future__ import annotations

from typing import Final, NamedTuple

from .. import op_spmm as o
from .. import tile as t
from .. import tile_groups as tw
from ..module import Module
from ..node import Op
from ..numbers.arithmetic import up
from ..numbers.groups import ALIGN, PIECE, PIECES_SIDE, SIDE, side_pitch
from ..types import Buffer
from .common import replace_kernel

#: Warps of a block that turns columns into rows.
TURNERS: Final = 8
#: Tiles of columns that blocks take side by side: then W's tiles, which they share, come once from DRAM.  With more of
#: them it is better to share columns of x: so 4096^3 took 3 to 7 % less on an H200, n = 256 and 1024 up to 10 % more.
FEW: Final = 8


class Pieces(NamedTuple):
    """x [k, n] in an order whose adjacent elements are whole pieces; ``begin``: what a thread does before it uses x."""

    buffer: Buffer
    n: int
    order: str
    begin: tuple[Op, ...] = ()


def by_pieces(
    module: Module, op: o.Spmm, params: dict[str, Buffer], orders: tuple[str, ...], *, overlap: bool = False
) -> tuple[Module, dict[str, Buffer], Pieces]:
    """x as it is, if its order is one of ``orders`` and its rows (or columns) are whole pieces, or else turned.

    Then a kernel before the op's own, in the module, writes it row by row into ``ws.turned``, which takes its place in
    the roles of the launch, ``params``.  ``overlap``: the op's kernel begins while that one ends (Hopper).
    """
    along, piece = op.n if op.x_order == "row" else op.k, 16 // op.dtype.nbytes
    if op.x_order in orders and along % piece == 0 and op.vec % piece == 0:
        return module, params, Pieces(params["in"], op.n, op.x_order)
    pitch = up(op.n, piece)
    turned = Buffer("turned", op.dtype, op.k * pitch, "global")
    params = {("ws.turned" if role == "in" else role): (turned if role == "in" else b) for role, b in params.items()}
    begin = (t.Overlap(launch="last"),) if overlap else ()
    return _turned(module, op, pitch, overlap), params, Pieces(turned, pitch, "row", begin)


def _turned(module: Module, op: o.Spmm, pitch: int, overlap: bool) -> Module:
    """The module with a kernel before the op's own that writes x row by row."""
    src, dst = Buffer("x", op.dtype, op.k * op.n, "global"), Buffer("turned", op.dtype, op.k * pitch, "global")
    turn: Op
    if op.x_order == "column" and op.vec == PIECE and op.dtype.nbytes == 2:
        side, tile = PIECES_SIDE, Buffer("tile", op.dtype, PIECES_SIDE**2, "shared", ALIGN)
        turn = tw.TurnPieces(dst=dst, src=src, tile=tile, k=op.k, n=op.n, pitch=pitch)
    else:
        side, tile = SIDE, Buffer("tile", op.dtype, SIDE * side_pitch(op.dtype.nbytes), "shared", 16)
        turn = tw.TurnColumns(dst=dst, src=src, tile=tile, k=op.k, n=op.n, pitch=pitch, order=op.x_order)
    func = t.Func(
        symbol=f"{op.symbol}_turn", params=(src, dst), blocks=-(-op.k // side) * -(-pitch // side),
        threads=32 * TURNERS, body=(*((t.Overlap(launch="next"),) if overlap else ()), turn),
    )  # fmt: skip
    return replace_kernel(module, op, func, ("in", "ws.turned"), keep_op=True)


def together(op: o.Spmm, cols: int) -> int:
    """Adjacent elements of y that a store takes, of a tile of ``cols`` columns."""
    if op.residual:  # a sum is rounded once, so exchanged pairs take no residual
        return 2 if op.y_order == "row" and op.n % 2 == 0 else 1
    if op.y_order == "column":
        return next(v for v in (8, 2, 1) if op.m % v == 0)
    return next(v for v in (8, 2, 1) if op.n % v == 0 and cols % (4 * v) == 0)
