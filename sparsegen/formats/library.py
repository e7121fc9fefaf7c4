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

from sparsegen.arrays import ArrayView, torch_dtypes
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.types import DType

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
    def to_host(self, array: Any) -> Any:
        """The NumPy array of an array's bits; words become unsigned again."""

    @abstractmethod
    def view(self, array: Any, kind: str) -> Any:
        """The same memory as other integers; the array must be packed, its last axis grows or shrinks."""

    @abstractmethod
    def word(self, array: Any) -> Any:
        """Signed integers as what is stored: unsigned ones of that size (torch has none to speak of: unchanged)."""

    @abstractmethod
    def wide(self, array: Any) -> Any:
        """Integers of 8, 16 or 32 bits as int64, taken as unsigned."""

    @abstractmethod
    def floats(self, bits: Any, dtype: DType) -> Any:
        """int16 bits as floating-point numbers, not copied."""

    @abstractmethod
    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        """The array with its axes in another order, not copied."""

    @abstractmethod
    def pick(self, array: Any, mask: Any) -> Any:
        """The elements where the mask is true, one after another in C order."""

    @abstractmethod
    def put(self, array: Any, mask: Any, values: Any) -> None:
        """Write ``values``, one after another, where the mask is true: the inverse of ``pick``."""

    @abstractmethod
    def cumsum(self, array: Any) -> Any:
        """Running sums, the own element included, of one axis of int64."""

    @abstractmethod
    def concatenate(self, arrays: Sequence[Any]) -> Any:
        """The arrays one after another along their first axis."""

    def narrow(self, array: Any) -> Any:
        """The low 32 bits of int64 as stored words."""
        low = self.view(array, "int32").reshape(*array.shape, 2)[..., 0]
        return self.word(self.packed(low))


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

    def to_host(self, array: Any) -> Any:
        return array if self.device is None else self.xp.asnumpy(array)

    def view(self, array: Any, kind: str) -> Any:
        return array.view(kind)

    def word(self, array: Any) -> Any:
        return array.view(f"uint{8 * array.itemsize}")

    def wide(self, array: Any) -> Any:
        return array.view(f"uint{8 * array.itemsize}").astype("int64")

    def floats(self, bits: Any, dtype: DType) -> Any:
        return bits.view(dtype.numpy())

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        return array.transpose(axes)

    def pick(self, array: Any, mask: Any) -> Any:
        return array[mask]

    def put(self, array: Any, mask: Any, values: Any) -> None:
        array[mask] = values

    def cumsum(self, array: Any) -> Any:
        return self.xp.cumsum(array)

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

    def to_host(self, array: Any) -> Any:
        host = array.cpu().numpy()
        return host.view(f"uint{8 * host.itemsize}")

    def view(self, array: Any, kind: str) -> Any:
        # Between bool and wider integers by way of bytes, so that each view changes size or meaning, not both.
        return array.view(self.torch.uint8).view(getattr(self.torch, kind))

    def word(self, array: Any) -> Any:
        return array

    def wide(self, array: Any) -> Any:
        return array.to(self.torch.int64) & (256 ** array.element_size() - 1)

    def floats(self, bits: Any, dtype: DType) -> Any:
        return bits.view(next(t for t, n in torch_dtypes(self.torch).items() if n == dtype.numpy()))

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        return array.permute(*axes)

    def pick(self, array: Any, mask: Any) -> Any:
        # Flat: on a GPU torch writes out the coordinates of what it picks, one 64-bit number an axis.
        return self.torch.masked_select(array.reshape(-1), mask.reshape(-1))

    def put(self, array: Any, mask: Any, values: Any) -> None:
        array.masked_scatter_(mask, values)

    def cumsum(self, array: Any) -> Any:
        return self.torch.cumsum(array, 0)

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        return self.torch.cat(tuple(arrays))


NUMPY: Final = NumpyLike(np, None)


def library_of(view: ArrayView) -> tuple[Library, Any]:
    """The library of a 16-bit array, and the array's bits as its int16, not copied; ArrayError for other libraries."""
    layout, array = view.layout, view.owner
    if layout.library == "numpy":
        return NUMPY, np.asarray(array).view("int16")
    if layout.library == "cupy":
        return NumpyLike(sys.modules["cupy"], layout.device_index), array.view("int16")
    if layout.library == "torch":
        torch: Any = sys.modules["torch"]
        return Torch(torch, array.device), array.view(torch.int16)
    raise ArrayError(
        f"weights in an array of {type(array).__module__}.{type(array).__qualname__} cannot be encoded where they are",
        hint="pass NumPy's, CuPy's or torch's array: cupy.asarray(w) or torch.as_tensor(w) share the memory",
    )
