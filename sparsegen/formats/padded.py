"""The axis of ELLPACK formats: lists of positions, all of them as long as the longest one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from sparsegen.formats.axes import AGAIN, Positions
from sparsegen.formats.library import Library
from sparsegen.ir.errors import FormatError


@dataclass(frozen=True)
class Padded(Positions):
    """A list of the positions that are stored for each fiber, in ascending order: [fibers, width].

    ``width`` is that of the fiber with most entries.  What fills the others up has the position -1 and an entry of
    zeros.
    """

    ptr: None = field(default=None, init=False)

    @property
    def blank(self) -> int:
        return (1 << self.own.dtype.bits) - 1

    def keep(self, lib: Library, present: Any) -> tuple[Any, Any]:
        return self.positions(lib, present, present.shape[1]), present.sum(-1).reshape(-1, 1)

    def spread(self, lib: Library, counts: Any, own: Any, values: Any) -> tuple[Any, Any]:
        fibers, entries = int(counts.shape[0]), int(own.shape[0])
        width = int(counts.max())
        starts = lib.zeros((fibers + 1,), "int64")
        starts[1:] = lib.cumsum(counts)
        fiber = lib.fibers(starts, entries)
        place = fiber * width + lib.arange(entries) - starts[fiber]
        positions = lib.zeros((fibers * width,), "int64") - 1
        positions[place] = lib.wide(own)
        inner = prod(values.shape) // max(1, entries)
        filled = lib.zeros((fibers * width, inner), f"int{8 * values.itemsize}")
        filled[place] = values.reshape(entries, inner)
        return lib.cast(positions, self.own.dtype).reshape(fibers, width), filled.reshape(-1)

    def starts(self, lib: Library, arrays: Mapping[str, Any], first: int, last: int) -> Any:
        lists = arrays[self.own.name]
        width = lists.shape[1] if lists.ndim == 2 else 0  # checks refuse lists of another shape later on
        return (lib.arange(last - first + 1) + first) * width

    def shape(self, dims: tuple[int, ...], entries: int) -> tuple[int, ...]:
        fibers = prod(dims)
        return fibers, entries // max(1, fibers)

    def piece(self, own: Any, fibers: slice, entries: slice) -> Any:
        return own[fibers].reshape(-1)

    def verify(self, lib: Library, arrays: Mapping[str, Any], window: int) -> int | None:
        super().verify(lib, arrays, window)
        lists = lib.wide(arrays[self.own.name])
        blank = lists == self.blank
        if lists.shape[1] and bool(blank[:, -1].all()):
            raise FormatError(f"the {self.own.name} fills every fiber up", hint=AGAIN)
        if bool((blank[:, :-1] & ~blank[:, 1:]).any()):
            raise FormatError(f"the {self.own.name} has positions behind what fills a fiber up", hint=AGAIN)
        if bool(((lists[:, 1:] <= lists[:, :-1]) & ~blank[:, 1:]).any()):
            raise FormatError(f"the {self.own.name} does not ascend in each fiber", hint=AGAIN)
        return None
