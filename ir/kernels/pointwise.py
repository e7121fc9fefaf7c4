"""``pointwise``: general updates on the CUDA cores, a short column of cells a thread, neighbours through the caches."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod

from .. import formula
from .. import op_update as o
from .. import tile as t
from ..errors import ScheduleError
from ..grid import Grid, keep
from ..module import Module
from ..node import Op
from ..op import Sides, Stencil
from ..passes.manager import register
from ..tile_update import Update
from ..types import Buffer
from .common import each, replace_kernel, tile_count, tiles


@register("pointwise")
@dataclass(frozen=True)
class Pointwise:
    """Turns each update into a kernel of blocks of ``planes`` x ``rows`` x ``cols`` threads (as many axes as it has).

    A thread has ``column`` cells below one another: what two of them read is loaded once.
    Roles of its launches: ``in.NAME.LEVEL`` for what it reads (levels from 0, the newest), ``out.NAME`` for a field's
    new level.
    """

    planes: int = 1
    rows: int = 8
    cols: int = 32
    column: int = 1

    def run(self, module: Module) -> Module:
        return each(module, o.Update, self._kernel)

    def _threads(self, ndim: int) -> tuple[int, ...]:
        """Threads of a block on each axis; on one axis all are in a row."""
        return (self.rows * self.cols * self.planes,) if ndim == 1 else (self.planes, self.rows, self.cols)[-ndim:]

    def _kernel(self, module: Module, op: o.Update) -> Module:
        params = o.parameters(op.fields, op.coefs)
        titles = names([*(f"{n}_{level}" if level else n for n, level in params), *(f"{n}_new" for n, _ in op.fields)])
        of_field = {name: sides for (name, _), sides in zip(op.fields, op.sides, strict=True)}
        read: list[Sides] = [of_field.get(name, op.coef_sides) for name, _ in params]
        apart = [*op.pitch[: len(params)], *(op.pitch[len(params) + at] for at in o.first(op.fields))]
        grids = [Grid(op.shape, *given) for given in zip(apart, [*read, *[()] * len(op.fields)], strict=True)]
        buffers = tuple(Buffer(name, op.dtype, g.size, "global") for name, g in zip(titles, grids, strict=True))
        srcs, outs = buffers[: len(params)], buffers[len(params) :]
        code, results = formula.contract(op.code, op.results)
        scalars = o.scalars(op, 1, buffers)
        threads, box = self._threads(len(op.shape)), tuple((0, n) for n in op.shape)
        column = self.column if len(op.shape) > 1 else 1
        size = tuple(n * (column if axis == len(threads) - 2 else 1) for axis, n in enumerate(threads))

        def body(loop: t.ForTiles) -> list[Op]:
            update = Update(
                outs=outs, srcs=srcs, at=loop.at, reads=params, code=code, results=results, threads=threads,
                rows=column, grids=tuple(grids), old=tuple(params.index((name, 0)) for name, _ in op.fields),
                keep=tuple(keep(op.radius, sides) for sides in op.sides), scalars=next(iter(scalars), None),
            )  # fmt: skip
            return [update]

        func = t.Func(
            symbol=op.symbol, params=(*buffers, *scalars), blocks=tile_count((box,), size), threads=prod(threads),
            body=(tiles((box,), size, 0, body),),
        )  # fmt: skip
        written = (o.written(name, 0) for name, _ in op.fields)
        roles = (*op.roles[: len(params)], *written, *(o.SCALARS for _ in scalars))
        return replace_kernel(module, op, func, roles)


def one_step(module: Module) -> Module:
    """The module with its linear stencils as the updates that they are, of one step of the whole field each."""

    def update(op: Op) -> Op:
        if not isinstance(op, Stencil):
            return op
        if op.levels > 1 or op.box != tuple((0, n) for n in op.shape):
            raise ScheduleError(f"{op.levels} levels of {op.box}: a pass makes one step of the whole field", loc=op.loc,
                                hint="take column for several levels")  # fmt: skip
        return o.of_stencil(op)

    return replace(module, funcs=tuple(map(update, module.funcs)))


def names(wanted: list[str]) -> list[str]:
    """Names for the parameters, as wanted where they are identifiers that differ."""
    out: list[str] = []
    for name in wanted:
        new = re.sub(r"[^0-9A-Za-z_]", "_", name)
        while new in out:
            new += "_"
        out.append(new)
    return out
