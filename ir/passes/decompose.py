"""``decompose``: integers as digits that tensor cores multiply, short ones, and floats, as one digit.

a = 2^8 * a1 + a0 with a signed high digit (of a signed a) and an unsigned low one, so a product is one of digits for
each pair, shifted by the sum of both shifts; digits of 4 bits likewise.  Source: Magicube (SC'22), section 4.4, mixed
precision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import op_spmm as o
from ..module import Module
from ..node import Op
from ..numbers.vectors import digits
from .manager import register


@register("decompose")
@dataclass(frozen=True)
class Decompose:
    """Says of every product with vectors which digits its operands have: of ``bits`` bits, 4 or 8.

    ``of``: how many bits W's type has values of, if not all.  ``alike``: all digits of W have a sign, as those must
    that one mma multiplies.
    """

    bits: int = 8
    of: int = 0
    alike: bool = False

    def run(self, module: Module) -> Module:
        def decomposed(op: Op) -> Op:
            if not isinstance(op, o.Spmm) or op.format not in o.VECTORS:
                return op
            w = digits(op.dtype, self.bits, of=self.of, alike=self.alike)
            return replace(op, w_digits=w, x_digits=digits(op.x_type or op.dtype, self.bits))

        return replace(module, funcs=tuple(decomposed(op) for op in module.funcs))
