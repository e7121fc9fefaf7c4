"""The numbers of sites in windows: which windows have which cells, and where in them."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .held import Held

Ints = npt.NDArray[np.int64]
#: Registers that a thread looks at in turn where receivers see one of them: a divisor of the bits of a word.
TESTED = 8


class Seen(NamedTuple):
    """``bits`` [threads, words] say which registers of each thread are seen, the first one lowest; ``begin`` [threads]
    is the number of the first such cell; ``numbers``: that of each cell."""

    bits: npt.NDArray[np.uint32]
    begin: npt.NDArray[np.int32]
    numbers: Ints


class Entries(NamedTuple):
    """Cells in windows: the window's block, thread and register, and which cell it is."""

    blocks: Ints
    threads: Ints
    registers: Ints
    cells: Ints

    def owners(self, blocks: Ints, threads: int) -> Ints:
        """The number of each entry's thread among those of some ``blocks``, each of so many."""
        found: Ints = np.searchsorted(blocks, self.blocks) * threads + self.threads
        return found

    def listed(self, blocks: Ints, threads: int, **about: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Tables of the entries of some blocks: where each thread's ``begin``, block by block, and the last one's end;
        their ``places``, which are registers; and what is known about their cells."""
        owners = self.owners(blocks, threads)
        order = np.lexsort((self.cells, owners))
        begin = np.searchsorted(owners[order], np.arange(len(blocks) * threads + 1)).astype(np.int32)
        known = {name: values[self.cells[order]] for name, values in about.items()}
        return {"begin": begin, "places": self.registers[order].astype(np.int32), **known}

    def seen(self, blocks: Ints, threads: int, registers: int) -> Seen:
        """The same of cells of which each is one window's, in threads of so many registers."""
        owners, count = self.owners(blocks, threads), len(blocks) * threads
        order = np.lexsort((self.registers, owners))
        numbers = np.empty(len(order), np.int64)
        numbers[self.cells[order]] = np.arange(len(order))
        bits = np.zeros((count, -(-registers // 32)), np.uint32)
        np.bitwise_or.at(bits, (owners, self.registers // 32), np.uint32(1) << (self.registers % 32).astype(np.uint32))
        return Seen(bits, np.searchsorted(owners[order], np.arange(count)).astype(np.int32), numbers)


def own(held: Held, cells: npt.NDArray[Any]) -> Entries:
    """The one window that each of ``cells`` [n, 3] is an own cell of."""
    tiles, places = list[Ints](), list[Ints]()
    for axis in range(3):
        low, begin = _starts(held, axis)[1:]
        tile = np.searchsorted(low, cells[:, axis], side="right") - 1
        tiles.append(tile)
        places.append(begin[tile] + cells[:, axis] - low[tile])
    return _entries(held, tiles, places, np.arange(len(cells)))


def everywhere(held: Held, cells: npt.NDArray[Any]) -> Entries:
    """Every window that has one of ``cells`` [n, 3], own or not, and every place where it has it."""
    known = [{int(i): _places(held, axis, int(i)) for i in np.unique(cells[:, axis])} for axis in range(3)]
    found = [
        (cell, *tile, *place)
        for cell, at in enumerate(cells.tolist())
        for each in product(*(there[i] for there, i in zip(known, at, strict=True)))
        for tile, place in [zip(*each, strict=True)]
    ]
    whose, *rest = np.array(found, np.int64).reshape(-1, 7).T
    return _entries(held, rest[:3], rest[3:], whose)


@lru_cache(maxsize=1 << 6)
def _starts(held: Held, axis: int) -> tuple[Ints, Ints, Ints]:
    """Of each tile along an axis the first cell of its window, its first own cell, and that one's place."""
    spans = held.spans(axis)
    inside = [held.inside(axis, span)[0] for span in spans]
    first, low = [span[2] for span in spans], [span[0] for span in spans]
    return np.array(first, np.int64), np.array(low, np.int64), np.array(inside, np.int64)


def _places(held: Held, axis: int, cell: int) -> list[tuple[int, int]]:
    """Tiles along an axis whose windows have a cell, each with the place of it."""
    first, n, size = _starts(held, axis)[0], held.shape[axis], held.window[axis]
    away = cell - first
    found = [(away % n if held.wraps[axis] else away) + n * turn for turn in range(-(-size // n))]
    return [(int(tile), int(at[tile])) for at in found for tile in np.flatnonzero((at >= 0) & (at < size))]


def _entries(held: Held, tiles: list[Ints], places: list[Ints], cells: Ints) -> Entries:
    """``tiles`` and ``places`` in windows are those on each axis."""
    (_, rows, columns), (plane, row, column), (_, lines, across) = held.share, places, held.tiles
    blocks = (tiles[0] * lines + tiles[1]) * across + tiles[2]
    thread = row // rows * 32 + column // columns
    register = (plane * rows + row % rows) * columns + column % columns
    return Entries(blocks, thread, register, cells)
