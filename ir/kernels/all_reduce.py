"""``all-reduce``: small arrays are summed over GPUs in one launch: each writes its part to all others, with a tag.

Nobody waits for a fence or a flag: a number's tag comes with it, and so the sum takes one way between GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import op_all_reduce as o
from .. import tile as t
from .. import tile_all_reduce as ta
from ..module import Module
from ..passes.manager import register
from ..types import Buffer, s32, u32, u64
from .common import each, replace_kernel


@register("all-reduce")
@dataclass(frozen=True)
class AllReduceKernel:
    """``blocks`` blocks of ``warps`` warps, all of which run at the same time.

    Roles of the launch: ``in`` and ``out``; ``theirs.RANK``, the buffer of each GPU, which begins as zeros;
    ``workspace.kept.epoch``, a number for each block, which begins as zeros and stays as a launch leaves it; constant
    ``words``, how many pieces of 8 bytes there are.
    """

    blocks: int = 64
    warps: int = 16

    def run(self, module: Module) -> Module:
        return each(module, o.AllReduce, self._kernel)

    def _kernel(self, module: Module, op: o.AllReduce) -> Module:
        params = {
            "in": Buffer("src", u64, op.most, "global"),
            "out": Buffer("dst", u64, op.most, "global"),
            **{f"theirs.{i}": Buffer(f"theirs{i}", u64, op.room, "global", 16) for i in range(op.ranks)},
            "workspace.kept.epoch": Buffer("epoch", u32, self.blocks, "global"),
            f"{op.symbol}.words": Buffer("words", s32, 1, "param"),
        }
        src, dst, *theirs, epoch, words = params.values()
        body = ta.AllReduce(
            src=src, dst=dst, theirs=tuple(theirs), epoch=epoch, words=words, dtype=op.dtype, rank=op.rank,
            patience=op.patience,
        )  # fmt: skip
        func = t.Func(
            symbol=op.symbol, params=tuple(params.values()), blocks=self.blocks, threads=32 * self.warps, body=(body,),
            together=True,
        )  # fmt: skip
        return replace_kernel(module, op, func, params, {f"{op.symbol}.words": np.array([op.most], np.int32)})
