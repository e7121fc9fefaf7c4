"""What all ops that store a product's sums have."""

from __future__ import annotations

from .node import Op, attr, base, buffer
from .op_spmm import ACTIVATIONS, ORDERS
from .types import Buffer


@base
class Store(Op):
    """Base of ops that store sums to y [m, n]: ``activation(scale * sum + bias) + residual``.

    Rows from ``m`` and columns from ``n`` on do not exist.  ``scale`` and ``bias`` have an element a row; the residual
    lies as y does, by ``order``.
    """

    out: Buffer = buffer(writes=True, reads=False)
    scale: Buffer | None = buffer()
    bias: Buffer | None = buffer()
    residual: Buffer | None = buffer()
    m: int = attr()
    n: int = attr()
    order: str = attr(one_of=ORDERS)
    activation: str = attr(one_of=ACTIVATIONS)
