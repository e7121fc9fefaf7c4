"""``pointwise``: general updates on the CUDA cores, a short column of cells a thread, neighbours through the caches."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod

from .. import formula
from .. import op_update as o
from .. import tile as t
from .. import tile_update as tu
from ..module import Launch, Module
from ..node import Op
from ..passes.manager import register
from ..types import Buffer
from .common import tile_count, tiles


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
        for op in module.funcs:
            if isinstance(op, o.Update):
                module = self._kernel(module, op)
        return module

    def _threads(self, ndim: int) -> tuple[int, ...]:
        """Threads of a block on each axis; on one axis all are in a row."""
        return (self.rows * self.cols * self.planes,) if ndim == 1 else (self.planes, self.rows, self.cols)[-ndim:]

    def _kernel(self, module: Module, op: o.Update) -> Module:
        params = o.parameters(op.fields, op.coefs)
        names = _names([*(f"{n}_{level}" if level else n for n, level in params), *(f"{n}_new" for n, _ in op.fields)])
        buffers = tuple(
            Buffer(name, op.dtype, prod(op.shape[:-1]) * pitch, "global")
            for name, pitch in zip(names, op.pitch, strict=True)
        )
        srcs, outs = buffers[: len(params)], buffers[len(params) :]
        of_field = {name: sides for (name, _), sides in zip(op.fields, op.sides, strict=True)}
        code, results = formula.contract(op.code, op.results)
        threads, box = self._threads(len(op.shape)), tuple((0, n) for n in op.shape)
        column = self.column if len(op.shape) > 1 else 1
        size = tuple(n * (column if axis == len(threads) - 2 else 1) for axis, n in enumerate(threads))

        def body(loop: t.ForTiles) -> list[Op]:
            return [
                tu.Update(
                    outs=outs, srcs=srcs, at=loop.at, reads=params, code=code, results=results, threads=threads,
                    rows=column, extent=op.shape, pitch=op.pitch,
                    sides=tuple(of_field.get(name, op.coef_sides) for name, _ in params),
                    old=tuple(params.index((name, 0)) for name, _ in op.fields),
                    keep=tuple(_keep(op, field) for field in range(len(outs))), loc=op.loc,
                )
            ]  # fmt: skip

        loop = tiles((box,), size, 0, body, op.loc)
        func = t.Func(
            symbol=op.symbol, params=buffers, blocks=tile_count((box,), size), threads=prod(threads), body=(loop,),
            loc=op.loc,
        )  # fmt: skip
        roles = (*(f"in.{name}.{level}" for name, level in params), *(f"out.{name}" for name, _ in op.fields))
        funcs = tuple(func if f is op else f for f in module.funcs)
        return replace(module, funcs=funcs, launches=(*module.launches, Launch(op.symbol, roles)))


def _keep(op: o.Update, field: int) -> tuple[tuple[int, int], ...]:
    """How many cells from each border a field keeps."""
    return tuple(
        (r if low[0] == "frozen" else 0, r if high[0] == "frozen" else 0)
        for r, (low, high) in zip(op.radius, op.sides[field], strict=True)
    )


def _names(wanted: list[str]) -> list[str]:
    """Names for the parameters, as wanted where they are identifiers that differ."""
    out: list[str] = []
    for name in wanted:
        new = re.sub(r"[^0-9A-Za-z_]", "_", name)
        while new in out:
            new += "_"
        out.append(new)
    return out
