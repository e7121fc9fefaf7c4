"""The decode of 8-bit elements in bitmap tiles: bytes spread as those of planes are, then widened to f16.

A lane's eight elements of a fragment lie in eight bytes at most, so three words hold them wherever they begin, and the
second four are a permutation of what the shifts have made already.  A row of four then costs one permute to spread
them and, for the two registers of f16:

- s8: two permutes and two additions.  An integer is stored as v + 128, which under the high byte 0x64 is the f16
  1024 + 128 + v; what is left out becomes the byte 128, and so 0.
- e5m2: two permutes with zero: it is the high byte of an f16, NaN and infinities too.
- e4m3: two conversions of PTX and a shift, which keep NaN.  Moving bits costs six, makes numbers of NaN, and leaves a
  factor of 256.
"""

from __future__ import annotations

from ..expr import Value
from ..types import Buffer, DType, e4m3, e5m2, s8, u16
from .context import Context

#: A register of two f16.
Pair = tuple[Value, Value]
#: ``count * LATER + FIRST``: the selector of the four bytes that begin so many further on.
LATER, FIRST = 0x1111, 0x3210
#: What an element that is left out is stored as, four of them.
ABSENT = {s8: 0x80808080, e4m3: 0, e5m2: 0}
#: Selectors that put bytes 0 and 1, and 2 and 3, below a byte of the second register; and above one.
BELOW, ABOVE = (0x4140, 0x4342), (0x1404, 0x3424)
#: The high byte of 1024 .. 1279 in f16, four of them; -1152 twice.
THOUSAND, OFFSET = 0x64646464, 0xE480E480


def rows(
    cx: Context, ring: Buffer, at: Value, upper: Value, spread: tuple[Value, Value], narrow: DType
) -> tuple[Pair, Pair]:
    """The lane's elements of a fragment, which begin at byte ``at`` of the ring: those of row g, then of row g + 8.

    ``upper`` has a bit for each one of row g; ``spread`` are the selectors that put four bytes, zeros among them, where
    the elements of a row are.
    """
    b = cx.b
    # 32 lanes have 256 bytes of a fragment at most, twice what the banks hold
    words = [b.ld(ring, at // 4 + i, hint="bytes", degree=2) for i in range(3)]
    shift = b.binary("shl", at, 3, hint="shift")
    low, high = (b.funnel(words[i], words[i + 1], shift, hint="bytes") for i in (0, 1))
    count = b.unary("popc", upper, hint="ones")
    later = b.prmt(low, high, b.binary("add", b.binary("mul", count, LATER), FIRST, hint="sel"), hint="bytes")
    fours = (b.prmt(ABSENT[narrow], v, sel, hint="four") for v, sel in zip((low, later), spread, strict=True))
    first, second = (_widened(cx, four, narrow) for four in fours)
    return first, second


def _widened(cx: Context, four: Value, narrow: DType) -> Pair:
    """Four elements as f16, two a register."""
    b = cx.b
    if narrow is e4m3:
        low, high = (b.convert(v, u16) for v in (four, b.binary("shr", four, 16)))
        return b.widen_e4m3(low, hint="pair"), b.widen_e4m3(high, hint="pair")
    if narrow is e5m2:
        first, second = (b.prmt(four, 0, sel, hint="pair") for sel in ABOVE)
        return first, second
    first, second = (b.add_f16x2(b.prmt(four, THOUSAND, sel, hint="raised"), OFFSET, hint="pair") for sel in BELOW)
    return first, second
