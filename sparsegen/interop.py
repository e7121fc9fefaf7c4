"""Device arrays other than torch's: CuPy, pycuda, ``__cuda_array_interface__`` (numba and others) and DLPack."""

from __future__ import annotations

import ctypes
import importlib
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from sparsegen.ir.errors import ArrayError, DeviceError
from sparsegen.views import LAYOUTS_KEPT, AnyDType, ArrayLayout, ArrayView, Probe, c_strides, probe_numpy

_KNOWN = "NumPy, torch, CuPy, pycuda, __cuda_array_interface__ or DLPack"


def find_probe(array: Any) -> Probe:
    """How to look at arrays of this object's type; ArrayError if it is no array."""
    module = type(array).__module__.split(".", 1)[0]
    if module == "cupy" and hasattr(array, "data"):
        return probe_cupy
    if hasattr(type(array), "__cuda_array_interface__") or hasattr(array, "__cuda_array_interface__"):
        return probe_interface
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return probe_dlpack
    hint = f"pass an array of {_KNOWN}"
    if isinstance(array, (list, tuple, int, float)) or hasattr(array, "__array__"):
        hint = "pass np.asarray(...) of it; nothing is converted silently"
    raise ArrayError(
        f"an object of type {type(array).__module__}.{type(array).__qualname__} is not an array", hint=hint
    )


@lru_cache(LAYOUTS_KEPT)
def _layout(
    library: str, shape: tuple[int, ...], strides: tuple[int, ...], dtype: AnyDType, device: int, readonly: bool
) -> ArrayLayout:
    other_order = (f"an array of dtype {dtype.str} is not in this machine's byte order", "convert it first")
    problem = None if dtype.isnative else other_order
    return ArrayLayout(library, shape, strides, dtype, "cuda", device, readonly, problem)


def probe_cupy(array: Any) -> ArrayView:
    """A CuPy array; its stream is CuPy's current one."""
    data = array.data
    layout = _layout("cupy", array.shape, array.strides, array.dtype, int(data.device_id), False)
    current = sys.modules["cupy"].cuda.get_current_stream().ptr
    return ArrayView(int(data.ptr), layout, array, int(current) or None)


def _pointer_device(pointer: int, library: str) -> int:
    """The device of an address as the driver knows it; 0 if cuda-bindings, which can tell, is not installed."""
    if pointer == 0:
        return 0
    from sparsegen.backends.cuda.runtime import open_runtime

    def opened(index: int) -> Any:
        return open_runtime(index, "driver")

    try:
        runtime = opened(0)
    except DeviceError:
        return 0
    try:
        device = int(runtime.pointer_device(pointer))
        reachable = library != "pycuda" or opened(device).in_primary_context(pointer)
    except DeviceError as e:
        raise ArrayError(
            f"address {pointer:#x} is not device memory of this process", hint="pass an array that is still alive"
        ) from e
    if not reachable:
        raise ArrayError(
            "a pycuda array that lives in a CUDA context of its own, which no other library can reach",
            hint="import pycuda.autoprimaryctx instead of pycuda.autoinit, before the array is made",
        )
    return device


def probe_interface(array: Any) -> ArrayView:
    """Anything with ``__cuda_array_interface__`` (version 2 or 3)."""
    try:
        facts = dict(array.__cuda_array_interface__)
        pointer, readonly = facts["data"]
        dtype = np.dtype(facts["typestr"])
        shape = tuple(int(n) for n in facts["shape"])
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise ArrayError(
            f"the __cuda_array_interface__ of a {type(array).__qualname__} is not valid: {e}", hint=f"pass {_KNOWN}"
        ) from e
    if facts.get("mask") is not None:
        raise ArrayError("a masked device array cannot be used", hint="fill the masked elements first")
    own: Any = getattr(array, "dtype", None)
    if dtype.kind == "V" and isinstance(own, np.dtype) and own.itemsize == dtype.itemsize:
        dtype = own  # ml_dtypes' bfloat16 has no typestr of its own
    strides = facts.get("strides")
    steps = c_strides(shape, dtype.itemsize) if strides is None else tuple(int(s) for s in strides)
    module = type(array).__module__.split(".", 1)[0]
    library = module if module in ("pycuda", "numba") else "cai"
    address = int(pointer or 0)
    layout = _layout(library, shape, steps, dtype, _pointer_device(address, library), bool(readonly))
    return ArrayView(address, layout, array, facts.get("stream"))


# ----------------------------------------------------------------------------------------------------------- DLPack


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_CPU, _CUDA, _CUDA_MANAGED = 1, 2, 13
_DEFAULT_STREAM = 1
_CODES = {0: "int", 1: "uint", 2: "float", 6: "bool"}


def _dlpack_dtype(tensor: _DLTensor) -> AnyDType:
    if tensor.code == 4 and tensor.bits == 16 and tensor.lanes == 1:
        import ml_dtypes

        bfloat16: AnyDType = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    name = _CODES.get(tensor.code)
    with suppress(TypeError):
        if name is not None and tensor.lanes == 1:
            return np.dtype("bool" if name == "bool" else f"{name}{tensor.bits}")
    raise ArrayError(
        f"a DLPack tensor of type code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes",
        hint="convert it to a plain integer or floating-point type",
    )


def probe_dlpack(array: Any) -> ArrayView:
    """Anything with ``__dlpack__``, on a CUDA device (its work so far is ordered on the default stream) or the host."""
    device_type = int(array.__dlpack_device__()[0])
    if device_type == _CPU:
        return probe_numpy(np.from_dlpack(array))
    if device_type not in (_CUDA, _CUDA_MANAGED):
        raise ArrayError(f"a DLPack tensor on device type {device_type}", hint="move it to a CUDA device or the host")
    capsule = array.__dlpack__(stream=_DEFAULT_STREAM)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(get(capsule, b"dltensor"))
    dtype = _dlpack_dtype(tensor)
    shape = tuple(int(tensor.shape[i]) for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(int(tensor.strides[i]) * dtype.itemsize for i in range(tensor.ndim))
    else:
        strides = c_strides(shape, dtype.itemsize)
    layout = _layout("dlpack", shape, strides, dtype, int(tensor.device_id), False)
    # The capsule, never consumed, keeps the tensor alive and gives it back when the view goes.
    return ArrayView(int(tensor.data or 0) + int(tensor.byte_offset), layout, (array, capsule), None)


def empty(view: ArrayView, shape: tuple[int, ...], dtype: AnyDType) -> Any:
    """A new device array of the view's library; ArrayError if it is one that cannot be asked for memory."""
    library = view.layout.library
    if library == "cupy":
        cupy: Any = sys.modules["cupy"]
        with cupy.cuda.Device(view.layout.device_index):
            return cupy.empty(shape, dtype)
    if library == "pycuda":
        from sparsegen.backends.cuda.runtime import open_runtime

        gpuarray = importlib.import_module("pycuda.gpuarray")
        with open_runtime(view.layout.device_index or 0, "pycuda").current():
            return gpuarray.empty(shape, dtype)
    if library == "numba":
        cuda: Any = sys.modules["numba.cuda"]
        with cuda.gpus[view.layout.device_index or 0]:
            return cuda.device_array(shape, dtype)
    raise ArrayError(
        f"cannot make an array like a {type(view.owner).__qualname__}: its library is not known",
        hint="pass out=, or use torch, CuPy, pycuda or numba",
    )
