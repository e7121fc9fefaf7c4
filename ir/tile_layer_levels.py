"""The tile op of several time steps of an update on three axes; what comes in is fetched as for one step."""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr
from .formula import Code, problem
from .grid import Grid
from .node import Op, attr, buffer, define, operand
from .numbers.layer_levels import LayerLevels
from .numbers.rows import newest
from .op import Sides, check_sides
from .tile_layers import layer_reads
from .tile_rules import axes, field, registers, same_type, scalars, shared
from .types import Buffer


@define("tile.update_layers", kw_only=True)
class UpdateLayers(Op):
    """``count`` time steps of a plane of every field: in turn ``turn`` each makes a plane, some planes above that of
    the step before (:class:`sparsegen.ir.numbers.layer_levels.LayerLevels` says how many, and what lies where).

    All threads make all cells of the window, in whose middle the tile lies that begins at ``at``, ``planes`` high.
    ``rings`` hold planes of what comes in; ``made`` those of times between that other threads read, written by the
    threads that make them; ``kept`` a thread's own cells of every time.  Columns beside a lane's come from other lanes.
    The newest levels that no pass has read go to ``outs``: those of each field, the last step's first.

    ``sides`` are those of each field; they hold at every step: cells outside are set before others read them, cells
    up to ``radius`` from a frozen side keep their value.  Without them nothing is near a border.  ``scalars``: those of
    each step, in the constant bank.  Only column.
    """

    outs: tuple[Buffer, ...] = buffer(writes=True, reads=False)
    rings: tuple[Buffer, ...] = buffer()
    made: tuple[Buffer, ...] = buffer(writes=True)
    kept: tuple[Buffer, ...] = buffer(writes=True)
    turn: Expr = operand()
    at: tuple[Expr, ...] = operand()
    fields: tuple[tuple[str, int], ...] = attr()
    code: Code = attr()
    results: tuple[int, ...] = attr()
    count: int = attr()
    lines: int = attr()
    planes: int = attr()
    stages: int = attr()
    grids: tuple[Grid, ...] = attr()
    vectors: tuple[int, ...] = attr()
    radius: tuple[int, ...] = attr()
    sides: tuple[Sides, ...] = attr(default=())
    scalars: Buffer | None = buffer(default=None)

    def numbers(self, threads: int) -> LayerLevels:
        """What lies where, for a block of so many threads."""
        return layer_levels_of(
            self.code, self.fields, self.outs[0].dtype.nbytes, self.count, lines=self.lines, warps=threads // 32,
            stages=self.stages, planes=self.planes,
        )  # fmt: skip


def layer_levels_of(
    code: Code, fields: tuple[tuple[str, int], ...], nbytes: int, levels: int, *, lines: int, warps: int, stages: int,
    planes: int,
) -> LayerLevels:  # fmt: skip
    """The numbers of several steps of a formula on three axes."""
    return LayerLevels(
        reads=layer_reads(code, fields), fields=dict(fields), levels=levels, nbytes=nbytes, lines=lines, planes=planes,
        warps=warps, stages=stages,
    )  # fmt: skip


@check(UpdateLayers)
def _update_layers(op: UpdateLayers, ctx: Context) -> None:
    count = len(op.fields)
    ctx.need(len(op.results) == count >= 1, f"{len(op.results)} results of {count} fields")
    ctx.need(op.count >= 2, f"{op.count} step: tile.update_layer makes one", "make at least 2")
    wrong = problem(op.code, op.results, dict(op.fields), 3, others=1)
    ctx.need(wrong is None, str(wrong))
    written = len(newest(op.fields, op.count))
    ctx.need(len(op.outs) == len(op.grids) == len(op.vectors) == written,
             f"{len(op.outs)} arrays for {written} levels that are written")  # fmt: skip
    scalars(ctx, op.code, op.scalars, op.outs[0].dtype, op.count)
    n = op.numbers(ctx.threads)
    for out, grid in zip(op.outs, op.grids, strict=True):
        field(ctx, grid, out, at=len(op.at))
    ctx.need((why := n.legal(op.grids[0].extent)) is None, str(why))
    for what, buffers, planes, skew in (("come in", op.rings, n.came, n.skew), ("are made", op.made, n.made, 0)):
        ctx.need(len(buffers) == len(planes), f"{len(buffers)} rings of {len(planes)} that {what}")
        for ring, of in zip(buffers, planes.values(), strict=True):
            shared(ctx, ring, skew + n.size(of), f"{of.slots} planes")
    ctx.need(len(op.kept) == len(n.kept), f"{len(op.kept)} arrays of registers for {len(n.kept)} times")
    for regs, depth in zip(op.kept, n.kept.values(), strict=True):
        registers(ctx, regs, (depth + 1) * op.lines * n.piece)
    same_type(ctx, *op.outs, *op.rings, *op.made, *op.kept)
    ctx.need(len(op.sides) in (0, count), f"{len(op.sides)} boundaries of {count} fields")
    axes(ctx, op.grids[0].extent, radius=len(op.radius))
    for sides in op.sides:
        axes(ctx, op.grids[0].extent, sides=len(sides))
        check_sides(ctx, sides)
