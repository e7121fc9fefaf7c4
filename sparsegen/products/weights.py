"""Where a product's matrix lies: the arrays that kernels read of it, on the host or at their addresses on a GPU.

Arrays that are on a GPU already are used where they are.  Those of the host are uploaded once a device, and shared by
all kernels of the matrix as long as it lives; so is what is made of the stored arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from sparsegen.arrays import describe
from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ArrayError
from sparsegen.memory import DEVICE, room_for


class Prepared(NamedTuple):
    """An array that a kernel reads of a matrix: ``make`` makes it of the matrix where that is, or on the host.

    Arrays of one ``key`` are the same one, for all kernels of the matrix.  ``about``: how it comes about, in words;
    ``words``: kernels take it as 32-bit words.
    """

    key: Hashable
    make: Callable[[SparseMatrix], Any]
    about: str
    words: bool = False


def padded(w: SparseMatrix, name: str, align: int) -> Any:
    """A stored array with zeros behind it up to a multiple of ``align`` elements, at least one such."""
    array, dtype = w.arrays[name], next(s.dtype for s in w.spec.stored if s.name == name)
    entries = int(array.shape[0])
    missing = max(-(-entries // align), 1) * align - entries
    if not missing:
        return array
    return w.library.xp.concatenate([array, w.library.view(w.library.zeros((missing,), f"int{dtype.bits}"), dtype)])


class _Uploaded:
    """An array in the memory of a device: uploaded, or of the library that the matrix is in."""

    def __init__(self, array: Any, runtime: Runtime) -> None:
        self._runtime, self._own = runtime, isinstance(array, np.ndarray)
        if not self._own:
            self._array = array  # which keeps its memory
            self.address = describe(array).pointer
            return
        with room_for({"W": array.nbytes}, runtime.memory, DEVICE):
            self.address = runtime.alloc(array.nbytes)
            runtime.to_device(self.address, np.ascontiguousarray(array).reshape(-1))

    def __del__(self) -> None:
        with suppress(Exception):  # the context may be gone when the interpreter ends, or nothing was allocated
            if self._own:
                self._runtime.free(self.address)


def host_arrays(w: SparseMatrix, arrays: Mapping[str, Prepared]) -> dict[str, Any]:
    """The arrays by name, flat; those of a device are copied once."""
    host = cache(w.to_host)

    def made(one: Prepared) -> Any:
        flat = np.ascontiguousarray(one.make(host())).reshape(-1)
        return flat.view(np.uint32) if one.words else flat

    return {name: w.once(("host", one.key), partial(made, one)) for name, one in arrays.items()}


def device_of(w: SparseMatrix) -> int | None:
    """The GPU that the matrix is on; None on the host."""
    return describe(next(iter(w.arrays.values()))).layout.device_index


def addresses(w: SparseMatrix, arrays: Mapping[str, Prepared], runtime: Runtime) -> dict[str, int]:
    """Addresses of the arrays on the runtime's device, by name.

    ArrayError if the matrix is on another GPU; DeviceMemoryError where they do not fit.
    """
    found = device_of(w)
    if found is not None and found != runtime.device:
        raise ArrayError(
            f"W is on cuda:{found}, the product is to run on cuda:{runtime.device}",
            hint="encode W from an array of that device, or use W.to_host(), which is copied to each",
        )
    source = cache(w.to_host if found is None else lambda: w)

    def made(one: Prepared) -> Any:
        array = one.make(source())
        if found is not None and all(array is not own for own in w.arrays.values()):
            runtime.synchronize()  # later launches may be on other streams
        return array

    def uploaded(one: Prepared) -> _Uploaded:
        return w.once((runtime.device, one.key), lambda: _Uploaded(made(one), runtime))

    with w.library.active():
        return {name: uploaded(one).address for name, one in arrays.items()}
