"""What kernels of warpgroups share: tiles and launch, x by whole pieces of 16 bytes, and how wide their stores are."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from .. import op_spmm as o
from .. import tile as t
from .. import tile_groups as tw
from ..errors import IRError
from ..expr import Value
from ..module import Module
from ..node import Op
from ..numbers.groups import ALIGN, PIECE, PIECES_SIDE, ROWS, SIDE, STAGE, STEP, padded, row_pitch, side_pitch, threads
from ..types import Buffer, DType, f32, s32
from .common import each, replace_kernel
from .product import epilogue, launched, parameters

#: Warps of a block that turns columns into rows.
TURNERS: Final = 8
#: Tiles of columns that blocks take side by side: then W's tiles, which they share, come once from DRAM.  With more of
#: them it is better to share columns of x: so 4096^3 took 3 to 7 % less on an H200, n = 256 and 1024 up to 10 % more.
FEW: Final = 8


class Pieces(NamedTuple):
    """x [k, n] in an order whose adjacent elements are whole pieces; ``begin``: what a thread does before it uses x;
    ``panel``: columns that lie together row by row, 0 for all."""

    buffer: Buffer
    n: int
    order: str
    begin: tuple[Op, ...] = ()
    panel: int = 0


def by_pieces(
    module: Module, op: o.Spmm, params: dict[str, Buffer], orders: tuple[str, ...], *, overlap: bool = False,
    reads: float = 0.0,
) -> tuple[Module, dict[str, Buffer], Pieces]:  # fmt: skip
    """x as it is, if its order is one of ``orders`` and its rows (or columns) are whole pieces, or else turned.

    Then a kernel before the op's own, in the module, writes it row by row into ``ws.turned``, which takes its place in
    the roles of the launch, ``params``; so too where its rows straddle lines and are gathered ``reads`` times.
    ``overlap``: both begin while the one before each ends (Hopper).
    """
    dtype, n = op.x_stored
    along, piece = n if op.x_order == "row" else op.k, 16 // dtype.nbytes
    whole = not op.x_panel and along % piece == 0 and op.vec % piece == 0
    if op.x_order in orders and whole and not padded(n, dtype.nbytes, reads):
        return module, params, Pieces(params["in"], n, op.x_order)
    if op.batch > 1:
        raise IRError("rows of a batch of x must be whole pieces of 16 bytes", hint="multiply one after another")
    pitch = row_pitch(n, dtype.nbytes)
    turned = Buffer("turned", dtype, op.k * pitch, "global")
    params = {("ws.turned" if role == "in" else role): (turned if role == "in" else b) for role, b in params.items()}
    begin = (t.Overlap(launch="last"),) if overlap else ()
    return _turned(module, op, pitch, overlap), params, Pieces(turned, pitch, "row", begin)


def _turned(module: Module, op: o.Spmm, pitch: int, overlap: bool) -> Module:
    """The module with a kernel before the op's own that writes x row by row."""
    dtype, n = op.x_stored
    src, dst = Buffer("x", dtype, op.k * n, "global"), Buffer("turned", dtype, op.k * pitch, "global")
    turn: Op
    if op.x_order == "row":
        blocks = -(-op.k * pitch // (32 * TURNERS * 16 // dtype.nbytes))
        vec = next(v for v in (4, 2, 1) if n % v == 0 and op.vec % v == 0 and v * dtype.nbytes <= 16)
        turn = tw.PadRows(dst=dst, src=src, k=op.k, n=n, pitch=pitch, vec=vec, panel=op.x_panel)
    elif op.vec == PIECE and dtype.nbytes == 2:
        blocks = -(-op.k // PIECES_SIDE) * -(-pitch // PIECES_SIDE)
        tile = Buffer("tile", dtype, PIECES_SIDE**2, "shared", ALIGN)
        turn = tw.TurnPieces(dst=dst, src=src, tile=tile, k=op.k, n=n, pitch=pitch)
    else:
        blocks = -(-op.k // SIDE) * -(-pitch // SIDE)
        tile = Buffer("tile", dtype, SIDE * side_pitch(dtype.nbytes), "shared", 16)
        turn = tw.TurnColumns(dst=dst, src=src, tile=tile, k=op.k, n=n, pitch=pitch)
    func = t.Func(
        symbol=f"{op.symbol}_turn", params=(src, dst), blocks=blocks, threads=32 * TURNERS,
        body=(*(t.Overlap(launch=which) for which in ("next", "last") if overlap), turn),
    )  # fmt: skip
    return replace_kernel(module, op, func, ("in", "ws.turned"), keep_op=True)


def together(op: o.Spmm, cols: int) -> int:
    """Adjacent elements of y that a store takes, of a tile of ``cols`` columns."""
    if op.y_order == "row" and op.n % PIECE:
        return 1
    if op.residual:  # a sum is rounded once, so exchanged pairs take no residual
        return 2 if op.y_order == "row" else 1
    if op.y_order == "column":
        return next(v for v in (8 if cols % 16 == 0 else 2, 2, 1) if op.m % v == 0)
    return 8 if cols % 32 == 0 else 2


def stage(op: o.Spmm, warps: int, cols: int) -> Buffer | None:
    """Where so many warps of ``cols`` columns lay their sums out by rows, if y takes single elements there."""
    if op.y_order == "column" or together(op, cols) > 1:
        return None
    return Buffer("stage", f32, warps * STAGE, "shared", 16)


class Turns(NamedTuple):
    """What every walk has: where a block is, its sums, and the rows of x in their ring."""

    tile: Value
    column: Value
    step: Value
    slot: Value
    acc: Buffer
    x_ring: Buffer


@dataclass(frozen=True)
class Groups:
    """Base of passes: ``blocks`` blocks of ``groups`` warpgroups, 64 rows of a tile each, and ``cols`` columns of x.

    Turns go through a ring of ``stages`` slots.  Roles of the launch: ``in``, ``out``, W's packed arrays, those of the
    epilogue.  An x in none of ``orders``, or one that has no whole pieces there, is first written row by row into
    ``ws.turned``; W's slots fill meanwhile.  Then blocks of which more than ``min_blocks`` fit an SM would meet on some
    and leave others without, so a block asks for ``least_shared`` bytes.  (Without that launch before it, a kernel that
    overlaps with the one before took up to 15 % more on an H200.)
    """

    groups: int = 2
    cols: int = 256
    stages: int = 4
    blocks: int = 132
    min_blocks: int = 1
    least_shared: int = 0

    #: The name that it is registered under, and the orders in which it reads x.
    family: ClassVar[str]
    orders: ClassVar[tuple[str, ...]] = ("row", "column")
    #: Whether threads read x, row by row; tensor copies gained nothing from rows that begin with lines.
    gathers: ClassVar[bool] = False

    @property
    def warps(self) -> int:
        """Of a block."""
        return threads(self.groups) // 32

    def turns(self, op: o.Spmm) -> int:
        """Of a tile: all of W's columns, 64 a turn."""
        return -(-op.k // STEP)

    @abstractmethod
    def arrays(self, op: o.Spmm, row_tiles: int) -> dict[str, tuple[DType, int]]:
        """W's packed arrays: their types and sizes."""

    @abstractmethod
    def parts(self, op: o.Spmm, params: dict[str, Buffer], x: Pieces, at: Turns) -> dict[str, Any]:
        """The walk's buffers, what fills its slots and what multiplies: fields of ``tile.walk_groups``."""

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._kernel, formats=("nm",))

    def _kernel(self, module: Module, op: o.Spmm) -> Module:
        if op.dtype.nbytes != 2:
            raise IRError(f"{self.family} multiplies 16-bit numbers, not {op.dtype}", hint="take nm_lanes")
        row_tiles, col_tiles = -(-op.m // (ROWS * self.groups)), -(-op.n // self.cols)
        params = parameters(op, self.arrays(op, row_tiles), 0, 0)
        reads = row_tiles * self.turns(op) * STEP / op.k if self.gathers else 0.0
        module, params, x = by_pieces(module, op, params, self.orders, overlap=True, reads=reads)
        blocks = min(self.blocks, row_tiles * col_tiles)
        at = Turns(
            Value("tile", s32, 0, row_tiles - 1), Value("column", s32, 0, op.n - 1),
            Value("step", s32, 0, self.turns(op) - 1), Value("slot", s32, 0, self.stages - 1),
            Buffer("acc", f32, self.cols // 2, "reg"),
            Buffer("x_ring", op.dtype, self.stages * STEP * self.cols, "shared", ALIGN),
        )  # fmt: skip
        store = tw.StoreTile(
            acc=at.acc, row=at.tile * (64 * self.groups), column=at.column, warps=(4 * self.groups, 1),
            vec=together(op, self.cols), stage=stage(op, 4 * self.groups, self.cols), **epilogue(op, params),
        )  # fmt: skip
        fields: dict[str, Any] = {"ahead": (), "look": ()} | self.parts(op, params, x, at)
        body = tw.WalkGroups(
            tile=at.tile, column=at.column, step=at.step, slot=at.slot, acc=at.acc, groups=self.groups,
            row_tiles=row_tiles, col_tiles=col_tiles, cols=self.cols, steps=self.turns(op), stages=self.stages,
            blocks=blocks, fastest="cols" if col_tiles <= FEW else "rows", begin=x.begin, done=(*x.begin, store),
            **fields,
        )  # fmt: skip
        return launched(
            module, op, params, body, blocks, self.warps, self.min_blocks, overlap=bool(x.begin),
            least_shared=self.least_shared if x.begin else 0,
        )  # fmt: skip
