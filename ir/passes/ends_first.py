"""``ends-first``: blocks at both ends of the first axis come first, and a counter says when they are done.

For halos: what a neighbour needs lies there, and can travel while the rest of the launch runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import tile as t
from ..module import Launch, Module
from ..node import Op
from ..op import tile_counts
from ..types import Buffer, u32
from .manager import register

#: The role of the counter.
TOLD = "told"


@register("ends-first")
@dataclass(frozen=True)
class EndsFirst:
    """Of a tile module with one launch over the tiles of one box, a tile a block; any other one stays as it is.

    ``cells``: how many on the first axis, at either end, others wait for.  Where these lie in all tiles there is
    nothing that could come later, and the module stays as it is.
    """

    cells: int = 1

    def run(self, module: Module) -> Module:
        if (found := _loop(module)) is None:
            return module
        func, loop = found
        (low, high), size = loop.boxes[0][0], loop.size[0]
        tiles = tile_counts(loop.boxes[0], loop.size)[0]
        begin = -(-self.cells // size)
        end = tiles - max(0, high - low - self.cells) // size
        if begin + end >= tiles:
            return module
        told = Buffer(TOLD, u32, 1, "global")

        def early(op: Op) -> Op:
            return replace(op, early=(end, begin), told=told) if op is loop else op

        func_new = replace(func, params=(*func.params, told), body=tuple(map(early, func.body)))
        (launch,) = module.launches
        return replace(module, funcs=(func_new,), launches=(Launch(launch.symbol, (*launch.args, TOLD)),))


def told_by(module: Module) -> int:
    """How much the counter grows in a launch of a tile module; 0 where there is none."""
    found = _loop(module)
    return found[1].first if found is not None and found[1].told is not None else 0


def _loop(module: Module) -> tuple[t.Func, t.ForTiles] | None:
    """The only kernel of a module and its only loop over tiles, if each block has one of one box."""
    if len(module.funcs) != 1 or len(module.launches) != 1 or not isinstance(func := module.funcs[0], t.Func):
        return None
    loops = [op for op in func.body if isinstance(op, t.ForTiles)]
    fits = len(loops) == 1 and not loops[0].stride and len(loops[0].boxes) == 1
    return (func, loops[0]) if fits else None
