"""The numbers of records: 16 bytes that nobody sees in parts, three words of 32 bits and the tag of a round.

A warp that gives a line away packs it into as few as it can, since L2 moves what blocks exchange: a lane's words go
into its own records, three into each.  A single one left over goes with those of the two lanes beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Words of a record, with the tag and without.
RECORD: Final = 4
WORDS: Final = RECORD - 1
#: Records of what is left over of a line's 32 lanes: one more than they take, so that lines begin at whole sectors.
_LEFT: Final = 12
#: Records that a thread asks for at the same time: they are in its registers meanwhile.
AT_ONCE: Final = 12


@dataclass(frozen=True)
class Records:
    """Those of a line whose lanes have ``words`` words each."""

    words: int

    @classmethod
    def of(cls, cells: int, bits: int) -> Records:
        """Those of lines whose lanes have so many cells of ``bits`` each; one of 16 bits takes a word, too."""
        return cls(cells * max(1, bits // 32))

    @property
    def own(self) -> int:
        """Records that a lane has alone; the last one holds two words where two are left over."""
        return (self.words + 1) // WORDS

    @property
    def beside(self) -> bool:
        """Whether a word is left over: word ``lane % 3`` of the line's record ``32 * own + lane // 3``."""
        return self.words % WORDS == 1

    @property
    def asked(self) -> int:
        """Records that a lane asks for."""
        return self.own + self.beside

    @property
    def size(self) -> int:
        """Records of a line."""
        return 32 * self.own + _LEFT * self.beside

    @property
    def lines_at_once(self) -> int:
        """Lines that a warp asks for at the same time."""
        return max(1, AT_ONCE // self.asked)
