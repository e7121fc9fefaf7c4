"""The numbers of products with vectors: digits, what a lane has of a step, and which columns its sums are.

A step is 32 vectors of one vector row, one for each row address of an ``ldmatrix.x4``: the k of an ``mma`` of integers,
or of two of floats, one after the other.  x lies k by k, its columns are the mma's rows.  The 16-byte pieces of 32 rows
of x come transposed in pairs of bytes: floats as they are multiplied, and of integers ``prmt`` takes what an operand
needs (Magicube's online transpose, section 4.3; here on whole fragments).  The 8 rows of a vector row are the mma's
columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..op_spmm import Digit
from ..types import DType, f32, s4, s8, s32, u4, u8, u16, u32

#: Vectors of a step; rows of W that a vector row has in it: the mma's columns.
STEP, HIGH = 32, 8
#: Bytes of a piece of a row of x.
PIECE: Final = 16
#: Steps behind the last one that tables have, so that lanes may load ahead of them.
SPARE: Final = 16


def digits(dtype: DType, bits: int = 8, *, of: int = 0, alike: bool = False) -> tuple[Digit, ...]:
    """An integer type as digits of ``bits`` bits, 4 or 8, the highest first; one of fewer bits is its own digit, as a
    float is.

    The highest digit has the sign, others have none; ``alike``: all are signed, from -2^(bits - 1) on.  ``of``: how
    many bits of the type are taken, if not all.
    """
    if dtype.bits <= bits or not dtype.is_int:
        return ((0, dtype),)
    top, low = ((s4, u4) if bits == 4 else (s8, u8)) if dtype.kind == "int" else ((u4, u4) if bits == 4 else (u8, u8))
    count = -(-(of or dtype.bits) // bits)
    return tuple((bits * i, top if alike or i == count - 1 else low) for i in reversed(range(count)))


def item(x_digits: tuple[Digit, ...]) -> int:
    """Bytes of an element of x's array: one of integers of 4 bits, of which it has two."""
    return max(8, sum(digit.bits for _, digit in x_digits)) // 8


def depth(digit: DType) -> int:
    """Vectors that an mma takes: its k."""
    return STEP if digit.is_int else STEP // 2


def number_type(k: int) -> DType:
    """The type that numbers of ``k`` rows of x are listed in."""
    return u16 if k <= 1 << 16 else u32


def words(w_digits: tuple[Digit, ...]) -> int:
    """32-bit words that a lane has of W's values of a step: 8 values, of each digit."""
    return sum(digit.bits for _, digit in w_digits) // 4


def spread(digit: DType) -> DType:
    """The type as which a digit is multiplied: one of 4 bits as 8, 16 times as large."""
    return (s8 if digit.kind == "int" else u8) if digit.bits == 4 else digit


@dataclass(frozen=True)
class Sums:
    """The sums of a lane: of each *unit* of x's columns, its fragments, and in these each shift of digits.

    ``units``: of 16 bytes of x, or 32 where x has two bytes an element.  Element e of fragment f of unit u at shift s
    is sum ``((u * fragments + f) * len(shifts) + s) * 4 + e``; elements 0 and 2 are of the lane's first row of W, 1 and
    3 of the row after.
    """

    w_digits: tuple[Digit, ...]
    x_digits: tuple[Digit, ...]
    units: int

    @staticmethod
    def of(w_digits: tuple[Digit, ...], x_digits: tuple[Digit, ...], row_bytes: int) -> Sums:
        """Those of so many bytes of a row of x."""
        return Sums(w_digits, x_digits, row_bytes // (PIECE * item(x_digits)))

    @property
    def dtype(self) -> DType:
        """The type of the sums."""
        return s32 if self.x_digits[0][1].is_int else f32

    @property
    def shifts(self) -> tuple[int, ...]:
        """By how many bits sums are shifted before they are added, the largest first."""
        return tuple(sorted({w + x for w, _ in self.w_digits for x, _ in self.x_digits}, reverse=True))

    @property
    def fragments(self) -> int:
        """Fragments of 16 columns of a unit."""
        return 2 if self.x_digits[0][1].bits == 4 else 1

    @property
    def columns(self) -> int:
        """Columns of a unit."""
        return 16 * self.fragments

    @property
    def size(self) -> int:
        """Sums of a lane."""
        return self.units * self.fragments * len(self.shifts) * 4

    @property
    def slot(self) -> int:
        """Sums of a warp, which a slot has place for where vector rows are cut."""
        return 32 * self.size

    @property
    def parts(self) -> int:
        """Products of a step that follow one another: of all its vectors, or of half of them."""
        return STEP // depth(self.x_digits[0][1])

    @property
    def products(self) -> int:
        """``mma`` of a step."""
        return self.units * self.fragments * len(self.w_digits) * len(self.x_digits) * self.parts

    @property
    def over(self) -> int:
        """By how many bits sums are too large: 4 for each operand of 4 bits."""
        return sum(4 for side in (self.w_digits, self.x_digits) if side[0][1].bits == 4)

    def at(self, unit: int, fragment: int, shift: int) -> int:
        """The first sum of a fragment."""
        return ((unit * self.fragments + fragment) * len(self.shifts) + shift) * 4

    @property
    def runs(self) -> tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]:
        """Adjacent columns of a unit that a lane has, as (first, by, ((fragment, half), ...)).

        The first one of lane group g is ``first + by * g``; half h has elements 2 h and 2 h + 1.
        """
        if item(self.x_digits) == 2:  # pieces of 8 columns each
            return (0, 1, ((0, 0),)), (8, 1, ((0, 1),))
        if self.fragments == 2:  # the low and high half of each byte are neighbours
            return ((0, 4, ((0, 0), (1, 0), (0, 1), (1, 1))),)
        return ((0, 2, ((0, 0), (0, 1))),)
