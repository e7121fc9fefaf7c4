"""Pairs of f16 in a register: two 8-bit floats widened to them, and two sums at once."""

from __future__ import annotations

from .expr import Expr, Value
from .node import Op, define, operand, result


@define("warp.widen_e4m3")
class WidenE4m3(Op):
    """Two e4m3 of a u16 as two f16 of a u32, exactly, the low byte in the low half; a NaN becomes the NaN 0x7fff.

    PTX ``cvt.rn.f16x2.e4m3x2``, which GPUs have from sm_89 on.
    """

    out: tuple[Value] = result()
    a: Expr = operand()


@define("warp.add_f16x2")
class AddF16x2(Op):
    """The sums of two f16 each, half by half of a u32, rounded to nearest even; any NaN is 0x7fff.

    PTX ``add.rn.f16x2``.
    """

    out: tuple[Value] = result()
    a: Expr = operand()
    b: Expr = operand()
