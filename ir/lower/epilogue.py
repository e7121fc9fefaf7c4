"""What becomes of a product's sums: ``activation(scale * sum + bias)``, value by value."""

from __future__ import annotations

from ..expr import Expr, Value
from ..tile_store import Store
from ..types import Buffer, DType, f32
from .context import Context

#: sqrt(2 / pi) and the cubic term of gelu's tanh form.
GELU, CUBIC = 0.7978845608028654, 0.044715


def of_row(cx: Context, buf: Buffer | None, row: Expr, sums: DType = f32) -> Value | None:
    """A row's element of ``scale`` or ``bias`` in the type of the sums; None if the product has none."""
    return None if buf is None else cx.b.convert(cx.b.ld(buf, row, cache="nc"), sums)


def finish(cx: Context, total: Value, scale: Value | None, bias: Value | None, activation: str) -> Value:
    """The sum ``total`` after scale, bias and activation, all in its type."""
    b = cx.b
    v = total if scale is None else b.binary("mul", total, scale)
    return _activate(cx, v if bias is None else b.binary("add", v, bias), activation)


def put(cx: Context, op: Store, vals: list[Value], at: Expr, here: Expr) -> None:
    """Adds the residual to adjacent elements of y, where ``here`` holds, and stores them."""
    b = cx.b
    if op.residual is not None:
        more = b.ldv(op.residual, at, len(vals), where=here, hint="r")
        vals = [b.binary("add", v, cx.convert(r, f32)) for v, r in zip(vals, more, strict=True)]
    b.st(op.out, at, *(cx.convert(v, op.out.dtype) for v in vals), where=here)


def _activate(cx: Context, v: Value, name: str) -> Value:
    """relu keeps NaN; gelu in its tanh form; silu = v / (1 + exp(-v))."""
    b = cx.b
    if name == "relu":
        zero = b.const(v.dtype, 0.0)
        return b.select(b.compare("lt", v, zero), zero, v)
    if name == "gelu":
        cube = b.binary("mul", b.binary("mul", v, v), b.binary("mul", v, b.const(v.dtype, CUBIC)))
        inner = b.unary("tanh", b.binary("mul", b.binary("add", v, cube), b.const(v.dtype, GELU)))
        half = b.binary("mul", v, b.const(v.dtype, 0.5))
        return b.fma(half, inner, half)
    if name == "silu":
        one = b.const(v.dtype, 1.0)
        return b.binary("div", v, b.binary("add", one, b.unary("exp", b.unary("neg", v))))
    return v
