"""How many blocks of a kernel fit on a multiprocessor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sparsegen.cost.devices import AMPERE, DeviceProfile
from sparsegen.ir.numbers.arithmetic import up

# The same for every compute capability from 7.5 on: CUDA C++ Programming Guide, "Compute Capabilities"; granularity:
# the toolkit's <cuda_occupancy.h>, with which a test compares.
REGISTERS_A_THREAD, THREADS_A_BLOCK, REGISTER_STEP = 255, 1024, 256


@dataclass(frozen=True)
class Occupancy:
    """How many blocks and warps of a kernel are resident on one multiprocessor, and what stops the next block."""

    blocks: int
    warps: int
    max_warps: int
    limited_by: str

    @property
    def fraction(self) -> float:
        """Resident warps over the most possible, 0 to 1."""
        return self.warps / self.max_warps


class Blocks(Protocol):
    """What a schedule makes of a product: bytes of shared memory a block, registers a thread, blocks an SM."""

    @property
    def shared(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def resident(self) -> int: ...


def room(g: Blocks) -> str:
    """How much of an SM blocks take, for people to read."""
    kib = f"{g.shared / 1024:.3g} KiB of shared memory"
    return f"blocks an SM: {g.resident}; {kib}, about {g.registers} registers"


def occupancy(registers: int, shared: int, threads: int, device: DeviceProfile) -> Occupancy:
    """Resident blocks of a kernel: ``registers`` a thread, ``shared`` bytes (static + dynamic) and ``threads`` a block.

    Registers are given out to whole warps in each of the sub-cores, shared memory in steps and with the driver's own
    part. A block that cannot run at all gives ``blocks == 0``, and ``limited_by`` names why.
    """
    warps = max(1, -(-threads // 32))
    per_warp = up(registers * 32, REGISTER_STEP)
    step = 128 if device.compute_capability >= AMPERE else 256
    allocated = up(shared + device.smem_sm - device.smem_block, step)
    fits: dict[str, int] = {"threads": device.max_threads_sm // (warps * 32), "blocks": device.max_blocks_sm}
    if threads > THREADS_A_BLOCK:
        fits["threads"] = 0
    too_many = per_warp * up(warps, device.sub_cores) > device.regs_sm or registers > REGISTERS_A_THREAD
    if too_many:
        fits["registers"] = 0
    elif per_warp:
        fits["registers"] = device.regs_sm // device.sub_cores // per_warp * device.sub_cores // warps
    if allocated:
        fits["shared memory"] = device.smem_sm // allocated
    limited_by = min(fits, key=lambda k: fits[k])
    blocks = fits[limited_by]
    return Occupancy(blocks, blocks * warps, device.max_threads_sm // 32, limited_by)


def least_shared(blocks: int, device: DeviceProfile) -> int:
    """Bytes of shared memory of which no more than so many blocks fit on a multiprocessor."""
    return device.smem_sm // (blocks + 1) - (device.smem_sm - device.smem_block) + 1
