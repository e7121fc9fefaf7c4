"""``copy-field``: an array copied row by row to another pitch, with ghosts where the copy has some."""

from __future__ import annotations

from dataclasses import dataclass

from .. import op_update as o
from .. import tile as t
from ..errors import ScheduleError
from ..module import Module
from ..passes.manager import register
from ..tile_update import CopyField as Copy
from ..types import Buffer
from .common import each, replace_kernel


@register("copy-field")
@dataclass(frozen=True)
class CopyField:
    """Turns an update that hands its field on as it is into a copy by ``threads`` a block, ``lines`` rows a thread: so
    many loads are under way that memory is busy.

    Roles of its launch: ``in.NAME.0`` and ``out.NAME``.
    """

    threads: int = 256
    lines: int = 8

    def run(self, module: Module) -> Module:
        return each(module, o.Update, self._kernel)

    def _kernel(self, module: Module, op: o.Update) -> Module:
        (name, _), *_ = op.fields
        if op.code != (("read", name, 0, (0,) * len(op.shape)),) or op.levels > 1:
            raise ScheduleError(f"{op.symbol} does more than hand its one field on", loc=op.loc,
                                hint="direct does any formula")  # fmt: skip
        roles = f"in.{name}.0", o.written(name, 0)
        given, made = (op.grids[role] for role in roles)
        src = Buffer(name, op.dtype, given.size, "global")
        dst = Buffer(f"{name}_new", op.dtype, made.size, "global")
        copy = Copy(dst=dst, src=src, grids=(given, made), lines=self.lines)
        func = t.Func(
            symbol=op.symbol, params=(src, dst), blocks=-(-copy.items // self.threads), threads=self.threads,
            body=(copy,),
        )  # fmt: skip
        return replace_kernel(module, op, func, roles)
