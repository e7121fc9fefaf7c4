"""The numbers of Magicube's own product: steps of a stride of vectors, digits stacked in an mma's rows, padded rows.

A step is as many vectors of a vector row as the smallest integer ``mma`` has k: 16 of digits of 8 bits, 32 of 4.  The
rows of W are that mma's rows (V of 8), and columns of x its columns: a lane reads a word of each of 4 or 8 adjacent
rows of x and turns them, so it has one register of each of the word's digits, for an mma each.
Source: Magicube (SC'22), sections 4.1 and 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..op_spmm import Digit

#: Rows of an mma, and words of a row of x that a warp multiplies by: its columns.
ROWS: Final = 8
WORDS: Final = 8
#: Bytes of x's rows that a warp multiplies by, and of a piece of one that a thread brings.
WARP_BYTES, PIECE = 4 * WORDS, 16
#: Bytes of a block's part of a row of x.
WIDTHS: Final = (32, 64, 128)
#: Words that padding leaves free behind the rows that one lane turns (section 4.2.2): then no two lanes meet in a bank.
PAD: Final = 8
#: Lanes that meet in a bank without padding: those with other rows.
MEET: Final = 4
#: The order in which a lane's 8 rows of x of 4 bits lie where columns are shuffled (section 4.2.3, figure 7).
SHUFFLED: Final = (0, 2, 4, 6, 1, 3, 5, 7)


def turned(bits: int) -> int:
    """Adjacent rows of x that a lane turns: as many digits as a register has."""
    return 32 // bits


def stride(bits: int) -> int:
    """Vectors of a step: the k of an mma."""
    return 4 * turned(bits)


def tile_words(wide: int, bits: int, pad: bool) -> int:
    """Words of a step's rows of x in shared memory."""
    return stride(bits) * wide // 4 + 4 * PAD * pad


@dataclass(frozen=True)
class Planes:
    """The digits of both operands, and the sums of a lane: two for each column of a word of x and each *kind* of sum.

    With ``stack`` digits of W share an mma whose rows vectors of ``height`` < 8 leave free: ``per`` of them make a
    *group*, and a kind is a group and a digit of x.  Otherwise it is a shift, as in :class:`.vectors.Sums`.
    """

    w_digits: tuple[Digit, ...]
    x_digits: tuple[Digit, ...]
    height: int
    stack: bool

    @property
    def bits(self) -> int:
        """Of a digit."""
        return self.x_digits[0][1].bits

    @property
    def per(self) -> int:
        """Digits of W in one mma."""
        return ROWS // self.height if self.stack else 1

    @property
    def groups(self) -> tuple[tuple[Digit, ...], ...]:
        """Digits of W, an mma's together."""
        return tuple(self.w_digits[i : i + self.per] for i in range(0, len(self.w_digits), self.per))

    @property
    def words(self) -> int:
        """Words of W's values of a step: digit by digit, row by row."""
        return 4 * self.height * len(self.w_digits)

    @property
    def columns(self) -> int:
        """Columns of x in a word."""
        return turned(self.bits) // len(self.x_digits)

    @property
    def kinds(self) -> tuple[tuple[int, int], ...]:
        """Kinds of sums: (group, shift of x), or (0, shift of both), the largest shift first."""
        if self.stack:
            return tuple((g, shift) for g in range(len(self.groups)) for shift, _ in self.x_digits)
        shifts = {w + x for w, _ in self.w_digits for x, _ in self.x_digits}
        return tuple((0, shift) for shift in sorted(shifts, reverse=True))

    def kind(self, group: int, x: Digit) -> int:
        """Which kind of sum the products of a group by a digit of x go to."""
        return self.kinds.index((group, x[0]) if self.stack else (0, self.w_digits[group][0] + x[0]))

    @property
    def size(self) -> int:
        """Sums of a lane."""
        return 2 * self.columns * len(self.kinds)

    def at(self, column: int, kind: int) -> int:
        """The first of two sums, of adjacent words of x."""
        return 2 * (column * len(self.kinds) + kind)
