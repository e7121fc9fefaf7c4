"""A GPU for tests: device memory is host memory, and a launch runs its program on the emulator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparsegen import target
from sparsegen.backends import emulator
from sparsegen.backends.cuda.runtime import OUT_OF_MEMORY, DeviceInfo, cuda_error
from sparsegen.backends.cuda.tensor_map import map_args
from sparsegen.inspection import Build
from sparsegen.ir.types import Buffer
from sparsegen.run import cuda

INFO = DeviceInfo(0, "NVIDIA H200", (9, 0), 132, 62_914_560, 232_448, 233_472, 150 << 30, 1.98e9, 3.2e9, 6144)


class FakeRuntime:
    """What of ``Runtime`` the executor uses.  ``launched`` counts launches, those of graphs included, ``uploaded`` what
    is copied to the GPU in the order of a stream.

    ``size``: bytes of device memory; ``alloc`` fails beyond it as the driver does.  ``seconds_of``: what a launch of a
    function adds to ``now``, the clock that timers read; ``timed`` counts their starts.
    """

    name, device, recorder = "driver", 0, None

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.launched = self.replayed = self.timed = self.uploaded = 0
        self.size = INFO.memory_bytes
        self.seconds_of: Callable[[Any], float] = lambda func: 1e-6
        self.now = 0.0

    def timer(self) -> Any:
        return FakeTimer(self)

    def memory(self) -> tuple[int, int]:
        return self.size - sum(len(block) - 256 for block in self.held.values()), self.size

    def alloc(self, nbytes: int) -> int:
        if nbytes > self.memory()[0]:
            raise cuda_error(OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc")
        block = np.full(nbytes + 256, 0xFF, np.uint8)  # NaN, whatever the type
        pointer = int(-(-block.ctypes.data // 256) * 256)
        self.held[pointer] = block
        return pointer

    def free(self, pointer: int) -> None:
        del self.held[pointer]

    def to_device(self, pointer: int, source: Any, stream: int | None = None) -> None:
        assert source.flags.c_contiguous
        ctypes.memmove(pointer, source.ctypes.data, source.nbytes)

    def upload(self, pointer: int, source: Any, stream: int | None = None) -> None:
        self.uploaded += 1
        self.to_device(pointer, source, stream)

    def to_host(self, array: Any, pointer: int, stream: int | None = None) -> None:
        assert array.flags.c_contiguous
        ctypes.memmove(array.ctypes.data, pointer, array.nbytes)

    def zero(self, pointer: int, nbytes: int, stream: int | None = None) -> None:
        ctypes.memset(pointer, 0, nbytes)

    def synchronize(self, stream: int | None = None) -> None:
        pass

    def capturing(self, stream: int | None) -> bool:
        return False

    def uncaptured(self) -> Any:
        return nullcontext()

    def new_stream(self) -> int:
        return 1

    def load(self, cubin: Any) -> Any:
        return cubin

    def function(self, module: Any, name: str, shared_bytes: int = 0) -> Any:
        return module[name]

    def map_args(self, func: Any) -> Any:
        """Tensor maps whose bytes are the address; the emulator makes its own."""
        return [(pointer, lambda address: address.to_bytes(128, "little")) for pointer, _ in map_args(func)]

    def prepare(
        self, fn: Any, grid: Any, block: Any, shared: int, args: Any, overlap: bool = False, together: bool = False
    ) -> Any:
        return lambda pointers, stream=None, numbers=None: self.execute(fn, args, pointers, numbers)

    def execute(self, func: Any, args: Any, pointers: Sequence[int], numbers: bytes | None = None) -> None:
        self.launched += 1
        self.now += self.seconds_of(func)
        packed = args.copy()
        packed.set_pointers(list(pointers))
        if numbers is not None:
            packed.set_numbers(numbers)
        raw, given = bytes(packed.buffer), dict[str, Any]()
        for param, offset, size in zip(func.params, packed._offsets, packed._sizes, strict=True):
            assert isinstance(param, Buffer)
            cells = raw[offset : offset + size]
            if param.space == "global":
                at = int.from_bytes(cells, "little")
                assert any(p <= at and at + param.nbytes <= p + len(m) for p, m in self.held.items()), hex(at)
                cells = (ctypes.c_uint8 * param.nbytes).from_address(at)
            given[param.name] = np.frombuffer(cells, param.dtype.numpy())
        emulator.run(func, given, checks=["bounds"]).raise_if_errors()


class FakeTimer:
    """A ``Timer`` by the clock of the GPU, ``now``."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime = runtime

    def start(self, stream: int | None = None) -> None:
        self.runtime.timed += 1
        self.began = self.runtime.now

    def stop(self, stream: int | None = None) -> None:
        self.ended = self.runtime.now

    def seconds(self) -> float:
        return self.ended - self.began


class FakeGraph:
    """``TimeGraph``: the same launches, one after the other."""

    def __init__(self, runtime: FakeRuntime, nodes: Any) -> None:
        self.runtime, self.nodes = runtime, nodes
        self.buffers = 1 + max(b for node in nodes for b in node.buffers)

    def run(self, pointers: Sequence[int], stream: int | None = None, repeat: int = 1, scalars: bytes = b"") -> None:
        assert len(pointers) == self.buffers
        for _ in range(repeat):
            for node in self.nodes:
                self.runtime.replayed += 1
                numbers = scalars * node.numbers if node.numbers else None
                self.runtime.execute(node.fn, node.args, [pointers[b] for b in node.buffers], numbers)


def install(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """From here on this machine has a GPU."""
    runtime = FakeRuntime()
    monkeypatch.setattr(cuda, "open_runtime", lambda device, kind: runtime)
    monkeypatch.setattr(cuda, "launcher", lambda: "driver")
    monkeypatch.setattr(cuda, "TimeGraph", FakeGraph)
    monkeypatch.setattr(target, "gpu_info", lambda index=0: INFO)

    def compiled(build: Build) -> Any:
        return SimpleNamespace(cubin={f.symbol: f for f in build.program.warp.funcs})

    monkeypatch.setattr(Build, "compiled", compiled)
    return runtime
