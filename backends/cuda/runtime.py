"""What every way of launching can do, and how one is chosen.

Two ways exist, with one interface (``Runtime``): ``pycuda`` (discovery, memory, launches on its own and on the default
stream) and ``driver`` (NVIDIA's cuda-bindings: streams of other libraries, by their integer handle, and graphs). Both
work in the device's primary context, which torch and CuPy share, so a pointer of one is valid for all.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, Protocol

import numpy.typing as npt

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.tensor_map import MapArg, map_args
from sparsegen.ir.errors import DeviceError, DeviceMemoryError
from sparsegen.ir.warp import Func

Dim3 = tuple[int, int, int]
HostArray = npt.NDArray[Any]

# CUresult values whose cause is known well enough to name a remedy (cuda.h).
OUT_OF_MEMORY = 2
_REMEDIES = {
    OUT_OF_MEMORY: "free device memory, or use a smaller size; see runtime.memory()",
    100: "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use backend='emulator'",
    101: "count the devices with nvidia-smi; numbers start at 0 and follow CUDA_VISIBLE_DEVICES",
    209: "the kernel was compiled for another GPU: compile with device='auto'",
    400: "the stream handle is not a stream of this device: pass the handle of a live stream",
    500: 'the kernel\'s name is not in the cubin: mark it extern "C"',
    700: "the kernel accessed memory outside its arrays; run k.check() on the emulator; the context is lost",
    701: "too many registers or threads for one block: use fewer warps or set launch bounds",
    720: "its blocks wait for one another, and the GPU cannot run all of them at the same time: take another schedule",
    719: "the kernel failed while running; run k.check() on the emulator; the context is lost",
}


def cuda_error(code: int, name: str, call: str) -> DeviceError:
    """The DeviceError for CUresult ``code`` (``name`` as in cuda.h) that ``call`` returned."""
    hint = _REMEDIES.get(code, "look the code up in NVIDIA's driver API documentation, under CUresult")
    kind = DeviceMemoryError if code == OUT_OF_MEMORY else DeviceError
    return kind(f"{call} failed: {name} ({code})", hint=hint)


@dataclass(frozen=True)
class DeviceInfo:
    """A GPU as the driver describes it. Memory in bytes, clocks in Hz; ``capability`` is (9, 0) for sm_90.

    ``registers_per_sm`` and the next two are what fits an SM; 0 where it was not asked for.  ``cooperative``: whether
    all blocks of a launch can be made to run at the same time.
    """

    index: int
    name: str
    capability: tuple[int, int]
    sm_count: int
    l2_bytes: int
    shared_per_block: int
    shared_per_sm: int
    memory_bytes: int
    clock_hz: float
    memory_clock_hz: float
    memory_bus_bits: int
    registers_per_sm: int = 0
    threads_per_sm: int = 0
    blocks_per_sm: int = 0
    cooperative: bool = True

    @property
    def arch(self) -> str:
        """The arch to compile for; from sm_90 on with the suffix that unlocks the device's own instructions."""
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


class Timer(Protocol):
    """Two events around work on a stream."""

    def start(self, stream: int | None = None) -> None: ...

    def stop(self, stream: int | None = None) -> None: ...

    def seconds(self) -> float:
        """Seconds between start and stop; waits for the work to end."""
        ...


class Launch(Protocol):
    """A launch with everything fixed but the pointers and the stream."""

    def __call__(self, pointers: Sequence[int], stream: int | None = None) -> None: ...


class Prepared(Protocol):
    """One that may be given the argument that each launch gives anew, too."""

    def __call__(self, pointers: Sequence[int], stream: int | None = None, numbers: bytes | None = None) -> None: ...


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel as its library has it, its name and its bytes of shared memory; keeps its module loaded."""

    module: Any
    handle: Any
    name: str = ""
    shared_bytes: int = 0


class Runtime(ABC):
    """A way to reach one GPU. Streams are integer handles; None and 0 are the default stream. Safe for threads.

    All calls raise DeviceError; launches and copies with a stream are asynchronous, so a kernel's own failure shows at
    a later call, at the latest in ``synchronize``.
    """

    name: str
    device: int

    @abstractmethod
    def current(self) -> AbstractContextManager[None]:
        """The primary context is current inside; the thread's own stack of contexts is as before afterwards."""

    @abstractmethod
    def identity(self) -> tuple[str, int, Callable[[str], int]]:
        """The device's name, its memory in bytes, and its attributes by the driver's names for them."""

    def info(self) -> DeviceInfo:
        """The device as the driver describes it."""
        name, memory_bytes, get = self.identity()
        return DeviceInfo(
            index=self.device,
            name=name,
            capability=(get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR")),
            sm_count=get("MULTIPROCESSOR_COUNT"),
            l2_bytes=get("L2_CACHE_SIZE"),
            shared_per_block=get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            shared_per_sm=get("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            memory_bytes=memory_bytes,
            clock_hz=get("CLOCK_RATE") * 1e3,
            memory_clock_hz=get("MEMORY_CLOCK_RATE") * 1e3,
            memory_bus_bits=get("GLOBAL_MEMORY_BUS_WIDTH"),
            registers_per_sm=get("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            threads_per_sm=get("MAX_THREADS_PER_MULTIPROCESSOR"),
            blocks_per_sm=get("MAX_BLOCKS_PER_MULTIPROCESSOR"),
            cooperative=self.cooperative(),
        )

    @abstractmethod
    def cooperative(self) -> bool:
        """Whether a kernel can be launched ``together``: the device's other programs may not leave room for it."""

    @abstractmethod
    def load(self, cubin: bytes) -> Any:
        """Load a cubin into the primary context; the module lives as long as the object."""

    @abstractmethod
    def function(self, module: Any, name: str, shared_bytes: int = 0) -> Function:
        """A kernel of the module, allowed to take ``shared_bytes`` of dynamic shared memory a block.

        The carve-out stays the driver's choice: what shared memory does not need is L1, where loads under way wait
        (all of it to shared memory cost a one-step ``tiled`` kernel a fifth of its speed on an H200).
        """

    def map_args(self, func: Func) -> list[MapArg]:
        """The tensor maps that a launch of a function takes behind its other arguments."""
        return map_args(func)

    @abstractmethod
    def prepare(
        self, fn: Function, grid: Dim3, block: Dim3, shared: int, args: PackedArgs, overlap: bool = False,
        together: bool = False,
    ) -> Prepared:  # fmt: skip
        """A launch of ``fn`` with ``shared`` bytes of dynamic shared memory that only writes pointers.

        As cheap as the library allows: for calls that must cost microseconds.  ``overlap``: it may begin before the
        launch before it has ended, which it waits for itself; where the library has no such launches, it begins later.
        ``together``: its blocks wait for one another, so all of them run at the same time, or none.
        """

    def launch(
        self, fn: Function, grid: Dim3, block: Dim3, shared: int, args: PackedArgs, stream: int | None = None,
        together: bool = False,
    ) -> None:  # fmt: skip
        """Start ``fn`` with the present values of ``args``; asynchronous."""
        self.prepare(fn, grid, block, shared, args, together=together)(args.addresses(), stream)

    @abstractmethod
    def alloc(self, nbytes: int) -> int:
        """Device memory of ``nbytes`` (at least one), 256-byte aligned, not cleared; an address."""

    @abstractmethod
    def free(self, pointer: int) -> None:
        """Give back what ``alloc`` gave."""

    @abstractmethod
    def zero(self, pointer: int, nbytes: int, stream: int | None = None) -> None:
        """Set bytes to zero, asynchronously."""

    @abstractmethod
    def to_device(self, target: int, source: HostArray, stream: int | None = None) -> None:
        """Copy a C-contiguous host array to device memory; done when the call returns."""

    @abstractmethod
    def upload(self, target: int, source: HostArray, stream: int | None = None) -> None:
        """Copy a C-contiguous host array to device memory in the order of a stream: the array may change when the call
        returns, when the copy need not be done."""

    @abstractmethod
    def to_host(self, target: HostArray, source: int, stream: int | None = None) -> None:
        """Copy device memory into a C-contiguous host array, after the work on ``stream``; done on return."""

    @abstractmethod
    def on_device(self, target: int, source: int, nbytes: int, stream: int | None = None) -> None:
        """Copy within the device, asynchronously."""

    @abstractmethod
    def timer(self) -> Timer: ...

    @abstractmethod
    def new_stream(self) -> int:
        """A stream that does not wait for the default stream, alive until the process ends."""

    @abstractmethod
    def owns_stream(self, stream: int | None) -> bool:
        """Whether ``launch`` can use this stream."""

    @abstractmethod
    def capturing(self, stream: int | None) -> bool:
        """Whether the work that is put on a stream goes into a graph, to run later and repeatedly."""

    #: The stream that work is put on for ``recorded``; None where there has been none.
    recorder: int | None = None

    def recorded(self, work: Callable[[int], object]) -> Callable[[], None] | None:
        """What replays on the default stream, as one graph, all that ``work`` puts on the stream that it is given; None
        where the library makes no graphs.

        ``work`` is called twice, first as it is: kernels are loaded then and get their workspace, which all that is
        recorded has in common.  So of several replays one must end before the next begins, as on one stream they do.
        """
        return None

    def uncaptured(self) -> AbstractContextManager[None]:
        """Inside, this thread may allocate, and wait for streams that are not captured, while it captures others."""
        return nullcontext()

    @abstractmethod
    def synchronize(self, stream: int | None = None) -> None:
        """Wait for one stream, or with None for all work of the device."""

    @abstractmethod
    def memory(self) -> tuple[int, int]:
        """(free, total) device memory in bytes."""


def host_bytes(array: HostArray, call: str) -> HostArray:
    """The array itself if a plain copy of its bytes is right; DeviceError if it is not C-contiguous."""
    if not array.flags.c_contiguous:
        raise DeviceError(
            f"{call}: host array of shape {array.shape} is not C-contiguous", hint="use np.ascontiguousarray(array)"
        )
    return array


def stream_handle(stream: object) -> int | None:
    """The integer handle of a stream object: an int, or one of torch, CuPy, pycuda, numba or ``__cuda_stream__``.

    None stays None (no stream was given); DeviceError for anything else.
    """
    if stream is None or isinstance(stream, int):
        return stream
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair: Any = protocol() if callable(protocol) else protocol
        return int(pair[1])
    for attribute in ("cuda_stream", "ptr", "handle"):  # torch; CuPy; pycuda and numba
        value: Any = getattr(stream, attribute, None)
        if value is not None:
            value = getattr(value, "value", value)
            return int(value or 0)
    raise DeviceError(
        f"stream is {stream!r}, not a stream", hint="pass an integer handle, or a stream of torch, CuPy or pycuda"
    )


@lru_cache(maxsize=1)
def available_kinds() -> tuple[str, ...]:
    """The ways to launch whose Python package can be used, the preferred one first; a GPU need not be there.

    ``driver`` comes first: it takes the streams of other libraries, makes graphs, and costs less host time a launch.
    """
    found = []
    try:
        importlib.import_module("sparsegen.backends.cuda.driver").bindings()
        found.append("driver")
    except DeviceError:  # missing, or too old
        pass
    if importlib.util.find_spec("pycuda") is not None:
        found.append("pycuda")
    return tuple(found)


_CLASSES = {"driver": ("driver", "DriverRuntime"), "pycuda": ("pycuda_runtime", "PycudaRuntime")}
_opened: dict[tuple[str, int], Runtime] = {}
_opening = Lock()


def open_runtime(device: int, kind: str) -> Runtime:
    """The process's runtime for a device, opened once. ``kind``: ``pycuda`` or ``driver``.

    DeviceError if the package is missing, there is no driver or no such device.
    """
    key = (kind, device)
    if (runtime := _opened.get(key)) is not None:
        return runtime
    with _opening:
        if key not in _opened:
            module, name = _CLASSES[kind]
            _opened[key] = getattr(importlib.import_module(f"sparsegen.backends.cuda.{module}"), name)(device)
        return _opened[key]
