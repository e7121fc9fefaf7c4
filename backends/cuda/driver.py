"""Launching through NVIDIA's cuda-bindings: streams of other libraries, by their integer handle, and graphs.

The same cubin as elsewhere, in the device's primary context. The context is pushed only where it is not current yet,
and popped again. Needs cuda-bindings 13 (names and structs of 12 differ).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.runtime import Dim3, Function, HostArray, Prepared, Runtime, cuda_error, host_bytes
from sparsegen.ir.errors import DeviceError


def bindings() -> Any:
    """The module ``cuda.bindings.driver``; DeviceError if it is missing, older than 13, or finds no NVIDIA driver."""
    remedy = "pip install 'sparsegen[cuda]' (cuda-bindings 13 or newer)"
    try:
        module = importlib.import_module("cuda.bindings.driver")
        version = str(importlib.import_module("cuda.bindings").__version__)
    except ImportError as e:
        raise DeviceError(f"cuda-bindings cannot be imported: {e}", hint=remedy) from e
    if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < 13:
        raise DeviceError(f"cuda-bindings {version} is too old: 13 or newer is needed", hint=remedy)
    return module


def call(function: Any, *args: Any) -> Any:
    """Call a function of the bindings: its result without the status (None, one value, or a tuple); DeviceError."""
    try:
        status, *values = function(*args)
    except RuntimeError as e:  # no libcuda at all: the bindings load it at the first call
        raise DeviceError(
            f"the NVIDIA driver cannot be used: {e}", hint="install the NVIDIA driver, or use backend='emulator'"
        ) from e
    if int(status) != 0:
        raise cuda_error(int(status), status.name, function.__name__)
    return None if not values else values[0] if len(values) == 1 else tuple(values)


class _Module:
    """A loaded cubin; unloaded with the object."""

    def __init__(self, runtime: DriverRuntime, cubin: bytes) -> None:
        self._runtime = runtime
        with runtime.current():
            self.handle = call(runtime.cu.cuModuleLoadData, cubin)

    def __del__(self) -> None:
        with contextlib.suppress(Exception), self._runtime.current():
            self._runtime.cu.cuModuleUnload(self.handle)


class _Timer:
    def __init__(self, runtime: DriverRuntime) -> None:
        self._runtime = runtime
        with runtime.current():
            self._events = [call(runtime.cu.cuEventCreate, 0) for _ in range(2)]

    def start(self, stream: int | None = None) -> None:
        self._record(0, stream)

    def stop(self, stream: int | None = None) -> None:
        self._record(1, stream)

    def _record(self, which: int, stream: int | None) -> None:
        with self._runtime.current():
            call(self._runtime.cu.cuEventRecord, self._events[which], self._runtime.stream(stream))

    def seconds(self) -> float:
        cu = self._runtime.cu
        with self._runtime.current():
            call(cu.cuEventSynchronize, self._events[1])
            return float(call(cu.cuEventElapsedTime, *self._events)) * 1e-3

    def __del__(self) -> None:
        with contextlib.suppress(Exception), self._runtime.current():
            for event in self._events:
                self._runtime.cu.cuEventDestroy(event)


class _Recording:
    """A graph of what ``work`` puts on a stream, which is captured meanwhile; a call replays it."""

    def __init__(self, runtime: DriverRuntime, stream: int, work: Callable[[int], object]) -> None:
        cu, queue = runtime.cu, runtime.stream(stream)
        self._runtime, self._work, self._executable = runtime, work, None  # the kernels stay loaded with their calls
        with runtime.current():
            # Relaxed: what else a thread asks of the driver meanwhile is nothing that the graph would need.
            call(cu.cuStreamBeginCapture, queue, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
            try:
                work(stream)
            except BaseException:
                cu.cuStreamEndCapture(queue)  # half a graph; the stream can be used again
                raise
            graph = call(cu.cuStreamEndCapture, queue)
            try:
                self._executable = call(cu.cuGraphInstantiate, graph, 0)
            finally:
                cu.cuGraphDestroy(graph)

    def __call__(self) -> None:
        with self._runtime.current():
            call(self._runtime.cu.cuGraphLaunch, self._executable, self._runtime.stream(None))

    def __del__(self) -> None:
        with contextlib.suppress(Exception), self._runtime.current():
            if self._executable is not None:
                self._runtime.cu.cuGraphExecDestroy(self._executable)


class DriverRuntime(Runtime):
    """``Runtime`` on cuda-bindings; takes the stream handles of any library."""

    name = "driver"

    def __init__(self, device: int = 0) -> None:
        self.cu = cu = bindings()
        self.device = device
        call(cu.cuInit, 0)
        count = int(call(cu.cuDeviceGetCount))
        if not 0 <= device < count:
            raise DeviceError(f"device {device} is not there: the driver sees {count}", hint="numbers start at 0")
        self._device = call(cu.cuDeviceGet, device)
        # Retained until the process ends: modules and arrays of the user may outlive any object here.
        self._context = call(cu.cuDevicePrimaryCtxRetain, self._device)
        self._context_handle = int(self._context)
        self._streams: dict[int, Any] = {}

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        cu = self.cu
        if int(call(cu.cuCtxGetCurrent)) == self._context_handle:
            yield
            return
        call(cu.cuCtxPushCurrent, self._context)
        try:
            yield
        finally:
            call(cu.cuCtxPopCurrent)

    def cooperative(self) -> bool:
        _, _, get = self.identity()
        return get("COOPERATIVE_LAUNCH") == 1

    def stream(self, stream: int | None) -> Any:
        """The bindings' stream object for an integer handle."""
        handle = stream or 0
        found = self._streams.get(handle)
        if found is None:
            if len(self._streams) > 256:
                self._streams.clear()
            found = self._streams[handle] = self.cu.CUstream(handle)
        return found

    def identity(self) -> tuple[str, int, Callable[[str], int]]:
        cu, device = self.cu, self._device

        def get(name: str) -> int:
            attribute = getattr(cu.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name)
            return int(call(cu.cuDeviceGetAttribute, attribute, device))

        name = call(cu.cuDeviceGetName, 128, device).split(b"\0", 1)[0].decode()
        return name, int(call(cu.cuDeviceTotalMem, device)), get

    def load(self, cubin: bytes) -> _Module:
        return _Module(self, cubin)

    def function(self, module: _Module, name: str, shared_bytes: int = 0) -> Function:
        cu = self.cu
        with self.current():
            handle = call(cu.cuModuleGetFunction, module.handle, name.encode())
            if shared_bytes > 0:
                size = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                call(cu.cuFuncSetAttribute, handle, size, shared_bytes)
        return Function(module, handle)

    def prepare(
        self, fn: Function, grid: Dim3, block: Dim3, shared: int, args: PackedArgs, overlap: bool = False,
        together: bool = False,
    ) -> Prepared:  # fmt: skip
        cu = self.cu
        handle, address, context = fn.handle, args.address, self._context
        gx, gy, gz = grid
        bx, by, bz = block
        get_current, start, ours = cu.cuCtxGetCurrent, cu.cuLaunchKernel, self._context_handle
        lock, set_pointers, streams = args.lock, args.set_pointers, self._streams
        config = self._configured(grid, block, shared, overlap, together) if overlap or together else None

        def run(pointers: Sequence[int], stream: int | None = None, numbers: bytes | None = None) -> None:
            target = streams.get(stream or 0) or self.stream(stream)
            pushed = int(get_current()[1]) != ours
            if pushed:
                call(cu.cuCtxPushCurrent, context)
            try:
                with lock:
                    set_pointers(pointers)
                    if numbers is not None:
                        args.set_numbers(numbers)
                    if config is None:
                        status = start(handle, gx, gy, gz, bx, by, bz, shared, target, address, 0)[0]
                    else:
                        config.hStream = target
                        status = cu.cuLaunchKernelEx(config, handle, address, 0)[0]
            finally:
                if pushed:
                    cu.cuCtxPopCurrent()
            if status:
                raise cuda_error(int(status), status.name, "cuLaunchKernel")

        run.keep = (fn, args)  # type: ignore[attr-defined]  # the module and the buffer live as long as the launch
        return run

    def _configured(self, grid: Dim3, block: Dim3, shared: int, overlap: bool, together: bool) -> Any:
        """How to launch a kernel that begins before the one before it on the stream has ended, or whose blocks all run
        at the same time."""
        cu = self.cu
        config, names, attributes = cu.CUlaunchConfig(), cu.CUlaunchAttributeID, []
        for wanted, name, field in (
            (overlap, "PROGRAMMATIC_STREAM_SERIALIZATION", "programmaticStreamSerializationAllowed"),
            (together, "COOPERATIVE", "cooperative"),
        ):
            if wanted:
                attributes.append(cu.CUlaunchAttribute())
                attributes[-1].id = getattr(names, f"CU_LAUNCH_ATTRIBUTE_{name}")
                setattr(attributes[-1].value, field, 1)
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes, config.attrs, config.numAttrs = shared, attributes, len(attributes)
        return config

    def alloc(self, nbytes: int) -> int:
        with self.current():
            return int(call(self.cu.cuMemAlloc, max(1, nbytes)))

    def free(self, pointer: int) -> None:
        with self.current():
            call(self.cu.cuMemFree, pointer)

    def zero(self, pointer: int, nbytes: int, stream: int | None = None) -> None:
        with self.current():
            call(self.cu.cuMemsetD8Async, pointer, 0, nbytes, self.stream(stream))

    def to_device(self, target: int, source: HostArray, stream: int | None = None) -> None:
        self.upload(target, source, stream)
        self.synchronize(stream or 0)

    def upload(self, target: int, source: HostArray, stream: int | None = None) -> None:
        data = host_bytes(source, "upload").ctypes.data
        with self.current():  # of pageable memory: the driver has read it when the call returns
            call(self.cu.cuMemcpyHtoDAsync, target, data, source.nbytes, self.stream(stream))

    def to_host(self, target: HostArray, source: int, stream: int | None = None) -> None:
        data = host_bytes(target, "to_host").ctypes.data
        with self.current():
            call(self.cu.cuMemcpyDtoHAsync, data, source, target.nbytes, self.stream(stream))
            call(self.cu.cuStreamSynchronize, self.stream(stream))

    def on_device(self, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        with self.current():
            call(self.cu.cuMemcpyDtoDAsync, target, source, nbytes, self.stream(stream))

    def timer(self) -> _Timer:
        return _Timer(self)

    def new_stream(self) -> int:
        with self.current():
            return int(call(self.cu.cuStreamCreate, 1))  # CU_STREAM_NON_BLOCKING

    def owns_stream(self, stream: int | None) -> bool:
        """Any handle will do."""
        return True

    def capturing(self, stream: int | None) -> bool:
        """Whether the stream is being captured; the default stream cannot be."""
        if not stream:
            return False
        with self.current():
            return int(call(self.cu.cuStreamIsCapturing, self.stream(stream))) != 0

    def recorded(self, work: Callable[[int], object]) -> Callable[[], None]:
        if self.recorder is None:
            self.recorder = self.new_stream()
        self.synchronize()  # the stream does not wait for others
        work(self.recorder)
        self.synchronize()
        return _Recording(self, self.recorder, work)

    @contextlib.contextmanager
    def uncaptured(self) -> Iterator[None]:
        relaxed = self.cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = call(self.cu.cuThreadExchangeStreamCaptureMode, relaxed)
        try:
            yield
        finally:
            call(self.cu.cuThreadExchangeStreamCaptureMode, before)

    def synchronize(self, stream: int | None = None) -> None:
        with self.current():
            if stream is None:
                call(self.cu.cuCtxSynchronize)
            else:
                call(self.cu.cuStreamSynchronize, self.stream(stream))

    def memory(self) -> tuple[int, int]:
        with self.current():
            free, total = call(self.cu.cuMemGetInfo)
        return int(free), int(total)

    def pointer_device(self, pointer: int) -> int:
        """The index of the device that a device pointer belongs to; DeviceError if it is not a device pointer."""
        attribute = self.cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        with self.current():
            return int(call(self.cu.cuPointerGetAttribute, attribute, pointer))

    def in_primary_context(self, pointer: int) -> bool:
        """Whether memory that was allocated in some context was so in the primary one; others cannot be reached."""
        attribute = self.cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
        with self.current():
            return int(call(self.cu.cuPointerGetAttribute, attribute, pointer)) == self._context_handle
