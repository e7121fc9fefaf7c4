"""Spreads: which cells of a tile the registers of a block's threads stand for.

What makes an accumulator and what stores it name one spread, so that neither repeats the other's numbers and the
verifier can tell whether they fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import IRError
from .fragments import SHAPES, MmaShape
from .text import attribute


@attribute
@dataclass(frozen=True)
class Threads:
    """``shape[0]`` x ``shape[1]`` threads (rows x columns of them), each with ``per_y`` x ``per_x`` adjacent cells."""

    shape: tuple[int, int]
    per_y: int = 1
    per_x: int = 1

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the tile."""
        return self.shape[0] * self.per_y, self.shape[1] * self.per_x

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.shape[0] * self.shape[1]

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return self.per_y * self.per_x


def _base(spread: Any) -> MmaShape:
    """The mma of a spread; IRError if there is none of its name, or a number is not from 1 up."""
    for name, value in vars(spread).items():
        if name == "base" and value not in SHAPES:
            raise IRError(f"mma shape {value!r} is unknown", hint=f"one of {', '.join(SHAPES)}")
        if name != "base" and value < 1:
            raise IRError(f"{name}={value} of accumulators", hint="a number from 1 up")
    return SHAPES[spread.base]


@attribute
@dataclass(frozen=True)
class Products:
    """Accumulators of ``products`` products of ``blocks`` column blocks, as fragments of the mma ``base``.

    Product i, fragment row m, column c of block n is cell (i % ``rows``, (i // rows * M + m) * ``group`` + 8 n + c),
    where 8 n + c < group.  Product i is that of warp i // (products // ``warps``).
    """

    base: str
    products: int
    rows: int
    blocks: int
    group: int
    warps: int

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the tile."""
        columns = _base(self).m * self.group
        return self.rows, self.products // self.rows * columns

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return 32 * self.warps

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return len(_base(self).c.elements) * self.blocks * (self.products // self.warps)


@attribute
@dataclass(frozen=True)
class Strips:
    """Accumulators of ``strips`` strips of M rows, each in ``warps / strips`` parts of ``blocks`` column blocks of 8.

    They are fragments of the mma ``base``, block by block; warp i makes part i // strips of strip i % strips.
    """

    base: str
    strips: int
    blocks: int
    warps: int

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the tile."""
        return _base(self).m * self.strips, self.warps // self.strips * 8 * self.blocks

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return 32 * self.warps

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return self.blocks * len(_base(self).c.elements)


Spread = Threads | Products | Strips
