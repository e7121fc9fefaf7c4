"""Four lanes that hold parts of one another's rows exchange them, so that each has whole ones."""

from __future__ import annotations

from collections.abc import Sequence

from ..expr import Expr, Value
from ..types import DType, u16
from .context import Context

#: Lanes of a quad: those that have a row of an 8x8 matrix between them.
QUAD = 4


def exchanged(cx: Context, words: Sequence[Value], lane: Expr) -> list[Value]:
    """Lane q of a quad, ``lane``, has word q of each of four items, and gets all words of item q.

    A transposition of 4 x 4, in two rounds of exchanges.
    """
    b, words = cx.b, list(words)
    for far in (1, 2):
        odd = b.let("odd", (lane & far).ne(0))
        for z in (0, 1):
            low, high = (2 * z, 2 * z + 1) if far == 1 else (z, z + 2)
            sent = b.select(odd, words[low], words[high])
            got = b.shfl("xor", sent, far)
            words[low], words[high] = b.select(odd, got, words[low]), b.select(odd, words[high], got)
    return words


def words(cx: Context, pairs: Sequence[Sequence[Value]], dtype: DType) -> list[Value]:
    """Pairs of values as elements of 16 bits, a word each, the first one low."""
    bits = [[cx.b.bitcast(cx.convert(v, dtype), u16) for v in two] for two in pairs]
    return [cx.b.pack(low, high, hint="two") for low, high in bits]


def halves(cx: Context, words: Sequence[Value], dtype: DType) -> list[Value]:
    """The elements of 16 bits that words have, the low one first."""
    b = cx.b
    parts = (part for word in words for part in (b.binary("and", word, 0xFFFF), b.binary("shr", word, 16)))
    return [b.bitcast(b.convert(part, u16), dtype) for part in parts]
