"""What is measured on a GPU: each figure, its micro-kernel, how a raw time becomes it, and how steady it must be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from sparsegen.ir.errors import DeviceError
from sparsegen.ir.fragments import shapes_of, signed

from . import compute, memory
from .probe import Probe

if TYPE_CHECKING:
    from sparsegen.backends.cuda.runtime import DeviceInfo

#: Sub-cores an SM, by the first number of the compute capability (white papers; no driver tells).
SUB_CORES: Final = {7: 4, 8: 4, 9: 4, 10: 4, 11: 4, 12: 4}
#: Widest spread, (p90 - p10) / median, that still is one figure.  Counted in clock cycles on chip, nothing but another
#: process disturbs; a lone walk through L2 meets near and far slices; DRAM refreshes while it is read; the clock moves
#: a few steps of 15 MHz; the rate of launches is the host's, with whatever else it does (its own clock: not judged).
CHIP, L2, DRAM, CLOCK, LAUNCH, HOST = 0.02, 0.05, 0.05, 0.03, 0.3, math.inf
#: Bytes of a stream (as far as memory allows), and how many times L2 they must be at least.
STREAM_BYTES, BEYOND_L2 = 1 << 30, 4
LAUNCHES = 500


@dataclass(frozen=True)
class Sample:
    """Raw numbers of one repeat: how many rounds (or launches), the middle block's cycles, seconds by events and by
    the host's clock."""

    rounds: int
    cycles: float = 0.0
    seconds: float = 0.0
    host_seconds: float = 0.0


Arithmetic = Callable[[Sample, float], float]

#: How the raw numbers of a sample and the work of a round make a figure.
ARITHMETIC: Final[dict[str, Arithmetic]] = {
    "cycles each": lambda s, work: s.cycles / (s.rounds * work),
    "per cycle": lambda s, work: s.rounds * work / s.cycles,
    "GB/s": lambda s, work: s.rounds * work / s.seconds / 1e9,
    "MHz": lambda s, work: s.cycles / s.seconds / 1e6,
    "seconds each": lambda s, work: s.seconds / (s.rounds * work),
    "host seconds each": lambda s, work: s.host_seconds / (s.rounds * work),
}


@dataclass(frozen=True)
class Figure:
    """A figure of the profile (``key``; ``cpi.`` and the shape for the cycles of an mma) and how it is measured.

    ``share``: of the block's work, that of one unit (a sub-core's).  ``rounds``: fixed, else as many as fill the time.
    ``warm``: loads that go before.  ``cold``: L2 is emptied before each repeat.  ``what``: for the comment.
    """

    key: str
    probe: Probe
    how: str
    limit: float
    what: str
    share: float = 1.0
    rounds: int | None = None
    warm: int = 0
    cold: bool = False

    def value(self, sample: Sample) -> float:
        """The figure that one repeat gives."""
        return ARITHMETIC[self.how](sample, self.probe.work * self.share)


@dataclass(frozen=True)
class Measured:
    """A figure from its repeats: the median, and (p90 - p10) / median."""

    value: float
    spread: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Measured:
        """The statistics of the repeats."""
        p10, middle, p90 = (float(q) for q in np.percentile(values, (10, 50, 90)))
        return cls(middle, (p90 - p10) / middle)


def sub_cores(gpu: DeviceInfo) -> int:
    """Sub-cores an SM; DeviceError for a generation that is not known."""
    if gpu.capability[0] not in SUB_CORES:
        major, minor = gpu.capability
        raise DeviceError(
            f"{gpu.name} is of compute capability {major}.{minor}: how many sub-cores its SMs have is not known here",
            hint="add its generation to SUB_CORES in sparsegen/calibrate/plan.py, from its white paper",
        )
    return SUB_CORES[gpu.capability[0]]


def stream_bytes(gpu: DeviceInfo, free: int) -> int:
    """Bytes of a stream's input and of its output; DeviceError if too little memory is free to go well past L2."""
    nbytes = min(STREAM_BYTES, free // 4) // (4 * memory.TILE) * (4 * memory.TILE)
    need = BEYOND_L2 * gpu.l2_bytes
    if not 0 < need <= nbytes:
        raise DeviceError(
            f"{free / 2**20:.0f} MiB of device memory are free on the {gpu.name}, with an L2 of "
            f"{gpu.l2_bytes / 2**20:.0f} MiB: too few to stream past it",
            hint="end other processes on the GPU (nvidia-smi shows them)",
        )
    return nbytes


def l2_rows(l2_bytes: int) -> int:
    """The power of two of 16-KiB rows that takes up to a third of L2: it may hold a line twice, in each half."""
    return 1 << max(2, (l2_bytes // 3 // (4 * memory.ROW)).bit_length() - 1)


def plan(gpu: DeviceInfo, free: int) -> list[Figure]:
    """Everything that is measured on this GPU, with ``free`` bytes of its memory."""
    blocks, quarters, nbytes = gpu.sm_count, 1 / sub_cores(gpu), stream_bytes(gpu, free)
    doubles = compute.rate("f64_fma", blocks)
    figures = [
        Figure("clock_mhz", doubles, "MHz", CLOCK, "cycles a second under f64 multiply-adds on all SMs"),
        *(
            Figure(f"hbm_{what}_gbs", memory.stream(what, nbytes), "GB/s", DRAM, f"{what}{both}, 16-byte accesses")
            for what, both in (("read", ""), ("write", ""), ("copy", ", read and write together"))
        ),
        Figure("l2_bytes_per_clk_sm", memory.l2(blocks, l2_rows(gpu.l2_bytes)), "per cycle", L2, "all SMs, past L1"),
        Figure("smem_bytes_per_clk_sm", memory.shared(blocks), "per cycle", CHIP, "16-byte loads without conflicts"),
        Figure("f64_fma_per_clk_sm", doubles, "per cycle", CHIP, "multiply-adds"),
    ]
    for name in ("f32_fma", "alu", "popc", "shuffle", "prmt"):
        figures.append(Figure(f"{name}_per_clk_sm", compute.rate(name, blocks), "per cycle", CHIP, "lanes' operations"))
    empty = compute.empty()
    figures += [
        Figure("launch_s", empty, "seconds each", LAUNCH, "empty kernels queued one after another", rounds=LAUNCHES),
        Figure("launch_host_s", empty, "host seconds each", HOST, "the same, by the host's clock", rounds=LAUNCHES),
        *latencies(gpu),
    ]
    for shape in dict.fromkeys(map(signed, shapes_of(gpu.capability))):
        figures.append(Figure(f"cpi.{shape}", compute.mma(shape, blocks), "cycles each", CHIP, "", quarters))
    return figures


def latencies(gpu: DeviceInfo) -> list[Figure]:
    """Dependent loads from each memory, and barriers."""
    lines = min(1 << 14, 1 << ((gpu.l2_bytes // 3 // 128).bit_length() - 1))
    chase = memory.chase
    walk = "cycles of a dependent load, its address from an index"
    return [
        Figure("lat_shared", chase("shared", 256, 1, "", in_shared=True), "cycles each", CHIP, walk, rounds=1024),
        Figure("lat_l1", chase("l1", 64, 32, ""), "cycles each", CHIP, walk, rounds=1024, warm=64),
        Figure("lat_l2", chase("l2", lines, 32, "cg"), "cycles each", L2, walk, rounds=lines // 4, warm=lines),
        Figure("lat_dram", chase("dram", 8192, 1024, "cg"), "cycles each", DRAM, walk, rounds=1024, cold=True),
        Figure("lat_barrier", compute.barrier(gpu.sm_count), "cycles each", CHIP, "a barrier of eight warps"),
    ]
