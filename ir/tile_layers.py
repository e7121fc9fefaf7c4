"""Tile ops of updates on three axes: a block walks along the slowest axis with planes of every array in rings."""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .formula import Code, problem, reads
from .grid import Grid
from .node import Op, attr, buffer, define, operand
from .numbers.layers import Layers, Read
from .tile_rules import field, registers, same_type, scalars, shared, whole
from .tile_walk import FILLS
from .types import Buffer


@define("tile.fetch_layer", kw_only=True)
class FetchLayer(Op):
    """Starts a block's copies of a turn of a walk: a tile of a plane of ``src`` with its halo, into the turn's slot.

    The plane is that of turn ``turn``, ``ahead`` planes behind ``at``, the tile's first cell; the tile has ``rows`` x
    ``cols`` cells, the halo as many around it as ``halo`` says (without ``corners`` those are left out).  Pieces of
    ``piece`` cells go to a thread each, at once where ``vector`` says so; else single cells, adjacent ones to adjacent
    lanes.  Cells outside follow the field's sides;
    those that hold a constant are written instead of copied.  Of the tile's own columns the last steps of several use
    all but ``rim`` at either end: no more of them and of the halo than that count beyond a border that whole pieces do
    not reach; those are copied cell by cell, where rows have no ghosts.  Slots lie ``skew`` elements behind the ring's
    start.  Only column.
    """

    ring: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    turn: Expr = operand()
    ahead: int = attr()
    rows: int = attr()
    cols: int = attr()
    halo: tuple[int, int] = attr()
    corners: bool = attr()
    rim: int = attr(default=0)
    skew: int = attr(default=0)
    stages: int = attr()
    piece: int = attr()
    vector: int = attr()
    grid: Grid = attr()


@define("tile.fetch_own", kw_only=True)
class FetchOwn(Op):
    """Starts each thread's copies of its own cells of the plane of turn ``turn``, ``ahead`` planes behind ``at``.

    A lane has ``piece`` columns of ``lines`` adjacent rows of its warp; no other thread reads them.  Where rows start
    anywhere (``vector`` 1) another lane copies them, so that copies of a warp are of adjacent cells.  Only column.
    """

    ring: Buffer = buffer(writes=True, reads=False)
    src: Buffer = buffer()
    at: tuple[Expr, ...] = operand()
    turn: Expr = operand()
    ahead: int = attr()
    lines: int = attr()
    stages: int = attr()
    piece: int = attr()
    vector: int = attr()
    grid: Grid = attr()


@define("tile.update_layer", kw_only=True)
class UpdateLayer(Op):
    """Works ``code`` out for the block's tile of the plane that turn ``turn`` makes; the results go to ``outs``.

    ``rings`` are those of the arrays that are read beside a cell, then of those that are read at it alone
    (:class:`sparsegen.ir.numbers.layers.Layers` says which, and what lies where); ``kept`` holds the cells of a thread
    above and below the plane.  ``keep``: cells from the low and the high border of each axis that keep their value, for
    each field.  ``scalars``: those of the step, in the constant bank.  Only column.
    """

    outs: tuple[Buffer, ...] = buffer(writes=True, reads=False)
    rings: tuple[Buffer, ...] = buffer()
    kept: tuple[Buffer, ...] = buffer(writes=True)
    turn: Expr = operand()
    at: tuple[Expr, ...] = operand()
    fields: tuple[tuple[str, int], ...] = attr()
    code: Code = attr()
    results: tuple[int, ...] = attr()
    lines: int = attr()
    stages: int = attr()
    grids: tuple[Grid, ...] = attr()
    vectors: tuple[int, ...] = attr()
    keep: tuple[tuple[tuple[int, int], ...], ...] = attr()
    scalars: Buffer | None = buffer(default=None)

    def numbers(self, threads: int) -> Layers:
        """What lies where, for a block of so many threads; how many planes it makes does not matter here."""
        return layers_of(
            self.code, self.fields, self.outs[0].dtype.nbytes, lines=self.lines, warps=threads // 32,
            stages=self.stages,
        )  # fmt: skip


def layers_of(
    code: Code, fields: tuple[tuple[str, int], ...], nbytes: int, *, lines: int, warps: int, stages: int,
    planes: int = 1,
) -> Layers:  # fmt: skip
    """The numbers of a formula on three axes."""
    return Layers(
        reads=layer_reads(code, fields), fields=dict(fields), nbytes=nbytes, lines=lines, planes=planes, warps=warps,
        stages=stages,
    )  # fmt: skip


def layer_reads(code: Code, fields: tuple[tuple[str, int], ...]) -> list[Read]:
    """The reads of a formula on three axes, and of the newest level of each field, to keep it at a frozen side."""
    found = [(name, level, (offset[0], offset[1], offset[2])) for name, level, offset in reads(code)]
    return [*found, *((name, 0, (0, 0, 0)) for name, _ in fields)]


FILLS.update((FetchLayer, FetchOwn))


@check(FetchLayer)
def _fetch_layer(op: FetchLayer, ctx: Context) -> None:
    field(ctx, op.grid, op.src, at=len(op.at), sides=len(op.grid.sides))
    same_type(ctx, op.ring, op.src)
    ctx.need(len(op.at) == 3, f"planes of a field of {len(op.at)} axes")
    for columns in (op.cols, op.halo[1]):
        whole(ctx, columns, op.piece, f"{columns} columns are no whole pieces of {op.piece}")
    ctx.need(op.vector in (1, op.piece), f"{op.vector} cells at once are neither one nor a piece")
    ghosts, far = op.grid.ghosts, op.halo[1] + op.rim
    ctx.need(not ghosts or (op.vector > 1 and far <= ghosts),
             f"{far} columns around a tile, where rows have {ghosts} ghosts")  # fmt: skip
    size = (op.rows + 2 * op.halo[0]) * (op.cols + 2 * op.halo[1])
    shared(ctx, op.ring, op.skew + op.stages * size, f"{op.stages} planes")
    whole(ctx, op.skew, op.piece, f"{op.skew} elements before the first slot are no whole pieces of {op.piece}")


@check(FetchOwn)
def _fetch_own(op: FetchOwn, ctx: Context) -> None:
    field(ctx, op.grid, op.src, at=len(op.at))
    same_type(ctx, op.ring, op.src)
    ctx.need(len(op.at) == 3, f"planes of a field of {len(op.at)} axes")
    ctx.need(op.vector in (1, op.piece), f"{op.vector} cells at once are neither one nor a piece")
    shared(ctx, op.ring, op.stages * ctx.threads * op.lines * op.piece, f"{op.stages} slots of all threads")


@check(UpdateLayer)
def _update_layer(op: UpdateLayer, ctx: Context) -> None:
    count = len(op.fields)
    ctx.need(len(op.outs) == len(op.grids) == len(op.vectors) == len(op.keep) == len(op.results) == count >= 1,
             f"results, boundaries and arrays of {count} fields")  # fmt: skip
    wrong = problem(op.code, op.results, dict(op.fields), 3, others=1)
    ctx.need(wrong is None, str(wrong))
    scalars(ctx, op.code, op.scalars, op.outs[0].dtype, 1)
    for out, grid in zip(op.outs, op.grids, strict=True):
        field(ctx, grid, out, at=len(op.at))
    n = op.numbers(ctx.threads)
    arrays = (*n.rings, *n.owns)
    ctx.need(len(op.rings) == len(arrays), f"{len(op.rings)} rings of {len(arrays)} arrays")
    for ring, array in zip(op.rings, arrays, strict=True):
        shared(ctx, ring, n.ring(array), f"{n.slots(array)} planes")
    held = [planes.kept for planes in n.rings.values() if planes.kept]
    ctx.need(len(op.kept) == len(held), f"{len(op.kept)} arrays of registers for {len(held)} arrays that are kept")
    for regs, planes in zip(op.kept, held, strict=True):
        registers(ctx, regs, planes * op.lines * n.piece)
    same_type(ctx, *op.outs, *op.rings, *op.kept)
