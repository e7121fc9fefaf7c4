"""Which column blocks the rows of a matrix touch, how often, and how dispersed that makes each row (BSA-SpMM, 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from sparsegen.formats.library import Library
from sparsegen.formats.rows import Rows
from sparsegen.ir.types import s64

Variant = Literal["paper", "artifact"]
VARIANTS: Final[tuple[Variant, ...]] = ("paper", "artifact")


@dataclass(frozen=True, eq=False)
class Blocks:
    """The paper's encodings: for each row, in ascending order, the blocks of ``tile`` columns that hold entries.

    ``row``, ``block``, ``count``: int64, one each for every block that a row touches, row by row; ``count`` are the
    entries in it.  ``shape``: of the matrix; the last block may be short.
    """

    library: Library
    shape: tuple[int, int]
    tile: int
    row: Any
    block: Any
    count: Any

    @property
    def across(self) -> int:
        """Column blocks of the matrix, a short last one counted."""
        return -(-self.shape[1] // self.tile)

    def starts(self) -> Any:
        """The first entry of each row, and behind the last row all of them: int64 [rows + 1]."""
        lib = self.library
        ptr = lib.zeros((self.shape[0] + 1,), "int64")
        ptr[1:] = lib.cumsum(lib.xp.bincount(self.row, minlength=self.shape[0]))
        return ptr


def encoded(rows: Rows, tile: int) -> Blocks:
    """The blocks of ``tile`` columns that rows touch."""
    lib = rows.library
    across = -(-rows.shape[1] // tile)
    key, count = runs(lib, rows.of_entries() * across + rows.idx // tile)
    return Blocks(lib, rows.shape, tile, key // max(1, across), key % max(1, across), count)


def runs(lib: Library, keys: Any) -> tuple[Any, Any]:
    """Of ascending keys those that differ, and how often each comes: int64."""
    begins = first_of_runs(lib, keys)
    return keys[begins], _ends(lib, begins, int(keys.shape[0])) - begins


def _ends(lib: Library, begins: Any, count: int) -> Any:
    """Where runs of so many keys end, from where they begin."""
    ends = lib.zeros((int(begins.shape[0]),), "int64")
    ends[:-1] = begins[1:]
    ends[-1:] = count
    return ends


def first_of_runs(lib: Library, keys: Any) -> Any:
    """The places, int64, where keys differ from the one before; the first place is one."""
    changes = lib.zeros((keys.shape[0],), "bool")
    changes[:1] = True
    changes[1:] = keys[1:] != keys[:-1]
    return lib.columns(changes.reshape(1, -1))


def dispersion(blocks: Blocks, variant: Variant = "paper") -> Any:
    """How scattered each row's entries are, int64 [rows]: ``tile * nnzb + zf``; 0 for an empty row.

    ``nnzb``: the blocks that the row touches; ``zf``: the zeros in them, of a short last block those that it has.  The
    authors' code has ``nnz * nnzb + zf`` instead, and counts a short last block as a whole one: ``"artifact"``.
    """
    lib, tile = blocks.library, blocks.tile
    touched, entries = (_sums(blocks, count) for count in (None, blocks.count))
    if variant == "artifact":
        return entries * touched + tile * touched - entries
    short = (blocks.block == blocks.across - 1) * (blocks.across * tile - blocks.shape[1])
    return 2 * tile * touched - entries - lib.cast(_sums(blocks, short), s64)


def _sums(blocks: Blocks, weights: Any) -> Any:
    """The sum over each row's blocks of whole numbers, int64; without any, how many there are."""
    lib = blocks.library
    return lib.cast(lib.xp.bincount(blocks.row, weights, blocks.shape[0]), s64)  # floats sum whole numbers exactly


def ascending(blocks: Blocks, variant: Variant = "paper") -> tuple[Any, int]:
    """The rows by ascending dispersion, of equal ones the first first, int64 [rows]; and how many empty ones begin."""
    scattered = dispersion(blocks, variant)
    return blocks.library.order(scattered), int((scattered == 0).sum())


def held_by_tiles(blocks: Blocks, place: Any) -> Any:
    """The entries of each tile x tile piece of the matrix that has any, int64, with each row at its ``place``."""
    lib = blocks.library
    keys = place[blocks.row] // blocks.tile * blocks.across + blocks.block
    order = lib.order(keys)
    begins = first_of_runs(lib, keys[order])
    sums = lib.zeros((int(keys.shape[0]) + 1,), "int64")
    sums[1:] = lib.cumsum(blocks.count[order])
    return sums[_ends(lib, begins, int(keys.shape[0]))] - sums[begins]
