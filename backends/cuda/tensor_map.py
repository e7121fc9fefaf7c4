"""Tensor maps: the 128 bytes that the driver makes of an address and of how a matrix lies there."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from sparsegen.ir.errors import DeviceError
from sparsegen.ir.tensor_copy import TensorMap, tensor_maps
from sparsegen.ir.types import Buffer, DType
from sparsegen.ir.warp import Func

#: Of a map: its bytes, and at multiples of what it lies.
NBYTES, ALIGN = 128, 128
#: CUtensorMapDataType by an element's bytes: the unit only moves them, so unsigned integers will do.
TYPES: Final = {1: 0, 2: 1, 4: 2, 8: 4}
#: CUtensorMapSwizzle; rows of 128 bytes come to L2 whole (CUtensorMapL2promotion).
SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}
L2_128_BYTES: Final = 2
#: Bytes of the map of a matrix at an address.
Encode = Callable[[int], bytes]
#: A tensor map of a launch: which of the pointers is the matrix, and what makes the bytes.
MapArg = tuple[int, Encode]


def numbers(dtype: DType, m: TensorMap) -> tuple[int, int, int, int, int, int, int]:
    """What ``cuTensorMapEncodeTiled`` is told, columns first: type, extents, bytes from row to row, box, swizzle."""
    size = dtype.nbytes
    return TYPES[size], m.cols, m.rows, m.pitch * size, m.box[1], m.box[0], SWIZZLES[m.swizzle]


@cache
def _driver() -> Any:
    """``cuTensorMapEncodeTiled`` of the driver; DeviceError without a driver, or for one before CUDA 12."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        function = ctypes.CDLL(name).cuTensorMapEncodeTiled
    except (OSError, AttributeError) as e:
        raise DeviceError(
            f"tensor maps need the driver's cuTensorMapEncodeTiled: {e}", hint="install a driver for CUDA 12 or newer"
        ) from e
    number, pointer = ctypes.c_uint32, ctypes.c_void_p
    function.argtypes = [pointer, number, number, pointer, *[pointer] * 4, *[number] * 4]
    function.restype = number
    return function


def encoder(dtype: DType, m: TensorMap) -> Encode:
    """A function that makes the map of a matrix at an address; it raises DeviceError for one that is no place for it.

    A context must be current.  Safe for threads; 5 microseconds a call.
    """
    kind, cols, rows, pitch, box_cols, box_rows, swizzle = numbers(dtype, m)
    dims, strides = (ctypes.c_uint64 * 2)(cols, rows), (ctypes.c_uint64 * 1)(pitch)
    box, steps = (ctypes.c_uint32 * 2)(box_cols, box_rows), (ctypes.c_uint32 * 2)(1, 1)
    tables = tuple(ctypes.addressof(x) for x in (dims, strides, box, steps))
    held = dims, strides, box, steps

    def encode(address: int) -> bytes:
        room = ctypes.create_string_buffer(NBYTES + ALIGN)
        at = -(-ctypes.addressof(room) // ALIGN) * ALIGN
        status = _driver()(at, kind, 2, address, *tables, 0, swizzle, L2_128_BYTES, 0)
        if status:
            raise DeviceError(
                f"cuTensorMapEncodeTiled failed ({status}) for a matrix at {address:#x}: {m}",
                hint="give an array of this device, at a multiple of 16 bytes, on a GPU of sm_90 or newer",
            )
        return ctypes.string_at(at, NBYTES)

    encode.keep = held  # type: ignore[attr-defined]  # the tables live as long as what points at them
    return encode


def map_args(func: Func) -> list[MapArg]:
    """The tensor maps that a launch of a function takes behind its other arguments."""
    pointers = [p.name for p in func.params if isinstance(p, Buffer) and p.space == "global"]
    return [(pointers.index(buf.name), encoder(buf.dtype, m)) for buf, m in tensor_maps(func)]
