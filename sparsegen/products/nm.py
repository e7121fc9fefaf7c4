"""A product with an N:M pattern: its numbers, and the arrays that its kernels on CUDA cores read of the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sparsegen.formats.library import Library
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import Nm
from sparsegen.ir.errors import FormatError
from sparsegen.ir.numbers.nm import LANES, Chunks, chunks, groups
from sparsegen.ir.numbers.strips import Turn, turn_of
from sparsegen.ir.types import u32
from sparsegen.products.nm_fours import fours
from sparsegen.products.nm_strips import unions
from sparsegen.products.nm_tiles import steps_of
from sparsegen.products.product import OfProduct, Product
from sparsegen.sizes import MAX_CELLS


@dataclass(frozen=True)
class NmNumbers(OfProduct):
    """A product in numbers: ``pattern`` is n, m and the rows and columns of a block; bytes of W's arrays, and of bias,
    scale and residual; ``turns``: of 64 columns that tiles of 64 rows take, and of 128 rows; ``columns``: x and y come
    by columns; ``fours``: whether every aligned 4 columns keep at most 2; ``unions``: the most columns that so many
    rows keep in so many windows, (rows, windows, columns)."""

    m: int
    k: int
    n: int
    dtype: str
    pattern: tuple[int, int, int, int]
    nbytes: int
    operands: int
    turns: tuple[int, int]
    columns: bool = False
    fours: bool = False
    unions: tuple[tuple[int, int, int], ...] = ()

    @property
    def runs(self) -> tuple[tuple[int, ...], ...]:
        """Adjacent elements of x and y in the order in which they come; a single column has none."""
        return ((self.k, self.m) if self.columns else (self.n,) if self.n > 1 else (),)

    @staticmethod
    def of(product: Product) -> NmNumbers:
        """The numbers of a product; FormatError for a matrix that no kernel reads."""
        w = product.w
        assert isinstance(w, Nm)
        (m, k), pattern = w.shape, (w.n, w.m, *w.vector)
        if m * k > MAX_CELLS:
            raise FormatError(
                f"W has {m} x {k} elements; indices are 32 bits wide, so {MAX_CELLS} is the most",
                hint="cut the matrix into pieces of fewer rows",
            )
        turns = steps_of(w, 64), steps_of(w, 128)
        operands, half = product.operand_bytes, fours(w)
        most = tuple((rows, windows, columns) for (rows, windows), columns in unions(w).items())
        return NmNumbers(m, k, product.n, w.dtype, pattern, w.nbytes, operands, turns, product.columns, half, most)

    @property
    def stored(self) -> dict[str, Any]:
        """What the op level says of W."""
        return {"chunks": 0, "pattern": self.pattern}

    def turn(self, strip: int, down: int, kept: int) -> Turn:
        """The turn of a block of ``down`` strips of ``strip`` rows."""
        known = {(rows, windows): columns for rows, windows, columns in self.unions}
        return turn_of(self.pattern, strip, down, kept, known)

    @property
    def steps(self) -> dict[int, int]:
        """Turns of a tile of so many rows."""
        return {64: self.turns[0], 128: self.turns[1]}

    def turned(self, *orders: str) -> bool:
        """Whether a kernel that takes x in these orders, by pieces of 16 bytes, has it written row by row first."""
        order, along = ("column", self.k) if self.columns else ("row", self.n)
        return order not in orders or along % (16 // self.item) != 0

    @property
    def kept(self) -> int:
        """Elements that are kept, with those that fill up the last window."""
        return self.m * -(-self.k // self.pattern[1]) * self.pattern[0]

    @property
    def chunks(self) -> Chunks:
        """How a lane takes a row."""
        return chunks(*self.pattern[:2], self.item)

    @property
    def count(self) -> int:
        """Chunks of a row."""
        return self.chunks.count(self.k, self.pattern[1])

    @property
    def packed(self) -> int:
        """Bytes that kernels on CUDA cores read of W: all rows of whole tiles, whole chunks."""
        c = self.chunks
        return -(-self.m // LANES) * LANES * self.count * (c.stored * self.item + 4 * c.words)


#: What cuts a matrix: offsets and values of some tiles at a time, [tiles, 32, chunks, entries].
Cut = Callable[[SparseMatrix], Iterator[tuple[Any, Any]]]


def packed_values(w: SparseMatrix, cut: Cut | None = None) -> Any:
    """Words of the kept values: of each tile of 32 rows, chunk and 16-byte piece those of all lanes side by side."""
    found = [piece[1] for piece in (cut or _tiles)(w)]
    lib, c = w.library, _chunks(w)
    per = 16 // w.kind.nbytes
    pieces = []
    for values in found:
        tiles, _, count, _ = values.shape
        apart = values.reshape(tiles, LANES, count, c.stored // per, per)
        pieces.append(lib.packed(lib.transpose(apart, (0, 2, 3, 1, 4))).reshape(-1))
    return lib.view(lib.xp.concatenate(pieces), u32)


def packed_offsets(w: SparseMatrix, cut: Cut | None = None) -> Any:
    """Words of the kept columns' offsets in their windows, the first entry's in the lowest bits, one after another."""
    lib, c = w.library, _chunks(w)
    pieces = []
    for offsets, _ in (cut or _tiles)(w):
        tiles, _, count, _ = offsets.shape
        words = lib.zeros((tiles, LANES, count, c.words), "int64")
        for entry in range(c.entries):
            (word, shift), each = divmod(entry * c.bits, 32), offsets[..., entry]
            words[..., word] |= (each << shift) & 0xFFFFFFFF
            if shift + c.bits > 32:
                words[..., word + 1] |= each >> (32 - shift)
        first, sides = 0, []
        for size in groups(c.words):
            group = lib.transpose(words[..., first : first + size], (0, 2, 1, 3))
            sides.append(group.reshape(tiles, count, LANES * size))
            first += size
        pieces.append(lib.xp.concatenate(sides, -1).reshape(-1))
    return lib.cast(lib.xp.concatenate(pieces), u32)


def _chunks(w: SparseMatrix) -> Chunks:
    assert isinstance(w, Nm)
    return chunks(w.n, w.m, w.kind.nbytes)


def _rows(w: Nm, whole: int) -> Iterator[tuple[Any, Any]]:
    """Offsets (int64) and bits of values, [rows, windows, entries], of some groups at a time, ``whole`` rows or more of
    them; those of the last group also beyond the matrix."""
    lib, c, (rows, cols) = w.library, _chunks(w), w.vector
    groups_, windows, n = w.groups, w.windows, w.n
    idx = lib.wide(w.arrays["idx"]).reshape(groups_, windows, n // cols)
    values = lib.view(w.arrays["values"], f"int{w.kind.bits}").reshape(groups_, windows, n // cols, rows, cols)
    step = max(1, lib.band // (whole * max(1, rows) * windows * n)) * whole  # groups whose rows are whole tiles
    for begin in range(0, groups_, step):
        some = slice(begin, min(begin + step, groups_))
        number = some.stop - some.start
        at = (idx[some].reshape(number, windows, n // cols, 1) * cols + lib.arange(cols)).reshape(number, 1, windows, n)
        at = (at + lib.zeros((1, rows, 1, 1), "int64")).reshape(number * rows, windows, n)
        if n % c.parts:  # what fills the last part of a window is of a column that the row stores
            at = lib.xp.concatenate((at, at[..., -1:]), -1)
        v = lib.packed(lib.transpose(values[some], (0, 3, 1, 2, 4))).reshape(number * rows, windows, n)
        left = w.shape[0] - begin * rows
        yield at[:left], v[:left]


def _tiles(w: SparseMatrix) -> Iterator[tuple[Any, Any]]:
    """Offsets (int64) [tiles, 32, chunks, entries] and bits of values [tiles, 32, chunks, stored] of some tiles at a
    time; zeros behind the last row, window and entry."""
    assert isinstance(w, Nm)
    lib, c = w.library, _chunks(w)
    held = c.count(w.shape[1], w.m) // c.parts * c.windows  # windows with those that fill the last chunk
    for at, v in _rows(w, LANES):
        tiles = -(-at.shape[0] // LANES)
        yield (_filled(lib, at, "int64", tiles, held, c, c.entries),
               _filled(lib, v, f"int{w.kind.bits}", tiles, held, c, c.stored))  # fmt: skip


def by_windows(w: SparseMatrix) -> Iterator[tuple[Any, Any]]:
    """The same for lanes that have a window each: a tile is a group of rows, as many as a chunk else has windows, and a
    chunk 32 windows of them (or a part of the entries of one row there)."""
    assert isinstance(w, Nm)
    lib, c = w.library, _chunks(w)
    tiles = -(-w.windows // LANES)
    for found in _rows(w, c.windows):
        groups_ = -(-found[0].shape[0] // c.windows)
        sides = []
        for a, kind, width in zip(found, ("int64", f"int{w.kind.bits}"), (c.entries, c.stored), strict=True):
            turned = lib.transpose(a, (1, 0, 2))
            made = _filled(lib, turned, kind, tiles, groups_ * c.windows, c, width)
            made = lib.transpose(made.reshape(tiles, LANES, groups_, c.parts, width), (2, 1, 0, 3, 4))
            sides.append(lib.packed(made).reshape(groups_, LANES, tiles * c.parts, width))
        yield sides[0], sides[1]


def _filled(lib: Library, a: Any, kind: str, tiles: int, windows: int, c: Chunks, width: int) -> Any:
    """Rows of windows of entries as tiles of chunks of ``width`` entries."""
    per = c.entries * c.parts // c.windows  # of a window, with what fills its last part
    whole = lib.zeros((tiles * LANES, windows, per), kind)
    whole[: a.shape[0], : a.shape[1], : a.shape[2]] = a
    out = lib.zeros((tiles, LANES, windows // c.windows * c.parts, width), kind)
    out[..., : c.entries] = whole.reshape(tiles, LANES, windows // c.windows * c.parts, c.entries)
    return out
