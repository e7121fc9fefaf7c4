"""A sparse format as a value: blocks, an axis for each coordinate, and how values are stored.  The rest derives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any, Final

import numpy as np

from sparsegen.formats.axes import AGAIN, Crowded, Dense, Fixed, Positions, Sparse, Stored
from sparsegen.formats.blocks import Band, Blocked
from sparsegen.formats.library import Library
from sparsegen.ir.errors import FormatError
from sparsegen.ir.layout import Layout
from sparsegen.ir.types import DType, s4, s8, s12, s16, u4, u8

Shape = tuple[int, int]
Window = tuple[slice, slice]
#: Bands of a matrix begin at multiples of so many rows or columns.
WHOLE: Final = 16
#: The types of whole bytes that hold the elements of others, one by one.
_HOLDERS: Final = {s4: s8, u4: u8, s12: s16}


def held(dtype: DType) -> DType:
    """The type in which a dense array holds elements: of 4 bits bytes, of 12 bits 16."""
    return _HOLDERS.get(dtype, dtype)


@dataclass(frozen=True)
class Format:
    """How a matrix of ``dtype`` is stored: encoding, decoding, checks and sizes derive from this.

    ``axes``: one for each of strip, slab and element, slowest first: strip and slab in either order, ``element`` last;
    one of the last two is sparse.  An entry is what lies behind the sparse axis: one element, or a block.

    ``record``: (element, byte) -> byte, the order of the bytes of so many adjacent values, where it is not the plain
    one.  ``word``: the dtype in which values are stored, by default their own; 4-bit values lie two to a byte, the
    first in the low half, 12-bit ones in 16.  ``excess``: integers are stored plus 2^(bits - 1), which turns their sign
    bit over.  ``slack``: zeros behind the last value, as a copy may run over the end.
    ``options``: what the user said besides name and dtype (see ``register``).
    """

    name: str
    dtype: DType
    blocks: Blocked
    axes: tuple[Dense | Sparse, Dense | Sparse, Dense | Sparse]
    word: DType | None = None
    record: Layout | None = None
    slack: int = 0
    excess: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        kinds = [isinstance(axis, Sparse) for axis in self.axes]
        names = [axis.of for axis in self.axes]
        if sorted(names[:2]) != ["slab", "strip"] or names[2] != "element" or kinds[0] or kinds[1] == kinds[2]:
            raise FormatError(
                f"{self.name} has axes {self.axes}",
                hint="name strip and slab in either order, then element; one of the last two is sparse, the rest dense",
            )

    # ------------------------------------------------------------------------------------------------------ the parts
    @property
    def sparse(self) -> Sparse:
        """The axis that leaves positions out."""
        return next(axis for axis in self.axes if isinstance(axis, Sparse))

    @property
    def outer(self) -> tuple[str, str]:
        """Strip and slab, slowest first."""
        return self.axes[0].of, self.axes[1].of

    @property
    def inner(self) -> int:
        """Elements of an entry."""
        return 1 if self.sparse.of == "element" else self.blocks.size

    @property
    def raw(self) -> str:
        """The signed integers that hold the bits of values while they are moved; those of 4 bits lie in bytes."""
        return f"int{held(self.dtype).bits}"

    @property
    def width(self) -> int:
        """Bits that a stored value takes."""
        return 4 if self.dtype.bits == 4 else held(self.dtype).bits

    @property
    def stored(self) -> tuple[Stored, ...]:
        """The stored arrays in order: pointers if there are any, the axis's own, values."""
        values = self.word or (u8 if self.dtype.bits == 4 else held(self.dtype))
        pointers = () if self.sparse.ptr is None else (self.sparse.ptr,)
        return (*pointers, self.sparse.own, Stored("values", values))

    def fibers(self, shape: Shape) -> tuple[tuple[int, int], int]:
        """The fibers of a matrix (by the two slowest axes) and the positions of each."""
        grid: dict[str, int] = dict(zip(("strip", "slab"), self.blocks.grid(shape), strict=True))
        first, second = (grid[name] for name in self.outer)
        if self.sparse.of == "element":
            return (first, second), self.blocks.size
        window = self.sparse.window(second)
        return (first, 1 if window == second else -(-second // window)), window

    def shapes(self, shape: Shape, entries: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the stored arrays of a matrix for which so many entries are stored."""
        dims, _ = self.fibers(shape)
        found: dict[str, tuple[int, ...]] = {}
        if (ptr := self.sparse.ptr) is not None:
            found[ptr.name] = ptr.shape(prod(dims))
        found[self.sparse.own.name] = self.sparse.shape(dims, entries)
        values = self.stored[-1].dtype
        found["values"] = (-(-(entries * self.inner + self.slack) * self.width // values.bits),)
        return found

    def least(self, shape: Shape) -> int:
        """The entries that are stored of a matrix of zeros."""
        return prod(self.fibers(shape)[0]) * self.sparse.n if isinstance(self.sparse, Fixed) else 0

    def zeros(self, lib: Library, shape: Shape) -> dict[str, Any]:
        """The stored arrays of a matrix of zeros, which needs no dense one to be made."""
        sizes = self.shapes(shape, self.least(shape))
        arrays = {s.name: lib.view(lib.zeros(sizes[s.name], f"int{s.dtype.bits}"), s.dtype) for s in self.stored}
        if isinstance(axis := self.sparse, Fixed):  # the first positions of each window
            own = arrays[axis.own.name].reshape(-1, axis.n)
            arrays[axis.own.name] = (own + lib.cast(lib.arange(axis.n), axis.own.dtype)).reshape(-1)
        return arrays

    def nbytes(self, shape: Shape, entries: float) -> float:
        """Bytes of a matrix with so many entries before filling, if they fall anywhere with the same probability."""
        dims, window = self.fibers(shape)
        fibers = dims[0] * dims[1]
        if isinstance(self.sparse, Fixed):
            entries = self.least(shape)
        elif (ptr := self.sparse.ptr) is not None and ptr.align > 1:
            entries += fibers * filling(window, entries / max(1, fibers * window), ptr.align)
        none, some = (self.room(shape, n) for n in (0, 1 << 20))
        return none + entries * (some - none) / (1 << 20)

    def room(self, shape: Shape, entries: int) -> int:
        """Bytes of a matrix for which so many entries are stored."""
        shapes = self.shapes(shape, entries)
        return sum(prod(shapes[array.name]) * array.dtype.nbytes for array in self.stored)

    # ----------------------------------------------------------------------------------------------------- there, back
    def bands(self, shape: Shape, elements: int) -> Iterator[tuple[Band, Window]]:
        """Ranges of the slowest axis with about so many elements each, and the part of the matrix that each covers."""
        down = self.outer[0] == "strip"
        count = self.blocks.grid(shape)[0 if down else 1]
        unit, extent, across = (self.blocks.rows, *shape) if down else (self.blocks.cols, *shape[::-1])
        step = max(1, elements // max(1, unit * across))
        step += -step % (WHOLE // gcd(unit, WHOLE))
        for first in range(0, max(1, count), step):
            last = min(count, first + step)
            cut = slice(first * unit, min(last * unit, extent))
            yield (first, last), (cut, slice(0, across)) if down else (slice(0, across), cut)

    def _frame(self, shape: Shape, band: Band) -> tuple[tuple[int, int], tuple[int, ...], tuple[int, ...]]:
        """A band's buffer of blocks: what lies behind its last two axes; its extents, the same by fibers and entries.

        The axis's room, and what makes the last window of positions whole.
        """
        (_, windows), window = self.fibers(shape)
        second = self.blocks.grid(shape)[1 if self.outer[0] == "strip" else 0]
        free, count = self.sparse.room, band[1] - band[0]
        if self.sparse.of == "element":
            return (0, free), (count, second, window + free), (count * second, window + free)
        room = windows * window - second + free
        return (room, 0), (count, second + room, self.inner), (count * windows, window + free, *self._block)

    @property
    def _block(self) -> tuple[int, ...]:
        return () if self.inner == 1 else (self.inner,)

    def encode(self, lib: Library, bits: Any) -> tuple[dict[str, Any], int]:
        """The stored arrays of a dense matrix, given as its signed bits with any strides, and its elements kept."""
        shape: Shape = (int(bits.shape[0]), int(bits.shape[1]))
        own, counts, streams, kept = [], [], [], []
        for band, window in self.bands(shape, lib.band):
            room, _, view = self._frame(shape, band)
            x = self.blocks.gather(lib, bits[window], self.outer, room).reshape(view)
            present = (x != 0).any(-1) if self._block else x != 0
            try:
                piece, count = self.sparse.keep(lib, present)
            except Crowded as e:
                raise Crowded(e.axis, band[0] * self.fibers(shape)[0][1] + e.fiber, e.count) from None
            values = lib.pick(x, present).reshape(-1)
            kept.append((values != 0).sum() if self._block else count.sum())
            values = self._turned(values)
            streams.append(values if self.record is None else self._reordered(lib, values, self._places[0]))
            own.append(piece)
            counts.append(count)
        arrays = {}
        if (ptr := self.sparse.ptr) is not None:
            arrays[ptr.name] = lib.cast(ptr.of(lib, lib.xp.concatenate(counts)), ptr.dtype)
        each = lib.xp.concatenate(counts).sum(-1)
        mine, values = self.sparse.spread(lib, each, lib.xp.concatenate(own), lib.xp.concatenate(streams))
        arrays[self.sparse.own.name] = mine.reshape(self.sparse.shape(self.fibers(shape)[0], prod(mine.shape)))
        arrays["values"] = self._packed(lib, lib.xp.concatenate([values, lib.zeros((self.slack,), self.raw)]))
        return arrays, sum(int(n) for n in kept)

    def decode(self, lib: Library, arrays: Mapping[str, Any], shape: Shape) -> Any:
        """The dense matrix's signed bits, packed: the inverse of ``encode``."""
        out = lib.zeros(shape, self.raw)
        for band, window in self.bands(shape, lib.band):
            self.restore(lib, arrays, band, out[window], shape)
        return out

    def restore(
        self, lib: Library, arrays: Mapping[str, Any], band: Band, window: Any, shape: Shape, ones: bool = False
    ) -> None:
        """Write a band's part of the matrix into ``window``; with ``ones`` a 1 for each element that is stored."""
        _, extents, view = self._frame(shape, band)
        first, last = (at * self.fibers(shape)[0][1] for at in band)
        starts = self.starts(lib, arrays, first, last)
        begin, end = int(starts[0]), int(starts[-1])
        kind = "int8" if ones else self.raw
        if ones:
            values = lib.zeros(((end - begin) * self.inner,), kind) + 1
        else:
            values = self.values(lib, arrays, begin, end)
        x = lib.zeros(view, kind)
        own = self.sparse.piece(arrays[self.sparse.own.name], slice(first, last), slice(begin, end))
        self.sparse.restore(lib, own, starts - begin, values.reshape(end - begin, *self._block), x)
        self.blocks.scatter(lib, x.reshape(extents), self.outer, window)

    def starts(self, lib: Library, arrays: Mapping[str, Any], first: int, last: int) -> Any:
        """The first entry of each of the fibers first .. last, int64."""
        return self.sparse.starts(lib, arrays, first, last)

    def values(self, lib: Library, arrays: Mapping[str, Any], begin: int, end: int) -> Any:
        """The signed bits of all elements of the entries begin .. end-1, in the order of the positions."""
        count, word = (end - begin) * self.inner, self.stored[-1].dtype.bits
        low, high = (at * self.inner * self.width for at in (begin, end))
        piece = lib.view(arrays["values"][low // word : -(-high // word)], self.raw)
        if self.dtype.bits == 4:
            pairs = lib.zeros((piece.shape[0], 2), self.raw)
            sign = 8 * (self.dtype.kind == "int")
            pairs[:, 0], pairs[:, 1] = ((half & 15 ^ sign) - sign for half in (piece, piece >> 4))
            piece = pairs.reshape(-1)[low % word // 4 :]
        piece = self._turned(piece[:count])
        return piece if self.record is None else self._reordered(lib, piece, self._places[1])

    def _turned(self, values: Any) -> Any:
        """Signed bits as they are stored, or those that are stored as they are: with the sign bit turned over."""
        return values ^ -(1 << self.dtype.bits - 1) if self.excess else values

    def _packed(self, lib: Library, values: Any) -> Any:
        """Values, given as signed bits one after another, as they are stored."""
        if self.dtype.bits == 4:
            even = lib.xp.concatenate([values, lib.zeros((values.shape[0] % 2,), self.raw)]).reshape(-1, 2)
            values = even[:, 0] & 15 | even[:, 1] << 4
        return lib.view(values, self.stored[-1].dtype)

    @cached_property
    def _places(self) -> tuple[list[int], list[int]]:
        """For each byte of a stored record which byte of plain values it is, and the inverse."""
        assert self.record is not None
        return self.record.inverse_table().ravel().tolist(), self.record.tables()[0].ravel().tolist()

    def _reordered(self, lib: Library, values: Any, places: list[int]) -> Any:
        """Values with the bytes of each record in another order: byte ``places[i]`` comes to place i."""
        records = lib.view(values, "int8").reshape(-1, len(places))
        out = lib.zeros(tuple(records.shape), "int8")
        for to, place in enumerate(places):  # on a host faster than an index, and than a transposition
            out[:, to] = records[:, place]
        return lib.view(out.reshape(-1), self.raw)

    # ---------------------------------------------------------------------------------------------------------- checks
    def check(self, lib: Library, arrays: Mapping[str, Any], shape: Shape, nnz: int) -> None:
        """FormatError if the arrays have other dtypes or shapes, or contradict one another or ``nnz``."""
        axis = self.sparse
        fibers = prod(self.fibers(shape)[0])
        pointers = self.shapes(shape, 0)
        if axis.ptr is not None:
            self._expect(lib, arrays, axis.ptr, pointers[axis.ptr.name], shape)
        entries = int(self.starts(lib, arrays, fibers, fibers)[0])
        shapes = self.shapes(shape, entries)
        self._expect(lib, arrays, axis.own, shapes[axis.own.name], shape)
        kept = axis.verify(lib, arrays, self.fibers(shape)[1])
        self._expect(lib, arrays, self.stored[-1], shapes["values"], shape)
        if kept is not None and kept != nnz:
            raise FormatError(f"the {axis.own.name} keep {kept} elements, not {nnz}", hint=AGAIN)
        least = 0 if kept is not None else self._least_kept(lib, arrays, entries)
        if not least <= nnz <= entries * self.inner:
            raise FormatError(f"the values hold {least} elements or more, not {nnz}", hint=AGAIN)

        if any(extent % unit for extent, unit in zip(shape, (self.blocks.rows, self.blocks.cols), strict=True)):
            inside = self._inside(lib, arrays, shape, ones=kept is not None)
            if inside != (least if kept is None else kept):
                raise FormatError(f"the arrays hold elements beyond the matrix {shape[0]}x{shape[1]}", hint=AGAIN)

    def _least_kept(self, lib: Library, arrays: Mapping[str, Any], entries: int) -> int:
        """Elements of the entries that are not 0; FormatError for values that the dtype lacks, or where none belong."""
        values, axis = self.values(lib, arrays, 0, entries), self.sparse
        if (place := outside(lib, values, self.dtype)) is not None:
            raise FormatError(f"value {place} is none of {self.dtype}", hint=AGAIN)
        ones = values.reshape(entries, self.inner) != 0
        if isinstance(axis, Positions) and axis.blank >= 0:
            blank = lib.wide(arrays[axis.own.name]).reshape(-1) == axis.blank
            if bool((ones.any(-1) & blank).any()):
                raise FormatError(f"the values are not 0 where the {axis.own.name} is -1", hint=AGAIN)
        return int(ones.sum())

    def _inside(self, lib: Library, arrays: Mapping[str, Any], shape: Shape, ones: bool) -> int:
        """Elements within the matrix, not in what fills up its last blocks; with ``ones`` stored zeros count too."""
        count = 0
        for band, (rows, cols) in self.bands(shape, lib.band):
            window = lib.zeros((rows.stop - rows.start, cols.stop - cols.start), "int8" if ones else self.raw)
            self.restore(lib, arrays, band, window, shape, ones)
            count += int((window != 0).sum())
        return count

    def _expect(
        self, lib: Library, arrays: Mapping[str, Any], stored: Stored, wanted: tuple[int, ...], shape: Shape
    ) -> None:
        array = arrays[stored.name]
        if tuple(array.shape) != wanted or not lib.holds(array, stored.dtype):
            raise FormatError(
                f"{stored.name} has shape {tuple(array.shape)} and dtype {array.dtype}; that of a {self.name} matrix "
                f"{shape[0]}x{shape[1]} has {wanted} and {stored.dtype.numpy()}",
                hint=AGAIN,
            )


def outside(lib: Library, bits: Any, dtype: DType) -> int | None:
    """The first place, counted row by row, of signed bits that no element of a dtype has; None if there is none."""
    if held(dtype) is dtype:
        return None
    low, high = dtype.range
    return lib.first(((bits < low) | (bits > high)).reshape(-1))


def filling(n: int, p: float, align: int) -> float:
    """The mean of -c mod ``align`` for a count c of n trials of probability p: what fills a fiber up."""
    roots = np.exp(2j * np.pi * np.arange(align) / align)
    moments = (1 - p + p * roots) ** n  # E[root^c]; the distribution of c mod align is its Fourier transform
    at = np.arange(align)
    chance = (moments[None] * roots[None] ** -at[:, None]).sum(-1).real / align
    return float((-at % align * chance).sum())
