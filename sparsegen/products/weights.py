"""Where a product's matrix lies: its arrays on the host, or their addresses on a GPU.

Arrays that are on a GPU already are used where they are.  Those of the host are uploaded once a device, and shared by
all kernels of the matrix as long as it lives.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from sparsegen.arrays import describe
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.ir.errors import ArrayError
from sparsegen.memory import DEVICE, room_for
from sparsegen.products.pipelines import MATRIX

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import Runtime


class _Uploaded:
    """The arrays of one matrix in the memory of one device."""

    def __init__(self, runtime: Runtime, arrays: dict[str, Any]) -> None:
        self._runtime = runtime
        self.addresses: list[int] = []
        with room_for({"W": sum(a.nbytes for a in arrays.values())}, runtime.memory, DEVICE):
            try:
                for array in arrays.values():
                    self.addresses.append(runtime.alloc(array.nbytes))
                    runtime.to_device(self.addresses[-1], array)
            except BaseException:
                self._free()
                raise

    def _free(self) -> None:
        for pointer in self.addresses:
            self._runtime.free(pointer)
        self.addresses.clear()

    def __del__(self) -> None:
        try:
            self._free()
        except Exception:  # the context may be gone when the interpreter ends
            return


_lock = Lock()
_uploaded: WeakKeyDictionary[SparseMatrix, dict[int, _Uploaded]] = WeakKeyDictionary()
_on_host: WeakKeyDictionary[SparseMatrix, dict[str, Any]] = WeakKeyDictionary()


def host_arrays(w: SparseMatrix) -> dict[str, Any]:
    """Index, masks and values as flat arrays of 32-bit words; those of a device are copied once."""
    with _lock:
        if (known := _on_host.get(w)) is None:
            host = w.to_host()
            known = {name: np.ascontiguousarray(host.arrays[name]).reshape(-1).view(np.uint32) for name in MATRIX}
            _on_host[w] = known
        return known


def device_of(w: SparseMatrix) -> int | None:
    """The GPU that the matrix is on; None on the host."""
    return describe(w.arrays[MATRIX[0]]).layout.device_index


def addresses(w: SparseMatrix, runtime: Runtime) -> tuple[int, ...]:
    """Addresses of index, masks and values on the runtime's device.

    ArrayError if they are on another GPU; DeviceMemoryError where they do not fit.
    """
    found = device_of(w)
    if found is not None:
        if found != runtime.device:
            raise ArrayError(
                f"W is on cuda:{found}, the product is to run on cuda:{runtime.device}",
                hint="encode W from an array of that device, or use W.to_host(), which is copied to each",
            )
        return tuple(describe(w.arrays[name]).pointer for name in MATRIX)
    arrays = host_arrays(w)
    with _lock:
        known = _uploaded.setdefault(w, {})
        if runtime.device not in known:
            known[runtime.device] = _Uploaded(runtime, arrays)
        return tuple(known[runtime.device].addresses)
