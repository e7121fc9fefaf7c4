"""The array operations that the encoders need and that NumPy, CuPy and torch spell differently.

All else they do (slices, ``& | << >> * != sum reshape``) is spelled alike. Everything runs where the array is, on its
library's current stream; an encoder computes in signed 64-bit integers, which all three have.
"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparsegen.arrays import torch_dtypes
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.types import DType
from sparsegen.views import ArrayView

#: Elements that an encoder takes at once: what a host's cache holds; what fills a GPU, but not its memory.
HOST_BAND: Final = 1 << 21
DEVICE_BAND: Final = 1 << 26


class Library(ABC):
    """One array library on one device. Integer types have NumPy's names: ``int16``, ``int64``, ``bool``, ..."""

    @property
    @abstractmethod
    def name(self) -> str:
        """``numpy``, ``cupy`` or ``torch``."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The device in words, as the library names it."""

    @property
    @abstractmethod
    def band(self) -> int:
        """Elements that an encoder takes at once."""

    @abstractmethod
    def active(self) -> AbstractContextManager[Any]:
        """Within it new arrays are made on this library's device."""

    @abstractmethod
    def zeros(self, shape: Sequence[int], kind: str) -> Any:
        """A new array of zeros."""

    @abstractmethod
    def arange(self, n: int) -> Any:
        """0 .. n-1 as int64."""

    @abstractmethod
    def packed(self, array: Any) -> Any:
        """The array itself if it is packed in C order, else a copy that is."""

    @abstractmethod
    def constant(self, table: Any) -> Any:
        """A NumPy array on this device."""

    @abstractmethod
    def to_host(self, array: Any, dtype: DType) -> Any:
        """The NumPy array of an array that ``holds`` a dtype."""

    @abstractmethod
    def view(self, array: Any, kind: str) -> Any:
        """The same memory as other integers; the array must be packed, its last axis grows or shrinks."""

    @abstractmethod
    def wide(self, array: Any) -> Any:
        """Packed integers as int64, taken as unsigned."""

    @abstractmethod
    def stored(self, array: Any, dtype: DType) -> Any:
        """Integers as those of another dtype, which must hold them."""

    @abstractmethod
    def typed(self, bits: Any, dtype: DType) -> Any:
        """The same memory as numbers of a dtype: packed signed integers, the last axis grows or shrinks.

        torch has no unsigned integers to speak of: there the signed ones of the same bits stand for them.
        """

    @abstractmethod
    def holds(self, array: Any, dtype: DType) -> bool:
        """Whether an array has the dtype that stands for ``dtype``."""

    @abstractmethod
    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        """The array with its axes in another order, not copied."""

    @abstractmethod
    def pick(self, array: Any, mask: Any) -> Any:
        """What lies where the mask is true, one after another in C order; the mask may lack the last axis."""

    @abstractmethod
    def put(self, array: Any, mask: Any, values: Any) -> None:
        """Write ``values``, one after another, where the mask is true: the inverse of ``pick``."""

    @abstractmethod
    def columns(self, mask: Any) -> Any:
        """The second coordinates, int64, of where a mask of two axes is true, in C order."""

    @abstractmethod
    def fibers(self, starts: Any, count: int) -> Any:
        """For each of ``count`` entries, the fiber that it lies in, int64; ``starts`` ascends from 0."""

    @abstractmethod
    def cumsum(self, array: Any, axis: int = 0) -> Any:
        """Running sums as int64, the own element included, along an axis."""

    @abstractmethod
    def distinct(self, array: Any) -> int:
        """How many different integers there are."""

    @abstractmethod
    def bincount(self, array: Any, n: int) -> Any:
        """How often each of 0 .. n-1 occurs, int64."""

    @abstractmethod
    def concatenate(self, arrays: Sequence[Any]) -> Any:
        """The arrays one after another along their first axis, copied."""

    def first(self, mask: Any) -> int | None:
        """The first place where a mask of one axis is true; None if there is none."""
        places = self.columns(mask.reshape(1, -1))
        return int(places[0]) if places.shape[0] else None


@dataclass(frozen=True)
class NumpyLike(Library):
    """NumPy, or CuPy on one device: ``xp`` is the module."""

    xp: Any
    device: int | None

    @property
    def name(self) -> str:
        return "numpy" if self.device is None else "cupy"

    @property
    def where(self) -> str:
        return "cpu" if self.device is None else f"cuda:{self.device}"

    @property
    def band(self) -> int:
        return HOST_BAND if self.device is None else DEVICE_BAND

    def active(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.device is None else self.xp.cuda.Device(self.device)

    def zeros(self, shape: Sequence[int], kind: str) -> Any:
        return self.xp.zeros(tuple(shape), kind)

    def arange(self, n: int) -> Any:
        return self.xp.arange(n, dtype="int64")

    def packed(self, array: Any) -> Any:
        return self.xp.ascontiguousarray(array)

    def constant(self, table: Any) -> Any:
        return self.xp.asarray(table)

    def to_host(self, array: Any, dtype: DType) -> Any:
        return array if self.device is None else self.xp.asnumpy(array)

    def view(self, array: Any, kind: str) -> Any:
        return array.view(kind)

    def wide(self, array: Any) -> Any:
        return array.view(f"uint{8 * array.itemsize}").astype("int64")

    def stored(self, array: Any, dtype: DType) -> Any:
        return array.astype(dtype.numpy())

    def typed(self, bits: Any, dtype: DType) -> Any:
        return bits.view(dtype.numpy())

    def holds(self, array: Any, dtype: DType) -> bool:
        return bool(array.dtype == dtype.numpy())

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        return array.transpose(axes)

    def pick(self, array: Any, mask: Any) -> Any:
        return array[mask]

    def put(self, array: Any, mask: Any, values: Any) -> None:
        array[mask] = values

    def columns(self, mask: Any) -> Any:
        return self.xp.nonzero(mask)[1]

    def fibers(self, starts: Any, count: int) -> Any:
        return self.xp.searchsorted(starts[1:], self.arange(count), side="right")

    def cumsum(self, array: Any, axis: int = 0) -> Any:
        return self.xp.cumsum(array, axis, dtype="int64")

    def distinct(self, array: Any) -> int:
        return int(self.xp.unique(array).shape[0])

    def bincount(self, array: Any, n: int) -> Any:
        return self.xp.bincount(array, minlength=n)

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        return self.xp.concatenate(arrays)


@dataclass(frozen=True)
class Torch(Library):
    """torch on one device, the host's included. Words are stored in signed integers of the same bits."""

    torch: Any
    device: Any

    @property
    def name(self) -> str:
        return "torch"

    @property
    def where(self) -> str:
        return str(self.device)

    @property
    def band(self) -> int:
        return HOST_BAND if self.device.type == "cpu" else DEVICE_BAND

    def active(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def zeros(self, shape: Sequence[int], kind: str) -> Any:
        return self.torch.zeros(tuple(shape), dtype=getattr(self.torch, kind), device=self.device)

    def arange(self, n: int) -> Any:
        return self.torch.arange(n, dtype=self.torch.int64, device=self.device)

    def packed(self, array: Any) -> Any:
        return array.contiguous()

    def constant(self, table: Any) -> Any:
        return self.torch.from_numpy(table).to(self.device)

    def to_host(self, array: Any, dtype: DType) -> Any:
        return self.view(array, f"int{8 * array.element_size()}").cpu().numpy().view(dtype.numpy())

    def view(self, array: Any, kind: str) -> Any:
        # Between bool and wider integers by way of bytes, so that each view changes size or meaning, not both.
        return array.view(self.torch.uint8).view(getattr(self.torch, kind))

    def _dtype(self, dtype: DType) -> Any:
        if dtype.is_int:
            return getattr(self.torch, f"int{dtype.bits}")
        return next(t for t, n in torch_dtypes(self.torch).items() if n == dtype.numpy())

    def wide(self, array: Any) -> Any:
        size = array.element_size()
        return array if size == 8 else array.to(self.torch.int64) & (256**size - 1)

    def stored(self, array: Any, dtype: DType) -> Any:
        return array.to(self._dtype(dtype))

    def typed(self, bits: Any, dtype: DType) -> Any:
        return bits.view(self.torch.uint8).view(self._dtype(dtype))

    def holds(self, array: Any, dtype: DType) -> bool:
        return bool(array.dtype == self._dtype(dtype))

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        return array.permute(*axes)

    def pick(self, array: Any, mask: Any) -> Any:
        if array.ndim > mask.ndim:
            return array[mask]
        # Flat: on a GPU torch writes out the coordinates of what it picks, one 64-bit number an axis.
        return self.torch.masked_select(array.reshape(-1), mask.reshape(-1))

    def put(self, array: Any, mask: Any, values: Any) -> None:
        if array.ndim > mask.ndim:
            array[mask] = values
        else:
            array.masked_scatter_(mask, values)

    def columns(self, mask: Any) -> Any:
        return self.torch.nonzero(mask)[:, 1]

    def fibers(self, starts: Any, count: int) -> Any:
        return self.torch.searchsorted(starts[1:].contiguous(), self.arange(count), right=True)

    def cumsum(self, array: Any, axis: int = 0) -> Any:
        return self.torch.cumsum(array, axis)

    def distinct(self, array: Any) -> int:
        return int(self.torch.unique(array).shape[0])

    def bincount(self, array: Any, n: int) -> Any:
        return self.torch.bincount(array, minlength=n)

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        return self.torch.cat(tuple(arrays))


NUMPY: Final = NumpyLike(np, None)


def library_of(view: ArrayView) -> tuple[Library, Any]:
    """The library of an array, and the array's bits as its signed integers, not copied; ArrayError for others."""
    layout, array = view.layout, view.owner
    kind = f"int{8 * layout.dtype.itemsize}"
    if layout.library == "numpy":
        return NUMPY, np.asarray(array).view(kind)
    if layout.library == "cupy":
        return NumpyLike(sys.modules["cupy"], layout.device_index), array.view(kind)
    if layout.library == "torch":
        torch: Any = sys.modules["torch"]
        return Torch(torch, array.device), array.view(getattr(torch, kind))
    raise ArrayError(
        f"weights in an array of {type(array).__module__}.{type(array).__qualname__} cannot be encoded where they are",
        hint="pass NumPy's, CuPy's or torch's array: cupy.asarray(w) or torch.as_tensor(w) share the memory",
    )
