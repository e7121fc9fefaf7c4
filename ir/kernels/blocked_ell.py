"""``blocked_ell``: a product with dense tiles in Blocked-ELL and other entries, made of two, one behind the other.

BSA-SpMM (Euro-Par 2024, section 4) multiplies dense tiles on tensor cores by one library call and the rest on CUDA
cores by another, and adds up both.  Here sums are rounded once all the same: they stay in f32 between the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import op_spmm as o
from ..module import Module
from ..passes.manager import register
from .common import each


@register("blocked_ell")
@dataclass(frozen=True)
class BlockedEll:
    """The product becomes one with dense tiles alone, and one with compressed rows on top of its sums.

    Passes after this one make kernels of them, in their order.  ``tiles``: whether any tile is dense; without, or
    without other entries, it becomes one product.  Roles of the launches besides those of both: ``ws.sums``.
    """

    tiles: bool = True

    def run(self, module: Module) -> Module:
        return each(module, o.Spmm, self._ops, formats=("blocked_ell",))

    def _ops(self, module: Module, op: o.Spmm) -> Module:
        tiles, rest = replace(op, format="hybrid", entries=0), replace(op, format="csr")
        ops: tuple[o.Spmm, ...] = (tiles,) if self.tiles else (rest,)
        if self.tiles and op.entries:
            first = replace(
                tiles, symbol=f"{op.symbol}_tiles", y_type=op.sums, y_order="row", bias=False, scale=False,
                residual=False, activation="none", binds=(("out", "ws.sums"),),
            )  # fmt: skip
            second = replace(rest, symbol=f"{op.symbol}_rest", onto=True, binds=(("sums", "ws.sums"),))
            ops = (first, second)
        funcs = tuple(x for f in module.funcs for x in (ops if f is op else (f,)))
        return Module(module.name, funcs, module.launches, module.constants)
