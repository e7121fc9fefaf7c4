"""Launching through pycuda: device discovery, the primary context, memory, its own streams and the default stream.

pycuda ties every object to the context object that was current when it was made and, when that one is not current,
frees the object only on the thread that made the context. So one context object a device serves all threads; it is
pushed around each use and popped again, and everything is freed inside.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.runtime import (
    DeviceInfo,
    Dim3,
    Function,
    HostArray,
    Prepared,
    Runtime,
    available_kinds,
    cuda_error,
    host_bytes,
    open_runtime,
)
from sparsegen.ir.errors import DeviceError

# pycuda reports NVIDIA's text, not the number: (part of the text, CUresult, its name)
_TEXTS = (
    ("out of memory", 2, "CUDA_ERROR_OUT_OF_MEMORY"),
    ("no CUDA-capable device", 100, "CUDA_ERROR_NO_DEVICE"),
    ("invalid device ordinal", 101, "CUDA_ERROR_INVALID_DEVICE"),
    ("no kernel image", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    ("named symbol not found", 500, "CUDA_ERROR_NOT_FOUND"),
    ("illegal memory access", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("too many resources", 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    ("unspecified launch failure", 719, "CUDA_ERROR_LAUNCH_FAILED"),
)


def _driver_module() -> Any:
    try:
        return importlib.import_module("pycuda.driver")
    except ImportError as e:
        raise DeviceError(
            f"pycuda cannot be imported: {e}",
            hint="pip install 'sparsegen[cuda]' (compiles pycuda: needs the CUDA toolkit), or use backend='emulator'",
        ) from e


class _Module:
    """A loaded cubin; unloaded with the object, on whatever thread that happens."""

    def __init__(self, runtime: PycudaRuntime, cubin: bytes) -> None:
        self._runtime, self.cubin = runtime, cubin
        with runtime.current():
            self.module = runtime.cuda.module_from_buffer(cubin)

    def __del__(self) -> None:
        with contextlib.suppress(Exception), self._runtime.current():
            del self.module


class _Timer:
    def __init__(self, runtime: PycudaRuntime) -> None:
        self._runtime = runtime
        with runtime.current():
            self._events = [runtime.cuda.Event() for _ in range(2)]

    def start(self, stream: int | None = None) -> None:
        with self._runtime.current():
            self._events[0].record(self._runtime.stream(stream))

    def stop(self, stream: int | None = None) -> None:
        with self._runtime.current():
            self._events[1].record(self._runtime.stream(stream))

    def seconds(self) -> float:
        with self._runtime.current():
            self._events[1].synchronize()
            return float(self._events[1].time_since(self._events[0])) * 1e-3

    def __del__(self) -> None:
        with contextlib.suppress(Exception), self._runtime.current():
            self._events.clear()


class PycudaRuntime(Runtime):
    """``Runtime`` on pycuda: the default stream and streams that ``new_stream`` made."""

    name = "pycuda"

    def __init__(self, device: int = 0) -> None:
        self.cuda = cuda = _driver_module()
        self.device = device
        with self._errors():
            cuda.init()
            count = int(cuda.Device.count())
            if not 0 <= device < count:
                raise DeviceError(f"device {device} is not there: the driver sees {count}", hint="numbers start at 0")
            self._device = cuda.Device(device)
            # Kept until the process ends: modules and arrays of the user may outlive any object here, and pycuda's
            # destructor detaches a primary context as if it were an ordinary one, with a warning at exit.
            self._context = self._device.retain_primary_context()
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._context))
        self._streams: dict[int, Any] = {}
        self._allocations: dict[int, Any] = {}

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self.cuda.Error as e:
            text = str(e)
            for part, code, name in _TEXTS:
                if part in text:
                    raise cuda_error(code, name, text.split(" failed", 1)[0]) from e
            raise DeviceError(text, hint="look the message up in NVIDIA's driver API documentation") from e

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        with self._errors():
            self._context.push()
            try:
                yield
            finally:
                self.cuda.Context.pop()

    def stream(self, stream: int | None) -> Any:
        """pycuda's stream object for a handle (None for the default stream); DeviceError for a foreign one."""
        if not stream:
            return None
        try:
            return self._streams[stream]
        except KeyError:
            raise DeviceError(
                f"stream {stream:#x} is not pycuda's: pycuda cannot launch on another library's stream",
                hint="use the driver runtime (pip install cuda-bindings), or the default stream",
            ) from None

    def identity(self) -> tuple[str, int, Callable[[str], int]]:
        attributes, device = self.cuda.device_attribute, self._device

        def get(name: str) -> int:
            return int(device.get_attribute(getattr(attributes, name)))

        return str(device.name()), int(device.total_memory()), get

    def info(self) -> DeviceInfo:
        with self._errors():
            return super().info()

    def load(self, cubin: bytes) -> _Module:
        return _Module(self, cubin)

    def cooperative(self) -> bool:
        """By the driver's bindings, which launch such a kernel here."""
        return "driver" in available_kinds() and open_runtime(self.device, "driver").cooperative()

    def function(self, module: _Module, name: str, shared_bytes: int = 0) -> Function:
        attribute = self.cuda.function_attribute
        with self.current():
            function = module.module.get_function(name)
            if shared_bytes > 0:
                function.set_attribute(attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
        return Function(module, function, name, shared_bytes)

    def prepare(
        self, fn: Function, grid: Dim3, block: Dim3, shared: int, args: PackedArgs, overlap: bool = False,
        together: bool = False,
    ) -> Prepared:  # fmt: skip
        # pycuda packs arguments in C's way, and ptxas places tensor maps in its own; nor has it cooperative launches
        if args.has_maps or together:
            other = open_runtime(self.device, "driver")
            twin = other.function(other.load(fn.module.cubin), fn.name, fn.shared_bytes)
            return other.prepare(twin, grid, block, shared, args, overlap, together)
        push, pop, start = self._context.push, self.cuda.Context.pop, fn.handle._launch_kernel
        lock, set_pointers, failure = args.lock, args.set_pointers, self.cuda.Error
        buffer: Any = args.buffer if args.nbytes else b""

        def run(pointers: Sequence[int], stream: int | None = None, numbers: bytes | None = None) -> None:
            target = self.stream(stream) if stream else None
            with lock:
                set_pointers(pointers)
                if numbers is not None:
                    args.set_numbers(numbers)
                try:
                    push()
                    try:
                        start(grid, block, buffer, shared, target)
                    finally:
                        pop()
                except failure:
                    with self._errors():
                        raise

        run.keep = (fn, args)  # type: ignore[attr-defined]  # the module lives as long as the launch
        return run

    def alloc(self, nbytes: int) -> int:
        with self.current():
            allocation = self.cuda.mem_alloc(max(1, nbytes))
        pointer = int(allocation)
        self._allocations[pointer] = allocation
        return pointer

    def free(self, pointer: int) -> None:
        allocation = self._allocations.pop(pointer, None)
        if allocation is None:
            raise DeviceError(f"free: {pointer:#x} was not allocated by this runtime", hint="free each pointer once")
        with self.current():
            allocation.free()

    def zero(self, pointer: int, nbytes: int, stream: int | None = None) -> None:
        target = self.stream(stream)
        with self.current():
            self.cuda.memset_d8_async(pointer, 0, nbytes, target)

    def _wait(self, target: Any) -> None:
        if target is not None:
            target.synchronize()
            return
        event = self.cuda.Event()
        event.record()
        event.synchronize()

    def to_device(self, target: int, source: HostArray, stream: int | None = None) -> None:
        self.upload(target, source, stream)
        with self.current():
            self._wait(self.stream(stream))

    def upload(self, target: int, source: HostArray, stream: int | None = None) -> None:
        queue = self.stream(stream)
        data = host_bytes(source, "upload").reshape(-1).view(np.uint8)
        if data.nbytes:
            with self.current():  # of pageable memory: the driver has read it when the call returns
                self.cuda.memcpy_htod_async(target, data, queue)

    def to_host(self, target: HostArray, source: int, stream: int | None = None) -> None:
        queue = self.stream(stream)
        data = host_bytes(target, "to_host").reshape(-1).view(np.uint8)
        if data.nbytes:
            with self.current():
                self.cuda.memcpy_dtoh_async(data, source, queue)
                self._wait(queue)

    def on_device(self, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        queue = self.stream(stream)
        with self.current():
            self.cuda.memcpy_dtod_async(target, source, nbytes, queue)

    def timer(self) -> _Timer:
        return _Timer(self)

    def new_stream(self) -> int:
        with self.current():
            stream = self.cuda.Stream()
        self._streams[int(stream.handle)] = stream
        return int(stream.handle)

    def owns_stream(self, stream: int | None) -> bool:
        """Whether this is the default stream or one of ``new_stream``."""
        return not stream or stream in self._streams

    def capturing(self, stream: int | None) -> bool:
        """Never: it has no graphs, and takes no stream of a library that has."""
        return False

    def synchronize(self, stream: int | None = None) -> None:
        queue = self.stream(stream)
        with self.current():
            if stream is None:
                self.cuda.Context.synchronize()
            else:
                self._wait(queue)

    def memory(self) -> tuple[int, int]:
        with self.current():
            free, total = self.cuda.mem_get_info()
        return int(free), int(total)
