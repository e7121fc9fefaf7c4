"""The op level of sparse attention: softmax of the scores that a mask keeps, times the values; the softmax alone."""

from __future__ import annotations

from .checks import Context, check
from .node import Op, attr, define
from .numbers.attention import HEIGHTS, SOFTMAX_BITS, WIDTHS
from .op_spmm import Binds


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


@define("op.softmax")
class Softmax(Op):
    """The softmax of each row of integer scores, s32: exponentials, and what each row of their products is worth, f32.

    Scores are ``stored`` of vectors of ``height`` rows, ``m`` rows in all, as ``op.sddmm`` leaves them in blocks of 16;
    a ``batch`` of such matrices has one pattern.  A score is worth a q_scale times a k_scale over sqrt(``d``).
    Exponentials are integers of ``bits`` bits, as ``op.spmm`` reads values of its W, digits of 8 bits apart.  A row is
    worth a v_scale over the sum of its exponentials, 0 without any.  ``fresh``: it may begin while the launch before
    ends, which makes what it reads.  ``binds``: as of ``op.spmm``.
    """

    symbol: str = attr()
    m: int = attr()
    height: int = attr()
    stored: int = attr()
    d: int = attr()
    bits: int = attr(default=8)
    batch: int = attr(default=1)
    fresh: bool = attr(default=False)
    binds: Binds = attr(default=())


@check(Softmax)
def _softmax(op: Softmax, ctx: Context) -> None:
    ctx.need(min(op.batch, op.m, op.stored) >= 1, f"a batch of {op.batch} softmaxes of {op.m} rows")
    ctx.one_of(op.height, HEIGHTS, "rows of a vector")
    ctx.need(op.stored % (16 * op.height) == 0, f"{op.stored} scores are no whole blocks of 16 vectors")
    ctx.one_of(op.d, WIDTHS, "elements of a head")
    ctx.one_of(op.bits, SOFTMAX_BITS, "bits of the exponentials")
