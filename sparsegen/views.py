"""An array as a kernel sees it: an address and a layout, and how NumPy's arrays are looked at.

Layouts are interned, one object for each (library, dtype, shape, strides, device, ...), so whatever was once checked
for a layout need not be checked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from sparsegen.ir.errors import ArrayError

AnyDType = np.dtype[Any]


@dataclass(frozen=True, eq=False)
class ArrayLayout:
    """All of an array but its address. ``strides`` in bytes; ``device_index`` is None on the host.

    ``problem`` says why no kernel can use an array of this layout at all (None if one can), with its remedy; None for
    that where it depends on what is wanted.
    """

    library: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: AnyDType
    device_kind: str
    device_index: int | None
    readonly: bool = False
    problem: tuple[str, str | None] | None = None

    @cached_property
    def pitch(self) -> int:
        """Bytes from one row to the next (of the last axis); the row itself for fewer than two axes."""
        if len(self.shape) > 1 and self.shape[-2] > 1:
            return self.strides[-2]
        return self.shape[-1] * self.dtype.itemsize if self.shape else self.dtype.itemsize

    @cached_property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one; 0 for an empty array."""
        if 0 in self.shape:
            return 0
        steps = ((n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True))
        return sum(steps) + self.dtype.itemsize

    @cached_property
    def contiguous(self) -> bool:
        """Whether the elements are packed in C order."""
        packed = c_strides(self.shape, self.dtype.itemsize)
        pairs = zip(self.shape, self.strides, packed, strict=True)
        return 0 in self.shape or all(extent == 1 or have == want for extent, have, want in pairs)

    @cached_property
    def rows_contiguous(self) -> bool:
        """Whether the last axis is packed and the others are in C order, rows possibly with a pitch, none shared."""
        step = self.dtype.itemsize
        for axis in range(len(self.shape) - 1, -1, -1):
            extent, stride = self.shape[axis], self.strides[axis]
            if extent > 1:
                last = axis == len(self.shape) - 1
                if (stride != step if last else stride < step) or stride % self.dtype.itemsize:
                    return False
                step = extent * stride
        return True

    def where(self) -> str:
        """The device in words: ``the host`` or ``cuda:0``."""
        return "the host" if self.device_kind == "host" else f"cuda:{self.device_index}"


class ArrayView(NamedTuple):
    """An array as a kernel sees it: address, layout, the object itself, and the producer's stream, if it told one."""

    pointer: int
    layout: ArrayLayout
    owner: Any
    stream: int | None = None


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The strides, in bytes, of a packed array in C order."""
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


Probe = Callable[[Any], ArrayView]
LAYOUTS_KEPT = 4096


def probe_numpy(array: Any) -> ArrayView:
    """A NumPy array; ArrayError for a masked one."""
    if isinstance(array, np.ma.MaskedArray):
        raise ArrayError("a masked array: what its masked elements are is not said", hint="pass a.filled(0)")
    flags = array.flags
    layout = numpy_layout(array.shape, array.strides, array.dtype, not flags.writeable, flags.aligned)
    return ArrayView(array.__array_interface__["data"][0], layout, array)


@lru_cache(LAYOUTS_KEPT)
def numpy_layout(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: AnyDType, readonly: bool, aligned: bool
) -> ArrayLayout:
    """The layout of a NumPy array, the same object for equal ones."""
    problem = None
    if not dtype.isnative:
        what = f"an array of dtype {dtype.str}, not in this machine's byte order"
        problem = (what, "convert it: a.astype(a.dtype.newbyteorder('='))")
    elif not aligned:
        problem = ("an array whose elements are not aligned", "copy it: a.copy()")
    return ArrayLayout("numpy", shape, strides, dtype, "host", None, readonly, problem)
