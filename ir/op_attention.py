"""The op level of sparse attention: softmax of the scores that a mask keeps, times the values."""

from __future__ import annotations

from .checks import Context, check
from .node import Op, attr, define
from .numbers.attention import HEIGHTS, SOFTMAX_BITS, WIDTHS


@define("op.attention")
class Attention(Op):
    """``softmax(q k^T / sqrt(d) where the mask is) v`` of each head, f16: q [heads, queries, d], k, v [heads, keys, d].

    The mask keeps vectors of ``height`` queries and one key; a query that sees no key gets 0.  Products are those of
    8-bit integers.  With ``quantized`` q, k and v are such, each with one f32 scale, else they are f16, and quantised
    first to ``bits`` bits.  The exponentials are rounded to ``softmax_bits`` bits below the largest of a row.
    """

    symbol: str = attr()
    heads: int = attr()
    queries: int = attr()
    keys: int = attr()
    d: int = attr()
    height: int = attr(default=8)
    quantized: bool = attr(default=False)
    bits: int = attr(default=8)
    softmax_bits: int = attr(default=8)

    @property
    def rows(self) -> int:
        """Vector rows of the mask."""
        return -(-self.queries // self.height)


@check(Attention)
def _attention(op: Attention, ctx: Context) -> None:
    ctx.need(min(op.heads, op.queries, op.keys) >= 1, f"{op.heads} heads of {op.queries} queries and {op.keys} keys")
    ctx.one_of(op.d, WIDTHS, "elements of a head")
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    ctx.one_of(op.bits, (4, 8), "bits")
    ctx.one_of(op.softmax_bits, SOFTMAX_BITS, "bits of the exponentials")
