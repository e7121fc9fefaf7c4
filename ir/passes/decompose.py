"""``decompose``: integers of 16 bits as digits of 8, which tensor cores multiply, and shorter ones as one digit.

a = 2^8 * a1 + a0 with a signed high digit (of a signed a) and an unsigned low one, so a product is one of digits for
each pair, shifted by the sum of both shifts.  Source: Magicube (SC'22), section 4.4, mixed precision.
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
    """Says of every product of integers which digits its operands have."""

    def run(self, module: Module) -> Module:
        def decomposed(op: Op) -> Op:
            if not isinstance(op, o.Spmm) or not op.integers or op.x_type is None:
                return op
            return replace(op, w_digits=digits(op.dtype), x_digits=digits(op.x_type))

        return replace(module, funcs=tuple(decomposed(op) for op in module.funcs))
