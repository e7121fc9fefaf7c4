"""The array operations that the encoders need and that NumPy, CuPy and torch spell differently.

All else they do (slices, ``& | << >> * != sum reshape``) is spelled alike, and so are functions of the module ``xp``
such as ``concatenate``. Everything runs where the array is, on its library's current stream; an encoder computes in
signed 64-bit integers, which all three have.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparsegen.arrays import describe, detached
from sparsegen.ir.errors import ArrayError
from sparsegen.ir.types import DType
from sparsegen.views import ArrayView

#: Elements that an encoder takes at once: what a host's cache holds; what fills a GPU, but not its memory.
HOST_BAND: Final = 1 << 21
DEVICE_BAND: Final = 1 << 26
#: NumPy's names of the dtypes that weights are pruned and quantised in.
FLOATS: Final = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Library:
    """NumPy, or CuPy on the GPU number ``device``: ``xp`` is the module.  :class:`Torch` spells some of it otherwise.

    Dtypes are those of the IR, or integers by NumPy's names: ``int16``, ``int64``, ``bool``, ...
    """

    xp: Any
    device: Any = None

    @property
    def name(self) -> str:
        """``numpy``, ``cupy`` or ``torch``."""
        return str(self.xp.__name__)

    @property
    def where(self) -> str:
        """The device in words, as the library names it."""
        return "cpu" if self.device is None else f"cuda:{self.device}"

    @property
    def band(self) -> int:
        """Elements that an encoder takes at once."""
        return HOST_BAND if self.where == "cpu" else DEVICE_BAND

    def active(self) -> AbstractContextManager[Any]:
        """Within it new arrays are made on this library's device."""
        return nullcontext() if self.device is None else self.xp.cuda.Device(self.device)

    def dtype(self, kind: str | DType) -> Any:
        """The dtype of arrays that stands for ``kind``."""
        return kind if isinstance(kind, str) else kind.numpy()

    def holds(self, array: Any, kind: DType) -> bool:
        """Whether an array has the dtype that stands for ``kind``."""
        return bool(array.dtype == self.dtype(kind))

    # ------------------------------------------------------------------------------------------------- making arrays
    def zeros(self, shape: Sequence[int], kind: str) -> Any:
        """A new array of zeros."""
        return self.xp.zeros(tuple(shape), kind)

    def arange(self, n: int) -> Any:
        """0 .. n-1 as int64."""
        return self.xp.arange(n, dtype="int64")

    def constant(self, table: Any) -> Any:
        """A NumPy array on this device."""
        return self.xp.asarray(table)

    def to_host(self, array: Any, kind: DType) -> Any:
        """The NumPy array of an array that ``holds`` a dtype."""
        return array if self.device is None else self.xp.asnumpy(array)

    def packed(self, array: Any) -> Any:
        """The array itself if it is packed in C order, else a copy that is."""
        return self.xp.ascontiguousarray(array)

    def copy(self, array: Any) -> Any:
        """A packed copy whose axes are in the same order."""
        return array.copy(order="K")

    # ------------------------------------------------------------------------------------------------- other dtypes
    def view(self, array: Any, kind: str | DType) -> Any:
        """The same memory as numbers of another dtype; the array must be packed, its last axis grows or shrinks."""
        return array.view(self.dtype(kind))

    def elements(self, array: Any, kind: DType) -> Any:
        """The same memory as an array of a dtype that a user gets, also where words of its bits stand for it here."""
        return self.view(array, kind)

    def wide(self, array: Any) -> Any:
        """Packed integers as int64, taken as unsigned."""
        return array.view(f"uint{8 * array.itemsize}").astype("int64")

    def cast(self, array: Any, kind: DType) -> Any:
        """Numbers as those of another dtype, which must hold them."""
        return array.astype(self.dtype(kind))

    # ------------------------------------------------------------------------------------------------- places
    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        """The array with its axes in another order, not copied."""
        return array.transpose(axes)

    def pick(self, array: Any, mask: Any) -> Any:
        """What lies where the mask is true, one after another in C order; the mask may lack the last axis."""
        return array[mask]

    def put(self, array: Any, mask: Any, values: Any) -> None:
        """Write ``values``, one after another, where the mask is true: the inverse of ``pick``."""
        array[mask] = values

    def columns(self, mask: Any) -> Any:
        """The second coordinates, int64, of where a mask of two axes is true, in C order."""
        return self.xp.nonzero(mask)[1]

    def first(self, mask: Any) -> int | None:
        """The first place where a mask of one axis is true; None if there is none."""
        places = self.columns(mask.reshape(1, -1))
        return int(places[0]) if places.shape[0] else None

    def fibers(self, starts: Any, count: int) -> Any:
        """For each of ``count`` entries, the fiber that it lies in, int64; ``starts`` ascends from 0."""
        return self.xp.searchsorted(self.packed(starts[1:]), self.arange(count), side="right")

    def least(self, array: Any, starts: Any, fibers: Any) -> Any:
        """The smallest element of each fiber, of which none is empty.

        ``starts``: the first entry of each fiber; ``fibers``: for each entry the fiber that it lies in.
        """
        if self.device is None:
            return self.xp.minimum.reduceat(array, starts)
        order = self.order(array)  # the smallest of each fiber comes first; CuPy reduces no runs of several lengths
        return array[order[self.order(fibers[order])][starts]]

    def order(self, array: Any) -> Any:
        """The places along the last axis, the smallest element's first; of equal ones the first is first."""
        return self.xp.argsort(array, axis=-1, kind="stable")

    def distinct(self, array: Any) -> int:
        """How many different numbers an array of one axis holds; by order, as NumPy's ``unique`` takes far longer."""
        ordered = array[self.order(array)]
        return int((ordered[1:] != ordered[:-1]).sum()) + bool(ordered.shape[0])

    def ranked(self, array: Any, place: int) -> Any:
        """The element of an array of one axis that stands at ``place`` when it is sorted."""
        return self.xp.partition(array, place)[place]

    def cumsum(self, array: Any, axis: int = 0) -> Any:
        """Running sums as int64, the own element included, along an axis."""
        return self.xp.cumsum(array, axis, dtype=self.dtype("int64"))


@dataclass(frozen=True)
class Torch(Library):
    """torch on one ``torch.device``, the host's included.

    It has no unsigned integers to speak of: the signed ones of the same bits stand for them.
    """

    @property
    def where(self) -> str:
        return str(self.device)

    def active(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def dtype(self, kind: str | DType) -> Any:
        name = kind if isinstance(kind, str) else f"int{kind.bits}" if kind.is_int else kind.numpy().name
        return getattr(self.xp, name)

    def zeros(self, shape: Sequence[int], kind: str) -> Any:
        return self.xp.zeros(tuple(shape), dtype=self.dtype(kind), device=self.device)

    def arange(self, n: int) -> Any:
        return self.xp.arange(n, dtype=self.xp.int64, device=self.device)

    def constant(self, table: Any) -> Any:
        return self.xp.from_numpy(table).to(self.device)

    def to_host(self, array: Any, kind: DType) -> Any:
        return self.view(array, f"int{8 * array.element_size()}").cpu().numpy().view(kind.numpy())

    def packed(self, array: Any) -> Any:
        return array.contiguous()

    def copy(self, array: Any) -> Any:
        return array.clone()

    def view(self, array: Any, kind: str | DType) -> Any:
        # Between bool and wider integers by way of bytes, so that each view changes size or meaning, not both.
        return array.view(self.xp.uint8).view(self.dtype(kind))

    def elements(self, array: Any, kind: DType) -> Any:
        return self.view(array, kind.numpy().name)

    def wide(self, array: Any) -> Any:
        size = array.element_size()
        return array if size == 8 else array.to(self.xp.int64) & (256**size - 1)

    def cast(self, array: Any, kind: DType) -> Any:
        return array.to(self.dtype(kind))

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        return array.permute(*axes)

    def pick(self, array: Any, mask: Any) -> Any:
        if array.ndim > mask.ndim:
            return array[mask]
        # Flat: on a GPU torch writes out the coordinates of what it picks, one 64-bit number an axis.
        return self.xp.masked_select(array.reshape(-1), mask.reshape(-1))

    def put(self, array: Any, mask: Any, values: Any) -> None:
        if array.ndim > mask.ndim:
            array[mask] = values
        else:
            array.masked_scatter_(mask, values)

    def columns(self, mask: Any) -> Any:
        return self.xp.nonzero(mask)[:, 1]

    def least(self, array: Any, starts: Any, fibers: Any) -> Any:
        return array[starts].scatter_reduce_(0, fibers, array, "amin")

    def order(self, array: Any) -> Any:
        return self.xp.argsort(array, dim=-1, stable=True)

    def ranked(self, array: Any, place: int) -> Any:
        return self.xp.kthvalue(array, place + 1).values


NUMPY: Final = Library(np)


def library_of(view: ArrayView) -> tuple[Library, Any]:
    """The library of an array, and the array's bits as its signed integers, not copied; ArrayError for others."""
    layout, array = view.layout, view.owner
    module = sys.modules.get(layout.library)
    if layout.library == "numpy":
        lib, array = NUMPY, np.asarray(array)
    elif layout.library == "cupy":
        lib = Library(module, layout.device_index)
    elif layout.library == "torch":
        lib = Torch(module, array.device)
    else:
        raise ArrayError(
            f"weights of type {type(array).__module__}.{type(array).__qualname__} cannot be encoded where they are",
            hint="pass NumPy's, CuPy's or torch's array: cupy.asarray(w) or torch.as_tensor(w) share the memory",
        )
    return lib, array.view(lib.dtype(f"int{8 * layout.dtype.itemsize}"))


def floats(w: Any, done: str) -> ArrayView:
    """The view of weights ``w``, for what is ``done`` to them ("pruned"); ArrayError for what is no array of FLOATS."""
    view = describe(detached(w))
    layout = view.layout
    if layout.problem is not None:
        raise ArrayError(f"w is {layout.problem[0]}", hint=layout.problem[1] or "convert it: w.float()")
    if layout.dtype.name not in FLOATS:
        raise ArrayError(
            f"w has dtype {layout.dtype}, weights are {done} in {', '.join(FLOATS)}",
            hint="convert it: w.astype(np.float32); in torch w.float(); nothing is cast",
        )
    return view
