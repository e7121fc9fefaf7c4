"""Kernel arguments laid out once, so that a launch only writes the pointers that changed."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from threading import Lock

from sparsegen.backends.cuda.tensor_map import ALIGN, NBYTES, Encode, MapArg
from sparsegen.ir.errors import ArrayError

Value = int | float | bytes
#: Addresses whose tensor maps are kept: arrays of a call that take turns.
MAPS_KEPT = 64
_FORMATS = {"ptr": "Q", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f32": "f", "f64": "d"}


def _size_align(kind: str, value: Value) -> tuple[int, int]:
    if kind in _FORMATS:
        size = struct.calcsize("<" + _FORMATS[kind])
        return size, size
    name, _, align = kind.partition("@")
    if name != "bytes" or not isinstance(value, bytes):
        known = ", ".join(_FORMATS)
        raise ArrayError(f"unknown kind of kernel argument {kind!r}", hint=f"use {known}, or bytes@8 for a struct")
    return len(value), int(align) if align else 8


class _Map:
    """A tensor map among arguments: where its bytes are, of which address they are, and those of addresses before."""

    def __init__(self, buffer: ctypes.Array[ctypes.c_char], offset: int, pointer: int, encode: Encode) -> None:
        self._view = memoryview(buffer).cast("B")[offset : offset + NBYTES]
        self._pointer, self._encode = pointer, encode
        self._now = -1
        self._known: dict[int, bytes] = {}

    def follow(self, pointers: Sequence[int]) -> None:
        """Write the map of the address that is bound now, unless it is there already."""
        address = pointers[self._pointer]
        if address == self._now:
            return
        made = self._known.get(address)
        if made is None:
            made = self._encode(address)
            if len(self._known) >= MAPS_KEPT:
                self._known.clear()
            self._known[address] = made
        self._view[:] = made
        self._now = address


class PackedArgs:
    """The arguments of one kernel in device layout: a buffer with every value at its natural alignment, and the array
    of addresses that ``cuLaunchKernel`` wants.

    ``args`` is a list of (kind, value): ``ptr``, ``i32``, ``u32``, ``i64``, ``u64``, ``f32``, ``f64``, or ``bytes`` for
    a struct passed by value (alignment 8; ``bytes@16`` for another). ``maps``: tensor maps, which come behind them and
    follow the pointers that they are made of. ``numbers``: which argument each launch gives anew, if one. Launches copy
    the values, so one object may be used again at once; hold ``lock`` from changing a value to the launch if threads
    share it.
    """

    def __init__(
        self, args: Sequence[tuple[str, Value]], maps: Sequence[MapArg] = (), numbers: int | None = None
    ) -> None:
        self._given, self._maps_given, self.numbers = tuple(args), tuple(maps), numbers
        offset = 0
        offsets: list[int] = []
        sizes: list[int] = []
        for kind, value in args:
            size, align = _size_align(kind, value)
            offset = -(-offset // align) * align
            offsets.append(offset)
            sizes.append(size)
            offset += size
        places = []
        for _ in maps:
            places.append(-(-offset // ALIGN) * ALIGN)
            offset = places[-1] + NBYTES
        self.nbytes = offset
        self.kinds = tuple(kind for kind, _ in args)
        self._offsets = offsets
        self._sizes = sizes
        self.buffer = (ctypes.c_char * max(1, offset))()
        base = ctypes.addressof(self.buffer)
        self.table = (ctypes.c_void_p * max(1, len(offsets) + len(places)))(*(base + o for o in (*offsets, *places)))
        self.has_maps = bool(maps)
        self._maps = [_Map(self.buffer, at, *what) for at, what in zip(places, maps, strict=True)]
        self.address = ctypes.addressof(self.table)
        pointers = [o for kind, o in zip(self.kinds, offsets, strict=True) if kind == "ptr"]
        self._slots = [ctypes.c_uint64.from_buffer(self.buffer, o) for o in pointers]
        self.pointers = len(self._slots)
        # Pointers that stand side by side, as they nearly always do, are written in one go.
        self._first = pointers[0] if pointers else 0
        adjacent = pointers == list(range(self._first, self._first + 8 * len(pointers), 8))
        self._run = struct.Struct(f"={len(pointers)}Q").pack_into if adjacent else None
        self.lock = Lock()
        for index, (_, value) in enumerate(args):
            self.set(index, value)

    def set(self, index: int, value: Value) -> None:
        """Write argument ``index`` (counted from 0 over all arguments); its kind and size stay."""
        kind, offset = self.kinds[index], self._offsets[index]
        try:
            if isinstance(value, bytes):
                if kind in _FORMATS or len(value) != self._sizes[index]:
                    raise ArrayError(f"argument {index} is a {kind}, not {len(value)} bytes", hint="keep its size")
                ctypes.memmove(ctypes.addressof(self.buffer) + offset, value, len(value))
            else:
                struct.pack_into("<" + _FORMATS[kind], self.buffer, offset, value)
        except (struct.error, KeyError) as e:
            raise ArrayError(
                f"argument {index} = {value!r} does not fit its kind {kind}", hint="pass a value of the kind's range"
            ) from e

    def set_pointers(self, pointers: Sequence[int]) -> None:
        """Write the arguments of kind ``ptr``, in their order, one value each; the quick part of every launch."""
        if self._run is not None:
            self._run(self.buffer, self._first, *pointers)
        else:
            for slot, pointer in zip(self._slots, pointers, strict=True):
                slot.value = pointer
        for tensor_map in self._maps:
            tensor_map.follow(pointers)

    def set_numbers(self, numbers: bytes) -> None:
        """Write the argument that each launch gives anew."""
        assert self.numbers is not None  # who has numbers has a place for them
        self.set(self.numbers, numbers)

    def addresses(self) -> list[int]:
        """The present values of the arguments of kind ``ptr``, in their order."""
        return [slot.value for slot in self._slots]

    def copy(self) -> PackedArgs:
        """An independent object with the same values."""
        twin = PackedArgs(self._given, self._maps_given, self.numbers)
        ctypes.memmove(twin.buffer, self.buffer, self.nbytes)
        return twin
