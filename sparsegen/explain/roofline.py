"""The roofline's numbers: what a device can do at most, and where schedules stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sparsegen.explain.page import Roof

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

#: dtype -> how the names of its mma begin; f32 has none of its own (tf32 is narrower).
_MMA = {"f64": "f64.m", "f16": "f16.m", "bf16": "f16.m"}


class Dot(NamedTuple):
    """A candidate: useful operations a byte of DRAM traffic, and a second."""

    family: str
    schedule: str
    intensity: float
    flops: float


def mma_rate(device: DeviceProfile, shape: str) -> float:
    """Operations a second of an mma on the whole chip, a multiply-add being two."""
    return 2 * volume(shape) / device.cpi[shape] * device.tensor_cores * device.clock


def fma_rate(device: DeviceProfile, dtype: str) -> float:
    """Operations a second on the CUDA cores; narrower types are summed in f32."""
    each = device.f64_fma_per_clk_sm if dtype == "f64" else device.f32_fma_per_clk_sm
    return 2 * each * device.sms * device.clock


def volume(shape: str) -> int:
    """Multiply-adds of an mma such as ``f64.m16n8k4``."""
    m, n, k = map(int, re.findall(r"(?<=[mnk])\d+", shape.rpartition(".")[2]))
    return m * n * k


def fastest_mma(device: DeviceProfile, dtype: str) -> str | None:
    """The mma of a type with the highest rate; None if the device has none."""
    begins = _MMA.get(dtype)
    own = [shape for shape in device.cpi if begins and shape.startswith(begins)]
    return max(own, key=lambda shape: mma_rate(device, shape), default=None)


def roofs(device: DeviceProfile, dtype: str) -> Iterator[Roof]:
    """The limits of a device for numbers of a type."""
    yield Roof("DRAM", "bandwidth", device.bw_global)
    yield Roof("L2", "bandwidth", device.l2_bytes_per_clk_sm * device.sms * device.clock)
    yield Roof("shared memory", "bandwidth", device.bw_shared)
    yield Roof("FP64 FMA" if dtype == "f64" else "FP32 FMA", "compute", fma_rate(device, dtype))
    if shape := fastest_mma(device, dtype):
        yield Roof(f"tensor cores, {shape}", "compute", mma_rate(device, shape))
