"""A GPU for the tests of calibrate: it computes nothing, but its clocks say what a machine of given figures would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsegen.backends.cuda.runtime import DeviceInfo
from sparsegen.calibrate.plan import Figure, plan, sub_cores

GPU = DeviceInfo(
    0, "NVIDIA Test 9000", (9, 0), 4, 3 << 20, 232_448, 233_472, 1 << 31, 2e9, 3e9, 1024,
    registers_per_sm=65_536, threads_per_sm=2048, blocks_per_sm=32,
)  # fmt: skip
FREE = 1 << 27
#: What the machine is like, by the names of its kernels: cycles of a round (timed kernels), seconds of a launch.
LANES = 1024 * 256  # steps of a block in a round of the kernels of rates
TRUTH: dict[str, float] = {
    "stream_read": FREE / 4 / 400e9, "stream_write": FREE / 4 / 300e9, "stream_copy": FREE / 2 / 350e9, "empty": 4e-6,
    "l2_read": 65536 / 64, "shared_read": 65536 / 128, "rate_f64_fma": LANES / 64, "rate_f32_fma": LANES / 128,
    "rate_alu": LANES / 64, "rate_popc": LANES / 16, "rate_shuffle": LANES / 32, "rate_prmt": LANES / 64,
    "chase_shared": 4 * 30, "chase_l1": 4 * 40, "chase_l2": 4 * 270, "chase_dram": 4 * 500, "lat_barrier": 8 * 20,
}  # fmt: skip
CLOCK = 2e9


def expected(figure: Figure) -> float:
    """The figure that calibrate must find on this machine."""
    name, work = figure.probe.name, figure.probe.work * figure.share
    took = took_of(name)
    return {"cycles each": took / work, "per cycle": work / took, "GB/s": work / took / 1e9, "MHz": CLOCK / 1e6,
            "seconds each": took / work, "host seconds each": took / work}[figure.how]  # fmt: skip


def took_of(name: str) -> float:
    """Cycles or seconds; an mma takes 16 cycles of a sub-core."""
    return TRUTH.get(name, 16.0 * 16 * 4 * 4 / sub_cores(GPU))


class BenchRuntime:
    """What of ``Runtime`` calibrate uses.  ``noise(kernel, nth launch)`` is a factor on its time."""

    name, device = "driver", 0

    def __init__(self, noise: Callable[[str, int], float] = lambda name, nth: 1.0, gpu: DeviceInfo = GPU) -> None:
        self.noise, self.gpu = noise, gpu
        self.held: dict[int, Any] = {}
        self.seconds = 0.0
        self.launched: dict[str, int] = {}

    def info(self) -> DeviceInfo:
        return self.gpu

    def memory(self) -> tuple[int, int]:
        return FREE, 1 << 31

    def alloc(self, nbytes: int) -> int:
        block = np.zeros(nbytes, np.uint8)
        self.held[block.ctypes.data] = block
        return int(block.ctypes.data)

    def free(self, pointer: int) -> None:
        del self.held[pointer]

    def zero(self, pointer: int, nbytes: int, stream: int | None = None) -> None:
        assert nbytes <= len(self.held[pointer])

    def to_device(self, pointer: int, source: Any, stream: int | None = None) -> None:
        assert source.nbytes == len(self.held[pointer])

    def to_host(self, array: Any, pointer: int, stream: int | None = None) -> None:
        assert array.nbytes == len(self.held[pointer])
        ctypes.memmove(array.ctypes.data, pointer, array.nbytes)

    def synchronize(self, stream: int | None = None) -> None:
        pass

    def load(self, cubin: bytes) -> bytes:
        return cubin

    def function(self, module: bytes, name: str, shared_bytes: int = 0) -> str:
        assert name.encode() in module.split()
        return name

    def prepare(self, fn: str, grid: Any, block: Any, shared: int, args: Any) -> Any:
        assert shared <= self.gpu.shared_per_block

        def start(pointers: Sequence[int], stream: int | None = None) -> None:
            nth = self.launched[fn] = self.launched.get(fn, 0) + 1
            took = took_of(fn) * self.noise(fn, nth)
            cycles = next((p for p in pointers if len(self.held[p]) == 8 * grid[0] and args.kinds[-1] == "i32"), None)
            if fn.startswith("stream") or fn == "empty":
                self.seconds += took
                return
            rounds = int.from_bytes(bytes(args.buffer)[args._offsets[-2] : args._offsets[-2] + 4], "little")
            assert cycles is not None and rounds > 0
            np.frombuffer(self.held[cycles], np.uint64)[:] = np.uint64(round(took * rounds))
            self.seconds += took * rounds / CLOCK / self.noise("clock", nth)

        return start

    def timer(self) -> BenchTimer:
        return BenchTimer(self)


class BenchTimer:
    """Reads the seconds that the launches between start and stop took."""

    def __init__(self, runtime: BenchRuntime) -> None:
        self.runtime, self.begin, self.end = runtime, 0.0, 0.0

    def start(self, stream: int | None = None) -> None:
        self.begin = self.runtime.seconds

    def stop(self, stream: int | None = None) -> None:
        self.end = self.runtime.seconds

    def seconds(self) -> float:
        return self.end - self.begin


def figures() -> list[Figure]:
    """What is measured on this machine."""
    return plan(GPU, FREE)
