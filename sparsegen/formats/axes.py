"""The axes of a sparse format: what is stored of each coordinate of an element, and how it is read back.

An element of a matrix cut into blocks (:class:`Blocked`) has three coordinates: ``strip``, ``slab`` and ``element``.  A
format lists an axis for each, slowest first: ``Dense`` where all positions are stored, and one of ``Mask``,
``Compressed``, ``Fixed`` and ``Padded`` where most are left out.  The positions before the sparse axis are its
*fibers*; each has its *entries*, which are single elements, or whole blocks if ``element`` comes behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from sparsegen.formats.library import Library
from sparsegen.ir.errors import FormatError
from sparsegen.ir.layout import Layout
from sparsegen.ir.types import DType

Coordinate = Literal["strip", "slab", "element"]
AGAIN: Final = "encode the matrix anew with sparsegen.sparse"

_OCTET_TO_BYTE: Final = 0x0102040810204080  #: byte i of an octet, 0 or 1, becomes bit 56 + i of the product
_SUM_OF_BYTES: Final = 0x0101010101010101  #: the top byte of the product is the sum of all bytes
_PIECE: Final = 16  #: bits of a word that one look-up decodes


@dataclass(frozen=True)
class Stored:
    """An array of a format: its name and the dtype of its elements."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class Pointers(Stored):
    """Where each fiber's entries begin, and after the last one where they end: [fibers + 1], counted in ``1 / unit``.

    ``align``: each fiber begins at a multiple of so many entries (a power of two), filled with zeros up to there.
    ``parts``: pointers of a fiber, each to where a part of its positions begins: [fibers + 1, parts] if several.
    ``ends``: instead of each fiber where it begins, and where it ends before what fills it up: [fibers, 2].
    """

    align: int = 1
    unit: int = 1
    parts: int = 1
    ends: bool = False

    def shape(self, fibers: int) -> tuple[int, ...]:
        """The shape of the pointers of so many fibers."""
        return (fibers, 2) if self.ends else (fibers + 1, *((self.parts,) if self.parts > 1 else ()))

    def of(self, lib: Library, counts: Any) -> Any:
        """The pointers as int64, from the entries of each part, int64 [fibers, parts]."""
        fibers = counts.shape[0]
        out = lib.zeros((fibers + 1, self.parts), "int64")
        out[1:] = lib.cumsum(self.filled(counts.sum(-1))).reshape(-1, 1)
        for part in range(1, self.parts):
            out[:fibers, part] = out[:fibers, part - 1] + counts[:, part - 1]
        most = int(out[-1, 0])
        top = self.dtype.range[1] // self.unit
        if most > top:
            raise FormatError(
                f"the matrix has {most} values; the format counts up to {top}",
                hint="cut the matrix into pieces of fewer rows",
            )
        if self.ends:
            pairs = lib.zeros((fibers, 2), "int64")
            pairs[:, 0] = out[:-1, 0]
            pairs[:, 1] = out[:-1, 0] + counts.sum(-1)
            return pairs * self.unit
        return (out if self.parts > 1 else out[:, 0]) * self.unit

    def filled(self, counts: Any) -> Any:
        """Counts rounded up to the alignment."""
        return (counts + (self.align - 1)) & -self.align

    def starts(self, lib: Library, pointers: Any, first: int, last: int) -> Any:
        """Where the fibers first .. last begin, in entries as int64; behind the last fiber begins what all end at."""
        if self.ends:  # each begins where the one before, filled up, ends
            found = lib.zeros((last - first + 1,), "int64")
            ends = pointers[max(0, first - 1) : last, 1]
            found[int(first == 0) :] = self.filled(lib.wide(lib.packed(ends)) // self.unit)
            return found
        begins = pointers[first : last + 1] if self.parts == 1 else pointers[first : last + 1, 0]
        return lib.wide(lib.packed(begins)) // self.unit


@dataclass(frozen=True)
class Dense:
    """All positions are stored, so nothing says which."""

    of: Coordinate


@dataclass(frozen=True)
class Sparse(ABC):
    """An axis that leaves positions out: ``own`` says which are stored."""

    of: Coordinate
    own: Stored
    ptr: Pointers | None

    @property
    def room(self) -> int:
        """Positions behind each fiber in a buffer: where zeros stand that fill it up to its alignment."""
        return 0 if self.ptr is None or self.ptr.align == 1 else self.ptr.align

    def window(self, extent: int) -> int:
        """The positions of a fiber along an axis of so many."""
        return extent

    def fill(self, lib: Library, present: Any, counts: Any) -> None:
        """Mark as many of each fiber's room as fill its ``counts`` entries up to the alignment."""
        if self.ptr is not None and self.room:
            spare = self.ptr.filled(counts) - counts
            present[:, present.shape[1] - self.room :] = lib.arange(self.room) < spare.reshape(-1, 1)

    @abstractmethod
    def keep(self, lib: Library, present: Any) -> tuple[Any, Any]:
        """From which positions have elements, bool [fibers, window + room]: a piece of ``own``, and the entries of each
        part, int64 [fibers, parts].  Marks in ``present`` what else is stored, as zeros."""

    @abstractmethod
    def restore(self, lib: Library, own: Any, starts: Any, values: Any, x: Any) -> None:
        """Write the entries ``values`` of some fibers into ``x`` [fibers, window + room, ...], which holds zeros.

        ``own``: these fibers' piece of the array; ``starts``: int64 [fibers + 1], their first entries, from 0.
        """

    def spread(self, lib: Library, counts: Any, own: Any, values: Any) -> tuple[Any, Any]:
        """``own`` and the values of all fibers as they are stored, from those of their ``counts`` entries, int64
        [fibers], one fiber after the other."""
        return own, values

    def starts(self, lib: Library, arrays: Mapping[str, Any], first: int, last: int) -> Any:
        """The first entry of each of the fibers first .. last, int64."""
        assert self.ptr is not None
        return self.ptr.starts(lib, arrays[self.ptr.name], first, last)

    @abstractmethod
    def shape(self, dims: tuple[int, ...], entries: int) -> tuple[int, ...]:
        """The shape of ``own``, for fibers ``dims`` with so many entries stored in all."""

    @abstractmethod
    def piece(self, own: Any, fibers: slice, entries: slice) -> Any:
        """The piece of ``own`` that speaks of these fibers, whose entries are those given."""

    @abstractmethod
    def verify(self, lib: Library, arrays: Mapping[str, Any], window: int) -> int | None:
        """FormatError if ``own`` and the pointers contradict one another or leave the matrix.

        Returns the elements that they keep; None where they speak of entries only.
        """


@dataclass(frozen=True, eq=False)
class _Slot:
    """An octet's place in a word: which octets of a fiber have it, and tables of what goes where.

    ``bits``: from an octet as a byte to its bits in the word; ``pieces``: back, from the bits of the word from such a
    one on, to the octet.
    """

    octets: slice
    bits: Any
    pieces: Mapping[int, Any]


def _moved(n: int, sources: Any, targets: Any) -> Any:
    """For each of 0 .. n-1 an int64 of its bits ``sources``, each moved to its target."""
    numbers = np.arange(n)
    moved = [(numbers >> np.int64(s) & 1) << np.int64(t) for s, t in zip(sources, targets, strict=True)]
    return np.bitwise_or.reduce(moved)


@dataclass(frozen=True)
class Mask(Sparse):
    """A bit for each position of a fiber, in words.

    ``bits``: a position, in the row-major order of its dimensions -> (word of the fiber, bit).  Eight positions in a
    row must share a word, and octets of a word must be evenly spaced.
    """

    ptr: Pointers
    bits: Layout

    @property
    def room(self) -> int:
        return max(8, super().room)

    @cached_property
    def words(self) -> int:
        """Words of a fiber."""
        return self.bits.shape()[0]

    @cached_property
    def _slots(self) -> tuple[_Slot, ...]:
        """For each octet that a word holds, the first one of each word, the next one, ..."""
        word, bit = (table.reshape(-1, 8) for table in self.bits.tables())
        found = []
        for slot in range(word.shape[0] // self.words):
            octets = np.array([np.flatnonzero(word[:, 0] == w)[slot] for w in range(self.words)])
            step = int(octets[1] - octets[0]) if octets.size > 1 else 1
            bits = bit[octets[0]]
            pieces = {}
            for low in range(0, self.own.dtype.bits, _PIECE):
                if ((low <= bits) & (bits < low + _PIECE)).any():
                    back = np.where((low <= bits) & (bits < low + _PIECE), bits - low, _PIECE)
                    pieces[low] = _moved(1 << _PIECE, back, 8 * np.arange(8))
            found.append(
                _Slot(slice(int(octets[0]), int(octets[-1]) + 1, step), _moved(256, np.arange(8), bits), pieces)
            )
        return tuple(found)

    def keep(self, lib: Library, present: Any) -> tuple[Any, Any]:
        octets = lib.view(present, "int64")[:, : -self.room // 8]
        byte = (octets * _OCTET_TO_BYTE >> 56) & 0xFF
        words = lib.zeros((present.shape[0], self.words), "int64")
        for slot in self._slots:
            words |= lib.constant(slot.bits)[byte[:, slot.octets]]
        counts = self._counts(octets)
        self.fill(lib, present, counts.sum(-1))
        return lib.cast(words, self.own.dtype), counts

    def _counts(self, octets: Any) -> Any:
        return (octets * _SUM_OF_BYTES >> 56).reshape(octets.shape[0], self.ptr.parts, -1).sum(-1)

    def _octets(self, lib: Library, words: Any) -> Any:
        """The inverse: the positions of fibers as bytes 0 and 1, eight to an int64."""
        words = lib.wide(words)
        octets = lib.zeros((words.shape[0], len(self._slots) * self.words), "int64")
        for slot in self._slots:
            for low, table in slot.pieces.items():
                octets[:, slot.octets] |= lib.constant(table)[words >> low & ((1 << _PIECE) - 1)]
        return octets

    def restore(self, lib: Library, own: Any, starts: Any, values: Any, x: Any) -> None:
        fibers, room = x.shape[0], self.room // 8
        octets = self._octets(lib, own)
        marks = lib.zeros((fibers, octets.shape[1] + room), "int64")
        marks[:, :-room] = octets
        present = lib.view(marks, "bool")
        self.fill(lib, present, self._counts(octets).sum(-1))
        lib.put(x, present, values)

    def shape(self, dims: tuple[int, ...], entries: int) -> tuple[int, ...]:
        return (*dims, self.words)

    def piece(self, own: Any, fibers: slice, entries: slice) -> Any:
        return own.reshape(-1, self.words)[fibers]

    def verify(self, lib: Library, arrays: Mapping[str, Any], window: int) -> int | None:
        own = arrays[self.own.name].reshape(-1, self.words)
        step = max(1, lib.band // window)
        pieces = [self._counts(self._octets(lib, own[at : at + step])) for at in range(0, own.shape[0], step)]
        counts = lib.xp.concatenate(pieces)
        wanted = lib.cast(self.ptr.of(lib, counts), self.ptr.dtype)
        if bool((wanted != arrays[self.ptr.name]).any()):
            raise FormatError(f"the {self.ptr.name} contradicts the {self.own.name}", hint=AGAIN)
        return int(counts.sum())


@dataclass(frozen=True)
class Positions(Sparse):
    """An axis whose ``own`` array is a position for each entry."""

    def shape(self, dims: tuple[int, ...], entries: int) -> tuple[int, ...]:
        return (entries,)

    def piece(self, own: Any, fibers: slice, entries: slice) -> Any:
        return own[entries]

    @property
    def blank(self) -> int:
        """What the list says, as an unsigned number, of an entry that fills a fiber up: -1 in its bits."""
        return (1 << self.own.dtype.bits) - 1 if self.room else -1  # which is none

    def positions(self, lib: Library, present: Any, window: int) -> Any:
        """The list of the positions below ``window`` that are ``present``; FormatError if it cannot count so far."""
        most = self.own.dtype.range[1]
        most -= most == self.blank
        if window - 1 > most:
            raise FormatError(
                f"the matrix has {window} positions along {self.of}; the format counts them up to {most}",
                hint="cut the matrix into pieces of fewer columns" if self.of == "slab" else "cut it by rows",
            )
        at = lib.columns(present)
        return lib.cast((at + 1) * (at < window) - 1, self.own.dtype)

    def restore(self, lib: Library, own: Any, starts: Any, values: Any, x: Any) -> None:
        fiber, at = lib.fibers(starts, own.shape[0]), lib.wide(own)
        held = values != 0 if values.ndim == 1 else (values != 0).any(-1)  # what fills a fiber up is written nowhere
        x[fiber[held], at[held]] = values[held]

    def verify(self, lib: Library, arrays: Mapping[str, Any], window: int) -> int | None:
        at = lib.wide(arrays[self.own.name])
        if bool(((at >= window) & (at != self.blank)).any()):
            raise FormatError(f"the {self.own.name} holds positions outside 0..{window - 1}", hint=AGAIN)
        return None


@dataclass(frozen=True)
class Compressed(Positions):
    """A list of the positions that are stored for each fiber, in ascending order, and pointers to where it begins.

    What fills a fiber up to the pointers' alignment has the position -1 and an entry of zeros.
    """

    ptr: Pointers

    def keep(self, lib: Library, present: Any) -> tuple[Any, Any]:
        counts = present.sum(-1)
        self.fill(lib, present, counts)
        return self.positions(lib, present, present.shape[1] - self.room), counts.reshape(-1, 1)

    def verify(self, lib: Library, arrays: Mapping[str, Any], window: int) -> int | None:
        super().verify(lib, arrays, window)
        own, pointers = lib.wide(arrays[self.own.name]), arrays[self.ptr.name]
        fibers = int(pointers.shape[0]) - (not self.ptr.ends)
        starts = self.ptr.starts(lib, pointers, 0, fibers)
        steps = starts[1:] - starts[:-1]
        if int(starts[0]) or bool((steps < 0).any()) or bool((steps % self.ptr.align != 0).any()):
            raise FormatError(f"the {self.ptr.name} does not ascend from 0", hint=AGAIN)
        blank = own == self.blank
        if self.ptr.ends:
            begins, ends = (lib.wide(lib.packed(pointers[:, side])) // self.ptr.unit for side in (0, 1))
            filling = lib.arange(own.shape[0]) >= ends[lib.fibers(starts, own.shape[0])]
            if bool(((begins != starts[:-1]) | (ends < begins)).any()) or bool((filling != blank).any()):
                raise FormatError(f"the {self.ptr.name} contradicts the {self.own.name}", hint=AGAIN)
        if own.shape[0] and bool((descents(lib, starts, own) & ~blank[1:]).any()):
            raise FormatError(f"the {self.own.name} does not ascend in each fiber", hint=AGAIN)
        return None


@dataclass(frozen=True)
class Fixed(Positions):
    """Exactly ``n`` of every ``m`` consecutive positions, each a fiber of its own: the position of each in the m.

    A fiber with fewer elements stores zeros too, at the first positions that have none.
    """

    ptr: None = field(default=None, init=False)
    n: int
    m: int

    def window(self, extent: int) -> int:
        return self.m

    def keep(self, lib: Library, present: Any) -> tuple[Any, Any]:
        counts = present.sum(-1)
        if (fiber := lib.first(counts > self.n)) is not None:
            raise Crowded(self, fiber, int(counts[fiber]))
        absent = ~present
        present |= absent & (lib.cumsum(absent, axis=1) <= (self.n - counts).reshape(-1, 1))
        return self.positions(lib, present, self.m), counts.reshape(-1, 1)

    def starts(self, lib: Library, arrays: Mapping[str, Any], first: int, last: int) -> Any:
        return (lib.arange(last - first + 1) + first) * self.n

    def verify(self, lib: Library, arrays: Mapping[str, Any], window: int) -> int | None:
        super().verify(lib, arrays, window)
        own = lib.wide(arrays[self.own.name]).reshape(-1, self.n)
        if bool((own[:, 1:] <= own[:, :-1]).any()):
            raise FormatError(f"the {self.own.name} does not ascend in each fiber", hint=AGAIN)
        return None


class Crowded(FormatError):
    """A fiber of a :class:`Fixed` axis has ``count`` elements, more than it keeps: the first such one of a matrix."""

    def __init__(self, axis: Fixed, fiber: int, count: int) -> None:
        super().__init__(
            f"{count} of the {axis.m} positions of fiber {fiber} have elements; the format keeps {axis.n}",
            hint=f"prune the matrix to {axis.n} of every {axis.m} first",
        )
        self.axis, self.fiber, self.count = axis, fiber, count


def descents(lib: Library, starts: Any, positions: Any) -> Any:
    """Of each entry but the first, whether its position does not exceed that of the one before in its fiber."""
    begins = lib.zeros((positions.shape[0] + 1,), "bool")
    begins[starts[:-1]] = True
    return (positions[1:] <= positions[:-1]) & ~begins[1:-1]
