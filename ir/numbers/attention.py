"""The numbers of sparse attention: steps of keys, parts of them, what a lane holds, and exponentials as small integers.

Scores and sums of products are integers that an mma adds to :data:`MAGIC`: the bits of an f32 whose last place is 1, so
that they are floats as they stand.
"""

from __future__ import annotations

from typing import Any, Final

from .arithmetic import up
from .resident import padded_rows

#: Keys of a step, the k of an integer mma; rows of a task, its n.
STEP, ROWS = 32, 8
#: Elements of a head, and steps of a block: those of which scores are made at once.
WIDTHS: Final = (32, 64, 128)
BLOCKS: Final = (1, 2, 4)
#: Rows of a vector of the mask.
HEIGHTS: Final = (2, 4, 8)
#: Bits of the exponentials.
SOFTMAX_BITS: Final = (8, 16)
#: The bits of 1.5 * 2^23 in f32, and the number itself.  Integers from -2^22 to 2^22 may be added to the bits: scores
#: of two operands of 128 elements, and sums of a block's products (4 * 32 * 255 * 128).
MAGIC: Final = 0x4B400000
MAGIC_FLOAT: Final = 12582912.0
#: 2^23: a positive number that it is added to is rounded to an integer, the low bits of the sum.
ROUND: Final = 8388608.0
#: Selectors of ``prmt``: byte 0, and byte 1, of two words side by side; the low halves of two words.
LOW, HIGH, HALVES = 0x0040, 0x0051, 0x5410
#: Bytes of a piece of a row, which one lane names to ``ldmatrix``.
PIECE: Final = 16
#: A lane's word of a step of 32 slots, a key each.  In the bits of FIRST the byte, a multiple of 16, where the piece
#: begins that the lane names of slot ``lane % 8 + lane // 16 * 8``; SECOND bits further up the same of the slot 16
#: further on; in the lowest bit whether slot ``own_slot(lane)`` has a key of the task.  Lanes from 8 and from 24 on
#: name the second piece of a row.
FIRST, SECOND = 0x3FFF0, 14
#: Keys of a part from which on it has boxes of LARGE rows: one thread asks for them all, one after another.
MANY, LARGE = 1024, 128
#: Warps of a block of the kernel that joins the parts.
JOINERS: Final = 4


def own_slot(lane: int) -> int:
    """The slot of which a lane's word says whether there is a key: the eight of t are those of lanes 8 t and on."""
    t, score = divmod(lane, 8)
    return score // 2 * 8 + 2 * t + score % 2


def part_keys(keys: int, parts: int) -> int:
    """Keys of a part, of so many: whole boxes of a copy, and large ones where there are many."""
    each = -(-keys // parts)
    return up(each, LARGE) if each >= MANY else padded_rows(each)


def part_bytes(keys: int, parts: int, d: int) -> int:
    """Shared memory of a part's keys and values."""
    return 2 * d * part_keys(keys, parts)


def length(rows: int, groups: int, warps: int) -> int:
    """Tasks of a warp, those that only fill up counted."""
    return -(-rows // (groups * warps))


def blocks_of(keys: Any, steps: int) -> Any:
    """Blocks of so many steps that tasks of so many keys have."""
    return -(-keys // (steps * STEP))
