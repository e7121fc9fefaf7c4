"""``stream`` for general updates: a warp walks down a strip with several time levels of every field in registers.

Rows of every array arrive through cp.async rings of the warp.  A level keeps the rows that its formula reads, makes one
row a turn and hands it to the next; older levels and coefficients wait in their rings until a level needs them.  The
boundary holds at every level, by selects: what a block at it does, all do.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import formula as f
from .. import op_update as o
from .. import tile as t
from .. import tile_walk as tw
from ..boundary_map import EDGE, PERIODIC
from ..errors import ScheduleError
from ..expr import Expr, Value, maximum, minimum
from ..grid import Grid
from ..layout import layout
from ..module import Module
from ..node import Op
from ..numbers.arithmetic import up
from ..numbers.rows import Rows
from ..op import Sides
from ..passes.manager import register
from ..tile_update import UpdateLevels, rows_of
from ..types import Buffer, s32
from .common import each, replace_kernel, tile_count, tiles, vector
from .pointwise import names


@register("stream-update")
@dataclass(frozen=True)
class StreamUpdate:
    """Strips of 32 * ``per_lane`` columns, ``rows`` outputs down, ``warps`` a block; ``stages`` rows under way.

    Roles of its launches: ``in.NAME.LEVEL`` for what it reads, ``out.NAME.LEVEL`` for what it writes (levels from 0,
    the newest; ``out.NAME`` where that is the only one).
    """

    per_lane: int = 4
    rows: int = 512
    warps: int = 2
    stages: int = 4
    unroll: int = 1
    min_blocks: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Update, self._kernel, axes=(1, 2))

    def _kernel(self, module: Module, given: o.Update) -> Module:
        op = o.on_axes(given, 2)
        code, results = f.contract(op.code, op.results)
        n = rows_of(
            code,
            op.fields,
            op.dtype.nbytes,
            op.levels,
            per_lane=self.per_lane,
            stages=self.stages,
            rows=self.rows,
            warps=self.warps,
        )
        if (why := n.legal(self.per_lane, op.shape)) is not None:
            raise ScheduleError(why, hint="take fewer levels, or other columns a lane; direct does any formula")
        for pairs in zip(*op.sides, strict=True):
            if len({pair[0][0] == "periodic" for pair in pairs}) > 1:
                raise ScheduleError("an axis wraps for one field and not for another: a cell outside is then two",
                                    hint="direct does any boundary")  # fmt: skip
        params = o.parameters(op.fields, op.coefs)
        arrays = names([*(_title(name, level) for name, level in params),
                        *(f"{_title(name, level)}_new" for name, level in n.outputs)])  # fmt: skip
        spare = op.spare or (False,) * len(op.pitch)
        behind = zip(op.pitch[len(params) :], spare[len(params) :], strict=True)
        written = dict(zip(o.parameters(op.fields, ()), behind, strict=True))
        pitch_in, pitch_out = op.pitch[: len(params)], [written[made][0] for made in n.outputs]
        buffers = tuple(
            Buffer(name, op.dtype, Grid(op.shape, pitch).size, "global")
            for name, pitch in zip(arrays, (*pitch_in, *pitch_out), strict=True)
        )
        srcs, outs = buffers[: len(params)], buffers[len(params) :]
        scalars = o.scalars(op, op.levels, buffers)
        place = layout({"c": n.width}, lambda c: c + c // n.gap * n.piece)
        rings = [
            Buffer(f"ring_{name}", op.dtype, n.ring * _slots(n, source), "shared")
            for name, source in zip(arrays, params, strict=False)
        ]
        of = dict(zip(params, rings, strict=True))
        kept = tuple(
            Buffer(f"kept_{i}", op.dtype, max(1, op.levels * n.depth(name) * self.per_lane), "reg")
            for i, (name, _) in enumerate(op.fields)
        )
        older = tuple(made for made in n.outputs if made[1])
        # results whose place in the input still waits for later turns cross the lanes through slots of their own
        own = {made: Buffer(f"way_{i}", op.dtype, n.ring * 2, "shared") for i, made in enumerate(older)
               if not n.through(*made)}  # fmt: skip
        wide_in = [vector(pitch, n.piece) for pitch in pitch_in]
        wide_out = [vector(pitch, n.piece) for pitch in pitch_out]
        # columns outside that do not wrap are set later: those that fill a row up to whole pieces are as good as any
        columns = [
            op.shape[1] if _sides(op, name)[1][0][0] == "periodic" else up(op.shape[1], wide)
            for (name, _), wide in zip(params, wide_in, strict=True)
        ]
        # nor does what is stored behind a row matter where that is nobody's
        ends_out = [
            up(op.shape[1], wide) if written[made][1] else op.shape[1]
            for made, wide in zip(n.outputs, wide_out, strict=True)
        ]
        whole_in = not any(count % wide for count, wide in zip(columns, wide_in, strict=True))
        # a lane copies just what it reads, and stores it itself
        private = whole_in and {*wide_in, *wide_out} == {self.per_lane}
        title = {source: i for i, source in enumerate(params)}
        whole = tuple((0, size) for size in op.shape)
        turn = Value("row_turn", s32, 0, n.turns - 1)
        row = {name: Buffer(f"row_{i}", op.dtype, self.per_lane, "reg") for i, name in enumerate(n.fields)}
        old = {made: Buffer(f"old_{i}", op.dtype, self.per_lane, "reg") for i, made in enumerate(older)}
        # all blocks run one code: a second one for those at a border would not fit beside it where code is kept at hand
        border = (*op.sides, op.coef_sides)
        if all(pair[0][0] == "periodic" for sides in border for pair in sides):
            border = ()

        # a turn that meets no end of the rows does not look for one
        ends = n.ry > 0 and any(sides[0][0][0] != "periodic" for sides in border[: len(op.fields)])

        def calm(y: Expr) -> tuple[Expr, ...]:
            first, end = (minimum(maximum(turn - y, 0), n.turns) for turn in n.calm(op.shape[0]))
            return (first, maximum(first, end)) if ends else ()

        def body(loop: t.ForTiles) -> list[Op]:
            def fetch(source: tuple[str, int]) -> tw.Fetch:
                i, ahead = title[source], n.waiting[source].ahead if source in n.waiting else 0
                return tw.Fetch(
                    ring=of[source], src=srcs[i], at=loop.at, turn=turn, above=n.above - ahead, lead=(n.lead,),
                    lines=1, width=n.width, step=n.step, stages=_slots(n, source), layout=place,
                    grid=Grid((op.shape[0], columns[i]), pitch_in[i], _rows_as(_sides(op, source[0]))),
                    vector=wide_in[i], border="piece",
                )  # fmt: skip

            def take(name: str) -> tw.Take:
                return tw.Take(values=row[name], ring=of[name, 0], turn=turn, lines=1, stages=self.stages, layout=place)

            def emit(i: int, made: tuple[str, int]) -> tw.Emit:
                stages = 2 if made in own else _slots(n, made)
                return tw.Emit(
                    dst=outs[i], values=old.get(made, row[made[0]]), ring=own.get(made, of[made]), turn=turn,
                    at=loop.at, delay=n.above + n.below, lines=1, stages=stages, lead=(n.lead,), step=(n.step,),
                    layout=place, grid=Grid((op.shape[0], ends_out[i]), pitch_out[i]),
                    box=(whole[0], (0, ends_out[i])), vector=wide_out[i],
                )  # fmt: skip

            def levels(rows: bool) -> UpdateLevels:
                return UpdateLevels(
                    news=tuple(row.values()), olds=tuple(old.values()), kept=kept,
                    rings=tuple(of[source] for source in n.waiting), turn=turn, at=loop.at, fields=op.fields,
                    code=code, results=results, count=op.levels, stages=self.stages, layout=place,
                    grid=Grid(op.shape, op.pitch[0]), sides=border, rows=rows, scalars=next(iter(scalars), None),
                )  # fmt: skip

            emits = [emit(i, made) for i, made in enumerate(n.outputs)]
            walk = tw.Walk(
                turn=turn, held=(*row.values(), *old.values()), turns=n.turns, stages=self.stages,
                scope="lane" if private else "warp", via="cp.async", unroll=self.unroll,
                fill=tuple(map(fetch, params)), read=tuple(map(take, n.fields)),
                body=(levels(True), *emits), inner=(levels(False), *emits) if ends else (), calm=calm(loop.at[0]),
            )  # fmt: skip

            return [*(t.Alloc(buf=rows, zeroed=True) for rows in kept), walk]

        shared = (*rings, *own.values())
        func = t.Func(
            symbol=op.symbol, params=(*buffers, *scalars), blocks=tile_count((whole,), n.tile), threads=32 * self.warps,
            body=(*(t.Alloc(buf=ring) for ring in shared), tiles((whole,), n.tile, 0, body)),
            min_blocks=self.min_blocks,
        )  # fmt: skip
        written_to = (o.written(*made) for made in n.outputs)
        roles = (*op.roles[: len(params)], *written_to, *(o.SCALARS for _ in scalars))
        return replace_kernel(module, given, func, roles)


def _title(name: str, level: int) -> str:
    return f"{name}_{level}" if level else name


def _slots(n: Rows, source: tuple[str, int]) -> int:
    return n.waiting[source].slots if source in n.waiting else n.stages


def _sides(op: o.Update, name: str) -> Sides:
    fields = [field for field, _ in op.fields]
    return op.sides[fields.index(name)] if name in fields else op.coef_sides


def _rows_as(sides: Sides) -> Sides:
    """How a fetch reads outside: the rows that the sides mean, any columns (those that count are set later)."""
    low, high = sides[0]
    rows = sides[0] if low[0] == "periodic" else tuple(
        side if side[0] == "neumann" else EDGE[0] for side in (low, high)
    )  # fmt: skip
    return (rows, PERIODIC)  # type: ignore[return-value]
